from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.errors import ConfigError, DataError
from limpet.evaluation.results import Evaluation, EvaluationResults

from .changes import changed

Make = Callable[..., EvaluationResults]


def place(values: dict[str, Any], keys: tuple[str | int, ...]) -> Any:
    found: Any = values
    for key in keys:
        found = found[key]
    return found


def holds(found: Any, given: Any) -> bool:
    """Return whether everything that was given is there as it was; what was absent may have come as None."""
    if isinstance(given, dict):
        return all(key in found and holds(found[key], value) for key, value in given.items())
    if isinstance(given, list):
        return len(found) == len(given) and all(map(holds, found, given))
    return bool(found == given)


def test_the_results_hold_every_evaluation_as_it_is(
    results: EvaluationResults, evaluations: dict[str, Evaluation]
) -> None:
    assert results.schema_version == 1
    assert results.limpet == limpet.__version__
    assert list(results.evaluations) == list(evaluations)
    assert all(results.evaluations[name] is found for name, found in evaluations.items())
    assert results.to_dict()["evaluations"] == {name: found.to_dict() for name, found in evaluations.items()}
    assert {"python", "numpy", "torch"} <= set(results.versions)


def test_written_results_read_as_they_were(results: EvaluationResults, tmp_path: Path) -> None:
    path = results.save(tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "results.json"
    expected = results.to_dict()
    assert json.loads(path.read_text(encoding="utf-8")) == expected
    assert "per_query" not in expected["evaluations"]["p2s"]
    assert EvaluationResults.load(path).to_dict() == expected
    assert EvaluationResults.load(path.parent).to_dict() == expected
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_unlabelled_results_read_as_they_were(unlabelled: Evaluation, make_results: Make, tmp_path: Path) -> None:
    results = make_results({"p2s": unlabelled})
    read = EvaluationResults.load(results.save(tmp_path))
    assert read.only().verdict == "unlabelled" and not read.only().scored
    assert read.only().agreement == unlabelled.agreement
    assert read.to_dict() == results.to_dict()


@pytest.mark.parametrize(
    "keys",
    [("title",), ("data", "description"), ("models",), ("evaluations", "p2s", "cross"), ("evaluations", "p2s", "gate")],
)
def test_a_missing_key_is_refused_by_name(results: EvaluationResults, tmp_path: Path, keys: tuple[str, ...]) -> None:
    damaged = results.to_dict()
    del place(damaged, keys[:-1])[keys[-1]]
    (tmp_path / "results.json").write_text(json.dumps(damaged))
    with pytest.raises(ConfigError, match=r"\.".join(keys)) as refused:
        EvaluationResults.load(tmp_path)
    assert "complete results of an evaluation of an upgrade, “limpet evaluate”" in str(refused.value)


def test_a_number_that_is_none_is_refused(results: EvaluationResults) -> None:
    with pytest.raises(ConfigError, match="cross"):
        changed(results, lambda values: values["evaluations"]["p2s"]["cross"].update(map="good"))


@pytest.mark.parametrize(
    "keys",
    [
        ("p2s", "class_change", "curve"),
        ("p2s", "class_change", "best", 0, "change"),
        ("p2s", "p_value", "map"),
        ("p2s", "positive_flip_rate", "cross"),
        ("p2s", "upgrade_curve", "shares"),
        ("p2s", "fingerprints", "old"),
        ("p2s", "protocol", "bootstrap", "level"),
    ],
)
def test_what_is_new_is_checked_where_it_is_there(results: EvaluationResults, keys: tuple[str | int, ...]) -> None:
    def damage(values: dict[str, Any]) -> None:
        place(values["evaluations"], keys[:-1])[keys[-1]] = "good"

    with pytest.raises(ConfigError, match=r"evaluations\.p2s\." + str(keys[1])):
        changed(results, damage)


@pytest.mark.parametrize("wrong", [object(), float("nan"), float("inf")], ids=["object", "nan", "inf"])
def test_values_of_data_and_models_that_are_no_json_are_refused(
    evaluations: dict[str, Evaluation], make_results: Make, tmp_path: Path, wrong: Any
) -> None:
    data = {"name": "clusters", "description": "simulated points", "numbers": {"classes": wrong}}
    for values in ({"data": data}, {"models": {"p2s": {"options": {"weight": [wrong]}}}}):
        results = make_results(evaluations, **values)
        with pytest.raises(DataError, match="cannot be written as JSON"):
            results.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_evaluation_is_refused(make_results: Make) -> None:
    with pytest.raises(ConfigError, match="no evaluation"):
        make_results({})


def test_evaluations_of_different_protocols_are_refused(
    evaluations: dict[str, Evaluation], evaluated: Callable[..., Evaluation], make_results: Make
) -> None:
    other = evaluated("same", seed=1, curve=False)
    with pytest.raises(DataError, match="'p2s' and 'same' have another protocol"):
        make_results({"p2s": evaluations["p2s"], "same": other})
    other = evaluated("same", gate="point", curve=False)
    with pytest.raises(DataError, match="another gate"):
        make_results({"p2s": evaluations["p2s"], "same": other})
