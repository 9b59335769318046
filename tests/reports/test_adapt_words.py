from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.evaluation.first_hits import FirstHits
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import adapt_headline, adapt_table, adapt_terms, curve_finding, protocol_words
from limpet.reports.formats import plain_text

from .changes import changed

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
    assert "0.750 to 0.500 (-0.250)" in {row[columns.index("first hits (net)")] for row in rows}
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


def test_the_curve_says_how_many_pairs_are_enough(adapted: AdaptResults, make_adapt: Make) -> None:
    assert curve_finding(adapted) == (
        "1,024 pairs are enough for residual_mlp: from there on, it falls short of all pairs by less than two points, "
        "and by half a point or more nowhere beyond chance."
    )
    never = changed(adapted, lambda values: values["learning_curve"].update(enough=None))
    assert curve_finding(never).startswith("No smaller number of pairs was enough for residual_mlp")
    unlabelled = make_adapt(labelled=False)
    assert curve_finding(unlabelled).endswith("This is agreement with re-embedding, not correctness.")
    unlabelled = changed(unlabelled, lambda values: values["learning_curve"].update(enough=None))
    assert curve_finding(unlabelled).endswith("This is agreement with re-embedding, not correctness.")


def test_the_protocol_in_words(adapted: AdaptResults, make_adapt: Make) -> None:
    fitted, asked, mapped, intervals = protocol_words(adapted)
    assert fitted == (
        "Every candidate was fitted on 4,100 pairs, and measured on 900 others that were held out. Of 15 classes no "
        "item was used to fit anything."
    )
    several = make_adapt(protocol=adapted.protocol.to_dict() | {"splits": 5})
    assert protocol_words(several)[0] == fitted + " The pairs were split 5 times, each time into so many."
    assert "An item of the query’s class is right." in asked
    assert mapped.startswith("Adapters map the new model’s queries into the space of the old one")
    assert plain_text(intervals).startswith("Intervals hold 95 % of 200 resampled sets of queries (seed 0)")
    other = make_adapt(
        labelled=False, protocol=make_adapt(labelled=False).protocol.to_dict() | {"direction": "old_to_new"}
    )
    fitted, asked, mapped, _ = protocol_words(other)
    assert "class" not in fitted
    assert asked.endswith("This is provisional: agreement, not correctness.")
    assert mapped.startswith("Adapters map the vectors of the old gallery")


def test_only_terms_that_occur_are_told(adapted: AdaptResults, make_adapt: Make) -> None:
    every = {
        "adapter", "head", "cross", "old model as it is", "everything re-embedded", "mAP", "gain recovered",
        "after backfill", "unseen classes",
    }  # fmt: skip
    assert set(adapt_terms(adapted)) == every
    bare = adapt_terms(make_adapt({"ridge": "too few pairs"}, labelled=False))
    assert set(bare) == every - {"head", "mAP", "gain recovered", "unseen classes"} | {"overlap@10"}
    assert bare["overlap@10"].endswith("not correctness")
    assert "adapter" not in adapt_terms(make_adapt({"head ndpp": 0.5}))


def test_adapters_in_both_directions_are_told_apart(make_adapt: Make) -> None:
    both = make_adapt(protocol=make_adapt().protocol.to_dict() | {"direction": "both"})
    assert adapt_terms(both)["(gallery)"].startswith("an adapter that maps the vectors of the old gallery, once")
    assert "and, marked (gallery), to map" in protocol_words(both)[2] and "(gallery)" not in adapt_terms(make_adapt())
