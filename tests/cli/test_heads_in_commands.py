"""Compatible heads over frozen models through the command line: trained by `adapt`, used by `embed` and `evaluate`."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.retrieval import rank_metrics
from limpet.models.names import ModelName
from limpet.models.release import load_release
from limpet.models.static_words import static_files
from limpet.models.text_folders import find_model
from limpet.training.encode import embed_features

Fails = Callable[..., str]
FAST = ["--method", "p2s", "--recipe.epochs", "5", "--recipe.batch-size", "32", "--resamples", "200",
        "--resample", "queries", "--unseen-share", "0", "--report", "none"]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def first_of(capsys: pytest.CaptureFixture[str], *words: object) -> EmbeddingSet:
    """Run `embed`, and return the first set that was written."""
    return storage.load(run(capsys, "embed", *words)["embeddings"][0]["file"], verify=True)


def narrow_model(folder: Path) -> Path:
    """Write the first 48 dimensions of the static model to a folder of its own."""
    files = static_files(find_model(ModelName("package:wordllama")))
    assert files is not None
    folder.mkdir()
    shutil.copy(files.tokenizer, folder / "tokenizer.json")
    matrix = load_file(files.weights)["embedding.weight"]
    save_file({"embedding.weight": np.ascontiguousarray(matrix[:, :48])}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, requests: Path) -> Path:
    """model/, a text model; out/, the run that trained a head over it, of 32 of its dimensions."""
    root = tmp_path_factory.mktemp("trained")
    words = ["adapt", "--texts", requests / "requests.csv", "--old", requests / "old.npz", *FAST, "--out", root / "out",
             "--new", f'st:{narrow_model(root / "model")}', "--model-options.truncate-dim", "32"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    (root / "queries.txt").write_text("is it raining\nplay a song\nbook a flight\n")
    return root


def raw(capsys: pytest.CaptureFixture[str], trained: Path, out: Path, *words: object) -> EmbeddingSet:
    given = ["texts", trained / "queries.txt", "--role", "query", "--model", f"st:{trained / 'model'}", *words]
    return first_of(capsys, *given, "--out", out)


def test_the_head_was_trained_over_the_text_model_on_record(trained: Path, requests: Path) -> None:
    release = load_release(trained / "out" / "head")
    assert release.record.frozen_model == {
        "model": f"st:{trained / 'model'}", "query_prefix": None, "document_prefix": None, "max_length": None,
        "truncate_dim": 32,
    }  # fmt: skip
    assert release.record.compatible_with == f"declared:{requests / 'old.npz'}"
    results = json.loads((trained / "out" / "results.json").read_text())
    assert results["recommendation"]["action"] == "train a head" and results["best_head"] == "head p2s"
    assert not (trained / "out" / "adapter").exists()


def test_a_head_embeds_raw_text_again(capsys, trained: Path, tmp_path: Path) -> None:
    release = load_release(trained / "out" / "head")
    words = ["texts", trained / "queries.txt", "--role", "query", "--model", f"release:{trained / 'out' / 'head'}"]
    found = first_of(capsys, *words, "--out", tmp_path / "found")
    expected = embed_features(release, raw(capsys, trained, tmp_path / "raw", "--model-options.truncate-dim", "32"))
    assert found.digest() == expected.digest() and found.fingerprint == release.fingerprint
    assert (found.dim, found.role, len(found)) == (32, "query", 3)
    assert {file.name for file in (tmp_path / "found" / "head").iterdir()} == {
        "embeddings.safetensors",
        "embed-texts.toml",
    }


def test_stored_embeddings_go_through_the_head(capsys, fails: Fails, trained: Path, tmp_path: Path) -> None:
    stored = raw(capsys, trained, tmp_path / "raw", "--model-options.truncate-dim", "32")
    words = ["stored", tmp_path / "raw", "--model", f"release:{trained / 'out' / 'head'}", "--out", tmp_path / "mapped"]
    found = first_of(capsys, *words)
    assert found.digest() == embed_features(load_release(trained / "out" / "head"), stored).digest()
    raw(capsys, trained, tmp_path / "whole")
    words = [
        "embed",
        "stored",
        tmp_path / "whole",
        "--model",
        f"release:{trained / 'out' / 'head'}",
        "--out",
        tmp_path / "no",
    ]
    said = fails(*words)
    assert "head' reads text:" in said and not (tmp_path / "no").exists()


def test_another_text_model_is_refused(fails: Fails, trained: Path, tmp_path: Path) -> None:
    words = [
        "embed",
        "texts",
        trained / "queries.txt",
        "--model",
        f"release:{trained / 'out' / 'head'}",
        "--out",
        tmp_path / "o",
    ]
    said = fails(*words, "--over", "package:wordllama")
    assert "The text model 'package:wordllama' has the fingerprint text:" in said
    assert "Expected: the very model that the head was trained over" in said
    assert "has the fingerprint text:" in fails(*words, "--model-options.truncate-dim", "8")
    assert not (tmp_path / "o").exists()


def test_a_model_that_was_moved_is_given_again(capsys, fails: Fails, trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "copied"))
    config = folder / "out" / "head" / "config.json"
    assert str(trained / "model") in config.read_text()
    (trained / "model").rename(trained / "elsewhere")
    try:
        words = [
            "embed",
            "texts",
            trained / "queries.txt",
            "--model",
            f"release:{trained / 'out' / 'head'}",
            "--role",
            "query",
        ]
        said = fails(*words, "--out", tmp_path / "o")
        assert f"The text model of the head '{trained / 'out' / 'head'}' cannot be opened: There is no" in said
        assert "pass --over with the place where that model is now" in said and not (tmp_path / "o").exists()
        found = first_of(capsys, *words[1:], "--over", f"st:{trained / 'elsewhere'}", "--out", tmp_path / "o")
    finally:
        (trained / "elsewhere").rename(trained / "model")
    assert found.fingerprint == load_release(trained / "out" / "head").fingerprint


def test_releases_that_do_not_read_texts(
    capsys: pytest.CaptureFixture[str],
    fails: Fails,
    made: Path,
    planted: Callable[..., Path],
    trained: Path,
    tmp_path: Path,
) -> None:
    words = ["embed", "texts", trained / "queries.txt", "--out", tmp_path / "o", "--model"]
    for more in ([], ["--over", "package:wordllama"]):
        said = fails(*words, f"release:{made / 'runs' / 'old'}", *more)
        assert "takes 3 × 32 × 32 pixels, no texts" in said and "`limpet adapt` trains it" in said
    folder = planted(tmp_path / "vectors")
    given = ["adapt", "--old", folder / "old.npz", "--new", folder / "new.npz", *FAST, "--out", tmp_path / "head"]
    run(capsys, *given)
    head = f"release:{tmp_path / 'head' / 'head'}"
    assert "give these embeddings instead" in fails(*words, head)
    said = fails(*words, head, "--over", "package:wordllama")
    assert "is a head over declared:" in said and not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "a.npz"], "'a.npz' names stored vectors"),
        (["--part", "train"], "Unknown option: --part."),
    ],
)
def test_what_does_not_go_with_a_head(fails: Fails, trained: Path, tmp_path, words: list[str], message: str) -> None:
    given = ["embed", "texts", trained / "queries.txt", "--model", f"release:{trained / 'out' / 'head'}"]
    assert message in fails(*given, *words, "--out", tmp_path / "o") and not (tmp_path / "o").exists()


def test_a_head_over_vectors_searches_the_old_gallery(capsys, planted: Callable[..., Path], tmp_path: Path) -> None:
    folder, fresh = planted(tmp_path / "seen", damped=False), planted(tmp_path / "fresh", seed=2, damped=False)
    names, out = ["--old-name", "a", "--new-name", "b"], tmp_path / "out"
    given = ["adapt", "--old", folder / "old.npz", "--new", folder / "new.npz", *names, *FAST, "--out", out]
    capsys.readouterr()
    assert main([str(word) for word in given]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("next"))
    filled = {"NEW_QUERIES": fresh / "new.npz", "DIR": tmp_path / "mapped"}
    assert main([str(filled.get(word, word)) for word in shlex.split(line)[2:]]) == 0

    old = storage.from_npz(fresh / "old.npz", fingerprint="declared:a")
    mapped = storage.load(tmp_path / "mapped" / "head" / "embeddings.safetensors").replace(labels=old.labels)
    storage.save(mapped, tmp_path / "mapped" / "head" / "embeddings.safetensors")
    words = [
        "evaluate",
        "--old",
        fresh / "old.npz",
        "--old-name",
        "a",
        "--new",
        tmp_path / "mapped",
        "--resamples",
        "50",
    ]
    found = run(capsys, *words, "--report", "none", "--out", tmp_path / "e")
    assert found["verdict"] == "compatible" and found["cross"]["map"] > found["self_old"]["map"]
    expected = np.nanmean(rank_metrics(mapped, old, ("map",), exclude_same_id=True)["map"])
    assert found["cross"]["map"] == pytest.approx(expected)


def test_a_head_is_no_predecessor_of_a_model_of_images(fails: Fails, trained: Path, tmp_path: Path) -> None:
    words = [
        "--data",
        "glyphs",
        "--old",
        f"release:{trained / 'out' / 'head'}",
        "--method",
        "p2s",
        "--out",
        tmp_path / "out",
    ]
    said = fails("train", *words)
    assert "takes embeddings of" in said and "no images" in said
    assert not (tmp_path / "out").exists()
