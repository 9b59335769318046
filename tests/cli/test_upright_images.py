"""Images that are higher than wide, from the command line: trained on, embedded, evaluated, served and searched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import main
from limpet.embeddings import storage
from limpet.models.release import load_release
from limpet.models.specs import EncoderSpec

TRAIN = ["--scenario", "extended-class", "--scenario-options.old-fraction", "0.5", "--method", "bct", "--dim", "8"]
QUICK = ["--recipe.epochs", "1", "--recipe.batch-size", "16", "--backbone-options.filters", "4"]


def document(capsys: pytest.CaptureFixture[str], *words: object, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) in codes
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("words", "size", "crop"),
    [
        (["--data-options.image-size", "24x16", "--recipe.augmentation.crop-padding", "2"], (24, 16), None),
        (
            [
                "--data-options.image-size",
                "28x20",
                "--centre-crop",
                "24x16",
                "--recipe.augmentation.resized-crop",
                "{}",
            ],
            (28, 20),
            (24, 16),
        ),
    ],
)
def test_upright_images_go_all_the_way(
    capsys: pytest.CaptureFixture[str],
    made: Path,
    tmp_path: Path,
    words: list[str],
    size: tuple[int, int],
    crop: tuple[int, int] | None,
) -> None:
    photos, runs = made / "photos", tmp_path / "runs"
    document(capsys, "train", "--data", photos, *TRAIN, *QUICK, *words, "--out", runs)
    releases = [runs / name for name in ("old", "independent", "bct")]
    for folder in releases:
        spec = load_release(folder).record.encoder
        assert isinstance(spec, EncoderSpec) and (spec.image_size, spec.centre_crop) == (size, crop)
    document(
        capsys,
        "embed",
        "images",
        photos,
        "--model",
        *[f"release:{one}" for one in releases],
        "--out",
        tmp_path / "embedded",
    )
    sides = [f"--{side}={tmp_path / 'embedded' / folder.name}" for side, folder in
             zip(("old", "independent", "new"), releases, strict=True)]  # fmt: skip
    found = document(capsys, "evaluate", *sides, "--resamples", "40", "--out", tmp_path / "report", codes=(0, 1))
    assert 0 < found["cross"]["map"] <= 1
    live = [tmp_path / "live"]
    document(capsys, "gallery", "create", *live, "--embeddings", tmp_path / "embedded" / "old")
    name = storage.load(tmp_path / "embedded" / "old" / "embeddings.safetensors").ids[0]
    hits = document(capsys, "gallery", "search", *live, "--image", photos / name, "--model", f"release:{releases[0]}")
    nearest = hits["queries"][0]["hits"][0]
    assert nearest["id"] == name, "read as it was when it was embedded"
    assert nearest["score"] == pytest.approx(1, abs=1e-6)


def test_images_of_another_height_are_refused(fails: Callable[..., str], made: Path, tmp_path: Path) -> None:
    said = fails("embed", "images", made / "photos", "--model", f"release:{made / 'runs' / 'old'}",
                 "--data-options.image-size", "32x16", "--out", tmp_path / "out")  # fmt: skip
    assert "The images have shape (3, 32, 16), and the release was trained on (3, 32, 32)" in said
