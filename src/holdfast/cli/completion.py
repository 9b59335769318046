"""``holdfast completion``: commands, options and their choices for the completion of a shell."""

from __future__ import annotations

from typing import Literal, get_origin

from holdfast.cli.commands import all_functions, first_of, function_of
from holdfast.cli.console import print_json
from holdfast.cli.help import choices_of
from holdfast.config import known_options

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, json: bool = False) -> int:
    """Print the completion of a shell: commands, subcommands, options, and the words that options take.

    Bash: ``source <(holdfast completion bash)`` in ~/.bashrc. Zsh: the same with zsh in ~/.zshrc, after compinit. Fish:
    ``holdfast completion fish > ~/.config/fish/completions/holdfast.fish``.

    Args:
        shell: bash, zsh or fish.
        json: Print one JSON document with the script.

    Examples:
        holdfast completion bash
    """
    script = SCRIPTS[shell]()
    if json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
    return 0


def options_of(command: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a command as people write them, with the words that each takes, if these are few."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in known_options(function_of(command)).items():
        mapping = get_origin(hint) is dict
        found[f"--{name.replace('_', '-')}{'.' if mapping else ''}"] = () if mapping else choices_of(hint)
    return {**found, "--config": (), "--help": ()}


def words_after(path: str) -> list[str]:
    """Return the words that may follow a command that is typed so far, without options.

    >>> words_after("evaluate"), "search" in words_after("gallery")
    (['chain', 'combine', 'protocols'], True)
    """
    depth = len(path.split())
    known = (command.split() for command in all_functions())
    return sorted({words[depth] for words in known if len(words) > depth and " ".join(words[:depth]) == path})


def _paths() -> list[str]:
    """Return all beginnings of commands, and commands."""
    return sorted({" ".join(words[:end]) for words in map(str.split, all_functions()) for end in range(len(words) + 1)})


def _cases(quote: str) -> list[str]:
    """Return the arms of a shell's case over what was typed: the command so far, and an option after it."""
    lines = []
    for path in _paths():
        options = options_of(path) if path in all_functions() else {"--help": ()}
        first = options.get(f"--{first_of(path)}", ())
        lines.append(
            f"    {quote}{path}{quote}) words={quote}{' '.join([*words_after(path), *first, *options])}{quote} ;;"
        )
        lines += [
            f"    {quote}{path} {option}{quote}) words={quote}{' '.join(choices)}{quote} ;;"
            for option, choices in options.items()
            if choices
        ]
    return lines


def _bash() -> str:
    return "\n".join(
        [
            "_holdfast() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" place',
            "  for ((place = 1; place < COMP_CWORD; place++)); do",
            '    case "${COMP_WORDS[place]}" in -*) break ;; esac',
            '    local longer="${path:+$path }${COMP_WORDS[place]}"',
            f'    case "|{"|".join(_paths())}|" in *"|$longer|"*) path="$longer" ;; *) break ;; esac',
            "  done",
            '  _holdfast_words() { case "$1" in',
            *_cases('"'),
            "  esac; }",
            '  case "$before" in --*) _holdfast_words "$path $before" ;; esac',
            '  [ -n "$words" ] || _holdfast_words "$path"',
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            '  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))',
            "}",
            "complete -o filenames -F _holdfast holdfast",
        ]
    )


def _zsh() -> str:
    return "\n".join(["autoload -U +X bashcompinit && bashcompinit", _bash()])


def _fish() -> str:
    lines = ["complete -c holdfast -f"]
    for path in _paths():
        typed = path.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in typed) or "__fish_use_subcommand"
        options = options_of(path) if path in all_functions() else {}
        first = options.get(f"--{first_of(path)}", ())
        lines += [f"complete -c holdfast -n '{seen}' -a {word}" for word in (*words_after(path), *first)]
        for option, choices in options.items():
            taken = f" -xa '{' '.join(choices)}'" if choices else ""
            lines.append(f"complete -c holdfast -n '{seen}' -l {option.removeprefix('--')}{taken}")
    return "\n".join(lines)


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""What writes the completion, by shell."""
