"""A suite from its first trial to the runs of its board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell, in_order
from holdfast.bench.code_version import code_version
from holdfast.bench.facts import facts_of
from holdfast.bench.leaderboard import BenchRuns, SuiteRecord
from holdfast.bench.over_sets import over_sets
from holdfast.bench.plan import Planner, Row
from holdfast.bench.pool import Progress, run_cells
from holdfast.bench.results import own_cells, result_of
from holdfast.bench.suite import Suite
from holdfast.bench.tuning import Trial, chosen, judged, planned_trials


@dataclass(frozen=True)
class Bench:
    """Where and how suites are run.

    Args:
        cache: Finished cells.
        root: Folder that holds the folders of the named data sets.
        processes: Cells at once.
        devices: Where models are trained.
        watch: Told when cells are begun, and after every cell.
    """

    cache: CellCache
    root: Path | None = None
    processes: int = 1
    devices: Sequence[str] = ("cpu",)
    watch: Callable[[Progress], object] | None = None

    def run(self, suite: Suite) -> BenchRuns:
        """Run what is not finished of a suite, and return what all of it came to."""
        attempts = planned_trials(suite, self.root)
        self._run(attempts)
        trials = judged(attempts, self.cache)
        rows = final_rows(suite, trials, self.root)
        self._run(rows)
        return bench_runs(suite, rows, trials, self.cache)

    def _run(self, rows: Sequence[Row]) -> None:
        options = {"root": self.root, "processes": self.processes, "devices": self.devices, "watch": self.watch}
        run_cells([row.score for row in rows], self.cache, **options)  # type: ignore[arg-type]


def final_rows(suite: Suite, trials: Sequence[Trial], root: Path | None) -> list[Row]:
    """Return the rows of a board, as they were chosen."""
    return list(Planner(suite, root, {}, chosen=chosen(suite, trials)).rows())


def bench_runs(suite: Suite, rows: Sequence[Row], trials: Sequence[Trial], cache: CellCache) -> BenchRuns:
    """Return what a leaderboard is made of: every run, failed ones too, and every trial."""
    sharing = Counter(cell.address for row in rows for cell in own_cells(row))
    results = [result_of(row, cache, sharing) for row in rows]
    cells = in_order(row.score for row in rows)
    machines = {record["machine"] for cell in cells if (record := cache.record(cell)) is not None}
    told = SuiteRecord(
        name=suite.name,
        title=suite.title,
        description=suite.description,
        metric=", ".join(dict.fromkeys(row.metric for row in rows)),
        kind=suite.track,
        published=list(suite.published),
        facts=facts_of(rows, cache),
    )
    return BenchRuns(
        suite=told,
        machine="; ".join(sorted(machines)),
        rows=results,
        combined=over_sets(results),
        tuning=[{**trial._asdict(), "place": list(trial.place), "changes": dict(trial.changes)} for trial in trials],
    )


@dataclass(frozen=True)
class Estimate:
    """What a suite would run.

    Args:
        unfinished: Cells that are not finished, in order.
        finished: How many are.
        seconds: About how long the unfinished ones take one after another; None where nothing like it was ever run.
        unknown: How many of them nothing is known about.
        trials: What a trial tries, by the addresses of the cells that are made for it.
    """

    unfinished: list[Cell]
    finished: int
    seconds: float | None
    unknown: int
    trials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def estimate(suite: Suite, cache: CellCache, root: Path | None) -> Estimate:
    """Return what is left of a suite; tuned rows whose trials are not finished are counted as they are written."""
    attempts = planned_trials(suite, root)
    rows = final_rows(suite, judged(attempts, cache), root)
    cells = in_order(row.score for row in (*attempts, *rows))
    left = [cell for cell in cells if cache.record(cell) is None]
    speeds = _speeds(cache, {cell.address: cell.work for cell in cells})
    known = [speeds[key] * cell.work for cell in left if (key := _alike(cell.kind, dict(cell.settings))) in speeds]
    trials = {cell.address: row.changes for row in attempts for cell in own_cells(row)}
    return Estimate(left, len(cells) - len(left), sum(known) if known else None, len(left) - len(known), trials)


def _speeds(cache: CellCache, works: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Return the median seconds per unit of work of cells that are alike.

    Cells that other versions of the code made count only where this one made none.

    Args:
        cache: Finished cells.
        works: How much there is to do in some of them, by address, as it is counted now; others have what their
            record says, which may have been counted otherwise.
    """
    found: dict[tuple[str, str], dict[bool, list[float]]] = {}
    for record in cache.records():
        speed = record["seconds"] / max(works.get(record["address"], record["work"]), 1e-9)
        own = record.get("code") == code_version()
        found.setdefault(_alike(record["kind"], record["settings"]), {}).setdefault(own, []).append(speed)
    return {key: float(np.median(speeds.get(True) or speeds[False])) for key, speeds in found.items()}


def _alike(kind: str, settings: dict[str, Any]) -> tuple[str, str]:
    """Return what the speed of a cell mostly hangs on: its kind, and the network where one is trained."""
    model = settings.get("experiment", {}).get("model", {})
    options = model.get("backbone_options", {})
    return kind, f"{model.get('backbone', settings.get('model', ''))} {model.get('image_size', '')} {options}"
