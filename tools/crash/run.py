"""Runs many trials: chooses the next kill, distributes trials to processes, and collects the results."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crash.bugs import BUGS
from crash.disk import ONLY_KILLS
from crash.log import lines_of
from crash.object_server import Network, ObjectServer
from crash.places import BucketPlace, FolderPlace, Place, ServerPlace
from crash.processes import import_noted, import_stores
from crash.server import Server
from crash.trials import Outcome, Plan, make_template, run_trial

TEMPLATES = 10
STORES = ("memory", "lance", "pgvector", "sharded", "s3")
NETWORK = Network(errors=0.01, lost=0.01, failed=0.01, slow=0.001)
"""Faults of the network to the bucket, in all trials."""
HITS = 20  # minimum number of kills at every point
BUG_TRIALS = 60  # maximum number of trials to catch a planted bug
_ground: Ground


class Ground:
    """Template galleries of one process, and the servers that its store needs.

    Args:
        store: Kind of the store, from `STORES`.
        folder: Folder for all files.
        templates: Number of template galleries.
    """

    def __init__(self, store: str, folder: Path, templates: int) -> None:
        self.store, self.folder = store, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.server = Server(folder) if store in ("pgvector", "s3") else None
        self.objects = ObjectServer() if store == "s3" else None
        if self.objects is not None:
            self.objects.network(NETWORK)
        self.templates: list[Place] = [self.place(f"template{number}") for number in range(templates)]

    def place(self, name: str) -> Place:
        """Return a new place with this name."""
        if self.server is not None and self.objects is not None:
            return BucketPlace(self.server, self.objects, self.folder / name)
        if self.server is not None:
            return ServerPlace(self.server, self.folder / name)
        return FolderPlace(self.store, self.folder / name)

    def enter(self) -> None:
        """Set the environment variables with which this process and its forks find the bucket."""
        if self.objects is not None:
            os.environ.update(self.objects.environment)

    def prepare(self) -> list[tuple[str, str]]:
        """Write the template galleries; return all points reached, each with the operation in progress.

        Raises:
            RuntimeError: A template is wrong although no fault was injected.
        """
        self.enter()
        for number, place in enumerate(self.templates):
            wrong = make_template(place, number, 4 * number)
            if wrong is not None:
                raise RuntimeError(f"Without any trouble, template {number}: {wrong}")
        import_noted(self.templates[-1].folder)
        lines = [line for place in self.templates for line in lines_of(place.log)]
        return sorted({(line[1], line[2]) for line in lines if line[0] == "point"})

    def close(self) -> None:
        """Stop the servers."""
        if self.server is not None:
            self.server.stop()
        if self.objects is not None:
            self.objects.stop()


@dataclass
class Tally:
    """Results of all trials of a store.

    Args:
        store: Name of the store.
        known: All points that kills must hit.
        trials: Number of trials that kill the process.
        kills: Number of effective kills, by point and operation.
        errors: Number of injected errors, by point and operation.
        powers: Number of trials with kills, by what happened to files that were not durable; see `Plan.power`.
        lost: Number of files that power failures removed, shortened or set back.
        moved: Number of moves of galleries.
        replies: Number of replies to the readers beside trials.
        violations: Violations in trials without a planted bug.
        caught: For every planted bug, the number of trials until it was caught and the check that found it; None if it
            was not caught.
        seconds: Duration in seconds.
    """

    store: str
    known: list[str] = field(default_factory=list)
    trials: int = 0
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    powers: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    moved: int = 0
    replies: int = 0
    violations: list[tuple[Plan, tuple[str, str]]] = field(default_factory=list)
    caught: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def points(self) -> Counter[str]:
        """Number of kills by point."""
        found: Counter[str] = Counter()
        for (point, _), count in self.kills.items():
            found[point] += count
        return found

    @property
    def fewest(self) -> tuple[int, str]:
        """The smallest number of kills at a point, and that point."""
        points = self.points
        return min(((points[point], point) for point in self.known), default=(0, "none"))

    @property
    def kinds(self) -> Counter[str]:
        """Number of kills by operation."""
        found: Counter[str] = Counter()
        for (_, kind), count in self.kills.items():
            found[kind] += count
        return found

    def add(self, outcome: Outcome) -> None:
        """Add the results of a trial."""
        if outcome.plan.how in ("full", "broken", "limit", "server"):
            self.errors.update(outcome.errors)
        else:
            self.trials += 1
            self.powers[outcome.plan.power] += 1
        self.kills.update(outcome.kills)
        self.lost += outcome.lost
        self.moved += outcome.moved
        self.replies += outcome.replies
        if outcome.violation is not None:
            self.violations.append((outcome.plan, outcome.violation))


class Needs:
    """Chooses the kill or error that is needed most.

    Args:
        pairs: All points, each with an operation that reaches it.
        seed: Seed of all random choices.
        server: Whether there is a server to kill.
    """

    def __init__(self, pairs: list[tuple[str, str]], seed: int, server: bool) -> None:
        self.pairs, self.chance, self.server = pairs, random.Random(seed), server
        self.asked: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.number = 0

    def kill(self, tally: Tally) -> Plan:
        """Return a trial with a kill: two in five at a random time, the others at or just after a rarely hit point."""
        how = self.chance.choice(["random", "random", "kill", "kill", "later"])
        points = tally.points
        asked: Counter[str] = Counter()
        for (point, _), count in self.asked.items():
            asked[point] += count

        def need(pair: tuple[str, str]) -> tuple[int, int, int]:
            """Return a sort key, in which points that are hard to hit come after the others."""
            hits = min(HITS, points[pair[0]])
            return max(hits, min(HITS, asked[pair[0]] // 4)), hits, self.asked[pair]

        point, kind = min(self.pairs, key=need)
        if how == "random":
            return self._plan(how, None, self.chance.choice([None, *sorted({kind for _, kind in self.pairs})]))
        self.asked[point, kind] += 1
        return self._plan(how, point, kind)

    def error(self) -> Plan:
        """Return a trial with an error at a rarely hit point, with a limit on file sizes, or with a killed server."""
        possible = [pair for pair in self.pairs if pair[0] not in ONLY_KILLS]
        how = self.chance.choice(["full", "broken", *(["server"] if self.server else ["limit"])])
        point, kind = min(possible, key=lambda pair: (self.failed[pair], self.chance.random()))
        self.failed[point, kind] += how != "limit"
        return self._plan(how, point, kind)

    def _plan(self, how: str, point: str | None, kind: str | None, bug: str | None = None, power: str = "") -> Plan:
        self.number += 1
        power = power or self.chance.choices(["kept", "lost", "mixed"], [7, 2, 0] if self.server else [1, 1, 1])[0]
        return Plan(self.number, self.chance.randrange(10**9), how, point, kind, power, bug)

    def bug(self, name: str) -> Plan:
        """Return a trial with a planted bug."""
        bug = BUGS[name]
        kind = bug.kind or self.chance.choice(["upsert", "delete", "backfill", "add"])
        plan = self._plan("kill", bug.point, kind, name, bug.power or self.chance.choice(["kept", "lost"]))
        return plan if bug.rest is None else replace(plan, seed=plan.seed // 12 * 12 + bug.rest)


def _begin(lanes: Any, grounds: list[Ground]) -> None:
    global _ground
    _ground = grounds[lanes.get()]
    _ground.enter()


def _do(plan: Plan) -> Outcome:
    ground = _ground
    place = ground.place(f"trial{plan.number}")
    blank = plan.kind == "create" or plan.seed % (len(ground.templates) + 1) == 0
    outcome = run_trial(plan, place, None if blank else ground.templates[plan.seed % len(ground.templates)])
    if outcome.violation is None or plan.bug is not None:
        place.end()
    return outcome


def run(
    store: str, folder: Path, *, trials: int, errors: int, seed: int, lanes: int = 2, bugs: Sequence[str] = (),
    templates: int = TEMPLATES, say: Callable[[str], None] = lambda text: None,
) -> Tally:  # fmt: skip
    """Run trials until there were enough effective kills.

    Args:
        store: Kind of the store, from `STORES`.
        folder: Folder for galleries and logs; those of violations are kept.
        trials: Minimum number of effective kills.
        errors: Number of trials with errors.
        seed: Seed of all random choices.
        lanes: Number of trials at a time.
        bugs: Names of bugs to plant afterwards, from `BUGS`.
        templates: Number of template galleries.
        say: Called with messages about the progress.
    """
    started = time.monotonic()
    import_stores()
    grounds = [Ground(store, folder / f"lane{lane}", templates) for lane in range(lanes)]
    try:
        pairs = _prepare_all(grounds)
        say(f"{store}: {len({point for point, _ in pairs})} points, {len(pairs)} pairs of a point and an operation")
        tally = Tally(store, sorted({point for point, _ in pairs}))
        needs = Needs(pairs, seed, grounds[0].server is not None)
        numbers = multiprocessing.get_context("fork").Queue()
        for lane in range(lanes):
            numbers.put(lane)
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(lanes, context, initializer=_begin, initargs=(numbers, grounds)) as pool:
            for done, outcome in enumerate(_outcomes(pool, lanes, _plans(needs, tally, trials, errors)), 1):
                tally.add(outcome)
                _tell(tally, outcome, done, say)
            for name in bugs:
                tally.caught[name] = _hunt(pool, lanes, needs, name)
                say(f"{store}: planted '{name}': {tally.caught[name]}")
    finally:
        for ground in grounds:
            ground.close()
    tally.seconds = time.monotonic() - started
    return tally


def _prepare_all(grounds: list[Ground]) -> list[tuple[str, str]]:
    """Write the template galleries: one shared set in folders, or one set for every server."""
    first, *others = grounds
    if first.server is None:
        for ground in others:
            ground.templates = first.templates
        return first.prepare()
    processes = [multiprocessing.get_context("fork").Process(target=ground.prepare) for ground in others]
    for process in processes:
        process.start()
    pairs = first.prepare()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError("The galleries to start from could not be written.")
    return pairs


def _plans(needs: Needs, tally: Tally, trials: int, errors: int) -> Iterator[Plan]:
    """Yield plans until there were enough effective kills, in total and, for at least 1000 trials, at every point."""
    given = 0
    wanted = HITS if trials >= 1000 else 0
    while sum(tally.kills.values()) < trials or (tally.fewest[0] < wanted and needs.number < 3 * trials):
        yield needs.kill(tally)
        if given < errors and needs.number % max(2, trials // max(1, errors)) == 0:
            given += 1
            yield needs.error()
    for _ in range(errors - given):
        yield needs.error()


def _outcomes(pool: ProcessPoolExecutor, lanes: int, plans: Iterator[Plan]) -> Iterator[Outcome]:
    """Run trials, one per lane at a time, and yield their outcomes."""
    running: set[Future[Outcome]] = set()
    ended = False
    while running or not ended:
        while not ended and len(running) < lanes:
            plan = next(plans, None)
            ended = plan is None
            if plan is not None:
                running.add(pool.submit(_do, plan))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def _hunt(pool: ProcessPoolExecutor, lanes: int, needs: Needs, name: str) -> tuple[int, str] | None:
    """Run trials with a planted bug until one catches it; return the number of trials and the finding, or None."""
    for count in range(1, BUG_TRIALS + 1):
        outcome = pool.submit(_do, needs.bug(name)).result()
        if outcome.violation is not None:
            check, found = outcome.violation
            if check == "error":  # an error of the bug or of the harness proves nothing
                raise RuntimeError(f"The planted bug '{name}' does not run: {found}")
            return count, f"{check}: {found[:160]}"
    return None


def _tell(tally: Tally, outcome: Outcome, done: int, say: Callable[[str], None]) -> None:
    kills = sum(tally.kills.values())
    if outcome.violation is not None:
        say(f"VIOLATION {outcome.plan}: {outcome.violation[0]}: {outcome.violation[1]}")
    if done % 25 == 0:
        say(f"{tally.store}: {kills} kills in {tally.trials} trials, {sum(tally.errors.values())} errors, "
            f"{len(tally.violations)} violations; fewest {tally.fewest}")  # fmt: skip
