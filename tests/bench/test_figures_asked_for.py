"""Figures that a suite asks for: every kind is read, and every unknown name refused before anything is run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet_bench.figures import FIGURES
from limpet_bench.suite import Suite

IMAGES: dict[str, Any] = {
    "methods": {"p2s": {"vary": {"options.weight": [0.5, 2.0], "head": ["softmax", "normalised"]}}, "l2": {}},
    "scenarios": {"extended-class": {}, "open-class": {}},
}
SESSIONS: dict[str, Any] = {
    "track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1,
    "methods": {"finetune": {}, "joint": {}},
}  # fmt: skip
CHAIN: dict[str, Any] = {
    "scenarios": {
        "1-to-2": {"scenario": "extended-class", "old_fraction": 0.3, "new_fraction": 0.6},
        "1-to-3": {"scenario": "extended-class", "old_fraction": 0.3},
        "2-to-3": {"scenario": "extended-class", "old_fraction": 0.6},
    },
    "links": {"1-to-3": {"predecessor": "1-to-2"}, "2-to-3": {"predecessor": "1-to-2", "gallery": "1-to-2"}},
}
RIGHT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "curve": (IMAGES, {"rows": ["p2s"], "over": "options.weight", "scale": "log", "measures": ["self_new", "cross"]}),
    "bars": (IMAGES, {"over": "scenario", "rows": ["l2"], "measures": ["p_comp"], "metric": "recall@1"}),
    "table": (IMAGES, {"columns": [{"metric": "recall@1", "measure": "self_new"}, {"measure": "p_up", "title": "u"}]}),
    "matrix": (CHAIN, {"measure": "p_comp", "rows": ["p2s"]}),
    "session-curve": (SESSIONS, {"measure": "recall@2"}),
    "loss-curve": (IMAGES, {"terms": ["alignment"], "scenarios": ["open-class"]}),
    "embedding": (
        IMAGES,
        {
            "method": "hyperboloid",
            "part": "training",
            "similar": 4,
            "examples": 2,
            "show": ["old", "new", "old-prototypes"],
            "apart": True,
            "credible": 0.9,
            "seed": 3,
        },
    ),
    "histogram": (IMAGES, {"of": "radius", "split": "seen", "show": ["old"], "part": "training"}),
    "strips": (SESSIONS, {"queries": 2, "hits": 3, "after": "every"}),
    "class-distribution": (SESSIONS, {"title": "Classes"}),
}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an unknown kind": (IMAGES, {"kind": "curv"}, "figures={'kind': 'curv'}"),
    "an unknown setting": (IMAGES, {"kind": "matrix", "row": "p2s"}, "'row'. Did you mean 'rows'"),
    "an unknown setting and one that is missing": (
        IMAGES, {"kind": "curve", "row": "p2s", "over": "x"}, "'row'. Did you mean 'rows'"
    ),
    "a row in place of a list": (IMAGES, {"kind": "bars", "rows": "l2"}, "'rows' of a figure Bars is 'l2'"),
    "an unknown row": (IMAGES, {"kind": "bars", "rows": ["p2z"]}, "Unknown row in the figure 'k': 'p2z'"),
    "unknown data": (IMAGES, {"kind": "bars", "data": ["glyphs"]}, "Unknown data set in the figure 'k': 'glyphs'"),
    "an unknown scenario": (IMAGES, {"kind": "strips", "scenarios": ["open-clas"]}, "Did you mean 'open-class'"),
    "an unknown metric": (IMAGES, {"kind": "bars", "metric": "mapp"}, "Unknown metric in .* 'mapp'. Did you mean"),
    "an accuracy that is not measured": (IMAGES, {"kind": "bars", "metric": "accuracy"}, "Unknown metric in "),
    "an unknown measure": (IMAGES, {"kind": "bars", "measures": ["cros"]}, "Unknown measure in .* 'cros'. Did you"),
    "an unknown measure of a column": (IMAGES, {"kind": "table", "columns": [{"measure": "old"}]}, "measure in"),
    "an unknown metric of a column": (IMAGES, {"kind": "table", "columns": [{"metric": "old"}]}, "metric in"),
    "a mean over one data set": (IMAGES, {"kind": "table", "columns": [{"over_sets": True}]}, "several data sets"),
    "an unknown variant": (IMAGES, {"kind": "table", "columns": [{"variant": "percent"}]}, "'variant' of a figure"),
    "an unknown metric of a matrix": (CHAIN, {"kind": "matrix", "metric": "old"}, "metric in"),
    "a table without columns": (IMAGES, {"kind": "table", "columns": []}, "The setting 'columns' of a figure"),
    "a setting that is not varied": (
        IMAGES, {"kind": "curve", "rows": ["p2s"], "over": "options.wieght"}, "Did you mean 'options.weight'"
    ),
    "a row that varies nothing": (IMAGES, {"kind": "curve", "rows": ["l2"], "over": "options.weight"}, "of 'l2'"),
    "a curve over words": (IMAGES, {"kind": "curve", "rows": ["p2s"], "over": "head"}, "which is also softmax"),
    "a scale of nothing": (
        {"methods": {"p2s": {"vary": {"options.weight": [0.0, 1.0]}}}},
        {"kind": "curve", "rows": ["p2s"], "over": "options.weight", "scale": "log"}, "which is also 0.0",
    ),
    "pairs of generations that are not told apart": (
        IMAGES, {"kind": "matrix"}, "'open-class' and 'extended-class' are both generation 2 on the gallery of 1"
    ),
    "sessions of images": (IMAGES, {"kind": "session-curve"}, "a suite of the track sessions"),
    "losses of sessions": (SESSIONS, {"kind": "loss-curve"}, "a suite of the track images"),
    "systems of sessions": (SESSIONS, {"kind": "bars", "measures": ["cross"]}, "one of learner"),
    "a recall that is not measured": (SESSIONS, {"kind": "session-curve", "measure": "recall@3"}, "measure in"),
    "two choices of classes": (IMAGES, {"kind": "embedding", "classes": 3, "similar": 2}, "classes=3 and similar=2"),
    "a class and many classes": (IMAGES, {"kind": "embedding", "nearest": 3, "similar": 2}, "2 and nearest=3"),
    "examples of classes by name": (IMAGES, {"kind": "embedding", "classes": ["a"], "examples": 2}, "has examples=2"),
    "an old model apart from nothing": (IMAGES, {"kind": "embedding", "apart": True, "show": ["new"]}, "apart=True"),
    "noise among new embeddings": (IMAGES, {"kind": "embedding", "credible": 0.9, "show": ["new"]}, "credible=0.9"),
    "one class that is similar": (IMAGES, {"kind": "embedding", "similar": 1}, "The setting 'similar' of a figure"),
    "one side of an angle": (IMAGES, {"kind": "histogram", "of": "angle", "show": ["old"]}, "shows old"),
    "sessions of an upgrade": (IMAGES, {"kind": "strips", "after": "every"}, "has after: every"),
    "an unknown part": (IMAGES, {"kind": "histogram", "of": "angle", "part": "all"}, "The setting 'part' of a figure"),
    "a row that is called as the old model": (
        {"methods": {"old": {"method": "p2s"}}}, {"kind": "embedding"}, "a row called 'old'"
    ),
    "an unknown layout": (IMAGES, {"kind": "embedding", "method": "pca"}, "The setting 'method' of a figure"),
}  # fmt: skip


def test_an_example_of_every_kind_is_here() -> None:
    assert set(RIGHT) == set(FIGURES)


@pytest.mark.parametrize("kind", RIGHT)
def test_every_kind_is_read_as_it_is_written(kind: str, small: Callable[..., Suite]) -> None:
    parts, figure = RIGHT[kind]
    found = small(**parts, figures={"mine": {"kind": kind, **figure}}).figures["mine"]
    assert type(found) is FIGURES[kind]
    assert found.model_dump(exclude_unset=True, mode="json") == {"kind": kind, **figure}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_figure_is_refused_when_the_suite_is_read(what: str, small: Callable[..., Suite]) -> None:
    parts, figure, said = WRONG[what]
    with pytest.raises(ConfigError, match=said):
        small(**parts, figures={"k": figure})


def test_generations_are_counted_along_a_chain(small: Callable[..., Suite]) -> None:
    suite = small(**CHAIN)
    found = {name: suite.generations(name) for name in suite.conditions}
    assert found == {"1-to-2": (2, 1), "1-to-3": (3, 1), "2-to-3": (3, 2)}


def test_an_item_of_a_paper_is_named_by_paper_and_number(small: Callable[..., Suite]) -> None:
    assert small(reproduces=["hbct/table-3", "cvs/figure-12"]).reproduces == ("hbct/table-3", "cvs/figure-12")
    for wrong in ("hbct", "hbct/table-IV", "hbct/table-0", "Table 3"):
        with pytest.raises(ConfigError, match=f"reproduces names '{wrong}'"):
            small(reproduces=[wrong])


def test_whoever_runs_suites_gathers_figures_of_every_kind() -> None:
    """In a Python of its own: here another test may have imported what registers a kind."""
    code = """
import limpet_bench.run
from limpet_bench.figures import FIGURES
from limpet_bench.gathering import gathered

print(*(kind for kind, spec in FIGURES.items() if gathered.dispatch(spec) is gathered.dispatch(object)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
