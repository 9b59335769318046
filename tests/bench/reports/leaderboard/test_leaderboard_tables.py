"""The document, the words and the tables of a bench."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError
from limpet.linking.results import AdaptResults
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.leaderboard import (
    headline,
    leaderboard_csv,
    leaderboard_latex,
    leaderboard_markdown,
    leaderboard_text,
    render_leaderboard,
    sentences,
    steps,
    write_tables,
)
from limpet_bench.reports.leaderboard_tables import BEST, SECOND, by_cell, leaderboard_table, summary

from ....reports.pages import terms

NASTY = "50 % of $x_i^{2}$ & <b>#1</b> | \\end{table} ~*`"


@pytest.fixture
def results(make_board: Callable[..., Leaderboard]) -> Leaderboard:
    return make_board(fail={("mixbct", "omniglot", "open-class", 1)}, undefined={("glyphs", "extended-data")})


def test_written_and_read_again_it_is_the_same(results: Leaderboard, tmp_path: Path) -> None:
    results.save(tmp_path)
    assert Leaderboard.load(tmp_path) == results
    with pytest.raises(ConfigError, match="kind"):
        AdaptResults.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d["board"]["labels"].pop(), "board.labels"),
        (lambda d: d["board"]["cells"].pop(), "board.cells"),
        (lambda d: d["board"]["cells"][1]["labels"].pop("bct"), "board.cells.1.labels"),
        (lambda d: d["board"].update(untested="cells"), "board.untested"),
        (lambda d: d["board"].update(friedman=None), "board.untested"),
        (lambda d: d["board"]["front"]["labels"].append("nobody"), "board.front.labels"),
        (lambda d: d["board"]["nemenyi"]["groups"].append(["nobody", "bct"]), "board.nemenyi.groups"),
        (lambda d: d["rows"][0].update(failure="it broke"), "rows.0"),
        (lambda d: d["rows"][0].update(p_up=float("nan")), "rows.0.p_up"),
        (lambda d: d["board"]["labels"][0].update(rank=0.5), "board.labels.0.rank"),
        (lambda d: d["board"].update(colour="green"), "board.colour"),
        (lambda d: d.pop("machine"), "machine"),
        (lambda d: d.update(kind="sessions"), "of the kind 'sessions'"),
        (lambda d: d.update(schema_version=9), "schema version 9"),
    ],
)
def test_parts_that_are_missing_or_contradict_each_other_are_refused(
    results: Leaderboard, change: Callable[[dict[str, Any]], Any], place: str
) -> None:
    broken = results.to_dict()
    change(broken)
    with pytest.raises(ConfigError, match=re.escape(place)):
        Leaderboard.parse(broken)


def test_the_board_is_sorted_by_average_rank_and_ends_with_what_it_is_compared_with(results: Leaderboard) -> None:
    columns, rows = leaderboard_table(results)
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    ranks = [float(row["average rank"]) for row in table[:-2]]
    assert ranks == sorted(ranks) and len(ranks) == 9
    assert [row["method"] for row in table[-2:]] == ["old system", "independent model"]
    assert table[-2]["cross"] == f"{results.board.references['self_old']:.3f}"
    assert table[-1]["self (new)"] == f"{results.board.references['self_independent']:.3f}"
    failed = next(row for row in table if row["method"] == "mixbct*")
    assert (failed["failed"], failed["cross"], failed["compatible"]) == ("1 of 18", "–", "17 of 18")
    assert re.fullmatch(r"0\.\d{3} ± 0\.\d{3}", table[0]["cross"])


def test_best_and_second_are_those_of_each_column(results: Leaderboard) -> None:
    found = summary(results)
    for column in range(1, len(found.columns) - 3):
        values = [
            float(row[column].split(" ")[0].replace("−", "-"))
            for row, kind in zip(found.rows, found.kinds, strict=True)
            if kind == "ranked" and row[column] != "–"
        ]
        names = [row[0] for row in found.rows if row[column] != "–"]
        best = (min if column == 1 else max)(values)
        marks = [standing[column - 1] for standing in found.standing]
        assert marks.count(BEST) == marks.count(SECOND) == 1
        assert found.rows[marks.index(BEST)][0] in {n for n, v in zip(names, values, strict=False) if v == best}
    cells = by_cell(results)
    failed = next(place for place, row in enumerate(cells.rows) if row[0] == "mixbct*")
    column = cells.columns.index("omniglot, open-class")
    assert cells.rows[failed][column].endswith("*")
    assert cells.standing[failed][column - 1] == 0


def test_csv_holds_every_run_and_every_mean_unrounded(results: Leaderboard) -> None:
    lines = list(csv.DictReader(io.StringIO(leaderboard_csv(results))))
    runs, means = ([line for line in lines if line["line"] == kind] for kind in ("run", "mean"))
    assert len(runs) == len(results.rows) and len(means) == 9 * 6
    for line, run in zip(runs, results.rows, strict=True):
        assert (line["label"], line["data"], line["seed"]) == (run.label, run.data, str(run.seed))
        assert line["cross"] == ("" if run.scores is None else repr(run.scores["cross"]))
        assert line["failure"] == (run.failure or "")
    for line in means:
        of = [
            run for run in runs if all(run[key] == line[key] for key in ("label", "data", "scenario")) and run["cross"]
        ]
        values = [float(run["cross"]) for run in of]
        assert int(line["seeds"]) == len(values)
        assert float(line["cross"]) == pytest.approx(sum(values) / len(values))
        assert float(line["cross_deviation"]) == pytest.approx(np.std(values, ddof=1))
        assert bool(line["failure"]) == (len(values) < 3)


def test_markdown_has_a_cell_for_every_column_whatever_the_names(make_board: Callable[..., Leaderboard]) -> None:
    results = make_board(labels={NASTY: ("bct", 0.5, 0.0), "p2s": ("p2s", 0.9, -0.1)})
    text = leaderboard_markdown(results)
    for table in text.split("\n\n"):
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines() if line.startswith("|")}
        assert len(bars) <= 1
    assert text.count("**") == 2 * (6 + 6)  # a best per measure and per cell
    assert "By cell" in text
    assert "By cell" not in leaderboard_markdown(make_board(cells=[("glyphs", "open-class")]))


def test_markdown_says_what_was_found_how_and_what_failed(results: Leaderboard) -> None:
    text = leaderboard_markdown(results)
    assert text.startswith("# Which one?\n") and headline(results) in text
    assert f"`{results.command}` took " in text and results.machine in text
    assert "Failed: mixbct, omniglot, open-class, seed 1: RuntimeError: the loss is not finite" in text


def test_latex_escapes_names_and_marks_the_best(make_board: Callable[..., Leaderboard]) -> None:
    results = make_board(labels={NASTY: ("bct", 0.5, 0.0), "p2s": ("p2s", 0.9, -0.1)}, title=NASTY)
    text = leaderboard_latex(results)
    assert r"50 \% of \$x\_i\textasciicircum{}\{2\}\$ \& \textless{}b\textgreater{}\#1" in text
    assert r"\textbackslash{}end\{table\}" in text
    tables = re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL)
    assert len(tables) == 2
    for body in tables:
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
        assert body.count(r"\textbf{") == body.count(r"\underline{") == 6
    assert re.search(r"\\textbf\{0\.\d{3}\} \$\\pm\$ 0\.\d{3}", text)
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_the_terminal_shows_the_table_and_every_failure(results: Leaderboard) -> None:
    text = leaderboard_text(results)
    assert headline(results) in text and text.endswith("\n")
    assert "  mixbct, omniglot, open-class, seed 1: RuntimeError: the loss is not finite" in text
    assert "P_comp and P_score: means over 5 of 6 cells" in text
    assert "−" not in text and "\N{NO-BREAK SPACE}" not in text
    columns = next(line for line in text.splitlines() if line.startswith("method"))
    first = next(line for line in text.splitlines() if line.startswith(results.board.labels[0].label + "  "))
    assert len(columns) == len(first)


def test_tables_are_written(results: Leaderboard, tmp_path: Path) -> None:
    assert [path.name for path in write_tables(results, tmp_path)] == [f"leaderboard.{e}" for e in ("md", "csv", "tex")]
    assert (tmp_path / "leaderboard.csv").read_bytes() == leaderboard_csv(results).encode()


def test_the_headline_says_how_sure_the_lead_is(make_board: Callable[..., Leaderboard]) -> None:
    even = {name: (name, 0.9, 0.0) for name in ("bct", "p2s", "l2")}
    steady = {"bct": ("bct", 0.9, 0.0), "l2": ("l2", 0.1, 0.0)}
    many = [(f"data {number}", "open-class") for number in range(8)]
    noisy = make_board(labels=even, noise=0.02, cells=many[:7])
    assert headline(noisy).endswith("ranks first, but the order may be chance.")
    live = "bct was compatible in every run and may go live on such data."
    assert headline(make_board(labels=steady, cells=many)) == f"{live} bct leads, significantly ahead of all others."
    assert headline(make_board(labels=steady, cells=many[:1])) == f"{live} bct comes first in the only cell."
    assert headline(make_board(labels={"bct": ("bct", 0.9, 0.0)})) == f"{live} bct is the only label that is ranked."
    assert "leads, significantly ahead of" in headline(make_board(cells=many))
    scenarios = [("glyphs", f"scenario {number}") for number in range(8)]
    alone = headline(make_board(labels=steady, cells=scenarios))
    assert alone == f"{live} bct ranks first in 8 cells of one data set; what other data would say is not tested."
    tied = make_board(labels=even, noise=0.0)
    assert headline(tied).endswith(" bct, p2s and l2 share the lead.")
    broken = make_board(labels=even, fail={(name, *cell) for name in even for cell in many}, cells=many)
    assert headline(broken) == "Nothing could be ranked: 72 of 72 runs failed."
    assert leaderboard_text(broken).count("RuntimeError") == 72


def test_every_sentence_has_its_reason(make_board: Callable[..., Leaderboard], results: Leaderboard) -> None:
    told = " ".join(sentences(results))
    assert "Friedman’s test over 2 data sets: p" in told and "So many labels over so few data sets" in told
    many = " ".join(sentences(make_board(cells=[(f"data {number}", "open-class") for number in range(8)])))
    assert "Friedman’s test over 8 data sets: p" in many and "By Nemenyi’s test at level 0.05" in many
    assert "1 of 162 runs failed, of mixbct" in told
    assert "in both P_comp and P_up" in told
    one = " ".join(sentences(make_board(cells=[("glyphs", "open-class")])))
    assert "There is no test of ranks" in one and "Neither seeds nor scenarios replace them" in one
    undefined = make_board(cells=[("glyphs", "open-class")], undefined={("glyphs", "open-class")})
    assert "there is no front of the two" in " ".join(sentences(undefined))


def test_steps_lead_from_the_old_system_to_the_independent_model(results: Leaderboard) -> None:
    board = results.board
    first = board.labels[0]
    assert [number for number, *_ in steps(results)] == [
        f"{value:.3f}"
        for value in (
            board.references["self_old"],
            first.means["cross"].mean,
            board.references["self_independent"],
        )
    ]


def test_one_seed_says_so_and_shows_no_deviation(make_board: Callable[..., Leaderboard]) -> None:
    results = make_board(seeds=1)
    text = leaderboard_text(results)
    assert "One seed: there is no deviation" in text and "±" not in text
    assert "±" not in terms(render_leaderboard(results))


def test_sessions_have_a_board_of_their_own_measures(session_board: Leaderboard) -> None:
    columns, rows = leaderboard_table(session_board)
    assert columns == ["method", "average rank", "AR@1", "AR@2", "AR@4", "forgetting", "failed", "minutes"]
    assert rows[-1][0] == "joint (upper bound)" and rows[-1][1] == "–"
    found = summary(session_board)
    lost = found.columns.index("forgetting")
    marks = [standing[lost - 1] for standing in found.standing[:-1]]
    least = min(float(row[lost].split(" ")[0]) for row in found.rows[:-1])
    assert float(found.rows[marks.index(BEST)][lost].split(" ")[0]) == least
    assert "P_comp" not in " ".join(sentences(session_board)) and steps(session_board) == []
    assert set(terms(render_leaderboard(session_board))) == {"cell", "rank", "±", "AR@K", "forgetting"}


def test_the_headline_says_first_whether_anything_may_go_live(make_board: Callable[..., Leaderboard]) -> None:
    board = make_board(labels={"p2s": ("p2s", 0.9, 0.0), "l2": ("l2", 0.1, 0.0)}, cells=[("glyphs", "open-class")])
    first, second = board.board.labels[:2]

    def judged(**counts: int) -> str:
        found = [one.model_copy(update={"compatible": counts[one.label]}) for one in (first, second)]
        labels = (*found, *board.board.labels[2:])
        return headline(board.model_copy(update={"board": board.board.model_copy(update={"labels": labels})}))

    assert judged(p2s=0, l2=0).startswith("Nothing may go live: no label was compatible in any run. p2s ")
    assert judged(p2s=0, l2=1).startswith("Nothing was compatible in every run; l2 was in 1 of ")
    assert judged(p2s=0, l2=second.runs).startswith("l2 was compatible in every run and may go live on such data. p2s ")
