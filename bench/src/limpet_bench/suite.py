"""A benchmark suite: runs, measures, and figures beside the leaderboard."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from limpet import EncoderSpec, Experiment, Geometry, Recipe
from limpet.adapters import Direction, build_adapter
from limpet.data import DATASETS, SCENARIOS, TEXT_DATASETS
from limpet.embeddings import Form
from limpet.errors import ConfigError, refuse, unknown_name
from limpet.evaluation import Baseline, metrics_named
from limpet.evaluation.protocols import PROTOCOLS
from limpet.geometry import SPACES
from limpet.methods import METHODS, build_method
from limpet.models import BACKBONES, HEADS, encoder_spec
from limpet.support import bound, option_types
from limpet.training import settings
from limpet_bench.figures import ACCURACY, Figure, check_known
from limpet_bench.leaderboard import Published
from limpet_bench.sessions.plans import KS, PLANS

Values = dict[str, Any]

SESSION_SCORES = (*(f"ar@{k}" for k in KS), "last", "forgetting")
"""Measures of a learner: AR@K over all sessions, recall@1 after the last one, and forgetting."""
METRICS = {"images": ("recall@1", "map"), "features": ("recall@1", "map"), "sessions": SESSION_SCORES}
GATE_METRICS = {"images": "map", "features": "map", "sessions": "ar@1"}
LEFT_OPEN = ("dim", "projection", "zeta")
"""Network settings that an initial model does not determine."""


@settings("the data")
class Data:
    """A data set.

    Args:
        name: A key of `limpet.data.DATASETS`, or of `limpet.data.TEXT_DATASETS` on the track "features";
            or the path of a folder of images, or of an ``.npz`` file.
        options: Options of its reader.
        validation: Further options of the reader for trials, which hold out validation images.
    """

    name: Annotated[str, BeforeValidator(str)]
    options: Values = field(default_factory=dict)
    validation: Values = field(default_factory=dict)


@settings("the scenario")
class Scenario:
    """Division of the data between models.

    Args:
        kind: On the track "images" a key of `limpet.data.SCENARIOS`, on "sessions" of
            `limpet_bench.sessions.plans.PLANS`. On "features" any name.
        options: Options of the scenario or plan. On the track "features" those of the data set's reader, such as
            ``unseen_share`` and ``unlabelled_share``.
        name: Name in the leaderboard; the kind when left out.
    """

    kind: str = "extended-class"
    options: Values = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.kind)


def _network(given: Any) -> Any:
    return encoder_spec(**given) if isinstance(given, Mapping) else given


@settings("the training")
class Training:
    """Training settings of a model.

    Args:
        model: The network.
        recipe: Optimiser, epochs, augmentation.
        geometry: The space.
        head: Classifier, a key of `limpet.models.HEADS`; the default of the space when left out.
        head_options: Its options.
        weights: Name of a folder below ``weights`` in the data root, with published weights of the backbone.
        starts_from: A model that training starts from in place of a backbone, as ``limpet train --model`` names it.
    """

    model: Annotated[EncoderSpec, BeforeValidator(_network)] = field(default_factory=EncoderSpec)
    recipe: Recipe = field(default_factory=Recipe)
    geometry: Geometry = field(default_factory=Geometry)
    head: str | None = None
    head_options: Values = field(default_factory=dict)
    weights: str | None = None
    starts_from: str | None = None

    def but(
        self,
        model: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
        geometry: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> Training:
        """Return the training with changed settings.

        >>> Training().but(model={"dim": 64}, head="arcface").model.dim
        64
        """
        return replace(
            self,
            model=encoder_spec(**{**self.model.model_dump(), **(model or {})}),
            recipe=replace(self.recipe, **(recipe or {})),
            geometry=replace(self.geometry, **(geometry or {})),
            **others,
        )

    def values(self, method: str = "independent", options: Mapping[str, Any] | None = None) -> Values:
        """Return the settings of an experiment, as `limpet.Experiment.from_settings` takes them."""
        names = [one.name for one in dataclasses.fields(self)]
        found = {"method": method, "options": dict(options or {})} | {name: getattr(self, name) for name in names}
        if self.starts_from is None:
            del found["starts_from"]
        return found

    def differences(self, other: Training) -> Values:
        """Return the settings that differ from another training, by dotted name.

        >>> Training().but(model={"projection": "mlp"}, head="arcface").differences(Training())
        {'model.projection': 'mlp', 'head': 'arcface'}
        """
        found: Values = {}
        for name in ("model", "geometry", "head_options", "recipe"):
            own, others = (_mapping(getattr(one, name)) for one in (self, other))
            found |= {f"{name}.{key}": value for key, value in own.items() if key not in others or others[key] != value}
        for name in ("head", "weights", "starts_from"):
            if getattr(self, name) != getattr(other, name):
                found[name] = getattr(self, name)
        return found


def _mapping(part: Any) -> Mapping[str, Any]:
    if isinstance(part, Mapping):
        return part
    return part.model_dump() if isinstance(part, EncoderSpec) else dataclasses.asdict(part)


@settings("the search")
class Search:
    """The trials that choose settings of a run, on validation data.

    Args:
        budget: Maximum number of trials, drawn without repetition if the grid has more points.
        options: Values to try of each option of the method.
        recipe: Values to try of each setting of the recipe.
        seeds: Seeds of every trial.
    """

    budget: Annotated[int, Field(ge=1, description="at least 1")]
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    recipe: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)

    @property
    def grid(self) -> dict[str, tuple[Any, ...]]:
        """Values by dotted name."""
        parts = {"options": self.options, "recipe": self.recipe}
        return {f"{part}.{name}": values for part, named in parts.items() for name, values in named.items()}


class Variant(NamedTuple):
    """The difference between a row and the row that it is a variant of.

    Args:
        row: The label of that row.
        setting: Dotted name of the setting.
        value: Value of the setting.
    """

    row: str
    setting: str
    value: Any


@settings("the frozen models")
class Frozen:
    """The frozen models of the track "features": the one that embedded the gallery, and its successor."""

    old: str
    new: str


def _data(given: Any) -> Any:
    return Data(str(given)) if isinstance(given, str | Path) else given


def _scenario(given: Any) -> Any:
    return Scenario(given) if isinstance(given, str) else given


@settings("the run")
class Run:
    """A row of the leaderboard on one data set in one scenario; it is run with every seed of its suite.

    Args:
        label: Label in the leaderboard.
        data: Training data. A name or a path means a data set without options.
        scenario: Division of the data. A kind means a scenario without options.
        method: A key of `limpet.METHODS`; the label when left out.
        options: Options of the method, or of the adapter.
        training: Training of the new model.
        old: Training of the old model; that of the independent one when left out.
        independent: Training of the independent model; that of the new one when left out.
        predecessor: The run whose new model this one succeeds, as in a chain; the old model when left out.
        gallery: The run whose new model embedded the gallery that is searched; the old model when left out.
        baseline: Model of "self_old" with ``gallery``: that run's "own" model, or the "independent" one of its
            scenario; see `limpet.evaluation.compatibility.chain_metrics`.
        frozen: The models of the track "features".
        adapter: A key of `limpet.adapters.ADAPTERS` in place of a method: a map fitted on pairs without labels; for
            the track "features".
        direction: Direction of an adapter: "new_to_old" maps the queries of the new model, "old_to_new" the old
            gallery.
        start: Initial weights of a head over a frozen model; for the track "features".
        budget: Total number of exemplars of a learner with a memory; for the track "sessions".
        search: Trials that choose settings; none when left out.
        varied: Difference from another row; see `variant`.
    """

    label: str
    data: Annotated[Data, BeforeValidator(_data)]
    scenario: Annotated[Scenario, BeforeValidator(_scenario)] = field(default_factory=Scenario)
    method: str = ""
    options: Values = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    old: Training | None = None
    independent: Training | None = None
    predecessor: Run | None = None
    gallery: Run | None = None
    baseline: Baseline = "own"
    frozen: Frozen | None = None
    adapter: str | None = None
    direction: Direction = "new_to_old"
    start: Literal["ridge", "random"] = "ridge"
    budget: Annotated[int | None, Field(ge=1, description="at least 1, or none")] = None
    search: Search | None = None
    varied: Variant | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", self.method or self.label)

    @property
    def maps_by(self) -> str:
        """The adapter, or the method."""
        return self.adapter or self.method

    @property
    def reference(self) -> Training:
        """Training of the independent model."""
        return self.independent or self.training

    @property
    def before(self) -> Training:
        """Training of the old model."""
        return self.old or self.reference

    @property
    def place(self) -> tuple[str, str, str]:
        """Data set, scenario and label."""
        return self.data.name, self.scenario.name, self.label

    @property
    def generations(self) -> tuple[int, int]:
        """The generation of the new model, and of the one that embedded the gallery.

        The old model is the first generation, and a model without a predecessor of its own the second.
        """
        asks = 2 if self.predecessor is None else self.predecessor.generations[0] + 1
        return asks, 1 if self.gallery is None else self.gallery.generations[0]

    def changed(self, changes: Mapping[str, Any]) -> Run:
        """Return the run with changed settings.

        Args:
            changes: Settings by dotted name: ``options.weight``, ``model.zeta``, ``geometry.curvature``,
                ``recipe.learning_rate``; or as a whole ``budget``, ``head``, ``weights``.
        """
        run = self
        for name, value in changes.items():
            part, _, setting = name.partition(".")
            if part == "options":
                run = replace(run, options={**run.options, setting: value})
            elif part == "budget":
                run = replace(run, budget=value)
            else:
                training = run.training.but(**{part: {setting: value} if setting else value})
                run = replace(run, training=training, independent=run.reference)
        return run

    def variant(self, setting: str, value: Any) -> Run:
        """Return a further row with one changed setting.

        >>> run = Run("odpp", "omniglot")
        >>> found = run.variant("options.threshold_old", 0.6)
        >>> found.label, found.method, found.options
        ('odpp, threshold old 0.6', 'odpp', {'threshold_old': 0.6})
        """
        label = f"{self.label}, {setting.rpartition('.')[2].replace('_', ' ')} {value}"
        return replace(self.changed({setting: value}), label=label, varied=Variant(self.label, setting, value))

    def own_settings(self) -> Values:
        """Return the row's own settings beside the options of its method, by dotted name."""
        if self.adapter is not None:
            return {}
        found = self.training.differences(self.reference)
        if self.start != "ridge":
            found["start"] = self.start
        if self.varied is not None and not self.varied.setting.startswith("options."):
            found[self.varied.setting] = self.varied.value
        return found


@settings("the test set")
class EvaluationSet:
    """Test set that replaces the queries and gallery of the training data set.

    Args:
        data: A data set; the name of the test set when left out.
        options: Options of its reader.
        protocol: Relevance protocol, a key of `limpet.evaluation.protocols.PROTOCOLS`.
        protocol_options: Options of the protocol.
        ground_truth: Path of the ground truth below the folder of the data set; that folder itself when left out.
        metrics: Metrics; when left out, those of the suite with the protocol "labels", and otherwise those of the
            protocol.
        gate_metric: Ranking metric, with the same defaults.
        form: Form of the embeddings: "points" of the space, or "features" if the protocol pools them.
        flip: Whether to add the features of the mirrored image, as in face protocols.
    """

    data: str | None = None
    options: Values = field(default_factory=dict)
    protocol: str = "labels"
    protocol_options: Values = field(default_factory=dict)
    ground_truth: str = ""
    metrics: tuple[str, ...] = ()
    gate_metric: str | None = None
    form: Form = "points"
    flip: bool = False


@settings("the suite")
class Suite:
    """Runs that are compared.

    Args:
        runs: The runs, in the order of the leaderboard.
        name: Name of the suite; that of its function or file when left out.
        title: Title of its leaderboard; its name when left out.
        description: Short description.
        track: "images" trains models on images; "features" trains heads over frozen models of texts or of images;
            "sessions" trains learners through sessions, see `limpet_bench.sessions.runner.run_sessions`.
        seeds: Random seeds; every run uses each of them.
        metrics: Metrics to measure.
        gate_metric: Metric that ranks rows and gives verdicts.
        test_sets: Test sets by name, for the track "images"; empty for the queries and gallery of the training data
            set.
        upper_bound: Training data of the independent model: that of the "new" models, or "everything".
        accuracy: Whether to measure classification accuracy as a further metric "accuracy".
        test_images: Number of images per class, from the first, that are the test queries of the track "sessions";
            None uses the queries of the data set.
        classes: Number of classes for the track "sessions"; None for all.
        figures: Figures and tables beside the leaderboard, by name; see `limpet_bench.figures`.
        reproduces: Reproduced tables and figures of papers, such as "hbct/table-3"; for the documentation.
        published: Published numbers of its rows, shown in tables for comparison only.
    """

    runs: tuple[Run, ...]
    name: str = ""
    title: str = ""
    description: str = ""
    track: Literal["images", "features", "sessions"] = "images"
    seeds: tuple[int, ...] = (0,)
    metrics: tuple[str, ...] = ()
    gate_metric: str = ""
    test_sets: dict[str, EvaluationSet] = field(default_factory=dict)
    upper_bound: Literal["new", "everything"] = "new"
    accuracy: bool = False
    test_images: Annotated[int | None, Field(ge=1, description="at least 1, or none")] = None
    classes: Annotated[int | None, Field(ge=2, description="at least 2, or none")] = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    reproduces: tuple[str, ...] = ()
    published: list[Published] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", self.metrics or METRICS[self.track])
        object.__setattr__(self, "gate_metric", self.gate_metric or GATE_METRICS[self.track])

    @property
    def of_texts(self) -> bool:
        """Whether the data are texts; images otherwise."""
        return all(data in TEXT_DATASETS for data in self.data)

    @property
    def data(self) -> list[str]:
        """Names of the data sets that models are trained on."""
        return list(dict.fromkeys(run.data.name for run in self.runs))

    @property
    def conditions(self) -> list[str]:
        """Names of the scenarios, or of the plans of sessions."""
        return list(dict.fromkeys(run.scenario.name for run in self.runs))

    @property
    def rows(self) -> dict[str, Run]:
        """The first run of every row of the leaderboard, by label."""
        found: dict[str, Run] = {}
        for run in self.runs:
            found.setdefault(run.label, run)
        return found

    @property
    def variants(self) -> dict[str, Variant]:
        """Differences of the rows that are variants, by label."""
        return {label: run.varied for label, run in self.rows.items() if run.varied is not None}

    @property
    def searched(self) -> list[str]:
        """Names of the searched sets in the leaderboard: those of the data sets, or of the test sets."""
        if not self.test_sets or len(self.data) == 1:
            return list(self.test_sets) or self.data
        return [f"{test}, trained on {data}" for data in self.data for test in self.test_sets]

    @property
    def measured(self) -> list[str]:
        """Names of all metrics that any run is measured by."""
        names = [*self.metrics, self.gate_metric]
        for test in self.tests().values():
            protocol = PROTOCOLS[test.protocol]
            names += [*(test.metrics or protocol.metrics), test.gate_metric or protocol.gate_metric]
        return list(dict.fromkeys([*names, *[ACCURACY] * self.accuracy]))

    def generations(self, scenario: str) -> tuple[int, int]:
        """Return the generation of a scenario's new models, and of the model that embedded their gallery."""
        return next(run.generations for run in self.runs if run.scenario.name == scenario)

    def tests(self) -> dict[str, EvaluationSet]:
        """Return the test sets; those with the protocol "labels" use the metrics of the suite by default."""
        own: Values = {"metrics": self.metrics, "gate_metric": self.gate_metric}
        return {
            name: test
            if test.protocol != EvaluationSet().protocol or test.metrics
            else replace(test, **own if test.gate_metric is None else {"metrics": self.metrics})
            for name, test in self.test_sets.items()
        }


_ITEM = re.compile(r"[\w-]+/(table|figure)-([a-z]-)?[1-9]\d*")


def check_suite(suite: Suite) -> None:
    """Refuse unknown names and settings without effect.

    Raises:
        ConfigError: A setting is unknown, missing, or without effect on the track.
    """
    refuse(not suite.runs, f"The suite '{suite.name}' has no runs.", "at least one")
    refuse(not suite.seeds, f"The suite '{suite.name}' has no seeds.", "at least one")
    refuse(len(set(suite.seeds)) < len(suite.seeds), f"The seeds {', '.join(map(str, suite.seeds))}.", "each once")
    places = [run.place for run in suite.runs]
    twice = next((place for place in places if places.count(place) > 1), None)
    refuse(twice is not None, f"Two runs are called {twice}.", "a label of its own for each run of a scenario")
    sets = [*(TEXT_DATASETS.names() if suite.track == "features" else ()), *DATASETS.names()]
    for data in suite.data:
        if data not in sets and not Path(data).exists():
            raise unknown_name("data set", data, sets, listing="limpet data")
    seen: dict[int, Training] = {}
    for run in suite.runs:
        _check_mapping(suite, run)
        _check_search(run)
        seen |= {id(training): training for training in (run.training, run.reference, run.before)}
    for training in seen.values():
        _check_training(training)
    {"images": _check_images, "features": _check_features, "sessions": _check_sessions}[suite.track](suite)
    for item in suite.reproduces:
        refuse(
            _ITEM.fullmatch(item) is None,
            f"reproduces names '{item}'.",
            "a table or figure such as hbct/table-3 or cvs/table-c-1",
        )
    for name, figure in suite.figures.items():
        figure.check(name, suite)


def _check_mapping(suite: Suite, run: Run) -> None:
    if run.adapter is None:
        build_method(run.method, run.options)
        return
    refuse(
        suite.track != "features",
        f"The row '{run.label}' is an adapter, on the track '{suite.track}'.",
        "adapters between frozen models, on the track features",
    )
    refuse(
        run.search is not None or run.start != "ridge",
        f"The row '{run.label}' is an adapter, and has a search or a start.",
        "its direction and options alone",
    )
    build_adapter(run.adapter, {**run.options, "direction": run.direction})


def _check_search(run: Run) -> None:
    if run.search is None:
        return
    refuse(not run.search.seeds, f"The search of '{run.label}' has no seeds.", "at least one")
    varied = run.varied.setting if run.varied else ""
    refuse(varied in run.search.grid, f"'{run.label}' varies and searches '{varied}'.", "one of the two")
    for name, values in run.search.grid.items():
        refuse(not values, f"The search of '{run.label}' has no values of '{name}'.", "at least one")
        for value in values:
            tried = run.changed({name: value})
            build_method(tried.method, tried.options)
    refuse(
        run.predecessor is not None,
        f"'{run.label}' has a predecessor and a search.",
        "either: a trial would be judged with a predecessor of other settings",
    )


def _check_training(training: Training) -> None:
    """Refuse settings unknown to the experiment, backbone or classifier, without building anything."""
    values, spec = training.values(), training.model
    start = values.pop("starts_from", None)
    if start is not None:
        usual = EncoderSpec()
        said = [name for name in EncoderSpec.model_fields if name not in LEFT_OPEN]
        said = [name for name in said if getattr(spec, name) != getattr(usual, name)]
        said = ["weights"] * bool(training.weights) + said
        refuse(
            bool(said),
            f"starts_from={start!r} with {', '.join(said)}.",
            f"the model alone, which says so itself; only {', '.join(LEFT_OPEN)} are left open",
        )
        values["weights"] = start  # the model has weights of its own
    Experiment.from_settings(values)
    check_known("backbone", (spec.backbone,), BACKBONES)
    bound(BACKBONES[spec.backbone], spec.backbone_options, f"backbone '{spec.backbone}'")
    head, options = training.head, training.head_options
    if head is None:  # the first one for the space, which the predecessor may decide
        first = [next(name for name, kind in HEADS.items() if space in kind.spaces) for space in SPACES]
        head = next((name for name in first if set(options) <= set(option_types(HEADS[name]))), first[0])
    check_known("head", (head,), HEADS)
    bound(HEADS[head], options, f"head '{head}'")


def _check_images(suite: Suite) -> None:
    _refuse_of_runs(suite, "frozen", "budget")
    _refuse_of_suite(suite, "test_images", "classes")
    for scenario in {id(run.scenario): run.scenario for run in suite.runs}.values():
        check_known("scenario", (scenario.kind,), SCENARIOS)
        bound(SCENARIOS[scenario.kind].split, scenario.options, f"scenario '{scenario.name}'")
    for run in suite.runs:
        _check_link(run)
    for name, test in suite.test_sets.items():
        data = test.data or name
        if data not in DATASETS and not Path(data).exists():
            raise unknown_name("data set of a test", data, DATASETS.names(), listing="limpet data")
        check_known("protocol", (test.protocol,), PROTOCOLS.names())
        bound(PROTOCOLS[test.protocol], test.protocol_options, f"protocol '{test.protocol}'")
    metrics_named((*suite.metrics, suite.gate_metric))


def _check_link(run: Run) -> None:
    refuse(
        run.gallery is None and run.baseline != "own",
        f"'{run.label}' has the baseline '{run.baseline}', and its gallery is that of the old model.",
        "gallery, with another run; the old model is independent as it is",
    )
    refuse(
        run.predecessor is not None
        and (run.training.geometry.lift_old is not None or run.training.geometry.learn_curvature),
        f"The row '{run.label}' lifts its old model, which in '{run.scenario.name}' is one of its own.",
        "chains of models on one space, without lift_old and learn_curvature",
    )


def _check_features(suite: Suite) -> None:
    _refuse_of_runs(suite, "old", "budget")
    _refuse_of_suite(suite, "test_images", "classes", "test_sets", "upper_bound", "accuracy")
    for run in suite.runs:
        refuse(run.training.starts_from is not None, f"The row '{run.label}' of a head starts from a model.",
               "no starts_from")  # fmt: skip
        refuse(run.frozen is None, f"The row '{run.label}' compares heads and names no frozen models.",
               "frozen, with an old and a new model")  # fmt: skip
        _check_link(run)
        _refuse_heads_out_of_chains(run)
    metrics_named((*suite.metrics, suite.gate_metric))
    for data in suite.data:
        if data not in TEXT_DATASETS and data not in DATASETS and Path(data).is_file() and Path(data).suffix != ".npz":
            raise ConfigError(
                f"'{data}' is a file of texts: one set, without a division into texts to fit on, queries and gallery.",
                expected=f"texts that come divided, one of {', '.join(TEXT_DATASETS.names())}",
                to_do=f"`limpet adapt --texts {data} --old st:OLD --new st:NEW --out FOLDER` divides a "
                "file itself, and compares heads (--method p2s bct) and adapters on it.",
                intact="Nothing was run.",
            )
    texts = [data for data in suite.data if data in TEXT_DATASETS]
    refuse(
        0 < len(texts) < len(suite.data),
        f"The suite '{suite.name}' has texts ({', '.join(texts)}) and images, and its frozen models read one of them.",
        "texts alone, or images alone",
    )


def _refuse_heads_out_of_chains(run: Run) -> None:
    """Refuse rows that map one side, or lift the gallery to another space, since the next head would need it."""
    method = METHODS["independent" if run.adapter else run.method]
    refuse(
        run.predecessor is not None and (run.adapter is not None or method.stays or "hypersphere" not in method.spaces),
        f"The row '{run.label}' maps queries or gallery, or lays the gallery onto another space, and "
        f"'{run.scenario.name}' is the next link of a chain.",
        "methods whose heads search stored vectors as they are",
    )


def _check_sessions(suite: Suite) -> None:
    _refuse_of_runs(suite, "frozen", "old", "predecessor", "gallery")
    _refuse_of_suite(suite, "test_sets", "upper_bound")
    check_known("metric of sessions", (*suite.metrics, suite.gate_metric), SESSION_SCORES)
    for run in suite.runs:
        check_known("plan", (run.scenario.kind,), PLANS)
        refuse(
            bool(run.data.validation),
            f"The data set '{run.data.name}' has validation options, and plans set their validation queries apart.",
            "data without validation options",
        )
        remembers = build_method(run.method, run.options).memory not in (None, "everything")
        refuse(
            remembers and run.budget is None,
            f"The learner '{run.label}' replays images of earlier sessions, and the run has no memory for it.",
            "how many images it may keep: budget=1000",
        )


def _refuse_of_runs(suite: Suite, *names: str) -> None:
    for run in suite.runs:
        for name in names:
            refuse(
                getattr(run, name) is not None,
                f"The track '{suite.track}' has no use for '{name}' of the row '{run.label}'.",
                f"a run without '{name}'",
            )


def _refuse_of_suite(suite: Suite, *names: str) -> None:
    usual = Suite(runs=())
    for name in names:
        given = getattr(suite, name) != getattr(usual, name)
        refuse(given, f"The track '{suite.track}' has no use for '{name}'.", f"a suite without '{name}'")
