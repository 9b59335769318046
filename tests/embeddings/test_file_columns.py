from __future__ import annotations

import pytest

from limpet.embeddings.files import FileColumns
from limpet.errors import DataError

USUAL = {"vector": "vector", "id": "id", "label": "label"}


def test_files_that_go_together_may_call_columns_differently() -> None:
    columns = FileColumns(vector=("embedding",), id=("sku",), label=("category",))
    assert columns.found("a", ["vector", "id"], USUAL) == {"vector": "vector", "id": "id"}
    named = {"vector": "embedding", "id": "sku", "label": "category"}
    assert columns.found("b", ["embedding", "sku", "category", "vector"], USUAL) == named


@pytest.mark.parametrize(("what", "asked"), [("vector", "emb_v3"), ("id", "idd2"), ("label", "categroy")])
def test_a_misspelt_name_does_not_fall_back_to_the_usual_one(what: str, asked: str) -> None:
    present = ["vector", "id", "label", "emb_v2", "idd1", "category"]
    with pytest.raises(DataError, match=rf"no column '{asked}'.*Did you mean"):
        FileColumns(**{what: (asked,)}).found("a", present, USUAL)
