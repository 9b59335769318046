"""The page of a rehearsed upgrade says what was measured, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.galleries.drill_result import (
    Drill,
    Example,
    FirstHit,
    FirstHits,
    OrderCurve,
    Searches,
    Timing,
)
from holdfast.reports.drill_page import (
    drill_document,
    latency_rows,
    order_rows,
    render_drill_report,
    timing_rows,
    write_drill_report,
)
from holdfast.reports.drill_plots import drill_curves, first_hit_bars
from holdfast.reports.drill_words import drill_headline, next_step, order_finding, rollback_finding

from .pages import Page

SHARES = (0.0, 0.5, 1.0)
LABELLED = {"map": (0.5, 0.55, 0.7), "recall@1": (0.6, 0.65, 0.8)}
ALIKE = {"overlap@10 with old": (0.4, 0.3, 0.2), "overlap@10 with new": (0.3, 0.6, 1.0)}
RISES = ((0.1, 0.05, 0.15), (0.15, 0.1, 0.2), (0.3, 0.2, 0.4))
LOSES = ((0.1, 0.05, 0.15), (-0.15, -0.2, -0.1), (-0.3, -0.4, -0.2))
DIPS = (*LOSES[:2], RISES[2])
BETTER = {"map": RISES, "recall@1": RISES}

Make = Callable[..., dict[str, Any]]


def a_drill(**changes: Any) -> Drill:
    early = OrderCurve(SHARES, {**LABELLED, **ALIKE, "map": (0.5, 0.65, 0.7)}, BETTER)
    hit = FirstHit("shoe 7", 0.75, {"title": "running shoes", "price": 12.5}, True)
    found = Drill(
        gallery="shop",
        items=1_000_000,
        sampled=2_000,
        missing=0,
        old={"name": "g1", "note": "mini", "fingerprint": "declared:mini"},
        new={"name": "g2", "note": "large", "fingerprint": "declared:large"},
        linked="report",
        steps=("prepare", "swap", "backfill", "complete", "rollback"),
        metric="map",
        queries="given",
        asked=100,
        judged=50,
        before={"map": 0.4, "recall@1": 0.5, "overlap@10 with old": 1.0, "overlap@10 with new": 0.2},
        after_rollback={"map": 0.4, "recall@1": 0.5, "overlap@10 with old": 1.0, "overlap@10 with new": 0.2},
        rollback_equal=True,
        curves={"random": OrderCurve(SHARES, {**LABELLED, **ALIKE}, BETTER), "uncertainty": early},
        left_out={"traffic": "Nobody counted."},
        first_hits=(FirstHits(0.0, 0.5, 0.4, 0.2), FirstHits(0.5, 0.6, 0.5, 0.1), FirstHits(1.0, 0.7, 0.6, 0.0)),
        examples=(Example("q1", {"words": "shoes"}, hit, {0.0: hit, 1.0: replace(hit, id="shoe 8", right=False)}),),
        timings=(Timing("embed", 4.0, 2_000, 2_000.0), Timing("swap", 0.002, 0, 0.002)),
        searches=Searches(1_234, (), 0, 0, {"before": 0.4, "10 % re-embedded": 0.6, "50 % re-embedded": 0.9}),
        verdict="ready",
        seed=3,
    )
    return replace(found, **changes)


@pytest.fixture
def make() -> Make:
    return lambda **changes: json.loads(json.dumps(drill_document(a_drill(**changes).to_dict(), "From mini to large")))


def unlabelled(make: Make, **changes: Any) -> dict[str, Any]:
    curve = OrderCurve(SHARES, ALIKE, None)
    first = tuple(FirstHits(share, 0.5, None, None) for share in SHARES)
    before = {name: value for name, value in a_drill().before.items() if name.startswith("overlap")}
    return make(
        verdict="unlabelled", metric="overlap@10 with new", judged=0, curves={"random": curve}, first_hits=first,
        before=before, after_rollback=before, **changes,
    )  # fmt: skip


def test_every_part_is_told(make: Make) -> None:
    page = render_drill_report(make())
    text = Page(page).text
    assert re.findall(r'<h2 id="(\w+)"', page) == ["verdict", "curve", "first", "back", "time", "how"]
    for part in (
        "Ready: mAP goes from 0.400 to 0.500 at the swap and 0.700 at the end (among 2,000 of the 1,000,000 items), "
        "and neither it nor the first hit is ever measurably below today.",
        "from mini to large, on 2,000 of 1,000,000 items and with 100 queries",
        "1,234 queries searched meanwhile; none failed",
        "the difference to today is +0.100 mAP (+0.050 to +0.150) and +0.100 recall@1 (+0.050 to +0.150); in brackets "
        "95 % of resampled sets of queries, whole classes where several share one.",
        "holdfast gallery backfill --order uncertainty",
        "The order traffic was left out. Nobody counted.",
        "shoe 8 title: running shoes price: 12.5",
        "all 100 old queries found exactly what they found before the swap",
        "Embedding all 1,000,000 items would take about 33 min",
        "a compatibility report lets new queries search old vectors as they are",
        "declared:large",
    ):
        assert " ".join(part.split()) in text, part
    for title in ("mAP during the backfill", "recall@1 during the backfill", "First hits compared with today"):
        assert page.count(f"<title>{title}</title>") == 2, title  # for desks and for phones


@pytest.mark.parametrize(
    ("changes", "headline", "tone", "step"),
    [
        ({"verdict": "dips", "curves": {"id": OrderCurve(SHARES, {**LABELLED, "map": (0.5, 0.3, 0.7)},
                                                         {"map": DIPS, "recall@1": DIPS})}},
         "It works, but finds less for a while: mAP is 0.400 today, 0.300 with 50 % re-embedded, and 0.700",
         "inconclusive", "before the swap"),
        ({"verdict": "dips", "curves": {"id": OrderCurve(SHARES, {**LABELLED, "recall@1": (0.6, 0.1, 0.8)},
                                                         {"map": RISES, "recall@1": DIPS})}},
         "finds less at the first hit for a while: recall@1 is 0.500 today, 0.100 with 50 % re-embedded, and 0.800",
         "inconclusive", "before the swap"),
        ({"verdict": "mixed", "curves": {"id": OrderCurve(SHARES, {**LABELLED, "recall@1": (0.6, 0.1, 0.2)},
                                                          {"map": RISES, "recall@1": LOSES})}},
         "the new model finds less at the first hit: recall@1 0.500 today, 0.200 at the end; mAP 0.400 today, 0.700",
         "inconclusive", "look at the examples"),
        ({"verdict": "no gain"}, "nothing shows that the new model finds more: mAP 0.400 today, 0.700", "inconclusive",
         "look at the examples"),
        ({"verdict": "worse"}, "the new model finds less: mAP 0.400 today", "not-compatible", "keep the old model"),
        ({"verdict": "ready", "linked": "none"}, "mAP stays at 0.400 until the swap, which comes last, and is 0.700",
         "compatible", "`backfill` all items, then `swap`"),
        ({"verdict": "failed", "rollback_equal": False, "searches": Searches(9, ("no room",), 3, 4, {})},
         "Do not upgrade yet: a search failed; 3 answers did not see every item once; 4 answers were not the nearest "
         "items; old queries find something else after the rollback.", "not-compatible", "doctor"),
    ],
)  # fmt: skip
def test_every_verdict_has_its_words(changes: Any, headline: str, tone: str, step: str, make: Make) -> None:
    document = make(**changes)
    said = drill_headline(document).replace("\N{NO-BREAK SPACE}", " ")
    assert headline in said and step in next_step(document)
    page = render_drill_report(document)
    assert f'<article class="finding {tone}">' in page
    assert ("no room" in Page(page).text) == (changes["verdict"] == "failed")
    assert ("none failed" in Page(page).text) == (changes["verdict"] != "failed")
    assert ("This must not be" in rollback_finding(document)) == (changes["verdict"] == "failed")


def test_without_labels_nothing_is_called_right(make: Make) -> None:
    document = unlabelled(make)
    text = Page(render_drill_report(document)).text
    assert "at the end 50 % of the queries find another item first" in text
    assert "agreement is not correctness" in text and "drawn at random" in text
    assert "mAP" not in text and "recall" not in text and "wrong before" not in text
    assert "overlap@10 with new" in text and "None" not in text and "nan" not in text.split()


def test_a_drill_of_an_earlier_version_is_drawn(make: Make) -> None:
    """It told differences of the main metric alone."""
    document = make()
    for curve in document["curves"].values():
        curve["differences"] = curve["differences"]["map"]
    page = Page(render_drill_report(document)).text
    assert "the difference to today is +0.100 mAP (+0.050 to +0.150);" in page


def test_charts_hold_their_numbers(make: Make) -> None:
    document = make()
    drawn = unescape(drill_curves(document, "map", width=520))
    assert "Today 0.400. random: 0.500 at 0\xa0%, 0.550 at 50\xa0%, 0.700 at 100\xa0%; on average 0.575." in drawn
    assert drawn.count('class="route') == 2 and drawn.count('class="likely"') == 1
    assert drill_curves(document, "recall@1").count('class="likely"') == 1
    assert drill_curves(document, "overlap@10 with old").count('class="likely"') == 0
    bars = unescape(first_hit_bars(document, width=640))
    assert "after the swap: 20\xa0% wrong before, right now, 10\xa0% right before, wrong now, 20\xa0% another" in bars
    widths = [float(found) for found in re.findall(r'class="bar \w+"[^>]*width="([\d.]+)"', bars)]
    assert sum(widths[:4]) == pytest.approx(sum(widths[4:8]), abs=0.1)
    stepped = drill_curves(make(linked="none"), "map")
    (level, corner, end) = re.findall(r'class="route order-0" d="M(.*?)"', stepped)[0].split("L")[-3:]
    assert corner.split()[0] == end.split()[0] and corner.split()[1] == level.split()[1]


def test_tables(make: Make) -> None:
    document = make()
    columns, rows = order_rows(document)
    assert [row[0] for row in rows] == ["uncertainty", "random"] and rows[1][1:] == ["0.575", "0.500", "0.550", "0.700"]
    assert columns[:2] == ["mAP, re-embedded", "on average"]
    assert timing_rows(document)[1] == [
        ["embed the items with the new model", "4.0\xa0s", "33\xa0min"],
        ["swap: the new model becomes the active one", "2.0\xa0ms", "the same"],
    ]
    assert [row[0] for row in latency_rows(document)[1]] == ["before", "50 % re-embedded"]
    assert "+0.050 above the order that pays least" in order_finding(document)
    assert "hardly matters" in order_finding(
        make(curves={name: a_drill().curves["random"] for name in ("id", "random")})
    )


def test_the_page_is_sound_and_self_contained(make: Make, tmp_path: Path) -> None:
    path = write_drill_report(make(), tmp_path)
    page = path.read_text(encoding="utf-8")
    read = Page(page)
    assert path.name == "drill.html" and page.lstrip().startswith("<!DOCTYPE html>")
    assert not {"script", "link", "iframe", "img"} & set(read.tags) and read.addresses == []
    assert page.replace("http://www.w3.org/2000/svg", "").count("://") == 0 and "url(" not in page
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) <= set(re.findall(r"(--[a-z-]+):", style))


def test_untrusted_text_is_escaped(make: Make) -> None:
    attack = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>\"'"
    hit = FirstHit(attack, 1.0, {attack: attack}, None)
    document = make(
        gallery=attack, left_out={attack: attack}, examples=(Example(attack, {attack: attack}, hit, {0.0: hit}),),
        searches=Searches(1, (attack,), 0, 0, {attack: 1.0}), verdict="failed",
        old={"name": attack, "note": attack, "fingerprint": attack},
    )  # fmt: skip
    document["title"] = attack
    read = Page(render_drill_report(document))
    assert not {"script", "img"} & set(read.tags) and read.addresses == []
    assert read.text.count(attack) >= 10


def test_other_documents_are_refused(make: Make, tmp_path: Path) -> None:
    for wrong in ({"kind": "adapt"}, {name: value for name, value in make().items() if name != "verdict"}):
        with pytest.raises(ConfigError, match="verdict"):
            write_drill_report(wrong, tmp_path)
    assert not list(tmp_path.iterdir())
