"""Boards of simulated runs, for the tests of leaderboards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from limpet_bench.leaderboard import BenchRuns, Leaderboard
from limpet_bench.ranking import leaderboard_of

Label = tuple[str, float, float]  # method, P_comp and P_up about which its runs lie

LABELS: dict[str, Label] = {
    "bct": ("bct", 0.9, -0.03),
    "advbct": ("advbct", 1.05, -0.02),
    "p2s": ("p2s", 0.7, -0.005),
    "mixbct": ("mixbct", 1.0, -0.04),
    "l2": ("l2", 0.35, -0.12),
    "independent": ("independent", -2.0, 0.0),
    "ndpp": ("ndpp", 1.02, -0.01),
    "unibct": ("unibct", 0.95, -0.05),
    "nccl": ("nccl", 0.93, -0.02),
}
CELLS = [(data, kind) for data in ("glyphs", "omniglot") for kind in ("extended-class", "open-class", "extended-data")]
REASON = "RuntimeError: the loss is not finite in epoch 3"
MACHINE = "two cores"
WHERE: dict[str, Any] = {"command": "limpet-bench run small --out runs/small", "wall_seconds": 4210.5}


@pytest.fixture(scope="session")
def make_board() -> Callable[..., Leaderboard]:
    """Build the leaderboard of simulated runs; `fail` holds labels with cell, or also seed, whose runs fail."""

    def build(
        labels: Mapping[str, Label] = LABELS,
        *,
        cells: Any = CELLS,
        seeds: int = 3,
        fail: Any = (),
        undefined: Any = (),
        noise: float = 0.006,
        tuning: Any = (),
        **suite: Any,
    ) -> Leaderboard:
        rng = np.random.default_rng(0)
        rows = [
            _failed(label, method, cell, seed)
            if fail and ({(label, *cell), (label, *cell, seed)} & set(fail))
            else _run(label, method, p_comp, p_up, cell, place, seed, noise, rng, defined=cell not in undefined)
            for place, cell in enumerate(cells)
            for seed in range(seeds)
            for label, (method, p_comp, p_up) in labels.items()
        ]
        described = {"name": "small", "title": "Which one?", "description": "Runs", "metric": "map", "kind": "images"}
        found = {"suite": described | suite, "machine": MACHINE, "rows": rows, "tuning": list(tuning)}
        return leaderboard_of(BenchRuns.model_validate(found), **WHERE)

    return build


@pytest.fixture(scope="session")
def landmarks() -> Leaderboard:
    """Models of a small set of labels, trained on gldv2 and searched with three test sets, one of which failed once.

    Labels differ in a setting beside the options, runs tell their speed, and there are rows over all test sets.
    """
    rng, rows, over, sets = np.random.default_rng(2), [], [], ("rparis", "roxford", "gldv2")
    labels = {name: LABELS[name] for name in ("bct", "advbct", "p2s", "independent")}
    for place, (scenario, seed) in enumerate(product(("extended-class", "open-class"), range(3))):
        for label, (method, p_comp, p_up) in {**labels, "bct, mlp": ("bct", 0.97, -0.015)}.items():
            found = [
                _failed(label, method, (data, scenario), seed)
                if (label, data, scenario, seed) == ("p2s", "roxford", "open-class", 1)
                else _run(label, method, p_comp, p_up, (data, scenario), place, seed, 0.006, rng, defined=True)
                | {"images_per_second": 2000.0 + 100 * seed, "waiting": 0.01 * (seed + 1)}
                for data in sets
            ]
            settings = {"model.projection": "mlp"} if label == "bct, mlp" else {}
            rows += [row | {"trained_on": "gldv2", "settings": settings} for row in found]
            if not any(row["failure"] for row in found):
                means = {key: float(np.mean([row[key] for row in found])) for key in ("p_up", "p_comp", "p_score")}
                where = {"data": "rparis, roxford and gldv2", "trained_on": "gldv2", "tests": [*sets]}
                over.append({**where, "scenario": scenario, "label": label, "method": method, "seed": seed, **means})
    suite = {"name": "landmarks", "title": "Landmarks", "description": "", "metric": "map", "kind": "images"}
    found = {"suite": suite, "machine": MACHINE, "rows": rows, "combined": over}
    return leaderboard_of(BenchRuns.model_validate(found), **WHERE)


def _head(label: str, method: str, cell: tuple[str, str], seed: int) -> dict[str, Any]:
    head = {"label": label, "method": method, "data": cell[0], "scenario": cell[1], "seed": seed}
    return head | {"options": {}, "metric": "map"}


def _failed(label: str, method: str, cell: tuple[str, str], seed: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("scores", "p_up", "p_comp", "p_score", "verdict", "seconds"))
    return {**_head(label, method, cell, seed), **nothing, "failure": REASON}


def _run(
    label: str,
    method: str,
    p_comp: float,
    p_up: float,
    cell: tuple[str, str],
    place: int,
    seed: int,
    noise: float,
    rng: np.random.Generator,
    *,
    defined: bool,
) -> dict[str, Any]:
    old = 0.3 + 0.04 * place
    independent = old + 0.06 + 0.02 * (place % 3)
    cross = old + p_comp * (independent - old) + noise * rng.normal()
    new = independent * (1 + p_up + noise * rng.normal())
    reached, kept = (cross - old) / (independent - old), (new - independent) / independent
    up, comp = (1 / (1 + math.exp(-value)) for value in (kept, reached))
    return {
        **_head(label, method, cell, seed),
        "scores": {"self_old": old, "self_independent": independent, "self_new": new, "cross": cross},
        "p_up": kept,
        "p_comp": reached if defined else float("nan"),
        "p_score": 2 * up * comp / (up + comp) if defined else None,
        "verdict": "compatible" if cross > old + 0.008 else "not compatible",
        "seconds": 20.0 + seed,
        "failure": None,
    }


@pytest.fixture(scope="session")
def session_board() -> Leaderboard:
    """Six learners through two plans with two seeds, one of them an upper bound."""
    rng = np.random.default_rng(1)
    rows = []
    for plan in ("disjoint", "blurry"):
        for seed in range(2):
            for place, label in enumerate(("cvs", "finetune", "joint", "lwf", "ewc", "rwalk")):
                first = 0.4 + 0.05 * place + 0.01 * rng.normal()
                scores = {"ar@1": first, "ar@2": first + 0.08, "ar@4": first + 0.15, "forgetting": 0.3 - 0.04 * place}
                row = _failed(label, label, ("cifar-100", plan), seed)
                rows.append(row | {"scores": scores, "metric": "ar@1", "seconds": 60.0, "failure": None})
    suite = {"name": "learners", "title": "Learners", "description": "", "metric": "ar@1", "kind": "sessions"}
    found = BenchRuns.model_validate({"suite": suite, "machine": MACHINE, "rows": rows})
    return leaderboard_of(found, references={"joint": "upper bound"}, **WHERE)
