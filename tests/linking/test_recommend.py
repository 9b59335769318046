from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from limpet.adapters import SuspectPairs, suspect_pairs
from limpet.evaluation.intervals import Draws
from limpet.linking.compare import AGREEMENT, CandidateScores, Comparison, Effect, Measured, Unseen, measure
from limpet.linking.held_out import hold_out
from limpet.linking.recommend import recommend
from limpet.support.wording import whole_percent

QUICK = {"resamples": 200}
OLD, NEW = 0.40, 0.60


def score(value: float) -> Effect:
    return Effect(mean=value, interval=(value - 0.01, value + 0.01))


def gap(value: float, half: float = 0.01) -> Effect:
    return Effect(mean=value, interval=(value - half, value + half))


def failed(name: str) -> CandidateScores:
    nothing = dict.fromkeys(("cross", "cross_minus_self_old", "self_new_minus_cross", "recovered", "own", "unseen"))
    return CandidateScores(name=name, kind="adapter", seconds=1.0, failed="why", **nothing)


def candidate(name: str, kind: str, cross: float, unseen: float | None = None, half: float = 0.01) -> Measured:
    """A candidate beside an old model of 0.4 (0.3 on unseen classes), and 0.6 after re-embedding (0.5)."""
    return Measured(
        name=name,
        kind=kind,
        seconds=42.0,
        cross=score(cross),
        cross_minus_self_old=gap(cross - OLD, half),
        self_new_minus_cross=gap(NEW - cross, half),
        recovered=(cross - OLD) / (NEW - OLD),
        unseen=None if unseen is None else Unseen(self_old=0.3, cross=unseen, self_new=0.5, queries=52),
    )


def compared(*candidates, lead: float | None = None, lead_half: float = 0.01, **changes) -> Comparison:
    values = {
        "metric": "map", "fitted_on": 2160, "held_out": 840, "unseen_classes": 3, "draws": Draws(2000, 0.95, 0),
        "self_old": score(OLD), "self_new": score(NEW), "self_new_minus_self_old": gap(NEW - OLD),
    }  # fmt: skip
    head_lead = None if lead is None else gap(lead, lead_half)
    return Comparison(**{**values, "candidates": candidates, "head_lead": head_lead, **changes})


RIDGE, WEAK = candidate("ridge", "adapter", 0.45, 0.33), candidate("ridge", "adapter", 0.405, 0.29)
HEAD = candidate("head", "head", 0.52, 0.36)
NO_GAIN = {"self_new": score(OLD), "self_new_minus_self_old": gap(0.0)}
CLEAN = SuspectPairs(0.25, 0.2, 0.3, 400)

CASES = {
    "an adapter alone": (compared(RIDGE), "adapt", "ridge"),
    "the higher of two adapters": (compared(RIDGE, candidate("mlp", "adapter", 0.46, 0.3)), "adapt", "mlp"),
    "an adapter that is not shown to help": (compared(WEAK), "re-embed", None),
    "an interval that begins at 0": (compared(candidate("ridge", "adapter", OLD, half=0.0)), "re-embed", None),
    "nothing to gain at all": (compared(WEAK, **NO_GAIN), "keep the old model", None),
    "all failed": (compared(failed("ridge")), "re-embed", None),
    "a head alone": (compared(HEAD), "train a head", "head"),
    "a head that leads": (compared(RIDGE, HEAD, lead=0.07), "train a head", "head"),
    "a head whose lead may be none": (compared(RIDGE, HEAD, lead=0.07, lead_half=0.07), "adapt", "ridge"),
    "no adapter helps": (compared(WEAK, HEAD, lead=0.115, lead_half=0.2), "train a head", "head"),
    "a head that does not help": (compared(RIDGE, candidate("head", "head", 0.4), lead=-0.05), "adapt", "ridge"),
    "neither helps": (compared(WEAK, candidate("head", "head", 0.4), lead=-0.005), "re-embed", None),
    "behind the adapter on unseen classes": (
        compared(RIDGE, candidate("head", "head", 0.52, 0.32), lead=0.07), "train a head", "head"),
    "behind the old model there, as the adapter is": (
        compared(candidate("ridge", "adapter", 0.45, 0.2), candidate("head", "head", 0.52, 0.25), lead=0.07),
        "train a head", "head"),
    "behind both there": (compared(RIDGE, candidate("head", "head", 0.52, 0.29), lead=0.07), "train a head", "head"),
    "behind both there, but no adapter helps": (
        compared(candidate("ridge", "adapter", 0.405, 0.31), candidate("head", "head", 0.52, 0.29), lead=0.115),
        "train a head", "head"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("suspects", [None, CLEAN])
def test_what_to_do(case, suspects) -> None:
    comparison, action, name = CASES[case]
    found = recommend(comparison, suspects)
    assert (found.action, found.candidate) == (action, name)


@pytest.mark.parametrize("low", [0.21, 0.79, 0.8, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_suspect_pairs_come_before_all_else(case, low) -> None:
    found = recommend(CASES[case][0], SuspectPairs(max(low, 0.5), low, 1.0, 400))
    assert (found.action, found.candidate) == ("check the pairs", None)
    text = " ".join(found.sentences)
    assert ("no relation that a map could learn, so no adapter is recommended" in text) == (low >= 0.8)
    assert ("are suspect" in text) == (low < 0.8)
    assert f"about {whole_percent(max(low, 0.5))} of them ({whole_percent(low)} to {whole_percent(1)})" in text
    assert "shifted by a row, sorted differently or come from another file" in text


def test_several_splits_are_said() -> None:
    assert "on 840 held-out items in each of 5 splits" in recommend(compared(RIDGE, splits=5)).sentences[1]


def test_the_sentences_of_an_adapter() -> None:
    assert recommend(compared(RIDGE)).sentences == (
        "Fit 'ridge' on the pairs and pass the new model's queries through it: they then search the old gallery as it "
        "is.",
        "'ridge' reaches an mAP of 0.450 on 840 held-out items, 5.0 points more (95 % interval +4.0 to +6.0) than the "
        "old model on its own gallery.",
        "Full re-embedding reaches an mAP of 0.600, 15.0 points more (95 % interval +14.0 to +16.0). "
        f"{whole_percent(0.25)} of its gain arrives without it.",
        "Fitting took 42 s on 2,160 pairs.",
        "On the 52 queries of 3 unseen classes, 'ridge' reaches an mAP of 0.330, the old model "
        "0.300 and re-embedding 0.500: there 3.0 points are gained.",
    )
    assert (
        "pass the old gallery through it"
        in recommend(compared(RIDGE.model_copy(update={"direction": "old_to_new"}))).sentences[0]
    )


def test_the_sentences_of_a_head() -> None:
    behind = candidate("head", "head", 0.52, 0.29)
    adapter = candidate("ridge", "adapter", 0.405, 0.31)
    sentences = recommend(compared(adapter, behind, lead=0.115)).sentences
    assert sentences[0].startswith("Train 'head' on the labelled items")
    assert sentences[2] == "That is 11.5 points more (95 % interval +10.5 to +12.5) than the best adapter, 'ridge'."
    assert "there 1.0 points are lost." in sentences[5]
    assert sentences[6].startswith("There 'ridge' finds more than 'head': 0.310 against 0.290.")
    assert not any("finds more than" in line for line in recommend(compared(RIDGE, HEAD, lead=0.07)).sentences)


def test_why_a_head_was_not_taken() -> None:
    unsure = recommend(compared(RIDGE, HEAD, lead=-0.002)).sentences[-1]
    assert "has 0.2 points less (95 % interval −1.2 to +0.8) than that: not enough to train it." in unsure


def test_where_nothing_helps_the_sentences_say_how_little() -> None:
    sentences = recommend(compared(WEAK)).sentences
    assert sentences[0].startswith("Re-embed the gallery")
    assert sentences[1] == (
        "Re-embedding reaches an mAP of 0.600, 20.0 points more (95 % interval +19.0 to +21.0) than the old model."
    )
    assert "'ridge', reaches an mAP of 0.405" in sentences[2]
    sentences = recommend(compared(WEAK, **NO_GAIN)).sentences
    assert sentences[0].startswith("Keep the old model") and "0.0 points more" in sentences[1]


def test_a_difference_that_was_not_shown_is_called_so() -> None:
    near = candidate("ridge", "adapter", 0.595)
    assert (
        "0.5 points more (95 % interval −0.5 to +1.5): no difference was shown."
        in recommend(compared(near)).sentences[2]
    )
    assert "no difference" not in recommend(compared(RIDGE)).sentences[2]


def test_another_metric_and_level_are_named() -> None:
    other = compared(RIDGE, metric="recall@1", draws=Draws(level=0.9))
    assert "reaches a recall@1 of 0.450" in recommend(other).sentences[1]
    assert "(90 % interval" in recommend(other).sentences[1]


@pytest.mark.parametrize("suspects", [None, SuspectPairs(0.5, 0.4, 0.6, 400), SuspectPairs(0.9, 0.85, 1.0, 400)])
@pytest.mark.parametrize("case", CASES)
def test_without_labels_every_score_is_called_agreement(case, suspects) -> None:
    sentences = recommend(replace(CASES[case][0], metric=AGREEMENT), suspects).sentences
    assert sentences[-1].startswith(
        "All of this is provisional. Without labels or judged queries (--relevant), limpet measures agr"
    )
    scored = [line for line in sentences[:-1] if " points" in line or "0." in line]
    assert all("agree" in line or "finds more than" in line for line in scored)
    assert not any("mAP" in line for line in sentences)


def test_classes_that_were_not_set_aside_are_told() -> None:
    sentences = recommend(compared(candidate("ridge", "adapter", 0.45))).sentences
    assert "was not measured: none was set aside" in sentences[-1] and "--unseen-share" in sentences[-1]


@pytest.mark.parametrize("case", CASES)
def test_no_sentence_promises_the_shares_of_advertisements(case) -> None:
    text = " ".join(recommend(CASES[case][0]).sentences)
    assert not any(f"{share}%" in text for share in range(95, 100)) and "nan" not in text and "None" not in text


@pytest.mark.parametrize(("wrong", "expected"), [(0.0, None), (0.5, "are suspect"), (1.0, "no relation")])
def test_pairs_that_were_mixed_up(two_models, adapter, wrong, expected) -> None:
    old, new = two_models(1200, wrong=wrong)
    comparison = measure([adapter("procrustes"), adapter("ridge")], hold_out(old, new), **QUICK)
    found = recommend(comparison, suspect_pairs(old, new))
    assert (found.action == "check the pairs") == (wrong > 0)
    if expected is not None:
        assert expected in found.sentences[0]
    else:
        assert (found.action, found.candidate) == ("adapt", comparison.best_adapter.name)


def test_two_names_for_one_model_leave_nothing_to_do(two_models, points, adapter) -> None:
    new = two_models(labelled=False)[1]
    held_out = hold_out(points(new.vectors, "other", np.arange(600) % 12), new)
    found = recommend(measure([adapter("procrustes"), adapter("ridge")], held_out, **QUICK))
    assert found.action == "keep the old model"
