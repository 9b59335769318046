from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError
from limpet.methods import METHODS
from limpet_bench.reports.sessions import age_rows, render_sessions_report, session_rows, write_sessions_report
from limpet_bench.sessions.plans import disjoint
from limpet_bench.sessions.results import SessionsResults

from ...reports.pages import Page, assert_follows_the_scheme, assert_self_contained, misspelt_numbers, terms


def rendered(found: SimpleNamespace, document: dict[str, Any] | None = None) -> str:
    return render_sessions_report(SessionsResults.parse(document) if document else found.results, found.plan)


@pytest.fixture(scope="module")
def page(nine_learners: SimpleNamespace) -> str:
    return rendered(nine_learners)


def numbers(found: Any) -> Iterator[float]:
    for item in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from [item] if isinstance(item, int | float) else numbers(item)


def test_every_measured_number_is_written_on_the_page(nine_learners: SimpleNamespace, page: str) -> None:
    text, count, elsewhere = Page(page).text, 0, ("seconds", "best_epoch", "queries_by_home")
    for learner in nine_learners.results.to_dict()["learners"].values():
        for session in learner["sessions"]:
            times, epoch = session["seconds"], session["best_epoch"]
            for number in numbers({key: session[key] for key in session if key not in elsewhere}):
                assert (f"{number:.3f}" if isinstance(number, float) else f"{number:,}") in text, number
                count += 1
            assert all(f"{seconds:,.1f}" in text for seconds in times.values())
            assert f"{epoch + 1} of {session['epochs']}" in text
            assert session["fingerprint"] in text
        for number in (*learner["average_recall"].values(), learner["forgetting"]):
            assert f"{number:.3f}" in text
    assert count > 600


def test_the_page_is_sound_and_self_contained(page: str) -> None:
    assert_self_contained(page)


def test_the_page_follows_the_scheme_of_the_reader_and_prints(page: str) -> None:
    assert_follows_the_scheme(page)


def test_parts_come_in_the_order_of_interest(page: str) -> None:
    names = ("verdict", "recall", "age", "gallery", "cost", "plan", "numbers", "how")
    places = [page.index(f'<h2 id="{name}"') for name in names]
    assert places == sorted(places)
    assert page.index("cvs comes nearest to joint") < page.index("<b>Next:</b>") < places[1]


@pytest.mark.parametrize(
    ("name", "learners"), [("nine_learners", 9), ("one_learner", 1), ("blurry_learners", 3), ("without_bounds", 3)]
)
def test_every_comparison_has_all_its_charts(name: str, learners: int, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(name)
    page = rendered(found)
    growths = 1 + any(learner.gallery_policy == "reindex" for learner in found.results.learners.values())
    assert page.count('class="chart"') == learners + 2 * (4 + growths)  # all but the maps for desks and for phones
    for title in (
        "Recall@1 after every session",
        "Images by session",
        "Time by session",
    ):
        assert page.count(f"<title>{title}</title>") == 2, title
    text = Page(page).text
    assert "None" not in text and "nan" not in text.lower().split()


def test_terms_are_explained_where_they_occur(page: str, one_learner: SimpleNamespace) -> None:
    assert {"session", "AR@K", "bounds", "forgetting", "exemplars"} < set(terms(page))
    assert set(terms(page)) - set(terms(rendered(one_learner))) == {"bounds", "exemplars"}


def test_the_ranking_names_the_bounds_and_the_gap(nine_learners: SimpleNamespace, page: str) -> None:
    rows = page.partition('class="ranking"')[2].partition("</table>")[0].split("<tr>")[1:]
    text = [Page(f"<tr>{row.partition('</tr>')[0]}</tr>").text for row in rows]
    learners = nine_learners.results.learners
    lower, upper = (learners[name].average_recall["1"] for name in ("finetune", "joint"))
    assert text[0] == "learner AR@1 AR@2 AR@4 gap closed"
    assert [row.split()[0] for row in text[1:]] == sorted(learners, key=lambda n: -learners[n].average_recall["1"])
    for row in text[1:]:
        name, *_ = row.split()
        recall = learners[name].average_recall
        share = f"{100 * (recall['1'] - lower) / (upper - lower):.1f} %".replace("-", "−")
        role = {"joint": " upper bound", "finetune": " lower bound"}.get(name, "")
        assert row == f"{name}{role} {recall['1']:.3f} {recall['2']:.3f} {recall['4']:.3f} {share}"


def test_without_both_bounds_there_is_no_gap_and_no_band(blurry_learners: SimpleNamespace) -> None:
    page = rendered(blurry_learners)
    assert "gap closed" not in page and "grey band" not in page and "lower bound</small>" not in page
    assert "upper bound</small>" in page


def test_classes_known_from_the_start_are_told_otherwise(blurry_learners: SimpleNamespace, page: str) -> None:
    blurry = Page(rendered(blurry_learners)).text
    assert "all test queries search" in blurry and "major classes of each session" in blurry
    assert "classes at home, by session 10, 10, 10, 10" in blurry
    assert "all test queries of the classes known by then search" in Page(page).text
    assert "classes at home" not in page


def test_the_plan_the_settings_and_the_versions_are_told(nine_learners: SimpleNamespace, page: str) -> None:
    text = Page(page).text
    for told in (
        "photographs of a hundred things. 100 classes in 5 sessions (general-incremental).",
        "images to choose from 50,000",
        "test queries 5,000",
        "old share 0.1",
        "training images, by session 7,200, 7,992, 7,992, 7,956, 7,992",
        "exemplars kept, at most 2,000",
        "learning rate 0.03",
        "backbone resnet18",
        "options weight: 10.0",
        "memory herding",
        f"torch {nine_learners.results.versions['torch']}",
    ):
        assert told in text, told


def test_what_was_embedded_again_is_told(page: str, one_learner: SimpleNamespace) -> None:
    text = Page(page).text
    assert "76,716 images were embedded again, on top of the 39,132 that every gallery needs once." in text
    assert "Append-only: each of the 39,132 images was embedded once." in text
    assert "embedded in an earlier session, and again in this one" in text
    assert "<h3>cvs, rwalk, rainbow, lwf, mmd, ewc, finetune, bct</h3>" in page and "<h3>joint</h3>" in page
    assert "and again in this one" not in rendered(one_learner).replace("</title>", "").partition("<ul class")[2]


def test_a_comparison_that_was_cut_short_is_shown(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for learner in document["learners"].values():
        del learner["sessions"][1:]
        learner["forgetting"] = None
    text = Page(rendered(nine_learners, document)).text
    assert "in 5 sessions, of which 1 were run" in text
    assert "over 1 of 5 sessions" in text and "forgetting –" in text


def test_untrusted_text_is_escaped(nine_learners: SimpleNamespace) -> None:
    attack = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>\"'"
    document = nine_learners.results.to_dict()
    document["learners"][attack] = document["learners"].pop("cvs")
    document["title"] = document["data"]["name"] = document["data"]["description"] = attack
    document["model"] = document["recipe"] = document["plan"]["asked"] = {attack: attack}
    document["learners"][attack] |= {"method": attack, "memory": attack, "options": {attack: attack}}
    document["learners"][attack]["sessions"][0]["fingerprint"] = attack
    read = Page(rendered(nine_learners, document))
    assert not {"script", "img"} & set(read.tags)
    assert read.addresses == []
    assert attack in read.text


def test_a_report_of_a_file_equals_one_of_what_was_written(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    read = SessionsResults.load(nine_learners.results.save(tmp_path))
    path = write_sessions_report(read, nine_learners.plan, tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == rendered(nine_learners)
    assert path.stat().st_size < 400_000


def test_another_plan_is_refused(
    nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"plan 'general-incremental'.*'blurry'.* was given"):
        write_sessions_report(nine_learners.results, blurry_learners.plan, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_jinja_the_extra_is_named(nine_learners: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"\.\[report\]"):
        rendered(nine_learners)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_page_of_scores_that_are_all_alike(nine_learners: SimpleNamespace, share: float) -> None:
    document = nine_learners.results.to_dict()
    for learner in document["learners"].values():
        learner["average_recall"] = dict.fromkeys(learner["average_recall"], share)
        learner["forgetting"] = 0.0
        for session in learner["sessions"]:
            session["recall"] = dict.fromkeys(session["recall"], share)
            session["recall_by_home"] = [None if value is None else share for value in session["recall_by_home"]]
            session["seconds"] = {"training": 0.0, "rest": 0.0}
    text = Page(rendered(nine_learners, document)).text
    assert "The bounds are no bounds here" in text


def test_the_page_does_not_grow_with_the_classes(make_sessions: Callable[..., SimpleNamespace]) -> None:
    few, many = (
        make_sessions(disjoint(np.repeat(np.arange(count), 4), validation=1), ["cvs", "finetune"])
        for count in (10, 1_000)
    )
    assert len(rendered(many)) < 1.05 * len(rendered(few))


def test_rows_of_a_learner(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["joint"]
    columns, rows = session_rows(learner)
    assert len(columns) == len(rows[0]) == 14 and len(rows) == 5
    row = dict(zip(columns, rows[1], strict=True))
    assert (row["session"], row["queries"], row["epoch kept"]) == ("2", "2,000", "12 of 16")
    assert (row["gallery"], row["embedded"], row["replayed"]) == ("15,192", "15,192", "7,200")
    columns, rows = age_rows(learner)
    assert columns == ["after session", *(f"classes of session {session}" for session in range(1, 6))]
    assert [row.count("–") for row in rows] == [4, 3, 2, 1, 0]


def test_only_methods_that_exist_are_advised(nine_learners: SimpleNamespace) -> None:
    names = ["finetune", "joint", "cvs"]
    advised = set()
    for chosen in (["finetune"], ["finetune", "cvs"], ["cvs"], ["joint"]):
        document = nine_learners.results.to_dict()
        document["learners"] = {name: document["learners"][name] for name in chosen}
        document["bounds"] = {b: n if n in chosen else None for b, n in document["bounds"].items()}
        for words in re.findall(r"<code>--method ([^<]+)</code>", rendered(nine_learners, document)):
            advised |= set(words.split())
    assert advised == set(names)
    assert advised <= set(METHODS)


def test_numbers_are_spelt_in_one_way(page: str) -> None:
    assert misspelt_numbers(page) == []
