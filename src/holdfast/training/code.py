"""Which code trained a model: a digest that changes with what is computed, not with what is said about it."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from holdfast.experiment import Experiment
from holdfast.methods import METHODS
from holdfast.models.heads import HEADS
from holdfast.models.specs import EmbeddingSpec
from holdfast.source_code import digest_of

ROOT = Path(__file__).parents[1]
TRAINING = ("geometry", "embeddings", "losses", "methods", "data", "models", "training")
"""Packages whose code decides what a training becomes; of the methods, only the one that is trained."""


def code_of(experiment: Experiment) -> str:
    """Return the digest of the code that trains an experiment, 16 hexadecimal digits.

    It is that of holdfast without the other methods, and of the packages that offer method, classifier or backbone.
    """
    return training_code(experiment.method, experiment.head, experiment.model)


def training_code(method: str, head: str | None, model: EmbeddingSpec) -> str:
    """Return the digest of the code that trains a method with a classifier and a network; see `code_of`."""
    things: list[Any] = [METHODS[method], *([] if head is None else [HEADS[head]])]
    things += model.defined_by()
    parts = [_code_of_holdfast(METHODS.places.get(method, "")), *map(version_of, things)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@cache
def _code_of_holdfast(place: str) -> str:
    """Return the digest of what is common to all methods, and of the module of one of them."""
    others = {one.partition(":")[0].rpartition(".")[2] for one in METHODS.places.values() if one != place}
    files = [path for package in TRAINING for path in sorted((ROOT / package).rglob("*.py"))]
    own = [path for path in files if path.parent != ROOT / "methods" or path.stem not in others]
    return digest_of([*own, ROOT / "experiment.py"])


def version_of(thing: Any) -> str:
    """Return the digest of the package that defines a class or function; "" for holdfast's own."""
    thing = inspect.unwrap(thing.func if isinstance(thing, partial) else thing)
    name = thing.__module__.partition(".")[0]
    if name == "holdfast":
        return ""
    package = getattr(sys.modules.get(name), "__path__", None)
    if package is None:
        return digest_of([Path(inspect.getfile(thing))])
    return digest_of(path for folder in package for path in sorted(Path(folder).rglob("*.py")))
