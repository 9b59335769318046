"""How fast the runs of a leaderboard trained: images per second, and the share of the time that waited for them."""

from __future__ import annotations

from statistics import median

from holdfast.bench.leaderboard import Leaderboard
from holdfast.reports.formats import MISSING, percent

SPEEDS = {"images_per_second": "images/s", "waiting": "waiting"}
"""The keys of runs, and the heads of their columns."""

_MEANING = {
    "images_per_second": "images/s, the images that training went through in a second",
    "waiting": "waiting, the share of training spent waiting for data",
}


def known_speeds(results: Leaderboard) -> list[str]:
    """Return which of them any run has."""
    return [key for key in SPEEDS if any(run.speeds[key] is not None for run in results.rows)]


def median_speeds(results: Leaderboard, label: str) -> list[str]:
    """Write the medians over the runs of a label of those that any run has."""
    written = []
    for key in known_speeds(results):
        values = (run.speeds[key] for run in results.rows if run.label == label)
        found = [value for value in values if value is not None]
        written.append(speed_written(key, median(found) if found else None))
    return written


def speed_written(key: str, value: float | None) -> str:
    """Write one of them.

    >>> speed_written("images_per_second", 1234.5), speed_written("images_per_second", 7.25)
    ('1,234', '7.2')
    >>> speed_written("waiting", 0.123).replace("\N{NO-BREAK SPACE}", " "), speed_written("waiting", None)
    ('12.3 %', '–')
    """
    if value is None:
        return MISSING
    if key == "waiting":
        return percent(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def speed_notes(results: Leaderboard) -> list[str]:
    """Return what has to be said below a table of medians; nothing where no run has any."""
    told = "; ".join(_MEANING[key] for key in known_speeds(results))
    return [f"Medians over runs: {told}."] if told else []
