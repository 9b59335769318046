"""What a comparison of learners comes to: averages over sessions, forgetting, and the document that reports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from holdfast.continual.setting import KS, Setting
from holdfast.methods import METHODS, build_method
from holdfast.training.recipe import Experiment

Records = Sequence[Mapping[str, Any]]


def average_recall(records: Records) -> dict[str, float]:
    """Return AR@K by K: the mean of recall@K over all sessions, the first included (CVS, section 4.2).

    >>> average_recall([{"recall": {"1": 0.5, "2": 1.0}}, {"recall": {"1": 0.25, "2": 0.5}}])
    {'1': 0.375, '2': 0.75}
    """
    return {k: float(np.mean([record["recall"][k] for record in records])) for k in records[0]["recall"]}


def forgetting(records: Records) -> float | None:
    """Return how much recall@1 the classes of earlier sessions lost since they were found best.

    The mean, over the sessions that introduced classes but the last one, of their best recall@1 so far minus their
    last; negative where they are found better than ever before (Chaudhry et al., ECCV 2018, section 3.2).

    Args:
        records: With "recall_by_home" of every session, None where a group was not asked.

    Returns:
        None after a single session.

    >>> forgetting([{"recall_by_home": [0.9, None]}, {"recall_by_home": [0.5, 0.8]}])
    0.4
    """
    table = np.array([record["recall_by_home"] for record in records], np.float64)[:, : len(records)]
    lost = [np.nanmax(column[:-1]) - column[-1] for column in table.T[:-1] if not np.isnan(column[:-1]).all()]
    return float(np.mean(lost)) if lost else None


def learner_document(experiment: Experiment, records: Records) -> dict[str, Any]:
    """Return what the report shows of one learner."""
    method = build_method(experiment.method, experiment.method_options)
    return {
        "method": experiment.method,
        "options": dict(experiment.method_options),
        "gallery_policy": method.gallery_policy,
        "memory": method.memory,
        "average_recall": average_recall(records),
        "forgetting": forgetting(records),
        "sessions": [dict(record) for record in records],
    }


def document_of(
    setting: Setting,
    learners: Mapping[str, Experiment],
    records: Mapping[str, Records],
    *,
    title: str,
    description: str,
) -> dict[str, Any]:
    """Return all that the report of a comparison needs, as plain values.

    Args:
        setting: Images, plan and memory.
        learners: How each was trained, by name.
        records: What `run_sessions` returned.
        title: Of the report.
        description: Of the data, one line.
    """
    plan, base = setting.plan, next(iter(learners.values()))
    sessions = range(plan.sessions)
    return {
        "kind": "sessions",
        "schema_version": 1,
        "title": title,
        "seed": base.seed,
        "ks": list(KS),
        "budget": setting.budget,
        "bounds": bounds(learners),
        "data": {
            "name": setting.name,
            "description": description,
            "training images": len(setting.images),
            "test queries": len(setting.test),
            "classes": len(setting.home),
        },
        "plan": {
            "name": plan.name,
            "asked": dict(plan.asked),
            "sessions": plan.sessions,
            "known_from_start": plan.known_from_start,
            "introduced": [len(plan.introduced(session)) for session in sessions],
            "home": [int((setting.home == session).sum()) for session in sessions],
            "training": [len(plan.rows(session)) for session in sessions],
            "validation": [len(rows) for rows in plan.validation],
        },
        "model": base.model.model_dump(mode="json"),
        "recipe": {**asdict(base.recipe), "head": base.head, "head_options": dict(base.head_options)},
        "learners": {name: learner_document(learners[name], found) for name, found in records.items()},
    }


def bounds(learners: Mapping[str, Experiment]) -> dict[str, str | None]:
    """Return the names of the learners that mark the lower and the upper end of what is possible, None for none."""
    found: dict[str, str | None] = {"lower": None, "upper": None}
    for name, experiment in learners.items():
        side = METHODS[experiment.method].bound
        if side is not None and found[side] is None:
            found[side] = name
    return found
