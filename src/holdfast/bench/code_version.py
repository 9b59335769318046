"""Which code computed a cell: a digest that changes with what is computed, not with what is said about it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import holdfast
from holdfast.training.code import digest_of

COMPUTING = (
    "geometry", "embeddings", "losses", "adapters", "methods", "data", "models", "training", "evaluation", "continual",
)  # fmt: skip
"""Packages whose code decides what a cell becomes."""

MODULES = ("experiment.py", "bench/steps.py", "bench/session_steps.py", "bench/sources.py", "bench/settings.py")
"""Modules outside them that do."""


@cache
def code_version() -> str:
    """Return the digest of all code of holdfast that computes, 16 hexadecimal digits."""
    root = Path(holdfast.__file__).parent
    packages = [path for package in COMPUTING for path in sorted((root / package).rglob("*.py"))]
    return digest_of([*packages, *(root / name for name in MODULES)])
