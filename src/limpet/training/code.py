"""Digests of the code that trains a model; see `limpet.support.source_code`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from limpet.methods import METHODS
from limpet.models.heads import HEADS
from limpet.models.release_record import ReleaseRecord
from limpet.models.specs import EmbeddingSpec
from limpet.support.source_code import Standing, combined, digest_of, standing
from limpet.training.experiment import Experiment

ROOT = Path(__file__).parents[1]
TRAINING = ("geometry", "embeddings", "losses", "methods", "data", "models", "training")
"""Packages whose code affects the result of training; of the methods, only the one in use."""


def code_of(experiment: Experiment) -> str:
    """Return the digest of the code that trains an experiment, 16 hexadecimal digits.

    It covers limpet without the other methods, and the packages that provide method, classifier or backbone.
    """
    return training_code(experiment.method, experiment.head, experiment.model)


def training_code(method: str, head: str | None, model: EmbeddingSpec) -> str:
    """Return the digest of the code that trains a method with a classifier and a network; see `code_of`."""
    things: list[Any] = [METHODS[method], *([] if head is None else [HEADS[head]])]
    things += model.defined_by()
    return combined(_code_of_limpet(METHODS.places.get(method, "")), things)


def standing_of(record: ReleaseRecord) -> Standing:
    """Return whether the current code matches the code on record in a release."""
    return standing(record.code, training_code(record.method, record.head, record.encoder))


@cache
def _code_of_limpet(place: str) -> str:
    others = {one.partition(":")[0].rpartition(".")[2] for one in METHODS.places.values() if one != place}
    files = [path for package in TRAINING for path in sorted((ROOT / package).rglob("*.py"))]
    own = [path for path in files if path.parent != ROOT / "methods" or path.stem not in others]
    return digest_of(own)
