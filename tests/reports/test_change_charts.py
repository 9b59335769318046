from __future__ import annotations

import math

import numpy as np
import pytest

from limpet.evaluation.agreement import Agreement
from limpet.evaluation.class_change import ClassChangeSummary, class_change
from limpet.evaluation.results import Evaluation
from limpet.reports.evaluation import agreement_finding, class_finding, flips, p_words
from limpet.reports.readings import agreements

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def change() -> ClassChangeSummary:
    """300 classes of 20 queries, some much better, some much worse."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 20)
    before = rng.random(6000)
    after = before + 0.1 * rng.normal(size=6000) + 0.3 * ((labels % 10 == 0) * 1.0 - (labels % 25 == 1))
    names = [f"class {row}" for row in range(300)]
    return class_change(before, after, labels).summary("map", names)


def with_curve(change: ClassChangeSummary, curve: list[float]) -> ClassChangeSummary:
    shares = {"better": sum(v > 0 for v in curve) / len(curve), "worse": sum(v < 0 for v in curve) / len(curve)}
    return change.model_copy(update={"curve": curve, "classes": len(curve)} | shares)


def test_the_finding_counts_classes(change: ClassChangeSummary) -> None:
    found = class_finding(change)
    assert f"of 300 classes score more than before and {100 * change.worse:.1f}" in found
    assert f"{change.clearly_better} are clearly better and {change.clearly_worse} clearly worse." in found
    assert change.clearly_better > 10 < change.clearly_worse + 5
    nothing = change.model_copy(update={"clearly_better": 0, "clearly_worse": 0})
    assert "none does so beyond chance" in class_finding(nothing)
    assert "no class has enough" in class_finding(nothing.model_copy(update={"testable": 0}))
    assert class_finding(change.model_copy(update={"classes": 1})) == "All queries are of one class."


def test_p_values_and_flips_in_words() -> None:
    assert (p_words(0.5), p_words(1.0), p_words(9.9e-5), p_words(0.00042)) == (
        "p = 0.500", "p = 1.000", "p = 0.0001", "p = 0.0004",
    )  # fmt: skip
    told = flips({"cross": 0.1, "self_new": 0.2}, {"cross": 0.3, "self_new": None}, "probes").replace("\xa0", " ")
    assert told == (
        "Negative flips: 10.0 % of probes were right before and are wrong now, 20.0 % after re-embedding. "
        "Positive flips, wrong before and right now: 30.0 %."
    )
    assert flips(None, None) == flips({"cross": None}, {"cross": 0.1}) == ""


@pytest.fixture(scope="module")
def agreement(unlabelled: Evaluation) -> Agreement:
    assert isinstance(unlabelled.agreement, Agreement)
    return unlabelled.agreement


def test_agreement_is_never_called_good_or_bad(agreement: Agreement, unlabelled: Evaluation) -> None:
    found = agreement_finding(agreement, "95 %")
    assert "agreement is not quality" in found
    assert not {"good", "bad", "better", "worse", "compatible"} & set(found.replace(".", "").split())
    without = unlabelled.model_copy(update={"agreement": None})
    assert agreements({"a": unlabelled, "b": without}) == {"a": agreement}
    assert math.isfinite(agreement.cross.overlap.mean)
