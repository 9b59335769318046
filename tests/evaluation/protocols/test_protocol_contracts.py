"""What must hold of every protocol, whatever it measures. A new one adds a world of two models to `WORLDS`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.protocols import (
    PROTOCOLS,
    ByCamera,
    ByLabel,
    Protocol,
    RankingProtocol,
    Relevance,
    RelevancePairs,
    SeenClasses,
)
from limpet.evaluation.ranking.sharded import sharded
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet.support.options import option_types
from limpet_bench.datasets.ijbc import Templates
from limpet_bench.datasets.landmarks import LandmarksTruth
from limpet_bench.datasets.revisited import RevisitedTruth
from limpet_bench.protocols.identification import Identification
from limpet_bench.protocols.landmarks import Landmarks, Revisited
from limpet_bench.protocols.verification import Verification

from ...workers_here import Here

QUERIES, GALLERY, DIM = 30, 80, 6


class World(NamedTuple):
    """A protocol, and the queries and the gallery of two models."""

    protocol: Protocol
    old: tuple[EmbeddingSet, EmbeddingSet]
    new: tuple[EmbeddingSet, EmbeddingSet]


def embedded(seed: int, side: str, labels: NDArray[np.int64], **columns: NDArray[Any]) -> EmbeddingSet:
    """Embed items by the model of a seed: noise around one centre per class, common to all models."""
    rng = np.random.default_rng([seed, len(labels)])
    centres = np.random.default_rng(0).normal(size=(12, DIM))
    return EmbeddingSet(
        ids=named(side, len(labels)),
        vectors=(centres[labels] + rng.normal(size=(len(labels), DIM))).astype(np.float32),
        fingerprint=f"declared:model{seed}",
        space=Hypersphere(DIM),
        labels=labels,
        columns=columns,
    )


def sides(seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    rng = np.random.default_rng(0)
    query, gallery = (
        embedded(seed, side, rng.integers(0, 5, count), camera=rng.integers(0, 3, count))
        for side, count in (("query", QUERIES), ("gallery", GALLERY))
    )
    return query, gallery


def sides_with_junk(seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    query, gallery = sides(seed)
    return query, gallery.replace(labels=np.where(np.arange(GALLERY) % 9, gallery.labels, -1))


def templates(seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Query and gallery are the same images: two of each of 60 templates of 12 people."""
    template = np.arange(120) // 2
    columns = {"media": np.arange(120), "detector_score": np.ones(120, np.float32)}
    images = embedded(seed, "image", template % 12, template=template, **columns).replace(form="features")
    return images, images


def rows(rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    chosen = (rng.permutation(GALLERY)[: rng.integers(2, 9)] for _ in range(QUERIES))
    return tuple(np.sort(row) for row in chosen)


def named(side: str, count: int) -> tuple[str, ...]:
    return tuple(f"{side}{row}" for row in range(count))


def revisited() -> Revisited:
    rng = np.random.default_rng(0)
    parts = [np.array_split(rng.permutation(GALLERY)[:24], 3) for _ in range(QUERIES)]
    lists = {kind: tuple(part[place] for part in parts) for place, kind in enumerate(("easy", "hard", "junk"))}
    boxes = np.tile([0.0, 0, 9, 9], (QUERIES, 1))
    return Revisited(truth=RevisitedTruth(named("gallery", GALLERY), named("query", QUERIES), **lists, boxes=boxes))


def landmarks() -> Landmarks:
    answers = rows(np.random.default_rng(0))
    relevant = tuple(tuple(f"gallery{row}" for row in own) if query % 7 else () for query, own in enumerate(answers))
    asked = QUERIES - 4
    return Landmarks(truth=LandmarksTruth(named("query", asked), relevant[:asked]))


def relevance() -> Relevance:
    answers = rows(np.random.default_rng(0))
    pairs = [(f"query{query}", f"gallery{row}") for query, own in enumerate(answers) if query % 7 for row in own]
    query, item = (StringArray.of(side) for side in zip(*pairs, strict=True))
    return Relevance(pairs=RelevancePairs(query, item, np.arange(len(pairs)) % 5 == 0))


def verification() -> Verification:
    classes = np.arange(60) % 12
    first, second = np.triu_indices(60, 1)
    return Verification(pairs=np.stack([first, second], axis=1), same=classes[first] == classes[second])


def identification() -> Identification:
    subjects = np.arange(60) % 12
    parts = (Templates(np.arange(0, 5), subjects[:5]), Templates(np.arange(5, 9), subjects[5:9]))
    return Identification(galleries=parts, probes=Templates(np.arange(12, 60), subjects[12:]))


WORLDS: Mapping[str, tuple[Callable[[], Protocol], Callable[[int], tuple[EmbeddingSet, EmbeddingSet]]]] = {
    "labels": (ByLabel, sides),
    "continual": (SeenClasses, sides),
    "market1501": (ByCamera, sides_with_junk),
    "revisited": (revisited, sides),
    "gldv2": (landmarks, sides),
    "relevance": (relevance, sides),
    "ijbc-verification": (verification, templates),
    "ijbc-identification": (identification, templates),
}


@pytest.fixture(params=list(PROTOCOLS))
def world(request: pytest.FixtureRequest) -> World:
    assert request.param in WORLDS, f"add a world of '{request.param}' to WORLDS"
    build, embed = WORLDS[request.param]
    return World(build(), embed(1), embed(2))


def test_names_words_and_options(world: World) -> None:
    protocol = world.protocol
    kind = type(protocol)
    assert PROTOCOLS[protocol.name] is kind
    assert protocol.gate_metric in protocol.metrics
    assert protocol.description
    assert "\n" not in protocol.description
    assert protocol.units
    record = json.loads(json.dumps(protocol.record()))
    assert record == {"name": protocol.name, **{option: getattr(protocol, option) for option in option_types(kind)}}
    assert kind.__doc__ is not None
    assert all(f"{option}:" in kind.__doc__ for option in option_types(kind) if option != "no_relevant")


def test_default_metrics_can_be_measured_and_their_means_are_shares(world: World) -> None:
    query, gallery = world.new[0], world.old[1]
    found = world.protocol.measure(query, gallery, world.protocol.metrics)
    assert set(found) == set(world.protocol.metrics)
    assert len({len(values) for values in found.values()}) == 1
    for name, values in found.items():
        assert values.dtype == np.float64
        assert 0 <= np.nanmean(values) <= 1, name
        if name == world.protocol.gate_metric:
            assert 0 < np.nanmean(values) < 1, "this world could not tell a wrong number"


def test_answers_are_right_or_wrong(world: World) -> None:
    asked = world.protocol.answer_metrics()
    found = world.protocol.measure(world.new[0], world.old[1], asked) if asked else {}
    for values in found.values():
        assert set(values[~np.isnan(values)].tolist()) == {0, 1}


def test_unknown_metrics_stop_before_any_computing(world: World) -> None:
    world.protocol.check_metrics(world.protocol.metrics)
    for wrong in (["precision"], [], "map", [world.protocol.metrics[0], "recall@0"]):
        with pytest.raises(ConfigError):
            world.protocol.check_metrics(wrong)
        with pytest.raises(ConfigError):
            world.protocol.measure(None, None, wrong)  # type: ignore[arg-type]


def test_units_are_the_same_for_all_systems(world: World) -> None:
    metric = [world.protocol.gate_metric]
    systems = [world.old, world.new, (world.new[0], world.old[1])]
    values = [world.protocol.measure(*system, metric)[metric[0]] for system in systems]
    for other in values[1:]:
        np.testing.assert_array_equal(np.isnan(other), np.isnan(values[0]))
    assert not np.array_equal(values[0], values[1], equal_nan=True)
    labels = [world.protocol.unit_labels(system[0]) for system in systems]
    assert all(found is not None and len(found) == len(values[0]) for found in labels)
    np.testing.assert_array_equal(labels[0], labels[1])
    assert world.protocol.unit_labels(world.old[0].replace(labels=None)) is None
    counts = [world.protocol.left_out(*system) for system in systems]
    assert counts[0] == counts[1] == counts[2]
    assert all(isinstance(count, int) for count in counts[0].values())


def test_the_order_of_the_gallery_says_nothing(world: World) -> None:
    query, gallery = world.new[0], world.old[1]
    order = np.random.default_rng(5).permutation(len(gallery))
    straight = world.protocol.measure(query, gallery, world.protocol.metrics)
    shuffled = world.protocol.measure(query, gallery[order], world.protocol.metrics)
    for name in world.protocol.metrics:
        np.testing.assert_allclose(shuffled[name], straight[name], rtol=1e-12)
    assert world.protocol.left_out(query, gallery) == world.protocol.left_out(query, gallery[order])


def test_blocks_change_nothing(world: World) -> None:
    query, gallery = world.new[0], world.old[1]
    whole = world.protocol.measure(query, gallery, world.protocol.metrics)
    parts = world.protocol.measure(query, gallery, world.protocol.metrics, block=7)
    for name in world.protocol.metrics:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12)


def test_lists_of_all_queries_and_the_whole_gallery_say_the_same(world: World) -> None:
    protocol, query, gallery = world.protocol, world.new[0], world.old[1]
    if not isinstance(protocol, RankingProtocol):
        assert not hasattr(protocol, "lists")
        return
    relevant, ignore = protocol.lists(query, gallery)
    whole = rank_metrics(
        query, gallery, protocol.metrics, relevant=relevant, ignore=ignore, no_relevant=protocol.no_relevant
    )
    asked = protocol.asked(query)
    for name, values in protocol.measure(query, gallery, protocol.metrics).items():
        expected = whole[name] if asked is None else np.where(asked, whole[name], np.nan)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_the_upgrade_curve_begins_at_the_cross_test_and_ends_at_the_self_test(world: World) -> None:
    found = evaluate(world.old, world.new, protocol=world.protocol, resamples=10)
    assert (found.upgrade_curve is not None) == world.protocol.has_curve
    if found.upgrade_curve is not None:
        gate = world.protocol.gate_metric
        for values in found.upgrade_curve.values.values():
            np.testing.assert_allclose(values[0], found.cross[gate], rtol=1e-12)
            np.testing.assert_allclose(values[-1], found.self_new[gate], rtol=1e-12)


@pytest.mark.parametrize("name", WORLDS)
def test_documents_of_sharded_galleries_are_those_of_one_process(name: str) -> None:
    """Vectors are corners of a cube, so that most scores tie."""
    protocol, embed = WORLDS[name][0](), WORLDS[name][1]
    old, new = (
        tuple(one.replace(vectors=np.where(one.vectors > 0, 1, -1).astype(np.float32)) for one in embed(seed))
        for seed in (1, 2)
    )
    how: dict[str, Any] = {"protocol": protocol, "resamples": 50, "mixing": 0.01 if protocol.judges else None}
    alone = json.dumps(evaluate(old, new, **how).to_dict())
    for workers in (2, 5, 16):
        with sharded(Here(workers)):
            assert json.dumps(evaluate(old, new, **how).to_dict()) == alone
