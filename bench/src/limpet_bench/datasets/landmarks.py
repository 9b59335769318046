"""Google Landmarks v2: photographs of 81,313 to 203,094 landmarks (Weyand et al., CVPR 2020, arXiv:2004.01804).

Also reads the retrieval solution, the ground truth of relevant images per query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from limpet.data import UNLABELLED, Dataset, Fit, ImageSet, ImageSize, RetrievalData
from limpet.errors import DataError, refuse
from limpet_bench.datasets.hold_out import set_classes_apart
from limpet_bench.datasets.layout import Needed, listed_images, read_columns, require, unlike

Usage = Literal["Public", "Private", "both"]
"""Queries of the solution to use: its public part, its private part, or both."""

SOLUTIONS = ("retrieval_solution_v2.1.csv", "retrieval_solution.csv", "solution.csv")
"""File names of the solution in its releases, newest first."""
_PARTS = {"Public": frozenset({"Public"}), "Private": frozenset({"Private"}), "both": frozenset({"Public", "Private"})}


@dataclass(frozen=True, eq=False)
class LandmarksTruth:
    """Queries with their relevant images.

    Args:
        query_names: Ids of the queries (Q,), without repetition.
        relevant: Ids of the relevant index images of every query, (Q,) tuples. An empty tuple means no relevant image;
            by default, the protocol scores that query 0.

    Raises:
        DataError: Lengths differ, there is no query, or a query or a relevant image of a query is repeated.
    """

    query_names: tuple[str, ...]
    relevant: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(self.query_names) != len(self.relevant):
            raise DataError(
                f"{len(self.query_names)} queries with {len(self.relevant)} lists of images.", expected="one per query"
            )
        if not self.query_names:
            raise DataError("No queries.", expected="at least one")
        if len(set(self.query_names)) < len(self.query_names):
            raise DataError("A query is named twice.", expected="every query once")
        for name, images in zip(self.query_names, self.relevant, strict=True):
            if len(set(images)) < len(images):
                raise DataError(f"An image answers the query '{name}' twice.", expected="every image once")

    def __len__(self) -> int:
        return len(self.query_names)

    @classmethod
    def read(cls, path: Path, *, usage: Usage = "both") -> LandmarksTruth:
        """Read the official retrieval solution.

        Args:
            path: The file, with the columns id, images (ids separated by spaces, or None) and Usage; or the folder of
                the data set.
            usage: Queries to read: "Public", "Private" or "both". Queries marked Ignored are never read.

        Raises:
            ConfigError: The usage is unknown.
            DataError: The file is missing or unreadable, has an unknown usage, or has no query of the requested usage.
        """
        refuse(usage not in _PARTS, f"usage = '{usage}'.", f"one of {', '.join(_PARTS)}")
        path = solution_in(path)
        table = read_columns(path, {"id": "text", "images": "text", "Usage": "text"})
        names, images, uses = (table[name].to_pylist() for name in ("id", "images", "Usage"))
        unknown = sorted(set(uses) - _PARTS["both"] - {"Ignored"})
        if unknown:
            raise DataError(f"{path} has the usage '{unknown[0]}'.", expected="Public, Private or Ignored in every row")
        rows = [row for row, use in enumerate(uses) if use in _PARTS[usage]]
        if not rows:
            raise DataError(f"{path} has no queries of usage '{usage}'.", expected="at least one")
        return cls(
            tuple(names[row] for row in rows),
            tuple((() if images[row].strip() in ("", "None") else tuple(images[row].split())) for row in rows),
        )


def solution_in(path: Path) -> Path:
    """Return the file of the retrieval solution in a folder; return any other path unchanged.

    Raises:
        DataError: The folder holds no retrieval solution.
    """
    if not path.is_dir():
        return path
    places = [path / folder / name for name in SOLUTIONS for folder in ("", "test")]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(
            f"No retrieval solution in {path}.",
            expected=f"one of {', '.join(SOLUTIONS)}, there or in its folder test",
            to_do="get it from the home page of Google Landmarks v2, or name the file.",
        )
    return found


OBTAINED = "the home page of Google Landmarks v2 (github.com/cvdfoundation/google-landmark)"

_ID = re.compile(r"[0-9a-f]{16}")
_CLEAN = Needed("train_clean.csv", "landmark_id,images of the cleaned training set", ("train/train_clean.csv",))
_ALL = Needed("train.csv", "id,url,landmark_id of all training images", ("train/train.csv",))
_TRAIN = Needed("train/", "training images as train/0/1/2/0123456789abcdef.jpg")
_SEARCH = (
    Needed("index.csv", "id of the images to search among", ("index/index.csv",)),
    Needed(SOLUTIONS[0], "who answers which query",
           tuple(f"{folder}{name}" for name in SOLUTIONS for folder in ("", "test/"))[1:]),
    Needed("index/", "images to search among, as index/0/1/2/0123456789abcdef.jpg"),
    Needed("test/", "images to search with, as test/0/1/2/0123456789abcdef.jpg"),
)  # fmt: skip
_OFFICIAL = {
    True: {"training images": 1_580_470, "landmarks": 81_313},
    False: {"training images": 4_132_914, "landmarks": 203_094},
}


def gldv2(
    root: Path,
    *,
    image_size: ImageSize = 224,
    fit: Fit = "crop",
    clean: bool = True,
    usage: Usage = "both",
    held_out_classes: float = 0.0,
    seed: int = 0,
) -> RetrievalData:
    """Photographs of landmarks: training on the cleaned training set; the test images search the index.

    Official counts: 1,580,470 training images of 81,313 landmarks (cleaned), or 4,132,914 of 203,094 (all); 761,757
    index images. Index and queries have no labels; the retrieval solution, read by `LandmarksTruth`, defines the
    relevant images. Ids are the image names, 16 hexadecimal digits.

    Args:
        root: Folder with ``train_clean.csv`` or ``train.csv``, ``index.csv``, the retrieval solution, and the images in
            ``train``, ``index`` and ``test``. The lists may also be in the folder of their images.
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        clean: Train on the cleaned set (``train_clean.csv``), as the papers do; otherwise on all of ``train.csv``.
        usage: Queries of the solution to search with: "Public", "Private" or "both".
        held_out_classes: Share of the landmarks to hold out for a leave-one-out search; index, test images and solution
            are then not needed. 0 uses the official queries and index.
        seed: Random seed that selects these landmarks.

    Raises:
        ConfigError: An option is out of range.
        DataError: A list, a folder or an image is missing, or a list is invalid.
    """
    lists = (_CLEAN if clean else _ALL, _TRAIN)
    found = require(root, lists if held_out_classes else (*lists, *_SEARCH), "gldv2", OBTAINED)
    images, landmarks = (_clean_list if clean else _full_list)(found[0])
    train = listed_images(
        found[1],
        _files(images),
        landmarks,
        image_size,
        fit,
        ids=images,
        class_names=sorted(set(landmarks), key=int),
    )
    counts = {"training images": len(train), "landmarks": len(train.class_names)}
    unofficial = unlike(counts, _OFFICIAL[clean])
    if held_out_classes:
        return _without_index(train, held_out_classes, seed, unofficial)
    index_list, solution, index, test = found[2:]
    index_ids = read_columns(index_list, {"id": "text"})["id"].to_pylist()
    query_ids = LandmarksTruth.read(solution, usage=usage).query_names
    query, gallery = _unlabelled(test, query_ids, image_size, fit), _unlabelled(index, index_ids, image_size, fit)
    return RetrievalData(
        name="gldv2",
        train=train,
        query=query,
        gallery=gallery,
        leave_one_out=False,
        validation=None,
        description=f"landmarks: {len(train.class_names):,} to train on; {len(query):,} queries ({usage}) search "
        f"{len(gallery):,} images; the solution says who answers them{unofficial}",
        labelled=False,
    )


def _without_index(images: ImageSet, share: float, seed: int, unofficial: str) -> RetrievalData:
    train, evaluation, said = set_classes_apart(images, share, seed)
    return RetrievalData.of_one_set(
        name="gldv2",
        train=train,
        evaluation=evaluation,
        description=f"landmarks: {len(train.class_names):,} to train on; {said}{unofficial}",
    )


def _unlabelled(folder: Path, ids: Iterable[str], image_size: ImageSize, fit: Fit) -> ImageSet:
    names = tuple(ids)
    return listed_images(folder, _files(names), [UNLABELLED] * len(names), image_size, fit, ids=names)


def _files(ids: Iterable[str]) -> list[str]:
    """Return the paths of images, relative to the folder of their part.

    >>> _files(["0123456789abcdef"])
    ['0/1/2/0123456789abcdef.jpg']
    """
    ids = list(ids)
    wrong = next((name for name in ids if not _ID.fullmatch(name)), None)
    if wrong is not None:
        raise DataError(f"A list names the image '{wrong:.80}'.", expected="ids of 16 hexadecimal digits")
    return [f"{name[0]}/{name[1]}/{name[2]}/{name}.jpg" for name in ids]


def _clean_list(path: Path) -> tuple[list[str], list[str]]:
    table = read_columns(path, {"landmark_id": "whole number", "images": "text"})
    images = [line.split() for line in table["images"].to_pylist()]
    landmarks = np.repeat(np.asarray(table["landmark_id"]), [len(line) for line in images])
    return [name for line in images for name in line], list(map(str, landmarks.tolist()))


def _full_list(path: Path) -> tuple[list[str], list[str]]:
    table = read_columns(path, {"id": "text", "landmark_id": "whole number"})
    return table["id"].to_pylist(), list(map(str, table["landmark_id"].to_pylist()))


GLDV2 = Dataset(gldv2, "landmarks, 81,313 to train on; test images search the index", "gldv2", OBTAINED)
