"""Pure function that decides what to do about one item of two sides, one of which an application writes.

Two digests describe each side: of the item as the side holds it now, and as it was when both sides last agreed. A side
that changed since then was written by the application, and the other side follows it. If both changed, the side that
the application is declared to write wins (`AttachmentState.writes`). An item that was never on both sides is filled in
on the side that lacks it.

Deletions depend on the declaration alone: an item that is missing on the side that the application does not write is
created there again, whatever removed it.
"""

from __future__ import annotations

from struct import unpack
from typing import Literal, NamedTuple

from limpet.engines.collection import PART
from limpet.engines.sides import OTHER, ModelSide

Due = Literal["nothing", "fill old", "fill new", "drop old", "drop new", "forget"]


class DigestPair(NamedTuple):
    """Digests of an item when both sides last agreed.

    Args:
        old: Digest of the old side; None while that side is filled for the first time, even if the process ended.
        new: Digest of the new side; None in the same cases.
    """

    old: bytes | None
    new: bytes | None


def due(
    old: bytes | None,
    new: bytes | None,
    pair: DigestPair | None,
    writes: ModelSide,
    *,
    late: ModelSide | None = None,
    shared: bool = False,
) -> Due:
    """Return the action that an item needs.

    Args:
        old: Current digest of the item on the old side; None if it is missing there, or has no vector.
        new: Current digest of the item on the new side; None in the same cases.
        pair: Digests when both last agreed; None if they never did, and nothing was ever begun.
        writes: The side that the application writes.
        late: The side that it wrote until recently, whose deletions count as well; None afterwards.
        shared: Whether both sides are vectors of the same items, which share their fields. A write of one vector may
            then remove the other one, so a missing vector is no deletion; a deleted item has neither. A vector that a
            pass wrote for fields that changed at the same time is made again.

    >>> agreed = DigestPair(b"1", b"a")
    >>> due(b"1", b"a", agreed, "old"), due(b"2", b"a", agreed, "old"), due(b"1", None, None, "old")
    ('nothing', 'fill new', 'fill new')
    >>> due(None, b"a", agreed, "old"), due(None, b"a", agreed, "new"), due(None, b"a", None, "old")
    ('drop new', 'fill old', 'fill old')
    >>> due(b"2", b"a", agreed, "new"), due(b"2", b"b", agreed, "new")
    ('fill new', 'fill old')
    """
    now: dict[ModelSide, bytes | None] = {"old": old, "new": new}
    follows = OTHER[writes]
    if old is None and new is None:
        return "forget"
    if shared and None in (old, new):
        return _fill("old" if old is None else "new")
    if pair is None or None in pair:
        intended = pair if shared and pair is not None and getattr(pair, writes) is None else None
        if intended is not None and not same(now[follows], getattr(intended, follows)):
            return _fill(writes)
        if now[writes] is not None:
            return _fill(follows)
        return _fill(writes) if pair is None or getattr(pair, writes) is None else _drop(follows)
    was: dict[ModelSide, bytes | None] = {"old": pair.old, "new": pair.new}
    changed = {side for side in now if not same(now[side], was[side])}
    if not changed:
        return "nothing"
    if shared:
        own = slice(PART, 2 * PART)
        changed = {side for side in changed if not _close((now[side] or b"")[own], (was[side] or b"")[own])} or changed
    if now[follows] is None and follows == late and writes not in changed:
        return _drop(writes)
    if now[follows] is not None and writes not in changed:
        return _fill(writes)
    return _fill(follows) if now[writes] is not None else _drop(follows)


def same(one: bytes | None, other: bytes | None) -> bool:
    """Return whether two digests are of the same state of an item."""
    if one is None or other is None or one == other:
        return one == other
    return one[:PART] == other[:PART] and _close(one[PART:], other[PART:])


def same_fields(one: bytes | None, other: bytes | None) -> bool:
    """Return whether two digests are of the same state of an item, except for its vector."""
    if one is None or other is None:
        return False
    return one[:PART] == other[:PART] and _close(one[2 * PART :], other[2 * PART :])


def _close(one: bytes, other: bytes) -> bool:
    if one == other or len(one) != len(other) or len(one) % 2:
        return one == other
    words = f"<{len(one) // 2}h"
    return all(abs(a - b) <= 1 for a, b in zip(unpack(words, one), unpack(words, other), strict=True))


def _fill(side: ModelSide) -> Due:
    return "fill old" if side == "old" else "fill new"


def _drop(side: ModelSide) -> Due:
    return "drop old" if side == "old" else "drop new"
