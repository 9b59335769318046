"""Upgrades of a collection of a real server that are killed at random, while applications write.

As in `crash.attached`, an operator process takes steps, and two application processes write their own rows and log what
they are about to write and what was acknowledged. SIGKILL ends the operator, an application, or the server. The steps
include declarations, and swaps and rollbacks with and without a declaration, in any order. Applications call `current`
before and after every write, and repeat the write if the answer has changed. They delete a row `everywhere`; a row that
existed at the last comparison is sometimes deleted only in the collection to write. They rest between bursts of writes.
The moment between the last comparison and a declaration is prolonged, and they write immediately in it.

One race is excluded, because no service has conditional writes: while the operator reads and then writes a row on the
side that applications write, applications wait (`Moment`).

A watcher continuously reads the whole collection that `current` names: each row must have the vector that the model of
that collection makes of its text. After every few kills the applications stop, backfill passes are made, and both
collections are compared with the logs of the applications. A round ends with `finish` or `cancel`; the active
collection must then hold exactly what was logged.

The servers are those of `crash.milvus` and `crash.chroma`. `crash.qdrant` does the same in Qdrant folders, with the
steps and the planted bugs of this file.
"""

from __future__ import annotations

import fcntl
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from crash.attached import Memory, Tally, forking, remembered
from crash.shop import NEW, OLD, made_by, vector
from limpet.attached.collections import attachment as passes
from limpet.attached.collections.attachment import CollectionAttachment
from limpet.attached.collections.opening import current, everywhere, start
from limpet.engines.sides import OTHER, ModelSide
from limpet.errors import GalleryError, LimpetError

ROWS, APPLICATIONS, KILLS, CHECKED = 20, 2, 25, 8
PAUSE, BURST, REST = 0.05, 20, 5.0
"""Seconds between two actions of an application, number of actions in a burst, and seconds of rest between two bursts.
The rest is needed because a swap or a declaration requires a comparison that finds nothing to do."""
PATIENCE = 300.0
VICTIMS = ("operator",) * 13 + ("application",) * 5 + ("server",)
Row = dict[str, Any]


class Place(Protocol):
    """A module with a service, and a client that reads and writes its rows."""

    ERRORS: tuple[type[Exception], ...]
    service: Callable[[], AbstractContextManager[Any]]
    Client: Callable[[str], Any]
    Application: Callable[[str, str], Any]


def place_of(name: str) -> Place:
    """Return the module of a place by name."""
    place: Place = import_module(f"crash.{name}")  # type: ignore[assignment]
    return place


def patiently(call: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Any:
    """Repeat a call until a killed server answers again."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except errors + (GalleryError,):  # noqa: RUF005 - mypy knows of no tuple in a tuple
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def application(place: str, service_url: str, url: str, log: Path, first: int, seed: int, stop: Any) -> None:
    """Write rows into the collection to write, and log every write, until told to stop and one more action succeeded.

    Args:
        place: Name of the place.
        service_url: URL of the service.
        url: URL of the attachment.
        log: Log of the writes, which is continued.
        first: First id of the rows of this application.
        seed: Seed of all random choices.
        stop: Event that tells the application to stop.
    """
    draw, own, it = random.Random(seed), remembered(log), place_of(place)
    client = patiently(lambda: it.Client(service_url), it.ERRORS)
    with log.open("a", buffering=1) as told:
        stopping, done = False, 0
        while not stopping:
            stopping = stop.is_set()
            try:
                act(client, url, draw, own, told, first, Moment(log.parent))
            except it.ERRORS:  # the server or its connection died
                stopping = False
                client = patiently(lambda: it.Client(service_url), it.ERRORS)
            done += 1
            rests, now = done % BURST == 0, time.monotonic()
            time.sleep(PAUSE)
            while rests and time.monotonic() < now + REST and not (stop.is_set() or declaring(log).exists()):
                time.sleep(PAUSE)  # a process killed in wait() of an event would leave it locked


class Moment:
    """A lock that separates writes of applications from writes of the operator to the same side.

    If the operator is killed while it holds the lock, the server may still execute its request, so the server must be
    killed, too.

    Args:
        folder: Folder of the round.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "moment"

    @contextmanager
    def of_application(self) -> Iterator[None]:
        """Wait until no operator holds the lock, and no request of a killed one may be executed."""
        while True:
            with self.path.open("a+") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if not self.interrupted():
                    yield
                    return
            time.sleep(PAUSE)

    @contextmanager
    def of_operator(self) -> Iterator[None]:
        """Prevent applications from writing."""
        with self.path.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("begun")
            lock.flush()
            try:
                yield
            finally:
                lock.truncate(0)

    def interrupted(self) -> bool:
        """Return whether an operator holds the lock, or was killed while it held it."""
        return self.path.exists() and self.path.stat().st_size > 0

    def over(self) -> None:
        """Clear the state of a killed operator, after the server was killed."""
        self.path.write_text("")


def apart(moment: Moment) -> None:
    """Let the operator overwrite and remove rows on the side of the applications only while they do not write."""
    overwrite, tidy = passes._CollectionFill._overwrite, CollectionAttachment._tidy

    def overwritten(self: Any, rows: Any) -> Any:
        with moment.of_operator():
            return overwrite(self, rows)

    def tidied(self: CollectionAttachment, found: passes.SideComparison) -> None:
        with moment.of_operator() if found.leftover(found.writes) else nullcontext():
            tidy(self, found)

    passes._CollectionFill._overwrite = overwritten  # type: ignore[method-assign]
    CollectionAttachment._tidy = tidied  # type: ignore[method-assign]


def declaring(log: Path) -> Path:
    """Return the file that exists while a declaration is about to be written to the ledger."""
    return log.with_name("declaring")


def first_of(url: str) -> str:
    """Return the name of the collection before the upgrade."""
    return url.partition("?")[0].rpartition("/")[2]


def act(client: Any, url: str, draw: random.Random, own: Memory, told: Any, first: int, moment: Moment) -> None:
    """Add, change or delete a row; repeat it if the collection to write has changed meanwhile."""
    alive = own.alive()
    kind = draw.choice(["add", "change", "change", "delete"]) if alive else "add"
    row = own.unused(first) if kind == "add" else draw.choice(alive)
    after = None if kind == "delete" else f"thing {first} {draw.getrandbits(40)}"
    told.write(json.dumps({"row": row, "after": after}) + "\n")
    own.about(row, after)
    asked, target = "", current(url, for_="writes").collection
    while asked != target:
        asked = target
        side: ModelSide = "old" if target == first_of(url) else "new"
        with moment.of_application():
            if after is None:
                only = row in own.settled and draw.random() < 0.5
                for one in [target] if only else [one.collection for one in everywhere(url)]:
                    client.delete(one, row)
            else:
                values = {"key": row, "emb": vector(side, after).tolist(), "text": after, "tags": [after, row]}
                client.put(target, values)
        target = current(url, for_="writes").collection
    told.write(json.dumps({"done": row}) + "\n")
    own.done(row)


def source(it: CollectionAttachment, side: ModelSide) -> Any:
    """Return a source that embeds the current texts of the collection."""
    from crash.shop import source as shop_source

    return shop_source(it, side)  # type: ignore[arg-type]


def operator(place: str, url: str, log: Path, seed: int, last: bool, bug: str | None) -> None:
    """Take random possible steps forever; with ``last``, end the upgrade and return."""
    draw, passing = random.Random(seed), place_of(place).ERRORS
    declaring(log).unlink(missing_ok=True)  # a killed operator may have left it
    declare_late(declaring(log), draw)
    apart(Moment(log.parent))
    if bug is not None:
        BUGS[bug]()
    while True:
        try:
            with start(url, old=OLD, new=NEW) as it:
                while not step(it, draw, log, last=last):
                    pass
                return
        except passing + (LimpetError,):  # noqa: RUF005
            time.sleep(0.05)  # the step is not possible yet, or the server died


def declare_late(sign: Path, draw: random.Random) -> None:
    """Prolong the moment between the last comparison and a declaration, so that applications write in it."""
    whole = CollectionAttachment._turned

    def late(self: CollectionAttachment, event: Any) -> None:
        if "writes" in event:
            sign.touch()
            time.sleep(draw.choice([0, 0.1, 0.3]))
            sign.unlink(missing_ok=True)
        whole(self, event)

    CollectionAttachment._turned = late  # type: ignore[method-assign]


def step(it: CollectionAttachment, draw: random.Random, log: Path, *, last: bool = False) -> bool:
    """Take one step and log it; return whether it ended the upgrade."""
    sources: dict[ModelSide, Any] = {side: source(it, side) for side in OTHER}
    for side in draw.sample(sorted(OTHER), 2):
        if last or draw.random() < 0.4:  # optional, because a declaration makes the pass that it needs
            it.backfill(sources[side], of=side, batch=draw.choice([None, 3, 8]))
    state = it.state
    writes: ModelSide | None = draw.choice([None, "old", "new"])
    given = draw.random() < 0.8
    turn, end = ("rollback", "finish") if state.serving == "new" else ("swap", "cancel")
    if not state.indexed:
        kind = draw.choice(["index", "index", "declare"])
    elif last:
        kind = end if state.writes == state.serving else turn
    else:
        kind = draw.choice([turn, turn, turn, "declare", "declare", "declare", "index"])
    if kind == "declare":
        side = OTHER[state.writes]
        it.declare_writes(side, sources[side] if given else None)
    elif kind in ("swap", "rollback"):
        turns = it.swap if kind == "swap" else it.rollback
        turns(sources["new" if kind == "swap" else "old"] if given or last else None, writes=None if last else writes)
    else:
        {"index": it.index, "finish": it.finish, "cancel": it.cancel}[kind]()
    declared = it.state.writes != state.writes
    with log.open("a") as told:
        told.write(kind + " and declare" * (declared and kind != "declare") + "\n")
    return kind == end


def settle(it: CollectionAttachment) -> None:
    """Make backfill passes until nothing is left to do; applications must not write meanwhile."""
    while sum(it.backfill(source(it, side), of=side).written for side in OTHER):
        pass
    assert not any(it.status().lacking.values()), it.status()


def differences(titles: dict[int, str], side: ModelSide, logs: list[Path]) -> list[str]:
    """Return violations: rows that were lost, are back, or were never written; log what the comparison settles."""
    found, titles = [], dict(titles)
    for row in range(ROWS):
        if titles.pop(row, None) != f"item {row}":
            found.append(f"row {row} of {side}, which nobody wrote, changed")
    for log in logs:
        memory = remembered(log)
        for row in memory.titles.keys() | memory.doubt.keys():
            if (title := titles.pop(row, None)) not in memory.possible(row):
                found.append(f"row {row} of {side} is {title!r}, not one of {memory.possible(row)}")
            if row in memory.doubt:
                with log.open("a") as told:
                    told.write(json.dumps({"row": row, "after": title}) + "\n" + json.dumps({"done": row}) + "\n")
        with log.open("a") as told:
            told.write(json.dumps({"compared": side}) + "\n")
    return found + [f"row {row} of {side} is there, and nobody keeps it" for row in titles]


# Planted bugs


def old_state_taken_for_the_new_one() -> None:
    """A row that was filled once is never filled again."""
    whole = passes.due

    def blind(old: Any, new: Any, *rest: Any, **further: Any) -> Any:
        found = whole(old, new, *rest, **further)
        return "nothing" if found.startswith("fill") and None not in (old, new) else found

    passes.due = blind  # type: ignore[assignment]


def deleted_rows_stay() -> None:
    """Rows that the application deleted are not removed from the other side, and no check notices."""
    whole = passes.due

    def blind(*values: Any, **further: Any) -> Any:
        found = whole(*values, **further)
        return "nothing" if found.startswith("drop") else found

    passes.due = blind


def declared_without_a_pass() -> None:
    """A declaration takes effect immediately, without a pass over earlier writes."""
    turned = CollectionAttachment._turned

    def at_once(self: CollectionAttachment, model: str, *rest: Any, **further: Any) -> ModelSide:
        side = self.state.side_of(model)
        turned(self, {"kind": "writes", "writes": side, "behind": 0})
        return side

    CollectionAttachment.declare_writes = at_once  # type: ignore[method-assign]
    only_the_declared_side_counts()


def only_the_declared_side_counts() -> None:
    """The other side is overwritten, even if only that side has changed."""

    def strict(old: Any, new: Any, pair: Any, writes: ModelSide, **further: Any) -> Any:
        if old is None and new is None:
            return "forget"
        if None not in (old, new) and (old, new) == pair:
            return "nothing"
        if writes == "old":
            return "fill new" if old is not None else "drop new" if pair is not None and pair.old else "fill old"
        return "fill old" if new is not None else "drop old" if pair is not None and pair.new else "fill new"

    passes.due = strict


def deletions_of_the_last_moment_forgotten() -> None:
    """Rows deleted between the last comparison and a declaration are created again."""
    whole = passes.due

    def blind(*values: Any, late: Any = None, **further: Any) -> Any:
        return whole(*values, **further)

    passes.due = blind


BUGS = {one.__name__: one for one in (
    old_state_taken_for_the_new_one, deleted_rows_stay, declared_without_a_pass, only_the_declared_side_counts,
    deletions_of_the_last_moment_forgotten,
)}  # fmt: skip


# Rounds


class Watcher(threading.Thread):
    """Thread that continuously reads the active collection."""

    def __init__(self, url: str, place: Place, service: Any, tally: Tally) -> None:
        super().__init__(daemon=True)
        self.url, self.place, self.service, self.tally, self.ended = url, place, service, tally, threading.Event()

    def run(self) -> None:
        client: Any = None
        while not self.ended.is_set():
            try:
                client = client or self.place.Client(self.service.url)
                serves = current(self.url).collection
                side: ModelSide = "old" if serves == first_of(self.url) else "new"
                self.tally.violations += [f"watched: {one}" for one in wrong(client.rows(serves), side)]
                self.tally.reads += 1
            except self.place.ERRORS + (GalleryError,):  # noqa: RUF005
                client = None  # the server died
            time.sleep(0.05)


def wrong(rows: dict[int, Row], side: ModelSide) -> list[str]:
    """Return violations: rows whose vector or tags do not belong to their text by this model."""
    return [
        f"row {key} of {side} has a vector of {made_by(row['emb'])} and another text than '{row['text']}'"
        for key, row in rows.items()
        if abs(vector(side, row["text"]) - row["emb"]).max() > 1e-5
        or list(map(str, row["tags"])) != [row["text"], str(key)]
    ]


class Round:
    """One upgrade of one collection.

    Args:
        place: Name of the place.
        service: Service of the collection.
        folder: Folder for logs and the ledger.
        tally: Results, which are updated.
        seed: Seed of all random choices.
        bug: Bug that is planted into the operator; None for none.
    """

    def __init__(self, place: str, service: Any, folder: Path, tally: Tally, seed: int, bug: str | None = None) -> None:
        self.name, self.service, self.folder, self.tally, self.bug = place, service, folder, tally, bug
        self.place = place_of(place)
        self.draw, self.steps_log = random.Random(seed), folder / "steps"
        self.shop = self.place.Application(service.url, str(folder / "ledger.db"))
        self.url = f"{self.shop.url}&text=text"
        for item in range(ROWS):
            self.shop.put(self.shop.first, item, f"item {item}", vector("old", f"item {item}").tolist())
        start(self.url, old=OLD, new=NEW).close()
        self.context = forking(f"crash.{place}")
        self.processes: dict[str, Any] = {}
        self.stop = self.context.Event()

    def logs(self) -> list[Path]:
        """Return the logs of the applications."""
        return [self.folder / f"{number}.log" for number in range(APPLICATIONS)]

    def start(self, name: str, *, last: bool = False) -> None:
        """Start the operator, or the application with this number."""
        seed = self.draw.getrandbits(32)
        if name == "operator":
            given: tuple[Any, ...] = (self.name, self.url, self.steps_log, seed, last, self.bug)
            process = self.context.Process(target=operator, args=given, daemon=True)
        else:
            number = int(name)
            given = (
                self.name,
                self.service.url,
                self.url,
                self.logs()[number],
                1_000_000 * (number + 1),
                seed,
                self.stop,
            )
            process = self.context.Process(target=application, args=given, daemon=True)
        process.start()
        self.processes[name] = process

    def end(self, name: str) -> None:
        """Kill the operator or an application; also the server if the operator was killed while it held the lock."""
        self.processes[name].kill()
        self.processes.pop(name).join()
        moment = Moment(self.folder)
        if name == "operator" and moment.interrupted():
            self.service.kill()
            self.service.start()
            moment.over()

    def applications(self) -> None:
        """Start the applications."""
        self.stop.clear()
        for number in range(APPLICATIONS):
            self.start(str(number))

    def run(self, kills: int) -> None:
        """Kill this many times, then finish the upgrade and compare."""
        watcher = Watcher(self.url, self.place, self.service, self.tally)
        watcher.start()
        try:
            self.applications()
            self.start("operator")
            for number in range(kills):
                self.went_on(self.draw.choice([0, 1, 1]), self.draw.choice([0, 2, 5]))
                time.sleep(0.3 * self.draw.random())
                self.kill(self.draw.choice(VICTIMS))
                if number % CHECKED == CHECKED - 1:
                    self.look()
                if self.tally.violations:
                    return
            self.finish()
        finally:
            watcher.ended.set()
            for name in list(self.processes):
                self.end(name)
            watcher.join()
            self.tally.steps.update(self.counts()[0])
            self.tally.writes += self.counts()[1]
            patiently(self.shop.close, self.place.ERRORS)

    def counts(self) -> tuple[list[str], int]:
        """Return the completed steps, and the number of acknowledged writes."""
        steps = self.steps_log.read_text().splitlines() if self.steps_log.exists() else []
        return steps, sum(log.read_text().count('"done"') for log in self.logs() if log.exists())

    def went_on(self, steps: int, writes: int) -> None:
        """Wait until this many more steps and writes are logged, or for a limited time if nothing is possible."""
        done, wrote = self.counts()
        until = time.monotonic() + PATIENCE / 25
        while time.monotonic() < until and not self.tally.violations:
            now = self.counts()
            if len(now[0]) >= len(done) + steps and now[1] >= wrote + writes:
                return
            time.sleep(0.02)

    def kill(self, victim: str) -> None:
        """Kill a victim, and restart it."""
        self.tally.kills[victim] = self.tally.kills.get(victim, 0) + 1
        if victim == "server":
            self.service.kill()
            self.service.start()
        else:
            name = victim if victim == "operator" else str(self.draw.randrange(APPLICATIONS))
            self.end(name)
            self.start(name)
        for name, process in list(self.processes.items()):
            if not process.is_alive():
                self.tally.violations.append(f"{name} ended by itself, with {process.exitcode}")
                self.start(name)

    def pause(self) -> None:
        """Let the applications complete their current action and end."""
        self.stop.set()
        for number in range(APPLICATIONS):
            process = self.processes.pop(str(number))
            process.join(PATIENCE)
            if process.exitcode != 0:
                self.tally.violations.append(f"an application did not come to an end: {process.exitcode}")
                process.kill()

    def look(self) -> None:
        """Stop applications and operator, compare both collections with the logs, and restart them."""
        self.pause()
        self.end("operator")
        self.agree()
        self.start("operator")
        self.applications()

    def agree(self) -> None:
        """Make passes for both sides, and compare both collections with the logs of the applications."""

        def settled() -> dict[ModelSide, str]:
            with start(self.url, old=OLD, new=NEW) as it:
                settle(it)
                return {side: it.engine.target(side).collection for side in OTHER}

        for side, collection in patiently(settled, self.place.ERRORS).items():
            self.compare(collection, side)

    def compare(self, collection: str, side: ModelSide) -> None:
        """Report rows of a collection that were lost, are back, or were never written; applications must be stopped."""
        found = patiently(lambda: self.place.Client(self.service.url).rows(collection), self.place.ERRORS)
        titles = {key: row["text"] for key, row in found.items()}
        self.tally.violations += [*wrong(found, side), *differences(titles, side, self.logs())]
        self.tally.checks += 1

    def finish(self) -> None:
        """Finish the upgrade without further kills, and compare the active collection."""
        self.pause()
        self.end("operator")
        self.agree()
        self.start("operator", last=True)
        process = self.processes.pop("operator")
        process.join(PATIENCE)
        if process.exitcode != 0:
            self.tally.violations.append(f"the operator did not come to an end: {process.exitcode}")
            process.kill()
            return
        serves = current(self.url)
        assert serves == current(self.url, for_="writes")
        self.compare(serves.collection, "old" if serves.collection == first_of(self.url) else "new")
        self.tally.rounds += 1


def trials(
    place: str,
    kills: int,
    seed: int = 0,
    bug: str | None = None,
    told: Any = lambda tally: None,
    so_far: Tally | None = None,
) -> Tally:
    """Run rounds until this many kills were made; stop at the first violation.

    Args:
        place: Name of the place.
        kills: Total number of kills, including those of ``so_far``.
        seed: Seed of all random choices.
        bug: Bug to plant; None for none.
        told: Called with the results after every round.
        so_far: Results of earlier rounds, which are continued.
    """
    tally = so_far or Tally()
    number = tally.rounds
    with place_of(place).service() as one:
        while tally.killed < kills and not tally.violations:
            with tempfile.TemporaryDirectory(prefix="limpet-trials-") as folder:
                Round(place, one, Path(folder), tally, 1_000 * seed + number, bug).run(min(KILLS, kills - tally.killed))
            told(tally)
            number += 1
    return tally
