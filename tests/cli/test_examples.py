"""The help of every command ends with commands that can be typed, and those of the README are among them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from limpet.cli import app, main
from limpet.cli.app import app_for, examples_of
from limpet.cli.commands import all_functions, below, function_of
from limpet.cli.help import _is_shown
from limpet.cli.parsing import _parser, parse

OTHERS = [
    name for name in all_functions() if name.partition(" ")[0] not in {one.partition(" ")[0] for one in app.COMMANDS}
]
"""Commands that Cyclopts does not read yet."""
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("command", app.COMMANDS)
def test_the_examples_of_a_command_can_be_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = examples_of(app.function_of(command))
    assert examples
    for example in examples:
        assert example.startswith(f"limpet {command}")
        words = shlex.split(example.removeprefix("limpet "))
        app_for(command).parse_args(words, exit_on_error=False, print_error=False)
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("\n".join(f"  {example}" for example in examples))


@pytest.mark.parametrize("command", app.COMMANDS)
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


@pytest.mark.parametrize("command", OTHERS)
def test_the_examples_of_a_command_are_commands_of_its(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    function = function_of(command)
    examples = examples_of(function)
    assert examples, f"the docstring of {function.__module__}.{function.__name__} has no examples"
    for example in examples:
        assert example.startswith(f"limpet {command}")
        words = shlex.split(example.removeprefix(f"limpet {command}"))
        if words and words[0] in below(command):  # a command that is short for one of those below it
            assert function_of(f"{command} {words[0]}") is function
            words = words[1:]
        parse(function, words, command)
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), "--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.rstrip().endswith("\n".join(f"  {example}" for example in examples))


@pytest.mark.parametrize("command", OTHERS)
def test_every_option_of_a_command_is_described(command: str) -> None:
    actions = [
        one for group in _parser(function_of(command), command)[0]._action_groups for one in group._group_actions
    ]
    assert [one.dest for one in actions if _is_shown(one) and not (one.help or "").strip()] == []


def test_the_readme_and_the_help_print_the_same_commands() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.S | re.M)
    printed = [line for block in blocks for line in block.splitlines()]
    functions = [*map(function_of, OTHERS), *map(app.function_of, app.COMMANDS)]
    known = {example for function in functions for example in examples_of(function)}
    assert len(printed) > 10 and not {*printed} - known


@pytest.mark.parametrize("command", [name for name in ("embed",) if below(name)])
def test_a_command_that_is_nothing_alone_shows_an_example_of_each(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == 2
    said = capsys.readouterr().out
    for name in below(command):
        assert examples_of(function_of(f"{command} {name}"))[0] in said
