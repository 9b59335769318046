"""Metrics of rankings with ties: the mean over all orders of tied items, whatever the order of the gallery."""

from __future__ import annotations

from itertools import chain, permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.metrics import FAMILIES, METRICS, TIED, metrics_named
from limpet.evaluation.protocols import ByCamera, ByLabel, Protocol, SeenClasses
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.results import Evaluation
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet_bench.protocols.landmarks import Landmarks

NAMES = [*METRICS, *(family.replace("@k", f"@{k}") for family in FAMILIES for k in (1, 2, 4, 9, 40))]
KINDS = ("constant", "signs", "repeated", "quantised")


def slow_value(name: str, hits: list[float]) -> float:
    """The definition over the places of one ranking: the gain of each, 0 where it holds no relevant item."""
    kind, _, written = name.partition("@")
    total = sum(gain > 0 for gain in hits)
    k = total if written == "r" else int(written or len(hits))
    found = np.cumsum([gain > 0 for gain in hits])
    places = [place for place, gain in enumerate(hits, 1) if gain > 0]
    precision = [found[place - 1] / place for place in range(1, len(hits) + 1)]
    discounted = [sum(gain / np.log2(place + 1) for place, gain in enumerate(order[:k], 1))
                  for order in (hits, sorted(hits, reverse=True))]  # fmt: skip
    used = min(k, places[-1])
    before = [found[place - 2] / (place - 1) if place > 1 else 1.0 for place in places]
    values = {
        "map": sum(precision[place - 1] for place in places if place <= k) / min(total, k),
        "map-trapezoid": sum(b + precision[place - 1] for b, place in zip(before, places, strict=True)) / 2 / total,
        "ndcg": discounted[0] / discounted[1],
        "mrr": 1 / places[0] if places[0] <= k else 0.0,
        "recall": float(places[0] <= k),
        "cmc": float(places[0] <= k),
        "mp": found[used - 1] / used,
    }
    return float(values[kind])


def ranked_of(scores: NDArray[Any], gains: NDArray[Any]) -> Ranked:
    """Count the items above and beside every relevant one, of a single query."""
    rows = np.flatnonzero(gains)
    above, tied = ((np.array([int(compare(scores, scores[row]).sum()) for row in rows], np.int64))
                   for compare in (np.greater, np.equal))  # fmt: skip
    order = np.argsort(above, kind="stable")
    return Ranked(above[order], np.array([0, len(rows)]), np.array([len(scores)]), gains[rows][order], tied[order])


def orders_of(scores: NDArray[Any]) -> list[list[int]]:
    """All rankings that these scores allow."""
    groups = [np.flatnonzero(scores == score).tolist() for score in np.unique(scores)[::-1]]
    return [[*chain(*chosen)] for chosen in product(*(permutations(group) for group in groups))]


@pytest.mark.parametrize("seed", range(40))
def test_every_metric_is_the_mean_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 1 + seed % 5, size=rng.integers(1, 7))
    gains = np.where(rng.random(len(scores)) < 0.5, rng.integers(1, 4, len(scores)), 0).astype(float)
    gains[rng.integers(len(gains))] = 2.0
    orders = orders_of(scores)
    for name, metric in metrics_named(NAMES).items():
        expected = np.mean([slow_value(name, gains[order].tolist()) for order in orders])
        assert metric(ranked_of(scores, gains))[0] == pytest.approx(expected, rel=1e-12, abs=1e-15), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_is_the_mean_over_200_random_orders_within_its_standard_error(kind: str) -> None:
    """Rankings of a larger gallery in random orders, as a stable sort gives them."""
    query, gallery = sides(kind, 150)
    found = rank_metrics(query, gallery, NAMES)
    scores = query.space.index_form(query.vectors, "query").astype(np.float64) @ gallery.space.index_form(
        gallery.vectors, "gallery"
    ).astype(np.float64).T  # fmt: skip
    scores, functions = scores.astype(np.float32), metrics_named(NAMES)
    drawn: dict[str, list[NDArray[Any]]] = {name: [] for name in NAMES}
    for seed in range(200):
        order = np.random.default_rng(seed).permutation(150)
        ranking = order[np.argsort(-scores[:, order], axis=1, kind="stable")]
        hits = gallery.labels[ranking] == query.labels[:, None]
        ranked = Ranked.of([np.flatnonzero(row) for row in hits], [150] * len(query))
        for name, metric in functions.items():
            drawn[name].append(metric(ranked))
    for name, values in drawn.items():
        table = np.array([[*of_order, of_order.mean()] for of_order in values])
        expected = np.append(found[name], found[name].mean())
        spread, most = table.std(axis=0, ddof=1), np.sqrt(np.maximum(expected * (1 - expected), 0))
        error = np.where(spread > 0, spread, most) / np.sqrt(200)  # what is rare may not have been drawn
        assert (np.abs(expected - table.mean(axis=0)) <= 5 * error + 1e-9).all(), name


def sides(kind: str, size: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Queries and a gallery, ordered by class as files often are, of a model whose scores tie."""
    rng = np.random.default_rng(7)
    labels = np.sort(np.arange(size) % 5)
    own = rng.normal(size=(5, 32))

    def vectors(of: NDArray[np.int64]) -> NDArray[np.float32]:
        drawn = own[of] + 2.5 * rng.normal(size=(len(of), 32))
        made = {
            "constant": np.ones_like(drawn),
            "signs": np.sign(drawn),
            "repeated": own[of // 2],
            "quantised": np.rint(drawn[:, :2]),
        }[kind]
        made[(made == 0).all(axis=1)] = 1
        return made.astype(np.float32)

    def part(of: NDArray[np.int64], prefix: str) -> EmbeddingSet:
        found = vectors(of)
        names = [f"{prefix}{row}" for row in range(len(of))]
        camera = {"camera": np.arange(len(of)) % 2}
        return EmbeddingSet(found, names, "declared:m", Hypersphere(found.shape[1]), labels=of, columns=camera)

    return part(np.arange(12) % 5, "q"), part(labels, "i")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [ByLabel(), SeenClasses(), ByCamera(), Landmarks(truth=None)])
def test_the_order_of_the_gallery_changes_no_metric(kind: str, protocol: Protocol) -> None:
    query, gallery = sides(kind, 200)
    names = [*NAMES, TIED]
    expected = protocol.measure(query, gallery, names)
    assert expected[TIED].any()
    for seed in range(3):
        turned = gallery[np.random.default_rng(seed).permutation(200)]
        for name, values in protocol.measure(query, turned, names).items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_a_constant_model_scores_what_chance_gives() -> None:
    """40 of 200 items answer each query: any place holds one with the probability 1/5."""
    query, gallery = sides("constant", 200)
    for order in (np.arange(200), np.arange(200)[::-1]):
        found = rank_metrics(query, gallery[order], ("recall@1", "map", "map@r", TIED))
        np.testing.assert_allclose(found["recall@1"], 0.2, rtol=1e-12)
        at = np.arange(200)
        np.testing.assert_allclose(found["map"], ((1 + at * 39 / 199) / (at + 1)).mean(), rtol=1e-12)
        assert found[TIED].tolist() == [1] * 12


def test_few_ties_far_down_a_long_ranking_keep_their_digits() -> None:
    """Sums of reciprocals up to a place, subtracted from one another, would lose what the two places give."""
    untied = Ranked.of([[999_990, 999_991]], [1_000_000])
    both = Ranked.of([[999_990, 999_990]], [1_000_000], tied=[[2, 2]])
    for name in ("map", "map-trapezoid", "ndcg"):
        metric = metrics_named([name])[name]
        np.testing.assert_allclose(metric(both), metric(untied), rtol=1e-8, err_msg=name)


def test_a_query_hangs_on_ties_where_their_order_changes_it_by_a_hundredth() -> None:
    """Tied items that all answer may come in any order; so may those far down that answer little."""
    cases = Ranked.of([[0, 0], [0], [1], [150], []], [400] * 5, tied=[[2, 2], [2], [1], [2], []])
    np.testing.assert_array_equal(metrics_named([TIED])[TIED](cases), [0, 1, 0, 0, np.nan])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores, gains = rng.integers(0, 3, 6), rng.integers(0, 2, 6).astype(float)
        gains[0] = 1
        values = [slow_value("map", gains[order].tolist()) for order in orders_of(scores)]
        assert metrics_named([TIED])[TIED](ranked_of(scores, gains))[0] == (max(values) - min(values) >= 0.01)


def copies(size: int = 120) -> EmbeddingSet:
    """Labelled items that are queries among themselves, in classes that overlap."""
    rng = np.random.default_rng(4)
    labels = np.arange(size) % 6
    vectors = rng.normal(size=(6, 8))[labels] + 1.5 * rng.normal(size=(size, 8))
    names = [f"i{row}" for row in range(size)]
    return EmbeddingSet(vectors.astype(np.float32), names, "declared:old", Hypersphere(8), labels=labels)


def evaluated(old: EmbeddingSet, vectors: NDArray[Any], **options: Any) -> Evaluation:
    new = old.replace(vectors=vectors.astype(np.float32), fingerprint="declared:new")
    return evaluate(old, new, curve=False, resamples=100, **options)


def test_an_evaluation_says_what_hangs_on_ties() -> None:
    old = copies()
    found = evaluated(old, old.vectors[np.arange(120) // 2 * 2]).ties
    assert (found.queries["self_old"], found.queries["cross"]) == (0, 0)
    assert 0.5 < found.queries["self_new"] < 1
    assert (found.repeated, found.constant) == ({"old": 0, "new": 0.5}, ())
    constant = evaluated(old, np.ones((120, 8)))
    assert constant.ties.constant == ("new queries", "new gallery")
    assert constant.ties.repeated["new"] == 119 / 120
    assert constant.self_new["recall@1"] == pytest.approx(19 / 119)
    assert constant.verdict == "not compatible"


@pytest.mark.parametrize("options", [{}, {"guards": ()}, {"metrics": ["ndcg"], "gate_metric": "ndcg"}])
def test_first_hits_stand_beside_every_verdict(options: dict[str, Any]) -> None:
    """Whatever was asked for: their net change is what breaks subtracted from what heals."""
    old = copies()
    shift = 0.5 * np.random.default_rng(1).normal(size=old.vectors.shape).astype(np.float32)
    found = evaluated(old, old.vectors + shift, **options)
    new = old.replace(vectors=old.vectors + shift, fingerprint="declared:new")
    before, after = (rank_metrics(query, old, ("recall@1",), exclude_same_id=True)["recall@1"] for query in (old, new))
    hits = found.first_hits
    assert hits.metric == "recall@1"
    assert (hits.broken, hits.healed) == (((before > after).mean()), (after > before).mean())
    assert hits.net == pytest.approx(hits.healed - hits.broken)
    assert hits.net == pytest.approx(hits.after - hits.before)
    assert hits.interval[0] <= hits.net <= hits.interval[1]
    written = found.to_dict()
    assert [*written][:2] == ["verdict", "first_hits"]
    assert written["first_hits"]["net"] == hits.net


def test_a_copy_in_16_bits_gains_no_more_than_rounding() -> None:
    """It passes by the sign of its gain, and the evaluation knows that rounding gives as much."""
    old = copies()
    for scale in np.linspace(1, 2, 40):  # rounding falls out otherwise for every scale of the vectors
        found = evaluated(old, (old.vectors * scale).astype(np.float16), gate="point")
        gain = found.gain()
        assert gain is not None
        if gain > 0:
            break
    assert 0 < gain < 0.002
    assert found.verdict in ("compatible", "mixed")
    assert found.within_rounding
    assert found.rounding >= gain
    better = evaluated(old, np.eye(8)[old.labels] + old.vectors, gate="point")
    assert (better.rounding, better.within_rounding) == (None, False)


def test_a_smallest_effect_turns_a_smaller_gain_down() -> None:
    old = copies()
    better = old.vectors + 0.2 * np.eye(8)[old.labels]
    found = evaluated(old, better, gate="point")
    gain = found.gain()
    assert gain > 0
    assert found.min_effect is None
    for effect, passes in ((gain / 2, True), (gain * 2, False)):
        judged = evaluated(old, better, gate="point", min_effect=effect)
        assert (judged.verdict != "not compatible") == passes
        assert judged.min_effect == effect
    with pytest.raises(ConfigError, match=r"min_effect=1\.5"):
        evaluated(old, better, min_effect=1.5)
