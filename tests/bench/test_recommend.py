from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student_t
from scipy.stats import ttest_1samp

from holdfast.bench.board import leaderboard_of
from holdfast.bench.cache import CellCache
from holdfast.bench.cases import Evidence, shipped_evidence
from holdfast.bench.facts import facts_of
from holdfast.bench.leaderboard import BenchRuns, Facts
from holdfast.bench.recommend import Recommendation, choose, plain, recommend, spread
from holdfast.bench.run import Bench, final_rows
from holdfast.bench.situation import SCENARIO_KINDS, Situation, distance, nearest_cases
from holdfast.bench.suite import suite_from
from holdfast.bench.told_apart import lead
from holdfast.data.scenarios import SCENARIOS
from holdfast.errors import ConfigError, DataError

EXTENDED = "extended-class"
SUITE = {"name": "tests", "title": "", "description": "", "metric": "map", "kind": "images"}
Values = list[tuple[float | None, float | None]]  # (P_comp, P_up) of every seed


def row(data: str, label: str, seed: int, p_comp: float | None, p_up: float | None, **more: Any) -> dict[str, Any]:
    return {
        "data": data, "scenario": EXTENDED, "label": label, "method": label, "options": {"weight": 1.0}, "seed": seed,
        "metric": "map", "scores": {"self_old": 0.3}, "p_up": p_up, "p_comp": p_comp, "seconds": 10.0, "failure": None,
        **more,
    }  # fmt: skip


def document(found: dict[str, dict[str, Values]], suite: str = "tests", kind: str = "images", **more: Any) -> Any:
    """Make a document of {data: {label: values of every seed}}; ``more`` goes to every row but for facts."""
    facts = more.pop("facts", {})
    scenario = more.get("scenario", EXTENDED)
    rows = [
        row(data, label, seed, *pair, **more)
        for data, labels in found.items()
        for label, values in labels.items()
        for seed, pair in enumerate(values)
    ]
    sizes = {data: {scenario: {"images": images, "classes": classes}} for data, (classes, images) in facts.items()}
    return {"suite": SUITE | {"name": suite, "kind": kind}, "rows": rows, "facts": sizes}


def evidence(*documents: Any) -> Evidence:
    return Evidence.of(("a test", each) for each in documents)


def steady(p_comp: float, p_up: float = 0.0, seeds: int = 3) -> Values:
    return [(p_comp, p_up)] * seeds


def by_label(found: Recommendation) -> dict[str, Any]:
    return {one.name.label: one for one in found.choice.table}


def chosen(situation: Situation, *documents: Any) -> str:
    found = choose(situation, evidence(*documents)).chosen
    assert found is not None
    return found.name.label


def test_a_worked_example() -> None:
    known = evidence(
        document(
            {
                "first": {
                    "a": [(0.2, 0.01), (0.3, 0.03)],
                    "b": [(0.4, -0.1), (0.6, -0.1)],
                    "c": [(0.1, 0.0), (0.1, 0.0)],
                },
                "second": {
                    "a": [(0.1, 0.02), (0.2, 0.02)],
                    "b": [(0.4, -0.04), (0.4, -0.04)],
                    "c": [(0.2, -0.02), (0.2, -0.02)],
                },
            }
        )
    )
    found = recommend(Situation(), known)
    assert found.action == "train" and found.method == "a" and found.options == {"weight": 1.0}
    assert [one.name.label for one in found.choice.table] == ["a", "c", "b"]
    a, b, c = (by_label(found)[name] for name in "abc")
    assert a.p_comp == pytest.approx((0.2, math.sqrt(0.005), 0.15, 0.25))
    assert a.p_up == pytest.approx((0.02, math.sqrt(0.0002 / 2), 0.02, 0.02))
    assert c.p_comp.mean == pytest.approx(0.15) and c.p_up.low == pytest.approx(-0.02)
    assert (a.rank, a.best, c.rank, c.best) == (1.5, 1, 1.5, 1)  # each leads on one of the two, b is not ranked
    assert (a.keeps, c.keeps, b.keeps) == (True, True, False) and (b.rank, b.best, b.apart) == (None, 0, None)
    assert b.p_up.mean == pytest.approx(-0.07)
    assert [one.name.label for one in found.choice.group] == ["a", "c"]  # b may not be chosen
    assert "mean raw P_comp +0.200 ± 0.071 (+0.150 to +0.250)" in found.sentences[0]
    assert "2 labels that may be chosen it was the best in 1 of 2 cases" in found.sentences[1]


@pytest.mark.parametrize(("p_up", "best"), [(-0.05, "costly"), (-0.0501, "cheap")])
def test_the_bound_of_p_up_is_at_least(p_up: float, best: str) -> None:
    assert chosen(Situation(), document({"x": {"cheap": steady(0.1), "costly": steady(0.9, p_up)}})) == best


def test_the_bound_is_one_of_the_mean_over_data_sets() -> None:
    found = {"x": {"a": steady(0.5, -0.09)}, "y": {"a": steady(0.5, 0.0)}}
    assert by_label(recommend(Situation(), evidence(document(found))))["a"].keeps


def test_equal_means_are_decided_by_rank_then_by_seconds() -> None:
    values = {"steady": (0.2, 0.2, 0.2), "often": (0.3, 0.3, 0.0)}
    found = document({data: {name: steady(v[i]) for name, v in values.items()} for i, data in enumerate("xyz")})
    assert chosen(Situation(), found) == "often"  # mean ranks 4/3 and 5/3

    slow = document({"x": {"slow": steady(0.2)}}, seconds=20.0)
    quick = document({"x": {"quick": steady(0.2)}}, seconds=5.0)
    both = {**slow, "rows": slow["rows"] + quick["rows"]}
    result = recommend(Situation(), evidence(both))
    assert result.method == "quick" and {one.name.label for one in result.choice.group} == {"slow", "quick"}
    assert [one.rank for one in result.choice.table] == [1.5, 1.5]


def test_the_cheapest_of_those_not_told_apart_is_named() -> None:
    best = document({"x": {"best": [(0.2, 0.0), (0.4, 0.0)]}}, seconds=100.0)
    cheap = document({"x": {"cheap": [(0.25, 0.0), (0.3, 0.0)]}}, seconds=5.0)
    cheaper = document({"x": {"worse": [(-0.2, 0.0), (0.0, 0.0)]}}, seconds=1.0)
    known = evidence({**best, "rows": best["rows"] + cheap["rows"] + cheaper["rows"]})
    found = recommend(Situation(), known)
    assert found.method == "best" and found.choice.cheapest is not None
    assert {name: one.apart for name, one in by_label(found).items()} == {"best": False, "cheap": False, "worse": True}
    assert found.choice.cheapest.name.label == "cheap"
    assert any("cannot be told apart from cheap" in line and "'cheap' (5 s a run)" in line for line in found.sentences)


def test_a_lead_agrees_with_a_t_test_and_needs_two_seeds() -> None:
    first, second = np.array([0.5, 0.7, 0.6]), np.array([0.4, 0.45, 0.5])
    interval = ttest_1samp(first - second, 0).confidence_interval(0.95)
    found = lead([first], [second])
    assert found.margin is not None
    assert (found.mean - found.margin, found.mean + found.margin) == pytest.approx((interval.low, interval.high))

    # two cases, by hand: differences (0.1, 0.3) and (0.2, 0.2): v = (0.01, 0), se = 0.1 / 2, one degree of freedom
    found = lead([np.array([0.1, 0.3]), np.array([0.2, 0.2])], [np.zeros(2), np.zeros(2)])
    assert found == pytest.approx((0.2, 12.7062 * 0.05), abs=1e-4) and not found.told_apart
    assert lead([np.array([0.19, 0.21])], [np.zeros(2)]).told_apart  # 0.2 against 12.7 * 0.01
    assert not lead([np.array([0.9])], [np.zeros(1)]).told_apart
    assert not lead([np.zeros(3)], [np.zeros(3)]).told_apart and lead([np.ones(3)], [np.zeros(3)]).told_apart


def test_scenarios_of_one_data_set_do_not_make_a_lead_surer() -> None:
    first = np.array([0.5, 0.7, 0.6])
    single = lead([first], [np.zeros(3)])
    assert lead([first, first], [np.zeros(3)] * 2, ["a", "a"]) == pytest.approx(single)  # the same seeds, the same data
    apart = lead([first, first], [np.zeros(3)] * 2, ["a", "b"])
    assert apart.mean == pytest.approx(single.mean) and apart.margin < 0.6 * single.margin
    # "a" has two cases and "b" one: weights 2/3 and 1/3 of the variances of their means
    other = np.array([0.1, 0.3, 0.2])
    mixed = lead([first, first, other], [np.zeros(3)] * 3, ["a", "a", "b"])
    variances = np.array([4 / 9, 1 / 9]) * 0.01 / 3
    free = variances.sum() ** 2 / (variances**2 / 2).sum()
    assert mixed == pytest.approx((1.4 / 3, student_t.ppf(0.975, free) * variances.sum() ** 0.5))


def test_one_seed_tells_nothing_apart_and_says_so() -> None:
    found = recommend(Situation(), evidence(document({"x": {"a": steady(0.9, seeds=1), "b": steady(0.1, seeds=1)}})))
    assert found.method == "a" and len(found.choice.group) == 2
    assert by_label(found)["a"].p_comp.deviation is None
    assert any("with one seed nothing tells" in line for line in found.sentences)
    assert any("1 seed only" in line for line in found.thin)


def test_the_scenario_goes_before_the_track_and_both_before_size() -> None:
    sizes = {"x": (100, 1000)}
    near = document({"x": {"open": steady(0.1)}}, scenario="open-class", facts=sizes)
    far = document({"y": {"far": steady(0.1)}}, suite="far", facts={"y": (90_000, 900_000)})
    heads = document({"x": {"head": steady(0.9)}}, suite="heads", kind="features", facts=sizes)
    asked = Situation(classes=100, images=1000, scenario=EXTENDED)
    assert chosen(asked, near, far, heads) == "far"
    assert chosen(asked, near, heads) == "head"
    kin = document({"z": {"kin": steady(0.1)}}, scenario="extended-data")
    assert chosen(asked, near, kin) == "kin" and chosen(asked, near) == "open"
    steps = [distance(asked, case)[:2] for case in evidence(near, far, heads, kin).cases]
    assert steps == [(2, 0), (0, 0), (0, 1), (1, 0)]
    thin = " ".join(recommend(asked, evidence(near)).thin)
    assert "None of the evidence is of the scenario 'extended-class'; it is of open-class, one of another kind" in thin
    assert "far in size" in " ".join(recommend(asked, evidence(far)).thin)


def test_every_scenario_has_a_kind() -> None:
    assert set(SCENARIO_KINDS) == set(SCENARIOS)


def test_the_nearest_data_sets_are_counted_in_doublings() -> None:
    sizes = {
        "same": (100, 1000),
        "doubled": (200, 2000),
        "deep": (100, 4000),
        "huge": (1600, 16_000),
        "more": (50, 500),
    }
    found = evidence(document({data: {"a": steady(0.1)} for data in (*sizes, "unknown")}, facts=sizes))
    asked = Situation(classes=100, images=1000)
    far = {case.data: distance(asked, case).size for case in found.cases}
    assert far == {"same": 0, "doubled": 1, "more": 1, "deep": 2, "huge": 4, "unknown": math.inf}
    names = [[case.data for case, _ in nearest_cases(asked, found.usable, count).cases] for count in (1, 2, 4, 6)]
    assert names[0] == ["same"] and names[1] == ["same", "doubled", "more"]  # equally near ones, all
    assert names[2] == ["same", "doubled", "more", "deep"] and names[3][4:] == ["huge", "unknown"]
    all_of_them = nearest_cases(Situation(), found.usable, 1)
    assert len(all_of_them.cases) == 6  # nothing was said of the size
    assert any("all sizes count alike" in line for line in recommend(Situation(), found).thin)
    only_classes = distance(Situation(classes=100), found.cases[2])
    assert only_classes.per_class is None and only_classes.size == 0


def test_a_data_set_of_several_sizes_is_as_near_as_its_nearest_case() -> None:
    sizes = {"near": (100, 1000), "y": (400, 4000)}
    both = document({data: {"a": steady(0.1)} for data in sizes}, facts=sizes)
    whole = document({"near": {"a": steady(0.1)}}, suite="whole", facts={"near": (25_600, 256_000)})
    for known in (evidence(whole, both), evidence(both, whole)):
        found = nearest_cases(Situation(classes=100, images=1000), known.cases, 2)
        assert [(case.data, case.suite) for case, _ in found.cases] == [("near", "tests"), ("y", "tests")]


def test_cases_with_few_labels_are_left_aside_but_told() -> None:
    many = document({"x": {name: steady(0.1 + 0.1 * place) for place, name in enumerate("abcd")}})
    few = document({"y": {"d": steady(-0.5)}, "w": {"d": steady(0.5)}}, suite="few")
    found = recommend(Situation(), evidence(many, few))
    assert found.method == "d" and [case.data for case in found.choice.cases] == ["x"]
    assert any("y, extended-class (few), where 'd' has P_comp −0.500" in line for line in found.thin)
    half = document({"y": {"c": steady(0.9), "d": steady(-0.9)}}, suite="half")
    again = recommend(Situation(), evidence(many, half))
    assert again.method == "c" and len(again.choice.cases) == 2
    assert again.choice.left_out.keys() == {("a", "a"), ("b", "b")}
    assert any("'a' was not compared: it was not run on y" in line for line in again.thin)


def test_cases_without_a_common_label_drop_the_farthest() -> None:
    near = document({"x": {"a": steady(0.1), "b": steady(0.2)}}, facts={"x": (100, 1000)})
    far = document({"y": {"c": steady(0.8), "d": steady(0.9)}}, facts={"y": (400, 4000)})
    found = recommend(Situation(classes=100, images=1000), evidence(far, near))
    assert found.method == "b" and [case.data for case in found.choice.near.apart] == ["y"]
    assert any("no label was run there" in line for line in found.thin)


def test_a_failed_run_excludes_its_label_and_says_why() -> None:
    found = document({"x": {"a": steady(0.1), "b": steady(0.9)}, "y": {"a": steady(0.1), "b": steady(0.9)}})
    broken = [one for one in found["rows"] if one["label"] == "b" and one["data"] == "y"][1]
    broken |= {"scores": None, "p_up": None, "p_comp": None, "seconds": None, "failure": "the loss is NaN"}
    result = recommend(Situation(), evidence(found))
    assert result.method == "a" and list(by_label(result)) == ["a"]
    assert any(
        "'b' was not compared: y, extended-class (tests): with seed 1: the loss is NaN" in s for s in result.thin
    )
    found["rows"].remove(broken)
    assert "not run with seed 1" in next(iter(recommend(Situation(), evidence(found)).choice.left_out.values()))


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_p_values_that_are_not_defined(nothing: float | None) -> None:
    one_label = document({"x": {"a": steady(0.1), "b": [(0.9, 0.0), (nothing, 0.0), (0.9, 0.0)]}})
    found = recommend(Situation(), evidence(one_label))
    assert found.method == "a" and "no P_comp with seed 1" in next(iter(found.choice.left_out.values()))

    no_up = document({"x": {"a": steady(0.1), "b": [(0.9, nothing)] * 3}})
    assert chosen(Situation(), no_up) == "a"

    one_seed = document({"x": {name: [(value, 0.0), (nothing, 0.0)] for name, value in (("a", 0.1), ("b", 0.9))}})
    found = recommend(Situation(), evidence(one_seed))
    assert found.method == "b" and found.choice.cases[0].seeds == (0,) and found.choice.cases[0].undefined == (1,)
    assert any("1 seed did not count" in line for line in found.thin)

    everywhere = document({"x": {"a": steady(math.nan), "b": [(None, 0.1)]}})
    assert recommend(Situation(), evidence(everywhere)).action == "measure"


def test_where_no_label_keeps_p_up_the_highest_is_taken() -> None:
    found = recommend(
        Situation(), evidence(document({"x": {"a": steady(0.9, -0.3), "b": steady(0.1, -0.1), "c": steady(0.5, -0.2)}}))
    )
    assert found.method == "b" and "No method kept P_up" in found.sentences[0]
    assert [one.name.label for one in found.choice.table] == ["b", "c", "a"]
    assert [one.rank for one in found.choice.table] == [1, 2, 3] and not found.choice.table[0].keeps


def test_a_p_comp_below_zero_is_said() -> None:
    found = recommend(Situation(), evidence(document({"x": {"a": steady(-0.1), "b": steady(-0.2)}})))
    assert found.method == "a" and any("not above 0" in line for line in found.sentences)
    better = recommend(Situation(), evidence(document({"x": {"a": steady(0.1), "b": steady(-0.2)}})))
    assert not any("not above 0" in line for line in better.sentences)


def test_the_reference_is_never_recommended() -> None:
    found = {"x": {"independent": steady(0.9, 0.0), "a": steady(-0.5)}}
    assert chosen(Situation(), document(found)) == "a"
    assert recommend(Situation(), evidence(document({"x": {"independent": steady(0.9)}}))).action == "measure"


def test_no_evidence() -> None:
    found = recommend(Situation(classes=10, images=100), Evidence())
    assert (found.action, found.method, found.options, found.thin) == ("measure", None, {}, ())
    assert found.choice.chosen is None and found.choice.cheapest is None and plain(found)["labels"] == []


def test_thin_evidence_is_said_and_rich_evidence_is_not_called_thin() -> None:
    labels = {"a": steady(0.5), "b": steady(0.1)}
    sizes = {"x": (100, 1000), "y": (200, 2000), "z": (300, 3000)}
    rich = evidence(document(dict.fromkeys(sizes, labels), facts=sizes))
    asked = Situation(classes=150, images=1500, old_quality=0.3, scenario=EXTENDED)
    assert recommend(asked, rich).thin == ()
    (few,) = recommend(asked, rich.without("z")).thin
    assert "2 data sets (y and x)" in few
    (far,) = recommend(Situation(classes=10_000, images=100_000, old_quality=0.3, scenario=EXTENDED), rich).thin
    assert "300 classes of 10 images, yours 10,000 classes of 10 images" in far
    (quality,) = recommend(Situation(classes=150, images=1500, old_quality=0.8, scenario=EXTENDED), rich).thin
    assert "reaches 0.800, those of the evidence 0.300 (map)" in quality
    unknown = evidence(document(dict.fromkeys(sizes, labels)))
    (size,) = recommend(asked, unknown).thin
    assert size == "It is not known how large x is."


def test_the_share_of_old_classes_is_compared() -> None:
    found = document({"x": {"a": steady(0.5)}}, facts={"x": (100, 1000)})
    found["facts"]["x"][EXTENDED] |= {"old_classes": 30, "old_images": 300}
    said = {old: " ".join(recommend(Situation(100, 1000, old_classes=old), evidence(found)).thin) for old in (30, 90)}
    assert (
        "learnt 90\N{NO-BREAK SPACE}% as many classes" in said[90]
        and "x 30\N{NO-BREAK SPACE}%" in said[90]
        and "learnt" not in said[30]
    )


def test_a_p_up_near_its_bound_is_said() -> None:
    found = evidence(document({"x": {"a": [(0.5, -0.03), (0.5, -0.06)]}}))  # −0.045 ± 0.021
    assert any("so near to −0.05" in line for line in recommend(Situation(), found).thin)


def test_options_tuned_per_data_set_are_named() -> None:
    near = document({"x": {"a": steady(0.5)}}, options={"weight": 3.0}, facts={"x": (100, 1000)})
    far = document({"y": {"a": steady(0.5)}}, options={"weight": 1.0}, facts={"y": (200, 2000)})
    found = recommend(Situation(classes=100, images=1000), evidence(far, near))
    assert found.options == {"weight": 3.0}
    assert any("option weight was 3.0 on x, 1.0 on y" in line for line in found.sentences)


def test_frozen_models_and_items_without_labels_go_to_adapt() -> None:
    images = document({"x": {"trained": steady(0.9)}})
    heads = document({"texts": {"p2s": steady(0.4), "bct": steady(0.2)}}, kind="features", scenario="half unseen")
    frozen = recommend(Situation(frozen=True), evidence(images))
    assert (frozen.action, frozen.method, frozen.choice.table) == ("adapt", None, ())
    with_heads = recommend(Situation(frozen=True, scenario=EXTENDED), evidence(images, heads))
    assert with_heads.action == "adapt" and with_heads.method is None
    assert [one.name.label for one in with_heads.choice.table] == ["p2s", "bct"]
    assert any("Of heads, take 'p2s'" in line for line in with_heads.sentences)
    unlabelled = recommend(Situation(labelled=False), evidence(images, heads))
    assert unlabelled.action == "adapt" and unlabelled.choice.table == ()
    assert "yours" not in unlabelled.sentences[0] and "your items have none" in unlabelled.sentences[0]


def test_the_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    found = document({d: {m: [tuple(v) for v in rng.normal(0, 0.05, (3, 2))] for m in "abcd"} for d in "xyz"})
    first = plain(recommend(Situation(), evidence(found)))
    random.Random(0).shuffle(found["rows"])
    again = plain(recommend(Situation(), evidence(found)))
    for one in (first, again):
        one["evidence"].sort(key=lambda case: case["data"])
        one["labels"] = [{**label, "options": None} for label in one["labels"]]
        one["sentences"] = one["thin"] = None
    assert first == again and json.dumps(first, allow_nan=False)


def test_the_rule_agrees_with_a_slow_loop() -> None:
    """All data sets of one scenario; half of the draws have no label that keeps P_up."""
    rng = np.random.default_rng(0)
    for draw in range(60):
        centre = rng.choice([0.0, -0.2])
        known = {
            data: {name: [(rng.normal(), rng.normal(centre, 0.03)) for _ in range(2)] for name in "abcde"}
            for data in "wxyz"[: rng.integers(1, 5)]
        }
        best, highest = None, -math.inf
        for stage in ("keeps", "does not"):
            for name in "abcde":
                comp = up = 0.0
                for data in known:
                    for pair in known[data][name]:
                        comp += pair[0] / 2 / len(known)
                        up += pair[1] / 2 / len(known)
                value = comp if stage == "keeps" else up
                if (up >= -0.05 or stage == "does not") and value > highest:
                    best, highest = name, value
            if best is not None:
                break
        assert chosen(Situation(), document(known)) == best, draw


def test_spread_of_cases_with_several_seeds_and_one() -> None:
    assert spread([np.array([1.0]), np.array([0.0, 1.0])]) == (0.75, None, 0.5, 1.0)


def test_documents_are_read_from_a_folder_and_from_the_user(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own.json"
    shipped.mkdir()
    assert shipped_evidence(folder=shipped).cases == ()
    (shipped / "one.json").write_text(json.dumps(document({"x": {"a": steady(0.1)}})))
    found = BenchRuns.model_validate(document({"y": {"a": steady(0.1)}}))
    board = leaderboard_of(found, command="", wall_seconds=1.0, ranked_by="self_old")
    own.write_text(json.dumps(board.to_dict()))
    assert [case.data for case in shipped_evidence([own], folder=shipped).cases] == ["x", "y"]


def test_facts_come_from_the_records_of_a_run(content: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    suite, cache = suite_from(content(), "a test"), CellCache(tmp_path / "cells")
    rows = final_rows(suite, [], None)
    assert facts_of(rows, cache) == {}
    found = Bench(cache).run(suite)
    (data,) = suite.data
    sizes = {"images": 72, "classes": 12, "old_images": 18, "old_classes": 3}  # 12 classes of 6, 30 % of them old
    assert facts_of(rows, cache) == {data: {EXTENDED: Facts(**sizes)}} == found.suite.facts
    silent = found.to_dict()
    del silent["suite"]["facts"]
    for given in (found, found.to_dict(), {**silent, "facts": {data: {EXTENDED: sizes}}}):
        (case,) = evidence(given).cases
        assert case.facts is not None and case.facts.model_dump() == sizes and case.facts.per_class == 6
        assert {name.label for name in case.complete} <= {"p2s", "l2"}


def test_what_comes_with_the_package_can_be_read() -> None:
    for case in shipped_evidence().usable:
        assert case.facts is not None, case.words


def test_documents_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ConfigError, match="no valid JSON"):
        shipped_evidence([broken], folder=tmp_path / "none")
    with pytest.raises(ConfigError, match="Cannot read"):
        shipped_evidence([tmp_path / "absent.json"], folder=tmp_path / "none")
    for content, said in (([], "the document"), ({"suite": SUITE}, "rows"), ({"rows": []}, "suite")):
        with pytest.raises(DataError, match=said):
            evidence(content)
    wrong = document({"x": {"a": steady(0.1)}})
    wrong["rows"][1]["seed"] = "one"
    with pytest.raises(DataError, match=r"rows\.1\.seed"):
        evidence(wrong)
    twice = document({"x": {"a": steady(0.1)}})
    twice["rows"].append(twice["rows"][0])
    with pytest.raises(DataError, match="two runs of a, x, extended-class with seed 0"):
        evidence(twice)


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 0}, {"classes": 5, "images": 4}, {"old_quality": 1.2}, {"old_quality": math.nan},
        {"scenario": "open-clas"}, {"old_classes": 0},
    ],
)  # fmt: skip
def test_a_situation_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Situation(**wrong)


def test_test_sets_of_one_training_are_one_data_set() -> None:
    """Models that searched two sets are not counted as the evidence of two, and are left out together."""
    sets = [document({name: {"a": steady(value)}}, trained_on="landmarks") for name, value in (("x", 0.2), ("y", 0.4))]
    both = {**sets[0], "rows": sets[0]["rows"] + sets[1]["rows"]}
    known = evidence(both, document({"z": {"a": steady(0.1)}}))
    found = recommend(Situation(), known)
    assert "over 3 cases of 2 data sets" in found.sentences[0]
    assert any("2 data sets (landmarks and z)" in words for words in found.thin)
    assert [case.data for case in known.without("landmarks").cases] == ["z"]
    near = nearest_cases(Situation(classes=10, images=100), evidence(both).usable, 1)
    assert [case.data for case, _ in near.cases] == ["x", "y"]


def test_one_set_that_models_of_two_trainings_searched_is_two_cases() -> None:
    rows = [row("x", "a", 0, 0.2, 0.0, trained_on=data) for data in ("faces", "people")]
    known = evidence({"suite": SUITE, "rows": rows})
    assert [(case.data, case.trained_on) for case in known.cases] == [("x", "faces"), ("x", "people")]
