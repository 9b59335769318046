"""What a suite of another form is told, in plain words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from holdfast.bench.suite_schema import Entry, EvaluationSet, InScenario, Overrides, Suite, Tuning
from holdfast.errors import ConfigError, nearest
from holdfast.experiment import Geometry, Recipe
from holdfast.methods import METHODS
from holdfast.models.encoder import EncoderSpec
from holdfast.options import option_types

PAGE = "docs/suites.md"
"""Where every setting of a suite is described."""

LISTS = {"seeds": "[0, 1, 2]", "metrics": "[recall@1, map]"}
"""Examples of settings that are lists."""

INNER: dict[str, list[str]] = {
    "recipe": [field.name for field in dataclasses.fields(Recipe)],
    "model": list(EncoderSpec.model_fields),
    "geometry": [field.name for field in dataclasses.fields(Geometry)],
}
"""Settings that stand one level below others, where people look for them first."""


def refusal(error: ValidationError, content: Mapping[str, Any], where: str) -> ConfigError:
    """Say what is wrong first, what would be right, and which name may have been meant."""
    first = error.errors()[0]
    place, said, given = tuple(map(str, first["loc"])), first["msg"], first["input"]
    name, expected = ".".join(place), f"a suite as {PAGE} describes it"
    to_do = f"correct it ({PAGE} describes every setting); nothing was run."
    if first["type"] in ("tuple_type", "list_type"):
        example = LISTS.get(place[-1], f"[{_written(given)}]")
        return ConfigError(f"The setting '{name}' in {where} is {_written(given)}.", f"a list such as {example}", to_do)
    if first["type"] in ("dict_type", "model_type"):
        return ConfigError(f"The setting '{name}' in {where} is {_written(given)}.", _mapping(given), to_do)
    meant = ""
    if first["type"] == "extra_forbidden":
        belongs = _belongs(place, content)
        meant = nearest(place[-1], _known_beside(place)) if not belongs else ""
        to_do = f"write {belongs}: {{{place[-1]}: {_written(given)}}}; nothing was run." if belongs else to_do
    return ConfigError(f"The setting '{name}' in {where}: {said[:1].lower()}{said[1:]}.{meant}", expected, to_do)


def _mapping(given: Any) -> str:
    """Say how a mapping is written, with the names that were given in a list.

    >>> _mapping(["p2s", "bct"]), _mapping(3)
    ('a mapping: {p2s: {}, bct: {}}', 'a mapping, such as {name: value}, or {} for nothing')
    """
    if isinstance(given, list) and given and all(isinstance(name, str) for name in given):
        return f"a mapping: {{{', '.join(f'{name}: {{}}' for name in given)}}}"
    return "a mapping, such as {name: value}, or {} for nothing"


def _written(value: Any) -> str:
    """Write a value about as YAML has it, shortened.

    >>> _written(["p2s", 2]), _written(True)
    ('[p2s, 2]', 'true')
    """
    if isinstance(value, list):
        text = f"[{', '.join(map(_written, value))}]"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{name}: {_written(one)}' for name, one in value.items())}}}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _belongs(place: tuple[str, ...], content: Mapping[str, Any]) -> str:
    """Return the setting that an unknown name belongs into, such as "options" for those of a method; or ""."""
    if place[0] == "methods" and len(place) == 3:
        row = content["methods"][place[1]]
        method = row.get("method") or place[1]
        if method in METHODS and place[-1] in option_types(METHODS[method]):
            return "options"
    beside = _known_beside(place)
    return next((part for part, names in INNER.items() if part in beside and place[-1] in names), "")


def _known_beside(place: tuple[str, ...]) -> list[str]:
    """Return the names that can stand where an unknown one was found."""
    if len(place) == 1:
        return list(Suite.model_fields)
    parts: dict[str, tuple[type[BaseModel], int]] = {"methods": (Entry, 3), "by_data": (Overrides, 3)}
    parts |= {
        "by_scenario": (InScenario, 3),
        "test_sets": (EvaluationSet, 3),
        "old": (Overrides, 2),
        "tuning": (Tuning, 2),
    }
    part, depth = parts.get(place[0], (BaseModel, 0))
    return list(part.model_fields) if len(place) == depth else []
