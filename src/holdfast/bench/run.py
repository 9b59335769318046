"""A suite from its first trial to the document of its board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell, in_order
from holdfast.bench.facts import facts_of
from holdfast.bench.plan import Planner, Row
from holdfast.bench.pool import Progress, run_cells
from holdfast.bench.results import result_of
from holdfast.bench.suite import Suite
from holdfast.bench.tuning import Trial, chosen, judged, planned_trials

DOCUMENT_VERSION = 1


@dataclass(frozen=True)
class Bench:
    """Where and how suites are run.

    Args:
        cache: Finished cells.
        root: Folder that holds the folders of the named data sets.
        processes: Cells at once.
        devices: Where models are trained.
        watch: Told after every cell.
    """

    cache: CellCache
    root: Path | None = None
    processes: int = 1
    devices: Sequence[str] = ("cpu",)
    watch: Callable[[Progress], object] | None = None

    def run(self, suite: Suite) -> dict[str, Any]:
        """Run what is not finished of a suite, and return its document; see `document`."""
        attempts = planned_trials(suite, self.root)
        self._run(attempts)
        trials = judged(attempts, self.cache, suite.gate_metric)
        rows = final_rows(suite, trials, self.root)
        self._run(rows)
        return document(suite, rows, trials, self.cache)

    def _run(self, rows: Sequence[Row]) -> None:
        options = {"root": self.root, "processes": self.processes, "devices": self.devices, "watch": self.watch}
        run_cells([row.score for row in rows], self.cache, **options)  # type: ignore[arg-type]


def final_rows(suite: Suite, trials: Sequence[Trial], root: Path | None) -> list[Row]:
    """Return the rows of a board, as they were chosen."""
    return list(Planner(suite, root, {}).rows(chosen(suite, trials)))


def document(suite: Suite, rows: Sequence[Row], trials: Sequence[Trial], cache: CellCache) -> dict[str, Any]:
    """Return what a leaderboard is made of, as plain values.

    Returns:
        "suite", "rows" (see `result_of`, failed ones too), "tuning" (every trial) and "machines".
    """
    cells = in_order(row.score for row in rows)
    machines = {record["machine"] for cell in cells if (record := cache.record(cell)) is not None}
    return {
        "schema_version": DOCUMENT_VERSION,
        "suite": {
            "name": suite.name,
            "title": suite.title,
            "description": suite.description,
            "metric": suite.gate_metric,
            "kind": suite.track,
            "published": list(suite.published),
            "facts": facts_of(rows, cache),
        },
        "rows": [result_of(row, cache, suite.gate_metric) for row in rows],
        "tuning": [{**trial._asdict(), "place": list(trial.place), "changes": dict(trial.changes)} for trial in trials],
        "machine": "; ".join(sorted(machines)),
    }


@dataclass(frozen=True)
class Estimate:
    """What a suite would run.

    Args:
        unfinished: Cells that are not finished, in order.
        finished: How many are.
        seconds: About how long the unfinished ones take one after another; None where nothing like it was ever run.
        unknown: How many of them nothing is known about.
    """

    unfinished: list[Cell]
    finished: int
    seconds: float | None
    unknown: int


def estimate(suite: Suite, cache: CellCache, root: Path | None) -> Estimate:
    """Return what is left of a suite; tuned rows whose trials are not finished are counted as they are written."""
    attempts = planned_trials(suite, root)
    rows = final_rows(suite, judged(attempts, cache, suite.gate_metric), root)
    cells = in_order(row.score for row in (*attempts, *rows))
    left = [cell for cell in cells if cache.record(cell) is None]
    speeds = _speeds(cache)
    known = [speeds[key] * cell.work for cell in left if (key := _alike(cell.kind, dict(cell.settings))) in speeds]
    return Estimate(left, len(cells) - len(left), sum(known) if known else None, len(left) - len(known))


def _speeds(cache: CellCache) -> dict[tuple[str, str], float]:
    """Return the median seconds per unit of work of cells that are alike."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in cache.records():
        speed = record["seconds"] / max(record["work"], 1e-9)
        found.setdefault(_alike(record["kind"], record["settings"]), []).append(speed)
    return {key: float(np.median(values)) for key, values in found.items()}


def _alike(kind: str, settings: dict[str, Any]) -> tuple[str, str]:
    """Return what the speed of a cell mostly hangs on: its kind, and the network where one is trained."""
    model = settings.get("experiment", {}).get("model", {})
    options = model.get("backbone_options", {})
    return kind, f"{model.get('backbone', settings.get('model', ''))} {model.get('image_size', '')} {options}"
