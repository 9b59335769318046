"""What the figures of a suite come to, as typed values: one class per kind of picture, which a leaderboard holds."""

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
    """A part that says nothing else, and whose numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Spread(Exact):
    """A mean over seeds with its range.

    Args:
        mean: Of them.
        lowest: Of them.
        highest: Of them.
        seeds: How many have the number.
    """

    mean: Finite
    lowest: Finite
    highest: Finite
    seeds: PositiveInt

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Self | None:
        """Return the mean and the range of the numbers there are; None where there is none.

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
    """One point of a line; None where nothing is defined."""

    at: Finite
    value: Spread | None


class Line(Exact):
    """One line.

    Args:
        label: The row.
        measure: What is measured.
        points: From left to right.
    """

    label: str
    measure: str
    points: Annotated[list[Point], Field(min_length=1)]


class LinePanel(Exact):
    """Lines that share a pair of axes; the place is empty where there is only one."""

    place: str
    lines: list[Line]


class Lines(Exact):
    """Numbers over a setting, over sessions or over epochs.

    Args:
        title: The headline.
        across: What runs from left to right.
        up: What the numbers are.
        scale: Of what runs from left to right.
        panels: One for every data set and scenario.
    """

    kind: Literal["lines"] = "lines"
    title: str
    across: str
    up: str
    scale: Literal["linear", "log"] = "linear"
    panels: list[LinePanel]


class Series(Exact):
    """Bars of one look, one for every group.

    Args:
        label: The row; empty where groups are rows.
        measure: What is measured.
        values: One for every group.
    """

    label: str
    measure: str
    values: Scores


class BarPanel(Exact):
    """Bars that share a pair of axes; the place is empty where there is only one."""

    place: str
    groups: Annotated[list[str], Field(min_length=1)]
    series: list[Series]


class BarChart(Exact):
    """Numbers side by side.

    Args:
        title: The headline.
        up: What the numbers are.
        panels: See `BarPanel`.
    """

    kind: Literal["bars"] = "bars"
    title: str
    up: str
    panels: list[BarPanel]


Unit = Literal["fraction", "%"]


class PublishedNumber(Exact):
    """A number that a paper prints, and its standard deviation over runs where it prints one."""

    value: Finite
    deviation: NonNegative | None = None

    def times(self, factor: float) -> PublishedNumber:
        """Return it in another unit, without the noise of binary fractions.

        >>> PublishedNumber(value=0.5477).times(100)
        PublishedNumber(value=54.77, deviation=None)
        """
        deviation = None if self.deviation is None else round(factor * self.deviation, 9)
        return PublishedNumber(value=round(factor * self.value, 9), deviation=deviation)


class TableColumn(Exact):
    """One column.

    Args:
        data: What was searched; empty where there is only one.
        measure: What is measured.
        metric: The metric; several joined by commas.
        title: Its headline.
        variant: Of a P metric.
        unit: Of all its numbers.
        digits: Digits after the point.
    """

    data: str
    measure: str
    metric: str
    title: str = ""
    variant: Variant = "raw"
    unit: Unit = "fraction"
    digits: Count = 3


class TableRow(Exact):
    """One row of a scenario, a number for every column.

    Args:
        scenario: Or plan; empty where there is only one.
        label: The row of the leaderboard, or what a paper calls a model that rows are compared with.
        values: What was measured.
        published: What the paper prints.
    """

    scenario: str
    label: str
    values: Scores
    published: list[PublishedNumber | None]


class NumberTable(Exact):
    """A table that joins metrics, data sets and scenarios.

    Args:
        title: The headline.
        columns: See `TableColumn`.
        rows: See `TableRow`.
        where: The tables or sections of the paper that it is compared with; empty where nothing is published.
    """

    kind: Literal["table"] = "table"
    title: str
    columns: list[TableColumn]
    rows: list[TableRow]
    where: str = ""


class GenerationMatrix(Exact):
    """Queries of every generation (rows) on the galleries of all (columns), of one row in one data set.

    None where nothing is measured or defined, as for galleries of later generations.
    """

    place: str
    label: str
    values: list[Scores]


class Matrices(Exact):
    """Matrices of generations, counted from 1, the oldest first."""

    kind: Literal["matrices"] = "matrices"
    title: str
    measure: str
    metric: str
    generations: Annotated[int, Field(ge=2)]
    panels: list[GenerationMatrix]


class Plane(Exact):
    """Embeddings of a few classes in one plane; the place is empty where there is only one."""

    place: str
    found: EmbeddingMap


class Planes(Exact):
    """Embeddings of a few classes, a plane for every data set, scenario and example."""

    kind: Literal["planes"] = "planes"
    title: str
    panels: list[Plane]


class QuantityPanel(Exact):
    """One quantity by model; the place is empty where there is only one."""

    place: str
    found: Histograms


class Quantities(Exact):
    """How often values occur, by data set and scenario."""

    kind: Literal["quantities"] = "quantities"
    title: str
    panels: list[QuantityPanel]


class StripPanel(Exact):
    """A few queries with their first hits; the place is empty where there is only one."""

    place: str
    found: Strips


class ResultStrips(Exact):
    """A few queries with their first hits, by data set and scenario or plan."""

    kind: Literal["strips"] = "strips"
    title: str
    panels: list[StripPanel]


class Arrivals(Exact):
    """How many images of every class arrive in every session of a plan.

    Args:
        place: Empty where there is only one.
        classes: Names, in the order of their home.
        home: The session that introduces each class, from 1; where all are known from the start, the one that brings
            most of its images.
        images: By session, how many of each class.
    """

    place: str
    classes: list[str]
    home: list[PositiveInt]
    images: Annotated[list[list[Count]], Field(min_length=1)]


class ClassArrivals(Exact):
    """How classes are spread over sessions, by data set and plan."""

    kind: Literal["class-arrivals"] = "class-arrivals"
    title: str
    panels: list[Arrivals]


FigureValue = Annotated[
    Lines | BarChart | NumberTable | Matrices | Planes | Quantities | ResultStrips | ClassArrivals,
    Field(discriminator="kind"),
]
