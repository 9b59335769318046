"""How long intervals and p-values take: 10,000 queries x 4 metrics, one thread, beside scipy.stats.

Usage: OMP_NUM_THREADS=1 python benchmarks/bootstrap.py [--queries 10000] [--metrics 4] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from limpet.evaluation.intervals import mean_intervals, p_values
from machine import describe

RESULTS = Path(__file__).parent / "results"
RESAMPLES, FLIPS = 1_000, 10_000
SLOW_REPEATS = 3  # of scipy
BATCH = 200  # resamples that scipy holds at once, as many as we do

NOTES = """\
Seconds per call: median, least and most of {repeats} runs in turn after one to warm up ({slow} of scipy.stats), on one
thread. Bootstrap: percentile intervals of the means of all metrics, {resamples:,} resamples, the same draws for all
metrics. Permutation: two-sided p-values of the mean differences, {flips:,} draws of signs, the same for all metrics.
Classes: {classes:,} whole classes drawn or flipped together. scipy.stats has one metric, as it draws anew for each; its
bootstrap is the percentile one, both in batches of {batch}, vectorised.
The two agree: ends of the interval differ by {ends:.2f} standard errors of an end, p-values by {chance:.2f} of theirs
({ours_p:.4f} and {scipy_p:.4f}).
"""

Values = NDArray[np.float64]


def paired(queries: int, metrics: int, seed: int) -> Values:
    """Return differences like those of average precision: many zeros, some large."""
    rng = np.random.default_rng(seed)
    changed = rng.random((queries, metrics)) < 0.4
    return np.where(changed, rng.normal(0.004, 0.25, size=(queries, metrics)), 0.0)


def scipy_interval(values: Values) -> tuple[float, float]:
    result = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", batch=BATCH, rng=np.random.default_rng(1)
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def scipy_p_value(values: Values) -> float:
    result = scipy.stats.permutation_test(
        (values, np.zeros_like(values)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        batch=BATCH,
        rng=np.random.default_rng(1),
    )
    return float(result.pvalue)


def tasks(values: Values, classes: NDArray[np.int64]) -> dict[str, tuple[Callable[[], Any], int]]:
    """Return what is measured and how often, by name."""
    columns = {f"metric {column}": values[:, column] for column in range(values.shape[1])}
    wide = f"{values.shape[1]} metrics"
    return {
        f"bootstrap, {wide}": (lambda: mean_intervals(columns, resamples=RESAMPLES), 0),
        f"bootstrap by class, {wide}": (lambda: mean_intervals(columns, resamples=RESAMPLES, clusters=classes), 0),
        "bootstrap, scipy.stats, 1 metric": (lambda: scipy_interval(values[:, 0]), SLOW_REPEATS),
        f"permutation, {wide}": (lambda: p_values(columns, resamples=FLIPS), 0),
        f"permutation by class, {wide}": (lambda: p_values(columns, resamples=FLIPS, clusters=classes), 0),
        "permutation, scipy.stats, 1 metric": (lambda: scipy_p_value(values[:, 0]), SLOW_REPEATS),
    }


def measure(work: dict[str, tuple[Callable[[], Any], int]], repeats: int) -> dict[str, dict[str, Any]]:
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for run in range(repeats + 1):  # the first warms up
        for name, (task, fewer) in work.items():
            if fewer and run >= fewer:
                continue
            start = time.perf_counter()
            task()
            taken = time.perf_counter() - start
            if run or fewer:
                seconds[name].append(taken)
    return {
        name: {
            "median_seconds": round(statistics.median(found), 4),
            "least": round(min(found), 4),
            "most": round(max(found), 4),
            "seconds": [round(one, 4) for one in found],
        }
        for name, found in seconds.items()
    }


def agreement(values: Values) -> dict[str, float]:
    """Return how far ours are from those of scipy, in standard errors of what so few draws can tell."""
    ours, theirs = mean_intervals({"one": values}, resamples=RESAMPLES)["one"], scipy_interval(values)
    error = values.std() / math.sqrt(len(values)) * 2.67 / math.sqrt(RESAMPLES)  # of a quantile at 2.5 %, normal law
    chance, scipy_chance = p_values({"one": values}, resamples=FLIPS)["one"], scipy_p_value(values)
    spread = math.sqrt((chance * (1 - chance) + chance * (2 - chance)) / FLIPS)  # scipy doubles the share of one tail
    return {
        "ends": max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / (error * math.sqrt(2)),
        "chance": abs(chance - scipy_chance) / spread,
        "ours_p": chance,
        "scipy_p": scipy_chance,
    }


def table(record: dict[str, Any]) -> str:
    lines = [record["task"], record["machine"], "", f"{'':38}{'median s':>10}{'least':>9}{'most':>9}"]
    lines += [
        f"{name:38}{row['median_seconds']:10.3f}{row['least']:9.3f}{row['most']:9.3f}"
        for name, row in record["measured"].items()
    ]
    return "\n".join([*lines, "", *record["notes"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, default=4)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    values = paired(options.queries, options.metrics, options.seed)
    classes = np.random.default_rng(options.seed).integers(options.classes, size=options.queries)
    with threadpool_limits(1):
        measured = measure(tasks(values, classes), options.repeats)
        agrees = agreement(values[:, 0])
    notes = NOTES.format(
        repeats=options.repeats, slow=SLOW_REPEATS, resamples=RESAMPLES, flips=FLIPS, classes=options.classes,
        batch=BATCH, **agrees,
    )  # fmt: skip
    record = {
        "task": f"{options.queries:,} queries x {options.metrics} metrics",
        "machine": f"{describe()}, scipy {scipy.__version__}",
        "seed": options.seed,
        "measured": measured,
        "agreement": agrees,
        "notes": notes.splitlines(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bootstrap.json").write_text(json.dumps(record, indent=2) + "\n")
    text = table(record)
    (RESULTS / "bootstrap.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
