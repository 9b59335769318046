from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation import Evaluation
from holdfast.reports.results import read_results, results_document, write_results


def test_the_document_holds_every_evaluation_as_it_is(
    document: dict[str, Any], evaluations: dict[str, Evaluation]
) -> None:
    assert document["schema_version"] == 1
    assert document["holdfast"] == holdfast.__version__
    assert document["evaluations"] == {name: found.to_dict() for name, found in evaluations.items()}
    assert {"python", "numpy", "torch"} <= set(document["versions"])


def test_a_written_document_reads_as_it_was(document: dict[str, Any], tmp_path: Path) -> None:
    path = write_results(document, tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "results.json"
    expected = json.loads(json.dumps(document))
    assert read_results(path) == expected
    assert read_results(path.parent) == expected
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_an_unlabelled_document_reads_as_it_was(
    unlabelled: Evaluation, make_document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    document = make_document({"p2s": unlabelled})
    assert read_results(write_results(document, tmp_path))["evaluations"]["p2s"]["verdict"] == "unlabelled"


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_another_schema_version_is_refused(document: dict[str, Any], tmp_path: Path, version: Any) -> None:
    path = write_results(document | {"schema_version": version}, tmp_path)
    with pytest.raises(ConfigError, match=f"schema version {version}"):
        read_results(path)


@pytest.mark.parametrize(
    "keys",
    [("title",), ("data", "description"), ("models",), ("evaluations", "p2s", "cross"), ("evaluations", "p2s", "gate")],
)
def test_a_missing_key_is_refused_by_name(document: dict[str, Any], tmp_path: Path, keys: tuple[str, ...]) -> None:
    part = damaged = deepcopy(document)
    for key in keys[:-1]:
        part = part[key]
    del part[keys[-1]]
    path = write_results(damaged, tmp_path)
    with pytest.raises(ConfigError, match=r"\.".join(keys)):
        read_results(path)


def test_a_number_that_is_none_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    damaged = deepcopy(document)
    damaged["evaluations"]["p2s"]["cross"]["map"] = "good"
    with pytest.raises(ConfigError, match="cross"):
        read_results(write_results(damaged, tmp_path))


@pytest.mark.parametrize(
    "keys",
    [
        ("p2s", "class_change", "curve"),
        ("p2s", "class_change", "best", 0, "change"),
        ("p2s", "p_value", "map"),
        ("p2s", "positive_flip_rate", "cross"),
    ],
)
def test_what_is_new_is_checked_where_it_is_there(
    document: dict[str, Any], tmp_path: Path, keys: tuple[str | int, ...]
) -> None:
    damaged = deepcopy(document)
    part: Any = damaged["evaluations"]
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = "good"
    with pytest.raises(ConfigError, match=r"evaluations\.p2s\." + str(keys[1])):
        read_results(write_results(damaged, tmp_path))


def test_documents_of_earlier_versions_are_read(
    document: dict[str, Any],
    unlabelled: Evaluation,
    make_document: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    earlier = deepcopy(document)
    for record in earlier["evaluations"].values():
        for key in ("p_value", "positive_flip_rate", "class_change"):
            del record[key]
    assert read_results(write_results(earlier, tmp_path / "a")) == json.loads(json.dumps(earlier))
    bare = deepcopy(make_document({"p2s": unlabelled}))
    bare["evaluations"]["p2s"]["agreement"] = {"overlap@10": 0.5, "interval": [0.25, 0.75]}
    assert read_results(write_results(bare, tmp_path / "b")) == json.loads(json.dumps(bare))
    bare["evaluations"]["p2s"]["agreement"] = {"overlap@10": 0.5}
    with pytest.raises(ConfigError, match="agreement"):
        read_results(write_results(bare, tmp_path / "c"))


def test_unknown_keys_of_later_versions_are_kept(document: dict[str, Any], tmp_path: Path) -> None:
    assert read_results(write_results(document | {"later": 1}, tmp_path))["later"] == 1


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_what_is_no_document_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ConfigError):
        read_results(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        read_results(tmp_path / "absent.json")


def test_values_that_are_no_json_are_refused_and_nothing_is_left(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="JSON"):
        write_results(document | {"title": {1, 2}}, tmp_path)
    with pytest.raises(DataError, match="JSON"):
        write_results(document | {"title": float("nan")}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_evaluation_is_refused() -> None:
    with pytest.raises(ConfigError, match="no evaluation"):
        results_document({}, title="x", data={"name": "x", "description": "", "numbers": {}}, models={})


def test_evaluations_of_different_protocols_are_refused(
    evaluations: dict[str, Evaluation],
    evaluated: Callable[..., Evaluation],
    make_document: Callable[..., dict[str, Any]],
) -> None:
    other = evaluated("same", seed=1, curve=False)
    with pytest.raises(DataError, match="'p2s' and 'same' have another protocol"):
        make_document({"p2s": evaluations["p2s"], "same": other})
    other = evaluated("same", gate="point", curve=False)
    with pytest.raises(DataError, match="another gate"):
        make_document({"p2s": evaluations["p2s"], "same": other})
