"""Real evaluations of small simulated models; nothing here is written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.continual.plan import Plan
from holdfast.continual.plans import blurry, disjoint, general_incremental
from holdfast.continual.results import average_recall, forgetting
from holdfast.embeddings import EmbeddingSet
from holdfast.evaluation import Evaluation, evaluate
from holdfast.evaluation.disk import choose_disk
from holdfast.geometry import Lorentz
from holdfast.reports.results import results_document
from holdfast.reports.sessions_results import sessions_document

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


KS = (1, 2, 4)
ASKED = 50  # test queries of a class

LEARNERS = {  # recall@1 of new classes, what remains of it after one more session, and the least that remains
    "cvs": (0.86, 0.95, 0.6),
    "finetune": (0.90, 0.55, 0.3),
    "joint": (0.90, 0.99, 0.9),
    "lwf": (0.87, 0.70, 0.4),
    "mmd": (0.88, 0.71, 0.35),
    "bct": (0.78, 0.55, 0.3),
    "ewc": (0.89, 0.56, 0.32),
    "rwalk": (0.87, 0.85, 0.5),
    "rainbow": (0.86, 0.84, 0.45),
}
REPLAYING = {"cvs": "herding", "rwalk": "random", "rainbow": "uncertainty", "joint": "everything"}


@pytest.fixture(scope="session")
def make_sessions() -> Callable[..., SimpleNamespace]:
    """Build the results of simulated learners: `plan`, and `document` as the runner gathers it.

    Averages, forgetting and counts follow from the sessions; recall@1 of old classes is what a rule above leaves.
    """

    def build(plan: Plan, names: Sequence[str], *, budget: int = 2_000, **values: Any) -> SimpleNamespace:
        learners = {name: _learner(plan, name, budget) for name in names}
        bounds = {"lower": "finetune", "upper": "joint"}
        classes = int((plan.home >= 0).sum())
        found = {
            "kind": "sessions",
            "schema_version": 1,
            "title": "Which learner keeps an old gallery useful?",
            "seed": 0,
            "ks": list(KS),
            "budget": budget,
            "bounds": {bound: name if name in names else None for bound, name in bounds.items()},
            "data": {
                "name": "simulated",
                "description": "photographs of a hundred things",
                "training images": len(plan.labels),
                "test queries": ASKED * classes,
                "classes": classes,
            },
            "plan": {
                "name": plan.name,
                "asked": dict(plan.asked),
                "sessions": plan.sessions,
                "known_from_start": plan.known_from_start,
                "introduced": [len(plan.introduced(session)) for session in range(plan.sessions)],
                "home": np.bincount(plan.home[plan.home >= 0], minlength=plan.sessions).tolist(),
                "training": [len(rows) for rows in plan.training],
                "validation": [len(rows) for rows in plan.validation],
            },
            "model": {"backbone": "resnet18", "dim": 128, "image_size": 32, "mean": [0.5], "backbone_options": {}},
            "recipe": {"epochs": 16, "batch_size": 64, "learning_rate": 0.03, "schedule": "cosine", "head": "softmax"},
            "learners": learners,
        }
        return SimpleNamespace(plan=plan, document=sessions_document(found | values))

    return build


@pytest.fixture(scope="session")
def nine_learners(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Nine learners through five sessions that bring new classes and more images of old ones."""
    return make_sessions(general_incremental(np.repeat(np.arange(100), 500), new_images=400), list(LEARNERS))


@pytest.fixture(scope="session")
def one_learner(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """One learner that is no bound through two sessions."""
    return make_sessions(disjoint(np.repeat(np.arange(20), 30), sessions=2), ["lwf"], budget=200)


@pytest.fixture(scope="session")
def blurry_learners(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Learners through sessions of which the first knows all classes, without a lower bound."""
    return make_sessions(blurry(np.repeat(np.arange(40), 50), sessions=4), ["cvs", "joint", "lwf"])


@pytest.fixture(scope="session")
def without_bounds(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Learners without any bound."""
    return make_sessions(disjoint(np.repeat(np.arange(40), 50), sessions=4), ["cvs", "rainbow", "mmd"])


def _learner(plan: Plan, name: str, budget: int) -> dict[str, Any]:
    method = next(known for known in LEARNERS if name.startswith(known))
    rng, reindex = np.random.default_rng(len(name) + ord(name[0])), method == "joint"
    homes, sessions = np.bincount(plan.home[plan.home >= 0], minlength=plan.sessions), []
    for place, rows in enumerate(plan.training):
        gallery = sum(map(len, plan.training[: place + 1]))
        kept = {"everything": gallery - len(rows)}.get(REPLAYING.get(method, ""), budget if method in REPLAYING else 0)
        replayed, embedded = min(kept, gallery - len(rows)), gallery if reindex else len(rows)
        recall, asked = _recall(plan, method, place, homes, rng)
        right = sum(round((found or 0.0) * queries) for found, queries in zip(recall, asked, strict=True)) / sum(asked)
        trained = 16 * (len(rows) + replayed)
        only = 16 * (len(plan.queries(place)) + embedded) + len(rows) + sum(asked)
        sessions.append({
            "recall": {str(k): 1 - (1 - right) / k**0.3 for k in KS},
            "recall_by_home": recall,
            "queries": sum(asked),
            "queries_by_home": asked,
            "validation_recall": round(right, 2),
            "best_epoch": 11,
            "epochs": 16,
            "gallery_rows": gallery,
            "embedded_rows": embedded,
            "replayed": replayed,
            "trained_images": trained,
            "encoded_images": only,
            "seconds": {"training": trained / 900 + only / 2_700, "rest": embedded / 2_700 + 1.5},
            "fingerprint": f"image:{name.encode().hex():0<58}{place:06d}",
        })  # fmt: skip
    return {
        "method": method,
        "options": {"weight": 10.0} if method == "cvs" else {},
        "gallery_policy": "reindex" if reindex else "append",
        "memory": REPLAYING.get(method),
        "average_recall": average_recall(sessions),
        "forgetting": forgetting(sessions),
        "sessions": sessions,
    }


def _recall(
    plan: Plan, method: str, place: int, homes: np.ndarray, rng: np.random.Generator
) -> tuple[list[float | None], list[int]]:
    """Return recall@1 after a session by the home of classes, whole numbers of queries, and how many were asked."""
    fresh, keeps, least = LEARNERS[method if place else "finetune"]  # all begin with the same model
    rng = rng if place else np.random.default_rng(0)
    asked = [ASKED * int(count) * (plan.known_from_start or home <= place) for home, count in enumerate(homes)]
    found: list[float | None] = []
    for home, queries in enumerate(asked):
        age = place - home
        value = fresh * (least + (1 - least) * keeps**age) if age >= 0 else 0.45 * fresh
        value = min(max(value * 0.98**place + 0.015 * float(rng.normal()), 0.02), 1.0)
        found.append(round(value * queries) / queries if queries else None)
    return found, asked
