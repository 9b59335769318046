"""Files of embeddings that somebody altered: refused by name, whatever they say, and never followed into memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.cli import main
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.embeddings.numpy_files import NumpyFile
from limpet.errors import DataError
from limpet.geometry import Hypersphere

Header = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    embeddings = EmbeddingSet(
        ids=[f"Zoë {row:03d}" for row in range(20)],
        vectors=rng.standard_normal((20, 8)).astype(np.float32),
        fingerprint="declared:a",
        space=Hypersphere(8),
        role="document",
        labels=np.arange(20) % 4,
        class_names=["a", "b", "c", "d"],
        columns={"camera": np.arange(20)},
    )
    return storage.save(embeddings, tmp_path / "e.safetensors")


def parts(path: Path) -> tuple[Header, bytes]:
    """Return the header of a file, and what follows it."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def written(path: Path, header: Header, body: bytes) -> Path:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def unchecked(data: np.ndarray, offsets: np.ndarray) -> StringArray:
    array = object.__new__(StringArray)
    array.data, array.offsets = data, offsets
    return array


def with_offsets(path: Path, texts: str, edits: dict[int, int]) -> Path:
    """Set single offsets of ids or class names, as an attacker would: the recorded digest is that of what is there."""
    whole, (header, body) = storage.load(path), parts(path)
    name = {"ids": "id", "class_names": "class_name"}[texts]
    begin, end = header[f"{name}_offsets"]["data_offsets"]
    offsets = np.frombuffer(body[begin:end], np.int64).copy()
    offsets[list(edits)] = list(edits.values())
    altered = unchecked(getattr(whole, texts).data, offsets)
    values = {one.name: getattr(whole, one.name) for one in fields(whole)} | {texts: altered}
    record = json.loads(header["__metadata__"]["limpet"])
    record["digest"] = EmbeddingSet.trusted(**values).digest()
    header["__metadata__"]["limpet"] = json.dumps(record, sort_keys=True)
    return written(path, header, body[:begin] + offsets.tobytes() + body[end:])


OFFSETS = {
    "huge": {5: 10**15},
    "negative": {5: -(10**12)},
    "beyond the end": {1: 0, 5: 2**20},
    "falling": {5: 60, 6: 10},
    "within a character": {1: 3},
}


@pytest.mark.parametrize("texts", ["ids", "class_names"])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("what", OFFSETS)
def test_offsets_that_lead_elsewhere_are_refused(what: str, verify: bool, texts: str, path: Path) -> None:
    edits = OFFSETS[what] if texts == "ids" else {1: 2**40 if what == "huge" else -5, 2: 0}
    with_offsets(path, texts, edits)
    with pytest.raises(DataError, match=r"'.*e\.safetensors' is damaged: .*Strings that cannot be read"):
        storage.load(path, verify=verify)


@pytest.mark.parametrize("what", OFFSETS)
def test_a_gallery_is_not_made_of_them_and_the_process_lives(what: str, path: Path, tmp_path: Path) -> None:
    with_offsets(path, "ids", OFFSETS[what])
    words = ["gallery", "create", f"memory:{tmp_path / 'g'}", "--embeddings", str(path)]
    assert main(words) == 2
    assert main(["evaluate", "--old", str(path), "--new", str(path), "--out", str(tmp_path / "out")]) == 2


def test_a_damaged_file_does_not_end_the_process(path: Path, tmp_path: Path) -> None:
    with_offsets(path, "ids", OFFSETS["huge"])
    program = "import sys; from limpet.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["gallery", "create", f"memory:{tmp_path / 'g'}", "--embeddings", str(path)]
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "is damaged" in ended.stderr and "Traceback" not in ended.stderr


def shaped(name: str, **changes: Any) -> Callable[[Header, Header], None]:
    return lambda header, record: header[name].update(changes)


def recorded(**changes: Any) -> Callable[[Header, Header], None]:
    return lambda header, record: record.update(changes)


SURGERY: dict[str, Callable[[Header, Header], object]] = {
    "vectors of other dimensions": shaped("vectors", shape=[40, 4]),
    "vectors of one dimension": shaped("vectors", shape=[160]),
    "vectors as whole numbers": shaped("vectors", dtype="I32"),
    "vectors of more bytes than there are": shaped("vectors", shape=[10**12, 8]),
    "a shape of texts": shaped("vectors", shape=["20", "8"]),
    "a shape outside 64 bits": shaped("vectors", shape=[10**30, 8]),
    "a type that nobody has": shaped("vectors", dtype="F7"),
    "offsets as floating numbers": shaped("id_offsets", dtype="F64"),
    "offsets of two dimensions": shaped("id_offsets", shape=[3, 7]),
    "labels of two dimensions": shaped("labels", shape=[20, 1]),
    "labels as floating numbers": shaped("labels", dtype="F64"),
    "a column of other length": shaped("column.camera", shape=[10, 2]),
    "a column that is one number": lambda header, record: header.update(
        {"column.one": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}
    ),
    "a place before the beginning": shaped("vectors", data_offsets=[-8, 632]),
    "a place that ends before it begins": shaped("vectors", data_offsets=[640, 0]),
    "a place beyond the end": shaped("vectors", data_offsets=[2**40, 2**40 + 640]),
    "places that are fractions": shaped("vectors", data_offsets=[0.5, 640.5]),
    "an entry that is a list": lambda header, record: header.update({"vectors": [1]}),
    "no vectors": lambda header, record: header.pop("vectors"),
    "no ids": lambda header, record: header.pop("id_bytes"),
    "a role that nobody plays": recorded(role="thief"),
    "a role that is a list": recorded(role=["query"]),
    "a form that there is none of": recorded(form="cube"),
    "a fingerprint that is a number": recorded(fingerprint=5),
    "a fingerprint of nothing": recorded(fingerprint="release:12"),
    "a space that nobody knows": recorded(space={"name": "torus", "dim": 8}),
    "a space of another dimension": recorded(space={"name": "hypersphere", "dim": 9}),
    "a space of a fraction": recorded(space={"name": "hypersphere", "dim": 8.0}),
    "a space of a text": recorded(space={"name": "hypersphere", "dim": "8"}),
    "a curvature that is a word": recorded(space={"name": "lorentz", "dim": 8, "curvature": "much"}),
    "a space that is a list": recorded(space=[8]),
    "a version that is a word": recorded(format_version="one"),
    "a prefix that is a number": recorded(prefix=5),
    "a number outside 64 bits": recorded(format_version=10**400),
    "a number that is infinite": recorded(format_version=float("inf")),
}


@pytest.mark.parametrize("what", SURGERY)
def test_headers_that_describe_something_else_are_refused(what: str, path: Path) -> None:
    header, body = parts(path)
    record = json.loads(header["__metadata__"]["limpet"])
    SURGERY[what](header, record)
    header["__metadata__"]["limpet"] = json.dumps(record)
    written(path, header, body)
    with pytest.raises(DataError, match=r"'.*e\.safetensors' is damaged"):
        storage.load(path)


@pytest.mark.parametrize("header", [b"[" * 90_000, b"{" * 9, b"[]", b"5", b'{"a": 1}', b'{"__metadata__": []}', b"{}"])
def test_headers_that_are_none_are_refused(header: bytes, path: Path) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    with pytest.raises(DataError, match="is damaged"):
        storage.load(path)


def test_the_length_of_a_header_is_bounded(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**40) + b" " * 100)
    with pytest.raises(DataError, match="it would have 1099511627776 bytes"):
        storage.load(path)


def test_labels_outside_the_class_names_are_refused_without_verify(path: Path) -> None:
    header, body = parts(path)
    changed = bytearray(body)
    struct.pack_into("<q", changed, header["labels"]["data_offsets"][0], 4)
    written(path, header, bytes(changed))
    with pytest.raises(DataError, match="Labels run from 0 to 4, with 4 class names"):
        storage.load(path)


def test_a_file_without_a_digest_is_refused_where_it_is_compared(path: Path) -> None:
    header, body = parts(path)
    record = json.loads(header["__metadata__"]["limpet"])
    del record["digest"]
    header["__metadata__"]["limpet"] = json.dumps(record)
    written(path, header, body)
    with pytest.raises(DataError, match="differ from the recorded digest"):
        storage.load(path, verify=True)


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        ([97, 98], [0, 5, 2]),
        ([97, 98], [0, -1, 2]),
        ([97, 98], [0, 2, 1, 2]),
        ([97, 98], [1, 2]),
        ([97, 98], [0, 1]),
        ([0xC3, 0xA9], [0, 1, 2]),
        ([0xFF], [0, 1]),
    ],
)
def test_texts_are_checked_where_they_are_built(data: list[int], offsets: list[int]) -> None:
    with pytest.raises(DataError):
        StringArray(np.array(data, np.uint8), np.array(offsets, np.int64))


def test_a_header_of_numpy_whose_names_are_of_several_types_is_refused(tmp_path: Path) -> None:
    """NumPy sorts the names, which it cannot."""
    np.save(tmp_path / "file.npy", np.ones((2, 3), np.float32))
    content = (tmp_path / "file.npy").read_bytes()
    (tmp_path / "file.npy").write_bytes(content.replace(b"'descr'", b"b'desc'"))
    with pytest.raises(ValueError, match="makes no sense"):
        NumpyFile(tmp_path / "file.npy").header("vectors")
