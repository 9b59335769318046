"""Boards of a few runs whose numbers can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.errors import ConfigError, DataError
from limpet_bench.leaderboard import BenchRuns, CellMean, Entry, Front, SeedMean, Standings
from limpet_bench.ranking import combined_over_test_sets, leaderboard_of

NAN = float("nan")
SUITE = {"name": "small", "title": "A suite", "description": "Runs", "metric": "map", "kind": "images"}


def run(data: str, label: str, seed: int, cross: float | None, **values: Any) -> dict[str, Any]:
    given = {"self_old": 0.25, "self_independent": 0.75}
    p_comp = None if cross is None else (cross - 0.25) / 0.5
    row = {
        "data": data,
        "scenario": "more classes",
        "method": label,
        "label": label,
        "options": {},
        "seed": seed,
        "metric": "map",
        "scores": None if cross is None else {**given, "self_new": 0.5, "cross": cross},
        "p_up": None if cross is None else -0.25,
        "p_comp": p_comp,
        "p_score": None,
        "verdict": None if cross is None else "compatible" if cross > 0.25 else "not compatible",
        "seconds": 30.0,
        "failure": "it broke" if cross is None else None,
    }
    return row | values


def board(rows: list[dict[str, Any]], suite: dict[str, str] = SUITE, **options: Any) -> Standings:
    found = BenchRuns.model_validate({"suite": suite, "machine": "two cores", "rows": rows})
    return leaderboard_of(found, command="limpet-bench run small", wall_seconds=60.0, **options).board


def of(found: Standings, label: str) -> Entry:
    return next(entry for entry in found.labels if entry.label == label)


TWO_CELLS = [
    *(run("a", "bct", seed, cross) for seed, cross in enumerate((0.5, 0.625))),
    *(run("b", "bct", seed, cross) for seed, cross in enumerate((0.25, 0.375))),
    *(run("a", "p2s", seed, cross) for seed, cross in enumerate((0.375, 0.5))),
    *(run("b", "p2s", seed, cross) for seed, cross in enumerate((0.5, 0.5))),
    *(run("a", "l2", seed, cross) for seed, cross in enumerate((0.125, 0.125))),
    *(run("b", "l2", seed, cross) for seed, cross in enumerate((0.125, 0.25))),
]


def test_means_ranks_and_front_by_hand() -> None:
    found = board(TWO_CELLS)
    assert found.ranked_by == "cross"
    assert [(entry.label, entry.rank) for entry in found.labels] == [("bct", 1.5), ("p2s", 1.5), ("l2", 3.0)]
    # seeds of bct average 0.375 and 0.5 over the two cells
    assert of(found, "bct").means["cross"].to_dict() == {
        "mean": 0.4375,
        "deviation": pytest.approx(0.125 / 2**0.5),
        "cells": 2,
    }
    assert found.cells[0].labels["bct"].means["cross"].mean == 0.5625
    assert [of(found, name).best for name in ("bct", "p2s", "l2")] == [1, 1, 0]
    assert [of(found, name).compatible for name in ("bct", "p2s", "l2")] == [3, 4, 0]
    assert found.references == {"self_old": 0.25, "self_independent": 0.75}
    assert found.front == Front(labels=["p2s"], cells=2, incomplete=[])  # all have the same P_up
    assert of(found, "bct").seconds == 120


def test_a_label_that_failed_with_one_seed_has_the_last_rank_there() -> None:
    rows = [row for row in TWO_CELLS if (row["data"], row["label"], row["seed"]) != ("b", "p2s", 1)]
    for broken in ([run("b", "p2s", 1, None)], []):  # failed, and not run
        found = board(rows + broken)
        entry, cell = of(found, "p2s"), found.cells[1].labels["p2s"]
        assert (cell.rank, cell.complete) == (3.0, False)
        assert cell.means["cross"] == SeedMean(mean=0.5, deviation=None, seeds=1)  # shown, not ranked by
        assert entry.rank == 2.5
        assert (entry.failed, entry.missing) == (len(broken), 1 - len(broken))
        assert entry.means["cross"] is None
        assert found.front.incomplete == ["p2s"]
        assert [entry.label for entry in found.labels] == ["bct", "l2", "p2s"]


def test_several_that_failed_share_the_last_ranks() -> None:
    rows = [run("a", "bct", 0, 0.5), run("a", "p2s", 0, None), run("a", "l2", 0, None)]
    assert [entry.rank for entry in board(rows).labels] == [1.0, 2.5, 2.5]


def test_a_cell_where_p_comp_is_not_defined_is_left_out_for_all() -> None:
    rows = [row | {"p_comp": NAN if row["data"] == "a" else row["p_comp"]} for row in TWO_CELLS]
    found = board(rows)
    assert of(found, "p2s").means["p_comp"] == CellMean(mean=0.5, deviation=0.0, cells=1)
    assert of(found, "p2s").means["cross"].cells == 2
    assert found.front.cells == 1
    nowhere = board([row | {"p_comp": None} for row in TWO_CELLS])
    assert nowhere.front is None and "p_comp" not in nowhere.measures


def test_one_cell_and_one_label_are_not_tested() -> None:
    one_cell = board([row for row in TWO_CELLS if row["data"] == "a"])
    assert (one_cell.friedman, one_cell.nemenyi, one_cell.untested) == (None, None, "cells")
    assert board([row for row in TWO_CELLS if row["label"] == "bct"]).untested == "labels"
    assert board(TWO_CELLS).untested is None


def test_no_two_are_told_apart_where_the_labels_do_not_differ() -> None:
    found = board(TWO_CELLS)
    assert not found.friedman.differ
    assert found.nemenyi.groups == [["bct", "p2s", "l2"]]


def test_labels_of_many_cells_are_told_apart() -> None:
    crosses = {"bct": 0.5, "p2s": 0.375, "l2": 0.125}
    rows = [run(f"d{cell}", label, 0, cross) for cell in range(6) for label, cross in crosses.items()]
    found = board(rows)
    assert found.friedman.chi_square == pytest.approx(12)
    assert found.friedman.f is None  # infinite
    assert found.nemenyi.groups == [["bct", "p2s"], ["p2s", "l2"]]
    assert of(found, "bct").means["cross"].deviation is None  # one seed


def test_scenarios_of_one_data_set_are_not_counted_as_evidence_of_their_own() -> None:
    crosses = {"bct": 0.5, "p2s": 0.375, "l2": 0.125}
    rows = [
        run(data, label, 0, cross, scenario=f"scenario {number}")
        for data in ("a", "b")
        for number in range(3)
        for label, cross in crosses.items()
    ]
    found = board(rows)
    assert len(found.cells) == 6 and found.friedman.cells == 2
    assert not found.friedman.differ and found.nemenyi.groups == [["bct", "p2s", "l2"]]
    alone = board([row for row in rows if row["data"] == "a"])
    assert (alone.friedman, alone.untested) == (None, "cells")


def test_the_ranks_of_the_only_data_set_are_averages_over_its_cells() -> None:
    crosses = {"x": {"bct": 0.5, "p2s": 0.4, "l2": 0.3}, "y": {"bct": 0.3, "p2s": 0.5, "l2": 0.4}}
    rows = [run("a", label, 0, cross, scenario=name) for name, of in crosses.items() for label, cross in of.items()]
    assert {entry.label: entry.rank for entry in board(rows).labels} == {"p2s": 1.5, "bct": 2.0, "l2": 2.5}


def test_references_are_shown_and_not_ranked() -> None:
    found = board(TWO_CELLS, references={"p2s": "upper bound"})
    assert [entry.label for entry in found.labels] == ["bct", "l2", "p2s"]
    assert of(found, "p2s").rank is None and of(found, "bct").rank == 1.0


def test_sessions_rank_by_the_metric_of_the_suite_and_less_may_be_better() -> None:
    rows = [
        run("a", label, 0, 0.5, scores={"ar@1": recall, "forgetting": lost}, p_up=None, p_comp=None, verdict=None)
        for label, recall, lost in (("cvs", 0.5, 0.25), ("lwf", 0.75, 0.5))
    ]
    suite = SUITE | {"metric": "ar@1"}
    found = board(rows, suite)
    assert [entry.label for entry in found.labels] == ["lwf", "cvs"]
    assert found.front is None and found.references == {"self_old": None, "self_independent": None}
    by_loss = board(rows, suite, ranked_by="forgetting")
    assert [entry.label for entry in by_loss.labels] == ["cvs", "lwf"]
    with pytest.raises(ConfigError, match="'ar@2'"):
        board(rows, suite, ranked_by="ar@2")


def test_everything_failed() -> None:
    found = board([run("a", label, 0, None) for label in ("bct", "p2s")])
    assert [entry.rank for entry in found.labels] == [None, None]
    assert not found.cells[0].ranked and found.untested == "cells"


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="No runs"):
        board([])
    with pytest.raises(DataError, match="stands for 'bct' and 'p2s'"):
        board([run("a", "x", 0, 0.5, method="bct"), run("a", "x", 1, 0.5, method="p2s")])
    with pytest.raises(DataError, match="Two runs"):
        board([run("a", "bct", 0, 0.5), run("a", "bct", 0, 0.25)])


def test_nemenyi_tells_nobody_apart_where_friedman_finds_no_difference() -> None:
    """Ten labels, eight of them alike: the range of ranks is beyond the critical difference, their spread is not."""
    rows = []
    for cell in range(8):
        first, last = (1, 10) if cell < 4 else (5, 6)
        others = [rank for rank in range(1, 11) if rank not in (first, last)]
        ranks = {"best": first, "worst": last} | {f"m{j}": others[(j + cell) % 8] for j in range(8)}
        rows += [run(f"d{cell}", label, 0, 1 - rank / 20) for label, rank in ranks.items()]
    found = board(rows)
    apart = of(found, "worst").rank - of(found, "best").rank
    assert apart == 5.0 > found.nemenyi.critical_difference
    assert found.friedman.p_value > 0.05
    assert [len(group) for group in found.nemenyi.groups] == [10]


def test_p_metrics_of_several_test_sets_are_the_mean_of_each_ones_own() -> None:
    """Of the mean scores, P_comp would be 0.4375: a set on which the old model is weak would count for more."""
    scores = {"self_old": 0.5, "self_independent": 0.75, "self_new": 0.75, "cross": 0.75}
    rows = [run("a", "bct", 0, 0.4375), run("b", "bct", 0, 0.75, scores=scores, p_up=0.0, p_comp=1.0)]
    rows[0]["scores"]["self_independent"], rows[0]["scores"]["self_new"] = 1.0, 0.5
    (found,) = combined_over_test_sets(BenchRuns.model_validate({"suite": SUITE, "machine": "", "rows": rows}).rows)
    assert (found.data, found.tests) == ("a and b", ["a", "b"])
    assert (found.p_up, found.p_comp) == (pytest.approx(-0.25), pytest.approx(0.625))
