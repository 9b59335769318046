"""Tables that others wrote become items, batch by batch, and galleries become files that others read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.storage import from_npz, from_parquet, load
from limpet.engines.sources import Address, Roles, Source, open_source
from limpet.errors import ConfigError, DataError, LimpetError, SpaceMismatchError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.transfer import (
    columns_of,
    dim_of,
    export,
    import_table,
)
from limpet.geometry import Hypersphere, Lorentz

Embed = Callable[..., EmbeddingSet]

COLUMNS = {"label": "text", "price": "number", "stock": "integer", "sold": "truth"}
IDS = [f"i{number:02}" for number in range(10)]


def parquet(path: Path, **roles: str) -> Source:
    return open_source(Address("parquet", str(path), roles=Roles(**roles)))


def lance(folder: Path, table: str) -> Source:
    return open_source(Address("lance", str(folder), table))


def rows(embed: Embed, ids: list[str] = IDS, **changes: Any) -> dict[str, Any]:
    """Columns of a table: those of the gallery, and one that it does not have."""
    vectors = embed("old", ids).vectors
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    numbers = range(len(ids))
    return {
        "id": ids,
        "vector": flat,
        "label": [f"c{number % 3}" for number in numbers],
        "price": [None if number == 4 else number / 4 for number in numbers],
        "stock": pa.array(numbers, pa.int32()),
        "sold": [number % 2 == 0 for number in numbers],
        "seen": pa.array(numbers, pa.timestamp("s")),
        **changes,
    }


def expected_metadata(number: int) -> dict[str, Any]:
    price = {} if number == 4 else {"price": number / 4}
    return {"label": f"c{number % 3}", **price, "stock": number, "sold": number % 2 == 0}


@pytest.fixture
def write(tmp_path: Path, embed: Embed) -> Callable[..., Path]:
    def written(name: str = "items.parquet", ids: list[str] = IDS, row_group: int = 4, **changes: Any) -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(rows(embed, ids, **changes)), tmp_path / name, row_group_size=row_group)
        return tmp_path / name

    return written


@pytest.fixture
def shop() -> Any:
    with Gallery.create(
        "memory://", fingerprint="declared:old", space=Hypersphere(4), columns=COLUMNS, timeout=0.1
    ) as opened:
        yield opened


def check_whole(gallery: Gallery, embed: Embed, tolerance: float = 1e-6) -> None:
    items = gallery.store.scan(limit=100)
    assert items.ids == IDS
    assert items.metadata == [expected_metadata(number) for number in range(10)]
    ids, vectors = gallery.store.vectors("g1", IDS)
    assert ids == IDS
    np.testing.assert_allclose(vectors, embed("old", IDS).vectors, atol=tolerance)


def test_parquet_comes_in_commits_of_a_batch(shop: Gallery, write: Any, embed: Embed) -> None:
    told: list[dict[str, Any]] = []
    done = import_table(shop, parquet(write()), batch=3, progress=told.append)
    check_whole(shop, embed)
    assert (done.read, done.written, done.skipped) == (10, 10, 0)
    assert [one["written"] for one in told][-1] == 10 and {one["total"] for one in told} == {10}
    assert len(told) == len(shop.store.journal()) - 1 >= 4
    assert max(entry.event.get("items", 0) for entry in shop.store.journal()) <= 3


def test_a_folder_of_files_is_one_table(shop: Gallery, write: Any, embed: Embed) -> None:
    table = rows(embed)
    for name, part in (("b", slice(6, 10)), ("a", slice(0, 6))):
        pq_table = pa.table(table).slice(part.start, part.stop - part.start)
        folder = write("parts/x.parquet").parent
        pq.write_table(pq_table, folder / f"{name}.parquet")
        (folder / "x.parquet").unlink()
    assert import_table(shop, parquet(folder)).written == 10
    check_whole(shop, embed)
    pq.write_table(pa.table({"id": ["z"]}), folder / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet' has other columns"):
        import_table(shop, parquet(folder))
    with pytest.raises(DataError, match=r"holds no \.parquet file"):
        parquet(folder.parent)


def test_columns_and_dimension_are_those_of_the_table(write: Any) -> None:
    table = parquet(write(score=[0.5] * 10, **{"two words": ["x"] * 10}))
    assert columns_of(table) == COLUMNS  # "score" is taken, "two words" no name, "seen" of no type that there is
    assert dim_of(table) == 4
    with pytest.raises(ConfigError, match=r"(?s)Unknown column of .*'vectr'.*Did you mean 'vector'"):
        dim_of(parquet(table.path, vector="vectr"))


def test_columns_under_other_names(shop: Gallery, write: Any, embed: Embed) -> None:
    path = write(key=[str(number) for number in range(10)], colour=["red"] * 10)
    import_table(shop, parquet(path, id="stock"), columns={"label": "colour"})
    assert shop.store.scan(limit=2).ids == ["0", "1"]
    assert shop.store.scan(limit=1).metadata == [{"label": "red"}]
    for columns in ({"colour": "label"}, {"label": "colr"}):
        with pytest.raises(ConfigError, match=r"Unknown|no metadata column"):
            import_table(shop, parquet(path), columns=columns)
    with pytest.raises(ConfigError, match="Unknown column"):
        import_table(shop, parquet(path, id="nothing"))
    with pytest.raises(ConfigError, match="batch=50001"):
        import_table(shop, parquet(path), batch=50_001)


def test_an_interrupted_import_goes_on(shop: Gallery, write: Any, embed: Embed) -> None:
    path = write()

    class PulledError(Exception):
        pass

    def pull(told: dict[str, Any]) -> None:
        if told["written"] >= 4:
            raise PulledError

    with pytest.raises(PulledError):
        import_table(shop, parquet(path), batch=2, progress=pull)
    assert len(shop) == 4
    with pytest.raises(DataError, match=r"(?s)rows 1 to .*already: 'i00'.*--skip-existing"):
        import_table(shop, parquet(path))
    done = import_table(shop, parquet(path), skip_existing=True, batch=3)
    assert (done.read, done.written, done.skipped) == (10, 6, 4)
    check_whole(shop, embed)


def spoiled(vectors: Any, row: int, value: float) -> Any:
    changed = np.array(vectors)
    changed[row] = value
    return pa.FixedSizeListArray.from_arrays(pa.array(changed.ravel()), changed.shape[1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda v: {"vector": spoiled(v, 7, np.nan)}, DataError, "NaN or infinite values, first: 'i07'"),
        (lambda v: {"vector": spoiled(v, 7, 0)}, DataError, "no points of .*'i07'"),
        (lambda v: {"vector": [None if n == 7 else row for n, row in enumerate(v.tolist())]},
         DataError, "lengths: 4, missing"),
        (lambda v: {"vector": pa.array([[1.0] * (3 if n == 7 else 4) for n in range(10)], pa.list_(pa.float32()))},
         DataError, "lengths: 3, 4"),
        (lambda v: {"id": [*IDS[:7], "i01", *IDS[8:]]}, DataError, "more than once: 'i01'"),
        (lambda v: {"id": [*IDS[:7], "i06", *IDS[8:]]}, DataError, "more than once: 'i06'"),
        (lambda v: {"id": [*IDS[:7], None, *IDS[8:]]}, DataError, "1 ids are missing"),
        (lambda v: {"price": [0.5] * 7 + [float("inf")] * 3}, DataError, "'price'"),
    ],
    ids=["nan", "zero", "missing vector", "length", "id twice far apart", "id twice nearby", "no id", "metadata"],
)  # fmt: skip
def test_a_wrong_row_stops_the_import_and_says_what_is_there(
    change: Any, error: type[LimpetError], message: str, shop: Gallery, write: Any, embed: Embed
) -> None:
    path = write(row_group=100, **change(embed("old", IDS).vectors))
    with pytest.raises(error, match=message) as raised:
        import_table(shop, parquet(path), batch=4)
    said = str(raised.value)
    written = len(shop)
    assert str(path) in said
    if written:
        assert written == 4 and "rows 5 to 8" in said
        assert f"The {written} items written before are in the gallery" in said and "--skip-existing" in said
    else:
        assert "rows 1 to 4" in said and "Nothing was written" in said and "--skip-existing" not in said


def test_other_numbers_and_other_spaces_are_refused(write: Any, embed: Embed, tmp_path: Path) -> None:
    doubles = pa.FixedSizeListArray.from_arrays(pa.array(embed("old", IDS).vectors.ravel().astype(np.float64)), 4)
    with Gallery.create("memory://", fingerprint="declared:old", space=Hypersphere(4)) as sphere:
        with pytest.raises(DataError, match="Vectors are int64"):
            import_table(sphere, parquet(write(vector=pa.array([[1, 0, 0, 0]] * 10))))
        path = write(vector=doubles)
        with pytest.raises(DataError, match="declared:new"):
            import_table(sphere, parquet(path), fingerprint="declared:new")
        assert import_table(sphere, parquet(path)).written == 10
        exported = export(sphere, None, tmp_path / "out.parquet").path
    with (
        Gallery.create("memory://", fingerprint="declared:old", space=Hypersphere(3)) as other,
        pytest.raises(SpaceMismatchError, match=r"(?s)rows 1 to .*dimension 4"),
    ):
        import_table(other, parquet(path))
    with (
        Gallery.create("memory://", fingerprint="declared:old", space=Lorentz(4)) as lorentz,
        pytest.raises(SpaceMismatchError, match="hypersphere"),
    ):
        import_table(lorentz, parquet(exported))


def test_a_file_that_is_none_is_named(shop: Gallery, tmp_path: Path, write: Any) -> None:
    (tmp_path / "no.parquet").write_bytes(b"PAR1 of a kind")
    with pytest.raises(DataError, match=r"Cannot read .*no\.parquet"):
        import_table(shop, parquet(tmp_path / "no.parquet"))
    cut = write("cut.parquet")
    content = bytearray(cut.read_bytes())
    content[40:400] = bytes(360)  # the first pages; what is at the end of the file is intact
    cut.write_bytes(content)
    with pytest.raises(DataError, match=r"Cannot read .*cut\.parquet"):
        import_table(shop, parquet(cut))


def test_a_table_of_lancedb(shop: Gallery, tmp_path: Path, embed: Embed) -> None:
    import lancedb

    database = lancedb.connect(str(tmp_path / "lake"))
    table = database.create_table("items", pa.table(rows(embed, IDS[:6])))
    table.add(pa.table(rows(embed)).slice(6, 4))
    told: list[dict[str, Any]] = []

    def grow(step: dict[str, Any]) -> None:
        if not told:
            table.delete("id = 'i09'")  # what is written meanwhile does not count
        told.append(step)

    assert import_table(shop, lance(tmp_path / "lake", "items"), batch=2, progress=grow).written == 10
    check_whole(shop, embed)
    assert len(told) >= 5
    held = lance(tmp_path / "lake", "items")
    table.delete("id = 'i08'")
    assert held.rows == sum(map(len, held.batches(["id"], 2))) == 9  # as it was when it was opened
    with pytest.raises(ConfigError, match=r"(?s)Unknown table 'item'.*Did you mean 'items'"):
        import_table(shop, lance(tmp_path / "lake", "item"))
    with pytest.raises(DataError, match="There is no folder"):
        import_table(shop, lance(tmp_path / "sea", "items"))
    assert not (tmp_path / "sea").exists()
    for file in (tmp_path / "lake" / "items.lance" / "data").iterdir():
        file.write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="Cannot read table 'items'"):
        import_table(shop, lance(tmp_path / "lake", "items"), skip_existing=True)


@pytest.mark.parametrize("kind", ["vector(4)", "halfvec(4)", "real[]"])
def test_a_table_of_postgresql(shop: Gallery, embed: Embed, kind: str, request: pytest.FixtureRequest) -> None:
    import psycopg

    url = request.getfixturevalue("postgres_url").partition("&schema=")[0]
    from limpet.engines.postgres.address import read_address

    address = read_address(url)
    with psycopg.connect(**address.parameters, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("DROP SCHEMA IF EXISTS bazaar CASCADE")
        connection.execute("CREATE SCHEMA bazaar")
        connection.execute(
            f"CREATE TABLE bazaar.items (id text, vector {kind}, label varchar(9), price float8, stock int, sold bool,"
            " seen timestamp, raw bytea)"
        )
        vectors = [str(vector.tolist()) for vector in embed("old", IDS).vectors]
        if kind == "real[]":
            vectors = ["{" + vector[1:-1] + "}" for vector in vectors]
        for number, identifier in enumerate(IDS):
            found = expected_metadata(number)
            connection.execute(
                "INSERT INTO bazaar.items VALUES (%s, %s, %s, %s, %s, %s, now())",
                [identifier, vectors[number], found["label"], found.get("price"), number, found["sold"]],
            )
    told: list[dict[str, Any]] = []
    assert import_table(shop, open_source(f"{url}&table=bazaar.items"), batch=3, progress=told.append).written == 10
    assert len(told) == 4
    check_whole(shop, embed, 1e-3 if kind == "halfvec(4)" else 1e-6)
    with pytest.raises(ConfigError, match="There is no table 'items'"):
        import_table(shop, open_source(f"{url}&table=items"))
    with pytest.raises(DataError, match=r"(?s)'raw'.*cannot be read"):
        import_table(shop, open_source(f"{url}&table=bazaar.items&id=raw"))


@pytest.mark.parametrize(
    ("made", "read", "error"),
    [
        ("TABLE {} (id int, vector real[]); INSERT INTO {} VALUES (1, '{{{{1,0}},{{0,1}}}}')", "{}", DataError),
        ("VIEW {} AS SELECT '1' AS id, ARRAY[1/(g-9)::real] AS vector FROM generate_series(1, 9) g", "{}", StoreError),
        ("TABLE {} ()", "{}", ConfigError),
        ("TABLE {} ()", "{}.x", ConfigError),
        ("TABLE {} ()", "a.b.c.d", LimpetError),
        ("TABLE {} ()", "\udcff", ConfigError),
        ("TABLE {} ()", "\0", ConfigError),
        ("TABLE {} ()", "", ConfigError),
    ],
    ids=[
        "lists of lists",
        "fails on the way",
        "no columns",
        "no schema",
        "too many parts",
        "no text",
        "no name",
        "empty",
    ],
)
def test_a_table_of_a_database_that_makes_no_sense(
    shop: Gallery, postgres_url: str, made: str, read: str, error: type[LimpetError]
) -> None:
    import psycopg

    from limpet.engines.postgres.address import read_address

    name, url = read_address(postgres_url).schema, postgres_url.partition("&schema=")[0]
    with psycopg.connect(**read_address(postgres_url).parameters, autocommit=True) as connection:
        connection.execute(f"CREATE {made.format(name, name)}")
    with pytest.raises(error) as refusal:
        import_table(shop, open_source(f"{url}&table={quote(read.format(name), errors='surrogateescape')}"))
    assert "Next:" in str(refusal.value) or "Expected:" in str(refusal.value)


@pytest.fixture
def full(shop: Gallery, write: Any) -> Gallery:
    import_table(shop, parquet(write()))
    return shop


def test_parquet_there_and_back(full: Gallery, tmp_path: Path, embed: Embed, write: Any) -> None:
    told: list[dict[str, Any]] = []
    done = export(full, None, tmp_path / "out.parquet", progress=told.append)
    assert (done.generation, done.rows, done.left_out, told[-1]) == ("g1", 10, {}, {"done": 10, "total": 10})
    assert pq.read_schema(done.path).names == ["id", "vector", *COLUMNS]
    columns = columns_of(parquet(done.path))
    assert columns == COLUMNS
    with Gallery.create("memory://", fingerprint="declared:old", space=Hypersphere(4), columns=columns) as other:
        import_table(other, parquet(done.path))
        check_whole(other, embed)
    with (
        Gallery.create("memory://", fingerprint="declared:new", space=Hypersphere(4)) as stranger,
        pytest.raises(DataError, match="declared:old"),
    ):
        import_table(stranger, parquet(done.path))


@pytest.mark.parametrize(
    ("suffix", "left_out"),
    [(".safetensors", {"town": "it holds texts", "stars": "some items have no value"}),
     (".npz", {"stars": "some items have no value"})],
)  # fmt: skip
def test_arrays_hold_what_they_can(suffix: str, left_out: Any, tmp_path: Path, embed: Embed) -> None:
    columns = {**COLUMNS, "town": "text", "stars": "integer"}
    with Gallery.create("memory://", fingerprint="declared:old", space=Hypersphere(4), columns=columns) as shop:
        found = [expected_metadata(number) for number in range(10)]
        values = {name: [one.get(name) for one in found] for name in COLUMNS}
        shop.add(embed("old", IDS), metadata={**values, "town": ["Ulm"] * 10, "stars": [None, *range(9)]})
        done = export(shop, "declared:old", tmp_path / f"out{suffix}")
    assert done.left_out == left_out
    opened = load(done.path, verify=True) if suffix != ".npz" else from_npz(done.path, fingerprint="declared:old")
    assert (list(opened.ids), opened.fingerprint, opened.space) == (IDS, "declared:old", Hypersphere(4))
    np.testing.assert_allclose(opened.vectors, embed("old", IDS).vectors, atol=1e-6)
    assert opened.labels is not None and opened.class_names is not None
    assert [opened.class_names[label] for label in opened.labels.tolist()] == values["label"]
    assert opened.columns["stock"].tolist() == list(range(10))
    assert np.isnan(opened.columns["price"][4]) and opened.columns["price"][5] == 1.25


def test_lorentz_points_come_out_as_they_went_in(tmp_path: Path, embed: Embed) -> None:
    points = embed("old", IDS, space=Lorentz(4, 0.7))
    with Gallery.create("memory://", fingerprint="declared:old", space=Lorentz(4, 0.7)) as curved:
        curved.add(points)
        done = export(curved, "g1", tmp_path / "out.safetensors")
        with Gallery.create("memory://", fingerprint="declared:old", space=Lorentz(4, 0.7)) as other:
            import_table(other, parquet(export(curved, "g1", tmp_path / "out.parquet").path))
            np.testing.assert_array_equal(other.store.vectors("g1", IDS)[1], curved.store.vectors("g1", IDS)[1])
    np.testing.assert_array_equal(load(done.path).vectors, points.vectors)
    assert from_parquet(tmp_path / "out.parquet", fingerprint="declared:old", space=Lorentz(4, 0.7)).dim == 4


def test_what_cannot_be_exported(full: Gallery, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown kind of file '\.csv'"):
        export(full, None, tmp_path / "out.csv")
    with pytest.raises(ConfigError, match="generation"):
        export(full, "g9", tmp_path / "out.npz")
    full.delete(IDS)
    with pytest.raises(DataError, match="g1 has no vectors"):
        export(full, None, tmp_path / "out.npz")
    assert not list(tmp_path.glob("out*"))


def test_an_item_that_changes_while_it_is_read_comes_out_whole(
    full: Gallery, tmp_path: Path, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, left = full.store.vectors, [1]

    def slow(generation: str, ids: Any) -> Any:
        found = vectors(generation, ids)
        if left:
            left.pop()
            full.upsert(embed("old", ["i03"], draw=1), metadata={"label": ["fresh"]})
        return found

    monkeypatch.setattr(full.store, "vectors", slow)
    export(full, None, tmp_path / "out.parquet")
    row = pq.read_table(tmp_path / "out.parquet").to_pylist()[3]
    assert (row["id"], row["label"], row["price"]) == ("i03", "fresh", None)
    np.testing.assert_allclose(row["vector"], embed("old", ["i03"], draw=1).vectors[0], atol=1e-6)
