"""What a bench comes to: its runs, their means, ranks, tests and Pareto front, as one document for reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.bench.runs import Place, Runs, measures
from holdfast.bench.statistics import (
    LEVEL,
    Row,
    SeedMean,
    cell_ranks,
    critical_difference,
    friedman,
    mean_over_seeds,
    measured,
    not_told_apart,
    of_data_sets,
    pareto_front,
)
from holdfast.errors import DataError, unknown_name

SCHEMA_VERSION = 1

REFERENCES = ("self_old", "self_independent")
"""Scores that belong to the models that are given, not to a label."""


def board_document(
    rows: Sequence[Row],
    suite: Mapping[str, Any],
    *,
    machine: str,
    command: str,
    wall_seconds: float,
    tuning: Sequence[Mapping[str, Any]] = (),
    combined: Sequence[Mapping[str, Any]] = (),
    references: Mapping[str, str] | None = None,
    ranked_by: str | None = None,
    lower_is_better: Sequence[str] = ("forgetting",),
) -> dict[str, Any]:
    """Return all that the pages and tables of a leaderboard need, as plain values.

    Args:
        rows: One per run: "data", "scenario", "method", "label", "options", "seed", "metric", "scores", "p_up",
            "p_comp", "p_score", "verdict", "seconds" and "failure". NaN becomes None.
        suite: Its "name", "title", "description", "metric" and "kind".
        machine: Where it ran, in words.
        command: What was typed.
        wall_seconds: How long it took.
        tuning: The trials that chose options, plain values with names of the caller's choice.
        combined: Rows of several test sets at once; see `holdfast.bench.over_sets`.
        references: Labels that are shown but not ranked, such as an upper bound, with what they are.
        ranked_by: The score that ranks; by default "cross" where runs have it, else the metric of the suite.
        lower_is_better: Scores of which less is better.

    Raises:
        ConfigError: No run has the score that ranks.
        DataError: There are no runs, two are of the same label, cell and seed, or a label stands for two methods.
    """
    kept = [_without_nan(row) for row in rows]
    _check_labels(kept)
    chosen = _ranked_by(kept, suite, ranked_by)
    return {
        "kind": "leaderboard",
        "schema_version": SCHEMA_VERSION,
        "suite": dict(suite),
        "machine": machine,
        "command": command,
        "wall_seconds": wall_seconds,
        "tuning": [_without_nan(trial) for trial in tuning],
        "rows": kept,
        "combined": [_without_nan(row) for row in combined],
        "board": _board(Runs(kept), chosen, dict(references or {}), set(lower_is_better)),
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _check_labels(rows: Sequence[Row]) -> None:
    if not rows:
        raise DataError("No runs.", expected="at least one", to_do="run the suite first.")
    methods: dict[str, str] = {}
    for row in rows:
        if methods.setdefault(row["label"], row["method"]) != row["method"]:
            raise DataError(
                f"The label '{row['label']}' stands for '{methods[row['label']]}' and '{row['method']}'.",
                expected="one method per label",
            )


def _ranked_by(rows: Sequence[Row], suite: Mapping[str, Any], asked: str | None) -> str:
    names = measures(rows)
    if asked is None:
        asked = "cross" if "cross" in names or not names else str(suite["metric"])
    if names and asked not in names:
        raise unknown_name("score to rank by", asked, names)
    return asked


def _board(runs: Runs, ranked_by: str, references: Mapping[str, str], lower: set[str]) -> dict[str, Any]:
    ranked = [label for label in runs.labels if label not in references]
    places = [place for place in runs.cells if any(runs.complete(ranked_by, place, label) for label in ranked)]
    values = runs.values(ranked_by, places, ranked)
    ranks = cell_ranks(values, higher_is_better=ranked_by not in lower)
    judged = of_data_sets(ranks, [runs.models_of(place)[0] for place in places])
    averaged = judged if len(judged) > 1 else ranks  # of one data set there is nothing to test, and cells say more
    average = dict(zip(ranked, averaged.mean(axis=0).tolist(), strict=True)) if places and ranked else {}
    rank_of = {place: dict(zip(ranked, row.tolist(), strict=True)) for place, row in zip(places, ranks, strict=True)}
    front = _front(runs)
    labels = [
        _label(runs, label, references.get(label), average.get(label), front)
        | {"best": sum(found.get(label) == min(found.values()) for found in rank_of.values())}
        for label in runs.labels
    ]
    labels.sort(key=_order)  # of equal ones the earlier comes first
    return {
        "ranked_by": ranked_by,
        "lower_is_better": sorted(lower),
        "measures": list(runs.means),
        "labels": labels,
        "cells": [_cell(runs, place, rank_of.get(place, {}), ranked_by) for place in runs.cells],
        "references": _given(runs),
        "front": front,
        **_tests(judged, [label for label in ranked if label in average]),
    }


def _order(found: Mapping[str, Any]) -> tuple[float, bool]:
    return math.inf if found["rank"] is None else found["rank"], bool(found["failed"] or found["missing"])


def _label(
    runs: Runs, label: str, reference: str | None, rank: float | None, front: Mapping[str, Any] | None
) -> dict[str, Any]:
    rows = runs.of(label)
    verdicts = [row["verdict"] for row in rows if row.get("verdict") is not None]
    return {
        "label": label,
        "method": rows[0]["method"],
        "options": dict(rows[0].get("options") or {}),
        "reference": reference,
        "rank": rank,
        "means": {name: runs.overall(name, label) for name in runs.means},
        "front": front is not None and label in front["labels"],
        "runs": len(rows),
        "failed": sum(bool(row.get("failure")) for row in rows),
        "missing": sum(map(len, runs.cells.values())) - len(rows),
        "compatible": verdicts.count("compatible"),
        "mixed": verdicts.count("mixed"),
        "judged": len(verdicts),
        "seconds": float(sum(row.get("seconds") or 0.0 for row in rows)),
    }


def _cell(runs: Runs, place: Place, ranks: Mapping[str, float], ranked_by: str) -> dict[str, Any]:
    found = {}
    for label in runs.labels:
        rows = runs.of(label, place)
        means = {name: runs.mean(name, place, label) for name in runs.means}
        found[label] = {
            "rank": ranks.get(label),
            "complete": runs.complete(ranked_by, place, label),
            "failed": sum(bool(row.get("failure")) for row in rows),
            "missing": len(runs.cells[place]) - len(rows),
            "means": {name: None if mean is None else mean._asdict() for name, mean in means.items()},
        }
    return {
        "data": place[0],
        "scenario": place[1],
        "seeds": runs.cells[place],
        "ranked": bool(ranks),
        "references": {name: mean._asdict() for name, mean in _given_in(runs, place).items() if mean is not None},
        "labels": found,
    }


def _given(runs: Runs) -> dict[str, Any]:
    """Return the means over cells of the models that are given, each where all cells have it."""
    found = {}
    for name in REFERENCES:
        means = [_given_in(runs, place)[name] for place in runs.cells]
        present = [mean.mean for mean in means if mean is not None]
        found[name] = float(np.mean(present)) if len(present) == len(means) else None
    return found


def _given_in(runs: Runs, place: Place) -> dict[str, SeedMean | None]:
    """Return mean and deviation over seeds of the models that are given; None where labels have other ones.

    In a chain the gallery that is searched is that of a model of the label itself: no system that all face.
    """
    found: dict[str, SeedMean | None] = {}
    for name in REFERENCES:
        by_seed: dict[int, list[float]] = {}
        for row in runs.rows:
            value = measured(row, name)
            if (row["data"], row["scenario"]) == place and not math.isnan(value):
                by_seed.setdefault(row["seed"], []).append(value)
        one = all(np.allclose(values, values[0], rtol=0, atol=1e-9) for values in by_seed.values())
        found[name] = mean_over_seeds([np.mean(values) for values in by_seed.values()]) if one else None
    return found


def _front(runs: Runs) -> dict[str, Any] | None:
    """Return which labels no other beats in both P_comp and P_up; None where none has both.

    A label that is not complete in every cell where they are defined takes no part.
    """
    both = {label: [runs.overall(name, label) for name in ("p_comp", "p_up")] for label in runs.labels}
    known = [label for label, found in both.items() if None not in found]
    if not known:
        return None
    marked = pareto_front([[found["mean"] for found in both[label] if found] for label in known])
    return {
        "labels": [label for label, on in zip(known, marked, strict=True) if on],
        "cells": len(runs.defined("p_comp")),
        "incomplete": [label for label in runs.labels if label not in known],
    }


def _tests(ranks: NDArray[np.float64], labels: Sequence[str]) -> dict[str, Any]:
    """Return whether labels differ at all, and which of them are told apart; nothing where that cannot be asked.

    Ranks have a row per data set.

    Where the test finds no difference, no two are told apart (Demšar, section 3.2.2).
    """
    sets, count = ranks.shape
    if min(sets, count) < 2:
        return {"friedman": None, "nemenyi": None, "untested": "cells" if sets < 2 else "labels"}
    tested = friedman(ranks)
    difference = critical_difference(count, sets)
    differ = tested.p_value < LEVEL
    groups = not_told_apart(ranks.mean(axis=0), difference if differ else math.inf)
    f = tested.f if math.isfinite(tested.f) else None
    return {
        "friedman": {**tested._asdict(), "f": f, "differ": differ},
        "nemenyi": {
            "level": LEVEL,
            "critical_difference": difference,
            "groups": [[labels[place] for place in group] for group in groups],
        },
        "untested": None,
    }
