from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.embedding_set import joined
from limpet.errors import DataError, SpaceMismatchError, shown
from limpet.geometry import Euclidean, Hypersphere, Lorentz


def build(rows: int = 4, **changes: Any) -> EmbeddingSet:
    values: dict[str, Any] = {
        "ids": [f"item {row}" for row in range(rows)],
        "vectors": np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32),
        "fingerprint": "declared:test",
        "space": Hypersphere(3),
        "labels": np.arange(rows) % 2,
        "class_names": ["cat", "dog"],
        "columns": {"camera": np.arange(rows)},
    }
    return EmbeddingSet(**{**values, **changes})


def test_a_set_that_keeps_its_promises() -> None:
    embeddings = build()
    assert len(embeddings) == 4 and embeddings.dim == 3 and embeddings.declared
    assert embeddings.ids[1] == "item 1"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"ids": ["a", "b", "b", "c"]}, DataError, "more than once: 'b'"),
        ({"ids": ["a", "b", 3, "c"]}, DataError, "type int: 3"),
        ({"ids": ["a", "b", "c"]}, DataError, "4 vectors, 3 ids"),
        ({"vectors": np.zeros((4, 3))}, DataError, "float64"),
        ({"vectors": np.zeros(4, np.float32)}, DataError, r"shape \(4,\)"),
        ({"vectors": np.ones((4, 5), np.float32)}, SpaceMismatchError, "dimension 5"),
        ({"vectors": np.array([[1, 0, 0], [np.nan, 0, 0], [1, 1, 1], [np.inf, 0, 0]], np.float32)}, DataError,
         "2 of 4 vectors hold NaN or infinite values, first: 'item 1', 'item 3'"),
        ({"vectors": np.eye(4, 3, dtype=np.float32)}, DataError, "first: 'item 3'"),
        ({"fingerprint": "my model"}, DataError, "declared:my-model"),
        ({"fingerprint": "release:abc"}, DataError, "64 hexadecimal"),
        ({"role": "passage"}, DataError, "query, document, both"),
        ({"form": "raw"}, DataError, "features, points"),
        ({"labels": np.array([0, 1, 2, 0])}, DataError, "from 0 to 2, with 2 class names"),
        ({"labels": np.array([0, -1, 0, 0])}, DataError, "from -1"),
        ({"labels": np.array([0.0, 1, 0, 1])}, DataError, "float64"),
        ({"labels": np.array([0, 1])}, DataError, "2 labels"),
        ({"class_names": ["cat", "cat"]}, DataError, "'cat'"),
        ({"columns": {"camera": np.arange(3)}}, DataError, "3 column 'camera'"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(**changes)


def test_an_index_keeps_rows_together() -> None:
    embeddings = build(6)
    chosen = embeddings[np.array([4, 1, 3])]
    assert list(chosen.ids) == ["item 4", "item 1", "item 3"] and chosen.labels.tolist() == [0, 1, 1]
    assert chosen.columns["camera"].tolist() == [4, 1, 3]
    np.testing.assert_array_equal(chosen.vectors, embeddings.vectors[[4, 1, 3]])
    assert list(embeddings[embeddings.labels == 0].ids) == ["item 0", "item 2", "item 4"]
    assert len(embeddings[[]]) == 0 and list(embeddings[-2:].ids) == ["item 4", "item 5"]


def test_joined_sets_have_the_classes_of_both_by_name() -> None:
    first = build(2)
    second = build(3, ids=["a", "b", "c"], labels=np.array([0, 1, 1]), class_names=["dog", "emu"])
    both = joined([first, second])
    assert list(both.ids) == ["item 0", "item 1", "a", "b", "c"]
    assert [both.class_names[label] for label in both.labels] == ["cat", "dog", "dog", "emu", "emu"]
    np.testing.assert_array_equal(both.vectors, np.concatenate([first.vectors, second.vectors]))
    assert joined([first, second.replace(labels=None, class_names=None)]).labels is None


def test_zeros_are_appended_and_nothing_else_changes() -> None:
    narrow = build()
    wide = narrow.padded(Hypersphere(5))
    np.testing.assert_array_equal(wide.vectors[:, :3], narrow.vectors)
    assert wide.space == Hypersphere(5) and not wide.vectors[:, 3:].any()
    assert (wide.fingerprint, wide.ids, list(wide.columns)) == (narrow.fingerprint, narrow.ids, ["camera"])
    assert narrow.padded(narrow.space) is narrow
    for other in (Hypersphere(2), Euclidean(5), Lorentz(5)):
        with pytest.raises(SpaceMismatchError, match=r"dimension 3.*padded with zeros"):
            narrow.padded(other)
    assert build(space=Euclidean(3)).padded(Euclidean(4)).dim == 4


def test_a_pickled_set_is_the_same_set() -> None:
    embeddings = build()
    found = pickle.loads(pickle.dumps(embeddings))  # noqa: S301 - its own
    assert found.digest() == embeddings.digest() and found.fingerprint == embeddings.fingerprint
    with pytest.raises(TypeError, match="item assignment"):
        found.columns["camera"] = np.zeros(4)


def test_digest_covers_everything_but_the_name_of_the_model() -> None:
    digest = build().digest()
    assert build(fingerprint="declared:other").digest() == digest
    others = [
        build(ids=["a", "b", "c", "d"]), build(role="query"), build(form="features"), build(class_names=["dog", "cat"]),
        build(labels=np.zeros(4, np.int64)), build(labels=None), build(columns={}),
        build(vectors=np.ones((4, 3), np.float32)),
    ]  # fmt: skip
    assert len({digest, *(other.digest() for other in others)}) == 9


def test_string_array() -> None:
    strings = StringArray.of(["ape", "", "日本", "bee"])
    assert list(strings) == ["ape", "", "日本", "bee"] and strings[2] == "日本" and strings[-1] == "bee"
    assert list(strings[1:3]) == ["", "日本"] and list(strings[np.array([3, 0])]) == ["bee", "ape"]
    assert strings.find(["bee", "cow", "ape"]).tolist() == [3, -1, 0]
    assert StringArray.of(["a", "b", "a", "b"]).duplicates == ["a", "b"]
    assert strings == StringArray.of(iter(["ape", "", "日本", "bee"])) and strings != StringArray.of(["ape"])
    assert len(StringArray.of([])) == 0
    with pytest.raises(IndexError):
        strings[4]
    with pytest.raises(DataError, match="damaged"):
        StringArray(np.zeros(3, np.uint8), np.array([0, 2]))


def test_importable_without_torch() -> None:
    code = "import sys, limpet.embeddings.storage; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_text_that_is_not_utf8_is_named() -> None:
    with pytest.raises(DataError, match=r"'caf\\udce9'(.|\n)*Next: rename"):
        StringArray.of(["fine", b"caf\xe9".decode(errors="surrogateescape")])


@pytest.mark.parametrize("pair", [("caf\u00e9", "cafe\u0301"), ("\uac01", "\u1100\u1161\u11a8"), ("\u00c5", "\u212b")])
def test_shown_ids_that_look_alike_differ(pair: tuple[str, str]) -> None:
    composed, other = pair
    assert shown([composed]) == f"'{composed}'"
    assert shown([other]).isprintable() and "\\u" in shown([other])
    error = DataError(f"'{composed}' and '{other}'.")
    assert f"'{composed}'" in str(error) and "\\u" in str(error)


def test_vectors_and_a_name_of_their_model_make_a_set() -> None:
    rows = np.eye(5, 3, dtype=np.float32) + 1
    made = EmbeddingSet(rows, model="v1")
    assert made.fingerprint == "declared:v1" and made.space == Hypersphere(3) and list(made.ids) == list("01234")
    assert EmbeddingSet(rows, fingerprint="declared:v1").digest() == made.digest()


@pytest.mark.parametrize("who", [{}, {"model": "v1", "fingerprint": "declared:v1"}, {"model": ""}])
def test_a_set_has_one_model(who: dict[str, str]) -> None:
    with pytest.raises(DataError, match="fingerprint"):
        EmbeddingSet(np.ones((2, 3), np.float32), **who)


def test_rows_are_indexed_as_those_of_an_array() -> None:
    made = build(6)
    for rows in (slice(1, 4), slice(None, None, -2), made.labels == 1, [3, 0], np.array([-1])):
        part = made[rows]
        np.testing.assert_array_equal(part.vectors, made.vectors[rows])
        assert list(part.ids) == list(np.array(list(made.ids))[rows])
        np.testing.assert_array_equal(part.columns["camera"], made.columns["camera"][rows])
    for row in (0, np.int64(2)):
        with pytest.raises(DataError, match=rf"\[\[{row}\]\]"):
            made[row]


def test_an_array_of_a_set_is_its_vectors() -> None:
    made = build()
    assert np.shares_memory(np.asarray(made), made.vectors) and not np.shares_memory(np.array(made), made.vectors)
    assert np.asarray(made, np.float64).dtype == np.float64
    np.testing.assert_allclose(np.dot(made, np.ones(3)), made.vectors.sum(axis=1), rtol=1e-6)
