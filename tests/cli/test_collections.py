"""Commands that read collections of vector databases and indexes of FAISS: as they read files, to the digit."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from pymilvus import DataType, MilvusClient
from qdrant_client import QdrantClient, models

from crash import chroma_server
from crash.applications import chroma_client
from limpet.cli import main
from limpet.engines.reading import embeddings_of
from limpet.engines.sources import open_source

ITEMS, CLASSES, DIM = 48, 6, 8


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Where the vectors of two models are: in files, in both databases, and in indexes."""
    folder, rng = tmp_path_factory.mktemp("places"), np.random.default_rng(0)
    labels, ids = np.arange(ITEMS) % CLASSES, np.arange(ITEMS)
    centres, noise = rng.normal(size=(CLASSES, DIM))[labels], rng.normal(size=(ITEMS, DIM))
    client, lite = QdrantClient(path=str(folder / "qdrant")), MilvusClient(str(folder / "milvus.db"))
    chroma = chroma_client(chroma_server.shared().url)
    found: dict[str, dict[str, str]] = {}
    for model, weight in (("old", 1.4), ("new", 0.6)):
        vectors = (centres + weight * noise + 0.2 * rng.normal(size=noise.shape)).astype(np.float32)
        for _ in range(9):  # until Qdrant, which divides by the length, changes nothing
            vectors = np.array([np.array(one) / np.linalg.norm(one) for one in vectors.tolist()], np.float32)
        file = folder / f"{model}.npz"
        np.savez(file, vectors=vectors, ids=ids.astype(str), labels=np.array([f"c{label}" for label in labels]))
        rows = [
            (int(one), vector.tolist(), f"c{label}") for one, vector, label in zip(ids, vectors, labels, strict=True)
        ]
        client.create_collection(model, models.VectorParams(size=DIM, distance=models.Distance.COSINE))
        client.upsert(model, [models.PointStruct(id=one, vector=v, payload={"topic": label}) for one, v, label in rows])
        schema = lite.create_schema()
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("emb", DataType.FLOAT_VECTOR, dim=DIM)
        schema.add_field("topic", DataType.VARCHAR, max_length=9)
        index = lite.prepare_index_params()
        index.add_index("emb", index_type="FLAT", metric_type="COSINE")
        lite.create_collection(model, schema=schema, index_params=index)
        lite.insert(model, [{"key": one, "emb": vector, "topic": label} for one, vector, label in rows])
        name = f"{model}{uuid.uuid4().hex}"
        made = chroma.create_collection(name, embedding_function=None, configuration={"hnsw": {"space": "ip"}})
        made.add([str(one) for one, _, _ in rows], vectors, [{"topic": label} for _, _, label in rows])
        flat = faiss.IndexIDMap(faiss.IndexFlatIP(DIM))
        flat.add_with_ids(vectors, ids)
        faiss.write_index(flat, str(folder / f"{model}.faiss"))
        found[model] = {
            "files": str(file), "qdrant": f"qdrant:{folder / 'qdrant'}#{model}?label=topic",
            "milvus": f"milvus:{folder / 'milvus.db'}#{model}?label=topic", "faiss": f"faiss:{folder / model}.faiss",
            "chroma": f"{chroma_server.shared().url}/{name}?label=topic&similarity=cosine",
        }  # fmt: skip
    client.close()
    lite.close()
    return found


@pytest.mark.parametrize("engine", ["qdrant", "milvus", "chroma", "faiss"])
def test_a_collection_gives_the_vectors_that_were_put_in(places: dict[str, dict[str, str]], engine: str) -> None:
    read = embeddings_of(open_source(places["old"][engine]), fingerprint="declared:old")
    with np.load(places["old"]["files"]) as file:
        rows = [list(read.ids).index(one) for one in file["ids"]]
        np.testing.assert_array_equal(np.asarray(read.vectors)[rows], file["vectors"])
        if engine != "faiss":
            assert read.class_names is not None and read.labels is not None
            assert [read.class_names[label] for label in read.labels[rows]] == file["labels"].tolist()


def told(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    code = main([*map(str, words), "--json"])
    out = capsys.readouterr()
    assert code in (0, 1), out.err
    found: dict[str, Any] = json.loads(out.out)
    return found


def measured(document: Any) -> Any:
    """Return what of results was measured, and not when, where and of what."""
    if isinstance(document, dict):
        kept = {name: value for name, value in document.items() if name not in ("seconds", "versions")}
        return {name: measured(value) for name, value in kept.items() if isinstance(value, dict | list | float)}
    if isinstance(document, list):
        return [measured(value) for value in document if not str(value).startswith("Fitting took")]
    return document


@pytest.mark.parametrize("engine", ["qdrant", "milvus", "chroma"])
@pytest.mark.parametrize("command", ["evaluate", "adapt"])
def test_commands_measure_the_same_as_on_files(
    places: dict[str, dict[str, str]], engine: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    further = ["--old-name", "old", "--new-name", "new", "--resamples", 100, "--report", "none"]
    further += ["--adapter", "ridge"] if command == "adapt" else []
    results = {}
    for kind in ("files", engine):
        results[kind] = told(capsys, command, "--old", places["old"][kind], "--new", places["new"][kind],
                             *further, "--out", tmp_path / kind)  # fmt: skip
    numbers = {kind: measured(one) for kind, one in results.items()}
    assert numbers[engine] == numbers["files"] and len(str(numbers["files"])) > 1000
