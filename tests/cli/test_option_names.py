"""No spelling of an option is lost: each that was ever documented works, or is answered with the new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cli.commands import all_functions, function_of
from holdfast.cli.gallery import FORMER, SUBCOMMANDS
from holdfast.cli.parsing import MOVED
from holdfast.config import known_options

NAMES = (Path(__file__).parent / "option_names.txt").read_text().splitlines()
RENAMED = {f"gallery {name}": f"gallery {new}" for name, new in FORMER.items()}


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_works_or_is_answered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, option = name.partition(" --")
    option = option.replace("-", "_")
    command = command if command in all_functions() else RENAMED[command]
    if option in known_options(function_of(command)):
        return
    assert main([*command.split(), f"--{option}", "x"]) == 2
    assert f"holdfast {MOVED[command, option]}".split(" FOLDER")[0] in " ".join(capsys.readouterr().err.split())


def test_the_names_are_those_of_commands() -> None:
    commands = {name.partition(" --")[0] for name in NAMES}
    assert len(NAMES) > 350 and {"train", "evaluate", "gallery search"} <= commands
    assert all(f"gallery {name}" in all_functions() for name in SUBCOMMANDS)
