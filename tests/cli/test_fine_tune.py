"""A text model is fine-tuned by the command line, and its release is taken by the commands that take models of text."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from limpet.cli import main
from limpet.data.text_set import TextSet
from limpet.embeddings import storage
from limpet.models.release import load_release
from tiny_text_model import some_texts, write_tiny_model

Fails = Callable[..., str]
FAST = ["--recipe.epochs", "2", "--recipe.batch-size", "16", "--recipe.accelerator", "cpu"]


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def write_csv(path: Path, texts: TextSet, labelled: bool = True) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", *(["label"] if labelled else [])])
        for row, (identifier, text) in enumerate(zip(texts.ids, texts.texts, strict=True)):
            label = texts.class_names[int(texts.labelled()[row])]
            rows.writerow([identifier, text, *([label] if labelled else [])])
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """new/model and old/model; texts.csv, gallery.csv, queries.csv; embedded/model, by the old one; tuned/."""
    root = tmp_path_factory.mktemp("fine-tuned")
    new = write_tiny_model(root / "new", prompts={"query": "find : ", "document": "read : "})
    old = write_tiny_model(root / "old", seed=1, dropout=0.0)
    for name, count, seed in (("texts", 48, 1), ("gallery", 24, 2), ("queries", 12, 3)):
        write_csv(root / f"{name}.csv", some_texts(count, seed))
    texts = [
        "texts.csv",
        "--model",
        f"st:{new}",
        "--old",
        f"st:{old}",
        "--model-options.truncate-dim",
        24,
        "--model-options.max-length",
        9,
    ]
    words = ["fine-tune", root / texts[0], *texts[1:], *FAST, "--out", root / "tuned"]
    assert main([*map(str, words)]) == 0
    embedded = ["embed", "texts", root / "gallery.csv", "--model", f"st:{old}", "--out", root / "embedded"]
    assert main([*map(str, embedded)]) == 0
    shutil.rmtree(root / "new")  # the release needs no other folder
    return root


def test_what_it_writes_and_says(made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    release = load_release(made / "tuned")
    assert release.record.data["name"] == "texts" and release.record.recipe["epochs"] == 2
    assert (made / "tuned" / "fine-tune.toml").exists() and (made / "tuned" / "history.json").exists()
    embedded = storage.load(made / "embedded" / "model" / "embeddings.safetensors")
    assert release.record.compatible_with == embedded.fingerprint


def test_its_release_embeds_texts_with_the_prefixes_and_lengths_of_training(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["embed", "texts", made / "queries.csv", "--model", f"release:{made / 'tuned'}", "--role", "query"]
    told = run(capsys, *words, "--out", tmp_path)["embeddings"][0]
    query = storage.load(Path(told["file"]), verify=True)
    assert query.fingerprint == load_release(made / "tuned").fingerprint and query.dim == 32
    assert query.prefix == "find : "
    other = run(capsys, "embed", "texts", made / "queries.csv", "--model", f"release:{made / 'tuned'}",
                "--role", "document", "--out", tmp_path / "documents")["embeddings"][0]  # fmt: skip
    assert not np.allclose(storage.load(Path(other["file"])).vectors, query.vectors)


def test_evaluate_compares_it_with_the_old_gallery(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for texts, role in (("queries", "query"), ("gallery", "document")):
        words = ["embed", "texts", made / f"{texts}.csv", "--model", f"release:{made / 'tuned'}", "--role", role]
        assert main([*map(str, words), "--out", str(tmp_path / texts)]) == 0
    sides = {"query": tmp_path / "queries", "gallery": tmp_path / "gallery"}
    (tmp_path / "new").mkdir()
    for name, place in sides.items():
        shutil.copy(place / "tuned" / "embeddings.safetensors", tmp_path / "new" / f"{name}.safetensors")
    (tmp_path / "old").mkdir()
    old = made / "old" / "model"
    for texts, name in (("queries", "query"), ("gallery", "gallery")):
        words = ["embed", "texts", made / f"{texts}.csv", "--model", f"st:{old}", "--out", tmp_path / f"old-{texts}"]
        assert main([*map(str, words)]) == 0
        written = tmp_path / f"old-{texts}" / "model" / "embeddings.safetensors"
        shutil.copy(written, tmp_path / "old" / f"{name}.safetensors")
    compared = ["--old", tmp_path / "old", "--new", tmp_path / "new", "--out", tmp_path / "e", "--resamples", 50]
    code = main(["evaluate", *map(str, compared), "--report", "none"])
    assert code in (0, 1) and (tmp_path / "e" / "results.json").exists()


def test_a_gallery_of_the_old_model_is_embedded_anew_and_searched(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gallery = tmp_path / "live"
    embedded = made / "embedded" / "model"
    assert main(["gallery", "create", str(gallery), "--embeddings", str(embedded)]) == 0
    assert main(["upgrade", "start", str(gallery), "--model", f"release:{made / 'tuned'}"]) == 0
    words = ["upgrade", "backfill", "--model", f"release:{made / 'tuned'}", "--texts", made / "gallery.csv"]
    assert main([*map(str, words), "--url", str(gallery)]) == 0
    assert main(["upgrade", "swap", str(gallery)]) == 0
    words = ["--text", some_texts(24, 2).texts[5], "--model", f"release:{made / 'tuned'}"]
    found = run(capsys, "gallery", "search", gallery, *words)
    assert len(found["queries"][0]["hits"]) == 10


def test_it_is_exported_as_one_model_of_the_library(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["export", f"release:{made / 'tuned'}", "--to", "sentence-transformers", "--out", tmp_path / "model"]
    assert main([*map(str, words)]) == 0
    embed = ["embed", "texts", made / "queries.csv", "--model", f"release:{made / 'tuned'}", "--role", "query"]
    told = run(capsys, *embed, "--out", tmp_path / "embedded")["embeddings"][0]
    expected = storage.load(Path(told["file"]))
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    texts = list(some_texts(12, seed=3).texts)
    order = [list(expected.ids).index(identifier) for identifier in some_texts(12, seed=3).ids]
    np.testing.assert_allclose(
        model.encode(texts, prompt_name="query", show_progress_bar=False), expected.vectors[order], atol=1e-5
    )


def test_an_altered_release_is_refused(made: Path, fails: Fails, tmp_path: Path) -> None:
    shutil.copytree(made / "tuned", tmp_path / "tuned")
    path = tmp_path / "tuned" / "text_model" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    words = ["embed", "texts", made / "queries.csv", "--role", "query", "--out", tmp_path / "out"]
    said = fails(*words, "--model", f"release:{tmp_path / 'tuned'}")
    assert "is a head over text:" in said
    said = fails(*words, "--model", f"release:{made / 'tuned'}", "--model-options.max-length", 5)
    assert "is a head over text:" in said


def test_what_cannot_be_fine_tuned_is_told_before_anything_is_embedded(
    made: Path, fails: Fails, tmp_path: Path
) -> None:
    words = ["fine-tune", made / "texts.csv", "--out", tmp_path / "out", *FAST]
    old = ["--old", f"st:{made / 'old' / 'model'}"]
    model = ["--model", f"st:{made / 'old' / 'model'}"]
    said = fails(*words, *old, "--model", "package:wordllama")
    assert "no network of the sentence-transformers library" in said and "limpet adapt" in said
    assert "--old requires an argument" in fails(*words, *model)
    assert "learns in sessions" in fails(*words, *old, *model, "--method", "lwf")
    assert "at least 1" in fails(*words, *old, *model, "--recipe.trainable.lora", 0)
    unlabelled = write_csv(tmp_path / "plain.csv", some_texts(8, 1), labelled=False)
    said = fails("fine-tune", unlabelled, "--out", tmp_path / "out", *old, *model)
    assert "8 texts have no labels" in said and "adapt" in said
    assert not (tmp_path / "out" / "config.json").exists()


PAIRS = "anchor,positive,negative\n" + "".join(
    f"a{row % 6} any{row},any{row % 5} a{row % 6},b{row % 4} any{row % 3}\n" for row in range(24)
)


def test_pairs_and_triplets_are_trained_on_from_a_file(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = str(made / "old" / "model")
    (tmp_path / "triplets.csv").write_text(PAIRS.replace("anchor,", "asked,"))
    words = ["fine-tune", tmp_path / "triplets.csv", "--data-options.anchor-column", "asked", "--model", f"st:{model}",
             "--model-options.max-length", 9, "--old", f"st:{model}", "--loss", "triplet", "--loss-options.margin", 0.5,
             *FAST]  # fmt: skip
    told = run(capsys, *words, "--out", tmp_path / "out")
    assert list(told["releases"]) == ["l2"]
    record = load_release(tmp_path / "out").record
    assert (record.data["triplets"], record.data["loss"]) == ("24", "TripletLoss(margin=0.5)")
    embed = ["embed", "texts", made / "queries.csv", "--model", f"release:{tmp_path / 'out'}"]
    assert len(run(capsys, *embed, "--out", tmp_path / "embedded")["embeddings"]) == 1
    settings = (tmp_path / "out" / "fine-tune.toml").read_text()
    assert "asked" in settings and "margin = 0.5" in settings


def test_fine_tune_counts_the_texts_that_either_model_cuts(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = str(made / "old" / "model")
    (tmp_path / "pairs.csv").write_text(PAIRS)
    words = [
        "fine-tune",
        tmp_path / "pairs.csv",
        "--model",
        f"st:{model}",
        "--model-options.max-length",
        3,
        "--old",
        f"st:{model}",
    ]
    capsys.readouterr()
    assert main([*map(str, words), *FAST, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.count("texts have more than the 3 tokens") == 1


def test_the_old_embeddings_of_pairs_have_the_texts_as_ids(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = str(made / "old" / "model")
    pairs = [row.split(",")[:2] for row in PAIRS.splitlines()]
    (tmp_path / "pairs.csv").write_text("\n".join(map(",".join, pairs)))
    every = sorted({text for row in pairs[1:] for text in row})
    (tmp_path / "texts.csv").write_text("\n".join(["text", *every]))
    embed = ["embed", "texts", tmp_path / "texts.csv", "--data-options.id-column", "text", "--model", f"st:{model}"]
    run(capsys, *embed, "--out", tmp_path / "old")
    words = [
        "fine-tune",
        tmp_path / "pairs.csv",
        "--model",
        f"st:{model}",
        "--model-options.max-length",
        9,
        *FAST,
        "--old",
    ]
    told = run(capsys, *words, tmp_path / "old", "--method", "hoc", "--out", tmp_path / "out")
    assert load_release(Path(told["releases"]["hoc"]["path"])).record.data["pairs"] == "24"


def test_bad_pairs_are_told_before_anything_is_embedded(made: Path, fails: Fails, tmp_path: Path) -> None:
    model = str(made / "old" / "model")
    old = ["--model", f"st:{model}", "--old", f"st:{model}", "--out", tmp_path / "out", *FAST]
    path = tmp_path / "pairs.csv"
    for written, words, said in [
        ("anchor\na\nb\n", [], "none of positives"),
        ("anchor,positive\na,b\n", [], "1 pairs, of 1 anchors"),
        ("anchor,positive,negative\na,b,c\nd,e,\n", [], "column 'negative'"),
        (PAIRS, ["--method", "p2s"], "one of independent, l2, hot_refresh, hoc, mixbct, hbct"),
        (PAIRS, ["--method", "mixbct", "--method-options.denoise", 0.9], "denoise=0.9"),
        (PAIRS, ["--head", "softmax"], "--head with triplets"),
        (PAIRS, ["--loss", "rankin"], "Did you mean 'ranking'"),
        (PAIRS, ["--data-options.positive-column", "positives"], "Did you mean 'positive'"),
        ("text,label\na0,x\na1,y\n", ["--loss", "ranking"], "--loss with texts that are no pairs"),
    ]:
        path.write_text(written)
        assert said in fails("fine-tune", path, *old, *words)
    assert not (tmp_path / "out").exists()
