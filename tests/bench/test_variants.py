"""Rows that vary a setting: one setting at a time, and nothing trained twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet_bench.cache import TaskCache
from limpet_bench.run import final_rows, result_of
from limpet_bench.suite import Run, Suite, Training, Variant
from limpet_bench.tasks import Planner, in_order

NDPP = {"ndpp": {"options": {"neighbours": 5}, "vary": {"options.neighbours": [5, 7], "recipe.clip_norm": [0.5]}}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a value twice": ({"ndpp": {"vary": {"options.neighbours": [3, 3]}}}, "Two runs are called .*ndpp, neighbours 3"),
    "a label of another row": ({"p2s": {"vary": {"options.weight": [2]}}, "p2s, weight 2": {"method": "p2s"}},
                               "Two runs are called .*p2s, weight 2"),
    "an unknown option": ({"ndpp": {"vary": {"options.neigbours": [3]}}}, "Did you mean 'neighbours'"),
    "a value of another type": ({"ndpp": {"vary": {"options.neighbours": ["many"]}}}, "'neighbours' .* 'many'"),
    "a recipe out of range": ({"ndpp": {"vary": {"recipe.epochs": [1, 0]}}}, "epochs"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_refused_when_the_suite_is_built(what: str, small: Callable[..., Suite]) -> None:
    methods, said = WRONG[what]
    with pytest.raises(ConfigError, match=said):
        small(methods=methods)


def test_a_variant_has_all_else_as_its_row() -> None:
    row = Run("ndpp", "glyphs", options={"neighbours": 5, "weight": 2.0}, training=Training(head="arcface"))
    many = row.variant("options.neighbours", 7)
    assert (many.label, many.method, many.options) == ("ndpp, neighbours 7", "ndpp", {"neighbours": 7, "weight": 2.0})
    assert many.varied == Variant("ndpp", "options.neighbours", 7) and many.training == row.training
    clipped = row.variant("recipe.clip_norm", 0.5)
    assert clipped.label == "ndpp, clip norm 0.5" and clipped.options == row.options
    assert clipped.training == row.training.but(recipe={"clip_norm": 0.5}) and clipped.reference == row.training


def test_what_a_row_varies_does_not_reach_the_models_it_is_held_against() -> None:
    row = Run("hbct", "glyphs", old=Training(head="softmax"))
    for changed in (row.variant("model.dim", 4), row.changed({"geometry.curvature": 2.0})):
        assert changed.before == row.before and changed.reference == row.reference != changed.training


def test_rows_of_equal_settings_are_one_task(small: Callable[..., Suite]) -> None:
    rows = {row.label: row for row in Planner(small(methods=NDPP), None).rows()}
    score = {label: row.score.address for label, row in rows.items()}
    assert score["ndpp"] == score["ndpp, neighbours 5"] and len(set(score.values())) == 3
    trained = [task for task in in_order(row.score for row in rows.values()) if task.kind == "train"]
    assert len(trained) == 2 + 3, "the old model, the independent one, and one for each setting"


def test_what_a_row_varies_is_told_of_its_runs(small: Callable[..., Suite], tmp_path: Any) -> None:
    rows = final_rows(small(methods=NDPP), [], None)
    runs = {row.label: result_of(row, TaskCache(tmp_path)) for row in rows}
    varied = runs["ndpp, clip norm 0.5"].varied
    assert varied is not None and (varied.row, varied.setting, varied.value) == ("ndpp", "recipe.clip_norm", 0.5)
    assert runs["ndpp"].varied is None and runs["ndpp, clip norm 0.5"].settings == {"recipe.clip_norm": 0.5}


def test_learners_of_sessions_can_vary_their_memory(small: Callable[..., Suite]) -> None:
    parts = {"track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1}
    suite = small(**parts, methods={"cvs": {"vary": {"budget": [4, 8]}}}, budget=6)
    kept = {row.label: row.score.settings["budget"] for row in Planner(suite, None).rows()}
    assert kept == {"cvs": 6, "cvs, budget 4": 4, "cvs, budget 8": 8}
