"""The command line as a Cyclopts app: which function is which command, and how words become its arguments."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError
from cyclopts.config import Env
from rich.console import Console

from limpet.cli import console as shown
from limpet.cli import layout, settings
from limpet.cli.console import console
from limpet.cli.layout import LISTS_AND_FLAGS, Columns
from limpet.cli.parameters import Options
from limpet.cli.program import LIMPET, Program, path_of
from limpet.cli.settings import Settings, Typed
from limpet.errors import ConfigError, unknown_name

HELP = frozenset({"--help", "-h", "--help-all"})


@Parameter(group=Group("General", sort_key=3))
@dataclass(frozen=True)
class General(Options):
    """Options of every command.

    Args:
        json: Print one JSON document to standard output.
        config: TOML file with settings, instead of the nearest limpet.toml.
        verbose: Log what the library does.
        quiet: Print nothing but errors and --json.
        no_color: Print without colours.
    """

    json: bool = False
    config: str | None = None
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    no_color: bool = False


def function_of(path: str, program: Program = LIMPET) -> Callable[..., int]:
    """Return the function of a command, such as "evaluate chain".

    Raises:
        KeyError: There is no such command.
    """
    module, _, name = program.commands[path][0].partition(":")
    found: Callable[..., int] = getattr(import_module(f"{program.package}.{module}"), name)
    return found


def app_for(path: str | None = None, program: Program = LIMPET) -> App:
    """Build the app.

    Args:
        path: The command that is going to run, whose function is imported; all others are loaded when they are asked
            for. None imports the function of every command, for completion and tests.
        program: Whose command it is.
    """
    app = App(
        name=program.name,
        console=Console(soft_wrap=True, highlight=False),
        help=program.help,
        help_format="plaintext",
        help_formatter=Columns(),
        help_flags=sorted(HELP),
        version_flags=[],
        default_parameter=LISTS_AND_FLAGS,
    )
    above = {"": app}
    for name in dict.fromkeys((*program.groups, *program.commands)):
        first, _, second = name.partition(" ")
        loaded = name in program.commands and path in (None, name)
        if any(other.startswith(f"{name} ") for other in program.commands):
            above[name] = group = App(
                name=name, help=program.groups.get(name) or (None if loaded else program.commands[name][1])
            )
            app.command(group)
            if loaded:
                group.default(function_of(name, program))
                group.help_epilogue = _epilogue(name, program)
            continue
        parent = above[first if second else ""]
        if loaded:
            parent.command(function_of(name, program), name=second or first, help_epilogue=_epilogue(name, program))
        else:
            place, said = program.commands[name]
            parent.command(f"{program.package}.{place}", name=second or first, help=said)
    return app


def run_command(words: Sequence[str], program: Program = LIMPET) -> int:
    """Run the command that words name and return its exit code.

    Args:
        words: What the user typed after the name of the program.
        program: Whose command it is.

    Raises:
        ConfigError: The program has no such command, or an option is unknown, missing, or has a wrong value.
    """
    if (path := path_of(words, program)) is None:
        raise unknown_name("command", words[0], program.summaries, listing=f"{program.name} --help")
    return run(words, path, program)


def run(words: Sequence[str], path: str, program: Program = LIMPET) -> int:
    """Run the command that words name and return its exit code.

    Args:
        words: What the user typed after the name of the program.
        path: What `path_of` returned for them.
        program: Whose command it is.

    Raises:
        ConfigError: An option is unknown, missing, or has a wrong value.
    """
    layout.SHOW_ALL = "--help-all" in words
    app = app_for(path, program)
    # Help lists the options of every command, too. A meta app also parses those of the command, twice as slowly.
    helps = path not in program.commands or not HELP.isdisjoint(words)
    entry = app.meta if helps else App(help_flags=[], version_flags=[], default_parameter=LISTS_AND_FLAGS)

    @entry.default
    def launch(
        *rest: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        general: General = General(),
    ) -> int:
        _set_up(general)
        app.config = [Env("LIMPET_", show=False), *settings.sources(general.config, path, program.table)]
        command, bound, unparsed = app.parse_args(rest, exit_on_error=False, print_error=False)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if isinstance(value, Options):
                bound.arguments[name] = replace(value)  # type: ignore[type-var]  # what one keeps is of this call
        given = {
            Settings: Settings.of(f"{program.table} {path}".strip(), bound.arguments),
            Typed: Typed.of(words, program.name),
        }
        code = command(*bound.args, **{**bound.kwargs, **{name: given[kind] for name, kind in unparsed.items()}})
        return int(code or 0)  # a group alone prints its help

    try:
        code = entry(words, exit_on_error=False, print_error=False, result_action="return_value")
        return int(code or 0)  # none of help
    except ConfigError as error:
        error.to_do = error.to_do or f"`{program.name} {path} --help` lists the options."
        raise
    except CycloptsError as error:
        if isinstance(error.__cause__, ConfigError):  # of what reads a value
            raise error.__cause__ from None
        raise ConfigError(
            _said(error, f"{program.name} {path}"), to_do=f"`{program.name} {path} --help` lists the options."
        ) from error


def _said(error: CycloptsError, path: str) -> str:
    if isinstance(error, UnusedCliTokensError):
        return f"`{path}` does not take {' '.join(map(repr, error.unused_tokens or []))}."
    return " ".join(str(error).split())


def _set_up(general: General) -> None:
    shown.JSON = general.json
    console.quiet = general.quiet or not shown.FIRST
    console.no_color = general.no_color or "NO_COLOR" in os.environ
    if general.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("limpet").setLevel(logging.DEBUG)


def examples_of(function: Callable[..., Any]) -> list[str]:
    """Return the commands in the examples of a docstring, those on several lines as one.

    >>> def run() -> None:
    ...     '''Run.
    ...
    ...     Examples:
    ...         limpet run --data photos
    ...             --out there
    ...     '''
    >>> examples_of(run)
    ['limpet run --data photos --out there']
    """
    _, _, said = inspect.cleandoc(function.__doc__ or "").partition("\nExamples:\n")
    lines = said.partition("\n\n")[0].splitlines()
    joined = "".join(
        f"\n{line}" if line.startswith(("    limpet ", "    limpet-bench ")) else f" {line.strip()}" for line in lines
    )
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _epilogue(path: str, program: Program) -> str:
    return "\n".join(["Examples:", *(f"  {example}" for example in examples_of(function_of(path, program)))])


def options_of(path: str) -> list[str]:
    """Return the options of a command as people type them, without those of every command.

    >>> options_of("completion")
    ['--shell']
    """
    app = app_for(path)
    for word in path.split():
        app = app[word]
    return [argument.name for argument in app.assemble_argument_collection() if argument.show]
