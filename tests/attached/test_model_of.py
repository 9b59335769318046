"""The model that `model_of` names is that of the vectors which the same statement reads, whatever snapshot it has."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from crash.shop import Shop, made_by, source, written

SEARCH = "SELECT limpet_attached.model_of('shop.items', 'emb') AS model, i.emb::text AS emb FROM shop.items AS i " \
         "ORDER BY i.emb <=> q LIMIT 5"  # fmt: skip
FUNCTION = f"CREATE FUNCTION shop.match(q vector) RETURNS TABLE(model text, emb text) LANGUAGE plpgsql {{}} AS " \
           f"$$ BEGIN RETURN QUERY {SEARCH}; END $$"  # fmt: skip


def said_and_read(rows: list[tuple[Any, ...]]) -> tuple[set[str], set[str]]:
    return {model for model, _ in rows}, {f"declared:{made_by(emb)}" for _, emb in rows}


@pytest.mark.parametrize("kind", ["STABLE", "VOLATILE"])
def test_model_of_agrees_within_a_statement_that_began_before_the_swap(kind: str, shop: Shop) -> None:
    shop.fill(20)
    answers: list[tuple[Any, ...]] = []

    def ask() -> None:
        with psycopg.connect(shop.database, autocommit=True) as connection:
            answers.extend(
                connection.execute(
                    "SELECT m.* FROM (SELECT pg_advisory_xact_lock(7)) AS waited, LATERAL shop.match(%s::vector) AS m",
                    [written("old", "item 3")],
                ).fetchall()
            )

    with shop.start() as it:
        shop.execute(FUNCTION.format(kind))
        it.backfill(source(it))
        it.index()
        for turn, serving in ((it.swap, "new"), (it.rollback, "old")):
            answers.clear()
            with psycopg.connect(shop.database) as holder:
                holder.execute("SELECT pg_advisory_xact_lock(7)")
                asking = threading.Thread(target=ask)
                asking.start()
                waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                while not shop.execute(waiting):
                    assert asking.is_alive()
                turn()
            asking.join()
            said, read = said_and_read(answers)
            assert len(said) == 1 and said == read
            assert shop.execute("SELECT limpet_attached.model_of('shop.items', 'emb')") == [(f"declared:{serving}",)]


def test_model_of_agrees_in_a_transaction_that_began_before_the_swap(shop: Shop) -> None:
    shop.fill(20)
    search = SEARCH.replace("q LIMIT", "%s::vector LIMIT")
    with shop.start() as it, psycopg.connect(shop.database) as connection:
        it.backfill(source(it))
        it.index()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")  # takes its snapshot
        it.swap()
        said, read = said_and_read(connection.execute(search, [written("old", "item 3")]).fetchall())
        assert said == read == {"declared:new"}
