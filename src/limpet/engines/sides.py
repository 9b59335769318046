"""Names of the two models of an upgrade, for code that reads and writes their vectors."""

from __future__ import annotations

from typing import Literal

ModelSide = Literal["old", "new"]
"""One of the two models."""
SIDES: tuple[ModelSide, ModelSide] = ("old", "new")
OTHER: dict[ModelSide, ModelSide] = {"old": "new", "new": "old"}
