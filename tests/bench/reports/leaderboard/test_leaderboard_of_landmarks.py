"""Models trained on one data set and searched with others: their names, settings, speeds, and several sets at once."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.charts.standings import cell_dots
from limpet_bench.reports.leaderboard import (
    leaderboard_csv,
    leaderboard_latex,
    leaderboard_markdown,
    leaderboard_text,
    render_leaderboard,
    run_rows,
)
from limpet_bench.reports.leaderboard_tables import (
    BEST,
    SECOND,
    by_cell,
    cell_name,
    leaderboard_table,
    over_sets,
    over_sets_headings,
    over_sets_notes,
)

from ....reports.pages import Page
from ....reports.specs import axis, words

FILES = (render_leaderboard, leaderboard_text, leaderboard_markdown, leaderboard_latex)


def without(results: Leaderboard, key: str) -> Leaderboard:
    document = results.to_dict()
    rows = [{name: row[name] for name in row if name != key} for row in document["rows"]]
    return Leaderboard.parse(document | {"rows": rows})


def lines_of(results: Leaderboard, kind: str) -> list[dict[str, str]]:
    return [line for line in csv.DictReader(io.StringIO(leaderboard_csv(results))) if line["line"] == kind]


def test_trained_on_what_is_searched_nothing_is_said(make_board: Callable[..., Leaderboard]) -> None:
    results = make_board()
    document = results.to_dict()
    rows = [row | {"trained_on": row["data"], "settings": {}} for row in document["rows"]]
    same = Leaderboard.parse(document | {"rows": rows, "combined": []})
    for written in FILES:
        assert written(same) == written(results)
        assert not re.search("trained on|images/s|waiting|several test sets", written(results))


def test_where_models_were_trained_elsewhere_it_is_told(landmarks: Leaderboard) -> None:
    names = [cell_name(cell, landmarks) for cell in landmarks.board.cells]
    assert names[:3] == ["rparis, extended-class, trained on gldv2", "roxford, extended-class, trained on gldv2",
                         "gldv2, extended-class"]  # fmt: skip
    assert by_cell(landmarks).columns[1:] == names
    page = Page(render_leaderboard(landmarks)).text
    assert "(gldv2; rparis and roxford trained on gldv2; extended-class, open-class)" in page
    assert "p2s roxford, trained on gldv2 open-class 1 RuntimeError" in page
    assert "p2s, roxford, trained on gldv2, open-class, seed 1: RuntimeError" in leaderboard_text(landmarks)
    columns, rows = run_rows(landmarks)
    assert {(row[1], row[columns.index("trained on")]) for row in rows} == {
        (data, "gldv2") for data in ("rparis", "roxford", "gldv2")
    }
    for kind in ("run", "mean", "combined"):
        assert {line["trained_on"] for line in lines_of(landmarks, kind)} == {"gldv2"}


def test_one_scenario_leaves_the_test_set_and_what_it_was_trained_on(landmarks: Leaderboard) -> None:
    document = landmarks.to_dict()
    cells = document["board"]["cells"][:3]
    rows = [row for row in document["rows"] if row["scenario"] == cells[0]["scenario"]]
    kept = Leaderboard.parse({**document, "rows": rows, "board": document["board"] | {"cells": cells}})
    assert [cell_name(cell, kept) for cell in kept.board.cells] == [
        "rparis, trained on gldv2",
        "roxford, trained on gldv2",
        "gldv2",
    ]


def test_charts_of_cells_stay_in_line(landmarks: Leaderboard) -> None:
    rparis, _, gldv2, *_ = (cell_dots(landmarks, cell) for cell in landmarks.board.cells)
    assert {"rparis, extended-class", "trained on gldv2"} <= set(words(rparis))
    assert "gldv2, extended-class" in words(gldv2) and "trained on" not in " ".join(words(gldv2))
    assert len({chart.to_dict()["padding"]["top"] for chart in (rparis, gldv2)}) == 1


def test_a_metric_of_its_own_is_told_of_every_cell(landmarks: Leaderboard) -> None:
    own = {"gldv2": "map@100", "rparis": "map", "roxford": "map"}
    document = landmarks.to_dict()
    for row in document["rows"]:
        row["metric"] = own[row["data"]]
    results = Leaderboard.parse(document)
    assert by_cell(results).columns[1] == "rparis, extended-class, trained on gldv2, mAP"
    assert by_cell(results).columns[3] == "gldv2, extended-class, mAP@100"
    assert axis(cell_dots(results, results.board.cells[2]))["title"] == "cross, mAP@100"
    text = Page(render_leaderboard(results)).text
    assert "ranked by cross, mAP or mAP@100." in text and "scores in mAP or mAP@100, ±" in text
    assert {(line["data"], line["metric"]) for line in lines_of(results, "mean")} == set(own.items())
    for written in (leaderboard_text, leaderboard_markdown, leaderboard_latex):
        assert "mAP or mAP@100" in written(results)
    assert axis(cell_dots(landmarks, landmarks.board.cells[2]))["title"] == "cross"


def test_settings_stand_beside_options(landmarks: Leaderboard) -> None:
    assert "bct, mlp bct: model.projection: mlp" in Page(render_leaderboard(landmarks)).text
    mixed = landmarks.to_dict()
    mixed["rows"][0] |= {"options": {"weight": 2}, "settings": {"model.projection": "linear"}}
    columns, rows = run_rows(Leaderboard.parse(mixed))
    assert columns[-1] == "options" and rows[0][-1] == "weight: 2, model.projection: linear"
    assert "options" not in run_rows(landmarks)[0]


def test_speeds_are_medians_of_runs(landmarks: Leaderboard) -> None:
    document = landmarks.to_dict()
    document["rows"][0] |= {"images_per_second": 90_000.0, "waiting": None}  # of bct: a mean would follow it
    results = Leaderboard.parse(document)
    columns, rows = leaderboard_table(results)
    assert columns[-2:] == ["images/s", "waiting"]
    table = {row[0]: row[-2:] for row in rows}
    assert table["bct"] == ["2,100", "2.0 %"] and table["old system"] == ["–", "–"]
    columns, rows = run_rows(results)
    place = columns.index("images/s")
    assert columns[place - 1 : place + 2] == ["seconds", "images/s", "waiting"]
    assert rows[0][place : place + 2] == ["90,000", "–"] and rows[1][place + 1] == "1.0\N{NO-BREAK SPACE}%"
    line = lines_of(results, "run")[1]
    assert (line["images_per_second"], line["waiting"]) == ("2000.0", "0.01")
    assert "Medians over runs: images/s" in Page(render_leaderboard(results)).text


def test_a_speed_that_no_run_has_has_no_column(landmarks: Leaderboard) -> None:
    results = without(landmarks, "waiting")
    assert leaderboard_table(results)[0][-1] == "images/s"
    for written in FILES:
        assert "images/s" in written(results) and "waiting" not in written(results)


def test_over_several_sets_means_are_over_seeds(landmarks: Leaderboard) -> None:
    for table, scenario in zip(over_sets(landmarks), ("extended-class", "open-class"), strict=True):
        assert (table.sets, table.scenario) == ("rparis, roxford and gldv2 (trained on gldv2)", scenario)
        assert table.numbers.columns == ["method", "P_up", "P_comp", "P_score"] and table.seeds == [0, 1, 2]
        assert [row[0] for row in table.numbers.rows] == [entry.label for entry in landmarks.board.labels]
        for label, *cells in table.numbers.rows:
            runs = [run for run in landmarks.combined if (run.label, run.scenario) == (label, scenario)]
            for key, cell in zip(("p_up", "p_comp", "p_score"), cells, strict=True):
                values = [run.p_metrics[key] for run in runs]
                mean, deviation = (float(part) for part in re.findall(r"[-+]?[\d.]+", cell.replace("−", "-")))
                assert mean == pytest.approx(np.mean(values), abs=5e-4)
                assert deviation == pytest.approx(np.std(values, ddof=1), abs=5e-4)
                assert cell.endswith("*") == (len(values) < 3)


def test_over_several_sets_a_number_of_fewer_seeds_is_never_best(landmarks: Leaderboard) -> None:
    document = landmarks.to_dict()
    for row in document["combined"]:
        row["p_score"] = 0.9 if row["label"] == "p2s" else row["p_score"]
    whole, fewer = over_sets(Leaderboard.parse(document))
    for table, standing in ((whole, BEST), (fewer, 0)):
        place = [row[0] for row in table.numbers.rows].index("p2s")
        assert table.numbers.standing[place][2] == standing
        marks = [marks[2] for marks in table.numbers.standing]
        assert marks.count(BEST) == marks.count(SECOND) == 1
    assert (whole.incomplete, fewer.incomplete) == (False, True)
    assert over_sets_notes([whole]) == [] and over_sets_notes([fewer])[0].startswith("* without this number")


def test_over_several_sets_is_in_every_file(landmarks: Leaderboard) -> None:
    numbers = [cell for table in over_sets(landmarks) for row in table.numbers.rows for cell in row[1:]]
    text = Page(render_leaderboard(landmarks)).text
    assert "Over several test sets The same models on rparis, roxford and gldv2 (trained on gldv2): P_up" in text
    assert all(cell in text for cell in numbers)
    for written in (leaderboard_text, leaderboard_markdown):
        plain = written(landmarks).replace("\\", "").replace("**", "")
        assert all(cell.replace("−", "-") in plain for cell in numbers)
        assert plain.count("Over several test sets, rparis, roxford and gldv2 (trained on gldv2), ") == 2
    assert leaderboard_latex(landmarks).count(r"\begin{table}") == 2 + 2
    for line, run in zip(lines_of(landmarks, "combined"), landmarks.combined, strict=True):
        assert [line[key] for key in ("data", "label", "seed", "p_comp")] == [
            run.data, run.label, str(run.seed), repr(run.p_comp)]  # fmt: skip


def test_over_other_sets_every_heading_names_them(landmarks: Leaderboard) -> None:
    document = landmarks.to_dict()
    for row in document["combined"][: len(document["combined"]) // 2]:
        row |= {"data": "rparis and roxford", "trained_on": None}
    results = Leaderboard.parse(document)
    common, headings = over_sets_headings(over_sets(results))
    assert common == "" and headings[0] == "rparis and roxford, extended-class"
    assert "The same models on several test sets: P_up" in Page(render_leaderboard(results)).text


def test_over_several_sets_one_seed_says_so(landmarks: Leaderboard) -> None:
    document = landmarks.to_dict()
    once = Leaderboard.parse(document | {"combined": [row for row in document["combined"] if row["seed"] == 0]})
    assert "One seed" in over_sets_notes(over_sets(once))[0]
    assert not any("±" in cell for table in over_sets(once) for row in table.numbers.rows for cell in row)
    assert "averaged over the sets. Labels" in Page(render_leaderboard(once)).text


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d["rows"][0].update(trained_on=""), "rows.0.trained_on"),
        (lambda d: d["rows"][0].update(settings=["mlp"]), "rows.0.settings"),
        (lambda d: d["rows"][0].update(images_per_second=-1.0), "rows.0.images_per_second"),
        (lambda d: d["rows"][0].update(waiting=1.5), "rows.0.waiting"),
        (lambda d: d["combined"][0].update(tests=[]), "combined.0.tests"),
        (lambda d: d["combined"][0].update(p_up=float("inf")), "combined.0.p_up"),
        (lambda d: d["combined"][0].pop("scenario"), "combined.0.scenario"),
        (lambda d: d["combined"][3].update(label="nobody"), "combined.3.label"),
        (lambda d: d["combined"].append(d["combined"][0]), "a second one of bct, seed 0"),
    ],
)
def test_what_cannot_be_is_refused(landmarks: Leaderboard, change: Callable[[dict[str, Any]], Any], place: str) -> None:
    broken = landmarks.to_dict()
    change(broken)
    with pytest.raises(ConfigError, match=re.escape(place)):
        Leaderboard.parse(broken)
