"""Checks of a gallery's records: counts, journal, links and indexes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from limpet.engines.filters import fits
from limpet.engines.store import Pointer, Store
from limpet.errors import LimpetError, shown
from limpet.galleries.doctor.findings import NAMED, Finding, Severity
from limpet.galleries.items import draw, pages
from limpet.galleries.links import link_from_report, read_adapter, read_scores
from limpet.galleries.router import route
from limpet.galleries.state import GalleryState, How, Link, replay

STALE = 0.2  # share of rows without an approximate index that makes searches slow

_RESTORE = "restore the gallery from a copy, or export what is right and import it into a new one."
_LATER = "`limpet upgrade backfill` gives them one."


class ItemCount:
    """A new count of all items, with a random sample of the items of each generation."""

    def __init__(self, store: Store, state: GalleryState, size: int, seed: int) -> None:
        self.held: Counter[frozenset[str]] = Counter()
        self.future: list[str] = []  # ids of items of commits that do not exist
        self.bare: list[str] = []  # the first ids of items without any vector
        self.unfit: list[str] = []  # ids of items with metadata of a wrong type
        drawn: dict[str, list[tuple[bytes, str]]] = {name: [] for name in state.by_name}
        last = store.pointer().sequence
        for items in pages(store):
            self.held.update(items.generations)
            never = (items.versions > last) | (items.versions < 1)
            self.future += [items.ids[row] for row in np.flatnonzero(never)]
            for identifier, metadata, names in zip(items.ids, items.metadata, items.generations, strict=True):
                if not all(one in state.columns and fits(value, state.columns[one]) for one, value in metadata.items()):
                    self.unfit.append(identifier)
                if not names and len(self.bare) < NAMED:
                    self.bare.append(identifier)
                for name in names & drawn.keys():
                    drawn[name].append((draw(seed, identifier), identifier))
            drawn = {name: sorted(pairs)[:size] for name, pairs in drawn.items()}
        self.samples = {name: [identifier for _, identifier in pairs] for name, pairs in drawn.items()}


def count_findings(pointer: Pointer, counted: ItemCount) -> list[Finding]:
    """Compare the counts of the pointer with those of the items."""
    findings = []
    said = {names: count for names, count in pointer.held.items() if count}
    if said != dict(counted.held):
        wrong = [names for names in {*said, *counted.held} if said.get(names, 0) != counted.held[names]]
        parts = "; ".join(
            f"{said.get(names, 0):,} instead of {counted.held[names]:,} items with "
            f"{' and '.join(sorted(names)) or 'no vector'}"
            for names in sorted(wrong, key=sorted)
        )
        off = sum(abs(said.get(names, 0) - counted.held[names]) for names in wrong)
        findings.append(Finding("counts", "error", f"The gallery counts {parts}.", _RESTORE, count=off))
    if counted.future:
        what = "items are of commits that never were"
        findings.append(Finding.of_ids("version", "error", what, _RESTORE, counted.future))
    if counted.unfit:
        what = "items have metadata of another type than its column"
        to_do = "`limpet gallery upsert` them; searches with a condition on that column fail."
        findings.append(Finding.of_ids("metadata", "error", what, to_do, counted.unfit))
    return findings


def journal_findings(store: Store, pointer: Pointer) -> list[Finding]:
    """Replay the journal from its beginning, and compare the result with the pointer."""
    entries = [entry for entry in store.journal() if entry.sequence <= pointer.sequence]
    lacking = pointer.sequence - len(entries)
    if lacking:
        present = {entry.sequence for entry in entries}
        first = tuple(islice((str(one) for one in range(1, pointer.sequence + 1) if one not in present), NAMED))
        says = f"The journal lacks {lacking:,} of {pointer.sequence:,} entries: {shown(first, lacking)}."
        return [Finding("journal", "error", says, _RESTORE, count=lacking, ids=first)]
    try:
        state = replay([entry.event for entry in entries])
    except (LimpetError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = " ".join(getattr(error, "given", repr(error)).split()).rstrip(".")
        return [Finding("journal", "error", f"The journal cannot be followed: {why}.", _RESTORE)]
    told, kept = _plain(state.to_record()), _plain(pointer.manifest)
    if told != kept:
        different = [name for name, value in told.items() if kept.get(name) != value]
        says = f"The journal leads to another state than the gallery is in; they differ in {', '.join(different)}."
        return [Finding("journal", "error", says, _RESTORE, count=len(different))]
    return []


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


def coverage_findings(pointer: Pointer, state: GalleryState, counted: ItemCount) -> list[Finding]:
    """Report items without a vector that the active model's queries may search, or without one of the new model."""
    findings = []
    bare = pointer.held.get(frozenset(), 0)
    if bare:
        to_do = f"{_LATER} Otherwise delete them; no search can find them."
        what = "items have no vector at all"
        findings.append(Finding.of_ids("no vector", "warning", what, to_do, counted.bare, count=bare))
    reached = [source.generation for source in route(state, state.active)]
    unseen = pointer.items - pointer.covered(reached) - bare
    if unseen:
        says = f"{unseen:,} items have vectors that queries of the active model, {state.active}, may not search."
        findings.append(Finding("not found", "warning", says, _LATER, generation=state.active, count=unseen))
    lacking = pointer.items - pointer.covered([state.target])
    if lacking and state.phase != "steady":
        says = f"{lacking:,} of {pointer.items:,} items have no vector of {state.target} yet."
        findings.append(Finding("lacking", "note", says, _LATER, generation=state.target, count=lacking))
    return findings


def upkeep_findings(store: Store, pointer: Pointer, state: GalleryState) -> list[Finding]:
    """Report generations whose rows differ from the items' records, and outdated approximate indexes."""
    findings = []
    for name in state.by_name:
        upkeep, covered = store.upkeep(name), pointer.covered([name])
        if upkeep.rows != covered:
            says = f"{name} has {upkeep.rows:,} vectors in the store, {covered:,} by the items."
            to_do = "the other findings of this generation say which."
            off = abs(upkeep.rows - covered)
            findings.append(Finding("rows", "error", says, to_do, generation=name, count=off))
        behind = upkeep.rows - upkeep.indexed
        if upkeep.indexed and behind > 0:
            says = f"{behind:,} of {upkeep.rows:,} vectors of {name} are not in its approximate index yet."
            to_do = (
                "approximate searches compare them one by one; the next backfill or `limpet gallery gc` indexes them."
            )
            severity: Severity = "warning" if behind > STALE * upkeep.rows else "note"
            findings.append(Finding("index", severity, says, to_do, generation=name, count=behind))
    return findings


def damage_findings(store: Store) -> list[Finding]:
    """Read every file again."""
    wrong = store.damage()
    to_do = "check the disk; then `limpet doctor --repair` goes back to the last commit that is whole."
    return [Finding("damaged", "error", " ".join(wrong), to_do, count=len(wrong))] if wrong else []


def declared_findings(state: GalleryState) -> list[Finding]:
    """Name the generations whose model only the user has declared."""
    names = tuple(one.name for one in state.generations if one.fingerprint.startswith("declared:"))
    if not names:
        return []
    says = f"The models of {', '.join(names)} are declared: a person, not a release, says who made these vectors."
    to_do = (
        f"nothing, if you are sure; `limpet doctor --model FILE --name {names[0]}` compares a sample with "
        "vectors of that model."
    )
    return [Finding("declared", "note", says, to_do, count=len(names), ids=names)]


def link_findings(store: Store, state: GalleryState) -> list[Finding]:
    """Check the reports and adapters that let queries search vectors of another model."""
    findings = [finding for link in state.links for finding in _LINKS[link.how](state, link)]
    for link in state.links:
        if link.adapter is not None:
            what = f"The adapter of queries of {link.query} for {link.gallery}"
            findings += _file_findings(what, link.gallery, partial(read_adapter, store, link.adapter))
        if link.score_map is not None:
            what = f"The cohort or map of scores of {link.query} for {link.gallery}"
            findings += _file_findings(what, link.gallery, partial(read_scores, store, link.score_map))
    for one in state.generations:
        if one.adapter is not None:
            what = f"The adapter that makes {one.name} of {one.mapped_from}"
            findings += _file_findings(what, one.name, partial(read_adapter, store, one.adapter))
    return findings


def _file_findings(what: str, generation: str, read: Callable[[], object]) -> list[Finding]:
    try:
        read()
    except LimpetError as error:
        says = f"{what} cannot be used: {' '.join(error.given.split()).rstrip('.')}."
        to_do = "restore it from a copy, or start the upgrade again; searches or writes need it."
        return [Finding("adapter", "error", says, to_do, generation=generation)]
    return []


def _reported(state: GalleryState, link: Link) -> list[Finding]:
    query, gallery = state.by_name[link.query], state.by_name[link.gallery]
    what = f"The report that lets queries of {query.name} search {gallery.name}, '{link.reason}',"
    try:
        now = link_from_report(Path(link.reason), query, gallery)
    except LimpetError as error:
        gone = "is gone" if not Path(link.reason).exists() else f"does not vouch for them any more: {error.given}"
        says = f"{what} {gone.rstrip('.')}."
        to_do = "the numbers it had are kept in the gallery; restore it, or link them by another one."
    else:
        if _plain(now.evidence) == _plain(link.evidence):
            return []
        says = f"{what} has other numbers than when it was read."
        to_do = "`limpet gallery link` records the new numbers, if they are the right ones."
    return [Finding("report", "warning", says, to_do, generation=gallery.name)]


def _forced(state: GalleryState, link: Link) -> list[Finding]:
    says = f"Queries of {link.query} search {link.gallery} without a report that says they may: {link.reason}."
    to_do = "`limpet gallery link --evidence` once it was measured."
    return [Finding("forced", "note", says, to_do, generation=link.gallery)]


_LINKS: dict[How, Callable[[GalleryState, Link], list[Finding]]] = {
    "report": _reported,
    "adapter": lambda state, link: [],
    "mapped": lambda state, link: [],
    "forced": _forced,
}
