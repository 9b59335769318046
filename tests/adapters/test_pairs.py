from __future__ import annotations

import numpy as np
import pytest

from limpet.adapters import pairs as module
from limpet.adapters import suspect_pairs
from limpet.adapters.moments import PairedVectors
from limpet.adapters.pairs import (
    held_out_ranks,
    matched,
    paired_vectors,
    trusted_pairs,
    without_doubtful,
    wrong_probability,
)
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError

EYE = np.eye(3)


def test_pairs_are_found_by_id_and_ordered_by_id(make_set) -> None:
    old, new = make_set(EYE, "old", ["c", "a", "b"]), make_set(np.eye(4), "new", ["b", "x", "c", "a"])
    pairs = matched(old, new)
    assert old.ids[pairs.old_rows] == new.ids[pairs.new_rows] and list(old.ids[pairs.old_rows]) == ["a", "b", "c"]
    vectors = paired_vectors(old, new, pairs)
    np.testing.assert_array_equal(vectors.unit_target(), EYE[[1, 2, 0]])
    np.testing.assert_array_equal(vectors.unit_source(), np.eye(4)[[3, 0, 2]])
    back = paired_vectors(old, new, matched(old, new, direction="old_to_new"))
    assert back.source_dim == 3 and back.target_dim == 4


def test_what_has_no_partner_is_counted_and_named(make_set) -> None:
    old, new = make_set(np.eye(5), "old", list("abcde")), make_set(EYE, "new", ["b", "a", "z"])
    report = matched(old, new).report
    assert (report.pairs, report.old.unpaired, report.new.unpaired) == (2, 3, 1)
    assert report.old.unpaired_ids == ("c", "d", "e") and report.new.unpaired_ids == ("z",)
    assert any("3 items of the old model have no partner" in line and "'c', 'd', 'e'" in line
               for line in report.sentences())  # fmt: skip


def test_too_few_pairs_are_refused(make_set) -> None:
    old, new = make_set(EYE, "old", ["a", "b", "c"]), make_set(EYE, "new", ["a", "y", "z"])
    for minimum in (0, 2):
        with pytest.raises(DataError, match=r"1 pair of(.|\n)*at least 2"):
            matched(old, new, minimum=minimum)
    with pytest.raises(DataError, match=r"3 pairs of(.|\n)*at least 4"):
        matched(old, make_set(EYE, "new", ["a", "b", "c"]), minimum=4)
    with pytest.raises(EmptyOverlapError, match=r"'a', 'b', 'c'(.|\n)*'x', 'y', 'z'"):
        matched(old, make_set(EYE, "new", ["x", "y", "z"]))


def test_fewer_pairs_than_a_map_of_full_rank_needs_are_told(make_set) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 4))
    five, four = make_set(rows, "old"), make_set(rows[:4, :3], "new", ["i0", "i1", "i2", "i3"])
    assert not matched(five, four).report.few, "4 pairs determine an affine map from 3 dimensions"
    report = matched(five, four, direction="old_to_new").report
    assert report.few and any("fewer than the 5 that determine" in line for line in report.sentences())


def test_repeated_vectors_constant_coordinates_and_lengths(make_set) -> None:
    old = make_set([[1, 0, 5], [2, 0, 5], [1, -0.0, 5], [1, 0, 5]], "old")
    new = make_set([[1, 0], [0, 1], [0.6, 0.8], [0.8, 0.6]], "new")
    report = matched(old, new).report
    assert (report.old.repeated, report.old.constant, report.old.lengths_differ) == (2, 2, True)
    assert report.old.shortest == pytest.approx(26**0.5) and report.old.longest == pytest.approx(29**0.5)
    assert (report.new.repeated, report.new.constant, report.new.lengths_differ) == (0, 0, False)
    text = " ".join(report.sentences())
    assert "2 vectors of the old model repeat" in text and "2 of the 3 coordinates of the old model" in text
    assert "from 5.1 to 5.39" in text and "new model" not in text


def test_vectors_of_signs_that_differ_are_not_taken_for_one_another(make_set) -> None:
    signs = 2 * np.random.default_rng(2).integers(0, 2, (80_000, 64), dtype=np.int8) - 1
    assert matched(make_set(signs, "old"), make_set(signs, "new")).report.old.repeated == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_vectors_without_direction_in_an_unverified_file_are_refused(value, make_set) -> None:
    old, new = make_set(np.eye(4), "old", list("abcd")), make_set(np.eye(4), "new", list("abcd"))
    damaged = np.eye(4, dtype=np.float32)
    damaged[2] = value
    values = {name: getattr(new, name) for name in new.__dataclass_fields__}
    opened = EmbeddingSet.trusted(**{**values, "vectors": damaged})
    for pair in ((old, opened), (opened, old.replace(fingerprint="declared:third"))):
        with pytest.raises(DataError, match=r"1 vectors of declared:new are zero or not finite: 'c'(.|\n)*verify"):
            matched(*pair)


def test_a_clean_report_is_one_sentence(make_set) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert matched(make_set(rows, "old"), make_set(rows, "new")).report.sentences() == ("9 items are paired by id.",)


def test_the_report_reads_paired_rows_only(make_set) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    odd = np.concatenate([rows, [[7, 0, 0], [7, 0, 0]]])
    first = make_set(odd, "first")
    last = make_set(np.roll(odd, 2, axis=0), "last", [f"i{row}" for row in (9, 10, *range(9))])
    for odd_set in (first, last):
        plain = make_set(rows, "plain")
        for side in (matched(odd_set, plain).report.old, matched(plain, odd_set).report.new):
            assert (side.repeated, side.lengths_differ, side.unpaired) == (0, False, 2)


def wrong(items: int, share: float, seed: int = 0) -> np.ndarray:
    """Which target every source gets, with this share of them exchanged in a circle."""
    partner, chosen = np.arange(items), np.random.default_rng(seed).permutation(items)[: round(share * items)]
    partner[chosen] = np.roll(partner[chosen], 1)
    return partner


WORLDS = {
    "like models": {"items": 600, "dims": (24, 24), "noise": 0.1},
    "noise as strong as the signal": {"items": 1500, "dims": (40, 24), "noise": 1.0},
    "partly linear, other dimensions": {"items": 1000, "dims": (24, 40), "noise": 0.3, "bent": 0.6},
    "fewer pairs than dimensions": {"items": 100, "dims": (120, 90), "noise": 0.5, "bent": 0.3},
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_share_of_wrong_pairs_is_told(world, share, related, make_set) -> None:
    old, new = related(**WORLDS[world])
    found = suspect_pairs(make_set(old[wrong(len(old), share)], "old"), make_set(new, "new"))
    assert found.low <= found.share <= found.high and found.tested == len(old)
    assert found.low - 0.03 <= share <= found.high + 0.01, "the interval, and the upward bias of noise this strong"
    assert found.share == pytest.approx(share, abs=0.035 if share < 0.1 else 0.12)


def test_unrelated_models_are_all_suspect_in_either_direction(related, make_set) -> None:
    old, new = related(800, (20, 30), seed=1)[0], related(800, (20, 30), seed=2)[1]
    for direction in ("new_to_old", "old_to_new"):
        assert suspect_pairs(make_set(old, "old"), make_set(new, "new"), direction=direction).share > 0.85


def test_a_sample_will_do(related, make_set) -> None:
    old, new = related(1200, (24, 24))
    sets = make_set(old[wrong(1200, 0.5)], "old"), make_set(new, "new")
    found = [suspect_pairs(*sets, sample=400, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2] and all(one.tested == 400 for one in found)
    assert all(one.share == pytest.approx(0.5, abs=0.12) for one in found)


def test_the_order_of_the_rows_says_nothing(related, make_set) -> None:
    old, new = related(300, (8, 8))
    ids, order = [f"i{row}" for row in range(300)], np.random.default_rng(0).permutation(300)
    shuffled = make_set(old[order], "old", [ids[row] for row in order])
    assert suspect_pairs(shuffled, make_set(new, "new")) == suspect_pairs(make_set(old, "old"), make_set(new, "new"))


def test_it_is_blind_to_exchanges_within_a_class_as_documented(make_set) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 30)
    old, new = (rng.normal(size=(20, 16))[labels] + 0.2 * rng.normal(size=(600, 16)) for _ in range(2))
    assert suspect_pairs(make_set(old, "old"), make_set(new, "new")).share < 0.03


def test_ranks_are_shares_of_the_fold(related) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    assert held_out_ranks(PairedVectors(rows, np.arange(50), rows[:, ::-1].copy(), np.arange(50))).tolist() == [0] * 50
    ranks = held_out_ranks(PairedVectors(rows, np.arange(50), rows, np.roll(np.arange(50), 1)))
    assert set(np.round(ranks * 9, 9)) <= set(range(10)) and ranks.mean() == pytest.approx(0.5, abs=0.15)
    equal = np.ones((50, 6), np.float32)
    ranks = held_out_ranks(PairedVectors(equal, np.arange(50), equal, np.arange(50)))
    assert ranks.tolist() == [0.5] * 50, "equal targets count half"


def test_too_few_pairs_to_tell_are_refused(related, make_set) -> None:
    old, new = related(19, (4, 4))
    with pytest.raises(DataError, match=r"19 pairs(.|\n)*at least 20"):
        suspect_pairs(make_set(old, "old"), make_set(new, "new"))


@pytest.mark.parametrize("option", [{"sample": 19}, {"sample": -1}, {"seed": -1}])
def test_impossible_samples_and_seeds_are_refused(option, related, make_set) -> None:
    old, new = related(40, (4, 4))
    with pytest.raises(ConfigError, match=f"{next(iter(option))}={next(iter(option.values()))}"):
        suspect_pairs(make_set(old, "old"), make_set(new, "new"), **option)


def test_the_sentence_gives_share_interval_and_number(related, make_set) -> None:
    old, new = related(200, (6, 6))
    sentence = suspect_pairs(make_set(np.roll(old, 1, axis=0), "old"), make_set(new, "new")).sentence()
    assert sentence.startswith("About ") and "from 200 pairs" in sentence and "% to 100\N{NO-BREAK SPACE}%" in sentence


def test_few_pairs_are_judged_too_hard_as_documented(related, make_set) -> None:
    shares = []
    for seed in range(12):
        old, new = related(40, (32, 32), noise=0.3, seed=seed)
        shares.append(suspect_pairs(make_set(old[wrong(40, 0.5, seed)], "old"), make_set(new, "new")).share)
    assert 0.52 < np.mean(shares) < 0.75


@pytest.mark.parametrize("world", ["like models", "partly linear, other dimensions"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_right_pairs_are_trusted_and_others_are_not(world, share, related) -> None:
    source, target = (rows.astype(np.float32) for rows in related(**WORLDS[world]))
    partner = wrong(len(source), share)
    right, rows = partner == np.arange(len(source)), np.arange(len(source))
    found = trusted_pairs(PairedVectors(source, partner, target, rows))
    assert found[right].mean() > 0.9
    assert not len(found[~right]) or found[~right].mean() < 0.12
    assert trusted_pairs(PairedVectors(source, partner, target, rows), doubt=1.0).all()


def test_few_pairs_and_unrelated_ones_are_all_that_there_is(related) -> None:
    few = related(19, (4, 4))
    strangers = related(60, (8, 8), seed=1)[0], related(60, (8, 8), seed=2)[1]
    for source, target in (few, strangers):
        rows = np.arange(len(source))
        assert trusted_pairs(PairedVectors(source.astype(np.float32), rows, target.astype(np.float32), rows)).all()


def test_the_probability_that_a_pair_is_wrong_is_that_of_its_rank() -> None:
    ranks = np.concatenate([np.zeros(800), np.linspace(0, 1, 201)])  # a fifth of them anywhere
    found = wrong_probability(ranks)
    assert found[0] == pytest.approx(4 / 804, rel=0.05) and (found[810:] > 0.95).all()
    assert (wrong_probability(np.zeros(30)) == 0).all()


def test_many_targets_are_ranked_in_parts(related, monkeypatch) -> None:
    source, target = (rows.astype(np.float32) for rows in related(600, (8, 8), noise=0.5))
    rows = np.arange(600)
    whole = held_out_ranks(PairedVectors(source, rows, target, rows))
    monkeypatch.setattr(module, "_RANKED", 50)
    parts = held_out_ranks(PairedVectors(source, rows, target, rows))
    assert not np.array_equal(whole, parts) and np.corrcoef(whole, parts)[0, 1] > 0.9


def test_doubtful_pairs_are_left_out_where_many_are_wrong(related, make_set) -> None:
    old, new = related(**WORLDS["like models"])
    partner = wrong(len(old), 0.5)
    right = {f"i{row}" for row in np.flatnonzero(partner == np.arange(len(old)))}
    kept_old, kept_new = without_doubtful(make_set(old[partner], "old"), make_set(new, "new"))
    assert kept_old.ids == kept_new.ids
    kept = set(kept_old.ids)
    assert len(kept & right) > 0.9 * len(right) and len(kept - right) < 0.12 * (len(old) - len(right))
    few = make_set(old[wrong(len(old), 0.02)], "old"), make_set(new, "new")
    assert without_doubtful(*few) == few, "where few are wrong, none is left out"
