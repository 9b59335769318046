"""Results of simulated learners in sessions, for the tests of the bench's reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet_bench.sessions.plans import Plan, blurry, disjoint, general_incremental
from limpet_bench.sessions.results import SessionsResults, average_recall, forgetting

from ...reports.conftest import browser, measure

__all__ = ["browser", "measure"]

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
    """Build the results of simulated learners: `plan`, and `results` as the runner gathers them.

    Averages, forgetting and counts follow from the sessions; recall@1 of old classes is what a rule above leaves.
    """

    def build(plan: Plan, names: Sequence[str], *, budget: int = 2_000, **values: Any) -> SimpleNamespace:
        learners = {name: _learner(plan, name, budget) for name in names}
        bounds = {"lower": "finetune", "upper": "joint"}
        classes = int((plan.home >= 0).sum())
        found = {
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
        return SimpleNamespace(plan=plan, results=SessionsResults.of(**(found | values)))

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
        "average_recall": average_recall([session["recall"] for session in sessions]),
        "forgetting": forgetting([session["recall_by_home"] for session in sessions]),
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
