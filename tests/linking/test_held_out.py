from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.linking.held_out import Judged, asked_by, hold_out, uncovered_share

ANY = np.random.default_rng(0).normal(size=(400, 4))


def ids(embeddings) -> set[str]:
    return set(embeddings.ids)


def test_worked_split(points) -> None:
    """Of 10 classes of 20 items, 4 of each are held out; one class is unseen, and its other 16 items are left out."""
    labels = np.repeat(np.arange(10), 20)
    found = hold_out(points(ANY[:200], "old", labels), points(ANY[:200, :3], "new"))
    assert (found.pairs, found.classes, found.unseen_classes, found.labelled) == (200, 10, 1, True)
    assert (len(found.old), found.unseen.sum(), len(found.fit_old)) == (10 * 4, 4, 9 * 16)
    assert sorted(Counter(found.old.labels.tolist()).values()) == [4] * 10
    assert len(set(found.old.labels[found.unseen])) == 1


@pytest.mark.parametrize("with_labels", [True, False])
@pytest.mark.parametrize("most", [25, 4000])
def test_no_held_out_item_and_no_unseen_class_is_fitted_on(points, with_labels, most) -> None:
    labels = np.arange(400) % 16
    found = hold_out(points(ANY, "old", labels if with_labels else None), points(ANY, "new"), most=most)
    assert not ids(found.fit_old) & ids(found.old)
    assert found.fit_old.ids == found.fit_new.ids and found.old.ids == found.new.ids
    assert found.unseen.dtype == bool and found.unseen.shape == (len(found.old),)
    if with_labels:
        unseen, seen = set(found.old.labels[found.unseen]), set(found.old.labels[~found.unseen])
        assert not unseen & (seen | set(found.fit_old.labels))
        np.testing.assert_array_equal(found.new.labels, found.old.labels)
    else:
        assert not found.unseen.any() and found.classes is None and found.new.labels is None


def test_what_is_above_the_most_goes_back_unless_its_class_is_unseen(points) -> None:
    labels = np.arange(400) % 8
    sets = points(ANY, "old", labels), points(ANY, "new")
    whole, cut = hold_out(*sets), hold_out(*sets, most=60)
    assert len(whole.old) == 8 * 10 and 50 <= len(cut.old) <= 60
    unseen = set(whole.old.labels[whole.unseen])
    assert unseen == set(cut.old.labels[cut.unseen]) and cut.unseen.sum() == 7, "the same share of every class"
    assert len(cut.fit_old) == 350 - (~cut.unseen).sum(), "all other items of seen classes"
    assert not unseen & set(cut.fit_old.labels)


def test_of_many_small_classes_some_are_kept_whole(points) -> None:
    labels = np.arange(400) % 100
    found = hold_out(points(ANY, "old", labels), points(ANY, "new"), most=30, unseen_share=0)
    assert len(found.old) == 30 and set(Counter(found.old.labels.tolist()).values()) == {2}


def test_without_labels_a_share_of_all_is_drawn(points) -> None:
    found = hold_out(points(ANY, "old"), points(ANY, "new"))
    assert (len(found.old), len(found.fit_old), found.unseen_classes) == (80, 320, 0)
    assert len(hold_out(points(ANY, "old"), points(ANY, "new"), most=30).fit_old) == 370


def test_pairs_are_found_by_id_whatever_the_order(points) -> None:
    labels, order = np.arange(400) % 8, np.random.default_rng(1).permutation(400)
    old, new = points(ANY, "old", labels), points(ANY[:, :3], "new")
    found = hold_out(old, new)
    again = hold_out(old[order], new[order[::-1]])
    assert again.old.ids == found.old.ids and again.fit_new.ids == found.fit_new.ids
    rows = new.ids.find(found.old.ids)
    np.testing.assert_array_equal(found.new.vectors, new.vectors[rows])
    np.testing.assert_array_equal(found.old.vectors, old.vectors[rows])


def test_the_seed_decides(points) -> None:
    sets = points(ANY, "old", np.arange(400) % 8), points(ANY, "new")
    assert hold_out(*sets, seed=1).old.ids == hold_out(*sets, seed=1).old.ids != hold_out(*sets, seed=2).old.ids
    classes = {tuple(set(found.old.labels[found.unseen])) for found in (hold_out(*sets, seed=s) for s in range(6))}
    assert len(classes) > 1


@pytest.mark.parametrize(("sizes", "expected"), [
    ([20, 20, 20], 0), ([20, 20, 20, 1, 1], 0), ([20, 20, 20, 2], 1), ([20] * 14, 1), ([20] * 16, 2),
])  # fmt: skip
def test_how_many_classes_are_unseen(points, sizes, expected) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    vectors = ANY[: len(labels)]
    assert hold_out(points(vectors, "old", labels), points(vectors, "new")).unseen_classes == expected
    assert hold_out(points(vectors, "old", labels), points(vectors, "new"), unseen_share=0).unseen_classes == 0


def test_some_class_is_left_to_fit_on(points) -> None:
    found = hold_out(points(ANY, "old", np.arange(400) % 5), points(ANY, "new"), unseen_share=0.99)
    assert found.unseen_classes == 4 and len(set(found.fit_old.labels)) == 1


def test_labels_may_come_with_either_set_and_are_compared_by_name(points) -> None:
    labels = np.arange(100) % 2
    plain, other = points(ANY[:100], "old"), points(ANY[:100], "new", labels)
    found = hold_out(plain, other)
    order = other.ids.find(found.old.ids)
    np.testing.assert_array_equal(found.old.labels, labels[order])
    named = points(ANY[:100], "old", 1 - labels, class_names=["b", "a"])
    found = hold_out(named, other.replace(class_names=["a", "b"]))
    np.testing.assert_array_equal(found.new.labels, 1 - labels[order])
    assert list(found.new.class_names) == ["b", "a"]


def test_labels_that_disagree_are_refused(points) -> None:
    labels = np.arange(100) % 4
    wrong = labels.copy()
    wrong[[3, 5]] = 0
    with pytest.raises(DataError, match=r"2 items have different labels(.|\n)*'i3', 'i5'(.|\n)*correct one"):
        hold_out(points(ANY[:100], "old", labels), points(ANY[:100], "new", wrong))


def test_too_few_pairs_are_refused(points) -> None:
    few, many = points(ANY[:19], "old", np.zeros(19)), points(ANY[:60], "old")
    with pytest.raises(DataError, match=r"19 pairs(.|\n)*at least 20(.|\n)*embed more"):
        hold_out(few, points(ANY[:19], "new"))
    with pytest.raises(DataError, match=r"60 pairs without labels, of which 12(.|\n)*21(.|\n)*at least 105"):
        hold_out(many, points(ANY, "new"))
    with pytest.raises(DataError, match="102 pairs without labels, of which 20 would"):
        hold_out(points(ANY[:102], "old"), points(ANY, "new"))
    assert len(hold_out(points(ANY[:105], "old"), points(ANY, "new")).old) == 21
    with pytest.raises(DataError, match=r"No two of the 0 held-out(.|\n)*has 1 of the 60(.|\n)*leave the labels out"):
        hold_out(points(ANY[:60], "old", np.arange(60)), points(ANY, "new"))
    with pytest.raises(EmptyOverlapError):
        hold_out(many, points(ANY, "new", ids=[f"j{row}" for row in range(400)]))


@pytest.mark.parametrize("wrong", [
    {"share": 0}, {"share": 1}, {"unseen_share": -0.1}, {"unseen_share": 1}, {"most": 20}, {"seed": -1},
])  # fmt: skip
def test_options_out_of_range_are_refused(points, wrong) -> None:
    with pytest.raises(ConfigError):
        hold_out(points(ANY, "old"), points(ANY, "new"), **wrong)


def test_pairs_without_a_label_are_fitted_on_and_never_held_out(points) -> None:
    names = StringArray.of(["", "ant", "bee", "cat", "dog"])
    labels = np.arange(400) % 5
    old, new = (points(ANY, name, labels).replace(class_names=names) for name in ("old", "new"))
    found = hold_out(old, new, unlabelled=[""], unseen_share=0)
    assert found.unlabelled is not None and len(found.unlabelled[0]) == 80 == (labels == 0).sum()
    assert ids(found.unlabelled[0]) == ids(found.unlabelled[1]) == {old.ids[row] for row in np.flatnonzero(labels == 0)}
    assert not (ids(found.fit_old) | ids(found.old)) & ids(found.unlabelled[0])
    assert found.unlabelled[0].labels is None and found.fitted_on == len(found.fit_old) + 80
    for names in (["zebra"], ["", "ant", "bee", "cat", "dog"]):
        with pytest.raises(DataError, match="items are of a class called"):
            hold_out(old, new, unlabelled=names)


def test_pairs_of_unseen_classes_may_be_fitted_on_without_their_labels(points) -> None:
    old, new = points(ANY, "old", np.arange(400) % 10), points(ANY, "new")
    strict, found = (hold_out(old, new, unseen_share=0.3, unseen_pairs=more) for more in (False, True))
    assert strict.unlabelled is None and found.unlabelled is not None
    rest = ids(found.unlabelled[0])
    assert rest == set(old.ids) - ids(strict.fit_old) - ids(strict.old) and len(rest) == 3 * 32
    assert ids(found.fit_old) == ids(strict.fit_old) and ids(found.old) == ids(strict.old)


def test_a_subset_of_the_pairs_takes_labelled_ones_first(points) -> None:
    found = hold_out(points(ANY, "old", np.arange(400) % 10), points(ANY, "new"), unseen_share=0.3, unseen_pairs=True)
    first = len(found.fit_old)
    old, new, rest = found.subset(np.array([0, 2, first + 1]))
    assert list(old.ids) == list(new.ids) == [found.fit_old.ids[0], found.fit_old.ids[2]]
    assert rest is not None and found.unlabelled is not None
    assert list(rest[0].ids) == list(rest[1].ids) == [found.unlabelled[0].ids[1]]
    assert found.subset(np.array([0, 1]))[2] is None


def clustered(points, seed: int, classes: int = 80, items: int = 1600):
    """Draw items of classes apart from each other."""
    rng = np.random.default_rng(seed)
    labels = np.arange(items) % classes
    centres = np.random.default_rng(9).normal(size=(classes, 12))
    return points(centres[labels] + 0.4 * rng.normal(size=(items, 12)), "new", labels)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_how_many_items_are_of_classes_without_labels_is_estimated(points, share) -> None:
    known, others = clustered(points, 1), clustered(points, 2)
    of_known = np.flatnonzero(others.labels < 40)
    of_others = np.flatnonzero(others.labels >= 40)[: round(share * 800)]
    unlabelled = others[np.concatenate([of_known[: round((1 - share) * 800)], of_others])]
    labelled = known[np.flatnonzero(known.labels < 40)]
    assert uncovered_share(labelled, unlabelled) == pytest.approx(share, abs=0.12)


def test_nothing_is_estimated_of_one_class_or_of_no_items(points) -> None:
    known = clustered(points, 1)
    assert uncovered_share(known[np.flatnonzero(known.labels == 0)], known) == 0
    assert uncovered_share(known, known[np.arange(0)]) == 0


def test_judged_queries_search_all_that_is_fitted_on(points) -> None:
    old, new = points(ANY, "old", np.arange(400) % 4), points(ANY[:, :3], "new")
    asks = points(ANY[:5], "old", ids=list("abcde")), points(ANY[:4, :3], "new", ids=list("dcba"))
    judged = Judged.of(*asks, Relevance(pairs=RelevancePairs(["a"], ["i7"], np.array([False])), judged=True))
    assert list(judged.old.ids) == list(judged.new.ids) == ["a", "b", "c", "d"]
    found = asked_by(judged, old, new)
    assert len(found.fit_old) == len(found.old) == 400 and found.unseen.shape == (4,) and found.answered
    assert found.asking == (judged.old, judged.new) and hold_out(old, new).asking[0].ids == hold_out(old, new).old.ids
    with pytest.raises(DataError, match="None of the 5 queries"):
        Judged.of(asks[0], points(ANY[:4, :3], "new", ids=list("wxyz")), judged.relevance)
