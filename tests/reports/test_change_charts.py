from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from limpet.evaluation.agreement import Agreement
from limpet.evaluation.class_change import ClassChangeSummary, class_change
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.reports.evaluation import agreement_finding, flips, p_words, render_report
from limpet.reports.readings import agreements

from .pages import Page

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


def test_the_page_counts_classes(results: EvaluationResults, change: ClassChangeSummary) -> None:
    def text(**values: Any) -> str:
        record = results.evaluations["p2s"].model_copy(update={"class_change": change.model_copy(update=values)})
        return Page(render_report(results.model_copy(update={"evaluations": {"p2s": record}}))).text

    found = text()
    assert f"of 300 classes score more than before and {100 * change.worse:.1f} % less" in found
    assert f"{change.clearly_better} are clearly better and {change.clearly_worse} clearly worse." in found
    assert change.clearly_better > 10 < change.clearly_worse + 5
    nothing = {"clearly_better": 0, "clearly_worse": 0}
    assert "none does so beyond chance" in text(**nothing)
    assert "no class has enough" in text(**nothing, testable=0)
    assert "All queries are of one class." in text(classes=1)


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
