"""``limpet gallery search --rescore``: with files, texts and images, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.cli import main
from limpet.embeddings import storage
from limpet.galleries import Gallery
from tiny_text_model import some_texts, write_tiny_model

ITEMS = 30
Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must work, and return its JSON document."""

    def one(*words: object) -> Any:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return one


@pytest.fixture
def shop(tmp_path: Path, run: Run) -> Path:
    """Old and new vectors of items and queries as .npz, and a gallery with an upgrade to "v2" started."""
    rng = np.random.default_rng(0)
    for name, ids in (("items", [f"i{row:02}" for row in range(ITEMS)]), ("queries", ["q0", "q1"])):
        base = rng.normal(size=(len(ids), 8))
        for side, noise in (("old", 0.8), ("new", 0.2)):
            vectors = (base + noise * rng.normal(size=base.shape)).astype(np.float32)
            np.savez(tmp_path / f"{side}_{name}.npz", ids=np.array(ids), vectors=vectors)
    url = f"memory:{tmp_path / 'live'}"
    run("gallery", "create", url, "--embeddings", tmp_path / "old_items.npz", "--name", "v1", "--json")
    run("upgrade", "start", url, "--name", "v2", "--dim", 8, "--json")
    return tmp_path


def asked(root: Path, *words: object) -> list[object]:
    url = f"memory:{root / 'live'}"
    return ["gallery", "search", url, "--queries", root / "new_queries.npz", "--name", "v2", *words, "--json"]


def first(root: Path) -> list[object]:
    return ["--old", root / "old_queries.npz", "--old-name", "v1"]


def unit(root: Path, side: str, name: str) -> np.ndarray:
    vectors = np.load(root / f"{side}_{name}.npz")["vectors"].astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def two_stages(root: Path, candidates: int, k: int) -> list[list[str]]:
    """Search in two stages by matrices."""
    found = []
    for old, new in zip(unit(root, "old", "queries"), unit(root, "new", "queries"), strict=True):
        chosen = np.argsort(-unit(root, "old", "items") @ old)[:candidates]
        ordered = chosen[np.argsort(-unit(root, "new", "items")[chosen] @ new)]
        found.append([f"i{row:02}" for row in ordered[:k]])
    return found


def ids_of(document: Any) -> list[list[str]]:
    return [[hit["id"] for hit in one["hits"]] for one in document["queries"]]


def test_files_of_both_models_search_in_two_stages(shop: Path, run: Run) -> None:
    words = ["--rescore", 7, *first(shop), "--rescore-with", shop / "new_items.npz", "--k", 5]
    found = run(*asked(shop, *words))
    assert ids_of(found) == two_stages(shop, 7, 5)
    assert found["merge"] == "rescored"
    assert found["embedded"] == found["kept"] >= 7
    assert {hit["generation"] for one in found["queries"] for hit in one["hits"]} == {"g2"}
    again = run(*asked(shop, *words))
    assert (ids_of(again), again["embedded"]) == (ids_of(found), 0)
    few = run(*asked(shop, *words[:2], *first(shop), "--rescore-with", shop / "new_items.npz", "--rescore-budget", 0))
    assert few["embedded"] == 0


def test_texts_are_embedded_by_both_models(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    texts = some_texts(12, 0)
    rows = [f"{one},{text}" for one, text in zip(texts.ids, texts.texts, strict=True)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,text", *rows]))
    models = {side: write_tiny_model(tmp_path / side, seed=seed) for seed, side in enumerate(("old", "new"))}
    embed = ["embed", "texts", tmp_path / "texts.csv", "--out"]
    for side, model in models.items():
        assert main([*map(str, [*embed, tmp_path / f"of_{side}", "--model", f"st:{model}"])]) == 0
    url = f"memory:{tmp_path / 'live'}"
    run("gallery", "create", url, "--embeddings", tmp_path / "of_old", "--json")
    run("upgrade", "start", url, "--model", tmp_path / "of_new", "--json")
    words = ["gallery", "search", url, "--text", texts.texts[0], "--model", f'st:{models["new"]}', "--texts",
             tmp_path / "texts.csv", "--old", f'st:{models["old"]}', "--rescore", 4, "--k", 4]  # fmt: skip
    assert main([*map(str, words)]) == 0
    assert "g2 scored the candidates again: 4 were embedded for it, and 4 of their vectors kept." in " ".join(
        capsys.readouterr().err.split()
    )
    found = run(*words, "--json")
    old, new = (storage.load(next((tmp_path / f"of_{side}").rglob("*.safetensors"))) for side in models)
    near = np.argsort(-(old.vectors @ old.vectors[0]), kind="stable")[:4]
    scores = new.vectors[near] @ new.vectors[0]
    by_id = {str(old.ids[row]): score for row, score in zip(near, scores, strict=True)}
    for hit in found["queries"][0]["hits"]:
        assert hit["score"] == pytest.approx(by_id.pop(hit["id"]), abs=1e-5)
        assert hit["text"]
    assert not by_id


def test_images_of_a_data_set_are_embedded(copied: Path, run: Run) -> None:
    url = f"memory:{copied / 'live'}"
    run("gallery", "create", url, "--embeddings", copied / "embedded" / "old", "--json")
    run("upgrade", "start", url, "--model", f"release:{copied / 'runs' / 'independent'}", "--json")
    image = copied / "photos" / "kind0" / "1.png"
    words = [
        "--model",
        f"release:{copied / 'runs' / 'independent'}",
        "--old",
        f"release:{copied / 'runs' / 'old'}",
        "--rescore",
        6,
    ]
    found = run(
        "gallery", "search", url, "--image", image, *words, "--rescore-data", copied / "photos", "--k", 6, "--json"
    )
    assert (found["embedded"], found["kept"]) == (6, 6)
    with Gallery.open(url) as gallery:
        ids = [hit["id"] for hit in found["queries"][0]["hits"]]
        assert sorted(gallery.store.vectors("g2", ids)[0]) == sorted(ids)
    whole = run("gallery", "search", url, "--data", copied / "photos", *words, "--json")
    assert whole["embedded"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rescore", 5], "--rescore without the items"),
        (["--rescore-budget", 5], "--rescore-budget without --rescore"),
        (["--old", "x.npz"], "--old without --rescore"),
        (["--rescore", 0, "--rescore-with", "new_items.npz"], "candidates=0"),
        (["--rescore", 5, "--rescore-with", "new_items.npz"], "Nothing lets queries of g2 find items"),
        (["--rescore", 5, "--rescore-with", "st:y"], "names no model of candidates"),
        (["--rescore", 5, "--texts", "t.csv"], "--texts without a model"),
    ],
)
def test_what_does_not_go_together_is_refused(
    shop: Path, fails: Callable[..., str], words: Sequence[object], said: str
) -> None:
    words = [shop / word if str(word).endswith(".npz") else word for word in words]
    assert said in fails(*asked(shop, *words))


def test_a_stored_vector_has_no_second_stage(shop: Path, fails: Callable[..., str]) -> None:
    words = ["--like", "i00", "--rescore", 5, "--rescore-with", shop / "new_items.npz", "--name", "v2"]
    assert "--rescore of a stored vector" in fails("gallery", "search", f"memory:{shop / 'live'}", *words)
