from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet.evaluation.protocols import Relevance, RelevancePairs

Make = Callable[..., Any]


def pairs(*rows: tuple[str, str] | tuple[str, str, bool]) -> RelevancePairs:
    return RelevancePairs(
        StringArray.of(row[0] for row in rows),
        StringArray.of(row[1] for row in rows),
        np.array([len(row) > 2 and row[2] for row in rows], np.bool_),
    )


def test_items_answer_the_queries_they_are_paired_with(make_rankings: Make) -> None:
    query, gallery = make_rankings([[4, 3, 2, 1]] * 3, ids=["a", "b", "c", "d"])
    protocol = Relevance(pairs=pairs(("q2", "c"), ("q0", "d"), ("q0", "b"), ("q2", "a", True), ("q0", "c", True)))
    found = protocol.measure(query, gallery, ["map", "recall@1"])
    np.testing.assert_allclose(found["map"], [(1 / 2 + 2 / 3) / 2, np.nan, 1 / 2])
    np.testing.assert_array_equal(found["recall@1"], [0, np.nan, 0])
    assert protocol.left_out(query, gallery) == {
        "queries without relevant items": 1,
        "gallery items ignored, over all queries": 2,
        "pairs with a query or item that is not embedded": 0,
    }
    zero = Relevance(pairs=protocol.pairs, no_relevant="zero").measure(query, gallery, ["recall@1"])["recall@1"]
    assert zero.tolist() == [0, 0, 0]


def test_a_query_whose_items_are_all_ignored_has_no_answer(make_rankings: Make) -> None:
    query, gallery = make_rankings([[2, 1]] * 2, ids=["a", "b"])
    found = Relevance(pairs=pairs(("q0", "a", True), ("q1", "b"))).measure(query, gallery, ["map"])["map"]
    np.testing.assert_array_equal(found, [np.nan, 1 / 2])


def test_unknown_ids_are_named_and_counted(make_rankings: Make) -> None:
    query, gallery = make_rankings([[2, 1]], ids=["a", "b"])
    given = pairs(("q0", "b"), ("q7", "a"), ("q7", "x"), ("q0", "y"))
    with pytest.raises(DataError, match=r"3 of 4 pairs .*: 1 queries \('q7'\); 2 items \('x', 'y'\)"):
        Relevance(pairs=given).measure(query, gallery, ["map"])
    leaving = Relevance(pairs=given, unknown="leave-out")
    assert leaving.measure(query, gallery, ["map"])["map"].tolist() == [1 / 2]
    assert leaving.left_out(query, gallery)["pairs with a query or item that is not embedded"] == 3
    for unknown in ("refuse", "leave-out"):
        with pytest.raises(EmptyOverlapError, match="1 of 1 pairs name what is not embedded"):
            Relevance(pairs=pairs(("q0", "z")), unknown=unknown).measure(query, gallery, ["map"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown='drop'"):
        Relevance(pairs=given, unknown="drop")  # type: ignore[arg-type]


def test_repeated_pairs_are_refused(make_rankings: Make) -> None:
    query, gallery = make_rankings([[2, 1]], ids=["a.jpg", "b"])
    for again in (("q0", "a.jpg"), ("q0", "a.jpg", True), ("q0", "a")):
        with pytest.raises(DataError, match=f"1 pairs are there before: 'q0 - {again[1]}'"):
            Relevance(pairs=pairs(("q0", "a.jpg"), ("q0", "b"), again)).measure(query, gallery, ["map"])


def test_ids_that_are_numbers_keep_their_last_part(make_rankings: Make) -> None:
    query, gallery = make_rankings([[2, 1]], ids=["sku.1", "sku.2"])
    assert Relevance(pairs=pairs(("q0", "sku.2"))).measure(query, gallery, ["map"])["map"].tolist() == [1 / 2]
    with pytest.raises(EmptyOverlapError, match=r"1 items \('sku.3'\)"):
        Relevance(pairs=pairs(("q0", "sku.3"))).measure(query, gallery, ["map"])


CSV = "query,day,item,ignore\nq0,mon,007,\nq0,tue,8,TRUE\nq1,wed,007,false\n"


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text(CSV)
    table = pa.table({"item": [7, 8, 7], "query": ["q0", "q0", "q1"], "ignore": [None, True, False]})
    pq.write_table(table, tmp_path / "clicks.parquet")
    for name, items in (("clicks.csv", ["007", "8", "007"]), ("clicks.parquet", ["7", "8", "7"])):
        found = Relevance.opened(tmp_path / name, unknown="leave-out").pairs
        assert (list(found.query), list(found.item)) == (["q0", "q0", "q1"], items)
        assert found.ignore.tolist() == [False, True, False]
    (tmp_path / "plain.csv").write_text("item,query\na,q0\n")
    assert RelevancePairs.read(tmp_path / "plain.csv").ignore.tolist() == [False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("query,label\nq,a\n", "has the columns query, label"),
        ("query,item,ignore\nq,a,maybe\n", "The column 'ignore' .* says 'maybe'"),
        ("query,item\nq,a,b\n", "Cannot read"),
        ("query,item\n", "has no row"),
        ("", "Cannot read"),
        ("query,item\n\xff,b\n", "Cannot read"),
    ],
)
def test_files_that_hold_something_else_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        RelevancePairs.read(path)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file"):
        RelevancePairs.read(tmp_path / "none.parquet")
    with pytest.raises(DataError, match=r"is no .csv or .parquet file"):
        RelevancePairs.read(tmp_path / "clicks.txt")
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(DataError, match="Cannot read"):
        RelevancePairs.read(tmp_path / "broken.parquet")
    pq.write_table(pa.table({"query": ["q", None], "item": [1.5, 2.0]}), tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=r"The column 'query' .* has 1 missing values"):
        RelevancePairs.read(tmp_path / "odd.parquet")
    pq.write_table(pa.table({"query": ["q", "r"], "item": [1.5, 2.0]}), tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=r"The column 'item' .* has values of type double"):
        RelevancePairs.read(tmp_path / "odd.parquet")


def test_pairs_are_graded_in_files(tmp_path: Path, make_rankings: Make) -> None:
    path = tmp_path / "judged.csv"
    path.write_text("query,item,grade\nq0,a,1\nq0,b,0\nq0,d,3\nq1,b,2\n")
    query, gallery = make_rankings([[4, 3, 2, 1]] * 2, ids=["a", "b", "c", "d"])
    found = Relevance(pairs=RelevancePairs.read(path)).measure(query, gallery, ["ndcg", "recall@1", "map"])
    np.testing.assert_allclose(found["ndcg"], [(1 + 3 / np.log2(5)) / (3 + 1 / np.log2(3)), 1 / np.log2(3)])
    assert found["recall@1"].tolist() == [1, 0]
    assert found["map"].tolist() == [(1 + 2 / 4) / 2, 1 / 2]  # a grade of 0 does not answer
    for wrong, words in (("good", "cannot be read as numbers"), ("", "1 missing values"), ("-1", "grades such as -1")):
        path.write_text(f"query,item,grade\nq0,a,{wrong}\n")
        with pytest.raises(DataError, match=words):
            RelevancePairs.read(path)
