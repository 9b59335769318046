"""Suites as Python files."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_suite(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a Python file whose only function returns a suite with these values."""
    path.write_text(
        f"from limpet_bench.suite import Suite\n\n\ndef suite() -> Suite:\n    return Suite(**{dict(content)!r})\n",
        encoding="utf-8",
    )
    return path


def values_of(path: Path) -> dict[str, Any]:
    """Return the values that `write_suite` wrote."""
    text = path.read_text(encoding="utf-8")
    values: dict[str, Any] = ast.literal_eval(text[text.index("**") + 2 : text.rindex(")")])
    return values
