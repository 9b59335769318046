"""Galleries of tables of PostgreSQL: metadata columns have the types that the table says, and may be chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from limpet.cli import main
from limpet.engines.postgres.address import read_address

TABLE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TYPE {0}_size AS ENUM ('small', 'large');
CREATE DOMAIN {0}_money AS numeric(12, 2);
CREATE TABLE {0}_goods (
    key uuid, embedding vector(3), title text, price numeric, stock numeric(10, 0), cost {0}_money, sold boolean,
    seen timestamptz, listed timestamp, born date, facts jsonb, size {0}_size, tags text[], raw bytea
);
SET timezone TO 'Asia/Tokyo';
INSERT INTO {0}_goods VALUES
    ('00000000-0000-0000-0000-00000000000a', '[1,0,0]', 'a cup', 12.5, 3, 9.99, true, '2024-03-01 12:00:00+05:30',
     '2024-03-01 12:00:00.25', '2024-02-29', '{{"b": [1, "é"], "a": null}}', 'small', '{{x}}', '\\x00'),
    ('00000000-0000-0000-0000-00000000000b', '[0,1,0]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL),
    ('00000000-0000-0000-0000-00000000000c', '[0,0,1]', 'a jug', 1e25, 999999999, -0.01, false, 'infinity',
     '0044-03-15 BC', '-infinity', '7', 'large', '{{}}', '\\x01')
"""

A, B, C = (f"00000000-0000-0000-0000-00000000000{letter}" for letter in "abc")
TYPES = {
    "title": "text", "price": "number", "stock": "integer", "cost": "number", "sold": "truth", "seen": "text",
    "listed": "text", "born": "text", "facts": "text", "size": "text",
}  # fmt: skip
ITEMS: dict[str, dict[str, Any]] = {
    A: {"title": "a cup", "price": 12.5, "stock": 3, "cost": 9.99, "sold": True, "seen": "2024-03-01T06:30:00.000000Z",
        "listed": "2024-03-01T12:00:00.250000", "born": "2024-02-29", "facts": '{"a": null, "b": [1, "é"]}',
        "size": "small"},
    B: {},
    C: {"title": "a jug", "price": 1e25, "stock": 999_999_999, "cost": -0.01, "sold": False, "seen": "infinity",
        "listed": "0044-03-15 00:00:00 BC", "born": "-infinity", "facts": "7", "size": "large"},
}  # fmt: skip


class Shop:
    """A table of a database, and ``limpet gallery`` with it."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.table, self.capsys = url, f"{read_address(url).schema}_goods", capsys
        self.execute(TABLE.format(self.table.removesuffix("_goods")))
        table = f"{url.partition('&schema=')[0]}&table={self.table}"
        self.source = ["--embeddings", f"{table}&id=key&vector=embedding"]
        self.said = ""

    def execute(self, statement: str) -> None:
        with psycopg.connect(**read_address(self.url).parameters, autocommit=True) as connection:
            connection.execute(statement.encode())

    def run(self, subcommand: str, *words: object, code: int = 0) -> dict[str, Any]:
        self.capsys.readouterr()
        assert main(["gallery", subcommand, *map(str, words), "--json"]) == code
        captured = self.capsys.readouterr()
        self.said = " ".join(captured.err.split())
        return dict(json.loads(captured.out))

    def items(self, gallery: object) -> dict[str, Any]:
        hits = self.run("search", gallery, "--like", A, "--k", 10)["queries"][0]["hits"]
        found = {hit["id"]: hit["metadata"] for hit in hits}
        own = self.run("search", gallery, "--like", B, "--k", 10)["queries"][0]["hits"]
        return found | {hit["id"]: hit["metadata"] for hit in own if hit["id"] == A}


@pytest.fixture
def shop(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(postgres_url, capsys)


@pytest.mark.parametrize("kind", ["memory:", "lance:"])
def test_a_gallery_is_made_of_a_table(kind: str, shop: Shop, tmp_path: Path) -> None:
    made = shop.run("create", f"{kind}{tmp_path / 'g'}", *shop.source, "--name", "v1")
    assert (made["items"], made["columns"], made["space"]["dim"]) == (3, TYPES, 3)
    assert "Not taken as metadata: 'tags', 'raw'" in shop.said
    assert shop.items(tmp_path / "g") == ITEMS


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("seen>=2024-03-01T06", [A, C]), ("seen<2024-03-01T07", [A]), ("size=large", [C]), ("stock>3", [C]),
     ("price<100", [A])],
)  # fmt: skip
def test_moments_sort_as_texts(condition: str, expected: list[str], shop: Shop) -> None:
    shop.run("create", shop.url, *shop.source, "--name", "v1")
    hits = shop.run("search", shop.url, "--like", B, "--where", condition)["queries"][0]["hits"]
    assert sorted(hit["id"] for hit in hits) == expected


def test_columns_are_chosen(shop: Shop, tmp_path: Path) -> None:
    gallery = tmp_path / "g"
    chosen = ["--take", "title", "cents=cost"]
    made = shop.run("create", f"memory:{gallery}", *shop.source, "--name", "v1", *chosen)
    assert made["columns"] == {"title": "text", "cents": "number"} and "Not taken" not in shop.said
    assert shop.items(gallery) == {A: {"title": "a cup", "cents": 9.99}, B: {}, C: {"title": "a jug", "cents": -0.01}}

    other = tmp_path / "other"
    shop.run("create", f"memory:{other}", "--name", "v1", "--dim", 3, "--columns", "title=text", "price=number")
    shop.run("import", other, *shop.source, "--name", "g1", "--take", "title")
    assert shop.items(other) == {A: {"title": "a cup"}, B: {}, C: {"title": "a jug"}}
    shop.run("delete", other, "--ids", A, B, C)
    shop.run("import", other, *shop.source, "--name", "g1")
    assert "Not taken, since the gallery has no columns of these names: 'stock'" in shop.said
    assert shop.items(other)[A] == {"title": "a cup", "price": 12.5}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--take", "titel"], "Unknown column of table '{}' of the database 'titel'. Did you mean 'title'? Expected: "
         "one of title, price"),
        (["--take", "tags"], "The column 'tags' of table '{}' of the database can be no metadata. Expected: texts, "
         "numbers or truth values: one of title, price"),
        (["--take", "two words=title"], "A metadata column 'two words'"),
        (["--take", "title", "title"], "Expected: 'title' once"),
        (["--take", "=title"], "Expected: COLUMN, or NAME=COLUMN"),
    ],
)  # fmt: skip
def test_wrong_choices_make_no_gallery(words: list[str], said: str, shop: Shop, tmp_path: Path) -> None:
    shop.run("create", f"memory:{tmp_path / 'g'}", *shop.source, "--name", "v1", *words, code=2)
    assert said.format(shop.table) in shop.said and not (tmp_path / "g").exists()


def test_wrong_choices_import_nothing(shop: Shop, tmp_path: Path) -> None:
    gallery = tmp_path / "g"
    shop.run("create", f"memory:{gallery}", "--name", "v1", "--dim", 3, "--columns", "title=text")
    shop.run("import", gallery, *shop.source, "--name", "g1", "--take", "titles", code=2)
    assert "no metadata column 'titles'. Did you mean 'title'? Expected: one of title" in shop.said
    shop.run("import", gallery, *shop.source, "--name", "g1", "--take", "price", code=2)
    assert "`limpet gallery create` takes them from the same table" in shop.said
    shop.run("import", gallery, *shop.source, "--name", "g1", "--take", "title=heading", code=2)
    assert "Unknown column of table" in shop.said
    assert shop.run("status", gallery)["items"] == 0
    shop.run("create", f"memory:{tmp_path / 'h'}", "--name", "v1", "--dim", 3, "--take", "title", code=2)
    assert "--take without a table" in shop.said


@pytest.mark.parametrize(
    ("column", "value"), [("price", "NaN"), ("price", "Infinity"), ("price", "-Infinity"), ("stock", "NaN")]
)
def test_what_is_no_number_is_named(column: str, value: str, shop: Shop, tmp_path: Path) -> None:
    shop.execute(f"UPDATE {shop.table} SET {column} = '{value}' WHERE key = '{C}'")
    shop.run("create", f"memory:{tmp_path / 'g'}", *shop.source, "--name", "v1", code=2)
    assert f"'{column}'" in shop.said and "leave the column out" in shop.said
    assert "--take" in shop.said and "the gallery was made and has 0 items" in shop.said.lower()
    others = [name for name in TYPES if name != column]
    shop.run("create", f"memory:{tmp_path / 'h'}", *shop.source, "--name", "v1", "--take", *others)
    assert shop.items(tmp_path / "h")[C] == {name: ITEMS[C][name] for name in others}
