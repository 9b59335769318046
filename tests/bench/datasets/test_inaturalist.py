"""iNaturalist in small, in the official layouts of several years."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets import inaturalist as module

SPECIES = {3: "Bufo bufo", 0: "Abies alba", 11: "Apis mellifera"}


def coco(files: dict[str, int], species: dict[int, str] = SPECIES) -> dict[str, Any]:
    """What a list says: files by category; ids of images and annotations are not row numbers."""
    images = [{"id": 500 - row, "file_name": name, "width": 10, "height": 8} for row, name in enumerate(files)]
    annotations = [
        {"id": row, "image_id": 500 - row, "category_id": category} for row, category in enumerate(files.values())
    ]
    return {
        "info": {"year": 2018}, "images": images, "annotations": annotations[::-1],
        "categories": [{"id": key, "name": name, "supercategory": "Life"} for key, name in species.items()],
    }  # fmt: skip


@pytest.fixture
def build(tmp_path: Path, paint: Callable[..., None]) -> Callable[..., Path]:
    def make(train: str = "train2018.json", val: str = "val2018.json", folder: str = "train_val2018/Life") -> Path:
        root = tmp_path / "inaturalist"
        root.mkdir(exist_ok=True)
        lists = {
            train: {f"{folder}/3/a.jpg": 3, f"{folder}/0/b.jpg": 0, f"{folder}/3/c.jpg": 3, f"{folder}/11/d.jpg": 11},
            val: {f"{folder}/0/e.jpg": 0, f"{folder}/3/f.jpg": 3, f"{folder}/3/g.jpg": 3},
        }
        for name, files in lists.items():
            for number, file in enumerate(files):
                paint(root / file, 50 * number)
            (root / name).write_text(json.dumps(coco(files)))
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("train", "val", "folder"),
    [("train2018.json", "val2018.json", "train_val2018/Life"), ("train2017.json", "val2017.json", "train_val_images/X"),
     ("train.json", "val.json", "train"), ("train_mini.json", "val.json", "train_mini")],
)  # fmt: skip
def test_lists_and_folders_of_every_year(build: Callable[..., Path], brightness, train, val, folder) -> None:
    data = load_dataset("inaturalist", build(train, val, folder), image_size=8)
    assert data.train is not None and data.leave_one_out and data.query is data.gallery
    assert data.train.class_names == ("00000 Abies alba", "00003 Bufo bufo", "00011 Apis mellifera")
    assert data.train.labels.tolist() == [1, 0, 1, 2]
    assert [data.query.class_names[label][6:] for label in data.query.labels] == [
        "Abies alba",
        "Bufo bufo",
        "Bufo bufo",
    ]
    assert brightness(data.train) == [0, 50, 100, 150] and data.query.ids[0] == f"{folder}/0/e.jpg"
    assert data.query.shape == (3, 8, 8)
    assert "4 training images (" in data.description and "3 val images (" in data.description


def test_the_release_is_asked_for_where_several_are_there(build: Callable[..., Path]) -> None:
    root = build()
    build("train.json", "val.json", "train")
    with pytest.raises(
        ConfigError, match=r"several releases: inat2018, inat2021(.|\n)*--data-options.release inat2018"
    ):
        load_dataset("inaturalist", root)
    assert load_dataset("inaturalist", root, release="inat2021").train.ids[0] == "train/3/a.jpg"
    with pytest.raises(DataError, match=r"no train2017.json (.|\n)*inat_comp"):
        load_dataset("inaturalist", root, release="inat2017")
    (root / "inaturalist" / "val.json").unlink()
    with pytest.raises(DataError, match=r"no val.json (.|\n)*inat_comp"):
        load_dataset("inaturalist", root, release="inat2021")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("annotations"), "has no annotations with image_id and category_id"),
        (lambda content: content["images"][0].pop("file_name"), "has no images with id and file_name"),
        (lambda content: content["annotations"].pop(), r"The image 500 of .* has the categories \[\]"),
        (lambda content: content["annotations"][0].update(category_id=77), r"has the categories \[77\]"),
        (lambda content: content["annotations"].append({"image_id": 500, "category_id": 0}), r"categories \[0, 0\]"),
        (lambda content: content["annotations"].append({"image_id": 9, "category_id": 0}), "that it does not list"),
        (lambda content: content["images"][0].update(file_name="x/y.jpg"), r"1 of 3 images are not in .*'x/y.jpg'"),
    ],
)
def test_lists_that_cannot_be_right_are_refused(build: Callable[..., Path], change: Any, message: str) -> None:
    root = build()
    path = root / "inaturalist" / "val2018.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load_dataset("inaturalist", root)


def test_a_list_that_is_cut_off_is_refused(build: Callable[..., Path]) -> None:
    root = build()
    path = root / "inaturalist" / "train2018.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(DataError, match=r"Cannot read .*train2018.json(.|\n)*complete JSON"):
        load_dataset("inaturalist", root)
    path.write_text("[1, 2]")
    with pytest.raises(DataError, match="has no images"):
        load_dataset("inaturalist", root)


def test_inat_m_takes_as_many_images_of_every_chosen_species(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = build()
    with pytest.raises(DataError, match="0 of 3 species have at least 527 training images"):
        load_dataset("inaturalist", root, subset="iNat-M")
    species = {number: f"species {number}" for number in range(6)}
    files = {f"train_val2018/Life/{row}.jpg": row % 6 for row in range(36)}
    files |= {f"train_val2018/Life/more{row}.jpg": row for row in range(3)}
    for name in files:
        (root / "inaturalist" / name).write_bytes(b"never read")
    for part in ("train2018.json", "val2018.json"):
        (root / "inaturalist" / part).write_text(json.dumps(coco(files, species)))
    monkeypatch.setattr(module, "CLASSES_M", 4)
    monkeypatch.setattr(module, "IMAGES_M", 6)
    found = [load_dataset("inaturalist", root, subset="iNat-M", seed=seed) for seed in range(4)]
    for data in found:
        assert np.bincount(data.train.labels).tolist() == [6] * 4
        assert data.query.class_names == data.train.class_names
        assert len(data.query) == 24 + sum(name[-1] in "012" for name in data.query.class_names)
        assert data.name == "inat-m" and "not as published" not in data.description
    assert len({data.train.class_names for data in found}) > 1
    assert list(load_dataset("inaturalist", root, subset="iNat-M", seed=3).train.ids) == list(found[3].train.ids)
