"""One trial: a process writes until it is killed or the disk fails, and a new process checks the gallery.

Processes are forked from a process that has imported everything and has opened no gallery, so that a trial does not
spend time on imports.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crash import beside, bugs, check, faults
from crash.disk import Arm, TrialDisk
from crash.log import TrialLog, lines_of
from crash.places import Place
from crash.processes import PATIENCE, finished, forked, note_modules, violation_of
from crash.script import Driver, Script, play
from crash.twin import Violation
from limpet.errors import StoreError

OPERATIONS = 40  # maximum number of operations of a trial
AGAIN = 0.2  # probability that the process that reopens the gallery is killed, too
MOVED = 0.4  # probability that a gallery is moved between two processes
AFTERWARDS = 0.03  # maximum seconds in which the second writer continues alone
DAY = 86_400
SPANS = {
    "memory": 0.3,
    "lance": 1.5,
    "pgvector": 0.8,
    "sharded": 2.0,
    "s3": 2.0,
}  # maximum seconds until a kill at a random time


@dataclass(frozen=True)
class Plan:
    """The plan of a trial.

    Args:
        number: Number of the trial.
        seed: Seed of all random choices.
        how: "kill" at a point, "later" shortly after it, "random" at a random time; "full" or "broken" for an error at
            a point, "limit" for a limit on file sizes, "server" to kill the server at a point.
        point: Name of the point; None for any.
        kind: Operation that must be in progress; None for any.
        power: What happens after a kill to data that was not made durable: "kept", "lost" or "mixed".
        bug: Name of the bug to plant, from `BUGS`; None for none.
    """

    number: int
    seed: int
    how: str
    point: str | None = None
    kind: str | None = None
    power: str = "kept"
    bug: str | None = None

    @property
    def jumps(self) -> bool:
        """Whether the clock of the process jumps."""
        return self.seed % 3 == 0 and faults.preloaded()

    @property
    def forks(self) -> bool:
        """Whether the process forks a child that outlives it."""
        return self.seed % 4 == 1

    @property
    def spares(self) -> bool:
        """Whether gc always keeps what readers may need, so that no read may fail."""
        return self.seed % 2 == 0


@dataclass
class Outcome:
    """The result of a trial.

    Args:
        plan: Plan of the trial.
        kills: Point (or "random") and operation of every effective kill, between the first and the last write.
        errors: Point and operation of every injected error.
        violation: Check and finding, or None.
        lost: Number of files that power failures removed, shortened or set back.
        moved: Number of moves of the gallery.
        replies: Number of replies to the reader beside the trial; all were checked.
        seconds: Duration in seconds.
    """

    plan: Plan
    kills: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)
    violation: tuple[str, str] | None = None
    lost: int = 0
    moved: int = 0
    replies: int = 0
    seconds: float = 0.0


def make_template(place: Place, seed: int, operations: int) -> str | None:
    """Write a template gallery without faults; return an error as JSON, or None.

    The names of the imported modules are written to the folder, so that other processes can import them before they
    fork.
    """
    place.begin(None)

    def work() -> None:
        driver, script = driver_of(place), Script(seed)
        driver.create(script)
        play(driver, script, operations)
        check.verify(driver.open(), driver.twin, seed)
        driver.close()
        note_modules(place.folder)

    return finished(forked(place.folder, work), place.folder)


def run_trial(plan: Plan, place: Place, template: Place | None) -> Outcome:
    """Run a trial at a place that starts with a copy of a template, or empty."""
    started = time.monotonic()
    outcome, chance = Outcome(plan), random.Random(plan.seed)
    place.begin(template)
    errors = plan.how in ("full", "broken", "limit", "server")
    work = _with_errors if errors else _until_killed
    killed = _life(plan, place, outcome, chance, 1, partial(work, plan, place), shared=not errors)
    died = killed or not errors  # the second writer was always killed, so its last commit may not be durable
    life = 1
    while outcome.violation is None and (killed or life == 1):
        life += 1
        if died:
            outcome.lost += len(place.lose(plan.power, plan.seed + life))
        if chance.random() < MOVED:
            try:
                outcome.moved += place.move(chance.choice(["renamed", "copied", "restored"]))
            except Violation as error:
                outcome.violation = error.check, error.found
                break
        arm = None
        if not errors and life < 4 and chance.random() < AGAIN:
            arm = Arm(
                chance.choice(["kill", "later"]), occurrence=chance.randint(1, 30), delay=chance.uniform(0, 0.004)
            )
        died = killed = _life(plan, place, outcome, chance, life, partial(_afterwards, plan, place, arm, life))
    if outcome.violation is None:
        try:
            outcome.replies = beside.check_replies(place, failing=plan.how == "server")
        except Violation as error:
            outcome.violation = error.check, error.found
    outcome.seconds = time.monotonic() - started
    return outcome


def _life(
    plan: Plan, place: Place, outcome: Outcome, chance: random.Random, life: int, work: Callable[[], None],
    *, shared: bool = False,
) -> bool:  # fmt: skip
    """Run a process, and others beside it; return whether it was killed by SIGKILL."""
    TrialLog(place.log).write("life", life)
    before = len(lines_of(place.log))
    pid = forked(place.folder, lambda: _with_bug(plan.bug, place.kind, work))
    writer = partial(driver_of, place, shared=True) if shared else None
    others = beside.Beside(place, life, plan.seed + life, partial(bugs.plant, plan.bug, place.kind), writer)
    first = not outcome.kills and plan.how == "random"
    if first:
        _kill_at_random(pid, place, before, chance, SPANS[place.kind])
    wrong = finished(pid, place.folder)
    if shared:
        time.sleep(chance.uniform(0.0, AFTERWARDS))  # the second writer takes over from the dead process
    wrong_beside = others.stop()
    lines = lines_of(place.log)[before:]
    outcome.errors += [
        (line[1], line[2]) for line in lines if line[0] == "struck" and line[3] in ("full", "broken", "server")
    ]
    doing = [line[1]["kind"] for line in lines if line[0] == "begin"]
    outcome.errors += [("size limit", doing[-1] if doing else "open") for line in lines if line[0] == "limited"]
    outcome.violation = wrong_beside if wrong in (None, "killed") else violation_of(str(wrong))
    if wrong != "killed":
        return False
    struck = [line for line in lines if line[0] == "struck"]
    if doing and ["played"] not in lines:
        outcome.kills.append((struck[0][1], struck[0][2]) if struck else ("random", doing[-1]))
    return True


def _with_bug(bug: str | None, kind: str, work: Callable[[], None]) -> None:
    bugs.plant(bug, kind)
    work()


def _let_the_clock_jump(chance: random.Random) -> None:
    """Repeatedly set the clock of this process forward and back by up to a day."""

    def jump() -> None:
        while True:
            faults.set_clock(chance.randint(-DAY, DAY))
            time.sleep(chance.uniform(0.0, 0.05))

    threading.Thread(target=jump, daemon=True).start()


def _kill_at_random(pid: int, place: Place, before: int, chance: random.Random, span: float) -> None:
    until = time.monotonic() + PATIENCE
    size = place.log.stat().st_size if place.log.exists() else 0
    while not place.log.exists() or place.log.stat().st_size <= size:  # wait for the first line
        if time.monotonic() > until or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, span))
    os.kill(pid, signal.SIGKILL)


# Functions that processes run


def driver_of(place: Place, arm: Arm | None = None, *, shared: bool = False, forks: bool = False) -> Driver:
    """Return a driver of the gallery at a place; see `TrialDisk` and `Driver`."""
    log = TrialLog(place.log)
    return Driver(place.url, log, TrialDisk(log, arm, place.kept, place.server, forks), shared=shared)


def _until_killed(plan: Plan, place: Place) -> None:
    chance = random.Random(plan.seed)
    arm = None
    if plan.how != "random":
        most = 1 if plan.kind == "create" else 2 if str(plan.point).startswith("driver") else 4
        arm = Arm(plan.how, plan.point, plan.kind, chance.randint(1, most), chance.uniform(0.0, 0.004))
    if plan.jumps:
        _let_the_clock_jump(random.Random(plan.seed))
    driver = driver_of(place, arm, shared=True, forks=plan.forks)
    script = Script(plan.seed, plan.kind, spares=plan.spares)
    driver.open_or_create(script)
    play(driver, script, OPERATIONS)
    driver.log.write("played")
    with driver.turn():
        check.verify(driver.open(), driver.twin, plan.seed)
    driver.close()


def _afterwards(plan: Plan, place: Place, arm: Arm | None, life: int) -> None:
    """Reopen the gallery, verify it, and continue writing."""
    driver = driver_of(place, arm)
    driver.open_or_create(Script(plan.seed + 1000 + life))
    check.verify(driver.open(), driver.twin, plan.seed)
    check.go_on(driver, plan.seed + life)
    driver.log.write("played")
    driver.close()
    check.verify(driver.open(), driver.twin, plan.seed + 7)
    driver.close()


def _with_errors(plan: Plan, place: Place) -> None:
    """Write until the disk fails; then verify that the gallery is unchanged and that the next writes succeed."""
    chance = random.Random(plan.seed)
    most = 1 if plan.kind == "create" else 3
    arm = None if plan.how == "limit" else Arm(plan.how, plan.point, plan.kind, chance.randint(1, most))
    driver, script = driver_of(place, arm), Script(plan.seed, plan.kind)
    try:
        if plan.how == "limit":
            driver.open_or_create(script)
            _limit(driver, chance)
            play(driver, script, 8)
        else:
            driver.open_or_create(script)
            play(driver, script, OPERATIONS)
    except (StoreError, Violation) as error:
        if isinstance(error, Violation) and (plan.how, error.check) != ("limit", "opens"):
            raise  # only a limit on file sizes may keep SQLite from opening
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        driver.log.write("caught", str(error))
        if not str(error).strip():
            raise Violation("clean error", "the error says nothing") from error
        if plan.how == "limit":
            driver.log.write("limited")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    driver.disk.arm, driver.disk.kind = None, ""
    if driver.gallery is None:
        driver.open_or_create(script)
    check.verify(driver.open(), driver.twin, plan.seed)
    play(driver, script, 3)
    check.verify(driver.open(), driver.twin, plan.seed)
    driver.close()


def _limit(driver: Driver, chance: random.Random) -> None:
    """Set a limit on file sizes, so that writes fail inside the libraries."""
    size = chance.choice([0, 1, 500, 4096, 20_000, 60_000])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def describe(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values."""
    return {
        "plan": vars(outcome.plan), "kills": outcome.kills, "errors": outcome.errors, "violation": outcome.violation,
        "lost": outcome.lost, "seconds": round(outcome.seconds, 3),
    }  # fmt: skip
