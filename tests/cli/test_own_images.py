"""Own images as people have them: without classes, in folders that are none, all at once, by one release or more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.cli import main
from limpet.embeddings import storage


def document(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def flat(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All images of photos/ in one folder, without classes."""
    folder = tmp_path_factory.mktemp("own") / "flat"
    folder.mkdir()
    for path in (made / "photos").rglob("*.png"):
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    return folder


def test_own_images_without_classes_are_embedded_evaluated_and_kept(capsys, made: Path, flat: Path, tmp_path) -> None:
    releases = [made / "runs" / name for name in ("old", "bct")]
    found = document(capsys, "data", "describe", flat)
    assert found["labelled"] is False and found["parts"]["query"]["images"] == 60
    for part in ("evaluation", "all"):
        words = [
            "embed",
            "images",
            flat,
            "--model",
            *[f"release:{one}" for one in releases],
            "--part",
            part,
            "--out",
            tmp_path / part,
        ]
        for entry in document(capsys, *words)["embeddings"]:
            embeddings = storage.load(entry["file"])
            assert len(embeddings) == 60 and embeddings.labels is None and embeddings.class_names is None
            assert "kind0-0.png" in embeddings.ids
    sides = ["--old", tmp_path / "all" / "old", "--new", tmp_path / "all" / "bct"]
    words = ["evaluate", *sides, "--data", flat, "--resamples", "50", "--out", tmp_path / "report"]
    assert document(capsys, *words, code=3)["verdict"] == "unlabelled"
    assert "data:image/png" in (tmp_path / "report" / "report.html").read_text()
    live = [tmp_path / "live"]
    document(capsys, "gallery", "create", *live, "--embeddings", tmp_path / "all" / "old")
    document(capsys, "upgrade", "start", *live, "--model", f"release:{releases[1]}")
    document(capsys, "upgrade", "swap", *live, "--force", "a test")
    done = document(capsys, "upgrade", "backfill", *live, "--model", f"release:{releases[1]}", "--data", flat)["done"]
    assert (done["written"], done["lacking"]) == (60, 0)


def test_training_says_that_it_needs_classes(fails: Callable[..., str], flat: Path, tmp_path: Path) -> None:
    for words in (["train", "--method", "independent"], ["limpet-bench", "sessions", "disjoint", "--test-images", "2"]):
        said = fails(*words, "--data", flat, "--out", tmp_path / "out")
        assert "'flat' has nothing to train on: its images have no classes" in said
        assert "one folder per class, FOLDER/CLASS/*.png" in said and not (tmp_path / "out").exists()


def test_a_damaged_image_is_told_before_anything_is_trained(fails: Callable[..., str], made: Path, tmp_path) -> None:
    for number, name in enumerate(sorted(path.name for path in (made / "photos").iterdir())):
        photos, out = tmp_path / f"photos{number}", tmp_path / f"out{number}"
        shutil.copytree(made / "photos", photos)
        for damaged in range(4):  # some of them are to be trained on; the old model sees half of the classes
            (photos / name / f"damaged-{damaged}.png").write_bytes(b"no image")
        words = ["--data", photos, "--scenario", "extended-class", "--scenario-options.old-fraction", "0.5"]
        said = fails("train", *words, "--method", "p2s", "--recipe.epochs", "1", "--out", out)
        assert "Cannot read the file" in said and "damaged-" in said
        assert not (out / "old").exists()


def test_folders_that_are_no_classes(capsys, fails: Callable[..., str], made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "photos", tmp_path / "mixed")
    shutil.copy(made / "photos" / "kind0" / "0.png", tmp_path / "mixed" / "loose.png")
    assert "--data-options.classes false" in fails("data", "describe", tmp_path / "mixed")
    found = document(capsys, "data", "describe", tmp_path / "mixed", "--data-options.classes", "false")
    assert found["parts"]["query"]["images"] == 61 and found["labelled"] is False
    (tmp_path / "empty").mkdir()
    assert "holds no images" in fails("data", "describe", tmp_path / "empty", "--data-options.classes", "false")


def test_all_parts_are_one_set_with_their_classes(capsys, made: Path, tmp_path: Path) -> None:
    words = ["embed", "images", made / "photos", "--model", f"release:{made / 'runs' / 'old'}", "--out"]
    (entry,) = document(capsys, *words, tmp_path / "all", "--part", "all")["embeddings"]
    whole = storage.load(entry["file"], verify=True)
    assert sorted(whole.ids) == sorted(
        path.relative_to(made / "photos").as_posix() for path in made.rglob("*/kind*/*.png")
    )
    assert whole.class_names is not None and whole.labels is not None
    assert [whole.class_names[int(label)] for label in whole.labels] == [name.split("/")[0] for name in whole.ids]
    (entry,) = document(capsys, *words, tmp_path / "some")["embeddings"]
    held_out = storage.load(entry["file"])
    rows = whole.ids.find(held_out.ids)
    np.testing.assert_allclose(whole.vectors[rows], held_out.vectors, atol=1e-6)
    by = ["--workers", "1", "--engine", "processes", "--batch-size", "1"]  # 16 images at a time
    (entry,) = document(capsys, *words, tmp_path / "apart", "--part", "all", *by)["embeddings"]
    apart = storage.load(entry["file"])
    assert list(apart.ids) == list(whole.ids) and len(apart) > 16
    np.testing.assert_array_equal(apart.labels, whole.labels)
    np.testing.assert_array_equal(apart.contents, whole.contents)
    np.testing.assert_allclose(apart.vectors, whole.vectors, atol=1e-6)


def test_folders_look_the_same_for_one_release_and_for_several(
    capsys, fails: Callable[..., str], made: Path, tmp_path: Path
) -> None:
    def embedded(out: str, *names: str) -> list[str]:
        releases = [made / "runs" / name for name in names]
        document(
            capsys,
            "embed",
            "images",
            made / "photos",
            "--model",
            *[f"release:{one}" for one in releases],
            "--out",
            tmp_path / out,
        )
        return sorted(path.relative_to(tmp_path / out).as_posix() for path in (tmp_path / out).rglob("*.*"))

    assert embedded("a", "old") == ["old/embed-images.toml", "old/embeddings.safetensors"]
    assert embedded("b", "bct") + embedded("a", "old") == embedded("both", "old", "bct")
    words = ["evaluate", "--resamples", "50", "--report", "none", "--out", tmp_path / "out"]
    one = main([*map(str, [*words, "--old", tmp_path / "a", "--new", tmp_path / "b"])])
    whole = ["--old", tmp_path / "both" / "old", "--new", tmp_path / "both" / "bct"]
    assert one == main([*map(str, [*words, *whole])]) and one in (0, 1)
    embedded("a", "bct")
    said = fails(*words, "--old", tmp_path / "a", "--new", tmp_path / "b")
    assert "holds embeddings of 2 models: bct, old" in said and f"'{tmp_path / 'a' / 'bct'}'" in said
    said = fails(
        "embed",
        "images",
        made / "photos",
        "--model",
        f"release:{made / 'runs' / 'old'}",
        "--out",
        tmp_path / "a" / "old",
    )
    assert "holds embeddings itself: embeddings.safetensors" in said


def test_a_release_given_as_embeddings_is_told_how_to_make_them(
    fails: Callable[..., str], made: Path, tmp_path: Path
) -> None:
    release, embedded = made / "runs" / "old", made / "embedded" / "bct"
    for words in (["evaluate"], ["adapt"]):
        said = fails(*words, "--old", release, "--new", embedded, "--out", tmp_path / "out")
        assert f"'{release}' is a release" in said and f"limpet embed images DATA --model release:{release}" in said
    said = fails("gallery", "create", tmp_path / "live", "--embeddings", release)
    assert f"'{release}' is a release" in said and not (tmp_path / "out").exists()
