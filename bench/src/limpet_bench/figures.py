"""Specifications of figures beside a leaderboard: one class per kind, with its own checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limpet.errors import ConfigError, LimpetError, brief, refuse, unknown_name
from limpet.evaluation import Variant
from limpet_bench.figure_values import Unit
from limpet_bench.leaderboard import LEARNER
from limpet_bench.pictures.embedding_map import ITEMS, NEW, OLD
from limpet_bench.pictures.histograms import Quantity
from limpet_bench.pictures.layouts import LayoutName
from limpet_bench.sessions.plans import KS

if TYPE_CHECKING:
    from limpet_bench.suite import Suite

UPGRADE_MEASURES = ("self_old", "self_independent", "self_new", "cross", "p_up", "p_comp", "p_score")
"""Measures of an upgrade's metric: its four systems, and P metrics."""
AVERAGE = "average"
"""The mean of cross and self (new), available in tables."""
ACCURACY = "accuracy"
"""The metric of classification accuracy, which the setting ``accuracy`` of a suite adds."""


class _Asked(BaseModel):
    """Base class of specifications, which rejects unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            errors = error.errors()
            first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
            own, name = first.get("ctx", {}).get("error"), str(first["loc"][0])
            if isinstance(own, LimpetError):
                raise own from error
            what = f"of a figure {type(self).__name__}"
            if first["type"] == "extra_forbidden":
                raise unknown_name(f"setting {what}:", name, type(self).model_fields) from error
            raise ConfigError(f"The setting '{name}' {what} is {brief(first['input'])}.", first["msg"]) from error


class FigureSpec(_Asked):
    """Specification of a figure of a suite.

    Args:
        title: Title; the name of the figure when left out.
        data: Names of searched sets in the leaderboard; all when left out.
        scenarios: Scenarios, or plans; all of them when left out.
    """

    TRACKS: ClassVar[tuple[str, ...]] = ("images", "features", "sessions")

    kind: str
    title: str = ""
    data: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()

    @classmethod
    def name_of_kind(cls) -> str:
        """Return the name of the kind in a suite."""
        (kind,) = get_args(cls.model_fields["kind"].annotation)
        return str(kind)

    def check(self, name: str, suite: Suite) -> None:
        """Refuse names that the suite does not have, and figures that its track cannot have.

        Raises:
            ConfigError: A setting is unknown, missing, or without effect.
        """
        refuse(
            suite.track not in self.TRACKS,
            f"The figure '{name}' is of the kind '{self.kind}', and the suite of the track '{suite.track}'.",
            f"a suite of the track {' or '.join(self.TRACKS)}",
        )
        check_known(f"data set in the figure '{name}':", self.data, suite.searched)
        check_known(f"scenario in the figure '{name}':", self.scenarios, suite.conditions)

    def places(self, suite: Suite) -> Iterator[tuple[str, str]]:
        """Yield the searched sets and scenarios, in the order of the suite."""
        for data in self.data or suite.searched:
            for scenario in self.scenarios or suite.conditions:
                yield data, scenario


class _OfRows(FigureSpec):
    """A figure of some rows.

    Args:
        rows: Labels of the rows; all when left out.
    """

    rows: tuple[str, ...] = ()

    def check(self, name: str, suite: Suite) -> None:
        super().check(name, suite)
        check_known(f"row in the figure '{name}':", self.rows, suite.rows)

    def labels(self, suite: Suite) -> tuple[str, ...]:
        return self.rows or tuple(suite.rows)


class _OfMeasures(_OfRows):
    """A figure of some numbers of one metric.

    Args:
        measures: "cross", "self_new", … or "p_comp"; not applicable on the track "sessions", which has only one.
        metric: Metric; the ranking one when left out.
    """

    measures: tuple[str, ...] = ()
    metric: str | None = None

    def check(self, name: str, suite: Suite) -> None:
        super().check(name, suite)
        _check_measured(name, suite, [self.metric], self.measures)

    def measured(self, suite: Suite) -> tuple[str, ...]:
        return self.measures or (default_measure(suite),)


class Curve(_OfMeasures):
    """Scores over a setting that rows vary; see `limpet_bench.suite.Run.variant`.

    Args:
        rows: Rows that vary the setting; each is a line.
        over: Dotted name of the setting.
        scale: Scale of the axis of the setting.
    """

    kind: Literal["curve"] = "curve"
    rows: tuple[str, ...] = Field(min_length=1)
    over: str
    scale: Literal["linear", "log"] = "linear"

    def check(self, name: str, suite: Suite) -> None:
        """Refuse a setting that is not varied, or whose values are not numbers."""
        super().check(name, suite)
        variants = suite.variants.values()
        for row in self.rows:
            varied = {variant.setting for variant in variants if variant.row == row}
            if self.over not in varied:
                raise unknown_name(f"varied setting of '{row}' in the figure '{name}':", self.over, varied)
            for value in (one.value for one in variants if (one.row, one.setting) == (row, self.over)):
                wrong = isinstance(value, bool) or not isinstance(value, int | float)
                refuse(wrong or (self.scale == "log" and value <= 0), f"The figure '{name}' is a curve over "
                       f"'{self.over}', which is also {value}.", "numbers, above 0 where the scale is log")  # fmt: skip


class Bars(_OfMeasures):
    """Grouped bars.

    Args:
        over: Groups of adjacent bars: the scenarios (or plans), the data sets, or the rows.
    """

    kind: Literal["bars"] = "bars"
    over: Literal["scenario", "data", "label"] = "label"


class Column(_Asked):
    """One column of a table, which is repeated for every data set.

    Args:
        measure: "cross", "self_new", … or "p_comp"; or "average", the mean of cross and self (new). Default: "cross",
            or the only measure of sessions.
        metric: Metric; the ranking one when left out.
        title: Title; measure and metric when left out.
        variant: Variant of P_up and P_comp: "raw", or "sigmoid", which P_score always is.
        unit: "fraction" or "%".
        digits: Number of decimal digits.
        over_sets: Whether it is one column after all others: the mean over all searched data sets, each in its ranking
            metric.
    """

    measure: str | None = None
    metric: str | None = None
    title: str = ""
    variant: Variant = "raw"
    unit: Unit = "fraction"
    digits: int = Field(default=3, ge=0)
    over_sets: bool = False


Reference = Literal["self_old", "self_independent"]
"""A model that rows are compared with."""


class Table(_OfRows):
    """A table of several metrics: a line for every row of every scenario, with published numbers beside it.

    Args:
        columns: Columns under every data set.
        references: Models that rows are compared with, by their name in the table: "self_old" or "self_independent",
            shown in the columns of "self_new".
        where: Tables or sections of the paper to show beside it; all when left out.
    """

    kind: Literal["table"] = "table"
    columns: tuple[Column, ...] = Field(min_length=1)
    references: dict[str, Reference] = {}
    where: tuple[str, ...] = ()

    def check(self, name: str, suite: Suite) -> None:
        """Refuse missing measures and metrics, and columns that a suite of this kind cannot fill."""
        super().check(name, suite)
        for column in self.columns:
            measures = [] if column.measure in (None, AVERAGE) else [str(column.measure)]
            _check_measured(name, suite, [column.metric], measures)
            refuse(
                column.over_sets and (column.metric is not None or len(self.data or suite.searched) < 2),
                f"The figure '{name}' has a column over several data sets, with {column.metric or 'one data set'}.",
                "over_sets in a suite that searches several, each in the metric that ranks there",
            )


class Matrix(_OfRows):
    """Compatibility matrix of a chain: generations as queries, by the galleries of earlier ones.

    Args:
        rows: Labels of the rows; each is a matrix.
        measure: "cross", "self_new", … or "p_comp". With "cross", the diagonal has the score of a generation on its own
            gallery.
        metric: Metric; the ranking one when left out.
    """

    TRACKS = ("images",)

    kind: Literal["matrix"] = "matrix"
    measure: str = "cross"
    metric: str | None = None

    def check(self, name: str, suite: Suite) -> None:
        """Refuse a suite without a chain, and two scenarios for the same pair of generations."""
        super().check(name, suite)
        _check_measured(name, suite, [self.metric], [self.measure])
        pairs: dict[tuple[int, int], str] = {}
        for scenario in self.scenarios or suite.conditions:
            pair = suite.generations(scenario)
            refuse(
                pair in pairs,
                f"'{scenario}' and '{pairs.get(pair)}' are both generation {pair[0]} on the gallery of {pair[1]} in "
                f"the figure '{name}'.",
                "scenarios: with one for each pair of generations; or predecessor, for a chain",
            )
            pairs[pair] = scenario


class SessionCurve(_OfRows):
    """A score after every session.

    Args:
        measure: "recall@K" over all classes so far.
    """

    TRACKS = ("sessions",)

    kind: Literal["session-curve"] = "session-curve"
    measure: str = "recall@1"

    def check(self, name: str, suite: Suite) -> None:
        """Refuse measures that are not available after sessions."""
        super().check(name, suite)
        check_known(f"measure in the figure '{name}':", [self.measure], [f"recall@{k}" for k in KS])


class LossCurve(_OfRows):
    """The terms of the loss over epochs.

    Args:
        terms: Names in the history of a run; all when left out.
    """

    TRACKS = ("images",)

    kind: Literal["loss-curve"] = "loss-curve"
    terms: tuple[str, ...] = ()


class _OfModels(_OfRows):
    """A picture of embeddings, by the models of the first seed.

    Args:
        part: Embedded items: the searched "gallery", or the "training" images of the new models.
        seed: Random seed for drawing items.
    """

    TRACKS = ("images",)

    part: Literal["gallery", "training"] = "gallery"
    seed: int = Field(default=0, ge=0)

    def check(self, name: str, suite: Suite) -> None:
        """Refuse a row that would be confused with the old model."""
        super().check(name, suite)
        refuse(OLD in self.labels(suite), f"The figure '{name}' shows the old model beside a row called '{OLD}'.",
               "another label for that row")  # fmt: skip


class Embedding(_OfModels):
    """Embeddings of a few classes, laid out in a plane that the old model and all rows share.

    One of three options selects the classes; without any, the seed draws six. Prototypes are class means of the old
    model over everything in the ``part``.

    Args:
        method: Layout method; "hyperboloid" is the Lorentz space of two dimensions, shown from its origin.
        classes: Number of classes, drawn by the seed; or their names.
        similar: Number of classes with the most similar old prototypes: the most similar pair, the next pair, and so
            on.
        nearest: Number of classes whose old prototypes are nearest to that of a class that the seed draws; they are
            drawn with that class.
        examples: Number of planes, each with classes of its own.
        items: Maximum number of items per class, drawn by the seed.
        show: Embeddings of the old model, of the rows, and old prototypes.
        apart: Draw old embeddings in a panel of their own, not in that of every row.
        credible: Share of the old embeddings of every class that MixBCT treats as credible; the others are marked.
    """

    kind: Literal["embedding"] = "embedding"
    method: LayoutName = "tsne"
    classes: Annotated[int, Field(ge=1)] | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    similar: int | None = Field(default=None, ge=2)
    nearest: int | None = Field(default=None, ge=1)
    examples: int = Field(default=1, ge=1)
    items: int = Field(default=ITEMS, ge=1)
    show: tuple[Literal["old", "new", "old-prototypes"], ...] = Field(("old", "new"), min_length=1)
    apart: bool = False
    credible: float | None = Field(default=None, gt=0, lt=1)

    def check(self, name: str, suite: Suite) -> None:
        """Refuse two ways to choose classes, and settings without effect."""
        super().check(name, suite)
        ways = {"classes": self.classes, "similar": self.similar, "nearest": self.nearest}
        given = [f"{way}={value!r}" for way, value in ways.items() if value is not None]
        refuse(
            len(given) > 1,
            f"The figure '{name}' has {' and '.join(given)}.",
            "one of the three: classes that are drawn or named, similar ones, or one class with those nearest to it",
        )
        refuse(
            isinstance(self.classes, tuple) and self.examples > 1,
            f"The figure '{name}' names its classes, and has examples={self.examples}.",
            "one example of named classes; a figure for each, or a number of classes, drawn by the seed",
        )
        refuse(
            self.apart and not {OLD, NEW} <= set(self.show),
            f"The figure '{name}' has apart=True and shows {', '.join(self.show)}.",
            "show with old and new, which can then stand apart",
        )
        refuse(
            self.credible is not None and OLD not in self.show,
            f"The figure '{name}' marks old embeddings (credible={self.credible}) and shows {', '.join(self.show)}.",
            "show with old",
        )


class Histogram(_OfModels):
    """A histogram of values.

    Args:
        of: Value: the uncertainty of an embedding, the angle between old and new, or the distance from the origin.
        split: "seen" to separate classes that the old model has seen from others.
        show: The old model and the rows; not applicable to the angle, which is between both.
    """

    kind: Literal["histogram"] = "histogram"
    of: Quantity
    split: Literal["seen"] | None = None
    show: tuple[Literal["old", "new"], ...] = Field(("old", "new"), min_length=1)

    def check(self, name: str, suite: Suite) -> None:
        """Refuse ``show`` for the angle, which is between old and new embeddings."""
        super().check(name, suite)
        refuse(
            self.of == "angle" and "show" in self.model_fields_set,
            f"The figure '{name}' is of the angle between old and new embeddings, and shows {', '.join(self.show)}.",
            "a figure without show",
        )


class Strips(_OfRows):
    """A few queries with their first hits, each marked as right or wrong; of the first seed.

    For an upgrade, the old model's hits are shown beside those of every row, all in the old gallery.

    Args:
        queries: Number of queries; those for which models differ in the number of right hits are preferred.
        hits: Number of hits per query.
        after: On the track "sessions", show hits after the "last" session, or after "every" session for queries of
            classes that all sessions know.
        seed: Random seed for drawing queries.
    """

    TRACKS = ("images", "sessions")

    kind: Literal["strips"] = "strips"
    queries: int = Field(default=4, ge=1)
    hits: int = Field(default=4, ge=1)
    after: Literal["last", "every"] = "last"
    seed: int = Field(default=0, ge=0)

    def check(self, name: str, suite: Suite) -> None:
        """Refuse session options on a track without sessions."""
        super().check(name, suite)
        refuse(
            suite.track != "sessions" and "after" in self.model_fields_set,
            f"The figure '{name}' has after: {self.after}, and the track '{suite.track}' no sessions.",
            "a figure without after",
        )


class ClassDistribution(FigureSpec):
    """Number of images of every class in every session of a plan."""

    TRACKS = ("sessions",)

    kind: Literal["class-distribution"] = "class-distribution"


Figure = Annotated[
    Curve | Bars | Table | Matrix | SessionCurve | LossCurve | Embedding | Histogram | Strips | ClassDistribution,
    Field(discriminator="kind"),
]

FIGURES: dict[str, type[FigureSpec]] = {spec.name_of_kind(): spec for spec in get_args(get_args(Figure)[0])}
"""Figure specifications by their name in a suite."""


def measures_of(suite: Suite) -> tuple[str, ...]:
    """Return the measures of every metric."""
    return (LEARNER,) if suite.track == "sessions" else UPGRADE_MEASURES


def default_measure(suite: Suite) -> str:
    """Return the default measure."""
    return LEARNER if suite.track == "sessions" else "cross"


def _check_measured(name: str, suite: Suite, metrics: Sequence[str | None], measures: Collection[str]) -> None:
    check_known(f"metric in the figure '{name}':", [one for one in metrics if one is not None], suite.measured)
    check_known(f"measure in the figure '{name}':", measures, measures_of(suite))


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse unknown names, and suggest the nearest."""
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)
