"""Suites for tests: built of plain values, and written as Python files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from limpet_bench.suite import Data, Frozen, Run, Scenario, Search, Suite, Training, check_suite

TRAINING = ("model", "recipe", "geometry", "head", "head_options", "weights", "starts_from")
OF_SUITE = (
    "name", "title", "description", "track", "seeds", "metrics", "gate_metric", "test_sets", "upper_bound", "accuracy",
    "test_images", "classes", "figures", "reproduces", "published",
)  # fmt: skip


def training_of(*parts: Mapping[str, Any]) -> Training:
    """Return a training of plain values; later ones go before earlier ones."""
    values: dict[str, Any] = {}
    for part in parts:
        for name in TRAINING:
            given = part.get(name)
            if given is not None:
                values[name] = {**values.get(name, {}), **given} if isinstance(given, Mapping) else given
    return Training(**{name: value for name, value in values.items() if value != ""})


def search_of(space: Mapping[str, Any], tuning: Mapping[str, Any]) -> Search:
    """Return a search of values by dotted name."""
    parts: dict[str, dict[str, Any]] = {}
    for name, values in space.items():
        part, _, setting = name.partition(".")
        parts.setdefault(part, {})[setting] = values
    return Search(budget=tuning["budget"], seeds=tuning.get("seeds", (0,)), **parts)


def suite_of(content: Mapping[str, Any], *, checked: bool = True) -> Suite:
    """Build a suite that has a run for every data set, scenario and method.

    Args:
        content: Settings of the suite, and: "data" with options by name; "scenarios" or "plans" with options by name,
            of the kind in "scenario" or of that name; "methods" with settings of runs by label, among them "vary",
            values by dotted name; settings of the training of all new models, and, of old ones, in "old"; "frozen" and
            "budget" of all runs; "tuning", whose "search" is that of all rows without one; and "links", by scenario:
            "predecessor" and "gallery", which are scenarios, "baseline", "frozen" and settings of the training.
        checked: Refuse unknown names, as the suites of commands are.
    """
    known = {
        *TRAINING,
        *OF_SUITE,
        "data",
        "scenarios",
        "plans",
        "methods",
        "old",
        "frozen",
        "budget",
        "tuning",
        "links",
    }
    assert set(content) <= known, set(content) - known
    runs: list[Run] = []
    trains_old = content.get("track", "images") == "images" or "old" in content
    for data, options in content["data"].items():
        tuning = content.get("tuning") or {}
        source = Data(data, options, tuning.get("data_options", {}).get(data, {}))
        rows: dict[tuple[str, str], Run] = {}
        for scenario, given in (content.get("plans") or content.get("scenarios", {"extended-class": {}})).items():
            link = content.get("links", {}).get(scenario, {})
            kind = given.get("scenario", scenario)
            where = Scenario(kind, {name: value for name, value in given.items() if name != "scenario"}, scenario)
            reference = training_of(content, link)
            for label, row in content["methods"].items():
                own = {name: value for name, value in row.items() if name not in (*TRAINING, "vary", "search")}
                space = row["search"] if "search" in row else tuning.get("search", {})
                frozen = {**content.get("frozen", {}), **link.get("frozen", {})}
                before, gallery = link.get("predecessor"), link.get("gallery")
                run = Run(
                    label,
                    source,
                    where,
                    training=training_of(content, link, row),
                    independent=reference,
                    old=training_of(content, content.get("old", {}), link.get("old", {})) if trains_old else None,
                    predecessor=rows[before, label] if before else None,
                    gallery=rows[gallery, label] if gallery else None,
                    baseline=link.get("baseline", "own"),
                    frozen=Frozen(**frozen) if frozen else None,
                    search=search_of(space, tuning) if space and tuning else None,
                    **{"budget": content.get("budget"), **own},
                )
                rows[scenario, label] = run
                runs.append(run)
                for setting, values in row.get("vary", {}).items():
                    runs += [run.variant(setting, value) for value in values]
    suite = Suite(runs=tuple(runs), **{name: content[name] for name in OF_SUITE if name in content})
    if checked:
        check_suite(suite)
    return suite


def with_runs(suite: Suite, change: Callable[[Run], Run], **settings: Any) -> Suite:
    """Return a suite whose runs, and those that they succeed or search, are changed."""
    known: dict[int, Run] = {}

    def changed(run: Run) -> Run:
        if id(run) not in known:
            before = None if run.predecessor is None else changed(run.predecessor)
            gallery = None if run.gallery is None else changed(run.gallery)
            known[id(run)] = replace(change(run), predecessor=before, gallery=gallery)
        return known[id(run)]

    return replace(suite, runs=tuple(changed(run) for run in suite.runs), **settings)


IMPORTS = """from pathlib import PosixPath

from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Geometry, Recipe, Trainable
from limpet_bench.figures import *
from limpet_bench.suite import *
"""


def write_suite(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a Python file whose only function returns the suite of `suite_of`."""
    path.write_text(
        f"{IMPORTS}\n\ndef suite() -> Suite:\n    return {suite_of(content, checked=False)!r}\n", encoding="utf-8"
    )
    return path
