from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from limpet.errors import ReleaseError
from limpet.geometry import Hypersphere
from limpet.models.card import write_card
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head
from limpet.models.release import Release, fingerprint_of, load_release, make_release, save_release
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec


def make(seed: int = 0, classes: tuple[str, ...] = ("a", "b", "c"), **spec) -> Release:
    with seeded(seed):
        encoder = Encoder(EncoderSpec(**{"dim": 8, "image_size": 16, **spec}))
        head = build_head("softmax", len(classes), 8, {"bias": True})
    return make_release(
        encoder, Hypersphere(8), classifier=head, classes=classes, head="softmax", head_options={"bias": True},
        method="p2s", method_options={"weight": 2.0},
    )  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_release(make(), tmp_path / "release")


def test_what_is_saved_comes_back(saved) -> None:
    release, again = make(), load_release(saved)
    assert again.fingerprint == release.fingerprint and again.classes == ("a", "b", "c")
    assert again.record.method_options == {"weight": 2.0} and again.space == Hypersphere(8)
    images = torch.rand(3, 3, 16, 16)
    assert torch.equal(again.encoder(images), release.encoder(images))
    assert torch.equal(again.head.weight, release.head.weight)
    assert not any(parameter.requires_grad for parameter in again.encoder.parameters())
    assert sorted(file.name for file in saved.iterdir()) == [
        "README.md", "classes.json", "config.json", "head.safetensors", "model.safetensors",
    ]  # fmt: skip


def test_fingerprint_names_weights_architecture_contract_and_space() -> None:
    base = make().encoder
    prints = {
        fingerprint_of(base, Hypersphere(8)), fingerprint_of(make(seed=1).encoder, Hypersphere(8)),
        make(mean=(0.4,)).fingerprint, make(image_size=24).fingerprint, make(image_size=(24, 16)).fingerprint,
        make(image_size=24, centre_crop=16).fingerprint,
        make(backbone_options={"filters": 8}).fingerprint,
    }  # fmt: skip
    assert len(prints) == 7 and all(one.startswith("release:") and len(one) == 72 for one in prints)
    assert make(image_size=(16, 16)).fingerprint == make(image_size=16).fingerprint
    assert make(classes=("x", "y")).fingerprint == make().fingerprint, "the classifier is no part of it"


@pytest.mark.parametrize("spec", [{"image_size": (24, 16)}, {"image_size": 24, "centre_crop": (16, 12)}])
def test_a_release_of_upright_images_comes_back(spec, tmp_path: Path) -> None:
    release = make(**spec)
    again = load_release(save_release(release, tmp_path / "release"))
    assert again.fingerprint == release.fingerprint and again.record.encoder == release.record.encoder
    images = torch.rand(3, *release.record.encoder.input_shape)
    assert torch.equal(again.encoder(images), release.encoder(images))
    assert again.record.encoder.input_words in (tmp_path / "release" / "README.md").read_text()


def alter_weight(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def alter_head(folder: Path) -> None:
    content = bytearray((folder / "head.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "head.safetensors").write_bytes(content)


def edit(folder: Path, *path: str, value: object) -> None:
    record = json.loads((folder / "config.json").read_text())
    at = record
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    (folder / "config.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (alter_weight, "altered(.|\n)*fingerprint"),
        (alter_head, "head.safetensors is not the classifier"),
        (lambda folder: edit(folder, "encoder", "mean", value=[0.1]), "not what was saved"),
        (lambda folder: edit(folder, "encoder", "dim", value=9), "altered"),
        (lambda folder: edit(folder, "space", "dim", value=9), "altered"),
        (lambda folder: edit(folder, "surprise", value=1), "surprise"),
        (lambda folder: edit(folder, "compatible_with", value="release:" + "0" * 64), "not what was saved"),
        (lambda folder: edit(folder, "method", value="bct"), "not what was saved"),
        (lambda folder: edit(folder, "head", value="normalised"), "altered"),
        (lambda folder: edit(folder, "format_version", value=0), "format_version"),
        (lambda folder: (folder / "classes.json").write_text('["c", "b", "a"]'), "not what was saved"),
        (lambda folder: (folder / "classes.json").write_text("null"), "altered"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"), "no text"),
        (lambda folder: edit(folder, "format_version", value=99), "newer limpet"),
        (lambda folder: (folder / "model.safetensors").unlink(), "altered"),
        (lambda folder: (folder / "classes.json").unlink(), "altered"),
        (lambda folder: (folder / "config.json").write_text("{"), "does not describe a release"),
        (lambda folder: (folder / "config.json").unlink(), "is no release"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x00" * 50), "altered"),
    ],
)
def test_an_altered_release_is_refused(saved, alter, message) -> None:
    alter(saved)
    with pytest.raises(ReleaseError, match=message):
        load_release(saved)


def test_loading_never_unpickles_and_needs_no_library_of_losses(saved) -> None:
    code = textwrap.dedent(f"""
        import pickle, sys, torch
        sys.modules["pytorch_metric_learning"] = None
        def refuse(*args, **kwargs): raise SystemExit("unpickled")
        pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse
        from limpet.models.release import load_release
        print(load_release({str(saved)!r}).fingerprint)
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("release:")


def test_a_full_disk_leaves_the_old_release(saved, small_disk) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    release = load_release(saved)
    with small_disk(20_000), pytest.raises(ReleaseError, match="A release that was there before is intact"):
        save_release(release, saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    load_release(saved)


def test_other_files_in_the_folder_are_left_alone(saved) -> None:
    (saved / "events.jsonl").write_text("{}\n")
    save_release(make(), saved)
    assert (saved / "events.jsonl").read_text() == "{}\n" and load_release(saved).fingerprint == make().fingerprint


def test_a_release_is_never_replaced_by_another(saved) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    with pytest.raises(ReleaseError, match="already holds the release"):
        save_release(make(seed=1), saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


def test_a_card_with_results_leaves_the_release_valid(saved) -> None:
    release = load_release(saved)
    write_card(release.record, release.space, saved, "| mAP |\n|---|\n| 0.5 |")
    card = (saved / "README.md").read_text()
    assert "| 0.5 |" in card and release.fingerprint[:20] in card and "p2s" in card
    assert load_release(saved).fingerprint == release.fingerprint


def test_save_release_syncs_its_files_and_names_the_one_that_vouches_for_them_last(tmp_path, monkeypatch) -> None:
    sync, take_name, events = os.fsync, Path.replace, list[tuple[str, int]]()

    def fsync(handle: int) -> None:
        events.append(("synced", os.fstat(handle).st_ino))
        sync(handle)

    def replace(part: Path, name: Path) -> Path:
        events.append(("named", part.stat().st_ino))
        return take_name(part, name)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    folder = save_release(make(), tmp_path / "release")
    files = {file.name: file.stat().st_ino for file in folder.iterdir()}
    assert [kind for kind, _ in events] == ["synced"] * len(files) + ["named"] * len(files) + ["synced"]
    assert {inode for _, inode in events[: len(files)]} == set(files.values())
    assert events[-2:] == [("named", files["config.json"]), ("synced", folder.stat().st_ino)]
