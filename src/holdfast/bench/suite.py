"""A suite: what is compared, from one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from holdfast.bench.suite_checks import check_suite
from holdfast.bench.suite_schema import (
    DEFAULTS,
    SESSION_SCORES,
    Entry,
    EvaluationSet,
    InScenario,
    Overrides,
    Suite,
    Tuning,
    Values,
)
from holdfast.errors import ConfigError, nearest

__all__ = ["SESSION_SCORES", "Suite", "Tuning", "Values", "read_suite", "suite_from"]


def read_suite(path: Path) -> Suite:
    """Read a suite from a YAML file.

    Raises:
        ConfigError: The file cannot be read, or something in it is unknown or of another type.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected="a YAML file of a suite") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' is no valid YAML: {error}", expected="a YAML mapping") from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"'{path}' holds {type(content).__name__}.", expected="a YAML mapping such as 'name: mine'")
    return suite_from({"name": path.stem, "title": path.stem, **content}, str(path))


def suite_from(content: Mapping[str, Any], where: str) -> Suite:
    """Build a suite from plain values, and refuse what nobody knows before anything is run.

    Raises:
        ConfigError: A setting, method, data set, scenario or metric is unknown, or a value is of another type.
    """
    try:
        suite = Suite.model_validate({**DEFAULTS.get(str(content.get("track")), {}), **content})
    except ValidationError as error:
        raise _refusal(error, where) from error
    check_suite(suite)
    return suite


def _refusal(error: ValidationError, where: str) -> ConfigError:
    """Say what is wrong first, and which name may have been meant."""
    first = error.errors()[0]
    place, said = tuple(map(str, first["loc"])), first["msg"]
    meant = nearest(place[-1], _known_beside(place)) if first["type"] == "extra_forbidden" else ""
    return ConfigError(
        f"The setting '{'.'.join(place)}' in {where}: {said[:1].lower()}{said[1:]}.{meant}",
        expected="a suite as the README describes it",
        to_do="correct it; nothing was run.",
    )


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
