from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.data.item_facts import LONGEST, facts_of
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Hypersphere

ROWS = {"id": ["a", "b"], "title": ["red shoe", ""], "price": [1234.5, 7.0], "vector": [[1.0, 0.0], [0.0, 1.0]]}


def test_a_row_of_a_table_is_what_people_know_of_an_item(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text,price\na,my parcel did not come,3\nb,where is it,\n")
    facts = facts_of(str(tmp_path / "t.csv"), None)
    assert facts("a") == {"text": "my parcel did not come", "price": "3"}
    assert facts("b") == {"text": "where is it"} and facts("c") == {}
    pq.write_table(pa.table(ROWS), tmp_path / "t.parquet")
    facts = facts_of(str(tmp_path / "t.parquet"), None)
    assert facts("a") == {"title": "red shoe", "price": "1,234.5"} and facts("b") == {"price": "7"}


def test_columns_of_embeddings_are_known_too_and_a_table_goes_first(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,camera\na,north\n")
    columns = {"camera": np.array([1, 2]), "price": np.array([0.5, 1.5])}
    sets = [EmbeddingSet(np.eye(2, dtype=np.float32), ["a", "b"], "declared:x", Hypersphere(2), columns=columns)]
    assert facts_of(None, None, sets)("a") == {"camera": "1", "price": "0.5"}
    assert facts_of(str(tmp_path / "t.csv"), None, sets)("a") == {"camera": "north", "price": "0.5"}
    assert facts_of(str(tmp_path / "t.csv"), None, sets)("b") == {"camera": "2", "price": "1.5"}


def test_long_texts_are_cut_and_lines_of_text_have_the_ids_that_embed_gives_them(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("x" * 1000 + "\nshort\n")
    facts = facts_of(str(tmp_path / "t.txt"), None)
    assert facts("00000000") == {"text": "x" * LONGEST + "…"} and facts("00000001") == {"text": "short"}


def test_a_table_without_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,text\na,b\n")
    with pytest.raises(DataError, match="has the columns name, text"):
        facts_of(str(tmp_path / "t.csv"), None)
