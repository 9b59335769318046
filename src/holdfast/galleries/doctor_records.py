"""Looking at what a gallery says of itself: counts, journal, links, indexes, and what waits for gc."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.embeddings.embedding_set import shown
from holdfast.errors import HoldfastError
from holdfast.galleries.evidence import link_from_report
from holdfast.galleries.expected_gain import draw
from holdfast.galleries.findings import NAMED, Finding, listed
from holdfast.galleries.links import adapters_of, is_outside, read_fitting_adapter, read_score_map
from holdfast.galleries.router import route
from holdfast.galleries.state import GalleryState, Link, replay
from holdfast.stores.base import Pointer, Store
from holdfast.stores.filters import fits

STALE = 0.2  # share of rows without an approximate index from which searches of it get slow

_ITEMS_AT_ONCE = 8192
_RESTORE = "restore the gallery from a copy, or export what is right and import it into a new one."
_LATER = "`holdfast gallery backfill` gives them one."


class Recount:
    """All items counted anew, with a random sample of those that each generation has.

    Args:
        store: The gallery's.
        state: Of the gallery.
        size: Items per sample.
        seed: Of the samples.
    """

    def __init__(self, store: Store, state: GalleryState, size: int, seed: int) -> None:
        self.held: Counter[frozenset[str]] = Counter()
        self.future: list[str] = []
        self.bare: list[str] = []
        self.unfit: list[str] = []
        drawn: dict[str, list[tuple[bytes, str]]] = {name: [] for name in state.by_name}
        last, after = store.pointer().sequence, ""
        while len(items := store.scan(after=after, limit=_ITEMS_AT_ONCE)):
            after = items.ids[-1]
            self.held.update(items.generations)
            never = (items.versions > last) | (items.versions < 1)
            self.future += [items.ids[row] for row in np.flatnonzero(never)]
            self.unfit += [
                one for one, values in zip(items.ids, items.metadata, strict=True) if not _fit(values, state)
            ]
            keys = [draw(seed, identifier) for identifier in items.ids]
            for key, identifier, names in zip(keys, items.ids, items.generations, strict=True):
                if not names:
                    self.bare = [*self.bare, identifier][:NAMED]
                for name in names & drawn.keys():
                    drawn[name].append((key, identifier))
            drawn = {name: sorted(found)[:size] for name, found in drawn.items()}
        self.samples = {name: [identifier for _, identifier in found] for name, found in drawn.items()}


def count_findings(pointer: Pointer, recount: Recount) -> list[Finding]:
    """Compare the counts of the pointer with those of the items."""
    findings = []
    said = {names: count for names, count in pointer.held.items() if count}
    if said != dict(recount.held):
        wrong = [names for names in {*said, *recount.held} if said.get(names, 0) != recount.held[names]]
        parts = "; ".join(
            f"{said.get(names, 0):,} instead of {recount.held[names]:,} items with "
            f"{' and '.join(sorted(names)) or 'no vector'}"
            for names in sorted(wrong, key=sorted)
        )
        off = sum(abs(said.get(names, 0) - recount.held[names]) for names in wrong)
        findings.append(Finding("counts", "error", None, off, (), f"The gallery counts {parts}.", _RESTORE))
    if recount.future:
        ids = tuple(recount.future[:NAMED])
        says = f"{len(recount.future):,} items are of commits that never were{listed(ids, len(recount.future))}."
        findings.append(Finding("version", "error", None, len(recount.future), ids, says, _RESTORE))
    if recount.unfit:
        ids = tuple(recount.unfit[:NAMED])
        named = listed(ids, len(recount.unfit))
        says = f"{len(recount.unfit):,} items have metadata of another type than its column{named}."
        to_do = "`holdfast gallery upsert` them; searches with a condition on that column fail."
        findings.append(Finding("metadata", "error", None, len(recount.unfit), ids, says, to_do))
    return findings


def _fit(metadata: Mapping[str, Any], state: GalleryState) -> bool:
    return all(name in state.columns and fits(value, state.columns[name]) for name, value in metadata.items())


def journal_findings(store: Store, pointer: Pointer) -> list[Finding]:
    """Follow the journal from its beginning, and compare where it leads with what the pointer says."""
    entries = [entry for entry in store.journal() if entry.sequence <= pointer.sequence]
    numbers = [entry.sequence for entry in entries]
    lacking = pointer.sequence - len(numbers)
    if lacking:
        present = set(numbers)
        first = tuple(islice((str(one) for one in range(1, pointer.sequence + 1) if one not in present), NAMED))
        says = f"The journal lacks {lacking:,} of {pointer.sequence:,} entries: {shown(first, lacking)}."
        return [Finding("journal", "error", None, lacking, first, says, _RESTORE)]
    try:
        state = replay([entry.event for entry in entries])
    except (HoldfastError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = " ".join(getattr(error, "given", repr(error)).split()).rstrip(".")
        says = f"The journal cannot be followed: {why}."
        return [Finding("journal", "error", None, 1, (), says, _RESTORE)]
    if _plain(state.to_record()) != _plain(pointer.manifest):
        different = [
            name for name, value in _plain(state.to_record()).items() if _plain(pointer.manifest).get(name) != value
        ]
        says = f"The journal leads to another state than the gallery is in; they differ in {', '.join(different)}."
        return [Finding("journal", "error", None, len(different), (), says, _RESTORE)]
    return []


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(record))
    return found


def coverage_findings(pointer: Pointer, state: GalleryState, recount: Recount) -> list[Finding]:
    """Say which items have no vector that the active model's queries may search, or none of the new model."""
    findings = []
    bare = pointer.held.get(frozenset(), 0)
    if bare:
        says = f"{bare:,} items have no vector at all{listed(recount.bare, bare)}."
        to_do = f"{_LATER} Otherwise delete them; no search can find them."
        findings.append(Finding("no vector", "warning", None, bare, tuple(recount.bare), says, to_do))
    reached = [source.generation for source in route(state, state.active)]
    unseen = pointer.items - pointer.covered(reached) - bare
    if unseen:
        says = f"{unseen:,} items have vectors that queries of the active model, {state.active}, may not search."
        findings.append(Finding("not found", "warning", state.active, unseen, (), says, _LATER))
    lacking = pointer.items - pointer.covered([state.target])
    allowed = state.allowed_missing if state.completed else 0
    if lacking > allowed and state.phase != "steady":
        says = f"{lacking:,} of {pointer.items:,} items have no vector of {state.target} yet."
        severity = "warning" if state.completed else "note"
        findings.append(Finding("lacking", severity, state.target, lacking, (), says, _LATER))  # type: ignore[arg-type]
    return findings


def upkeep_findings(store: Store, pointer: Pointer, state: GalleryState) -> list[Finding]:
    """Say which approximate indexes lag behind, and what waits for gc."""
    findings = []
    for name in state.by_name:
        found = store.upkeep(name)
        if found.rows != pointer.covered([name]):
            says = f"{name} has {found.rows:,} vectors in the store, {pointer.covered([name]):,} by the items."
            to_do = "the other findings of this generation say which."
            findings.append(Finding("rows", "error", name, abs(found.rows - pointer.covered([name])), (), says, to_do))
        behind = found.rows - found.indexed
        if found.indexed and behind > 0:
            says = f"{behind:,} of {found.rows:,} vectors of {name} are not in its approximate index yet."
            slow = behind > STALE * found.rows
            to_do = (
                "approximate searches compare them one by one; the next backfill or `holdfast gallery gc` indexes them."
            )
            findings.append(Finding("index", "warning" if slow else "note", name, behind, (), says, to_do))
    if state.retired:
        says = f"{len(state.retired)} retired generations keep their vectors: {', '.join(state.retired)}."
        to_do = "`holdfast gallery gc` removes them."
        findings.append(Finding("retired", "note", None, len(state.retired), state.retired, says, to_do))
    return findings


def damage_findings(store: Store) -> list[Finding]:
    """Read every file again."""
    wrong = store.damage()
    if not wrong:
        return []
    to_do = "check the disk; then `holdfast gallery doctor --repair` goes back to the last commit that is whole."
    return [Finding("damaged", "error", None, len(wrong), (), " ".join(wrong), to_do)]


def declared_findings(state: GalleryState) -> list[Finding]:
    """Name the generations whose model only a person vouches for."""
    names = tuple(one.name for one in state.generations if one.fingerprint.startswith("declared:"))
    if not names:
        return []
    says = f"The models of {', '.join(names)} are declared: a person, not a release, says who made these vectors."
    compare = (
        f"`holdfast gallery doctor --vectors FILE --model {names[0]}` compares a sample with vectors of that model."
    )
    to_do = f"nothing, if you are sure; {compare}"
    return [Finding("declared", "note", None, len(names), names, says, to_do)]


def link_findings(store: Store, state: GalleryState) -> list[Finding]:
    """Look at the reports and adapters because of which queries may search vectors of another model."""
    findings = [found for link in state.links for found in _LINKS[link.how](state, link)]
    for name, ends, user in adapters_of(state):
        if isinstance(user, Link):
            what = f"The adapter of queries of {user.query} for {user.gallery}"
            findings += _kept_finding(what, name, user.gallery, lambda: read_fitting_adapter(store, name, ends))  # noqa: B023
        else:
            what = f"The adapter that makes {user.name} of {user.mapped_from}"
            findings += _kept_finding(what, name, user.name, lambda: read_fitting_adapter(store, name, ends))  # noqa: B023
    for link in state.links:
        if link.score_map is not None:
            what, name = f"The score map of {link.query} for {link.gallery}", link.score_map
            findings += _kept_finding(what, name, link.gallery, lambda: read_score_map(store, name))  # noqa: B023
    return findings


def _kept_finding(what: str, name: str, generation: str, read: Callable[[], object]) -> list[Finding]:
    """Say if an adapter or score map cannot be read, or stands outside the gallery."""
    try:
        read()
    except HoldfastError as error:
        says = f"{what} cannot be used: {' '.join(error.given.split()).rstrip('.')}."
        to_do = "restore it from a copy, or prepare the new model again; searches or writes need it."
        return [Finding("adapter", "error", generation, 1, (), says, to_do)]
    if not is_outside(name):
        return []
    says = f"{what} stands outside the gallery, in '{name}': whatever is put there is what searches use."
    to_do = "`holdfast gallery migrate` takes it in, as does the next write."
    return [Finding("outside", "warning", generation, 1, (), says, to_do)]


def _by_report(state: GalleryState, link: Link) -> list[Finding]:
    query, gallery = state.by_name[link.query], state.by_name[link.gallery]
    what = f"The report that lets queries of {query.name} search {gallery.name}, '{link.reason}',"
    try:
        now = link_from_report(Path(link.reason), query, gallery)
    except HoldfastError as error:
        gone = "is gone" if not Path(link.reason).exists() else f"does not vouch for them any more: {error.given}"
        to_do = "the numbers it had are kept in the gallery; restore it, or vouch with another one."
        return [Finding("report", "warning", gallery.name, 1, (), f"{what} {gone.rstrip('.')}.", to_do)]
    if _plain(now.evidence) != _plain(link.evidence):
        to_do = "`holdfast gallery vouch` records the new numbers, if they are the right ones."
        return [
            Finding("report", "warning", gallery.name, 1, (), f"{what} has other numbers than when it was read.", to_do)
        ]
    return []


def _nothing(state: GalleryState, link: Link) -> list[Finding]:
    return []


def _forced(state: GalleryState, link: Link) -> list[Finding]:
    says = f"Queries of {link.query} search {link.gallery} without a report that says they may: {link.reason}."
    to_do = "`holdfast gallery vouch --report` once it was measured."
    return [Finding("forced", "note", link.gallery, 1, (), says, to_do)]


_LINKS = {"report": _by_report, "adapter": _nothing, "mapped": _nothing, "forced": _forced}
