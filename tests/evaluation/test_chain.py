from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.chain import ChainEvaluation, ChainResults, evaluate_chain
from limpet.evaluation.compatibility import compatibility_matrix
from limpet.evaluation.intervals import paired_interval
from limpet.evaluation.protocols import ByLabel, Relevance
from limpet.evaluation.protocols.relevance_lists import RelevancePairs
from limpet.evaluation.ranking.sharded import sharded
from limpet.geometry import Lorentz
from limpet.results import Data

from ..workers_here import Here

Make = Callable[..., EmbeddingSet]
CLASSES, ITEMS, DIM = 10, 8, 10
NOISE = {"e1": 1.6, "e2": 1.2, "e3": 0.8, "worse": 1.7}


@pytest.fixture(scope="module")
def model(make_embeddings: Make) -> Callable[..., EmbeddingSet]:
    """Clusters seen through a model's noise; independent ones live in a rotated space."""
    rng = np.random.default_rng(7)
    labels = np.repeat(np.arange(CLASSES), ITEMS)
    centres, item = rng.normal(size=(CLASSES, DIM))[labels], rng.normal(size=(len(labels), DIM))

    def build(name: str, noise: float | None = None, **values: Any) -> EmbeddingSet:
        own = np.random.default_rng(sum(map(ord, name)))
        vectors = centres + (NOISE[name] if noise is None else noise) * (0.9 * item + 0.5 * own.normal(size=item.shape))
        if name.startswith("i"):
            vectors = vectors @ np.linalg.qr(own.normal(size=(DIM, DIM)))[0]
        settings: dict[str, Any] = {"labels": labels, "fingerprint": f"declared:{name}", "form": "points"}
        return make_embeddings(vectors, **{**settings, **values})

    return build


def twice(embeddings: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    return embeddings, embeddings


@pytest.fixture(scope="module")
def chain(model: Callable[..., EmbeddingSet]) -> dict[str, tuple[EmbeddingSet, EmbeddingSet]]:
    return {name: twice(model(name)) for name in ("e1", "e2", "e3")}


@pytest.fixture(scope="module")
def alone(model: Callable[..., EmbeddingSet]) -> list[tuple[EmbeddingSet, EmbeddingSet]]:
    return [twice(model("i2", 1.0)), twice(model("i3", 0.6))]


LEAVE_OUT = ByLabel(leave_one_out=True)


@pytest.fixture(scope="module")
def found(chain: Any, alone: Any) -> ChainEvaluation:
    return evaluate_chain(chain, independent=alone, protocol=LEAVE_OUT, resamples=200)


def results_of(found: ChainEvaluation) -> ChainResults:
    return found.results(title="A chain", data=Data(name="clusters", description="simulated", numbers={}))


def slow_map(query: EmbeddingSet, gallery: EmbeddingSet) -> list[float]:
    """Average precision of every query, itself left out, item after item."""
    values = []
    for row, (vector, label) in enumerate(zip(query.vectors, query.labels, strict=True)):
        scores = gallery.vectors @ vector / np.linalg.norm(gallery.vectors, axis=1)
        order = [at for at in np.argsort(-scores, kind="stable") if at != row]
        right, precisions = 0, []
        for place, at in enumerate(order, start=1):
            if gallery.labels[at] == label:
                right += 1
                precisions.append(right / place)
        values.append(sum(precisions) / right)
    return values


def test_the_matrix_is_that_of_a_slow_loop(found: ChainEvaluation, chain: Any) -> None:
    models = list(chain.values())
    for i in range(3):
        for j in range(3):
            if j > i:
                assert math.isnan(found.matrix[i, j])
            else:
                assert found.matrix[i, j] == pytest.approx(np.mean(slow_map(models[i][0], models[j][1])), abs=1e-6)
    assert found.matrix == pytest.approx(compatibility_matrix(chain, "map", exclude_same_id=True), nan_ok=True)


def test_averages_and_violations_follow_from_the_matrix(found: ChainEvaluation) -> None:
    m = found.matrix
    pairs = [(1, 0), (2, 0), (2, 1)]
    assert found.ac == sum(m[i, j] > m[j, j] for i, j in pairs) / 3 == 1.0
    assert found.am == pytest.approx(sum(m[i, j] for i in range(3) for j in range(i + 1)) / 6)
    assert not found.violations.any() and found.compatible


def test_a_worse_successor_violates_and_is_not_compatible(chain: Any, model: Any) -> None:
    found = evaluate_chain({**chain, "worse": twice(model("worse"))}, protocol=LEAVE_OUT, resamples=100)
    wrong = {(i, j) for i in range(4) for j in range(i) if found.matrix[i, j] <= found.matrix[j, j]}
    assert wrong and {(i, j) for i, j in np.argwhere(found.violations).tolist()} == wrong
    assert (3, 2) in wrong and not found.compatible
    assert found.ac == (6 - len(wrong)) / 6
    record = results_of(found)
    assert record.violations == len(wrong) and record.compatible is False
    assert [(pair.new, pair.old) for pair in record.pairs][:3] == [("e2", "e1"), ("e3", "e1"), ("e3", "e2")]
    assert {(pair.new, pair.old) for pair in record.pairs if pair.violates} == {
        (list(NOISE)[i], list(NOISE)[j]) for i, j in wrong
    }


def test_chain_is_compatible_only_on_held_out_queries_and_where_no_guard_is_worse(found: ChainEvaluation) -> None:
    def compatible(**changes: Any) -> bool:
        changed = dataclasses.replace(found, **changes)
        assert results_of(changed).compatible == changed.compatible
        return changed.compatible

    assert compatible(worse={(1, 0): ()}) and not compatible(worse={(2, 1): ("recall@1",)})
    assert compatible(trained_shares=(1.0, 0.05, 0.0))  # the first model answers no query of a pair
    assert not compatible(trained_shares=(0.0, 0.0, 0.051))
    assert not compatible(judged=False)


def test_p_metrics_under_both_readings(found: ChainEvaluation, alone: Any) -> None:
    independent = [found.matrix[0, 0], *(np.mean(slow_map(*sides)) for sides in alone)]
    assert found.independent_self == pytest.approx(independent, abs=1e-6)
    assert found.p is not None
    for reading, old in (("own", np.diag(found.matrix)), ("independent", independent)):
        for i in range(3):
            for j in range(i):
                raw = (found.matrix[i, j] - old[j]) / (independent[i] - old[j])
                assert found.p["raw"][reading].p_comp[i, j] == pytest.approx(raw, rel=1e-5)
                assert found.p["sigmoid"][reading].p_comp[i, j] == pytest.approx(1 / (1 + math.exp(-raw)), rel=1e-5)
        up = [(found.matrix[i, i] - independent[i]) / independent[i] for i in range(3)]
        assert found.p["raw"][reading].p_up == pytest.approx(up, abs=1e-5)
    assert found.p["raw"]["own"].p_comp[2, 1] != pytest.approx(found.p["raw"]["independent"].p_comp[2, 1], abs=1e-3)


def test_a_pair_is_not_defined_where_its_independent_model_is_not_better(chain: Any, model: Any) -> None:
    third = [twice(model("i2", 1.0)), twice(model("i3", 1.5))]
    found = evaluate_chain(chain, independent=third, protocol=LEAVE_OUT, resamples=50)
    assert found.p is not None
    assert "not better than the old one" in found.p["raw"]["own"].undefined[2, 1]
    assert (1, 0) not in found.p["raw"]["own"].undefined
    for variant in ("raw", "sigmoid"):
        values = found.p[variant]["own"].p_comp
        assert math.isnan(values[2, 1]) and not math.isnan(values[1, 0])
    record = results_of(found)
    assert record.p_comp["sigmoid"]["own"][2][1] is None and record.p_score["own"][2][1] is None
    assert record.p_comp["raw"]["own"][0] == [None, None, None]
    assert ChainResults.parse(json.loads(json.dumps(record.to_dict(), allow_nan=False))) == record


def test_intervals_are_paired_over_the_same_queries(found: ChainEvaluation, chain: Any) -> None:
    models = list(chain.values())
    per_query = {(i, j): LEAVE_OUT.measure(models[i][0], models[j][1], ["map"])["map"] for i, j in ((2, 1), (1, 1))}
    classes = models[0][0].labels
    expected = paired_interval(per_query[2, 1], per_query[1, 1], resamples=200, clusters=classes)
    assert found.gain_interval[2, 1] == pytest.approx(expected)
    assert results_of(found).pairs[2].verdict == ("compatible" if expected[0] > 0 else "inconclusive")
    assert set(found.gain_interval) == {(1, 0), (2, 0), (2, 1)} and len(found.interval) == 6


def test_whole_classes_can_be_drawn(chain: Any, found: ChainEvaluation) -> None:
    drawn = evaluate_chain(chain, protocol=LEAVE_OUT, resamples=200, resample="classes")
    assert drawn.gain_interval == found.gain_interval  # which is the default where queries share classes
    single = evaluate_chain(chain, protocol=LEAVE_OUT, resamples=200, resample="queries")
    assert single.gain_interval[2, 0] != found.gain_interval[2, 0]
    assert [one.protocol.bootstrap.resample for one in (drawn, single)] == ["classes", "queries"]
    assert drawn.matrix == pytest.approx(found.matrix, nan_ok=True)


def test_items_in_another_order_and_labels_of_the_last_alone(chain: Any, found: ChainEvaluation) -> None:
    rng = np.random.default_rng(0)
    mixed = {
        name: twice(one[rng.permutation(len(one))].replace(**({} if name == "e3" else {"labels": None})))
        for name, (one, _) in chain.items()
    }
    again = evaluate_chain(mixed, protocol=LEAVE_OUT, resamples=10)
    assert again.matrix == pytest.approx(found.matrix, nan_ok=True, abs=1e-6)


def test_another_protocol_and_metric(chain: Any) -> None:
    query, gallery = ({name: one[rows] for name, (one, _) in chain.items()} for rows in (
        np.arange(0, 80, 4), np.setdiff1d(np.arange(80), np.arange(0, 80, 4))))  # fmt: skip
    first = next(iter(chain.values()))[0]
    asked, answers = [], []
    for row in range(0, 80, 4):
        for other in np.flatnonzero(first.labels == first.labels[row]).tolist():
            if other % 4:
                asked.append(first.ids[row])
                answers.append(first.ids[other])
    pairs = RelevancePairs(asked, answers, np.zeros(len(asked), bool))
    sides = {name: (query[name].replace(labels=None), gallery[name].replace(labels=None)) for name in chain}
    labelled = evaluate_chain([(query[name], gallery[name]) for name in chain], metric="recall@5", resamples=10)
    judged = evaluate_chain(sides, protocol=Relevance(pairs=pairs, judged=True), metric="recall@5", resamples=10)
    assert judged.matrix == pytest.approx(labelled.matrix, nan_ok=True) and judged.judged
    assert labelled.names == ("model 1", "model 2", "model 3") and labelled.metric == "recall@5"
    clicks = evaluate_chain(sides, protocol=Relevance(pairs=pairs), resamples=10)
    assert not clicks.judged and not clicks.compatible
    assert {pair.verdict for pair in results_of(clicks).pairs} == {"unlabelled"}


def test_without_independent_models_there_are_no_p_metrics(chain: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = results_of(evaluate_chain(chain, protocol=LEAVE_OUT, resamples=10))
    assert record.p_comp is None and record.independent_self is None and record.independent_fingerprints == {}


def test_bad_chains_are_refused(chain: Any, alone: Any, model: Any) -> None:
    e1, e2 = chain["e1"], chain["e2"]
    with pytest.raises(DataError, match=r"1 model in a chain\.\nExpected: two or more"):
        evaluate_chain({"e1": e1})
    with pytest.raises(DataError, match="'e1' and 'again' have the fingerprint declared:e1: these are the same model"):
        evaluate_chain({"e1": e1, "again": e1})
    with pytest.raises(DataError, match="The 'e2' queries have the fingerprint declared:e2, the 'e2' gallery"):
        evaluate_chain({"e1": e1, "e2": (e2[0], e1[1])})
    with pytest.raises(DataError, match="1 independent models for a chain of 3"):
        evaluate_chain(chain, independent=alone[:1])
    with pytest.raises(DataError, match="independent 'e2' and independent 'e3' have the fingerprint declared:i2"):
        evaluate_chain(chain, independent=[alone[0], alone[0]])
    fewer = twice(e2[0][np.arange(79)])
    with pytest.raises(EmptyOverlapError, match="1 items of the 'e1' queries are not in the 'e2' queries"):
        evaluate_chain({"e1": e1, "e2": fewer})
    with pytest.raises(ConfigError, match="recal@1"):
        evaluate_chain(chain, metric="recal@1")
    with pytest.raises(ConfigError, match="resample='class'"):
        evaluate_chain(chain, resample="class")  # type: ignore[arg-type]
    bare = {name: twice(one.replace(labels=None)) for name, (one, _) in chain.items()}
    with pytest.raises(DataError, match="No model of the chain has labels"):
        evaluate_chain(bare, protocol=LEAVE_OUT)
    other = twice(model("i2", 1.0).replace(space=Lorentz(DIM), labels=None))
    with pytest.raises(SpaceMismatchError):
        evaluate_chain({"e1": e1, "i2": other})


def test_chain_refuses_gains_below_the_smallest_effect(chain: Any, found: ChainEvaluation) -> None:
    gains = {(i, j): found.matrix[i, j] - found.matrix[j, j] for i, j in ((1, 0), (2, 0), (2, 1))}
    bar = (min(gains.values()) + max(gains.values())) / 2
    strict = evaluate_chain(chain, protocol=LEAVE_OUT, min_effect=bar, resamples=200)
    wrong = {pair for pair, gain in gains.items() if gain <= bar}
    assert wrong and {(i, j) for i, j in np.argwhere(strict.violations).tolist()} == wrong
    assert not strict.compatible and strict.ac == found.ac == 1.0  # AC is the papers', whatever counts here
    results = results_of(strict)
    assert ChainResults.parse(results.to_dict()).min_effect == bar and results_of(found).min_effect is None
    assert {pair.verdict for pair in results.pairs if pair.violates} <= {"not compatible", "inconclusive"}
    with pytest.raises(ConfigError, match="min_effect"):
        evaluate_chain(chain, protocol=LEAVE_OUT, min_effect=1.0)


def test_chain_counts_ties_by_search_and_model(chain: Any, model: Callable[..., EmbeddingSet]) -> None:
    flat = model("e2").replace(vectors=np.ones((CLASSES * ITEMS, DIM), np.float32))
    ties = evaluate_chain({**chain, "e2": twice(flat)}, protocol=LEAVE_OUT, resamples=10).ties
    assert ties.constant == ("e2 queries", "e2 gallery")
    assert ties.queries["e2 on e2"] == 1.0 and ties.queries["e1 on e1"] == 0.0
    assert ties.repeated == {"e1": 0.0, "e2": 1 - 1 / (CLASSES * ITEMS), "e3": 0.0}


def test_chains_are_measured_on_sharded_galleries_as_on_whole_ones(chain) -> None:
    alone = results_of(evaluate_chain(chain, protocol=LEAVE_OUT, resamples=50))
    with sharded(Here(3)):
        found = results_of(evaluate_chain(chain, protocol=LEAVE_OUT, resamples=50))
    assert json.dumps(found.to_dict()) == json.dumps(alone.to_dict())
