"""Whatever stands in the ledger of a gallery, every command answers, by an error or a finding of doctor."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.groups import grouped
from limpet.adapters import build_adapter
from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

IDS = [f"i{row}" for row in range(6)]
COLUMNS = {
    "meta": ("name", "value"),
    "generations": ("name", "bit", "width", "columns"),
    "items": ("id", "version", "mask", "metadata"),
    "journal": ("sequence", "time", "event"),
    "pointer": ("one", "sequence", "manifest", "held", "places"),
    "files": ("digest", "content"),
    "rows": ("generation", "id", "version", "written", "vector"),
}
VALUES = (
    -1, 0, 1.5, 61, 2**63 - 1, "", "9" * 5000, "[]", "[" * 50_000, '{"g1": 1e999}', '{"g9": -3}', b"\xff\x00\x01",
)  # fmt: skip
COMMANDS = (
    ["status"], ["log"], ["search", "--like", "i1", "--where", "price<3"], ["doctor"],
)  # fmt: skip


def points(model: str, ids: list[str], dim: int) -> EmbeddingSet:
    drawn = [np.random.default_rng(zlib.crc32(f"{model}/{one}".encode())).normal(size=dim) for one in ids]
    rows = np.array(drawn, np.float32)
    return EmbeddingSet(ids=ids, vectors=rows, fingerprint=f"declared:{model}", space=Hypersphere(dim))


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery in the middle of an upgrade by an adapter."""
    folder = tmp_path_factory.mktemp("sound") / "gallery"
    pairs = [f"pair {row}" for row in range(20)]
    adapter = build_adapter("procrustes", {}).fit(points("old", pairs, 4), points("new", pairs, 4))
    options = {"fingerprint": "declared:old", "space": Hypersphere(4), "columns": {"price": "number"}}
    with Gallery.create(f"memory:{folder}", **options) as gallery:
        gallery.add(points("old", IDS, 4), metadata={"price": [float(row) for row in range(6)]})
        gallery.start("declared:new", Hypersphere(4), adapter=adapter)
        gallery.swap()
        gallery.upsert(points("old", ["i0"], 4), points("new", ["i0"], 4), metadata={"price": [1.0]})
    assert main(["doctor", str(folder)]) == 0
    return folder


@pytest.fixture
def damage(sound: Path, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Copy the gallery, run statements on its database, and return the copy."""

    def change(*statements: tuple[str, list[Any]]) -> Path:
        folder = tmp_path / "gallery"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sound, folder)
        with closing(sqlite3.connect(folder / "gallery.db")) as database, database:
            for statement, values in statements:
                database.execute(statement, values)
        return folder

    yield change


def answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Run every command, none of which may end with a traceback, and return their exit codes."""
    codes = {}
    for name, *words in COMMANDS:
        codes[name] = main(grouped([name, folder, *words]))
        said = capsys.readouterr()
        assert codes[name] in (0, 1, 2) and "Traceback" not in said.err
        assert codes[name] != 2 or "Next: " in said.err, (name, said.err)
    return codes


@pytest.mark.parametrize("start", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("table", "column"), [(table, column) for table, names in COLUMNS.items() for column in names])
def test_every_column(
    table: str, column: str, start: int, damage: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    statement = f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})"
    for value in VALUES[start::3]:
        answers(damage((statement, [value])), capsys)


@pytest.mark.parametrize("table", COLUMNS)
def test_missing_rows(table: str, damage: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    answers(damage((f"DELETE FROM {table}", [])), capsys)
    answers(damage((f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})", [])), capsys)
    answers(damage((f"DROP TABLE {table}", [])), capsys)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE pointer SET held = ?", ['{"g1": "6"}']),
        ("UPDATE pointer SET held = ?", ['{"g1": 5, "g9": 1}']),
        ("UPDATE pointer SET manifest = ?", ["{}"]),
        ("UPDATE pointer SET manifest = replace(manifest, ?, ?)", ['"active": "g2"', '"active": "g9"']),
        ("UPDATE pointer SET sequence = ?", [2**62]),
        ("UPDATE items SET mask = ? WHERE id = 'i1'", [1 | 1 << 40]),
        ("UPDATE items SET version = ? WHERE id = 'i1'", [-4]),
        ("UPDATE items SET metadata = ? WHERE id = 'i1'", ['{"price": "a text"}']),
        ("UPDATE items SET metadata = ? WHERE id = 'i1'", ['{"price": 1}, {}']),
        ("UPDATE generations SET bit = ?", [0]),
        ("UPDATE journal SET event = ? WHERE sequence = 3", ['["start"]']),
        ("UPDATE journal SET time = ? WHERE sequence = 3", [1e300]),
        ("UPDATE files SET content = ?", [b"another"]),
        ("DELETE FROM files", []),
        ("DELETE FROM journal WHERE sequence = 3", []),
    ],
)
def test_doctor_finds_it(
    statement: str, values: list[Any], damage: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert answers(damage((statement, values)), capsys)["doctor"] == 1
