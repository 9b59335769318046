"""What to type after a recommendation: labels of benches, with their settings as options of real commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

import yaml

from holdfast.config import known_options, leaves

if TYPE_CHECKING:
    from holdfast.bench.recommend import Choice, Recommendation, Standing

Command = Callable[..., None]
SHOWN = 4  # labels of a group that are worth comparing on the user's own data
LIFT = "--lift_old"
WITHOUT_PART = ("model", "geometry")  # whose settings are options of their own: model.dim is --dim
NO_CHOICE = ({"model.channels", "model.image_size", "model.fit"}, {"start": "ridge"})
"""Settings that the data decides, and those that are as heads always are."""


def next_commands(found: Recommendation, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what to type next: what is recommended, and what compares its rivals on the user's own data."""
    if found.action == "adapt":
        yield from _adapt_commands(found.choice, arguments)
        return
    head = ["holdfast", "train", "--data", arguments["data"] or "DATA"]
    chosen, root = found.choice.chosen, arguments["data_root"]
    if chosen is not None:
        words = [*_method_words(found.choice, [chosen]), *_setting_words(found.choice, chosen, _train(), root)]
        yield shlex.join([*head, "--old", "RELEASE", *words, "--out", "runs"])
    rivals = found.choice.group[:SHOWN]
    if len(rivals) == 1:
        return
    scenario = ["--scenario", arguments["scenario"]]
    if not rivals:
        yield shlex.join([*head, *scenario, "--method", "bct", "p2s", "--out", "comparison"])
    for number, run in enumerate(_runs(found.choice, rivals, root), start=1):
        before = ["--old", "RELEASE"] if LIFT in run.settings else scenario  # it lifts a model that is there already
        words = [*before, *_method_words(found.choice, run.rivals), *run.settings]
        yield shlex.join([*head, *words, "--out", "comparison" if number == 1 else f"comparison-{number}"])


def _adapt_commands(choice: Choice, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the comparison of all that suits the user's items, and the head that the evidence speaks for."""
    from holdfast.cli.recommend import is_texts

    if arguments["data"] is not None and is_texts(arguments["data"]):
        sides = ["--texts", arguments["data"], "--old-text-model", "OLD", "--text-model", "NEW"]
    else:
        sides = ["--old", "OLD", "--new", str(arguments["embeddings"] or "NEW")]
    yield shlex.join(["holdfast", "adapt", *sides, "--out", "adapted", "--auto"])
    chosen = choice.chosen
    if chosen is not None:
        words = [*_method_words(choice, [chosen]), *_setting_words(choice, chosen, _adapt(), None)]
        yield shlex.join(["holdfast", "adapt", *sides, *words, "--out", "adapted-head"])


def _train() -> Command:
    from holdfast.cli.train import train

    return train


def _adapt() -> Command:
    from holdfast.cli.adapt import adapt

    return adapt


class _Run(NamedTuple):
    """Labels of different methods that share their settings: one command trains them all."""

    settings: list[str]
    rivals: list[Standing]


def _runs(choice: Choice, rivals: Sequence[Standing], root: Path | None) -> list[_Run]:
    runs: list[_Run] = []
    for one in rivals:
        settings = _setting_words(choice, one, _train(), root)
        methods = one.name.method
        fitting = (
            run
            for run in runs
            if run.settings == settings and methods not in {other.name.method for other in run.rivals}
        )
        run = next(fitting, None)
        if run is None:
            runs.append(_Run(settings, [one]))
        else:
            run.rivals.append(one)
    return runs


def _method_words(choice: Choice, rivals: Sequence[Standing]) -> list[str]:
    """Return the methods of labels, and their options in the nearest case where they are not the method's own."""
    from holdfast.methods import METHODS
    from holdfast.methods.descriptions import describe

    words = ["--method", *(one.name.method for one in rivals)]
    for one in rivals:
        method = one.name.method
        known = describe(method).options if method in METHODS else {}
        prefix = f"{method}." if len(rivals) > 1 else ""
        for name, value in choice.nearest(one).options.items():
            if name not in known or known[name] != value:
                words += [f"--method_options.{prefix}{name}", word(value)]
    return words


def _setting_words(choice: Choice, one: Standing, command: Command, root: Path | None) -> list[str]:
    """Return the settings of a label in the nearest case as options of a command, where they are not its own."""
    known = known_options(command)
    words = []
    for name, value in leaves(choice.nearest(one).settings, known):
        option = _option(name, known)
        if option is None or value == _default(command, option):
            continue
        if option == "weights":  # by name below the folder of the data
            value = str((root or Path()) / "weights" / str(value))
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        words += [part for key, each in inner for part in (f"--{option}{key and f'.{key}'}", word(each))]
    return words


def not_in_commands(found: Recommendation) -> dict[str, Any]:
    """Return settings of the chosen label that no option of the commands can say."""
    if found.choice.chosen is None:
        return {}
    known = known_options(_adapt() if found.action == "adapt" else _train())
    by_data, as_ever = NO_CHOICE
    return {
        name: value
        for name, value in leaves(found.settings, known)
        if _option(name, known) is None and name not in by_data and as_ever.get(name) != value
    }


def _option(setting: str, known: Mapping[str, Any]) -> str | None:
    """Return the option that a setting of a bench is for a command; None where it has none.

    >>> known = {"dim": int, "recipe.epochs": int, "head_options": dict[str, int]}
    >>> [_option(name, known) for name in ("model.dim", "recipe.epochs", "head_options.scale", "start")]
    ['dim', 'recipe.epochs', 'head_options.scale', None]
    """
    part, _, rest = setting.partition(".")
    name = rest if part in WITHOUT_PART else setting
    return name if name in known or get_origin(known.get(name.partition(".")[0])) is dict else None


def _default(command: Command, option: str) -> Any:
    """Return the value that an option has where it is not given."""
    first, *rest = option.split(".")
    value = signature(command).parameters[first].default
    for name in rest:
        value = value.get(name, math.nan) if isinstance(value, Mapping) else getattr(value, name)  # equal to nothing
    return value


def word(value: Any) -> str:
    """Write a value so that the command line reads it back as what it is.

    >>> [word(value) for value in ("mlp", 0.3, 1e-05, True, None, [1, 2], "0.5")]
    ['mlp', '0.3', '1.0e-05', 'true', 'null', '[1, 2]', "'0.5'"]
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
