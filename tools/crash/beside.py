"""Processes beside a trial: a reader that searches continuously, and a writer that takes turns.

The replies to the reader are logged, and compared afterwards with every state that the gallery went through.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from crash import check, world
from crash.disk import TrialDisk
from crash.log import TrialLog, lines_of
from crash.places import Place
from crash.processes import finished, forked, violation_of
from crash.script import Driver, Script, play
from crash.twin import Twin, Violation
from limpet.engines.store import Pointer
from limpet.errors import LimpetError
from limpet.galleries import Gallery
from limpet.galleries.state import Generation

PAUSE = 0.05  # maximum seconds between two turns
WAIT = 0.005  # minimum seconds between two searches, or between two attempts to open the gallery


class Beside:
    """The processes beside one life of a trial.

    Args:
        place: Place of the gallery.
        life: Number of the life, from 1.
        seed: Seed of all random choices.
        begin: Called first in each process.
        writer: Returns the driver of the writer; None for no writer.
    """

    def __init__(
        self, place: Place, life: int, seed: int, begin: Callable[[], None], writer: Callable[[], Driver] | None
    ) -> None:
        self.place = place
        self.pids: dict[str, int] = {}
        self._start("reader", begin, lambda: search_all_the_time(place, life, seed))
        if writer is not None:
            self._start("writer", begin, lambda: write_in_turn(writer(), seed))

    def _start(self, name: str, begin: Callable[[], None], work: Callable[[], None]) -> None:
        folder = self.place.folder / name
        folder.mkdir(exist_ok=True)

        def both() -> None:
            begin()
            work()

        self.pids[name] = forked(folder, both)

    def stop(self) -> tuple[str, str] | None:
        """Kill the processes; return check and finding of a violation, or None."""
        found: tuple[str, str] | None = None
        for name, pid in self.pids.items():
            os.kill(pid, signal.SIGKILL)
            wrong = finished(pid, self.place.folder / name)
            if wrong not in (None, "killed"):
                broken, said = violation_of(str(wrong))
                found = broken, f"the {name} beside: {said}"
        return found


def write_in_turn(driver: Driver, seed: int) -> None:
    """Write repeatedly, once the gallery has items."""
    while not driver.twin.items or driver.twin.doing:
        driver.catch_up()
        time.sleep(WAIT)
    script, chance = Script(seed, kinds=("add", "upsert", "delete")), random.Random(seed)
    while True:
        play(driver, script, 1)
        time.sleep(chance.uniform(0.0, PAUSE))


def search_all_the_time(place: Place, life: int, seed: int) -> None:
    """Search continuously, and log every reply."""
    chance, log, gallery = random.Random(seed), TrialLog(place.folder / "reader" / "replies"), None
    disk = TrialDisk(TrialLog(place.log), kept=place.kept)  # a sharded gallery may undo what a dead writer left
    while True:
        known = place.log.stat().st_size
        try:
            gallery = gallery or Gallery.open(place.url, disk=disk)
        except LimpetError as error:
            log.write("unopened", life, known, f"{type(error).__name__}: {error}")
            time.sleep(WAIT)
            continue
        started = time.monotonic()
        log.write(*_asked(gallery, life, known, chance))
        time.sleep(max(WAIT, time.monotonic() - started))  # leaves half of the time to the writers


def _asked(gallery: Gallery, life: int, known: int, chance: random.Random) -> list[Any]:
    """Make a random request, and return the log line of its reply."""
    try:
        pointer, state = gallery.now()
        one = chance.choice(state.generations)
        try:
            return _answer(gallery, pointer, one, life, known, chance)
        except LimpetError:
            if one.name in gallery.state.by_name:
                raise
            return ["gone", life, known]  # the generation has been removed
    except LimpetError as error:
        return ["error", life, known, f"{type(error).__name__}: {error}"]


def _answer(
    gallery: Gallery, pointer: Pointer, one: Generation, life: int, known: int, chance: random.Random
) -> list[Any]:
    """Read all vectors of a generation, or search for the items nearest to queries of its model."""
    if chance.random() < 0.2:
        parts = [some for some, _, _ in gallery.store.scan_rows(one.name, batch=16)]
        last = gallery.store.pointer().sequence
        return ["rows", life, known, one.name, pointer.sequence, last, sorted(chain.from_iterable(parts))]
    number = chance.randrange(1000)
    queries = world.embedded(one.fingerprint, check.asked(number), one.geometry, "query")
    reply = gallery.search(queries, check.K, where=check.condition(number))
    hits = [[[hit.id, float(hit.score), hit.generation] for hit in of_query] for of_query in reply.hits]
    return ["reply", life, known, one.fingerprint, number, reply.sequence, reply.covered, reply.items, hits]


@dataclass
class Histories:
    """Every state that a gallery went through, in every life of a trial.

    Args:
        lives: For every life, twins by number of the commit.
        acknowledged: Pairs of a length of the log in bytes, and the number of the last commit at that point.
        spared: For every life, whether each gc kept what readers may still need.
    """

    lives: list[dict[int, Twin]] = field(default_factory=lambda: [{}])
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    spared: list[bool] = field(default_factory=lambda: [True])

    @classmethod
    def of(cls, path: Path) -> Histories:
        """Reconstruct the states from the log of a trial."""
        found, twin, size = cls(), Twin(), 0
        for line in lines_of(path):
            size += len(json.dumps(line)) + 1
            if line[0] == "life":
                found._end(twin)
                found.lives.append({twin.sequence: deepcopy(twin)})
                found.spared.append(True)
            elif line[0] == "begin" and line[1].get("older_than") == 0.0:
                found.spared[-1] = False
            before = twin.sequence
            twin.feed(line)
            if twin.sequence != before:
                found.lives[-1] |= dict.fromkeys(range(before + 1, twin.sequence + 1), deepcopy(twin))
                found.acknowledged.append((size, twin.sequence))
        found._end(twin)
        return found

    def _end(self, twin: Twin) -> None:
        """Add the states that an unfinished operation at the end of a life may have made visible to others."""
        for more in (1, 2):
            ended = deepcopy(twin)
            try:
                ended.settle(twin.sequence + more)
            except Violation:
                break
            self.lives[-1] |= {twin.sequence + more: ended}

    def known(self, size: int) -> int:
        """Return the number of the last commit that was acknowledged when the log had this many bytes."""
        return max((sequence for until, sequence in self.acknowledged if until <= size), default=0)

    def at(self, life: int, sequence: int) -> Twin:
        """Return the twin of the gallery at a commit.

        Raises:
            Violation: The commit never existed in this life.
        """
        if sequence not in self.lives[life]:
            raise Violation("reader", f"commit {sequence} never was there in life {life}: {sorted(self.lives[life])}")
        return self.lives[life][sequence]


def check_replies(place: Place, *, failing: bool) -> int:
    """Compare everything that the reader of a trial received with the possible states; return the number of replies.

    Args:
        place: Place of the trial.
        failing: Whether the server of the place failed, so that refusals are allowed.

    Raises:
        Violation: A reply matches no possible state, or is older than an acknowledged commit, or there was an error.
    """
    histories, replies = Histories.of(place.log), lines_of(place.folder / "reader" / "replies")
    for what, life, known, *said in replies:
        if what == "error" and not failing and histories.spared[life]:
            raise Violation("reader", f"a search failed: {said[0]}")
        if what == "unopened" and not failing and histories.known(known):
            raise Violation("reader", f"the gallery could not be opened: {said[0]}")
        if what == "rows":
            _check_rows(histories, life, known, *said)
        if what == "reply":
            _check_reply(histories, life, known, *said)
    return len(replies)


def _check_rows(histories: Histories, life: int, known: int, name: str, first: int, last: int, ids: list[str]) -> None:
    _check_fresh(histories, known, first)
    possible = [
        sorted(one for one, item in histories.at(life, sequence).items.items() if name in item.holding)
        for sequence in range(first, last + 1)
    ]
    if ids not in possible:
        raise Violation("reader", f"the rows of {name} are of no commit from {first} to {last}: {ids}")


def _check_reply(
    histories: Histories, life: int, known: int, fingerprint: str, number: int, sequence: int, covered: int, items: int,
    hits: list[list[list[Any]]],
) -> None:  # fmt: skip
    _check_fresh(histories, known, sequence)
    twin = histories.at(life, sequence)
    name = next((name for name, one in twin.models.items() if one == fingerprint), None)
    if name is None:
        raise Violation("reader", f"commit {sequence} knows no model {fingerprint}")
    check.compare_search(twin, name, number, (covered, items, twin.sequence), hits)


def _check_fresh(histories: Histories, known: int, sequence: int) -> None:
    acknowledged = histories.known(known)
    if sequence < acknowledged:
        raise Violation("stale", f"commit {sequence} was served after {acknowledged} had been acknowledged")
