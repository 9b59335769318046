"""What shells complete: asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.cli import COMMANDS, main
from holdfast.cli.commands import all_functions
from holdfast.cli.completion import SCRIPTS, options_of, words_after


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "holdfast.bash"
    path.write_text(SCRIPTS["bash"]())
    return path


def completed(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    asked = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf "%s\\n" "${COMPREPLY[@]}"'
    bash = ["bash", "-c", asked, "bash", str(script), "holdfast", *words]
    return subprocess.run(bash, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tra"], ["train"]),
        (["gallery", "sea"], ["search"]),
        (["gallery", "search", "--appr"], ["--approximate"]),
        (["evaluate", "c"], ["chain", "combine"]),
        (["embed", ""], ["images", "stored", "texts", "--help"]),
        (["embed", "images", "--part", "v"], ["validation"]),
        (["evaluate", "--gate", ""], ["interval", "point"]),
        (["evaluate", "chain", "--old-b"], ["--old-baseline"]),
        (["evaluate", "--json", "--gate", "p"], ["point"]),
        (["completion", "f"], ["fish"]),
    ],
)
def test_bash_offers(script: Path, words: list[str], offered: list[str]) -> None:
    assert completed(script, *words) == offered


def test_bash_offers_files_where_a_value_is_free(script: Path, tmp_path: Path) -> None:
    (tmp_path / "embedded.npz").touch()
    assert completed(script, "evaluate", "--old", f"{tmp_path}/emb") == [f"{tmp_path}/embedded.npz"]


def test_every_command_and_option_is_in_every_script() -> None:
    assert {command.split()[0] for command in all_functions()} == set(COMMANDS)
    for shell, write in SCRIPTS.items():
        text = write()
        for command in all_functions():
            for option in options_of(command):
                assert option.removeprefix("--") in text, (shell, command, option)
    assert words_after("")[0] == "adapt"


@pytest.mark.parametrize("shell", [shell for shell in SCRIPTS if shutil.which(shell)])
def test_shells_can_read_their_scripts(shell: str, tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell]())
    assert subprocess.run([shell, "-n", str(path)], capture_output=True, check=False).stderr == b""


def test_the_command_prints_it_and_refuses_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert "complete -o filenames -F _holdfast holdfast" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
