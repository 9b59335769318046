"""Real evaluations of small simulated models; nothing here is written down by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.embeddings import EmbeddingSet
from holdfast.evaluation import Evaluation, evaluate
from holdfast.evaluation.disk import choose_disk
from holdfast.geometry import Lorentz
from holdfast.reports.results import results_document

CLASSES, ITEMS, DIM = 12, 8, 12


@pytest.fixture(scope="session")
def simulated(make_embeddings: Callable[..., EmbeddingSet]) -> SimpleNamespace:
    """An old model, a better one beside it, a rotated independent one; leave-one-out over 96 items."""
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(CLASSES), ITEMS)
    centres = rng.normal(size=(CLASSES, DIM))[labels]
    item, rotation = rng.normal(size=centres.shape), np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]

    def model(name: str, noise: float, **values: Any) -> EmbeddingSet:
        own = np.random.default_rng(len(name)).normal(size=centres.shape)
        vectors = centres + noise * (0.9 * item + 0.5 * own)
        vectors = vectors @ rotation if name == "independent" else vectors
        return make_embeddings(vectors, labels, fingerprint=f"declared:{name}", form="points", **values)

    return SimpleNamespace(
        model=model,
        old=model("old", 1.2),
        new={"p2s": model("p2s", 0.9), "same": model("same", 1.2), "independent": model("independent", 0.7)},
    )


@pytest.fixture(scope="session")
def evaluated(simulated: SimpleNamespace) -> Callable[..., Evaluation]:
    """Evaluate one new model by name."""

    def run(name: str, *, independent: bool = True, **options: Any) -> Evaluation:
        old, new = simulated.old, simulated.new[name]
        reference = simulated.new["independent"] if independent else None
        sides = {"independent_query": reference, "independent_gallery": reference}
        return evaluate(old, old, new, new, exclude_same_id=True, resamples=200, **sides, **options)

    return run


@pytest.fixture(scope="session")
def make_document() -> Callable[..., dict[str, Any]]:
    def build(evaluations: dict[str, Evaluation], **values: Any) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "title": "A small upgrade",
            "data": {"name": "clusters", "description": "simulated points", "numbers": {"classes": CLASSES}},
            "models": {"old": {"backbone": "none", "dim": DIM, "options": {}}, "p2s": {"options": {"weight": 1.5}}},
        }
        return results_document(evaluations, **{**defaults, **values})

    return build


@pytest.fixture(scope="session")
def evaluations(evaluated: Callable[..., Evaluation]) -> dict[str, Evaluation]:
    """A compatible, an undecided and an incompatible model."""
    return {name: evaluated(name) for name in ("p2s", "same", "independent")}


@pytest.fixture(scope="session")
def document(evaluations: dict[str, Evaluation], make_document: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return make_document(evaluations)


@pytest.fixture(scope="session")
def unlabelled(simulated: SimpleNamespace) -> Evaluation:
    old, new = (side.replace(labels=None, class_names=None) for side in (simulated.old, simulated.new["p2s"]))
    return evaluate(old, old, new, new, exclude_same_id=True, resamples=200)


@pytest.fixture(scope="session")
def hyperbolic() -> SimpleNamespace:
    """Two hyperbolic models; the old one has seen half of the classes and is less certain of the others."""
    space, names = Lorentz(DIM), [f"c{row}" for row in range(CLASSES)]
    labels = np.repeat(np.arange(CLASSES), ITEMS)
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(CLASSES, DIM))[labels] / 4 + 0.06 * rng.normal(size=(len(labels), DIM))

    def model(name: str, lengths: Any) -> EmbeddingSet:
        own = 0.05 * np.random.default_rng(len(name)).normal(size=directions.shape)
        points = space.project(torch.tensor((directions + own) * lengths, dtype=torch.float32))
        uncertainty = space.uncertainty(points)
        assert uncertainty is not None
        return EmbeddingSet(
            ids=[f"item{row}" for row in range(len(labels))],
            vectors=points.numpy(),
            fingerprint=f"declared:{name}",
            space=space,
            labels=labels,
            class_names=names,
            columns={"uncertainty": uncertainty.numpy()},
        )

    old, new = model("old", np.where(labels < CLASSES // 2, 1.0, 0.6)[:, None]), model("hbct", 1.2)
    known = names[: CLASSES // 2]
    return SimpleNamespace(
        old=old,
        new=new,
        evaluation=evaluate(old, old, new, new, exclude_same_id=True, resamples=50, old_classes=known),
        disk=choose_disk(old, new, old_classes=known),
    )
