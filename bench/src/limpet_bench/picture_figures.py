"""Figures of single items: 2-D projections, histograms, first hits, and classes by session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any

from limpet.errors import ConfigError
from limpet_bench.executor import blocked_by
from limpet_bench.figure_values import (
    Arrivals,
    ClassArrivals,
    FigureValue,
    Plane,
    Planes,
    Quantities,
    QuantityPanel,
    ResultStrips,
    StripPanel,
)
from limpet_bench.figures import ClassDistribution, Embedding, FigureSpec, Histogram, Strips
from limpet_bench.gathering import Finished, Place, gathered, needed_tasks, note_of, place_names
from limpet_bench.pictures.embedding_map import OLD, EmbeddingMap
from limpet_bench.pictures.histograms import Histograms
from limpet_bench.pictures.layouts import LAYOUTS, library
from limpet_bench.pictures.strips import Strips as FoundStrips
from limpet_bench.suite import Suite
from limpet_bench.tasks import Row, Task

Pictures = dict[Place, Task]
"""The task that computes the picture of every place."""


@singledispatch
def picture_tasks(spec: FigureSpec, suite: Suite, rows: Sequence[Row]) -> Pictures:
    """Return the task that computes the picture of every place; empty for figures without such tasks."""
    return {}


@picture_tasks.register
def _plane_tasks(spec: Embedding, suite: Suite, rows: Sequence[Row]) -> Pictures:
    own = {"method", "similar", "nearest", "examples", "items", "apart", "credible", "seed"}
    asked = spec.model_dump(mode="json", include=own) | {"show": sorted(spec.show)}
    asked["classes"] = list(spec.classes) if isinstance(spec.classes, tuple) else spec.classes
    return {place: _of_upgrade("plane", asked, spec.part, found) for place, found in _shown(spec, suite, rows).items()}


@picture_tasks.register
def _histogram_tasks(spec: Histogram, suite: Suite, rows: Sequence[Row]) -> Pictures:
    asked = {"of": spec.of, "split": spec.split, "show": sorted(spec.show), "seed": spec.seed}
    found = _shown(spec, suite, rows)
    return {place: _of_upgrade("histogram", asked, spec.part, shown) for place, shown in found.items()}


@picture_tasks.register
def _strip_tasks(spec: Strips, suite: Suite, rows: Sequence[Row]) -> Pictures:
    asked = {"queries": spec.queries, "hits": spec.hits, "seed": spec.seed}
    if suite.track == "sessions":
        return {
            place: _of_sessions("session-strips", asked | {"after": spec.after}, found)
            for place, found in _by_place(spec, spec.labels(suite), suite, rows).items()
        }
    found = _by_place(spec, spec.labels(suite), suite, rows)
    return {place: _of_upgrade("strips", asked, "gallery", shown) for place, shown in found.items()}


@picture_tasks.register
def _arrival_tasks(spec: ClassDistribution, suite: Suite, rows: Sequence[Row]) -> Pictures:
    found = _by_place(spec, tuple(suite.rows)[:1], suite, rows)
    shared = ("data", "plan", "divided")
    return {
        place: Task(
            "arrivals", {name: shown[0].score.settings[name] for name in shared}, label=f"classes of {place[1]}"
        )
        for place, shown in found.items()
    }


def _by_place(spec: FigureSpec, labels: Sequence[str], suite: Suite, rows: Sequence[Row]) -> dict[Place, list[Row]]:
    found = {(row.data, row.scenario, row.label): row for row in rows if row.seed == suite.seeds[0]}
    places = {
        place: [found[*place, label] for label in labels if (*place, label) in found] for place in spec.places(suite)
    }
    return {place: shown for place, shown in places.items() if shown}


def _shown(spec: Embedding | Histogram, suite: Suite, rows: Sequence[Row]) -> dict[Place, list[Row]]:
    """Return the rows of the first seed by place.

    For a figure of training images, all places with the same training data become one.
    """
    found = _by_place(spec, spec.labels(suite), suite, rows)
    if spec.part == "gallery":
        return found
    once: dict[Place, list[Row]] = {}
    for (_, scenario), shown in found.items():
        once.setdefault((shown[0].trained_on, scenario), shown)
    return once


def _of_upgrade(kind: str, asked: Mapping[str, Any], part: str, rows: Sequence[Row]) -> Task:
    labels, first = [row.label for row in rows], rows[0].score
    settings = {**asked, "labels": labels, "part": part}
    needs = {f"model {number}": row.score.needs["model"] for number, row in enumerate(rows)}
    needs["old model"] = first.needs["searched"].needs["model"]
    hints: dict[str, Any] = {}
    if part == "training":
        model = first.needs["model"]
        settings["data"], hints = model.settings["data"], {"train_on": model.hints["train_on"]}
    else:
        settings |= {"data": first.settings["data"], "protocol": first.settings["protocol"]}
        settings["searched"] = first.needs["new"].settings["part"]
        needs |= {"old": first.needs["searched"]}
        needs |= {f"new {number}": row.score.needs["new"] for number, row in enumerate(rows)}
    return Task(kind, settings, needs, 1.0, f"{kind} of {', '.join(labels)} ({rows[0].scenario})", hints)


def _of_sessions(kind: str, asked: Mapping[str, Any], rows: Sequence[Row]) -> Task:
    labels = [row.label for row in rows]
    shared = {name: rows[0].score.settings[name] for name in ("data", "plan", "divided")}
    needs = {f"learner {number}": row.score for number, row in enumerate(rows)}
    return Task(kind, {**asked, **shared, "labels": labels}, needs, 1.0, f"{kind} of {', '.join(labels)}")


def missing_package(spec: FigureSpec) -> str | None:
    """Return a message if a package that a figure needs is not installed, with the way to install it; else None."""
    if not isinstance(spec, Embedding):
        return None
    try:
        library(LAYOUTS[spec.method].module)
    except ConfigError as error:
        return (
            f"{error.given} {error.to_do.rstrip('.')}, then the same command again draws it; nothing is trained anew."
        )
    return None


@needed_tasks.register(Embedding)
@needed_tasks.register(Histogram)
@needed_tasks.register(Strips)
@needed_tasks.register(ClassDistribution)
def _needed(spec: FigureSpec, suite: Suite, rows: Sequence[Row]) -> list[Task]:
    return [] if missing_package(spec) else list(picture_tasks(spec, suite, rows).values())


@note_of.register(Embedding)
@note_of.register(Histogram)
@note_of.register(Strips)
@note_of.register(ClassDistribution)
def _why_not(spec: FigureSpec, name: str, found: Finished) -> str | None:
    missing = missing_package(spec)
    if missing is not None:
        return missing
    reasons = (blocked_by(task, found.cache) for task in picture_tasks(spec, found.suite, found.rows).values())
    return next((reason for reason in reasons if reason is not None), None)


def _values(spec: FigureSpec, found: Finished) -> Iterator[tuple[str, Any]]:
    tasks = picture_tasks(spec, found.suite, found.rows)
    for place, words in place_names(list(tasks)).items():
        record = found.cache.record(tasks[place])
        if record is not None:
            yield words, record.values


@gathered.register
def _planes(spec: Embedding, name: str, found: Finished) -> FigureValue | None:
    panels = []
    for words, values in _values(spec, found):
        planes = [EmbeddingMap.model_validate(one) for one in values["planes"]]
        for number, plane in enumerate(planes, start=1):
            example = f"example {number}" if len(planes) > 1 else ""
            panels.append(Plane(place=", ".join(filter(None, (words, example))), found=plane))
    return Planes(title=spec.title or name, panels=panels) if panels else None


@gathered.register
def _quantities(spec: Histogram, name: str, found: Finished) -> FigureValue | None:
    order = [OLD, *spec.labels(found.suite)]  # JSON records sort their keys

    def ordered(values: Any) -> Histograms:
        read = Histograms.model_validate(values)
        return read.model_copy(update={"panels": {name: read.panels[name] for name in order if name in read.panels}})

    panels = [QuantityPanel(place=words, found=ordered(values["histograms"])) for words, values in _values(spec, found)]
    return Quantities(title=spec.title or name, panels=panels) if panels else None


@gathered.register
def _strips(spec: Strips, name: str, found: Finished) -> FigureValue | None:
    panels = [
        StripPanel(place=words, found=FoundStrips.model_validate(values["strips"]))
        for words, values in _values(spec, found)
    ]
    return ResultStrips(title=spec.title or name, panels=panels) if panels else None


@gathered.register
def _arrivals(spec: ClassDistribution, name: str, found: Finished) -> FigureValue | None:
    panels = [Arrivals(place=words, **values) for words, values in _values(spec, found)]
    return ClassArrivals(title=spec.title or name, panels=panels) if panels else None
