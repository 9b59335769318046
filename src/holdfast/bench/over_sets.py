"""Rows of several test sets at once: P metrics averaged over them, as papers print them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.evaluation.p_metrics import SelfAndCross, p_metrics

SYSTEMS = ("self_old", "self_independent", "self_new", "cross")
RUN = ("trained_on", "scenario", "label", "method", "seed")

Result = Mapping[str, Any]  # a row as `holdfast.bench.results.result_of` makes it


def over_sets(rows: Sequence[Result]) -> list[dict[str, Any]]:
    """Return one row for every run that searched several test sets, P metrics averaged over these.

    Every set counts by its own metric (AdvBCT, section 4.1; NDPP, section IV). A run that failed on one of them has
    none. As in other rows "p_up" and "p_comp" are raw, and "p_score" is of the sigmoid variant; None where one is not
    defined.
    """
    runs: dict[tuple[Any, ...], list[Result]] = {}
    for row in rows:
        runs.setdefault(tuple(row[name] for name in RUN), []).append(row)
    return [
        dict(zip(RUN, run, strict=True)) | _averaged({row["data"]: row["scores"] for row in found})
        for run, found in runs.items()
        if len(found) > 1 and all(row["scores"] and row["scores"].keys() >= set(SYSTEMS) for row in found)
    ]


def _averaged(scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    names = list(scores)
    of_sets = {name: SelfAndCross(*(found[system] for system in SYSTEMS)) for name, found in scores.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an independent model that is not better than the old one
        raw, sigmoid = (p_metrics(of_sets, variant) for variant in ("raw", "sigmoid"))
    values = {"p_up": raw.p_up, "p_comp": raw.p_comp, "p_score": sigmoid.p_score}
    return {
        "data": f"{', '.join(names[:-1])} and {names[-1]}",
        "tests": names,
        **{name: None if value is None or math.isnan(value) else value for name, value in values.items()},
    }
