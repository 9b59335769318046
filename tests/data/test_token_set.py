from __future__ import annotations

import numpy as np
import pytest

from limpet.data.token_set import PADDING, TokenSet
from limpet.embeddings import StringArray
from limpet.errors import DataError


def tokens(*texts: list[int]) -> TokenSet:
    ids = StringArray.of([str(row) for row in range(len(texts))])
    labels = np.arange(len(texts)) % 2
    return TokenSet.of([np.array(one, np.int64) for one in texts], labels, ("a", "b"), ids)


def test_texts_are_padded_to_the_longest_of_those_that_are_read() -> None:
    items = tokens([2, 7, 3], [5], [4, 6], [9, 9, 9, 9])
    assert items.lengths.tolist() == [3, 1, 2, 4]
    assert items.read(np.array([2, 0])).tolist() == [[4, 6, PADDING], [2, 7, 3]]
    assert items.read(np.array([1])).tolist() == [[5]]
    assert items.read(np.empty(0, np.int64)).shape == (0, 0)


def test_the_digest_covers_where_a_text_ends() -> None:
    assert tokens([1, 2], [3]).digest() != tokens([1], [2, 3]).digest()
    assert tokens([1, 2], [3]).digest() == tokens([1, 2], [3]).digest()


@pytest.mark.parametrize("texts", [([1], []), ([1], [PADDING])])
def test_a_text_has_tokens_from_zero(texts: tuple[list[int], ...]) -> None:
    with pytest.raises(DataError, match="at least one token"):
        tokens(*texts)


def test_parts_of_another_length_are_refused() -> None:
    ids = StringArray.of(["x"])
    with pytest.raises(DataError, match="2 labels"):
        TokenSet(np.array([1], np.int32), np.array([0, 1]), np.array([0, 1]), ("a", "b"), ids)
    with pytest.raises(DataError, match="offsets from 0"):
        TokenSet(np.array([1, 2], np.int32), np.array([0, 1]), np.array([0]), ("a",), ids)
