from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from holdfast.evaluation import Evaluation
from holdfast.reports.tables import markdown_table, metric_rows, summary_rows
from holdfast.reports.words import finding, headline


def test_the_three_verdicts_are_those_of_the_simulation(document: dict[str, Any]) -> None:
    verdicts = {name: record["verdict"] for name, record in document["evaluations"].items()}
    assert verdicts == {"p2s": "compatible", "same": "inconclusive", "independent": "not compatible"}


def test_the_sentence_holds_scores_difference_and_interval(document: dict[str, Any]) -> None:
    record = document["evaluations"]["p2s"]
    cross, old, new = (record[system]["map"] for system in ("cross", "self_old", "self_new"))
    low, high = record["interval"]["map"]["cross_minus_self_old"]
    assert finding("p2s", record).sentence == (
        f"New queries on the old gallery score mAP {cross:.3f}, old queries {old:.3f}; the difference "
        f"{cross - old:+.3f} [{low:+.3f}, {high:+.3f}] (95\N{NO-BREAK SPACE}% interval) excludes zero. "
        f"Re-embedding everything would give {new:.3f}."
    )


@pytest.mark.parametrize(
    ("name", "says", "next_step"),
    [
        ("p2s", "excludes zero", "Swap the query model now, and re-embed"),
        ("same", "includes zero: 96 queries cannot tell", "Measure more queries"),
        ("independent", "has no part above zero", "Do not search the old gallery"),
    ],
)
def test_each_verdict_says_what_to_do(document: dict[str, Any], name: str, says: str, next_step: str) -> None:
    found = finding(name, document["evaluations"][name])
    assert says in found.sentence
    assert found.next_step.startswith(next_step)


def test_a_backfill_that_brings_nothing_is_said(document: dict[str, Any]) -> None:
    record = deepcopy(document["evaluations"]["p2s"])
    record["self_new"]["map"] = record["cross"]["map"] - 0.01
    assert "would bring nothing more" in finding("p2s", record).next_step


def test_a_point_gate_does_not_claim_an_interval(evaluated: Callable[..., Evaluation]) -> None:
    record = evaluated("p2s", gate="point", curve=False).to_dict()
    assert "judged by its sign alone" in finding("p2s", record).sentence
    assert "excludes zero" not in finding("p2s", record).sentence


def test_negative_flips_are_told(document: dict[str, Any]) -> None:
    record = document["evaluations"]["independent"]
    (note,) = finding("independent", record).notes[:1]
    assert f"{100 * record['negative_flip_rate']['cross']:.1f}" in note


def test_missing_references_say_what_to_type(evaluated: Callable[..., Evaluation], document: dict[str, Any]) -> None:
    without = evaluated("p2s", independent=False, curve=False).to_dict()
    assert "holdfast train --method independent" in " ".join(finding("p2s", without).notes)
    undefined = deepcopy(document["evaluations"]["p2s"])
    undefined["p_comp"]["raw"]["map"] = None
    assert "P_comp is not defined" in " ".join(finding("p2s", undefined).notes)
    assert not [note for note in finding("p2s", document["evaluations"]["p2s"]).notes if "P_comp" in note]


def test_without_labels_the_agreement_is_told(unlabelled: Evaluation) -> None:
    record = unlabelled.to_dict()
    found = finding("p2s", record)
    assert f"{record['agreement']['overlap@10']:.3f}" in found.sentence
    assert "first 10 items" in found.sentence
    assert found.next_step.startswith("Add labels")


def test_headlines_count_and_name(document: dict[str, Any], unlabelled: Evaluation) -> None:
    def of(*names: str) -> str:
        return headline({"evaluations": {name: document["evaluations"][name] for name in names}})

    assert of("p2s", "same", "independent") == "1 of 3 new models can search your old gallery today: p2s."
    assert of("same", "independent").startswith("None of 2 new models")
    assert of("p2s") == "p2s can search your old gallery today."
    assert "not decided" in of("same")
    assert "cannot" in of("independent")
    assert "no labels" in headline({"evaluations": {"p2s": unlabelled.to_dict()}})


def test_the_summary_is_ascii_and_exact(document: dict[str, Any]) -> None:
    columns, rows = summary_rows(document)
    assert columns[0] == "model (mAP)"
    assert all(len(row) == len(columns) for row in rows)
    row = dict(zip(columns, rows[2], strict=True))
    record = document["evaluations"]["independent"]
    low, high = record["interval"]["map"]["cross_minus_self_old"]
    difference = record["cross"]["map"] - record["self_old"]["map"]
    assert row["cross - self (old)"] == f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]"
    assert row["self (independent)"] == f"{record['self_independent']['map']:.3f}"
    assert row["P_comp"] == f"{record['p_comp']['raw']['map']:+.3f}"
    assert row["P_up"] == "0.000"
    assert row["negative flips"] == f"{100 * record['negative_flip_rate']['cross']:.1f} %"
    assert row["verdict"] == "not compatible"
    assert all(cell.isascii() for row in rows for cell in row)


def test_missing_numbers_are_dashes(
    evaluated: Callable[..., Evaluation], make_document: Callable[..., dict[str, Any]], unlabelled: Evaluation
) -> None:
    columns, (row,) = summary_rows(make_document({"p2s": evaluated("p2s", independent=False, curve=False)}))
    assert [column for column, cell in zip(columns, row, strict=True) if cell == "–"] == [
        "self (independent)",
        "P_up",
        "P_comp",
    ]
    _, (row,) = summary_rows(make_document({"p2s": unlabelled}))
    assert row == ["p2s", *["–"] * 8, "unlabelled"]


def test_markdown_keeps_its_columns_whatever_the_name(document: dict[str, Any]) -> None:
    record = document["evaluations"]["p2s"]
    lines = markdown_table({"evaluations": {"a|b\nc": record}}).splitlines()
    assert len(lines) == 3
    assert {line.replace("\\|", "").count("|") for line in lines} == {11}
    assert lines[2].startswith("| a\\|b c | ")


def test_metric_rows_hold_every_number(document: dict[str, Any]) -> None:
    record = document["evaluations"]["p2s"]
    columns, rows = metric_rows(record)
    assert columns == ["", "recall@1", "recall@5", "mAP", "mAP@R"]
    cells = {row[0]: row[3] for row in rows}
    low, high = record["mean_interval"]["self_new"]["map"]
    assert cells["new queries, new gallery: self (new)"] == f"{record['self_new']['map']:.3f} [{low:.3f}, {high:.3f}]"
    assert cells["P_comp, sigmoid"] == f"{record['p_comp']['sigmoid']['map']:.3f}"
    assert cells["P_score, sigmoid"] == f"{record['p_score']['sigmoid']['map']:.3f}"
    assert cells["cross > self (old)"] == "yes"
    assert "P_score, raw" not in cells
