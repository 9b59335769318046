from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.examples import Example, choose_examples
from limpet.evaluation.protocols.by_camera import ByCamera
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.evaluation.retrieval import rank_metrics, top_k

KINDS = ["fixed", "kept", "flipped", "still wrong"]


@pytest.fixture(scope="module")
def upgrade(make_embeddings: Callable[..., EmbeddingSet]) -> SimpleNamespace:
    """120 queries against 80 gallery items of 20 classes; the new model is a little better."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(20, 8))

    def model(name: str, count: int, prefix: str, noise: float) -> EmbeddingSet:
        labels = np.arange(count) % 20
        vectors = centres[labels] + noise * rng.normal(size=(count, 8))
        found = make_embeddings(vectors, labels, fingerprint=f"declared:{name}", form="points")
        return found.replace(ids=[f"{prefix}{row}" for row in range(count)])

    sides = [
        model("old", 120, "q", 1.3),
        model("old", 80, "g", 1.1),
        model("new", 120, "q", 1.0),
        model("new", 80, "g", 0.7),
    ]
    return SimpleNamespace(sides=sides, evaluation=evaluate(sides[:2], sides[2:], resamples=50, curve=False))


def chosen(upgrade: SimpleNamespace, **options: int) -> list[Example]:
    return choose_examples(upgrade.evaluation, *upgrade.sides, **options)


def test_kinds_say_what_the_first_items_say(upgrade: SimpleNamespace) -> None:
    for example in chosen(upgrade, count=100):
        before, now = example.self_old.hits[0], example.cross.hits[0]
        assert example.kind == {(0, 1): "fixed", (1, 1): "kept", (1, 0): "flipped", (0, 0): "still wrong"}[before, now]


def test_the_mixture_is_balanced_and_in_order(upgrade: SimpleNamespace) -> None:
    assert [example.kind for example in chosen(upgrade)] == [kind for kind in KINDS for _ in range(2)]
    assert [example.kind for example in chosen(upgrade, count=5)] == [
        "fixed",
        "kept",
        "flipped",
        "flipped",
        "still wrong",
    ]


def test_a_single_example_is_a_negative_flip(upgrade: SimpleNamespace) -> None:
    assert [example.kind for example in chosen(upgrade, count=1)] == ["flipped"]


def test_all_queries_are_shown_once_at_most(upgrade: SimpleNamespace) -> None:
    examples = chosen(upgrade, count=1000)
    assert sorted(example.query for example in examples) == sorted(upgrade.sides[0].ids)


def test_the_share_of_flips_agrees_with_the_evaluation(upgrade: SimpleNamespace) -> None:
    kinds = [example.kind for example in chosen(upgrade, count=1000)]
    assert kinds.count("flipped") / len(kinds) == pytest.approx(upgrade.evaluation.negative_flip_rate["cross"])


def test_found_items_are_the_nearest_with_their_labels(upgrade: SimpleNamespace) -> None:
    old_query, old_gallery, new_query, new_gallery = upgrade.sides
    example = chosen(upgrade, k=3)[0]
    for query, gallery, found in (
        (old_query, old_gallery, example.self_old),
        (new_query, old_gallery, example.cross),
        (new_query, new_gallery, example.self_new),
    ):
        row = list(query.ids).index(example.query)
        unit = gallery.vectors / np.linalg.norm(gallery.vectors, axis=1, keepdims=True)
        nearest = np.argsort(-(unit @ query.vectors[row]))[:3]
        assert list(found.ids) == [gallery.ids[item] for item in nearest]
        assert list(found.labels) == [f"c{gallery.labels[item]}" for item in nearest]
        assert list(found.hits) == [bool(gallery.labels[item] == query.labels[row]) for item in nearest]
        assert example.label == f"c{query.labels[row]}"


def test_the_choice_follows_the_seed(upgrade: SimpleNamespace) -> None:
    assert chosen(upgrade, seed=3) == chosen(upgrade, seed=3)
    assert chosen(upgrade, seed=3) != chosen(upgrade, seed=4)


def test_items_match_by_id_and_classes_by_name(upgrade: SimpleNamespace) -> None:
    old_query, old_gallery, new_query, new_gallery = upgrade.sides
    order = np.random.default_rng(0).permutation(len(new_gallery))
    names = [f"c{row}" for row in reversed(range(20))]
    shuffled = new_gallery[order]
    shuffled = shuffled.replace(labels=19 - shuffled.labels, class_names=names)
    bare = new_query.replace(labels=None, class_names=None)
    expected = chosen(upgrade)
    assert choose_examples(upgrade.evaluation, old_query, old_gallery, bare, shuffled) == expected


def test_without_recall_at_one_the_same_queries_are_found(upgrade: SimpleNamespace) -> None:
    without = evaluate(upgrade.sides[:2], upgrade.sides[2:], metrics=("map",), resamples=50, curve=False)
    assert choose_examples(without, *upgrade.sides) == chosen(upgrade)
    unread = upgrade.evaluation.model_copy(update={"per_query": {}})
    assert choose_examples(unread, *upgrade.sides) == chosen(upgrade)


def test_queries_without_relevant_items_are_left_out(upgrade: SimpleNamespace) -> None:
    old_query, old_gallery, new_query, new_gallery = upgrade.sides
    kept = np.flatnonzero(old_gallery.labels >= 10)
    sides = [old_query, old_gallery[kept], new_query, new_gallery[kept]]
    for rule in ("exclude", "zero"):
        evaluation = evaluate(sides[:2], sides[2:], no_relevant=rule, resamples=50, curve=False)
        examples = choose_examples(evaluation, *sides, count=1000)
        assert len(examples) == np.count_nonzero(old_query.labels >= 10)
        assert all(int(example.label[1:]) >= 10 for example in examples)


def test_leave_one_out_never_finds_the_query(upgrade: SimpleNamespace) -> None:
    old, new = upgrade.sides[1], upgrade.sides[3]
    evaluation = evaluate(old, new, resamples=50, curve=False)
    examples = choose_examples(evaluation, old, old, new, new, exclude_same_id=True, count=1000)
    assert all(e.query not in (*e.self_old.ids, *e.cross.ids, *e.self_new.ids) for e in examples)
    values = rank_metrics(old, old, ("recall@1",), exclude_same_id=True)["recall@1"]
    assert np.mean([example.self_old.hits[0] for example in examples]) == pytest.approx(np.nanmean(values))


def test_a_small_gallery_gives_fewer_items(upgrade: SimpleNamespace) -> None:
    assert len(chosen(upgrade, k=500)[0].cross.ids) == 80


def test_classes_without_names_are_shown_by_number(upgrade: SimpleNamespace) -> None:
    sides = [side.replace(class_names=None) for side in upgrade.sides]
    evaluation = evaluate(sides[:2], sides[2:], resamples=50, curve=False)
    assert choose_examples(evaluation, *sides)[0].label.isdigit()


def without_labels(upgrade: SimpleNamespace) -> SimpleNamespace:
    sides = [side.replace(labels=None, class_names=None) for side in upgrade.sides]
    return SimpleNamespace(sides=sides, evaluation=evaluate(sides[:2], sides[2:], resamples=50))


def test_without_labels_queries_whose_first_hit_changed_are_shown(upgrade: SimpleNamespace) -> None:
    bare = without_labels(upgrade)
    examples = chosen(bare, count=1000)
    old_query, old_gallery, new_query, new_gallery = bare.sides
    before, now, later = (
        top_k(query, gallery, 5).rows
        for query, gallery in ((old_query, old_gallery), (new_query, old_gallery), (new_query, new_gallery))
    )
    changed = np.flatnonzero(before[:, 0] != now[:, 0])
    assert 0 < len(changed) < 120
    assert [example.query for example in examples] == [old_query.ids[row] for row in changed]
    for example, row in zip(examples, changed, strict=True):
        assert (example.kind, example.label) == ("first hit changed", "")
        for found, rows in ((example.self_old, before), (example.cross, now), (example.self_new, later)):
            assert list(found.ids) == [old_gallery.ids[item] for item in rows[row]]
            assert (found.labels, found.hits) == (("",) * 5, ())


def test_without_labels_the_choice_is_random_and_follows_the_seed(upgrade: SimpleNamespace) -> None:
    bare = without_labels(upgrade)
    assert len(chosen(bare, count=4)) == 4
    assert chosen(bare, seed=3) == chosen(bare, seed=3) != chosen(bare, seed=4)
    same = [bare.sides[0], bare.sides[1], *(side.replace(fingerprint="declared:renamed") for side in bare.sides[:2])]
    assert choose_examples(evaluate(same[:2], same[2:], resamples=50), *same) == []


def test_a_ground_truth_without_labels_says_what_is_right(upgrade: SimpleNamespace) -> None:
    sides = [side.replace(labels=None, class_names=None) for side in upgrade.sides]
    asked = np.arange(120)
    answers = RelevancePairs(
        [f"q{row}" for row in np.repeat(asked, 2)],
        [f"g{item}" for row in asked for item in (row % 20, row % 20 + 20)],
        np.tile([False, True], 120),
    )
    protocol = Relevance(pairs=answers, judged=True)
    evaluation = evaluate(sides[:2], sides[2:], protocol=protocol, resamples=50, curve=False)
    examples = choose_examples(evaluation, *sides, protocol=protocol, count=1000)
    assert len(examples) == 120
    for example in examples:
        row = int(example.query[1:])
        for found in (example.self_old, example.cross, example.self_new):
            assert f"g{row % 20 + 20}" not in found.ids
            assert list(found.hits) == [name == f"g{row % 20}" for name in found.ids]
        assert (example.kind == "flipped") == (example.self_old.hits[0] and not example.cross.hits[0])
    flipped = [example.kind for example in examples].count("flipped") / 120
    assert flipped == pytest.approx(evaluation.negative_flip_rate["cross"])


def test_what_a_protocol_leaves_out_is_not_shown(upgrade: SimpleNamespace) -> None:
    sides = [side.replace(columns={"camera": np.arange(len(side)) // 20 % 2}) for side in upgrade.sides]
    evaluation = evaluate(sides[:2], sides[2:], protocol=ByCamera(), resamples=50, curve=False)
    examples = choose_examples(evaluation, *sides, protocol=ByCamera(), count=1000, k=80)
    gallery = sides[1]
    for example in examples[:20]:
        row = int(example.query[1:])
        own = (gallery.labels == row % 20) & (gallery.columns["camera"] == row // 20 % 2)
        assert sorted(example.cross.ids) == sorted(np.array(gallery.ids)[~own])


@pytest.mark.parametrize("wrong", [{"count": 0}, {"k": 0}])
def test_counts_below_one_are_refused(upgrade: SimpleNamespace, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        chosen(upgrade, **wrong)


def test_other_models_and_other_queries_are_refused(upgrade: SimpleNamespace) -> None:
    other = [side.replace(fingerprint="declared:third") for side in upgrade.sides[2:]]
    with pytest.raises(DataError, match="declared:third"):
        choose_examples(upgrade.evaluation, *upgrade.sides[:2], *other)
    fewer = [upgrade.sides[0][:5], upgrade.sides[1], upgrade.sides[2][:5], upgrade.sides[3]]
    with pytest.raises(DataError, match="120 queries"):
        choose_examples(upgrade.evaluation, *fewer)
