from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from limpet.reports.words import Finding
from limpet_bench.reports.sessions import (
    Standing,
    gap_closed,
    sessions_findings,
    sessions_headline,
    standing,
)
from limpet_bench.sessions.results import SessionsResults


def scored(found: SimpleNamespace, **averages: float) -> dict[str, Any]:
    """Return results of these learners alone, with other averages."""
    document: dict[str, Any] = found.results.to_dict()
    document["learners"] = {name: document["learners"][name] for name in averages}
    for name, average in averages.items():
        document["learners"][name]["average_recall"]["1"] = average
    bounds = document["bounds"]
    document["bounds"] = {bound: name if name in averages else None for bound, name in bounds.items()}
    return document


def stand(document: dict[str, Any]) -> Standing:
    return standing(SessionsResults.parse(document))


def said(document: dict[str, Any]) -> tuple[str, Finding]:
    """Return the headline and what is said about quality."""
    found = stand(document)
    quality, *_ = sessions_findings(found)
    return sessions_headline(found), quality


def test_the_leader_stands_between_the_bounds(nine_learners: SimpleNamespace) -> None:
    document = scored(nine_learners, finetune=0.5, joint=0.9, cvs=0.8, lwf=0.7, bct=0.45)
    headline, quality = said(document)
    assert headline == "cvs comes nearest to joint: AR@1 0.800, 0.100 less, with nothing embedded again."
    assert quality.sentences[0] == (
        "AR@1, recall@1 averaged over 5 sessions, is 0.800 with cvs, against 0.500 with finetune (the lower bound) and "
        "0.900 with joint (the upper bound). cvs closes 75.0\N{NO-BREAK SPACE}% of the gap between the bounds. "
        "lwf follows with 0.700."
    )
    assert quality.next_steps[0] == (
        "Train the next session with cvs and leave the gallery alone, unless 0.100 more AR@1 is worth embedding 76,716 "
        "images again."
    )
    assert quality.sentences[1:] == (
        "Below the lower bound: bct (0.450).",
        "One seed (0): how far these numbers depend on it was not measured.",
    )
    assert quality.steps == (("0.500", "finetune"), ("0.800", "cvs"), ("0.900", "joint"))


def test_the_share_of_the_gap_is_told_for_every_learner(nine_learners: SimpleNamespace) -> None:
    found = stand(scored(nine_learners, finetune=0.5, joint=0.9, cvs=0.8, lwf=0.95, bct=0.4))
    shares = {name: gap_closed(found, name) for name in ("finetune", "joint", "cvs", "lwf", "bct")}
    assert shares == pytest.approx({"finetune": 0.0, "joint": 1.0, "cvs": 0.75, "lwf": 1.125, "bct": -0.25})
    assert gap_closed(stand(scored(nine_learners, joint=0.9, cvs=0.8)), "cvs") is None


@pytest.mark.parametrize(
    ("averages", "headline", "next_step"),
    [
        (
            {"finetune": 0.5, "cvs": 0.4, "joint": 0.9},
            "No learner does better than finetune, the lower bound.",
            "Do not pay for any of the others yet",
        ),
        (
            {"joint": 0.7, "cvs": 0.8, "lwf": 0.6},
            "cvs finds even more than joint: AR@1 0.800, with nothing embedded again.",
            "embedding everything again would bring nothing here.",
        ),
        (
            {"joint": 0.8, "cvs": 0.8},
            "cvs finds as much as joint: AR@1 0.800, with nothing embedded again.",
            "embedding everything again would bring nothing here.",
        ),
        (
            {"finetune": 0.6, "joint": 0.8},
            "finetune stays below joint: AR@1 0.600, 0.200 less, with nothing embedded again.",
            "such as `--method cvs`",
        ),
        (
            {"finetune": 0.6, "cvs": 0.7},
            "cvs leads: AR@1 0.700, with nothing embedded again.",
            "Run `--method joint` beside it, to see how much there is to gain.",
        ),
        (
            {"lwf": 0.6, "cvs": 0.7},
            "cvs leads: AR@1 0.700, with nothing embedded again.",
            "Run `--method joint finetune` beside it, to see how much there is to gain and to lose.",
        ),
        (
            {"cvs": 0.7},
            "cvs reaches AR@1 0.700 over 5 sessions, with nothing embedded again.",
            "Run `--method joint finetune` beside it",
        ),
        (
            {"joint": 0.7},
            "joint reaches AR@1 0.700 over 5 sessions.",
            "Run a learner that embeds every image once beside it",
        ),
        (
            {"finetune": 0.6, "cvs": 0.71, "lwf": 0.705, "joint": 0.9},
            "cvs comes nearest to joint",
            "Repeat with other seeds (--seed) before you choose between cvs and lwf",
        ),
        (
            {"finetune": 0.6, "cvs": 0.605, "lwf": 0.5, "joint": 0.9},
            "cvs comes nearest to joint",
            "Repeat with other seeds (--seed) before you choose between cvs and finetune",
        ),
    ],
)
def test_every_standing_has_its_words(
    nine_learners: SimpleNamespace, averages: dict[str, float], headline: str, next_step: str
) -> None:
    found, quality = said(scored(nine_learners, **averages))
    assert found.startswith(headline)
    assert next_step in quality.next_steps[0]


def test_bounds_are_named_by_the_document_and_not_by_their_names(nine_learners: SimpleNamespace) -> None:
    document = scored(nine_learners, cvs=0.5, finetune=0.7, joint=0.9)
    document["bounds"] = {"lower": "cvs", "upper": "joint"}
    headline, quality = said(document)
    assert headline.startswith("finetune stays below joint") or headline.startswith("finetune comes nearest to joint")
    assert "0.500 with cvs (the lower bound)" in quality.sentences[0]
    assert "(the lower bound)" not in quality.sentences[0].partition("against")[0]


def test_bounds_in_the_wrong_order_enclose_nothing(nine_learners: SimpleNamespace) -> None:
    _, quality = said(scored(nine_learners, finetune=0.8, joint=0.7, cvs=0.9))
    assert "closes" not in quality.sentences[0]
    assert quality.sentences[1].startswith("The bounds are no bounds here: joint scores no more than finetune.")


def test_forgetting_is_told_with_the_oldest_classes(nine_learners: SimpleNamespace) -> None:
    document = scored(nine_learners, finetune=0.5, joint=0.9, cvs=0.8)
    for name, lost in (("finetune", 0.5), ("joint", -0.01), ("cvs", 0.125)):
        document["learners"][name]["forgetting"] = lost
    document["learners"]["cvs"]["sessions"][0]["recall_by_home"][0] = 0.9
    document["learners"]["cvs"]["sessions"][-1]["recall_by_home"][0] = 0.75
    _, forgetting, _ = sessions_findings(stand(document))
    assert forgetting.sentences[0] == (
        "Classes of earlier sessions lost 0.125 of their best recall@1 with cvs, against 0.500 with finetune (the "
        "lower bound) and −0.010 with joint (the upper bound). A negative loss is a gain. The classes of session 1 "
        "stood at 0.900 with cvs when they were new, and stand at 0.750 now."
    )
    assert forgetting.steps == (("0.500", "finetune"), ("0.125", "cvs"), ("−0.010", "joint"))
    assert forgetting.sentences[1:] == ()  # the upper bound lost nothing
    document["learners"]["joint"]["forgetting"] = 0.01
    _, forgetting, _ = sessions_findings(stand(document))
    assert forgetting.sentences[1].startswith("What joint loses is hardly forgetting")


def test_what_was_not_asked_is_not_told(nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace) -> None:
    document = scored(nine_learners, cvs=0.8)
    document["learners"]["cvs"]["forgetting"] = None
    assert [finding.name for finding in sessions_findings(stand(document))] == ["Quality", "Cost"]
    _, forgetting, _ = sessions_findings(standing(blurry_learners.results))
    assert forgetting.sentences[1:] == ()  # all classes are known from the start, so the search grows no harder
    document["learners"]["cvs"]["forgetting"] = 0.125
    first = document["learners"]["cvs"]["sessions"][0]
    first["recall_by_home"][0], first["queries_by_home"][0] = None, 0
    _, forgetting, _ = sessions_findings(stand(document))
    assert forgetting.sentences[0] == "Classes of earlier sessions lost 0.125 of their best recall@1 with cvs."


def test_cost_names_all_that_embedded_again(nine_learners: SimpleNamespace, without_bounds: SimpleNamespace) -> None:
    document = scored(nine_learners, finetune=0.5, joint=0.9, cvs=0.8)
    for name, minutes in (("finetune", 5), ("joint", 50), ("cvs", 25)):
        for session in document["learners"][name]["sessions"]:
            session["seconds"] = {"training": 10 * minutes, "rest": 2 * minutes}
    cost = sessions_findings(stand(document))[-1]
    assert cost.sentences[0].replace("\N{NO-BREAK SPACE}", " ") == (
        "All sessions together took 25 min with cvs, against 5.0 min with finetune (the lower bound) and 50 min with "
        "joint (the upper bound), on the machine that ran them. joint embedded 76,716 images again; the others none."
    )
    assert cost.sentences[1:] == ("cvs trained on up to 2,000 exemplars of earlier sessions at a time.",)
    assert (
        "No image was embedded for the gallery twice."
        in sessions_findings(standing(without_bounds.results))[-1].sentences[0]
    )


def test_a_comparison_that_was_cut_short_says_so(nine_learners: SimpleNamespace) -> None:
    document = scored(nine_learners, cvs=0.8)
    del document["learners"]["cvs"]["sessions"][3:]
    headline, quality = said(document)
    assert "over 3 of 5 sessions" in headline and "over 3 of 5 sessions" in quality.sentences[0]
