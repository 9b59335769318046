"""What is to be done about one item of two sides, of which an application writes one: a pure function.

Each side is known by the digest of what it holds of the item, and by the digest it had when both last agreed. What the
application writes counts: the side it writes is the truth, as `AttachmentState.writes` declares it, and the other one
follows. A row that was never on both sides is nobody's copy: it is filled in where it lacks, on whichever side.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from limpet.attached.state import Side

Due = Literal["nothing", "fill old", "fill new", "drop old", "drop new", "forget"]


class Pair(NamedTuple):
    """Digests of an item when both sides last agreed.

    Args:
        old: Of the old side; None while that one is being filled, also where the process ended meanwhile.
        new: Of the new side; the same.
    """

    old: bytes | None
    new: bytes | None


def due(old: bytes | None, new: bytes | None, pair: Pair | None, writes: Side) -> Due:
    """Return what is to be done about an item.

    Args:
        old: Digest of what the old side holds now; None where it has no such item, or one without a vector.
        new: The same of the new side.
        pair: When both last agreed; None where they never did, and nothing was ever begun.
        writes: The side that the application writes.

    >>> due(b"1", b"a", Pair(b"1", b"a"), "old"), due(b"2", b"a", Pair(b"1", b"a"), "old"), due(b"1", None, None, "old")
    ('nothing', 'fill new', 'fill new')
    >>> due(None, b"a", Pair(b"1", b"a"), "old"), due(None, b"a", Pair(b"1", b"a"), "new"), due(None, b"a", None, "old")
    ('drop new', 'fill old', 'fill old')
    """
    if old is None and new is None:
        return "forget"
    if None not in (old, new) and (old, new) == pair:
        return "nothing"
    if writes == "old":
        if old is not None:
            return "fill new"
        return "fill old" if pair is None or pair.old is None else "drop new"
    if new is not None:
        return "fill old"
    return "fill new" if pair is None or pair.new is None else "drop old"
