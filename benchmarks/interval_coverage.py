"""How often 95 % intervals of cross − self (old) hold the truth, where classes differ in what they gain.

    python benchmarks/interval_coverage.py    # about 10 minutes on one core

Classes are drawn from many, queries from each. What a query gains is the mean gain, which is known, plus what its class
gains on top, plus what it gains itself; both are normal. Intervals are those of `limpet.evaluation.intervals`, over
queries and over classes, of one new model, and of the one of 14 candidates that scores most: taken by itself, and
corrected for the choice. Half of the candidates' variance is common to all, as their queries are. Coverage is the share
of trials whose interval holds the truth; with 1,000 trials its own standard error is 0.7 points at 95 %.

Writes interval_coverage.json and interval_coverage.txt.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.intervals import Interval, chosen_interval, mean_interval
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
CANDIDATES = 14
COMMON = 0.5  # share of the variance that candidates have in common
SEEN = {"queries": "queries", "classes": "classes", "best, classes": "best, by itself", "chosen": "best, corrected"}


@dataclass(frozen=True)
class World:
    """Classes and queries, and how much gains differ.

    Args:
        classes: How many are seen.
        queries: Of each.
        of_class: Standard deviation of what a class gains.
        of_query: Of what a query gains on top.
        apart: Of what candidates truly gain.
    """

    classes: int
    queries: int
    of_class: float
    of_query: float = 0.3
    apart: float = 0.0


WORLDS = (
    World(5, 40, 0.1),
    World(10, 20, 0.1),
    World(20, 20, 0.1),
    World(100, 20, 0.1),
    World(659, 20, 0.1),
    World(100, 20, 0.0),
    World(100, 20, 0.1, apart=0.01),
    World(100, 20, 0.1, apart=0.1),
)


def gains(world: World, truth: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw what every query gains with every candidate (Q, candidates), class by class."""

    def drawn(deviation: float, *shape: int) -> NDArray[np.float64]:
        shared, own = rng.normal(size=(*shape, 1)), rng.normal(size=(*shape, CANDIDATES))
        return deviation * (np.sqrt(COMMON) * shared + np.sqrt(1 - COMMON) * own)

    of_class = np.repeat(drawn(world.of_class, world.classes), world.queries, axis=0)
    return truth + of_class + drawn(world.of_query, world.classes * world.queries)


def one_trial(world: World, trial: int, resamples: int) -> dict[str, tuple[bool, float]]:
    """Return of every kind of interval whether it holds the truth, and its width."""
    rng = np.random.default_rng([trial, world.classes, world.queries])
    truth = 0.02 + world.apart * rng.normal(size=CANDIDATES)
    found = gains(world, truth, rng)
    classes = np.repeat(np.arange(world.classes), world.queries)
    best = int(found.mean(axis=0).argmax())
    draws: dict[str, Any] = {"resamples": resamples, "seed": trial}
    scores = {name: found[:, name] for name in range(CANDIDATES)}
    intervals: dict[str, tuple[Interval, float]] = {
        "queries": (mean_interval(found[:, 0], **draws), truth[0]),
        "classes": (mean_interval(found[:, 0], clusters=classes, **draws), truth[0]),
        "best, classes": (mean_interval(found[:, best], clusters=classes, **draws), truth[best]),
        "chosen": (chosen_interval(scores, np.zeros(len(found)), clusters=classes, **draws), truth[best]),
    }
    return {kind: (low <= true <= high, high - low) for kind, ((low, high), true) in intervals.items()}


def of_world(world: World, trials: int, resamples: int) -> dict[str, Any]:
    """Return the coverage and the mean width of every kind of interval."""
    found = [one_trial(world, trial, resamples) for trial in range(trials)]
    kinds = {
        kind: {
            "coverage": float(np.mean([one[kind][0] for one in found])),
            "width": float(np.mean([one[kind][1] for one in found])),
        }
        for kind in SEEN
    }
    return {"world": asdict(world), "trials": trials, "intervals": kinds}


def lines(record: dict[str, Any]) -> Iterator[str]:
    """Write the record for people."""
    yield record["machine"]
    yield f"{record['trials']:,} trials, {record['resamples']:,} resamples; 95 % intervals, {CANDIDATES} candidates"
    yield ""
    yield "                                          share of intervals that hold the truth (mean width)"
    yield "classes x queries  class / query / apart  " + "".join(f"{name:>18}" for name in SEEN.values())
    for found in record["worlds"]:
        world = found["world"]
        cells = "".join(f"{one['coverage']:>9.1%} ({one['width']:.4f})" for one in found["intervals"].values())
        size = f"{world['classes']} x {world['queries']}"
        yield f"{size:<19}{world['of_class']:g} / {world['of_query']:g} / {world['apart']:g}".ljust(42) + cells


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.processes) as pool:
        counts = [options.trials] * len(WORLDS), [options.resamples] * len(WORLDS)
        worlds = list(pool.map(of_world, WORLDS, *counts))
    record = {
        "machine": describe(), "trials": options.trials, "resamples": options.resamples, "worlds": worlds,
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "interval_coverage.json", record)
    text = "\n".join(lines(record)) + "\n"
    (options.out / "interval_coverage.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
