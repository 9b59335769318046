"""No spelling of an option is lost: each that was ever documented works, or is answered with the new one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.cli.commands import all_functions, below, function_of
from limpet.cli.config import known_options
from limpet.cli.gallery import FORMER, SUBCOMMANDS
from limpet.cli.parsing import MOVED, TABLES

NAMES = (Path(__file__).parent / "option_names.txt").read_text().splitlines()
RENAMED = {f"gallery {name}": f"gallery {new}" for name, new in FORMER.items()}


def takes(command: str, option: str) -> bool:
    """Return whether a command has an option, or options of a mapping of this name."""
    return command in all_functions() and option.replace("-", "_") in known_options(function_of(command))


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_works_or_is_answered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, option = name.partition(" --")
    command = RENAMED.get(command, command)
    if takes(command, option):
        return
    assert main([*command.split(), f"--{option}", "x"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    answered = re.findall(r"`limpet ([a-z ]+[a-z])(?: [A-Zx]| --|`)", said)
    now = MOVED.get((command, option.replace("-", "_")))
    if option in TABLES:
        assert f"`limpet {command} --embeddings " in said
    elif now is None:  # said of every subcommand that has it
        assert (
            {one for one in answered if takes(one, option)}
            == {f"{command} {one}" for one in below(command) if takes(f"{command} {one}", option)}
            != set()
        )
    else:
        assert now.command in answered and (not now.option or f" --{now.option.replace('_', '-')} x" in said)


@pytest.mark.parametrize(
    ("words", "now"),
    [
        ("embed --data photos --release a b --out o", "embed images photos --release a b --out o"),
        ("embed --release a --out o --data photos", "embed images photos --release a --out o"),
        ("embed --texts=x.csv --text-model m --out o", "embed texts x.csv --text-model m --out o"),
        ("embed --stored e.npz --stored-model v1 --out o", "embed stored e.npz --model v1 --out o"),
        ("evaluate --combine a b --metric map", "evaluate combine a b --metric map"),
        ("evaluate --chain a b --chain-independent c", "evaluate chain a b --independent c"),
        ("embed --stored-model v1 --out o", "embed stored EMBEDDINGS --model v1 --out o"),
        ("bench mine.yaml --seeds 0 1 --dry-run", "bench plan mine.yaml --seeds 0 1"),
        ("bench --dry-run=true --report none --suite mine.yaml", "bench plan mine.yaml"),
        ("bench --dry-run mine.yaml --json", "bench plan mine.yaml --json"),
        ("bench --dry-run", "bench plan SUITE"),
    ],
)
def test_a_command_of_former_words_is_answered_with_the_whole_new_one(
    words: str, now: str, fails: Callable[..., str]
) -> None:
    assert f"Next: `limpet {now}`; nothing was started." in fails(*shlex.split(words))


def test_the_names_are_those_of_commands() -> None:
    commands = {name.partition(" --")[0] for name in NAMES}
    assert len(NAMES) > 350 and {"train", "evaluate", "gallery search"} <= commands
    assert all(f"gallery {name}" in all_functions() for name in SUBCOMMANDS)
    assert set(all_functions()) <= commands
