"""What cells of the track "sessions" do: the first session, which learners share, and all sessions of one learner.

A learner's folder is one of `holdfast.continual.runner.run_sessions`, so a run that was stopped anywhere continues with
the session it was in.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from holdfast.bench.pool import Place
from holdfast.bench.settings import experiment_on
from holdfast.bench.sources import Settings, open_images
from holdfast.continual.plans import PLANS, Setting
from holdfast.continual.results import LearnerResults
from holdfast.continual.runner import run_sessions
from holdfast.data.closed_set import closed_set

RUN, LEARNER, FIRST = "run", "learner", "session-1"


def first_session(settings: Settings, place: Place) -> dict[str, Any]:
    """Train the model that all learners of a plan begin with, and embed its gallery."""
    setting = open_setting(settings, place.root)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"])
    (record,) = run_sessions(setting, {LEARNER: experiment}, place.folder / RUN, sessions=1)[LEARNER]
    return {"fingerprint": record.fingerprint, "images": record.trained_images, "recall": record.recall}


def sessions(settings: Settings, place: Place) -> dict[str, Any]:
    """Train one learner through all sessions of a plan; with "first" in its needs, from that first session on."""
    setting = open_setting(settings, place.root)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"])
    if "first" in place.needs:
        hand_over(place.needs["first"] / RUN / FIRST, place.folder / RUN / FIRST)
    records = run_sessions(setting, {LEARNER: experiment}, place.folder / RUN)[LEARNER]
    learner = LearnerResults.of(experiment, records)
    recall = {f"ar@{k}": value for k, value in learner.average_recall.items()}
    last = {"last": records[-1].recall["1"], "forgetting": learner.forgetting}
    known = records[0].seconds.training if "first" in place.needs else 0.0  # that cell's
    return {
        "scores": {**recall, **last},
        "sessions": [record.to_dict() for record in records],
        "seconds": learner.seconds - known,
    }


def open_setting(settings: Settings, root: Path | None) -> Setting:
    """Return images, queries, plan and memory of a cell.

    Args:
        settings: "data", "divided" (see `closed_set`), "plan" with its name and options, and "budget", which a first
            session does without: it replays nothing, whatever its learners will.
        root: Folder that holds the folders of the named data sets.
    """
    data = closed_set(open_images(settings["data"], root), **settings["divided"])
    plan = PLANS[settings["plan"]["name"]](data.train.labels, **settings["plan"]["options"])
    return Setting.of(data.name, data.train, data.test, plan, budget=settings.get("budget"))


def hand_over(first: Path, folder: Path) -> None:
    """Copy a finished first session to where `run_sessions` looks for it, wholly or not at all."""
    if folder.exists():
        return
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(first, part)
    part.rename(folder)
