"""The page in a real browser, at the widths of a desk, a tablet and a phone."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.examples import Example, Found, choose_examples
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import render_adapt_report
from limpet.reports.chain import render_chain_report
from limpet.reports.combined import render_combined_report
from limpet.reports.evaluation import render_report

from .browser import BROWSER
from .changes import changed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]


def test_many_models_with_pictures_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    results: EvaluationResults,
    evaluations: dict[str, Evaluation],
    simulated: SimpleNamespace,
) -> None:
    old, new = simulated.old, simulated.new["p2s"]
    examples = choose_examples(evaluations["p2s"], old, old, new, new, exclude_same_id=True)
    page = render_report(results, examples={"p2s": examples}, picture=lambda _: np.zeros((1, 28, 28), np.uint8))
    for result in measure(page).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 6 + 3  # and the classes of each
        assert result["pictures"] == len(examples) * 16
        assert result["smallest"] >= 11


def test_one_model_with_long_names_fits_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    evaluated: Callable[..., Evaluation],
    make_results: Callable[..., EvaluationResults],
) -> None:
    name = "a_very_long_method_name_without_any_place_to_break_" * 3
    long = Found((name,) * 5, (name,) * 5, (True, False) * 2 + (True,))
    results = make_results(
        {name: evaluated("p2s")},
        title=name,
        data={"name": name, "description": name, "numbers": {name: 10**9}},
        models={name: {name: name}},
    )
    page = render_report(results, examples={name: [Example(name, name, "kept", long, long, long)]})
    for result in measure(page).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 4 + 1


@pytest.mark.parametrize("models", [1, 3])
def test_an_unlabelled_page_fits_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    simulated: SimpleNamespace,
    unlabelled: Evaluation,
    make_results: Callable[..., EvaluationResults],
    models: int,
) -> None:
    old, new = (side.replace(labels=None, class_names=None) for side in (simulated.old, simulated.new["p2s"]))
    examples = choose_examples(unlabelled, old, old, new, new, exclude_same_id=True)
    names = ["p2s", *("another_name_that_is_long_and_has_no_place_to_break_" * 3 + str(n) for n in range(1, models))]
    results = make_results(dict.fromkeys(names, unlabelled))
    page = render_report(results, examples=dict.fromkeys(names, examples), picture=lambda _: np.zeros((1, 8, 8), "u1"))
    for result in measure(page).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == models
        assert result["pictures"] == models * len(examples) * 16
        assert result["smallest"] >= 11


@pytest.mark.parametrize("worse", [0.0, 0.5, 1.0])
def test_classes_of_long_names_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    results: EvaluationResults,
    make_results: Callable[..., EvaluationResults],
    worse: float,
) -> None:
    def many(values: dict[str, Any]) -> None:
        change = values["class_change"]
        one = change["best"][0] | {"name": "a_class_of_a_long_name_without_any_place_to_break_" * 3}
        curve = [(place / 200 - worse) / 3 for place in range(201)]
        change |= {"classes": 81_313, "curve": curve, "better": 1 - worse, "worse": worse}
        change |= {end: [one | {"change": sign * 0.25}] * 20 for end, sign in (("worst", -1), ("best", 1))}

    record = changed(results.evaluations["p2s"], many)
    for result in measure(render_report(make_results({"p2s": record}))).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 5


def test_names_of_models_that_score_alike_do_not_cover_each_other(
    measure: Callable[[str], dict[int, dict[str, Any]]], results: EvaluationResults
) -> None:
    def crowd(values: dict[str, Any]) -> None:
        one = values["evaluations"]["p2s"]
        values["evaluations"] = {f"method {number}": deepcopy(one) for number in range(6)}
        for number, record in enumerate(values["evaluations"].values()):
            record["p_comp"]["raw"]["map"] += 0.01 * (number % 3)
            record["p_up"]["raw"]["map"] += 0.005 * number

    for result in measure(render_report(changed(results, crowd))).values():
        assert result["charts"] == 9 + 6
        assert result["overlaps"] == []


@pytest.mark.parametrize("models", [1, 3])
def test_uncertainty_fits_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    hyperbolic: SimpleNamespace,
    make_results: Callable[..., EvaluationResults],
    models: int,
) -> None:
    names = ["hbct", *(f"hbct_with_another_name_that_is_long_{number}" for number in range(1, models))]
    results = make_results(dict.fromkeys(names, hyperbolic.evaluation))
    page = render_report(results, disks=dict.fromkeys(names, hyperbolic.disk))
    for result in measure(page).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 2 + 2 * models + (1 + models) + models  # scores, classes, curves, histograms, disks
        assert result["smallest"] >= 11


@pytest.mark.parametrize("labelled", [True, False])
def test_adapters_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], make_adapt: Callable[..., AdaptResults], labelled: bool
) -> None:
    results = measure(render_adapt_report(make_adapt(labelled=labelled)))
    for result in results.values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 3
        assert result["smallest"] >= 11


def test_many_adapters_of_long_names_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], make_adapt: Callable[..., AdaptResults]
) -> None:
    name = "a_very_long_name_without_any_place_to_break_" * 3
    candidates: dict[str, float | str] = {f"{name}{place}": 0.05 * place for place in range(20)}

    def rename(values: dict[str, Any]) -> None:
        for part in (*values["models"].values(), values["data"]):
            part["name"] = name
        values["data"]["sentences"] = [name]

    long = changed(make_adapt({**candidates, f"head {name}": 0.2, "failed": name * 2}, title=name), rename)
    for result in measure(render_adapt_report(long)).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []


@pytest.mark.parametrize("gain", [0.0, 0.004])
def test_references_beside_each_other_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], make_adapt: Callable[..., AdaptResults], gain: float
) -> None:

    def move(values: dict[str, Any]) -> None:
        old = values["systems"]["self_old"]
        values["systems"]["self_new"] = {
            "mean": old["mean"] + gain,
            "interval": [end + gain for end in old["interval"]],
        }

    beside = changed(make_adapt({"ridge": 0.5, "local": 0.2}), move)
    for result in measure(render_adapt_report(beside)).values():
        assert result["outside"] == []
        assert result["overlaps"] == []


LONG = "a_very_long_name_without_any_place_to_break_" * 2


@pytest.mark.parametrize(
    ("models", "alone", "charts"),
    [
        ({"e1": 1.6, "e2": 1.2}, None, 3),
        ({"e1": 1.6, "second": 1.2, "third": 0.9, "worse one": 1.5}, [1.0, 0.7, 0.6], 5),
        ({LONG + "x" * place: 1.7 - 0.1 * place for place in range(9)}, [1.0] * 8, 5),
    ],
)
def test_chains_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    make_chain: Callable[..., ChainResults],
    models: dict[str, float],
    alone: list[float] | None,
    charts: int,
) -> None:
    results = measure(render_chain_report(make_chain(models, alone, title="x" * 100)))
    for result in results.values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == charts
        assert result["smallest"] >= 11


@pytest.mark.parametrize("name", ["roxford", LONG])
def test_several_test_sets_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], make_combination: Callable[..., CombinationResults], name: str
) -> None:
    sets = make_combination({name: {}, "rparis": {"gate_metric": "recall@1"}, "gldv2": {"gate": "point"}})
    for result in measure(render_combined_report(sets)).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 2
        assert result["smallest"] >= 11


def test_a_page_of_clicks_fits_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]],
    clicked: Evaluation,
    make_results: Callable[..., EvaluationResults],
) -> None:
    for result in measure(render_report(make_results({"p2s": clicked}))).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == 3  # scores, their difference, agreement
