"""Pictures of stored embeddings on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.embeddings.embedding_set import with_uncertainty
from limpet.geometry import Hypersphere, Lorentz

NAMES = [f"class {letter}" for letter in "abcd"]
LABELS = np.repeat(np.arange(4), 6)


def stored(name: str, seed: int, folder: Path, *, kept: slice = slice(None), labelled: bool = True) -> Path:
    """Write 24 items of four classes about directions of their own, turned a little by the seed."""
    rng = np.random.default_rng(seed)
    rows = np.eye(4)[LABELS] + rng.normal(0, 0.2, (24, 4))
    found = EmbeddingSet(
        ids=[f"item {row}" for row in range(24)],
        vectors=(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32),
        fingerprint=f"declared:{name}",
        space=Hypersphere(4),
        labels=LABELS if labelled else None,
        class_names=NAMES if labelled else None,
    )
    storage.save(found.select(kept), folder / name / "embeddings.safetensors")
    return folder / name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for seed, name in enumerate(("old", "mine", "yours")):
        stored(name, seed, root)
    stored("fewer", 3, root, kept=slice(0, 18))
    stored("others", 4, root, labelled=False)
    stored("turned", 1, root, kept=slice(None, None, -1))
    points = Lorentz(3).project(torch.from_numpy(np.random.default_rng(5).normal(0, 0.2, (24, 3)).astype(np.float32)))
    lorentz = EmbeddingSet(
        [f"item {row}" for row in range(24)], points.numpy(), "declared:curved", Lorentz(3), labels=LABELS,
        class_names=NAMES,
    )  # fmt: skip
    storage.save(with_uncertainty(lorentz), root / "curved" / "embeddings.safetensors")
    return root


def draw(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = main(["evaluate", "picture", *map(str, words), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html"])
def test_a_picture_is_written_in_every_form(capsys, files: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / "new" / f"picture.{ending}"
    code, found, said = draw(capsys, "--old", files / "old", "--new", files / "mine", "--out", out, "--title", "Mine")
    assert code == 0 and found["title"] == "Mine" and found["models"] == ["mine"] and str(out) in said
    content = out.read_bytes()
    if ending == "svg":
        assert ElementTree.fromstring(content).get("aria-label") == "Mine" and b"old embedding" in content
    elif ending == "png":
        with Image.open(out) as image:
            assert image.size[0] > 1600
    elif ending == "pdf":
        assert content.startswith(b"%PDF")
    else:
        assert content.count(b"<svg") == 2 and b"class b" in content and b"prefers-color-scheme:dark" in content


def test_the_same_seed_draws_the_same_picture(capsys, files: Path, tmp_path: Path) -> None:
    given = ["--old", files / "old", "--drawn-classes", 2, "--per-class", 4]
    first, again, other = (tmp_path / f"{name}.svg" for name in ("first", "again", "other"))
    draw(capsys, *given, "--out", first)
    draw(capsys, *given, "--out", again)
    _, found, _ = draw(capsys, *given, "--out", other, "--seed", 7)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    assert [len(one["ids"]) for one in found["clusters"]] == [4, 4]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--classes", "class c", "class a"], ["class c", "class a"]),
        (["--nearest", 1, "--around", "class b"], ["class b"]),
        (["--similar", 2], None),
        ([], NAMES),
    ],
)
def test_classes_are_chosen_as_asked(capsys, files: Path, tmp_path: Path, given: list[object], expected: Any) -> None:
    _, found, _ = draw(capsys, "--old", files / "old", "--new", files / "mine", *given, "--out", tmp_path / "p.svg")
    assert found["classes"][: len(expected)] == expected if expected else len(found["classes"]) == 2
    assert {one["model"] for one in found["clusters"]} == {"old", "mine"}


def test_an_old_model_can_stand_apart_with_its_prototypes(capsys, files: Path, tmp_path: Path) -> None:
    words = ["--old", files / "old", "--new", files / "mine", files / "yours", "--apart", "--prototypes"]
    _, found, _ = draw(capsys, *words, "--out", tmp_path / "p.svg")
    assert found["apart"] and set(found["prototypes"]) == set(NAMES) and found["models"] == ["mine", "yours"]


def test_angles_are_those_between_the_files(capsys, files: Path, tmp_path: Path) -> None:
    given = ["--old", files / "old", "--new", files / "mine", "--kind", "angles", "--out", tmp_path / "angles.svg"]
    _, found, said = draw(capsys, *given)
    old, new = (storage.load(files / name / "embeddings.safetensors").vectors for name in ("old", "mine"))
    angles = np.degrees(np.arccos((old * new).sum(axis=1)))
    assert found["panels"]["mine"]["groups"]["all"]["mean"] == pytest.approx(angles.mean(), abs=1e-3)
    assert "24 items" in said
    _, turned, _ = draw(capsys, *given[:3], files / "turned", *given[4:])  # the same in another order
    assert turned["panels"]["turned"] == found["panels"]["mine"]
    _, part, _ = draw(capsys, *given, "--classes", "class a", "class d")
    assert part["panels"]["mine"]["groups"]["all"]["mean"] == pytest.approx(angles[LABELS % 3 == 0].mean(), abs=1e-3)


@pytest.mark.parametrize("kind", ["radii", "uncertainty"])
def test_a_model_alone_has_radii_and_uncertainty(capsys, files: Path, tmp_path: Path, kind: str) -> None:
    for option, name in (("--old", "old"), ("--new", "curved")):
        code, found, _ = draw(capsys, option, files / "curved", "--kind", kind, "--out", tmp_path / "p.svg")
        assert code == 0 and list(found["panels"]) == [name]


def test_items_that_a_model_lacks_are_left_out_and_labels_of_one_are_those_of_all(
    capsys, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.svg"
    _, found, said = draw(capsys, "--old", files / "old", "--new", files / "fewer", files / "others", "--out", out)
    assert "18 of 24 items are in all files" in said and found["classes"] == NAMES[:3]


WRONG: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "No embeddings were given"),
    "another ending": (["--old", "old", "--out", "p.gif"], "ends in '.gif'"),
    "no ending": (["--old", "old", "--out", "p"], "has no ending"),
    "angles of one model": (["--new", "mine", "--kind", "angles"], "--kind angles was given --new alone"),
    "radii on a sphere": (["--old", "old", "--kind", "radii"], "where only directions count"),
    "no uncertainty": (["--old", "old", "--kind", "uncertainty"], "carry no uncertainty"),
    "no labels": (["--old", "others"], "have no labels"),
    "an unknown class": (["--old", "old", "--classes", "class e"], "Unknown class 'class e'. Did you mean 'class d'"),
    "an unknown middle": (["--old", "old", "--nearest", "2", "--around", "clas a"], "Did you mean 'class a'"),
    "two choices": (["--old", "old", "--similar", "2", "--drawn-classes", "2"], "were given"),
    "around nothing": (["--old", "old", "--around", "class a"], "without --nearest"),
    "no class": (["--old", "old", "--drawn-classes", "0"], "--drawn-classes 0"),
    "too few items": (["--old", "old", "--classes", "class a", "--per-class", "3"], "A layout of 3 embeddings"),
    "apart from nothing": (["--old", "old", "--apart"], "without --new"),
    "prototypes of nothing": (["--new", "mine", "--prototypes"], "without --old"),
    "prototypes of angles": (["--old", "old", "--new", "mine", "--kind", "angles", "--prototypes"], "--kind angles"),
    "a release for a plane": (["--old", "old", "--old-release", "x"], "with --kind embedding"),
    "another space": (["--old", "old", "--new", "curved"], "one space"),
    "no file": (["--old", "elsewhere"], "There is no"),
    "an unknown kind": (["--old", "old", "--kind", "histogram"], "--kind"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_refused_in_words(capsys, files: Path, tmp_path: Path, what: str) -> None:
    given, said = WRONG[what]
    known = {path.name for path in files.iterdir()} | {"elsewhere"}
    words = [str(files / word) if before in ("--old", "--new") and word in known else word
             for before, word in zip(["", *given], given, strict=False)]  # fmt: skip
    out = [] if "--out" in given else ["--out", str(tmp_path / "p.svg")]
    assert main(["evaluate", "picture", *words, *out]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_package_that_is_missing_is_named_before_anything_is_read(
    capsys, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    words = ["--old", files / "elsewhere", "--method", "umap", "--out", tmp_path / "p.svg"]
    assert main(["evaluate", "picture", *map(str, words)]) == 2
    assert "pip install '.[umap]'" in capsys.readouterr().err


def test_files_without_an_item_in_common_are_refused(capsys, files: Path, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "other.npz", vectors=np.eye(4, dtype=np.float32), ids=np.array(list("wxyz")), labels=np.arange(4)
    )
    words = ["--old", files / "old", "--new", tmp_path / "other.npz", "--out", tmp_path / "p.svg"]
    assert main(["evaluate", "picture", *map(str, words)]) == 2
    assert "have no item in common" in " ".join(capsys.readouterr().err.split())
