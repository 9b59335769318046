"""What shells complete: asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.cli.app import app_for
from limpet.cli.program import COMMANDS

BASH = """
source "$1"; shift
for typed; do
  read -ra COMP_WORDS <<< "$typed"; [[ "$typed" != *' ' ]] || COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _limpet; echo "${COMPREPLY[@]}"
done
"""
OFFERED = {
    "limpet evaluate c": {"chain", "combine"},
    "limpet evaluate chain --pad": {"--pad-old"},
    "limpet evaluate --curve ": {"auto", "yes", "no"},
    "limpet completion f": {"fish"},
}
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, app = tmp_path_factory.mktemp("completion"), app_for()
    found = {shell: folder / shell for shell in SHELLS}
    for shell, path in found.items():
        path.write_text(app.generate_completion(shell=shell))  # type: ignore[arg-type]
    return found


def test_bash_offers_commands_options_and_the_words_of_options(scripts: dict[str, Path]) -> None:
    words = ["bash", "-c", BASH, "bash", str(scripts["bash"]), *OFFERED]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    found = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(OFFERED, found, strict=True)) == OFFERED


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_every_script(shell: str, scripts: dict[str, Path]) -> None:
    text = scripts[shell].read_text()
    assert [command for command in COMMANDS if command.rpartition(" ")[2] not in text] == []


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_shells_can_read_their_scripts(shell: str, scripts: dict[str, Path]) -> None:
    assert subprocess.run([shell, "-n", str(scripts[shell])], capture_output=True, check=False).stderr == b""


def test_completion_prints_a_script_and_refuses_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    assert "complete -c limpet" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
