"""No training-set number passes a gate: the same file for training and evaluation, and queries that were held out."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.cli import main
from limpet.data import load_texts
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.models.release import load_release
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.training.compatible_head import train_head
from limpet.training.experiment import Experiment, head_recipe

MODEL = ["--model", "package:wordllama", "--model-options.truncate-dim", "32"]
QUICK = ["--resamples", "200", "--curve", "no", "--report", "none"]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory, requests: Path) -> Path:
    """Two thirds of the requests in train.csv, which a head is trained on, and the rest in held-out.csv."""
    root = tmp_path_factory.mktemp("held_out")
    header, *rows = (requests / "requests.csv").read_text().splitlines()
    order = np.random.default_rng(0).permutation(len(rows))
    parts = {"train": order[:192], "held-out": order[192:]}
    old = np.load(requests / "old.npz")
    for name, places in parts.items():
        lines = [f"{place:03d}x,{rows[place]}" for place in places]
        (root / f"{name}.csv").write_text("\n".join([f"id,{header}", *lines]))
        ids = np.array([f"{place:03d}x" for place in places])
        np.savez(root / f"old-{name}.npz", vectors=old["vectors"][places], ids=ids)
    new, old_train = embedded(root / "train.csv"), storage.from_npz(root / "old-train.npz", fingerprint="declared:old")
    recipe = dataclasses.replace(head_recipe(len(new)), epochs=5)
    frozen = {"model": "package:wordllama", "truncate_dim": 32}
    train_head(old_train, new, Experiment(method="p2s", recipe=recipe), root / "link" / "head", frozen_model=frozen)
    for name in parts:
        run(
            "embed", "texts", root / f"{name}.csv", "--model", f"release:{root / 'link' / 'head'}", "--out", root / name
        )
    return root


def embedded(file: Path) -> EmbeddingSet:
    return embed_texts(open_text_encoder("package:wordllama", truncate_dim=32), load_texts(file))


def run(*words: object) -> int:
    return main([str(word) for word in words])


def evaluated(flow: Path, name: str, out: Path, *words: object) -> tuple[int, dict[str, Any]]:
    old, new = flow / f"old-{name}.npz", flow / name
    code = run("evaluate", "--old", old, "--old-name", "old", "--new", new, *QUICK, "--out", out, *words)
    (record,) = json.loads((out / "results.json").read_text())["evaluations"].values()
    return code, record


def test_the_file_that_a_head_was_trained_on_gives_no_compatible(flow: Path, tmp_path: Path, capsys) -> None:
    code, record = evaluated(flow, "train", tmp_path / "same")
    said = " ".join(capsys.readouterr().err.split())
    assert (code, record["verdict"]) == (1, "not held out") and record["interval"]["map"]["cross_minus_self_old"][0] > 0
    assert record["trained_on"]["new"] == {"queries": 192, "gallery": 192}
    assert "The new model was trained on 192 of 192 queries" in said and "Swap the query model now" not in said
    start = ["upgrade", "start", tmp_path / "live", "--model", f"release:{flow / 'link' / 'head'}"]
    assert run("gallery", "create", tmp_path / "live", "--embeddings", flow / "old-train.npz", "--name",
               "old") == 0  # fmt: skip
    assert run(*start, "--evidence", tmp_path / "same") == 2
    assert "trained on 192 of 192 queries" in " ".join(capsys.readouterr().err.split())
    code, record = evaluated(flow, "held-out", tmp_path / "other")
    assert (code, record["verdict"]) == (0, "compatible") and record["trained_on"]["new"]["queries"] == 0
    assert run(*start, "--evidence", tmp_path / "other") == 0
    assert "which was trained on 0 of its queries" in " ".join(capsys.readouterr().err.split())


def test_the_same_texts_under_other_ids_are_found(flow: Path, tmp_path: Path) -> None:
    header, *rows = (flow / "train.csv").read_text().splitlines()
    (tmp_path / "renamed.csv").write_text("\n".join([header, *(f"other-{row}" for row in rows)]))
    run(
        "embed",
        "texts",
        tmp_path / "renamed.csv",
        "--model",
        f"release:{flow / 'link' / 'head'}",
        "--out",
        tmp_path / "new",
    )
    found = storage.load(tmp_path / "new" / "head" / "embeddings.safetensors")
    assert found.trained_on.all() and len(load_release(flow / "link" / "head").trained_on) == 192


def test_stored_vectors_through_a_head_or_an_adapter_tell_too(flow: Path, tmp_path: Path) -> None:
    for name in ("train", "held-out"):
        run("embed", "texts", flow / f"{name}.csv", *MODEL, "--out", tmp_path / name)
    run(
        "embed",
        "stored",
        tmp_path / "train",
        "--model",
        f"release:{flow / 'link' / 'head'}",
        "--out",
        tmp_path / "mapped",
    )
    assert storage.load(tmp_path / "mapped" / "head" / "embeddings.safetensors").trained_on.all()
    old = storage.from_npz(flow / "old-train.npz", fingerprint="declared:old")
    adapter = build_adapter("ridge", {}).fit(old, embedded(flow / "train.csv"))
    save_adapter(adapter, tmp_path / "map")
    for name, count in (("train", 192), ("held-out", 0)):
        words = ["--new", tmp_path / name, "--link", tmp_path / "map", "--out", tmp_path / f"report-{name}"]
        run("evaluate", "--old", flow / f"old-{name}.npz", "--old-name", "old", *QUICK, *words)
        (record,) = json.loads((tmp_path / f"report-{name}" / "results.json").read_text())["evaluations"].values()
        assert record["trained_on"]["new"]["queries"] == count and record["trained_on"]["old"] is None


def test_vectors_without_a_record_are_said_to_have_none(flow: Path, tmp_path: Path, capsys) -> None:
    found = storage.load(flow / "train" / "head" / "embeddings.safetensors")
    storage.to_npz(found, tmp_path / "new.npz")
    run(
        "evaluate", "--old", flow / "old-train.npz", "--new", tmp_path / "new.npz", *QUICK, "--out", tmp_path / "report"
    )
    said = " ".join(capsys.readouterr().err.split())
    assert "It is not known whether the new model was trained on these queries" in said


@pytest.mark.parametrize("linked", [True, False])
def test_the_commands_that_a_rehearsal_prints_run_as_they_are(flow: Path, tmp_path: Path, linked: bool) -> None:
    live, report = tmp_path / "live", tmp_path / "report"
    old, head = flow / "old-held-out.npz", flow / "link" / "head"
    assert run("gallery", "create", live, "--embeddings", old, "--name", "old") == 0
    assert evaluated(flow, "held-out", report)[0] == 0
    words = ["rehearse", live, "--model", f"release:{head}", "--texts", flow / "held-out.csv", "--sample", 60]
    assert run("upgrade", *words, *(["--evidence", report] if linked else []), "--out", tmp_path / "rehearsal") == 3
    printed = json.loads((tmp_path / "rehearsal" / "rehearsal.json").read_text())["commands"]
    steps = ["start", "swap", "backfill"] if linked else ["start", "backfill", "swap"]
    assert [shlex.split(line)[2] for line in printed] == steps
    assert [main(shlex.split(line)[1:]) for line in printed] == [0, 0, 0]


def test_a_rehearsal_with_items_that_were_trained_on_is_not_ready(flow: Path, tmp_path: Path, capsys) -> None:
    live, labelled = tmp_path / "live", storage.from_npz(flow / "old-train.npz", fingerprint="declared:old")
    texts = load_texts(flow / "train.csv")
    rows = labelled.ids.find(texts.ids)
    storage.save(
        labelled[rows].replace(labels=texts.labels, class_names=StringArray.of(texts.class_names)),
        tmp_path / "old.safetensors",
    )
    assert run("gallery", "create", live, "--embeddings", tmp_path / "old.safetensors") == 0
    words = [
        "--model",
        f"release:{flow / 'link' / 'head'}",
        "--texts",
        flow / "train.csv",
        "--out",
        tmp_path / "rehearsal",
    ]
    assert run("upgrade", "rehearse", live, *words) == 1
    found = json.loads((tmp_path / "rehearsal" / "rehearsal.json").read_text())
    assert (found["verdict"], found["trained"]) == ("not held out", found["asked"])
    assert "items that the new model was trained on" in " ".join(capsys.readouterr().err.split())
