"""URLs of tables that are attached mean what those of sources do."""

from __future__ import annotations

import pytest

from limpet.engines.postgres.table_address import read_table_address
from limpet.errors import ConfigError


def test_a_table_its_columns_and_its_schema() -> None:
    address = read_table_address("postgres+psycopg://ann:s3cret@db/shop?table=a.b&id=x,y&text=t,%C3%BC&sslmode=require")
    assert (address.table, address.key, address.vector, address.texts) == ("a.b", ("x", "y"), "", ("t", "ü"))
    assert address.database.parameters["sslmode"] == "require" and "s3cret" not in address.url
    assert read_table_address("postgresql://db/shop?table=items&schema=goods").table == "goods.items"
    assert read_table_address("postgresql://db/shop").table == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("lance:db#items", "no database"),
        ("postgresql:items", "no database"),
        ("postgresql://db/shop?table=a&table=b", "names 2 tables"),
        ("postgresql://db/shop?table=a&id=b&id=c", "id= 2 times"),
        ("postgresql://db/shop?table=a&where=price<3", "says more"),
        ("postgresql://db/shop?table=a&label=kind", "says more"),
        ("postgresql://db/shop?table=a&id=b%22", "The name 'b\"'"),
        ("postgresql://db/shop?table=a&tabel=b", "Did you mean 'table'"),
    ],
)
def test_what_cannot_be_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_table_address(url)
