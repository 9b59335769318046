"""The status of a gallery, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from limpet.engines.store import Pointer, Store
from limpet.galleries.router import route
from limpet.galleries.state import GalleryState, Link
from limpet.upgrade.lifecycle import Phase


@dataclass(frozen=True)
class GenerationStatus:
    """One generation.

    Args:
        fingerprint: Fingerprint of its model; only the user vouches for a declared one.
        note: Readable name of the model.
        options: Command-line arguments that name the source of its vectors; None if unknown.
        standing: "active", "started", "previous" or "mapped".
        rows: Number of items that have its vector.
        covered: Number of items that queries of its model find, with any vectors that they may search.
        searches: Generations that queries of its model search, in order.
        bytes: Current size of its rows in the store, with the data that searches of several generations need.
        indexed: Number of rows that an approximate index covers.
    """

    name: str
    fingerprint: str
    space: str
    note: str
    options: str | None
    standing: str
    rows: int
    covered: int
    searches: tuple[str, ...]
    bytes: int
    indexed: int


@dataclass(frozen=True)
class Status:
    """The status of a gallery.

    Args:
        phase: "steady", "started" or "swapped".
        items: Number of items, with or without vectors.
        active: Generation whose model embeds queries and new items now.
        target: Generation that a backfill fills.
        lacking: Number of items without a vector of the target.
        sequence: Number of the last commit.
        links: Permissions to search vectors of other generations, with the reasons.
        waiting: Bytes of outdated data that only earlier readers may need, which gc frees.
        columns: Types of the metadata columns.
    """

    url: str
    kind: str
    phase: Phase
    items: int
    active: str
    target: str
    lacking: int
    sequence: int
    generations: tuple[GenerationStatus, ...]
    links: tuple[Link, ...]
    waiting: int
    columns: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return asdict(self)


def status(store: Store, pointer: Pointer, state: GalleryState) -> Status:
    """Return the status of a gallery at a pointer."""
    return Status(
        url=store.url,
        kind=store.kind,
        phase=state.phase,
        items=pointer.items,
        active=state.active,
        target=state.target,
        lacking=pointer.items - pointer.covered([state.target]),
        sequence=pointer.sequence,
        generations=tuple(_generation(store, pointer, state, name) for name in state.by_name),
        links=state.links,
        waiting=store.waiting(),
        columns=dict(state.columns),
    )


def _generation(store: Store, pointer: Pointer, state: GalleryState, name: str) -> GenerationStatus:
    generation, upkeep = state.by_name[name], store.upkeep(name)
    searches = tuple(source.generation for source in route(state, name))
    standings = {"active": (state.active,), "started": (state.started,), "previous": state.previous}
    return GenerationStatus(
        name=name,
        fingerprint=generation.fingerprint,
        space=str(generation.geometry),
        note=generation.note,
        options=generation.options,
        standing=next((word for word, names in standings.items() if name in names), "mapped"),
        rows=pointer.covered([name]),
        covered=pointer.covered(searches),
        searches=searches,
        bytes=upkeep.bytes,
        indexed=upkeep.indexed,
    )
