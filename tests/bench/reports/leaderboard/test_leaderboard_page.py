"""The page of a bench, as text and in a real browser at the widths of a desk and of a phone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet.reports.formats import plain_text
from limpet_bench.figure_values import NumberTable, PublishedNumber, Spread, TableColumn, TableRow
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.charts.pareto import pareto_plot, pareto_points
from limpet_bench.reports.charts.standings import cell_dots
from limpet_bench.reports.leaderboard import (
    leaderboard_csv,
    leaderboard_markdown,
    render_leaderboard,
    run_rows,
    write_leaderboard_page,
)
from limpet_bench.reports.leaderboard_rank_plot import rank_diagram
from limpet_bench.reports.suite_figures import figure_csv

from ....reports.browser import BROWSER
from ....reports.pages import Page
from ....reports.specs import assert_page_ready, axis, points, rows, told, words

LONG = {
    f"{method}_with_a_long_name_and_no_place_to_break_{number}": (method, 0.5 + 0.06 * number, -0.01 * (number % 7))
    for number, method in enumerate(["bct", "p2s", "l2", "ndpp", "independent"] * 4)
}


@pytest.fixture(scope="module")
def results(make_board: Callable[..., Leaderboard]) -> Leaderboard:
    tuning = [
        {"label": "bct", "changes": {"weight": weight}, "p_comp": weight / 7, "chosen": True} for weight in (1, 2)
    ]
    fail = {("mixbct", "omniglot", "open-class", 1)}
    return make_board(fail=fail, undefined={("glyphs", "extended-data")}, tuning=tuning)


def test_every_number_of_every_run_is_on_the_page(results: Leaderboard) -> None:
    page = Page(render_leaderboard(results))
    for run in results.rows:
        for number in (run.scores or {}).values():
            assert f"{number:.3f}" in page.text
    for entry in results.board.labels:
        assert f"{entry.rank:.2f}" in page.text
    for said in ("RuntimeError: the loss is not finite", results.command, "two cores", "70 min", "0, 1, 2"):
        assert said in page.text
    assert "weight: 2" in page.text and "0.286" in page.text  # a trial


def test_the_page_needs_nothing_from_anywhere(results: Leaderboard) -> None:
    text = render_leaderboard(results)
    page = Page(text)
    assert not page.addresses
    assert not {"script", "img", "link", "iframe", "object", "form"} & set(page.tags)
    assert "url(" not in text and "@import" not in text
    assert text.isascii() or 'charset="utf-8"' in text
    assert page.tags.count("h1") == 1


def test_names_and_reasons_are_escaped(make_board: Callable[..., Leaderboard]) -> None:
    nasty = '<script>alert("x")</script>&'
    results = make_board(labels={nasty: ("bct", 0.5, 0.0), "p2s": ("p2s", 0.9, 0.0)}, title=nasty, description=nasty)
    document = results.to_dict() | {"machine": nasty, "command": nasty, "tuning": [{nasty: nasty}]}
    document["rows"][0] |= {"scores": None, "failure": nasty}
    page = Page(render_leaderboard(Leaderboard.parse(document)))
    assert "script" not in page.tags
    assert page.text.count("alert") > 5


def test_a_board_of_one_cell_says_why_nothing_is_told_apart(make_board: Callable[..., Leaderboard]) -> None:
    results = make_board(cells=[("glyphs", "open-class")], seeds=1)
    page = Page(render_leaderboard(results))
    assert rank_diagram(results) is None
    assert "whether several data sets order the labels alike, and one data set was ranked" in page.text
    assert "One seed: there is no deviation" in page.text and "±" not in page.text
    assert "Nothing: all 9 runs came to an end." in page.text


def test_a_board_where_everything_failed_is_still_a_page(make_board: Callable[..., Leaderboard]) -> None:
    cells = [("glyphs", "open-class"), ("omniglot", "open-class")]
    results = make_board({"bct": ("bct", 0.5, 0.0)}, cells=cells, fail={("bct", *cell) for cell in cells})
    page = Page(render_leaderboard(results))
    assert "Nothing could be ranked: 6 of 6 runs failed." in page.text
    assert page.text.count("RuntimeError") == 6


def test_what_a_paper_prints_stands_beside_in_every_form(make_board: Callable[..., Leaderboard]) -> None:
    column = TableColumn(data="glyphs", measure="p_up", metric="map", variant="sigmoid", unit="%", digits=2)
    other = column.model_copy(update={"variant": "raw", "unit": "fraction", "title": "P", "digits": 3})
    values = [Spread.of([50.0, 52.0]), Spread.of([-0.25])]
    row = TableRow(
        scenario="open-class", label="bct", values=values, published=[PublishedNumber(value=47.7, deviation=0.5), None]
    )
    table = NumberTable(title="Table of a paper", columns=[column, other], rows=[row], where="Table II")
    printed = {"data": "glyphs", "scenario": "open-class", "label": "bct", "metric": "map", "where": "Table II"}
    published = [{**printed, "scores": {"cross": 0.4321}, "variant": "sigmoid", "printed": {"p_up": 47.7}}]
    board = make_board(published=published).model_copy(update={"figures": {"table": table}})
    for text in (Page(render_leaderboard(board)).text, leaderboard_markdown(board)):
        text = " ".join(plain_text(text).split())
        assert "51.00 [50.00, 52.00] / 47.70 ± 0.50" in text and "-0.250" in text and "/ -0.250" not in text
        assert "glyphs, P_up (%)" in text and "number (Table II)" in text
    (line,) = [one for one in csv.DictReader(StringIO(leaderboard_csv(board))) if one["line"] == "published"]
    assert [line[name] for name in ("label", "cross", "p_up", "self_new")] == ["bct", "0.4321", "0.477", ""]
    assert (line["variant"], line["where"]) == ("sigmoid", "Table II")
    first, second = csv.DictReader(StringIO(figure_csv(table)))
    assert (first["published"], first["published_deviation"], first["mean"]) == ("47.7", "0.5", "51.0")
    assert (second["published"], second["variant"], second["unit"]) == ("", "raw", "fraction")
    assert "variant" not in leaderboard_csv(make_board()).partition("\n")[0]


def test_the_diagram_joins_what_is_not_told_apart(make_board: Callable[..., Leaderboard]) -> None:
    labels = {name: (name, p_comp, 0.0) for name, p_comp in (("a", 0.9), ("b", 0.6), ("c", 0.2))}
    results = make_board(labels, cells=[(f"data {place}", "open-class") for place in range(6)], noise=0.0)
    for width in (900.0, 350.0):
        drawn = rank_diagram(results, width=width)
        assert drawn is not None and len(rows(drawn, "joined")) == 2
        assert_page_ready(drawn)
        assert "Not significantly different: a, b; b, c." in told(drawn) and set(labels) <= set(words(drawn))
    wide = rank_diagram(results, width=900)
    assert wide is not None
    first, second = rows(wide, "joined")
    assert first["x"] < second["x"] < first["x2"] < second["x2"]


def test_failed_runs_and_far_labels_are_drawn_as_such(
    results: Leaderboard, make_board: Callable[..., Leaderboard]
) -> None:
    cell = results.board.cells[0]
    chart, name = cell_dots(results, cell), results.board.ranked_by
    labels = [entry.label for entry in results.board.labels if "independent" not in entry.label]  # off the scale
    marks = rows(chart, "marks")
    assert words(chart).count("← off the scale") == 1 and [row["kind"] for row in marks].count("best") == 1
    assert [row["x"] for row in marks] == [cell.labels[label].means[name].mean for label in labels]
    seeds = [run.numbers[name] for label in labels for run in results.runs_of(cell, label)]
    assert [x for x, _ in points(chart, "seeds")] == seeds
    assert_page_ready(chart)
    broken = make_board(fail={("bct", "glyphs", "open-class")}, cells=[("glyphs", "open-class")])
    assert "failed" in words(cell_dots(broken, broken.board.cells[0]))


def test_the_front_is_drawn_through_its_labels(results: Leaderboard, make_board: Callable[..., Leaderboard]) -> None:
    chart = pareto_plot(results)
    assert chart is not None and rows(chart, "front") and "advbct" in words(chart, "name")
    assert_page_ready(chart)
    assert len(rows(chart, "deviations")) == 2 * len(pareto_points(results))
    corners, front = set(points(chart, "front")), results.board.front
    assert front is not None
    places = [tuple(mean.mean for mean in pareto_points(results)[name]) for name in front.labels]
    assert {place for place in places if place[0] > axis(chart)["domain"][0]} <= corners
    assert "mixbct" not in pareto_points(results)  # failed somewhere
    many = make_board(LONG)
    crowded = pareto_plot(many)
    assert crowded is not None
    assert sorted(int(name.split()[0]) for name in words(crowded, "name")) == list(range(1, 21))
    assert pareto_plot(make_board(undefined={("glyphs", "open-class")}, cells=[("glyphs", "open-class")])) is None


def test_options_that_differ_between_cells_are_told_run_by_run(results: Leaderboard) -> None:
    document = results.to_dict()
    for place, row in enumerate(document["rows"]):
        row["options"] = {"weight": place % 2}
    tuned = Leaderboard.parse(document)
    columns, rows = run_rows(tuned)
    assert columns[-1] == "options" and {row[-1] for row in rows} == {"weight: 0", "weight: 1"}
    assert "2 settings, by cell; see all runs" in Page(render_leaderboard(tuned)).text
    assert "options" not in run_rows(results)[0]


def test_a_document_without_versions_is_a_page_too(results: Leaderboard) -> None:
    bare = {key: value for key, value in results.to_dict().items() if key not in ("limpet", "versions")}
    assert "Written by limpet. All numbers" in Page(render_leaderboard(Leaderboard.parse(bare))).text


def test_the_page_is_written_or_refused(results: Leaderboard, tmp_path: Path) -> None:
    assert write_leaderboard_page(results, tmp_path) == tmp_path / "leaderboard.html"
    (tmp_path / "results.json").write_text(json.dumps(results.to_dict() | {"board": {}}))
    with pytest.raises(ConfigError, match="board"):
        write_leaderboard_page(Leaderboard.load(tmp_path), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("name", ["usual", "one cell", "many", "sessions", "landmarks"])
def test_the_page_fits_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    results: Leaderboard,
    make_board: Callable[..., Leaderboard],
    session_board: Leaderboard,
    landmarks: Leaderboard,
    name: str,
) -> None:
    boards = {
        "usual": (lambda: results, 6 + 2),
        "one cell": (lambda: make_board(cells=[("glyphs", "open-class")], seeds=1), 1 + 1),
        "many": (lambda: make_board(LONG, fail={(next(iter(LONG)), "glyphs", "open-class")}, title="x" * 200), 6 + 2),
        "sessions": (lambda: session_board, 2),  # of one data set, whose ranks are not tested
        "landmarks": (lambda: landmarks, 6 + 1),
    }
    build, charts = boards[name]
    for result in measure(render_leaderboard(build())).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == charts
        assert result["smallest"] >= 10.5
