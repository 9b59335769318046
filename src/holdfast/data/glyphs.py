"""The data set that needs no download: distorted characters, with whole classes held out for retrieval."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.data.choosing import generator_of
from holdfast.data.glyph_distortion import distort
from holdfast.data.glyph_shapes import STYLES, GlyphBank, distinct_glyphs
from holdfast.data.image_set import ImageSet
from holdfast.data.images import ArrayImages
from holdfast.data.retrieval_data import RetrievalData
from holdfast.embeddings import StringArray
from holdfast.errors import ConfigError


def glyphs(
    *,
    seed: int = 0,
    training_classes: int = 400,
    validation_classes: int = 60,
    evaluation_classes: int = 200,
    distortions: int = 2,
    strength: float = 1.0,
    image_size: int = 28,
) -> RetrievalData:
    """Characters rendered from the fonts of matplotlib; needs no download.

    A class is a character shape; its images are ``distortions`` of each of the 12 to 16 fonts that have it. Queries
    are drawn with one font of each family, the gallery with the others.

    Args:
        seed: Chooses the classes of each part, and all distortions.
        training_classes: Classes to train on.
        validation_classes: Classes to choose among runs with; 0 for none.
        evaluation_classes: Classes to search among.
        distortions: Images per font and character.
        strength: Factor of the distortions; 0 draws clean glyphs.
        image_size: Height and width.

    Raises:
        ConfigError: matplotlib is missing, or there are fewer distinct shapes than classes asked for.
    """
    classes = {
        "training_classes": training_classes,
        "validation_classes": validation_classes,
        "evaluation_classes": evaluation_classes,
    }
    _check_options(classes, distortions, strength, image_size)
    bank = distinct_glyphs()
    parts = _parted(classes, len(bank.characters), seed)
    drawn = [
        _drawn(bank.select(rows), distortions, strength, image_size, [seed, part]) for part, rows in enumerate(parts)
    ]
    (train, _), (validation, _), (evaluation, fonts) = drawn
    asked = fonts // STYLES == fonts % STYLES
    return RetrievalData(
        name="glyphs",
        train=train,
        query=evaluation.select(asked),
        gallery=evaluation.select(~asked),
        leave_one_out=False,
        validation=validation if validation_classes else None,
        description=f"{sum(classes.values())} characters in {len(bank.fonts)} fonts, {distortions} distortions each; "
        "queries and gallery are held-out characters, in different fonts",
    )


def _parted(classes: Mapping[str, int], available: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each part in ascending order, no row in two parts."""
    if sum(classes.values()) > available:
        raise ConfigError(
            f"{sum(classes.values())} classes asked for: {', '.join(f'{n} {name}' for name, n in classes.items())}.",
            expected=f"at most {available} in all: so many distinct shapes the installed fonts have",
            to_do="ask for fewer classes in one of them.",
        )
    order = generator_of(seed).permutation(available)
    ends = np.cumsum(list(classes.values()))
    return [np.sort(part) for part in np.split(order, ends)[:-1]]


def _drawn(
    bank: GlyphBank, distortions: int, strength: float, image_size: int, seed: list[int]
) -> tuple[ImageSet, NDArray[np.int64]]:
    """Return the images of all characters of the bank, class by class, and the font of each (N,)."""
    import torch

    state = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    generator = torch.Generator().manual_seed(state)
    rows, fonts = (np.repeat(found, distortions) for found in np.nonzero(bank.present))
    pixels = distort(bank.pixels, rows, fonts, image_size=image_size, strength=strength, generator=generator)
    copies = np.tile(np.arange(distortions), len(rows) // distortions)
    names = tuple(unicodedata.name(character) for character in bank.characters)
    codes = [f"U+{ord(character):04X}" for character in bank.characters]
    ids = [f"{codes[row]}/{bank.fonts[font]}/{copy}" for row, font, copy in zip(rows, fonts, copies, strict=True)]
    return ImageSet(ArrayImages(pixels), rows.astype(np.int64), names, StringArray.of(ids)), fonts


def _check_options(classes: Mapping[str, int], distortions: int, strength: float, image_size: int) -> None:
    least = {"training_classes": 2, "validation_classes": 0, "evaluation_classes": 2, "distortions": 1, "strength": 0}
    for name, value in {**classes, "distortions": distortions, "strength": strength}.items():
        if value < least[name]:
            raise ConfigError(f"{name} = {value}.", expected=f"at least {least[name]}")
    if not 8 <= image_size <= 224:
        raise ConfigError(f"image_size = {image_size}.", expected="between 8 and 224 pixels")
