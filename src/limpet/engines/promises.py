"""Guarantees of an upgrade in one kind of store, declared by each kind and verified by contract tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Turn = Literal["one commit", "one transaction", "one entry of the ledger", "row by row", "none"]
"""How all searches switch from the vectors of one model to those of the other."""


@dataclass(frozen=True)
class Promises:
    """Guarantees of one kind of store.

    Args:
        writer: Who writes items: limpet, or the application itself.
        noticed: How writes are detected: limpet made them, triggers mark them, or both sides are compared.
        swap: How a swap takes effect; "none" if the application changes its own queries.
        rollback: How a rollback takes effect.
        earlier: Whether a search can continue, for some seconds at least, at the commit it began with, after others
            have written.
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
        """Return the guarantees of a gallery store, which only limpet writes, in commits."""
        return cls("limpet", "limpet writes", "one commit", "one commit", earlier=True, index=index)

    @classmethod
    def of_collections(cls) -> Promises:
        """Return the guarantees of a collection engine, which has neither triggers nor commits of many items."""
        turn: Turn = "one entry of the ledger"
        return cls("the application", "comparison", turn, turn, earlier=False, index="like the old one")
