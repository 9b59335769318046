"""What cannot even be said to a store: wrong ids, vectors, generations, and conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.engines.filters import And, Condition, Exists, In, Not, Or, checked, literal, sql
from limpet.engines.planning import check
from limpet.engines.store import Changes, Commit, Fill, Items, NewGeneration, Rows, Upsert
from limpet.engines.where import read_conditions
from limpet.errors import ConfigError, DataError

COLUMNS = {"colour": "text", "pieces": "integer", "price": "number", "sold": "truth"}


def rows(ids: Any = ("a", "b"), *, vectors: Any = None, generation: str = "g1") -> Rows:
    return Rows(generation, ids, np.ones((len(ids), 3), np.float32) if vectors is None else vectors)


@pytest.mark.parametrize("wrong", ["", "a\0b", "\ud800", 5, None, b"bytes"])
def test_ids_that_no_database_can_keep_are_refused_by_name(wrong: Any) -> None:
    with pytest.raises(DataError) as refusal:
        rows(["fine", wrong])
    assert repr(wrong) in str(refusal.value) and "fine" not in str(refusal.value)


def test_ids_that_appear_twice_are_named() -> None:
    for make in (lambda: rows(["a", "b", "a"]), lambda: Upsert(["a", "b", "a"], [{}] * 3, [rows()])):
        with pytest.raises(DataError, match="'a' appear more than once"):
            make()


def test_of_many_wrong_ids_the_first_are_named_and_the_others_counted() -> None:
    with pytest.raises(DataError, match="'i0', 'i1', 'i2', 'i3', 'i4' and 3 more"):
        rows([f"i{number}" for number in range(8)] * 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_id(value: float) -> None:
    wrong = np.ones((3, 2), np.float32)
    wrong[1, 1] = value
    with pytest.raises(DataError, match="'b' have vectors of generation 'g1' that are not finite"):
        rows(["a", "b", "c"], vectors=wrong)


@pytest.mark.parametrize(
    "wrong",
    [np.ones((2, 3)), np.ones(2, np.float32), np.ones((3, 3), np.float32), [[1.0], [1.0]], np.ones((2, 3), np.float16)],
)
def test_vectors_of_another_type_or_shape_are_refused(wrong: Any) -> None:
    with pytest.raises(DataError):
        rows(["a", "b"], vectors=wrong)
    assert len(rows([], vectors=np.ones((0, 3), np.float32)).ids) == 0


def test_items_and_their_vectors_belong_together() -> None:
    with pytest.raises(DataError, match="'b' have no vector"):
        Upsert(["a", "b"], [{}, {}], [rows(["a"])])
    with pytest.raises(DataError, match="'c' have vectors and are not among"):
        Upsert(["a"], [{}], [rows(["a", "c"])])
    with pytest.raises(DataError, match="1 metadata for 2 items"):
        Upsert(["a", "b"], [{}], [rows()])
    with pytest.raises(DataError, match="g1, g1"):
        Upsert(["a", "b"], [{}, {}], [rows(), rows()])
    assert len(Upsert(["a", "b"], [{}, {}], [rows(["b"]), rows(["a"], generation="g2")]).ids) == 2


@pytest.mark.parametrize("versions", [np.array([1]), np.array([1.0, 1.0]), np.array([[1, 1]])])
def test_a_fill_has_a_version_for_every_row(versions: Any) -> None:
    with pytest.raises(DataError, match="2 rows"):
        Fill(rows(), versions)


def test_a_fill_is_of_the_items_that_were_seen() -> None:
    seen = Items(["b", "a"], np.array([1, 1]), [frozenset({"g1"})] * 2, [{}, {}], Commit(1, 0.0))
    with pytest.raises(DataError, match="other items"):
        Fill(rows(["a", "b"]), np.array([1, 1]), seen)


@pytest.mark.parametrize(
    ("name", "width", "columns", "words"),
    [
        ("g 1", 3, {}, "g 1"),
        ("", 3, {}, "letters"),
        ("né", 3, {}, "né"),
        ("g1", 0, {}, "0 numbers"),
        ("g1", 3, {"a`b": "text"}, "a`b"),
        ("g1", 3, {"": "text"}, "column"),
        ("g1", 3, {"a": "date"}, "date"),
    ],
)
def test_generations_that_no_store_can_keep_are_refused(name: str, width: int, columns: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        NewGeneration(name, width, columns)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("price<=10", Condition("price", "<=", 10.0)),
        ("price < 1e-7", Condition("price", "<", 1e-7)),
        ("pieces!=-3", Condition("pieces", "!=", -3)),
        ("colour=a<b", Condition("colour", "=", "a<b")),
        ("colour >= it's", Condition("colour", ">=", "it's")),
        ("sold=TRUE", Condition("sold", "=", True)),
        ("colour='it''s red'", Condition("colour", "=", "it's red")),
        ("colour=in the price range", Condition("colour", "=", "in the price range")),
    ],
)
def test_conditions_are_read_with_the_type_of_their_column(words: str, expected: Condition) -> None:
    [found] = read_conditions([words], COLUMNS)
    assert found == expected and type(found.value) is type(expected.value)


@pytest.mark.parametrize(
    "words",
    [
        "price",
        "shape=round",
        "pieces=1.5",
        "price=cheap",
        "price=nan",
        "sold=maybe",
        "=3",
        "",
        "price='3'",
        "colour=red AND price",
        "colour=red or blue",
        "colour=red price<3",
        "colour='red",
    ],
)
def test_conditions_that_make_no_sense_are_refused(words: str) -> None:
    with pytest.raises(ConfigError):
        read_conditions([words], COLUMNS)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("price", True),
        ("pieces", False),
        ("pieces", 2**63),
        ("price", float("inf")),
        ("sold", 1),
        ("colour", 3),
        ("colour", "a\0"),
    ],
)
def test_conditions_of_another_type_are_refused(column: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=column):
        checked(Condition(column, "=", value), COLUMNS)


def test_filters_are_written_as_sql() -> None:
    where = And(
        (
            Or((Condition("colour", "!=", "it's `x`"), Condition("price", ">", np.float64(0.5)))),
            Not(Condition("sold", "=", False)),
            In("pieces", (1, -(2**63))),
            Exists("price"),
        )
    )
    assert sql(where) == (
        "((`colour` != 'it''s `x`' OR `price` > 0.5) AND (`sold` = FALSE) IS NOT TRUE "
        "AND `pieces` IN (1, (-9223372036854775807 - 1)) AND `price` IS NOT NULL)"
    )
    assert (sql(And(())), sql(Or(())), sql(In("price", ())), literal(-3)) == ("TRUE", "FALSE", "FALSE", "-3")


@pytest.mark.parametrize("width", [1, 2, 4])
def test_vectors_of_another_width_than_the_generation_are_refused(width: int) -> None:
    known, given = {"g1": (3, {})}, rows(vectors=np.ones((2, width), np.float32))
    upserted = Changes(upsert=Upsert(["a", "b"], [{}, {}], [given]))
    for changes in (upserted, Changes(fill=Fill(given, np.array([1, 1])))):
        with pytest.raises(DataError, match=f"Vectors of {width} numbers for generation 'g1'"):
            check(changes, known)
    check(Changes(upsert=Upsert(["a", "b"], [{}, {}], [rows()])), known)
