"""The help of every command ends with commands that can be typed."""

from __future__ import annotations

import shlex

import pytest

from limpet.cli import app, main
from limpet.cli.app import app_for, examples_of
from limpet.cli.program import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_a_command_can_be_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = examples_of(app.function_of(command))
    assert examples
    for example in examples:
        assert example.startswith(f"limpet {command}")
        words = shlex.split(example.removeprefix("limpet "))
        app_for(command).parse_args(words, exit_on_error=False, print_error=False)
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("\n".join(f"  {example}" for example in examples))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_described_and_few_are_shown(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    collection = app_for(command)
    for word in command.split():
        collection = collection[word]
    arguments = [one for one in collection.assemble_argument_collection(parse_docstring=True) if one.show]
    assert [one.name for one in arguments if not one.parameter.help] == []
    assert main([*command.split(), "--help"]) == 0
    assert command in MANY or capsys.readouterr().out.count("\n  -") <= 22  # 5 of them of every command


MANY: set[str] = set()
"""Commands that show more options than fit a screen."""
