"""What a model was trained on: found again by content under any id, never claimed where it is not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from limpet.data import TextSet
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.embeddings.trained_on import TrainedOn, digests_of_texts
from limpet.errors import DataError
from limpet.geometry import Hypersphere

TEXTS = ["where is my parcel", "cancel it", "Ünïcode", "where is my parcel "]


def embedded(texts: list[str], ids: list[str] | None = None, *, contents: bool = True, seed: int = 0) -> EmbeddingSet:
    vectors = np.random.default_rng(seed).normal(size=(len(texts), 4)).astype(np.float32)
    names = ids or [f"item {row}" for row in range(len(texts))]
    digests = digests_of_texts(texts) if contents else None
    return EmbeddingSet(vectors, StringArray.of(names), "declared:m", Hypersphere(4), contents=digests)


def test_trained_on_finds_a_text_under_another_id() -> None:
    record = TrainedOn.of(["a", "b"], digests_of_texts(TEXTS[:2]))
    found = record.among(embedded([TEXTS[1], TEXTS[3], TEXTS[0]], ["x", "a", "y"]))
    assert found.tolist() == [True, False, True]  # the id "a" has another text here


def test_trained_on_asks_ids_where_contents_are_not_known_and_never_bare_numbers() -> None:
    record = TrainedOn.of(["a", "00000001", "row 2"], digests_of_texts(TEXTS[:3]))
    given = embedded(["?"] * 4, ["a", "00000001", "row 2", "b"], contents=False)
    assert record.among(given).tolist() == [True, False, False, False]


def test_trained_on_knows_vectors_again_by_their_numbers() -> None:
    old, new = (embedded(TEXTS, ["0", "1", "2", "3"], contents=False, seed=seed) for seed in (1, 2))
    record = TrainedOn.of_pairs(old, new)
    other = embedded(TEXTS, ["0", "1", "2", "3"], contents=False, seed=3)
    assert record.among(new).all() and record.among(old).all() and not record.among(other).any()


def test_marked_keeps_what_an_earlier_model_was_trained_on() -> None:
    items = embedded(TEXTS)
    first = TrainedOn.of(["p"], digests_of_texts(TEXTS[:1])).marked(items)
    assert items.trained_on is None and first.trained_on.tolist() == [True, False, False, False]
    both = TrainedOn.of(["q"], digests_of_texts(TEXTS[1:2])).marked(first)
    assert both.trained_on.tolist() == [True, True, False, False]
    assert both[[1, 3]].trained_on.tolist() == [True, False]


def test_files_carry_contents_and_marks(tmp_path: Path) -> None:
    marked = TrainedOn.of(["p"], digests_of_texts(TEXTS[:1])).marked(embedded(TEXTS))
    read = storage.load(storage.save(marked, tmp_path / "a.safetensors"), verify=True)
    assert read.contents.tolist() == marked.contents.tolist() and read.trained_on.tolist() == marked.trained_on.tolist()
    assert marked.digest() == embedded(TEXTS).digest()
    plain = storage.load(storage.save(embedded(TEXTS, contents=False), tmp_path / "b.safetensors"))
    assert plain.contents is None and plain.trained_on is None


def test_a_record_takes_sixteen_bytes_an_item() -> None:
    texts = [f"text {row}" for row in range(1000)]
    record = TrainedOn.of([f"id {row}" for row in range(1000)], digests_of_texts(texts))
    assert sum(one.nbytes for one in record.arrays().values()) <= 16 * 1000 + 1 and len(record) == 1000


@pytest.mark.parametrize("damage", ["order", "type", "missing"])
def test_from_arrays_refuses_what_is_no_record(damage: str) -> None:
    arrays = TrainedOn.of(["a", "b"], digests_of_texts(["a", "b"])).arrays()
    arrays |= {"order": {"ids": arrays["ids"][::-1]}, "type": {"contents": np.zeros(2)}, "missing": {}}[damage]
    if damage == "missing":
        del arrays["known"]
    with pytest.raises(DataError):
        TrainedOn.from_arrays(arrays)


def test_texts_have_the_digests_of_what_they_say() -> None:
    texts = TextSet(StringArray.of(TEXTS), None, (), StringArray.of("abcd"))
    assert texts.digests().tolist() == digests_of_texts(TEXTS).tolist() and len(set(texts.digests())) == 4
