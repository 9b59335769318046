"""Settings of one experiment: changed by dotted name, resolved with all defaults, and told to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.experiments import experiment_from, plain, weights_digest
from holdfast.bench.suite_schema import Entry, Values
from holdfast.methods import METHODS
from holdfast.training.code import version_of

Changes = Mapping[str, Any]
"""Settings other than those written, by dotted name: a trial, or what was chosen."""


def changed(values: Values, changes: Changes) -> Values:
    """Return settings with some changed, by dotted name.

    >>> changed({"options": {"weight": 1}, "method": "p2s"}, {"options.weight": 2, "recipe.epochs": 3})
    {'options': {'weight': 2}, 'method': 'p2s', 'recipe': {'epochs': 3}}
    """
    result = dict(values)
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        result[first] = changed(result.get(first, {}), {rest: value}) if rest else value
    return result


def resolved(values: Values, seed: int, root: Path | None) -> Values:
    """Return everything that decides a run, defaults too: what the address of its cell is made of."""
    found: Values = {"experiment": plain(experiment_from({**values, "seed": seed}))}
    if (weights := values.get("weights")) is not None:
        found["weights_digest"] = weights_digest(weights, root)
    if version := version_of(METHODS[values["method"]]):
        found["method_code"] = version
    return found


def told(entry: Entry, changes: Changes) -> Values:
    """Return the settings of a row that are its own, beside the options of its method, by dotted name.

    >>> told(Entry(model={"projection": "mlp"}, options={"weight": 2}), {"options.weight": 3, "recipe.epochs": 4})
    {'model.projection': 'mlp', 'recipe.epochs': 4}
    """
    return {name: value for name, value in (*_written(entry), *changes.items()) if name.partition(".")[0] != "options"}


def _written(entry: Entry) -> Iterator[tuple[str, Any]]:
    for part in ("model", "geometry", "head_options", "recipe"):
        yield from ((f"{part}.{name}", value) for name, value in getattr(entry, part).items())
    for whole in ("head", "weights", "start"):
        if whole in entry.model_fields_set:
            yield whole, getattr(entry, whole)
