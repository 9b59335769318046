"""URLs of sources: what they say, and that what is wrong with them is told without a password."""

from __future__ import annotations

import pytest

from limpet.cli.places import Place
from limpet.engines.services import collection_of
from limpet.engines.sources import Roles, Sample, open_source, read_address
from limpet.errors import ConfigError, LimpetError


def test_everything_that_a_url_may_say() -> None:
    address = read_address(
        "postgres+psycopg://me:s3cret@host:5433/shop?sslmode=require&table=shop.items&id=sku&vector=emb&text=title"
        "&image=photo&label=kind&where=price%3C10&where=kind!=&sample=100&seed=7&model=ada&similarity=euclidean"
        "&missing=skip"
    )
    assert (address.scheme, address.place) == ("postgresql", "postgresql://me:s3cret@host:5433/shop")
    assert address.roles == Roles("sku", "emb", "title", "photo", "kind")
    assert (address.table, address.model, address.similarity) == ("shop.items", "ada", "euclidean")
    assert address.where == ("price<10", "kind!=") and address.sample == Sample(100, 7)
    assert address.options == {"sslmode": "require"} and address.missing == "skip"
    assert "s3cret" not in repr(address) and address.called == "ada"


@pytest.mark.parametrize(
    ("url", "place", "table", "called"),
    [
        ("lance:db#items?vector=emb", "db", "items", "items.emb"),
        ("lance:/a/db?vector=emb#items", "/a/db", "items", "items.emb"),
        ("lance:/a/items.lance", "/a/items.lance", None, "items"),
        ("milvus://host:19530/?collection=items", "milvus://host:19530/", "items", "items"),
    ],
)
def test_where_a_table_is_named(url: str, place: str, table: str | None, called: str) -> None:
    address = read_address(url)
    assert (address.place, address.table, address.called) == (place, table, called)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:s3cret@host/shop?table=items&colour=red", "Unknown option 'colour' of a URL of postgresql"),
        ("postgresql://me:s3cret@host/shop?table=items&vectr=emb", "Did you mean 'vector'"),
        ("postgresql://me:s3cret@host/shop?table=items&table=goods", "names 2 tables"),
        ("postgresql://me:s3cret@host/shop", "A database without a table"),
        ("postgresql://me:s3?cret@host/shop?table=items", "cannot be read"),
        ("postgresql://me:s3&cret@127.0.0.1:1/shop?table=items", "fails: connection failed"),
        ("postgresql://me:s3#cret@host/shop?table=items", ""),
        ("postgresql://me:s3cret@host/shop?table=items&vector=", "says vector= and nothing"),
        ("postgresql://me:s3cret@host/shop?table=items&id=a&id=b", "says id= 2 times"),
        ("postgresql://me:s3cret@host/shop?table=items&sample=few", "sample=few"),
        ("postgresql://me:s3cret@host/shop?table=items&sample=0", "at least 1"),
        ("postgresql://me:s3cret@host/shop?table=items&seed=1", "seed= without sample="),
        ("postgresql://me:s3cret@host/shop?table=items&similarity=dot", "Unknown similarity 'dot'"),
        ("postgresql://me:s3cret@host/shop?table=items&missing=drop", "one of refuse, skip"),
        ("postgresql://me:s3cret@127.0.0.1:1/shop?table=items", "fails: connection failed"),
        ("mysql://me:s3cret@host/shop?table=items", "Unknown kind of source 'mysql'"),
        ("parquet:items.parquet?table=items", "the file alone"),
        ("parquet:no-such.parquet", "Cannot read 'no-such.parquet'"),
    ],
)
def test_what_is_wrong_is_told_without_a_password(url: str, said: str) -> None:
    with pytest.raises(LimpetError) as refusal:
        open_source(url)
    assert said in str(refusal.value)
    assert "s3" not in str(refusal.value) and "cret" not in str(refusal.value)


def test_a_place_is_a_path_or_a_url(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lance:db").mkdir()
    for path in ("runs/old", "old.npz", "a:b", "lance:db", "C:\\old"):
        assert Place(path).address is None and str(Place(path).path) == path
    place = Place("postgresql://me:s3cret@host/shop?table=items&vector=emb")
    assert (place.name, place.nameless, place.folder) == ("items.emb", True, None)
    assert "s3cret" not in f"{place} {place!r}" and "me@host" in str(place)
    with pytest.raises(ConfigError, match="Unknown kind of source 'mongodb'"):
        open_source(Place("mongodb://host/db").address or "")


def test_a_url_longer_than_names_of_files() -> None:
    url = f"parquet:items.parquet?where=title%3D{'a' * 300}"
    address = Place(url).address
    assert address is not None and address.place == "items.parquet"


@pytest.mark.parametrize("place", ["[::1/items", "host:port/items"])
def test_places_of_services_that_cannot_be_read(place: str) -> None:
    with pytest.raises(ConfigError, match="URL of qdrant cannot be read"):
        collection_of(read_address(f"qdrant://{place}"))
