from __future__ import annotations

import json
import os
import re
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from limpet.embeddings import EmbeddingSet, storage
from limpet.errors import DataError
from limpet.geometry import Hypersphere


@pytest.fixture
def embeddings() -> EmbeddingSet:
    rng = np.random.default_rng(0)
    return EmbeddingSet(
        ids=[f"Straße {row}" for row in range(50)],
        vectors=rng.normal(size=(50, 7)).astype(np.float32),
        fingerprint="release:" + "ab" * 32,
        space=Hypersphere(7),
        role="document",
        form="features",
        labels=rng.integers(0, 3, 50),
        class_names=["x", "y", "z"],
        columns={"camera": rng.integers(0, 4, 50), "age": rng.random(50)},
    )


def assert_equal(found: EmbeddingSet, expected: EmbeddingSet) -> None:
    assert found.digest() == expected.digest()
    assert (found.fingerprint, found.space, found.role, found.form) == (
        expected.fingerprint, expected.space, expected.role, expected.form,
    )  # fmt: skip


def test_what_is_saved_comes_back(embeddings, tmp_path) -> None:
    path = storage.save(embeddings, tmp_path / "new" / "e.safetensors")
    assert_equal(storage.load(path), embeddings)
    assert_equal(storage.load(path, verify=True), embeddings)


def test_save_syncs_a_file_before_it_takes_its_name(embeddings, tmp_path, monkeypatch) -> None:
    sync, take_name, events = os.fsync, Path.replace, list[tuple[str, int]]()

    def fsync(handle: int) -> None:
        events.append(("synced", os.fstat(handle).st_ino))
        sync(handle)

    def replace(part: Path, name: Path) -> Path:
        events.append(("named", part.stat().st_ino))
        return take_name(part, name)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    written = storage.save(embeddings, tmp_path / "e.safetensors").stat().st_ino
    assert events == [("synced", written), ("named", written)]


def test_write_atomically_leaves_nothing_behind_where_writing_fails(tmp_path) -> None:
    def write(part: Path) -> None:
        part.write_text("half")
        raise OSError("no space left")

    path = tmp_path / "e.safetensors"
    path.write_text("before")
    with pytest.raises(DataError, match="no space left"):
        storage.write_atomically(path, write)
    assert [one.name for one in tmp_path.iterdir()] == [path.name] and path.read_text() == "before"


def test_the_file_is_plain_safetensors_with_a_short_header(embeddings, tmp_path) -> None:
    path = storage.save(embeddings, tmp_path / "e.safetensors")
    assert set(load_file(path)) == {"vectors", "id_bytes", "id_offsets", "labels", "class_name_bytes",
                                    "class_name_offsets", "column.camera", "column.age"}  # fmt: skip
    header = json.loads(path.read_bytes()[8:][: int.from_bytes(path.read_bytes()[:8], "little")])
    assert "Straße" not in json.dumps(header, ensure_ascii=False)


def test_a_folder_is_answered_with_the_file_in_it(embeddings, tmp_path) -> None:
    storage.save(embeddings, tmp_path / "embeddings.safetensors")
    with pytest.raises(DataError, match=r"give the file in this folder, '.*embeddings\.safetensors'"):
        storage.load(tmp_path)


def test_an_empty_set_and_one_without_labels(embeddings, tmp_path) -> None:
    empty = embeddings[[]]
    assert len(storage.load(storage.save(empty, tmp_path / "e.safetensors"), verify=True)) == 0
    plain = embeddings.replace(labels=None, class_names=None, columns={})
    found = storage.load(storage.save(plain, tmp_path / "p.safetensors"), verify=True)
    assert found.labels is None and found.class_names is None and not found.columns


def test_opened_arrays_are_mapped_and_read_only(embeddings, tmp_path) -> None:
    found = storage.load(storage.save(embeddings, tmp_path / "e.safetensors"))
    with pytest.raises(ValueError, match="read-only"):
        found.vectors[0, 0] = 1.0


def test_an_altered_vector_is_found(embeddings, tmp_path) -> None:
    path = storage.save(embeddings, tmp_path / "e.safetensors")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="differ from the recorded digest"):
        storage.load(path, verify=True)


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "list", "text", "foreign", "missing", "newer"])
def test_damaged_files_are_refused_with_a_reason(embeddings, tmp_path, damage) -> None:
    path = storage.save(embeddings, tmp_path / "e.safetensors")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "foreign":
        from safetensors.numpy import save_file

        save_file({"weight": np.zeros(3, np.float32)}, path)
    else:
        path.write_bytes({
            "truncated": content[: len(content) // 2], "garbage": b"\x07" * 100, "empty": b"",
            "list": (2).to_bytes(8, "little") + b"[]", "text": (3).to_bytes(8, "little") + b'"a"',
            "newer": content.replace(b'\\"format_version\\": 1', b'\\"format_version\\": 9'),
        }[damage])  # fmt: skip
    with pytest.raises(DataError, match="newer limpet" if damage == "newer" else "Next:"):
        storage.load(path)


def test_npz_and_parquet_round_trips(embeddings, tmp_path) -> None:
    plain = embeddings.replace(form="points")
    for write, read, name in (
        (storage.to_npz, storage.from_npz, "e.npz"),
        (storage.to_parquet, storage.from_parquet, "e.parquet"),
    ):
        found = read(write(plain, tmp_path / name), fingerprint=plain.fingerprint, role="document")
        assert_equal(found, plain)


def test_bare_vectors_get_row_numbers_as_ids(tmp_path) -> None:
    np.save(tmp_path / "v.npy", np.eye(3, dtype=np.float32))
    found = storage.from_npz(tmp_path / "v.npy", fingerprint="declared:them")
    assert list(found.ids) == ["0", "1", "2"] and found.labels is None


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8])
def test_from_npz_takes_floating_types_alone(tmp_path, kind) -> None:
    np.savez(tmp_path / "v.npz", vectors=np.eye(3, dtype=kind))
    if kind == np.int8:
        with pytest.raises(DataError, match="int8"):
            storage.from_npz(tmp_path / "v.npz", fingerprint="declared:them")
    else:
        assert storage.from_npz(tmp_path / "v.npz", fingerprint="declared:them").vectors.dtype == np.float32


def test_pickled_arrays_are_refused(tmp_path) -> None:
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "v.npz", vectors=np.array([{"a": 1}], dtype=object))
    for name in ("v.npy", "v.npz"):
        with pytest.raises(DataError, match="pickled"):
            storage.from_npz(tmp_path / name, fingerprint="declared:them")


def test_text_labels_become_classes(tmp_path) -> None:
    table = {"id": ["a", "b", "c"], "vector": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], "label": ["dog", "cat", "dog"]}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    found = storage.from_parquet(tmp_path / "e.parquet", fingerprint="declared:them")
    assert [found.class_names[label] for label in found.labels] == ["dog", "cat", "dog"]


def test_vectors_of_several_lengths_are_refused(tmp_path) -> None:
    pq.write_table(pa.table({"vector": [[1.0, 2.0], [1.0]]}), tmp_path / "e.parquet")
    with pytest.raises(DataError, match="one dimension"):
        storage.from_parquet(tmp_path / "e.parquet", fingerprint="declared:them")


def test_a_file_that_cannot_be_written_leaves_the_old_one(embeddings, tmp_path, small_disk) -> None:
    path = storage.save(embeddings, tmp_path / "e.safetensors")
    before = path.read_bytes()
    with small_disk(1000), pytest.raises(DataError, match="from before is intact"):
        storage.save(storage.load(path), path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["e.safetensors"]


def test_a_million_long_ids_open_at_once(tmp_path: Path) -> None:
    rows = 1_000_000
    ids = [f"{row:036d}" for row in range(rows)]
    vectors = np.ones((rows, 4), np.float32)
    embeddings = EmbeddingSet(ids=ids, vectors=vectors, fingerprint="declared:big", space=Hypersphere(4))
    path = storage.save(embeddings, tmp_path / "big.safetensors")
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = storage.load(path)
    seconds = time.process_time() - start
    assert found.ids[999_999] == f"{999_999:036d}"
    assert seconds < 0.4  # of the processor, which others may share
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def import_of(path: Path) -> EmbeddingSet:
    read = storage.from_parquet if path.suffix == ".parquet" else storage.from_npz
    return read(path, fingerprint="declared:them")


COMPLETE = r"(?s).+(\nExpected: .+)?\nNext: .+"


@pytest.mark.parametrize("name", ["e.npz", "e.npy", "by columns.npz", "e.parquet", "lists.parquet"])
def test_a_file_cut_off_or_altered_anywhere_is_read_or_refused(embeddings, tmp_path, name) -> None:
    plain, path = embeddings[:5].replace(form="points"), tmp_path / name
    if name == "e.npz":
        np.savez_compressed(path, vectors=plain.vectors, ids=np.array(list(plain.ids)), labels=plain.labels)
    elif name == "e.npy":
        np.save(path, plain.vectors)
    elif name == "by columns.npz":
        np.savez(path, vectors=np.asfortranarray(plain.vectors.astype(np.float64)))
    elif name == "lists.parquet":
        pq.write_table(pa.table({"id": list(plain.ids), "vector": plain.vectors.tolist()}), path)
    else:
        storage.to_parquet(plain, path)
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 7):
        altered = bytearray(content)
        altered[place] ^= 0xFF
        for changed in (content[:place], bytes(altered)):
            path.write_bytes(changed)
            try:
                import_of(path)
            except DataError as error:
                assert re.fullmatch(COMPLETE, str(error))
                refused += 1
    assert refused > len(content) // (8 if name == "e.npy" else 7)  # altered numbers are numbers


@pytest.mark.parametrize("name", ["ids", "labels", "class_names", "age", "vectors"])
def test_arrays_without_rows_are_refused(tmp_path, name) -> None:
    arrays = {"vectors": np.eye(2, dtype=np.float32), name: np.array(1.0, np.float32)}
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(DataError, match=COMPLETE) as refused:
        import_of(tmp_path / "v.npz")
    assert name in str(refused.value) and "()" in str(refused.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"vector": [1.0, 2.0]}, "'vector' .* is double"),
        ({"vector": pa.array([], pa.list_(pa.float32()))}, "no rows"),
        ({"vector": pa.array([], pa.list_(pa.float32(), 3))}, "no rows"),
        ({"vector": [[1.0], None]}, "1 of 2 are missing"),
        ({"vector": [[], []]}, "they have no numbers"),
        ({"vector": [[1.0]] * 4, "id": ["a", None, "b", None]}, "2 of 4 values of 'id'"),
        ({"vector": [[1.0]] * 3, "label": ["a", None, "None"]}, "1 of 3 values of 'label'"),
        ({"vector": [[1.0]] * 3, "label": [1, None, None]}, "2 of 3 values of 'label'"),
        ({"vector": [[1.0]] * 3, "label": [1.0, float("nan"), 2.0]}, "1 of 3 values of 'labels'"),
        ({"vector": [[1.0]], "id": [b"\xe9"]}, "'id' .* is binary"),
        ({"vector": [[1.0]], "label": [["a"]]}, "'label' .* is list"),
    ],
)
def test_parquet_that_cannot_be_used_is_refused(tmp_path, table, message) -> None:
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    with pytest.raises(DataError, match=COMPLETE) as refused:
        import_of(tmp_path / "e.parquet")
    assert re.search(message, str(refused.value))


def test_nan_labels_in_npz_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "v.npz", vectors=np.eye(2, dtype=np.float32), labels=np.array([np.nan, 1.0]))
    with pytest.raises(DataError, match="1 of 2 values of 'labels'"):
        import_of(tmp_path / "v.npz")


def test_a_column_name_that_occurs_twice_is_refused(tmp_path) -> None:
    lists = pa.array([[1.0]])
    pq.write_table(pa.Table.from_arrays([lists, lists], names=["vector", "vector"]), tmp_path / "e.parquet")
    with pytest.raises(DataError, match="Multiple matches"):
        import_of(tmp_path / "e.parquet")


def test_text_labels_that_spell_none_are_classes(tmp_path) -> None:
    pq.write_table(pa.table({"vector": [[1.0], [2.0]], "label": ["None", "nan"]}), tmp_path / "e.parquet")
    assert list(import_of(tmp_path / "e.parquet").class_names) == ["None", "nan"]


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_as_long_as_a_pickle_begins_is_read(tmp_path: Path, length: int) -> None:
    """Its first two bytes are then those of a pickle."""
    for letters in range(8, 1400, 8):
        made = EmbeddingSet(
            ids=[f"i{row}" for row in range(8)], vectors=np.eye(8, dtype=np.float32),
            fingerprint="declared:" + "m" * letters, space=Hypersphere(8),
        )  # fmt: skip
        path = storage.save(made, tmp_path / "made.safetensors")
        with path.open("rb") as file:
            begins = int.from_bytes(file.read(8), "little")
        if begins >= length:
            break
    assert begins == length
    assert storage.load(path).fingerprint == made.fingerprint
