"""A sweep of faults: every system call of every operation fails once, in every possible way.

An operation is done once while its calls are traced. Then it is repeated on a copy of the same gallery for every call
and every kind of fault. An acknowledged operation must be visible, and a refused one must not be. The process that met
the fault and a new process must both be able to continue. The twin defines what each of them must find.
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
        error: Error number (errno); 0 for none.
        calls: Names of the calls that can have the fault.
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
    """Return a model, numbered from ``first`` on, whose source knows every item."""
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
"""Operations that lead to each state of a gallery."""

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
"""Operations that meet a fault, by state."""


@dataclass(frozen=True)
class Point:
    """One fault at one call.

    Args:
        state: State of the gallery, from `STATES`.
        operation: Index of the operation in `OPERATIONS[state]`.
        fault: Kind of the fault, from `FAULTS`.
        pattern: Pattern of the call, as for `faults.arm`.
        occurrence: Number of the call among those with this pattern, from 1.
    """

    state: str
    operation: int
    fault: str
    pattern: str
    occurrence: int

    @property
    def kind(self) -> str:
        """Kind of the operation."""
        return str(OPERATIONS[self.state][self.operation]["kind"])

    def __str__(self) -> str:
        return f"{self.kind}, {self.state}: {self.fault} at '{self.pattern}' {self.occurrence}"


@dataclass
class Result:
    """The result of a point.

    Args:
        point: The point.
        outcome: "acknowledged", "refused" or "killed"; "missed" if the call did not occur; "raised" if the process that
            met the fault found a violation.
        violation: Check and finding, or None.
    """

    point: Point
    outcome: str
    violation: tuple[str, str] | None = None


class Sweep:
    """All points of a store.

    Args:
        store: Kind of the store, "memory" or "lance".
        folder: Folder for galleries and logs.
        bug: Name of the bug to plant; None for none.
    """

    def __init__(self, store: str, folder: Path, bug: str | None = None) -> None:
        self.store, self.folder, self.bug = store, folder, bug
        self.templates = {state: FolderPlace(store, folder / state.replace(" ", "_"), keeps=False) for state in STATES}

    def prepare(self) -> None:
        """Write the gallery of every state.

        Raises:
            RuntimeError: A gallery is wrong although no fault was injected.
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
        """Do an operation without a fault, and return the points of all its calls."""
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
        """Inject a fault, and check the gallery in a new process."""
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
    """Return a pattern for a call in which random parts of file names are replaced by "*".

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
    """Return the folder whose calls are traced or fail."""
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
    """Take a backup, restore it, and verify the restored gallery."""
    folder = place.folder / BACKUPS
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    driver.open().backup(folder / f"backup{number}")
    url = f"{place.kind}:{folder / f'restored{number}'}"
    restore(folder / f"backup{number}", url)
    with Gallery.open(url) as gallery:
        check.verify(gallery, driver.twin)


def _check_restored(place: FolderPlace, twin: Twin) -> None:
    """Verify that an interrupted restore left either a whole gallery or none."""
    for path in (place.folder / BACKUPS).glob("restored?"):
        try:
            gallery = Gallery.open(f"{place.kind}:{path}")
        except GalleryError:
            continue
        with gallery:
            check.verify(gallery, twin)


def _meet(place: FolderPlace, point: Point) -> None:
    """Do an operation that meets a fault; if it is refused, repeat it in the same process."""
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
        if op["kind"] == "open":  # the gallery is opened below, so only the write is repeated
            op = _small_write(driver)
        if driver.gallery is None and driver.twin.sequence:
            driver.open()
        if driver.twin.sequence == before:
            _do(driver, op, place)
    check.verify(driver.open(), driver.twin)
    driver.close()


def _look(place: FolderPlace) -> None:
    """Reopen the gallery, compare it with the twin, and continue writing."""
    driver = driver_of(place)
    driver.open_or_create(Script(1))
    gallery, twin = driver.open(), driver.twin
    gallery.timeout = 2.0  # the lock of a dead process must not block
    check.verify(gallery, twin)
    _check_restored(place, twin)
    driver.do({"kind": "upsert", **_items(14, 17, twin.contents + 1, twin.active)})
    driver.do(_GC)
    check.verify(gallery, twin, 3)
    driver.close()


CERTAIN = ("_deletions/", "_versions/*.manifest", "gallery.db-wal")
"""Parts of the texts of writes that are always in a sample."""


def sample(points: list[Point], most: int) -> list[Point]:
    """Return a deterministic sample of about ``most`` points.

    The sample has every write of `CERTAIN` with one kind of fault, in rotation; the other points are evenly spread.
    """
    writes: dict[tuple[str, int, str, int], list[Point]] = {}
    for point in points:
        if point.pattern.startswith("write") and any(part in point.pattern for part in CERTAIN):
            writes.setdefault((point.state, point.operation, point.pattern, 0), []).append(point)
    chosen = [group[number % len(group)] for number, group in enumerate(writes.values())]
    rest = sorted(set(points) - set(chosen), key=points.index)
    left = min(most - len(chosen), len(rest))
    return chosen + [rest[number * len(rest) // left] for number in range(left)]
