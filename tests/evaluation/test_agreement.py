from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError
from limpet.evaluation import agreement
from limpet.evaluation.agreement import PERSISTENCE, agreement_of, compared
from limpet.evaluation.intervals import Draws, mean_interval
from limpet.evaluation.retrieval import top_k
from limpet.evaluation.sides import matched


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return compared(first, second)["overlap"]


def rank_biased_overlap(first: np.ndarray, second: np.ndarray, persistence: float = PERSISTENCE) -> np.ndarray:
    return compared(first, second, persistence)["rank_biased_overlap"]


PUBLISHED = [list("abcdefg"), list("zcavwxy")]  # the example of Webber, Moffat and Zobel
ROWS = np.array([[ord(letter) for letter in ranking] for ranking in PUBLISHED])


def by_the_formula(s: list[int], t: list[int], p: float) -> float:
    """Equation 32, term by term; `s` may be the shorter list."""
    short, long = sorted((s, t), key=len)
    if not long:
        return math.nan
    if not short:
        return 0.0

    def x(depth: int) -> int:
        return len(set(s[:depth]) & set(t[:depth]))

    ls, ll = len(short), len(long)
    total = sum(x(d) / d * p**d for d in range(1, ll + 1))
    total += sum(x(ls) * (d - ls) / (ls * d) * p**d for d in range(ls + 1, ll + 1))
    return (1 - p) / p * total + ((x(ll) - x(ls)) / ll + x(ls) / ls) * p**ll


def padded(lists: list[list[int]], width: int) -> np.ndarray:
    return np.array([ranking + [-1] * (width - len(ranking)) for ranking in lists])


def test_the_example_of_the_paper() -> None:
    # shared at depths 1 to 7: 0 0 2 2 2 2 2; agreement 0, 0, 2/3, 1/2, 2/5, 1/3, 2/7
    p = 0.9
    shares = [0, 0, 2 / 3, 1 / 2, 2 / 5, 1 / 3, 2 / 7]
    expected = (1 - p) * sum(share * p**place for place, share in enumerate(shares)) + 2 / 7 * p**7
    (found,) = rank_biased_overlap(ROWS[:1], ROWS[1:])
    assert found == pytest.approx(expected)
    assert found == pytest.approx(by_the_formula(*ROWS.tolist(), p))
    assert overlap(ROWS[:1], ROWS[1:])[0] == pytest.approx(2 / 7)


def test_the_first_ten_items_weigh_86_per_cent() -> None:
    """The paper's weight of a prefix under all agreements to come."""
    p, depth = agreement.PERSISTENCE, agreement.AGREEMENT_AT
    tail = sum(p**i / i for i in range(1, depth))
    assert 1 - p ** (depth - 1) + (1 - p) / p * depth * (math.log(1 / (1 - p)) - tail) == pytest.approx(
        0.8556, abs=5e-5
    )


@pytest.mark.parametrize("p", [0.5, 0.9, 0.98])
def test_random_lists_of_any_length_follow_the_formula(p: float) -> None:
    rng = np.random.default_rng(1)
    pairs = [[rng.permutation(14)[: rng.integers(0, 9)].tolist() for _ in range(2)] for _ in range(300)] + [
        [[], []],
        [[3], []],
        [[1, 2], [2, 1]],
        [list(range(8)), list(range(8))],
    ]
    first, second = (padded([pair[side] for pair in pairs], 8) for side in (0, 1))
    expected = [by_the_formula(*pair, p) for pair in pairs]
    np.testing.assert_allclose(rank_biased_overlap(first, second, p), expected, atol=1e-12)
    np.testing.assert_allclose(rank_biased_overlap(second, first, p), expected, atol=1e-12)
    longest = [max(map(len, pair)) for pair in pairs]
    shared = [len(set(a) & set(b)) / most if most else np.nan for (a, b), most in zip(pairs, longest, strict=True)]
    np.testing.assert_allclose(overlap(first, second), shared, atol=1e-12)
    found = compared(first, second, p)
    changed = [float(a[:1] != b[:1]) if a or b else np.nan for a, b in pairs]
    np.testing.assert_array_equal(found["first_changed"], changed)


def test_equal_lists_agree_wholly_and_strangers_not_at_all() -> None:
    lists = np.random.default_rng(2).permuted(np.tile(np.arange(30), (50, 1)), axis=1)[:, :10]
    np.testing.assert_allclose(rank_biased_overlap(lists, lists), 1)
    np.testing.assert_allclose(rank_biased_overlap(lists, lists + 100), 0)
    swapped_top, swapped_end = lists.copy(), lists.copy()
    swapped_top[:, [0, 1]] = lists[:, [1, 0]]
    swapped_end[:, [8, 9]] = lists[:, [9, 8]]
    assert (rank_biased_overlap(lists, swapped_top) < rank_biased_overlap(lists, swapped_end)).all()
    np.testing.assert_allclose(overlap(lists, swapped_top), 1)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = np.random.default_rng(3).permuted(np.tile(np.arange(20), (2, 77, 1)), axis=2)[..., :6]
    whole = rank_biased_overlap(*lists)
    monkeypatch.setattr(agreement, "_PAIRS_AT_ONCE", 36 * 5)
    np.testing.assert_array_equal(rank_biased_overlap(*lists), whole)


def test_fifty_thousand_queries_take_under_a_second() -> None:
    lists = np.random.default_rng(4).integers(0, 10**6, size=(2, 50_000, 10))
    start = time.process_time()  # of this process: others may be busy
    compared(*lists)
    assert time.process_time() - start < 2.0


@pytest.fixture(scope="module")
def sides(make_embeddings: Callable[..., EmbeddingSet]) -> list[EmbeddingSet]:
    rng = np.random.default_rng(5)
    items = rng.normal(size=(140, 6))

    def model(name: str, rows: slice, prefix: str, noise: float) -> EmbeddingSet:
        vectors = items[rows] + noise * rng.normal(size=items[rows].shape)
        found = make_embeddings(vectors, np.zeros(len(vectors)), fingerprint=f"declared:{name}", form="points")
        return found.replace(ids=[f"{prefix}{row}" for row in range(len(vectors))], labels=None, class_names=None)

    asked, stored = slice(0, 60), slice(60, 140)
    return [
        model("old", asked, "q", 0.1), model("old", stored, "g", 0.1),
        model("new", asked, "q", 0.2), model("new", stored, "g", 0.2),
    ]  # fmt: skip


DRAWS = Draws(resamples=300, level=0.9, seed=4)


def test_every_number_of_the_record_is_that_of_its_own_function(sides: list[EmbeddingSet]) -> None:
    old, new = (sides[0], sides[1]), (sides[2], sides[3])
    found = agreement_of(matched(old, new), draws=DRAWS)
    assert (found.k, found.persistence, found.queries) == (10, 0.9, 60)
    today = top_k(*old, 10).rows
    for system, pair in (("cross", (sides[2], sides[1])), ("self_new", new)):
        for measure, values in compared(today, top_k(*pair, 10).rows).items():
            one = getattr(getattr(found, system), measure)
            assert one.mean == pytest.approx(values.mean()) and 0 < one.mean < 1
            np.testing.assert_allclose(one.interval, mean_interval(values, resamples=300, level=0.9, seed=4))


def test_items_are_matched_by_id(sides: list[EmbeddingSet]) -> None:
    old, new = (sides[0], sides[1]), (sides[2], sides[3])
    order = np.random.default_rng(6).permutation(80)
    shuffled = (sides[2], sides[3][order])
    straight, other = (agreement_of(matched(old, pair), draws=DRAWS) for pair in (new, shuffled))
    assert straight == other


def test_ignored_items_and_small_galleries(sides: list[EmbeddingSet]) -> None:
    gallery_old, gallery_new = (side[:4] for side in (sides[1], sides[3]))
    models = matched((sides[0], gallery_old), (sides[2], gallery_new))
    found = agreement_of(models, draws=DRAWS)
    assert found.k == 4
    assert found.cross.overlap.mean == 1.0
    everything = [[0, 1, 2, 3]] * 5 + [[]] * 55
    assert agreement_of(models, ignore=everything, draws=DRAWS).queries == 55
    own = matched((sides[1], sides[1]), (sides[3], sides[3]))
    apart, among = (agreement_of(own, exclude_same_id=flag, draws=DRAWS) for flag in (True, False))
    assert apart.cross.first_changed.mean > among.cross.first_changed.mean


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="Rankings of shapes"):
        overlap(ROWS[:1], ROWS[1:, :3])
    with pytest.raises(DataError, match="Rankings of shapes"):
        rank_biased_overlap(ROWS[:1, :0], ROWS[1:, :0])
    for wrong in (0.0, 1.0):
        with pytest.raises(ConfigError, match="persistence"):
            rank_biased_overlap(ROWS[:1], ROWS[1:], wrong)
