from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from limpet.reports.svg import width_of
from limpet_bench.reports.plan_picture import STYLE, plan_picture
from limpet_bench.sessions.plans import Plan, blurry, disjoint, general_incremental

SVG = "{http://www.w3.org/2000/svg}"


def even(classes: int, images: int) -> np.ndarray:
    return np.repeat(np.arange(classes), images)


CIFAR = general_incremental(even(100, 500), new_images=400)
PLANS = {
    "cifar": CIFAR,
    "disjoint": disjoint(even(100, 500)),
    "blurry": blurry(even(100, 500)),
    "tiny": general_incremental(even(200, 500), old_share=0.3, sessions=10, validation=0.05),
    "omniglot": general_incremental(even(964, 16), first_classes=192, new_classes=192, old_share=0.4, validation=1),
    "thousand": disjoint(even(1_000, 4), sessions=10, validation=1),
    "uneven": general_incremental(even(1_000, 50), first_classes=980, new_classes=5, old_share=0.5),
    "many sessions": disjoint(even(200, 4), sessions=40, validation=1),
    "many in many": disjoint(even(4_000, 4), sessions=40, validation=1),
}


def items(drawing: str, name: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + name)
    return [item for item in found if kind in str(item.get("class")).split() or not kind]


def bars(drawing: str, kind: str) -> list[ElementTree.Element]:
    """The bars of a kind without the one that explains it."""
    return [item for item in items(drawing, "rect", kind) if item.find(SVG + "title") is not None]


def number(item: ElementTree.Element, name: str) -> float:
    return float(str(item.get(name)))


def note(item: ElementTree.Element) -> str:
    return str(item.findtext(SVG + "title"))


def words(drawing: str, kind: str = "") -> list[str]:
    return [str(item.text) for item in items(drawing, "text", kind)]


def described(drawing: str) -> str:
    return str(ElementTree.fromstring(drawing).findtext(SVG + "desc"))


def test_every_group_that_gives_images_is_a_bar() -> None:
    drawing = plan_picture("CIFAR-100", CIFAR)
    assert [note(bar) for bar in bars(drawing, "plan-new")] == [
        "20 classes, 7,200 images: 360 per class",
        *["20 classes, 7,200 images: 360 per class"] * 4,
    ]
    assert len(bars(drawing, "plan-old")) == 1 + 2 + 3 + 4
    assert note(bars(drawing, "plan-old")[0]) == "20 classes, 792 images: 40 per class"
    assert "CIFAR-100" in words(drawing, "name")
    assert words(drawing, "tick") == ["20"] * 5
    assert words(drawing, "number")[:3] == ["360", "40", "360"]


def test_sessions_stand_below_each_other_and_groups_beside_each_other() -> None:
    new = bars(plan_picture("", CIFAR), "plan-new")
    places = [(number(bar, "x"), number(bar, "y")) for bar in new]
    assert places == sorted(places) and len({x for x, _ in places}) == len({y for _, y in places}) == 5


def test_height_is_images_per_class_and_width_the_share_of_classes() -> None:
    plan = general_incremental(even(100, 60), first_classes=60, new_classes=40, old_share=0.4, sessions=2)
    new, old = (bars(plan_picture("", plan), kind) for kind in ("plan-new", "plan-old"))
    assert number(new[0], "width") + 2 == pytest.approx(640 * 0.6, abs=0.02)
    assert number(new[1], "width") + 2 == pytest.approx(640 * 0.4, abs=0.02)
    means = [float(plan.training_counts[plan.introduced(group), session].mean()) for group, session in ((0, 0), (0, 1))]
    assert number(old[0], "height") / number(new[0], "height") == pytest.approx(means[1] / means[0], abs=0.01)
    assert number(old[0], "x") == pytest.approx(number(new[0], "x") + 0.65)


def test_groups_of_unequal_size_share_one_scale_of_heights() -> None:
    drawing = plan_picture("", PLANS["uneven"])
    heights = [number(bar, "height") for bar in bars(drawing, "plan-new")]
    assert max(heights) == pytest.approx(26.5)
    assert min(heights) > 0.9 * max(heights)
    assert all(number(bar, "height") == 3 for bar in bars(drawing, "plan-old"))


def test_lines_tell_what_is_known() -> None:
    drawing = plan_picture("", PLANS["disjoint"])
    assert len(items(drawing, "line", "plan-known")) == 1 + 2 + 3 + 4 + 5
    assert len(items(drawing, "line", "plan-later")) == 4 + 3 + 2 + 1 + 1
    drawing = plan_picture("", PLANS["blurry"])
    assert len(items(drawing, "line", "plan-known")) == 25
    assert not items(drawing, "line", "plan-later")


def test_the_key_explains_what_is_drawn_and_nothing_else() -> None:
    meanings = {"new classes", "earlier classes", "not yet known", "major classes", "minor classes"}
    assert meanings & set(words(plan_picture("", CIFAR))) == {"new classes", "earlier classes", "not yet known"}
    assert meanings & set(words(plan_picture("", CIFAR, width=350))) == {"new classes", "earlier classes"}
    assert meanings & set(words(plan_picture("", PLANS["disjoint"]))) == {"new classes", "not yet known"}
    assert meanings & set(words(plan_picture("", PLANS["blurry"]))) == {"major classes", "minor classes"}


def test_sessions_are_told_in_words() -> None:
    labels = words(plan_picture("", CIFAR), "label")
    assert "session 2: 7,992 images of 40 classes, 1,688 validation queries so far" in labels
    assert "number of classes, by the session that introduces them" in labels
    labels = words(plan_picture("", PLANS["blurry"]), "label")
    assert "session 2: 9,000 images of 100 classes, 5,000 validation queries" in labels
    assert "number of classes, by their major session" in labels
    assert "session 2: 7,992 images, 1,688 queries" in words(plan_picture("", CIFAR, width=350), "label")


def test_the_text_alternative_holds_all_numbers() -> None:
    plan = disjoint(even(3, 4), sessions=2, validation=1)
    assert described(plan_picture("Small", plan)) == (
        "Training images per class, by session. "
        "Session 1: 6 images of 2 classes, 2 validation queries so far: 3 of each of 2 classes of session 1. "
        "Session 2: 3 images of 1 class, 3 validation queries so far: 3 of each of 1 class of session 2."
    )
    root = ElementTree.fromstring(plan_picture("Small", plan))
    assert root.get("role") == "img" and str(root.get("aria-label")).startswith("Small. Training images")
    told = described(plan_picture("", CIFAR))
    found = [float(value) for value in re.findall(r"([\d.]+) of each of", told)]
    groups = [CIFAR.training_counts[CIFAR.home == group].mean(axis=0) for group in range(5)]
    assert found == pytest.approx([groups[g][s] for s in range(5) for g in range(s + 1)], abs=0.5)


@pytest.mark.parametrize("width", [350, 640])
@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_everything_lies_within_the_drawing_and_no_words_meet(plan: Plan, width: float) -> None:
    drawing = plan_picture("A plan", plan, width=width)
    right, bottom = map(float, str(ElementTree.fromstring(drawing).get("viewBox")).split()[2:])
    assert right == width
    for bar in items(drawing, "rect"):
        assert number(bar, "width") > 0
        assert 0 <= number(bar, "x") < number(bar, "x") + number(bar, "width") <= right
        assert number(bar, "y") + number(bar, "height") < bottom
    spans: dict[float, list[tuple[float, float]]] = {}
    for item in items(drawing, "text"):
        size = 11.5 if "small" in str(item.get("class")) else 12
        if "name" in str(item.get("class")):
            continue
        across, at = width_of(str(item.text), size), number(item, "x")
        at -= across / 2 if item.get("text-anchor") == "middle" else 0
        assert number(item, "y") < bottom
        if "label" not in str(item.get("class")):  # what `width_of` says is rather too wide
            assert at >= -0.1 and at + across <= right + 0.1
            spans.setdefault(number(item, "y"), []).append((at, at + across))
    for found in spans.values():
        ends = sorted(found)
        assert all(before[1] <= after[0] + 0.1 for before, after in pairwise(ends))


def test_the_drawing_does_not_grow_with_the_classes() -> None:
    few, many = (plan_picture("", disjoint(even(count, 4), validation=1)) for count in (10, 1_000))
    assert len(many) < 1.2 * len(few)


def test_titles_are_escaped() -> None:
    drawing = plan_picture("<b>&", CIFAR)
    assert "<b>" not in drawing and "<b>&" in words(drawing)


def test_every_class_that_is_drawn_has_a_style() -> None:
    drawn = plan_picture("", CIFAR) + plan_picture("", PLANS["blurry"])
    kinds = set(re.findall(r"plan-[a-z]+", drawn))
    assert kinds == {"plan-new", "plan-old", "plan-known", "plan-later"}
    assert all(f".{kind}{{" in STYLE for kind in kinds)
