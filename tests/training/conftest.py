from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages


@pytest.fixture(scope="session")
def make_images() -> Callable[..., ImageSet]:
    """Build noisy grey images whose brightness tells their class."""

    def build(count: int, classes: int, side: int = 16, noise: int = 100) -> ImageSet:
        labels = np.arange(count) % classes
        pixels = np.random.default_rng(0).integers(0, noise, (count, 1, side, side)) + 30 * labels[:, None, None, None]
        names = tuple(f"c{c}" for c in range(classes))
        return ImageSet(ArrayImages(pixels.astype(np.uint8)), labels, names, [f"i{row}" for row in range(count)])

    return build


@pytest.fixture(scope="session")
def images(make_images: Callable[..., ImageSet]) -> ImageSet:
    """Thirty-two images of four classes."""
    return make_images(32, 4)


@pytest.fixture
def every_epoch_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be written after every epoch, however short it was."""
    monkeypatch.setattr("limpet.training.loop.CHECKPOINT_PAUSE", 0.0)
