"""Every public name × what people give it: converted by a stated rule, or refused in words, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import limpet
from limpet.adapters import build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, LimpetError
from limpet.geometry import Hypersphere

ROWS = np.eye(8, 4, dtype=np.float32) + np.float32(0.1)
IDS = [f"i{row}" for row in range(8)]
SPACE = Hypersphere(4)


def a_set(model: str = "old", **changes: Any) -> EmbeddingSet:
    values: dict[str, Any] = {"ids": IDS, "vectors": ROWS, "fingerprint": f"declared:{model}", "space": SPACE}
    return EmbeddingSet(**{**values, **changes})


GIVEN: dict[str, Any] = {
    "float32": ROWS,
    "float64": ROWS.astype(np.float64),
    "float16": ROWS.astype(np.float16),
    "integers": np.ones((8, 4), np.int64),
    "tensor": torch.from_numpy(ROWS),
    "tensor that learns": torch.from_numpy(ROWS).requires_grad_(),
    "bfloat16": torch.from_numpy(ROWS).bfloat16(),
    "float64 tensor": torch.from_numpy(ROWS).double(),
    "lists": ROWS.tolist(),
    "ragged lists": [[1.0], [1.0, 2.0]],
    "one row": ROWS[0],
    "texts": ["red", "blue"],
    "a text": "vectors",
    "a number": 3,
    "None": None,
    "a table": pa.table({"id": IDS}),
    "a set": a_set(),
}


def gallery() -> limpet.Gallery:
    made = limpet.Gallery.create("memory://", fingerprint="declared:old", space=SPACE)
    made.add(a_set())
    return made


def searching(given: Any) -> object:
    with gallery() as it:
        return it.search(given, 2)


def adding(given: Any) -> object:
    with limpet.Gallery.create("memory://", fingerprint="declared:old", space=SPACE) as it:
        return it.add(given)


def fitted() -> limpet.Adapter:
    return build_adapter("procrustes", {}).fit(a_set("old"), a_set("new"))


CALLS: dict[str, Callable[[Any], object]] = {
    "EmbeddingSet vectors": lambda given: a_set(vectors=given),
    "EmbeddingSet model": lambda given: limpet.EmbeddingSet(ROWS, model=given),
    "EmbeddingSet ids": lambda given: a_set(ids=given),
    "EmbeddingSet labels": lambda given: a_set(labels=given),
    "EmbeddingSet class_names": lambda given: a_set(class_names=given, labels=None),
    "EmbeddingSet columns": lambda given: a_set(columns={"price": given}),
    "EmbeddingSet space": lambda given: a_set(space=given),
    "EmbeddingSet fingerprint": lambda given: a_set(fingerprint=given),
    "evaluate old": lambda given: limpet.evaluate(given, a_set("new"), resamples=10),
    "evaluate new gallery": lambda given: limpet.evaluate((a_set(),) * 2, (a_set("new"), given), resamples=10),
    "adapt old": lambda given: limpet.adapt(given, a_set("new")),
    "adapt new": lambda given: limpet.adapt(a_set(), given),
    "Adapter.fit sets": lambda given: build_adapter("procrustes", {}).fit(given, a_set("new")),
    "Adapter.fit arrays": lambda given: build_adapter("procrustes", {}).fit(given, given),
    "Adapter.map": lambda given: fitted().map(given),
    "Adapter.apply": lambda given: fitted().apply(given),
    "Gallery.search": searching,
    "Gallery.add": adding,
    "save_embeddings": lambda given: limpet.save_embeddings(given, Path("made.safetensors")),
    "load_embeddings": lambda given: limpet.load_embeddings(given),
    "load_sides": lambda given: limpet.load_sides(given),
}
TAKES_NO_EMBEDDINGS = {
    "ADAPTERS", "AsyncClient", "Client", "METHODS", "CompatibilityMethod", "EncoderSpec", "Experiment", "Geometry",
    "Hypersphere", "LimpetError", "Recipe", "Release",
    "Space", "embed_images", "encode", "fit", "load_dataset", "load_release", "open_link", "open_release",
    "open_text_model", "open_upgrade", "save_release", "start_upgrade", "train_release", "CompatibilityLoss",
}  # fmt: skip
"""Names of models, settings and folders; `encode`, `fit` and `CompatibilityLoss` read tensors in loops of one's own."""


def test_every_public_name_is_here() -> None:
    here = {call.split()[0].split(".")[0] for call in CALLS}
    assert here | TAKES_NO_EMBEDDINGS == set(limpet.__all__)


@pytest.mark.parametrize("call", CALLS)
def test_whatever_is_given_is_converted_or_refused_in_words(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, given in GIVEN.items():
        try:
            CALLS[call](given)
        except LimpetError as refusal:
            assert refusal.given and (refusal.expected or refusal.to_do), kind
        except Exception as error:
            raise AssertionError(f"{call} of {kind}") from error


EXACT = ("tensor", "tensor that learns", "bfloat16", "float16")


@pytest.mark.parametrize("kind", EXACT)
def test_vectors_that_float32_holds_exactly_are_converted(kind: str) -> None:
    given = GIVEN[kind]
    expected = given.detach().float().numpy() if isinstance(given, torch.Tensor) else given.astype(np.float32)
    found = a_set(vectors=given).vectors
    assert found.dtype == np.float32 and np.array_equal(found, expected)


@pytest.mark.parametrize("given", [ROWS.astype(np.float64), torch.from_numpy(ROWS).double(), ROWS.tolist()])
def test_vectors_that_would_be_rounded_are_refused_with_the_line_that_rounds_them(given: Any) -> None:
    with pytest.raises(LimpetError, match="float64") as refusal:
        a_set(vectors=given)
    assert "numpy.asarray(vectors, numpy.float32)" in refusal.value.to_do
    assert len(a_set(vectors=np.asarray(given, np.float32))) == 8


@pytest.mark.parametrize("given", [range(8), np.arange(8), torch.arange(8), [np.int32(row) for row in range(8)]])
def test_whole_numbers_are_ids_as_files_have_them(given: Any) -> None:
    assert list(a_set(ids=given).ids) == [str(row) for row in range(8)]


@pytest.mark.parametrize("given", [[0, 1] * 4, (0, 1) * 4, np.array([0, 1] * 4, np.int32), torch.tensor([0, 1] * 4)])
def test_labels_are_whole_numbers_of_any_kind(given: Any) -> None:
    found = a_set(labels=given).labels
    assert found is not None and found.dtype == np.int64 and found.tolist() == [0, 1] * 4


def test_labels_may_be_the_names_of_their_classes() -> None:
    named = a_set(labels=["dog", "cat"] * 4)
    assert named.labels is not None and named.class_names is not None
    assert named.labels.tolist() == [1, 0] * 4 and list(named.class_names) == ["cat", "dog"]
    known = a_set(labels=["dog", "cat"] * 4, class_names=["dog", "cat", "cow"])
    assert known.labels is not None and known.labels.tolist() == [0, 1] * 4
    with pytest.raises(LimpetError, match="'dog'"):
        a_set(labels=["dog"] * 8, class_names=["cat"])


def test_load_embeddings_reads_what_the_commands_read(tmp_path: Path) -> None:
    own, npz, npy = (tmp_path / name for name in ("own.safetensors", "made.npz", "made.npy"))
    limpet.save_embeddings(a_set(), own)
    np.savez(npz, vectors=ROWS, ids=np.array(IDS))
    np.savez(tmp_path / "other.npz", emb=ROWS.astype(np.float64), key=np.array(IDS))
    np.save(npy, ROWS)
    table = pa.table({"id": IDS, "vector": list(ROWS)})
    (tmp_path / "parts").mkdir()
    pq.write_table(table, tmp_path / "parts" / "1.parquet")
    pq.write_table(table, tmp_path / "made.parquet")
    limpet.save_embeddings(a_set("new"), tmp_path / "runs" / "new" / "embeddings.safetensors")
    read = limpet.load_embeddings
    for place in (own, npz, tmp_path / "parts", tmp_path / "made.parquet", tmp_path / "runs"):
        assert np.array_equal(read(place).vectors, ROWS) and list(read(str(place)).ids) == IDS, place
    assert len(read(npy)) == 8 and read(npz, model="v1").fingerprint == "declared:v1"
    assert list(read(tmp_path / "other.npz").ids) == IDS
    url = f"parquet:{tmp_path / 'made.parquet'}"
    assert list(read(url, model="v1", similarity="euclidean").ids) == IDS


def test_load_sides_reads_queries_and_gallery_of_a_model(tmp_path: Path) -> None:
    for part in ("query", "gallery"):
        limpet.save_embeddings(a_set(), tmp_path / "both" / f"{part}.safetensors")
    one = tmp_path / "one.npz"
    np.savez(one, vectors=ROWS, ids=np.array(IDS))
    both, alone, twice = limpet.load_sides(tmp_path / "both"), limpet.load_sides(one), limpet.load_sides(one, str(one))
    assert not both.leave_one_out and list(both.query.ids) == list(both.gallery.ids) == IDS
    assert alone.leave_one_out and list(alone.without({IDS[0]}).query.ids) == IDS[1:]
    assert twice.query.fingerprint == twice.gallery.fingerprint == f"declared:{one}"
    with pytest.raises(ConfigError, match="not declared:v1"):
        limpet.load_sides(tmp_path / "both", model="v1")
    for name in ("questions", "requests"):
        limpet.save_embeddings(a_set(), tmp_path / name / "model" / "embeddings.safetensors")
    folders = limpet.load_sides(tmp_path / "questions", tmp_path / "requests")
    assert folders.query.fingerprint == folders.gallery.fingerprint == a_set().fingerprint


def test_load_embeddings_reads_the_first_part_and_the_named_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", vectors=ROWS, ids=np.array(IDS))
    with pytest.raises(ConfigError, match="does not say which model"):
        limpet.load_embeddings(tmp_path / "one.npz", named=True)
    found = limpet.load_embeddings(tmp_path / "one.npz", named=True, fingerprint="declared:v1")
    assert found.fingerprint == "declared:v1"
    limpet.save_embeddings(a_set(), tmp_path / "runs" / "train.safetensors")
    assert list(limpet.load_embeddings(tmp_path / "runs", parts=("query", "train")).ids) == IDS
    with pytest.raises(ConfigError, match=r"query.*or gallery"):
        limpet.load_embeddings(tmp_path / "runs", parts=("query", "gallery"))
