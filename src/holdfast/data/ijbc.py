"""IJB-C: templates of faces from photographs and videos (Maze et al., ICB 2018)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.delimited import read_columns
from holdfast.data.face_alignment import SIDE, aligned
from holdfast.data.image_set import ImageSet
from holdfast.data.image_size import SquareSize, readable_sides
from holdfast.data.images import keep_decoded
from holdfast.data.layout import Needed, require
from holdfast.data.listed_images import refuse_missing_images, unlike
from holdfast.data.prepared_images import PreparedImages
from holdfast.data.retrieval_data import RetrievalData
from holdfast.embeddings import StringArray
from holdfast.errors import DataError

OBTAINED = "NIST, on request (IARPA Janus Benchmark C), cropped and listed as for the insightface evaluation"
UNLABELLED = "unlabelled"
"""The one class name of images whose labels mean nothing."""

_NEEDED = (
    Needed("meta/ijbc_face_tid_mid.txt", "name, template and medium of every image"),
    Needed("meta/ijbc_name_5pts_score.txt", "name, five landmarks and detector score of every image"),
    Needed("loose_crop/", "the images, roughly cropped"),
)
_OFFICIAL = {"images": 469_375, "templates": 23_124}
_COORDINATES = tuple(f"{axis}{point}" for point in range(1, 6) for axis in "xy")


def ijbc(root: Path, *, image_size: SquareSize = SIDE) -> RetrievalData:
    """Faces of photographs and videos in templates; evaluation only.

    Official counts: 469,375 images in 23,124 templates. Images are turned upright by their five landmarks, and carry
    the columns ``template`` and ``media`` (int64) and ``detector_score`` (float32). Query and gallery are the same
    images: which templates are compared is said by `FaceTruth`. Embed them with the features of the mirrored image
    added, as the protocol does: ``holdfast embed images --flip --form features``.

    Args:
        root: Folder with ``loose_crop`` and ``meta``.
        image_size: Pixels per side of the aligned faces; landmarks are laid out for 112 and grow with it.

    Raises:
        ConfigError: The size is too small.
        DataError: A file or an image is missing, or the two lists do not fit together.
    """
    side, _ = readable_sides(image_size)
    templates_list, landmarks_list, crops = require(root, _NEEDED, "ijbc", OBTAINED)
    templates = read_columns(
        templates_list,
        {"name": "text", "template": "whole number", "media": "whole number"},
        separator=" ",
        header=False,
    )
    landmarks = read_columns(
        landmarks_list,
        {"name": "text", **dict.fromkeys(_COORDINATES, "number"), "score": "number"},
        separator=" ",
        header=False,
    )
    names = _same_names(templates, landmarks, landmarks_list)
    refuse_missing_images(crops, names)
    points = np.stack([landmarks[name].to_numpy() for name in _COORDINATES], axis=1).reshape(-1, 5, 2)
    images = PreparedImages([crops / name for name in names], points, partial(aligned, side=side), (3, side, side))
    columns = {
        "template": templates["template"].to_numpy(),
        "media": templates["media"].to_numpy(),
        "detector_score": landmarks["score"].to_numpy().astype(np.float32),
    }
    labels = np.zeros(len(names), np.int64)
    faces = ImageSet(keep_decoded(images), labels, (UNLABELLED,), StringArray.from_arrow(templates["name"]), columns)
    found = {"images": len(names), "templates": len(np.unique(columns["template"]))}
    return RetrievalData.of_one_set(
        name="ijbc",
        train=None,
        evaluation=faces,
        description=f"faces: {found['images']:,} images in {found['templates']:,} templates; lists of pairs, galleries "
        f"and probes say what is compared{unlike(found, _OFFICIAL)}",
        labelled=False,
    )


def _same_names(templates: Any, landmarks: Any, path: Path) -> list[str]:
    """Return the names of the images, which both lists must give in the same order."""
    names: list[str] = templates["name"].to_pylist()
    others = landmarks["name"].to_pylist()
    if names != others:
        line = next((row for row, pair in enumerate(zip(names, others, strict=False)) if len(set(pair)) > 1),
                    min(len(names), len(others)))  # fmt: skip
        raise DataError(
            f"The lists of images differ from line {line + 1} of {path} on.",
            expected="the same images in the same order in both lists",
            to_do="get both lists from one release.",
        )
    if not names:
        raise DataError(f"{path} is empty.", expected="one line per image")
    wrong = next((name for name in names if "/" in name or name in ("", ".", "..")), None)
    if wrong is not None:
        raise DataError(f"{path} names the image '{wrong:.80}'.", expected="names of files in loose_crop")
    return names
