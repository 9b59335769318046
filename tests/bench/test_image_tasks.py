"""Rows on images: what they share, chains of models, upper bounds, and test sets of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError
from limpet.evaluation.compatibility import PMetrics, SelfAndCross
from limpet.evaluation.protocols import PROTOCOLS
from limpet.evaluation.retrieval import rank_metrics
from limpet_bench.cache import TaskCache
from limpet_bench.leaderboard import BenchRuns, Leaderboard
from limpet_bench.ranking import leaderboard_of
from limpet_bench.reports.leaderboard import run_rows
from limpet_bench.run import Bench, own_tasks
from limpet_bench.sources import Searched, protocol_digest, searched_facts
from limpet_bench.steps import read_sides
from limpet_bench.suite import Suite
from limpet_bench.tasks import Planner, Row, Task, in_order

Small = Callable[..., Suite]

STEP = {"scenario": "extended-class", "order": "first"}
CHAIN: dict[str, Any] = {
    "scenarios": {
        "1-to-2": {**STEP, "old_fraction": 0.25, "new_fraction": 0.5},
        "1-to-3": {**STEP, "old_fraction": 0.25, "new_fraction": 1.0},
        "2-to-3": {**STEP, "old_fraction": 0.5, "new_fraction": 1.0},
    },
    "links": {
        "1-to-3": {"predecessor": "1-to-2"},
        "2-to-3": {"predecessor": "1-to-2", "gallery": "1-to-2"},
    },
}


def planned(suite: Suite) -> dict[tuple[str, str], Row]:
    return {(row.scenario, row.label): row for row in Planner(suite, None).rows()}


def models_of(rows: dict[tuple[str, str], Row]) -> list[Task]:
    return [task for task in in_order(row.score for row in rows.values()) if task.kind == "train"]


def test_models_of_a_chain_are_trained_once(small: Small) -> None:
    rows = planned(small(**CHAIN, methods={"p2s": {}}))
    first, far, near = (rows[name, "p2s"].score.needs for name in CHAIN["scenarios"])
    assert len(models_of(rows)) == 1 + 2 + 2, "the first old one, two independent ones, two of p2s"
    assert far["model"].address == near["model"].address != first["model"].address
    assert near["model"].needs["old"].address == first["model"].address, "the third succeeds the second"
    assert near["searched"].address == near["old"].address == first["new"].address
    assert far["searched"].address == far["old"].address == first["old"].address


def test_a_later_link_can_be_held_against_the_independent_model(small: Small) -> None:
    within = CHAIN["links"]
    parts = {**CHAIN, "links": within | {"2-to-3": within["2-to-3"] | {"baseline": "independent"}}}
    rows = planned(small(**parts, methods={"p2s": {}}))
    near = rows["2-to-3", "p2s"].score.needs
    assert near["old"].address == rows["1-to-2", "p2s"].score.needs["independent"].address != near["searched"].address


def test_predecessors_are_trained_as_they_were_chosen(small: Small) -> None:
    suite = small(**CHAIN, methods={"p2s": {}})
    name = next(iter(suite.data))
    chosen = {(name, "1-to-2", "p2s"): {"options.weight": 3.0}}
    rows = {row.scenario: row.score for row in Planner(suite, None, chosen=chosen).rows()}
    before = rows["2-to-3"].needs["model"].needs["old"]
    assert before.settings["experiment"]["options"]["weight"] == 3.0
    assert before.address == rows["1-to-2"].needs["model"].address


def test_the_scores_of_a_chain_are_those_of_its_galleries(small: Small, tmp_path: Path) -> None:
    cache = TaskCache(tmp_path / "tasks")
    suite = small(**CHAIN, methods={"p2s": {}})
    found = {row.scenario: row.scores for row in Bench(cache).run(suite).rows}
    rows = planned(suite)
    sides = {
        (name, role): read_sides(cache.folder(rows[name, "p2s"].score.needs[role]))
        for name in found for role in ("old", "new", "independent")
    }  # fmt: skip

    def score(query: tuple[str, str], gallery: tuple[str, str]) -> float:
        values = rank_metrics(sides[query][0], sides[gallery][1], ["map"], exclude_same_id=False)
        return float(np.nanmean(values["map"]))

    third, second, first = ("1-to-3", "new"), ("1-to-2", "new"), ("1-to-2", "old")
    assert found["2-to-3"]["cross"] == pytest.approx(score(third, second))
    assert found["2-to-3"]["self_old"] == pytest.approx(score(second, second)) == found["1-to-2"]["self_new"]
    assert found["1-to-3"]["cross"] == pytest.approx(score(third, first))
    assert found["1-to-3"]["self_old"] == pytest.approx(score(first, first)) == found["1-to-2"]["self_old"]


def test_a_board_shows_no_old_system_where_every_label_has_its_own(small: Small, tmp_path: Path) -> None:
    bench = Bench(TaskCache(tmp_path / "tasks")).run(small(**CHAIN, methods={"p2s": {}, "bct": {}}))
    board = leaderboard_of(bench, command="", wall_seconds=1.0).board
    given = {cell.scenario: set(cell.references) for cell in board.cells}
    assert given == {
        "1-to-2": {"self_old", "self_independent"},
        "1-to-3": {"self_old", "self_independent"},
        "2-to-3": {"self_independent"},  # its gallery is that of the second model of each label
    }
    assert board.references["self_old"] is None


def test_a_task_that_is_handed_over_is_the_same_without_what_others_need(small: Small) -> None:
    task = planned(small(**CHAIN, methods={"p2s": {}}))["2-to-3", "p2s"].score.needs["model"]
    light = copy.deepcopy(task.to_run())  # as a pool hands it over
    assert light.address == task.address and light.identity() == task.identity()
    assert np.array_equal(light.hints["train_on"], task.hints["train_on"])
    assert [(one.kind, one.address) for one in light.needs.values()] == [
        (one.kind, one.address) for one in task.needs.values()
    ]
    assert not any(one.needs or one.hints for one in light.needs.values())


def test_settings_of_the_machine_reach_a_training_and_change_no_address(small: Small) -> None:
    recipe = {"epochs": 1, "batch_size": 8, "learning_rate": 0.05}
    plain, other = (
        planned(small(methods={"p2s": {}}, recipe={**recipe, **more}))["extended-class", "p2s"].score.needs["model"]
        for more in ({}, {"workers": 2, "data_on_device": "never"})
    )
    assert plain.address == other.address
    assert plain.hints["machine"] == {"workers": 0, "data_on_device": "auto"}
    assert other.hints["machine"] == {"workers": 2, "data_on_device": "never"}


def test_scenarios_share_the_models_that_see_the_same(small: Small) -> None:
    rows = planned(small(scenarios={"extended-class": {}, "extended-data": {}, "open-class": {}}))
    needs = {scenario: rows[scenario, "p2s"].score.needs for scenario, label in rows if label == "p2s"}
    assert needs["extended-class"]["old"].address == needs["open-class"]["old"].address
    assert needs["extended-class"]["independent"].address == needs["extended-data"]["independent"].address
    assert len({one["new"].address for one in needs.values()}) == 3, "another old model, or other images"


def test_the_upper_bound_may_see_everything(small: Small, tmp_path: Path) -> None:
    counts = {}
    for bound in ("new", "everything"):
        cache = TaskCache(tmp_path / bound)
        suite = small(scenarios={"open-class": {}}, methods={"independent": {}}, upper_bound=bound)
        [row] = planned(suite).values()
        Bench(cache).run(suite)
        records = {role: cache.record(row.score.needs[role].needs["model"]) for role in ("new", "independent")}
        counts[bound] = {role: record.values["images"] for role, record in records.items() if record}
    assert counts["everything"]["new"] == counts["new"]["new"] == counts["new"]["independent"]
    assert counts["everything"]["independent"] == 12 * 6 > counts["new"]["independent"]


@pytest.fixture(scope="module")
def ran(small: Small, images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskCache, Suite, BenchRuns]:
    """A suite that searches two test sets, one by its labels, one by pairs in a file, and what it came to."""
    data = next(iter(small().data))
    pairs = images / "pairs.csv"
    names = sorted(f"{path.parent.name}/{path.name}" for path in (images / "query").rglob("*.png"))
    options = small().runs[0].data.options
    opened = searched_facts({"name": data, "options": options}, None, "evaluation")
    assert not opened.leave_one_out
    from limpet.data.datasets import load_dataset

    known = load_dataset(data, None, **options)
    answers = zip(list(known.query.ids)[::5], list(known.gallery.ids)[::5], strict=False)
    pairs.write_text("query,item\n" + "".join(f"{query},{item}\n" for query, item in answers))
    assert len(names) == 36
    suite = small(
        methods={"p2s": {}, "independent": {}},
        test_sets={
            "by label": {"data": data, "options": options, "metrics": ["map", "recall@1"]},
            "by pairs": {"data": data, "options": options, "protocol": "relevance", "ground_truth": "pairs.csv",
                         "metrics": ["recall@5"], "gate_metric": "recall@5"},
        },
    )  # fmt: skip
    cache = TaskCache(tmp_path_factory.mktemp("sets") / "tasks")
    return cache, suite, Bench(cache).run(suite)


def test_every_test_set_has_its_rows_and_its_metric(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    _, suite, bench = ran
    rows = bench.rows
    assert [(row.data, row.label, row.metric) for row in rows] == [
        (name, label, metric)
        for label in ("p2s", "independent") for name, metric in (("by label", "map"), ("by pairs", "recall@5"))
    ]  # fmt: skip
    assert {row.trained_on for row in rows} == set(suite.data) and not any(row.failure for row in rows)
    assert bench.suite.metric == "map, recall@5"
    assert rows[0].scores != rows[1].scores


def test_test_sets_share_the_models(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    _, suite, _ = ran
    rows = list(Planner(suite, None).rows())
    assert len({row.score.needs["model"].address for row in rows}) == 2
    tasks = in_order(row.score for row in rows)
    assert sum(task.kind == "train" for task in tasks) == 3, "old, independent, p2s"
    assert sum(task.kind == "embed" for task in tasks) == 3, "the same images under two protocols are embedded once"


def test_p_metrics_are_averaged_over_test_sets(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    _, suite, bench = ran
    assert [row.label for row in bench.combined] == ["p2s", "independent"]
    found = bench.combined[0]
    scores = {row.data: row.scores for row in bench.rows if row.label == "p2s"}
    systems = ("self_old", "self_independent", "self_new", "cross")
    mean = PMetrics.mean([PMetrics.of(SelfAndCross(*(one[key] for key in systems))) for one in scores.values()])
    for name, value in {"p_up": mean.p_up["raw"], "p_comp": mean.p_comp["raw"], "p_score": mean.p_score}.items():
        assert found.p_metrics[name] == (None if value is None else pytest.approx(value))
    assert found.p_up is not None
    assert (found.data, found.tests) == ("by label and by pairs", ["by label", "by pairs"])
    assert found.trained_on == next(iter(suite.data))


def test_another_ground_truth_scores_again_and_nothing_else(
    ran: tuple[TaskCache, Suite, BenchRuns], images: Path
) -> None:
    _, suite, _ = ran
    before = list(Planner(suite, None).rows())
    content = (images / "pairs.csv").read_text()
    (images / "pairs.csv").write_text("\n".join(content.splitlines()[:-1]) + "\n")
    try:
        after = list(Planner(suite, None).rows())
    finally:
        (images / "pairs.csv").write_text(content)
    changed = [old.data for old, new in zip(before, after, strict=True) if old.score.address != new.score.address]
    assert changed == ["by pairs", "by pairs"]
    assert [row.score.needs["new"].address for row in before] == [row.score.needs["new"].address for row in after]


def test_the_seconds_of_a_model_are_told_once_for_all_test_sets(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    cache, suite, bench = ran
    rows = [row for row in Planner(suite, None).rows() if row.label == "p2s"]
    tasks = {task.address: task for row in rows for task in own_tasks(row)}.values()
    spent = sum(cache.record(task).seconds for task in tasks)
    told = sum(row.seconds for row in bench.rows if row.label == "p2s")
    assert len(tasks) == 4, "one model, its embeddings, two scores"
    assert told == pytest.approx(spent)


def test_test_sets_of_the_same_models_are_one_task_to_the_test_of_ranks(
    ran: tuple[TaskCache, Suite, BenchRuns],
) -> None:
    _, _, bench = ran
    board = leaderboard_of(bench, command="", wall_seconds=1.0).board
    assert len(board.cells) == 2 and board.friedman is None and board.untested == "cells"


@pytest.mark.parametrize("place", [0, 3])
def test_the_digest_of_a_ground_truth_knows_every_pair(tmp_path: Path, place: int) -> None:
    pairs = [(f"q{number}", f"i{number}") for number in range(5)]
    digests = []
    for changed in (False, True):
        if changed:
            pairs[place] = (pairs[place][0], "another")
        path = tmp_path / "pairs.csv"
        path.write_text("query,item\n" + "".join(f"{query},{item}\n" for query, item in pairs))
        digests.append(protocol_digest(PROTOCOLS["relevance"].opened(path)))
    assert digests[0] != digests[1]


def test_what_may_not_judge_speaks_no_verdict(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    _, _, bench = ran
    verdicts = {row.data: row.verdict for row in bench.rows}
    assert verdicts["by pairs"] is None and verdicts["by label"] in ("compatible", "not compatible", "inconclusive")


def test_first_hits_stand_beside_the_verdict_of_a_run(ran: tuple[TaskCache, Suite, BenchRuns]) -> None:
    _, _, bench = ran
    for row in bench.rows:
        if row.data == "by label":
            assert row.first_hits is not None and row.first_hits.metric == "recall@1"
            assert row.first_hits.net == pytest.approx(row.first_hits.after - row.first_hits.before)
    board = leaderboard_of(bench, command="", wall_seconds=1.0)
    columns, rows = run_rows(Leaderboard.parse(board.to_dict()))
    cells = {row[columns.index("data")]: row[columns.index("first hits (net)")] for row in rows}
    assert " to " in cells["by label"]


def test_images_without_labels_need_a_ground_truth(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpet_bench.tasks.searched_facts", lambda *_: Searched(("a", "b"), 2, False, labelled=False))
    with pytest.raises(ConfigError, match="have no labels that say who answers what"):
        list(Planner(small(), None).rows())


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"test_sets": {"landmarks": {}}}, "data set of a test 'landmarks'"),
        ({"test_sets": {"roxford": {"protocol": "revisitd"}}}, "protocol 'revisitd'"),
        ({"test_sets": {"roxford": {"protocol": "revisited", "protocol_options": {"level": 1}}}}, "no option 'level'"),
        ({"test_sets": {"roxford": {"protocl": "revisited"}}}, "roxford"),
        ({"upper_bound": "all"}, "upper_bound"),
        ({"links": {"1-to-2": {"baseline": "independent"}}}, "has the baseline 'independent'"),
        ({"links": {"1-to-2": {"recipe": {"epochz": 3}}}}, "epochz"),
        ({"tuning": {"budget": 2, "search": {"options.weight": [1, 2]}}}, "has a predecessor and a search"),
        ({"methods": {"p2s": {"geometry": {"lift_old": 1.0}, "head": "lorentz"}}}, "lifts its old model"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(small: Small, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        small(**{**CHAIN, **parts})


def test_a_chain_of_growing_dimensions(small: Small, tmp_path: Path) -> None:
    """Every gallery counts as padded with zeros to the width of the model that searches it."""
    cache, within = TaskCache(tmp_path / "tasks"), copy.deepcopy(CHAIN["links"])
    for name in ("1-to-3", "2-to-3"):
        within[name]["model"] = {"dim": 12}
    parts = {**CHAIN, "links": within, "old": {"model": {"dim": 6}}}
    suite = small(**parts, methods={"free_dimensions": {}, "p2s": {"geometry": {"pad_old": True}}})
    found = Bench(cache).run(suite)
    assert len(found.rows) == 6 and all(row.failure is None for row in found.rows)
    rows, scores = planned(suite), {row.scenario: row.scores for row in found.rows if row.label == "free_dimensions"}
    for scenario, dim in (("1-to-3", 6), ("2-to-3", 8)):
        needs = rows[scenario, "free_dimensions"].score.needs
        query, gallery = read_sides(cache.folder(needs["new"]))[0], read_sides(cache.folder(needs["searched"]))[1]
        assert (query.dim, gallery.dim) == (12, dim)
        values = rank_metrics(query, gallery.padded(query.space), ["map"])
        assert scores[scenario]["cross"] == pytest.approx(float(np.nanmean(values["map"])))
