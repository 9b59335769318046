from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from holdfast.bench.cases import Evidence
from holdfast.bench.recommend import choose
from holdfast.bench.regret import CHEAPEST, ORACLE, RANDOM, RULE, Regret, plain, regret, situation_of, worth

EXTENDED = "extended-class"
Pair = tuple[float, float]  # P_comp, P_up


def evidence(found: dict[str, dict[str, list[Pair]]], *, scenario: str = EXTENDED, suite: str = "tests") -> Evidence:
    rows: list[dict[str, Any]] = [
        {
            "data": data, "scenario": scenario, "label": label, "method": label, "seed": seed, "p_comp": comp,
            "p_up": up, "metric": "map", "scores": {},
        }
        for data, labels in found.items()
        for label, values in labels.items()
        for seed, (comp, up) in enumerate(values)
    ]  # fmt: skip
    facts = {data: {scenario: {"images": 1000 * 2**place, "classes": 100}} for place, data in enumerate(found)}
    told = {"name": suite, "title": "", "description": "", "metric": "map", "kind": "images"}
    return Evidence.of([("a test", {"suite": told, "rows": rows, "facts": facts})])


def summary(found: Regret, name: str) -> Any:
    return next(one for one in found.summaries if one.strategy == name)


def test_a_worked_example() -> None:
    """On x and y a is chosen from the other two; on z the mean of x and y says a, where b is better by 0.3."""
    a, b, c = [(0.4, 0.0), (0.4, 0.0)], [(0.3, 0.0), (0.3, 0.0)], [(0.9, -0.3), (0.9, -0.3)]
    low, high = [(0.1, 0.0), (0.1, 0.0)], [(0.4, 0.0), (0.4, 0.0)]
    found = regret(
        evidence({"x": {"a": a, "b": b, "c": c}, "y": {"a": a, "b": b, "c": c}, "z": {"a": low, "b": high, "c": c}})
    )
    # without x: y and z give a 0.25 and b 0.35, so b, 0.1 worse than a; likewise y; without z: a, 0.3 worse than b
    rule = summary(found, RULE)
    assert [one[RULE].label for one in found.outcomes] == ["b", "b", "a"]
    assert [one[RULE].regret for one in found.outcomes] == pytest.approx([0.1, 0.1, 0.3])
    assert (rule.cases, rule.missing, rule.violated, rule.best) == (3, 0, 0, 0)
    assert (rule.regret, rule.worst) == pytest.approx((0.5 / 3, 0.3))
    assert summary(found, "always a")[2:] == pytest.approx((0, 0, 0.1, 0.3, 2))
    assert summary(found, "always b")[2:] == pytest.approx((0, 0, 0.2 / 3, 0.1, 1))
    assert summary(found, "always c")[2:] == (0, 3, None, None, 0)  # P_comp bought with P_up is no gain
    assert summary(found, ORACLE)[2:] == (0, 0, 0, 0, 3)
    at_random = summary(found, RANDOM)
    assert at_random[2:] == pytest.approx((0, 1, (0.05 + 0.05 + 0.15) / 3, 0.15, 1))
    assert found.unavoidable == 0 and found.summaries[0].strategy == RULE
    assert json.dumps(plain(found), allow_nan=False)


def test_what_the_rule_is_worth_is_said() -> None:
    a, b = [(0.4, 0.0)] * 2, [(0.3, 0.0)] * 2
    low, high = [(0.1, 0.0)] * 2, [(0.4, 0.0)] * 2
    of_three = {"x": {"a": a, "b": b}, "y": {"a": a, "b": b}, "z": {"a": low, "b": high}}  # as in the worked example
    found = worth(regret(evidence(of_three)))
    assert (
        "worse than always taking b and than chance (mean regret 0.167 against 0.067 and 0.083): take it as a guess"
        in (found.sentence)
    )
    assert "3 data sets left out in turn (3 cases)" in found.detail and "0 of 3; always taking b" in found.detail
    assert [one.strategy for one in found.summaries] == [RULE, "always b", RANDOM]
    agreeing = worth(regret(evidence({"x": {"a": a, "b": b}, "y": {"a": a, "b": b}})))
    assert "no worse than always taking a and than chance (mean regret 0.000 against 0.000 and 0.050): compare" in (
        agreeing.sentence
    )
    assert worth(regret(evidence({"x": {"a": a}}))).sentence.startswith("Nobody knows")
    assert worth(regret(Evidence())).sentence.startswith("Nobody knows")


def test_what_was_chosen_nowhere_does_not_count_for_the_rule() -> None:
    a, b = [(0.4, 0.0)] * 2, [(0.3, 0.0)] * 2
    pair = {"x": {"a": a, "b": b}, "y": {"a": a, "b": b}}
    alone = regret(Evidence((*evidence(pair).cases, *evidence({"w": {"c": a}}).cases)))
    chose = [one[RULE].p_comp is not None for one in alone.outcomes]
    assert not all(chose) and f"({sum(chose)} case)" in worth(alone).detail


def test_a_violated_bound_is_counted_and_not_hidden() -> None:
    keeps, breaks = [(0.5, 0.0)] * 2, [(0.9, -0.2)] * 2
    found = regret(evidence({"x": {"a": keeps, "b": [(0.1, 0.0)] * 2}, "y": {"a": breaks, "b": [(0.2, 0.0)] * 2}}))
    on_y = found.outcomes[1]
    assert on_y[RULE].label == "a" and on_y[RULE].violated == 1 and on_y[RULE].regret is None and on_y[RULE].best == 0
    assert on_y[ORACLE].label == "b" and on_y[ORACLE].violated == 0
    assert summary(found, RULE).violated == 1 and summary(found, RULE).missing == 0


def test_cases_where_no_label_keeps_p_up_are_counted() -> None:
    found = regret(
        evidence({"x": {"a": [(0.1, -0.1)], "b": [(0.2, -0.2)]}, "y": {"a": [(0.1, 0.0)], "b": [(0.2, 0.0)]}})
    )
    assert found.unavoidable == 1
    assert found.outcomes[0][ORACLE].label == "a" and found.outcomes[0][ORACLE].best == 1  # the highest P_up
    assert summary(found, ORACLE).violated == 1 and summary(found, ORACLE).best == 2
    assert summary(found, ORACLE).regret == 0  # over the other case


def test_a_data_set_is_left_out_with_all_its_scenarios_and_suites() -> None:
    values = {"a": [(0.5, 0.0)] * 2, "b": [(0.1, 0.0)] * 2}
    other = {"a": [(0.1, 0.0)] * 2, "b": [(0.5, 0.0)] * 2}
    parts = [evidence({"x": values}), evidence({"x": values}, suite="second"), evidence({"y": other})]
    found = regret(Evidence(tuple(case for part in parts for case in part.cases)))
    assert [one[RULE].label for one in found.outcomes] == ["b", "b", "a"]


def test_one_data_set_gives_nothing_to_go_by() -> None:
    found = regret(evidence({"x": {"a": [(0.5, 0.0)]}}))
    assert summary(found, RULE)[1:] == (1, 1, 0, None, None, 0)
    assert regret(Evidence()).summaries == []


def test_a_label_without_a_number_is_missing_there() -> None:
    found = regret(evidence({"x": {"a": [(0.5, 0.0)] * 2}, "y": {"b": [(0.5, 0.0)] * 2}}))
    assert [one[RULE].label for one in found.outcomes] == ["b", "a"] and summary(found, RULE).missing == 2
    assert summary(found, "always a").missing == 1 and summary(found, "always a").regret == 0
    missing = [one.strategy for one in found.summaries if one.missing]
    assert missing == [RULE, "always a", "always b", CHEAPEST]  # after those with none


def test_the_outcome_of_a_case_is_no_part_of_its_situation() -> None:
    known = {"x": {"a": [(0.5, 0.0)] * 2, "b": [(0.1, 0.0)] * 2}, "y": {"a": [(0.1, 0.0)] * 2, "b": [(0.2, 0.0)] * 2}}
    changed = {**known, "x": {"a": [(-0.5, 0.3)] * 2, "b": [(9.0, 0.0)] * 2}}
    first, again = regret(evidence(known)).outcomes[0], regret(evidence(changed)).outcomes[0]
    assert first[RULE].label == again[RULE].label == "b" and first[CHEAPEST].label == again[CHEAPEST].label
    assert situation_of(evidence(known).cases[0]) == situation_of(evidence(changed).cases[0])


def test_regret_agrees_with_a_slow_loop() -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        known = {
            data: {name: [(rng.normal(), rng.normal(-0.04, 0.03)) for _ in range(2)] for name in "abcd"}
            for data in "vwxyz"
        }
        evidence_of_all = evidence(known)
        found = regret(evidence_of_all, nearest=2)
        for case, outcomes in zip(found.cases, found.outcomes, strict=True):
            means = {name: np.mean(values, axis=0) for name, values in known[case.data].items()}
            keepers = {name: mean for name, mean in means.items() if mean[1] >= -0.05}
            others = {data: labels for data, labels in known.items() if data != case.data}
            facts = {c.data: c.facts for c in evidence_of_all.cases}
            near = sorted(others, key=lambda data: abs(np.log2(facts[data].images / facts[case.data].images)))
            limit = abs(np.log2(facts[near[1]].images / facts[case.data].images))
            near = [d for d in near if abs(np.log2(facts[d].images / facts[case.data].images)) <= limit]
            over = {name: np.mean([np.mean(known[data][name], axis=0) for data in near], axis=0) for name in "abcd"}
            allowed = [name for name in "abcd" if over[name][1] >= -0.05]
            choice = (
                max(allowed, key=lambda name: over[name][0]) if allowed else max(over, key=lambda name: over[name][1])
            )
            assert outcomes[RULE].label == choice
            if keepers:
                best = max(mean[0] for mean in keepers.values())
                expected = best - means[choice][0] if choice in keepers else None
                assert outcomes[RULE].regret == pytest.approx(expected)
                assert outcomes[RANDOM].regret == pytest.approx(np.mean([best - mean[0] for mean in keepers.values()]))
            assert outcomes[RANDOM].violated == pytest.approx(1 - len(keepers) / 4)
            assert outcomes[RULE].violated == (choice not in keepers)
            rule = choose(situation_of(case), evidence_of_all.without(case.data), nearest=2)
            assert sorted(c.data for c in rule.cases) == sorted(near)
