"""Commands with the URL of a source in place of a file: the same to the last digit, and no password anywhere."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from crash.server import Server
from limpet.cli import main
from limpet.embeddings import storage
from limpet.engines.moment import one_moment
from limpet.engines.reading import embeddings_of, texts_of
from limpet.engines.sources import open_source

ITEMS, DIM, CLASSES = 160, 8, 8
MODELS = {"old": 1.2, "new": 0.2, "third": 0.4}
"""Their noise."""
QUICK = ["--resamples", "60", "--report", "none"]


def vectors(model: str) -> NDArray[np.float32]:
    centres = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    noise = np.random.default_rng(len(model)).normal(size=(ITEMS, DIM))
    return (centres[np.arange(ITEMS) % CLASSES] + MODELS[model] * noise).astype(np.float32)


@pytest.fixture(scope="module")
def shop(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One table with vectors of three models, in three kinds of places: their URLs, and the folder of files."""
    folder, name = tmp_path_factory.mktemp("shop"), f"t{uuid.uuid4().hex[:12]}"
    columns: dict[str, Any] = {
        "sku": list(range(ITEMS)),
        "kind": [f"kind {number % CLASSES}" for number in range(ITEMS)],
        "title": [f"thing {number} of kind {number % CLASSES}" for number in range(ITEMS)],
    }
    for model in MODELS:
        columns[model] = pa.array(list(vectors(model)), pa.list_(pa.float32(), DIM))
        plain = {"id": columns["sku"], "vector": columns[model], "label": columns["kind"]}
        pq.write_table(pa.table(plain), folder / f"{model}.parquet")
    table = pa.table(columns)
    lancedb.connect(folder / "db").create_table("items", table)
    pq.write_table(table, folder / "all.parquet")
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        kinds = f"sku int PRIMARY KEY, kind text, title text, old vector({DIM}), new vector, third real[]"
        connection.execute(f"CREATE TABLE {name} ({kinds})".encode())
        for row in table.to_pylist():
            row |= {model: str(row[model]) for model in ("old", "new")}
            connection.execute(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s)".encode(), list(row.values()))
    address = postgres_server.url().replace("postgres@", "postgres:s3cret@")
    yield {
        "folder": str(folder),
        "postgresql": f"{address}&table={name}&id=sku&label=kind&vector=",
        "lance": f"lance:{folder / 'db'}#items?id=sku&label=kind&vector=",
        "parquet": f"parquet:{folder / 'all.parquet'}?id=sku&label=kind&vector=",
    }


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run a command, look for the password on the screen and in all files, and return its JSON."""

    def command(*words: object) -> dict[str, Any]:
        capfd.readouterr()
        assert main([*map(str, words), "--json"]) in (0, 1)
        said = capfd.readouterr()
        assert "s3cret" not in said.out + said.err
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or b"s3cret" not in file.read_bytes(), file
        return dict(json.loads(said.out))

    return command


def without_times(found: Any) -> Any:
    """Leave out what differs from run to run, and where things were written."""
    if isinstance(found, dict):
        passing = ("seconds", "created", "saved", "machine")
        return {key: without_times(value) for key, value in found.items() if key not in passing}
    if isinstance(found, list):
        return [without_times(one) for one in found if not str(one).startswith("Fitting took")]
    return found


@pytest.mark.parametrize("kind", ["postgresql", "lance", "parquet"])
def test_evaluate_is_the_same_to_the_digit(
    kind: str, shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    names = ["--old-name", "v1", "--new-name", "v2", "--independent-name", "v3"]

    def evaluated(places: dict[str, str], out: str) -> dict[str, Any]:
        sides = [word for side, place in places.items() for word in (f"--{side}", place)]
        return run("evaluate", *sides, *names, *QUICK, "--out", tmp_path / out)

    roles = {"old": "old", "new": "new", "independent": "third"}
    files = {side: f"{shop['folder']}/{model}.parquet" for side, model in roles.items()}
    expected = evaluated(files, "files")
    assert without_times(evaluated({side: shop[kind] + model for side, model in roles.items()}, kind)) == without_times(
        expected
    )
    mixed = {**files, "old": shop[kind] + "old"}
    assert without_times(evaluated(mixed, "mixed")) == without_times(expected)
    results = [json.loads((tmp_path / out / "results.json").read_text()) for out in ("files", kind)]
    assert without_times(results[0]) == without_times(results[1])


@pytest.mark.parametrize("kind", ["postgresql", "lance"])
def test_adapt_is_the_same_to_the_digit(
    kind: str, shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    words = ["--adapter", "ridge", "procrustes", "--resamples", "40", "--unseen-share", "0", "--report", "none"]
    words += ["--old-name", "v1", "--new-name", "v2"]
    found = [
        run("adapt", "--old", old, "--new", new, "--out", tmp_path / out, *words)
        for old, new, out in (
            (f"{shop['folder']}/old.parquet", f"{shop['folder']}/new.parquet", "files"),
            (shop[kind] + "old", shop[kind] + "new", kind),
        )
    ]
    for one in found:
        one["data"].pop("name", None)
    assert without_times(found[0]) == without_times(found[1])
    for part in (tmp_path / "files" / "adapter").glob("*.safetensors"):
        assert part.read_bytes() == (tmp_path / kind / "adapter" / part.name).read_bytes()
    assert (tmp_path / kind / "adapter").is_dir()
    mapped = ["--name", "v1", "--model", f"adapter:{tmp_path / kind / 'adapter'}", "--out"]
    run("embed", "stored", shop[kind] + "old", *mapped, tmp_path / "mapped")
    run("embed", "stored", f"{shop['folder']}/old.parquet", *mapped, tmp_path / "others")
    files = [file for out in ("mapped", "others") for file in (tmp_path / out).rglob("*.safetensors")]
    assert len(files) == 2 and files[0].read_bytes() == files[1].read_bytes()


def test_names_of_models_that_nobody_names(
    shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    table = shop["postgresql"].rpartition("table=")[2].partition("&")[0]
    words = ["--old", shop["postgresql"] + "old", "--new", shop["postgresql"] + "new"]
    assert main(["evaluate", *words, *QUICK, "--out", str(tmp_path / "out")]) in (0, 1)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["models"]["old"]["fingerprint"] == f"declared:{table}.old"
    assert f"{table}.new" in results["models"]
    settings = (tmp_path / "out" / "evaluate.toml").read_text()
    assert "s3cret" not in settings and f"table={table}" in settings


@pytest.mark.parametrize("kind", ["postgresql", "lance"])
def test_a_gallery_from_and_with_a_source(
    kind: str, shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    gallery = f"memory:{tmp_path / 'g'}"
    made = run("gallery", "create", gallery, "--embeddings", shop[kind] + "old&model=v1")
    assert (made["items"], made["fingerprint"], made["columns"]["title"]) == (ITEMS, "declared:v1", "text")
    run("upgrade", "start", gallery, "--model", shop[kind] + "new", "--name", "v2")
    planned = run("upgrade", "plan", gallery, "--model", shop[kind] + "new", "--name", "v2")
    assert (planned["rows"], planned["missing"]) == (ITEMS, 0)
    rehearsed = run("upgrade", "rehearse", gallery, "--model", shop[kind] + "new", "--name", "v2", "--sample", 40,
                    "--class-column", "kind", "--order", "id", "--out", tmp_path / "r")  # fmt: skip
    assert rehearsed["sampled"] == 40
    run("upgrade", "swap", gallery, "--force", "a test")
    some = shop[kind] + "new&where=sku<30"
    assert run("upgrade", "backfill", gallery, "--model", some, "--name", "v2")["done"]["written"] == 30
    done = run("upgrade", "backfill", gallery, "--model", shop[kind] + "new", "--name", "v2")["done"]
    assert (done["written"], done["lacking"]) == (ITEMS - 30, 0)
    assert run("doctor", gallery, "--model", shop[kind] + "new", "--name", "v2")["healthy"]
    found = run("gallery", "search", gallery, "--queries", shop[kind] + "new&where=sku=7", "--name", "v2", "--k", 1)
    assert found["queries"][0]["hits"][0]["id"] == "7"
    changed = shop[kind] + "new&where=sku<3"
    assert run("gallery", "upsert", gallery, "--embeddings", changed, "--name", "v2")["written"] == 3
    hit = run("gallery", "search", gallery, "--like", 0, "--k", ITEMS)["queries"][0]["hits"]
    assert {one["id"]: one["metadata"]["title"] for one in hit}["2"] == "thing 2 of kind 2"


@pytest.mark.parametrize("kind", ["postgresql", "lance"])
def test_texts_of_a_table_are_embedded(
    kind: str, shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    texts, model = shop[kind] + "old&text=title", ["--model", "package:wordllama", "--model-options.truncate-dim", 32]
    run("embed", "texts", texts, *model, "--out", tmp_path / "e")
    [file] = (tmp_path / "e").rglob("*.safetensors")
    embedded = storage.load(file)
    assert len(embedded) == ITEMS and len(embedded.class_names or ()) == CLASSES
    gallery = f"memory:{tmp_path / 'g'}"
    run("gallery", "create", gallery, "--embeddings", shop[kind] + "old", "--name", "v1")
    run("upgrade", "start", gallery, "--model", file)
    run("upgrade", "swap", gallery, "--force", "a test")
    done = run("upgrade", "backfill", gallery, "--texts", texts + "&where=sku>=60", *model, "--batch", 16)["done"]
    assert (done["written"], done["lacking"]) == (ITEMS, 0), "items are asked for by their ids, whatever the conditions"
    assert run("doctor", gallery, "--model", file)["healthy"]


@pytest.mark.parametrize("kind", ["postgresql", "lance", "parquet"])
def test_items_of_a_table_are_shown_and_counted(
    kind: str, shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    sides = ["--old", shop[kind] + "old", "--new", shop[kind] + "new", "--texts", shop[kind] + "old"]
    run("evaluate", *sides, "--resamples", 60, "--out", tmp_path / "told")
    page = (tmp_path / "told" / "report.html").read_text()
    assert " of kind 3" in page and "<small>title</small> " in page


def test_images_that_a_table_names(made: Path, run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    new, photos = made / "runs" / "bct", made / "photos"
    embedded = storage.load(made / "embedded" / "bct" / "embeddings.safetensors")
    rows = {"id": list(embedded.ids), "photo": [str(photos / one) for one in embedded.ids]}
    lancedb.connect(tmp_path / "db").create_table("photos", pa.table(rows))
    gallery = f"memory:{tmp_path / 'g'}"
    run("gallery", "create", gallery, "--embeddings", made / "embedded" / "old")
    run("upgrade", "start", gallery, "--model", f"release:{new}")
    run("upgrade", "swap", gallery, "--force", "a test")
    data = f"lance:{tmp_path / 'db'}#photos?image=photo"
    run("embed", "images", data, "--model", f"release:{new}", "--out", tmp_path / "e")
    [file] = (tmp_path / "e").rglob("*.safetensors")
    same = storage.load(file)
    assert list(same.ids) == list(embedded.ids) and same.labels is None
    np.testing.assert_array_equal(same.vectors, embedded.vectors)
    done = run("upgrade", "backfill", gallery, "--model", f"release:{new}", "--data", data)["done"]
    assert (done["written"], done["lacking"]) == (len(embedded), 0)
    assert run("doctor", gallery, "--model", made / "embedded" / "bct")["healthy"]


def test_a_table_that_is_being_written_is_read_at_one_moment(
    shop: dict[str, str], run: Callable[..., dict[str, Any]], tmp_path: Path, postgres_server: Server
) -> None:
    """Every commit gives all rows another class, and a vector of each model that says which: no two may be mixed."""
    name = f"w{uuid.uuid4().hex[:12]}"
    began, ended = threading.Event(), threading.Event()
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        kinds = f"sku int PRIMARY KEY, kind text, title text, old vector({DIM}), new vector({DIM})"
        connection.execute(f"CREATE TABLE {name} ({kinds})".encode())
        connection.execute(f"INSERT INTO {name} SELECT n, 'kind ' || n % 2, 'thing ' || n, "
                           f"array_fill(1 + n % 2, ARRAY[{DIM}])::vector, array_fill(1 + n % 2, ARRAY[{DIM}])::vector "
                           "FROM generate_series(0, 159) AS n".encode())  # fmt: skip

    def write() -> None:
        turns = 0
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            while not ended.is_set():
                turns += 1
                connection.execute(
                    f"UPDATE {name} SET kind = 'kind ' || (sku + {turns}) % 2, title = 'turn {turns}'".encode()
                )
                began.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        began.wait()
        url = shop["postgresql"].partition("&table=")[0] + f"&table={name}&id=sku&label=kind&vector="
        for turn in range(3):
            assert run("evaluate", "--old", f"{url}old", "--new", f"{url}new", *QUICK, "--out", tmp_path / str(turn))
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("kind", ["postgresql", "lance"])
def test_readings_of_one_moment_pair_no_text_with_a_later_vector(
    kind: str, shop: dict[str, str], postgres_server: Server
) -> None:
    places = {"postgresql": shop["postgresql"], "lance": shop["lance"]}
    url = places[kind].replace("label=kind&", "") + "old&text=title"
    name = url.partition("table=")[2].partition("&")[0]

    def write(title: str) -> None:
        if kind == "postgresql":
            with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
                turned = "(SELECT array_agg(-one) FROM unnest(old::real[]) AS one)::vector"
                connection.execute(f"UPDATE {name} SET title = %s, old = {turned} WHERE sku = 3".encode(), [title])
        else:
            table = lancedb.connect(Path(shop["folder"]) / "db").open_table("items")
            turned = [-float(value) for value in table.search().where("sku = 3").to_list()[0]["old"]]
            table.update(where="sku = 3", values={"title": title, "old": turned})

    def read() -> tuple[str, float]:
        vectors = embeddings_of(open_source(url), fingerprint="declared:old")
        write(f"written between, {len(titles)}")
        texts = texts_of(open_source(url))
        return texts.texts[texts.ids.find(["3"])[0]], float(vectors.vectors[vectors.ids.find(["3"])[0]][0])

    titles: list[str] = []
    try:
        before = texts_of(open_source(url))
        titles.append(before.texts[before.ids.find(["3"])[0]])
        with one_moment():
            title, first = read()
        assert title == titles[0]
        after, second = texts_of(open_source(url)), embeddings_of(open_source(url), fingerprint="declared:old")
        assert after.texts[after.ids.find(["3"])[0]] == "written between, 1"
        assert np.sign(second.vectors[second.ids.find(["3"])[0]][0]) == -np.sign(first)
    finally:
        write(titles[0])
