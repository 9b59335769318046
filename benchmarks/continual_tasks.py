"""One task of continual.py, as a worker process does it: take one learner through all sessions, leave a record."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from all_methods_tables import Record, Task
from limpet.data.augment import Augmentation
from limpet.data.datasets import load_dataset
from limpet.embeddings import storage
from limpet.evaluation.intervals import mean_interval
from limpet.models.release import load_release
from limpet.models.specs import EncoderSpec
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Recipe
from limpet_bench.sessions.closed_set import ClosedSet, closed_set
from limpet_bench.sessions.plans import PLANS, Setting
from limpet_bench.sessions.results import LearnerResults
from limpet_bench.sessions.runner import Ending, hits, run_sessions
from task_pool import write_json

FIRST, TUNE, FINAL = "first", "tune", "final"
GENERAL, DISJOINT, BLURRY = "general-incremental", "disjoint", "blurry"
LOWER, UPPER = "finetune", "joint"


class Learner(NamedTuple):
    """A method with options; the one that is tuned, if there is one, and what is tried, unless that is the suite's."""

    method: str
    options: Mapping[str, Any] = {}
    tuned: str | None = None
    tried: tuple[float, ...] = ()


NINE = {
    LOWER: Learner("finetune"),
    "lwf": Learner("lwf"),
    "mmd": Learner("mmd"),
    "ewc": Learner("ewc", tuned="weight"),
    "rwalk": Learner("rwalk", tuned="weight"),
    "rainbow": Learner("rainbow"),
    "bct": Learner("bct"),
    "cvs": Learner("cvs"),
    UPPER: Learner("joint"),
}
NO_MODEL, NO_DATA, NO_REPLAY = {"coherence": "none"}, {"data_weight": 0.0}, {"replay": False}
CHOSEN = "cvs, β chosen"
"""CVS with the weight of its data coherence chosen as those of EWC and RWalk are, instead of the paper's 1."""
PARTS = {
    "replay": Learner("cvs", {**NO_MODEL, **NO_DATA}),
    "cvs-m": Learner("cvs", {**NO_DATA, **NO_REPLAY}),
    "cvs-d": Learner("cvs", {**NO_MODEL, **NO_REPLAY}),
    "cvs-d-replay": Learner("cvs", NO_MODEL),
    "cvs-m-d": Learner("cvs", NO_REPLAY),
}
ABLATION = {
    "L_c": LOWER,
    "L_c with replay (not in the paper's table)": "replay",
    "L_c + L_m": "cvs-m",
    "L_c + L_d without replay": "cvs-d",
    "L_c + L_d": "cvs-d-replay",
    "L_c + L_m + L_d without replay": "cvs-m-d",
    "L_c + L_m + L_d": "cvs",
}


@dataclass(frozen=True)
class Suite:
    """What one committed page measures.

    Args:
        title: Of the page.
        data: Name of the data set and its options.
        test_images: Images of every class that are test queries, the first ones; None takes the data's own.
        classes: How many classes to use.
        plans: By setup, the options of its plan and how many seeds to run.
        learners: By name, for all setups.
        parts: Further ones, for the general-incremental setup.
        predictions: What was written before it ran.
        strengths: What is tried for a weight that no paper states.
        model: Network.
        recipe: How every session is trained.
        budget: Exemplars.
    """

    title: str
    data: tuple[str, Mapping[str, Any]]
    test_images: int | None
    classes: int | None
    plans: Mapping[str, tuple[Mapping[str, Any], int]]
    learners: Mapping[str, Learner]
    model: EncoderSpec
    recipe: Recipe
    budget: int
    strengths: tuple[float, ...]
    parts: Mapping[str, Learner] = field(default_factory=dict)
    predictions: tuple[str, ...] = ()

    def learners_of(self, setup: str) -> dict[str, Learner]:
        return {**self.learners, **(self.parts if setup == GENERAL else {})}


CVS_RECIPE = Recipe(
    batch_size=32, learning_rate=0.03, weight_decay=1e-4, nesterov=True, schedule="cosine-restarts", accelerator="cpu"
)
OMNIGLOT_PLAN = {"first_classes": 192, "new_classes": 192, "old_share": 0.4, "sessions": 5, "validation": 1}
OMNIGLOT = Suite(
    title="Nine learners on Omniglot",
    data=("omniglot", {"image_size": 28}),
    test_images=4,
    classes=960,
    plans={
        GENERAL: (OMNIGLOT_PLAN, 3),
        DISJOINT: ({"sessions": 5, "validation": 1}, 1),
        BLURRY: ({"sessions": 5, "minor_share": 0.1, "validation": 1}, 1),
    },
    learners={**NINE, CHOSEN: Learner("cvs", tuned="data_weight", tried=(0.3, 1.0, 3.0, 10.0))},
    model=EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 24}),
    recipe=replace(CVS_RECIPE, epochs=8, augmentation=Augmentation(degrees=10, scale=0.1, shift=0.05)),
    budget=960,
    strengths=(0.0001, 0.001, 0.01, 0.1, 1.0, 10.0),
    parts=PARTS,
)
SUITES = {
    "omniglot": OMNIGLOT,
    "omniglot-drift": replace(
        OMNIGLOT,
        title="What the parts of CVS hold where models drift",
        data=("omniglot", {"image_size": 14}),
        classes=480,
        plans={
            DISJOINT: ({"sessions": 5, "validation": 1}, 3),
            GENERAL: ({"first_classes": 96, "new_classes": 96, "old_share": 0.1, "sessions": 5, "validation": 1}, 1),
        },
        learners={LOWER: NINE[LOWER], **PARTS, "cvs": NINE["cvs"]},
        model=OMNIGLOT.model.model_copy(update={"image_size": 14}),
        budget=480,
        parts={},
        predictions=(
            "The model loss holds what drifts. In disjoint, where a session has no item of an earlier class, it adds "
            "more than 3 points of AR@1 to L_c, the interval above 0; with a tenth of earlier classes it adds less, "
            "and with 40 % (the page of Omniglot) nothing.",
            "Beside the data loss with replay it adds more than a point in disjoint, the interval above 0, and nothing "
            "with a tenth of earlier classes.",
            "In both, L_c + L_d is ahead of L_c + L_m and of L_c + L_d without replay, as in the paper.",
        ),
    ),
    "tiny-imagenet-32": Suite(
        title="Nine learners on a share of Tiny-ImageNet at 32 × 32 pixels",
        data=("tiny-imagenet-32", {"class_share": 0.5, "image_share": 0.3}),
        test_images=None,
        classes=None,
        plans={
            GENERAL: ({"first_classes": 20, "new_classes": 20, "old_share": 0.3, "sessions": 5, "validation": 0.05}, 1)
        },
        learners=NINE,
        model=EncoderSpec(dim=128, channels=3, image_size=32, backbone_options={"filters": 32}),
        recipe=replace(CVS_RECIPE, epochs=8, augmentation=Augmentation(crop_padding=4, flip=True)),
        budget=800,
        strengths=(0.001, 0.01, 0.1),
    ),
}


@dataclass(frozen=True)
class Settings:
    """What all tasks of one work folder have in common, and where things are."""

    suite: str
    epochs: int | None
    root: Path | None = field(compare=False)
    work: Path = field(compare=False)

    def identity(self) -> dict[str, Any]:
        return {"suite": self.suite, "epochs": self.epochs}

    @property
    def recipe(self) -> Recipe:
        recipe = SUITES[self.suite].recipe
        return recipe if self.epochs is None else replace(recipe, epochs=self.epochs)


@functools.cache
def images_of(settings: Settings) -> ClosedSet:
    suite = SUITES[settings.suite]
    name, options = suite.data
    data = load_dataset(name, settings.root, **options)
    return closed_set(data, test_images=suite.test_images, classes=suite.classes)


def setting_of(settings: Settings, setup: str, seed: int) -> Setting:
    suite, data = SUITES[settings.suite], images_of(settings)
    plan = PLANS[setup](data.train.labels, **suite.plans[setup][0], seed=seed)
    return Setting.of(data.name, data.train, data.test, plan, budget=suite.budget)


def learner_of(task: Task, settings: Settings) -> Learner:
    return (
        Learner("finetune") if task.phase == FIRST else SUITES[settings.suite].learners_of(task.scenario)[task.method]
    )


def options_of(task: Task, settings: Settings) -> dict[str, Any]:
    """Return the options that a task trains with; its value is that of the tuned weight."""
    learner = learner_of(task, settings)
    return {**learner.options, **({} if learner.tuned is None else {learner.tuned: task.value})}


MODEL_LOSS = (
    ("L_c", LOWER, "cvs-m"),
    ("L_c + L_d without replay", "cvs-d", "cvs-m-d"),
    ("L_c + L_d", "cvs-d-replay", "cvs"),
)
"""Learners that differ in the model loss alone."""


def model_loss(setup: str, seeds: Iterable[int], settings: Settings) -> list[dict[str, Any]]:
    """Return what the model loss adds to AR@1 in a setup, in points, with intervals over classes."""
    rows = []
    for to, before, after in MODEL_LOSS:
        gains = []
        for seed in seeds:
            without, with_it = (recall_by_class(name, setup, seed, settings) for name in (before, after))
            gains.append([100 * (with_it[name] - without[name]) for name in sorted(without)])
        by_class = np.mean(gains, axis=0)
        low, high = mean_interval(by_class)
        rows.append({"to": to, "gain": float(by_class.mean()), "low": low, "high": high})
    return rows


def recall_by_class(name: str, setup: str, seed: int, settings: Settings) -> dict[str, float]:
    """Return the share of every class in a learner's AR@1, by its name: their mean is AR@1."""
    setting, folder = setting_of(settings, setup, seed), settings.work / f"{setup}-{seed}"
    sessions = setting.plan.sessions
    found = np.zeros(setting.known(sessions - 1))
    for session in range(sessions):
        ended = Ending.read(folder / name / f"session-{session + 1}" / "session.json")
        queries = embed_images(load_release(folder / ended.release), setting.queries(session))
        right = hits(queries, (storage.load(folder / part) for part in ended.galleries), (1,))[1]
        counts = np.bincount(queries.labels, minlength=len(found))
        share = np.bincount(queries.labels, weights=right, minlength=len(found)) / np.maximum(counts, 1)
        found += share * len(found) / (sessions * setting.known(session))
    return dict(zip(setting.images.class_names, found.tolist(), strict=False))


def perform(task: Task, settings: Settings) -> Record:
    """Take one learner through its sessions; the first session of a plan is trained once, for all of them."""
    started = time.perf_counter()
    setting, suite = setting_of(settings, task.scenario, task.seed), SUITES[settings.suite]
    learner, options = learner_of(task, settings), options_of(task, settings)
    experiment = Experiment(
        method=learner.method, method_options=options, model=suite.model, head="normalised", recipe=settings.recipe,
        seed=task.seed,
    )  # fmt: skip
    name = f"first-{task.method}" if task.phase == FIRST else task.method.replace(", β ", "-")
    name += "" if task.value is None else f"-x{task.value:g}"
    folder = settings.work / f"{task.scenario}-{task.seed}"
    records = run_sessions(setting, {name: experiment}, folder, sessions=1 if task.phase == FIRST else None)[name]
    found = LearnerResults.of(experiment, records)
    record = {
        **task._asdict(),
        "options": options,
        "average_recall": found.average_recall,
        "forgetting": found.forgetting,
        "sessions": [one.to_dict() for one in records],
        "seconds": time.perf_counter() - started,
    }
    write_json(settings.work / "records" / f"{task.name.replace(', β ', '-')}.json", record)
    return record
