"""Pairs and triplets of texts from files, and which texts of a batch are alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.data.text_pairs import TextPairs
from limpet.data.texts import load_pairs, load_texts
from limpet.data.token_set import PairedTokens, TokenSet, alike_in_batch
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError

ROWS = {"anchor": ["how much?", "when?", "how much?"], "positive": ["3 euros", "at noon", "it is free"]}


def written(folder: Path, columns: dict[str, list[str | None]], suffix: str = ".csv") -> Path:
    path = folder / f"pairs{suffix}"
    if suffix == ".csv":
        rows = [
            ",".join(columns),
            *(",".join(str(one or "") for one in row) for row in zip(*columns.values(), strict=True)),
        ]
        path.write_text("\n".join(rows))
    elif suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_text_is_read_once_and_is_its_own_id(tmp_path: Path, suffix: str) -> None:
    pairs = load_pairs(written(tmp_path, ROWS, suffix))
    assert pairs is not None and repr(pairs) == "TextPairs(3 pairs of 5 texts)"
    assert [[pairs.texts.texts[row] for row in pair] for pair in pairs.rows] == [
        *map(list, zip(*ROWS.values(), strict=True))
    ]
    assert list(pairs.texts.ids) == list(pairs.texts.texts) and pairs.texts.labels is None


def test_columns_are_found_by_usual_names_or_by_yours(tmp_path: Path) -> None:
    usual = load_pairs(written(tmp_path, {"Query": ["a", "b"], "answer": ["c", "d"], "negative": ["d", "c"]}))
    assert usual is not None and usual.kind == "triplets" and usual.rows.tolist() == [[0, 2, 3], [1, 3, 2]]
    path = written(tmp_path, {"left": ["a", "b"], "right": ["c", "d"]})
    yours = load_pairs(path, anchor_column="left", positive_column="right")
    assert yours is not None and yours.rows.tolist() == [[0, 2], [1, 3]]
    assert load_pairs(path) is None
    labelled = written(tmp_path, {"question": ["a", "b"], "label": ["c", "d"]})
    assert load_pairs(labelled) is None and load_pairs("clinc150") is None
    assert (
        len(load_texts(labelled, text_column="question")) == 2 and load_pairs(labelled, text_column="question") is None
    )


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"anchor": ["a", "b"]}, {}, "none of positives.*positive or answer"),
        ({"anchor": ["a", "b"], "positive": ["c", " "]}, {}, "1 of 2 texts in the column 'positive'.*'1'"),
        ({"anchor": ["a", "b"], "positive": ["c", "d"], "negative": ["x", None]}, {}, "'negative'.*are empty.*'1'"),
        ({"anchor": ["a"], "positive": ["b"]}, {}, "1 pairs, of 1 anchors and 1 positives"),
        ({"anchor": ["a", "a"], "positive": ["b", "c"]}, {}, "2 pairs, of 1 anchors and 2 positives"),
        ({"anchor": ["a", "b"], "positive": ["c", "d"], "negative": ["c", "e"]}, {}, "1 triplets.*rows '0'"),
        (ROWS, {"anchor_column": "anchors"}, "no column 'anchors'. Did you mean 'anchor'"),
        (ROWS, {"positive_column": "anchor"}, "anchor and anchor were to be"),
        ({**ROWS, "query": ["x", "y", "z"]}, {}, "anchor and query: each could be the anchor"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_no_pairs_is_told(
    tmp_path: Path, columns: dict[str, list[str | None]], options: dict[str, str], said: str, suffix: str
) -> None:
    with pytest.raises(DataError, match=f"(?s){said}"):
        load_pairs(written(tmp_path, columns, suffix), **options)


def test_unknown_options_and_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'anchr_column'\. Did you mean 'anchor_column'"):
        load_pairs(written(tmp_path, ROWS), anchr_column="anchor")
    with pytest.raises(DataError, match="There is no file"):
        load_pairs(tmp_path / "none.csv")


def test_columns_of_other_shapes_are_told() -> None:
    with pytest.raises(DataError, match=r"Columns of \[2, 1\] texts"):
        TextPairs.of([["a", "b"], ["c"]])
    with pytest.raises(DataError, match=r"\(N, 2\) or \(N, 3\)"):
        TextPairs(TextPairs.of([["a", "b"], ["c", "d"]]).texts, np.zeros((2, 4), np.int64))


def test_what_shares_a_text_is_alike_over_any_number_of_pairs() -> None:
    pairs = np.array([[7, 1, 3], [2, 9, 4], [5, 1, 9], [5, 6, 7]])
    # 7-1-5-6 through the shared positive 1 and the shared anchor 5; 9 is alike to 2, as the third's negative too
    assert alike_in_batch(pairs).reshape(-1, 3).tolist() == [[1, 1, 3], [2, 2, 4], [1, 1, 2], [1, 1, 1]]


def test_pairs_are_part_of_the_digest() -> None:
    texts = TokenSet.of([np.array([1, 2])] * 4, np.arange(4), list("abcd"), StringArray.of(list("abcd")))
    one, other = (PairedTokens(**vars(texts), pairs=np.array(rows)) for rows in ([[0, 1], [2, 3]], [[0, 3], [2, 1]]))
    assert len({texts.digest(), one.digest(), other.digest()}) == 3
