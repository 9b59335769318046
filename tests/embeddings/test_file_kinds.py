"""Healthy files of other kinds, given as embeddings: called what they are, and never damaged."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from limpet.embeddings.files import other_kind
from limpet.engines.reading import load_sides
from limpet.errors import DataError

VECTORS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def image(kind: str) -> Callable[[Path], object]:
    return lambda path: Image.new("RGB", (8, 8)).save(path, kind)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content, encoding="utf-8")


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "hello")


def database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table items (id)")
    connection.commit()
    connection.close()


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, vectors=VECTORS)


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, VECTORS)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"vectors": VECTORS}))


MADE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "csv": (text("id,text\n1,hello\n2,bye\n"), "a table of text", "embed texts FILE --model st:MODEL"),
    "csv of umlauts": (text("id,text\n" + "ä,ü\n" * 3000), "a table of text", "embed texts FILE --model st:MODEL"),
    "tsv": (text("id\ttext\n1\thello\n"), "a table of text", "embed texts"),
    "txt": (text("my parcel did not come\n"), "a text file", "embed texts"),
    "jsonl": (text('{"id": 1}\n{"id": 2}\n'), "a file of JSON lines", "embed texts"),
    "json": (text(json.dumps({"evaluations": {}}, indent=2)), "a JSON file", "write the vectors"),
    "html": (text("<!DOCTYPE html>\n<html></html>"), "an HTML or XML page", "write the vectors"),
    "jpeg": (image("JPEG"), "a JPEG image", "`limpet embed images FOLDER --model release:RELEASE"),
    "png": (image("PNG"), "a PNG image", "`limpet embed images FOLDER"),
    "gif": (image("GIF"), "a GIF image", "`limpet embed images FOLDER"),
    "tiff": (image("TIFF"), "a TIFF image", "`limpet embed images FOLDER"),
    "webp": (image("WEBP"), "a WebP image", "`limpet embed images FOLDER"),
    "zip": (zipped, "a zip archive", "unpack it"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(b"id,text\n")), "a file packed by gzip", "unpack it"),
    "sqlite": (database, "an SQLite database", "write the vectors"),
    "pdf": (lambda path: path.write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), "a PDF document", "write the vectors"),
    "pickle": (pickled, "a pickle", "write the vectors"),
    "torch": (lambda path: torch.save({"w": torch.zeros(2)}, path), "a file of PyTorch", "write the vectors"),
    "npz": (arrays, "an archive of NumPy arrays", "ends with .npz"),
    "npy": (array, "a NumPy file", "ends with .npy"),
    "parquet": (lambda path: pq.write_table(pa.table({"id": ["1"]}), path), "a Parquet file", "ends with .parquet"),
    "weights": (lambda path: save_file({"layer.weight": VECTORS}, path), "a safetensors file of other arrays: "
                "'layer.weight'", "limpet embed images DATA --model release:"),
    "nothing": (lambda path: path.write_bytes(b""), "empty", "write it again"),
}  # fmt: skip
OWN = {("npz", ".npz"), ("npz", ".npy"), ("npy", ".npz"), ("npy", ".npy"), ("parquet", ".parquet")}
SAFETENSORS = {("weights", ".npz"), ("weights", ".npy"), ("weights", ".parquet")}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy", ".parquet", "", ".csv"])
@pytest.mark.parametrize("what", MADE)
def test_a_healthy_file_of_another_kind_is_called_what_it_is(what: str, suffix: str, tmp_path: Path) -> None:
    if (what, suffix) in OWN | SAFETENSORS:
        pytest.skip("its own reader opens it, or says what is wrong")
    make, words, to_do = MADE[what]
    path = tmp_path / f"given{suffix}"
    make(path)
    before = path.read_bytes()
    with pytest.raises(DataError) as raised:
        load_sides(path)
    assert f"'{path}' is {words}" in raised.value.given and to_do in raised.value.to_do
    assert "damaged" not in str(raised.value) and "Expected: embeddings" in str(raised.value)
    assert path.read_bytes() == before


def test_results_are_told_from_other_json(tmp_path: Path) -> None:
    text(json.dumps({"evaluations": {}}))(tmp_path / "results.json")
    with pytest.raises(DataError, match=r"is a JSON file(.|\n)*give the folders of embeddings"):
        load_sides(tmp_path / "results.json")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".parquet"])
def test_what_nobody_can_tell_is_left_to_the_reader(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(np.random.default_rng(3).integers(0, 256, 5000, dtype=np.uint8).tobytes())
    assert other_kind(path) is None
    with pytest.raises(DataError, match=r"is damaged|Cannot read"):
        load_sides(path)
