"""The command line as a Cyclopts app: which function is which command, and how words become its arguments."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from limpet.cli.settings import Settings, Typed
from limpet.errors import ConfigError, unknown_name

COMMANDS: dict[str, tuple[str, str]] = {
    "data": ("data:data", "List the known data sets, or explain one."),
    "data list": ("data:list_all", "List the known data sets."),
    "data describe": ("data:describe", "Count the images or texts and the classes of a data set."),
    "data check": ("data:check", "Read all of a data set and look for leaks."),
    "methods": ("methods:methods", "List the compatibility methods, or explain one."),
    "methods check": ("methods:check", "Check that a method keeps the contract of methods."),
    "export": ("export:export", "Write an adapter, a head or an image model for serving without limpet."),
    "evaluate": ("evaluate:evaluate", "Measure whether new queries can search an old index."),
    "evaluate chain": ("evaluate_chain:chain", "Measure every pair of a chain of models."),
    "evaluate combine": ("evaluate_combine:combine", "Combine evaluations on several test sets."),
    "evaluate protocols": ("evaluate:protocols", "List the evaluation protocols."),
    "demo": ("demo:demo", "Train an old and several new models on rendered characters and compare them."),
    "train": ("train:train", "Train a model, or a comparison of old, independent and compatible models."),
    "fine-tune": ("fine_tune:fine_tune", "Fine-tune a text model so that its queries search an old index."),
    "embed images": ("embed:images", "Embed images with releases."),
    "embed texts": ("embed:texts", "Embed texts with text models, heads or an adapter."),
    "embed stored": ("embed:stored", "Map stored embeddings to another space."),
    "adapt": ("adapt:adapt", "Link two frozen models by an adapter or a compatible head."),
    "gallery create": ("gallery.create:create", "Make a gallery for the vectors of a model, and fill it."),
    "gallery import": ("gallery.imports:import_rows", "Add items from files, tables or collections, or embed them."),
    "gallery add": ("gallery.rows:add", "Add new items."),
    "gallery upsert": ("gallery.rows:upsert", "Add items, or replace them with all their vectors."),
    "gallery delete": ("gallery.rows:delete", "Remove items with all their vectors."),
    "gallery search": ("gallery.search:search", "Find the nearest items."),
    "gallery status": ("gallery.status:status", "Show where the gallery and its upgrade stand, and what to type next."),
    "gallery index": ("gallery.index:index", "Build an approximate index over the vectors of a generation."),
    "gallery doctor": ("gallery.checks:doctor", "Read everything again and report what is wrong."),
    "gallery export": ("gallery.checks:export", "Write the vectors and metadata of a generation to a file."),
    "gallery backup": ("gallery.backup:backup", "Copy everything to a new folder while the gallery is written to."),
    "gallery restore": ("gallery.backup:restore", "Make a gallery from a backup in a new place."),
    "gallery plan": ("gallery.plan:plan", "Estimate the items, hours, cost and room of an upgrade."),
    "gallery rehearse": ("gallery.rehearse:rehearse", "Try a whole upgrade on a copy of a sample and measure it."),
    "gallery prepare": ("gallery.upgrade:prepare", "Make room for a new model; nothing that is served changes."),
    "gallery link": ("gallery.upgrade:link", "Let queries of one model search vectors of another."),
    "gallery calibrate": ("gallery.upgrade:calibrate", "Merge old and new vectors by scores on one scale."),
    "gallery swap": ("gallery.upgrade:swap", "Make the prepared model the active one."),
    "gallery backfill": ("gallery.backfill:backfill", "Give items new vectors, batch by batch; resumable."),
    "gallery complete": ("gallery.upgrade:complete", "Check every new vector and declare the upgrade finished."),
    "gallery rollback": ("gallery.upgrade:rollback", "Make the former model active again."),
    "gallery abandon": ("gallery.upgrade:abandon", "Give up the prepared model."),
    "gallery gc": ("gallery.upgrade:gc", "Remove vectors that are no longer needed."),
    "gallery journal": ("gallery.status:journal", "List what was done to the gallery."),
    "attach start": ("attach:start", "Attach to a table or collection and make room for new vectors."),
    "attach status": ("attach:status", "Show where the upgrade stands and what to type next."),
    "attach backfill": ("attach:backfill", "Give rows new vectors in small transactions; resumable."),
    "attach index": ("attach:index", "Build indexes over new vectors."),
    "attach swap": ("attach:swap", "Let the application's queries find new vectors."),
    "attach rollback": ("attach:rollback", "Let the application's queries find old vectors again."),
    "attach writes": ("attach:writes", "Declare with which model the application writes."),
    "attach verify": ("attach:verify", "Look for wrong rows and for queries that should change."),
    "attach complete": ("attach:complete", "Count every row and declare the upgrade finished."),
    "attach detach": ("attach:detach", "Remove everything that was added."),
    "attach journal": ("attach:journal", "List what was done."),
    "completion": ("completion:completion", "Print the completion script of bash, zsh or fish."),
}
"""By what people type: module and function, and what the help of the group says about it."""

GROUPS: dict[str, str] = {
    "embed": "Embed images or texts, or map stored embeddings to another space.",
    "gallery": "Keep a live gallery: search, swap the model, backfill, roll back.",
    "attach": "Upgrade the model of your own table or collection while the application uses it.",
}
"""Words that are no command without another one, and what their help says."""


@dataclass(frozen=True)
class Program:
    """A program and its commands.

    Args:
        name: What people type.
        help: What it is, in a sentence.
        package: The package of the modules with its commands.
        commands: Module and function of every command, and what the help says about it; see `COMMANDS`.
        groups: See `GROUPS`.
        table: The table of limpet.toml that holds the tables of its commands; "" for the top.
    """

    name: str
    help: str
    package: str
    commands: Mapping[str, tuple[str, str]]
    groups: Mapping[str, str] = field(default_factory=dict)
    table: str = ""


HELP = frozenset({"--help", "-h", "--help-all"})
LIMPET = Program("limpet", "Upgrade an embedding model without re-indexing.", "limpet.cli", COMMANDS, GROUPS)


@Parameter(group=Group("General", sort_key=3))
@dataclass(frozen=True)
class General(Options):
    """Options of every command.

    Args:
        json: Print one JSON document to standard output.
        config: TOML file with settings, in place of the nearest limpet.toml.
        verbose: Log what the library does.
        quiet: Print nothing but errors and --json.
        no_color: Print without colours.
    """

    json: bool = False
    config: str | None = None
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    no_color: bool = False


def path_of(words: Sequence[str], program: Program = LIMPET) -> str | None:
    """Return the command or group that words name, such as "evaluate chain"; None where this app has none of it."""
    begins = 0
    while begins < len(words) and words[begins].startswith("-"):  # options of every command may come first
        begins += 2 if words[begins] == "--config" else 1
    for length in (2, 1):
        if (path := " ".join(words[begins : begins + length])) in program.commands or path in program.groups:
            return path
    return None


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
        known = dict.fromkeys(command.partition(" ")[0] for command in program.commands)
        raise unknown_name("command", words[0], known, listing=f"{program.name} --help")
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
