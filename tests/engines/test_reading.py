"""Of every kind of source: the same rows, the same sample, the same embeddings as of files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.storage import from_parquet
from limpet.engines.reading import SourceTexts, embeddings_of, texts_of
from limpet.engines.source import roles_of
from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, LimpetError

ROWS, DIM = 60, 5


def table(rows: int = ROWS, **changes: Any) -> pa.Table:
    vectors = np.random.default_rng(3).normal(size=(rows, DIM)).astype(np.float32)
    numbers = range(rows)
    columns = {
        "id": [f"i{number:03}" for number in numbers],
        "emb": pa.array(list(vectors), pa.list_(pa.float32())),
        "title": [f"thing {number}" if number % 7 else None for number in numbers],
        "price": [number / 4 for number in numbers],
        "kind": [f"k{number % 3}" for number in numbers],
    }
    return pa.table({**columns, **changes})


def same(found: EmbeddingSet, expected: EmbeddingSet) -> None:
    order, other = np.argsort(list(found.ids)), np.argsort(list(expected.ids))
    assert list(found.ids[order]) == list(expected.ids[other])
    np.testing.assert_array_equal(found.vectors[order], expected.vectors[other])
    assert found.labels is not None and expected.labels is not None
    np.testing.assert_array_equal(found.labels[order], expected.labels[other])
    assert list(found.class_names or ()) == list(expected.class_names or ())
    np.testing.assert_array_equal(found.columns["price"][order], expected.columns["price"][other])
    assert (found.space, found.form, found.fingerprint) == (expected.space, expected.form, expected.fingerprint)


def test_embeddings_are_those_of_a_file(write: Any, tmp_path: Path) -> None:
    written = table()
    source = open_source(write(written) + "&label=kind&model=ada")
    assert (source.rows, roles_of(source).id, list(source.schema)) == (ROWS, "id", written.column_names)
    pq.write_table(written.rename_columns(["id", "vector", "title", "price", "label"]), tmp_path / "same.parquet")
    expected = from_parquet(tmp_path / "same.parquet", fingerprint="declared:ada")
    same(embeddings_of(source), expected)
    same(embeddings_of(source, most_memory=0), expected)
    assert not embeddings_of(source, most_memory=0).vectors.flags.writeable, "from a temporary file"
    same(
        embeddings_of(source, similarity="euclidean"),
        from_parquet(tmp_path / "same.parquet", fingerprint="declared:ada", similarity="euclidean"),
    )


SAMPLE = ["i004", "i005", "i021", "i031", "i047"]
"""The five of lowest MD5 of ``3:ID`` computed with md5sum."""


def test_conditions_and_samples(write: Any) -> None:
    url = write(table())

    def ids(further: str) -> list[str]:
        source = open_source(url + further)
        batches = list(source.batches(["price", "id"], 4))
        assert all(batch.schema.names == ["price", "id"] for batch in batches)
        found = [one for batch in batches for one in batch.column(1).to_pylist()]
        assert source.address.sample is None or source.rows == len(found)
        return sorted(found)

    assert ids("&where=price<1") == ["i000", "i001", "i002", "i003"]
    assert ids("&where=price>=14&where=kind=k2") == ids("&where=price>=14&where=kind='k2'") == ["i056", "i059"]
    for wrong in ("price>='14'", "kind=k2 AND price", "kind=k2 price<3"):
        with pytest.raises(ConfigError, match="The condition"):
            open_source(f"{url}&where={wrong}")
    assert ids("&where=title!=&where=price<2") == [f"i00{number}" for number in range(1, 7)]
    assert ids("&sample=5&seed=3&where=price<15") == SAMPLE
    assert ids("&sample=5&seed=3") == ids("&seed=3&sample=5") != ids("&sample=5")
    assert len(ids("&sample=1000")) == ROWS


def test_rows_by_their_ids(write: Any) -> None:
    source = open_source(write(table()) + "&text=title&where=price<1&sample=2")
    asked = ["i050", "nothing", "i001", "i000", "it's"]
    found = {one: price for batch in source.fetch(asked, ["id", "price"]) for one, price in zip(*batch, strict=True)}
    assert {one.as_py(): price.as_py() for one, price in found.items()} == {"i000": 0, "i001": 0.25, "i050": 12.5}
    assert SourceTexts(source).read(asked) == (["i050", "i001", "i000"], ["thing 50", "thing 1", ""])
    assert SourceTexts(source).read([]) == ([], [])


def test_texts(write: Any) -> None:
    url = write(table()) + "&text=title&label=kind"
    with pytest.raises(DataError, match=r"(?s)values of 'title' .* are missing.*where=title!="):
        texts_of(open_source(url))
    found = texts_of(open_source(url + "&where=title!="))
    assert len(found) == 51 and found.class_names == ("k0", "k1", "k2")
    row = list(found.ids).index("i010")
    assert found.texts[row] == "thing 10" and found.labels is not None and found.labels[row] == 1
    with pytest.raises(DataError, match="has no rows"):
        texts_of(open_source(url + "&where=price<0"))
    with pytest.raises(DataError, match="'price' of"):
        texts_of(open_source(url.replace("text=title", "text=price")))


def test_what_cannot_be_used(write: Any) -> None:
    vectors = table().column("emb").to_pylist()
    vectors[2] = vectors[40] = None
    url = write(table(emb=pa.array(vectors, pa.list_(pa.float32())))) + "&model=ada"
    with pytest.raises(DataError, match=r"(?s)2 of 60 are missing \('i002', 'i040'\).*missing=skip"):
        embeddings_of(open_source(url))
    assert len(embeddings_of(open_source(url + "&missing=skip"))) == ROWS - 2
    for wrong, said in (
        (url.replace("vector=emb", "vector=em"), r"Unknown column of .* 'em'.*Did you mean 'emb'"),
        (url + "&id=sku", "Unknown column of .* 'sku'"),
        (url + "&where=cost<3", "Unknown metadata column 'cost'"),
        (url + "&where=price", "The condition 'price'"),
        (url.replace("vector=emb", "vector=title"), r"(?s)The column 'title' of .*a list of numbers"),
        (url.replace("&model=ada", ""), "does not say which model"),
    ):
        with pytest.raises(LimpetError, match=said):
            embeddings_of(open_source(wrong))


def test_vectors_of_several_dimensions_and_ids_twice(write: Any, request: pytest.FixtureRequest) -> None:
    vectors = table().column("emb").to_pylist()
    vectors[50] = vectors[50][:3]
    url = write(table(emb=pa.array(vectors, pa.list_(pa.float32())))) + "&model=ada"
    with pytest.raises(DataError, match=r"1 of 60 have another dimension than the first, 5 \('i050'\)"):
        embeddings_of(open_source(url))


@pytest.mark.parametrize("write", ["lance", "parquet"], indirect=True)
def test_an_id_twice(write: Any) -> None:
    ids = [f"i{number % 59}" for number in range(ROWS)]
    with pytest.raises(DataError, match="1 ids occur more than once: 'i0'"):
        embeddings_of(open_source(write(table(id=ids)) + "&model=ada"))
    with pytest.raises(DataError, match="1 ids are missing"):
        list(open_source(write(table(id=[None, *ids[1:]])) + "&sample=3").batches(["id"], 10))


def test_a_source_that_says_its_model_is_read_as_of_no_other(tmp_path: Path) -> None:
    record = {"limpet": '{"fingerprint": "declared:said"}'}
    pq.write_table(table().replace_schema_metadata(record), tmp_path / "said.parquet")
    place = f"parquet:{tmp_path / 'said.parquet'}?vector=emb"
    assert embeddings_of(open_source(place)).fingerprint == "declared:said"
    assert embeddings_of(open_source(place), fingerprint="declared:said").fingerprint == "declared:said"
    for source, fingerprint in ((open_source(place), "declared:other"), (open_source(f"{place}&model=other"), None)):
        with pytest.raises(ConfigError, match="declared:said made its vectors, not declared:other"):
            embeddings_of(source, fingerprint=fingerprint)
