"""The page of a rehearsed upgrade says what was measured, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet.galleries.rehearsal.results import (
    ChangedQuery,
    FirstHit,
    FirstHitChanges,
    OrderCurve,
    Rehearsal,
    RehearsedModel,
    Searches,
    Timing,
    TwoStages,
)
from limpet.reports.plots.bars import first_hit_bars
from limpet.reports.plots.lines import rehearsal_curves
from limpet.reports.rehearsal import (
    latency_rows,
    next_step,
    order_rows,
    rehearsal_headline,
    rehearsal_markdown,
    render_rehearsal_report,
    timing_rows,
    two_stage_rows,
    write_rehearsal_report,
)

from .pages import Page, assert_follows_the_scheme, assert_self_contained
from .specs import assert_page_ready, points, told
from .specs import rows as rows_of

SHARES = (0.0, 0.5, 1.0)
LABELLED = {"map": (0.5, 0.55, 0.7), "recall@1": (0.6, 0.65, 0.8)}
ALIKE = {"overlap@10 with old": (0.4, 0.3, 0.2), "overlap@10 with new": (0.3, 0.6, 1.0)}
RISES = ((0.1, 0.05, 0.15), (0.15, 0.1, 0.2), (0.3, 0.2, 0.4))
LOSES = ((0.1, 0.05, 0.15), (-0.15, -0.2, -0.1), (-0.3, -0.4, -0.2))
DIPS = (*LOSES[:2], RISES[2])
BETTER = {"map": RISES, "recall@1": RISES}

HELD = Searches(
    made=1_234,
    failed=(),
    incomplete=0,
    wrong=0,
    milliseconds={"before": 0.4, "10 % re-embedded": 0.6, "50 % re-embedded": 0.9},
)

SPOILED = HELD.model_copy(update={"failed": ("no room",), "incomplete": 3, "wrong": 4})


def first_hits(share: float, changed: float, fixed: float | None, broken: float | None) -> FirstHitChanges:
    return FirstHitChanges(share=share, changed=changed, fixed=fixed, broken=broken)


def rehearsed(**changes: Any) -> Rehearsal:
    early = OrderCurve.of(SHARES, {**LABELLED, **ALIKE, "map": (0.5, 0.65, 0.7)}, BETTER)
    hit = FirstHit(id="shoe 7", score=0.75, metadata={"title": "running shoes", "price": 12.5}, right=True)
    other = hit.model_copy(update={"id": "shoe 8", "right": False})
    found: dict[str, Any] = {
        "title": "From mini to large",
        "gallery": "shop",
        "items": 1_000_000,
        "sampled": 2_000,
        "missing": 0,
        "old": RehearsedModel(name="g1", note="mini", fingerprint="declared:mini"),
        "new": RehearsedModel(name="g2", note="large", fingerprint="declared:large"),
        "linked": "report",
        "steps": ("start", "swap", "backfill", "rollback", "finish"),
        "metric": "map",
        "queries": "given",
        "asked": 100,
        "judged": 50,
        "before": {"map": 0.4, "recall@1": 0.5, "overlap@10 with old": 1.0, "overlap@10 with new": 0.2},
        "after_rollback": {"map": 0.4, "recall@1": 0.5, "overlap@10 with old": 1.0, "overlap@10 with new": 0.2},
        "rollback_equal": True,
        "curves": {"random": OrderCurve.of(SHARES, {**LABELLED, **ALIKE}, BETTER), "uncertainty": early},
        "left_out": {"traffic": "Nobody counted."},
        "first_hits": (first_hits(0.0, 0.5, 0.4, 0.2), first_hits(0.5, 0.6, 0.5, 0.1), first_hits(1.0, 0.7, 0.6, 0.0)),
        "examples": (ChangedQuery(query="q1", metadata={"words": "shoes"}, old=hit, new={0.0: hit, 1.0: other}),),
        "timings": (
            Timing(step="embed", seconds=4.0, items=2_000, full_seconds=2_000.0),
            Timing(step="swap", seconds=0.002, items=0, full_seconds=0.002),
        ),
        "searches": HELD,
        "verdict": "ready",
        "seed": 3,
    }
    values = found | changes
    return Rehearsal.of(**values, passed=values["verdict"] != "failed")


def unlabelled() -> Rehearsal:
    curve = OrderCurve.of(SHARES, ALIKE, None)
    first = tuple(first_hits(share, 0.5, None, None) for share in SHARES)
    before = {name: value for name, value in rehearsed().before.items() if name.startswith("overlap")}
    return rehearsed(
        verdict="unlabelled", metric="overlap@10 with new", judged=0, curves={"random": curve}, first_hits=first,
        before=before, after_rollback=before,
    )  # fmt: skip


def in_two_stages(**changes: Any) -> TwoStages:
    found: dict[str, Any] = {
        "candidates": 100,
        "values": {"map": 0.66, "recall@1": 0.77, "overlap@10 with old": 0.31, "overlap@10 with new": 0.88},
        "differences": {"map": (0.26, 0.21, 0.31), "recall@1": (0.27, 0.2, 0.33)},
        "encoded_per_query": 9.25,
        "encoded": 0.4625,
        "first_milliseconds": 321.0,
        "again_milliseconds": 1.5,
    }
    return TwoStages(**found | changes)


def test_rehearsal_headline_names_the_net_change_of_first_hits() -> None:
    gains = dict.fromkeys(("map", "recall@1"), ((0.0, -0.1, 0.1), (0.1, 0.0, 0.2), (0.25, 0.125, 0.375)))
    found = rehearsed(curves={"random": OrderCurve.of(SHARES, {**LABELLED, **ALIKE}, gains)})
    hits = found.net_first_hits
    assert hits is not None and (hits.net, hits.interval) == (0.25, (0.125, 0.375))
    assert (hits.before, hits.healed, hits.broken) == (0.5, 0.6, 0.0)
    assert "net +25.0" in rehearsal_headline(found)
    assert unlabelled().net_first_hits is None and "net" not in rehearsal_headline(unlabelled())


def test_every_part_is_told() -> None:
    page = render_rehearsal_report(rehearsed())
    text = Page(page).text
    assert re.findall(r'<h2 id="(\w+)"', page) == ["verdict", "curve", "first", "back", "time", "how"]
    for part in (
        "Ready: mAP goes from 0.400 to 0.500 at the swap and 0.700 at the end (among 2,000 of the 1,000,000 items), "
        "and neither it nor the first hit is ever measurably below today.",
        "from mini to large, on 2,000 of 1,000,000 items and with 100 queries",
        "1,234 queries searched meanwhile; none failed",
        "the difference to today is +0.100 mAP (+0.050 to +0.150) and +0.100 recall@1 (+0.050 to +0.150); in brackets "
        "95 % of resampled sets of queries, whole classes where several share one.",
        "limpet upgrade backfill --order uncertainty",
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
        ({"verdict": "dips", "curves": {"id": OrderCurve.of(SHARES, {**LABELLED, "map": (0.5, 0.3, 0.7)},
                                                         {"map": DIPS, "recall@1": DIPS})}},
         "It works, but finds less for a while: mAP is 0.400 today, 0.300 with 50 % re-embedded, and 0.700",
         "inconclusive", "before the swap"),
        ({"verdict": "dips", "curves": {"id": OrderCurve.of(SHARES, {**LABELLED, "recall@1": (0.6, 0.1, 0.8)},
                                                         {"map": RISES, "recall@1": DIPS})}},
         "finds less at the first hit for a while: recall@1 is 0.500 today, 0.100 with 50 % re-embedded, and 0.800",
         "inconclusive", "before the swap"),
        ({"verdict": "mixed", "curves": {"id": OrderCurve.of(SHARES, {**LABELLED, "recall@1": (0.6, 0.1, 0.2)},
                                                          {"map": RISES, "recall@1": LOSES})}},
         "the new model finds less at the first hit: recall@1 0.500 today, 0.200 at the end; mAP 0.400 today, 0.700",
         "inconclusive", "look at the examples"),
        ({"verdict": "no gain"}, "nothing shows that the new model finds more: mAP 0.400 today, 0.700", "inconclusive",
         "look at the examples"),
        ({"verdict": "worse"}, "the new model finds less: mAP 0.400 today", "not-compatible", "keep the old model"),
        ({"verdict": "ready", "linked": "none"}, "mAP stays at 0.400 until the swap, which comes last, and is 0.700",
         "compatible", "`limpet upgrade backfill`, then `limpet upgrade swap`"),
        ({"verdict": "failed", "rollback_equal": False, "searches": SPOILED},
         "Do not upgrade yet: a search failed; 3 answers did not see every item once; 4 answers were not the nearest "
         "items; old queries find something else after the rollback.", "not-compatible", "doctor"),
    ],
)  # fmt: skip
def test_every_verdict_has_its_words(changes: Any, headline: str, tone: str, step: str) -> None:
    results = rehearsed(**changes)
    said = rehearsal_headline(results).replace("\N{NO-BREAK SPACE}", " ")
    assert headline in said and step in next_step(results)
    page = render_rehearsal_report(results)
    assert f'<article class="finding {tone}">' in page
    assert ("no room" in Page(page).text) == (changes["verdict"] == "failed")
    assert ("none failed" in Page(page).text) == (changes["verdict"] != "failed")
    assert ("This must not be" in page) == (changes["verdict"] == "failed")


def test_without_labels_nothing_is_called_right() -> None:
    results = unlabelled()
    text = Page(render_rehearsal_report(results)).text
    assert "at the end 50 % of the queries find another item first" in text
    assert "agreement is not correctness" in text and "drawn at random" in text
    assert "mAP" not in text and "recall" not in text and "wrong before" not in text
    assert "overlap@10 with new" in text and "None" not in text and "nan" not in text.split()


def test_the_band_of_a_score_stays_within_the_range_of_scores() -> None:
    wide = ((0.1, -0.9, 0.95), (0.15, -0.5, 0.9), (0.3, 0.2, 0.8))
    curves = {"id": OrderCurve.of(SHARES, {**LABELLED, **ALIKE}, {"map": wide, "recall@1": RISES})}
    band = rows_of(rehearsal_curves(rehearsed(curves=curves), "map", width=520), "likely")
    assert min(row["y"] for row in band) == 0 and max(row["y2"] for row in band) == 1


def test_charts_hold_their_numbers() -> None:
    results = rehearsed()
    chart = rehearsal_curves(results, "map", width=520)
    assert_page_ready(chart)
    assert "Today 0.400. random: 0.500 at 0\xa0%, 0.550 at 50\xa0%, 0.700 at 100\xa0%; on average 0.575." in told(chart)
    for name, found in results.curves.items():
        expected = list(zip(found.shares, found.values["map"], strict=True))
        assert points(chart, name) == expected == points(chart, f"at {name}")
    for metric, banded in (("map", True), ("recall@1", True), ("overlap@10 with old", False)):
        assert bool(rows_of(rehearsal_curves(results, metric), "likely")) == banded
    for width in (640.0, 350.0):
        bars = first_hit_bars(results, width=width)
        assert_page_ready(bars)
        swapped = "after the swap: 20\xa0% wrong before, right now, 10\xa0% right before, wrong now, 20\xa0% another"
        assert swapped in told(bars)
    level, corner, end = points(rehearsal_curves(rehearsed(linked="none"), "map"), "random")[-3:]
    assert corner[0] == end[0] and corner[1] == level[1] != end[1]


def test_tables() -> None:
    results = rehearsed()
    columns, rows = order_rows(results)
    assert [row[0] for row in rows] == ["uncertainty", "random"] and rows[1][1:] == ["0.575", "0.500", "0.550", "0.700"]
    assert columns[:2] == ["mAP, re-embedded", "on average"]
    assert timing_rows(results)[1] == [
        ["embed the items with the new model", "4.0 s", "33 min"],
        ["swap: the new model becomes the active one", "2.0 ms", "the same"],
    ]
    assert [row[0] for row in latency_rows(results)[1]] == ["before", "50 % re-embedded"]
    assert "+0.050 above the order that pays least" in render_rehearsal_report(results)
    alike = rehearsed(curves={name: rehearsed().curves["random"] for name in ("id", "random")})
    assert "hardly matters" in render_rehearsal_report(alike)


def test_two_stage_search_is_told_beside_the_others() -> None:
    results = rehearsed(two_stage=in_two_stages())
    said = Page(render_rehearsal_report(results)).text
    for words in (
        "100 candidates",
        "mAP 0.660",
        "+0.260 to today (+0.210 to +0.310)",
        "321 ms",
        "1.5 ms",
        "46 %",
        "9.2",
    ):
        assert words in said
    columns, rows = two_stage_rows(results)
    assert [row[0] for row in rows] == ["today", "in two stages", "after the swap", "all re-embedded"]
    assert rows[1][1:4] == ["0.660", "0.770", "0.880"] and rows[0][1:4] == ["0.400", "0.500", "0.200"]
    assert all(len(row) == len(columns) for row in rows)
    text = Page(render_rehearsal_report(results)).text
    assert "Two-stage search instead" in text and "0.660" in text
    assert "## Two-stage search" in rehearsal_markdown(results)
    bare = rehearsed()
    assert two_stage_rows(bare) is None
    assert "Two-stage" not in Page(render_rehearsal_report(bare)).text
    quiet = unlabelled().model_copy(
        update={"two_stage": in_two_stages(differences=None, values={"overlap@10 with new": 0.8})}
    )
    assert ", +0.260 to today" not in render_rehearsal_report(quiet)


def test_the_page_is_sound_and_self_contained(tmp_path: Path) -> None:
    path = write_rehearsal_report(rehearsed(), tmp_path)
    page = path.read_text(encoding="utf-8")
    assert path.name == "rehearsal.html"
    assert_self_contained(page)
    assert_follows_the_scheme(page)


def test_untrusted_text_is_escaped() -> None:
    attack = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>\"'"
    hit = FirstHit(id=attack, score=1.0, metadata={attack: attack}, right=None)
    example = ChangedQuery(query=attack, metadata={attack: attack}, old=hit, new={0.0: hit})
    results = rehearsed(
        gallery=attack, left_out={attack: attack}, examples=(example,), title=attack, verdict="failed",
        searches=Searches(made=1, failed=(attack,), incomplete=0, wrong=0, milliseconds={attack: 1.0}),
        old=RehearsedModel(name=attack, note=attack, fingerprint=attack),
    )  # fmt: skip
    read = Page(render_rehearsal_report(results))
    assert not {"script", "img"} & set(read.tags) and read.addresses == []
    assert read.text.count(attack) >= 10


def test_other_documents_are_refused(tmp_path: Path) -> None:
    document = rehearsed().to_dict()
    assert (document["kind"], document["schema_version"]) == ("rehearsal", 1)
    file = tmp_path / "rehearsal.json"
    for wrong, said in (
        ({"schema_version": 1, "kind": "adapt"}, f"'{file}': results of the kind 'adapt'.*limpet upgrade rehearse"),
        ({name: value for name, value in document.items() if name != "verdict"}, "Field required at 'verdict'"),
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match=f"(?s){said}"):
            Rehearsal.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "overlap@10 with new"}, "metric is 'overlap@10 with new'"),
        ({"judged": 101}, "judged is 101"),
        ({"missing": 2_001}, "missing is 2001"),
        ({"after_rollback": {"map": 0.4}}, "after_rollback is of map"),
        ({"before": {"map": 1.4}}, "less than or equal to 1 at 'before.map'"),
        ({"curves": {}}, "'curves'"),
        ({"curves": {"id": {"shares": [0, 1], "values": {"map": [0.5]}, "differences": None, "area": {"map": 0.5}}}},
         r"curves.id is of \[1\] points"),
        ({"curves": {"id": {"shares": [1], "values": {"cmc": [0.5]}, "differences": None, "area": {"cmc": 0.5}}}},
         "curves.id.area is of cmc"),
        ({"curves": {"id": {"shares": [1], "values": {"map": [0.5]}, "differences": {"cmc": [[0, 0, 0]]},
                            "area": {"map": 0.5}}}}, "curves.id.differences is of cmc"),
        ({"two_stage": in_two_stages(values={"map": 0.5}).model_dump()}, "two_stage.values is of map"),
        ({"verdict": "unlabelled"}, "verdict is 'unlabelled'"),
        ({"passed": False}, "passed is False"),
        ({"timings": []}, "timings is of"),
    ],
)  # fmt: skip
def test_parts_that_contradict_each_other_are_refused(changes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Rehearsal.parse({**rehearsed().to_dict(), **changes})
