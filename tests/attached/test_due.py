"""What is to be done about an item: every case of two sides, a pair and who writes, against the promises in words."""

from __future__ import annotations

from itertools import product

import pytest

from limpet.attached.collections.due import Pair, due
from limpet.attached.state import Side

STATES = [None, b"1", b"2"]
PAIRS = [None, *(Pair(old, new) for old in (None, b"1") for new in (None, b"1"))]
CASES = [(old, new, pair, writes) for old, new, pair, writes in product(STATES, STATES, PAIRS, ("old", "new"))]


@pytest.mark.parametrize(("old", "new", "pair", "writes"), CASES)
def test_nothing_is_lost_overwritten_or_resurrected(
    old: bytes | None, new: bytes | None, pair: Pair | None, writes: Side
) -> None:
    found = due(old, new, pair, writes)
    truth, follower, other = (old, new, "new") if writes == "old" else (new, old, "old")
    agreed = pair is not None and None not in (old, new) and (old, new) == pair
    assert (found == "nothing") == agreed
    assert (found == "forget") == (old is None and new is None)
    if truth is not None:  # what the application wrote is neither removed nor overwritten
        assert found in ("nothing", f"fill {other}")
    elif (
        follower is not None
    ):  # once it was on both sides, the application deleted it; before, it is only not there yet
        was = pair is not None and (pair.old if writes == "old" else pair.new) is not None
        assert found == (f"drop {other}" if was else f"fill {writes}")


@pytest.mark.parametrize(("old", "new", "pair", "writes"), CASES)
def test_both_sides_are_treated_alike(old: bytes | None, new: bytes | None, pair: Pair | None, writes: Side) -> None:
    turned = due(new, old, pair and Pair(pair.new, pair.old), "new" if writes == "old" else "old")
    names = {"fill old": "fill new", "fill new": "fill old", "drop old": "drop new", "drop new": "drop old"}
    assert names.get(turned, turned) == due(old, new, pair, writes)
