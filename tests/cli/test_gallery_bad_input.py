"""Whatever a gallery refuses, it says what was given, what to type next, and that data is intact; never a traceback."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.groups import group_of
from limpet.cli import main
from limpet.cli.program import COMMANDS
from limpet.embeddings import EmbeddingSet, storage
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

Fails = Callable[..., str]

NEW = ("create", "import", "add", "upsert", "restore")
"""Subcommands that need no gallery, or items first."""

ASSURANCE = re.compile(
    r"intact|thing was (changed|written|made|started)|No gallery was changed|in the gallery\.$|The gallery was made"
)


def points(rows: int, dim: int = 4, model: str = "v1", first: int = 0) -> EmbeddingSet:
    drawn = np.random.default_rng(first).normal(size=(rows, dim)).astype(np.float32)
    ids = [f"i{row}" for row in range(first, first + rows)]
    return EmbeddingSet(ids=ids, vectors=drawn, fingerprint=f"declared:{model}", space=Hypersphere(dim))


@pytest.fixture
def gallery(tmp_path: Path) -> str:
    """Ten items by v1, with a price each."""
    place = tmp_path / "g"
    url = f"memory:{place}"
    with Gallery.create(url, fingerprint="declared:v1", space=Hypersphere(4), columns={"price": "number"}) as made:
        made.add(points(10), metadata={"price": list(range(10))})
    return str(place)


@pytest.fixture
def refused(fails: Fails, gallery: str) -> Fails:
    """Run a subcommand that must fail, say that data is intact, and change nothing; returns what it said."""

    def call(subcommand: str, *words: object, url: object = None) -> str:
        with Gallery.open(gallery) as before:
            sequence = before.store.pointer().sequence
        said = fails(group_of([subcommand]), subcommand, url or gallery, *words)
        with Gallery.open(gallery) as after:
            assert after.store.pointer().sequence == sequence
        assert "Next: " in said
        assert len(ASSURANCE.findall(said)) == 1, said
        return said

    return call


def test_unknown_subcommands_and_options(fails: Fails) -> None:
    assert 'Did you mean "status"?' in fails("gallery", "statsu")
    assert "Did you mean --where?" in fails("gallery", "search", "g", "--wher", "x")
    assert "--url" in fails("upgrade", "swap")


@pytest.mark.parametrize(
    "name",
    [
        name.removeprefix("gallery ")
        for name in COMMANDS
        if name.startswith("gallery ") and name.partition(" ")[2] not in NEW
    ],
)
def test_no_gallery(name: str, fails: Fails, tmp_path: Path) -> None:
    more = {"delete": ["--ids", "a"], "search": ["--like", "a"], "link": ["--force", "x"], "backfill": [],
            "start": ["--name", "x", "--dim", 4], "export": ["--out", tmp_path / "x.npz"],
            "backup": [tmp_path / "copy"]}  # fmt: skip
    said = fails(group_of([name]), name, tmp_path / "none", *more.get(name, []))
    assert "There is no gallery" in said and not (tmp_path / "none").exists()


def test_places_that_hold_something_else(refused: Fails, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("important")
    new = ("--name", "v1", "--dim", 4)
    assert "is a file" in refused("status", url=tmp_path / "file")
    assert "is a file" in refused("create", *new, url=f"memory:{tmp_path / 'file'}")
    assert "holds something else: thesis.txt" in refused("create", *new, url=f"memory:{tmp_path / 'folder'}")
    assert "There is a gallery" in refused("create", *new, url=f"memory:{tmp_path / 'g'}")
    assert "Not a directory" in refused("create", *new, url="memory:/dev/null/g")
    assert "Unknown kind of gallery" in refused("create", *new, url="mysql://somewhere")
    assert "ends with this command" in refused("create", *new, url="memory://")
    assert "where a service answers" in refused("status", url="http://127.0.0.1:8520")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["thesis.txt"]


@pytest.mark.parametrize("damage", ["cut", "noise", "version"])
def test_a_damaged_database(damage: str, fails: Fails, gallery: str) -> None:
    file = Path(gallery) / "gallery.db"
    if damage == "version":
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE meta SET value = '99' WHERE name = 'format_version'")
    else:
        content = file.read_bytes()
        file.write_bytes(content[:5000] if damage == "cut" else b"noise" * 2000)
    expected = "format version 99" if damage == "version" else "gallery.db' fails"
    for words in (["status"], ["search", "--like", "i0"], ["delete", "--ids", "i0"]):
        assert expected in fails(group_of([words[0]]), words[0], gallery, *words[1:])


def test_a_model_is_named_once(refused: Fails, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert "No model was named" in refused("create", url=new)
    assert "without --dim" in refused("create", "--name", "v1", url=new)
    assert "--dim 0" in refused("create", "--name", "v1", "--dim", 0, url=new)
    assert "--name v2 with --model release:x" in refused("start", "--name", "v2", "--dim", 4, "--model", "release:x")
    assert "is no release" in refused("start", "--model", f"release:{tmp_path}")
    assert "already: g1" in refused("start", "--name", "v1", "--dim", 4)
    assert "There is no" in refused("create", "--embeddings", tmp_path / "none.npz", url=new)
    assert not new.exists()


def test_columns(refused: Fails, tmp_path: Path) -> None:
    new = ("--name", "v1", "--dim", 4, "--columns")
    assert "Unknown column type 'float'" in refused("create", *new, "price=float", url=tmp_path / "new")
    assert "NAME=TYPE" in refused("create", *new, "price", url=tmp_path / "new")
    assert "'score'" in refused("create", *new, "score=number", url=tmp_path / "new")
    assert "every column once" in refused("create", *new, "a=text", "a=number", url=tmp_path / "new")


def test_vectors_that_break_a_promise(refused: Fails, tmp_path: Path) -> None:
    good = points(3, first=20)
    broken = {
        "nan": ("NaN or infinite", {"vectors": np.where(np.arange(12).reshape(3, 4) == 5, np.nan, good.vectors)}),
        "zero": ("no points", {"vectors": good.vectors * [[1], [0], [1]]}),
        "wide": ("hypersphere of dimension 8", {"vectors": np.tile(good.vectors, 2)}),
        "whole": ("int8", {"vectors": good.vectors}),
        "twice": ("more than once: 'i20'", {"ids": np.array(["i20", "i21", "i20"])}),
        "known": ("in the gallery already: 'i3'", {"ids": np.array(["i3", "i21", "i20"])}),
    }
    for name, (expected, changes) in broken.items():
        values = {"ids": np.array(list(good.ids)), "vectors": good.vectors, **changes}
        kind = np.int8 if name == "whole" else np.float32
        np.savez(tmp_path / f"{name}.npz", **{**values, "vectors": values["vectors"].astype(kind)})
        for command in ("add", "import"):
            said = refused(command, "--embeddings", tmp_path / f"{name}.npz", "--name", "v1")
            assert expected in said, (name, command)
    np.savez(tmp_path / "empty.npz", ids=np.array([], str), vectors=np.empty((0, 4), np.float32))
    (tmp_path / "text.npz").write_text("no archive")
    for command in ("add", "upsert", "import"):
        assert "no items" in refused(command, "--embeddings", tmp_path / "empty.npz", "--name", "v1")
        assert "is a text file" in refused(command, "--embeddings", tmp_path / "text.npz", "--name", "v1")


def test_files_of_another_model(refused: Fails, tmp_path: Path) -> None:
    file = storage.to_npz(points(2, first=20), tmp_path / "new.npz")
    own = storage.save(points(2, first=20, model="v7"), tmp_path / "own.safetensors")
    for command in ("add", "import", "upsert"):
        assert "does not say which model" in refused(command, "--embeddings", file)
        assert "declared:v2" in refused(command, "--embeddings", file, "--name", "v2")
        assert "declared:v7" in refused(command, "--embeddings", own)
    assert "says that declared:v7 made it" in refused("import", "--embeddings", own, "--name", "v1")
    assert "does not say which model" in refused("search", "--queries", file)
    assert "declared:v2" in refused("search", "--queries", file, "--name", "v2")
    assert "does not say which model" in refused("backfill", "--model", file)
    assert "declared:v2" in refused("backfill", "--model", file, "--name", "v2")


def test_tables(refused: Fails, tmp_path: Path) -> None:
    ids, vectors = pa.array(["a", None]), pa.array([[1.0, 2, 3, 4], [2.0, 3, 4, 5]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ids, "vector": vectors}), tmp_path / "missing.parquet")
    pq.write_table(pa.table({"key": ids, "vector": vectors}), tmp_path / "named.parquet")
    assert "1 ids are missing" in refused("import", "--embeddings", tmp_path / "missing.parquet", "--name", "v1")
    named = ("import", "--embeddings", tmp_path / "named.parquet", "--name", "v1")
    assert "Unknown column" in refused(*named[:2], f"parquet:{named[2]}?id=name", "--name", "v1")
    assert "and no table" in refused("import", "--embeddings", f"lance:{tmp_path}")
    assert "Unknown table 'x'" in refused("import", "--embeddings", f"lance:{tmp_path}#x", "--name", "v1")
    assert "Nothing given to import" in refused("import")
    words = ("import", "--embeddings", tmp_path / "named.parquet", "--name", "v1", "--take")
    assert "--take =key" in refused(*words, "=key") and "no metadata column 'key'" in refused(*words, "key")
    assert "1 to 50,000" in refused(
        "import", "--embeddings", storage.save(points(2, first=20), tmp_path / "x.safetensors"), "--batch", 0
    )


def test_searches(refused: Fails, tmp_path: Path) -> None:
    assert "Nothing given to search with" in refused("search")
    assert "--queries and --like" in refused("search", "--like", "i0", "--queries", tmp_path)
    assert "There is no item 'nope'" in refused("search", "--like", "nope")
    assert "--k" in refused("search", "--like", "i0", "--k", 0)
    assert "many" in refused("search", "--like", "i0", "--k", "many")
    assert "Unknown metadata column 'prize'. Did you mean 'price'?" in refused(
        "search", "--like", "i0", "--where", "prize<3"
    )
    assert "type, number" in refused("search", "--like", "i0", "--where", "price<cheap")
    assert "one of = !=" in refused("search", "--like", "i0", "--where", "price")
    assert "--image without a model" in refused("search", "--image", tmp_path / "a.png")
    assert "There is no" in refused("search", "--queries", tmp_path / "none.npz")


def test_steps_that_are_not_possible(refused: Fails, gallery: str, tmp_path: Path) -> None:
    for step in ("swap", "rollback", "finish", "cancel"):
        assert "no upgrade is started" in refused(step)
    assert "Both or neither" in refused("link")
    assert "g1 alone" in refused("link", "--force", "x")
    assert "The reason ''" in refused("swap", "--force", "")
    assert main(["upgrade", "start", gallery, "--name", "v2", "--dim", "4"]) == 0
    files = [storage.save(points(10, model=model), tmp_path / f"{model}.safetensors") for model in ("v1", "v3")]
    words = ["evaluate", "--old", files[0], "--new", files[1], "--report", "none", "--out", tmp_path / "other"]
    assert main([str(word) for word in words]) == 3
    assert "is about other models" in refused("link", "--evidence", tmp_path / "other")
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 1, "evaluations": {}}))
    assert "no compatibility report" in refused("link", "--evidence", tmp_path)
    assert "no compatibility report" in refused("link", "--evidence", tmp_path / "none.json")
    said = refused("swap")
    assert "Queries of g2 would not find 10 of 10 items" in said and "--force REASON" in said
    assert "Unknown generation 'g9'" in refused("link", "--query", "g9", "--force", "x")
    assert "the old vectors serve already" in refused("rollback")


def test_backfills(refused: Fails, tmp_path: Path) -> None:
    file = storage.save(points(10), tmp_path / "v.safetensors")
    assert "Nothing to embed with" in refused("backfill")
    assert "--data without a model" in refused("backfill", "--data", tmp_path)
    assert "--texts without a model" in refused("backfill", "--texts", tmp_path / "t.csv")
    assert "alone given" in refused("backfill", "--model", f"release:{tmp_path}")
    assert "Unknown order 'idd'" in refused("backfill", "--model", file, "--order", "idd")
    assert "at least 1" in refused("backfill", "--model", file, "--batch", 0)
    assert "--price-per-thousand" in refused("backfill", "--model", file, "--max-cost", 3)
    assert "at least 0 items" in refused("backfill", "--model", file, "--budget", -1)
    assert "There is no" in refused("backfill", "--model", tmp_path / "none")


def test_rehearsals(refused: Fails, tmp_path: Path) -> None:
    file = storage.save(points(10, model="v2"), tmp_path / "v.safetensors")
    assert "Nothing to embed with" in refused("rehearse")
    assert "1 files of queries" in refused("rehearse", "--model", file, "--queries", file)
    assert "at least 20" in refused("rehearse", "--model", file, "--sample", 5)
    assert "Unknown order 'idd'" in refused("rehearse", "--model", file, "--order", "idd")


def test_one_writer(refused: Fails, gallery: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("cli.gallery.rows", "galleries.backfill"):
        monkeypatch.setattr(f"limpet.{place}.WAIT", 0.0)
    monkeypatch.setitem(Gallery.__init__.__kwdefaults__, "timeout", 0.0)
    file = storage.save(points(10, model="v2"), tmp_path / "v.safetensors")
    assert main(["upgrade", "start", gallery, "--model", str(file)]) == 0
    with Gallery.open(gallery) as other, other.store.writing("a test"):
        for words in (["delete", "--ids", "i0"], ["cancel"], ["backfill", "--model", file]):
            assert "(a test)" in refused(*words)
    assert main(["gallery", "delete", gallery, "--ids", "i0"]) == 0


def test_other_subcommands(refused: Fails, tmp_path: Path) -> None:
    assert "Unknown kind of file '.csv'" in refused("export", "--out", tmp_path / "x.csv")
    assert "Unknown generation 'g2'" in refused("export", "--out", tmp_path / "x.npz", "--generation", "g2")
    assert "Both or neither" in refused("delete")
    (tmp_path / "ids.txt").write_bytes(b"\xff\xfe")
    assert "no text in UTF-8" in refused("delete", "--ids-from", tmp_path / "ids.txt")
    assert "--last 0" in refused("log", "--last", 0)
    assert "--older-than" in refused("gc", "--older-than", -1)


def test_a_database_that_is_down_and_its_password(fails: Fails, capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://ann:s3cret@localhost:1/shop?password=t0psecret"
    for words in (["status"], ["create", "--name", "v1", "--dim", 4], ["gc"]):
        said = fails(group_of([words[0]]), words[0], url, *words[1:])
        assert "s3cret" not in said and "t0psecret" not in said and "postgresql://ann" in said
    assert main(["doctor", url, "--json"]) == 1
    printed = capsys.readouterr()
    assert "s3cret" not in printed.out + printed.err and "t0psecret" not in printed.out + printed.err
    said = fails("gallery", "create", url.replace("sql", ""), "--name", "v1", "--dim", 4)
    assert "s3cret" not in said and "t0psecret" not in said


@pytest.mark.parametrize(
    "words",
    [["status", "{}"], ["create", "{}", "--name", "v1", "--dim", 4], ["delete", "memory:g", "--ids-from", "{}"],
     ["import", "memory:g", "--embeddings", "{}", "--name", "v1"], ["status", "memory:g", "--json", "{}"],
     ["import", "memory:g", "--embeddings", "{}?table=t&password=s3cret", "--name", "v1"], ["{}"],
     ["status", "memory:g", "--{}"], ["log", "memory:g", "--config", "{}"]],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["mysql", "postgresql+psycopg"])
def test_a_password_is_on_no_screen_and_in_no_folder(
    words: list[Any], kind: str, fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gallery", "create", "memory:g", "--name", "v1", "--dim", "4"]) == 0
    said = fails("gallery", *(str(word).format(f"{kind}://ann:s3cret@localhost:1/shop") for word in words))
    assert "s3cret" not in said and [path.name for path in tmp_path.iterdir()] == ["g"]


def test_machines_get_errors_as_json(gallery: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["upgrade", "swap", gallery, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "UpgradeStateError" and error["intact"] == "Nothing was changed."


@pytest.mark.parametrize("subcommand", ["start", "rehearse"])
def test_a_map_of_scores_without_its_adapter(subcommand: str, refused: Fails) -> None:
    assert "--score-map without --link" in refused(subcommand, "--score-map", "score_map.json")


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://me@127.0.0.1:9/shop?table=items", "limpet upgrade"),
        ("postgresql://me:s3cret@127.0.0.1:9/shop?table=items&vector=emb", "limpet upgrade"),
        ("qdrant://127.0.0.1:9/items", "limpet upgrade"),
        ("milvus:items.db#items", "limpet upgrade"),
        ("chroma://127.0.0.1:9/items", "limpet upgrade"),
        ("lance:db#items", "limpet gallery import"),
        ("parquet:items.parquet", "limpet gallery import"),
        ("faiss:items.index", "limpet gallery import"),
    ],
)
def test_a_table_given_as_a_gallery_is_named_with_the_commands_for_it(
    url: str, command: str, fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for subcommand in ("gc", "status"):
        said = fails(group_of([subcommand]), subcommand, url)
        assert "and no gallery" in said and command in said and "s3cret" not in said
    assert not list(tmp_path.iterdir())
