"""Running cells: once each, in an order that needs nothing unfinished, and on past what fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench import steps
from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.pool import Progress, blocked_by, ready, run_cells
from holdfast.bench.run import Bench
from holdfast.bench.suite import Suite
from holdfast.errors import ConfigError


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
    ("fails", "reason"), [("holdfast", "It was meant to fail."), ("plain", "KeyError: 'no such thing'")]
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
    assert cache.forget_failures() == 1
    run_cells([last], cache)
    assert ran(cache)[4:] == ["bad"]


def test_the_watcher_is_told_of_every_cell_that_was_run(cache) -> None:
    seen: list[Progress] = []
    bad = cell("bad", fails="plain")
    run_cells([cell("one"), bad], cache, watch=seen.append)
    assert [(found.cell.label, found.done, found.total) for found in seen] == [("one", 1, 2), ("bad", 2, 2)]
    assert [found.failure for found in seen] == [None, "KeyError: 'no such thing'"]


def test_a_stop_from_the_keyboard_is_no_failure(cache, monkeypatch) -> None:
    def stop(settings: Any, place: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setitem(steps.STEPS, "note", stop)
    with pytest.raises(KeyboardInterrupt):
        run_cells([cell("one")], cache)
    assert cache.failure(cell("one")) is None and cache.record(cell("one")) is None


TOO_HOT = {"method": "p2s", "recipe": {"learning_rate": 1e30}}


def run_suite(suite: Suite, folder: Path, processes: int) -> tuple[dict[str, Any], list[Cell]]:
    """Return the document, and the cells in the order in which they were finished."""
    seen: list[Progress] = []
    found = Bench(CellCache(folder), processes=processes, watch=seen.append).run(suite)
    return found, [progress.cell for progress in seen]


@pytest.fixture(scope="module")
def run_here(small, tmp_path_factory) -> tuple[dict[str, Any], list[Cell]]:
    """A suite in which a row fails."""
    suite = small(methods={"p2s": {}, "too hot": TOO_HOT, "l2": {}})
    return run_suite(suite, tmp_path_factory.mktemp("cells"), 1)


def test_a_row_that_failed_says_why_and_the_others_have_scores(run_here) -> None:
    rows = {row["label"]: row for row in run_here[0]["rows"]}
    assert "loss" in rows["too hot"]["failure"] and rows["too hot"]["scores"] is None
    assert rows["too hot"]["method"] == "p2s" and rows["too hot"]["p_comp"] is rows["too hot"]["seconds"] is None
    assert rows["p2s"]["failure"] is rows["l2"]["failure"] is None
    assert 0 < rows["p2s"]["scores"]["cross"] <= 1


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


DEATH = """
import os, sys
from pathlib import Path
from holdfast.bench import steps
from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
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
    run_cells([good[0], bad, above, *good[1:]], cache, processes=2, watch=lambda progress: None)
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
