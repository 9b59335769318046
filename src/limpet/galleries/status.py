"""Where a gallery stands, as plain values."""

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
        fingerprint: Of its model; declared ones are vouched for by a person only.
        note: What people call the model.
        options: Words that name what makes its vectors on the command line; None where they are not known.
        standing: "active", "started", "previous" or "mapped".
        rows: Items that have its vector.
        covered: Items that queries of its model find, with whatever vectors they may search.
        searches: Generations that queries of its model search, in order.
        bytes: Size of its rows in the store as they are now, with what searches of several generations need.
        indexed: Rows that an approximate index covers.
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
    """Where a gallery stands.

    Args:
        phase: "steady", "started" or "swapped".
        items: Items, with or without vectors.
        active: Generation whose model embeds queries and new items now.
        target: Generation that a backfill fills.
        lacking: Items without a vector of the target.
        sequence: Number of the last commit.
        links: Who may search what besides the own vectors, and why.
        waiting: Bytes that nothing needs any more but readers of a while ago, which gc gives back.
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
    """Return where a gallery stands at a pointer."""
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
