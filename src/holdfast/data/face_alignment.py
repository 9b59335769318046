"""Turning faces upright by five landmarks, as face recognition has done since ArcFace (Deng et al., CVPR 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]], np.float64
)
"""Where eyes, nose and corners of the mouth lie in a face of 112 x 112 pixels: x to the right, y down, (5, 2)."""
SIDE = 112


def similarity(points: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the similarity (turn, scale, shift) that brings points closest to targets in the least-squares sense.

    With points as complex numbers it is z ↦ a z + b, so that a is one quotient (the two-dimensional case of Umeyama,
    PAMI 1991, without mirroring).

    Args:
        points: float64 (n, 2), not all in one place.
        targets: float64 (n, 2).

    Returns:
        The matrix float64 (2, 3) that is multiplied with (x, y, 1).

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
    """Return the face upright, at a fixed place and size; what lies outside of the image is black.

    Landmarks and template count from the centres of pixels, and pixels in between are interpolated linearly, without
    smoothing what is made smaller: as the published evaluations do it (Pillow cuts fractions of a grey off).

    Args:
        image: RGB.
        landmarks: Both eyes, nose, both corners of the mouth, in pixels of the image, float64 (5, 2).
        side: Height and width to return; the template grows with it.
    """
    forward = similarity(landmarks, TEMPLATE * (side / SIDE))
    turn = np.linalg.inv(forward[:, :2])
    centre = np.array([0.5, 0.5])  # Pillow counts from the corners of pixels
    shift = centre - turn @ (forward[:, 2] + centre)
    (a, b), (d, e) = turn
    return image.transform(
        (side, side), Image.Transform.AFFINE, (a, b, shift[0], d, e, shift[1]), Image.Resampling.BILINEAR
    )
