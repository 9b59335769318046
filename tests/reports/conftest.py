"""Real evaluations of small simulated models; nothing here is written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.evaluation.chain import ChainResults, evaluate_chain
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.intervals import mean_interval, paired_interval
from limpet.evaluation.protocols import ByLabel, Relevance
from limpet.evaluation.protocols.relevance_lists import RelevancePairs
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults, combine
from limpet.evaluation.thresholds import Thresholds
from limpet.evaluation.uncertainty import choose_disk
from limpet.geometry import Lorentz
from limpet.linking.results import AdaptResults
from limpet.results import Data, packages
from limpet.version import __version__

from .browser import Browser, started

CLASSES, ITEMS, DIM = 12, 8, 12
WROTE = {"limpet": __version__, "versions": packages()}
CLUSTERS = Data(name="clusters", description="simulated points", numbers={"classes": CLASSES})


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start a browser, the same for all tests."""
    with started(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="package")
def measure(browser: Browser) -> Callable[[str], dict[int, dict[str, Any]]]:
    """Show a page in a browser and return what it measured, by width."""
    return browser.measured


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
    """Evaluate one new model by name, once for all who ask for the same."""

    @cache
    def run(name: str, *, independent: bool = True, **options: Any) -> Evaluation:
        old, new = simulated.old, simulated.new[name]
        reference = simulated.new["independent"] if independent else None
        return evaluate(old, new, independent=reference, resamples=200, **options)

    return run


@pytest.fixture(scope="session")
def make_results() -> Callable[..., EvaluationResults]:
    def build(evaluations: dict[str, Evaluation], **values: Any) -> EvaluationResults:
        defaults: dict[str, Any] = {
            "title": "A small upgrade",
            "data": CLUSTERS,
            "models": {"old": {"backbone": "none", "dim": DIM, "options": {}}, "p2s": {"options": {"weight": 1.5}}},
        }
        return EvaluationResults.of(evaluations=evaluations, **{**defaults, **values})

    return build


@pytest.fixture(scope="session")
def evaluations(evaluated: Callable[..., Evaluation]) -> dict[str, Evaluation]:
    """A compatible, an undecided and an incompatible model."""
    return {name: evaluated(name) for name in ("p2s", "same", "independent")}


@pytest.fixture(scope="session")
def results(evaluations: dict[str, Evaluation], make_results: Callable[..., EvaluationResults]) -> EvaluationResults:
    return make_results(evaluations)


@pytest.fixture(scope="session")
def unlabelled(simulated: SimpleNamespace) -> Evaluation:
    old, new = (side.replace(labels=None, class_names=None) for side in (simulated.old, simulated.new["p2s"]))
    return evaluate(old, new, resamples=200)


@pytest.fixture(scope="session")
def make_chain(simulated: SimpleNamespace) -> Callable[..., ChainResults]:
    """Evaluate a chain of simulated models, each named with its noise; less is better."""

    def build(
        models: dict[str, float], alone: Sequence[float] | None = None, *, title: str = "A chain", **values: Any
    ) -> ChainResults:
        chain = {name: (one := simulated.model(name, noise), one) for name, noise in models.items()}
        third = [(one := simulated.model(f"alone{'x' * place}", noise), one) for place, noise in enumerate(alone or ())]
        options = {"protocol": ByLabel(leave_one_out=True), "resamples": 100, **values}
        found = evaluate_chain(chain, independent=third or None, **options)
        return found.results(title=title, data=CLUSTERS)

    return build


@pytest.fixture(scope="session")
def make_combination(
    evaluated: Callable[..., Evaluation], make_results: Callable[..., EvaluationResults]
) -> Callable[..., CombinationResults]:
    """Combine evaluations of one upgrade, by the name of the test set."""

    def build(sets: dict[str, dict[str, Any]], *, title: str = "Several test sets") -> CombinationResults:
        found = {name: make_results({"p2s": evaluated("p2s", **options)}) for name, options in sets.items()}
        combination = combine({name: results.only() for name, results in found.items()})
        return CombinationResults.gather(combination, found, title=title)

    return build


@pytest.fixture(scope="session")
def clicked(simulated: SimpleNamespace) -> Evaluation:
    """Scores by clicks, which only know what the old model showed."""
    old, new = (side.replace(labels=None, class_names=None) for side in (simulated.old, simulated.new["p2s"]))
    asked, rest = np.arange(0, CLASSES * ITEMS, 4), np.setdiff1d(np.arange(CLASSES * ITEMS), np.arange(0, 96, 4))
    query, gallery = old[asked], old[rest]
    first = [gallery.ids[int(row)] for row in np.argmax(query.vectors @ gallery.vectors.T, axis=1)]
    clicks = Relevance(pairs=RelevancePairs(list(query.ids), first, np.zeros(len(asked), bool)))
    sides = (query, gallery, new[asked], new[rest])
    return evaluate(sides[:2], sides[2:], protocol=clicks, resamples=100)


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
        evaluation=evaluate(old, new, resamples=50, old_classes=known),
        disk=choose_disk(old, new, old_classes=known),
    )


CANDIDATES = {  # how far from the old model (0) to re-embedding (1) each comes, or why it failed
    "procrustes": 0.31,
    "ridge": 0.52,
    "low_rank": 0.47,
    "mean_drift": -2.2,
    "lambda_orthogonal": 0.44,
    "local": 0.36,
    "residual_mlp": 0.55,
    "identity": "vectors of 384 dimensions cannot be searched with vectors of 768; give an adapter instead",
    "head ndpp": 0.71,
}


@pytest.fixture(scope="session")
def make_adapt() -> Callable[..., AdaptResults]:
    """Build results of simulated candidates; means, intervals and shares follow from simulated queries."""

    def build(candidates: dict[str, float | str] = CANDIDATES, *, labelled: bool = True, **values: Any) -> Any:
        found = simulate(tuple(candidates.items()), labelled)
        return AdaptResults.parse({**found, **values, **WROTE})

    @cache
    def simulate(candidates: tuple[tuple[str, float | str], ...], labelled: bool) -> dict[str, Any]:
        rng = np.random.default_rng(3)
        old, noise = rng.beta(2.2, 2.0, 900), 0.12 * rng.normal(size=900)
        new = np.ones(900) if not labelled else np.clip(old + 0.18 + noise, 0, 1)
        unseen = rng.random(900) < 0.12
        measured = [_candidate(name, reach, old, new, unseen, labelled, rng) for name, reach in candidates]
        best = {
            kind: _best([one for one in measured if kind in (None, one["kind"])]) for kind in (None, "adapter", "head")
        }
        return {
            "kind": "adapt",
            "schema_version": 1,
            "title": "Can the new text model search the old gallery?",
            "data": {
                "name": "support tickets",
                "pairs": 5_000,
                "labelled": labelled,
                "classes": 150 if labelled else None,
                "sentences": ["5,000 items are paired by id.", "12 items of the old model have no partner."],
            },
            "models": {
                "old": {"name": "mini", "fingerprint": f"text:{'a1' * 32}", "dim": 384},
                "new": {"name": "large", "fingerprint": f"text:{'b2' * 32}", "dim": 768},
            },
            "suspects": {
                "share": 0.012,
                "low": 0.004,
                "high": 0.021,
                "tested": 4_000,
                "sentence": "About 1.2 % of the pairs (0.4 % to 2.1 %) may not belong together.",
            },
            "protocol": {
                "fitted_on": 4_100,
                "held_out": 900,
                "unseen_classes": 15 if labelled else 0,
                "metric": "map" if labelled else "overlap@10",
                "direction": "new_to_old",
                "level": 0.95,
                "resamples": 200,
                "seed": 0,
                "resample": "queries",
                "guards": [],
                "judged": None,
                "provisional": not labelled,
                "splits": 1,
            },
            "systems": {"self_old": _mean(old), "self_new": _mean(new)},
            "candidates": measured,
            "best_adapter": best["adapter"],
            "best_head": best["head"],
            "best": best[None],
            "learning_curve": best[None] and _pairs_curve(best["adapter"] or best[None], old, new, rng),
            "thresholds": _thresholds(rng),
            "recommendation": {
                "action": "adapt" if best["adapter"] else "re-embed",
                "candidate": best["adapter"],
                "sentences": ["Fit it on the pairs and pass the new queries through it.", "It took a second."],
            },
        }

    return build


def _mean(values: np.ndarray) -> dict[str, Any]:
    return {"mean": float(values.mean()), "interval": list(mean_interval(values, resamples=200))}


def _gap(a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    return {"mean": float((a - b).mean()), "interval": list(paired_interval(a, b, resamples=200))}


def _best(candidates: list[dict[str, Any]]) -> str | None:
    able = [one for one in candidates if one["failed"] is None]
    return max(able, key=lambda one: one["cross"]["mean"])["name"] if able else None


def _candidate(
    name: str, reach: float | str, old: np.ndarray, new: np.ndarray, unseen: np.ndarray, labelled: bool, rng: Any
) -> dict[str, Any]:
    kind = "head" if name.startswith("head") else "adapter"
    keys = ("cross", "cross_minus_self_old", "self_new_minus_cross", "recovered", "own", "unseen", "failed")
    record = {"name": name, "kind": kind, "seconds": float(rng.gamma(2.0, 40.0 if kind == "head" else 1.0))}
    if isinstance(reach, str):
        return record | dict.fromkeys(keys) | {"failed": reach}
    cross = np.clip(old + reach * (new - old) + 0.05 * rng.normal(size=len(old)), 0, 1)
    gain = (new - old).mean()
    means = {
        side: float(values[unseen].mean()) for side, values in (("self_old", old), ("cross", cross), ("self_new", new))
    }
    return record | {
        "cross": _mean(cross),
        "cross_minus_self_old": _gap(cross, old),
        "self_new_minus_cross": _gap(new, cross),
        "recovered": float((cross - old).mean() / gain),
        "own": _mean(np.clip(cross + 0.02, 0, 1)) if kind == "head" else None,
        "unseen": means | {"queries": int(unseen.sum())} if labelled else None,
        "failed": None,
    }


def _pairs_curve(name: str, old: np.ndarray, new: np.ndarray, rng: Any) -> dict[str, Any]:
    points = []
    for pairs in (64, 128, 256, 512, 1_024, 2_048, 4_100):
        reach = 0.52 - 12 / pairs**0.7
        cross = np.clip(old + reach * (new - old) + 0.05 * rng.normal(size=len(old)), 0, 1)
        points.append({"pairs": pairs, "cross": _mean(cross)})
    return {"candidate": name, "points": points, "enough": 1_024}


def _thresholds(rng: Any) -> dict[str, Any]:
    relevant = rng.uniform(size=(60, 200)) < 0.1
    old, new = (
        centre + step * relevant + 0.1 * rng.normal(size=relevant.shape) for centre, step in ((0.4, 0.2), (0.2, 0.4))
    )
    return Thresholds.of(old, new, (relevant, relevant), resamples=50).to_dict()


@pytest.fixture(scope="session")
def adapted(make_adapt: Callable[..., AdaptResults]) -> AdaptResults:
    """Nine candidates, one of them a head, one failed."""
    return make_adapt()
