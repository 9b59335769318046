from __future__ import annotations

import json
import math
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError, DataError
from holdfast.reports.results import read_results
from holdfast.reports.sessions_results import (
    best_first,
    read_sessions,
    seconds_of,
    sessions_document,
    sessions_markdown,
    sessions_table,
    write_sessions,
)

Keys = tuple[Any, ...]


def changed(document: dict[str, Any], keys: Keys, value: Any = None) -> dict[str, Any]:
    """Return the document with one value replaced, or removed where none is given."""
    part = found = deepcopy(document)
    for key in keys[:-1]:
        part = part[key]
    if value is None:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return found


def test_the_document_is_what_was_measured_and_what_measured_it(nine_learners: SimpleNamespace) -> None:
    versions = ("holdfast", "versions")
    found = {key: value for key, value in nine_learners.document.items() if key not in versions}
    assert sessions_document(found) == nine_learners.document
    assert nine_learners.document["holdfast"] == holdfast.__version__
    assert {"python", "numpy", "torch"} <= set(nine_learners.document["versions"])


@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "without_bounds"])
def test_a_written_document_reads_as_it_was(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    document = request.getfixturevalue(name).document
    path = write_sessions(document, tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "results.json"
    assert read_sessions(path) == read_sessions(path.parent) == json.loads(json.dumps(document))
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_a_document_without_versions_is_complete(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    found = {key: value for key, value in nine_learners.document.items() if key not in ("holdfast", "versions")}
    assert read_sessions(write_sessions(found, tmp_path)) == json.loads(json.dumps(found))


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_another_schema_version_is_refused(nine_learners: SimpleNamespace, version: Any) -> None:
    with pytest.raises(ConfigError, match=f"schema version {version}"):
        sessions_document(nine_learners.document | {"schema_version": version})


def test_results_of_an_upgrade_are_none_of_sessions(
    document: dict[str, Any], nine_learners: SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"(?s)of the kind 'evaluation'.*“holdfast sessions”"):
        read_sessions(path)
    with pytest.raises(ConfigError, match="kind 'sessions'"):
        read_results(write_sessions(nine_learners.document, tmp_path))


@pytest.mark.parametrize(
    "keys",
    [
        ("title",),
        ("bounds", "lower"),
        ("data", "test queries"),
        ("plan", "home"),
        ("learners", "cvs", "forgetting"),
        ("learners", "cvs", "sessions", 2, "recall"),
        ("learners", "cvs", "sessions", 2, "seconds", "rest"),
    ],
)
def test_a_missing_key_is_refused_by_name(nine_learners: SimpleNamespace, tmp_path: Path, keys: Keys) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        write_sessions(changed(nine_learners.document, keys), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "keys",
    [
        ("later",),
        ("bounds", "middle"),
        ("data", "numbers"),
        ("plan", "later"),
        ("learners", "cvs", "later"),
        ("learners", "cvs", "sessions", 0, "later"),
        ("learners", "cvs", "sessions", 0, "seconds", "waiting"),
    ],
)
def test_an_unknown_key_is_refused_by_name(nine_learners: SimpleNamespace, keys: Keys) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        sessions_document(changed(nine_learners.document, keys, 1))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("learners", "cvs", "average_recall", "1"), 1.2),
        (("learners", "cvs", "average_recall", "1"), math.nan),
        (("learners", "cvs", "forgetting"), math.inf),
        (("learners", "cvs", "gallery_policy"), "replace"),
        (("learners", "cvs", "sessions", 0, "recall", "1"), "0.5"),
        (("learners", "cvs", "sessions", 0, "recall_by_home", 0), math.nan),
        (("learners", "cvs", "sessions", 0, "queries"), 2.5),
        (("learners", "cvs", "sessions", 0, "queries"), True),
        (("learners", "cvs", "sessions", 0, "gallery_rows"), -1),
        (("learners", "cvs", "sessions", 0, "seconds", "training"), -0.1),
        (("learners", "cvs", "sessions", 0, "seconds", "rest"), math.inf),
        (("learners", "cvs", "sessions"), []),
        (("learners",), {}),
        (("ks",), []),
        (("seed",), "0"),
        (("budget",), -1),
    ],
)
def test_what_is_no_such_number_is_refused_by_name(nine_learners: SimpleNamespace, keys: Keys, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        sessions_document(changed(nine_learners.document, keys, value))


def test_plain_values_that_are_no_json_are_refused(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    for part in ("model", "recipe"):
        with pytest.raises(DataError, match="JSON"):
            write_sessions(changed(nine_learners.document, (part, "mean"), math.nan), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_with_nan_is_refused(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(changed(nine_learners.document, ("model", "mean"), math.nan)))
    with pytest.raises(ConfigError, match="NaN is no number"):
        read_sessions(path)


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        (("ks",), [2, 4], "ks is"),
        (("ks",), [1, 4, 2], "ks is"),
        (("ks",), [1, 2], r"average_recall is .*recall at 1, 2"),
        (("plan", "training"), [1, 2], r"plan\.training is \[1, 2\].*\nExpected: an entry for each of 5 sessions"),
        (("bounds", "lower"), "fine", r"bounds\.lower is 'fine'.*\nExpected: one of cvs, finetune"),
        (("bounds", "lower"), "joint", "bounds is 'joint' twice"),
        (("learners", "cvs", "sessions", 4), None, r"sessions is a list of 5.*\nExpected: as many as the other"),
        (("learners", "lwf", "sessions", 4), None, r"learners\.lwf\.sessions is a list of 4"),
        (("learners", "cvs", "average_recall", "8"), 0.5, r"cvs\.average_recall"),
        (("learners", "cvs", "sessions", 1, "recall", "4"), None, r"sessions\.1\.recall is"),
        (("learners", "cvs", "sessions", 1, "recall_by_home", 4), None, "an entry for each of 5 sessions"),
        (("learners", "cvs", "sessions", 1, "recall_by_home", 4), 0.5, "none just where no query was asked"),
        (("learners", "cvs", "sessions", 1, "queries_by_home", 0), 0, "none just where no query was asked"),
    ],
)
def test_parts_that_do_not_agree_are_refused(nine_learners: SimpleNamespace, keys: Keys, value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        sessions_document(changed(nine_learners.document, keys, value))


def test_a_comparison_that_was_cut_short_is_complete(nine_learners: SimpleNamespace) -> None:
    document = deepcopy(nine_learners.document)
    for learner in document["learners"].values():
        del learner["sessions"][3:]
    assert sessions_document(document)["learners"]["cvs"]["sessions"][2]["gallery_rows"] == 23_184


def test_more_sessions_than_planned_are_refused(nine_learners: SimpleNamespace) -> None:
    document = deepcopy(nine_learners.document)
    for learner in document["learners"].values():
        learner["sessions"] *= 2
    with pytest.raises(ConfigError, match=r"sessions is a list of 10.*\nExpected: .*at most 5"):
        sessions_document(document)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        read_sessions(tmp_path)


def test_the_table_has_a_row_per_learner_the_best_first(nine_learners: SimpleNamespace) -> None:
    learners = nine_learners.document["learners"]
    columns, rows = sessions_table(nine_learners.document)
    assert columns == [
        "learner", "AR@1", "AR@2", "AR@4", "last recall@1", "forgetting", "embedded again", "minutes",
    ]  # fmt: skip
    averages = {name: sum(s["recall"]["1"] for s in learner["sessions"]) / 5 for name, learner in learners.items()}
    assert [row[0] for row in rows] == sorted(learners, key=averages.__getitem__, reverse=True)
    for name, *cells in rows:
        learner = learners[name]
        again = 0
        for before, session in zip([{"gallery_rows": 0}, *learner["sessions"]], learner["sessions"], strict=False):
            again += session["embedded_rows"] - (session["gallery_rows"] - before["gallery_rows"])
        seconds = sum(s["seconds"]["training"] + s["seconds"]["rest"] for s in learner["sessions"])
        assert cells == [
            *(f"{learner['average_recall'][k]:.3f}" for k in ("1", "2", "4")),
            f"{learner['sessions'][-1]['recall']['1']:.3f}",
            f"{learner['forgetting']:.3f}",
            f"{again:,}",
            f"{seconds / 60:.1f}",
        ]
        assert (again > 0) == (name == "joint")
        assert seconds_of(learner) == pytest.approx(seconds)


def test_what_is_missing_is_a_dash_and_minus_a_hyphen_where_programs_read(
    one_learner: SimpleNamespace,
) -> None:
    gained = changed(one_learner.document, ("learners", "lwf", "forgetting"), -0.25)
    assert sessions_table(gained)[1][0][5] == "-0.250"
    assert sessions_table(gained, typeset=True)[1][0][5] == "−0.250"
    gained["learners"]["lwf"]["forgetting"] = None
    assert sessions_table(gained)[1][0][5] == "–"


def test_equal_learners_keep_their_order() -> None:
    document: dict[str, Any] = {"learners": {name: {"average_recall": {"1": 0.5}} for name in ("b", "a", "c")}}
    document["learners"]["c"]["average_recall"]["1"] = 0.75
    assert best_first(document) == ["c", "b", "a"]


def test_the_table_in_markdown(without_bounds: SimpleNamespace) -> None:
    document = deepcopy(without_bounds.document)
    document["learners"] = {f"a|b {name}": learner for name, learner in document["learners"].items()}
    lines = sessions_markdown(document).splitlines()
    columns, rows = sessions_table(document)
    assert lines[0] == f"| {' | '.join(columns)} |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2] == f"| a\\|b cvs | {' | '.join(rows[0][1:])} |"
    assert len(lines) == 5
