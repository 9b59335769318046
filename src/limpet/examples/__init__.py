"""The sample data of the tutorials: an imaginary shop with requests, products, photos and two text models."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError

SHOP = Path(__file__).parent / "shop"
"""The files that are copied as they are."""

PHOTOS = 20
"""Number of images per shape."""
_SIDE = 48

_Plane = NDArray[np.float64]
_SHAPES: dict[str, Callable[[_Plane, _Plane], NDArray[np.bool_]]] = {
    "bar": lambda x, y: (abs(x) < 0.95) & (abs(y) < 0.3),
    "circle": lambda x, y: np.hypot(x, y) < 0.85,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.25) & (np.maximum(abs(x), abs(y)) < 0.95),
    "flower": lambda x, y: np.hypot(x, y) < 0.6 + 0.35 * np.cos(5 * np.arctan2(y, x)),
    "frame": lambda x, y: abs(np.maximum(abs(x), abs(y)) - 0.6) < 0.2,
    "moon": lambda x, y: (np.hypot(x, y) < 0.9) & (np.hypot(x - 0.5, y) > 0.75),
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.7) < 0.2,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.75,
    "stripes": lambda x, y: (np.maximum(abs(x), abs(y)) < 0.9) & (np.sin(10 * x) > 0),
    "triangle": lambda x, y: (y < 0.6) & (y > 1.9 * abs(x) - 0.9),
}  # fmt: skip


def copy_examples(folder: Path) -> list[Path]:
    """Write the sample data to a folder, and render 200 photos there.

    Files that are there already stay as they are, so that a second call adds what is missing.

    Args:
        folder: A new or an empty folder, or one that was written by this function.

    Returns:
        The files that were written, relative to the folder.

    Raises:
        ConfigError: The folder contains something else.
    """
    marker = folder / "README.md"
    own = marker.is_file() and marker.read_bytes() == (SHOP / "README.md").read_bytes()
    if folder.exists() and not own and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"'{folder}' {'contains other files' if folder.is_dir() else 'is a file'}.",
            expected="a new or an empty folder, or one that this command wrote",
            to_do="choose another name, such as `limpet examples copy limpet-shop`.",
            intact="Nothing was written.",
        )
    written = []
    for source in (path for path in sorted(SHOP.rglob("*")) if path.is_file() and path.suffix != ".pyc"):
        place = source.relative_to(SHOP)
        if not (folder / place).exists():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / place)
            written.append(place)
    rng = np.random.default_rng(0)
    for name, shape in _SHAPES.items():
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        for number in range(PHOTOS):
            pixels, place = photo(shape, rng), Path("photos", name, f"{number:02}.png")
            if not (folder / place).exists():
                (folder / place).write_bytes(png(pixels))
                written.append(place)
    return written


def photo(shape: Callable[[_Plane, _Plane], NDArray[np.bool_]], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return an image (48, 48, 3) of a shape in random colours, turned, moved and noisy.

    Args:
        shape: Returns where the shape is, of coordinates from -1 to 1.
        rng: Where colours, place and noise come from.
    """
    y, x = np.mgrid[-1 : 1 : _SIDE * 1j, -1 : 1 : _SIDE * 1j]
    angle, size = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 0.8)
    x, y = x - rng.uniform(-0.2, 0.2), y - rng.uniform(-0.2, 0.2)
    x, y = (np.cos(angle) * x + np.sin(angle) * y) / size, (np.cos(angle) * y - np.sin(angle) * x) / size
    dark, light = rng.uniform(0, 110, 3), rng.uniform(145, 255, 3)
    figure, ground = (dark, light) if rng.random() < 0.5 else (light, dark)
    pixels = np.where(shape(x, y)[:, :, None], figure, ground) + rng.normal(0, 20, (_SIDE, _SIDE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image (H, W, 3) as a PNG file; Pillow would need an extra that most tutorials do without."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = np.pad(pixels.reshape(height, width * 3), ((0, 0), (1, 0)))  # each begins with its filter: none
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(lines.tobytes()))
        + chunk(b"IEND", b"")
    )
