"""Market-1501 in small, in its official layout."""

from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError

FILES = {
    "bounding_box_train": ["0002_c1s1_000451_03.jpg", "0002_c2s1_000301_01.jpg", "0007_c3s3_077419_03.jpg"],
    "query": ["0001_c1s1_001051_00.jpg", "0003_c6s1_002301_00.jpg"],
    "bounding_box_test": [
        "-1_c1s1_000401_03.jpg", "0000_c4s1_000151_02.jpg", "0001_c1s1_002301_01.jpg", "0001_c2s1_001076_02.jpg",
        "0003_c5s3_015065_02.jpg",
    ],
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., None]) -> Path:
    for folder, names in FILES.items():
        for number, name in enumerate(names):
            paint(tmp_path / "Market-1501-v15.09.15" / folder / name, 40 * number, (64, 128))
        (tmp_path / "Market-1501-v15.09.15" / folder / "Thumbs.db").write_bytes(b"x")
    return tmp_path


def test_people_junk_distractors_and_cameras(root: Path, brightness) -> None:
    data = load_dataset("market-1501", root)
    assert data.train is not None and not data.leave_one_out
    assert data.train.class_names == ("0002", "0007") and data.train.labels.tolist() == [0, 0, 1]
    assert data.query.class_names == data.gallery.class_names == ("-1", "0000", "0001", "0003")
    assert data.query.labels.tolist() == [2, 3] and data.gallery.labels.tolist() == [0, 1, 2, 2, 3]
    assert data.train.columns["camera"].tolist() == [1, 2, 3]
    assert data.query.columns["camera"].tolist() == [1, 6]
    assert data.gallery.columns["camera"].tolist() == [1, 4, 1, 2, 5]
    assert list(data.query.ids) == [f"query/{name}" for name in FILES["query"]]
    assert brightness(data.gallery) == [0, 40, 80, 120, 160]
    assert data.gallery.shape == (3, 256, 256) and data.gallery.fit == "squash"
    assert "3 training images (12,936), 2 people to train on (751), 2 queries (3,368)" in data.description


def test_portraits_are_half_as_wide_as_high(root: Path) -> None:
    data = load_dataset("market-1501", root, image_size=64, portrait=True, fit="crop")
    assert data.query.shape == data.gallery.shape == (3, 64, 32) and data.gallery.fit == "crop"
    upright = load_dataset("market-1501", root, image_size=[64, 32], fit="crop")
    assert upright.gallery.digest() == data.gallery.digest() and upright.query.shape == (3, 64, 32)
    with pytest.raises(ConfigError, match=r"portrait with image_size = 64x32\.\nExpected: one of them"):
        load_dataset("market-1501", root, image_size="64x32", portrait=True)


@pytest.mark.parametrize("folder", FILES)
def test_a_missing_folder_is_named(root: Path, folder: str) -> None:
    (root / "Market-1501-v15.09.15" / folder).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"'market-1501' is not complete in .*: no {folder}/(.|\n)*project page"):
        load_dataset("market-1501", root)


def test_files_of_another_name_and_empty_folders_are_refused(root: Path, paint: Callable[..., None]) -> None:
    folder = root / "Market-1501-v15.09.15" / "query"
    paint(folder / "person_7.jpg")
    with pytest.raises(DataError, match=r"query/person_7.jpg is named otherwise(.|\n)*0002_c1s1_000451_03.jpg"):
        load_dataset("market-1501", root)
    for path in folder.glob("*.jpg"):
        path.unlink()
    with pytest.raises(DataError, match=r"query holds no \.jpg images"):
        load_dataset("market-1501", root)
