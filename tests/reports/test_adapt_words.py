from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.evaluation.first_hits import FirstHits
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import adapt_headline, adapt_table, render_adapt_report
from limpet.reports.formats import plain_text

from .changes import changed
from .pages import Page, terms

Make = Callable[..., AdaptResults]


def advised(results: AdaptResults, action: str, candidate: str | None = None, **more: Any) -> AdaptResults:
    """Return results with round scores and a recommendation; ``more`` holds gaps of single candidates."""

    def change(values: dict[str, Any]) -> None:
        values["recommendation"] = {"action": action, "candidate": candidate, "sentences": []}
        for one in values["candidates"]:
            if one["cross"]:
                one["cross"]["mean"], one["cross_minus_self_old"]["mean"] = 0.625, 0.1
                one["self_new_minus_cross"]["mean"] = 0.0625
                for key, value in more.get(one["name"], {}).items():
                    one[key]["mean"] = value
        values["systems"]["self_old"]["mean"], values["systems"]["self_new"]["mean"] = 0.525, 0.6875

    return changed(results, change)


@pytest.mark.parametrize(
    ("action", "candidate", "headline"),
    [
        ("adapt", "ridge", "Adapt with ridge: mAP 0.625 on the old gallery, 0.100 more than today."),
        ("train a head", "head ndpp", "Train head ndpp: mAP 0.625 on the old gallery, 0.100 more than today."),
        (
            "train a head",
            None,
            "Train a head: what was tried does not let the new model search the old gallery well enough.",
        ),
        ("re-embed", None, "Re-embed the gallery: head ndpp comes nearest to that with mAP 0.625 on the old gallery, "
         "0.062 less."),
        ("keep the old model", None, "Keep the old model: its mAP is 0.525, and 0.688 with everything re-embedded by "
         "the new one."),
        ("check the pairs", None, "Check the pairs first: 1.2 % of them seem not to belong together."),
    ],
)  # fmt: skip
def test_every_action_has_its_headline(
    adapted: AdaptResults, action: str, candidate: str | None, headline: str
) -> None:
    assert plain_text(adapt_headline(advised(adapted, action, candidate))) == headline


def test_a_candidate_below_the_old_model_is_not_praised(adapted: AdaptResults) -> None:
    found = advised(adapted, "adapt", "ridge", ridge={"cross_minus_self_old": -0.02})
    assert adapt_headline(found).endswith("0.020 less than today.")
    hits = FirstHits(metric="recall@1", before=0.75, after=0.5, healed=0.125, broken=0.375, net=-0.25, interval=(-1, 0))
    lost = [one.model_copy(update={"first_hits": hits}) for one in found.candidates]
    lost = found.model_copy(update={"candidates": lost})
    assert "First hits net −25.0" in adapt_headline(lost)
    columns, rows = adapt_table(lost)
    assert "0.750 to 0.500 (−0.250)" in {row[columns.index("first hits (net)")] for row in rows}
    found = advised(adapted, "re-embed", **{str(adapted.best): {"self_new_minus_cross": -0.01}})
    assert adapt_headline(found).endswith("with mAP 0.625 on the old gallery.")


def test_without_labels_headlines_speak_of_agreement(make_adapt: Make) -> None:
    document = make_adapt(labelled=False)
    assert adapt_headline(advised(document, "adapt", "ridge")) == (
        "Adapt with ridge: overlap@10 0.625 with re-embedding, 0.100 more than the old model has "
        "(provisional: agreement, not correctness)."
    )
    assert adapt_headline(advised(document, "re-embed")) == (
        "Re-embed the gallery: head ndpp comes nearest to that with overlap@10 0.625 with re-embedding "
        "(provisional: agreement, not correctness)."
    )
    assert "without labels or judged queries, nothing shows" in adapt_headline(advised(document, "keep the old model"))


def test_headlines_of_what_was_not_measured(make_adapt: Make) -> None:
    nothing = make_adapt({"ridge": "too few pairs"}, suspects=None)
    assert adapt_headline(nothing) == (
        "Re-embed the gallery: nothing that was tried lets the new model search it as it is."
    )
    assert adapt_headline(advised(nothing, "check the pairs")) == "Check the pairs before you trust any number here."


def text(results: AdaptResults) -> str:
    return Page(render_adapt_report(results)).text


def test_the_curve_says_how_many_pairs_are_enough(adapted: AdaptResults, make_adapt: Make) -> None:
    assert "1,024 pairs are enough for residual_mlp" in text(adapted)
    never = changed(adapted, lambda values: values["learning_curve"].update(enough=None))
    assert "No smaller number of pairs was enough for residual_mlp" in text(never)
    last = {"mean": -0.0125, "interval": [-0.02, 0.005]}
    stepped = changed(adapted, lambda values: values["learning_curve"].update(last_step=last))
    assert "The last 2,052 of 4,100 pairs brought −1.2 points [−2.0, +0.5]" in text(stepped)
    assert "brought" not in text(adapted)
    words = "This is agreement with re-embedding, not correctness."
    assert words in text(make_adapt(labelled=False)) and words not in text(adapted)


def test_the_page_tells_the_protocol(adapted: AdaptResults, make_adapt: Make) -> None:
    page = text(adapted)
    for told in (
        "fitted on 4,100 pairs, and measured on 900 others", "Of 15 classes no item was used",
        "of the query’s class is right",
        "Adapters map the new model’s queries", "Intervals hold 95 % of 200 resampled sets of queries (seed 0)",
    ):  # fmt: skip
        assert told in page, told
    assert "The pairs were split 5 times" in text(make_adapt(protocol=adapted.protocol.to_dict() | {"splits": 5}))
    assert "The pairs were split" not in page
    other = make_adapt(
        labelled=False, protocol=make_adapt(labelled=False).protocol.to_dict() | {"direction": "old_to_new"}
    )
    assert "classes no item was used" not in text(other)
    assert "This is provisional: agreement, not correctness." in text(other)
    assert "Adapters map the vectors of the old gallery" in text(other)


def test_only_terms_that_occur_are_told(adapted: AdaptResults, make_adapt: Make) -> None:
    every = {
        "adapter", "head", "cross", "old model as it is", "everything re-embedded", "mAP", "gain recovered",
        "after backfill", "unseen classes",
    }  # fmt: skip
    assert set(terms(render_adapt_report(adapted))) == every
    bare = terms(render_adapt_report(make_adapt({"ridge": "too few pairs"}, labelled=False)))
    assert set(bare) == every - {"head", "mAP", "gain recovered", "unseen classes"} | {"overlap@10"}
    assert "adapter" not in terms(render_adapt_report(make_adapt({"head ndpp": 0.5})))


def test_adapters_in_both_directions_are_told_apart(make_adapt: Make) -> None:
    both = render_adapt_report(make_adapt(protocol=make_adapt().protocol.to_dict() | {"direction": "both"}))
    assert "(gallery)" in terms(both) and "and, marked (gallery), to map" in both
    assert "(gallery)" not in terms(render_adapt_report(make_adapt()))
