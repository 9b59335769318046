"""Planning of a commit: which vectors its changes add and remove, and which changes are refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limpet.engines.filters import Metadata, fits
from limpet.engines.store import Changes, Commit, Fill, Items, Rows, Upsert, digest_of
from limpet.errors import DataError, GalleryError

MOST_GENERATIONS = 62  # bits of a mask


@dataclass(frozen=True)
class Appended:
    """Rows that a commit adds to a generation, which has none of these ids at that point.

    Args:
        rows: Their generation, ids and vectors.
        versions: Versions of their items, int64 (N,).
        holding: All generations that have a vector of the item after this commit.
    """

    rows: Rows
    versions: NDArray[np.int64]
    metadata: Sequence[Metadata]
    holding: Sequence[frozenset[str]]


@dataclass(frozen=True)
class CommitPlan:
    """Changes of the vectors that must be made before a commit can be recorded.

    Args:
        remove: Ids to remove from each generation first.
        filled: Which rows of the fill are written, bool (N,).
        deleted: Ids of the items that are deleted.
        gone: Previous records of items that are deleted or replaced.
        holding: Generations that have a vector of each written item.
    """

    sequence: int
    remove: Mapping[str, Sequence[str]]
    append: Sequence[Appended]
    filled: NDArray[np.bool_]
    deleted: Sequence[str]
    gone: Items
    holding: Mapping[str, frozenset[str]]


def planned(
    changes: Changes, last: Commit, fetch: Callable[[Sequence[str]], Items], has: Callable[[Commit], bool]
) -> CommitPlan:
    """Return the changes of the vectors for a commit."""
    upsert, fill, sequence = changes.upsert, changes.fill, last.sequence + 1
    gone = [*changes.delete, *(upsert.ids if upsert else ())]
    found = fetch(gone)
    remove: dict[str, list[str]] = {}
    for identifier, names in zip(found.ids, found.generations, strict=True):
        for name in names:
            remove.setdefault(name, []).append(identifier)
    deleting = set(changes.delete)
    deleted = [identifier for identifier in found.ids if identifier in deleting]
    holding = _holding(upsert) if upsert else {}
    append = _upserted(upsert, sequence, holding) if upsert else []
    filled = np.empty(0, np.bool_)
    if fill is not None:
        filled, rows = _fillable(fill, _to_fill(fill, last, fetch, has), set(gone))
        append += [rows] if filled.any() else []
    return CommitPlan(sequence, remove, append, filled, deleted, found, holding)


def _to_fill(fill: Fill, last: Commit, fetch: Callable[[Sequence[str]], Items], has: Callable[[Commit], bool]) -> Items:
    """Return the current items of a fill; none if the numbers of the commits read may have been reused."""
    as_of = None if fill.seen is None else fill.seen.as_of
    if fill.seen is not None and as_of == last:
        return fill.seen
    return fetch(fill.rows.ids if as_of is None or has(as_of) else [])


def _fillable(fill: Fill, now: Items, replaced: Collection[str]) -> tuple[NDArray[np.bool_], Appended]:
    """Return which rows of a fill match their unchanged item, without a vector yet, and those rows."""
    generation = fill.rows.generation
    together = {names: names | {generation} for names in set(now.generations)}
    if _untouched(fill, now, replaced):
        whole = [together[names] for names in now.generations]
        return np.ones(len(now), np.bool_), Appended(fill.rows, now.versions, now.metadata, whole)
    place = {identifier: row for row, identifier in enumerate(now.ids) if identifier not in replaced}
    filled = np.zeros(len(fill.rows.ids), np.bool_)
    rows, versions = [], now.versions.tolist()
    for number, (identifier, version) in enumerate(zip(fill.rows.ids, fill.versions.tolist(), strict=True)):
        row = place.get(identifier)
        if row is not None and versions[row] == version and generation not in now.generations[row]:
            filled[number] = True
            rows.append(row)
    kept = Rows(generation, [now.ids[row] for row in rows], fill.rows.vectors[filled])
    holding = [together[now.generations[row]] for row in rows]
    return filled, Appended(kept, now.versions[rows], [now.metadata[row] for row in rows], holding)


def _untouched(fill: Fill, now: Items, replaced: Collection[str]) -> bool:
    """Say whether every item is unchanged since the fill was made, the usual case."""
    return (
        not replaced
        and now.ids == list(fill.rows.ids)
        and np.array_equal(now.versions, fill.versions)
        and not any(fill.rows.generation in names for names in set(now.generations))
    )


def _holding(upsert: Upsert) -> dict[str, frozenset[str]]:
    holding: dict[str, frozenset[str]] = dict.fromkeys(upsert.ids, frozenset())
    for rows in upsert.rows:
        together = {names: names | {rows.generation} for names in set(holding.values())}
        holding |= {identifier: together[holding[identifier]] for identifier in rows.ids}
    return holding


def _upserted(upsert: Upsert, sequence: int, holding: Mapping[str, frozenset[str]]) -> list[Appended]:
    metadata = dict(zip(upsert.ids, upsert.metadata, strict=True))
    given = None if upsert.versions is None else dict(zip(upsert.ids, upsert.versions.tolist(), strict=True))
    return [
        Appended(
            Rows(rows.generation, list(rows.ids), rows.vectors),
            np.full(len(rows.ids), sequence, np.int64) if given is None else np.array([given[one] for one in rows.ids]),
            [metadata[identifier] for identifier in rows.ids],
            [holding[identifier] for identifier in rows.ids],
        )
        for rows in upsert.rows
        if len(rows.ids)
    ]


def unknown_generation(name: str, known: Iterable[str]) -> GalleryError:
    """Build the error for a missing generation."""
    return GalleryError(
        f"There is no generation '{name}' in the gallery.",
        expected=f"one of {', '.join(sorted(known)) or 'none yet'}",
        to_do="`limpet upgrade status` lists them.",
        intact="Nothing was changed.",
    )


def check(changes: Changes, generations: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Refuse changes that do not fit the existing generations, by name with width and metadata columns.

    Raises:
        GalleryError: They name a missing generation, or create an existing one.
        DataError: Vectors have another width, no column can hold the metadata, or a file does not match its digest.
    """
    known = dict(generations)
    for new in changes.create:
        if new.name in known or len(known) == MOST_GENERATIONS:
            raise GalleryError(
                f"Generation '{new.name}' cannot be created: there are {', '.join(sorted(known))}.",
                expected=f"a name of its own, and at most {MOST_GENERATIONS} generations",
                to_do="`limpet upgrade finish` or `limpet upgrade cancel` removes those that are not needed.",
                intact="Nothing was changed.",
            )
        known[new.name] = (new.width, new.columns)
    given = [*(changes.upsert.rows if changes.upsert else ()), *([changes.fill.rows] if changes.fill else ())]
    named = {name for first, others in changes.remainders or () for name in (first, *others)}
    for name in (*(rows.generation for rows in given), *sorted(named), *changes.drop):
        if name not in known:
            raise unknown_generation(name, known)
    for rows in given:
        _refuse_other_width(rows, known[rows.generation][0])
    for digest, content in changes.files.items():
        if digest_of(content) != digest:
            raise DataError(f"A file named {digest}.", expected=digest_of(content), intact="Nothing was written.")
    if changes.upsert:
        _refuse_wrong_metadata(changes.upsert, [known[rows.generation][1] for rows in changes.upsert.rows])


def _refuse_other_width(rows: Rows, width: int) -> None:
    if rows.vectors.shape[1] != width:
        raise DataError(
            f"Vectors of {rows.vectors.shape[1]} numbers for generation '{rows.generation}', of items "
            f"{', '.join(repr(identifier) for identifier in list(rows.ids)[:5])} and so on.",
            expected=f"{width} numbers",
            to_do="embed them with the model of this generation.",
            intact="Nothing was written.",
        )


def _refuse_wrong_metadata(upsert: Upsert, tables: Sequence[Mapping[str, str]]) -> None:
    for columns in {tuple(sorted(columns.items())): columns for columns in tables}.values():
        given = ((identifier, known) for identifier, known in zip(upsert.ids, upsert.metadata, strict=True) if known)
        for identifier, metadata in given:
            for column, value in metadata.items():
                if column not in columns or not fits(value, columns[column]):
                    raise DataError(
                        f"Item '{identifier}' has metadata {column} = {value!r}.",
                        expected="values of these columns: "
                        + (", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "none"),
                        to_do="leave a column out where there is no value.",
                        intact="Nothing was written.",
                    )
