from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.evaluation.protocols import PROTOCOLS
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.reports.evaluation import finding, headline, metric_rows, summary_rows
from limpet.reports.formats import plain_text, probability
from limpet.reports.markdown import markdown_table
from limpet.reports.words import first_hits, metric_note, net_first_hits, tie_notes
from limpet.support.wording import metric_name

from .changes import changed


def test_the_three_verdicts_are_those_of_the_simulation(results: EvaluationResults) -> None:
    verdicts = {name: record.verdict for name, record in results.evaluations.items()}
    assert verdicts == {"p2s": "compatible", "same": "inconclusive", "independent": "not compatible"}


def test_the_sentence_holds_scores_difference_and_interval(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    cross, old, new = (getattr(record, system)["map"] for system in ("cross", "self_old", "self_new"))
    low, high = record.interval["map"]["cross_minus_self_old"]
    chance = record.p_value["map"]["cross_minus_self_old"]
    assert 0 < chance < 0.01
    assert finding("p2s", record).sentences[0] == (
        f"New queries on the old gallery score mAP {cross:.3f}, old queries {old:.3f}; the difference "
        f"{cross - old:+.3f} [{low:+.3f}, {high:+.3f}] (95\N{NO-BREAK SPACE}% interval over 12 classes; p = "
        f"{probability(chance)}) excludes zero. Re-embedding everything would give {new:.3f}."
    )


@pytest.mark.parametrize(
    ("name", "says", "next_step"),
    [
        ("p2s", "excludes zero", "Swap the query model now, and re-embed"),
        ("same", "includes zero: 96 queries cannot tell", "Measure more queries"),
        ("independent", "has no part above zero", "Do not search the old gallery"),
    ],
)
def test_each_verdict_says_what_to_do(results: EvaluationResults, name: str, says: str, next_step: str) -> None:
    found = finding(name, results.evaluations[name])
    assert says in found.sentences[0]
    assert found.next_steps[0].startswith(next_step)


def test_a_backfill_that_brings_nothing_is_said(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    record = record.model_copy(update={"self_new": record.self_new | {"map": record.cross["map"] - 0.01}})
    assert "would bring nothing more" in finding("p2s", record).next_steps[0]


def test_a_model_that_is_no_better_when_re_embedded_is_not_advised(results: EvaluationResults) -> None:
    record = results.evaluations["independent"]
    for change, says in ((0.0, "Keep the old model"), (0.01, "Do not search the old gallery")):
        worse = record.model_copy(update={"self_new": record.self_new | {"map": record.self_old["map"] + change}})
        assert finding("independent", worse).next_steps[0].startswith(says)


def test_a_point_gate_does_not_claim_an_interval(evaluated: Callable[..., Evaluation]) -> None:
    record = evaluated("p2s", gate="point", curve=False)
    assert "judged by its sign alone" in finding("p2s", record).sentences[0]
    assert "excludes zero" not in finding("p2s", record).sentences[0]


def test_negative_flips_are_told(results: EvaluationResults) -> None:
    record = results.evaluations["independent"]
    (note,) = (note for note in finding("independent", record).sentences[1:] if "flips" in note)
    for rate in (record.negative_flip_rate, record.positive_flip_rate):
        assert f"{100 * rate['cross']:.1f}" in note and f"{100 * rate['self_new']:.1f}" in note
    assert note.index("Negative flips") < note.index("Positive flips")


def test_missing_references_say_what_to_type(evaluated: Callable[..., Evaluation], results: EvaluationResults) -> None:
    without = evaluated("p2s", independent=False, curve=False)
    assert "limpet train --method independent" in " ".join(finding("p2s", without).sentences[1:])
    undefined = changed(results.evaluations["p2s"], lambda values: values["p_comp"]["raw"].update(map=None))
    assert "P_comp is not defined" in " ".join(finding("p2s", undefined).sentences[1:])
    assert not [note for note in finding("p2s", results.evaluations["p2s"]).sentences[1:] if "P_comp" in note]


def test_numbers_that_were_not_measured_are_not_told(results: EvaluationResults) -> None:
    missing = dict.fromkeys(("p_value", "positive_flip_rate", "class_change"))
    record = changed(results.evaluations["p2s"], lambda values: values.update(missing))
    assert "p = " not in finding("p2s", record).sentences[0]
    assert "Positive flips" not in " ".join(finding("p2s", record).sentences[1:])
    assert not [row for row in metric_rows(record)[1] if row[0].endswith(", p")]


def test_other_units_are_called_by_their_name(results: EvaluationResults) -> None:
    record = changed(results.evaluations["same"], lambda values: values["protocol"].update(units="genuine pairs"))
    found = finding("same", record)
    assert "96 genuine pairs cannot tell" in found.sentences[0]
    assert found.next_steps[0].startswith("Measure more genuine pairs")
    assert "of genuine pairs were right before" in " ".join(found.sentences[1:])


def test_without_labels_the_agreement_is_told_and_not_called_good(unlabelled: Evaluation) -> None:
    found = finding("p2s", unlabelled)
    cross, later = unlabelled.agreement.cross, unlabelled.agreement.self_new
    for share in (cross.overlap.mean, cross.first_changed.mean, later.overlap.mean):
        assert f"{100 * share:.1f}\N{NO-BREAK SPACE}%" in found.sentences[0]
    assert "agreement is not quality" in found.sentences[0]
    assert "of today’s first 10 items stay" in found.sentences[0]
    assert found.verdict == "unlabelled"
    assert found.next_steps[0].startswith("Look in the report at queries whose first hit changed")
    assert "add labels to queries and gallery" in found.next_steps[0]


def test_headlines_count_and_name(
    results: EvaluationResults, unlabelled: Evaluation, make_results: Callable[..., EvaluationResults]
) -> None:
    def of(*names: str) -> str:
        return headline(make_results({name: results.evaluations[name] for name in names}))

    net = net_first_hits(results.evaluations["p2s"].first_hits)
    assert of("p2s", "same", "independent") == f"1 of 3 new models can search your old gallery today: p2s ({net})."
    assert of("same", "independent").startswith("None of 2 new models")
    beside = first_hits(results.evaluations["p2s"].first_hits)
    assert of("p2s") == f"p2s can search your old gallery today. F{beside[1:]}."
    assert "not decided" in of("same")
    assert "cannot" in of("independent")
    assert "no labels" in headline(make_results({"p2s": unlabelled}))


def test_the_summary_is_exact(results: EvaluationResults) -> None:
    columns, rows = summary_rows(results)
    columns, rows = [*map(plain_text, columns)], [[*map(plain_text, row)] for row in rows]
    assert columns[0] == "model (mAP)"
    assert all(len(row) == len(columns) for row in rows)
    row = dict(zip(columns, rows[2], strict=True))
    record = results.evaluations["independent"]
    low, high = record.interval["map"]["cross_minus_self_old"]
    difference = record.cross["map"] - record.self_old["map"]
    assert row["cross - self (old)"] == f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]"
    assert row["self (independent)"] == f"{record.self_independent['map']:.3f}"
    assert row["P_comp"] == f"{record.p_comp['raw']['map']:+.3f}"
    assert row["P_up"] == "0.000"
    before, after = record.self_old["recall@1"], record.cross["recall@1"]
    assert row["first hits (net)"] == f"{before:.3f} to {after:.3f} ({after - before:+.3f})"
    assert row["verdict"] == "not compatible"
    assert all(cell.isascii() for row in rows for cell in row)


def test_missing_numbers_are_dashes(
    evaluated: Callable[..., Evaluation], make_results: Callable[..., EvaluationResults], unlabelled: Evaluation
) -> None:
    columns, (row,) = summary_rows(make_results({"p2s": evaluated("p2s", independent=False, curve=False)}))
    assert [column for column, cell in zip(columns, row, strict=True) if cell == "–"] == [
        "self (independent)",
        "P_up",
        "P_comp",
    ]
    _, (row,) = summary_rows(make_results({"p2s": unlabelled}))
    assert row == ["p2s", *["–"] * 8, "unlabelled"]


def test_markdown_keeps_its_columns_whatever_the_name(
    results: EvaluationResults, make_results: Callable[..., EvaluationResults]
) -> None:
    record = results.evaluations["p2s"]
    lines = markdown_table(*summary_rows(make_results({"a|b\nc": record}))).splitlines()
    assert len(lines) == 3
    assert {line.replace("\\|", "").count("|") for line in lines} == {11}
    assert lines[2].startswith("| a\\|b c | ")


def test_metric_rows_hold_every_number(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    columns, rows = metric_rows(record)
    assert columns == ["", "recall@1", "recall@5", "mAP", "mAP@R"]
    cells = {row[0]: row[3] for row in rows}
    low, high = record.mean_interval["self_new"]["map"]
    assert cells["new queries, new gallery: self (new)"] == f"{record.self_new['map']:.3f} [{low:.3f}, {high:.3f}]"
    assert cells["P_comp, sigmoid"] == f"{record.p_comp['sigmoid']['map']:.3f}"
    assert cells["P_score, sigmoid"] == f"{record.p_score['sigmoid']['map']:.3f}"
    assert cells["cross > self (old)"] == "yes"
    assert cells["cross − self (old), p"] == probability(record.p_value["map"]["cross_minus_self_old"])
    assert set(cells) >= {"self (new) − self (independent), p"}
    assert "P_score, raw" not in cells


def test_every_metric_of_every_protocol_has_a_name_and_a_meaning() -> None:
    assert PROTOCOLS.import_installed() == []
    names = {name for protocol in PROTOCOLS.values() for name in protocol.metrics}
    assert {"tar@1e-4", "tpir@1e-2", "rank@5", "mp@10", "map-trapezoid", "cmc@1"} <= names
    notes = {name: metric_note(name) for name in names}
    assert all("{" not in note and len(note) > 20 for note in notes.values())
    assert len({note for name, note in notes.items() if not name.startswith(("cmc", "recall"))}) == sum(
        not name.startswith(("cmc", "recall")) for name in names
    )
    assert [metric_name(name) for name in ("tar@1e-4", "tpir@1e-2", "rank@5", "mp@10", "map-trapezoid")] == [
        "TAR@1e-4", "TPIR@1e-2", "rank@5", "mP@10", "mAP by trapezoids",
    ]  # fmt: skip


def test_first_hits_stand_beside_every_verdict_and_temper_what_to_do(results: EvaluationResults) -> None:
    """A gain in the gate metric is no reason to swap at once where more first hits break than heal."""
    for name, record in results.evaluations.items():
        assert finding(name, record).headline.startswith(f"{record.verdict}, first hits net ")
    record = results.evaluations["p2s"]
    loss = record.first_hits.model_copy(update={"healed": 0.154, "broken": 0.168, "net": -0.014})
    losing = record.model_copy(update={"first_hits": loss})
    assert "16.8\N{NO-BREAK SPACE}% break, 15.4\N{NO-BREAK SPACE}% heal" in finding("p2s", losing).headline
    assert "net −1.4\N{NO-BREAK SPACE}%" in headline(results.model_copy(update={"evaluations": {"p2s": losing}}))
    (step,) = finding("p2s", losing).next_steps
    assert "more first hits break than heal" in step
    assert "Swap the query model now" not in step


def test_a_gain_that_rounding_may_give_is_said(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    gain = {"cross": {**record.cross, "map": record.self_old["map"] + 2e-5}, "rounding": 4e-5}
    tiny = record.model_copy(update=gain)
    assert tiny.within_rounding
    said = finding("p2s", tiny)
    assert "than rounding of numbers may give" in headline(results.model_copy(update={"evaluations": {"p2s": tiny}}))
    assert any("+0.00002" in sentence and "0.00004" in sentence for sentence in said.sentences[1:])
    assert "Keep the old model" in said.next_steps[0]
    assert not tiny.model_copy(update={"rounding": 1e-5}).within_rounding


def test_the_smallest_effect_is_named_with_the_interval(evaluated: Callable[..., Evaluation]) -> None:
    assert "is above the smallest effect, 0.010." in finding("p2s", evaluated("p2s", min_effect=0.01)).sentences[0]
    refused = evaluated("p2s", min_effect=0.9)
    assert refused.verdict == "not compatible"
    assert "is not above the smallest effect, 0.900." in finding("p2s", refused).sentences[0]


def test_ties_constants_and_whole_galleries_are_said(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    assert tie_notes(record.ties, record.protocol, record.self_old) == []
    met = record.ties.model_copy(
        update={
            "queries": {"self_old": 0.005, "cross": 0.37, "self_new": 1.0},
            "repeated": {"old": 0.12, "new": 0.99},
            "constant": ("new gallery",),
        }
    )
    scores = {**record.self_old, "recall@96": 1.0, "recall@95": 1.0}
    notes = [note.replace("\N{NO-BREAK SPACE}", " ") for note in tie_notes(met, record.protocol, scores)]
    assert notes[0] == "All vectors of the new gallery are equal: that model tells nothing apart."
    assert notes[1].startswith("12.0 % (old model) of the gallery vectors repeat another one")
    assert "37.0 % (new queries on the old gallery) and 100.0 % (new queries and gallery) of queries" in notes[2]
    assert "With 96 gallery items, recall@96 finds everything" in notes[3]
    assert len(notes) == 4
