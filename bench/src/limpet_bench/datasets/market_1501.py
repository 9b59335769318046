"""Market-1501: people photographed by six cameras (Zheng et al., Scalable Person Re-identification, ICCV 2015)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limpet.data import Dataset, Fit, ImageSet, ImageSize, RetrievalData, readable_sides
from limpet.errors import DataError, refuse
from limpet_bench.datasets.layout import Needed, listed_images, require, unlike

OBTAINED = "the project page of its authors (Market-1501, Zheng et al., ICCV 2015; Market-1501-v15.09.15.zip)"
JUNK, DISTRACTOR = "-1", "0000"
"""Gallery classes that are not a person: detections to ignore, and false detections that count as wrong hits."""

_NEEDED = (
    Needed("bounding_box_train/", "images to train on"),
    Needed("query/", "images to search with"),
    Needed("bounding_box_test/", "images to search among"),
)
_OFFICIAL = {"training images": 12_936, "people to train on": 751, "queries": 3_368, "gallery images": 19_732}
_NAME = re.compile(r"(-1|\d{4})_c(\d+)s\d+_\d+_\d+\.jpg", re.IGNORECASE)


def market_1501(
    root: Path, *, image_size: ImageSize = 256, portrait: bool = False, fit: Fit = "squash"
) -> RetrievalData:
    """People photographed by six cameras: training on 751 people, search for 750 others.

    Official counts: 12,936 training images of 751 people, 3,368 queries, 19,732 gallery images. The gallery includes
    junk (class "-1", 3,819 images), which the protocol ignores, and distractors (class "0000", 2,798 images), which
    count as wrong hits. The column ``camera`` holds the camera of every image.

    Args:
        root: Folder with ``bounding_box_train``, ``query`` and ``bounding_box_test``; files are named like
            0002_c1s1_000451_03.jpg.
        image_size: Height and width of the images in pixels, or one number for both. Person re-identification models
            usually take [256, 128].
        portrait: Make images half as wide as high: 256 then means [256, 128].
        fit: "squash" ignores the aspect ratio, "crop" keeps it (shorter side to size, centre crop); the official images
            are 128 x 64.

    Raises:
        ConfigError: ``portrait`` is set, and height and width differ.
        DataError: A folder is missing or empty, or a file name has an unknown form.
    """
    height, width = readable_sides(image_size)
    refuse(
        portrait and height != width,
        f"portrait with image_size = {height}x{width}.",
        "one of them: the width is given, and portrait would make it half of the height",
    )
    train, query, gallery = (_Part.read(folder) for folder in require(root, _NEEDED, "market-1501", OBTAINED))
    people = sorted({*query.people, *gallery.people})
    size = (height, height // 2 if portrait else width)
    found = {
        "training images": len(train.files),
        "people to train on": len(set(train.people)),
        "queries": len(query.files),
        "gallery images": len(gallery.files),
    }
    return RetrievalData(
        name="market-1501",
        train=train.images(root, size, fit, sorted(set(train.people))),
        query=query.images(root, size, fit, people),
        gallery=gallery.images(root, size, fit, people),
        leave_one_out=False,
        validation=None,
        description=f"people seen by six cameras: {found['people to train on']} to train on; {len(query.files):,} "
        f"queries search {len(gallery.files):,} images, junk and distractors included{unlike(found, _OFFICIAL)}",
    )


@dataclass(frozen=True)
class _Part:
    """The files of one folder, with the person and the camera of each."""

    files: list[str]
    people: list[str]
    cameras: list[int]

    @classmethod
    def read(cls, folder: Path) -> _Part:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() == ".jpg")
        if not names:
            raise DataError(f"{folder} holds no .jpg images.", expected="files as 0002_c1s1_000451_03.jpg")
        matches = []
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                raise DataError(
                    f"{folder / name} is named otherwise than the images of Market-1501.",
                    expected="PERSON_cCAMERAsSEQUENCE_FRAME_BOX.jpg, such as 0002_c1s1_000451_03.jpg",
                    to_do="remove it, or rename it.",
                )
            matches.append(match)
        files = [f"{folder.name}/{name}" for name in names]
        return cls(files, [match[1] for match in matches], [int(match[2]) for match in matches])

    def images(self, root: Path, size: tuple[int, int], fit: Fit, people: list[str]) -> ImageSet:
        cameras = np.array(self.cameras, np.int64)
        return listed_images(root, self.files, self.people, size, fit, class_names=people, columns={"camera": cameras})


MARKET_1501 = Dataset(market_1501, "people seen by six cameras, 751 to train on", "Market-1501-v15.09.15", OBTAINED)
