"""What figures come to: every kind on a suite that was run, held against its runs one by one; drawn, and written."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.training.run_state import load_history
from limpet_bench.cache import TaskCache
from limpet_bench.figure_values import BarChart, Lines, Matrices, NumberTable
from limpet_bench.leaderboard import Leaderboard, Run
from limpet_bench.ranking import leaderboard_of
from limpet_bench.reports.leaderboard import render_leaderboard
from limpet_bench.reports.suite_figures import write_figures
from limpet_bench.run import Bench
from limpet_bench.suite import Suite

IMAGES: dict[str, Any] = {
    "methods": {"p2s": {"vary": {"options.weight": [2.0, 0.5]}}, "l2": {}},
    "scenarios": {"extended-class": {}, "open-class": {}},
    "figures": {
        "curve": {"kind": "curve", "rows": ["p2s"], "over": "options.weight", "scale": "log",
                  "measures": ["self_new", "cross"], "title": "A weight"},
        "side": {"kind": "bars", "over": "scenario", "rows": ["l2"], "measures": ["cross"], "metric": "recall@1"},
        "rows": {"kind": "bars", "scenarios": ["open-class"]},
        "joined": {"kind": "table", "rows": ["p2s", "l2"], "scenarios": ["open-class"],
                   "columns": [{"metric": "recall@1", "measure": "self_new"}, {"metric": "map"}]},
        "losses": {"kind": "loss-curve", "rows": ["p2s"], "terms": ["contrast"], "scenarios": ["open-class"]},
    },
}  # fmt: skip
CHAIN: dict[str, Any] = {
    "methods": {"p2s": {}},
    "scenarios": {
        "1-to-2": {"scenario": "extended-class", "old_fraction": 0.3, "new_fraction": 0.6},
        "1-to-3": {"scenario": "extended-class", "old_fraction": 0.3},
        "2-to-3": {"scenario": "extended-class", "old_fraction": 0.6},
    },
    "links": {"1-to-3": {"predecessor": "1-to-2"}, "2-to-3": {"predecessor": "1-to-2", "gallery": "1-to-2"}},
    "figures": {"cross": {"kind": "matrix"}, "p": {"kind": "matrix", "measure": "p_comp", "metric": "recall@1"}},
}
SESSIONS: dict[str, Any] = {
    "track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1, "seeds": [0, 1],
    "methods": {"finetune": {}}, "figures": {"recall": {"kind": "session-curve", "measure": "recall@2"}},
}  # fmt: skip


class Ran:
    """A suite that was run, and its leaderboard."""

    def __init__(self, suite: Suite, cache: TaskCache) -> None:
        self.suite, self.cache = suite, cache
        self.board: Leaderboard = leaderboard_of(Bench(cache).run(suite), command="limpet-bench", wall_seconds=1.0)

    def runs(self, label: str, scenario: str) -> list[Run]:
        return [run for run in self.board.rows if (run.label, run.scenario) == (label, scenario)]

    def mean(self, label: str, scenario: str, measure: str, metric: str = "map") -> float:
        values = [run.measured[metric][measure] for run in self.runs(label, scenario)]
        return sum(value for value in values if value is not None) / len(values)


@pytest.fixture(scope="module")
def run(small: Callable[..., Suite], tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Ran]:
    cache = TaskCache(tmp_path_factory.mktemp("figures"))
    known: dict[int, Ran] = {}

    def of(parts: dict[str, Any]) -> Ran:
        if id(parts) not in known:
            known[id(parts)] = Ran(small(**parts), cache)
        return known[id(parts)]

    return of


def test_a_curve_is_the_rows_that_vary_in_order(run: Callable[[dict[str, Any]], Ran]) -> None:
    ran = run(IMAGES)
    curve = ran.board.figures["curve"]
    assert isinstance(curve, Lines) and (curve.title, curve.scale, curve.up) == ("A weight", "log", "map")
    assert [panel.place for panel in curve.panels] == ["extended-class", "open-class"]
    for panel in curve.panels:
        assert [(line.label, line.measure) for line in panel.lines] == [("p2s", "self_new"), ("p2s", "cross")]
        for line in panel.lines:
            assert [point.at for point in line.points] == [0.5, 2.0]
            for point in line.points:
                expected = ran.mean(f"p2s, weight {point.at}", panel.place, line.measure)
                assert (
                    point.value is not None and point.value.mean == pytest.approx(expected) and point.value.seeds == 1
                )
                assert point.value.lowest <= expected <= point.value.highest


def test_bars_stand_by_scenario_or_by_row(run: Callable[[dict[str, Any]], Ran]) -> None:
    ran = run(IMAGES)
    side, rows = ran.board.figures["side"], ran.board.figures["rows"]
    assert isinstance(side, BarChart) and isinstance(rows, BarChart)
    (panel,) = side.panels
    assert panel.groups == ["extended-class", "open-class"]
    means = [one.mean for one in panel.series[0].values if one is not None]
    assert means == pytest.approx([ran.mean("l2", scenario, "cross", "recall@1") for scenario in panel.groups])
    (panel,) = rows.panels
    assert panel.groups == ["p2s", "p2s, weight 2.0", "p2s, weight 0.5", "l2"]
    means = [one.mean for one in panel.series[0].values if one is not None]
    assert means == pytest.approx([ran.mean(label, "open-class", "cross") for label in panel.groups])


def test_a_table_joins_metrics(run: Callable[[dict[str, Any]], Ran]) -> None:
    ran = run(IMAGES)
    table = ran.board.figures["joined"]
    assert isinstance(table, NumberTable)
    assert [(column.metric, column.measure) for column in table.columns] == [("recall@1", "self_new"), ("map", "cross")]
    for row in table.rows:
        means = [one.mean for one in row.values if one is not None]
        expected = [ran.mean(row.label, "open-class", column.measure, column.metric) for column in table.columns]
        assert means == pytest.approx(expected)


def test_losses_are_those_of_the_histories(run: Callable[[dict[str, Any]], Ran], small: Callable[..., Suite]) -> None:
    ran = run(IMAGES)
    losses = ran.board.figures["losses"]
    assert isinstance(losses, Lines) and losses.across == "epoch"
    ((line,),) = [panel.lines for panel in losses.panels]
    folders = [path.parent for path in ran.cache.root.rglob("history.json")]
    contrasts = [
        epoch["contrast"] for folder in folders for epoch in load_history(folder).epochs if "contrast" in epoch
    ]
    assert line.measure == "contrast" and len(line.points) == 1
    assert line.points[0].value is not None and line.points[0].value.lowest in contrasts


def test_a_matrix_has_the_generations_of_a_chain(run: Callable[[dict[str, Any]], Ran]) -> None:
    ran = run(CHAIN)
    cross, comp = ran.board.figures["cross"], ran.board.figures["p"]
    assert isinstance(cross, Matrices) and isinstance(comp, Matrices) and cross.generations == 3
    values = [[None if one is None else one.mean for one in row] for row in cross.panels[0].values]
    expected = {(1, 0): "1-to-2", (2, 0): "1-to-3", (2, 1): "2-to-3"}
    for (asks, held), scenario in expected.items():
        assert values[asks][held] == pytest.approx(ran.mean("p2s", scenario, "cross"))
    assert values[0][0] == pytest.approx(ran.mean("p2s", "1-to-2", "self_old"))
    assert values[1][1] == pytest.approx(ran.mean("p2s", "1-to-2", "self_new"))
    assert values[2][2] == pytest.approx(ran.mean("p2s", "1-to-3", "self_new"))
    assert values[0][1] is None and values[0][2] is None and values[1][2] is None
    assert all(comp.panels[0].values[same][same] is None for same in range(3))


def test_a_session_curve_has_a_point_per_session(run: Callable[[dict[str, Any]], Ran]) -> None:
    ran = run(SESSIONS)
    recall = ran.board.figures["recall"]
    assert isinstance(recall, Lines) and recall.across == "session"
    ((line,),) = [panel.lines for panel in recall.panels]
    runs = ran.runs("finetune", "disjoint")
    for at, point in enumerate(line.points):
        values = [one.after_sessions["recall@2"][at] or 0.0 for one in runs]
        assert point.at == at + 1 and point.value is not None
        assert point.value.mean == pytest.approx(sum(values) / len(values))
    assert len(line.points) == 2


def test_figures_are_written_and_shown_and_come_back(run: Callable[[dict[str, Any]], Ran], tmp_path: Path) -> None:
    for parts in (IMAGES, CHAIN, SESSIONS):
        board = run(parts).board
        again = Leaderboard.load(board.save(tmp_path))
        assert again.figures == board.figures
        write_figures(board, tmp_path)
        page = render_leaderboard(board)
        for name, spec in parts["figures"].items():
            written = {path.suffix for path in (tmp_path / "figures").glob(f"{name}.*")}
            assert written == {".md", ".csv"} | ({".svg"} if spec["kind"] != "table" else set())
            with (tmp_path / "figures" / f"{name}.csv").open(newline="") as file:
                records = list(csv.DictReader(file))
            assert records and all(record["mean"] == "" or float(record["mean"]) >= -100 for record in records)
            assert spec.get("title", name) in page
