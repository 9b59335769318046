from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.uncertainty import Group, Histogram, choose_disk
from limpet.reports.evaluation import render_report

from .changes import changed
from .pages import Page

SVG = "{http://www.w3.org/2000/svg}"
HEADING = '<h2 id="uncertainty">'


@pytest.fixture(scope="module")
def measured(hyperbolic: SimpleNamespace, make_results: Callable[..., EvaluationResults]) -> EvaluationResults:
    return make_results({"hbct": hyperbolic.evaluation})


def elements(drawing: str, name: str, kind: str) -> list[ElementTree.Element]:
    return [item for item in ElementTree.fromstring(drawing).iter(SVG + name) if item.get("class") == kind]


def words(drawing: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(drawing).iter(SVG + "text")]


def points(item: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split() for point in str(item.get("d"))[1:].split("L"))]


def test_the_page_holds_both_panels_and_the_disk(measured: EvaluationResults, hyperbolic: SimpleNamespace) -> None:
    page = render_report(measured, disks={"hbct": hyperbolic.disk})
    for title in ("Uncertainty of old", "Uncertainty of hbct", "Old and new embeddings of hbct"):
        assert page.count(f"<title>{title}</title>") == 2, title  # for desks and for phones
    groups = measured.evaluations["hbct"].uncertainty.old.groups
    for group, name in (("seen", "classes the old model has seen"), ("unseen", "classes it has not seen")):
        assert f"{name}: mean {groups[group].mean:.3f}, {groups[group].items} items" in page
    for group in hyperbolic.disk.classes:
        known = "seen" if group.seen else "not seen"
        assert f"{group.name} ({known}): {group.old_uncertainty:.3f} → {group.new_uncertainty:.3f}" in page
    assert f"hold {100 * hyperbolic.disk.old_share:.1f}\N{NO-BREAK SPACE}% of the old" in page
    assert "distances from the centre are exact" in page and "a projection" in page
    assert page.index(HEADING) < page.index('<h2 id="numbers"')


def test_nothing_appears_without_uncertainty(results: EvaluationResults) -> None:
    for record in results.evaluations.values():
        assert record.uncertainty is None
    page = render_report(results, disks=dict.fromkeys(results.evaluations))
    assert HEADING not in page
    assert "Uncertainty of" not in page and "Poincaré" not in page


def test_a_written_document_reads_as_it_was(measured: EvaluationResults, tmp_path: Path) -> None:
    read = EvaluationResults.load(measured.save(tmp_path))
    assert read.to_dict() == measured.to_dict()
    assert read.evaluations["hbct"].uncertainty == measured.evaluations["hbct"].uncertainty

    def without_mean(values: dict[str, Any]) -> None:
        del values["evaluations"]["hbct"]["uncertainty"]["old"]["groups"]["seen"]["mean"]

    with pytest.raises(ConfigError, match=r"uncertainty\.old\.groups\.seen\.mean"):
        changed(measured, without_mean)


def test_text_of_classes_is_escaped(measured: EvaluationResults, hyperbolic: SimpleNamespace) -> None:
    attack = "<script>alert('x')</script>"
    group = SimpleNamespace(**vars(hyperbolic.disk.classes[0]) | {"name": attack})
    disk = SimpleNamespace(**vars(hyperbolic.disk) | {"classes": (group,)})
    page = render_report(measured, disks={"hbct": disk})  # type: ignore[dict-item]
    assert "<script" not in page and "&lt;script&gt;" in page


def test_disks_of_an_unknown_model_are_refused(measured: EvaluationResults, hyperbolic: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match=r"'hbtc'.*Did you mean 'hbct'"):
        render_report(measured, disks={"hbtc": hyperbolic.disk})


def test_the_page_says_what_the_means_say(measured: EvaluationResults) -> None:
    def of(**means: float) -> str:
        groups = {name: Group(items=5, mean=mean, counts=[5]) for name, mean in means.items()}
        known = measured.evaluations["hbct"].uncertainty
        old = known.model_copy(update={"old": Histogram(edges=[0.0, 1.0], groups=groups)})
        record = measured.evaluations["hbct"].model_copy(update={"uncertainty": old})
        return Page(render_report(measured.model_copy(update={"evaluations": {"hbct": record}}))).text

    assert "is more uncertain of classes that it has not seen: 0.400 against 0.300" in of(seen=0.3, unseen=0.4)
    assert "is not more uncertain of classes that it has not seen: 0.300 against 0.400" in of(seen=0.4, unseen=0.3)
    assert "seen all of these classes" in of(seen=0.3)
    assert "seen none of these classes" in of(unseen=0.3)
    assert "not known here" in of(all=0.3)


def test_an_unlabelled_comparison_has_one_histogram_per_model(
    hyperbolic: SimpleNamespace, make_results: Callable[..., EvaluationResults]
) -> None:
    old, new = (side.replace(labels=None, class_names=None) for side in (hyperbolic.old, hyperbolic.new))
    found: Evaluation = evaluate(old, new, resamples=50, old_classes=["c0"])
    assert choose_disk(old, new) is None
    page = render_report(make_results({"hbct": found}))
    assert "all items: mean" in page and "classes it has not seen" not in page
    assert page.count("<title>Uncertainty of") == 4
