"""Tables of PostgreSQL as sources: types, what indexes declare, views, rights, moments and locks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import numpy as np
import psycopg
import pytest

from crash.server import Server
from limpet.engines.reading import embeddings_of
from limpet.engines.source import roles_of
from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, LastingStoreError, StoreError
from limpet.geometry import Euclidean, InnerProduct

Make = Callable[..., str]


@pytest.fixture
def make(postgres_server: Server) -> Make:
    """Run statements with a table name of its own in place of {0}, and return the beginning of its URL."""

    def made(*statements: str) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            for statement in statements:
                connection.execute(statement.replace("{0}", name).encode())
        return f"{postgres_server.url()}&model=ada&table={name}"

    return made


ITEMS = (
    "CREATE TABLE {0} (sku int PRIMARY KEY, emb vector(2), title text)",
    "INSERT INTO {0} SELECT n, ARRAY[n, 1]::vector, 'thing ' || n FROM generate_series(1, 50) n",
)


def test_ids_are_the_primary_key_and_vectors_the_only_ones(make: Make) -> None:
    source = open_source(make(*ITEMS))
    assert (roles_of(source).id, roles_of(source).vector, source.key) == ("sku", "emb", "sku")
    embeddings = embeddings_of(source)
    assert sorted(embeddings.ids, key=int) == [str(number) for number in range(1, 51)]
    assert embeddings.vectors[list(embeddings.ids).index("7")].tolist() == [7, 1]
    assert [batch.num_rows for batch in source.fetch(["3", "x", "9" * 30, "--5", "0_3", "4"], ["sku"])] == [2]


@pytest.mark.parametrize(
    ("operators", "similarity"),
    [("vector_cosine_ops", "cosine"), ("vector_ip_ops", "inner-product"), ("vector_l2_ops", "euclidean")],
)
@pytest.mark.parametrize("column", ["emb", "(emb::halfvec(2))"])
def test_how_an_index_compares(make: Make, operators: str, similarity: str, column: str) -> None:
    operators = operators if column == "emb" else operators.replace("vector", "halfvec")
    url = make(*ITEMS, f"CREATE INDEX ON {{0}} USING hnsw ({column} {operators})", "CREATE INDEX ON {0} (title)")
    assert open_source(url).similarity("emb") == similarity
    space = embeddings_of(open_source(url)).space
    assert isinstance(space, {"inner-product": InnerProduct, "euclidean": Euclidean}.get(similarity, object))
    assert isinstance(embeddings_of(open_source(url + "&similarity=euclidean")).space, Euclidean)


def test_indexes_that_say_nothing(make: Make) -> None:
    assert open_source(make(*ITEMS)).similarity("emb") is None
    index = "CREATE INDEX ON {0} USING hnsw (emb vector_%s_ops)"
    assert open_source(make(*ITEMS, index % "l2", index % "ip")).similarity("emb") is None
    url = make(*ITEMS, index % "l1")
    with pytest.raises(DataError, match=r"(?s)vector_l1_ops.*similarity=cosine"):
        embeddings_of(open_source(url))
    assert len(embeddings_of(open_source(url + "&similarity=cosine"))) == 50


@pytest.mark.parametrize("kind", ["sparsevec(2)", "bit(2)"])
def test_types_that_cannot_be_read_are_named(make: Make, kind: str) -> None:
    value = "'{1:1,2:1}/2'" if kind.startswith("sparsevec") else "B'10'"
    url = make(*ITEMS, f"ALTER TABLE {{0}} ADD other {kind} DEFAULT {value}")
    with pytest.raises(DataError, match=f"The column 'other' of .* is {kind.partition('(')[0]}, a type"):
        embeddings_of(open_source(url + "&vector=other"))
    assert len(embeddings_of(open_source(url))) == 50, "the other columns can be read"


def test_further_types(make: Make) -> None:
    url = make(
        "CREATE TABLE {0} (id uuid, emb halfvec(3), price numeric(9, 2), seen timestamptz, facts jsonb, rank real[])",
        "INSERT INTO {0} VALUES ('00000000-0000-0000-0000-00000000000a', '[0.1,2,3]', 1.25,"
        " '2024-03-01 12:00+09', '{\"a\": 1}', '{1,2}'), ('00000000-0000-0000-0000-00000000000b', '[1,2,3]', 2, now(),"
        " null, '{3,4}')",
    )
    source = open_source(f"{url}&vector=emb&where=seen<2024-03-01T04&label=facts")
    embeddings = embeddings_of(source)
    assert list(embeddings.ids) == ["00000000-0000-0000-0000-00000000000a"]
    np.testing.assert_array_equal(embeddings.vectors, [np.array([0.1, 2, 3], np.float16).astype(np.float32)])
    assert embeddings.columns["price"].tolist() == [1.25] and list(embeddings.class_names or ()) == ['{"a": 1}']
    found = list(source.fetch([embeddings.ids[0], "no uuid"], ["price"]))
    assert [batch.column(0).to_pylist() for batch in found] == [[1.25]]
    assert embeddings_of(open_source(f"{url}&vector=rank")).vectors.tolist() == [[1, 2], [3, 4]]


def test_a_view_is_read_like_a_table(make: Make) -> None:
    url = make(*ITEMS, "CREATE VIEW {0}_v AS SELECT sku AS id, emb AS vector, title FROM {0} WHERE sku > 40")
    source = open_source(f"{url}_v&sample=3")
    assert source.rows == 3 and source.key is None and len(embeddings_of(source)) == 3


def test_no_right_to_read(make: Make, postgres_server: Server) -> None:
    url = make(*ITEMS, "CREATE SCHEMA s{0}", "CREATE TABLE s{0}.t (id int)", "CREATE ROLE r{0} LOGIN")
    name = url.rpartition("=")[2]
    reader = url.replace("postgres@", f"r{name}@")
    with pytest.raises(LastingStoreError, match=f'(?s)GRANT SELECT ON "{name}" TO r{name}'):
        list(open_source(reader).batches(["sku"], 10))
    with pytest.raises(LastingStoreError, match=f'(?s)GRANT SELECT ON "s{name}"."t" .*GRANT USAGE ON SCHEMA "s{name}"'):
        open_source(reader.replace(f"table={name}", f"table=s{name}.t"))
    postgres_server.execute(f"GRANT SELECT ON {name} TO r{name}")
    assert len(embeddings_of(open_source(reader))) == 50


def test_a_table_of_another_schema(make: Make) -> None:
    url = make(
        "CREATE SCHEMA s{0}",
        "CREATE TABLE s{0}.{0} (id int, vector vector(1))",
        "INSERT INTO s{0}.{0} VALUES (1, '[1]')",
    )
    name = url.rpartition("=")[2]
    with pytest.raises(ConfigError, match="There is no table"):
        open_source(url)
    for further in (f"{url}&schema=s{name}", url.replace(f"table={name}", f"table=s{name}.{name}")):
        assert len(embeddings_of(open_source(further))) == 1


def test_a_reading_sees_one_moment_and_stops_nobody(make: Make, postgres_server: Server) -> None:
    url = make(*ITEMS, "CREATE TABLE {0}_own ()")
    name = url.rpartition("=")[2]
    batches = open_source(url).batches(["sku", "title"], 10)
    read = next(batches).column(0).to_pylist()
    for change in (
        f"UPDATE {name} SET title = 'new'",
        f"DELETE FROM {name} WHERE sku > 25",
        f"INSERT INTO {name} SELECT n, '[1,1]', 'new' FROM generate_series(51, 90) n",
        f"ALTER TABLE {name}_own ADD further int",
    ):
        postgres_server.execute(f"SET lock_timeout = '5s'; {change}")
    rest = list(batches)
    assert sorted(read + [one for batch in rest for one in batch.column(0).to_pylist()]) == list(range(1, 51))
    assert not any(title == "new" for batch in rest for title in batch.column(1).to_pylist())
    assert len(embeddings_of(open_source(url))) == 25 + 40


def test_nothing_can_be_written_through_a_source(make: Make) -> None:
    url = make(
        *ITEMS,
        "CREATE FUNCTION f{0}() RETURNS int LANGUAGE sql AS 'DELETE FROM {0} RETURNING sku'",
        "CREATE VIEW {0}_v AS SELECT f{0}() AS id, '[1]'::vector AS vector",
    )
    with pytest.raises(StoreError, match="read-only"):
        embeddings_of(open_source(f"{url}_v"))


def test_a_reading_takes_as_long_as_what_becomes_of_its_rows(make: Make, postgres_server: Server) -> None:
    url = make(*ITEMS)
    role = f"hurried{uuid.uuid4().hex[:8]}"
    postgres_server.execute(
        f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET idle_in_transaction_session_timeout = '100ms'; "
        f"ALTER ROLE {role} SET statement_timeout = '100ms'; GRANT SELECT ON {url.rpartition('=')[2]} TO {role}"
    )
    try:
        batches = open_source(url.replace("postgres@", f"{role}@")).batches(["sku"], 10)
        read = len(next(batches))
        time.sleep(0.3)
        assert read + sum(map(len, batches)) == 50
    finally:
        postgres_server.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
