"""IJB-C: face images in templates, pairs of templates to verify, and galleries to search (Maze et al., ICB 2018).

Faces are aligned by five landmarks, as in ArcFace (Deng et al., CVPR 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.data import (
    UNLABELLED,
    Dataset,
    ImageSet,
    PreparedImages,
    RetrievalData,
    SquareSize,
    keep_decoded,
    readable_sides,
)
from limpet.embeddings import StringArray
from limpet.errors import DataError
from limpet_bench.datasets.layout import Needed, read_columns, refuse_missing_images, require, unlike

if TYPE_CHECKING:
    from PIL import Image


OBTAINED = "NIST, on request (IARPA Janus Benchmark C), cropped and listed as for the insightface evaluation"

TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]], np.float64
)
"""Positions of eyes, nose and mouth corners in a face of 112 x 112 pixels: x to the right, y down, float64 (5, 2)."""
SIDE = 112

_NEEDED = (
    Needed("meta/ijbc_face_tid_mid.txt", "name, template and medium of every image"),
    Needed("meta/ijbc_name_5pts_score.txt", "name, five landmarks and detector score of every image"),
    Needed("loose_crop/", "the images, roughly cropped"),
)
_OFFICIAL = {"images": 469_375, "templates": 23_124}
_COORDINATES = tuple(f"{axis}{point}" for point in range(1, 6) for axis in "xy")


def ijbc(root: Path, *, image_size: SquareSize = SIDE) -> RetrievalData:
    """Faces from photographs and videos, grouped into templates; evaluation only.

    Official counts: 469,375 images in 23,124 templates. Images are aligned by their five landmarks, and have the
    columns ``template`` and ``media`` (int64) and ``detector_score`` (float32). Queries and gallery are the same
    images; `FaceTruth` defines which templates are compared. Embed them as the protocol does, with the features of the
    mirrored image added: ``limpet embed images --flip --form features``.

    Args:
        root: Folder with ``loose_crop`` and ``meta``.
        image_size: Pixels per side of the aligned faces; the landmark template for 112 pixels is scaled to it.

    Raises:
        ConfigError: The size is too small.
        DataError: A file or an image is missing, or the two lists do not name the same images in the same order.
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


def similarity(points: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the similarity transform (rotation, scale, translation) from points to targets, fitted by least squares.

    With points as complex numbers, the transform is z ↦ a z + b, and a is a single quotient. This is the
    two-dimensional case of Umeyama (PAMI 1991) without reflection.

    Args:
        points: float64 (n, 2), not all equal.
        targets: float64 (n, 2).

    Returns:
        float64 (2, 3), the matrix that maps (x, y, 1) to the target.

    Raises:
        ValueError: All points are equal, or a coordinate is not finite.

    >>> similarity(np.array([[0, 0], [1, 0.0]]), np.array([[5, 5], [5, 7.0]])).round(6) + 0.0
    array([[ 0., -2.,  5.],
           [ 2.,  0.,  5.]])
    """
    source, target = points @ np.array([1, 1j]), targets @ np.array([1, 1j])
    centred = source - source.mean()
    spread = np.vdot(centred, centred).real
    if not np.isfinite(spread) or spread <= 0:
        raise ValueError("landmarks that are all in one place, or no numbers")
    turn = np.vdot(centred, target - target.mean()) / spread
    shift = target.mean() - turn * source.mean()
    return np.array([[turn.real, -turn.imag, shift.real], [turn.imag, turn.real, shift.imag]])


def aligned(image: Image.Image, landmarks: NDArray[np.float64], side: int = SIDE) -> Image.Image:
    """Return the aligned face at a fixed position and size; pixels from outside the image are black.

    Coordinates of landmarks and template are relative to the centres of pixels. Interpolation is bilinear without
    antialiasing, as in the published evaluations; Pillow truncates fractional grey values.

    Args:
        image: RGB image.
        landmarks: Both eyes, nose and both corners of the mouth, in pixels of the image, float64 (5, 2).
        side: Height and width of the result in pixels; the template is scaled to it.
    """
    from PIL import Image

    forward = similarity(landmarks, TEMPLATE * (side / SIDE))
    turn = np.linalg.inv(forward[:, :2])
    centre = np.array([0.5, 0.5])  # Pillow measures from the corners of pixels
    shift = centre - turn @ (forward[:, 2] + centre)
    (a, b), (d, e) = turn
    return image.transform(
        (side, side), Image.Transform.AFFINE, (a, b, shift[0], d, e, shift[1]), Image.Resampling.BILINEAR
    )


PAIRS = "ijbc_template_pair_label.txt"
PARTS = {
    "gallery_1": "ijbc_1N_gallery_G1.csv",
    "gallery_2": "ijbc_1N_gallery_G2.csv",
    "probes": "ijbc_1N_probe_mixed.csv",
}
"""Files of the open-set protocol, by the attribute of `FaceTruth` that holds their content."""


class Templates(NamedTuple):
    """Templates with the person that each shows.

    Attributes:
        templates: Numbers of the templates, int64 (T,), ascending, without repetition.
        subjects: Number of the person in each template, int64 (T,).
    """

    templates: NDArray[np.int64]
    subjects: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FaceTruth:
    """Ground truth of 1:1 verification and 1:N identification; None for a part whose file is missing.

    Args:
        pairs: Numbers of the two templates to compare, int64 (P, 2).
        same: Whether both templates of a pair show the same person, bool (P,).
        gallery_1: Templates of the first gallery, one per person.
        gallery_2: Templates of the second gallery, one per person.
        probes: Templates to search for in both galleries.

    Raises:
        DataError: Lengths differ, all pairs are genuine or all are impostor pairs, or a gallery has two templates of a
            person.
    """

    pairs: NDArray[np.int64] | None
    same: NDArray[np.bool_] | None
    gallery_1: Templates | None
    gallery_2: Templates | None
    probes: Templates | None

    def __post_init__(self) -> None:
        if (self.pairs is None) != (self.same is None):
            raise DataError("Pairs without labels, or labels without pairs.", expected="both or neither")
        if self.pairs is not None and self.same is not None:
            if self.pairs.shape != (len(self.same), 2):
                raise DataError(f"Pairs of shape {self.pairs.shape}, {len(self.same)} labels.", expected="one per pair")
            if self.same.all() or not self.same.any():
                raise DataError(f"All {len(self.same)} pairs are of one kind.", expected="genuine and impostor pairs")
        for name in ("gallery_1", "gallery_2"):
            gallery = getattr(self, name)
            if gallery is not None and len(np.unique(gallery.subjects)) < len(gallery.subjects):
                raise DataError(f"A person has two templates in {name}.", expected="one template per person")

    @classmethod
    def read(cls, folder: Path) -> FaceTruth:
        """Read the official lists.

        Args:
            folder: The folder of the lists, or the folder of the data set with the lists in ``meta``.

        Raises:
            DataError: None of the files exists, or one is invalid.
        """
        folder = folder / "meta" if (folder / "meta").is_dir() else folder
        there = [name for name in (PAIRS, *PARTS.values()) if (folder / name).is_file()]
        if not there:
            raise DataError(
                f"No lists of IJB-C in {folder}.",
                expected=f"{PAIRS} for verification, {', '.join(PARTS.values())} for identification",
                to_do="name the folder meta of the data set.",
            )
        pairs, same = _read_pairs(folder / PAIRS) if PAIRS in there else (None, None)
        parts = {part: _read_part(folder / name) if name in there else None for part, name in PARTS.items()}
        return cls(pairs, same, **parts)


def _read_pairs(path: Path) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read lines of two template numbers, and 1 for the same person or 0."""
    kinds = dict.fromkeys(("template 1", "template 2", "same"), "whole number")
    table = read_columns(path, kinds, separator=" ", header=False)  # type: ignore[arg-type]
    pairs = np.empty((table.num_rows, 2), np.int64)
    for side, name in enumerate(("template 1", "template 2")):
        pairs[:, side] = table[name].to_numpy()
    labels = table["same"].to_numpy()
    wrong = np.flatnonzero((labels != 0) & (labels != 1))
    if len(wrong):
        raise DataError(f"Line {wrong[0] + 1} of {path} ends with {labels[wrong[0]]}.", expected="1 or 0")
    return pairs, labels == 1


def _read_part(path: Path) -> Templates:
    """Read the columns TEMPLATE_ID and SUBJECT_ID; a template of several images has one line per image."""
    table = read_columns(path, {"TEMPLATE_ID": "whole number", "SUBJECT_ID": "whole number"})
    lines = np.column_stack([table["TEMPLATE_ID"].to_numpy(), table["SUBJECT_ID"].to_numpy()])
    unique = np.unique(lines, axis=0)
    repeated = np.flatnonzero(unique[1:, 0] == unique[:-1, 0])
    if len(repeated):
        template, first = unique[repeated[0]]
        raise DataError(
            f"{path} gives template {template} to the people {first} and {unique[repeated[0] + 1, 1]}.",
            expected="one person per template",
        )
    if not len(unique):
        raise DataError(f"{path} has no templates.", expected="at least one")
    return Templates(unique[:, 0].copy(), unique[:, 1].copy())


IJBC = Dataset(ijbc, "faces in templates, of 3,531 people; evaluation only", "IJBC", OBTAINED)
