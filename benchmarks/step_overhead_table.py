"""Targets of `step_overhead.py`, and its measurements as numbers and as text."""

from __future__ import annotations

from typing import Any

import numpy as np

LOSS_BOUND, LOSS_CLASSES = 3.0, 1000
"""The largest ratio of the loss alone, and the number of classes at which it is asked for."""


def step_bound(method: str, classes: int) -> float | None:
    """Return the largest ratio of a whole step; None where it is only reported."""
    if method == "nccl" and classes > LOSS_CLASSES:  # compares the scores of all classes with a queue of old ones
        return None
    return 1.15 if method in ("nccl", "hot_refresh", "hbct") else 1.10


def summary(times: list[float], reference: list[float]) -> dict[str, Any]:
    """Return the median of times, that of their ratios to the reference's of the same round, and the ratios' spread.

    >>> summary([2.0, 3.0, 8.0], [1.0, 2.0, 2.0])
    {'seconds': 3.0, 'ratio': 2.0, 'quartiles': [1.75, 3.0], 'ratio of the fastest': 2.0}
    """
    ratios = np.array(times) / np.array(reference)
    return {
        "seconds": float(np.median(times)),
        "ratio": float(np.median(ratios)),
        "quartiles": [float(value) for value in np.quantile(ratios, [0.25, 0.75])],
        "ratio of the fastest": min(times) / min(reference),
    }


def missed_targets(record: dict[str, Any]) -> list[str]:
    """Return one sentence for every target that a method does not meet."""
    missed = []
    for classes, name, found in _rows(record):
        bound, place = step_bound(name, classes), f"{name} at {classes:,} classes"
        if bound is not None and found["step"]["ratio"] > bound:
            missed.append(f"{place}: a step takes {found['step']['ratio']:.3f} of independent's, at most {bound:.2f}")
        if classes == LOSS_CLASSES and found["loss"]["ratio"] > LOSS_BOUND:
            missed.append(
                f"{place}: the loss takes {found['loss']['ratio']:.2f} of independent's, at most {LOSS_BOUND:g}"
            )
        if len(set(found["operations"])) > 1:
            missed.append(f"{place}: operations grow with the batch, {found['operations']}")
    return missed


def lines_of(record: dict[str, Any]) -> list[str]:
    """Return the lines of the text file."""
    lines = [record["machine"]]
    for classes, measured in record["classes"].items():
        space = record["arguments"].get("space", "hypersphere")
        size = f"{int(classes):,} classes, {measured['dim']} dimensions, batch {record['batch']}"
        lines += ["", size + ("" if space == "hypersphere" else f", {space} space"), _HEAD]
        lines += [_line(name, int(classes), found) for name, found in measured["methods"].items()]
    return [*lines, "", *_notes(record), *(f"Missed: {sentence}." for sentence in record["missed"])]


_HEAD = (
    f"{'method':<12}{'step, s':>9}{'ratio':>8}{'bound':>7}{'ok':>5}"
    f"{'loss, ms':>12}{'ratio':>7}{'threads':>9}{'operations':>12}"
)


def _line(name: str, classes: int, found: dict[str, Any]) -> str:
    step, loss, bound = found["step"], found["loss"], step_bound(name, classes)
    verdict = "-" if bound is None else "yes" if step["ratio"] <= bound else "no"
    counts = "/".join(str(count) for count in sorted(set(found["operations"])))
    return (
        f"{name:<12}{step['seconds']:>9.3f}{step['ratio']:>8.3f}{'-' if bound is None else f'{bound:.2f}':>7}"
        f"{verdict:>5}{1000 * loss['seconds']:>12.3f}{loss['ratio']:>7.2f}"
        f"{found['loss_threaded']['ratio']:>9.2f}{counts:>12}"
    )


def _notes(record: dict[str, Any]) -> list[str]:
    rounds, steps, threads = record["arguments"]["rounds"], record["arguments"]["steps"], record["threads"]
    return [
        "Seconds are medians; a ratio is the median over rounds of a method's time over independent's in the same",
        f"round: {rounds} rounds of {steps} steps (median) for the whole step, on {threads} threads. The loss alone is",
        f"forward and backward at given embeddings on one thread, its ratio once more on {threads} (column threads).",
        "Operations of the loss's forward, equal for 32 rows and for 128 unless two numbers stand there.",
        f"Targets: steps within their bound; the loss alone at most {LOSS_BOUND:g} with {LOSS_CLASSES:,} classes.",
    ]


def _rows(record: dict[str, Any]) -> list[tuple[int, str, dict[str, Any]]]:
    return [
        (int(classes), name, found)
        for classes, measured in record["classes"].items()
        for name, found in measured["methods"].items()
    ]
