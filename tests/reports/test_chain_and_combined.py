"""The pages of chains and of several test sets, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.evaluation.ties import Ties
from limpet.reports.chain import (
    chain_finding,
    chain_headline,
    matrix_table,
    models_table,
    p_comp_table,
    pair_table,
    render_chain_report,
    write_chain_report,
)
from limpet.reports.combined import (
    combined_headline,
    combined_notes,
    combined_table,
    render_combined_report,
    set_findings,
    write_combined_report,
)
from limpet.reports.evaluation import render_report
from limpet.reports.formats import plain_text
from limpet.reports.markdown import markdown_table

from .changes import Change, changed

MakeChain = Callable[..., ChainResults]
MakeCombination = Callable[..., CombinationResults]

WRONG_CELL = 'stroke="var(--bad)" stroke-width="2.6"'


@pytest.fixture(scope="module")
def chain(make_chain: MakeChain) -> ChainResults:
    """Four models, of which the last is worse than its predecessor; its independent model is no better."""
    return make_chain({"e1": 1.6, "second": 1.2, "third": 0.8, "worse one": 1.5}, [1.0, 0.6, 1.4])


@pytest.fixture(scope="module")
def sets(make_combination: MakeCombination) -> CombinationResults:
    return make_combination({"roxford": {}, "rparis": {"gate_metric": "recall@1"}})


# --- chains ----------------------------------------------------------------------------------------------------------


def test_every_number_of_a_chain_is_on_its_page(chain: ChainResults) -> None:
    page = render_chain_report(chain)
    found = [value for row in chain.matrix for value in row if value is not None]
    found += [end for pair in chain.pairs for end in pair.interval]
    found += [value for by in chain.p_comp.values() for rows in by.values() for row in rows for value in row if value]
    found += [value for rows in chain.p_score.values() for row in rows for value in row if value]
    found += [chain.ac, chain.am, *chain.independent_self, *chain.p_up["sigmoid"]]
    assert len(found) > 50
    for number in found:
        assert f"{abs(number):.3f}" in page or abs(number) < 0.0005, number
    for name, model in chain.fingerprints.items():
        assert name in page and model.fingerprint in page


def test_violations_are_counted_told_and_marked(chain: ChainResults) -> None:
    wrong = [pair for pair in chain.pairs if pair.violates]
    assert wrong and chain.violations == len(wrong)
    verb = "is" if len(wrong) == 1 else "are"
    assert chain_headline(chain) == f"{len(wrong)} of 6 pairs of models {verb} not compatible."
    finding = chain_finding(chain)
    assert finding.verdict == "not compatible"
    for pair, note in zip(wrong, finding.sentences[1:], strict=False):
        assert note.startswith(f"Queries of {pair.new} on the gallery of {pair.old} score {pair.cross:.3f}")
        assert ("chance alone" in note) == (pair.interval[1] > 0)
    page = render_chain_report(chain)
    assert page.count(WRONG_CELL) == 2 * len(wrong)  # for desks and phones
    assert sum(cell.endswith("✗") for row in matrix_table(chain)[1] for cell in row) == len(wrong)
    assert [row[4] for row in pair_table(chain)[1]] == ["yes" if pair.violates else "no" for pair in chain.pairs]


def test_what_is_not_defined_is_named_with_its_numbers(chain: ChainResults) -> None:
    alone, matrix = chain.independent_self, chain.matrix
    lost = [(i, j) for i in range(4) for j in range(i) if alone[i] <= matrix[j][j]]
    assert lost and all(chain.p_comp["raw"]["own"][i][j] is None for i, j in lost)
    (note,) = [note for note in chain_finding(chain).sentences if "the chain’s own old model is not defined" in note]
    for i, j in lost:
        told = f"{chain.models[i]} on {chain.models[j]} ({alone[i]:.3f} against {matrix[j][j]:.3f})"
        assert told in note
        assert p_comp_table(chain, "own")[1][i - 1][j + 1] == "–"


def test_a_good_chain_without_independent_models(make_chain: MakeChain) -> None:
    found = make_chain({"e1": 1.6, "second": 0.8})
    assert chain_headline(found) == "Every newer model can search every older gallery."
    assert chain_finding(found).verdict == "compatible" and "--independent" in chain_finding(found).sentences[-1]
    page = render_chain_report(found)
    assert "train --method independent" in page and "P_1" not in page and "<dfn>P_comp" not in page
    assert models_table(found)[1][1][2:] == ["–", "–", "–"]


def test_pairs_within_chance_are_told(make_chain: MakeChain) -> None:
    found = make_chain({"e1": 1.2, "as good": 1.19})
    (pair,) = found.pairs
    assert pair.interval[0] <= 0 <= pair.interval[1] and pair.verdict == "inconclusive"
    told = chain_finding(found).sentences[1]
    assert ("chance alone may explain it" in told) == pair.violates


def test_first_hits_stand_beside_the_verdict_on_every_pair_and_set(
    make_chain: MakeChain, sets: CombinationResults
) -> None:
    found = make_chain({"e1": 1.6, "second": 1.0, "third": 0.8})
    columns, rows = pair_table(found)
    for pair, row in zip(found.pairs, rows, strict=True):
        told = dict(zip(columns, row, strict=True))
        hits = pair.first_hits
        assert hits.net == pytest.approx(hits.after - hits.before)
        assert told["first hits (net)"] == f"{hits.before:.3f} to {hits.after:.3f} ({hits.net:+.3f})"
        assert told["by its interval"].startswith(pair.verdict)
    for told_set, scores in zip(set_findings(sets), sets.sets.values(), strict=True):
        assert told_set.headline.startswith(f"{scores.verdict}, first hits net ")


def test_ties_are_told_of_chains_and_of_every_set(chain: ChainResults, sets: CombinationResults) -> None:
    met = Ties(queries={"second on e1": 0.37}, repeated={"e1": 0.12}, constant=("third gallery",))
    told = " ".join(chain_finding(chain.model_copy(update={"ties": met})).sentences)
    for words in ("(second on e1)", "(e1 model)", "the third gallery"):
        assert words in told and words not in " ".join(chain_finding(chain).sentences)
    (name, scores), *_ = sets.sets.items()
    tied = scores.model_copy(update={"ties": met})
    findings = set_findings(sets.model_copy(update={"sets": {**sets.sets, name: tied}}))
    assert "the third gallery" in " ".join(findings[0].sentences)
    assert "the third gallery" not in " ".join(findings[1].sentences)
    assert all(one.ties is not None for one in sets.sets.values())


def test_unjudged_chains_speak_no_verdict(make_chain: MakeChain) -> None:
    def unjudged(values: dict[str, Any]) -> None:
        values |= {"judged": False, "compatible": False}
        for pair in values["pairs"]:
            pair["verdict"] = "unlabelled"

    found = changed(make_chain({"e1": 1.6, "second": 0.8}), unjudged)
    assert "no pair is judged" in chain_headline(found)
    assert chain_finding(found).sentences[0].startswith("Clicks only know what the old system showed")
    page = render_chain_report(found)
    assert 'class="finding unlabelled"' in page and WRONG_CELL not in page


def test_a_chain_written_is_a_chain_read(chain: ChainResults, tmp_path: Path) -> None:
    assert ChainResults.load(chain.save(tmp_path)) == ChainResults.load(tmp_path) == chain
    assert write_chain_report(chain, tmp_path).read_text(encoding="utf-8") == render_chain_report(chain)
    with pytest.raises(ConfigError, match=r"kind 'chain'"):
        EvaluationResults.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["matrix"][1].__setitem__(0, None), "a number on and below the diagonal"),
        (lambda d: d["matrix"][3].pop(), "4 rows of 4"),
        (lambda d: d["pairs"].pop(), "what the matrix says"),
        (lambda d: d["pairs"][0].update(violates=True), "violations just where no gain counts"),
        (lambda d: d.update(violations=0), "as the pairs say"),
        (lambda d: d.update(p_comp=None), "just where independent models"),
        (lambda d: d.update(kind="sessions"), "kind 'sessions'"),
        (lambda d: d.update(schema_version=2), "schema version 2"),
        (lambda d: d.pop("ac"), "Field required"),
        (lambda d: d.update(models=["e1"] * 4), "each once"),
    ],
)
def test_documents_that_contradict_themselves_are_refused(chain: ChainResults, change: Change, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(chain, change)


# --- several test sets -----------------------------------------------------------------------------------------------


def test_the_table_has_scores_sigmoids_in_per_cent_and_raw_ones(sets: CombinationResults) -> None:
    columns, rows = combined_table(sets)
    assert columns[:6] == ["test set", "metric", "self (old)", "self (independent)", "self (new)", "cross"]
    for typeset, (name, found) in zip(rows, sets.sets.items(), strict=False):
        row = [*map(plain_text, typeset)]
        scores = [getattr(found, system) for system in ("self_old", "self_independent", "self_new", "cross")]
        assert row[:6] == [name, {"map": "mAP", "recall@1": "recall@1"}[found.metric], *(f"{x:.3f}" for x in scores)]
        up, comp = found.p_up, found.p_comp
        assert row[6] == f"{100 * up['sigmoid']:.2f} [{up['raw']:+.3f}]"
        assert row[7] == f"{100 * comp['sigmoid']:.2f} [{comp['raw']:+.3f}]"
        hits = found.first_hits
        told = f"{hits.before:.3f} to {hits.after:.3f} ({hits.after - hits.before:+.3f})"
        assert row[8:] == [f"{100 * found.p_score:.2f}", told, found.verdict]
    assert rows[-1][0] == "average" and rows[-1][8] == f"{100 * sets.mean.p_score:.2f}"
    assert markdown_table(*combined_table(sets)).count("\n") == 2 + 3
    page = render_combined_report(sets)
    for row in combined_table(sets)[1]:
        for cell in filter(None, row):
            assert cell.partition(" [")[0] in page
    for record in sets.sets.values():
        for end in record.interval:
            assert f"{abs(end):.3f}" in page


def test_the_headline_counts_and_every_set_is_judged(sets: CombinationResults) -> None:
    verdicts = {name: found.verdict for name, found in sets.sets.items()}
    assert {finding.name: finding.verdict for finding in set_findings(sets)} == verdicts == {
        "roxford": "compatible",
        "rparis": verdicts["rparis"],
    }  # fmt: skip

    def judged(**verdicts: str) -> CombinationResults:
        def judge(values: dict[str, Any]) -> None:
            for name, verdict in verdicts.items():
                values["sets"][name]["verdict"] = verdict
            values["compatible"] = all(found["verdict"] == "compatible" for found in values["sets"].values())

        return changed(sets, judge)

    mixed = judged(rparis="inconclusive")
    assert combined_headline(mixed) == "p2s can search the old gallery on 1 of 2 test sets: roxford."
    good = judged(rparis="compatible")
    assert combined_headline(good) == "p2s can search the old gallery on both test sets."
    none = judged(rparis="inconclusive", roxford="not compatible")
    assert combined_headline(none) == "p2s is not shown to be compatible on any of 2 test sets."
    assert 'class="finding not-compatible"' in render_combined_report(none)


def test_an_average_that_does_not_exist_is_explained(sets: CombinationResults) -> None:
    reason = "the independent model is not better than the old one (0.4 against 0.5)"

    def lose(values: dict[str, Any]) -> None:
        gone = {"p_comp": {"raw": None, "sigmoid": None}, "p_score": None}
        values["sets"]["rparis"] |= {"undefined": {"p_comp": reason}, **gone}
        values["mean"] |= gone

    lost = changed(sets, lose)
    assert combined_table(lost)[1][-1][7:9] == ["–", "–"] and combined_table(lost)[1][1][7] == "–"
    assert combined_notes(lost) == [
        "P_comp and P_1 have no average, for lack of rparis: an average over the other sets would be of another "
        "benchmark."
    ]
    page = render_combined_report(lost)
    assert f"P_comp is not defined: {reason}." in page


def test_without_an_independent_model_it_is_asked_for(make_combination: MakeCombination) -> None:
    found = make_combination({"a": {"independent": False}, "b": {"independent": False}})
    (note,) = combined_notes(found)
    assert "train --method independent" in note and set_findings(found)[0].sentences[1:] == ()
    page = render_combined_report(found)
    assert "independent model on its own gallery" not in page and "<dfn>P_comp" not in page


def test_sets_written_are_sets_read(sets: CombinationResults, tmp_path: Path) -> None:
    assert CombinationResults.load(sets.save(tmp_path)) == CombinationResults.load(tmp_path) == sets
    assert write_combined_report(sets, tmp_path).read_text(encoding="utf-8") == render_combined_report(sets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["mean"]["p_comp"].update(sigmoid=0.5), "the mean over the sets"),
        (lambda d: d["sets"]["rparis"]["p_up"].update(raw=None), "None, the mean over the sets"),
        (lambda d: d.update(compatible=not d["compatible"]), "as the verdicts of the sets say"),
        (lambda d: d["sources"].pop("rparis"), "one for each of roxford, rparis"),
        (lambda d: d.pop("mean"), "Field required"),
        (lambda d: d.pop("kind"), "kind 'evaluation'"),
    ],
)
def test_combinations_that_contradict_themselves_are_refused(
    sets: CombinationResults, change: Change, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(sets, change)


def test_results_of_several_models_are_not_one_upgrade(results: EvaluationResults, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'all': evaluations of 3 new models, p2s, same, independent\."):
        EvaluationResults.load(results.save(tmp_path)).only("'all'")


# --- both ------------------------------------------------------------------------------------------------------------


def test_pages_are_sound_self_contained_and_escape_what_they_are_given(
    chain: ChainResults, sets: CombinationResults
) -> None:
    hostile = "<script>alert(1)</script>"
    turned = CombinationResults.parse(json.loads(json.dumps(sets.to_dict()).replace("roxford", "<i>rox")))
    renamed = ChainResults.parse(json.loads(json.dumps(chain.to_dict()).replace("third", "<i>third")))
    for page in (
        render_chain_report(chain.model_copy(update={"title": hostile})),
        render_combined_report(turned.model_copy(update={"title": hostile, "new": hostile})),
        render_chain_report(renamed),
    ):
        assert "<script" not in page and "<i>rox" not in page and "<i>third" not in page
        assert page.replace("http://www.w3.org/2000/svg", "").count("://") == 0 and "url(" not in page
        assert page.count("<table>") == page.count("</table>") and page.rstrip().endswith("</html>")


def test_pages_of_results_that_do_not_say_what_wrote_them(
    results: EvaluationResults, chain: ChainResults, sets: CombinationResults
) -> None:
    def unsigned(values: dict[str, Any]) -> None:
        del values["limpet"], values["versions"]

    for page in (
        render_report(changed(results, unsigned)),
        render_chain_report(changed(chain, unsigned)),
        render_combined_report(changed(sets, unsigned)),
    ):
        assert "Written by limpet. " in page
        assert "None" not in page and "<dt>limpet</dt>" not in page and "<dt>torch</dt>" not in page
