"""Fitted adapters through the command line: evaluating two frozen models, and mapping what one of them embedded."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import Adapter, Direction, build_adapter
from limpet.adapters.storage import load_adapter, save_adapter
from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.evaluate import evaluate as measure
from limpet.evaluation.examples import choose_examples
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.retrieval import rank_metrics

Fails = Callable[..., str]
TOPICS = {
    "money": ["what is my balance", "how much money have I", "show my account balance", "is there money on my account",
              "tell me the balance of my bank account", "transfer money to my bank", "pay the bill from my account",
              "which bank has my money"],
    "music": ["play a song", "put some music on", "play the next song", "turn up the music", "what song is playing",
              "I want to hear a song", "stop the music now", "which band sings this song"],
    "weather": ["will it rain today", "is it cold outside", "what is the weather like", "how warm is it in the sun",
                "do I need an umbrella today", "weather for tomorrow please", "is snow coming", "is it windy"],
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, texts by two frozen models of different dimension in old/ and new/, and two adapters between them."""
    root = tmp_path_factory.mktemp("frozen")
    parts: dict[str, list[list[str]]] = {"train": [], "val": [], "test": []}
    for topic, texts in TOPICS.items():
        for row, text in enumerate(texts):
            parts[("train", "train", "val", "test")[min(row, 3)]].append([text, topic])
    (root / "data" / "clinc150").mkdir(parents=True)
    (root / "data" / "clinc150" / "data_full.json").write_text(json.dumps(parts))
    words = ["embed", "texts", "clinc150", "--model", "package:wordllama"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMPET_DATA", str(root / "data"))
        for name, more in (("old", ["--model-options.truncate-dim", "64"]), ("new", [])):
            assert main([str(word) for word in (*words, *more, "--out", root / name)]) == 0
    for direction in ("new_to_old", "old_to_new"):
        save_adapter(fitted(root, direction), root / direction)
    return root


def fitted(root: Path, direction: Direction) -> Adapter:
    old, new = (storage.load(root / name / "wordllama" / "gallery.safetensors") for name in ("old", "new"))
    return build_adapter("procrustes", {"direction": direction}).fit(old, new)


def sides(folder: Path) -> tuple[EmbeddingSet, EmbeddingSet]:
    made = folder / "wordllama"
    return storage.load(made / "query.safetensors"), storage.load(made / "gallery.safetensors")


def evaluate(root: Path, out: Path, *words: object) -> list[str]:
    given = ["evaluate", "--old", root / "old", "--new", root / "new", "--resamples", "50", "--out", out, *words]
    return [str(word) for word in given]


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_two_frozen_models_are_evaluated_through_their_adapter(
    capsys: pytest.CaptureFixture[str], frozen: Path, tmp_path: Path, direction: str
) -> None:
    adapter, old, new = load_adapter(frozen / direction), sides(frozen / "old"), sides(frozen / "new")
    capsys.readouterr()
    code = main([*evaluate(frozen, tmp_path, "--link", frozen / direction), "--json"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert code == (0 if found["verdict"] == "compatible" else 1)
    cross = (adapter.apply(new[0]), old[1]) if direction == "new_to_old" else (new[0], adapter.apply(old[1]))
    for system, (query, gallery) in {"cross": cross, "self_old": old, "self_new": new}.items():
        assert found[system]["map"] == np.nanmean(rank_metrics(query, gallery)["map"])
    curve = found["upgrade_curve"]
    assert (curve is None) == (direction == "new_to_old")
    if curve is not None:
        assert [curve["values"]["margin"][end] for end in (0, -1)] == [found[of]["map"] for of in ("cross", "self_new")]
    assert found["adapter"] == {"kind": "procrustes", "direction": direction, "options": adapter.options, "pairs": 12,
                                "fingerprint": adapter.fingerprint}  # fmt: skip
    results = EvaluationResults.load(tmp_path)
    assert results.models["adapter"] == found["adapter"]
    assert list((results.evaluations["new"].mapped or {}).values()) == [adapter.mapped_fingerprint]
    assert tomllib.loads((tmp_path / "evaluate.toml").read_text())["evaluate"]["link"] == str(frozen / direction)
    page, mapped = (tmp_path / "report.html").read_text(), "new queries" if direction == "new_to_old" else "old gallery"
    for said in (page, captured.err.replace("\n", " ")):
        assert f"It was applied to the {mapped}" in said
        assert ("upgrade curve was not measured" in said) == (curve is None)
    assert ("the notes beside the verdict say why" in page) == (curve is None) and "curve=True" not in page
    assert ("Upgrade curve of new" in page) == (curve is not None)
    examples = choose_examples(measure(old, new, cross=cross, curve=False), *old, *new, cross=cross)
    assert page.count('<article class="example">') == len(examples) == 6
    for identifier in {found for example in examples for found in example.cross.ids}:
        assert f"({identifier})" in page
    assert adapter.fingerprint in page and "procrustes" in page


def test_every_item_may_be_a_query_among_all_others(
    capsys: pytest.CaptureFixture[str], frozen: Path, tmp_path: Path
) -> None:
    old, new = (storage.load(frozen / name / "wordllama" / "gallery.safetensors") for name in ("old", "new"))
    files = [storage.save(part, tmp_path / f"{name}.safetensors") for name, part in (("adapter", new), ("old", old))]
    words = ["evaluate", "--old", files[1], "--new", files[0], "--link", frozen / "new_to_old", "--out",
             tmp_path / "out", "--resamples", "50", "--report", "none", "--json"]  # fmt: skip
    capsys.readouterr()
    main([str(word) for word in words])
    found = json.loads(capsys.readouterr().out)
    mapped = load_adapter(frozen / "new_to_old").apply(new)
    assert found["cross"]["map"] == np.nanmean(rank_metrics(mapped, old, ["map"], exclude_same_id=True)["map"])
    assert set(EvaluationResults.load(tmp_path / "out").models) == {"old", "new", "adapter"}, "one name, one thing"


def test_without_an_adapter_the_way_to_one_is_named(fails: Fails, frozen: Path, tmp_path: Path) -> None:
    said = fails(*evaluate(frozen, tmp_path / "out"))
    assert "dimension 256" in said and "dimension 64" in said and "`limpet adapt --old OLD --new NEW" in said
    assert not (tmp_path / "out").exists()


def test_an_adapter_of_other_models_is_refused(fails: Fails, frozen: Path, tmp_path: Path) -> None:
    turned = ["evaluate", "--old", frozen / "new", "--new", frozen / "old", "--out", tmp_path / "out"]
    said = fails(*turned, "--link", frozen / "new_to_old")
    assert "exchange --old and --new" in said and str(frozen / "new_to_old") in said
    old, new = (storage.load(frozen / name / "wordllama" / "gallery.safetensors") for name in ("old", "new"))
    other = build_adapter("ridge", {}).fit(old, new.replace(fingerprint="declared:another"))
    save_adapter(other, tmp_path / "other")
    said = fails(*evaluate(frozen, tmp_path / "out", "--link", tmp_path / "other"))
    assert "declared:another" in said and new.fingerprint in said and "exchange" not in said
    assert f"`limpet adapt --old {frozen / 'old'} --new {frozen / 'new'}`" in said
    assert "is no adapter" in fails(*evaluate(frozen, tmp_path / "out", "--link", frozen / "old"))
    assert not (tmp_path / "out").exists()


def raw(embeddings: EmbeddingSet, file: Path) -> Path:
    """Write vectors with their ids and labels, as other programs do: no word of the model that made them."""
    names = [embeddings.class_names[label] for label in embeddings.labels]
    np.savez(file, ids=list(embeddings.ids), vectors=embeddings.vectors, labels=names)
    return file


@pytest.fixture
def vectors(frozen: Path, tmp_path: Path) -> tuple[list[str], Adapter]:
    """The words that evaluate raw files of both models through an adapter, fitted on other files of the same models."""
    old, new = (sides(frozen / name)[1] for name in ("old", "new"))
    named = (part.replace(fingerprint=f"declared:the {name}") for name, part in (("old", old), ("new", new)))
    adapter = build_adapter("procrustes", {"direction": "new_to_old"}).fit(*named)
    save_adapter(adapter, tmp_path / "map")
    files = [raw(part, tmp_path / f"{name}.npz") for name, part in (("a", old), ("b", new))]
    words = ["evaluate", "--old", files[0], "--new", files[1], "--link", tmp_path / "map", "--resamples", "50",
             "--report", "none", "--out", tmp_path / "out"]  # fmt: skip
    return [str(word) for word in words], adapter


def test_raw_files_are_of_the_models_that_are_named(
    capsys: pytest.CaptureFixture[str], vectors: tuple[list[str], Adapter], frozen: Path, tmp_path: Path
) -> None:
    words, adapter = vectors
    capsys.readouterr()
    main([*words, "--old-name", "the old", "--new-name", "the new", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["fingerprints"]["old"] == {"fingerprint": "declared:the old", "declared": True}
    assert found["mapped"] == {"query": adapter.mapped_fingerprint}
    old, new = (sides(frozen / name)[1] for name in ("old", "new"))
    mapped = adapter.apply(new.replace(fingerprint="declared:the new"))
    assert found["cross"]["map"] == np.nanmean(rank_metrics(mapped, old, ["map"], exclude_same_id=True)["map"])
    settings = tomllib.loads((tmp_path / "out" / "evaluate.toml").read_text())["evaluate"]
    assert (settings["old-name"], settings["new-name"]) == ("the old", "the new")


def test_a_refusal_of_raw_files_says_how_to_name_them(
    fails: Fails, vectors: tuple[list[str], Adapter], frozen: Path, tmp_path: Path
) -> None:
    words, _ = vectors
    files, fit = words[2:5:2], "fit another one: `limpet adapt --old"
    said = fails(*words)
    assert "vectors of 'the old' and 'the new', say so: --old-name 'the old' --new-name 'the new'; or" in said
    assert f"{fit} {files[0]} --new {files[1]}`" in said and "exchange" not in said
    said = fails(*words, "--old-name", "the old", "--new-name", "another")
    assert "vectors of 'the new', say so: --new-name 'the new'; or" in said and "--old-name 'the old' -" in said
    assert f"{fit} {files[0]} --new {files[1]} --old-name 'the old' --new-name another`" in said
    said = fails(*words, "--old-name", "the new", "--new-name", "the old")
    assert "exchange --old and --new" in said and "say so" not in said
    mapped = frozen / "new" / "wordllama" / "gallery.safetensors"
    words, stored = [mapped if word == files[1] else word for word in words], ["--old-name", "the old"]
    said = fails(*words, *stored)
    assert "say so" not in said and "give the embeddings of its models, or fit" in said
    said = fails(*words, *stored, "--new-name", "the new")
    assert "leave the name out" in said and "says that text:" in said
    assert not (tmp_path / "out").exists()


def test_stored_embeddings_are_mapped(capsys: pytest.CaptureFixture[str], frozen: Path, tmp_path: Path) -> None:
    words = [
        "embed",
        "stored",
        frozen / "new",
        "--model",
        f"adapter:{frozen / 'new_to_old'}",
        "--out",
        tmp_path / "mapped",
    ]
    found = run(capsys, *words)["embeddings"]
    adapter = load_adapter(frozen / "new_to_old")
    assert [Path(entry["file"]).name for entry in found] == ["query.safetensors", "gallery.safetensors"]
    for entry, before in zip(found, sides(frozen / "new"), strict=True):
        after = storage.load(entry["file"], verify=True)
        assert after.digest() == adapter.apply(before).digest() and entry["items"] == len(before)
        assert after.fingerprint == entry["fingerprint"] == adapter.mapped_fingerprint
        assert entry["dim"] == after.dim == 64 and entry["model"] == f"adapter:{frozen / 'new_to_old'}"
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().err
    assert "adapter" in said and "64" in said


def test_one_stored_set_stays_one(capsys: pytest.CaptureFixture[str], frozen: Path, tmp_path: Path) -> None:
    words = [
        "embed",
        "stored",
        frozen / "old" / "wordllama" / "gallery.safetensors",
        "--model",
        f"adapter:{frozen / 'old_to_new'}",
        "--out",
    ]
    (entry,) = run(capsys, *words, tmp_path)["embeddings"]
    assert Path(entry["file"]).name == "embeddings.safetensors" and entry["dim"] == 256


def test_texts_are_embedded_and_mapped_at_once(
    capsys: pytest.CaptureFixture[str], frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_DATA", str(frozen / "data"))
    words = ["embed", "texts", "clinc150", "--over", "package:wordllama",
             "--model", f'adapter:{frozen / "new_to_old"}', "--out", tmp_path / "mapped"]  # fmt: skip
    found = run(capsys, *words)["embeddings"]
    adapter = load_adapter(frozen / "new_to_old")
    assert [Path(entry["file"]).stem for entry in found] == ["train", "query", "gallery"]
    for entry in found:
        before = storage.load(frozen / "new" / "wordllama" / Path(entry["file"]).name)
        after = storage.load(entry["file"], verify=True)
        assert after.digest() == adapter.apply(before).digest()
        assert (entry["dim"], entry["fingerprint"], entry["role"]) == (64, adapter.mapped_fingerprint, before.role)
        assert entry["model"] == f"adapter:{frozen / 'new_to_old'}"
    files = {file.name for file in (tmp_path / "mapped" / "new_to_old").iterdir()}
    assert files == {"train.safetensors", "query.safetensors", "gallery.safetensors", "embed-texts.toml"}, "nothing"
    again = run(
        capsys,
        "embed",
        "texts",
        "--config",
        tmp_path / "mapped" / "new_to_old" / "embed-texts.toml",
        "--out",
        tmp_path / "again",
    )
    assert [entry["fingerprint"] for entry in again["embeddings"]] == [entry["fingerprint"] for entry in found]


def test_embeddings_of_another_model_are_refused_by_name(
    fails: Fails, frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_DATA", str(frozen / "data"))
    out, adapter = tmp_path / "out", frozen / "new_to_old"
    said = fails("embed", "stored", frozen / "old", "--model", f"adapter:{adapter}", "--out", out)
    assert f"'{frozen / 'old'}' has the fingerprint" in said and f"'adapter:{adapter}' reads" in said
    texts = ["embed", "texts", "clinc150", "--over", "package:wordllama"]
    said = fails(*texts, "--model-options.truncate-dim", "64", "--model", f"adapter:{adapter}", "--out", out)
    assert "'package:wordllama' has the fingerprint text:" in said and f"the adapter '{adapter}' maps" in said
    mixed = tmp_path / "mixed"
    storage.save(sides(frozen / "new")[0], mixed / "query.safetensors")
    storage.save(sides(frozen / "old")[1], mixed / "gallery.safetensors")
    said = fails("embed", "stored", mixed, "--model", f"adapter:{adapter}", "--out", out)
    assert f"'{mixed}' has the fingerprint {sides(frozen / 'old')[1].fingerprint}" in said
    assert not out.exists(), "nothing was written"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["images", "glyphs"], "names no model of images"),
        (["texts", "clinc150"], "nothing says which model embeds the texts"),
        (["texts", "clinc150", "--over", "other"], "'other' names stored vectors"),
        (["stored", "new", "--over", "package:wordllama"], "Unknown option: --over."),
        ([], "Unknown command"),
    ],
)
def test_what_does_not_go_with_an_adapter_is_refused(
    fails: Fails, frozen: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    said = fails("embed", *words, "--model", f"adapter:{frozen / 'new_to_old'}", "--out", tmp_path / "out")
    assert message in said and not (tmp_path / "out").exists()


def test_stored_embeddings_are_never_replaced(fails: Fails, frozen: Path) -> None:
    file = frozen / "new" / "wordllama" / "query.safetensors"
    before = file.read_bytes()
    words = ["embed", "stored", frozen / "new", "--model", f"adapter:{frozen / 'new_to_old'}", "--out"]
    assert "holds embeddings itself: query.safetensors" in fails(*words, file.parent)
    shutil.copytree(frozen / "new_to_old", frozen / "twin" / "wordllama")
    said = fails(
        "embed",
        "stored",
        frozen / "new",
        "--model",
        f"adapter:{frozen / 'twin' / 'wordllama'}",
        "--out",
        frozen / "new",
    )
    assert "would take the place of those in" in said
    assert file.read_bytes() == before
