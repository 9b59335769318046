"""Values of the figures of a suite: one typed class per kind of figure, stored in the leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from limpet.evaluation import Variant
from limpet.results import Finite, Part
from limpet.support import Count, NonNegative, PositiveInt
from limpet_bench.pictures.embedding_map import EmbeddingMap
from limpet_bench.pictures.histograms import Histograms
from limpet_bench.pictures.strips import Strips


class Exact(Part):
    """A part without unknown fields, whose numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Spread(Exact):
    """Mean and range over seeds.

    Args:
        mean: Mean over the seeds.
        lowest: Lowest value of a seed.
        highest: Highest value of a seed.
        seeds: Number of seeds with a value.
    """

    mean: Finite
    lowest: Finite
    highest: Finite
    seeds: PositiveInt

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Self | None:
        """Return the mean and the range of the values that are not None; None if all are.

        >>> Spread.of([0.25, None, 0.75])
        Spread(mean=0.5, lowest=0.25, highest=0.75, seeds=2)
        >>> Spread.of([None]) is None
        True
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(mean=sum(known) / len(known), lowest=min(known), highest=max(known), seeds=len(known))


Scores = list[Spread | None]


class Point(Exact):
    """One point of a line; the value is None where it is undefined."""

    at: Finite
    value: Spread | None


class Line(Exact):
    """One line.

    Args:
        label: Label of the row of the leaderboard.
        measure: Name of the measure.
        points: Points from left to right.
    """

    label: str
    measure: str
    points: Annotated[list[Point], Field(min_length=1)]


class LinePanel(Exact):
    """Lines that share a pair of axes; the place is empty if there is only one."""

    place: str
    lines: list[Line]


class Lines(Exact):
    """A line chart over a setting, over sessions or over epochs.

    Args:
        title: Title of the figure.
        across: Title of the x axis.
        up: Title of the y axis.
        scale: Scale of the x axis.
        panels: One panel for every data set and scenario.
    """

    kind: Literal["lines"] = "lines"
    title: str
    across: str
    up: str
    scale: Literal["linear", "log"] = "linear"
    panels: list[LinePanel]


class Series(Exact):
    """Bars of one series, one for every group.

    Args:
        label: Label of the row of the leaderboard; empty if the groups are the rows.
        measure: Name of the measure.
        values: One value for every group.
    """

    label: str
    measure: str
    values: Scores


class BarPanel(Exact):
    """Bars that share a pair of axes; the place is empty if there is only one."""

    place: str
    groups: Annotated[list[str], Field(min_length=1)]
    series: list[Series]


class BarChart(Exact):
    """A bar chart.

    Args:
        title: Title of the figure.
        up: Title of the y axis.
        panels: One panel for every place; see `BarPanel`.
    """

    kind: Literal["bars"] = "bars"
    title: str
    up: str
    panels: list[BarPanel]


Unit = Literal["fraction", "%"]


class PublishedNumber(Exact):
    """A number printed in a paper, and its standard deviation over runs if the paper prints one."""

    value: Finite
    deviation: NonNegative | None = None

    def times(self, factor: float) -> PublishedNumber:
        """Return the number in another unit, rounded to 9 digits to remove the error of binary fractions.

        >>> PublishedNumber(value=0.5477).times(100)
        PublishedNumber(value=54.77, deviation=None)
        """
        deviation = None if self.deviation is None else round(factor * self.deviation, 9)
        return PublishedNumber(value=round(factor * self.value, 9), deviation=deviation)


class TableColumn(Exact):
    """One column of a table.

    Args:
        data: Data set that was searched; empty if there is only one.
        measure: Name of the measure.
        metric: Name of the metric; several are joined by commas.
        title: Title of the column.
        variant: Variant of a P metric.
        unit: Unit of all numbers of the column.
        digits: Number of digits after the decimal point.
    """

    data: str
    measure: str
    metric: str
    title: str = ""
    variant: Variant = "raw"
    unit: Unit = "fraction"
    digits: Count = 3


class TableRow(Exact):
    """One row of a table, with one number for every column.

    Args:
        scenario: Scenario or plan; empty if there is only one.
        label: Label of the row of the leaderboard, or the paper's name of a model that rows are compared with.
        values: Measured values.
        published: Values printed in the paper.
    """

    scenario: str
    label: str
    values: Scores
    published: list[PublishedNumber | None]


class NumberTable(Exact):
    """A table that joins metrics, data sets and scenarios.

    Args:
        title: Title of the table.
        columns: See `TableColumn`.
        rows: See `TableRow`.
        where: Tables or sections of the paper with the published values; empty if there are none.
    """

    kind: Literal["table"] = "table"
    title: str
    columns: list[TableColumn]
    rows: list[TableRow]
    where: str = ""


class GenerationMatrix(Exact):
    """Scores of the queries of every generation (rows) on the gallery of every generation (columns).

    One matrix belongs to one row of the leaderboard in one place. A value is None where nothing is measured or defined,
    such as for galleries of later generations.
    """

    place: str
    label: str
    values: list[Scores]


class Matrices(Exact):
    """Matrices of generations, which are numbered from 1, the oldest first."""

    kind: Literal["matrices"] = "matrices"
    title: str
    measure: str
    metric: str
    generations: Annotated[int, Field(ge=2)]
    panels: list[GenerationMatrix]


class Plane(Exact):
    """A 2-D projection of the embeddings of a few classes; the place is empty if there is only one."""

    place: str
    found: EmbeddingMap


class Planes(Exact):
    """2-D projections of the embeddings of a few classes, one for every data set, scenario and example."""

    kind: Literal["planes"] = "planes"
    title: str
    panels: list[Plane]


class QuantityPanel(Exact):
    """Histograms of one quantity, by model; the place is empty if there is only one."""

    place: str
    found: Histograms


class Quantities(Exact):
    """Histograms, by data set and scenario."""

    kind: Literal["quantities"] = "quantities"
    title: str
    panels: list[QuantityPanel]


class StripPanel(Exact):
    """A few queries with their first hits; the place is empty if there is only one."""

    place: str
    found: Strips


class ResultStrips(Exact):
    """A few queries with their first hits, by data set and scenario or plan."""

    kind: Literal["strips"] = "strips"
    title: str
    panels: list[StripPanel]


class Arrivals(Exact):
    """Number of images of every class that arrive in every session of a plan.

    Args:
        place: Name of data set and plan; empty if there is only one.
        classes: Names of the classes, in the order of their home.
        home: Session that introduces each class, from 1; its major session if all classes are known from the start.
        images: For every session, the number of images of each class.
    """

    place: str
    classes: list[str]
    home: list[PositiveInt]
    images: Annotated[list[list[Count]], Field(min_length=1)]


class ClassArrivals(Exact):
    """Distribution of classes over sessions, by data set and plan."""

    kind: Literal["class-arrivals"] = "class-arrivals"
    title: str
    panels: list[Arrivals]


FigureValue = Annotated[
    Lines | BarChart | NumberTable | Matrices | Planes | Quantities | ResultStrips | ClassArrivals,
    Field(discriminator="kind"),
]
