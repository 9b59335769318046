from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import (
    adapt_headline,
    adapt_table,
    curve_rows,
    render_adapt_report,
    write_adapt_report,
)
from limpet.reports.thresholds import round_thresholds, threshold_rows, threshold_words

from .changes import changed
from .pages import Page, assert_follows_the_scheme, assert_self_contained

Make = Callable[..., AdaptResults]


def headings(page: str) -> list[str]:
    return re.findall(r'<h2 id="(\w+)"', page)


def rows(page: str) -> list[str]:
    """Return the rows of the table of candidates as text."""
    table = page.partition('class="compared"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return [Page(f"<tr{row.partition('</tr>')[0]}</tr>").text for row in table.split("<tr")[1:]]


@pytest.fixture(scope="module")
def page(adapted: AdaptResults) -> str:
    return render_adapt_report(adapted)


def test_the_table_holds_every_row_of_the_document_in_order(adapted: AdaptResults, page: str) -> None:
    columns, expected = adapt_table(adapted)
    found = rows(page)
    assert len(found) == len(expected) == 11
    for row, cells in zip(found, expected, strict=True):
        failed = f"failed: {adapted.candidates[7].failed}"
        written = [*cells[:2], failed] if cells[0] == "identity" else cells
        assert row.split() == " ".join(written).split()
    head = Page(page.partition("<thead>")[2].partition("</thead>")[0]).text
    assert head == " ".join(columns)


def test_every_part_of_the_document_is_told(adapted: AdaptResults, page: str) -> None:
    text = Page(page).text
    told = [*adapted.data.sentences, adapted.suspects.sentence, *adapted.recommendation.sentences]
    told += [adapt_headline(adapted), threshold_words(adapted.thresholds)]
    told += [value for model in (adapted.models.old, adapted.models.new) for value in (model.name, model.fingerprint)]
    told += [f"{point.cross.mean:.3f}" for point in adapted.learning_curve.points]
    told += ["mini (old, 384 dimensions)", "large (new, 768 dimensions)", "of 150 classes", "5,000 items"]
    told += [f"torch {adapted.versions['torch']}", "95 % intervals of each score alone"]
    for part in told:
        assert " ".join(part.split()) in text, part


def test_parts_come_in_the_order_of_interest(adapted: AdaptResults, page: str) -> None:
    assert headings(page) == ["verdict", "candidates", "numbers", "pairs", "curve", "thresholds", "how"]
    assert page.index('class="headline">Adapt with residual_mlp') < page.index(adapted.recommendation.sentences[0])
    for title in ("Candidates by mAP", "Learning curve of residual_mlp", "Old thresholds as new ones"):
        assert page.count(f"<title>{title}</title>") == 2, title  # for desks and for phones


def test_the_steps_are_today_with_the_candidate_and_re_embedded(adapted: AdaptResults, page: str) -> None:
    best = adapted.named("residual_mlp")
    old, new = (score.mean for score in adapted.systems.by_name().values())
    steps = page.partition('<ol class="steps"')[2].partition("</ol>")[0]
    assert re.findall(r"<li(.*?)><b>(.*?)</b><span>(.*?)</span>", steps) == [
        ("", f"{old:.3f}", "today"),
        (' class="now"', f"{best.cross.mean:.3f}", "with residual_mlp"),
        ("", f"{new:.3f}", "re-embedded"),
    ]


def test_a_head_that_is_recommended_is_marked(adapted: AdaptResults) -> None:
    advice = {"action": "train a head", "candidate": "head ndpp", "sentences": ["Train it."]}
    page = render_adapt_report(changed(adapted, lambda values: values.update(recommendation=advice)))
    marked = page.partition('<tr class="advised">')[2].partition("</tr>")[0]
    assert "head ndpp" in marked and page.count('<tr class="advised">') == 1
    assert "with head ndpp" in page and "Train head ndpp: " in page


def test_the_best_candidate_is_told_where_none_is_recommended(adapted: AdaptResults) -> None:
    advice = {"action": "re-embed", "candidate": None, "sentences": ["Re-embed the gallery."]}
    page = render_adapt_report(changed(adapted, lambda values: values.update(recommendation=advice)))
    assert "<span>with head ndpp</span>" in page
    assert 'class="now"' not in page and '<tr class="advised">' not in page


def test_a_failed_candidate_stands_with_its_whole_reason(adapted: AdaptResults, page: str) -> None:
    reason = adapted.candidates[7].failed
    assert rows(page)[-2] == f"identity adapter failed: {reason}"
    broken = changed(adapted, lambda values: values["candidates"][7].update(failed=""))
    assert rows(render_adapt_report(broken))[-2] == "identity adapter failed:"


def test_what_is_not_known_leaves_no_section(make_adapt: Make) -> None:
    page = render_adapt_report(make_adapt({"ridge": 0.5}, thresholds=None, learning_curve=None, suspects=None))
    assert headings(page) == ["verdict", "candidates", "numbers", "pairs", "how"]
    assert "<dfn>head</dfn>" not in page and page.count('class="chart"') == 2
    curve = {"candidate": "ridge", "points": [], "enough": None}
    assert "curve" not in headings(render_adapt_report(make_adapt({"ridge": 0.5}, learning_curve=curve)))
    text = Page(page).text
    assert "None" not in text and "nan" not in text.lower().split()


def test_pairs_without_anything_to_say(make_adapt: Make) -> None:
    silent = changed(make_adapt({"ridge": 0.5}, suspects=None), lambda values: values["data"].update(sentences=[]))
    assert "What the pairs are like Nothing was odd." in Page(render_adapt_report(silent)).text


def test_nothing_but_failures_is_a_page_too(make_adapt: Make) -> None:
    page = render_adapt_report(make_adapt({"ridge": "too few pairs", "head ndpp": "too few classes"}))
    assert rows(page)[1:3] == ["ridge adapter failed: too few pairs", "head ndpp head failed: too few classes"]
    assert "nothing that was tried" in page


def test_without_labels_every_number_is_called_agreement(make_adapt: Make, page: str) -> None:
    unlabelled = render_adapt_report(make_adapt(labelled=False))
    text = Page(unlabelled).text
    assert "Provisional: without labels or judged queries, nobody can say which results are right" in text
    assert "without labels." in text and "unseen classes" not in text
    for wrong in ("the swap pays at once", "means that the candidate helps"):
        assert wrong not in text and wrong in Page(page).text
    assert "Provisional" not in page
    assert text.count("not correctness") >= 5


def test_the_page_is_sound_and_self_contained(page: str) -> None:
    assert_self_contained(page)


def test_the_page_follows_the_scheme_of_the_reader_and_prints(page: str) -> None:
    assert_follows_the_scheme(page)


def test_untrusted_text_is_escaped(adapted: AdaptResults) -> None:
    attack = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>\"'"

    def change(values: dict[str, Any]) -> None:
        values["title"] = values["data"]["name"] = attack
        values["data"]["sentences"] = values["recommendation"]["sentences"] = [attack]
        values["suspects"]["sentence"] = values["candidates"][7]["failed"] = attack
        values["models"]["old"] |= {"name": attack, "fingerprint": attack}
        values["versions"] = {attack: attack}
        values["candidates"][6]["name"] = values["recommendation"]["candidate"] = attack
        values["best_adapter"] = values["learning_curve"]["candidate"] = attack

    read = Page(render_adapt_report(changed(adapted, change)))
    assert not {"script", "img"} & set(read.tags)
    assert read.addresses == []
    assert read.text.count(attack) >= 10


def test_candidates_may_be_called_like_the_references(make_adapt: Make) -> None:
    page = render_adapt_report(make_adapt({"everything re-embedded": 0.5, "old model as it is": "why not"}))
    assert len(rows(page)) == 4 and rows(page)[1].startswith("everything re-embedded adapter")
    assert rows(page)[2] == "old model as it is adapter failed: why not"
    assert rows(page)[0].startswith("old model as it is – 0.") and rows(page)[3].startswith(
        "everything re-embedded – 0."
    )


def test_a_report_of_a_file_equals_one_of_the_document(adapted: AdaptResults, tmp_path: Path, page: str) -> None:
    path = write_adapt_report(AdaptResults.load(adapted.save(tmp_path)), tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == page
    assert path.stat().st_size < 150_000


def test_without_jinja_the_extra_is_named(adapted: AdaptResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"\.\[report\]"):
        render_adapt_report(adapted)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_page_of_scores_that_are_all_alike(adapted: AdaptResults, share: float) -> None:
    equal = {"mean": share, "interval": [share, share]}

    def change(values: dict[str, Any]) -> None:
        values["systems"] = {"self_old": equal, "self_new": equal}
        for found in (one for one in values["candidates"] if one["cross"]):
            found |= {"cross": equal, "recovered": None}
            found |= {
                key: {"mean": 0.0, "interval": [0.0, 0.0]} for key in ("cross_minus_self_old", "self_new_minus_cross")
            }
        for point in values["learning_curve"]["points"]:
            point["cross"] = equal

    results = changed(adapted, change)
    page = render_adapt_report(results)
    assert [row.split()[0] for row in rows(page)[1:-2]] == [found.name.split()[0] for found in results.by_score()[:-1]]
    assert "gain recovered" not in page


def test_rows_of_the_small_tables(adapted: AdaptResults) -> None:
    columns, found = curve_rows(adapted.learning_curve)
    assert columns == ["pairs", "cross"] and [row[0] for row in found][-2:] == ["2,048", "4,100"]
    first = adapted.learning_curve.points[0].cross
    assert found[0][1] == "{:.3f} [{:.3f}, {:.3f}]".format(first.mean, *first.interval)
    columns, found = threshold_rows(adapted.thresholds)
    assert columns == ["old threshold", "new threshold", "items that pass", "right before", "right after"]
    first = round_thresholds(adapted.thresholds)[0]
    assert found[0][:2] == [f"{first.old:g}", "{:.3f} [{:.3f}, {:.3f}]".format(first.new, *first.interval)]
    assert found[0][4] == "{:.3f} [{:.3f}, {:.3f}]".format(first.precision, *first.precision_interval)
