"""Two frozen models of different spaces: the cross-test goes through a map, and everything else stays as it is."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pytest

from limpet.adapters import Adapter, Direction, build_adapter
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.compatibility import verdict
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.examples import choose_examples
from limpet.evaluation.intervals import paired_interval
from limpet.evaluation.results import Evaluation
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.evaluation.sides import matched
from limpet.evaluation.upgrade import margin_order
from limpet.geometry import Hypersphere, Lorentz
from limpet.reports.evaluation import finding

CLASSES, QUERIES, GALLERY, PAIRS = 8, 48, 64, 200
Sides = tuple[EmbeddingSet, EmbeddingSet]
CENTRES = np.random.default_rng(9).normal(size=(CLASSES, 6))


def items(name: str, dim: int, part: str, size: int, noise: float) -> EmbeddingSet:
    """Items of the same causes in every model, which sees them under its own linear map and noise."""
    labels = np.arange(size) % CLASSES
    causes = CENTRES[labels] + 0.7 * np.random.default_rng(len(part)).normal(size=(size, 6))
    view = np.random.default_rng(dim).normal(size=(6, dim))
    own = np.random.default_rng([dim, size]).normal(size=(size, dim))
    return EmbeddingSet(
        ids=StringArray.of(f"{part}{row}" for row in range(size)),
        vectors=(causes @ view + noise * own).astype(np.float32),
        fingerprint=f"declared:{name}",
        space=Hypersphere(dim),
        labels=labels,
        class_names=StringArray.of(f"c{label}" for label in range(CLASSES)),
    )


def model(name: str, dim: int, noise: float) -> tuple[EmbeddingSet, EmbeddingSet, EmbeddingSet]:
    return (
        items(name, dim, "query", QUERIES, noise),
        items(name, dim, "gallery", GALLERY, noise),
        items(name, dim, "pair", PAIRS, noise),
    )


*OLD, OLD_PAIRS = model("old", 10, 2.0)
*NEW, NEW_PAIRS = model("new", 14, 0.4)
*INDEPENDENT, _ = model("independent", 16, 0.3)


def fitted(direction: Direction) -> Adapter:
    return build_adapter("ridge", {"direction": direction}).fit(OLD_PAIRS, NEW_PAIRS)


def linked(direction: Direction) -> Sides:
    adapter = fitted(direction)
    return (adapter.apply(NEW[0]), OLD[1]) if direction == "new_to_old" else (NEW[0], adapter.apply(OLD[1]))


QUERY, GALLERY_SIDE = linked("new_to_old")


def run(cross: Sides | None = (QUERY, GALLERY_SIDE), **changes: Any) -> Evaluation:
    return evaluate(**{"old": OLD, "new": NEW, "resamples": 100, **changes}, cross=cross)


@pytest.mark.parametrize("direction", get_args(Direction))
def test_the_cross_test_is_that_of_the_link_and_all_else_of_the_models(direction: Direction) -> None:
    cross = linked(direction)
    found = run(cross)
    expected = {"self_old": rank_metrics(*OLD), "self_new": rank_metrics(*NEW), "cross": rank_metrics(*cross)}
    for system, values in expected.items():
        for name, array in values.items():
            np.testing.assert_array_equal(found.per_query[system][name], array)
    old, new = expected["self_old"]["map"], expected["cross"]["map"]
    difference = paired_interval(new, old, resamples=100, clusters=OLD[0].labels)
    np.testing.assert_allclose(found.interval["map"]["cross_minus_self_old"], difference)
    assert found.verdict == verdict(difference)
    side = {"new_to_old": "query", "old_to_new": "gallery"}[direction]
    assert found.mapped == {side: fitted(direction).mapped_fingerprint}


def test_the_curve_of_a_mapped_gallery_is_that_of_one_index_in_the_new_space() -> None:
    query, mapped = linked("old_to_new")
    found = run((query, mapped))
    curve = found.upgrade_curve
    assert curve.shares[10] == 0.5 and set(curve.values) == {"random", "margin", "margin_reversed"}
    order = margin_order(mapped)
    for name, values in curve.values.items():
        assert (values[0], values[-1]) == (found.cross["map"], found.self_new["map"])
        if name != "random":
            vectors = mapped.vectors.copy()
            fresh = (order if name == "margin" else order[::-1])[: GALLERY // 2]
            vectors[fresh] = NEW[1].vectors[fresh]
            mixture = mapped.replace(vectors=vectors, form="features")
            assert values[10] == pytest.approx(np.nanmean(rank_metrics(query, mixture)["map"]))
    assert run((query, mapped), curve=False).upgrade_curve is None


def test_queries_that_a_map_made_leave_no_curve_to_measure() -> None:
    both = linked("new_to_old")[0], OLD[1].replace(fingerprint=f"release:{'1' * 64}")
    for cross in (linked("new_to_old"), both):
        assert run(cross).upgrade_curve is None


@pytest.mark.parametrize("direction", get_args(Direction))
def test_examples_show_what_the_link_finds(direction: Direction) -> None:
    cross = linked(direction)
    evaluation = run(cross)
    examples = choose_examples(evaluation, *OLD, *NEW, cross=cross, count=1000, k=3)
    assert len(examples) == QUERIES
    for system, sides in {"self_old": OLD, "cross": cross, "self_new": NEW}.items():
        nearest = top_k(*sides, 3)
        rows = sides[0].ids.find([example.query for example in examples])
        assert [list(getattr(one, system).ids) for one in examples] == [nearest.ids(row) for row in rows]
    kinds = [example.kind for example in examples]
    assert kinds.count("flipped") / QUERIES == pytest.approx(evaluation.negative_flip_rate["cross"])
    assert 0 < kinds.count("flipped") < QUERIES
    unread = evaluation.model_copy(update={"per_query": {}})
    order = np.random.default_rng(0).permutation(QUERIES)
    shuffled = cross[0][order], cross[1]
    assert choose_examples(unread, *OLD, *NEW, cross=shuffled, count=1000, k=3) == examples


def test_examples_of_another_link_are_refused() -> None:
    cross = linked("old_to_new")
    evaluation = run(cross)
    with pytest.raises(DataError, match=f"the gallery of {cross[1].fingerprint}, .* by the query of adapter:"):
        choose_examples(evaluation, *OLD, *NEW, cross=linked("new_to_old"))
    again = [side.replace(fingerprint="declared:again") for side in OLD]
    mapped = again[0].replace(fingerprint=f"release:{'0' * 64}"), OLD[1]
    same_space = run(mapped, new=again)
    with pytest.raises(DataError, match=r"by the query of release:0+, the one given by the models' own sides"):
        choose_examples(same_space, *OLD, *again)


def test_the_record_is_plain_and_names_the_models_themselves() -> None:
    plain = run().to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["fingerprints"]["new"] == {"fingerprint": "declared:new", "declared": True}
    assert list(plain["mapped"]) == ["query"]
    same_space = OLD[0].replace(fingerprint="declared:again"), OLD[1].replace(fingerprint="declared:again")
    assert run(None, new=same_space).to_dict()["mapped"] is None


def test_scores_with_an_independent_model_follow_from_the_same_definitions() -> None:
    found = run(independent=INDEPENDENT)
    cross, old, new, independent = (
        getattr(found, system)["map"] for system in ("cross", "self_old", "self_new", "self_independent")
    )
    assert found.p_comp["raw"]["map"] == pytest.approx((cross - old) / (independent - old))
    assert found.p_up["raw"]["map"] == pytest.approx((new - independent) / independent)
    assert found.cross_independent is None, "its queries are of another space than the old gallery"


def test_linked_items_are_matched_by_id_and_share_their_labels() -> None:
    order = np.random.default_rng(0).permutation(QUERIES)
    assert json.dumps(run((QUERY[order], GALLERY_SIDE)).to_dict()) == json.dumps(run().to_dict())
    bare = [side.replace(labels=None, class_names=None) for side in (*OLD, *NEW)]
    bare[1] = OLD[1]
    assert run(old=bare[:2], new=bare[2:]).cross == run().cross, "queries have the labels of the link"
    with pytest.raises(EmptyOverlapError, match="1 items of the old queries are not in the cross-test queries"):
        run((QUERY[1:], GALLERY_SIDE))
    wrong = QUERY.replace(labels=np.roll(QUERY.labels, 1))
    with pytest.raises(DataError, match="48 items have different labels"):
        run((wrong, GALLERY_SIDE))


def test_without_labels_the_agreement_is_that_of_the_link() -> None:
    def bare(*sides: EmbeddingSet) -> list[EmbeddingSet]:
        return [side.replace(labels=None, class_names=None) for side in sides]

    old, new, cross = bare(*OLD), bare(*NEW), bare(QUERY, GALLERY_SIDE)
    found = evaluate(old, new, cross=(cross[0], cross[1]), resamples=100)
    before, after = top_k(old[0], old[1], 10).rows.tolist(), top_k(cross[0], cross[1], 10).rows.tolist()
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(before, after, strict=True)])
    assert found.agreement.cross.overlap.mean == pytest.approx(overlap)
    notes = finding("new", found).sentences[1:]
    assert len(notes) == 1 and "applied to the new queries" in notes[0]


def test_a_head_is_a_link_too() -> None:
    """A head over the frozen new model is a release: its fingerprint is no adapter's, and no frozen model's."""
    made = QUERY.replace(fingerprint=f"release:{'0' * 64}")
    found = run((made, OLD[1]))
    assert found.cross == run().cross and found.mapped == {"query": made.fingerprint}
    both = made, OLD[1].replace(fingerprint=f"release:{'1' * 64}")
    assert list(run(both).mapped) == ["query", "gallery"]
    assert "the new queries and the old gallery" in finding("new", run(both)).sentences[1]


@pytest.mark.parametrize(
    ("cross", "who"),
    [
        ((OLD[0], OLD[1]), "are old and the gallery .* is old"),
        ((NEW[0], NEW[1]), "are new and the gallery .* is new"),
        ((NEW[0], OLD[1]), "are new and the gallery .* is old"),
        ((OLD[0], QUERY), "are old and the gallery .* is mapped"),
        ((QUERY, NEW[1]), "are mapped and the gallery .* is new"),
        ((INDEPENDENT[0], OLD[1]), "are independent and the gallery .* is old"),
    ],
)
def test_a_side_that_is_no_link_is_refused(cross: Sides, who: str) -> None:
    with pytest.raises(DataError, match=rf"the queries .* {who}"):
        run(cross, independent=INDEPENDENT)


def test_the_sides_of_a_link_lie_in_one_space() -> None:
    flat = QUERY.replace(vectors=QUERY.vectors[:, :9].copy(), space=Hypersphere(9))
    with pytest.raises(SpaceMismatchError, match=r"dimension 9.*dimension 10"):
        matched((OLD[0], OLD[1]), (NEW[0], NEW[1]), cross=(flat, GALLERY_SIDE))


def test_models_of_two_spaces_without_a_link_are_told_how_to_get_one() -> None:
    with pytest.raises(SpaceMismatchError) as stopped:
        run(None)
    assert "limpet adapt --old OLD --new NEW" in stopped.value.to_do and "--link DIR/adapter" in stopped.value.to_do
    assert "limpet train --old RELEASE --dim 10" in stopped.value.to_do
    assert "old-lifted" not in stopped.value.to_do, "there is nothing to lift between two hyperspheres"
    points = np.full((2, 5), 0.1, np.float32)
    hyperbolic = EmbeddingSet(points, ["a", "b"], "declared:hyperbolic", Lorentz(5))
    flat = EmbeddingSet(points, ["a", "b"], "declared:flat", Hypersphere(5))
    with pytest.raises(SpaceMismatchError) as stopped:
        matched((hyperbolic, hyperbolic), (flat, flat))
    assert "limpet adapt --old" in stopped.value.to_do
    assert "old-lifted" in stopped.value.to_do and "hypersphere only" in stopped.value.to_do


def test_words_say_what_was_mapped_and_why_there_is_no_curve() -> None:
    notes = finding("new", run(linked("new_to_old"))).sentences[1:]
    assert "applied to the new queries" in notes[0] and "curve was not measured" in notes[1]
    assert "need a rank merge" in notes[1] and "old_to_new" in notes[1]
    notes = finding("new", run(linked("old_to_new"))).sentences[1:]
    assert "applied to the old gallery" in notes[0] and not any("curve" in note for note in notes)
    earlier = run().to_dict()
    del earlier["mapped"]
    assert not any("curve" in note for note in finding("new", Evaluation.model_validate(earlier)).sentences[1:])
