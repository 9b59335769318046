"""Every call of every operation: a fault at each, a fresh process that reopens, and the twin that knows what to find.

An operation is done once while its calls are written down. Then it is done again from a copy of the same gallery for
every call and every kind of fault. What was acknowledged has to be there, and what was refused must not be; the process
that met the fault and a fresh one both have to be able to go on.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crash import bugs, check, faults, world
from crash.faults import Action
from crash.log import lines_of
from crash.places import FolderPlace
from crash.processes import finished, forked, import_noted, note_modules, violation_of
from crash.script import Driver, Script
from crash.trials import driver_of
from crash.twin import Op, Twin, Violation
from limpet.errors import GalleryError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore

ITEMS = 24
BACKUPS = "backups"


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Args:
        action: What happens to the call.
        error: Its number.
        calls: Names of the calls that it can happen to.
    """

    action: Action
    error: int
    calls: frozenset[str]


_NAMES = frozenset({"open", "rename", "link", "mkdir"})
_WRITES, _REMOVALS = frozenset({"write"}), frozenset({"truncate", "unlink", "rmdir"})
_ALL = _NAMES | _WRITES | _REMOVALS | {"sync"}
FAULTS = {
    "full": Fault(Action.FAIL, errno.ENOSPC, _NAMES | _WRITES),
    "broken": Fault(Action.FAIL, errno.EIO, _ALL),
    "short": Fault(Action.SHORT, errno.ENOSPC, _WRITES),
    "torn": Fault(Action.TORN, 0, _WRITES),
    "kill": Fault(Action.KILL_BEFORE, 0, _ALL),
}


def _model(first: int) -> str:
    """Return a model whose source of vectors knows every item."""
    number = next(one for one in range(first, first + 100) if not _patchy(f"declared:model {one}"))
    return f"declared:model {number}"


def _patchy(model: str) -> bool:
    return any(world.unknown_to(model, f"item {number:04d}") for number in range(ITEMS + 10))


def _items(first: int, last: int, content: int, *holding: str) -> Op:
    items = [[f"item {number:04d}", content, list(holding)] for number in range(first, last)]
    return {"items": items, "contents": content}


def _delete(first: int, last: int) -> Op:
    return {"kind": "delete", "ids": [f"item {number:04d}" for number in range(first, last)]}


_BACKFILL: Op = {
    "kind": "backfill", "batch": 10, "budget": None, "order": "id", "seed": 0, "pieces": 2, "meanwhile": {}
}  # fmt: skip
_GC: Op = {"kind": "gc", "older_than": 0.0}
_ONE: list[Op] = [
    {"kind": "create", "model": _model(0), "space": "hypersphere"},
    {"kind": "add", **_items(0, ITEMS, 1, "g1")},
    {"kind": "upsert", **_items(0, 3, 2, "g1")},
    _delete(3, 5),
]
_STARTED = [*_ONE, {"kind": "start", "model": _model(100)}, {"kind": "upsert", **_items(5, 9, 3, "g1", "g2")}]
_MIDDLE = [*_STARTED, {"kind": "swap"}, {"kind": "upsert", **_items(9, 12, 4, "g2")}, _delete(5, 6)]
STATES: dict[str, list[Op]] = {
    "nothing": [],
    "one model": _ONE,
    "started": _STARTED,
    "mid-upgrade": _MIDDLE,
    "filled": [*_ONE, {"kind": "start", "model": _model(100)}, _BACKFILL],
}
"""What was done before."""

OPERATIONS: dict[str, list[Op]] = {
    "nothing": [{"kind": "create", "model": _model(0), "space": "hypersphere"}],
    "one model": [
        {"kind": "add", **_items(30, 34, 9, "g1")},
        {"kind": "upsert", **_items(4, 8, 9, "g1")},
        _delete(8, 11),
        {"kind": "start", "model": _model(100)},
        {"kind": "open"},
        {"kind": "backup"},
        _GC,
    ],
    "started": [{"kind": "swap"}, _BACKFILL, {"kind": "upsert", **_items(6, 12, 9, "g1", "g2")}],
    "mid-upgrade": [
        {"kind": "add", **_items(30, 34, 9, "g1", "g2")},
        {"kind": "upsert", **_items(7, 14, 9, "g2")},
        _delete(8, 14),
        _BACKFILL,
        {"kind": "finish"},
        {"kind": "rollback"},
        {"kind": "open"},
        {"kind": "backup"},
        _GC,
    ],
    "filled": [{"kind": "cancel"}],
}
"""What meets the fault, by state."""


@dataclass(frozen=True)
class Point:
    """One fault.

    Args:
        state: Of the gallery, in `STATES`.
        operation: Its place in `OPERATIONS`.
        fault: In `FAULTS`.
        pattern: Of the call, as `faults.arm` takes it.
        occurrence: Among the calls with this pattern.
    """

    state: str
    operation: int
    fault: str
    pattern: str
    occurrence: int

    @property
    def kind(self) -> str:
        """Of the operation."""
        return str(OPERATIONS[self.state][self.operation]["kind"])

    def __str__(self) -> str:
        return f"{self.kind}, {self.state}: {self.fault} at '{self.pattern}' {self.occurrence}"


@dataclass
class Result:
    """What became of a point.

    Args:
        point: Which.
        outcome: "acknowledged", "refused", "killed", or "missed" where the call did not come.
        violation: Check and finding, or None.
    """

    point: Point
    outcome: str
    violation: tuple[str, str] | None = None


class Sweep:
    """All points of a store.

    Args:
        store: "memory" or "lance".
        folder: For galleries and logs.
        bug: Name of a planted bug, or None.
    """

    def __init__(self, store: str, folder: Path, bug: str | None = None) -> None:
        self.store, self.folder, self.bug = store, folder, bug
        self.templates = {state: FolderPlace(store, folder / state.replace(" ", "_"), keeps=False) for state in STATES}

    def prepare(self) -> None:
        """Write the gallery of every state.

        Raises:
            RuntimeError: One of them is wrong although nothing happened to it.
        """
        for state, place in self.templates.items():
            place.begin(None)
            wrong = self._process(place, partial(_write, place, state))
            if wrong is not None:
                raise RuntimeError(f"Without any trouble, '{state}': {wrong}")
            import_noted(place.folder)

    def every_point(self) -> Iterator[Point]:
        """Yield the points of all operations in all states, after doing each operation without a fault."""
        for state, operations in OPERATIONS.items():
            for number in range(len(operations)):
                yield from self.points(state, number)

    def points(self, state: str, operation: int) -> list[Point]:
        """Do an operation without a fault, and return every fault that its calls can meet."""
        place = FolderPlace(self.store, self.folder / "counted", keeps=False)
        self._begin(place, state)
        trace = place.folder / "trace"
        op = OPERATIONS[state][operation]

        def work() -> None:
            driver = driver_of(place)
            if op["kind"] not in ("create", "open"):
                driver.open()
            with faults.traced(_where(place, op), trace):
                _do(driver, op, place)
            driver.close()

        wrong = self._process(place, work)
        if wrong is not None:
            raise RuntimeError(f"Without any trouble, {op['kind']}, {state}: {wrong}")
        seen: Counter[str] = Counter()
        found = []
        for text in trace.read_text().splitlines():
            pattern = pattern_of(text)
            seen[pattern] += 1
            call = text.split()[0]
            found += [
                Point(state, operation, name, pattern, seen[pattern])
                for name, fault in FAULTS.items() if call in fault.calls
            ]  # fmt: skip
        place.end()
        return found

    def _begin(self, place: FolderPlace, state: str) -> None:
        place.begin(self.templates[state] if STATES[state] else None)

    def run(self, point: Point, name: str = "point") -> Result:
        """Let a fault happen, and look at what is left."""
        place = FolderPlace(self.store, self.folder / name, keeps=False)
        self._begin(place, point.state)
        wrong = self._process(place, lambda: _meet(place, point))
        if wrong not in (None, "killed"):
            return Result(point, "raised", violation_of(str(wrong)))
        ends = [line[1] for line in lines_of(place.log) if line[0] == "end"]
        outcome = "killed" if wrong else ends[-1]
        wrong = self._process(place, lambda: _look(place))
        if wrong is not None:
            return Result(point, outcome, violation_of(wrong))
        place.end()
        return Result(point, outcome)

    def _process(self, place: FolderPlace, work: Any) -> str | None:
        def planted() -> None:
            bugs.plant(self.bug, self.store)
            work()

        return finished(forked(place.folder, planted), place.folder)


def pattern_of(text: str) -> str:
    """Return a pattern for a call and those like it, whatever names chance gives to files.

    >>> pattern_of("write g2-5d041c9e.lance/_deletions/0-5-8123456789.arrow")
    'write g2-*.lance/_deletions/*.arrow'
    >>> pattern_of("sync gallery.db-wal")
    'sync gallery.db-wal'
    """
    call, path = text.split(" ", 1)
    *folders, name = re.sub(r"[0-9a-f]{8}(-?[0-9a-f]{4,})*", "*", path).split("/")
    if name.startswith(".tmp"):
        name = ".tmp*"
    elif folders and re.search(r"[0-9*].*\.", name):
        name = "*" + name[name.index(".") :]
    return "/".join([f"{call} {folders[0]}", *folders[1:], name]) if folders else f"{call} {name}"


def _write(place: FolderPlace, state: str) -> None:
    driver = driver_of(place)
    for op in STATES[state]:
        driver.do(op)
    if STATES[state]:
        check.verify(driver.open(), driver.twin)
    driver.close()
    note_modules(place.folder)


def _where(place: FolderPlace, op: Op) -> Path:
    """Return the folder below which calls are counted."""
    return (place.folder / BACKUPS if op["kind"] == "backup" else place.gallery).absolute()


def _do(driver: Driver, op: Op, place: FolderPlace) -> None:
    if op["kind"] == "backup":
        _back_up(driver, place)
        return
    if op["kind"] == "open":
        driver.close()
        driver.open()
        op = _small_write(driver)
    driver.do(op)


def _small_write(driver: Driver) -> Op:
    return {"kind": "upsert", **_items(12, 13, driver.twin.contents + 1, driver.twin.active)}


def _back_up(driver: Driver, place: FolderPlace) -> None:
    """Take a backup, and restore it; what is restored has to be the gallery, too."""
    folder = place.folder / BACKUPS
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    driver.open().backup(folder / f"backup{number}")
    url = f"{place.kind}:{folder / f'restored{number}'}"
    restore(folder / f"backup{number}", url)
    with Gallery.open(url) as gallery:
        check.verify(gallery, driver.twin)


def _check_restored(place: FolderPlace, twin: Twin) -> None:
    """Compare what an interrupted restoration left: all of the gallery or nothing."""
    for path in (place.folder / BACKUPS).glob("restored?"):
        try:
            gallery = Gallery.open(f"{place.kind}:{path}")
        except GalleryError:
            continue
        with gallery:
            check.verify(gallery, twin)


def _meet(place: FolderPlace, point: Point) -> None:
    """Do an operation that meets a fault; if that is refused, do it again in the same process."""
    driver, op, fault = driver_of(place), OPERATIONS[point.state][point.operation], FAULTS[point.fault]
    if op["kind"] not in ("create", "open"):
        driver.open()
    before = driver.twin.sequence
    (place.folder / BACKUPS).mkdir(exist_ok=True)
    faults.arm(_where(place, op), fault.action, pattern=point.pattern, occurrence=point.occurrence, error=fault.error)
    end = "acknowledged"
    try:
        _do(driver, op, place)
    except (StoreError, Violation) as error:
        if isinstance(error, Violation) and error.check != "opens":
            raise
        end = "refused"
    faults.disarm()
    if not faults.struck():
        end = "missed"
    driver.log.write("end", end, faults.struck())
    if end == "refused":
        if op["kind"] == "open":  # and if it is open, then it stays so
            op = _small_write(driver)
        if driver.gallery is None and driver.twin.sequence:
            driver.open()
        if driver.twin.sequence == before:
            _do(driver, op, place)
    check.verify(driver.open(), driver.twin)
    driver.close()


def _look(place: FolderPlace) -> None:
    """Reopen the gallery, compare all of it with the twin, and go on with it."""
    driver = driver_of(place)
    driver.open_or_create(Script(1))
    gallery, twin = driver.open(), driver.twin
    gallery.timeout = 2.0  # the lock of a process that is gone holds nobody up
    check.verify(gallery, twin)
    _check_restored(place, twin)
    driver.do({"kind": "upsert", **_items(14, 17, twin.contents + 1, twin.active)})
    driver.do(_GC)
    check.verify(gallery, twin, 3)
    driver.close()


CERTAIN = ("_deletions/", "_versions/*.manifest", "gallery.db-wal")
"""Parts of texts of writes that a sample never leaves out."""


def sample(points: list[Point], most: int) -> list[Point]:
    """Return about so many points, the same ones each time.

    Each write that is certain is among them, with one kind of fault after the other; the others are evenly spread.
    """
    writes: dict[tuple[str, int, str, int], list[Point]] = {}
    for point in points:
        if point.pattern.startswith("write") and any(part in point.pattern for part in CERTAIN):
            writes.setdefault((point.state, point.operation, point.pattern, 0), []).append(point)
    chosen = [group[number % len(group)] for number, group in enumerate(writes.values())]
    rest = sorted(set(points) - set(chosen), key=points.index)
    left = min(most - len(chosen), len(rest))
    return chosen + [rest[number * len(rest) // left] for number in range(left)]
