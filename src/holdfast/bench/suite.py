"""A suite: what is compared, from one YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.bench.experiments import experiment_from
from holdfast.continual.plans import PLANS
from holdfast.continual.setting import KS
from holdfast.data.datasets import DATASETS
from holdfast.data.scenarios import SCENARIOS
from holdfast.data.texts import TEXT_DATASETS
from holdfast.errors import ConfigError, nearest, refuse, unknown_name
from holdfast.evaluation.metrics import metrics_named
from holdfast.methods import METHODS, build_method

Values = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Overrides(_Part):
    """Settings of an experiment; those of a data set and of a method go before those of the suite.

    Args:
        model: Of the encoder, see `holdfast.models.encoder.EncoderSpec`.
        geometry: Of the space, see `holdfast.training.spaces.Geometry`.
        head: The classifier.
        head_options: Its options.
        recipe: How to train, see `holdfast.training.recipe.Recipe`.
        weights: Name of a folder below ``weights`` in the data root, with published weights of the backbone.
    """

    model: Values = {}
    geometry: Values = {}
    head: str | None = None
    head_options: Values = {}
    recipe: Values = {}
    weights: str | None = None


class InScenario(Overrides):
    """Other settings in one of the scenarios, of the new models.

    Args:
        old: Other settings of the old model there; those of the new models do not reach it.
    """

    old: Overrides = Overrides()


class Entry(Overrides):
    """One row of the board.

    Args:
        method: A key of `holdfast.METHODS`; the label when left out.
        options: Options of the method.
        start: How a head over a frozen model starts: "ridge" or "random"; for the track "features".
        search: Values to choose among for the settings of this row, by dotted name, such as ``options.weight``; in
            place of the search of the whole suite.
    """

    method: str | None = None
    options: Values = {}
    start: Literal["ridge", "random"] = "ridge"
    search: dict[str, list[Any]] | None = None


class Tuning(_Part):
    """How settings are chosen, the same for every row: on validation data alone.

    Args:
        budget: Trials of every row at most, drawn from its search space.
        search: Values to choose among, by dotted name, for rows without a search of their own.
        data_options: Options of the data sets that set validation classes apart.
        seeds: Seeds of every trial.
    """

    budget: int = Field(ge=1)
    search: dict[str, list[Any]] = {}
    data_options: dict[str, Values] = {}
    seeds: tuple[int, ...] = (0,)


class Suite(_Part):
    """Methods x scenarios x data sets x seeds.

    Args:
        name: Its name.
        title: Headline of its board.
        description: What it compares, and what it reproduces.
        track: "images" trains models on images; "features" trains heads over frozen models of text; "sessions" trains
            learners through sessions, see `holdfast.continual.runner.run_sessions`.
        data: Data sets by name, with their options.
        scenarios: Who sees what, by name, with options. With the option ``scenario``, which says whose options these
            are, the name is free: one scenario may stand there twice. On the track "features" options of the texts,
            such as ``unseen_share``, by any name.
        plans: What arrives when on the track "sessions", in place of scenarios: keys of
            `holdfast.continual.plans.PLANS` with their options.
        budget: Images of earlier sessions that learners with a memory keep in all; for the track "sessions".
        test_images: So many first images of every class are the test queries of the track "sessions"; None asks the
            data set's own.
        classes: How many classes the track "sessions" uses; None uses all.
        methods: Rows by label.
        seeds: Every cell is run with each.
        metrics: What is measured.
        gate_metric: What ranks rows and speaks verdicts.
        by_data: Other settings on one of the data sets.
        by_scenario: Other settings in one of the scenarios, such as another backbone of the new models.
        old: Other settings of the old model, such as a smaller backbone.
        frozen: The two frozen models of the track "features": "old" and "new".
        tuning: How settings are chosen; None takes those that are written.
        published: What the papers print, for the page; not used in computing.
    """

    name: str
    title: str
    description: str = ""
    track: Literal["images", "features", "sessions"] = "images"
    data: dict[str, Values]
    scenarios: dict[str, Values] = {"extended-class": {}}
    plans: dict[str, Values] = {}
    budget: int | None = Field(default=None, ge=1)
    test_images: int | None = Field(default=None, ge=1)
    classes: int | None = Field(default=None, ge=2)
    methods: dict[str, Entry]
    seeds: tuple[int, ...] = (0,)
    metrics: tuple[str, ...] = ("recall@1", "map")
    gate_metric: str = "map"
    model: Values = {}
    geometry: Values = {}
    head: str | None = None
    head_options: Values = {}
    recipe: Values = {}
    weights: str | None = None
    by_data: dict[str, Overrides] = {}
    by_scenario: dict[str, InScenario] = {}
    old: Overrides = Overrides()
    frozen: dict[Literal["old", "new"], str] = {}
    tuning: Tuning | None = None
    published: list[Values] = []

    @property
    def conditions(self) -> dict[str, Values]:
        """What every row is run under, by name, with options: scenarios, or the plans of sessions."""
        return self.plans if self.track == "sessions" else self.scenarios

    def method_of(self, label: str) -> str:
        """Return the method of a row."""
        return self.methods[label].method or label

    def scenario_of(self, name: str) -> str:
        """Return whose options a scenario has: its own name, unless it says another."""
        return str(self.scenarios[name].get("scenario", name))

    def settings(self, data: str, label: str | None = None, *, scenario: str = "", old: bool = False) -> Values:
        """Return the settings of an experiment on a data set, for a row, or for the reference or the old model.

        What is said of the old model or of a row goes before what is said of the scenario, that before what is said
        of the data set.
        """
        within = self.by_scenario.get(scenario, InScenario())
        layers: list[Suite | Overrides] = [self, self.by_data.get(data, Overrides())]
        entry = None if label is None else self.methods[label]
        if not old:
            layers.append(within)
        if entry is not None:
            layers.append(entry)
        if old:
            layers += [self.old, within.old]
        merged: Values = {}
        for name in ("model", "geometry", "head_options", "recipe"):
            merged[name] = {key: value for layer in layers for key, value in getattr(layer, name).items()}
        for name in ("head", "weights"):
            said = [value for layer in layers if (value := getattr(layer, name)) is not None]
            merged[name] = said[-1] if said else None
        method = "independent" if label is None else self.method_of(label)
        return {"method": method, "options": {} if entry is None else dict(entry.options), **merged}


SESSION_SCORES = (*(f"ar@{k}" for k in KS), "last", "forgetting")
"""What is measured of a learner: AR@K over all sessions, recall@1 after the last one, and forgetting."""

SEARCHED_IN = ("options", "model", "geometry", "head_options", "recipe")
SEARCHED_WHOLE = ("head", "start")
"""What a tuning can search: settings in these parts, by dotted name, and these as a whole."""

DEFAULTS: dict[str, Values] = {"sessions": {"scenarios": {}, "metrics": list(SESSION_SCORES), "gate_metric": "ar@1"}}
"""Settings of a track that are other than those of the other tracks."""


def read_suite(path: Path) -> Suite:
    """Read a suite from a YAML file.

    Raises:
        ConfigError: The file cannot be read, or something in it is unknown or of another type.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected="a YAML file of a suite") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' is no valid YAML: {error}", expected="a YAML mapping") from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"'{path}' holds {type(content).__name__}.", expected="a YAML mapping such as 'name: mine'")
    return suite_from({"name": path.stem, "title": path.stem, **content}, str(path))


def suite_from(content: Mapping[str, Any], where: str) -> Suite:
    """Build a suite from plain values, and refuse what nobody knows before anything is run.

    Raises:
        ConfigError: A setting, method, data set, scenario or metric is unknown, or a value is of another type.
    """
    try:
        suite = Suite.model_validate({**DEFAULTS.get(str(content.get("track")), {}), **content})
    except ValidationError as error:
        raise _refusal(error, where) from error
    check_names(suite)
    return suite


def _refusal(error: ValidationError, where: str) -> ConfigError:
    """Say what is wrong first, and which name may have been meant."""
    first = error.errors()[0]
    place, said = tuple(map(str, first["loc"])), first["msg"]
    meant = nearest(place[-1], _known_beside(place)) if first["type"] == "extra_forbidden" else ""
    return ConfigError(
        f"The setting '{'.'.join(place)}' in {where}: {said[:1].lower()}{said[1:]}.{meant}",
        expected="a suite as the README describes it",
        to_do="correct it; nothing was run.",
    )


def _known_beside(place: tuple[str, ...]) -> list[str]:
    """Return the names that can stand where an unknown one was found."""
    if len(place) == 1:
        return list(Suite.model_fields)
    parts: dict[str, tuple[type[_Part], int]] = {"methods": (Entry, 3), "by_data": (Overrides, 3)}
    parts |= {"old": (Overrides, 2), "tuning": (Tuning, 2)}
    part, depth = parts.get(place[0], (_Part, 0))
    return list(part.model_fields) if len(place) == depth else []


def check_names(suite: Suite) -> None:
    """Refuse unknown names, and parts that are empty."""
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
        for values in (suite.settings(data, old=True), *(suite.settings(data, label) for label in suite.methods)):
            experiment_from(values)
    if suite.tuning is not None:
        _check_tuning(suite, suite.tuning)


def _check_images(suite: Suite) -> None:
    _refuse_settings(suite, "plans", "budget", "test_images", "classes", "frozen")
    _check_known("scenario", map(suite.scenario_of, suite.scenarios), SCENARIOS)
    metrics_named((*suite.metrics, suite.gate_metric))


def _check_features(suite: Suite) -> None:
    _refuse_settings(suite, "plans", "budget", "test_images", "classes")
    metrics_named((*suite.metrics, suite.gate_metric))
    refuse(
        set(suite.frozen) != {"old", "new"},
        f"The suite '{suite.name}' compares heads and names {', '.join(suite.frozen) or 'no models'}.",
        "frozen: with an old and a new model",
    )


def _check_sessions(suite: Suite) -> None:
    _refuse_settings(suite, "scenarios", "frozen", "old", "tuning")
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
