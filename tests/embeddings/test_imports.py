"""Files of the user's own: any similarity, any size, any order of what they hold."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.forms import SIMILARITIES, space_named
from limpet.embeddings.imports import from_npz, from_parquet
from limpet.embeddings.numpy_files import NumpyFile
from limpet.embeddings.room import available_memory, gather, rows_at_once
from limpet.errors import ConfigError, DataError
from limpet.geometry import Euclidean, Hypersphere, InnerProduct

ROWS, DIM = 70_000, 3  # more rows than are read at a time


def imported(path: Path, **options: Any) -> EmbeddingSet:
    read = from_parquet if path.suffix == ".parquet" or path.is_dir() else from_npz
    return read(path, fingerprint="declared:them", **options)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def lists(vectors: np.ndarray, kind: Any = None) -> Any:
    flat = pa.array(vectors.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.ListArray.from_arrays(pa.array(np.arange(0, flat.__len__() + 1, vectors.shape[1], dtype=np.int32)), flat)


WRITTEN: dict[str, Callable[[Path, np.ndarray], Any]] = {
    "plain.npy": lambda path, vectors: np.save(path, vectors),
    "by columns.npy": lambda path, vectors: np.save(path, np.asfortranarray(vectors)),
    "double.npy": lambda path, vectors: np.save(path, vectors.astype(np.float64)),
    "other order of bytes.npy": lambda path, vectors: np.save(path, vectors.astype(">f4")),
    "double.npz": lambda path, vectors: np.savez(path, vectors=vectors.astype(np.float64)),
    "plain.npz": lambda path, vectors: np.savez(path, vectors=vectors),
    "packed.npz": lambda path, vectors: np.savez_compressed(path, vectors=vectors.astype(np.float64)),
    "by columns.npz": lambda path, vectors: np.savez(path, vectors=np.asfortranarray(vectors.astype(np.float64))),
    "fixed.parquet": lambda path, vectors: pq.write_table(
        pa.table({"vector": lists(vectors, "fixed")}), path, row_group_size=30_000
    ),
    "lists.parquet": lambda path, vectors: pq.write_table(
        pa.table({"vector": lists(vectors.astype(np.float64))}), path
    ),
}


@pytest.mark.parametrize("most_memory", [None, 0], ids=["in memory", "in a file"])
@pytest.mark.parametrize("name", WRITTEN)
def test_every_way_to_write_the_same_vectors_is_read_alike(tmp_path, vectors, name, most_memory) -> None:
    WRITTEN[name](tmp_path / name, vectors)
    found = imported(tmp_path / name, most_memory=most_memory)
    np.testing.assert_array_equal(found.vectors, vectors)
    assert found.vectors.dtype == np.float32 and found.vectors.flags.c_contiguous
    assert found.ids[ROWS - 1] == str(ROWS - 1) and found.space == Hypersphere(DIM) and found.form == "points"
    mapped = most_memory == 0 or name == "plain.npy"  # float32 in a file of its own stays there
    assert found.vectors.flags.writeable == (not mapped)


def test_what_takes_more_than_its_share_of_memory_goes_to_a_file_without_a_name(tmp_path, vectors, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # what was found before is not asked for again
    size = vectors.nbytes
    assert gather([vectors[:5], vectors[5:]], ROWS, DIM, most_memory=size).flags.writeable
    found = gather([vectors[:5], vectors[5:]], ROWS, DIM, most_memory=size - 1)
    assert not found.flags.writeable and not list(tmp_path.iterdir())
    np.testing.assert_array_equal(found, vectors)
    assert 2**20 < available_memory() < 2**50
    assert gather([vectors], ROWS, DIM).flags.writeable, "by itself only beyond half of the memory"


@pytest.mark.parametrize("most_memory", [None, 0])
@pytest.mark.parametrize("announced", [ROWS - 1, ROWS + 1])
def test_another_number_of_rows_than_announced_is_refused(vectors, announced, most_memory) -> None:
    with pytest.raises(EOFError, match=f"the {announced} vectors"):
        gather([vectors[:5], vectors[5:]], announced, DIM, most_memory=most_memory)


def test_a_file_that_has_no_room_is_refused_with_a_way_out(tmp_path, vectors, small_disk) -> None:
    np.savez(tmp_path / "v.npz", vectors=vectors)
    with small_disk(1000), pytest.raises(DataError, match=r"do not fit into a temporary file(.|\n)*TMPDIR=FOLDER"):
        from_npz(tmp_path / "v.npz", fingerprint="declared:them", most_memory=0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
@pytest.mark.parametrize("name", ["double.npz", "fixed.parquet"])
def test_a_file_is_not_in_memory_twice(tmp_path, name) -> None:
    """Beside vectors of 64 MiB, 128 MiB in the archive, there are blocks and row numbers, never a second copy."""
    rows = np.random.default_rng(0).random((2**17, 128), np.float32)
    WRITTEN[name](tmp_path / name, rows)
    WRITTEN[name](tmp_path / f"small {name}", rows[:2])
    code = textwrap.dedent(f"""
        from pathlib import Path
        from limpet.embeddings.imports import from_npz, from_parquet
        def peak():
            return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
        def opened(path):
            read = {"from_parquet" if name.endswith("parquet") else "from_npz"}
            return read(path, fingerprint="declared:them")
        opened({str(tmp_path / f"small {name}")!r})  # imports what it needs
        before = peak()
        kept = opened({str(tmp_path / name)!r})
        print(peak() - before)
    """)
    taken = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert rows.nbytes < taken < 2.5 * rows.nbytes


def test_any_similarity_by_name(tmp_path) -> None:
    np.savez(
        tmp_path / "v.npz", vectors=np.array([[3, 4], [0, 0], [1e-3, 0]], np.float32), ids=np.array(["a", "b", "c"])
    )
    assert imported(tmp_path / "v.npz", similarity="inner-product").space == InnerProduct(2)
    found = imported(tmp_path / "v.npz", similarity="euclidean")
    assert (found.space, found.form) == (Euclidean(2), "points") and found.vectors[1].tolist() == [0, 0]
    with pytest.raises(DataError, match=r"1 of 3 vectors lead to no point of the hypersphere .*'b'"):
        imported(tmp_path / "v.npz", similarity="cosine")
    np.save(tmp_path / "v.npy", found.vectors[[0, 2]])
    found = imported(tmp_path / "v.npy", similarity="cosine")
    assert (found.space, found.form) == (Hypersphere(2), "features") and found.vectors[0].tolist() == [3, 4]
    pq.write_table(pa.table({"vector": [[1.0, 2.0]]}), tmp_path / "v.parquet")
    assert imported(tmp_path / "v.parquet", similarity="euclidean").space == Euclidean(2)


def test_similarities_that_do_not_go_are_refused(tmp_path) -> None:
    np.save(tmp_path / "v.npy", np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigError, match="Did you mean 'euclidean'"):
        imported(tmp_path / "v.npy", similarity="euclidian")
    with pytest.raises(ConfigError, match="one of the two"):
        imported(tmp_path / "v.npy", similarity="cosine", space=Euclidean(2))
    assert {name: str(space_named(name, 2)[0]) for name in SIMILARITIES} == {
        "cosine": "hypersphere of dimension 2", "inner-product": "inner-product space of dimension 2",
        "euclidean": "euclidean space of dimension 2",
    }  # fmt: skip


def test_numbers_too_large_for_float32_are_refused_by_id(tmp_path) -> None:
    np.savez(tmp_path / "v.npz", vectors=np.array([[1, 0], [1e300, 0]]), ids=np.array(["fine", "huge"]))
    for most_memory in (None, 0):
        with pytest.raises(DataError, match=r"NaN or infinite.*'huge'"):
            imported(tmp_path / "v.npz", most_memory=most_memory)
    np.save(tmp_path / "v.npy", np.array([[1, 0], [1e19, 0]], np.float32))
    with pytest.raises(DataError, match=r"no points of the euclidean .*'1'"):
        imported(tmp_path / "v.npy", similarity="euclidean")


def test_everything_of_a_parquet_file_stays_together_over_many_batches(tmp_path, vectors) -> None:
    names, numbers = [f"Straße {row}" for row in range(ROWS)], np.arange(ROWS) % 7
    table = {
        "id": pa.array(names).dictionary_encode(), "vector": lists(vectors, "fixed"),
        "label": [f"c{number}" for number in numbers], "camera": numbers,
        "age": pa.array([None if row % 2 else row / 2 for row in range(ROWS)]), "note": names,
    }  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "v.parquet", row_group_size=25_000)
    found = imported(tmp_path / "v.parquet")
    assert list(found.ids) == names and list(found.class_names) == [f"c{number}" for number in range(7)]
    np.testing.assert_array_equal(found.labels, numbers)
    np.testing.assert_array_equal(found.columns["camera"], numbers)
    np.testing.assert_array_equal(
        found.columns["age"], np.where(numbers * 0 + np.arange(ROWS) % 2, np.nan, np.arange(ROWS) / 2)
    )
    assert set(found.columns) == {"camera", "age"}


def test_a_folder_of_parquet_files_is_read_by_name(tmp_path, vectors) -> None:
    for name, part in (("b", vectors[3:5]), ("a", vectors[:3])):
        pq.write_table(pa.table({"id": [f"{name}{row}" for row in range(len(part))], "vector": lists(part)}),
                       tmp_path / f"{name}.parquet")  # fmt: skip
    found = imported(tmp_path)
    assert list(found.ids) == ["a0", "a1", "a2", "b0", "b1"]
    np.testing.assert_array_equal(found.vectors, vectors[:5])
    pq.write_table(pa.table({"vector": lists(vectors[:2])}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet' has other columns than .*a\.parquet"):
        imported(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.parquet file"):
        imported(tmp_path / "empty")


def test_a_vector_of_another_length_far_down_is_found(tmp_path) -> None:
    pq.write_table(pa.table({"vector": [[1.0, 2.0]] * 66_000 + [[1.0]] + [None]}), tmp_path / "v.parquet")
    with pytest.raises(
        DataError,
        match=r"1 of 66002 are missing .*, and 1 of 66002 have another dimension than the first, 2",
    ):
        imported(tmp_path / "v.parquet")


def test_ids_in_parquet_that_are_no_utf8_are_refused(tmp_path) -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xe9")]
    ids = pa.Array.from_buffers(pa.string(), 2, buffers)
    pq.write_table(pa.table({"id": ids, "vector": lists(np.eye(2, dtype=np.float32))}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"'id' .* cannot be read as text"):
        imported(tmp_path / "v.parquet")


def test_numbers_called_vectors_are_refused(tmp_path) -> None:
    pq.write_table(pa.table({"vector": lists(np.eye(2, dtype=np.float32)), "vectors": [1, 2]}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="numbers called 'vectors'"):
        imported(tmp_path / "v.parquet")


def test_ids_and_labels_of_every_type_are_what_python_writes(tmp_path) -> None:
    kinds = [np.array(["b", "é", "a"]), np.array(["b", "c", "a"]).astype(">U4"), np.array([3, -1, 2**40]),
             np.array([0.5, 1.0, 2.0]), np.array(["2020-01-02", "2020-01-01", "2021-01-01"], "M8[D]")]  # fmt: skip
    for values in kinds:
        np.savez(tmp_path / "v.npz", vectors=np.eye(3, dtype=np.float32), ids=values, labels=values.astype(str))
        found = imported(tmp_path / "v.npz")
        texts = [str(value) for value in values]
        assert list(found.ids) == texts and list(found.class_names) == sorted(texts)
        assert [found.class_names[label] for label in found.labels] == texts


def test_texts_of_numpy_and_their_kinds_like_numpy_does() -> None:
    texts = np.random.default_rng(0).choice(["ape", "", "日本", "z", "\U0001f41d", "\uffee"], 70_000)
    strings = StringArray.from_numpy(texts)
    assert strings == StringArray.of(texts.tolist())
    places, kinds = strings.classes()
    expected, numbers = np.unique(texts, return_inverse=True)
    assert list(kinds) == expected.tolist()
    np.testing.assert_array_equal(places, numbers)
    assert len(StringArray.from_numpy(np.array([], np.str_))) == 0
    with pytest.raises(DataError, match=r"cannot be written as UTF-8: '\\udce9'"):
        StringArray.from_numpy(np.array(["a", "\udce9"]))


def test_blocks_are_as_large_as_they_are_meant_to_be() -> None:
    assert rows_at_once(4 * 128) * 4 * 128 == 2**22
    assert (rows_at_once(4), rows_at_once(2**40)) == (65_536, 1)


def member(kind: str, shape: str, content: bytes) -> bytes:
    """Return an array as .npy has it, with a header that may say anything."""
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize(
    ("name", "kind", "shape", "content", "said"),
    [
        ("ids", "<U1", "(3,)", struct.pack("<3I", 97, 0x110000, 98), "the sign 0x110000"),
        ("ids", ">U1", "(3,)", struct.pack(">3I", 97, 0xFFFFFFFF, 98), "the sign 0xffffffff"),
        ("words", "<U1", "(3,)", struct.pack("<3I", 97, 0x110000, 98), "the sign 0x110000"),
        ("labels", "<U1", "(3,)", struct.pack("<3I", 97, 0x110000, 98), "the sign 0x110000"),
        ("labels", "|V7", "(3,)", b"a" * 21, "'labels' holds records"),
        ("labels", "<i8", "(True,)", b"a" * 8, r"'labels' would be of shape \(True,\)"),
        ("vectors", "<f4", "(3, True)", b"\0" * 12, r"'vectors' would be of shape \(3, True\)"),
        ("vectors", "<f4", "(3, 4 4)", b"\0" * 48, "[Ii]nvalid syntax|header"),
        ("vectors", "<f4", "(3, " + "(" * 300 + ")", b"\0" * 48, "header|parenthes|nest|parse"),
        ("vectors", "<f4", "(3, 9" + "9" * 5000 + ")", b"\0" * 48, "header|digits"),
    ],
    ids=["sign", "sign of other order", "sign in a column", "sign in labels", "records", "truth value as length",
         "truth value as dimension", "no syntax", "nested", "digits"],
)  # fmt: skip
def test_headers_and_texts_that_nobody_can_read_are_refused(
    name: str, kind: str, shape: str, content: bytes, said: str, tmp_path: Path
) -> None:  # fmt: skip
    path = tmp_path / "a.npz"
    np.savez(path, **({} if name == "vectors" else {"vectors": np.eye(3, 4, dtype=np.float32)}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", member(kind, shape, content))
    with pytest.raises(DataError, match=said):
        from_npz(path, fingerprint="declared:v1")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_labels_beyond_int64_are_refused_and_others_of_uint64_are_taken(tmp_path: Path, suffix: str) -> None:
    def written(labels: list[int]) -> Path:
        path = tmp_path / f"vectors{suffix}"
        vectors, numbers = np.eye(2, dtype=np.float32), np.array(labels, np.uint64)
        if suffix == ".npz":
            np.savez(path, vectors=vectors, labels=numbers)
        else:
            pq.write_table(pa.table({"vector": list(vectors), "label": numbers}), path)
        return path

    known = imported(written([2**63 - 1, 0]))
    assert known.labels is not None and known.labels.tolist() == [2**63 - 1, 0]
    with pytest.raises(DataError, match="reach 9223372036854775808"):
        imported(written([2**63, 0]))


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_numpy_file_that_is_cut_off_is_refused_by_its_header(by_columns: bool, tmp_path: Path) -> None:
    path, array = tmp_path / "vectors.npy", np.ones((20, 3), np.float32)
    np.save(path, np.asfortranarray(array) if by_columns else array)
    assert NumpyFile(path).header("vectors").shape == (20, 3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EOFError, match="239 of 240 bytes"):
        NumpyFile(path).header("vectors")
