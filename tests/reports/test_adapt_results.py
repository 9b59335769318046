from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limpet
from limpet.errors import ConfigError
from limpet.evaluation.results import EvaluationResults
from limpet.linking.compare import Effect
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import adapt_table, failures
from limpet.reports.formats import plain_text
from limpet.reports.thresholds import round_thresholds

Keys = tuple[Any, ...]
Make = Callable[..., AdaptResults]

NAMES = ["head ndpp", "residual_mlp", "ridge", "low_rank", "lambda_orthogonal", "local", "procrustes", "mean_drift"]


def changed(results: AdaptResults, keys: Keys, value: Any) -> dict[str, Any]:
    """Return the values of results with one replaced."""
    part = found = results.to_dict()
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    return found


def without(results: AdaptResults, keys: Keys) -> dict[str, Any]:
    """Return the values of results without one."""
    part = found = results.to_dict()
    for key in keys[:-1]:
        part = part[key]
    del part[keys[-1]]
    return found


def test_written_results_read_as_they_were(adapted: AdaptResults, tmp_path: Path) -> None:
    path = adapted.save(tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "results.json"
    assert AdaptResults.load(path) == AdaptResults.load(path.parent) == adapted
    assert adapted.limpet == limpet.__version__ and "python" in adapted.versions


def test_results_without_versions_are_complete(adapted: AdaptResults) -> None:
    found = {key: value for key, value in adapted.to_dict().items() if key not in ("limpet", "versions")}
    read = AdaptResults.parse(found)
    assert read.to_dict() == found | {"limpet": None, "versions": {}}
    assert AdaptResults.of(**found) == adapted


def test_what_is_unknown_may_be_none(make_adapt: Make) -> None:
    assert make_adapt(thresholds=None, learning_curve=None, suspects=None).suspects is None
    nothing = make_adapt({"ridge": "too few pairs", "local": "too few pairs"})
    assert (nothing.best, nothing.best_adapter, nothing.learning_curve) == (None, None, None)


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_another_schema_version_is_refused(adapted: AdaptResults, version: Any) -> None:
    with pytest.raises(ConfigError, match=f"(?s)schema version {version}.*run “limpet adapt” again"):
        AdaptResults.parse(adapted.to_dict() | {"schema_version": version})


def test_results_of_another_kind_are_refused(adapted: AdaptResults, results: EvaluationResults) -> None:
    with pytest.raises(ConfigError, match=r"(?s)'x'.*of the kind 'sessions'.*“limpet adapt”"):
        AdaptResults.parse(adapted.to_dict() | {"kind": "sessions"}, "'x'")
    with pytest.raises(ConfigError, match="of the kind 'evaluation'"):
        AdaptResults.parse(results.to_dict())


@pytest.mark.parametrize(
    "keys",
    [
        ("title",),
        ("data", "labelled"),
        ("models", "old", "fingerprint"),
        ("suspects", "sentence"),
        ("protocol", "direction"),
        ("systems",),
        ("systems", "self_new"),
        ("candidates", 1, "recovered"),
        ("candidates", 1, "cross", "interval"),
        ("candidates", 1, "unseen", "queries"),
        ("learning_curve", "points", 2, "pairs"),
        ("thresholds", "rows"),
        ("recommendation", "action"),
    ],
)
def test_a_missing_key_is_refused_by_name(adapted: AdaptResults, keys: Keys) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        AdaptResults.parse(without(adapted, keys))


@pytest.mark.parametrize("keys", [("later",), ("data", "later"), ("candidates", 1, "cross", "later")])
def test_what_a_later_version_adds_is_kept(adapted: AdaptResults, keys: Keys) -> None:
    later = changed(adapted, keys, [1, {"a": None}])
    assert AdaptResults.parse(later).to_dict() == later


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("candidates",), []),
        (("candidates", 1, "cross", "mean"), 1.2),
        (("candidates", 1, "cross", "mean"), math.nan),
        (("candidates", 1, "cross", "interval"), [0.5]),
        (("candidates", 1, "cross_minus_self_old", "mean"), -1.2),
        (("candidates", 1, "recovered"), math.inf),
        (("candidates", 1, "seconds"), -1.0),
        (("candidates", 1, "kind"), "map"),
        (("candidates", 1, "name"), ""),
        (("data", "pairs"), 2.5),
        (("data", "labelled"), 1),
        (("protocol", "metric"), "recall@1"),
        (("protocol", "direction"), "sideways"),
        (("candidates", 0, "direction"), "sideways"),
        (("protocol", "level"), 1.0),
        (("protocol", "resamples"), 0),
        (("models", "new", "dim"), 0),
        (("suspects", "share"), -0.1),
        (("learning_curve", "points", 0, "pairs"), 0),
        (("thresholds", "rows"), [[0.0, 0.0]]),
        (("recommendation", "action"), "wait"),
    ],
)
def test_what_is_no_such_value_is_refused_by_name(adapted: AdaptResults, keys: Keys, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        AdaptResults.parse(changed(adapted, keys, value))


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        (("protocol", "metric"), "overlap@10", r"protocol\.metric is 'overlap@10'.*\nExpected: 'map'"),
        (("data", "classes"), None, r"data\.classes is None"),
        (("candidates", 2, "name"), "ridge", r"candidates\.2\.name is 'ridge' again"),
        (("candidates", 1, "failed"), "no memory", r"candidates\.1\.cross is .*none just where"),
        (("candidates", 7, "failed"), None, r"candidates\.7\.cross is None"),
        (("candidates", 1, "cross", "interval"), [0.6, 0.5], r"candidates\.1\.cross\.interval is \[0\.6, 0\.5\]"),
        (("candidates", 8, "own", "interval"), [0.6, 0.5], r"candidates\.8\.own\.interval"),
        (("systems", "self_old", "interval"), [0.6, 0.5], r"systems\.self_old\.interval"),
        (("learning_curve", "points", 3, "cross", "interval"), [0.6, 0.5], r"points\.3\.cross\.interval"),
        (("best",), "identity", "best is 'identity'.*\nExpected: one of the measured candidates: head ndpp, residual"),
        (("best_adapter",), "head ndpp", "best_adapter is 'head ndpp'.*\nExpected: one of the measured adapters"),
        (("best_head",), "ridge", "best_head is 'ridge'.*\nExpected: one of the measured heads: head ndpp"),
        (("recommendation", "candidate"), "head ndpp", "recommendation.candidate is 'head ndpp'"),
        (("recommendation", "candidate"), None, "recommendation.candidate is None.*\nExpected: the adapter"),
        (("learning_curve", "candidate"), "other", r"learning_curve\.candidate is 'other'"),
        (("learning_curve", "points", 1, "pairs"), 64, r"learning_curve\.points is at \[64, 64, 256"),
        (("learning_curve", "enough"), 1_000, r"learning_curve\.enough is 1000.*\nExpected: one of 64, 128"),
        (("thresholds", "rows", 1, "old"), -9, r"thresholds\.rows is .* before -9"),
    ],
)
def test_parts_that_do_not_agree_are_refused(adapted: AdaptResults, keys: Keys, value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        AdaptResults.parse(changed(adapted, keys, value))


def test_without_labels_only_agreement_is_known(make_adapt: Make) -> None:
    unlabelled = make_adapt(labelled=False)
    with pytest.raises(ConfigError, match=r"protocol\.metric is 'map'"):
        AdaptResults.parse(changed(unlabelled, ("protocol", "metric"), "map"))
    with pytest.raises(ConfigError, match=r"data\.classes is 5"):
        AdaptResults.parse(changed(unlabelled, ("data", "classes"), 5))


def test_the_best_comes_first_and_what_failed_last(adapted: AdaptResults) -> None:
    assert [found.name for found in adapted.by_score()] == [*NAMES, "identity"]
    values = adapted.to_dict()
    good, bad = values["candidates"][1], values["candidates"][7]
    values |= dict.fromkeys(("best", "best_adapter", "best_head", "learning_curve"))
    values["recommendation"] = {"action": "re-embed", "candidate": None, "sentences": []}
    values["candidates"] = [*(bad | {"name": name} for name in "dc"), *(good | {"name": name} for name in "ba")]
    assert [found.name for found in AdaptResults.parse(values).by_score()] == ["b", "a", "d", "c"]


@pytest.mark.parametrize(
    ("action", "candidate", "used"),
    [("train a head", "head ndpp", True), ("re-embed", "ridge", False), ("check the pairs", "ridge", False)],
)
def test_a_candidate_is_recommended_only_to_be_used(
    adapted: AdaptResults, action: str, candidate: str, used: bool
) -> None:
    assert adapted.recommended is adapted.named("residual_mlp")
    advice = {"action": action, "candidate": candidate, "sentences": []}
    advised = AdaptResults.parse(changed(adapted, ("recommendation",), advice))
    assert advised.named(candidate) is not None
    assert advised.recommended is (advised.named(candidate) if used else None)


def test_the_table_holds_the_numbers_of_the_document(adapted: AdaptResults) -> None:
    columns, rows = adapt_table(adapted)
    assert columns == [
        "candidate", "kind", "cross (mAP)", "minus self (old)", "gain recovered", "after backfill",
        "unseen classes", "fit seconds",
    ]  # fmt: skip
    assert [row[0] for row in rows] == ["old model as it is", *NAMES, "identity", "everything re-embedded"]
    new = adapted.systems.self_new
    for row in rows[1:-2]:
        found = adapted.named(row[0])
        gap, own, seconds = found.cross_minus_self_old, found.own or new, found.seconds
        assert [*map(plain_text, row[1:])] == [
            found.kind,
            written(found.cross, "{:.3f}"),
            written(gap, "{:+.3f}"),
            f"{100 * found.recovered:.1f} %",
            f"{own.mean:.3f}",
            f"{found.unseen.cross:.3f}",
            f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}",
        ]
    assert rows[1][5] != rows[-1][5] and rows[2][5] == rows[-1][5]  # a head has a backfill of its own


def written(mean: Effect, form: str) -> str:
    low, high = map(form.format, mean.interval)
    return f"{form.format(mean.mean)} [{low}, {high}]"


def test_the_references_stand_first_and_last(adapted: AdaptResults) -> None:
    (first, *_, last), systems = adapt_table(adapted)[1], adapted.systems
    unseen = adapted.candidates[0].unseen
    old, new = (written(system, "{:.3f}") for system in systems.by_name().values())
    gain = systems.self_new.mean - systems.self_old.mean
    assert first == ["old model as it is", "–", old, "–", "–", "–", f"{unseen.self_old:.3f}", "–"]
    expected = ["everything re-embedded", "–", new, f"{gain:+.3f}", "–", new[:5], f"{unseen.self_new:.3f}", "–"]
    assert last == expected


def test_a_failed_candidate_keeps_its_row_and_its_reason(adapted: AdaptResults) -> None:
    row = adapt_table(adapted)[1][-2]
    reason = adapted.candidates[7].failed
    assert row[:3] == ["identity", "adapter", "– failed"] and row[3:7] == ["–"] * 4
    assert failures(adapted) == [f"identity failed: {reason}"]


def test_a_reason_of_several_lines_is_told_on_one(make_adapt: Make) -> None:
    assert failures(make_adapt({"ridge": "3 pairs.\nExpected: at least 20"})) == [
        "ridge failed: 3 pairs. Expected: at least 20"
    ]


def test_a_column_of_which_nothing_is_known_is_left_out(make_adapt: Make) -> None:
    columns, rows = adapt_table(make_adapt({"ridge": 0.5}, labelled=False))
    assert columns == [
        "candidate", "kind", "cross (overlap@10, provisional)", "minus self (old)", "gain recovered",
        "after backfill", "fit seconds",
    ]  # fmt: skip
    assert {len(row) for row in rows} == {7}
    columns, rows = adapt_table(make_adapt({"ridge": "too few pairs"}))
    assert columns == ["candidate", "kind", "cross (mAP)", "minus self (old)", "after backfill",
                       "fit seconds"]  # fmt: skip
    assert rows[1][2:5] == ["– failed", "–", "–"]


def test_thresholds_are_round_and_within_the_table(adapted: AdaptResults) -> None:
    table = adapted.thresholds.rows
    found = round_thresholds(adapted.thresholds)
    assert 5 <= len(found) <= 12
    for row in found:
        assert table[0].old <= row.old <= table[-1].old and row.old == round(row.old, 2)
        assert row.new == pytest.approx(np.interp(row.old, [one.old for one in table], [one.new for one in table]))
