"""What an upgrade may count on in one kind of place, as each kind declares it and the contracts hold it to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Turn = Literal["one commit", "one transaction", "one entry of the ledger", "row by row", "none"]
"""How all searches change from the vectors of one model to those of the other."""


@dataclass(frozen=True)
class Promises:
    """What one kind of place promises.

    Args:
        writer: Who writes items: limpet, or the application itself.
        noticed: How it is known what was written: limpet wrote it, triggers note it, or both sides are compared.
        swap: How the new vectors come to serve; "none" where the application changes its own queries.
        rollback: How the old ones come to serve again.
        earlier: Whether a search goes on, for some seconds at least, at the commit it began with, after others have
            written.
        index: The approximate index: none, clusters of vectors (IVF), a graph (HNSW), or one like that of the old
            vectors.
    """

    writer: Literal["limpet", "the application"]
    noticed: Literal["limpet writes", "triggers", "comparison"]
    swap: Turn
    rollback: Turn
    earlier: bool
    index: Literal["none", "clusters", "graph", "like the old one"]

    @classmethod
    def of_gallery(cls, index: Literal["none", "clusters", "graph"]) -> Promises:
        """Return those of a store of galleries, which limpet alone writes, in commits."""
        return cls("limpet", "limpet writes", "one commit", "one commit", earlier=True, index=index)

    @classmethod
    def of_collections(cls) -> Promises:
        """Return those of an engine of collections, which has neither triggers nor commits of many items."""
        turn: Turn = "one entry of the ledger"
        return cls("the application", "comparison", turn, turn, earlier=False, index="like the old one")
