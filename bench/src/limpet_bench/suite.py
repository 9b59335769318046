"""A suite: what is compared, and what of it is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from limpet.adapters import Direction, build_adapter
from limpet.data.datasets import DATASETS
from limpet.data.scenarios import SCENARIOS
from limpet.data.texts import TEXT_DATASETS
from limpet.embeddings.forms import Form
from limpet.errors import ConfigError, nearest, refuse, unknown_name
from limpet.evaluation.compatibility import Baseline
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.protocols import PROTOCOLS
from limpet.geometry import SPACES
from limpet.methods import METHODS, build_method
from limpet.models.backbones import BACKBONES
from limpet.models.heads import HEADS
from limpet.models.specs import EncoderSpec, encoder_spec
from limpet.support.options import bound, option_types
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet_bench.figures import ACCURACY, FIGURES, Figure, check_known
from limpet_bench.leaderboard import Published
from limpet_bench.sessions.plans import KS, PLANS

Values = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Overrides(_Part):
    """Settings of an experiment; those of a data set and of a method go before those of the suite.

    Args:
        model: Of the encoder, see `limpet.models.encoder.EncoderSpec`.
        geometry: Of the space, see `limpet.training.experiment.Geometry`.
        head: The classifier.
        head_options: Its options.
        recipe: How to train, see `limpet.training.experiment.Recipe`.
        weights: Name of a folder below ``weights`` in the data root, with published weights of the backbone.
        starts_from: A model that training starts from in place of a backbone, as ``limpet train --model`` names it;
            "" for none, where others have one.
    """

    model: Values = {}
    geometry: Values = {}
    head: str | None = None
    head_options: Values = {}
    recipe: Values = {}
    weights: str | None = None
    starts_from: str | None = None


class InScenario(Overrides):
    """Other settings in one of the scenarios, of the new models.

    Args:
        old: Other settings of the old model there; those of the new models do not reach it.
        frozen: Other frozen models there, "old", "new" or both; for the track "features".
        predecessor: Another scenario, whose new model of the same row the new models here succeed, as in a chain;
            None: the old model.
        searched: Another scenario, whose new model of the same row embedded the gallery that is searched; None: the
            old model did.
        baseline: What "self_old" is of with ``searched``: the row's "own" model that embedded the gallery, or the
            "independent" one of that scenario; see `limpet.evaluation.compatibility.chain_metrics`.
    """

    old: Overrides = Overrides()
    frozen: dict[Literal["old", "new"], str] = {}
    predecessor: str | None = None
    searched: str | None = None
    baseline: Baseline = "own"


class Entry(Overrides):
    """One row of the leaderboard.

    Args:
        method: A key of `limpet.METHODS`; the label when left out.
        adapter: A key of `limpet.adapters.ADAPTERS` in place of a method: a map fitted on pairs without labels; for
            the track "features".
        direction: What an adapter maps: "new_to_old" the queries of the new model, "old_to_new" the old gallery.
        options: Options of the method, or of the adapter.
        start: How a head over a frozen model starts: "ridge" or "random"; for the track "features".
        budget: Images of earlier sessions that the learner keeps in all; that of the suite when left out; for the track
            "sessions".
        search: Values to choose among for the settings of this row, by dotted name, such as ``options.weight``; in
            place of the search of the whole suite.
        vary: Further rows, one for every value of every setting by dotted name: that setting has this value, and all
            others are as they are in this row.
    """

    method: str | None = None
    adapter: str | None = None
    direction: Direction = "new_to_old"
    options: Values = {}
    start: Literal["ridge", "random"] = "ridge"
    budget: int | None = Field(default=None, ge=1)
    search: dict[str, list[Any]] | None = None
    vary: dict[str, list[Any]] = {}


class Variant(NamedTuple):
    """What sets a row apart from the row that it is a variant of.

    Args:
        row: The label of that row.
        setting: By dotted name.
        value: Of the setting.
    """

    row: str
    setting: str
    value: Any


def changed(values: Values, changes: Mapping[str, object]) -> Values:
    """Return settings with some changed, by dotted name.

    >>> changed({"options": {"weight": 1}, "method": "p2s"}, {"options.weight": 2, "recipe.epochs": 3})
    {'options': {'weight': 2}, 'method': 'p2s', 'recipe': {'epochs': 3}}
    """
    result = dict(values)
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        result[first] = changed(result.get(first, {}), {rest: value}) if rest else value
    return result


class EvaluationSet(_Part):
    """What is searched in place of the queries and gallery of the data that models are trained on.

    Args:
        data: A data set; the name of the test set when left out.
        options: Options of its reader.
        protocol: Who answers what, a key of `limpet.evaluation.protocols.PROTOCOLS`.
        protocol_options: Options of the protocol.
        ground_truth: Where the ground truth of the protocol is below the folder of the data set; that folder itself
            when left out.
        metrics: What is measured there; when left out, that of the suite with the protocol "labels", and the protocol's
            own choice with another.
        gate_metric: What ranks rows there, likewise.
        form: What is searched: "points" of the space, or "features" where the protocol pools them.
        flip: Add the features of the mirrored image, as protocols of faces do.
    """

    data: str | None = None
    options: Values = {}
    protocol: str = "labels"
    protocol_options: Values = {}
    ground_truth: str = ""
    metrics: tuple[str, ...] = ()
    gate_metric: str | None = None
    form: Form = "points"
    flip: bool = False


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
        name: Its name; that of its function or file when left out.
        title: Headline of its leaderboard; its name when left out.
        description: What it compares, and what it reproduces.
        track: "images" trains models on images; "features" trains heads over frozen models of texts or of images;
            "sessions" trains learners through sessions, see `limpet_bench.sessions.runner.run_sessions`.
        data: Data sets by name, with their options.
        scenarios: Who sees what, by name, with options. With the option ``scenario``, which says whose options these
            are, the name is free: one scenario may stand there twice. On the track "features" options of the texts or
            images, such as ``unseen_share`` and ``unlabelled_share``, by any name.
        plans: What arrives when on the track "sessions", in place of scenarios: keys of
            `limpet_bench.sessions.plans.PLANS` with their options.
        budget: Images of earlier sessions that learners with a memory keep in all; for the track "sessions".
        test_images: So many first images of every class are the test queries of the track "sessions"; None asks the
            data set's own.
        classes: How many classes the track "sessions" uses; None uses all.
        methods: Rows by label.
        seeds: Every task is run with each.
        metrics: What is measured.
        gate_metric: What ranks rows and speaks verdicts.
        by_data: Other settings on one of the data sets.
        by_scenario: Other settings in one of the scenarios, such as another backbone of the new models.
        old: Other settings of the old model, such as a smaller backbone.
        frozen: The two frozen models of the track "features": "old" and "new".
        tuning: How settings are chosen; None takes those that are written.
        test_sets: What is searched, by any name, with the track "images"; nothing: the queries and gallery of the data
            that models are trained on.
        upper_bound: What the independent model is trained on: what the "new" models see, or "everything".
        accuracy: Whether to measure how well models classify, too: a further metric "accuracy".
        figures: What is drawn and tabulated beside the leaderboard, by name; see `limpet_bench.figures`.
        reproduces: Which tables and figures of papers it reproduces, such as "hbct/table-3"; for the documents.
        published: What the papers print of its rows; tables show it beside, and nothing is computed from it.
    """

    name: str = ""
    title: str = ""
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
    starts_from: str | None = None
    by_data: dict[str, Overrides] = {}
    by_scenario: dict[str, InScenario] = {}
    old: Overrides = Overrides()
    frozen: dict[Literal["old", "new"], str] = {}
    tuning: Tuning | None = None
    test_sets: dict[str, EvaluationSet] = {}
    upper_bound: Literal["new", "everything"] = "new"
    accuracy: bool = False
    figures: dict[str, Figure] = {}
    reproduces: tuple[str, ...] = ()
    published: list[Published] = []

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_track(cls, given: Any) -> Any:
        return {**DEFAULTS.get(str(given.get("track")), {}), **given} if isinstance(given, Mapping) else given

    @property
    def conditions(self) -> dict[str, Values]:
        """What every row is run under, by name, with options: scenarios, or the plans of sessions."""
        return self.plans if self.track == "sessions" else self.scenarios

    @property
    def of_texts(self) -> bool:
        """Whether the data are texts; images otherwise."""
        return all(data in TEXT_DATASETS for data in self.data)

    def within(self, scenario: str) -> InScenario:
        """Return what is said of a scenario, which may be nothing."""
        return self.by_scenario.get(scenario, InScenario())

    def frozen_in(self, scenario: str) -> dict[Literal["old", "new"], str]:
        """Return the frozen models of a scenario."""
        return {**self.frozen, **self.within(scenario).frozen}

    @property
    def rows(self) -> dict[str, Entry]:
        """All rows of the leaderboard by label: those of `methods`, each followed by its variants."""
        return {label: entry for label, entry, _ in self._listed()}

    @property
    def variants(self) -> dict[str, Variant]:
        """What the rows that are variants vary, by label."""
        return {label: variant for label, _, variant in self._listed() if variant is not None}

    def _listed(self) -> Iterator[tuple[str, Entry, Variant | None]]:
        for label, entry in self.methods.items():
            yield label, entry, None
            for setting, values in entry.vary.items():
                for value in values:
                    variant = Variant(label, setting, value)
                    yield variant_label(variant), _variant_entry(entry, variant), variant

    @property
    def searched(self) -> list[str]:
        """Names of what is searched, as the leaderboard has them: those of the data sets, or of the test sets."""
        tests = list(self.test_sets) or [""]
        if tests == [""] or len(self.data) == 1:
            return list(self.data) if tests == [""] else tests
        return [f"{test}, trained on {data}" for data in self.data for test in tests]

    @property
    def measured(self) -> list[str]:
        """Names of all metrics that any run is measured by."""
        names = [*self.metrics, self.gate_metric]
        for test in self.tests().values():
            protocol = PROTOCOLS[test.protocol]
            names += [*(test.metrics or protocol.metrics), test.gate_metric or protocol.gate_metric]
        return list(dict.fromkeys([*names, *[ACCURACY] * self.accuracy]))

    def generations(self, scenario: str) -> tuple[int, int]:
        """Return which generation the new models of a scenario are, and which one embedded the gallery they search.

        The old model is the first generation, and a model without a predecessor of its own row the second.
        """
        within = self.within(scenario)
        asks = 2 if within.predecessor is None else self.generations(within.predecessor)[0] + 1
        return asks, 1 if within.searched is None else self.generations(within.searched)[0]

    def method_of(self, label: str) -> str:
        """Return the method of a row, or its adapter."""
        return self.rows[label].adapter or self.rows[label].method or label

    def budget_of(self, label: str) -> int | None:
        """Return how many images of earlier sessions a row may keep."""
        return self.rows[label].budget or self.budget

    def scenario_of(self, name: str) -> str:
        """Return whose options a scenario has: its own name, unless it says another."""
        return str(self.scenarios[name].get("scenario", name))

    def tests(self) -> dict[str, EvaluationSet]:
        """Return the test sets; those that labels answer are measured as the suite says, unless they say otherwise."""
        own = {"metrics": self.metrics, "gate_metric": self.gate_metric}
        return {
            name: test
            if test.protocol != EvaluationSet().protocol or test.metrics
            else test.model_copy(update=own if test.gate_metric is None else {"metrics": self.metrics})
            for name, test in self.test_sets.items()
        }

    def settings(self, data: str, label: str | None = None, *, scenario: str = "", old: bool = False) -> Values:
        """Return the settings of an experiment on a data set, for a row, or for the reference or the old model.

        What is said of the old model or of a row goes before what is said of the scenario, that before what is said
        of the data set.
        """
        within = self.within(scenario)
        layers: list[Suite | Overrides] = [self, self.by_data.get(data, Overrides())]
        entry = None if label is None else self.rows[label]
        if not old:
            layers.append(within)
        if entry is not None:
            layers.append(entry)
        if old:
            layers += [self.old, within.old]
        merged: Values = {}
        for name in ("model", "geometry", "head_options", "recipe"):
            merged[name] = {key: value for layer in layers for key, value in getattr(layer, name).items()}
        for name in ("head", "weights", "starts_from"):
            said = [value for layer in layers if (value := getattr(layer, name)) is not None]
            merged[name] = said[-1] if said else None
        start = merged.pop("starts_from")
        if start:
            merged["starts_from"] = start
        method = "independent" if label is None else self.method_of(label)
        return {"method": method, "options": {} if entry is None else dict(entry.options), **merged}


SESSION_SCORES = (*(f"ar@{k}" for k in KS), "last", "forgetting")
"""What is measured of a learner: AR@K over all sessions, recall@1 after the last one, and forgetting."""


def variant_label(variant: Variant) -> str:
    """Return what the leaderboard calls a variant.

    >>> variant_label(Variant("odpp", "options.old_threshold", 0.6)), variant_label(Variant("cvs", "budget", 100))
    ('odpp, old threshold 0.6', 'cvs, budget 100')
    """
    return f"{variant.row}, {variant.setting.rpartition('.')[2].replace('_', ' ')} {_written(variant.value)}"


def _variant_entry(entry: Entry, variant: Variant) -> Entry:
    part, _, rest = variant.setting.partition(".")
    value = changed(getattr(entry, part), {rest: variant.value}) if rest else variant.value
    return entry.model_copy(update={"method": entry.method or variant.row, "vary": {}, part: value})


SEARCHED_IN = ("options", "model", "geometry", "head_options", "recipe")
SEARCHED_WHOLE = ("head", "start", "budget")
"""What a tuning can search: settings in these parts, by dotted name, and these as a whole."""
VARIED_WHOLE = (*SEARCHED_WHOLE, "weights", "starts_from")
"""What rows can vary as a whole, beside settings in these parts."""

DEFAULTS: dict[str, Values] = {"sessions": {"scenarios": {}, "metrics": list(SESSION_SCORES), "gate_metric": "ar@1"}}
"""Settings of a track that are other than those of the other tracks."""


def check_suite(suite: Suite) -> None:
    """Refuse unknown names, and parts that are empty.

    Raises:
        ConfigError: Something in the suite is unknown, missing, or of no use on its track.
    """
    conditions = "plans" if suite.track == "sessions" else "scenarios"
    for part in ("data", "methods", conditions, "seeds", "metrics"):
        refuse(not getattr(suite, part), f"The suite '{suite.name}' has no {part}.", "at least one")
    _check_variants(suite)
    for label, entry in suite.methods.items():
        if entry.adapter is None:
            METHODS[suite.method_of(label)]
        else:
            _check_adapter(suite, label, entry)
    sets = [*(TEXT_DATASETS.names() if suite.track == "features" else ()), *DATASETS.names()]
    for data in suite.data:
        if data not in sets and not Path(data).exists():
            raise unknown_name("data set", data, sets, listing="limpet data")
    for data in suite.by_data:
        refuse(data not in suite.data, f"by_data names '{data}'.", f"one of {', '.join(suite.data)}")
    for scenario in suite.by_scenario:
        refuse(
            scenario not in suite.scenarios, f"by_scenario names '{scenario}'.", f"one of {', '.join(suite.scenarios)}"
        )
    refuse(len(set(suite.seeds)) < len(suite.seeds), f"The seeds {', '.join(map(str, suite.seeds))}.", "each once")
    if suite.track != "sessions":
        for label, entry in suite.rows.items():
            refuse(entry.budget is not None, f"The track '{suite.track}' has no use for the budget of '{label}'.",
                   "a row without a budget")  # fmt: skip
    {"images": _check_images, "features": _check_features, "sessions": _check_sessions}[suite.track](suite)
    for data in suite.data:
        for scenario in ("", *suite.by_scenario):
            _check_settings(suite.settings(data, scenario=scenario, old=True))
            for label, entry in suite.rows.items():
                if entry.adapter is None:
                    _check_settings(suite.settings(data, label, scenario=scenario))
    if suite.tuning is not None:
        _check_tuning(suite, suite.tuning)
    for item in suite.reproduces:
        refuse(
            _ITEM.fullmatch(item) is None,
            f"reproduces names '{item}'.",
            "a table or figure such as hbct/table-3 or cvs/table-c-1",
        )
    for name, figure in suite.figures.items():
        figure.check(name, suite)


_ITEM = re.compile(r"[\w-]+/(table|figure)-([a-z]-)?[1-9]\d*")


def _check_variants(suite: Suite) -> None:
    """Refuse settings that rows cannot vary, and labels that two rows would have."""
    for label, entry in suite.methods.items():
        for setting, values in entry.vary.items():
            _check_setting(setting, f"The row '{label}' varies", VARIED_WHOLE)
            refuse(not values, f"The row '{label}' has no values of '{setting}' to vary.", "at least one")
    labels = [label for label, _, _ in suite._listed()]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    refuse(twice is not None, f"Two rows are called '{twice}'.", "values that differ, and a label for each row")


def _check_setting(name: str, what: str, whole: tuple[str, ...]) -> None:
    part, _, rest = name.partition(".")
    refuse(
        name not in whole and (part not in SEARCHED_IN or not rest),
        f"{what} '{name}'.",
        f"{', '.join(whole)}, or a setting in {', '.join(SEARCHED_IN)}, such as options.weight",
    )


LEFT_OPEN = ("dim", "projection", "zeta")
"""Settings of the network that a model to start from leaves open."""


def _check_adapter(suite: Suite, label: str, entry: Entry) -> None:
    """Refuse an adapter that is unknown, or has settings that no adapter reads."""
    refuse(suite.track != "features", f"The row '{label}' is an adapter, on the track '{suite.track}'.",
           "adapters between frozen models: track: features")  # fmt: skip
    useless = sorted(entry.model_fields_set - {"adapter", "direction", "options", "vary", "search"})
    refuse(bool(useless), f"The row '{label}' is an adapter, and has {', '.join(useless)}.",
           "its direction and options alone")  # fmt: skip
    refuse(entry.search is None and suite.tuning is not None and bool(suite.tuning.search),
           f"The row '{label}' is an adapter, and the suite tunes all rows alike.",
           "a search of its own, such as {}")  # fmt: skip
    build_adapter(str(entry.adapter), {**entry.options, "direction": entry.direction})


def _check_settings(values: Values) -> None:
    """Refuse settings that no experiment, backbone or classifier knows; nothing is built."""
    values = dict(values)
    start = values.pop("starts_from", None)
    if start is not None:
        said = ["weights"] * bool(values["weights"]) + [name for name in values["model"] if name not in LEFT_OPEN]
        refuse(
            bool(said),
            f"starts_from: {start} with {', '.join(said)}.",
            f"the model alone, which says so itself; only {', '.join(LEFT_OPEN)} are left open",
        )
        values["weights"] = start  # it brings its weights
    Experiment.from_settings(values)
    spec = encoder_spec(**values["model"])
    check_known("backbone", (spec.backbone,), BACKBONES)
    bound(BACKBONES[spec.backbone], spec.backbone_options, f"backbone '{spec.backbone}'")
    head, options = values["head"], values["head_options"]
    if head is None:  # the first one that reads the space, which only the predecessor may decide
        first = [next(name for name, kind in HEADS.items() if space in kind.spaces) for space in SPACES]
        head = next((name for name in first if set(options) <= set(option_types(HEADS[name]))), first[0])
    check_known("head", (head,), HEADS)
    bound(HEADS[head], options, f"head '{head}'")


def _check_images(suite: Suite) -> None:
    _refuse_settings(suite, "plans", "budget", "test_images", "classes", "frozen")
    check_known("scenario", map(suite.scenario_of, suite.scenarios), SCENARIOS)
    for name, within in suite.by_scenario.items():
        refuse(bool(within.frozen), f"'{name}' names frozen models, on the track '{suite.track}'.", "none there")
    _check_chains(suite)
    for name, test in suite.test_sets.items():
        data = test.data or name
        if data not in DATASETS and not Path(data).exists():
            raise unknown_name("data set of a test", data, DATASETS.names(), listing="limpet data")
        check_known("protocol", (test.protocol,), PROTOCOLS.names())
        bound(PROTOCOLS[test.protocol], test.protocol_options, f"protocol '{test.protocol}'")
    metrics_named((*suite.metrics, suite.gate_metric))


def _check_chains(suite: Suite) -> None:
    """Refuse predecessors and galleries of scenarios that are not there, come round, or do not fit together."""
    for name in suite.scenarios:
        seen: list[str] = []
        link: str | None = name
        while link is not None:
            seen.append(link)
            within = suite.within(link)
            for role in ("predecessor", "searched"):
                given = getattr(within, role)
                if given is not None:
                    check_known(f"scenario as {role} of '{link}'", (given,), suite.scenarios)
            link = within.predecessor
            refuse(link in seen, f"The predecessors {' < '.join([*seen, str(link)])} come round to where they began.",
                   "a first model without a predecessor of its own")  # fmt: skip
        _check_links(suite, name, suite.within(name))


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
        for label in suite.rows:
            geometry = suite.settings(data, label, scenario=name)["geometry"]
            refuse(
                geometry.get("lift_old") is not None or bool(geometry.get("learn_curvature")),
                f"The row '{label}' lifts its old model, which in '{name}' is one of its own.",
                "chains of models on one space, without lift_old and learn_curvature",
            )


def _check_features(suite: Suite) -> None:
    _refuse_settings(
        suite, "plans", "budget", "test_images", "classes", "test_sets", "upper_bound", "old", "accuracy",
        "starts_from",
    )  # fmt: skip
    for label, entry in suite.rows.items():
        refuse(bool(entry.starts_from), f"The row '{label}' of a head starts from a model.", "no starts_from")
    metrics_named((*suite.metrics, suite.gate_metric))
    for data in suite.data:
        if data not in TEXT_DATASETS and data not in DATASETS and Path(data).is_file() and Path(data).suffix != ".npz":
            raise ConfigError(
                f"'{data}' is a file of texts: one set, without a division into texts to fit on, queries and gallery.",
                expected=f"texts that come divided, one of {', '.join(TEXT_DATASETS.names())}",
                to_do=f"`limpet adapt --texts {data} --old-text-model OLD --text-model NEW --out FOLDER` divides a "
                "file itself, and compares heads (--method p2s bct) and adapters on it.",
                intact="Nothing was run.",
            )
    texts = [data for data in suite.data if data in TEXT_DATASETS]
    refuse(
        0 < len(texts) < len(suite.data),
        f"The suite '{suite.name}' has texts ({', '.join(texts)}) and images, and its frozen models read one of them.",
        "texts alone, or images alone",
    )
    for scenario in suite.scenarios:
        frozen = suite.frozen_in(scenario)
        refuse(
            set(frozen) != {"old", "new"},
            f"The suite '{suite.name}' compares heads and names {', '.join(frozen) or 'no models'}.",
            "frozen: with an old and a new model",
        )
    for name, within in suite.by_scenario.items():
        refuse(within.old != Overrides(), f"'{name}' has settings of an old model, which is frozen.", "none there")
        if within.predecessor is not None:
            _refuse_heads_out_of_chains(suite, name)
    _check_chains(suite)


def _refuse_heads_out_of_chains(suite: Suite, scenario: str) -> None:
    """Refuse rows that map one side, or lay the gallery onto another space: the next head would need that, too."""
    for label, entry in suite.rows.items():
        method = METHODS["independent" if entry.adapter else suite.method_of(label)]
        refuse(
            entry.adapter is not None or method.stays or "hypersphere" not in method.spaces,
            f"The row '{label}' maps queries or gallery, or lays the gallery onto another space, and '{scenario}' is "
            "the next link of a chain.",
            "methods whose heads search stored vectors as they are",
        )


def _check_sessions(suite: Suite) -> None:
    _refuse_settings(suite, "scenarios", "frozen", "old", "test_sets", "upper_bound")
    refuse(
        suite.tuning is not None and bool(suite.tuning.data_options),
        "The tuning has data_options, and plans set their validation queries apart themselves.",
        "a tuning without data_options",
    )
    check_known("plan", suite.plans, PLANS)
    check_known("metric of sessions", (*suite.metrics, suite.gate_metric), SESSION_SCORES)
    for label, entry in suite.rows.items():
        method, own = build_method(suite.method_of(label), entry.options), entry.budget
        remembers = method.memory not in (None, "everything")
        refuse(
            remembers and suite.budget_of(label) is None,
            f"The learner '{label}' replays images of earlier sessions, and the suite has no memory for it.",
            "how many images it may keep: budget=1000",
        )
        refuse(
            own is not None and not remembers,
            f"The row '{label}' has a budget of {own} images, and its learner chooses no images to keep.",
            "a budget for rows that replay some of the earlier images",
        )


def _check_tuning(suite: Suite, tuning: Tuning) -> None:
    refuse(not tuning.seeds, "The tuning has no seeds.", "at least one")
    for data in tuning.data_options:
        refuse(data not in suite.data, f"data_options of the tuning name '{data}'.", f"one of {', '.join(suite.data)}")
    spaces = [tuning.search, *(entry.search or {} for entry in suite.methods.values())]
    for name, values in ((name, values) for space in spaces for name, values in space.items()):
        _check_setting(name, "The tuning searches", SEARCHED_WHOLE)
        refuse(not values, f"The tuning has no values of '{name}' to choose among.", "at least one")


def _refuse_settings(suite: Suite, *names: str) -> None:
    """Refuse what the track would not read."""
    for name in names:
        given = getattr(suite, name) != Suite.model_fields[name].get_default() and bool(getattr(suite, name))
        refuse(given, f"The track '{suite.track}' has no use for '{name}'.", f"a suite without '{name}'")


PAGE = "docs/suites.md"
"""Where every setting of a suite is described."""

LISTS = {"seeds": "[0, 1, 2]", "metrics": "[recall@1, map]"}
"""Examples of settings that are lists."""

INNER: dict[str, list[str]] = {
    "recipe": [field.name for field in dataclasses.fields(Recipe)],
    "model": list(EncoderSpec.model_fields),
    "geometry": [field.name for field in dataclasses.fields(Geometry)],
}
"""Settings that stand one level below others, where people look for them first."""


def refusal(error: ValidationError, where: str) -> ConfigError:
    """Say what is wrong first, what would be right, and which name may have been meant."""
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])  # before what is missing then
    place, said, given = tuple(map(str, first["loc"])), first["msg"], first["input"]
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return unknown_name(f"kind of the figure '{place[1]}'", str(given.get("kind", "")), FIGURES)
    beside = _known_beside(place)
    if place[0] == "figures":  # pydantic names the kind between a figure and its settings
        place = (*place[:2], *place[3:])
    name, expected = ".".join(place), f"a suite as {PAGE} describes it"
    to_do = f"correct it ({PAGE} describes every setting); nothing was run."
    if first["type"] in ("tuple_type", "list_type"):
        example = LISTS.get(place[-1], f"[{_written(given)}]")
        return ConfigError(f"The setting '{name}' in {where} is {_written(given)}.", f"a list such as {example}", to_do)
    if first["type"] in ("dict_type", "model_type"):
        return ConfigError(f"The setting '{name}' in {where} is {_written(given)}.", _mapping(given), to_do)
    meant = ""
    if first["type"] == "extra_forbidden":
        belongs = _belongs(place, beside)
        meant = nearest(place[-1], beside) if not belongs else ""
        to_do = f"write {belongs}: {{{place[-1]!r}: {_written(given)}}}; nothing was run." if belongs else to_do
    return ConfigError(f"The setting '{name}' in {where}: {said[:1].lower()}{said[1:]}.{meant}", expected, to_do)


def _mapping(given: Any) -> str:
    """Say how a mapping is written, with the names that were given in a list.

    >>> _mapping(["p2s", "bct"]), _mapping(3)
    ("a mapping: {'p2s': {}, 'bct': {}}", 'a mapping, such as {name: value}, or {} for nothing')
    """
    if isinstance(given, list) and given and all(isinstance(name, str) for name in given):
        return f"a mapping: {{{', '.join(f'{name!r}: {{}}' for name in given)}}}"
    return "a mapping, such as {name: value}, or {} for nothing"


def _written(value: Any) -> str:
    """Write a value, shortened.

    >>> _written(["p2s", 2]), _written(True)
    ('[p2s, 2]', 'true')
    """
    if isinstance(value, list):
        text = f"[{', '.join(map(_written, value))}]"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{name}: {_written(one)}' for name, one in value.items())}}}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _belongs(place: tuple[str, ...], beside: list[str]) -> str:
    """Return the setting that an unknown name belongs into, such as "options" for those of a method; or ""."""
    if place[0] == "methods" and len(place) == 3 and any(place[-1] in option_types(one) for one in METHODS.values()):
        return "options"
    return next((part for part, names in INNER.items() if part in beside and place[-1] in names), "")


def _known_beside(place: tuple[str, ...]) -> list[str]:
    """Return the names that can stand where an unknown one was found."""
    if len(place) == 1:
        return list(Suite.model_fields)
    parts: dict[str, tuple[type[BaseModel], int]] = {"methods": (Entry, 3), "by_data": (Overrides, 3)}
    parts |= {
        "by_scenario": (InScenario, 3),
        "test_sets": (EvaluationSet, 3),
        "old": (Overrides, 2),
        "tuning": (Tuning, 2),
    }
    if place[0] == "figures" and len(place) > 2:
        parts["figures"] = (FIGURES[place[2]], 4)
    part, depth = parts.get(place[0], (BaseModel, 0))
    return list(part.model_fields) if len(place) == depth else []


def suite_from(content: Mapping[str, object], where: str) -> Suite:
    """Build a suite from plain values, and refuse what nobody knows before anything is run.

    Raises:
        ConfigError: A setting, method, data set, scenario or metric is unknown, or a value is of another type.
    """
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        raise refusal(error, where) from error
    check_suite(suite)
    return suite
