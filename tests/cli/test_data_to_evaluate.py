"""Official layouts and data sets to evaluate with only, on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limpet.cli import main
from limpet.data.datasets import DATASETS, Dataset
from limpet.data.image_folder import image_folder
from limpet.data.retrieval_data import RetrievalData
from limpet.embeddings import storage


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with Market-1501 in small, in use."""
    monkeypatch.setenv("LIMPET_DATA", str(tmp_path))
    names = {
        "bounding_box_train": ["0002_c1s1_000451_03.jpg", "0007_c3s3_077419_03.jpg", "0007_c3s3_077420_01.jpg"],
        "query": ["0001_c1s1_001051_00.jpg", "0003_c6s1_002301_00.jpg"],
        "bounding_box_test": ["-1_c1s1_000401_03.jpg", "0001_c2s1_001076_02.jpg", "0003_c5s3_015065_02.jpg"],
    }
    for folder, files in names.items():
        place = tmp_path / "Market-1501-v15.09.15" / folder
        place.mkdir(parents=True)
        for file in files:
            Image.fromarray(
                np.random.default_rng(len(file) + ord(file[3])).integers(0, 256, (32, 16, 3), np.uint8)
            ).save(place / file)
    return tmp_path


@pytest.fixture
def probes(made: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a data set without training images, whose labels mean nothing."""

    def read(*, image_size: int = 32) -> RetrievalData:
        images = image_folder(made / "photos", image_size=image_size).query
        return RetrievalData("probes", None, images[[0, 1]], images, False, None, "some probes", labelled=False)

    monkeypatch.setitem(DATASETS, "probes", Dataset(read, "images to evaluate with"))
    return "probes"


def test_the_list_shows_them(capsys) -> None:
    listed = document(capsys, "data", "list")["data"]
    assert {"market-1501", "in-shop", "product-10k", "stanford-dogs", "inaturalist", "cifar-100"} < set(listed)
    assert main(["data", "list"]) == 0
    assert "Market-1501-v15.09.15" in capsys.readouterr().err


def test_market_is_described_and_checked(capsys, market: Path) -> None:
    found = document(capsys, "data", "describe", "market-1501")
    assert found["parts"]["query"] == {"images": 2, "classes": 2, "smallest_class": 1, "largest_class": 1,
                                       "shape": [3, 256, 256], "columns": ["camera"]}  # fmt: skip
    assert found["parts"]["gallery"]["classes"] == 3 and "not as published" in found["description"]
    assert main(["data", "describe", "market-1501"]) == 0
    assert "256 × 256" in capsys.readouterr().err
    assert document(capsys, "data", "check", "market-1501")["images"] == 8


def test_a_folder_that_is_not_there_says_where_to_get_the_data(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_DATA", str(tmp_path))
    said = fails("data", "describe", "in-shop")
    assert "InShopRetrieval" in said and "LIMPET_DATA" in said


def test_cameras_reach_the_embeddings(capsys, made: Path, market: Path, tmp_path: Path) -> None:
    words = ["embed", "images", "market-1501", "--model", f"release:{made / 'runs' / 'old'}"]
    document(capsys, *words, "--out", tmp_path / "out")
    gallery = storage.load(tmp_path / "out" / "old" / "gallery.safetensors")
    assert gallery.columns["camera"].tolist() == [1, 2, 5]
    assert gallery.class_names is not None and [gallery.class_names[int(row)] for row in gallery.labels] == [
        "-1", "0001", "0003",
    ]  # fmt: skip


def test_features_with_their_mirror_images(capsys, made: Path, tmp_path: Path) -> None:
    words = ["embed", "images", made / "photos", "--model", f"release:{made / 'runs' / 'old'}"]
    for out, more in {
        "plain": [],
        "features": ["--form", "features"],
        "both": ["--form", "features", "--flip"],
    }.items():
        document(capsys, *words, *more, "--out", tmp_path / out)
    found = {
        out: storage.load(tmp_path / out / "old" / "embeddings.safetensors") for out in ("plain", "features", "both")
    }
    assert [sets.form for sets in found.values()] == ["points", "features", "features"]
    features = found["features"].vectors
    np.testing.assert_allclose(
        found["plain"].vectors, features / np.linalg.norm(features, axis=1, keepdims=True), rtol=1e-4, atol=1e-6
    )
    assert np.abs(found["both"].vectors - 2 * features).max() > 1e-3
    assert "flip = true" in (tmp_path / "both" / "old" / "embed-images.toml").read_text()


def test_flip_and_form_mean_nothing_for_what_is_no_image(fails: Callable[..., str], made: Path, tmp_path: Path) -> None:
    stored = made / "embedded" / "old" / "embeddings.safetensors"
    for words in (["--flip"], ["--form", "features"]):
        said = fails(
            "embed", "stored", stored, "--model", f"release:{made / 'runs' / 'old'}", *words, "--out", tmp_path
        )
        assert f"Unknown option: {words[0]}" in said and "limpet embed stored --help" in said


def test_without_training_images_training_is_refused(
    fails: Callable[..., str], made: Path, probes: str, tmp_path: Path
) -> None:
    refused = "'probes' has nothing to train on"
    old = made / "runs" / "old"
    for words in (
        ["train", "--method", "independent"],
        ["train", "--scenario", "open-class"],
        ["train", "--old", f"release:{old}", "--method", "bct", "--dim", "16"],
        ["limpet-bench", "sessions", "disjoint", "--test-images", "2"],
    ):
        assert refused in fails(*words, "--data", probes, "--out", tmp_path / "out")
    said = fails("train", "--data", made / "photos", "--old", f"release:{old}", "--old-data", probes,
                 "--method", "advbct", "--backbone-options.filters", "8", "--dim", "16",
                 "--out", tmp_path / "out")  # fmt: skip
    assert refused in said
    said = fails("embed", "images", probes, "--part", "train", "--model", f"release:{old}", "--out", tmp_path / "out")
    assert "'probes' has no training images. Expected: --part evaluation" in said


def test_labels_that_mean_nothing_are_neither_described_nor_written(
    capsys, made: Path, probes: str, tmp_path: Path
) -> None:
    found = document(capsys, "data", "describe", probes)
    assert found["labelled"] is False and list(found["parts"]) == ["query", "gallery"]
    assert found["parts"]["query"]["classes"] is None and found["parts"]["query"]["images"] == 2
    assert main(["data", "describe", probes]) == 0
    assert main(["data", "check", probes]) == 0
    assert "nothing to train on" in " ".join(capsys.readouterr().err.split())
    document(
        capsys, "embed", "images", probes, "--model", f"release:{made / 'runs' / 'old'}", "--out", tmp_path / "out"
    )
    for part, count in (("query", 2), ("gallery", 12)):
        embeddings = storage.load(tmp_path / "out" / "old" / f"{part}.safetensors")
        assert len(embeddings) == count and embeddings.labels is None and embeddings.class_names is None
