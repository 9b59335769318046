"""From sets of embeddings and columns of metadata to the changes of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import ConfigError, DataError, SpaceMismatchError, brief, unknown_name
from holdfast.galleries.router import generation_of
from holdfast.galleries.state import GalleryState, Generation
from holdfast.geometry import Space
from holdfast.stores.base import Changes, Rows, Upsert
from holdfast.stores.filters import COLUMN_TYPES, fits

if TYPE_CHECKING:
    from holdfast.galleries.gallery import Gallery

ROWS_AT_ONCE = 50_000  # of one commit
_RANGES = {
    "text": "without the character 0 and halves of pairs", "integer": "of 64 bits", "number": "finite, of 64 bits",
    "truth": "true or false",
}  # fmt: skip
_RESERVED = ("id", "version", "vector", "score", "generation")


def checked_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return types of metadata columns, checked.

    Raises:
        ConfigError: A type is unknown, or a name is taken or no plain word.
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


def new_generation(
    state: GalleryState, fingerprint: str, space: Space, note: str, *, number: int | None = None
) -> dict[str, Any]:
    """Return the record of a generation of a model that the gallery does not have.

    Raises:
        ConfigError: It has one.
    """
    known = state.of(fingerprint)
    if known is not None:
        raise ConfigError(
            f"The gallery has a generation of the model {fingerprint} already: {known.name}.",
            expected="another model",
            to_do="`holdfast gallery status` lists the generations; the gallery is intact.",
        )
    name = f"g{state.created + 1 if number is None else number}"
    return {"name": name, "fingerprint": fingerprint, "space": space.record(), "note": note}


def named_generation(state: GalleryState, name: str) -> Generation:
    """Return a generation by its name or fingerprint.

    Raises:
        ConfigError: There is none.
    """
    found = state.by_name.get(name) or state.of(name)
    if found is None:
        raise unknown_name("generation", name, state.by_name, listing="holdfast gallery status")
    return found


def write(
    gallery: Gallery,
    kind: str,
    sets: Sequence[EmbeddingSet],
    metadata: Mapping[str, Sequence[Any]] | None,
    on_step: Callable[[dict[str, Any]], None] | None,
) -> int:
    """Write sets of embeddings in commits of at most `ROWS_AT_ONCE` items; see `Gallery.upsert`."""
    if not sets:
        raise ConfigError("No embeddings to write.", expected="one set or more")
    state = gallery.state
    _check_sets(state, sets)
    ids, places = _places(sets)
    columns = _columns(state, ids, sets, metadata)
    for start in range(0, len(ids), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        names = list(ids[part])
        chosen = [rows[part] for rows in places]
        parts = [of.select(rows[rows >= 0]) for of, rows in zip(sets, chosen, strict=True)]
        _write_part(gallery, kind, names, _metadata(columns, start, len(names)), parts)
        if on_step is not None:
            on_step({"done": start + len(names), "total": len(ids)})
    return len(ids)


def _places(sets: Sequence[EmbeddingSet]) -> tuple[StringArray, list[NDArray[np.int64]]]:
    """Return the ids of all sets, each once, and the row of every id in each set, -1 where it is not there."""
    if len(sets) == 1:
        return sets[0].ids, [np.arange(len(sets[0]))]
    ids = StringArray.of(dict.fromkeys(identifier for embeddings in sets for identifier in embeddings.ids))
    return ids, [embeddings.ids.find(ids) for embeddings in sets]


def _write_part(
    gallery: Gallery, kind: str, ids: list[str], metadata: list[dict[str, Any]], parts: Sequence[EmbeddingSet]
) -> None:
    with gallery.writing(kind):
        state = gallery.state  # another process may have moved it
        rows = [rows_of(generation_of(state, part.fingerprint), part) for part in parts if len(part)]
        rows += _mapped(gallery, state, parts)
        if kind == "add":
            _refuse_known(gallery.store.fetch(ids).ids)
        changes = Changes(upsert=Upsert(ids, metadata, rows))
        gallery.store.commit(changes, state.to_record(), {"kind": kind, "items": len(ids)})


def rows_of(generation: Generation, embeddings: EmbeddingSet) -> Rows:
    """Return the rows that a store keeps of points of a generation."""
    form = embeddings.space.index_form(embeddings.vectors, "gallery")
    return Rows(generation.name, list(embeddings.ids), np.ascontiguousarray(form, np.float32))


def _mapped(gallery: Gallery, state: GalleryState, parts: Sequence[EmbeddingSet]) -> list[Rows]:
    """Return what adapters make of the parts, for generations of mapped vectors."""
    given = {generation_of(state, part.fingerprint).name: part for part in parts if len(part)}
    return [
        rows_of(one, gallery.files.adapter(one.adapter).apply(given[one.mapped_from]))
        for one in state.generations
        if one.mapped_from in given and one.adapter is not None and one.name not in given
    ]


def _refuse_known(known: Sequence[str]) -> None:
    if known:
        raise DataError(
            f"{len(known)} ids are in the gallery already: {shown(known)}.",
            expected="new ids",
            to_do="`upsert` replaces items; the gallery is intact.",
        )


def _check_sets(state: GalleryState, sets: Sequence[EmbeddingSet]) -> None:
    for embeddings in sets:
        generation = generation_of(state, embeddings.fingerprint)
        if embeddings.space != generation.geometry or embeddings.form != "points":
            raise SpaceMismatchError(
                f"The vectors are {embeddings.form} on the {embeddings.space}.",
                expected=f"points of the {generation.geometry}, as {generation.name} has them",
            )
        if embeddings.role == "query":
            raise DataError(
                "The vectors are those of queries.", expected='the role "document" or "both"',
                to_do="embed the items as documents; the gallery is intact.",
            )  # fmt: skip
    names = [embeddings.fingerprint for embeddings in sets]
    if len(set(names)) < len(names):
        raise ConfigError(f"Several sets of one model: {shown(names)}.", expected="one set per model")


def _columns(
    state: GalleryState, ids: StringArray, sets: Sequence[EmbeddingSet], given: Mapping[str, Sequence[Any]] | None
) -> dict[str, list[Any]]:
    """Return the values of every column, checked, None where an item has none."""
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


def _metadata(columns: Mapping[str, list[Any]], start: int, count: int) -> list[dict[str, Any]]:
    """Return the values of some items; further ones than a column has are items of other sets."""
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in columns.items():
        for metadata, value in zip(found, values[start : start + count], strict=False):
            if value is not None:
                metadata[name] = value
    return found


def _own_columns(state: GalleryState, embeddings: EmbeddingSet) -> dict[str, Any]:
    """Return the columns of a set that the gallery has, its labels by name under "label"."""
    columns: dict[str, Any] = {name: values for name, values in embeddings.columns.items() if name in state.columns}
    if embeddings.labels is not None and "label" in state.columns:
        names = embeddings.class_names
        columns["label"] = embeddings.labels if names is None else list(names[embeddings.labels])
    return columns


def _typed(name: str, value: Any, kind: str, identifier: str) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if kind == "text" and name == "label" and fits(plain, "integer"):
        plain = str(plain)  # classes without names
    if not fits(plain, kind):
        raise DataError(
            f"The value {brief(plain)} of {brief(identifier)} in the column '{name}'.",
            expected=f"values of the type '{kind}' ({_RANGES[kind]}), or None",
            to_do="correct it, or leave the column out (of a table, --take says which are taken), or create the "
            "gallery with another type of it; the gallery is intact.",
        )
    return float(plain) if kind == "number" else plain
