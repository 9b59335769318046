from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import limpet
from limpet.errors import ConfigError, DataError
from limpet.reports.markdown import markdown_table
from limpet_bench.reports.sessions import sessions_table
from limpet_bench.sessions.results import SessionsResults

Keys = tuple[Any, ...]


def changed(results: SessionsResults, keys: Keys, value: Any = None) -> dict[str, Any]:
    """Return the plain values of results with one replaced, or removed where none is given."""
    part = found = results.to_dict()
    for key in keys[:-1]:
        part = part[key]
    if value is None:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return found


def test_results_are_what_was_measured_and_what_measured_it(nine_learners: SimpleNamespace) -> None:
    versions = ("schema_version", "kind", "limpet", "versions")
    found = {key: value for key, value in nine_learners.results.to_dict().items() if key not in versions}
    assert SessionsResults.of(**found) == nine_learners.results
    assert nine_learners.results.limpet == limpet.__version__
    assert {"python", "numpy", "torch"} <= set(nine_learners.results.versions)


@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "without_bounds"])
def test_written_results_read_as_they_were(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    results = request.getfixturevalue(name).results
    path = results.save(tmp_path / "new folder")
    assert path == tmp_path / "new folder" / "results.json"
    assert SessionsResults.load(path) == SessionsResults.load(path.parent) == results
    assert json.loads(path.read_text()) == json.loads(json.dumps(results.to_dict()))
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_results_without_versions_are_complete(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    document = nine_learners.results.to_dict()
    found = {key: value for key, value in document.items() if key not in ("limpet", "versions")}
    written = json.loads(SessionsResults.parse(found).save(tmp_path).read_text())
    assert written == found | {"limpet": None, "versions": {}}
    assert SessionsResults.load(tmp_path) == SessionsResults.parse(found)


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_another_schema_version_is_refused(nine_learners: SimpleNamespace, version: Any) -> None:
    with pytest.raises(ConfigError, match=f"schema version {version}"):
        SessionsResults.parse(nine_learners.results.to_dict() | {"schema_version": version})


@pytest.mark.parametrize(
    "keys",
    [
        ("title",),
        ("bounds",),
        ("bounds", "lower"),
        ("data", "test queries"),
        ("plan", "home"),
        ("learners", "cvs", "forgetting"),
        ("learners", "cvs", "sessions", 2, "recall"),
        ("learners", "cvs", "sessions", 2, "seconds", "rest"),
    ],
)
def test_a_missing_key_is_refused_by_name(nine_learners: SimpleNamespace, keys: Keys) -> None:
    with pytest.raises(ConfigError, match=r"\.".join(map(str, keys))):
        SessionsResults.parse(changed(nine_learners.results, keys))


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
        SessionsResults.parse(changed(nine_learners.results, keys, 1))


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
        SessionsResults.parse(changed(nine_learners.results, keys, value))


def test_plain_values_that_are_no_json_are_refused(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    for part in ("model", "recipe"):
        with pytest.raises(DataError, match="JSON"):
            SessionsResults.parse(changed(nine_learners.results, (part, "mean"), math.nan)).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_with_nan_is_refused(nine_learners: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(changed(nine_learners.results, ("model", "mean"), math.nan)))
    with pytest.raises(ConfigError, match="NaN is no number"):
        SessionsResults.load(path)


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
        SessionsResults.parse(changed(nine_learners.results, keys, value))


def test_a_comparison_that_was_cut_short_is_complete(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for learner in document["learners"].values():
        del learner["sessions"][3:]
    assert SessionsResults.parse(document).learners["cvs"].sessions[2].gallery_rows == 23_184


def test_more_sessions_than_planned_are_refused(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for learner in document["learners"].values():
        learner["sessions"] *= 2
    with pytest.raises(ConfigError, match=r"sessions is a list of 10.*\nExpected: .*at most 5"):
        SessionsResults.parse(document)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        SessionsResults.load(tmp_path)


def test_the_table_has_a_row_per_learner_the_best_first(nine_learners: SimpleNamespace) -> None:
    learners = nine_learners.results.to_dict()["learners"]
    columns, rows = sessions_table(nine_learners.results)
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
        assert nine_learners.results.learners[name].seconds == pytest.approx(seconds)


def test_what_is_missing_is_a_dash(one_learner: SimpleNamespace) -> None:
    document = changed(one_learner.results, ("learners", "lwf", "forgetting"), -0.25)
    gained = SessionsResults.parse(document)
    assert sessions_table(gained)[1][0][5] == "−0.250"
    document["learners"]["lwf"]["forgetting"] = None
    assert sessions_table(SessionsResults.parse(document))[1][0][5] == "–"


def test_equal_learners_keep_their_order(without_bounds: SimpleNamespace) -> None:
    document = without_bounds.results.to_dict()
    learners = dict(zip(("b", "a", "c"), document["learners"].values(), strict=True))
    for name, learner in learners.items():
        learner["average_recall"]["1"] = 0.75 if name == "c" else 0.5
    assert list(SessionsResults.parse(document | {"learners": learners}).best_first()) == ["c", "b", "a"]


def test_the_table_in_markdown(without_bounds: SimpleNamespace) -> None:
    document = without_bounds.results.to_dict()
    document["learners"] = {f"a|b {name}": learner for name, learner in document["learners"].items()}
    results = SessionsResults.parse(document)
    lines = markdown_table(*sessions_table(results)).splitlines()
    columns, rows = sessions_table(results)
    assert lines[0] == f"| {' | '.join(columns)} |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2] == f"| a\\|b cvs | {' | '.join(rows[0][1:])} |"
    assert len(lines) == 5
