from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_1samp

from limpet.bench.cache import TaskCache
from limpet.bench.leaderboard import Facts
from limpet.bench.recommend import (
    SCENARIO_KINDS,
    Answer,
    Interval,
    Place,
    Situation,
    compared_rows,
    look_up,
    places_of,
    read_places,
)
from limpet.bench.run import Bench, facts_of, final_rows
from limpet.bench.suite import suite_from
from limpet.cli.parsing import parse
from limpet.cli.train import train
from limpet.data.scenarios import SCENARIOS
from limpet.errors import ConfigError, DataError
from limpet.methods import METHODS

EXTENDED = "extended-class"
SUITE = {"name": "tests", "title": "", "description": "", "metric": "map", "kind": "images"}
Values = list[tuple[float | None, float | None]]  # (P_comp, P_up) of every seed


def run(data: str, label: str, seed: int, p_comp: float | None, p_up: float | None, **more: Any) -> dict[str, Any]:
    return {
        "data": data, "scenario": EXTENDED, "label": label, "method": label, "options": {}, "seed": seed,
        "metric": "map", "scores": {"self_old": 0.3}, "p_up": p_up, "p_comp": p_comp, "seconds": 10.0, "failure": None,
        **more,
    }  # fmt: skip


def places(found: dict[str, dict[str, Values]], kind: str = "images", **more: Any) -> list[Place]:
    """Return the places of {data: {label: values of every seed}}; ``more`` goes to every run but for facts."""
    facts, scenario = more.pop("facts", {}), more.get("scenario", EXTENDED)
    rows = [
        run(data, label, seed, *pair, **more)
        for data, labels in found.items()
        for label, values in labels.items()
        for seed, pair in enumerate(values)
    ]
    sizes = {data: {scenario: {"images": images, "classes": classes}} for data, (classes, images) in facts.items()}
    document = {"suite": SUITE | {"kind": kind}, "machine": "a desk", "rows": rows, "facts": sizes}
    return places_of(document, "a test")


def steady(p_comp: float, p_up: float = 0.0, seeds: int = 3) -> Values:
    return [(p_comp, p_up)] * seeds


def shown(answer: Answer) -> list[tuple[str, str]]:
    return [(place.data, place.scenario) for place in answer.places]


def told(answer: Answer) -> str:
    return " ".join(answer.cannot_tell)


def test_rows_come_with_what_they_rest_on() -> None:
    found = places(
        {"x": {"bct": steady(0.1), "p2s": [(0.2, -0.1), (0.4, -0.1)], "independent": steady(9.0)}},
        facts={"x": (10, 200)},
    )
    (place,) = look_up(Situation(classes=10, images=200, scenario=EXTENDED), found).places
    assert [row.label for row in place.rows] == ["bct", "p2s"]  # the second one has no third seed
    bct, p2s = place.rows
    assert bct.p_comp is not None and p2s.p_comp is None
    assert (bct.p_comp.mean, bct.p_comp.low, bct.p_comp.high) == pytest.approx((0.1, 0.1, 0.1))
    assert p2s.failure == "it was not run with seed 2" and bct.failure is None and bct.seconds == 10
    assert (place.machine, place.seeds, place.facts, place.old_quality) == (
        "a desk", [0, 1, 2], Facts(images=200, classes=10), pytest.approx(0.3)
    )  # fmt: skip


def test_an_interval_agrees_with_a_t_test_and_needs_two_seeds() -> None:
    values = [0.1, 0.5, 0.25]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (Interval.of(values).low, Interval.of(values).high) == pytest.approx((expected.low, expected.high))
    assert Interval.of([0.5]) == Interval(mean=0.5, low=None, high=None)


def test_the_kind_goes_before_the_scenario_and_that_before_size() -> None:
    here = places({"far": {"bct": steady(0.1)}}, facts={"far": (1000, 2000)})
    there = places({"near": {"bct": steady(0.1)}}, facts={"near": (10, 20)}, scenario="extended-data")
    heads = places({"texts": {"p2s": steady(0.1)}}, kind="features", scenario="seen")
    asked = Situation(classes=10, images=20, scenario=EXTENDED)
    assert shown(look_up(asked, [*heads, *there, *here])) == [("far", EXTENDED)]
    kin = look_up(asked, [*heads, *there])
    assert shown(kin) == [("near", "extended-data")] and "one of the same kind" in told(kin)
    open_class = look_up(Situation(scenario="open-class"), there)
    assert "one of another kind" in told(open_class)
    assert shown(look_up(Situation(frozen=True), [*heads, *here])) == [("texts", "seen")]
    assert shown(look_up(asked, heads)) == []


def test_the_nearest_data_sets_are_counted_in_doublings() -> None:
    sizes = {"a": (10, 100), "b": (40, 400), "c": (5, 50), "d": (20, 100)}
    found = places({data: {"bct": steady(0.1)} for data in sizes}, facts=sizes)
    assert [name for name, _ in shown(look_up(Situation(classes=10, images=100), found))] == ["a", "c", "b"]
    assert [name for name, _ in shown(look_up(Situation(classes=40), found))] == ["b", "d", "a"]
    unknown = places({"u": {"bct": steady(0.1)}})
    assert shown(look_up(Situation(classes=10), [*unknown, *found[:1]]))[0][0] == "a"


def test_every_scenario_has_a_kind() -> None:
    assert set(SCENARIO_KINDS) == set(SCENARIOS)


def test_what_the_rows_cannot_tell_is_said() -> None:
    sizes = {"x": (10, 100), "y": (11, 110), "z": (12, 120)}
    rich = places({data: {"bct": steady(0.1)} for data in sizes}, facts=sizes)
    answer = look_up(Situation(classes=10, images=100, scenario=EXTENDED, old_quality=0.3), rich)
    assert len(answer.cannot_tell) == 1 and "does not on the next" in told(answer)

    thin = places({"x": {"bct": [(0.1, 0.0), (None, None)]}}, facts={"x": (10, 100)})
    answer = look_up(Situation(classes=2000, images=4000, old_quality=0.9), thin)
    assert "1 data set (x)" in told(answer) and "1 seed only" in told(answer) and "1 seed did not count" in told(answer)
    assert "far in size: 10 classes of 10 images, yours 2,000 classes of 2 images" in told(answer)
    assert "reaches 0.900, those that were measured 0.300 (map)" in told(answer)
    assert "was not said" in told(look_up(Situation(), thin))
    assert "not known how large x is" in told(look_up(Situation(classes=3), places({"x": {"bct": steady(0.1)}})))
    mixed = [*rich[:1], *places({"y": {"bct": steady(0.1)}}, metric="recall@1")]
    assert "different metrics: map and recall@1" in told(look_up(Situation(), mixed))


def test_the_share_of_old_classes_is_compared() -> None:
    found = places({"x": {"bct": steady(0.1)}})
    found = [place.model_copy(update={"facts": Facts(images=100, classes=10, old_classes=9)}) for place in found]
    said = told(look_up(Situation(classes=10, old_classes=3), found)).replace("\N{NO-BREAK SPACE}", " ")
    assert "learnt 30 % as many classes as the new one is to, that of x 90 %" in said
    assert "learnt" not in told(look_up(Situation(classes=10, old_classes=8), found))


def test_the_command_compares_what_leads_somewhere_on_the_users_data() -> None:
    found = [
        *places({"x": {"bct": steady(0.3), "lce": steady(0.9, -0.2), "p2s": steady(0.1)}}, options={"weight": 3.0}),
        *places({"y": {"hbct": steady(0.9)}}, settings={"head": "lorentz"}),
    ]
    answer = look_up(Situation(classes=5, scenario=EXTENDED), found, data="photos")
    command, words = shlex.split(answer.next)[1], shlex.split(answer.next)[2:]
    arguments = parse(train, words, "train")
    assert (command, arguments["method"], arguments["predecessor"].scenario) == ("train", ["bct", "p2s"], EXTENDED)
    assert (
        arguments["training"].method_options == {"bct": {"weight": 3}, "p2s": {"weight": 3}}
        and arguments["data"] == "photos"
    )
    assert answer.not_in_next == ["hbct"]
    assert [row.method for row in compared_rows(found)] == ["bct", "p2s"]
    bare = look_up(Situation(classes=5), [])
    assert "--method bct p2s" in bare.next and "No leaderboard" in told(bare)


@pytest.mark.parametrize(("p_up", "leads"), [(-0.05, "bct"), (-0.0501, "p2s")])
def test_the_bound_of_p_up_is_at_least(p_up: float, leads: str) -> None:
    assert compared_rows(places({"x": {"bct": steady(0.9, p_up), "p2s": steady(0.1)}}))[0].method == leads


def test_methods_of_two_spaces_are_not_compared_in_one_run() -> None:
    rows = compared_rows(places({"x": {"hbct": steady(0.9), "advbct": steady(0.8), "p2s": steady(0.7)}}))
    assert not METHODS["hbct"].spaces & METHODS["advbct"].spaces
    assert [row.method for row in rows] == ["hbct", "p2s"]


def test_frozen_models_and_items_without_labels_go_to_adapt() -> None:
    heads = places({"texts": {"p2s": steady(0.1)}}, kind="features", scenario="seen")
    frozen = look_up(Situation(frozen=True), heads, embeddings="new.npz")
    assert "adapt --old OLD --new new.npz" in frozen.next and frozen.places
    assert "led on the third" in frozen.cannot_tell[0] and "does not on the next" not in told(frozen)
    texts = look_up(Situation(frozen=True), heads, data="texts.csv")
    assert "--texts texts.csv" in texts.next
    bare = look_up(Situation(labelled=False), heads)
    assert "adapt" in bare.next and not bare.places and "your items have none" in told(bare)


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_p_values_that_are_not_defined(nothing: float | None) -> None:
    (place,) = places({"x": {"bct": [(0.1, 0.0), (nothing, nothing)], "l2": [(nothing, nothing)] * 2}})
    assert place.seeds == [0] and place.undefined == [1]
    assert {row.label: row.failure for row in place.rows} == {"bct": None, "l2": "it has no P_comp with seed 0"}


def test_a_failed_run_has_no_numbers_and_says_why() -> None:
    rows = [run("x", "bct", 0, 0.1, 0.0), run("x", "p2s", 0, None, None, failure="The loss is NaN.", scores=None)]
    (place,) = places_of({"suite": SUITE, "rows": rows}, "a test")
    assert place.rows[-1].failure == "with seed 0: The loss is NaN." and [row.label for row in place.complete] == [
        "bct"
    ]


def test_test_sets_of_one_training_are_one_data_set() -> None:
    found = places({data: {"bct": steady(0.1)} for data in ("one", "two")}, trained_on="both")
    answer = look_up(Situation(), found)
    assert len(answer.places) == 2 and "1 data set (both)" in told(answer)


def test_documents_are_read_from_a_folder_and_from_the_user(tmp_path: Path) -> None:
    document = {"suite": SUITE, "rows": [run("x", "bct", 0, 0.1, 0.0)]}
    (tmp_path / "shipped").mkdir()
    for name in ("shipped/a.json", "own.json"):
        (tmp_path / name).write_text(json.dumps(document))
    assert len(read_places([tmp_path / "own.json"], folder=tmp_path / "shipped")) == 2
    assert len(read_places([tmp_path / "own.json"], folder=None)) == 1
    assert read_places(folder=tmp_path / "absent") == []


def test_what_comes_with_the_package_can_be_read() -> None:
    found = read_places()
    assert {place.kind for place in found} == {"images", "features"} and all(place.complete for place in found)


def test_documents_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        read_places([tmp_path / "absent.json"])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match="no valid JSON"):
        read_places([tmp_path / "broken.json"])
    good = {"suite": SUITE, "rows": [run("x", "bct", 0, 0.1, 0.0)]}
    for wrong, where in (
        ({**good, "rows": [{"data": "x"}]}, r"rows\.0\."),
        ({"rows": []}, "suite"),
        ([], "the document"),
        ({**good, "rows": good["rows"] * 2}, "two runs of bct, x, extended-class with seed 0"),
    ):
        with pytest.raises(DataError, match=where):
            places_of(wrong, "a test")


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 0}, {"images": 0}, {"old_classes": 0}, {"classes": 5, "images": 4}, {"old_quality": 1.5},
        {"old_quality": math.nan}, {"scenario": "extended"},
    ],
)  # fmt: skip
def test_a_situation_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Situation(**wrong)


def test_facts_come_from_the_records_of_a_run(content: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    suite, cache = suite_from(content(), "a test"), TaskCache(tmp_path / "tasks")
    rows = final_rows(suite, [], None)
    assert facts_of(rows, cache) == {}
    found = Bench(cache).run(suite)
    (data,) = suite.data
    sizes = {"images": 72, "classes": 12, "old_images": 18, "old_classes": 3}  # 12 classes of 6, 30 % of them old
    assert facts_of(rows, cache) == {data: {EXTENDED: Facts(**sizes)}} == found.suite.facts
    silent = found.to_dict()
    del silent["suite"]["facts"]
    for given in (found, found.to_dict(), {**silent, "facts": {data: {EXTENDED: sizes}}}):
        (place,) = places_of(given, "a test")
        assert place.facts is not None and place.facts.model_dump() == sizes and place.facts.per_class == 6
        assert {row.label for row in place.complete} <= {"p2s", "l2"}
