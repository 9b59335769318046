"""Upgrades of a collection in a Qdrant folder that are killed at random, while an application writes.

Only one process can open a folder, so operator and application share a process. Before and after every call of the
upgrade to Qdrant, and before and after every entry in its ledger, the application may call `current`, write what it has
decided before, or read everything that is active. So writes that were decided before a declaration may follow it.

One race is excluded, because the engine has no conditional writes: the application does nothing between the operator's
last read of a row on the side that the application writes, and the operator's write of that row. The operator writes
there only after late writes.

SIGKILL ends the process. Steps, planted bugs and comparisons are those of `crash.collections`. Rounds alternate between
two collections, and two vectors of the same points.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models

from crash.applications import QdrantApplication
from crash.attached import Tally, forking, remembered
from crash.collections import BUGS, ROWS, differences, settle, step
from crash.shop import NEW, OLD, made_by, vector
from limpet.attached.collections import due as rules
from limpet.attached.collections.ledger import CollectionLedger
from limpet.attached.collections.opening import current, everywhere, start
from limpet.engines.address import read_address
from limpet.engines.collection import Target
from limpet.engines.qdrant.source import connected
from limpet.engines.sides import OTHER, ModelSide
from limpet.errors import LimpetError

KILLS, CHECKED, MOST = 25, 5, 60
PATIENCE = 120.0
FIRST = 1_000_000
BETWEEN = {
    QdrantClient: ["scroll", "retrieve", "upsert", "update_vectors", "delete"],
    CollectionLedger: ["step", "keep"],
}
"""Calls before and after which the application may act."""


class Application:
    """An application that writes and reads rows, one small action at a time.

    Args:
        url: URL of the attachment.
        first: Target of writes before the first declaration.
        log: Log of its writes.
        draw: Random generator of all choices.
    """

    def __init__(self, url: str, first: Target, log: Path, draw: random.Random) -> None:
        self.url, self.first, self.draw, self.own = url, first, draw, remembered(log)
        self.told = log.open("a", buffering=1)
        self.often = draw.choice([0.01, 0.05, 0.3])
        self.waits: tuple[int, str | None, Target] | None = None
        self.busy = False

    def turn(self, client: QdrantClient, *, surely: bool = False) -> None:
        """Take one random action, or none; with ``surely``, always take one."""
        if self.busy or (not surely and self.draw.random() > self.often):
            return
        self.busy = True
        try:
            if self.waits is not None:
                self.write(client)
            elif self.draw.random() < 0.2:
                self.look(client)
            else:
                self.ask()
                if self.draw.random() < 0.5:
                    self.write(client)
        finally:
            self.busy = False

    def ask(self) -> None:
        """Choose a row to add, change or delete, and ask for the target of the write."""
        alive = self.own.alive()
        kinds = ["change", "change", "delete"] + ["add"] * (len(alive) < MOST)
        kind = self.draw.choice(kinds) if alive else "add"
        row = self.own.unused(FIRST) if kind == "add" else self.draw.choice(alive)
        after = None if kind == "delete" else f"thing {self.draw.getrandbits(40)}"
        self.waits = row, after, current(self.url, for_="writes")

    def write(self, client: QdrantClient) -> None:
        """Write the chosen row; if the target has changed meanwhile, keep it to be written again."""
        assert self.waits is not None
        row, after, target = self.waits
        self.tell({"row": row, "after": after})
        self.own.about(row, after)
        only = row in self.own.settled and self.draw.random() < 0.5
        for one in [target] if only or after is not None else everywhere(self.url):
            put(client, one, side_of(one, self.first), row, after)
        written, target = target, current(self.url, for_="writes")
        self.waits = (row, after, target) if target != written else None
        if self.waits is None:
            self.tell({"done": row})
            self.own.done(row)

    def look(self, client: QdrantClient) -> None:
        """Read everything that is active, and log violations."""
        target = current(self.url)
        whole = "beside=collection" in self.url  # with two vectors per point, a pass repairs vectors of earlier texts
        self.tell({"wrong": wrong(rows_of(client, target), side_of(target, self.first), whole=whole)})

    def tell(self, entry: dict[str, Any]) -> None:
        self.told.write(json.dumps(entry) + "\n")


def side_of(target: Target, first: Target) -> ModelSide:
    """Return the side of a target."""
    return "old" if target == first else "new"


def put(client: QdrantClient, target: Target, side: ModelSide, row: int, after: str | None) -> None:
    """Write a whole point, or delete it if ``after`` is None."""
    if after is None:
        client.delete(target.collection, [row])
        return
    vectors = {str(target.vector): vector(side, after).tolist(), "other": [float(row), 1.0]}
    payload = {"text": after, "tags": [after, row]}
    client.upsert(target.collection, [models.PointStruct(id=row, vector=vectors, payload=payload)])


def rows_of(client: QdrantClient, target: Target) -> dict[int, tuple[str, Any]]:
    """Return text and vector of all points that a search of the target can find."""
    points, _ = client.scroll(target.collection, limit=10_000, with_vectors=True)
    return {
        int(str(point.id)): ((point.payload or {})["text"], point.vector[str(target.vector)])
        for point in points
        if isinstance(point.vector, dict) and target.vector in point.vector
    }


def wrong(rows: dict[int, tuple[str, Any]], side: ModelSide, *, whole: bool) -> list[str]:
    """Return violations: rows with a vector of the other model, and with ``whole`` also those of another text."""
    return [
        f"row {key} of {side} has a vector of {made_by(found)} and the text '{text}'"
        for key, (text, found) in rows.items()
        if made_by(found) != side or (whole and abs(vector(side, text) - found).max() > 1e-4)
    ]


def life(url: str, base: str, first: Target, folder: Path, seed: int, last: bool, bug: str | None) -> None:
    """Take random possible steps beside the application until killed; with ``last``, end the upgrade and return.

    Raises:
        AssertionError: A step was refused after `PATIENCE` seconds.
    """
    if bug is not None:
        QDRANT_BUGS[bug]()
    draw = random.Random(seed)
    with connected(read_address(base)) as client:
        it = Application(url, first, folder / "log", draw)
        with between(partial(it.turn, client), url):
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                try:
                    with start(url, old=OLD, new=NEW) as attachment:
                        while not step(attachment, draw, folder / "steps", last=last):
                            it.busy = last  # the application does not act during the last steps
                    return
                except LimpetError:
                    it.busy = last
        raise AssertionError("no step was possible")


@contextmanager
def between(turn: Callable[..., None], url: str) -> Iterator[None]:
    """Call a function before and after the calls of an upgrade, within a ``with`` block.

    The application's own calls trigger nothing, because `Application.turn` is not reentrant.
    """

    def written_to(*values: Any) -> bool:
        return len(values) > 1 and values[1] == current(url, for_="writes").collection

    whole = {(kind, name): getattr(kind, name) for kind, names in BETWEEN.items() for name in names}

    def beside(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*values: Any, **named: Any) -> Any:
            written = written_to(*values)
            if not (written and method.__name__ in ("upsert", "update_vectors")):
                turn(surely=method.__name__ == "step" and "writes" in values[2])
            done = method(*values, **named)
            if not (written and method.__name__ == "retrieve"):
                turn()
            return done

        return call

    for (kind, name), method in whole.items():
        setattr(kind, name, beside(method))
    try:
        yield
    finally:
        for (kind, name), method in whole.items():
            setattr(kind, name, method)


def missing_vector_taken_for_a_deletion() -> None:
    """A vector that a write of the point's other vector has removed counts as deleted, and both are removed."""
    from limpet.attached.collections import attachment as passes
    from limpet.engines.qdrant.collection import QdrantEngine

    whole, remove = rules.due, QdrantEngine.remove

    def blind(*values: Any, shared: bool = False, **further: Any) -> Any:
        return whole(*values, **further)

    def both(self: QdrantEngine, side: ModelSide, ids: Any) -> None:
        if self.shared and ids:
            self._client.delete_vectors(self.target(side).collection, [self._names[side]], [*map(int, ids)])
        elif ids:
            remove(self, side, ids)

    passes.due, QdrantEngine.remove = blind, both  # type: ignore[assignment,method-assign]


QDRANT_BUGS = {**BUGS, missing_vector_taken_for_a_deletion.__name__: missing_vector_taken_for_a_deletion}


class Round:
    """One upgrade in one folder.

    Args:
        folder: Folder for points, logs and ledger.
        tally: Results, which are updated.
        seed: Seed of all random choices.
        beside: Place of the new vectors: "vector" or "collection".
        bug: Bug that is planted into the process; None for none.
    """

    def __init__(self, folder: Path, tally: Tally, seed: int, beside: str, bug: str | None = None) -> None:
        self.folder, self.tally, self.bug, self.draw = folder, tally, bug, random.Random(seed)
        self.base = f"qdrant:{folder / 'q'}"
        shop = QdrantApplication(self.base, str(folder / "ledger.db"), f"&text=text&beside={beside}")
        self.url, self.first = shop.url, shop.first
        for row in range(ROWS):
            put(shop.client, shop.first, "old", row, f"item {row}")
        start(self.url, old=OLD, new=NEW).close()
        shop._context.__exit__(None, None, None)
        self.context = forking("crash.qdrant")

    @property
    def address(self) -> str:
        return f"{self.base}#{self.first.collection}"

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of completed steps, acknowledged writes, and reads of everything active."""
        log, steps = (
            path.read_text() if path.exists() else "" for path in (self.folder / "log", self.folder / "steps")
        )
        return len(steps.splitlines()), log.count('"done"'), log.count('"wrong"')

    def start(self, *, last: bool = False) -> Any:
        given = (self.url, self.address, self.first, self.folder, self.draw.getrandbits(32), last, self.bug)
        process = self.context.Process(target=life, args=given, daemon=True)
        process.start()
        return process

    def run(self, kills: int) -> None:
        """Kill this many times, then finish the upgrade and compare."""
        try:
            for number in range(kills):
                process = self.start()
                try:
                    self.went_on(process, self.draw.choice([0, 1, 2]), self.draw.choice([0, 1, 4, 15]))
                    time.sleep(0.05 * self.draw.random())
                finally:
                    process.kill()
                    process.join()
                if process.exitcode is not None and process.exitcode > 0:
                    self.tally.violations.append(f"the process ended by itself, with {process.exitcode}")
                self.tally.kills["process"] = self.tally.kills.get("process", 0) + 1
                if number % CHECKED == CHECKED - 1:
                    self.agree()
                if self.tally.violations:
                    return
            self.finish()
        finally:
            steps, writes, reads = self.counts()
            if steps:
                self.tally.steps.update((self.folder / "steps").read_text().splitlines())
            self.tally.writes += writes
            self.tally.reads += reads

    def went_on(self, process: Any, steps: int, writes: int) -> None:
        """Wait until this many more steps and writes are logged, or for a limited time if nothing is possible."""
        done, wrote, _ = self.counts()
        until = time.monotonic() + PATIENCE / 40
        while process.is_alive() and time.monotonic() < until:
            now = self.counts()
            if now[0] >= done + steps and now[1] >= wrote + writes:
                return
            time.sleep(0.005)

    def agree(self) -> None:
        """Make passes for both sides, and compare both with the log of the application."""
        with closing(start(self.url, old=OLD, new=NEW)) as it:
            settle(it)
            for side in OTHER:
                self.compare(it.engine.target(side), side)

    def compare(self, target: Target, side: ModelSide) -> None:
        with connected(read_address(self.address)) as client:
            rows = rows_of(client, target)
        texts = {key: text for key, (text, _) in rows.items()}
        self.tally.violations += [*wrong(rows, side, whole=True), *differences(texts, side, [self.folder / "log"])]
        for line in (self.folder / "log").read_text().splitlines():
            if line.startswith('{"wrong"') and line.endswith("}"):
                self.tally.violations += json.loads(line)["wrong"]
        self.tally.checks += 1

    def finish(self) -> None:
        """Finish the upgrade without further kills, and compare the active target."""
        self.agree()
        process = self.start(last=True)
        process.join(PATIENCE)
        if process.exitcode != 0:
            self.tally.violations.append(f"the operator did not come to an end: {process.exitcode}")
            process.kill()
            return
        serves = current(self.url)
        assert serves == current(self.url, for_="writes")
        self.compare(serves, side_of(serves, self.first))
        self.tally.rounds += 1


def trials(
    kills: int, seed: int = 0, bug: str | None = None, told: Any = lambda tally: None, so_far: Tally | None = None
) -> Tally:
    """Run rounds until this many kills were made; stop at the first violation.

    Args:
        kills: Total number of kills, including those of ``so_far``.
        seed: Seed of all random choices.
        bug: Bug to plant; None for none.
        told: Called with the results after every round.
        so_far: Results of earlier rounds, which are continued.
    """
    tally = so_far or Tally()
    number = tally.rounds
    while tally.killed < kills and not tally.violations:
        memory = Path("/dev/shm")  # faster, because the client syncs every point
        with tempfile.TemporaryDirectory(prefix="limpet-trials-", dir=memory if memory.is_dir() else None) as folder:
            beside = "vector" if number % 2 == 0 else "collection"
            Round(Path(folder), tally, 1_000 * seed + number, beside, bug).run(min(KILLS, kills - tally.killed))
        told(tally)
        number += 1
    return tally
