"""iNaturalist: photographs of living things (Van Horn et al., CVPR 2018, and the competitions of 2017 to 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limpet.data import (
    Dataset,
    Fit,
    ImageSet,
    ImageSize,
    RetrievalData,
    class_counts,
    generator_of,
    lowest_of_each_class,
)
from limpet.errors import ConfigError, DataError
from limpet.support import parsed_json
from limpet_bench.datasets.layout import Needed, listed_images, require, text_of, unlike

OBTAINED = "the competition's page, github.com/visipedia/inat_comp"
CLASSES_M, IMAGES_M = 200, 527
"""Number of classes of iNat-M, and of training images per class."""

Name = Literal["inat2017", "inat2018", "inat2019", "inat2021", "inat2021-mini"]


@dataclass(frozen=True)
class Release:
    """Files of one year's release, with its official numbers of images and species."""

    train: str
    val: str
    training_images: int
    validation_images: int
    species: int

    @property
    def needed(self) -> tuple[Needed, Needed]:
        """The training list and the validation list."""
        return Needed(self.train, "the images to train on"), Needed(self.val, "the images to search")


RELEASES: dict[str, Release] = {
    "inat2017": Release("train2017.json", "val2017.json", 579_184, 95_986, 5_089),
    "inat2018": Release("train2018.json", "val2018.json", 437_513, 24_426, 8_142),
    "inat2019": Release("train2019.json", "val2019.json", 265_213, 3_030, 1_010),
    "inat2021": Release("train.json", "val.json", 2_686_843, 100_000, 10_000),
    "inat2021-mini": Release("train_mini.json", "val.json", 500_000, 100_000, 10_000),
}


def inaturalist(
    root: Path,
    *,
    release: Name | None = None,
    subset: Literal["all", "iNat-M"] = "all",
    image_size: ImageSize = 224,
    fit: Fit = "crop",
    seed: int = 0,
) -> RetrievalData:
    """Photographs of species: training on the train split, leave-one-out search on the val split.

    Official counts (training images, val images, species): 2017: 579,184, 95,986, 5,089; 2018: 437,513, 24,426, 8,142;
    2019: 265,213, 3,030, 1,010; 2021: 2,686,843 (mini: 500,000), 100,000, 10,000. "iNat-M" (Wan et al., CVS, CVPR 2022)
    is a subset of the 2017 release: 527 training images of each of 200 species, and their val images. The authors did
    not publish which species and images they used; here the seed selects them, among species with at least 527
    training images.

    Args:
        root: Folder with the lists, such as ``train2018.json`` and ``val2018.json`` (2021: ``train.json`` or
            ``train_mini.json``, and ``val.json``), and the image folders that they name.
        release: Release to read. Default: the only one in the folder.
        subset: "all" or "iNat-M".
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        seed: Random seed that selects species and images of "iNat-M".

    Raises:
        ConfigError: The folder holds lists of several releases, and ``release`` is not given.
        DataError: A list is missing or invalid, an image is missing, or an image does not have exactly one class.
    """
    chosen_release = RELEASES[release or _only_release(root)]
    train_file, val_file = require(root, chosen_release.needed, "inaturalist", OBTAINED)
    train = _Listed.read(train_file)
    chosen = train.rows() if subset == "all" else _inat_m(train, seed)
    species = {train.classes[row] for row in chosen}
    val = _Listed.read(val_file)
    searched = [row for row in val.rows() if subset == "all" or val.classes[row] in species]
    training = train.images(root, chosen, image_size, fit)
    searching = val.images(root, searched, image_size, fit)
    found = {"training images": len(training), "val images": len(searching), "species": len(species)}
    if subset == "all":
        counts = (chosen_release.training_images, chosen_release.validation_images, chosen_release.species)
    else:
        counts = (CLASSES_M * IMAGES_M, found["val images"], CLASSES_M)  # the number of val images was not published
    return RetrievalData.of_one_set(
        name="inaturalist" if subset == "all" else "inat-m",
        train=training,
        evaluation=searching,
        description=f"photographs of {len(species):,} species, {len(training):,} to train on; every one of "
        f"{len(searching):,} val images searches the others{unlike(found, dict(zip(found, counts, strict=True)))}",
    )


def _only_release(root: Path) -> str:
    there = [name for name, release in RELEASES.items() if (root / release.train).is_file()]
    if len(there) > 1:
        raise ConfigError(
            f"{root} holds the lists of several releases: {', '.join(there)}.",
            expected=f"the option release: one of {', '.join(there)}",
            to_do=f"pass --data-options.release {there[0]}.",
        )
    if not there:
        lists = ", ".join(f"{release.train} with {release.val}" for release in RELEASES.values())
        require(root, [Needed("train2018.json", f"or the list of another year: {lists}")], "inaturalist", OBTAINED)
    return there[0]


@dataclass(frozen=True)
class _Listed:
    """The images of one list, with the class name of each."""

    files: list[str]
    classes: list[str]

    @classmethod
    def read(cls, path: Path) -> _Listed:
        content = _json(path)
        names = {entry["id"]: f"{entry['id']!s:0>5} {entry['name']}" for entry in content["categories"]}
        categories: dict[Any, list[Any]] = {entry["id"]: [] for entry in content["images"]}
        for entry in content["annotations"]:
            categories.setdefault(entry["image_id"], []).append(entry["category_id"])
        for image, found in categories.items():
            if len(found) != 1 or found[0] not in names:
                raise DataError(
                    f"The image {image} of {path} has the categories {found}.", expected="one that the list describes"
                )
        entries = content["images"]
        if len(categories) != len(entries):
            raise DataError(f"{path} annotates images that it does not list.", expected="one annotation per image")
        return cls([entry["file_name"] for entry in entries], [names[found[0]] for found in categories.values()])

    def rows(self) -> list[int]:
        return list(range(len(self.files)))

    def images(self, root: Path, rows: list[int], image_size: ImageSize, fit: Fit) -> ImageSet:
        return listed_images(
            root, [self.files[row] for row in rows], [self.classes[row] for row in rows], image_size, fit
        )


def _json(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        content = parsed_json(text_of(path))
    except ValueError as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a complete JSON file") from error
    fields = {"images": ("id", "file_name"), "annotations": ("image_id", "category_id"), "categories": ("id", "name")}
    for name, wanted in fields.items():
        entries = content.get(name) if isinstance(content, dict) else None
        if not entries or not all(set(wanted) <= set(entry) for entry in entries):
            raise DataError(
                f"{path} has no {name} with {' and '.join(wanted)}.",
                expected="images, annotations and categories, as in COCO; test lists have no annotations",
                to_do=f"get it again from {OBTAINED}.",
            )
    return content  # type: ignore[no-any-return]


def _inat_m(train: _Listed, seed: int) -> list[int]:
    names, labels = np.unique(train.classes, return_inverse=True)
    enough = np.flatnonzero(class_counts(labels) >= IMAGES_M)
    if len(enough) < CLASSES_M:
        raise DataError(
            f"{len(enough)} of {len(names):,} species have at least {IMAGES_M} training images.",
            expected=f"at least {CLASSES_M}, as in the release of 2017",
            to_do="choose the release of 2017, or subset 'all'.",
        )
    species, images = generator_of(seed).spawn(2)
    wanted = np.zeros(len(names), np.int64)
    wanted[species.permutation(enough)[:CLASSES_M]] = IMAGES_M
    rows: list[int] = lowest_of_each_class(labels, images.random(len(labels)), wanted).tolist()
    return rows


INATURALIST = Dataset(inaturalist, "living things of 1,010 to 10,000 species; or iNat-M", "inaturalist", OBTAINED)
