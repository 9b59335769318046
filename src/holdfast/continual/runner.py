"""One session after another: train, embed the session's gallery once and for ever, score everything embedded so far.

A session reads what it needs from the files of the session before and ends with one file, ``session.json``. So a run
that was stopped anywhere continues with the same command and ends with the same numbers, and a session needs no more
memory for coming late. ::

    OUT/
      setting.json              what all learners share
      session-1/                the first model, the same for all learners, with its gallery
      LEARNER/
        learner.json            its settings
        session-1/ session-2/ ...
          model.safetensors ... the session's release
          gallery.safetensors   what it embedded
          session.json          scores, exemplars for the next session, and where release and gallery are
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.continual.exemplars import EXEMPLARS
from holdfast.continual.results import SessionRecord
from holdfast.continual.session import OnRun, read_plain, run_session, write_plain
from holdfast.continual.setting import Setting
from holdfast.errors import ConfigError, refuse, unknown_name
from holdfast.methods import build_method
from holdfast.methods.base import CompatibilityMethod
from holdfast.models.heads import build_head
from holdfast.models.seeding import seeded
from holdfast.training.recipe import Experiment


def run_sessions(
    setting: Setting,
    learners: Mapping[str, Experiment],
    folder: Path,
    *,
    sessions: int | None = None,
    on_run: OnRun | None = None,
) -> dict[str, list[SessionRecord]]:
    """Train every learner through the sessions of a plan, and score each session.

    Args:
        setting: Images, plan and memory that they share.
        learners: How each is trained, by a name of its own; they differ in method and method options.
        folder: Where everything goes; a run that was stopped there continues.
        sessions: Stop after so many; all when left out.
        on_run: Opens a context for the run of a given name, which gives what is told every step.

    Returns:
        For every learner the record of each session.

    Raises:
        ConfigError: A learner cannot learn in sessions, or the folder holds other ones. Nothing was trained.
    """
    total = setting.plan.sessions if sessions is None else sessions
    refuse(not 1 <= total <= setting.plan.sessions, f"sessions = {total}.", f"from 1 to {setting.plan.sessions}")
    for name, experiment in learners.items():
        check_learner(name, experiment, setting)
    shared = {**setting.identity, **_shared(learners)}
    claims = {folder / name / "learner.json": _own(experiment) for name, experiment in learners.items()}
    claims = {folder / "setting.json": shared, **claims}
    for path, identity in claims.items():
        refuse_other(path, identity)
    for path, identity in claims.items():
        write_plain(path, identity)
    return {
        name: [run_session(setting, name, experiment, folder, session, on_run=on_run) for session in range(total)]
        for name, experiment in learners.items()
    }


def check_learner(name: str, experiment: Experiment, setting: Setting) -> CompatibilityMethod:
    """Return the method of a learner, or refuse it before anything is trained.

    Raises:
        ConfigError: Its method, name or recipe is none for sessions, or it needs a memory and there is none.
    """
    method = build_method(experiment.method, experiment.method_options)
    refuse(
        not name or name.startswith(".") or "/" in name or name.startswith("session-"),
        f"A learner named '{name}'.",
        "a name that can be a folder, and does not begin with session-",
    )
    refuse(
        "hypersphere" not in method.spaces or experiment.geometry.space not in (None, "hypersphere"),
        f"The learner '{name}' trains on the {experiment.geometry.space or ' or '.join(sorted(method.spaces))} space.",
        "the hypersphere: a gallery of many models is searched by cosine",
    )
    refuse(
        experiment.recipe.devices > 1,
        f"The learner '{name}' was to train with {experiment.recipe.devices} devices.",
        "one: sessions are trained in one process",
    )
    _try_out(name, experiment, method, setting)
    if method.memory is not None and method.memory not in EXEMPLARS:
        raise unknown_name("choice of exemplars", method.memory, EXEMPLARS)
    refuse(
        method.memory not in (None, "everything") and setting.budget is None,
        f"The learner '{name}' replays images of earlier sessions, and no memory was given.",
        "how many images it may keep: --budget N",
    )
    return method


def _try_out(name: str, experiment: Experiment, method: CompatibilityMethod, setting: Setting) -> None:
    """Build what every session will build, and refuse sessions that cannot be trained.

    Raises:
        ConfigError: An option of network, head or batches is wrong, or a session has too few classes.
    """
    recipe, plan = experiment.recipe, setting.plan
    with seeded(0):
        experiment.model.build(experiment.weights, experiment.freeze_backbone)
        build_head(experiment.head or "normalised", 2, experiment.model.dim, dict(experiment.head_options))
    refuse(
        method.memory_share is not None and recipe.items_per_class is not None,
        f"The learner '{name}' draws a share of every batch from its memory, and items_per_class was given, too.",
        "one of the two: leave --recipe.items-per-class out",
    )
    least = 2 if recipe.items_per_class is None else recipe.batch_size // recipe.items_per_class
    for session in range(plan.sessions):
        classes = len(np.unique(plan.labels[plan.rows(session)]))
        refuse(
            classes < least and not (session > 0 and method.memory is not None and method.replays == "always"),
            f"Session {session + 1} of the {plan.name} plan brings images of {classes} "
            f"class{'' if classes == 1 else 'es'}, for the learner '{name}'.",
            f"at least {least} in every session; fewer sessions, or more classes in each",
        )


def refuse_other(path: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that is for something else, as a file in it says.

    Raises:
        ConfigError: The file names other settings; nothing in the folder was changed.
    """
    if not path.exists():
        return
    found, wanted = read_plain(path), json.loads(json.dumps(identity))
    different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if different:
        raise ConfigError(
            f"The folder '{path.parent}' holds a run with other settings: {', '.join(different)} differ.",
            expected="the settings that it was started with",
            to_do="use them to continue, or choose another --out; what is there is intact.",
        )


def _shared(learners: Mapping[str, Experiment]) -> dict[str, Any]:
    """Return the settings that all learners share, and with them the first session, as plain values.

    Raises:
        ConfigError: They do not share them.
    """
    found = {name: _recipe(experiment) for name, experiment in learners.items()}
    first, *others = found
    for name in others:
        different = [key for key, value in found[name].items() if found[first][key] != value]
        refuse(
            bool(different),
            f"The learners '{first}' and '{name}' have other settings: {', '.join(different)}.",
            "learners that differ in method and method options only: they share the first session",
        )
    return found[first]


def _own(experiment: Experiment) -> dict[str, Any]:
    return {"method": experiment.method, "method options": json.loads(json.dumps(dict(experiment.method_options)))}


def _recipe(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of a learner that decide its numbers, but for its method, as plain values."""
    values = {
        "model": experiment.model.model_dump(mode="json"),
        "head": [experiment.head, dict(experiment.head_options)],
        "recipe": experiment.recipe.decides(),
        "geometry": asdict(experiment.geometry),
        "initial weights": None if experiment.weights is None else str(experiment.weights),
        "frozen backbone": experiment.freeze_backbone,
        "seed": experiment.seed,
    }
    return dict(json.loads(json.dumps(values)))
