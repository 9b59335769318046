"""What is refused in a suite before anything is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.suite_schema import (
    SEARCHED_IN,
    SEARCHED_WHOLE,
    SESSION_SCORES,
    EvaluationSet,
    InScenario,
    Suite,
    Tuning,
    Values,
)
from holdfast.continual.plans import PLANS
from holdfast.data.datasets import DATASETS
from holdfast.data.scenarios import SCENARIOS
from holdfast.data.texts import TEXT_DATASETS
from holdfast.errors import ConfigError, refuse, unknown_name
from holdfast.evaluation.metrics import metrics_named
from holdfast.evaluation.protocols import PROTOCOLS
from holdfast.experiment import Experiment
from holdfast.geometry import SPACES
from holdfast.methods import METHODS, build_method
from holdfast.models.backbones import BACKBONES
from holdfast.models.encoder import encoder_spec
from holdfast.models.heads import HEADS
from holdfast.options import bound, option_types


def check_suite(suite: Suite) -> None:
    """Refuse unknown names, and parts that are empty.

    Raises:
        ConfigError: Something in the suite is unknown, missing, or of no use on its track.
    """
    conditions = "plans" if suite.track == "sessions" else "scenarios"
    for part in ("data", "methods", conditions, "seeds", "metrics"):
        refuse(not getattr(suite, part), f"The suite '{suite.name}' has no {part}.", "at least one")
    for label in suite.methods:
        METHODS[suite.method_of(label)]
    sets: Mapping[str, Any] = TEXT_DATASETS if suite.track == "features" else DATASETS
    for data in suite.data:
        if data not in sets and not Path(data).exists():
            raise unknown_name("data set", data, sets, listing="holdfast data")
    for data in suite.by_data:
        refuse(data not in suite.data, f"by_data names '{data}'.", f"one of {', '.join(suite.data)}")
    for scenario in suite.by_scenario:
        refuse(
            scenario not in suite.scenarios, f"by_scenario names '{scenario}'.", f"one of {', '.join(suite.scenarios)}"
        )
    refuse(len(set(suite.seeds)) < len(suite.seeds), f"The seeds {', '.join(map(str, suite.seeds))}.", "each once")
    {"images": _check_images, "features": _check_features, "sessions": _check_sessions}[suite.track](suite)
    for data in suite.data:
        for scenario in ("", *suite.by_scenario):
            _check_settings(suite.settings(data, scenario=scenario, old=True))
            for label in suite.methods:
                _check_settings(suite.settings(data, label, scenario=scenario))
    if suite.tuning is not None:
        _check_tuning(suite, suite.tuning)


def _check_settings(values: Values) -> None:
    """Refuse settings that no experiment, backbone or classifier knows; nothing is built."""
    Experiment.from_settings(values)
    spec = encoder_spec(**values["model"])
    _check_known("backbone", (spec.backbone,), BACKBONES)
    bound(BACKBONES[spec.backbone], spec.backbone_options, f"backbone '{spec.backbone}'")
    head, options = values["head"], values["head_options"]
    if head is None:  # the first one that reads the space, which only the predecessor may decide
        first = [next(name for name, kind in HEADS.items() if space in kind.spaces) for space in SPACES]
        head = next((name for name in first if set(options) <= set(option_types(HEADS[name]))), first[0])
    _check_known("head", (head,), HEADS)
    bound(HEADS[head], options, f"head '{head}'")


def _check_images(suite: Suite) -> None:
    _refuse_settings(suite, "plans", "budget", "test_images", "classes", "frozen")
    _check_known("scenario", map(suite.scenario_of, suite.scenarios), SCENARIOS)
    for name in suite.scenarios:
        _check_chain(suite, name)
        _check_links(suite, name, suite.by_scenario.get(name, InScenario()))
    for name, test in suite.test_sets.items():
        _check_test(name, test)
    metrics_named((*suite.metrics, suite.gate_metric))


def _check_chain(suite: Suite, name: str) -> None:
    """Refuse predecessors and galleries of scenarios that are not there, and chains without a beginning."""
    seen: list[str] = []
    link: str | None = name
    while link is not None:
        seen.append(link)
        within = suite.by_scenario.get(link, InScenario())
        for role in ("predecessor", "searched"):
            given = getattr(within, role)
            if given is not None:
                _check_known(f"scenario as {role} of '{link}'", (given,), suite.scenarios)
        link = within.predecessor
        refuse(link in seen, f"The predecessors {' < '.join([*seen, str(link)])} come round to where they began.",
               "a first model without a predecessor of its own")  # fmt: skip


def _check_links(suite: Suite, name: str, within: InScenario) -> None:
    """Refuse what a chain cannot do."""
    refuse(within.searched == name, f"'{name}' searches the gallery of its own new models.", "another scenario")
    refuse(
        within.searched is None and within.baseline != "own",
        f"'{name}' has the baseline '{within.baseline}', and its gallery is that of the old model.",
        "searched, with another scenario; the old model is independent as it is",
    )
    if within.predecessor is None:
        return
    refuse(
        suite.tuning is not None,
        f"'{name}' has a predecessor, and the suite tunes its rows.",
        "either: a trial would be judged with a predecessor of other settings",
    )
    for data in suite.data:
        for label in suite.methods:
            geometry = suite.settings(data, label, scenario=name)["geometry"]
            refuse(
                geometry.get("lift_old") is not None or bool(geometry.get("learn_curvature")),
                f"The row '{label}' lifts its old model, which in '{name}' is one of its own.",
                "chains of models on one space, without lift_old and learn_curvature",
            )


def _check_test(name: str, test: EvaluationSet) -> None:
    data = test.data or name
    if data not in DATASETS and not Path(data).exists():
        raise unknown_name("data set of a test", data, DATASETS, listing="holdfast data")
    _check_known("protocol", (test.protocol,), PROTOCOLS)
    bound(PROTOCOLS[test.protocol], test.protocol_options, f"protocol '{test.protocol}'")


def _check_features(suite: Suite) -> None:
    _refuse_settings(
        suite, "plans", "budget", "test_images", "classes", "test_sets", "upper_bound", "by_scenario", "old"
    )
    metrics_named((*suite.metrics, suite.gate_metric))
    for data in suite.data:
        _refuse_own_texts(data)
    refuse(
        set(suite.frozen) != {"old", "new"},
        f"The suite '{suite.name}' compares heads and names {', '.join(suite.frozen) or 'no models'}.",
        "frozen: with an old and a new model",
    )


def _refuse_own_texts(data: str) -> None:
    """Refuse a file of texts: it is one set, and says nothing of who searches what."""
    if data not in TEXT_DATASETS:
        raise ConfigError(
            f"'{data}' is a file of texts: one set, without a division into texts to fit on, queries and gallery.",
            expected=f"texts that come divided, one of {', '.join(TEXT_DATASETS)}",
            to_do=f"`holdfast adapt --texts {data} --old-text-model OLD --text-model NEW --out FOLDER` divides a file "
            "itself, and compares heads (--method p2s bct) and adapters on it; nothing was run.",
        )


def _check_sessions(suite: Suite) -> None:
    _refuse_settings(suite, "scenarios", "frozen", "old", "tuning", "test_sets", "upper_bound")
    _check_known("plan", suite.plans, PLANS)
    _check_known("metric of sessions", (*suite.metrics, suite.gate_metric), SESSION_SCORES)
    for label in suite.methods:
        method = build_method(suite.method_of(label), suite.methods[label].options)
        refuse(
            method.memory not in (None, "everything") and suite.budget is None,
            f"The learner '{label}' replays images of earlier sessions, and the suite has no memory for it.",
            "how many images it may keep: budget: 1000",
        )


def _check_tuning(suite: Suite, tuning: Tuning) -> None:
    refuse(not tuning.seeds, "The tuning has no seeds.", "at least one")
    for data in tuning.data_options:
        refuse(data not in suite.data, f"data_options of the tuning name '{data}'.", f"one of {', '.join(suite.data)}")
    spaces = [tuning.search, *(entry.search or {} for entry in suite.methods.values())]
    for name, values in ((name, values) for space in spaces for name, values in space.items()):
        part, _, rest = name.partition(".")
        refuse(
            name not in SEARCHED_WHOLE and (part not in SEARCHED_IN or not rest),
            f"The tuning searches '{name}'.",
            f"{', '.join(SEARCHED_WHOLE)}, or a setting in {', '.join(SEARCHED_IN)}, such as options.weight",
        )
        refuse(not values, f"The tuning has no values of '{name}' to choose among.", "at least one")


def _refuse_settings(suite: Suite, *names: str) -> None:
    """Refuse what the track would not read."""
    for name in names:
        given = getattr(suite, name) != Suite.model_fields[name].get_default() and bool(getattr(suite, name))
        refuse(given, f"The track '{suite.track}' has no use for '{name}'.", f"a suite without '{name}'")


def _check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)
