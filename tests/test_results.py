"""What results of every kind have in common."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import Field, ValidationError

import limpet
from limpet.errors import ConfigError, DataError
from limpet.results import Data, Defined, Disagreement, Number, NumberInterval, Part, Results


class Score(Part):
    value: float
    chance: Number = None
    interval: NumberInterval | None = None
    gain: Defined = None


class Tournament(Results):
    KIND: ClassVar[str | None] = "tournament"
    VERSION: ClassVar[int] = 3
    WRITER: ClassVar[str] = "“limpet play”"
    AGAIN: ClassVar[str] = "play"

    kind: str
    title: str
    data: Data
    winner: str
    scores: dict[str, Score]
    rounds: list[dict[str, Number]] = Field(default_factory=list)
    about: dict[str, Any] = Field(default_factory=dict)

    def disagreements(self) -> Iterator[Disagreement]:
        if self.winner not in self.scores:
            yield "winner", self.winner, f"one of {', '.join(self.scores)}"


class Plain(Results):
    KIND: ClassVar[str | None] = None
    WRITER: ClassVar[str] = "“limpet measure”"

    title: str
    count: int


def made(**values: Any) -> Tournament:
    scores = {"one": Score(value=0.5, interval=(0.25, 0.75)), "two": Score(value=0.25)}
    data = Data(name="drawn", description="by lot", numbers={"games": 2})
    return Tournament.of(**{"title": "A title", "data": data, "winner": "one", "scores": scores, **values})


def written(document: Any, folder: Path) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


# --- what they are ---------------------------------------------------------------------------------------------------


def test_new_results_say_what_wrote_them() -> None:
    found = made()
    assert (found.schema_version, found.kind, found.limpet) == (3, "tournament", limpet.__version__)
    assert found.versions["python"] == platform.python_version()
    assert found.versions["numpy"] == np.__version__ and {"torch", "safetensors"} <= set(found.versions)
    assert "kind" not in Plain.of(title="t", count=1).to_dict()


def test_results_that_do_not_say_what_wrote_them_are_not_said_to_be_of_this_version() -> None:
    document = made().to_dict()
    del document["limpet"], document["versions"]
    found = Tournament.parse(document)
    assert found.limpet is None and found.versions == {}


def test_results_do_not_change() -> None:
    found = made()
    with pytest.raises(ValidationError, match="frozen"):
        found.winner = "two"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        found.scores["one"].value = 1.0  # type: ignore[misc]


def test_parts_may_be_given_as_plain_values() -> None:
    scores = {"one": {"value": 1, "interval": [0, 1]}}
    found = made(scores=scores, data={"name": "n", "description": "d", "numbers": {}})
    assert found.scores["one"] == Score(value=1.0, interval=(0.0, 1.0)) and isinstance(found.data, Data)


def test_numbers_that_are_not_defined_are_none() -> None:
    nan = float("nan")
    score = Score(value=0.5, chance=nan, interval=(nan, np.float64("nan")))
    assert score.chance is None and score.interval == (None, None)
    found = made(rounds=[{"one": nan, "two": 0.0}])
    assert found.rounds == [{"one": None, "two": 0.0}]
    assert found.to_dict()["rounds"] == [{"one": None, "two": 0.0}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("-inf"), None])
def test_computed_numbers_that_are_not_finite_are_none_and_those_of_files_are_refused(value: float | None) -> None:
    assert Score(value=0.5, gain=value).gain is None
    document = made().to_dict()
    document["scores"]["one"]["gain"] = value
    if value is None:
        assert Tournament.parse(document).scores["one"].gain is None
    else:
        with pytest.raises(ConfigError, match=r"finite number at 'scores\.one\.gain'"):
            Tournament.parse(document)


def test_new_results_are_refused_where_something_is_missing_or_another_type() -> None:
    with pytest.raises(ConfigError, match=r"These results: Field required at 'data' \(3 in all\)") as refused:
        Tournament.of(title="A title")
    assert "complete results of “limpet play”" in str(refused.value) and "play again" in str(refused.value)
    with pytest.raises(ConfigError, match="valid string at 'title'"):
        made(title={1, 2})
    with pytest.raises(ConfigError, match=r"Field required at 'scores\.one\.value'"):
        made(scores={"one": {}})


def test_an_unknown_name_is_refused_where_results_are_made() -> None:
    with pytest.raises(ConfigError, match=r"Unknown part of results 'winers'\. Did you mean 'winner'"):
        made(winers="one")


@pytest.mark.parametrize("value", [{1, 2}, b"x", Path("x")])
def test_what_json_has_no_word_for_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written as JSON"):
        made(about={"a": value}).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_parts_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"These results: winner is three\.") as refused:
        made(winner="three")
    assert "one of one, two" in str(refused.value) and "play again" in str(refused.value)
    with pytest.raises(ConfigError, match=r"'here': winner is three\."):
        Tournament.parse(made().to_dict() | {"winner": "three"}, "'here'")


# --- what is read ----------------------------------------------------------------------------------------------------


def test_written_results_read_as_they_were(tmp_path: Path) -> None:
    found = made(rounds=[{"one": 0.1, "two": None}], about={"wörd": [1, None, True, "“”"]})
    path = found.save(tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "results.json"
    assert Tournament.load(path) == Tournament.load(str(path)) == Tournament.load(path.parent) == found
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == found.to_dict() and text.endswith("}\n") and "wörd" in text
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_what_is_read_is_a_copy() -> None:
    document = made().to_dict()
    before = deepcopy(document)
    found = Tournament.parse(document)
    document["data"]["numbers"]["games"] = 7
    found.to_dict()["data"]["numbers"]["games"] = 8
    assert found.to_dict() == before


@pytest.mark.parametrize("version", [None, 0, 2, 4, "3"])
def test_another_schema_version_is_refused(tmp_path: Path, version: Any) -> None:
    path = written(made().to_dict() | {"schema_version": version}, tmp_path)
    with pytest.raises(ConfigError, match=f"schema version {version}") as refused:
        Tournament.load(path)
    assert str(path) in str(refused.value) and "Expected: schema version 3" in str(refused.value)
    assert "play again with this version of limpet" in str(refused.value)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    plain = Plain.of(title="t", count=1).to_dict()
    for document, told in (
        ({"schema_version": 3, "kind": "rehearsal"}, "rehearsal"),
        ({"schema_version": 3}, "evaluation"),
    ):
        with pytest.raises(ConfigError, match=f"results of the kind '{told}'") as refused:
            Tournament.load(written(document, tmp_path))
        assert "results of “limpet play”" in str(refused.value)
    with pytest.raises(ConfigError, match="results of the kind 'tournament'"):
        Plain.parse(plain | {"kind": "tournament"})
    assert Plain.parse(plain).count == 1


@pytest.mark.parametrize("keys", [("title",), ("data", "description"), ("scores", "two", "value")])
def test_a_missing_key_is_refused_by_its_place(tmp_path: Path, keys: tuple[str, ...]) -> None:
    part = document = made().to_dict()
    for key in keys[:-1]:
        part = part[key]
    del part[keys[-1]]
    with pytest.raises(ConfigError, match=f"Field required at '{'.'.join(keys)}'") as refused:
        Tournament.load(written(document, tmp_path))
    assert str(tmp_path / "results.json") in str(refused.value)
    assert "complete results of “limpet play”" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"title": 5}, "title"),
        ({"schema_version": 3.0}, "schema_version"),
        ({"schema_version": "3"}, "schema version 3"),
        ({"scores": {"one": {"value": "0.5"}}}, "scores.one.value"),
        ({"scores": {"one": {"value": True}}}, "scores.one.value"),
        ({"scores": {"one": {"value": None}}}, "scores.one.value"),
        ({"scores": {"one": {"value": 1, "chance": "small"}}}, "scores.one.chance"),
        ({"scores": {"one": {"value": 1, "interval": [0.0]}}}, "scores.one.interval.1"),
        ({"scores": {"one": {"value": 1, "interval": [0.0, 0.5, 1.0]}}}, "scores.one.interval"),
        ({"scores": [0.5]}, "scores"),
        ({"rounds": {"one": 0.5}}, "rounds"),
        ({"versions": {"torch": 2}}, "versions.torch"),
    ],
)
def test_values_of_another_type_are_refused(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        Tournament.parse(made().to_dict() | change)


def test_whole_numbers_are_numbers_and_lists_are_tuples() -> None:
    found = Tournament.parse(made().to_dict() | {"scores": {"one": {"value": 1, "interval": [0, 1]}}})
    assert found.scores["one"] == Score(value=1.0, interval=(0.0, 1.0))


def test_unknown_keys_of_later_versions_are_kept(tmp_path: Path) -> None:
    document = made().to_dict() | {"later": [1]}
    document["scores"]["one"]["spread"] = {"low": 0.5}
    found = Tournament.load(written(document, tmp_path))
    assert found.to_dict() == document == Tournament.load(found.save(tmp_path)).to_dict()


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '"text"', "3"])
def test_what_is_no_document_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"results\.json"):
        Tournament.load(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_refused(tmp_path: Path, number: str) -> None:
    path = written(made(rounds=[{"one": 0.5}]).to_dict(), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('[{"one": 0.5}]', f'[{{"one": {number}}}]'))
    with pytest.raises(ConfigError, match="no valid JSON"):
        Tournament.load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(ConfigError, match="Cannot read"):
            Tournament.load(path)


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [object(), float("nan"), float("inf"), np.zeros(2), b"\xff"], ids=lambda wrong: type(wrong).__name__
)
def test_values_that_are_no_json_are_refused_and_nothing_is_left(tmp_path: Path, wrong: Any) -> None:
    data = Data(name="n", description="d", numbers={"games": wrong})
    for found in (made(about={"deep": [wrong]}), made(data=data)):
        with pytest.raises(DataError, match="cannot be written as JSON"):
            found.save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_refused_and_nothing_is_left(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(DataError, match="cannot be written as JSON"):
        made(scores={"one": Score(value=wrong)}).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_there_is_replaced_wholly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(title="first")
    first.save(tmp_path)
    for wrong in (made(about={"a": object()}), made(title="\ud800")):
        with pytest.raises(DataError):
            wrong.save(tmp_path)
        assert Tournament.load(tmp_path) == first

    def full(self: Path, text: str, **_: Any) -> int:
        with self.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(DataError, match="No space left"):
            made(title="second").save(tmp_path)
    assert Tournament.load(tmp_path) == first
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
    made(title="second").save(tmp_path)
    assert Tournament.load(tmp_path).title == "second"
