"""``limpet completion``."""

from __future__ import annotations

from typing import Literal

from limpet.cli.console import as_json, print_json


def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print the completion script of a shell.

    Bash: ``source <(limpet completion bash)`` in ~/.bashrc. Zsh: ``source <(limpet completion zsh)`` in ~/.zshrc, after
    compinit. Fish: ``limpet completion fish > ~/.config/fish/completions/limpet.fish``.

    Args:
        shell: bash, zsh or fish.

    Examples:
        limpet completion bash
    """
    from limpet.cli.app import app_for

    script = app_for().generate_completion(shell=shell)
    if as_json():
        print_json({"shell": shell, "script": script})
    else:
        print(script)
    return 0
