"""A suite: what is compared, from one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from holdfast.bench.suite_checks import check_suite
from holdfast.bench.suite_schema import DEFAULTS, SESSION_SCORES, Suite, Tuning, Values
from holdfast.bench.suite_words import refusal
from holdfast.bench.suite_yaml import read_yaml
from holdfast.errors import ConfigError

__all__ = ["SESSION_SCORES", "Suite", "Tuning", "Values", "read_suite", "suite_from"]


def read_suite(path: Path) -> Suite:
    """Read a suite from a YAML file.

    Raises:
        ConfigError: The file cannot be read, something in it is unknown or of another type, or a key
            stands twice.
    """
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), str(path))
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
        raise refusal(error, content, where) from error
    check_suite(suite)
    return suite
