"""What to do about an item: every case of two sides, a pair, who writes and who wrote until a moment ago."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from limpet.attached.collections.due import DigestPair, due, same
from limpet.engines.collection import PART, digest_of
from limpet.engines.sides import OTHER, SIDES, ModelSide

STATES = [None, b"1", b"2"]
PAIRS = [None, *(DigestPair(old, new) for old in (None, b"1") for new in (None, b"1"))]
CASES = [
    (old, new, pair, writes, late)
    for old, new, pair, writes in product(STATES, STATES, PAIRS, SIDES)
    for late in (None, OTHER[writes])
]


def expected(now: dict[ModelSide, Any], pair: DigestPair | None, writes: ModelSide, late: ModelSide | None) -> str:
    """Say in the words of the promises what is to be done."""
    follows = OTHER[writes]
    if now["old"] is None and now["new"] is None:
        return "forget"
    was = None if pair is None else {"old": pair.old, "new": pair.new}
    agreed = was is not None and None not in was.values()
    if agreed and now == was:
        return "nothing"
    touched = {side for side in SIDES if was is not None and now[side] != was[side]} if agreed else set()
    if touched == {follows} and now[follows] is not None:
        return f"fill {writes}"  # written by who did not know yet what is declared
    if touched == {follows} and follows == late:
        return f"drop {writes}"  # deleted in the last moment before the declaration
    if now[writes] is not None:
        return f"fill {follows}"  # what is declared is neither removed nor overwritten
    was_there = was is not None and was[writes] is not None
    return f"drop {follows}" if was_there else f"fill {writes}"  # never on both sides is no deletion


def test_due_keeps_the_promises() -> None:
    for case in CASES:
        old, new, pair, writes, late = case
        assert due(old, new, pair, writes, late=late) == expected({"old": old, "new": new}, pair, writes, late), case


@pytest.mark.parametrize("shared", [False, True])
def test_due_treats_both_sides_alike(shared: bool) -> None:
    names = {"fill old": "fill new", "fill new": "fill old", "drop old": "drop new", "drop new": "drop old"}
    for old, new, pair, writes, late in CASES:
        turned = due(new, old, pair and DigestPair(pair.new, pair.old), OTHER[writes], late=late and OTHER[late],
                     shared=shared)  # fmt: skip
        assert names.get(turned, turned) == due(old, new, pair, writes, late=late, shared=shared)


def digest(fields: str, vector: str) -> bytes:
    return fields.encode().ljust(PART) + vector.encode().ljust(PART)


def test_due_never_takes_a_missing_vector_of_a_point_for_a_deletion() -> None:
    for old, new, pair, writes, late in CASES:
        found = due(old, new, pair, writes, late=late, shared=True)
        assert not found.startswith("drop")
        if (old is None) != (new is None):
            assert found == ("fill old" if old is None else "fill new")


@pytest.mark.parametrize("writes", SIDES)
def test_due_of_a_point_follows_the_vector_that_was_written_beside_its_fields(writes: ModelSide) -> None:
    pair = DigestPair(digest("a", "1"), digest("a", "2"))
    assert due(digest("b", "3"), digest("b", "2"), pair, writes, shared=True) == "fill new"
    assert due(digest("b", "1"), digest("b", "4"), pair, writes, shared=True) == "fill old"
    assert due(digest("b", "1"), digest("b", "2"), pair, writes, shared=True) == f"fill {OTHER[writes]}"
    assert due(digest("b", "3"), digest("b", "4"), pair, writes, shared=True) == f"fill {OTHER[writes]}"


def test_due_tells_another_vector_from_one_that_a_service_rounded() -> None:
    vector = np.random.default_rng(0).normal(size=8).astype(np.float32)
    other = vector.copy()
    other[0] += 0.1
    before = digest_of({"text": "a"}, vector)
    assert same(before, digest_of({"text": "a"}, vector * np.float32(1 + 1e-6)))
    assert not same(before, digest_of({"text": "a"}, other))
    assert not same(before, digest_of({"text": "a"}, 1.1 * vector))  # of another length alone
    assert not same(before, digest_of({"text": "b"}, vector))
