"""Rows that vary a setting: a row for every value, one setting at a time, and nothing trained twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet_bench.cache import TaskCache
from limpet_bench.run import final_rows, planned_trials, result_of, space_of
from limpet_bench.suite import Suite, Variant
from limpet_bench.tasks import Planner, in_order

NDPP = {"ndpp": {"options": {"neighbours": 5}, "vary": {"options.neighbours": [5, 7], "recipe.clip_norm": [0.5]}}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no value": ({"ndpp": {"vary": {"options.neighbours": []}}}, "no values of 'options.neighbours' to vary"),
    "a single value": ({"ndpp": {"vary": {"options.neighbours": 3}}}, r"is 3\.\nExpected: a list such as \[3\]"),
    "a value twice": ({"ndpp": {"vary": {"options.neighbours": [3, 3]}}}, "Two rows are called 'ndpp, neighbours 3'"),
    "a label of another row": ({"p2s": {"vary": {"options.weight": [2]}}, "p2s, weight 2": {"method": "p2s"}},
                               "Two rows are called 'p2s, weight 2'"),
    "an option outside the options": ({"ndpp": {"vary": {"neighbours": [3]}}}, "The row 'ndpp' varies 'neighbours'"),
    "an unknown option": ({"ndpp": {"vary": {"options.neigbours": [3]}}}, "Did you mean 'neighbours'"),
    "a value of another type": ({"ndpp": {"vary": {"options.neighbours": ["many"]}}}, "'neighbours' .* 'many'"),
    "a recipe out of range": ({"ndpp": {"vary": {"recipe.epochs": [1, 0]}}}, "epochs"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_refused_when_the_suite_is_read(what: str, small: Callable[..., Suite]) -> None:
    methods, said = WRONG[what]
    with pytest.raises(ConfigError, match=said):
        small(methods=methods)


def test_every_value_is_a_row_with_all_else_as_it_is_written(small: Callable[..., Suite], images: Any) -> None:
    suite = small(methods={"p2s": {}, **NDPP})
    assert list(suite.rows) == ["p2s", "ndpp", "ndpp, neighbours 5", "ndpp, neighbours 7", "ndpp, clip norm 0.5"]
    assert suite.variants["ndpp, neighbours 7"] == Variant("ndpp", "options.neighbours", 7)
    found = suite.settings(str(images), "ndpp, neighbours 7")
    assert found["method"] == "ndpp" and found["options"] == {"neighbours": 7} and "clip_norm" not in found["recipe"]
    clipped = suite.settings(str(images), "ndpp, clip norm 0.5")
    assert clipped["options"] == {"neighbours": 5} and clipped["recipe"]["clip_norm"] == 0.5


def test_rows_of_equal_settings_are_one_task(small: Callable[..., Suite]) -> None:
    rows = {row.label: row for row in Planner(small(methods=NDPP), None, {}).rows()}
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


def test_what_a_row_varies_is_not_searched(small: Callable[..., Suite]) -> None:
    search = {"options.neighbours": [3, 4], "options.weight": [1.0, 2.0]}
    suite = small(methods=NDPP, tuning={"budget": 9, "search": search})
    assert space_of(suite, "ndpp") == space_of(suite, "ndpp, clip norm 0.5") == search
    assert space_of(suite, "ndpp, neighbours 7") == {"options.weight": [1.0, 2.0]}
    tried = [row.changes for row in planned_trials(suite, None) if row.label == "ndpp, neighbours 7"]
    assert tried == [{"options.weight": 1.0}, {"options.weight": 2.0}]


def test_learners_of_sessions_can_vary_their_memory(content: Callable[..., dict[str, Any]]) -> None:
    from limpet_bench.suite import suite_from

    parts = {"track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1}
    suite = suite_from(content(**parts, methods={"cvs": {"vary": {"budget": [4, 8]}}}, budget=6), "the test")
    kept = {row.label: row.score.settings["budget"] for row in Planner(suite, None, {}).rows()}
    assert kept == {"cvs": 6, "cvs, budget 4": 4, "cvs, budget 8": 8}
