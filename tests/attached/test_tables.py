"""Kinds of tables, keys, indexes and connections beside which an upgrade works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from crash.server import Pooler, Server
from crash.shop import GOODS, NEW, OLD, Shop, made_by, source, vector, written
from limpet.adapters import ADAPTERS
from limpet.attached.opening import previewed
from limpet.attached.plan import Unstarted
from limpet.attached.postgres.attachment import PostgresAttachment, start
from limpet.attached.postgres.verify import concern
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.sides import ModelSide
from limpet.errors import ConfigError, LastingStoreError, UpgradeStateError
from limpet.geometry import Hypersphere
from limpet.training.text_models import VectorMap
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import through

PARTS = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id bigint, title text, price numeric, emb vector(8), shelf text, PRIMARY KEY (id, shelf))
    PARTITION BY LIST (shelf);
CREATE TABLE shop.items_a PARTITION OF shop.items FOR VALUES IN ('a');
CREATE TABLE shop.items_b PARTITION OF shop.items FOR VALUES IN ('b', 'B') PARTITION BY LIST (shelf);
CREATE TABLE shop.items_b1 PARTITION OF shop.items_b FOR VALUES IN ('b');
CREATE TABLE shop.items_b2 PARTITION OF shop.items_b DEFAULT;
CREATE INDEX items_emb ON shop.items USING hnsw (emb vector_cosine_ops);
"""


def all_the_way(it: PostgresAttachment, shop: Shop, rows: int) -> None:
    assert it.backfill(source(it), batch=7).written == rows
    it.index()
    assert all(one.built for one in it.status().indexes)
    it.swap()
    assert set(shop.sides().values()) == {"new"}
    it.rollback()
    assert set(shop.sides().values()) == {"old"}


def used_index(shop: Shop, order: str = "emb <=> '[1,1,1,1,1,1,1,1]'") -> str:
    with psycopg.connect(shop.database) as connection:
        connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        rows = connection.execute(f"EXPLAIN SELECT id FROM shop.items ORDER BY {order} LIMIT 3").fetchall()
    return "\n".join(str(line) for (line,) in rows)


def test_partitions_and_a_key_of_two_columns(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(PARTS)
    for shelf, first in (("a", 0), ("b", 10), ("B", 20)):
        for row in range(first, first + 10):
            shop.execute("INSERT INTO shop.items (id, title, emb, shelf) VALUES (%s, %s, %s, %s)",
                         [row, f"item {row}", written("old", f"item {row}"), shelf])  # fmt: skip
    schema, rows = shop.dump(), shop.contents()
    with shop.start() as it:
        all_the_way(it, shop, 30)
        it.swap()
        assert used_index(shop).count("Index Scan using items_") == 3
        it.declare_writes("old")
        shop.execute("UPDATE shop.items SET shelf = 'a' WHERE id = 10")  # a row moves: it is not written anew
        assert shop.sides()[10] == "new" and it.status().lacking == {"old": 0, "new": 0}
        shop.execute("UPDATE shop.items SET shelf = 'b' WHERE id = 10")
        shop.execute("CREATE TABLE shop.items_c PARTITION OF shop.items FOR VALUES IN ('c')")
        shop.execute("INSERT INTO shop.items (id, title, emb, shelf) VALUES (50, 'x', %s, 'c')", [written("old", "x")])
        assert it.status().lacking == {"old": 0, "new": 1}
        shop.execute("DROP TABLE shop.items_c")
        it.rollback()
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


@pytest.mark.parametrize(
    "made",
    ["CREATE TABLE shop.items (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), title text, emb vector(8))",
     "CREATE TYPE shop.size AS ENUM ('s', 'l'); CREATE TABLE shop.items (id shop.size, \"A b\" varchar(9), title text, "
     "emb vector(8), PRIMARY KEY (\"A b\", id))",
     "CREATE TABLE shop.items (id timestamptz PRIMARY KEY, title json, emb vector)",
     "CREATE TABLE shop.items (id char(5) PRIMARY KEY, title text, emb halfvec(8))"],
)  # fmt: skip
def test_keys_of_any_type(made: str, make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(f"CREATE SCHEMA shop; {made}")
    names = {"uuid": "gen_random_uuid()", "size": "'s', 'it''s \"1\"'", "timestamptz": "'2024-02-29 12:00:00.12345+01'",
             "char(5)": "'ab'"}  # fmt: skip
    kind = next(name for name in names if name in made)
    columns = 'id, "A b"' if kind == "size" else "id"
    shop.execute(f"INSERT INTO shop.items ({columns}, title, emb) VALUES ({names[kind]}, '\"x\"', %s)",
                 [written("old", '"x"')])  # fmt: skip
    schema, rows = shop.dump(), shop.contents()
    with shop.start() as it:
        all_the_way(it, shop, 1)
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


def test_partitions_that_come_while_indexes_are_built_share_them(make_shop: Callable[..., Shop]) -> None:
    """PostgreSQL gives a partition an index of its own choice where the parent has one, also an incomplete one."""
    shop = make_shop(
        "CREATE SCHEMA shop; CREATE TABLE shop.items (id bigint PRIMARY KEY, title text, emb vector(8)) "
        "PARTITION BY RANGE (id); CREATE TABLE shop.low PARTITION OF shop.items FOR VALUES FROM (0) TO (100); "
        "CREATE INDEX items_emb ON shop.items USING hnsw (emb vector_cosine_ops)"
    )

    def come(first: int) -> None:
        shop.execute(
            f"CREATE TABLE shop.from_{first} PARTITION OF shop.items FOR VALUES FROM ({first}) TO ({first + 100})"
        )
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (%s, 'one', %s)", [first, written("old", "one")])

    with shop.start() as it:
        it.backfill(source(it))
        whole, came = it._database.alone, []

        def alone(statement: str) -> None:
            whole(statement)
            if "ON ONLY" in statement:  # the index of the parent is there, and not complete
                came.append(100 * (len(came) + 1))
                come(came[-1])

        it._database.alone = alone  # type: ignore[method-assign]
        it.index()
        it.index()  # of partitions that came before the index of the parent
        come(1000)
        it.backfill(source(it))
        assert len(came) > 1 and all(index.built for index in it.status().indexes)
        it.swap(source(it))
        it.rollback(source(it, "old"))
        it.cancel()
    names = {name for (name,) in shop.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'shop'")}
    assert not [name for name in names if "limpet" in name]


def test_indexes_of_partitions_have_their_names_after_the_end(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(PARTS)
    schema = set(shop.dump().splitlines())
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        it.swap(writes="new")
        it.finish()
    after = set(shop.dump().splitlines())
    assert not [line for line in after if "limpet" in line]
    moved = {line for line in schema ^ after if line.strip(" ,")}
    assert all(line.split()[0] in ("emb", "shelf") for line in moved), moved  # the vectors are the last column


@pytest.mark.parametrize(
    ("index", "order"),
    [
        ("hnsw (emb vector_l2_ops) WITH (m='5', ef_construction='20')", "emb <-> '[1,1,1,1,1,1,1,1]'"),
        ("ivfflat (emb vector_ip_ops) WITH (lists='2') WHERE (id > 3)", ""),
        ("hnsw (((emb)::halfvec(8)) halfvec_cosine_ops)", "emb::halfvec(8) <=> '[1,1,1,1,1,1,1,1]'"),
        ("hnsw (((binary_quantize(emb))::bit(8)) bit_hamming_ops)", ""),
    ],
)
def test_indexes_are_made_as_they_are(index: str, order: str, make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(f'{GOODS.split("CREATE INDEX")[0]}; CREATE INDEX "My index" ON shop.items USING {index};')
    shop.fill(20)
    schema = shop.dump()
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        it.swap(writes="new")
        if order:
            assert "My index_limpet_new" in used_index(shop, order)
        it.finish()
    assert shop.dump() == schema and set(shop.sides().values()) == {"new"}


def test_half_built_indexes_are_built_anew(shop: Shop) -> None:
    shop.fill(10)
    with shop.start() as it:
        it.backfill(source(it))
        shop.execute("CREATE INDEX items_emb_limpet_new ON shop.items USING hnsw (emb_limpet_new vector_cosine_ops)")
        shop.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'shop.items_emb_limpet_new'::regclass")
        assert [one.built for one in it.status().indexes] == [False] * 3
        assert any("half built" in problem for problem in it.verify().problems)
        it.index()
        assert [one.built for one in it.status().indexes] == [True] * 3
        shop.execute("DROP INDEX shop.items_emb_limpet_new")
        with pytest.raises(UpgradeStateError, match="items_emb_limpet_new is not built"):
            it.swap()
        it.index()
        it.swap()


NOTED = """
ALTER TABLE shop.items ADD COLUMN changed int DEFAULT 0;
CREATE FUNCTION shop.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.changed := OLD.changed + 1; RETURN NEW; END';
CREATE TRIGGER note BEFORE UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.note();
"""


@pytest.mark.parametrize("fired", [False, True])
def test_triggers_of_the_application_are_left_alone(fired: bool, shop: Shop) -> None:
    shop.execute(NOTED)
    shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (1, 'a', %s)", [written("old", "a")])
    schema, rows = shop.dump(), shop.contents()
    with shop.start(fire_triggers=fired) as it:
        all_the_way(it, shop, 1)
        it.cancel()
    assert shop.dump() == schema and (shop.contents() == rows) == (not fired)


def test_an_adapter_maps_the_vectors_that_are_there(shop: Shop) -> None:
    shop.fill(60)
    texts = [f"item {row}" for row in range(60)]
    sides: dict[ModelSide, EmbeddingSet] = {
        side: EmbeddingSet(np.stack([vector(side, text) for text in texts]), StringArray.of(texts),
                           f"declared:{side}", Hypersphere(8), "document")
        for side in ("old", "new")
    }  # fmt: skip
    adapter = ADAPTERS["ridge"](direction="old_to_new").fit(sides["old"], sides["new"])
    new = UpgradeModel(adapter.mapped_fingerprint, 8)
    shop.execute("UPDATE shop.items SET emb = '[0,0,0,0,0,0,0,0]' WHERE id = 7")
    shop.execute("UPDATE shop.items SET emb = '[2,0,0,0,0,0,0,0]' WHERE id = 8")  # lengths do not matter
    with shop.start(new=new) as it:
        done = it.backfill(through(it.stored, VectorMap.of_adapter(adapter)))
        assert (done.written, done.missing_ids) == (59, ("7",))  # zero has no direction
        it.index()
        it.swap(allow_missing=1)
        [(found,)] = shop.execute("SELECT emb::text FROM shop.items WHERE id = 3")
        mapped = adapter.apply(sides["old"]).vectors[3]
        np.testing.assert_allclose(np.array(found.strip("[]").split(","), float), mapped, atol=1e-6)


def test_statements_that_were_prepared_before(shop: Shop) -> None:
    shop.fill(20)
    search = "SELECT id, emb FROM shop.items ORDER BY emb <=> (SELECT emb FROM shop.items WHERE id = %s) LIMIT 3"
    with psycopg.connect(shop.database, autocommit=True, prepare_threshold=0) as connection:

        def sides() -> set[ModelSide]:
            return {made_by(emb) for row in range(20) for _, emb in connection.execute(search, [row])}

        assert sides() == {"old"}
        with shop.start() as it:
            it.backfill(source(it))
            it.index()
            it.swap()
            assert sides() == {"new"}
            it.rollback()
            assert sides() == {"old"}
            it.cancel()
        assert sides() == {"old"}


def test_several_fillers_share_the_rows(shop: Shop) -> None:
    shop.fill(200)
    asked: list[str] = []
    done: list[int] = []

    def fill() -> None:
        with shop.open() as own:
            texts = source(own)
            embed = texts.embed
            texts.embed = lambda ids: (asked.extend(ids), embed(ids))[1]  # type: ignore[method-assign]
            done.append(own.backfill(texts, batch=9).written)

    with shop.start() as it:
        threads = [threading.Thread(target=fill) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(done) == 200 and it.status().lacking["new"] == 0
        assert len(asked) < 300  # rows of a batch that another one has in hand may be asked for twice


def test_texts_that_are_missing(shop: Shop) -> None:
    shop.fill(4)
    shop.execute("UPDATE shop.items SET title = NULL WHERE id = 2")
    with shop.start() as it:
        done = it.backfill(source(it))
        assert (done.written, done.without_text_ids, done.lacking) == (3, ("2",), 1)
        it.index()
        with pytest.raises(UpgradeStateError, match=r"1 rows have no up-to-date vector of the new model.*'2'"):
            it.swap()
        it.swap(allow_missing=1)


def test_texts_of_several_columns_are_the_same_before_the_start(shop: Shop) -> None:
    shop.execute("INSERT INTO shop.items VALUES (1, 'a', 1.50), (2, NULL, 2), (3, 'c', NULL), (4, NULL, NULL)")
    url, ids = shop.at("shop.items", "text=title,price"), ["1", "2", "3", "4"]
    shop.execute("UPDATE shop.items SET emb = %s", [written("old", "any")])
    with previewed(url) as planned:
        assert isinstance(planned, Unstarted)
        before = planned.texts.read(ids)
    with pytest.raises(ConfigError, match="titel"), previewed(shop.at("shop.items", "text=titel,price")):
        pass
    with shop.start(url) as it:
        assert it.texts.read(ids) == before


@pytest.fixture
def role(shop: Shop) -> Iterator[str]:
    name = f"guest_{shop.name[-8:]}"
    shop.execute(
        f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA shop TO {name}; "
        f"GRANT SELECT, TRIGGER ON shop.items TO {name}; GRANT CREATE ON DATABASE {shop.name} TO {name}"
    )
    yield name
    shop.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_table_of_somebody_else(shop: Shop, role: str) -> None:
    shop.fill(12)
    schema, rows = shop.dump(), shop.contents()
    url = shop.at("shop.items", "text=title", user=role)
    with pytest.raises(LastingStoreError, match="Without rights to alter the table, --aside"):
        start(url, old=OLD, new=NEW)
    with start(url, old=OLD, new=NEW, aside=True) as it:
        assert it.backfill(source(it)).written == 12
        it.index()
        assert all(one.built for one in it.status().indexes)
        with pytest.raises(UpgradeStateError, match="a table of their own"):
            it.swap()
        [query] = it.status().application.queries.values()
        query = query.replace("…", "id, new.vector", 1).replace("…", "'[0,0,0,0,1,0,0,0]' LIMIT 50")
        shop.execute("UPDATE shop.items SET title = 'other', emb = %s WHERE id = 1", [written("old", "other")])
        shop.execute("DELETE FROM shop.items WHERE id = 2")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (20, 'a', %s)", [written("old", "a")])
        shop.execute("UPDATE shop.items SET id = 21 WHERE id = 3")
        assert it.status().lacking == {"old": 0, "new": 3}
        it.backfill(source(it))
        found = dict(shop.execute(query))
        assert set(found) == {*range(12), 20, 21} - {2, 3}
        for row, text in ((1, "other"), (20, "a"), (21, "item 3")):
            np.testing.assert_allclose(
                np.array(found[row].strip("[]").split(","), float), vector("new", text), atol=1e-5
            )
        for row, text in ((1, "item 1"), (3, "item 3")):
            shop.execute("DELETE FROM shop.items WHERE id = %s", [20 if row == 1 else 21])
            shop.execute("INSERT INTO shop.items VALUES (%s, %s, 1.5, %s) ON CONFLICT (id) DO UPDATE SET "
                         "title = excluded.title, emb = excluded.emb", [row, text, written("old", text)])  # fmt: skip
        shop.execute("INSERT INTO shop.items VALUES (2, 'item 2', 1.5, %s)", [written("old", "item 2")])
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


@pytest.fixture
def pooler(postgres_server: Server) -> Iterator[Pooler]:
    if Pooler.program is None:
        pytest.skip("no PgBouncer is installed")
    found = Pooler(postgres_server, "transaction", default_pool_size=2, server_round_robin=1)
    yield found
    found.stop()


def test_behind_a_pooler_that_shares_sessions(pooler: Pooler, shop: Shop) -> None:
    shop.fill(30)
    schema = shop.dump()
    url = shop.url.replace(str(shop.server.sockets), str(pooler.folder))
    with start(url, old=OLD, new=NEW) as it:
        all_the_way(it, shop, 30)
        it.cancel()
    assert shop.dump() == schema


@pytest.mark.slow
def test_queries_that_should_change_are_found(tmp_path: Path) -> None:
    server = Server()
    try:
        server.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        server.kill()
        server.start()
        shop = Shop(server, "watched")
        shop.fill(3)
        with shop.start() as it:
            assert "CREATE EXTENSION pg_stat_statements" in it.verify().unwatched
            shop.execute("CREATE EXTENSION pg_stat_statements")
            it.backfill(source(it))
            it.index()
            it.swap()
            shop.execute("SELECT pg_stat_statements_reset()")
            good = "SELECT id, title FROM shop.items ORDER BY emb <=> '[1,1,1,1,1,1,1,1]' LIMIT 2"
            shop.execute(good)
            assert it.verify().passed
            bad = {
                "SELECT emb_limpet_old FROM shop.items": "which will be gone",
                "SELECT * FROM shop.items WHERE id = 1": "selects *",
                "INSERT INTO shop.items VALUES (50, 'a', 1, NULL)": "names no columns",
            }
            for query in bad:
                shop.execute(query)
            found = it.verify()
            assert len(found.queries) == 3 and not found.problems and not found.passed
            for one in found.queries:
                assert one.calls == 1 and any(why in one.why for query, why in bad.items() if query[:12] in one.query)
            assert it.verify(watch=0.01).passed  # nobody sends them any more
            stopped = threading.Event()

            def go_on() -> None:
                while not stopped.is_set():
                    shop.execute("SELECT * FROM shop.items")

            client = threading.Thread(target=go_on)
            client.start()
            try:
                assert [one.why[:12] for one in it.verify(watch=1.0).queries] == ["it selects *"]
            finally:
                stopped.set()
                client.join()
    finally:
        server.stop()


def test_triggers_that_are_gone_are_noticed(shop: Shop) -> None:
    shop.fill(2)
    with shop.start() as it:
        assert not it.verify().problems
        [(name,)] = shop.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'zz%row'")
        shop.execute(f"ALTER TABLE shop.items DISABLE TRIGGER {name}")
        assert "switched off" in it.verify().problems[0]
        shop.execute(f"DROP TRIGGER {name} ON shop.items")
        assert "1 of our triggers are gone" in it.verify().problems[0]
        it.declare_writes("old")
        assert not it.verify().problems


def test_concern_names_statements_that_an_upgrade_would_break(shop: Shop) -> None:
    with shop.start() as it:
        entry = it.entry
    assert concern("SELECT * FROM shop.items WHERE id = 1", entry).startswith("it selects *")
    assert concern('UPDATE "shop"."items" SET price = 1 RETURNING *', entry).startswith("it selects *")
    assert concern("INSERT INTO items VALUES (50, 'a', 1, NULL)", entry).startswith("it names no columns")
    assert "which will be gone" in concern("SELECT emb_limpet_old FROM shop.items", entry)
    for harmless in (
        "SELECT id, count(*) FROM shop.items GROUP BY id",
        "SELECT * FROM shop.others",
        "ALTER TABLE items",
    ):
        assert concern(harmless, entry) == ""
