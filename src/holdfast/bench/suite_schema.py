"""What a suite says, and which settings follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.continual.plans import KS
from holdfast.embeddings.embedding_set import Form
from holdfast.evaluation.compatibility import Baseline

Values = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_a_mapping(cls, given: Any) -> Any:
        """Take what is left empty in YAML, as in ``p2s:``, for {} wherever a mapping belongs."""
        if not isinstance(given, Mapping):
            return given
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        return {name: _filled(value, kinds.get(name)) for name, value in given.items()}


def _filled(value: Any, kind: Any) -> Any:
    """Return {} for None where the type is that of a mapping, and so for the values of a mapping of mappings."""
    if not _is_mapping(kind):
        return value
    inner = get_args(kind)[-1] if get_origin(kind) is dict else None
    if isinstance(value, Mapping) and _is_mapping(inner):
        return {name: {} if one is None else one for name, one in value.items()}
    return {} if value is None else value


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, _Part))


class Overrides(_Part):
    """Settings of an experiment; those of a data set and of a method go before those of the suite.

    Args:
        model: Of the encoder, see `holdfast.models.encoder.EncoderSpec`.
        geometry: Of the space, see `holdfast.experiment.Geometry`.
        head: The classifier.
        head_options: Its options.
        recipe: How to train, see `holdfast.experiment.Recipe`.
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
        predecessor: Another scenario, whose new model of the same row the new models here succeed, as in a chain;
            None: the old model.
        searched: Another scenario, whose new model of the same row embedded the gallery that is searched; None: the
            old model did.
        baseline: What "self_old" is of with ``searched``: the row's "own" model that embedded the gallery, or the
            "independent" one of that scenario; see `holdfast.evaluation.compatibility.chain_metrics`.
    """

    old: Overrides = Overrides()
    predecessor: str | None = None
    searched: str | None = None
    baseline: Baseline = "own"


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


class EvaluationSet(_Part):
    """What is searched in place of the queries and gallery of the data that models are trained on.

    Args:
        data: A data set; the name of the test set when left out.
        options: Options of its reader.
        protocol: Who answers what, a key of `holdfast.evaluation.protocols.PROTOCOLS`.
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
        test_sets: What is searched, by any name, with the track "images"; nothing: the queries and gallery of the data
            that models are trained on.
        upper_bound: What the independent model is trained on: what the "new" models see, or "everything".
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
    test_sets: dict[str, EvaluationSet] = {}
    upper_bound: Literal["new", "everything"] = "new"
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
