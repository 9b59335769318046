"""Filters say the same on every store as a slow loop does, whatever is in them, and indexes serve them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash.server import Server
from limpet.engines.filters import (
    COMPARISONS,
    And,
    Condition,
    Exists,
    Filter,
    In,
    Not,
    Or,
    between,
    checked,
    leaves,
    path_of,
    sql,
)
from limpet.engines.lance.search import condition as lance_condition
from limpet.engines.memory.filters import mask
from limpet.engines.postgres.search import COSTS, INDEX, condition
from limpet.engines.postgres.store import PgvectorStore
from limpet.engines.store import Changes, NewGeneration, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.engines.where import read_filter
from limpet.errors import ConfigError, StoreError
from limpet.testing.stores import met

COLUMNS = {"order": "text", "n": "integer", "price": "number", "sold": "truth", "facts": "json"}
EVIL = "'; DROP TABLE items; --"
TEXTS = ["red", "it's", EVIL, "", "Grün", "😀", "null", "100%", "%(w0)s", "a\\", '"', "$value", "?", "\n"]
KEYS = ["a", "a b", "it's", 'q"', "é", "0", "$", "-- x"]
NUMBERS = [0, 3, -7, 2**53, 0.5, 1e-7, -1e30]
QUERY = np.ones((1, 2), np.float32)

text = st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
number = st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
values = {"order": text, "n": whole, "price": number, "sold": st.booleans()}
way = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2).map(lambda keys: ".".join(["facts", *map(quoted, keys)]))


def quoted(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def conditions() -> st.SearchStrategy[Filter]:
    plain: list[st.SearchStrategy[Filter]] = []
    for name, known in values.items():
        plain.append(st.builds(Condition, st.just(name), st.sampled_from(COMPARISONS), known))
        plain.append(st.builds(In, st.just(name), st.lists(known, max_size=4)))
    within = [
        st.builds(Condition, way, st.sampled_from(COMPARISONS), number),
        st.builds(Condition, way, st.sampled_from(["=", "!="]), text | st.booleans()),
        st.builds(In, way, st.lists(number | text | st.booleans(), max_size=4)),
    ]
    return st.one_of(*plain, *within, st.builds(Exists, way | st.sampled_from(list(COLUMNS))))


def together(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(parts, max_size=3)
    return st.builds(Not, parts) | st.builds(And, several) | st.builds(Or, several)


filters = st.recursive(conditions(), together, max_leaves=6)


def items() -> list[dict[str, Any]]:
    """Items with and without values of every sort."""
    rng = np.random.default_rng(0)

    def one(listed: list[Any]) -> Any:
        return listed[rng.integers(len(listed))]

    found: list[dict[str, Any]] = [{}]
    for _ in range(60):
        inner = {key: one([*TEXTS, *NUMBERS, True, None, [3], ["red"]]) for key in KEYS if rng.random() < 0.5}
        facts = {key: one([*TEXTS, *NUMBERS, False, None, [3], ["red"], inner]) for key in KEYS if rng.random() < 0.7}
        every = {"order": one(TEXTS), "n": one([0, 3, -(2**63), 2**53 + 1]), "price": float(one(NUMBERS)),
                 "sold": bool(rng.integers(2)), "facts": facts}  # fmt: skip
        found.append({name: value for name, value in every.items() if rng.random() < 0.75})
    return found


ITEMS = items()
IDS = [f"i{number:02d}" for number in range(len(ITEMS))]


def filled(url: str, metadata: list[dict[str, Any]], vectors: np.ndarray) -> Store:
    store, ids = open_store(url, create=True), [f"i{number:02d}" for number in range(len(metadata))]
    generation, rows = NewGeneration("g1", vectors.shape[1], COLUMNS), Rows("g1", ids, vectors)
    with store.writing("a test"):
        store.commit(Changes(create=[generation], upsert=Upsert(ids, metadata, [rows])), {}, {"kind": "test"})
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[list[Store]]:
    folder = tmp_path_factory.mktemp("filters") / "gallery"
    urls = ["memory://", str(folder), f"{postgres_server.url()}&schema=filters"]
    opened = [filled(url, ITEMS, np.ones((len(ITEMS), 2), np.float32)) for url in urls]
    yield opened
    for store in opened:
        store.close()


def found(store: Store, where: Filter | None) -> list[str]:
    return store.search(QUERY, 100, generation="g1", where=where, at=store.pointer()).ids[0]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(where=filters)
def test_every_store_finds_what_a_slow_loop_finds(stores: list[Store], where: Filter) -> None:
    asked = checked(where, COLUMNS)
    expected = [name for name, metadata in zip(IDS, ITEMS, strict=True) if met(where, metadata)]
    for store in stores:
        assert found(store, asked) == expected, store.kind


@pytest.mark.parametrize(
    "where",
    [
        In("facts.a", ("red", 3, True, False)), In('facts."0"', (3, "red")), Condition("facts.a", "<", 5),
        Condition("facts.a", "!=", "x"), Not(Condition("facts.a", ">=", 3)), Condition("facts.a.a", "=", 3),
        And(()), Or(()),
        In("order", ()), Not(In("facts.a", ())),
    ],
    ids=lambda where: str(where)[:40],
)  # fmt: skip
def test_lists_of_several_types_arrays_and_nothing(stores: list[Store], where: Filter) -> None:
    test_every_store_finds_what_a_slow_loop_finds.hypothesis.inner_test(stores, where)  # type: ignore[attr-defined]


def test_a_missing_value_meets_no_comparison_and_so_meets_the_contrary(stores: list[Store]) -> None:
    for column, value in (("n", 3), ("facts.a", "red")):
        missing = {name for name, one in zip(IDS, ITEMS, strict=True) if not met(Exists(column), one)}
        assert len(missing) > 10
        for where in (Condition(column, "=", value), Condition(column, "!=", value), In(column, (value,))):
            for store in stores:
                assert not {*found(store, where)} & missing
                assert {*found(store, Not(where))} == {*IDS} - {*found(store, where)}
                assert found(store, Not(Not(where))) == found(store, where)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("n IN (0, 3) and not price>10 And exists(order)",
         And((In("n", (0, 3)), Not(Condition("price", ">", 10.0)), Exists("order")))),
        ("n=0 OR n=3 AND sold=true",
         Or((Condition("n", "=", 0), And((Condition("n", "=", 3), Condition("sold", "=", True)))))),
        ("(n=0 OR n=3) AND sold=true",
         And((Or((Condition("n", "=", 0), Condition("n", "=", 3))), Condition("sold", "=", True)))),
        ("n NOT BETWEEN 1 AND 3", Not(between("n", 1, 3))),
        ("order NOT IN ('it''s', red)", Not(In("order", ("it's", "red")))),
        ("order = '''; DROP TABLE items; --'", Condition("order", "=", EVIL)),
        ("order=war, peace", Condition("order", "=", "war, peace")),
        ("order='war and peace'", Condition("order", "=", "war and peace")),
        ("order='in quotes'", Condition("order", "=", "in quotes")),
        ("facts.a = red AND facts.\"a b\".\"it's\" <> 3",
         And((Condition("facts.a", "=", "red"), Condition("facts.\"a b\".\"it's\"", "!=", 3)))),
        ("facts.a='3' or facts.a=3 or facts.a=true",
         Or((Condition("facts.a", "=", "3"), Condition("facts.a", "=", 3), Condition("facts.a", "=", True)))),
    ],
)  # fmt: skip
def test_filters_as_people_type_them(words: str, where: Filter) -> None:
    assert repr(read_filter([words], COLUMNS)) == repr(where)


@pytest.mark.parametrize(
    "words",
    [
        "n=1 n=2", "n=1 AND", "n IN ()", "n IN (1", "(n=1", "exists(n", "NOT", "n BETWEEN 1", "exists(nothing)",
        "n.a=1", "facts=3", "facts.a<red", "(" * 60 + "n=1" + ")" * 60, "NOT " * 50 + "n=1", "facts..a=1", 'facts."a=1',
        "n=1;DROP TABLE items", "order=red AND n", "order=red AND", "order=war and peace", "order=red n=1",
        "order=red facts.a IN (1)", "order='red' n=1", "order='red", "order=red)", "n='1'", "price<'1'", "sold='true'",
        "n IN ('1')", "n BETWEEN '1' AND 3", "order < 5", "n = '", 'order IN ("a")', "",
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(words: str) -> None:
    with pytest.raises(ConfigError):
        read_filter([words], COLUMNS)


@pytest.mark.parametrize(
    "words", ["order='red'", "order IN ('red', 'null')", "n=3", "facts.a='3' OR facts.a=3", "sold=true"]
)
def test_what_stands_in_quotes_is_the_same_to_every_store(stores: list[Store], words: str) -> None:
    where = read_filter([words], COLUMNS)
    assert where is not None
    expected = [name for name, metadata in zip(IDS, ITEMS, strict=True) if met(where, metadata)]
    assert expected and [found(store, where) for store in stores] == [expected] * len(stores)


def test_a_sign_that_the_sql_of_lance_cannot_write_is_refused() -> None:
    with pytest.raises(ConfigError, match="The column 'a`b'"):
        sql(Condition("a`b", "=", 1))


tokens = [
    "n",
    "order",
    "facts.a",
    "=",
    "<",
    "(",
    ")",
    ",",
    "AND",
    "OR",
    "NOT",
    "IN",
    "EXISTS",
    "BETWEEN",
    "1",
    "'it''s'",
]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(words=st.text(max_size=30) | st.lists(st.sampled_from([*tokens, "'", '"'])).map(" ".join))
def test_whatever_is_typed_is_a_filter_or_refused_in_words(words: str) -> None:
    try:
        where = read_filter([words], COLUMNS)
    except ConfigError:
        return
    assert where is not None and {path_of(leaf.column)[0] for leaf in leaves(where)} <= set(COLUMNS)


@pytest.mark.parametrize(
    "where",
    [
        Condition("nothing", "=", 1), Condition("n", "~", 1), Condition("n", "=", "1"), In("n", (1, "1")), "n=1",
        In("order", "red"), Exists("n.a"), Condition("facts", "=", 1), Condition("facts.a", "=", {}),
        Condition("", "=", 1), Condition("facts.a", "=", None), Condition("facts.a", "<", "b"),
        Condition("facts.a", "=", 2**53 + 1),
        Condition('facts."', "=", 1), Or([Condition("n", "=", value) for value in range(1001)]), In("nothing", ()),
    ],
    ids=lambda where: str(where)[:40],
)  # fmt: skip
def test_filters_that_no_column_has_an_answer_to_are_refused(where: Any) -> None:
    with pytest.raises(ConfigError):
        checked(where, COLUMNS)


def test_values_reach_the_database_as_parameters() -> None:
    values: dict[str, Any] = {}
    listed = In("order", tuple(f"{EVIL}{number}" for number in range(300)))
    within = Exists(f"facts.{quoted(EVIL)}")
    where = And((Condition("order", "=", EVIL), In("order", (EVIL,)), Condition("order", "<", EVIL), within, listed))
    assert "DROP" not in condition(where, values) and str(values).count("DROP") == 304


def test_a_value_of_another_type_in_ram_is_damage() -> None:
    with pytest.raises(StoreError, match="column 'n'"):
        mask(Condition("n", "<", 3), [{"n": "text"}])


# Indexes


@pytest.fixture(scope="module")
def large(postgres_server: Server) -> Iterator[PgvectorStore]:
    """5,000 items of 500 colours, which they have in a column, and in JSON."""
    colours = [f"c{number % 500}" for number in range(5000)]
    metadata = [{"order": one, "n": number, "facts": {"colour": one}} for number, one in enumerate(colours)]
    vectors = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    store = filled(f"{postgres_server.url()}&schema=large", metadata, vectors)
    assert isinstance(store, PgvectorStore)
    assert INDEX in explained(store, Condition("order", "=", "c7")), "as soon as they are written"
    store.tidy()
    yield store
    store.close()


def explained(store: PgvectorStore, where: Filter) -> str:
    """Return how the database looks items up that meet a filter."""
    values: dict[str, Any] = {}
    statement = f"EXPLAIN SELECT id FROM items WHERE {condition(where, values)} LIMIT 2001".encode()
    with store.database.connection() as connection:
        connection.execute(COSTS)
        return "\n".join(line for (line,) in connection.execute(statement, values))


@pytest.mark.parametrize(
    "words",
    ["order=c7", "facts.colour=c7", "order IN (c7, c8)", "order=c7 OR facts.colour=c8",
     "order=c7 AND NOT n BETWEEN 1 AND 600", f"order IN ({', '.join(f'c{number}' for number in range(20))})"],
)  # fmt: skip
def test_the_index_of_metadata_serves_equality_in_columns_and_in_json(large: PgvectorStore, words: str) -> None:
    assert "Seq Scan" in explained(large, Condition("n", "<", 3000)), "what most items meet is found sooner without"
    where = read_filter([words], COLUMNS)
    assert where is not None and f"Bitmap Index Scan on {INDEX}" in explained(large, where)


def test_lance_leaves_rows_out_before_it_compares(stores: list[Store]) -> None:
    [folder] = [store.folder for store in stores if store.kind == "lance" and store.folder]
    [path] = folder.rglob("g1-*.lance")
    where = lance_condition(And((Condition("facts.a", "=", "red"), Not(Condition("n", "<", 3)))))
    nearest = {"column": "vector", "q": QUERY[0], "k": 3, "use_index": False}
    plan = (
        lance.dataset(str(path)).scanner(columns=["id"], nearest=nearest, filter=where, prefilter=True).explain_plan()
    )
    assert plan.index("KNNVectorDistance") < plan.index("json_extract"), "what is below comes first"
