"""The data set "glyphs", which needs no download: distorted characters of the fonts that matplotlib installs.

A class is a distinct character shape; its images are one per font and distortion. Every glyph is scaled to one box, so
size does not distinguish classes. Of similar characters only the first is kept: characters that differ only in size or
width (c and C, O and 0), look-alikes across scripts (Latin A, Greek Alpha, Cyrillic A), and characters that look alike
in one of the fonts. Whole classes are held out for retrieval.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from limpet.data.image_set import ImageSet
from limpet.data.image_size import SquareSize, readable_sides
from limpet.data.images import ArrayImages
from limpet.data.retrieval_data import RetrievalData
from limpet.data.sampling import generator_of
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, refuse
from limpet.support.extras import needing
from limpet.support.ranges import Count, NonNegative, PositiveInt, Seed, checked

if TYPE_CHECKING:
    import torch
    from PIL import ImageFont
    from torch import Tensor


CANVAS = 56
"""Height and width of a clean glyph."""
_BOX = 42
_COARSE = 14
_FONT_SIZE = 48
_SMALLEST_SIDE = 0.22
"""Minimum ratio of the shorter to the longer side of a glyph: narrower dashes and bars look alike when rotated."""

MEAN_SIMILARITY = 0.87
"""Two characters are one class if the mean similarity of their outlines, over fonts with both, is above this."""
ANY_SIMILARITY = 0.94
"""Two characters are one class if the similarity of their outlines in any font is above this."""

_FONTS = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
STYLES = 4
"""Number of fonts per family: upright, bold, slanted, bold slanted. The fonts of a family are adjacent."""
_LEAST_FONTS = 12
_CATEGORIES = frozenset({"Lu", "Ll", "Lo", "Nd", "Nl", "No", "Pe", "Po", "Ps", "Sc", "Sm", "So"})
_LEFT_OUT = ("MODIFIER", "BOX", "BRAILLE", "SUPERSCRIPT", "SUBSCRIPT", "OBJECT REPLACEMENT", "REPLACEMENT")
_SMALLEST_INK = 16
"""Minimum longer side of the ink in pixels, at the drawn font size: dots and quotation marks are smaller."""


@dataclass(frozen=True, eq=False)
class GlyphBank:
    """Clean glyphs of some characters in all fonts.

    Args:
        characters: The characters (C).
        fonts: Names of the fonts (F).
        pixels: Glyphs, uint8 (C, F, CANVAS, CANVAS); ink is 255, and a glyph that a font lacks is all zero.
        outlines: Glyphs stretched to a coarse square, uint8 (C, F, 14, 14), to compare shapes.
        present: Whether the font has the character, bool (C, F).
    """

    characters: tuple[str, ...]
    fonts: tuple[str, ...]
    pixels: NDArray[np.uint8]
    outlines: NDArray[np.uint8]
    present: NDArray[np.bool_]

    def __getitem__(self, rows: Sequence[int] | NDArray[np.int64]) -> GlyphBank:
        """Return the bank of the chosen characters."""
        chosen = tuple(self.characters[row] for row in rows)
        return GlyphBank(chosen, self.fonts, self.pixels[rows], self.outlines[rows], self.present[rows])


@cache
def distinct_glyphs() -> GlyphBank:
    """Render every usable character, and keep one of each shape; characters without accents take precedence.

    This takes some seconds, so the result is cached; its arrays are read-only.

    Raises:
        ConfigError: matplotlib or one of its fonts is missing.
    """
    fonts = font_files()
    characters = common_characters(fonts)
    bank = render(characters, fonts)
    wide = np.flatnonzero((_narrowness(bank) >= _SMALLEST_SIDE) & (bank.present.sum(axis=1) >= _LEAST_FONTS))
    bank = bank[wide]
    composed = np.array([bool(unicodedata.decomposition(character)) for character in bank.characters])
    order = np.lexsort((np.arange(len(composed)), composed))
    chosen = bank[sorted(greedy_distinct(look_alikes(bank), order))]
    for values in (chosen.pixels, chosen.outlines, chosen.present):
        values.setflags(write=False)
    return chosen


def font_files() -> list[Path]:
    """Return the files of the text fonts that matplotlib installs: four styles of each of four families.

    Fonts with few or misplaced characters (Computer Modern, display sizes) are left out, and so is LastResort, which
    draws a box for every character.

    Raises:
        ConfigError: matplotlib or one of its fonts is missing.
    """
    with needing("The data set 'glyphs', rendered from fonts that come with Matplotlib,"):
        import matplotlib
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = [folder / f"{family}{style}.ttf" for family, styles in _FONTS.items() for style in styles]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise ConfigError(
            f"The folder {folder} lacks fonts that 'glyphs' is rendered from: {', '.join(missing)}.",
            expected="the DejaVu and STIX fonts that come with matplotlib",
            to_do="install matplotlib again: pip install --force-reinstall matplotlib",
        )
    return files


def common_characters(fonts: Sequence[Path]) -> list[str]:
    """Return the letters, digits and signs that at least twelve of the fonts have, in the order of code points."""
    counts: dict[int, int] = {}
    for path in fonts:
        for code in covered_codes(path):
            counts[code] = counts.get(code, 0) + 1
    return [chr(code) for code in sorted(counts) if counts[code] >= _LEAST_FONTS and _usable(chr(code))]


@cache
def covered_codes(font: Path) -> frozenset[int]:
    """Return the code points for which the font has a glyph."""
    from fontTools.ttLib import TTFont

    with TTFont(font, lazy=True) as opened:
        return frozenset(code for code, name in opened.getBestCmap().items() if name != ".notdef")


def _usable(character: str) -> bool:
    name = unicodedata.name(character, "")
    return bool(name) and unicodedata.category(character) in _CATEGORIES and not name.startswith(_LEFT_OUT)


def render(characters: Sequence[str], fonts: Sequence[Path]) -> GlyphBank:
    """Draw every character in every font that has it, scaled to one box around its ink and centred."""
    from PIL import ImageFont

    pixels = np.zeros((len(characters), len(fonts), CANVAS, CANVAS), np.uint8)
    outlines = np.zeros((len(characters), len(fonts), _COARSE, _COARSE), np.uint8)
    present = np.zeros((len(characters), len(fonts)), np.bool_)
    for column, path in enumerate(fonts):
        font = ImageFont.truetype(str(path), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
        codes = covered_codes(path)
        for row, character in enumerate(characters):
            if ord(character) in codes:
                present[row, column] = _draw(font, character, pixels[row, column], outlines[row, column])
    return GlyphBank(tuple(characters), tuple(path.stem for path in fonts), pixels, outlines, present)


def _draw(font: ImageFont.FreeTypeFont, character: str, canvas: NDArray[np.uint8], outline: NDArray[np.uint8]) -> bool:
    """Draw a character into the canvas, and stretched into the outline; return False if its ink is too small."""
    from PIL import Image, ImageDraw

    paper = Image.new("L", (4 * _FONT_SIZE, 3 * _FONT_SIZE))
    ImageDraw.Draw(paper).text((_FONT_SIZE, _FONT_SIZE), character, fill=255, font=font)
    box = paper.getbbox()
    if box is None or max(box[2] - box[0], box[3] - box[1]) < _SMALLEST_INK:
        return False
    ink = paper.crop(box)
    scale = _BOX / max(ink.size)
    width, height = (max(1, round(side * scale)) for side in ink.size)
    scaled = np.asarray(ink.resize((width, height), Image.Resampling.BILINEAR))
    top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
    canvas[top : top + height, left : left + width] = scaled
    outline[:] = np.asarray(ink.resize(outline.shape, Image.Resampling.BILINEAR))
    return True


def _narrowness(bank: GlyphBank) -> NDArray[np.float64]:
    """Return per character the smallest ratio of shorter to longer side over its fonts (C,), in (0, 1]."""
    sides = np.stack([_extent(bank.pixels.max(axis=axis) > 0) for axis in (2, 3)])
    ratio = sides.min(axis=0) / np.maximum(sides.max(axis=0), 1)
    smallest: NDArray[np.float64] = np.where(bank.present, ratio, 1.0).min(axis=1)
    return smallest


def _extent(inked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of places from the first to the last True along the last axis; 0 without a True."""
    count = inked.shape[-1]
    return np.where(inked.any(axis=-1), count - inked.argmax(axis=-1) - inked[..., ::-1].argmax(axis=-1), 0)


def look_alikes(bank: GlyphBank) -> NDArray[np.bool_]:
    """Return which pairs of characters are alike, bool (C, C), by `MEAN_SIMILARITY` and `ANY_SIMILARITY`.

    The similarity of two characters in a font is the cosine of their outlines. The inner products are sums of integers,
    which float64 represents exactly, so that the result is the same on every machine.
    """
    count = len(bank.characters)
    total, highest = np.zeros((count, count)), np.zeros((count, count))
    common = bank.present.astype(np.float64) @ bank.present.T
    for column in range(len(bank.fonts)):
        vectors = bank.outlines[:, column].reshape(count, -1).astype(np.float64)
        products = vectors @ vectors.T
        lengths = np.maximum(np.sqrt(products.diagonal()), 1.0)
        products /= lengths[:, None] * lengths[None, :]  # in place, because allocating another large array is slow
        total += products
        np.maximum(highest, products, out=highest)
    alike: NDArray[np.bool_] = (total > MEAN_SIMILARITY * common) | (highest > ANY_SIMILARITY)
    return alike


def greedy_distinct(alike: NDArray[np.bool_], order: NDArray[np.int64]) -> list[int]:
    """Return rows of which no two are alike: each row in the given order, unless it is like an earlier one.

    >>> greedy_distinct(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool), np.array([1, 0, 2]))
    [1, 2]
    """
    taken: list[int] = []
    free = np.ones(len(alike), np.bool_)
    for row in order.tolist():
        if free[row]:
            taken.append(row)
            free &= ~alike[row]
    return taken


ROTATION = 0.16
"""Maximum rotation, in radians (9 degrees)."""
SHEAR = 0.2
SCALES = (0.8, 1.05)
SHIFT = 0.09
"""Maximum shift, as a share of half the side of the image."""
WARP = 0.08
"""Standard deviation of the smooth warp at its sixteen control points, as a share of half the side of the image."""
THICKNESS = (-0.5, 0.9)
"""Range of the change of stroke thickness: -1 is one pixel thinner, 1 one pixel thicker, on every side, unscaled."""
PAPER, FADE = 0.15, 0.3
"""Maximum grey of the paper, and maximum fading of the ink; both between 0 and 1."""
NOISE = 0.06
_AT_ONCE = 2048


def distort(
    bank: NDArray[np.uint8],
    rows: NDArray[np.int64],
    fonts: NDArray[np.int64],
    *,
    image_size: int,
    strength: float,
    generator: torch.Generator,
) -> NDArray[np.uint8]:
    """Return one distorted image for every pair of a row and a font; a pair may occur several times.

    Rotation, shear, scale, shift, smooth warp, stroke thickness, contrast and noise are drawn for every image.

    Args:
        bank: Clean glyphs, uint8 (characters, fonts, height, width), ink is 255.
        rows: Row of the character of every image, int64 (N,).
        fonts: Column of the font of every image, int64 (N,).
        image_size: Height and width of the result.
        strength: Factor of all distortions; 0 only resizes.
        generator: CPU generator of all random draws.

    Returns:
        uint8 (N, 1, image_size, image_size).
    """
    import torch

    result = np.empty((len(rows), 1, image_size, image_size), np.uint8)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        ink = torch.from_numpy(bank[rows[part], fonts[part]])[:, None].float() / 255
        ink = _rethicken(ink, strength, generator)
        ink = _move(ink, image_size, strength, generator)
        ink = _expose(ink, strength, generator)
        result[part] = (ink * 255).round().to(torch.uint8).numpy()
    return result


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    import torch

    return low + (high - low) * torch.rand(shape, generator=generator)


def _rethicken(ink: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    amount = strength * _uniform((len(ink), 1, 1, 1), *THICKNESS, generator)
    thick, thin = _thickened(ink), 1 - _thickened(1 - ink)
    return ink + amount.clamp(0, 1) * (thick - ink) + (-amount).clamp(0, 1) * (thin - ink)


def _thickened(ink: Tensor) -> Tensor:
    """Return the maximum of every 3 x 3 neighbourhood; on a CPU this is twenty times faster than max pooling."""
    import torch

    for axis in (2, 3):
        count = ink.shape[axis]
        before, after = ink.narrow(axis, 0, count - 1), ink.narrow(axis, 1, count - 1)
        wide = ink.clone()
        torch.maximum(wide.narrow(axis, 1, count - 1), before, out=wide.narrow(axis, 1, count - 1))
        torch.maximum(wide.narrow(axis, 0, count - 1), after, out=wide.narrow(axis, 0, count - 1))
        ink = wide
    return ink


def _move(ink: Tensor, image_size: int, strength: float, generator: torch.Generator) -> Tensor:
    import torch
    from torch.nn.functional import affine_grid, grid_sample, interpolate

    count = len(ink)
    grid = affine_grid(_inverse_maps(count, strength, generator), [count, 1, image_size, image_size], False)
    bends = strength * WARP * torch.randn((count, 2, 4, 4), generator=generator)
    smooth = interpolate(bends, size=(image_size, image_size), mode="bicubic", align_corners=True)
    return grid_sample(ink, grid + smooth.permute(0, 2, 3, 1), align_corners=False).clamp(0, 1)


def _inverse_maps(count: int, strength: float, generator: torch.Generator) -> Tensor:
    """Return random affine maps (count, 2, 3) from positions in the result to positions in the glyph."""
    import torch

    angle = _uniform((count,), -ROTATION * strength, ROTATION * strength, generator)
    shear = _uniform((count,), -SHEAR * strength, SHEAR * strength, generator)
    scale = 1 + strength * (_uniform((count, 2), *SCALES, generator) - 1)
    shift = _uniform((count, 2), -SHIFT * strength, SHIFT * strength, generator)
    cosine, sine = angle.cos(), angle.sin()
    turn = torch.stack([cosine, -sine, sine, cosine], 1).view(count, 2, 2)
    lean = torch.stack([torch.ones(count), shear, torch.zeros(count), torch.ones(count)], 1).view(count, 2, 2)
    return torch.cat([turn @ lean / scale[:, None, :], shift[:, :, None]], dim=2)


def _expose(ink: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Vary the grey of ink and paper, and add noise; the result is in [0, 1]."""
    import torch

    each = (len(ink), 1, 1, 1)
    paper = min(strength, 1.0) * _uniform(each, 0.0, PAPER, generator)
    full = 1 - min(strength, 1.0) * _uniform(each, 0.0, FADE, generator)
    noise = strength * NOISE * torch.randn(ink.shape, generator=generator)
    return (paper + (full - paper) * ink + noise).clamp(0, 1)


@checked
def glyphs(
    *,
    seed: Seed = 0,
    training_classes: Annotated[int, Ge(2)] = 400,
    validation_classes: Count = 60,
    evaluation_classes: Annotated[int, Ge(2)] = 200,
    distortions: PositiveInt = 2,
    strength: NonNegative = 1.0,
    image_size: SquareSize = 28,
) -> RetrievalData:
    """Characters rendered from the fonts of matplotlib; needs no download.

    A class is a character shape; each of the 12 to 16 fonts that have it gives ``distortions`` images. Queries use one
    font of each family, the gallery the others.

    Args:
        seed: Random seed of the classes of each part, and of all distortions.
        training_classes: Number of classes to train on.
        validation_classes: Number of classes for model selection; 0 for none.
        evaluation_classes: Number of classes to search.
        distortions: Number of images per font and character.
        strength: Factor of the distortions; 0 draws clean glyphs.
        image_size: Pixels per side.

    Raises:
        ConfigError: matplotlib is missing, or there are fewer distinct shapes than classes asked for.
    """
    classes = {
        "training_classes": training_classes,
        "validation_classes": validation_classes,
        "evaluation_classes": evaluation_classes,
    }
    side, _ = readable_sides(image_size)
    refuse(not 8 <= side <= 224, f"image_size = {side}.", "between 8 and 224 pixels")
    bank = distinct_glyphs()
    parts = _parted(classes, len(bank.characters), seed)
    drawn = [_drawn(bank[rows], distortions, strength, side, [seed, part]) for part, rows in enumerate(parts)]
    (train, _), (validation, _), (evaluation, fonts) = drawn
    asked = fonts // STYLES == fonts % STYLES
    return RetrievalData(
        name="glyphs",
        train=train,
        query=evaluation[asked],
        gallery=evaluation[~asked],
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
            expected=f"at most {available} in all, the number of distinct shapes in the installed fonts",
            to_do="ask for fewer classes in one of them.",
        )
    order = generator_of(seed).permutation(available)
    ends = np.cumsum(list(classes.values()))
    return [np.sort(part) for part in np.split(order, ends)[:-1]]


def _drawn(
    bank: GlyphBank, distortions: int, strength: float, image_size: int, seed: list[int]
) -> tuple[ImageSet, NDArray[np.int64]]:
    """Return the images of all characters of the bank, class by class, and the font of each image (N,)."""
    from limpet.data.loading import generator_at

    rows, fonts = (np.repeat(found, distortions) for found in np.nonzero(bank.present))
    pixels = distort(bank.pixels, rows, fonts, image_size=image_size, strength=strength, generator=generator_at(*seed))
    copies = np.tile(np.arange(distortions), len(rows) // distortions)
    names = tuple(unicodedata.name(character) for character in bank.characters)
    codes = [f"U+{ord(character):04X}" for character in bank.characters]
    ids = [f"{codes[row]}/{bank.fonts[font]}/{copy}" for row, font, copy in zip(rows, fonts, copies, strict=True)]
    return ImageSet(ArrayImages(pixels), rows.astype(np.int64), names, StringArray.of(ids)), fonts
