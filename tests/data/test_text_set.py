from collections.abc import Callable

import numpy as np
import pytest

from limpet.data import TextData, TextSet
from limpet.embeddings import StringArray
from limpet.errors import DataError

TEXTS = ["what is my balance", "play a song", "how much money have I", "louder please", "ünïcode, too"]


def build(**changes: object) -> TextSet:
    """Five texts of four classes, of which class 1 has none."""
    values = {
        "texts": StringArray.of(TEXTS),
        "labels": np.array([0, 2, 0, 2, 3]),
        "class_names": ("bank", "call", "music", "rest"),
        "ids": StringArray.of(f"text-{row}" for row in range(5)),
        **changes,
    }
    return TextSet(**values)  # type: ignore[arg-type]


def unlabelled(**changes: object) -> TextSet:
    return build(labels=None, class_names=(), **changes)


def test_selecting_keeps_texts_labels_and_ids_together() -> None:
    chosen = build()[np.array([3, 0])]
    assert list(chosen.texts) == ["louder please", "what is my balance"]
    assert list(chosen.ids) == ["text-3", "text-0"] and chosen.labelled().tolist() == [2, 0]
    assert chosen.class_names == build().class_names


def test_a_number_chooses_no_set() -> None:
    with pytest.raises(DataError):
        build()[2]


def test_a_mask_keeps_the_order_and_classes_are_chosen_by_number() -> None:
    assert list(build()[build().labelled() == 0].ids) == ["text-0", "text-2"]
    assert list(build().select_classes([3, 0]).ids) == ["text-0", "text-2", "text-4"]


def test_compacting_drops_unused_classes_and_keeps_names() -> None:
    compact = build().compact()
    assert compact.class_names == ("bank", "music", "rest") and compact.labelled().tolist() == [0, 1, 0, 1, 2]


def test_texts_without_labels() -> None:
    texts = unlabelled()
    assert texts[[1]].labels is None and repr(texts) == "TextSet(5 texts, no labels)"
    assert repr(build()) == "TextSet(5 texts, 4 classes)"
    for ask in (texts.labelled, texts.compact, lambda: texts.select_classes([0])):
        with pytest.raises(DataError, match="5 texts have no labels"):
            ask()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(4, np.int64)}, "5 texts, 5 ids, 4 labels"),
        ({"ids": StringArray.of(["a"] * 5)}, "Ids occur more than once: 'a'"),
        ({"labels": np.full(5, 4)}, "from 4 to 4, with 4 class names"),
        ({"labels": np.zeros(5, np.int32)}, r"int32(.|\n)*\(texts,\)"),
        ({"class_names": ("a", "b", "c", "a")}, "Class names occur more than once: 'a'"),
        ({"labels": None}, "4 class names, but no labels"),
        ({"texts": [*TEXTS[:3], "", "\t \n\u00a0"]}, r"2 of 5 texts are empty: 'text-3', 'text-4'"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(**changes)


def test_the_digest_covers_everything() -> None:
    assert build().digest() == build().digest() == build()[np.arange(5)].digest()
    others = [
        build(texts=[*TEXTS[:4], "ünïcode, to"]),
        build(texts=["what is my balance ", *TEXTS[1:]]),
        build(ids=StringArray.of("abcde")),
        build(labels=np.array([0, 2, 0, 2, 2])),
        build(class_names=("bank", "call", "music", "others")),
        unlabelled(),
        build()[[1, 0, 2, 3, 4]],
    ]
    assert len({build().digest(), *(other.digest() for other in others)}) == 8


def test_equal_bytes_cut_at_other_places_are_other_texts() -> None:
    first, second = (unlabelled(texts=texts) for texts in (["ab", "c", "d", "e", "f"], ["a", "bc", "d", "e", "f"]))
    assert first.digest() != second.digest()


# --- with a protocol -------------------------------------------------------------------------------------------------


def data(**changes: TextSet) -> TextData:
    texts = build()
    parts = {"train": texts, "query": texts[[0, 1]], "gallery": texts[[2, 3, 4]], **changes}
    return TextData(name="made", description="", **parts)


def test_the_parts_of_a_data_set() -> None:
    assert {name: len(part) for name, part in data().parts().items()} == {"train": 5, "query": 2, "gallery": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda texts: {"query": texts[[0, 1]].compact()}, "other class names"),
        (lambda texts: {"gallery": texts[[0, 3, 4]]}, "1 texts of 'made' are both .* first: 'text-0'"),
        (lambda texts: {"query": texts[[0]]}, "query texts of 'made' have 1 class"),
        (lambda texts: {"train": texts[[]]}, "train texts of 'made' have 0 classes"),
        (lambda texts: {"train": unlabelled()}, "have no labels"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    change: Callable[[TextSet], dict[str, TextSet]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        data(**change(build()))
