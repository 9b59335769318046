"""Characters of the fonts that matplotlib installs, as images: the data set that needs no download.

One class per distinct character shape, one image per font and distortion. Size tells nothing here, because every
glyph is scaled to one box. So characters that differ by size or width only (c and C, O and 0), look-alikes across
scripts (Latin A, Greek Alpha, Cyrillic A) and characters that some font draws alike are one class: the first of
them stays, the others are left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFont

from holdfast.errors import ConfigError

CANVAS = 56
"""Height and width of a clean glyph."""
_BOX = 42
_COARSE = 14
_FONT_SIZE = 48
_SMALLEST_SIDE = 0.22
"""Glyphs narrower than this share of their longer side are left out: dashes and bars look alike once rotated."""

MEAN_SIMILARITY = 0.87
"""Two characters whose outlines agree more than this, averaged over the fonts that have both, are one class."""
ANY_SIMILARITY = 0.94
"""Two characters whose outlines agree more than this in any one font are one class."""

_FONTS = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
STYLES = 4
"""Fonts of a family: upright, bold, slanted, both; the families come one after another."""
_LEAST_FONTS = 12
_CATEGORIES = frozenset({"Lu", "Ll", "Lo", "Nd", "Nl", "No", "Pe", "Po", "Ps", "Sc", "Sm", "So"})
_LEFT_OUT = ("MODIFIER", "BOX", "BRAILLE", "SUPERSCRIPT", "SUBSCRIPT", "OBJECT REPLACEMENT", "REPLACEMENT")
_SMALLEST_INK = 16
"""Glyphs whose ink is smaller than this at the drawn font size are left out: points and quotation marks."""


@dataclass(frozen=True, eq=False)
class GlyphBank:
    """Clean glyphs of some characters in all fonts.

    Args:
        characters: The characters (C).
        fonts: Names of the fonts (F).
        pixels: uint8 (C, F, CANVAS, CANVAS), ink is 255; zero where a font lacks the character.
        outlines: The same, each stretched over a coarse square (C, F, 14, 14), to compare shapes by.
        present: bool (C, F), whether the font has the character.
    """

    characters: tuple[str, ...]
    fonts: tuple[str, ...]
    pixels: NDArray[np.uint8]
    outlines: NDArray[np.uint8]
    present: NDArray[np.bool_]

    def select(self, rows: Sequence[int] | NDArray[np.int64]) -> GlyphBank:
        """Return the chosen characters."""
        chosen = tuple(self.characters[row] for row in rows)
        return GlyphBank(chosen, self.fonts, self.pixels[rows], self.outlines[rows], self.present[rows])


@cache
def distinct_glyphs() -> GlyphBank:
    """Render every usable character and keep one of each shape, letters and signs without accents first.

    Takes some seconds, so the result is kept for the life of the process; its arrays cannot be written to.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    fonts = font_files()
    characters = common_characters(fonts)
    bank = render(characters, fonts)
    wide = np.flatnonzero((_narrowness(bank) >= _SMALLEST_SIDE) & (bank.present.sum(axis=1) >= _LEAST_FONTS))
    bank = bank.select(wide)
    composed = np.array([bool(unicodedata.decomposition(character)) for character in bank.characters])
    order = np.lexsort((np.arange(len(composed)), composed))
    chosen = bank.select(sorted(greedy_distinct(look_alikes(bank), order)))
    for values in (chosen.pixels, chosen.outlines, chosen.present):
        values.setflags(write=False)
    return chosen


def font_files() -> list[Path]:
    """Return the text fonts that come with matplotlib: four styles of each of four families.

    Fonts with few or misplaced characters (Computer Modern, display sizes) are left out, and so is LastResort,
    which draws a box for everything.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(
            "The data set 'glyphs' is rendered from the fonts of matplotlib, which is not installed.",
            expected="matplotlib",
            to_do="pip install holdfast[report]",
        ) from error
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
    """Return the letters, digits and signs that at least twelve of the fonts have, by code point."""
    counts: dict[int, int] = {}
    for path in fonts:
        for code in covered_codes(path):
            counts[code] = counts.get(code, 0) + 1
    return [chr(code) for code in sorted(counts) if counts[code] >= _LEAST_FONTS and _usable(chr(code))]


def covered_codes(font: Path) -> frozenset[int]:
    """Return the code points for which the font has a glyph of its own."""
    from fontTools.ttLib import TTFont

    with TTFont(font, lazy=True) as opened:
        return frozenset(code for code, name in opened.getBestCmap().items() if name != ".notdef")


def _usable(character: str) -> bool:
    name = unicodedata.name(character, "")
    return bool(name) and unicodedata.category(character) in _CATEGORIES and not name.startswith(_LEFT_OUT)


def render(characters: Sequence[str], fonts: Sequence[Path]) -> GlyphBank:
    """Draw every character in every font that has it, scaled to one box around its ink and centred."""
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
    """Draw into the canvas, and stretched into the outline; return whether there was enough ink to draw."""
    mask = font.getmask(character, mode="L")
    box = mask.getbbox()
    if box is None or max(box[2] - box[0], box[3] - box[1]) < _SMALLEST_INK:
        return False
    ink = Image.frombytes("L", mask.size, bytes(mask)).crop(box)
    scale = _BOX / max(ink.size)
    width, height = (max(1, round(side * scale)) for side in ink.size)
    scaled = np.asarray(ink.resize((width, height), Image.Resampling.BILINEAR))
    top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
    canvas[top : top + height, left : left + width] = scaled
    outline[:] = np.asarray(ink.resize(outline.shape, Image.Resampling.BILINEAR))
    return True


def _narrowness(bank: GlyphBank) -> NDArray[np.float64]:
    """Return per character the smallest ratio of shorter to longer side over its fonts (C,), in (0, 1]."""
    ink = bank.pixels > 0
    sides = np.stack([_extent(np.logical_or.reduce(ink, axis=axis)) for axis in (2, 3)])
    ratio = sides.min(axis=0) / np.maximum(sides.max(axis=0), 1)
    smallest: NDArray[np.float64] = np.where(bank.present, ratio, 1.0).min(axis=1)
    return smallest


def _extent(inked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how far it is from the first to the last True along the last axis, 0 without one."""
    count = inked.shape[-1]
    return np.where(inked.any(axis=-1), count - inked.argmax(axis=-1) - inked[..., ::-1].argmax(axis=-1), 0)


def look_alikes(bank: GlyphBank) -> NDArray[np.bool_]:
    """Return which characters are one class (C, C), by `MEAN_SIMILARITY` and `ANY_SIMILARITY`.

    The similarity of two characters in a font is the cosine of their outlines. Sums are of whole numbers, which
    float64 holds exactly, so that the answer is the same on every machine.
    """
    count = len(bank.characters)
    total, highest = np.zeros((count, count)), np.zeros((count, count))
    common = bank.present.astype(np.float64) @ bank.present.T
    for column in range(len(bank.fonts)):
        vectors = bank.outlines[:, column].reshape(count, -1).astype(np.float64)
        products = vectors @ vectors.T
        lengths = np.maximum(np.sqrt(products.diagonal()), 1.0)
        cosine = products / (lengths[:, None] * lengths[None, :])
        total += cosine
        np.maximum(highest, cosine, out=highest)
    alike: NDArray[np.bool_] = (total > MEAN_SIMILARITY * common) | (highest > ANY_SIMILARITY)
    return alike


def greedy_distinct(alike: NDArray[np.bool_], order: NDArray[np.int64]) -> list[int]:
    """Return rows no two of which are alike, taking each row in the given order unless it is like one taken before.

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
