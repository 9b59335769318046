"""The document in the top of a sharded gallery, and the undo data of an unfinished commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from limpet.engines.checks import damaged
from limpet.engines.filters import Metadata
from limpet.engines.ledger import reading
from limpet.engines.store import Changes, Commit, Document, Fill, Items, Pointer, Rows, Store, Upsert, Vectors

Remainder = tuple[str, frozenset[str]]
Held = Mapping[frozenset[str], int]
START = Commit(0, 0.0)


def commit_of(plain: Any) -> Commit:
    """Parse a commit from plain values.

    >>> commit_of([7, 2.5])
    Commit(sequence=7, time=2.5)
    """
    sequence, moment = plain
    return Commit(int(sequence), float(moment))


@dataclass(frozen=True)
class ShardState:
    """State of one shard.

    Args:
        commit: Last commit of the gallery that wrote to it.
        sequence: The shard's own number of that commit, or of a later one that changed no search results.
        held: Number of items that have vectors in exactly these generations.
    """

    commit: Commit = START
    sequence: int = 0
    held: Held = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """Return plain values."""
        held = {" ".join(sorted(names)): count for names, count in self.held.items()}
        return {"commit": list(self.commit), "sequence": self.sequence, "held": held}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Self:
        """Parse the value of `plain`."""
        held = {frozenset(names.split()): int(count) for names, count in plain["held"].items()}
        return cls(commit_of(plain["commit"]), int(plain["sequence"]), held)


@dataclass(frozen=True)
class Unfinished:
    """A commit for which shards were being prepared.

    Args:
        commit: The commit.
        shards: Undo data: digests of values of the top, by number of the shard.
    """

    commit: Commit
    shards: Mapping[int, str]


@dataclass(frozen=True)
class TopRecord:
    """The document of a top.

    Args:
        gallery: Unique name of this gallery, which its shards store.
        commit: The last commit; everything else is as of it.
        manifest: State of the gallery, see `Pointer`.
        generations: Width and metadata columns of each, by name.
        remainders: Remainders that searches may use, see `Changes`.
        unfinished: The next commit, while it is being written.
    """

    gallery: str
    shards: Sequence[ShardState]
    commit: Commit = START
    manifest: Document = field(default_factory=dict)
    generations: Mapping[str, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    remainders: Sequence[Remainder] = ()
    unfinished: Unfinished | None = None

    @property
    def pointer(self) -> Pointer:
        """Pointer of the gallery, with the counts of all shards."""
        held: Counter[frozenset[str]] = Counter()
        for shard in self.shards:
            for names, count in shard.held.items():
                held[names.intersection(self.generations)] += count
        counted = {names: count for names, count in held.items() if count}
        return Pointer(self.commit.sequence, self.manifest, counted, self.commit.time)

    def plain(self) -> dict[str, object]:
        """Return plain values."""
        unfinished = None
        if self.unfinished is not None:
            shards = {str(number): digest for number, digest in self.unfinished.shards.items()}
            unfinished = [list(self.unfinished.commit), shards]
        return {
            "gallery": self.gallery,
            "shards": [shard.plain() for shard in self.shards],
            "commit": list(self.commit),
            "manifest": self.manifest,
            "generations": {name: [width, dict(columns)] for name, (width, columns) in self.generations.items()},
            "remainders": plain_remainders(self.remainders),
            "unfinished": unfinished,
        }

    @classmethod
    def read(cls, document: Document) -> Self:
        """Parse the value of `plain`.

        Raises:
            StoreError: The document is damaged.
        """
        plain: Any = document
        with reading("The top of the gallery"):
            unfinished = None
            if plain["unfinished"] is not None:
                commit, undoes = plain["unfinished"]
                unfinished = Unfinished(commit_of(commit), {int(shard): str(name) for shard, name in undoes.items()})
                if not unfinished.shards.keys() <= set(range(len(plain["shards"]))):
                    raise ValueError("a commit is unfinished in a shard that is not there")
            return cls(
                str(plain["gallery"]),
                [ShardState.read(shard) for shard in plain["shards"]],
                commit_of(plain["commit"]),
                dict(plain["manifest"]),
                {name: (int(width), dict(columns)) for name, (width, columns) in plain["generations"].items()},
                [(name, frozenset(others)) for name, others in plain["remainders"]],
                unfinished,
            )


def plain_remainders(remainders: Sequence[Remainder]) -> list[list[object]]:
    """Return plain values, in a fixed order.

    >>> plain_remainders([("g2", frozenset({"g1"}))])
    [['g2', ['g1']]]
    """
    return sorted(([name, sorted(others)] for name, others in remainders), key=str)


def undo_of(shard: Store, part: Changes, generations: Collection[str]) -> bytes:
    """Return the undo data for a shard's part of a commit: everything that the part replaces and removes.

    For a fill, these are only ids: its items do not change otherwise.

    Args:
        shard: The shard.
        part: The part.
        generations: Those of the gallery; any others in the shard may be dropped before an undo.
    """
    ids = list(dict.fromkeys([*part.delete, *(part.upsert.ids if part.upsert else ())]))
    items = shard.fetch(ids)
    arrays: dict[str, NDArray[Any]] = {"versions": items.versions}
    rows: dict[str, list[str]] = {}
    for name in sorted({name for names in items.generations for name in names}.intersection(generations)):
        rows[name], arrays[f"rows {name}"] = shard.vectors(name, items.ids)
    header = {
        "new": sorted(set(ids) - set(items.ids)),
        "ids": items.ids,
        "metadata": [dict(known) for known in items.metadata],
        "rows": rows,
        "filled": _fillable(shard, part.fill, set(ids)) if part.fill else [],
        "fill": part.fill.rows.generation if part.fill else None,
        "created": [generation.name for generation in part.create],
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def _fillable(shard: Store, fill: Fill, replaced: set[str]) -> list[str]:
    """Return the ids that a fill will give a vector."""
    known = fill.seen is not None and fill.seen.as_of == shard.pointer().commit
    now = fill.seen if known and fill.seen is not None else shard.fetch(fill.rows.ids)
    lacking = zip(now.ids, now.generations, strict=True)
    return [one for one, names in lacking if fill.rows.generation not in names and one not in replaced]


def undoing(shard: Store, undo: bytes, remainders: Sequence[Remainder]) -> Changes:
    """Return the changes that undo a part that a shard has applied.

    Args:
        shard: The shard; only the part was written since `undo_of`.
        undo: The value of `undo_of`.
        remainders: Remainders that searches could use before.
    """
    with reading(what := "What takes an unfinished commit back"):
        try:
            arrays = load(undo)
        except SafetensorError as error:
            raise damaged(what, str(error)) from error
        header = json.loads(arrays["header"].tobytes())
        rows = {name: (ids, arrays[f"rows {name}"]) for name, ids in header["rows"].items()}
        filled = shard.fetch(header["filled"])
        written = Items(header["ids"], arrays["versions"], [], header["metadata"])
    parts = [
        *((name, ids, vectors) for name, (ids, vectors) in rows.items()),
        *_other_rows(shard, filled, header["fill"]),
    ]
    by_name: dict[str, list[tuple[Sequence[str], Vectors]]] = {}
    for name, ids, vectors in parts:
        by_name.setdefault(name, []).append((ids, vectors))
    metadata: list[Metadata] = [*written.metadata, *filled.metadata]
    upsert = Upsert(
        [*written.ids, *filled.ids],
        metadata,
        [
            Rows(name, [one for ids, _ in some for one in ids], np.concatenate([vectors for _, vectors in some]))
            for name, some in by_name.items()
        ],
        np.concatenate([written.versions, filled.versions]),
    )
    return Changes(delete=header["new"], upsert=upsert, drop=header["created"], remainders=remainders)


def _other_rows(shard: Store, filled: Items, generation: str) -> list[tuple[str, list[str], Vectors]]:
    """Return the vectors that items keep when they lose those of a generation."""
    names = {name for names in filled.generations for name in names} - {generation}
    return [(name, *shard.vectors(name, filled.ids)) for name in sorted(names)]
