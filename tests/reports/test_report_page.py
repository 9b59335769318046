from __future__ import annotations

import base64
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.examples import Example, choose_examples
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.reports.evaluation import render_report, write_report
from option_names import commands as known_commands
from option_names import option_names

from .changes import changed
from .pages import Page, assert_self_contained


@pytest.fixture(scope="module")
def examples(simulated: SimpleNamespace, evaluations: dict[str, Evaluation]) -> dict[str, list[Example]]:
    def of(name: str) -> list[Example]:
        old, new = simulated.old, simulated.new[name]
        return choose_examples(evaluations[name], old, old, new, new, exclude_same_id=True, count=4)

    return {name: of(name) for name in ("p2s", "same")}


def picture(name: str) -> np.ndarray:
    return np.full((1, 8, 8), int(name.removeprefix("item")), np.uint8)


@pytest.fixture(scope="module")
def page(results: EvaluationResults, examples: dict[str, list[Example]]) -> str:
    return render_report(results, examples=examples, picture=picture)


def numbers(found: Any) -> Iterator[float]:
    if isinstance(found, dict | list | tuple):
        for item in found.values() if isinstance(found, dict) else found:
            yield from numbers(item)
    elif isinstance(found, float):
        yield found


def test_every_measured_number_is_on_the_page(results: EvaluationResults, page: str) -> None:
    text = Page(page).text
    count = 0
    for record in results.to_dict()["evaluations"].values():
        shown = ("negative_flip_rate", "positive_flip_rate", "upgrade_curve", "class_change", "first_hits")
        elsewhere = ("protocol", "ties", *shown)
        parts = {key: record[key] for key in record if key not in elsewhere}
        curve = {key: record["upgrade_curve"][key] for key in ("values", "area")}
        for number in numbers([parts, curve]):
            assert f"{abs(number):.3f}" in text or abs(number) < 0.0005, number
            count += 1
        shares = {key: record["class_change"][key] for key in ("better", "worse")}
        hits = {key: abs(record["first_hits"][key]) for key in ("healed", "broken", "net")}
        for number in numbers([record["negative_flip_rate"], record["positive_flip_rate"], shares, hits]):
            assert f"{100 * number:.1f} %" in text
        for one in (*record["class_change"]["worst"], *record["class_change"]["best"]):
            assert one["name"] in text
            for number in (one["before"], one["after"], one["change"]):
                assert f"{abs(number):.3f}" in text or abs(number) < 0.0005
    assert count > 400


def test_every_number_of_each_part_stands_in_its_table(results: EvaluationResults, page: str) -> None:
    rows = page.split("<tr>")
    record = results.evaluations["p2s"]
    for metric in ("recall@1", "map@r"):
        cross, (low, high) = record.cross[metric], record.mean_interval["cross"][metric]
        wanted = f"<td>{cross:.3f} <small>[{low:.3f}, {high:.3f}]</small></td>"
        assert any("new queries, old gallery: cross</th>" in row and wanted in row for row in rows)
    value = record.upgrade_curve.values["margin"][10]
    assert any('<th scope="row">50\N{NO-BREAK SPACE}%</th>' in row and f"<td>{value:.3f}</td>" in row for row in rows)


def test_the_page_is_sound_and_self_contained(page: str) -> None:
    assert_self_contained(page, pictures=True)


def test_the_order_is_verdict_charts_examples_numbers_method(page: str) -> None:
    places = [
        page.index(f'<h2 id="{name}"')
        for name in ("scores", "classes", "trade-off", "curve", "examples", "numbers", "how")
    ]
    assert places == sorted(places)
    assert page.index("1 of 3 new models can search your old gallery today: p2s (first hits net ") < places[0]
    assert page.index("p2s: <span") < places[0]


def test_every_term_is_explained(page: str) -> None:
    text = Page(page).text
    for term in (
        "self-test",
        "cross-test",
        "compatible",
        "P_up",
        "P_comp",
        "negative flip",
        "first hits",
        "p",
        "backfill",
        "mAP",
        "interval",
    ):
        assert f"<dfn>{term}</dfn>: " in page, term
    assert "mAP : mean average precision" in text


def test_the_protocol_and_the_models_are_told(results: EvaluationResults, page: str) -> None:
    text = Page(page).text
    for words in (
        "leave one out yes",
        "protocol labels: items of the query's class answer it",
        "units queries",
        "metrics recall@1, recall@5, mAP, mAP@R",
        "queries without relevant items 0",
        "bootstrap resamples 200",
        "bootstrap seed 0",
        "declared:old",
        "declared:independent",
        "weight: 1.5",
        f"torch {results.versions['torch']}",
        "interval on mAP",
        "classes 12",
    ):
        assert words in text, words


def test_untrusted_text_is_escaped(
    results: EvaluationResults, examples: dict[str, list[Example]], simulated: SimpleNamespace
) -> None:
    attack = "<script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>\"'"

    def attacked(values: dict[str, Any]) -> None:
        values["evaluations"] = {attack: values["evaluations"]["p2s"]}
        values["title"] = values["data"]["name"] = values["data"]["description"] = attack
        values["models"] = {attack: {attack: attack, "options": {attack: attack}}}
        values["evaluations"][attack]["fingerprints"]["new"]["fingerprint"] = attack

    hostile = changed(results, attacked)
    sample = examples["p2s"][0]
    found = type(sample.cross)((attack,), (attack,), (False,))
    chosen = [Example(attack, attack, "flipped", found, found, found)]
    for seen in (None, picture_of_nothing, lambda name: picture("item1")):
        read = Page(render_report(hostile, examples={attack: chosen}, picture=seen))
        assert not {"script", "img"} & set(read.tags)
        assert read.addresses == []
        assert attack in read.text.replace("  ", " ")


def picture_of_nothing(name: str) -> None:
    return None


def test_hits_and_misses_are_marked_beyond_colour(page: str, examples: dict[str, list[Example]]) -> None:
    read = Page(page)
    hits = [
        hit for chosen in examples.values() for e in chosen for s in (e.self_old, e.cross, e.self_new) for hit in s.hits
    ]
    assert read.marked.count(("li", "hit")) == sum(hits) > 0
    assert read.marked.count(("li", "miss")) == len(hits) - sum(hits) > 0
    assert page.count('aria-label="hit">✓') == sum(hits)
    assert page.count('aria-label="miss">✗') == len(hits) - sum(hits)


def test_shared_pictures_are_embedded_once(page: str, examples: dict[str, list[Example]]) -> None:
    shown = {e.query for chosen in examples.values() for e in chosen}
    shown |= {i for c in examples.values() for e in c for s in (e.self_old, e.cross, e.self_new) for i in s.ids}
    assert page.count("url(data:image/png;base64,") == len(shown)


def test_without_pictures_labels_and_ids_are_shown(
    results: EvaluationResults, examples: dict[str, list[Example]]
) -> None:
    text = Page(render_report(results, examples=examples)).text
    example = examples["p2s"][0]
    assert f"{example.cross.labels[0]} {example.cross.ids[0]}" in text
    assert f"{example.label} {example.query}" in text


def test_examples_of_a_compatible_model_are_open(
    results: EvaluationResults, examples: dict[str, list[Example]]
) -> None:
    order = {"same": examples["same"], "p2s": examples["p2s"]}
    page = render_report(results, examples=order)
    assert '<details class="group" open><summary>p2s</summary>' in page
    assert '<details class="group"><summary>same</summary>' in page


def test_examples_of_an_unknown_model_are_refused(
    results: EvaluationResults, examples: dict[str, list[Example]]
) -> None:
    with pytest.raises(ConfigError, match=r"'p2z'.*Did you mean 'p2s'"):
        render_report(results, examples={"p2z": examples["p2s"]})


def test_one_model_without_independent_and_without_curve(
    evaluated: Callable[..., Evaluation], make_results: Callable[..., EvaluationResults]
) -> None:
    results = make_results({"p2s": evaluated("p2s", independent=False, curve=False)}, models={})
    text = Page(render_report(results)).text
    assert "p2s can search your old gallery today." in text
    assert "No independent model was given" in text
    assert "limpet train --method independent" in text and "limpet fine-tune --method independent" in text
    assert "was not measured for p2s" in text
    assert "None" not in text and "nan" not in text.lower().split()


def test_an_unlabelled_comparison_says_what_is_missing(
    unlabelled: Evaluation, make_results: Callable[..., EvaluationResults]
) -> None:
    page = render_report(make_results({"p2s": unlabelled}))
    text = Page(page).text
    assert "Nothing could be judged: the data has no labels." in text
    assert "For a verdict add labels to queries and gallery" in text
    assert "declared:p2s" in text
    assert page.count('class="finding unlabelled"') == 1
    assert '<ol class="steps"' not in page


def test_an_unlabelled_page_shows_the_agreement_and_says_what_it_is_not(
    unlabelled: Evaluation, make_results: Callable[..., EvaluationResults]
) -> None:
    page = render_report(make_results({"p2s": unlabelled}))
    text = Page(page).text
    assert "Agreement is not quality." in text
    assert page.count("<svg") - page.count('class="swatch"') == 2  # for desks and for phones
    for stage in ("cross", "self_new"):
        for measure, found in unlabelled.to_dict()["agreement"][stage].items():
            mean, ends = found["mean"], found["interval"]
            for share in (mean, *ends):
                share = 1 - share if measure == "first_changed" else share
                assert f"{100 * share:.1f}\N{NO-BREAK SPACE}%" in page
    for absent in ("scores", "classes", "trade-off", "curve", "numbers"):
        assert f'id="{absent}"' not in page
    several = render_report(make_results({"p2s": unlabelled, "other": unlabelled}))
    assert several.count("<dfn>items that stay</dfn>") == 1


def test_examples_without_labels_are_marked_by_what_stays(
    simulated: SimpleNamespace, unlabelled: Evaluation, make_results: Callable[..., EvaluationResults]
) -> None:
    old, new = (side.replace(labels=None, class_names=None) for side in (simulated.old, simulated.new["p2s"]))
    chosen = choose_examples(unlabelled, old, old, new, new, exclude_same_id=True, count=4)
    assert chosen
    for seen in (None, picture):
        page = render_report(make_results({"p2s": unlabelled}), examples={"p2s": chosen}, picture=seen)
        read = Page(page)
        stays = [name in e.self_old.ids for e in chosen for found in (e.cross, e.self_new) for name in found.ids]
        assert read.marked.count(("li", "stays")) == sum(stays) > 0
        assert read.marked.count(("li", "new")) == len(stays) - sum(stays) > 0
        assert read.marked.count(("li", "plain")) == len(stays) / 2
        assert not {("li", "hit"), ("li", "miss")} & set(read.marked)
        assert page.count("first hit changed</p>") == len(chosen)
        assert "()" not in read.text and "None" not in read.text


def test_an_earlier_document_is_shown_without_what_it_lacks(results: EvaluationResults) -> None:
    def earlier(values: dict[str, Any]) -> None:
        for record in values["evaluations"].values():
            for key in ("p_value", "positive_flip_rate", "class_change"):
                del record[key]

    page = render_report(changed(results, earlier))
    assert 'id="classes"' not in page and "<dfn>p</dfn>" not in page
    assert 'id="scores"' in page and "Positive flips" not in page


def test_classes_stand_with_their_picture_and_their_ends(results: EvaluationResults, page: str) -> None:
    read = Page(page)
    names = list(results.evaluations)
    assert page.count('<details class="group per-class"') == len(names)
    for name, record in results.evaluations.items():
        assert f"Change per class of {name}" in page
        change = record.class_change
        clear = change.clearly_better + change.clearly_worse
        assert f"{change.classes} classes score more than before" in read.text
        assert f"{change.clearly_better} " in read.text or not clear


def test_a_single_class_needs_no_picture(results: EvaluationResults) -> None:
    def single(values: dict[str, Any]) -> None:
        for record in values["evaluations"].values():
            record["class_change"] |= {"classes": 1, "curve": [0.1]}

    page = render_report(changed(results, single))
    assert "All queries are of one class." in page
    assert "Change per class" not in page


def test_a_page_of_pairs_has_no_flips_no_classes_and_its_own_words(results: EvaluationResults) -> None:
    def renamed(found: Any) -> Any:
        if isinstance(found, dict):
            return {"tar@1e-4" if key == "map" else key: renamed(item) for key, item in found.items()}
        return "tar@1e-4" if found == "map" else found

    pairs = renamed(results.evaluations["p2s"].to_dict())
    pairs |= dict.fromkeys(("negative_flip_rate", "positive_flip_rate", "class_change", "upgrade_curve"))
    pairs["protocol"] |= {"name": "ijbc-1-1", "units": "genuine pairs", "left_out": {"impostor pairs": 15_000}}
    pairs["protocol"]["bootstrap"] |= {"resample": "queries", "groups": 96}
    page = render_report(changed(results, lambda values: values.update(evaluations={"p2s": pairs})))
    text = Page(page).text
    assert "score TAR@1e-4" in text
    assert "TAR@1e-4 : the share of genuine pairs that are accepted where a share of 1e-4 of the other pairs" in text
    assert "resampled sets of 96 genuine pairs" in text
    assert "impostor pairs 15,000" in text and "protocol ijbc-1-1" in text
    assert "Negative flips:" not in text and 'id="classes"' not in page


def test_missing_numbers_are_dashes_everywhere(results: EvaluationResults) -> None:
    def gaps(values: dict[str, Any]) -> None:
        record = values["evaluations"]["p2s"]
        for name in ("p_up", "p_comp", "p_score"):
            for of_variant in record[name].values():
                for metric in of_variant or {}:
                    of_variant[metric] = None
        record["interval"]["map"]["self_new_minus_self_independent"] = None
        record["upgrade_curve"]["values"]["margin"][3] = None

    page = render_report(changed(results, gaps))
    assert "not defined for them: p2s" in Page(page).text
    assert "None" not in Page(page).text


def test_a_report_of_a_file_equals_one_of_the_results(
    results: EvaluationResults, examples: dict[str, list[Example]], tmp_path: Path
) -> None:
    read = EvaluationResults.load(results.save(tmp_path))
    path = write_report(read, tmp_path, examples=examples, picture=picture)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == render_report(results, examples=examples, picture=picture)
    assert path.stat().st_size < 1_500_000


def test_without_jinja_the_extra_is_named(results: EvaluationResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[report\]"):
        render_report(results)


def test_png_files_are_embedded_as_they_are(results: EvaluationResults, examples: dict[str, list[Example]]) -> None:
    page = render_report(results, examples=examples, picture=lambda name: b"\x89PNG\r\n\x1a\n" + name.encode())
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n" + examples["p2s"][0].query.encode()).decode()
    assert f"url(data:image/png;base64,{encoded})" in page


def test_a_page_of_perfect_scores(make_embeddings: Any, make_results: Any) -> None:
    labels = np.repeat(np.arange(4), 5)
    old, new = (
        make_embeddings(np.eye(4)[labels], labels, fingerprint=f"declared:{name}", form="points")
        for name in ("old", "new")
    )
    record = evaluate(old, new, resamples=50)
    assert set(numbers(record.upgrade_curve.values)) == {1.0} and record.cross["map@r"] == 1.0
    assert "<svg" in render_report(make_results({"new": record}))


def test_a_page_of_scores_that_are_all_nothing(results: EvaluationResults) -> None:
    def emptied(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: emptied(item) for name, item in found.items()}
        return [emptied(item) for item in found] if isinstance(found, list) else 0.0 if found is not None else None

    def nothing(values: dict[str, Any]) -> None:
        for record in values["evaluations"].values():
            for part in ("cross", "self_old", "self_new", "self_independent", "mean_interval", "interval"):
                record[part] = emptied(record[part])
            record["upgrade_curve"]["values"] = emptied(record["upgrade_curve"]["values"])

    assert render_report(changed(results, nothing)).count("<svg") > 4


def test_only_commands_and_options_that_exist_are_advised(page: str, results: EvaluationResults) -> None:
    written = [page]
    source = Path(str(inspect.getsourcefile(render_report))).parent
    written += [
        file.read_text(encoding="utf-8")
        for file in (source / "templates/evaluation.html", source / "words.py", source / "evaluation.py")
    ]
    advised = re.findall(r"(?:<code>|`|\()limpet ([a-z]+(?: [a-z]+)?)((?: [A-Z]+| --[a-z-]+)*)", " ".join(written))
    commands = [words if words in known_commands() else words.split()[0] for words, _ in advised]
    assert {*commands} >= {"train", "evaluate", "methods", "embed stored"}
    for command, (_, options) in zip(commands, advised, strict=True):
        for option in re.findall(r" --([a-z-]+)", options):
            assert option.replace("-", "_") in {*option_names(command), "help"}, command
    assert "adapt" not in " ".join(written).replace("adaptive", "").replace("adapter:ADAPTER", "")
