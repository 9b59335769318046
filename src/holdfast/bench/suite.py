"""A suite: what is compared, from one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.bench.suite_checks import check_suite
from holdfast.bench.suite_schema import DEFAULTS, SESSION_SCORES, Suite, Tuning, Values
from holdfast.bench.suite_words import refusal
from holdfast.documents import read_yaml

__all__ = ["SESSION_SCORES", "Suite", "Tuning", "Values", "read_suite", "suite_from"]

FREE_NAMES = {
    "methods": "{method: p2s}",
    "scenarios": "{scenario: extended-class}",
    "test_sets": "{data: omniglot}",
}
"""Parts of a suite whose names are free, and how an entry then says what it is of."""


def read_suite(path: Path) -> Suite:
    """Read a suite from a YAML file.

    Raises:
        ConfigError: The file cannot be read, something in it is unknown or of another type, or a key
            stands twice.
    """
    content = read_yaml(path, "a YAML mapping of a suite, such as 'name: mine'", free_names=FREE_NAMES)
    return suite_from({"name": path.stem, "title": path.stem, **content}, str(path))


def suite_from(content: Mapping[str, Any], where: str) -> Suite:
    """Build a suite from plain values, and refuse what nobody knows before anything is run.

    Raises:
        ConfigError: A setting, method, data set, scenario or metric is unknown, or a value is of another type.
    """
    try:
        suite = Suite.model_validate({**DEFAULTS.get(str(content.get("track")), {}), **content})
    except ValidationError as error:
        raise refusal(error, content, where) from error
    check_suite(suite)
    return suite
