"""Conversion of embedding sets and metadata columns to rows of a store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.filters import COLUMN_TYPES, Metadata, fits
from limpet.engines.store import Document, Rows, Upsert, Vectors
from limpet.errors import ConfigError, DataError, SpaceMismatchError, brief, shown, unknown_name
from limpet.galleries.state import GalleryState, Generation

_RANGES = {
    "text": "without the character 0 and halves of pairs", "integer": "of 64 bits", "number": "finite, of 64 bits",
    "truth": "true or false", "json": "objects, integers in them of 53 bits",
}  # fmt: skip
_RESERVED = ("id", "version", "vector", "score", "generation")


def checked_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return types of metadata columns, checked.

    Raises:
        ConfigError: A type is unknown, or a name is reserved or no plain word.
    """
    for name, kind in columns.items():
        if kind not in COLUMN_TYPES:
            raise unknown_name("column type", kind, COLUMN_TYPES)
        if name in _RESERVED or not name.isidentifier():
            raise ConfigError(
                f"A metadata column '{name}'.",
                expected=f"a name of letters, digits and underscores, not one of {', '.join(_RESERVED)}",
            )
    return dict(columns)


def rows_of(generation: Generation, embeddings: EmbeddingSet) -> Rows:
    """Return vectors of a generation as rows of a store."""
    form = embeddings.space.index_form(embeddings.vectors, "gallery")
    return Rows(generation.name, list(embeddings.ids), np.ascontiguousarray(form, np.float32))


@dataclass(frozen=True)
class ItemBatch:
    """Items to be written in one commit.

    Args:
        metadata: Metadata of each item.
        sets: Their vectors by one or several models.
        done: Number of items in this batch and those before it.
        total: Number of items in all batches.
        noted: Journal fields of the requests that it belongs to, such as their sender.
    """

    ids: list[str]
    metadata: Sequence[Metadata]
    sets: list[EmbeddingSet]
    done: int
    total: int
    noted: Sequence[Document] = ()


def batches(
    state: GalleryState, sets: Sequence[EmbeddingSet], metadata: Mapping[str, Sequence[Any]] | None, size: int
) -> Iterator[ItemBatch]:
    """Check sets of embeddings and their metadata before anything else, and yield them in batches."""
    _check_sets(state, sets)
    ids, places = sets[0].ids, None
    if len(sets) > 1:
        ids = StringArray.of(dict.fromkeys(identifier for embeddings in sets for identifier in embeddings.ids))
        places = [embeddings.ids.find(ids) for embeddings in sets]  # -1 if a set lacks the item
    columns = _columns(state, ids, sets, metadata)
    for start in range(0, len(ids), size):
        some = slice(start, start + size)
        names, parts = list(ids[some]), [sets[0][some]]
        if places is not None:
            rows = [of_set[some] for of_set in places]
            parts = [embeddings[own[own >= 0]] for embeddings, own in zip(sets, rows, strict=True)]
        yield ItemBatch(names, _metadata(columns, start, len(names)), parts, start + len(names), len(ids))


def _check_sets(state: GalleryState, sets: Sequence[EmbeddingSet]) -> None:
    for embeddings in sets:
        generation = state.made_by(embeddings.fingerprint)
        if embeddings.space != generation.geometry or embeddings.form != "points":
            raise SpaceMismatchError(
                f"The vectors are {embeddings.form} on the {embeddings.space}.",
                expected=f"points of the {generation.geometry}, as {generation.name} has them",
            )
        if embeddings.role == "query":
            raise DataError(
                "The vectors are those of queries.", expected='the role "document" or "both"',
                to_do="embed the items as documents.", intact="The gallery is intact.",
            )  # fmt: skip
    names = [embeddings.fingerprint for embeddings in sets]
    if len(set(names)) < len(names):
        raise ConfigError(f"Several sets of one model: {shown(names)}.", expected="one set per model")


def _columns(
    state: GalleryState, ids: StringArray, sets: Sequence[EmbeddingSet], given: Mapping[str, Sequence[Any]] | None
) -> dict[str, list[Any]]:
    """Return the checked values of every column, None for an item without one."""
    columns = _own_columns(state, sets[0]) if given is None else given
    for name, values in columns.items():
        if name not in state.columns:
            raise unknown_name("metadata column", name, state.columns)
        if given is not None and len(values) != len(ids):
            raise DataError(
                f"{len(values)} values of '{name}' for {len(ids)} items.", expected="one per item, or None in its place"
            )
    return {
        name: [
            None if value is None else _typed(name, value, state.columns[name], ids[row])
            for row, value in enumerate(values)
        ]
        for name, values in columns.items()
    }


def _metadata(columns: Mapping[str, list[Any]], start: int, count: int) -> Sequence[Metadata]:
    """Return the metadata of some items; items beyond the length of a column belong to other sets."""
    if not columns:
        return [{}] * count  # shared, because it is never modified
    known: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in columns.items():
        for metadata, value in zip(known, values[start : start + count], strict=False):
            if value is not None:
                metadata[name] = value
    return known


def _own_columns(state: GalleryState, embeddings: EmbeddingSet) -> dict[str, Any]:
    columns: dict[str, Any] = {name: values for name, values in embeddings.columns.items() if name in state.columns}
    if embeddings.labels is not None and "label" in state.columns:
        names = embeddings.class_names
        columns["label"] = embeddings.labels if names is None else list(names[embeddings.labels])
    return columns


def _typed(name: str, value: Any, kind: str, identifier: str) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if kind == "text" and name == "label" and fits(plain, "integer"):
        plain = str(plain)  # classes without names
    if kind == "json" and isinstance(plain, str):
        with suppress(ValueError):
            plain = json.loads(plain)
    if not fits(plain, kind):
        raise DataError(
            f"The value {brief(plain)} of {brief(identifier)} in the column '{name}'.",
            expected=f"values of the type '{kind}' ({_RANGES[kind]}), or None",
            to_do="correct it, or leave the column out (of a table, --take says which are taken), or create the "
            "gallery with another type of it.",
            intact="The gallery is intact.",
        )
    return float(plain) if kind == "number" else plain


def last_of(upserts: Sequence[Upsert]) -> Upsert:
    """Merge several upserts into one: an item in several of them gets the last one's metadata and vectors."""
    if len(upserts) == 1:
        return upserts[0]
    last = {identifier: number for number, one in enumerate(upserts) for identifier in one.ids}
    items: dict[str, Metadata] = {}
    parts: dict[str, list[tuple[str, Vectors]]] = {}
    for number, one in enumerate(upserts):
        items |= {name: values for name, values in zip(one.ids, one.metadata, strict=True) if last[name] == number}
        for rows in one.rows:
            own = zip(rows.ids, rows.vectors, strict=True)
            parts.setdefault(rows.generation, []).extend(pair for pair in own if last[pair[0]] == number)
    kept = {generation: pairs for generation, pairs in parts.items() if pairs}
    return Upsert(
        list(items), list(items.values()),
        [Rows(name, [one for one, _ in pairs], np.stack([row for _, row in pairs])) for name, pairs in kept.items()],
    )  # fmt: skip
