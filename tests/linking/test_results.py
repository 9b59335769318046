from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from limpet.adapters import SuspectPairs, build_adapter
from limpet.evaluation.thresholds import Thresholds
from limpet.linking.compare import Candidate, FittedLink, LearningCurve, Measured, identity, learning_curve, measure
from limpet.linking.recommend import recommend
from limpet.linking.results import AdaptResults, Names

QUICK = {"resamples": 200, "level": 0.9, "seed": 5}
NAMES = Names(data="things", old="A", new="B")


def written_of(held_out, comparison, **values):
    """Return what results.json holds."""
    return AdaptResults.gather(held_out, comparison, recommend(comparison), **values).to_dict()


@pytest.fixture(scope="module")
def found(labelled, unlabelled, adapter):
    """Build what is written of each kind of data, with an adapter, a head, and an adapter that fails."""

    def build(kind: str, **values):
        held_out = {"labelled": labelled, "unlabelled": unlabelled}[kind]
        candidates = [
            adapter("ridge"),
            Candidate("head", "head", lambda old, new, _: FittedLink(lambda _: held_out.old, lambda old: old)),
            adapter("ridge", "twice", direction="nowhere"),
        ]
        comparison = measure(candidates, held_out, **QUICK)
        texts = {"title": "A to B", "names": NAMES, "direction": "new_to_old"}
        return comparison, written_of(held_out, comparison, **texts, **values)

    return build


@pytest.mark.parametrize("kind", ["labelled", "unlabelled"])
def test_json_without_nan_gives_the_same_back(kind, found, labelled, adapter) -> None:
    curve = learning_curve(adapter("ridge"), labelled, resamples=50)
    rng = np.random.default_rng(0)
    thresholds = Thresholds.of(*rng.normal(size=(2, 30, 40)), resamples=5)
    suspects = SuspectPairs(0.1, 0.05, 0.2, 300)
    written = found(kind, curve=curve, thresholds=thresholds, suspects=suspects, pair_sentences=("odd",))[1]
    again = json.loads(json.dumps(written, allow_nan=False))
    assert again == written == AdaptResults.parse(again).to_dict()
    assert set(written) == {
        "schema_version", "limpet", "versions", "kind", "title", "data", "models", "suspects", "protocol", "systems",
        "long_texts", "thresholds",
        "candidates", "best_adapter", "best_head", "best", "learning_curve", "recommendation", "two_stage",
    }  # fmt: skip
    assert written["suspects"] == {
        "share": 0.1, "low": 0.05, "high": 0.2, "tested": 300, "sentence": suspects.sentence(),
    }  # fmt: skip
    assert written["thresholds"] == thresholds.to_dict()
    assert written["learning_curve"]["candidate"] == "ridge" and written["learning_curve"]["enough"] == curve.enough
    assert written["learning_curve"]["points"][1] == {
        "pairs": 128, "cross": {"mean": curve.points[1].cross.mean, "interval": list(curve.points[1].cross.interval)},
    }  # fmt: skip


def test_what_is_said_of_labelled_data(found, labelled) -> None:
    comparison, written = found("labelled")
    assert (written["schema_version"], written["kind"], written["title"]) == (1, "adapt", "A to B")
    assert written["data"] == {"name": "things", "pairs": 600, "labelled": True, "classes": 12, "sentences": []}
    assert written["models"] == {
        "old": {"name": "A", "fingerprint": "declared:old", "dim": 8},
        "new": {"name": "B", "fingerprint": "declared:new", "dim": 14},
    }
    assert written["protocol"] == {
        "fitted_on": len(labelled.fit_old), "held_out": len(labelled.old), "unseen_classes": 1, "metric": "map",
        "direction": "new_to_old", "level": 0.9, "resamples": 200, "seed": 5,
        "resample": "classes", "guards": ["recall@1", "unseen classes"], "judged": None, "provisional": False,
        "splits": 1,
    }  # fmt: skip
    for system in ("self_old", "self_new"):
        expected = getattr(comparison, system)
        assert written["systems"][system] == {"mean": expected.mean, "interval": list(expected.interval)}
    assert (written["suspects"], written["learning_curve"], written["thresholds"]) == (None, None, None)


def test_what_is_said_of_every_candidate(found) -> None:
    comparison, written = found("labelled")
    ridge, head, failed = written["candidates"]
    measured = comparison.candidates[0]
    for key in ("cross", "cross_minus_self_old", "self_new_minus_cross"):
        expected = getattr(measured, key)
        assert ridge[key] == {"mean": expected.mean, "interval": list(expected.interval)}
    assert (ridge["name"], ridge["kind"], ridge["seconds"]) == ("ridge", "adapter", measured.seconds)
    assert ridge["recovered"] == measured.recovered and ridge["failed"] is None and ridge["own"] is None
    gain = measured.unseen.gain
    expected = {**dict(measured.unseen), "gain": {"mean": gain.mean, "interval": list(gain.interval)}}
    assert ridge["unseen"] == expected and set(ridge["unseen"]) == {
        "self_old", "cross", "self_new", "queries", "gain",
    }  # fmt: skip
    assert head["kind"] == "head" and list(head) == list(ridge) == list(failed)
    assert "nowhere" in failed["failed"] and failed["seconds"] >= 0
    assert failed["worse"] == []
    unknown = set(failed) - {"name", "kind", "seconds", "failed", "worse"}
    assert len(unknown) == 9 and all(failed[key] is None for key in unknown)
    best = max(comparison.candidates[:2], key=lambda one: one.cross.mean).name
    assert (written["best_adapter"], written["best_head"], written["best"]) == ("ridge", "head", best)


def test_the_gallery_of_a_head_after_a_full_backfill(labelled) -> None:
    mapped = build_adapter("ridge", {"direction": "old_to_new"}).fit(labelled.fit_old, labelled.fit_new).apply
    candidate = Candidate("head", "head", lambda old, new, _: FittedLink(identity, mapped, own=identity))
    comparison = measure([candidate], labelled, **QUICK)
    texts = {"title": "t", "names": NAMES, "direction": "old_to_new"}
    written = written_of(labelled, comparison, **texts)
    own = written["candidates"][0]["own"]
    assert own["mean"] == written["systems"]["self_new"]["mean"] != written["candidates"][0]["cross"]["mean"]
    assert (
        written["protocol"]["direction"] == "old_to_new"
        and written["candidates"][0]["direction"] is None
        and written["best_adapter"] is None
    )


def test_what_is_said_without_labels(found) -> None:
    comparison, written = found("unlabelled")
    assert written["data"]["classes"] is None and not written["data"]["labelled"]
    assert written["protocol"]["metric"] == "overlap@10" and written["systems"]["self_new"]["mean"] == 1
    assert all(one["unseen"] is None for one in written["candidates"])
    advised = recommend(comparison)
    assert written["recommendation"] == {
        "action": advised.action, "candidate": advised.candidate, "sentences": list(advised.sentences),
        "worse": [],
    }  # fmt: skip


@pytest.mark.parametrize("unknown", [math.nan, math.inf, None])
def test_a_gain_that_is_no_number_is_left_out(labelled, adapter, unknown: float | None) -> None:
    comparison = measure([adapter("ridge")], labelled, **QUICK)
    ridge = dict(comparison.candidates[0])
    candidates = (Measured(**{**ridge, "recovered": unknown}),)
    texts = {"title": "t", "names": NAMES, "direction": "new_to_old"}
    written = written_of(labelled, replace(comparison, candidates=candidates), **texts)
    assert written["candidates"][0]["recovered"] is None


def test_a_curve_without_points_is_left_out(found) -> None:
    assert (
        found("labelled", curve=LearningCurve(candidate="ridge", points=[], enough=None))[1]["learning_curve"] is None
    )
