"""ROxford and RParis: buildings, searched with parts of photographs (Radenović et al., CVPR 2018, arXiv:1803.11285)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.data.decoding import Fit, check_target, fitted
from holdfast.data.image_set import ImageSet
from holdfast.data.image_size import ImageSize
from holdfast.data.images import keep_decoded
from holdfast.data.layout import Needed, require
from holdfast.data.listed_images import listed_images, refuse_missing_images, unlike
from holdfast.data.prepared_images import PreparedImages
from holdfast.data.retrieval_data import RetrievalData
from holdfast.data.revisited_truth import RevisitedTruth
from holdfast.embeddings import StringArray
from holdfast.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

OBTAINED = "the project page of the revisited benchmarks (revisitop, Radenović et al., CVPR 2018)"
UNLABELLED = "unlabelled"
"""The one class name of images whose labels mean nothing."""


def roxford(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop", crop_queries: bool = True) -> RetrievalData:
    """Buildings of Oxford: 70 queries, cropped to their boxes, search 4,993 photographs; evaluation only.

    Args:
        root: Folder with ``gnd_roxford5k.pkl`` (or the same as ``.json``) and the photographs in ``jpg``.
        image_size: Height and width to bring photographs and cropped queries to, or one number for both.
        fit: "crop" keeps the aspect (shorter side to size, centre crop), "squash" does not.
        crop_queries: Search with what is inside the boxes, as the benchmark defines it; otherwise with whole
            photographs, as AdvBCT's released code does.

    Raises:
        ConfigError: An option is out of range.
        DataError: Something is missing, or the ground truth cannot be used.
    """
    return _revisited(
        root, "roxford", "gnd_roxford5k", {"queries": 70, "photographs": 4_993}, image_size, fit, crop_queries
    )


def rparis(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop", crop_queries: bool = True) -> RetrievalData:
    """Buildings of Paris: 70 queries, cropped to their boxes, search 6,322 photographs; evaluation only.

    Args:
        root: Folder with ``gnd_rparis6k.pkl`` (or the same as ``.json``) and the photographs in ``jpg``.
        image_size: Height and width to bring photographs and cropped queries to, or one number for both.
        fit: "crop" keeps the aspect (shorter side to size, centre crop), "squash" does not.
        crop_queries: Search with what is inside the boxes, as the benchmark defines it; otherwise with whole
            photographs, as AdvBCT's released code does.

    Raises:
        ConfigError: An option is out of range.
        DataError: Something is missing, or the ground truth cannot be used.
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
        Needed(f"{truth_name}.pkl", "who answers which query", other=(f"{truth_name}.json",)),
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
    """Return the queries, cropped to their boxes or whole."""
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
    """Return what is inside the box at the size wanted.

    Sides are rounded to whole pixels, what lies outside of the image is left out, and the result is turned upright
    where the camera noted how it was held.

    Args:
        image: The photograph as stored; boxes are in its pixels.
        box: Left, top, right and bottom (4,).
        size: Width and height to return.
        fit: "crop" or "squash".

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
    """Refuse names that lead out of the folder: they come from a file that others wrote."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(f"The ground truth names '{name}', which is not below {folder}.", expected="names of images")
    return name
