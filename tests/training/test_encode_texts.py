from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data import TextSet
from limpet.embeddings import StringArray, storage
from limpet.errors import ConfigError, DataError
from limpet.geometry import Hypersphere
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return open_text_encoder("package:wordllama", truncate_dim=16, query_prefix="find: ")


@pytest.fixture
def texts() -> TextSet:
    return TextSet(
        texts=StringArray.of(["what is my balance", "play a song", "how much money have I"]),
        labels=np.array([1, 0, 1]),
        class_names=("music", "bank"),
        ids=StringArray.of("xyz"),
    )


def test_texts_become_points_with_their_ids_and_classes(encoder: TextEncoder, texts: TextSet) -> None:
    found = embed_texts(encoder, texts, role="query")
    assert list(found.ids) == ["x", "y", "z"] and found.labels is not None and found.labels.tolist() == [1, 0, 1]
    assert found.class_names is not None and list(found.class_names) == ["music", "bank"]
    assert (found.role, found.prefix, found.form, found.space) == ("query", "find: ", "points", Hypersphere(16))
    assert found.fingerprint == encoder.fingerprint
    raw = encoder.encode(texts.texts, role="query")
    np.testing.assert_allclose(found.vectors, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(embed_texts(encoder, texts, role="query", form="features").vectors, raw)


def test_texts_without_labels(encoder: TextEncoder, texts: TextSet) -> None:
    bare = TextSet(texts.texts, None, (), texts.ids)
    found = embed_texts(encoder, bare, role="document")
    assert found.labels is None and found.class_names is None and found.prefix == ""


def test_nothing_and_what_has_no_prefix_are_refused(encoder: TextEncoder, texts: TextSet) -> None:
    with pytest.raises(DataError, match="nothing to encode"):
        embed_texts(encoder, texts[[]])
    with pytest.raises(ConfigError, match="these texts are both"):
        embed_texts(encoder, texts)


def test_a_second_run_encodes_nothing(encoder: TextEncoder, texts: TextSet, tmp_path: Path) -> None:
    counted: list[dict[str, Any]] = []
    runs = [
        embed_texts(encoder, texts, role="query", form=form, cache=tmp_path, progress=counted.append)
        for form in ("features", "points", "features")
    ]
    assert counted == [{"done": 3, "total": 3}] and len(list(tmp_path.iterdir())) == 1
    assert (
        runs[0].digest() == runs[2].digest() and runs[1].digest() == embed_texts(encoder, texts, role="query").digest()
    )
    assert runs[1].prefix == "find: "


def test_whatever_changes_the_vectors_has_a_file_of_its_own(texts: TextSet, tmp_path: Path) -> None:
    def run(texts: TextSet, role: str, **options: object) -> None:
        embed_texts(open_text_encoder("package:wordllama", **options), texts, role=role, cache=tmp_path)  # type: ignore[arg-type]

    run(texts, "query")
    run(texts, "document")
    run(texts, "query", query_prefix="q: ")
    run(texts, "query", truncate_dim=8)
    run(texts[[0, 1]], "query")
    assert len(list(tmp_path.iterdir())) == 5
    run(texts, "document", query_prefix="q: ")
    assert len(list(tmp_path.iterdir())) == 5, "the prefix of queries is nothing to documents"


def test_the_prefix_is_kept_in_the_file(encoder: TextEncoder, texts: TextSet, tmp_path: Path) -> None:
    found = embed_texts(encoder, texts, role="query")
    again = storage.load(storage.save(found, tmp_path / "e.safetensors"), verify=True)
    assert (again.prefix, again.role) == ("find: ", "query") and again[[1]].prefix == "find: "
    assert again.digest() != again.replace(prefix="").digest()
