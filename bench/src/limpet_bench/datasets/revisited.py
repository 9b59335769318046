"""ROxford and RParis: photographs of buildings, cropped queries, and ground truth.

Radenović et al., CVPR 2018, arXiv:1803.11285.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limpet.data import (
    UNLABELLED,
    Dataset,
    Fit,
    ImageSet,
    ImageSize,
    PreparedImages,
    RetrievalData,
    check_target,
    fitted,
    keep_decoded,
)
from limpet.embeddings import StringArray
from limpet.errors import DataError
from limpet.support import read_json
from limpet_bench.datasets.layout import Needed, listed_images, refuse_missing_images, require, unlike

if TYPE_CHECKING:
    from PIL import Image


Rows = NDArray[np.int64]
LISTS = ("easy", "hard", "junk")
SIZE_LIMIT = 64 * 1024**2
"""Maximum size of a ground truth file, in bytes."""
_LAYOUT = (
    "a mapping with imlist (names of gallery images), qimlist (names of queries) and gnd: for every query a mapping "
    "with easy, hard and junk (rows of imlist) and bbx (left, top, right, bottom)"
)
_CONVERT = "python benchmarks/revisited_truth.py gnd_roxford5k.pkl"


@dataclass(frozen=True, eq=False)
class RevisitedTruth:
    """Ground truth: queries, gallery images, and the easy, hard and junk images of every query.

    Args:
        gallery_names: Names of the gallery images (G,), without repetition, such as "all_souls_000013".
        query_names: Names of the queries (Q,), without repetition.
        easy: Gallery rows that show the building of the query clearly, (Q,) int64 arrays.
        hard: Gallery rows that show it, but are hard to recognise, (Q,) int64 arrays.
        junk: Gallery rows that hardly show it and are ignored, (Q,) int64 arrays.
        boxes: The searched part of every query image, float64 (Q, 4): left, top, right and bottom in pixels.

    Raises:
        DataError: Lengths differ, a name is repeated, a row is outside the gallery or repeated in the lists of one
            query, or a box is empty.
    """

    gallery_names: tuple[str, ...]
    query_names: tuple[str, ...]
    easy: tuple[Rows, ...]
    hard: tuple[Rows, ...]
    junk: tuple[Rows, ...]
    boxes: NDArray[np.float64]

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("query_names", *LISTS, "boxes")}
        if len(set(lengths.values())) > 1 or self.boxes.shape[1:] != (4,):
            found = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"Parts of different length: {found}.", expected="one of each per query, four sides a box")
        for what, names in (("gallery image", self.gallery_names), ("query", self.query_names)):
            if not names or len(set(names)) < len(names):
                raise DataError(f"{'A' if names else 'No'} {what} is named{' twice' if names else ''}.",
                                expected=f"every {what} once")  # fmt: skip
        for query in range(len(self)):
            self._check_query(query)

    def __len__(self) -> int:
        return len(self.query_names)

    def _check_query(self, query: int) -> None:
        name = self.query_names[query]
        rows = np.concatenate([getattr(self, part)[query] for part in LISTS])
        outside = rows[(rows < 0) | (rows >= len(self.gallery_names))]
        if len(outside):
            raise DataError(f"Row {outside[0]} for the query '{name}'.",
                            expected=f"rows of the gallery, from 0 to {len(self.gallery_names) - 1}")  # fmt: skip
        if len(np.unique(rows)) < len(rows):
            twice = np.flatnonzero(np.bincount(rows) > 1)[0]
            raise DataError(
                f"Row {twice} ('{self.gallery_names[twice]}') is listed twice for the query '{name}'.",
                expected="every gallery image at most once: easy, hard or junk",
            )
        left, top, right, bottom = self.boxes[query]
        if not (left < right and top < bottom and np.isfinite(self.boxes[query]).all()):
            raise DataError(f"The box {self.boxes[query].tolist()} of the query '{name}'.",
                            expected="left, top, right, bottom")  # fmt: skip

    @classmethod
    def read(cls, path: Path) -> RevisitedTruth:
        """Read ``gnd_roxford5k.json`` or ``gnd_rparis6k.json``.

        The authors publish pickles, which are refused, because reading a pickle can run code.
        ``benchmarks/revisited_truth.py`` converts them.

        Args:
            path: The file, or a folder with exactly one file ``gnd_*.json``.

        Raises:
            DataError: The file is missing, unreadable, or not a ground truth.
        """
        path = _file_in(path)
        content = _read_json(path)
        try:
            entries = _listed(content["gnd"])
            boxes = np.array([_box(entry["bbx"]) for entry in entries], np.float64).reshape(len(entries), 4)
            lists = {part: tuple(_rows(entry[part]) for entry in entries) for part in LISTS}
            gallery, names = (_names(content[key]) for key in ("imlist", "qimlist"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path} holds something else than a ground truth: {type(error).__name__}, {str(error)[:100]}.",
                expected=_LAYOUT,
                to_do=f"convert the file of the authors: {_CONVERT}.",
            ) from error
        return cls(gallery, names, **lists, boxes=boxes)


def _box(value: Any) -> list[float]:
    box = [float(side) for side in _listed(value)]
    if len(box) != 4:
        raise ValueError(f"bbx has {len(box)} numbers")
    return box


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} where a list belongs")
    return value


def _rows(value: Any) -> Rows:
    rows = _listed(value)
    if not all(type(row) is int or (type(row) is float and row.is_integer()) for row in rows):
        raise TypeError("rows that are no whole numbers")
    return np.array(rows, np.int64)


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(_listed(value))
    if not all(isinstance(name, str) for name in names):
        raise TypeError("names that are no texts")
    return names


def _read_json(path: Path) -> Any:
    if path.suffix == ".pkl":
        raise DataError(
            f"{path} is a pickle: reading it could run code.", expected=_LAYOUT, to_do=f"convert it: {_CONVERT}."
        )
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise DataError(f"{path} has {path.stat().st_size} bytes.", expected=f"at most {SIZE_LIMIT} bytes")
        return read_json(path)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"Cannot read {path}: {str(error)[:200]}.", expected=_LAYOUT) from error


def _file_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("gnd_*.json"))
    if len(found) != 1:
        raise DataError(
            f"{path} holds {len(found)} files gnd_*.json.",
            expected="one, such as gnd_roxford5k.json",
            to_do=f"name the file; or convert that of the project page of the revisited benchmarks: {_CONVERT}.",
        )
    return found[0]


OBTAINED = (
    "the project page of the revisited benchmarks (revisitop, Radenović et al., CVPR 2018); convert the ground truth: "
    f"{_CONVERT}"
)


def roxford(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop", crop_queries: bool = True) -> RetrievalData:
    """Buildings of Oxford: 70 queries, cropped to their boxes, search 4,993 photographs; evaluation only.

    Args:
        root: Folder with ``gnd_roxford5k.json`` and the photographs in ``jpg``.
        image_size: Height and width of photographs and cropped queries in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        crop_queries: Crop queries to their boxes, as the benchmark defines; otherwise search with whole photographs, as
            AdvBCT's released code does.

    Raises:
        ConfigError: An option is out of range.
        DataError: A file or an image is missing, or the ground truth is invalid.
    """
    return _revisited(
        root, "roxford", "gnd_roxford5k", {"queries": 70, "photographs": 4_993}, image_size, fit, crop_queries
    )


def rparis(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop", crop_queries: bool = True) -> RetrievalData:
    """Buildings of Paris: 70 queries, cropped to their boxes, search 6,322 photographs; evaluation only.

    Args:
        root: Folder with ``gnd_rparis6k.json`` and the photographs in ``jpg``.
        image_size: Height and width of photographs and cropped queries in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        crop_queries: Crop queries to their boxes, as the benchmark defines; otherwise search with whole photographs, as
            AdvBCT's released code does.

    Raises:
        ConfigError: An option is out of range.
        DataError: A file or an image is missing, or the ground truth is invalid.
    """
    return _revisited(
        root, "rparis", "gnd_rparis6k", {"queries": 70, "photographs": 6_322}, image_size, fit, crop_queries
    )


def _revisited(
    root: Path,
    name: str,
    truth_name: str,
    official: dict[str, int],
    image_size: ImageSize,
    fit: Fit,
    crop_queries: bool,
) -> RetrievalData:
    needed = (
        Needed(f"{truth_name}.json", "who answers which query"),
        Needed("jpg/", "the photographs"),
    )
    truth_path, photographs = require(root, needed, name, OBTAINED)
    truth = RevisitedTruth.read(truth_path)
    files = [f"{_below(photographs, image)}.jpg" for image in truth.gallery_names]
    nothing = [UNLABELLED] * len(files)
    gallery = listed_images(photographs, files, nothing, image_size, fit, ids=truth.gallery_names)
    query = _queries(photographs, truth, gallery.shape, fit, crop=crop_queries)
    found = {"queries": len(query), "photographs": len(gallery)}
    return RetrievalData(
        name=name,
        train=None,
        query=query,
        gallery=gallery,
        leave_one_out=False,
        validation=None,
        description=f"buildings: {len(query)} {'cropped' if crop_queries else 'whole'} queries search "
        f"{len(gallery):,} photographs; the ground truth says who answers them{unlike(found, official)}",
        labelled=False,
    )


def _queries(
    photographs: Path, truth: RevisitedTruth, shape: tuple[int, int, int], fit: Fit, *, crop: bool
) -> ImageSet:
    check_target(shape, fit)
    files = [f"{_below(photographs, image)}.jpg" for image in truth.query_names]
    if not crop:
        return listed_images(photographs, files, [UNLABELLED] * len(files), shape[1:], fit, ids=truth.query_names)
    refuse_missing_images(photographs, files)
    cropped = partial(crop_to_box, size=(shape[2], shape[1]), fit=fit)
    images = PreparedImages([photographs / file for file in files], truth.boxes, cropped, shape, fit=fit)
    labels = np.zeros(len(truth), np.int64)
    return ImageSet(keep_decoded(images), labels, (UNLABELLED,), StringArray.of(truth.query_names))


def crop_to_box(image: Image.Image, box: NDArray[np.float64], *, size: tuple[int, int], fit: Fit) -> Image.Image:
    """Crop an image to a box, and resize the crop.

    The box is rounded to whole pixels and limited to the image. The EXIF orientation is applied after the crop.

    Args:
        image: The photograph as stored; the box refers to its pixels.
        box: Left, top, right and bottom in pixels (4,).
        size: Width and height of the result in pixels.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.

    Raises:
        ValueError: The box is outside the image.

    >>> from PIL import Image
    >>> crop_to_box(Image.new("RGB", (40, 20)), np.array([10.4, -3, 20.4, 20]), size=(5, 5), fit="squash").size
    (5, 5)
    """
    from PIL import ImageOps

    left, top, right, bottom = np.rint(box).astype(int).tolist()
    inside = max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        raise ValueError(f"the box {box.tolist()} lies outside of an image of {image.width} x {image.height} pixels")
    return fitted(ImageOps.exif_transpose(image.crop(inside)), size, fit)


def _below(folder: Path, name: str) -> str:
    """Refuse names with a path outside the folder, because the file may come from an untrusted source."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(f"The ground truth names '{name}', which is not below {folder}.", expected="names of images")
    return name


ROXFORD = Dataset(roxford, "buildings of Oxford; evaluation only", "roxford5k", OBTAINED)
RPARIS = Dataset(rparis, "buildings of Paris; evaluation only", "rparis6k", OBTAINED)
