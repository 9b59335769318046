"""Every kind of results writes itself as Markdown: it says its headline, and its tables hold its numbers."""

from __future__ import annotations

import pytest

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports import adapt, chain, combined, evaluation, rehearsal
from limpet.reports.formats import plain_text
from limpet.reports.markdown import in_markdown

from .pages import Tables, tables_of
from .test_example_documents import DOCUMENTS, KINDS


def headline_of(results: object) -> str:
    match results:
        case EvaluationResults():
            return evaluation.headline(results)
        case CombinationResults():
            return combined.combined_headline(results)
        case ChainResults():
            return chain.chain_headline(results)
        case AdaptResults():
            return adapt.adapt_headline(results)
    assert isinstance(results, Rehearsal)
    return rehearsal.rehearsal_headline(results)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_says_its_headline_and_has_tables_that_can_be_read(name: str) -> None:
    results = KINDS[name].load(DOCUMENTS / f"{name}.json")
    text = results.to_markdown()
    assert text.startswith("# ") and text.endswith("\n") and "\n\n\n" not in text
    assert in_markdown(plain_text(headline_of(results))) in text
    assert "None" not in text and "\N{NO-BREAK SPACE}" not in text
    assert tables_of(text) or name == "evaluation-unlabelled", "without labels there are no scores"


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_shows_itself_in_a_notebook(name: str) -> None:
    results = KINDS[name].load(DOCUMENTS / f"{name}.json")
    headline, *others = results.summary().splitlines()
    assert headline == plain_text(headline_of(results)) and others
    assert repr(results).startswith(f"<{type(results).__name__}> {headline}\n") and "None" not in repr(results)
    assert results._repr_html_().count("<tr>") > 1
    assert results.to_arrow().num_rows > 0 or name == "evaluation-unlabelled"


def test_one_evaluation_shows_itself_as_results_of_it_do() -> None:
    results = KINDS["evaluation"].load(DOCUMENTS / "evaluation.json")
    assert isinstance(results, EvaluationResults)
    alone = results.evaluations["p2s"]
    assert alone.summary().splitlines()[1:] == [plain_text(one) for one in evaluation.finding("", alone).lines]
    rows = alone.to_arrow().to_pylist()
    assert [row["metric"] for row in rows] == list(alone.self_old or {})
    assert [(row["cross"], row["gain_low"]) for row in rows] == [
        (alone.score("cross", metric), (alone.gain_interval(metric) or (None,))[0]) for metric in alone.self_old or {}
    ]
    assert {row["verdict"] for row in rows} == {alone.verdict} and alone.plot().to_dict() is not None
    assert len({row["model"] for row in results.to_arrow().to_pylist()}) == len(results.evaluations)


def read(name: str) -> tuple[object, Tables]:
    results = KINDS[name].load(DOCUMENTS / f"{name}.json")
    return results, tables_of(results.to_markdown())


def test_tables_of_an_evaluation_hold_its_numbers() -> None:
    results, tables = read("evaluation")
    assert isinstance(results, EvaluationResults)
    for name, record in results.evaluations.items():
        row = tables["In mAP"][name]
        assert row[:3] == [f"{record.score(system):.3f}" for system in ("self_old", "cross", "self_new")]
        assert row[-1] == record.verdict
        by_metric = tables[f"{name}, in every metric"]["new queries, old gallery: cross"]
        assert [cell.split()[0] for cell in by_metric] == [f"{value:.3f}" for value in (record.cross or {}).values()]


def test_tables_of_several_test_sets_hold_their_numbers() -> None:
    results, tables = read("combination")
    assert isinstance(results, CombinationResults)
    for name, found in results.sets.items():
        row = tables["Test sets"][name]
        assert (row[1], row[4], row[-1]) == (f"{found.self_old:.3f}", f"{found.cross:.3f}", found.verdict)


def test_tables_of_a_chain_hold_its_numbers() -> None:
    results, tables = read("chain")
    assert isinstance(results, ChainResults)
    matrix = tables["mAP of every model on every gallery"]
    for place, name in enumerate(results.models):
        shown = [cell.removesuffix(" ✗") for cell in matrix[name] if cell]
        assert shown == [f"{value:.3f}" for value in results.matrix[place][: place + 1]]
    assert {name: row[3] for name, row in tables["Pairs"].items()} == {
        f"{pair.new} on {pair.old}": "yes" if pair.violates else "no" for pair in results.pairs
    }
    assert results.p_comp is not None and results.p_comp["raw"]["own"][1][0] is not None
    (own,) = (table for caption, table in tables.items() if "the chain’s own" in caption)
    assert own[results.models[1]][0] == f"{results.p_comp['raw']['own'][1][0]:+.3f}"


def test_tables_of_candidates_and_orders_hold_their_numbers() -> None:
    adapted, tables = read("adapt")
    assert isinstance(adapted, AdaptResults)
    for candidate in adapted.candidates:
        if candidate.cross is not None:
            assert tables["Candidates"][candidate.name][1].startswith(f"{candidate.cross.mean:.3f} ")
    rehearsed, tables = read("rehearsal")
    assert isinstance(rehearsed, Rehearsal)
    for order, curve in rehearsed.curves.items():
        values = [curve.area["map"], *curve.values["map"]]
        assert tables["Orders"][order] == [f"{value:.3f}" for value in values]
