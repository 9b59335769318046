"""A random workload that depends only on its seed, applied to a gallery, its twin and the log of the trial."""

from __future__ import annotations

import fcntl
import json
import random
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from crash import world
from crash.disk import TrialDisk
from crash.log import TrialLog, unlimited
from crash.power import keep_all
from crash.shards import folder_of
from crash.twin import Op, Twin, Violation
from limpet.adapters.storage import save_adapter
from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Pointer
from limpet.errors import LimpetError, StoreError
from limpet.galleries import Gallery
from limpet.geometry import Space

WEIGHTS = {"add": 3, "upsert": 4, "delete": 3, "start": 2, "link": 1, "swap": 3, "backfill": 4, "finish": 2,
           "rollback": 2, "cancel": 1, "gc": 2, "reopen": 1}  # fmt: skip
KINDS = tuple(kind for kind in WEIGHTS if kind != "reopen")
TOWARDS = {
    "swap": ("start",), "finish": ("swap", "start"), "rollback": ("swap", "start"), "cancel": ("start",),
    "backfill": ("start",), "gc": ("cancel", "start"),
}  # fmt: skip
"""Steps that make a step possible, the last one first."""
BATCH = 10
ITEMS = 40
TURN = 300.0  # maximum seconds to wait for a turn; the lock has no queue


class Source:
    """Source of vectors of a backfill: it logs what it embeds, and lets other writes happen during a call.

    Args:
        driver: Driver of the trial.
        generation: Name of the generation that is backfilled.
        meanwhile: Operations to do during a call, by the number of the call.
    """

    def __init__(self, driver: Driver, generation: str, meanwhile: dict[int, Op]) -> None:
        self.driver, self.generation, self.meanwhile = driver, generation, meanwhile
        self.fingerprint = driver.twin.models[generation]
        self.calls = 0

    @property
    def space(self) -> Space:
        """Space of the gallery."""
        return world.SPACES[self.driver.twin.space]

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Embed the current items, then do the operations of this call, which change some of them."""
        twin, self.calls = self.driver.twin, self.calls + 1
        known = [one for one in ids if not world.unknown_to(self.fingerprint, one)]
        self.driver.tell("embed", self.generation, known, self.driver.sequence())
        contents = [(one, twin.items[one].content) for one in known]
        made = world.embedded(self.fingerprint, contents, self.space)
        for op in [self.meanwhile[number] for number in self.meanwhile if int(number) == self.calls]:
            self.driver.do(_aimed(op, ids, twin))
        return made


def _aimed(op: Op, ids: Sequence[str], twin: Twin) -> Op:
    """Return an operation on some of the items that are being embedded."""
    chosen = [one for one in list(ids)[:: op["every"]] if one in twin.items]
    if op["kind"] == "delete":
        return {"kind": "delete", "ids": chosen}
    contents = twin.contents + 1
    return {"kind": "upsert", "items": [[one, contents, [twin.active]] for one in chosen], "contents": contents}


class Driver:
    """Does operations on a gallery, and logs them; the twin follows the log.

    Args:
        url: URL of the gallery.
        log: Log of the trial.
        disk: Disk of the gallery.
        shared: Whether another process also writes to the gallery and to the log.
    """

    def __init__(self, url: str, log: TrialLog, disk: TrialDisk, *, shared: bool = False) -> None:
        self.url, self.log, self.disk, self.shared = url, log, disk, shared
        self.gallery: Gallery | None = None
        self.twin, self._fed = Twin(), 0
        self.catch_up()

    def tell(self, *line: Any) -> None:
        """Write a line to the log, and pass it to the twin."""
        self.log.write(*line)
        self.catch_up()

    def catch_up(self) -> None:
        """Pass new lines of the log to the twin."""
        with self.log.path.open("rb") as file:
            file.seek(self._fed)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._fed += len(whole)
        for line in whole.splitlines():
            self.twin.feed(json.loads(line))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock the gallery for writing if it is shared, and take over what other processes wrote.

        Raises:
            Violation: Another process writes although this one holds the lock.
        """
        if not self.shared:
            yield
            return
        with self.open().store.writing("a turn", timeout=TURN), self._witnessed():
            self.catch_up()
            if self.twin.doing:  # a killed process has not completed this operation
                if self.disk.kept is not None:  # what this process can read counts as durable
                    keep_all(folder_of(self.url), self.disk.kept)
                self.tell("died", self.sequence())
            yield

    def _is_ghost(self) -> bool:
        """Return whether the last commit is one that other processes could not see when its process died."""
        ghost = self.twin.ghost
        if ghost is None or self.sequence() != ghost.sequence:
            return False
        items = self.open().store.scan(limit=10**6)
        there = list(zip(items.ids, items.versions.tolist(), map(set, items.generations), strict=True))
        return there == [(one, item.version, item.holding) for one, item in sorted(ghost.items.items())]

    @contextmanager
    def _witnessed(self) -> Iterator[None]:
        """Hold a second lock, which the gallery does not use and no child inherits, to prove that only one writes."""
        with self.log.path.with_name("witness").open("w") as witness:
            try:
                fcntl.lockf(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Violation("one writer", "two processes write at the same time") from error
            yield

    def open(self) -> Gallery:
        """Open the gallery, and tell the twin at which commit it is.

        Raises:
            Violation: The gallery does not open, or is at an impossible commit.
        """
        if self.gallery is None:
            try:
                self.gallery = Gallery.open(self.url, disk=self.disk)
            except LimpetError as error:
                raise Violation("opens", f"{type(error).__name__}: {error}") from error
            if not self.shared:
                self.tell(*(["ghost"] if self._is_ghost() else ["opened", self.sequence()]))
        return self.gallery

    def open_or_create(self, script: Script) -> None:
        """Open the gallery; create it if its creation was never acknowledged and it is not there."""
        if self.twin.sequence == 0:
            found = 0
            try:
                with Gallery.open(self.url, disk=TrialDisk(self.log, kept=self.disk.kept)) as gallery:
                    found = gallery.store.pointer().sequence
            except LimpetError:
                pass
            self.tell("opened", found)
            if not found:
                self.create(script)
                return
        self.open()
        with self.turn():
            if not self.twin.items:
                self.do(script.filling(self.twin, ITEMS))

    def create(self, script: Script) -> None:
        """Create the gallery and add items."""
        self.do(script.creation())
        with self.turn():
            self.do(script.filling(self.twin, ITEMS))

    def close(self) -> None:
        """Close the gallery."""
        if self.gallery is not None:
            self.gallery.close()
            self.gallery = None

    def do(self, op: Op) -> Any:
        """Do an operation, and log its begin and end.

        Returns:
            Result of the operation, which is also in the log.

        Raises:
            StoreError: The disk failed; the current commit of the gallery was logged.
            Violation: The gallery refused a possible operation, or its result is wrong.
        """
        self.tell("begin", op)
        outer, self.disk.kind = self.disk.kind, op["kind"]
        try:
            result = getattr(self, f"_{op['kind']}")(op)
            self.disk.reached("driver.acknowledge")
        except StoreError:
            if outer:
                raise
            self.disk.revive()
            with unlimited():
                self.tell("failed", self.sequence())
            raise
        except LimpetError as error:
            raise Violation("refused", f"{op} is possible and was refused: {type(error).__name__}: {error}") from error
        finally:
            self.disk.kind = outer
        self.tell("done", result)
        return result

    def sequence(self) -> int:
        """Return the number of the last commit of the gallery; 0 without an open gallery."""
        if self.gallery is None:
            return 0
        return self.gallery.store.pointer().sequence

    def _create(self, op: Op) -> None:
        self.gallery = Gallery.create(
            self.url, fingerprint=op["model"], space=world.SPACES[op["space"]], columns=world.COLUMNS, disk=self.disk
        )

    def _upsert(self, op: Op) -> int:
        twin, items = self.twin, op["items"]
        names = [name for name in twin.models if any(name in holding for _, _, holding in items)]
        sets = [self._set(name, [one[:2] for one in items if name in one[2]]) for name in names]
        contents = {identifier: content for identifier, content, _ in items}
        ids = list(dict.fromkeys(one for embeddings in sets for one in embeddings.ids))
        values = [world.metadata(contents[identifier]) for identifier in ids]
        columns = {name: [value[name] for value in values] for name in world.COLUMNS}
        write = self.open().add if op["kind"] == "add" else self.open().upsert
        return write(*sets, metadata=columns)

    _add = _upsert

    def _set(self, generation: str, contents: list[tuple[str, int]]) -> EmbeddingSet:
        return world.embedded(self.twin.models[generation], contents, world.SPACES[self.twin.space])

    def _delete(self, op: Op) -> int:
        there = len(set(op["ids"]) & set(self.twin.items))
        deleted = self.open().delete(op["ids"])
        if deleted != there:
            raise Violation("deleted", f"{deleted} of {there} items were deleted")
        return deleted

    def _start(self, op: Op) -> str:
        space = world.SPACES[self.twin.space]
        if "adapter" not in op:
            return self.open().start(op["model"], space).name
        folder, models = self.log.path.with_name("adapter"), (op["model"], self.twin.models[self.twin.active])
        with unlimited():
            shutil.rmtree(folder, ignore_errors=True)
            save_adapter(world.adapter(*models, op["adapter"]), folder)
        name = self.open().start(op["model"], space, adapter=folder).name
        with unlimited():  # another adapter in the same folder must not change the gallery
            shutil.rmtree(folder)
            save_adapter(world.adapter(*models, op["adapter"] + 1), folder)
        return name

    def _link(self, op: Op) -> None:
        self.open().link(op["query"], op["gallery"], force="a trial")

    def _swap(self, op: Op) -> None:
        self.open().swap(force="a trial")

    def _backfill(self, op: Op) -> list[Any]:
        target = self.twin.started or self.twin.active
        source = Source(self, target, op["meanwhile"])
        done = self.open().backfill(
            source,
            batch=op["batch"],
            budget=op["budget"],
            order=op["order"],
            seed=op["seed"],
            retries=0,
            pieces=op["pieces"],
        )
        return [done.embedded, done.written, done.lacking, self.sequence()]

    def _rollback(self, op: Op) -> int:
        twin = self.twin
        expected = twin.lacking([twin.previous[-1]])
        only_new = self.open().rollback()
        if only_new != expected:
            raise Violation("rollback", f"{only_new} items are said to have a new vector only, {expected} have")
        return only_new

    def _finish(self, op: Op) -> list[int]:
        return self._spare(
            self.twin.previous[-1], lambda: self.open().finish(allow_missing=len(self.twin.items)).lacking
        )

    def _cancel(self, op: Op) -> list[int]:
        return self._spare(self.twin.started or "", self.open().cancel)

    def _gc(self, op: Op) -> list[int]:
        older_than = op["older_than"]
        return self._spare(self.twin.active, lambda: self.open().gc(older_than=older_than), spares=older_than > 0)

    def _spare(self, generation: str, step: Callable[[], Any], *, spares: bool = True) -> list[int]:
        """Do a step that removes vectors, and check that a reader of the commit before still gets the same results.

        PostgreSQL keeps no history, so the reader there searches the active generation.

        Returns:
            The number of the last commit, in a list.

        Raises:
            Violation: The reader got other results.
        """
        store = self.open().store
        read = self.twin.active if store.kind == "postgresql" else generation
        before = store.pointer()
        pinned = self._pinned(read, before)
        step()
        if spares and self._pinned(read, before) != pinned:
            raise Violation("pinned", "a reader of the commit before finds something else after it")
        return [self.sequence()]

    def _pinned(self, generation: str, at: Pointer) -> list[list[str]]:
        """Return the results of a reader that read the pointer earlier."""
        queries = self._set(generation, [("query", 0)])
        form = queries.space.index_form(queries.vectors, "query")
        return self.open().store.search(form, 5, generation=generation, at=at).ids


class Script:
    """Chooses random operations, among those that the twin says are possible.

    Args:
        seed: Seed of all random choices.
        wanted: Kind of operation that should occur often; None for none.
        kinds: Allowed kinds of operations.
        spares: Whether gc always keeps what readers may need.
    """

    def __init__(
        self, seed: int, wanted: str | None = None, *, kinds: Collection[str] = tuple(WEIGHTS), spares: bool = False
    ) -> None:
        self.chance, self.wanted = random.Random(seed), wanted if wanted in WEIGHTS else None
        self.kinds, self.spares = kinds, spares

    def creation(self) -> Op:
        """Return the creation of a gallery."""
        space = self.chance.choice([*world.SPACES, "hypersphere"])
        return {"kind": "create", "model": self._model(), "space": space}

    def filling(self, twin: Twin, count: int) -> Op:
        """Return an operation that adds this many items with vectors of the active model."""
        return self._writing("add", [f"item {number:04d}" for number in range(count)], twin, ["active"])

    def next(self, twin: Twin) -> Op:
        """Return the next operation."""
        kind = self._kind(twin)
        make = getattr(self, f"_{kind}", None)
        return {"kind": kind} if make is None else make(twin)

    def next_write(self, twin: Twin) -> Op:
        """Return the next operation other than reopening the gallery."""
        op = self.next(twin)
        return op if op["kind"] != "reopen" else self.next_write(twin)

    def _kind(self, twin: Twin) -> str:
        if self.wanted is not None and self.chance.random() < 0.6:
            for kind in (self.wanted, *TOWARDS.get(self.wanted, ())):
                if self._sensible(kind, twin):
                    return kind
        kinds = [kind for kind in WEIGHTS if kind in self.kinds and self._sensible(kind, twin)]
        return self.chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]

    def _sensible(self, kind: str, twin: Twin) -> bool:
        if kind == "start" and self.wanted == "backfill" and twin.lacking([twin.active]):
            return False
        lacking = twin.lacking([twin.started or twin.active])
        there = {"delete": len(twin.items) > 15, "add": len(twin.items) < 80, "upsert": bool(twin.items),
                 "link": len(twin.models) > 1, "backfill": lacking > 0}  # fmt: skip
        return there.get(kind, True) and twin.possible(kind)

    def _model(self) -> str:
        return f"declared:model {self.chance.randrange(10**9)}"

    def _add(self, twin: Twin) -> Op:
        numbers = self.chance.sample(range(2000), self.chance.randint(1, 5))
        ids = sorted({f"item {number:04d}" for number in numbers} - set(twin.items)) or [f"item {twin.contents + 9000}"]
        dead = sorted(twin.dead)
        if dead and self.chance.random() < 0.3:
            ids.append(self.chance.choice(dead))
        return self._writing("add", list(dict.fromkeys(ids)), twin)

    def _upsert(self, twin: Twin) -> Op:
        ids = self.chance.sample(sorted(twin.items), min(len(twin.items), self.chance.randint(1, 6)))
        if self.chance.random() < 0.3:
            ids.append(f"item {self.chance.randrange(2000, 4000)}")
        return self._writing("upsert", ids, twin)

    def _writing(self, kind: str, ids: list[str], twin: Twin, whose: list[str] | None = None) -> Op:
        """Return a write with vectors of the active model, of another model, of both, or a mixture of these."""
        others = [name for name in twin.models if name != twin.active]
        whose = whose or ["active", "active", *(["other", "both", "mixed"] if others else [])]
        choice, other = self.chance.choice(whose), self.chance.choice(others or [twin.active])
        kinds = {"active": [twin.active], "other": [other], "both": [twin.active, other]}
        contents = twin.contents + 1
        items = [
            [one, contents, kinds[self.chance.choice(sorted(kinds)) if choice == "mixed" else choice]] for one in ids
        ]
        return {"kind": kind, "items": items, "contents": contents}

    def _delete(self, twin: Twin) -> Op:
        ids = self.chance.sample(sorted(twin.items), self.chance.randint(1, 4))
        return {"kind": "delete", "ids": [*ids, *self.chance.sample(["nobody", "nothing"], self.chance.randint(0, 1))]}

    def _start(self, twin: Twin) -> Op:
        op: Op = {"kind": "start", "model": self._model()}
        if twin.space == "hypersphere" and self.chance.random() < 0.3:
            op["adapter"] = self.chance.randrange(1000)
        return op

    def _link(self, twin: Twin) -> Op:
        query, gallery = self.chance.sample(list(twin.models), 2)
        return {"kind": "link", "query": query, "gallery": gallery}

    def _backfill(self, twin: Twin) -> Op:
        meanwhile = {}
        if self.chance.random() < 0.5:
            kind = self.chance.choice(["delete", "upsert"])
            meanwhile[str(self.chance.randint(1, 3))] = {"kind": kind, "every": self.chance.randint(2, 4)}
        return {
            "kind": "backfill",
            "batch": self.chance.choice([5, BATCH]),
            "budget": self.chance.choice([None, None, 12, 25]),
            "order": self.chance.choice(["id", "id", "random"]),
            "seed": self.chance.randrange(100),
            "pieces": self.chance.choice([2, 16]),
            "meanwhile": meanwhile,
        }

    def _gc(self, twin: Twin) -> Op:
        return {"kind": "gc", "older_than": 3600.0 if self.spares else self.chance.choice([0.0, 3600.0])}


def play(driver: Driver, script: Script, count: int) -> None:
    """Do this many operations."""
    for _ in range(count):
        with driver.turn():
            op = script.next(driver.twin)
            if op["kind"] != "reopen":
                driver.do(op)
        if op["kind"] == "reopen":
            driver.close()
            driver.open()
