from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import Evaluation
from limpet.evaluation.test_sets import combine

Make = Callable[..., EmbeddingSet]


@pytest.fixture(scope="module")
def evaluated(make_embeddings: Make) -> Callable[..., Evaluation]:
    """Evaluate one upgrade on the test set of a seed; a noisy independent model is worse than the old one."""

    def run(seed: int, *, independent: float | None = 0.6, new: float = 0.9, **options: Any) -> Evaluation:
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(8), 6)
        centres, item = rng.normal(size=(8, 10))[labels], rng.normal(size=(48, 10))
        noises = {"old": 1.4, "new": new} | ({} if independent is None else {"independent": independent})
        sides = {}
        for name, noise in noises.items():
            own = np.random.default_rng(seed + len(name)).normal(size=item.shape)
            made = make_embeddings(
                centres + noise * (0.9 * item + 0.5 * own), labels, fingerprint=f"declared:{name}", form="points"
            )
            sides[name] = made
        return evaluate(**sides, resamples=100, curve=False, **options)

    return run


@pytest.fixture(scope="module")
def sets(evaluated: Callable[..., Evaluation]) -> dict[str, Evaluation]:
    return {"roxford": evaluated(1), "rparis": evaluated(2), "gldv2": evaluated(3, gate_metric="recall@1")}


def changed(evaluation: Evaluation, **values: Any) -> Evaluation:
    return Evaluation.model_validate(dict(evaluation) | values)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_every_set_has_its_own_metric_and_averages_come_last(sets: dict[str, Evaluation]) -> None:
    found = combine(sets)
    ups, comps, ones = [], [], []
    for name, evaluation in sets.items():
        metric = evaluation.gate_metric
        old, independent, new, cross = (
            getattr(evaluation, system)[metric] for system in ("self_old", "self_independent", "self_new", "cross")
        )
        up, comp = (new - independent) / independent, (cross - old) / (independent - old)
        scores = found.sets[name]
        assert scores.metric == metric and (scores.self_old, scores.cross) == (old, cross)
        assert scores.p_up == pytest.approx({"raw": up, "sigmoid": sigmoid(up)})
        assert scores.p_comp == pytest.approx({"raw": comp, "sigmoid": sigmoid(comp)})
        one = 2 * sigmoid(comp) * sigmoid(up) / (sigmoid(comp) + sigmoid(up))
        assert scores.p_score == pytest.approx(one) and scores.undefined == {}
        assert scores.verdict == evaluation.verdict
        ups, comps, ones = [*ups, sigmoid(up)], [*comps, sigmoid(comp)], [*ones, one]
    mean = found.mean
    expected = (np.mean(ups), np.mean(comps), np.mean(ones))
    assert (mean.p_up["sigmoid"], mean.p_comp["sigmoid"], mean.p_score) == pytest.approx(expected)
    assert abs(2 * expected[0] * expected[1] / (expected[0] + expected[1]) - mean.p_score) > 1e-6
    assert found.sets["gldv2"].metric == "recall@1"


def test_one_metric_for_all_decides_the_verdicts_too(sets: dict[str, Evaluation]) -> None:
    found = combine(sets, "recall@5")
    for name, evaluation in sets.items():
        low, high = evaluation.interval["recall@5"]["cross_minus_self_old"]
        expected = "compatible" if low > 0 else "not compatible" if high <= 0 else "inconclusive"
        assert found.sets[name].verdict == expected and found.sets[name].metric == "recall@5"
    with pytest.raises(
        ConfigError, match=r"'roxford' was not measured in map@100\.\nExpected: one of its metrics: rec"
    ):
        combine(sets, "map@100")


def test_guards_are_those_of_the_evaluation(sets: dict[str, Evaluation]) -> None:
    """With the gate's metric clearly worse and another one better."""
    intervals = {"map": {"cross_minus_self_old": (-0.2, -0.1)}, "recall@1": {"cross_minus_self_old": (0.1, 0.2)}}

    def worse(guards: tuple[str, ...]) -> tuple[str, ...]:
        return changed(sets["roxford"], interval=intervals, gate_metric="map", guards=guards).clearly_worse()

    assert worse(("recall@1",)) == ("map",)
    assert worse(()) == ()


def test_a_point_gate_stays_one(evaluated: Callable[..., Evaluation]) -> None:
    both = {"a": evaluated(1, gate="point"), "b": evaluated(2, gate="point", new=1.3)}
    found = combine(both, "recall@1")
    unsure = 0
    for name, evaluation in both.items():
        low, high = evaluation.interval["recall@1"]["cross_minus_self_old"]
        unsure += low <= 0 < high
        gain = evaluation.cross["recall@1"] - evaluation.self_old["recall@1"]
        assert found.sets[name].verdict == ("compatible" if gain > 0 else "not compatible")
    assert unsure  # where an interval would have decided otherwise


def test_compatible_only_if_every_set_is(evaluated: Callable[..., Evaluation]) -> None:
    good, bad = evaluated(1), evaluated(2, new=2.5)
    assert bad.verdict != "compatible" and good.verdict == "compatible"
    assert combine({"a": good, "b": evaluated(3)}).compatible and not combine({"a": good, "b": bad}).compatible


def test_one_undefined_set_takes_the_average_away_and_says_why(evaluated: Callable[..., Evaluation]) -> None:
    weak = evaluated(2, independent=2.5)
    found = combine({"good": evaluated(1), "weak": weak})
    assert found.mean.p_comp == {"raw": None, "sigmoid": None} and found.mean.p_score is None
    assert found.mean.p_up["raw"] is not None
    old, independent = weak.self_old["map"], weak.self_independent["map"]
    assert found.sets["weak"].undefined == {
        "p_comp": f"the independent model is not better than the old one ({independent:.4g} against {old:.4g})"
    }


def test_without_an_independent_model_there_are_no_p_metrics(evaluated: Callable[..., Evaluation]) -> None:
    found = combine({"a": evaluated(1, independent=None), "b": evaluated(2, independent=None)})
    assert found.mean.p_up == found.mean.p_comp == {"raw": None, "sigmoid": None} and found.mean.p_score is None
    assert found.sets["a"].undefined["p_comp"] == "no independent model was evaluated"


def test_evaluations_that_were_read_combine_as_those_that_were_measured(sets: dict[str, Evaluation]) -> None:
    read = {name: Evaluation.model_validate_json(found.model_dump_json(), strict=True) for name, found in sets.items()}
    assert combine(read) == combine(sets)


@pytest.mark.parametrize("model", ["old", "new", "independent"])
def test_other_models_are_refused_and_named(sets: dict[str, Evaluation], model: str) -> None:
    known = sets["gldv2"].fingerprints
    others = {**sets, "gldv2": changed(sets["gldv2"], fingerprints=known | {model: {"fingerprint": "image:1234"}})}
    words = f"'rparis' and 'gldv2' have another {model} model: declared:{model} and image:1234"
    with pytest.raises(DataError, match=words):
        combine(others)
    if model == "independent":
        others["gldv2"] = changed(sets["gldv2"], fingerprints=known | {model: None})
        with pytest.raises(DataError, match="declared:independent and none"):
            combine(others)


def test_other_maps_are_refused(sets: dict[str, Evaluation]) -> None:
    others = {**sets, "rparis": changed(sets["rparis"], mapped={"query": "adapter:1"})}
    with pytest.raises(DataError, match="another query of a map: none and adapter:1"):
        combine(others)


def test_too_few_and_unmeasured_sets_are_refused(sets: dict[str, Evaluation]) -> None:
    with pytest.raises(DataError, match="1 evaluations to combine"):
        combine({"roxford": sets["roxford"]})
    blind = changed(sets["rparis"], self_old=None)
    with pytest.raises(DataError, match="'blind' has no scores"):
        combine({"roxford": sets["roxford"], "blind": blind})


def test_unjudged_sets_keep_their_scores_and_speak_no_verdict(sets: dict[str, Evaluation]) -> None:
    clicks = changed(sets["rparis"], verdict="unlabelled")
    found = combine({"roxford": sets["roxford"], "clicks": clicks}, "recall@5")
    assert found.sets["clicks"].verdict == "unlabelled" and not found.compatible
