"""Approximate indexes by commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    rows = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    np.savez(tmp_path / "items.npz", ids=[f"i{row}" for row in range(300)], vectors=rows)
    return str(tmp_path / "items.npz")


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_settings_of_create_count_until_others_are_said(
    postgres_url: str, vectors: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from limpet.engines.store import Graph
    from limpet.galleries import Gallery

    made = [
        "gallery",
        "create",
        postgres_url,
        "--embeddings",
        vectors,
        "--name",
        "a",
        "--graph.m",
        "8",
        "--graph.ef-search",
        "40",
    ]
    assert main(made) == 0
    found = told(["gallery", "index", postgres_url], capsys)
    assert (found["generation"], found["rows"], found["indexed"]) == ("g1", 300, 300)
    assert told(["gallery", "index", postgres_url, "--graph.ef-construction", "80"], capsys)["indexed"] == 300
    with Gallery.open(postgres_url) as gallery:
        assert gallery.store.graph == Graph(8, 80, 40)
    like = ["gallery", "search", postgres_url, "--like", "i7"]
    assert told([*like, "--approximate"], capsys)["queries"] == told(like, capsys)["queries"]


def test_other_galleries_are_indexed_without_settings(
    tmp_path: Path, vectors: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "gallery")
    refused = ["gallery", "create", url, "--embeddings", vectors, "--name", "a", "--graph.m", "8"]
    assert main(refused) == 2 and not Path(url).exists()
    assert main(refused[:-2]) == 0
    assert main(["gallery", "index", url, "--graph.ef-search", "40"]) == 2
    assert "a gallery in PostgreSQL" in capsys.readouterr().err
    assert main(["gallery", "index", url, "--generation", "g7"]) == 2
    assert told(["gallery", "index", url], capsys)["rows"] == 300
