"""Upgrades of a collection of a real server that are killed at random, beside an application that goes on.

As in `crash.attached`: an operator's process takes steps, two processes of the application write rows of their own and
log what they are about to write and what was acknowledged, and SIGKILL ends the operator, an application or the server.
Among the steps are declarations, swaps and rollbacks with and without one, in any order. The applications ask `current`
before every write, and once more after it, and repeat the write where the answer changed. They delete a row
`everywhere`, or, if it was there when all was compared, by chance only where it is to be written. They rest between
writes, and write at once in the moment between the last comparison and a declaration, which is made a little longer.
One moment is left out, because no service writes on a condition: from the operator's last look at a row of the side
that the applications write to the end of its writing there they wait (`Moment`). A watcher reads, again and again, the
whole collection that `current` names: each row has the vector that the model of
that collection makes of its text. After every few kills the applications stop, passes are made, and both collections
are compared with what the applications remember. A round ends with `finish` or `cancel`, after which what serves holds
exactly that.

The servers are those of `crash.milvus` and `crash.chroma`. `crash.qdrant` does the same in folders of Qdrant, with the
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
"""Seconds between two things that an application does, so many of them in a row, and seconds of rest between two such
rows: a swap or a declaration needs a comparison that finds nothing to do."""
PATIENCE = 300.0
VICTIMS = ("operator",) * 13 + ("application",) * 5 + ("server",)
Row = dict[str, Any]


class Place(Protocol):
    """A module that brings a service, and how an application reads and writes its rows."""

    ERRORS: tuple[type[Exception], ...]
    service: Callable[[], AbstractContextManager[Any]]
    Client: Callable[[str], Any]
    Application: Callable[[str, str], Any]


def place_of(name: str) -> Place:
    """Return the place of a name."""
    place: Place = import_module(f"crash.{name}")  # type: ignore[assignment]
    return place


def patiently(call: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Any:
    """Call until a server that was killed answers again."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except errors + (GalleryError,):  # noqa: RUF005 - mypy knows of no tuple in a tuple
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def application(place: str, service_url: str, url: str, log: Path, first: int, seed: int, stop: Any) -> None:
    """Write one's own rows into the collection that is to be written, until told to stop, and once more then."""
    draw, own, it = random.Random(seed), remembered(log), place_of(place)
    client = patiently(lambda: it.Client(service_url), it.ERRORS)
    with log.open("a", buffering=1) as told:
        stopping, done = False, 0
        while not stopping:
            stopping = stop.is_set()
            try:
                act(client, url, draw, own, told, first, Moment(log.parent))
            except it.ERRORS:  # a server that died, or a connection to it
                stopping = False
                client = patiently(lambda: it.Client(service_url), it.ERRORS)
            done += 1
            rests, now = done % BURST == 0, time.monotonic()
            time.sleep(PAUSE)
            while rests and time.monotonic() < now + REST and not (stop.is_set() or declaring(log).exists()):
                time.sleep(PAUSE)  # killed in the wait() of an event, it would stay locked


class Moment:
    """What applications and the operator do one after the other: their writes, and its writes over theirs.

    An operator that was killed within it may have sent what the server still writes; so the server is ended, too.

    Args:
        folder: Of the round.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "moment"

    @contextmanager
    def of_application(self) -> Iterator[None]:
        """Wait until no operator is within it, and no request of a killed one is on its way."""
        while True:
            with self.path.open("a+") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if not self.interrupted():
                    yield
                    return
            time.sleep(PAUSE)

    @contextmanager
    def of_operator(self) -> Iterator[None]:
        """Keep applications from writing."""
        with self.path.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("begun")
            lock.flush()
            try:
                yield
            finally:
                lock.truncate(0)

    def interrupted(self) -> bool:
        """Say whether an operator is within it, or was killed there."""
        return self.path.exists() and self.path.stat().st_size > 0

    def over(self) -> None:
        """Forget it: the server was ended."""
        self.path.write_text("")


def apart(moment: Moment) -> None:
    """Let the operator write over what applications write, and remove it, while they do not write."""
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
    """Return the file that is there while a declaration is about to be written into the ledger."""
    return log.with_name("declaring")


def first_of(url: str) -> str:
    """Return the collection that was there before the upgrade."""
    return url.partition("?")[0].rpartition("/")[2]


def act(client: Any, url: str, draw: random.Random, own: Memory, told: Any, first: int, moment: Moment) -> None:
    """Add, change or delete a row, and again where it was declared meanwhile to be written elsewhere."""
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
    """Return what makes vectors of texts as they are in the collection."""
    from crash.shop import source as shop_source

    return shop_source(it, side)  # type: ignore[arg-type]


def operator(place: str, url: str, log: Path, seed: int, last: bool, bug: str | None) -> None:
    """Take random steps that are possible, for ever; the last one only goes on to the end."""
    draw, passing = random.Random(seed), place_of(place).ERRORS
    declaring(log).unlink(missing_ok=True)  # of one that was killed
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
            time.sleep(0.05)  # what is not possible yet, and servers that die


def declare_late(sign: Path, draw: random.Random) -> None:
    """Give applications time to write between the last comparison and a declaration, which takes milliseconds."""
    whole = CollectionAttachment._turned

    def late(self: CollectionAttachment, event: Any) -> None:
        if "writes" in event:
            sign.touch()
            time.sleep(draw.choice([0, 0.1, 0.3]))
            sign.unlink(missing_ok=True)
        whole(self, event)

    CollectionAttachment._turned = late  # type: ignore[method-assign]


def step(it: CollectionAttachment, draw: random.Random, log: Path, *, last: bool = False) -> bool:
    """Take one step and tell it; say whether it was the last."""
    sources: dict[ModelSide, Any] = {side: source(it, side) for side in OTHER}
    for side in draw.sample(sorted(OTHER), 2):
        if last or draw.random() < 0.4:  # a declaration makes the pass that it needs
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
    """Make passes until nothing is due; nobody else writes."""
    while sum(it.backfill(source(it, side), of=side).written for side in OTHER):
        pass
    assert not any(it.status().lacking.values()), it.status()


def differences(titles: dict[int, str], side: ModelSide, logs: list[Path]) -> list[str]:
    """Say what was lost, is back, or was never written, and note what is certain now."""
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
    """Rows that were filled once are never filled again."""
    whole = passes.due

    def blind(old: Any, new: Any, *rest: Any, **further: Any) -> Any:
        found = whole(old, new, *rest, **further)
        return "nothing" if found.startswith("fill") and None not in (old, new) else found

    passes.due = blind  # type: ignore[assignment]


def deleted_rows_stay() -> None:
    """Nobody removes what the application deleted, and nobody minds."""
    whole = passes.due

    def blind(*values: Any, **further: Any) -> Any:
        found = whole(*values, **further)
        return "nothing" if found.startswith("drop") else found

    passes.due = blind


def declared_without_a_pass() -> None:
    """It is declared at once who writes with what, and nobody looks at what was written until then."""
    turned = CollectionAttachment._turned

    def at_once(self: CollectionAttachment, model: str, *rest: Any, **further: Any) -> ModelSide:
        side = self.state.side_of(model)
        turned(self, {"kind": "writes", "writes": side, "behind": 0})
        return side

    CollectionAttachment.declare_writes = at_once  # type: ignore[method-assign]
    only_the_declared_side_counts()


def only_the_declared_side_counts() -> None:
    """What the other side holds is overwritten, also where it changed and the declared one did not."""

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
    """What was deleted between the last comparison and a declaration is made again."""
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
    """Reads what serves, again and again."""

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
                client = None  # a server that died
            time.sleep(0.05)


def wrong(rows: dict[int, Row], side: ModelSide) -> list[str]:
    """Say which rows have a vector that is not of their text by this model."""
    return [
        f"row {key} of {side} has a vector of {made_by(row['emb'])} and another text than '{row['text']}'"
        for key, row in rows.items()
        if abs(vector(side, row["text"]) - row["emb"]).max() > 1e-5
        or list(map(str, row["tags"])) != [row["text"], str(key)]
    ]


class Round:
    """One upgrade of one collection.

    Args:
        place: Its name.
        service: Of the collection.
        folder: For logs and the ledger.
        tally: Is told.
        seed: Of everything random.
        bug: Planted into the operator.
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
        """Return where applications remember what they wrote."""
        return [self.folder / f"{number}.log" for number in range(APPLICATIONS)]

    def start(self, name: str, *, last: bool = False) -> None:
        """Start the operator, or the application of a number."""
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
        """Kill one of them."""
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
        """Kill so often, then go on to the end and compare."""
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
        """Return the steps that came to an end, and how many writes were acknowledged."""
        steps = self.steps_log.read_text().splitlines() if self.steps_log.exists() else []
        return steps, sum(log.read_text().count('"done"') for log in self.logs() if log.exists())

    def went_on(self, steps: int, writes: int) -> None:
        """Wait until so much more was done; not for ever, if nothing is possible."""
        done, wrote = self.counts()
        until = time.monotonic() + PATIENCE / 25
        while time.monotonic() < until and not self.tally.violations:
            now = self.counts()
            if len(now[0]) >= len(done) + steps and now[1] >= wrote + writes:
                return
            time.sleep(0.02)

    def kill(self, victim: str) -> None:
        """Kill somebody, and start them again."""
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
        """Let the applications end what they are at."""
        self.stop.set()
        for number in range(APPLICATIONS):
            process = self.processes.pop(str(number))
            process.join(PATIENCE)
            if process.exitcode != 0:
                self.tally.violations.append(f"an application did not come to an end: {process.exitcode}")
                process.kill()

    def look(self) -> None:
        """Stop the applications and compare what they write with what they remember; they may write another one."""
        self.pause()
        self.end("operator")
        self.agree()
        self.start("operator")
        self.applications()

    def agree(self) -> None:
        """Make a pass for both sides, and compare both collections with what the applications remember."""

        def settled() -> dict[ModelSide, str]:
            with start(self.url, old=OLD, new=NEW) as it:
                settle(it)
                return {side: it.engine.target(side).collection for side in OTHER}

        for side, collection in patiently(settled, self.place.ERRORS).items():
            self.compare(collection, side)

    def compare(self, collection: str, side: ModelSide) -> None:
        """Look for what was lost, is back, or was never written in a collection; the applications are stopped."""
        found = patiently(lambda: self.place.Client(self.service.url).rows(collection), self.place.ERRORS)
        titles = {key: row["text"] for key, row in found.items()}
        self.tally.violations += [*wrong(found, side), *differences(titles, side, self.logs())]
        self.tally.checks += 1

    def finish(self) -> None:
        """Let the upgrade end with nobody killed any more, and compare all there is."""
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
    """Kill so often, in as many rounds as it takes after those until now; stop at the first violation."""
    tally = so_far or Tally()
    number = tally.rounds
    with place_of(place).service() as one:
        while tally.killed < kills and not tally.violations:
            with tempfile.TemporaryDirectory(prefix="limpet-trials-") as folder:
                Round(place, one, Path(folder), tally, 1_000 * seed + number, bug).run(min(KILLS, kills - tally.killed))
            told(tally)
            number += 1
    return tally
