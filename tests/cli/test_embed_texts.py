"""Texts through the command line: a data set and files, embedded by a static model with real weights."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.cli import main
from limpet.embeddings import storage

Fails = Callable[..., str]
SENTENCES = {
    "balance": ["what is my balance", "how much money have I", "show my account balance", "money on my account",
                "tell me the balance of my bank account", "is there money left on my account"],
    "music": ["play a song", "put some music on", "play the next song", "turn up the music",
              "I want to hear a song", "what song is playing"],
    "weather": ["will it rain today", "is it cold outside", "what is the weather like", "how warm is it in the sun",
                "do I need an umbrella today", "weather for tomorrow please"],
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """CLINC150 in small: of every intent one sentence in train, one in val and four in test."""
    folder = tmp_path_factory.mktemp("data")
    parts: dict[str, list[list[str]]] = {"train": [], "val": [], "test": []}
    for intent, sentences in SENTENCES.items():
        for row, text in enumerate(sentences):
            parts["train" if row == 0 else "val" if row == 1 else "test"].append([text, intent])
    (folder / "clinc150").mkdir()
    (folder / "clinc150" / "data_full.json").write_text(json.dumps(parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMPET_DATA", str(folder))
        yield


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    rows = [f"{text},{intent}" for intent, texts in SENTENCES.items() for text in texts]
    path.write_text("\n".join(["text,intent", *rows]))
    return path


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def embed(capsys: pytest.CaptureFixture[str], out: Path, *words: object) -> list[dict[str, Any]]:
    command = ["embed", "texts", "clinc150", "--model", "package:wordllama", "--out", out, *words]
    return list(document(capsys, *command)["embeddings"])


def test_a_data_set_gets_a_file_per_part(capsys, root: None, tmp_path: Path) -> None:
    found = embed(capsys, tmp_path, "--model-options.query-prefix", "find: ", "--data-options.unseen_share", "0.34")
    assert [(Path(entry["file"]).name, entry["items"], entry["role"], entry["prefix"]) for entry in found] == [
        ("train.safetensors", 2, "document", ""),
        ("query.safetensors", 6, "query", "find: "),
        ("gallery.safetensors", 9, "document", ""),
    ]
    parts = {entry["file"]: storage.load(entry["file"], verify=True) for entry in found}
    assert len({part.fingerprint for part in parts.values()}) == 1
    for entry, part in zip(found, parts.values(), strict=True):
        assert (part.role, part.prefix, part.fingerprint) == (entry["role"], entry["prefix"], entry["fingerprint"])
        assert part.dim == entry["dim"] == 256
        np.testing.assert_allclose(np.linalg.norm(part.vectors, axis=1), 1, rtol=1e-5)
    settings = tomllib.loads((tmp_path / "wordllama" / "embed-texts.toml").read_text())["embed"]["texts"]
    assert settings["model-options"]["query_prefix"] == "find: " and settings["batch-size"] == 64


def test_settings_in_a_file_do_the_same_again(capsys, root: None, tmp_path: Path) -> None:
    first = embed(
        capsys, tmp_path / "a", "--model-options.query-prefix", "find: ", "--model-options.truncate-dim", "64"
    )
    settings = tmp_path / "a" / "wordllama" / "embed-texts.toml"
    again = document(capsys, "embed", "texts", "--config", settings, "--out", tmp_path / "b")["embeddings"]
    for one, other in zip(first, again, strict=True):
        assert storage.load(one["file"]).digest() == storage.load(other["file"]).digest()


def test_one_set_is_a_query_among_all_others(capsys, mine: Path, tmp_path: Path) -> None:
    words = ["embed", "texts", mine, "--model", "package:wordllama", "--out"]
    (entry,) = document(capsys, *words, tmp_path / "e")["embeddings"]
    found = storage.load(entry["file"])
    assert Path(entry["file"]).name == "embeddings.safetensors" and entry["role"] == found.role == "both"
    assert found.class_names is not None and list(found.class_names) == sorted(SENTENCES)
    (entry,) = document(
        capsys, *words, tmp_path / "q", "--role", "query", "--model-options.query-prefix", "find: ", "--batch-size", "5"
    )["embeddings"]
    assert (entry["role"], entry["prefix"]) == ("query", "find: ")


def test_several_models_and_what_people_see(capsys, root: None, tmp_path: Path) -> None:
    copied(tmp_path / "other")
    out = tmp_path / "out"
    words = ["embed", "texts", "clinc150", "--model", "package:wordllama",
             f"st:{tmp_path / 'other'}", "--model-options.document-prefix", "text: ", "--out", out]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().err
    assert "Embeddings" in said and "'text: '" in said and "dimension" in said
    assert {file.relative_to(out).as_posix() for file in out.rglob("*.safetensors")} == {
        f"{model}/{part}.safetensors" for model in ("wordllama", "other") for part in ("train", "query", "gallery")
    }


def copied(folder: Path) -> Path:
    """Copy the static model into a folder, without its second half of dimensions."""
    from safetensors.numpy import load_file, save_file

    from limpet.models.names import ModelName
    from limpet.models.static_words import static_files
    from limpet.models.text_folders import find_model

    files = static_files(find_model(ModelName("package:wordllama")))
    assert files is not None
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(files.tokenizer.read_bytes())
    matrix = load_file(files.weights)["embedding.weight"]
    save_file({"embedding.weight": np.ascontiguousarray(matrix[:, :128])}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_blank_texts_are_refused_or_skipped_and_named(capsys, fails: Fails, tmp_path: Path, suffix: str) -> None:
    rows = [
        {"id": f"i{row}", "text": text, "label": "a"} for row, text in enumerate(["play a song", "", " \t", "rain"])
    ]
    file = tmp_path / f"mine{suffix}"
    if suffix == ".csv":
        file.write_text("id,text,label\n" + "".join(f"{one['id']},{one['text']},a\n" for one in rows))
    elif suffix == ".jsonl":
        rows[1]["text"] = None  # type: ignore[assignment]
        file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    else:
        pq.write_table(pa.Table.from_pylist([*rows[:1], {"id": "i1", "text": None, "label": "a"}, *rows[2:]]), file)
    words = ["embed", "texts", file, "--model", "package:wordllama", "--out", tmp_path / "out"]
    refused = fails(*words)
    assert ("--on-empty skip" in refused or "missing" in refused) and not (tmp_path / "out").exists()
    capsys.readouterr()
    [made] = document(capsys, *words, "--on-empty", "skip")["embeddings"]
    assert (made["items"], made["without_text"]) == (2, ["i1", "i2"])
    assert list(storage.load(Path(made["file"])).ids) == ["i0", "i3"]
    assert main([*map(str, words), "--on-empty", "skip"]) == 0
    assert "2 items are without text and were skipped: 'i1', 'i2'" in " ".join(capsys.readouterr().err.split())


def test_the_outcome_can_be_evaluated(capsys, fails: Fails, root: None, tmp_path: Path) -> None:
    embed(capsys, tmp_path / "whole")
    embed(capsys, tmp_path / "short", "--model-options.max-length", "3")
    embed(capsys, tmp_path / "narrow", "--model-options.truncate-dim", "64")
    words = ["evaluate", "--old", tmp_path / "short", "--out", tmp_path / "e", "--resamples", "50", "--new"]
    capsys.readouterr()
    code = main([*map(str, [*words, tmp_path / "whole"]), "--report", "none", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["verdict"] == "compatible" else 1)
    assert 0 < found["self_old"]["map"] < found["self_new"]["map"] <= 1, "of three tokens less can be told"
    said = fails(*words, tmp_path / "narrow")
    assert "dimension 64" in said and "dimension 256" in said and "one space for both" in said
    assert "these are the same model" in fails(*words, tmp_path / "short")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["texts", "clinc150"], "--model requires an argument"),
        (["--model", "package:wordllama"], "Unknown command"),
        (["texts", "clinc150", "--model", "st:x", "--data", "glyphs"], "Unknown option: --data."),
        (["texts", "clinc150", "--model", "release:x"], "'x' is no release"),
        (
            ["texts", "clinc150", "--model", "package:wordllama", "--part", "train"],
            "Unknown option: --part.",
        ),
        (
            ["images", "glyphs", "--model", "release:x", "--model-options.query-prefix", "q"],
            "Unknown option: --model-options.query-prefix",
        ),
        (["texts", "clinc150", "--model", "st:wordlama"], "no text model 'st:wordlama'"),
        (["texts", "clinc150", "--model", "package:wordllama", "st:a/wordllama"], "Models of the same name"),
        (["texts", "clinc150", "--model", "package:wordllama", "--role", "query"], "--role query was given with"),
        (["texts", "clinc150", "--model", "package:wordllama", "--batch-size", "0"], "batch_size=0"),
        (["texts", "clinc150", "--model", "package:wordllama", "--model-options.truncate-dim", "999"], "at most 256"),
        (["texts", "glyphs", "--model", "package:wordllama"], "Unknown text data set or file 'glyphs'"),
    ],
)
def test_wrong_use_is_answered(fails: Fails, root: None, tmp_path: Path, words: list[str], message: str) -> None:
    assert message in fails("embed", *words, "--out", tmp_path)
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_prefix_that_would_not_be_used(fails: Fails, mine: Path, tmp_path: Path) -> None:
    said = fails(
        "embed",
        "texts",
        mine,
        "--model",
        "package:wordllama",
        "--model-options.query-prefix",
        "q: ",
        "--out",
        tmp_path / "e",
    )
    assert "these texts are both" in said and "--role query" in said


def test_all_models_are_asked_before_the_first_embeds(fails: Fails, mine: Path, tmp_path: Path) -> None:
    asking = copied(tmp_path / "asking")
    parts = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    (asking / "modules.json").write_text(json.dumps(parts))
    prompts = {"prompts": {"query": "find: ", "document": "text: "}}
    (asking / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    said = fails("embed", "texts", mine, "--model", "package:wordllama", f"st:{asking}", "--out", tmp_path / "out")
    assert "asking' puts 'find: ' before a query and 'text: ' before a document" in said
    assert not (tmp_path / "out").exists()


def test_texts_are_listed(capsys) -> None:
    assert set(document(capsys, "data", "list")["texts"]) == {"clinc150", "banking77"}
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().err
    assert "--texts" in said and "clinc150" in said and ".jsonl" in said
