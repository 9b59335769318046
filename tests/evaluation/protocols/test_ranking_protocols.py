"""Every ranking protocol against its rules, followed query after query and place after place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import EmptyOverlapError
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.protocols import ByCamera, ByLabel, RankingProtocol, Relevance, RelevancePairs, SeenClasses
from limpet.evaluation.ranking.engine import Ranked
from limpet.geometry import Hypersphere
from limpet_bench.datasets.landmarks import LandmarksTruth
from limpet_bench.datasets.revisited import RevisitedTruth
from limpet_bench.protocols.landmarks import Landmarks, Revisited

METRICS = ("map", "map@r", "map@3", "cmc@1", "recall@4", "map-trapezoid", "mp@1", "mp@4")
QUERIES = 5


def slow_metrics(order: list[int], relevant: set[int]) -> dict[str, float]:
    """The definitions over a whole ranking; NaN where nothing answers."""
    total = len(relevant)
    if not total:
        return dict.fromkeys(METRICS, np.nan)
    hits = [item in relevant for item in order]
    precision = [sum(hits[: place + 1]) / (place + 1) for place in range(len(hits))]
    places = [place for place, hit in enumerate(hits) if hit]
    before = [1.0 if place == 0 else precision[place - 1] for place in places]

    def counted(places_at_most: int) -> float:
        return sum(precision[place] for place in places if place < places_at_most)

    def first(k: int) -> float:
        used = min(k, places[-1] + 1)
        return sum(hits[:used]) / used

    return {
        "map": counted(len(order)) / total,
        "map@r": counted(total) / total,
        "map@3": counted(3) / min(total, 3),
        "cmc@1": float(any(hits[:1])),
        "recall@4": float(any(hits[:4])),
        "map-trapezoid": sum((b + precision[p]) / 2 for b, p in zip(before, places, strict=True)) / total,
        "mp@1": first(1),
        "mp@4": first(4),
    }


def random_case(seed: int, size: int) -> tuple[EmbeddingSet, EmbeddingSet, np.random.Generator]:
    """Queries and a gallery with few labels and cameras, and one item on both sides; often with equal vectors."""
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(rng.integers(1, 12) if seed % 2 else 5_000, 3))

    def part(count: int, ids: list[str]) -> EmbeddingSet:
        return EmbeddingSet(
            ids=ids,
            vectors=pool[rng.integers(0, len(pool), count)].astype(np.float32),
            fingerprint="declared:test",
            space=Hypersphere(3),
            labels=rng.integers(-1, 3, count),
            columns={"camera": rng.integers(0, 2, count)},
        )

    return (
        part(QUERIES, ["g0", *(f"q{row}" for row in range(1, QUERIES))]),
        part(size, [f"g{row}" for row in range(size)]),
        rng,
    )


Rules = Callable[[int], tuple[set[int], set[int]]]


def cases(query: EmbeddingSet, gallery: EmbeddingSet, rng: np.random.Generator) -> list[tuple[RankingProtocol, Rules]]:
    """Return protocols, and in plain words what answers a query and what its ranking leaves out."""
    items = range(len(gallery))
    same = [{item for item in items if gallery.labels[item] == label} for label in query.labels]
    own = [{item for item in items if gallery.ids[item] == name} for name in query.ids]
    junk = {item for item in items if gallery.labels[item] == -1}
    seen = [{item for item in same[row] if gallery.columns["camera"][item] == query.columns["camera"][row]}
            for row in range(QUERIES)]  # fmt: skip
    kinds = rng.integers(0, 4, (QUERIES, len(gallery)))  # 0 nothing, 1 easy or paired, 2 hard, 3 junk or ignored
    kind = [[{item for item in items if row[item] == number} for number in range(4)] for row in kinds]
    rows = [tuple(np.flatnonzero(row == number) for row in kinds) for number in range(4)]
    names = tuple(gallery.ids)
    boxes = np.tile([0.0, 0, 1, 1], (QUERIES, 1))
    revisited = RevisitedTruth(names, tuple(query.ids), rows[1], rows[2], rows[3], boxes)
    landmarks = LandmarksTruth(tuple(query.ids), tuple(tuple(names[item] for item in found) for found in rows[1]))
    owner, item = np.nonzero((kinds == 1) | (kinds == 3))
    pairs = None
    if len(owner):
        pairs = RelevancePairs(query.ids[owner], StringArray.of(gallery.ids[item]), kinds[owner, item] == 3)
    found: list[tuple[RankingProtocol, Rules]] = [
        (ByLabel(), lambda row: (same[row], set())),
        (ByLabel(leave_one_out=True), lambda row: (same[row], own[row])),
        (SeenClasses(), lambda row: (same[row], set())),
        (ByCamera(), lambda row: (same[row], seen[row] | junk)),
        (Landmarks(truth=None), lambda row: (same[row], set())),
        (ByCamera(leave_one_out=True), lambda row: (same[row], seen[row] | junk | own[row])),
        (Landmarks(truth=None, leave_one_out=True), lambda row: (same[row], own[row])),
        (Landmarks(truth=landmarks), lambda row: (kind[row][1], set())),
        (Revisited(truth=revisited), lambda row: (kind[row][1] | kind[row][2], kind[row][3])),
        (Revisited(truth=revisited, difficulty="easy"), lambda row: (kind[row][1], kind[row][3] | kind[row][2])),
        (Revisited(truth=revisited, difficulty="hard"), lambda row: (kind[row][2], kind[row][3] | kind[row][1])),
    ]
    if pairs is None:
        return found
    return [
        *found,
        (Relevance(pairs=pairs), lambda row: (kind[row][1], kind[row][3])),
        (Relevance(pairs=pairs, leave_one_out=True), lambda row: (kind[row][1], kind[row][3] | own[row])),
    ]


def tied_metrics(scores: dict[int, float], relevant: set[int]) -> dict[str, float]:
    """What metrics give a ranking with ties, whose relevant items are counted one by one."""
    places = sorted(
        (sum(other > scores[item] for other in scores.values()), list(scores.values()).count(scores[item]))
        for item in relevant
    )
    ranked = Ranked.of([[above for above, _ in places]], [len(scores)], [[tied for _, tied in places]])
    return {name: float(metric(ranked)[0]) for name, metric in metrics_named(METRICS).items()}


def scores_of(query: EmbeddingSet, gallery: EmbeddingSet, row: int, ignored: set[int]) -> dict[int, float]:
    """Return the cosine of every item but the ignored ones; equal vectors get equal scores."""
    side = [part.vectors.astype(np.float64) for part in (query, gallery)]
    scores = {item: float(side[0][row] @ vector / np.sqrt((vector**2).sum())) for item, vector in enumerate(side[1])}
    return {item: score for item, score in scores.items() if item not in ignored}


def order_of(scores: dict[int, float]) -> list[int]:
    """Sort by descending score."""
    return sorted(scores, key=lambda item: -scores[item])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 12, 25]))
def test_every_ranking_protocol_follows_its_rules(seed: int, size: int) -> None:
    query, gallery, rng = random_case(seed, size)
    for protocol, rules in cases(query, gallery, rng):
        expected = []
        for row in range(QUERIES):
            relevant, ignored = rules(row)
            scores = scores_of(query, gallery, row, ignored)
            tied = len(set(scores.values())) < len(scores)
            measured = tied_metrics(scores, relevant - ignored) if tied else None
            expected.append(measured or slow_metrics(order_of(scores), relevant - ignored))
        unanswered = sum(np.isnan(values["map"]) for values in expected)
        try:
            found = protocol.measure(query, gallery, METRICS)
        except EmptyOverlapError:
            assert unanswered == QUERIES
            continue
        except Exception as error:  # the whole gallery is junk
            assert "gallery is empty" in str(error)
            assert protocol.searched(gallery) is not None
            assert not protocol.searched(gallery).any()
            continue
        assert protocol.left_out(query, gallery)["queries without relevant items"] == unanswered, protocol.record()
        for name in METRICS:
            wanted = np.array([values[name] for values in expected])
            wanted = np.nan_to_num(wanted) if protocol.no_relevant == "zero" else wanted
            np.testing.assert_allclose(found[name], wanted, rtol=1e-12, err_msg=f"{protocol.record()} {name}")
            assert np.isfinite(np.nanmean(found[name]))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_full_average_precision_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, gallery, _ = random_case(seed, 20)
    gallery = gallery.replace(vectors=rng.normal(size=(20, 3)).astype(np.float32))  # scores are distinct
    for protocol, rules in cases(query, gallery, rng):
        if not any(rules(row)[0] - rules(row)[1] for row in range(QUERIES)):
            continue
        found = protocol.measure(query, gallery, ["map"])["map"]
        for row in range(QUERIES):
            relevant, ignored = rules(row)
            order = order_of(scores_of(query, gallery, row, ignored))
            if relevant - ignored:
                hits = [item in relevant for item in order]
                assert abs(found[row] - average_precision_score(hits, -np.arange(len(order)))) < 1e-12
