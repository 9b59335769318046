"""What every kind of store promises: what a slow and obvious store answers, all of them answer."""

from __future__ import annotations

import errno
import operator
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from limpet.engines.filters import And, Condition, Exists, Filter, In, Json, Metadata, Not, Or, path_of
from limpet.engines.store import (
    Changes,
    Committed,
    Fill,
    Items,
    NewGeneration,
    Pointer,
    Rows,
    Store,
    Upsert,
    digest_of,
)  # fmt: skip
from limpet.engines.stores import STORES, open_store
from limpet.errors import DataError, GalleryError, StoreError
from limpet.support.disk import Disk
from limpet.testing.contract import Check, Contract, refused

WIDTHS = {"g1": 4, "g2": 6, "g3": 4}
COLUMNS = {"colour": "text", "pieces": "integer", "price": "number", "sold": "truth", "facts": "json"}
NAMES = (
    "a",
    "Ab",
    "b'c",
    'd"e',
    "ü",
    "日本",
    "f\\g",
    "h%_i",
    "j k",
    "l\nm",
    "n;--",
    "😀",
    "z`z",
    "0",
    "null",
    "é",
    "B",
)
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
FACTS: dict[str, list[Any]] = {
    "n": [3, 3.5, "3", True, 1, None, [3], {"n": 3}, 2**53, 1e30, -0.5],
    "a.b": ["red", "it's", 'a "b"', "Grün", "", "a\\b", "l\nm", "null", "true", False, None, ["red"]],
}
VALUES: dict[str, list[Any]] = {
    "colour": ["red", "it's", 'a "b"', "Grün", "", "S", "%", "a\\b"],
    "pieces": [0, 2**53 + 1, -(2**63)],
    "price": [0.0, 2.25, 3.0, 1e-7, -1.0],
    "sold": [True, False],
    "facts.n": [3, 3.5, "3", True, 1, 1.0, False, 2**53, 1e30, 0],
    'facts."a.b"': ["red", "it's", 'a "b"', "Grün", "", "a\\b", "l\nm", "null", "true", False, "x"],
    'facts.of."it\'s"': [3, "3", True],
    "facts.none": [1, "red", False],
}
CONTRACT = Contract()


@dataclass
class StorePlace:
    """Where a store is made and found again.

    Args:
        url: Of a gallery that is not there yet.
        opened: What was opened, to be closed at the end.
    """

    url: str
    opened: list[Store] = field(default_factory=list)

    @property
    def lasting(self) -> bool:
        """Whether it outlives its process."""
        return self.url not in {store.in_memory for store in STORES.values()}

    def create(self, disk: Disk | None = None) -> Store:
        """Make the store."""
        self.opened.append(open_store(self.url, create=True, disk=disk))
        return self.opened[-1]

    def open(self, disk: Disk | None = None) -> Store:
        """Open once more; a gallery in RAM is where it was."""
        if self.lasting:
            self.opened.append(open_store(self.url, disk=disk))
        return self.opened[-1]

    def filled(self) -> Store:
        """Make the store with three generations, without items."""
        store = self.create()
        commit(store, Changes(create=generations(), remainders=remainders(WIDTHS)))
        return store

    def close(self) -> None:
        """Close what was opened."""
        for store in self.opened:
            store.close()


def store_contract(new_url: Callable[[Path], str]) -> list[Check]:
    """Return what a kind of store promises, as checks.

    Args:
        new_url: Returns the url of a gallery that is not there yet, given an empty folder that it may be put into.
    """
    return CONTRACT.checks(new_url=new_url)


def promise(**choices: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a promise about a place, which is made for it and cleared away afterwards."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(new_url: Callable[[Path], str], **chosen: Any) -> None:
            with tempfile.TemporaryDirectory() as folder:
                place = StorePlace(new_url(Path(folder)))
                try:
                    function(place, **chosen)
                finally:
                    place.close()

        return CONTRACT.promise(**choices)(run)

    return add


def generations() -> list[NewGeneration]:
    return [NewGeneration(name, width, COLUMNS) for name, width in WIDTHS.items()]


def remainders(names: Sequence[str] | Mapping[str, int]) -> list[tuple[str, frozenset[str]]]:
    """Every generation without every set of others."""
    found = []
    for name in names:
        others = [other for other in names if other != name]
        sets = {frozenset(others), *(frozenset([other]) for other in others)}
        found += [(name, chosen) for chosen in sorted(sets, key=sorted) if chosen]
    return found


def commit(store: Store, changes: Changes, manifest: Mapping[str, object] | None = None) -> Committed:
    with store.writing("a test"):
        return store.commit(changes, manifest or {}, {"kind": "test"})


def vectors(rng: np.random.Generator, rows: int, width: int) -> NDArray[np.float32]:
    """Vectors of few values whose inner products are exact in float32: many are equal."""
    drawn: NDArray[np.float32] = rng.integers(-2, 3, (rows, width)).astype(np.float32) / np.float32(2)
    return drawn


@dataclass
class Obvious:
    """What a store is, one item after another."""

    widths: dict[str, int] = field(default_factory=dict)
    items: dict[str, tuple[int, dict[str, Any], dict[str, NDArray[np.float32]]]] = field(default_factory=dict)
    sequence: int = 0

    def apply(self, changes: Changes) -> tuple[set[str], list[bool]]:
        """Apply changes; return what was deleted, and what was filled."""
        self.sequence += 1
        self.widths.update({new.name: new.width for new in changes.create})
        deleted = {identifier for identifier in changes.delete if self.items.pop(identifier, None)}
        touched = {*changes.delete}
        if changes.upsert:
            touched |= {*changes.upsert.ids}
            for identifier, metadata in zip(changes.upsert.ids, changes.upsert.metadata, strict=True):
                self.items[identifier] = (self.sequence, dict(metadata), {})
            for rows in changes.upsert.rows:
                for identifier, vector in zip(rows.ids, rows.vectors, strict=True):
                    self.items[identifier][2][rows.generation] = vector
        filled = (
            [self.fill(changes.fill, row, touched) for row in range(len(changes.fill.rows.ids))] if changes.fill else []
        )
        for name in changes.drop:
            del self.widths[name]
            for _, _, held in self.items.values():
                held.pop(name, None)
        return deleted, filled

    def fill(self, fill: Fill, row: int, touched: set[str]) -> bool:
        """Fill one row, if nothing changed its item."""
        identifier, name = fill.rows.ids[row], fill.rows.generation
        if identifier not in self.items or identifier in touched:
            return False
        version, _, held = self.items[identifier]
        if version != fill.versions[row] or name in held:
            return False
        held[name] = fill.rows.vectors[row]
        return True

    def held(self) -> Counter[frozenset[str]]:
        """Count the items by the generations that they are in."""
        return Counter(frozenset(held) for _, _, held in self.items.values())

    def search(
        self, query: NDArray[np.float32], k: int, name: str, without: frozenset[str], where: Filter | None
    ) -> list[Any]:
        """Return the hits of one query: id, score and metadata, best first."""
        found = []
        for identifier, (_, metadata, held) in self.items.items():
            if name in held and not without & held.keys() and (where is None or met(where, metadata)):
                score = sum(float(left) * float(right) for left, right in zip(query, held[name], strict=True))
                found.append((-score, identifier, metadata))
        return [
            (identifier, -score, metadata) for score, identifier, metadata in sorted(found, key=lambda hit: hit[:2])[:k]
        ]


def met(where: Filter, metadata: Mapping[str, object]) -> bool:
    """Say whether an item meets a filter."""
    match where:
        case And(parts):
            return all(met(part, metadata) for part in parts)
        case Or(parts):
            return any(met(part, metadata) for part in parts)
        case Not(part):
            return not met(part, metadata)
    found: Any = metadata
    for key in path_of(where.column):
        found = found.get(key) if isinstance(found, dict) else None
    match where:
        case Exists():
            return found is not None
        case In(_, values):
            return any(found == value and alike(found, value) for value in values)
        case Condition(_, comparison, value):
            return alike(found, value) and COMPARE[comparison](found, value)


def alike(left: object, right: object) -> bool:
    """Say whether two values are of one type, all numbers of the same."""
    kinds = [float if type(value) is int else type(value) for value in (left, right)]
    return kinds[0] is kinds[1]


def drawn_filter(rng: np.random.Generator, depth: int = 3) -> Filter:
    """Draw a filter of any sort over `COLUMNS`, with values that items have and values that none has."""
    kind = int(rng.integers(6 if depth else 3))
    if kind > 2:
        parts = tuple(drawn_filter(rng, depth - 1) for _ in range(rng.integers(0, 4)))
        return (And(parts), Or(parts), Not(drawn_filter(rng, depth - 1)))[kind - 3]
    column = list(VALUES)[rng.integers(len(VALUES))]
    values = VALUES[column]
    if kind == 0:
        return Exists(column)
    if kind == 1:
        return In(column, tuple(values[place] for place in rng.integers(0, len(values), rng.integers(0, 4))))
    value = values[rng.integers(len(values))]
    signs = ("=", "!=") if "." in column and isinstance(value, (str, bool)) else tuple(COMPARE)
    return Condition(column, signs[rng.integers(len(signs))], value)


def history(rng: np.random.Generator, model: Obvious, read: list[Items]) -> Changes:
    """Draw changes of every sort; the fill uses what was read a while ago."""

    def pick(most: int) -> list[str]:
        return [str(name) for name in rng.permutation(NAMES)[: rng.integers(0, most)]]

    ids, names = pick(9), sorted(model.widths)
    holding = {identifier: rng.permutation(names)[: rng.integers(1, len(names) + 1)] for identifier in ids}
    rows = []
    for name in names:
        having = [identifier for identifier in ids if name in holding[identifier]]
        rows.append(Rows(name, having, vectors(rng, len(having), model.widths[name])))
    name = str(rng.choice(names))
    known = read[int(rng.integers(max(0, len(read) - 3), len(read)))]
    fill = Rows(name, known.ids, vectors(rng, len(known), model.widths[name]))
    return Changes(
        delete=[*pick(4), "unknown"],
        upsert=Upsert(ids, [metadata(rng) for _ in ids], rows) if rng.random() < 0.8 else None,
        fill=Fill(fill, known.versions) if rng.random() < 0.8 else None,
    )


def metadata(rng: np.random.Generator) -> Metadata:
    """Draw values, some of which are missing."""
    values: dict[str, Json] = {
        "colour": ["red", "it's", 'a "b"', "Grün", "", "RED", "a\\b", "100%"][rng.integers(8)],
        "pieces": [-3, 0, 7, 2**53 + 1, -(2**63)][rng.integers(5)],
        "price": [-0.5, 0.0, 2.25, 1e-7, 1e30, 3][rng.integers(6)],
        "sold": bool(rng.integers(2)),
    }
    facts = {key: listed[rng.integers(len(listed))] for key, listed in FACTS.items() if rng.random() < 0.7}
    found = {name: value for name, value in values.items() if rng.random() < 0.7}
    return found | ({"facts": {**facts, "of": {"it's": facts.get("n")}}} if rng.random() < 0.7 else {})


def state(store: Store, names: Mapping[str, int] = WIDTHS) -> dict[str, Sequence[object]]:
    """Everything that can be read of a store, as plain values."""
    everything = store.scan(limit=1000)
    found: dict[str, Sequence[object]] = {
        "pointer": (store.pointer().sequence, store.pointer().manifest, store.pointer().held),
        "items": [everything.ids, everything.versions.tolist(), everything.generations, everything.metadata],
        "journal": [(entry.sequence, entry.event) for entry in store.journal()],
    }
    for name in names:
        ids, rows = store.vectors(name, everything.ids)
        found[name] = (ids, rows.tolist())
        stored = [
            (identifier, int(version), row.tolist())
            for batch in store.scan_rows(name, batch=3)
            for identifier, version, row in zip(*batch, strict=True)
        ]
        versions = dict(zip(everything.ids, everything.versions.tolist(), strict=True))
        assert sorted(stored) == sorted((one, versions[one], row) for one, row in zip(ids, rows.tolist(), strict=True))
    return found


def same_as(store: Store, model: Obvious) -> None:
    """Compare everything but searches with the obvious store."""
    found, ids = state(store, model.widths), sorted(model.items)
    held = {names: count for names, count in model.held().items() if count}
    assert found["pointer"][0] == model.sequence and found["pointer"][2] == held
    assert store.pointer().items == len(ids)
    assert store.pointer().covered(["g1", "g3"]) == sum(count for names, count in held.items() if names & {"g1", "g3"})
    assert found["items"] == [
        ids,
        [model.items[one][0] for one in ids],
        [frozenset(model.items[one][2]) for one in ids],
        [model.items[one][1] for one in ids],
    ]
    for name in model.widths:
        having = [one for one in ids if name in model.items[one][2]]
        assert found[name] == (having, [model.items[one][2][name].tolist() for one in having])
        assert store.upkeep(name).rows == len(having)
        lacking = store.scan(limit=1000, lacking=name)
        assert lacking.ids == [one for one in ids if one not in having]


def same_searches(
    store: Store, model: Obvious, at: Pointer, rng: np.random.Generator, where: Filter | None = None
) -> None:
    """Compare a search in every generation and remainder with the obvious store."""
    for name, without in [*((name, frozenset[str]()) for name in model.widths), *remainders(sorted(model.widths))]:
        queries, k = vectors(rng, 3, model.widths[name]), int(rng.choice([1, 4, 50]))
        hits = store.search(queries, k, generation=name, without=without, where=where, at=at)
        for query, ids, scores, found in zip(queries, hits.ids, hits.scores, hits.metadata, strict=True):
            expected = model.search(query, k, name, without, where)
            assert (ids, scores.tolist()) == ([hit[0] for hit in expected], [hit[1] for hit in expected])
            assert found == [hit[2] for hit in expected]
            assert scores.dtype == np.float32


@promise(seed=[0, 1])
def a_random_history_leaves_what_an_obvious_store_has(place: StorePlace, seed: int) -> None:
    rng, model = np.random.default_rng(seed), Obvious()
    store = place.create()
    first = Changes(create=generations(), remainders=remainders(WIDTHS))
    commit(store, first), model.apply(first)
    read, before = [store.scan(limit=1000)], (store.pointer(), deepcopy(model))
    for step in range(7):
        changes = history(rng, model, read)
        done = commit(store, changes, {"step": step})
        deleted, filled = model.apply(changes)
        assert set(done.deleted) == deleted and done.filled.tolist() == filled
        assert done.pointer.manifest == {"step": step} == store.pointer().manifest
        same_as(store, model)
        if step % 3 == 0:
            same_searches(store, before[1], before[0], rng)
        same_searches(store, model, store.pointer(), rng)
        before = (store.pointer(), deepcopy(model))
        read.append(store.scan(limit=1000))
    drop = Changes(drop=["g2"], remainders=remainders(["g1", "g3"]))
    commit(store, drop), model.apply(drop)
    assert not any("g2" in names for names in store.pointer().held)
    same_as(store, model)
    same_searches(store, model, store.pointer(), rng)
    same_as(place.open(), model)
    same_searches(place.open(), model, place.open().pointer(), rng)


@promise()
def filters_of_every_comparison_and_type(place: StorePlace) -> None:
    store = place.filled()
    rng, model = np.random.default_rng(2), Obvious(dict(WIDTHS), sequence=1)
    ids = [f"{name}{number}" for name in NAMES for number in range(3)]
    rows = [Rows(name, ids if name == "g1" else ids[::2], vectors(rng, len(ids[:: 1 if name == "g1" else 2]), width))
            for name, width in WIDTHS.items()]  # fmt: skip
    changes = Changes(upsert=Upsert(ids, [metadata(rng) for _ in ids], rows))
    commit(store, changes), model.apply(changes)
    matched = 0
    for column, known in VALUES.items():
        for sign in COMPARE:
            for value in known:
                where: Filter = Condition(column, sign, value)
                if "." in column and isinstance(value, (str, bool)) and sign not in ("=", "!="):
                    continue
                hits = store.search(np.ones((1, 4), np.float32), 99, generation="g1", where=where, at=store.pointer())
                expected = model.search(np.ones(4, np.float32), 99, "g1", frozenset(), where)
                assert hits.ids[0] == [hit[0] for hit in expected], where
                matched += len(expected)
    assert matched > 300
    same_searches(
        store, model, store.pointer(), rng, And((Condition("price", "<", 3.0), Not(Condition("colour", "=", "it's"))))
    )
    long = In("colour", (*(f"it's {number}" for number in range(5000)), "red"))
    for where in (long, *(drawn_filter(rng) for _ in range(60))):
        hits = store.search(np.ones((1, 4), np.float32), 99, generation="g1", where=where, at=store.pointer())
        expected = model.search(np.ones(4, np.float32), 99, "g1", frozenset(), where)
        assert hits.ids[0] == [hit[0] for hit in expected], where


@promise()
def ids_are_ordered_by_their_characters_and_come_in_pages(place: StorePlace) -> None:
    store = place.filled()
    rng = np.random.default_rng(0)
    commit(store, Changes(upsert=Upsert(NAMES, [{}] * len(NAMES), [Rows("g1", NAMES, vectors(rng, len(NAMES), 4))])))
    pages, after = [], ""
    while len(page := store.scan(after=after, limit=4)):
        pages.append(page.ids)
        after = page.ids[-1]
    assert [len(page) for page in pages] == [4, 4, 4, 4, 1]
    assert [identifier for page in pages for identifier in page] == sorted(NAMES)


@promise()
def what_is_asked_for_comes_in_the_order_asked(place: StorePlace) -> None:
    store = place.filled()
    found = np.arange(12, dtype=np.float32).reshape(3, 4)
    commit(
        store,
        Changes(
            upsert=Upsert(["a", "b", "c"], [{"pieces": n} for n in range(3)], [Rows("g1", ["c", "b", "a"], found)])
        ),
    )
    items = store.fetch(["c", "missing", "a", "c"])
    assert items.ids == ["c", "a"] and [one["pieces"] for one in items.metadata] == [2, 0]
    ids, rows = store.vectors("g1", ["b", "missing", "c", "b"])
    assert ids == ["b", "c"] and rows.tolist() == [found[1].tolist(), found[0].tolist()] and rows.dtype == np.float32
    assert store.vectors("g2", ["a"])[1].shape == (0, 6) and store.fetch([]).ids == []


@promise(as_read=[False, True])
def a_fill_spares_what_changed_vanished_or_is_there(place: StorePlace, as_read: bool) -> None:
    store = place.filled()
    rows = Rows("g1", ["same", "written", "gone", "there"], np.ones((4, 4), np.float32))
    commit(
        store, Changes(upsert=Upsert(rows.ids, [{}] * 4, [rows, Rows("g2", ["there"], np.ones((1, 6), np.float32))]))
    )
    read = store.fetch(["same", "written", "gone", "there"])
    commit(
        store, Changes(delete=["gone"], upsert=Upsert(["written"], [{}], [Rows("g1", ["written"], rows.vectors[:1])]))
    )
    fill = Fill(Rows("g2", read.ids, np.full((4, 6), 2, np.float32)), read.versions, read if as_read else None)
    done = commit(store, Changes(fill=fill))
    assert done.filled.tolist() == [True, False, False, False]
    assert store.vectors("g2", ["same", "written", "gone", "there"])[0] == ["same", "there"]
    assert store.vectors("g2", ["there"])[1].tolist() == [[1.0] * 6]
    assert store.fetch(["same"]).versions.tolist() == [2], "a fill writes no item"
    assert done.pointer.held == {frozenset({"g1", "g2"}): 2, frozenset({"g1"}): 1}


@promise()
def an_item_deleted_and_written_in_one_commit_is_written(place: StorePlace) -> None:
    store = place.filled()

    def both(value: int) -> Rows:
        return Rows("g2", ["a"], np.full((1, 6), value, np.float32))

    commit(store, Changes(upsert=Upsert(["a"], [{}], [Rows("g1", ["a"], np.ones((1, 4), np.float32)), both(1)])))
    done = commit(store, Changes(delete=["a"], upsert=Upsert(["a"], [{"colour": "new"}], [both(2)])))
    assert list(done.deleted) == ["a"] and done.pointer.held == {frozenset({"g2"}): 1}
    assert store.vectors("g1", ["a"])[0] == [] and store.vectors("g2", ["a"])[1].tolist() == [[2.0] * 6]


@promise()
def versions_that_are_given_are_kept(place: StorePlace) -> None:
    """As a gallery of several stores gives them, also to items without a vector."""
    store = place.filled()
    rows = Rows("g1", ["a"], np.ones((1, 4), np.float32))
    versions = np.array([70, 80])
    commit(store, Changes(upsert=Upsert(["a", "b"], [{"pieces": 1}, {}], [rows], versions)))
    for found in (store, place.open()):
        assert (found.fetch(["a", "b"]).versions.tolist(), found.pointer().sequence) == ([70, 80], 2)
        assert found.pointer().held == {frozenset({"g1"}): 1, frozenset(): 1}
        assert [(ids, of.tolist()) for ids, of, _ in found.scan_rows("g1")] == [(["a"], [70])]
    fill = Fill(Rows("g2", ["a", "b"], np.ones((2, 6), np.float32)), versions)
    assert commit(store, Changes(fill=fill)).filled.tolist() == [True, True]
    wrong = partial(Upsert, ["a", "b"], [{}, {}], [rows], versions[:1])
    refused(wrong, DataError, words="1 versions of 2 items")


@promise()
def a_commit_that_is_kept_can_be_searched_by_who_never_saw_its_pointer(place: StorePlace) -> None:
    store = place.filled()
    kept = commit(store, written("a")).pointer
    other = place.open()
    commit(store, Changes(delete=["a"], upsert=written("b").upsert))
    if other.keeps(kept.sequence):
        found = other.search(np.ones((1, 4), np.float32), 9, generation="g1", at=Pointer(kept.sequence, {}))
        assert found.ids == [["a"]]
    assert not other.keeps(99)


@promise()
def an_empty_store_answers_everything(place: StorePlace) -> None:
    store = place.create()
    assert (store.pointer().sequence, store.pointer().manifest, store.pointer().items) == (0, {}, 0)
    assert store.journal() == [] and store.scan(limit=5).ids == [] and store.traffic() == {}
    done = commit(store, Changes(create=generations()[:1]), {"made": [1, "two"]})
    assert done.pointer == store.pointer() == Pointer(1, {"made": [1, "two"]}, {}, store.journal()[0].time)
    hits = store.search(np.ones((2, 4), np.float32), 3, generation="g1", at=done.pointer)
    assert hits.ids == [[], []] and [len(scores) for scores in hits.scores] == [0, 0] and hits.metadata == [[], []]
    assert list(store.scan_rows("g1")) == [] and store.upkeep("g1").rows == 0
    assert store.search(np.ones((0, 4), np.float32), 3, generation="g1", at=done.pointer).ids == []


@promise()
def the_journal_has_every_commit_in_order(place: StorePlace) -> None:
    store = place.filled()
    for number in range(3):
        with store.writing("a test"):
            store.commit(Changes(), {}, {"kind": "count", "number": number, "deep": {"list": [1.5, None, "ü"]}})
    entries = store.journal(after=1)
    assert [entry.sequence for entry in entries] == [2, 3, 4]
    assert [entry.event["number"] for entry in entries] == [0, 1, 2] and entries[0].event["deep"] == {
        "list": [1.5, None, "ü"]
    }
    assert entries[0].time <= entries[1].time <= entries[2].time


@promise()
def files_are_kept_by_their_digests_in_the_commit_that_brings_them(place: StorePlace) -> None:
    store = place.filled()
    one, two, large = b"", b"\0\xff" * 9, np.random.default_rng(0).bytes(300_000)
    files = {digest_of(content): content for content in (one, two, large)}
    commit(store, Changes(files=files))
    commit(store, Changes(files={digest_of(two): two}))  # known already
    again = place.open()
    assert {digest: again.file(digest) for digest in files} == files
    unchanged(store, Changes(files={digest_of(one): two}), DataError, "file named sha256:")
    refused(lambda: store.file(digest_of(b"never")), GalleryError, words="has no file")
    commit(store, Changes(keep_files=[digest_of(two)], files={digest_of(b"new"): b"new"}))
    assert (again.file(digest_of(two)), again.file(digest_of(b"new"))) == (two, b"new")
    for content in (one, large):
        refused(partial(again.file, digest_of(content)), GalleryError, words="has no file")
    commit(store, Changes(keep_files=[]))
    refused(lambda: again.file(digest_of(two)), GalleryError, words="has no file")


@promise()
def order_and_traffic_are_kept_beside_the_pointer(place: StorePlace) -> None:
    store = place.filled()
    assert store.queue("g1") is None
    store.set_queue("g1", ["c", "a", "b'"])
    store.set_queue("g2", [])
    store.add_traffic({"a": 2, "b'": 1})
    store.add_traffic({"a": 3})
    again = place.open()
    assert (again.queue("g1"), again.queue("g2"), again.queue("g3")) == (["c", "a", "b'"], [], None)
    assert again.traffic() == {"a": 5, "b'": 1} and again.pointer().sequence == 1
    store.set_queue("g1", ["a"])
    assert again.queue("g1") == ["a"]
    store.set_queue("g1", None)
    assert again.queue("g1") is None
    commit(store, Changes(drop=["g2"], remainders=remainders(["g1", "g3"])))
    assert again.queue("g2") is None


@promise()
def upkeep_changes_no_answer(place: StorePlace) -> None:
    store = place.filled()
    rng, model = np.random.default_rng(3), Obvious(dict(WIDTHS), sequence=1)
    read = [store.scan(limit=1000)]
    for _ in range(4):
        changes = history(rng, model, read)
        commit(store, changes), model.apply(changes)
        read.append(store.scan(limit=1000))
    store.build_index("g1")
    with store.writing("tidying"):
        store.tidy(older_than=0.0)
    model.sequence = store.pointer().sequence  # both may have an entry in the journal
    assert store.upkeep("g1").bytes > 0
    model.sequence = store.pointer().sequence  # upkeep may be a commit of its own
    same_as(store, model)
    same_searches(store, model, store.pointer(), rng)


def unchanged(store: Store, changes: Changes, error: type[Exception], words: str) -> None:
    """Assert that a commit is refused and leaves everything as it was."""
    before = state(store)
    refused(lambda: commit(store, changes), error, words=words)
    assert state(store) == before, "a refused commit changed something"


@promise()
def what_does_not_fit_the_generations_is_refused(place: StorePlace) -> None:
    store = place.filled()

    def written(name: str, width: int, **values: Any) -> Changes:
        return Changes(upsert=Upsert(["x1"], [values], [Rows(name, ["x1"], np.ones((1, width), np.float32))]))

    commit(store, written("g1", 4))
    unchanged(store, written("g1", 5), DataError, "x1")
    unchanged(store, written("g9", 4), GalleryError, "g9")
    unchanged(store, written("g1", 4, shape="round"), DataError, "x1.*shape")
    unchanged(store, written("g1", 4, pieces=1.5), DataError, "x1.*pieces")
    unchanged(store, written("g1", 4, price=float("nan")), DataError, "x1.*price")
    unchanged(store, Changes(create=[NewGeneration("g1", 4, COLUMNS)]), GalleryError, "g1")
    unchanged(store, Changes(drop=["g9"]), GalleryError, "g9")
    unchanged(store, Changes(remainders=[("g1", frozenset({"g9"}))]), GalleryError, "g9")
    fill = Fill(Rows("g2", ["x1"], np.ones((1, 4), np.float32)), np.array([2]))
    unchanged(store, Changes(fill=fill), DataError, "x1")


@promise()
def questions_that_cannot_be_answered_are_refused(place: StorePlace) -> None:
    store = place.filled()
    at, query = store.pointer(), np.ones((1, 4), np.float32)
    wrong: list[tuple[NDArray[Any], int, str, str]] = [
        (query, 0, "g1", "0 hits"),
        (query, 1, "g2", "4 numbers"),
        (query * np.float32(np.nan), 1, "g1", "finite"),
        (query.astype(np.float64), 1, "g1", "float64"),
    ]
    for queries, k, name, words in wrong:
        refused(partial(store.search, queries, k, generation=name, at=at), DataError, words=words)
    questions: list[Callable[[], object]] = [
        lambda: store.search(query, 1, generation="g9", at=at),
        lambda: store.vectors("g9", ["a"]),
        lambda: store.scan(limit=1, lacking="g9"),
        lambda: list(store.scan_rows("g9")),
        lambda: store.upkeep("g9"),
        lambda: store.build_index("g9"),
    ]
    for ask in questions:
        refused(ask, GalleryError, words="g9")


class FailingDisk(Disk):
    """A disk that is full from one step on.

    Args:
        fail_at: At which named step, counted from 0; None for a disk with room.
    """

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at = fail_at
        self.points: list[str] = []

    def reached(self, point: str) -> None:
        """Fail, if it is time."""
        self.points.append(point)
        if self.fail_at is not None and len(self.points) > self.fail_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def everything_at_once(rng: np.random.Generator) -> tuple[Changes, Changes]:
    """Return a first commit, and one that creates, deletes, writes, fills and drops."""
    ids = ["a", "b", "c", "d"]
    first = [Rows(name, ids[:count], vectors(rng, count, WIDTHS[name])) for name, count in (("g1", 4), ("g2", 3))]
    second = [Rows(name, ["b", "e"], vectors(rng, 2, WIDTHS[name])) for name in ("g1", "g3")]
    return (
        Changes(
            create=generations()[:2],
            remainders=remainders(["g1", "g2"]),
            upsert=Upsert(ids, [{"pieces": 1}] * 4, first),
        ),
        Changes(
            create=generations()[2:],
            remainders=remainders(["g1", "g3"]),
            delete=["a"],
            upsert=Upsert(["b", "e"], [{"pieces": 2}] * 2, second),
            fill=Fill(Rows("g3", ["c", "d", "b"], vectors(rng, 3, 4)), np.array([1, 1, 1])),
            drop=["g2"],
        ),
    )


@promise()
def a_commit_that_fails_at_any_step_leaves_everything_as_it_was(place: StorePlace) -> None:
    rng, disk, model = np.random.default_rng(4), FailingDisk(), Obvious()
    store = place.create(disk)
    first, second = everything_at_once(rng)
    commit(store, first), model.apply(first)
    before, steps = state(store, {"g1": 4, "g2": 6}), 0
    while True:
        disk.points, disk.fail_at = [], steps
        try:
            done = commit(store, second)
            break
        except StoreError as error:
            assert "No space left" in str(error)
        disk.fail_at = None
        for found in (store, place.open()):
            assert state(found, {"g1": 4, "g2": 6}) == before
            same_searches(found, model, found.pointer(), rng)
        steps += 1
    assert steps >= 2 and "database.commit" in disk.points
    model.apply(second)
    assert done.filled.tolist() == [True, True, False]
    for found in (store, place.open()):
        same_as(found, model)
        same_searches(found, model, found.pointer(), rng)


@promise()
def a_write_outside_of_writing_is_refused(place: StorePlace) -> None:
    store = place.filled()
    refused(lambda: store.commit(Changes(), {}, {"kind": "test"}), GalleryError, words="writing")
    with store.writing("a test"):
        pass
    refused(lambda: store.commit(Changes(), {}, {"kind": "test"}), GalleryError, words="writing")
    assert store.pointer().sequence == 1


@promise()
def one_writer_at_a_time_and_the_next_sees_what_it_wrote(place: StorePlace) -> None:
    store = place.filled()
    other, refusals = place.open(), []

    def second() -> None:
        try:
            with other.writing("a second writer", timeout=0.05):
                refusals.append("none")
        except GalleryError as error:
            refusals.append(str(error))

    with store.writing("a long import") as pointer:
        assert pointer.sequence == 1
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        store.commit(Changes(), {"by": "first"}, {"kind": "test"})
        store.commit(Changes(), {"by": "first again"}, {"kind": "test"})
    assert "a long import" in refusals[0] and str(os.getpid()) in refusals[0] and "intact" in refusals[0]
    with other.writing("a second writer") as pointer:
        assert (pointer.sequence, pointer.manifest) == (3, {"by": "first again"})
        other.commit(Changes(delete=["a"]), {"by": "second"}, {"kind": "test"})
    assert store.pointer().manifest == {"by": "second"}


def written(identifier: str) -> Changes:
    rows = Rows("g1", [identifier], np.ones((1, WIDTHS["g1"]), np.float32))
    return Changes(upsert=Upsert([identifier], [{}], [rows]))


@promise()
def an_error_while_writing_lets_go_of_the_lock(place: StorePlace) -> None:
    store = place.filled()
    with suppress(KeyError), store.writing("one that fails"):
        raise KeyError
    assert commit(store, Changes()).pointer.sequence == 2


KILLED = """
import sys, time
import numpy as np
from limpet.engines.stores import STORES, open_store
from limpet.engines.store import Changes, Rows, Upsert
from limpet.support.disk import Disk

class Slow(Disk):
    def reached(self, point):
        if point == "database.commit":
            print("ready", flush=True)
            time.sleep(60)

store = open_store(sys.argv[1], disk=Slow())
with store.writing("one that is killed"):
    rows = Rows("g1", ["a", "new"], np.full((2, 4), 7, np.float32))
    store.commit(Changes(delete=["b"], upsert=Upsert(["a", "new"], [{}, {}], [rows])), {}, {"kind": "test"})
"""


@promise()
def what_a_killed_writer_had_not_finished_does_not_exist_and_its_lock_is_free(place: StorePlace) -> None:
    if not place.lasting:
        return
    rng, model, store = np.random.default_rng(5), Obvious(), place.create()
    first, second = everything_at_once(rng)
    commit(store, first), model.apply(first)
    before = state(store, {"g1": 4, "g2": 6})
    with subprocess.Popen([sys.executable, "-c", KILLED, place.url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        waiting = store.writing("me", timeout=0.05)
        refusal = refused(waiting.__enter__, GalleryError, words="one that is killed")
        assert str(process.pid) in str(refusal), "the refusal does not name the process that writes"
        assert state(store, {"g1": 4, "g2": 6}) == before, "readers go on"
        process.send_signal(signal.SIGKILL)
    for found in (store, place.open()):
        assert state(found, {"g1": 4, "g2": 6}) == before
        same_searches(found, model, found.pointer(), rng)
    commit(store, second), model.apply(second)
    for found in (store, place.open()):
        same_as(found, model)
        same_searches(found, model, found.pointer(), rng)


VISITOR = """
import sys
from limpet.engines.stores import STORES, open_store
store = open_store(sys.argv[1])
print(store.pointer().sequence, store.scan(limit=9).ids)
store.close()
"""


@promise()
def another_process_that_comes_and_goes_takes_nothing_along(place: StorePlace) -> None:
    if not place.lasting:
        return
    store = place.filled()
    rows = [Rows(name, ["a"], np.ones((1, width), np.float32)) for name, width in WIDTHS.items()]
    commit(store, Changes(upsert=Upsert(["a"], [{}], rows)))
    visit = [sys.executable, "-c", VISITOR, place.url]
    assert subprocess.run(visit, capture_output=True, text=True, check=True).stdout == "2 ['a']\n"
    commit(store, Changes(upsert=Upsert(["b"], [{}], [Rows("g1", ["b"], np.ones((1, 4), np.float32))])))
    for found in (store, place.open()):
        assert found.scan(limit=9).ids == ["a", "b"] and found.pointer().sequence == 3


@promise()
def a_search_goes_on_at_its_pointer_while_others_write(place: StorePlace) -> None:
    store = place.filled()
    ids, other = [f"i{number}" for number in range(20)], place.open()

    def written(value: int) -> Changes:
        rows = [Rows(name, ids, np.full((20, width), value, np.float32)) for name, width in WIDTHS.items()]
        return Changes(upsert=Upsert(ids, [{"pieces": value}] * 20, rows[: 1 + value % 3]))

    commit(store, written(3), {"value": 3})
    wrong: list[Any] = []
    done = threading.Event()

    def read(reader: Store) -> None:
        rounds = 0
        while rounds < 3 or not done.wait(0.005):  # so that the writer gets on
            at, rounds = reader.pointer(), rounds + 1
            value = cast(int, at.manifest["value"])
            hits = reader.search(np.ones((1, 4), np.float32), 50, generation="g1", at=at)
            there = 0 if value % 3 else 20
            rest = reader.search(np.ones((1, 4), np.float32), 50, generation="g1", without=frozenset({"g2"}), at=at)
            scores = {*hits.scores[0].tolist()}, {one["pieces"] for one in hits.metadata[0]}
            if (len(hits.ids[0]), scores, len(rest.ids[0])) != (20, ({4.0 * value}, {value}), there):
                wrong.append((value, len(hits.ids[0]), scores, len(rest.ids[0])))

    def guarded(reader: Store) -> None:
        try:
            read(reader)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=[reader]) for reader in (store, other)]
    for thread in threads:
        thread.start()
    for value in range(4, 16):
        commit(store, written(value), {"value": value})
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


@promise()
def what_another_object_writes_is_seen(place: StorePlace) -> None:
    store = place.filled()
    rng, other, model = np.random.default_rng(6), place.open(), Obvious(dict(WIDTHS), sequence=1)
    read = [store.scan(limit=1000)]
    for step in range(4):
        changes = history(rng, model, read)
        commit((store, other)[step % 2], changes), model.apply(changes)
        read.append(store.scan(limit=1000))
        for found in (store, other):
            same_as(found, model)
            same_searches(found, model, found.pointer(), rng)
