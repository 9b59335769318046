"""Running cells: once each, in an order that needs nothing unfinished, and on past what fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench import steps
from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.failures import reason_of
from holdfast.bench.leaderboard import BenchRuns
from holdfast.bench.pool import Progress, blocked_by, ready, run_cells
from holdfast.bench.run import Bench
from holdfast.bench.suite import Suite
from holdfast.errors import ConfigError, DataError


def note(settings: Any, place: Any) -> dict[str, Any]:
    """Write down that it ran and what its needs returned; fail where the settings say so."""
    with (place.cache.parent / "ran").open("a") as log:
        log.write(settings["name"] + "\n")
    if settings.get("fails") == "holdfast":
        raise ConfigError("It was meant to fail.", expected="nothing else")
    if settings.get("fails") == "plain":
        raise KeyError("no such thing")
    return {
        "sum": 1
        + sum(json.loads((needed / "cell.json").read_text())["values"]["sum"] for needed in place.needs.values())
    }


LINE = next(
    number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise KeyError(" in line
)
PLAIN = f"KeyError: 'no such thing' (test_pool.py:{LINE})"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CellCache:
    monkeypatch.setitem(steps.STEPS, "note", note)
    return CellCache(tmp_path)


def cell(name: str, *needs: Cell, **settings: Any) -> Cell:
    work = settings.pop("work", 1.0)
    return Cell("note", {"name": name, **settings}, {str(i): one for i, one in enumerate(needs)}, work, name)


def ran(cache: CellCache) -> list[str]:
    log = cache.root / "ran"
    return log.read_text().split() if log.exists() else []


def test_what_is_needed_is_run_first_and_everything_once(cache) -> None:
    base = cell("base")
    left, right = cell("left", base), cell("right", base)
    top = cell("top", left, right, cell("base"))
    run_cells([top, left, cell("top", left, right, base)], cache)
    assert ran(cache) == ["base", "left", "right", "top"]
    assert cache.record(top)["values"] == {"sum": 6}
    run_cells([top], cache)
    assert len(ran(cache)) == 4


@pytest.mark.parametrize(
    ("fails", "reason"), [("holdfast", "It was meant to fail. Expected: nothing else."), ("plain", PLAIN)]
)
def test_a_failure_is_noted_with_its_reason_and_stops_only_what_needs_it(cache, fails, reason) -> None:
    bad, good = cell("bad", fails=fails), cell("good")
    above, further, beside = cell("above", bad, good), cell("further", good), cell("beside")
    last = cell("last", above)
    run_cells([last, further, beside], cache)
    assert ran(cache) == ["bad", "good", "further", "beside"]
    assert blocked_by(bad, cache) == reason
    assert blocked_by(above, cache) == blocked_by(last, cache) == f"bad: {reason}"
    assert blocked_by(further, cache) is None and cache.failure(above) is None
    run_cells([last], cache)
    assert len(ran(cache)) == 4  # not tried again by itself
    assert cache.forget_failures([further]) == 0 and cache.forget_failures([last]) == 1
    run_cells([last], cache)
    assert ran(cache)[4:] == ["bad"]


def raised(given: str, expected: str = "", to_do: str = "") -> DataError:
    return DataError(given, expected=expected, to_do=to_do)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (raised("3 seeds.", "two", "add one"), "3 seeds. Expected: two. Next: add one."),
        (raised("No room!", to_do="free some."), "No room! Next: free some."),
        (raised("Two\n\nlines"), r"Two\n\nlines."),
        (raised(""), "DataError"),
    ],
)
def test_a_reason_has_all_that_holdfast_says_on_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_the_traceback_of_a_failure_is_kept(cache) -> None:
    bad = cell("bad", fails="plain")
    run_cells([bad], cache)
    kept = json.loads((cache.folder(bad) / "failure.json").read_text())
    assert kept["traceback"].startswith("Traceback") and f'test_pool.py", line {LINE}, in note' in kept["traceback"]
    assert kept["reason"] == PLAIN


def test_the_watcher_is_told_of_every_cell_that_begins_and_ends(cache) -> None:
    seen: list[Progress] = []
    one, bad = cell("one"), cell("bad", fails="plain")
    run_cells([one, bad, cell("above", bad)], cache, watch=seen.append)
    assert [(found.cell, found.done, found.total, found.running) for found in seen] == [
        (None, 0, 3, (one,)), (one, 1, 3, ()), (None, 1, 3, (bad,)), (bad, 2, 3, ()),
    ]  # fmt: skip
    assert [found.failure for found in seen] == [None, None, None, PLAIN]


def test_a_stop_from_the_keyboard_is_no_failure(cache, monkeypatch) -> None:
    def stop(settings: Any, place: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setitem(steps.STEPS, "note", stop)
    with pytest.raises(KeyboardInterrupt):
        run_cells([cell("one")], cache)
    assert cache.failure(cell("one")) is None and cache.record(cell("one")) is None


def full(path: Path) -> None:
    """Write where there is never room."""
    with path.open("wb", buffering=0) as file:
        file.write(b"a model")


def told_in_words(path: Path) -> None:
    """Fail as packages do that write by themselves."""
    raise RuntimeError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error 28)")


def told_by_another(path: Path) -> None:
    try:
        full(path)
    except OSError as error:
        raise DataError("Could not write the model.") from error


@pytest.mark.parametrize("write", [full, told_in_words, told_by_another])
def test_a_full_disk_stops_the_run_and_is_no_failure_of_the_cell(cache, monkeypatch, write) -> None:
    def fill(settings: Any, place: Any) -> dict[str, Any]:
        note(settings, place)
        write(Path("/dev/full"))
        return {}

    monkeypatch.setitem(steps.STEPS, "note", fill)
    with pytest.raises(DataError, match="no room left for 'one'") as caught:
        run_cells([cell("one"), cell("two")], cache)
    assert "same command" in caught.value.to_do and ran(cache) == ["one"]
    assert cache.failure(cell("one")) is None and cache.record(cell("one")) is None
    monkeypatch.setitem(steps.STEPS, "note", note)
    run_cells([cell("one")], cache)
    assert cache.record(cell("one")) is not None


TOO_HOT = {"method": "p2s", "recipe": {"learning_rate": 1e30}}


def run_suite(suite: Suite, folder: Path, processes: int) -> tuple[BenchRuns, list[Cell]]:
    """Return what was run, and the cells in the order in which they were finished."""
    seen: list[Progress] = []
    found = Bench(CellCache(folder), processes=processes, watch=seen.append).run(suite)
    return found, [progress.cell for progress in seen if progress.cell is not None]


@pytest.fixture(scope="module")
def run_here(small, tmp_path_factory) -> tuple[BenchRuns, list[Cell]]:
    """A suite in which a row fails."""
    suite = small(methods={"p2s": {}, "too hot": TOO_HOT, "l2": {}})
    return run_suite(suite, tmp_path_factory.mktemp("cells"), 1)


def test_a_row_that_failed_says_why_and_the_others_have_scores(run_here) -> None:
    rows = {row.label: row for row in run_here[0].rows}
    assert "loss" in rows["too hot"].failure and rows["too hot"].scores is None
    assert rows["too hot"].method == "p2s" and rows["too hot"].p_comp is rows["too hot"].seconds is None
    assert rows["p2s"].failure is rows["l2"].failure is None
    assert 0 < rows["p2s"].scores["cross"] <= 1


def test_rows_share_the_old_and_the_independent_model(run_here) -> None:
    _, cells = run_here
    assert [cell.kind for cell in cells].count("train") == 5  # old, independent, and one for each row
    assert [cell.label.partition(" ")[0] for cell in cells].count("independent") == 1
    assert len({cell.address for cell in cells}) == len(cells)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(small, run_here, comparable, tmp_path) -> None:
    found, cells = run_suite(small(methods={"p2s": {}, "too hot": TOO_HOT, "l2": {}}), tmp_path, 2)
    assert comparable(found) == comparable(run_here[0])
    assert {cell.address for cell in cells} == {cell.address for cell in run_here[1]} and len(cells) == len(run_here[1])


def test_of_the_cells_whose_needs_are_finished_the_longest_are_begun_first(cache) -> None:
    base = cell("base")
    run_cells([base], cache)
    waiting = [cell("short", base, work=1.0), cell("long", base, work=9.0), cell("middle", work=5.0)]
    waiting.append(cell("blocked", cell("never"), work=99.0))
    assert [found.label for found in ready(waiting, cache, 2)] == ["long", "middle"]
    assert [found.label for found in ready(waiting, cache, 9)] == ["long", "middle", "short"]
    assert ready(waiting, cache, 0) == []
    with cache.held(waiting[1]):  # by another bench
        assert [found.label for found in ready(waiting, cache, 9)] == ["middle", "short", "long"]
    assert [found.label for found in ready(waiting, cache, 1)] == ["long"]


DEATH = """
import os, sys
from pathlib import Path
from holdfast.bench import steps
from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.leaderboard import BenchRuns
from holdfast.bench.pool import run_cells

def die(settings, place):
    os._exit(9)

def live(settings, place):
    return {}

steps.STEPS |= {"die": die, "live": live}  # at the import by a worker, too
if __name__ == "__main__":
    bad, good = Cell("die", {}), [Cell("live", {"number": number}) for number in range(4)]
    above = Cell("live", {}, {"one": bad})
    cache = CellCache(Path(sys.argv[1]))
    told = []
    run_cells([good[0], bad, above, *good[1:]], cache, processes=2, watch=told.append)
    assert (told[0].cell, told[0].done, told[0].total, len(told[0].running)) == (None, 0, 6, 2), told[0]
    assert (told[-1].done, told[-1].running) == (5, ()), told[-1]
    assert max(len(found.running) for found in told) == 2 and bad in [found.cell for found in told]
    assert all(cache.record(cell) for cell in good), "a cell that was running beside it has no record"
    assert "died" in cache.failure(bad) and cache.record(above) is None
    print("as it should be")
"""


@pytest.mark.slow
def test_a_worker_that_dies_costs_only_the_cell_that_killed_it(tmp_path) -> None:
    script = tmp_path / "death.py"
    script.write_text(DEATH)
    done = subprocess.run([sys.executable, script, tmp_path / "cells"], capture_output=True, text=True, timeout=300)
    assert done.stdout == "as it should be\n", done.stderr


TWO = """
import os, sys, time
from pathlib import Path
from holdfast.bench import steps
from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.code_version import code_version
from holdfast.bench.leaderboard import BenchRuns
from holdfast.bench.pool import run_cells

def count(settings, place):
    with (root / "ran").open("a") as log:
        log.write(f"{settings['name']} {own}\\n")
    until = time.monotonic() + 60
    while settings["name"] == "first" and not (root / "go on").exists() and time.monotonic() < until:
        time.sleep(0.005)
    if settings["name"] == "bad":
        raise KeyError("nothing")
    return {}

def bench():
    first = Cell("count", {"name": "first"})
    cells = [Cell("count", {"name": name}, {"one": first}) for name in ("second", "third")]
    bad = Cell("count", {"name": "bad"})
    (root / f"begun {own}").touch()
    run_cells([*cells, bad, Cell("count", {"name": "never"}, {"one": bad})], CellCache(root))
    (root / f"ended {own}").touch()

steps.STEPS["count"] = count
code_version()
for line in sys.stdin:  # a process for every line, which all share the seconds of what is above
    own, root = line.split()[0], Path(line.split(maxsplit=1)[1].strip())
    child = os.fork()
    if not child:
        bench()
        os._exit(0)
    print(child, flush=True)
"""


class Benches:
    """Processes that run the same cells in one cache; the first cell ends when it is told to."""

    def __init__(self, folder: Path, parent: subprocess.Popen[str]) -> None:
        self.folder, self.parent = folder, parent
        self.living: dict[int, int] = {}

    def start(self, own: int) -> None:
        assert self.parent.stdin is not None and self.parent.stdout is not None
        self.parent.stdin.write(f"{own} {self.folder}\n")
        self.parent.stdin.flush()
        self.living[own] = int(self.parent.stdout.readline())
        self.until(lambda: (self.folder / f"begun {own}").exists())

    def kill(self, own: int) -> None:
        os.kill(self.living.pop(own), signal.SIGKILL)

    def ran(self) -> list[str]:
        log = self.folder / "ran"
        return log.read_text().splitlines() if log.exists() else []

    def until(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not happened() and time.monotonic() < until:
            time.sleep(0.005)
        assert happened()

    def to_the_end(self) -> None:
        (self.folder / "go on").touch()
        for own in self.living:
            self.until(lambda path=self.folder / f"ended {own}": path.exists())  # type: ignore[misc]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path_factory.mktemp("two") / "two.py"
    script.write_text(TWO)
    with subprocess.Popen([sys.executable, script], stdin=-1, stdout=-1, text=True) as process:
        yield process


@pytest.fixture
def benches(tmp_path: Path, parent) -> Iterator[Benches]:
    found = Benches(tmp_path, parent)
    yield found
    for process in found.living.values():
        os.kill(process, signal.SIGKILL)


def test_two_benches_on_one_cache_run_every_cell_once(benches) -> None:
    benches.start(0)
    benches.until(lambda: benches.ran() == ["first 0"])
    benches.start(1)
    benches.until(lambda: benches.ran() == ["first 0", "bad 1"])  # what needs nothing
    time.sleep(0.2)
    assert len(benches.ran()) == 2  # it waits: all the rest needs the first
    benches.to_the_end()
    assert sorted(line.split()[0] for line in benches.ran()) == ["bad", "first", "second", "third"]
    assert len(list(benches.folder.glob("count/*/cell.json"))) == 3


def test_the_hold_of_a_bench_that_is_killed_ends_with_it(benches) -> None:
    benches.start(0)
    benches.until(lambda: benches.ran() == ["first 0"])
    benches.start(1)
    benches.until(lambda: benches.ran() == ["first 0", "bad 1"])
    benches.kill(0)
    benches.until(lambda: len(benches.ran()) == 3)
    benches.to_the_end()
    assert benches.ran()[2:] == ["first 1", "second 1", "third 1"]


def test_a_cell_is_held_by_whoever_runs_it_and_by_nobody_after_that(cache, monkeypatch) -> None:
    seen = []
    one, two = cell("one"), cell("two", fails="plain")

    def look(settings: Any, place: Any) -> dict[str, Any]:
        seen.append((settings["name"], cache.is_held(one), cache.is_held(two)))
        return note(settings, place)

    monkeypatch.setitem(steps.STEPS, "note", look)
    run_cells([one, two], cache)
    assert seen == [("one", True, False), ("two", False, True)]
    assert not cache.is_held(one) and not cache.is_held(two) and not cache.is_held(cell("never"))
