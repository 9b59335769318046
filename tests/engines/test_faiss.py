"""Indexes of FAISS as sources: every kind that keeps vectors, and files that somebody tampered with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest

from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, LimpetError

DIM, ROWS = 8, 200
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
IDS = np.random.default_rng(1).permutation(ROWS).astype(np.int64) * 7 - 100
IP = faiss.METRIC_INNER_PRODUCT


def inverted(lists: int = 10) -> faiss.Index:
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, lists, IP)
    index.cp.min_points_per_centroid = 1
    index.train(VECTORS)
    return index


def direct() -> faiss.Index:
    index = inverted()
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    return index


KINDS: dict[str, tuple[Callable[[], faiss.Index], bool, str]] = {
    "flat": (lambda: faiss.IndexFlatIP(DIM), False, "inner-product"),
    "flat by distance": (lambda: faiss.IndexFlatL2(DIM), False, "euclidean"),
    "with ids": (lambda: faiss.IndexIDMap(faiss.IndexFlatL2(DIM)), True, "euclidean"),
    "graph": (lambda: faiss.IndexHNSWFlat(DIM, 8, IP), False, "inner-product"),
    "graph with ids": (lambda: faiss.IndexIDMap2(faiss.IndexHNSWFlat(DIM, 8)), True, "euclidean"),
    "inverted lists": (inverted, True, "inner-product"),
    "more lists than rows fill": (lambda: inverted(150), True, "inner-product"),
    "inverted lists with a map": (direct, True, "inner-product"),
    "inverted lists under ids": (lambda: faiss.IndexIDMap(inverted()), True, "inner-product"),
}


def written(path: Path, index: faiss.Index, ids: bool) -> str:
    if ids:
        index.add_with_ids(VECTORS, IDS)
    else:
        index.add(VECTORS)
    faiss.write_index(index, str(path))
    return f"faiss:{path}"


def read(url: str, rows: int = 64) -> dict[object, np.ndarray]:
    batches = list(open_source(url).batches(["id", "vector"], rows))
    assert all(batch.num_rows <= max(rows, 1024) for batch in batches)
    return rows_of(batches)


def rows_of(batches: list[pa.RecordBatch]) -> dict[object, np.ndarray]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {row["id"]: np.array(row["vector"], np.float32) for row in rows}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_put_in_comes_out(tmp_path: Path, kind: str) -> None:
    make, with_ids, similarity = KINDS[kind]
    url = written(tmp_path / "index", make(), with_ids)
    source, ids = open_source(url), (IDS if with_ids else np.arange(ROWS)).tolist()
    assert (source.rows, source.similarity("vector"), source.key) == (ROWS, similarity, "id")
    found = read(url)
    assert list(found) != [] and found.keys() == set(ids)
    for key, vector in zip(ids, VECTORS, strict=True):
        np.testing.assert_array_equal(found[key], vector)
    some = [str(ids[5]), "no such id", str(ids[-1])]
    assert rows_of(list(source.fetch(some, ["id", "vector"]))).keys() == {ids[5], ids[-1]}


@pytest.mark.parametrize("kind", ["PQ4x4", "SQ8", "IVF4,PQ4x4", "IVF4,SQ8", "PCA4,Flat", "L2norm,Flat", "LSH"])
def test_an_index_without_exact_vectors_is_refused_by_its_kind(tmp_path: Path, kind: str) -> None:
    index = faiss.index_factory(DIM, kind)
    index.train(VECTORS)
    index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "index"))
    four = (tmp_path / "index").read_bytes()[:4].decode()
    with pytest.raises(DataError, match=f"of the kind '{four}', which keeps no exact vectors"):
        open_source(f"faiss:{tmp_path / 'index'}")


def test_ids_are_named_by_a_file(tmp_path: Path) -> None:
    url, names = written(tmp_path / "index", faiss.IndexFlatIP(DIM), False), [f"item {row}" for row in range(ROWS)]
    np.save(tmp_path / "ids.npy", np.array(names))
    (tmp_path / "ids.txt").write_text("\n".join(names))
    (tmp_path / "few.txt").write_text("\n".join(names[:-1]))
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    for file in ("ids.npy", "ids.txt"):
        found = read(f"{url}?ids={tmp_path / file}")
        np.testing.assert_array_equal(np.array([found[name] for name in names]), VECTORS)
    for file, words in (("few.txt", "holds 199 ids"), ("pickled.npy", "Python objects")):
        with pytest.raises(DataError, match=words):
            open_source(f"{url}?ids={tmp_path / file}")
    with pytest.raises(ConfigError, match="There is no file"):
        open_source(f"{url}?ids={tmp_path / 'none.txt'}")
    with pytest.raises(ConfigError, match=r"(?s)Unknown option .* ids"):
        open_source(f"{url}?names=a")


def test_conditions_and_a_sample_choose_rows(tmp_path: Path) -> None:
    url = written(tmp_path / "index", inverted(), True)
    assert read(f"{url}?where=id<0").keys() == {one for one in IDS.tolist() if one < 0}
    first, again, other = (read(f"{url}?sample=20&seed={seed}") for seed in (3, 3, 4))
    assert len(first) == 20 and first.keys() == again.keys() != other.keys()


def test_no_tampered_file_does_harm(tmp_path: Path) -> None:
    """Every file is read wrongly, or refused in words: never beyond its end, and never by the process dying."""
    rng, refused = np.random.default_rng(0), 0
    for kind in ("graph with ids", "more lists than rows fill", "inverted lists with a map"):
        make, with_ids, _ = KINDS[kind]
        written(tmp_path / "index", make(), with_ids)
        whole = (tmp_path / "index").read_bytes()
        for trial in range(150):
            data = bytearray(whole)
            place = int(rng.integers(0, min(len(data), 400) if trial % 2 else len(data)))
            if trial % 3:
                data[place : place + 8] = rng.bytes(8) if trial % 3 == 1 else b"\xff" * 7 + b"\x7f"
            else:
                del data[place:]
            (tmp_path / "bad").write_bytes(data)
            try:
                read(f"faiss:{tmp_path / 'bad'}")
            except LimpetError:
                refused += 1
    assert refused > 150  # all that were cut off; most of the others changed numbers of vectors, or of the graph
    nested = b"".join(b"IxMp" + np.array([DIM], "<i4").tobytes() + bytes(24) + b"\1" + bytes(4) for _ in range(9))
    (tmp_path / "bad").write_bytes(nested)
    with pytest.raises(DataError, match="indexes within each other"):
        open_source(f"faiss:{tmp_path / 'bad'}")
