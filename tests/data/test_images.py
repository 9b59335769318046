import io
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from limpet.data.decoding import decode, fitted
from limpet.data.images import (
    ArrayImages,
    EncodedImages,
    FileImages,
    Images,
    KeptImages,
    PreparedImages,
    SelectedImages,
    keep_decoded,
)
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.record_io import RecordImages

ROWS = np.array([3, 0, 3])


def colours(count: int) -> np.ndarray:
    """uint8 (count, 3, 6, 6): one flat colour per image."""
    flat = np.random.default_rng(0).integers(0, 256, (count, 3, 1, 1), dtype=np.uint8)
    return np.broadcast_to(flat, (count, 3, 6, 6)).copy()


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(params=["array", "encoded list", "encoded column", "files", "prepared", "kept", "selected"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Images:
    pixels = colours(5)
    encoded = [png(image) for image in pixels]
    paths = [tmp_path / f"{row}.png" for row in range(5)]
    for path, content in zip(paths, encoded, strict=True):
        path.write_bytes(content)
    backwards = np.arange(5)[::-1].copy()
    column = pa.chunked_array([pa.array(encoded[:2]), pa.array([b"sliced off", *encoded[2:]])[1:]])
    return {
        "array": lambda: ArrayImages(pixels),
        "encoded list": lambda: EncodedImages.of(encoded, (3, 6, 6)),
        "encoded column": lambda: EncodedImages.of(column, (3, 6, 6)),
        "files": lambda: FileImages(paths, (3, 6, 6)),
        "prepared": lambda: PreparedImages(paths, np.zeros((5, 4)), lambda image, box: image, (3, 6, 6)),
        "kept": lambda: KeptImages(FileImages(paths, (3, 6, 6))),
        "selected": lambda: SelectedImages(SelectedImages(ArrayImages(pixels), backwards), backwards),
    }[request.param]()


def test_every_store_reads_the_same_pixels(store: Images) -> None:
    assert len(store) == 5
    assert store.shape == (3, 6, 6)
    read = store.read(ROWS)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, colours(5)[ROWS])


def test_every_store_reads_no_rows(store: Images) -> None:
    assert store.read(np.empty(0, np.int64)).shape == (0, 3, 6, 6)


def test_what_is_read_can_be_changed_without_changing_the_store(store: Images) -> None:
    store.read(ROWS)[:] = 0
    np.testing.assert_array_equal(store.read(ROWS), colours(5)[ROWS])


def test_the_digest_follows_the_rows(store: Images) -> None:
    assert store.content_digest(ROWS) == store.content_digest(ROWS.copy())
    assert store.content_digest(ROWS) != store.content_digest(ROWS[:2])


def test_kept_images_are_decoded_once() -> None:
    source = CountingImages()
    kept = keep_decoded(source)
    for _ in range(3):
        kept.read(np.array([1, 1, 2]))
    kept.read(np.array([2, 0]))
    assert source.asked == [[1, 2], [0]]


def test_images_that_do_not_fit_are_not_kept() -> None:
    source = CountingImages()
    assert keep_decoded(source, limit_bytes=len(source) * 4) is not source
    assert keep_decoded(source, limit_bytes=len(source) * 4 - 1) is source


class CountingImages(ArrayImages):
    """Remembers which rows were read."""

    def __init__(self) -> None:
        super().__init__(np.zeros((3, 1, 2, 2), np.uint8))
        self.asked: list[list[int]] = []

    def read(self, rows: np.ndarray) -> np.ndarray:
        self.asked.append(rows.tolist())
        return super().read(rows)


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((2, 1, 4, 4), np.float32), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 3), np.uint8)],
)
def test_arrays_of_another_kind_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"1 or 3 channels"):
        ArrayImages(pixels)


def test_a_crop_keeps_the_aspect_and_the_centre_and_a_squash_keeps_everything() -> None:
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 255
    cropped = np.asarray(fitted(Image.fromarray(wide), (5, 5), "crop"))
    squashed = np.asarray(fitted(Image.fromarray(wide), (6, 6), "squash"))
    assert cropped.min() > 200
    assert squashed[:, 0].max() < 60 and squashed[:, -1].max() < 60
    assert squashed[:, 2:4].min() > 200


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_grey_or_colour(mode: str, channels: int) -> None:
    buffer = io.BytesIO()
    image = Image.new("L", (8, 8), 255) if mode == "I;16" else Image.new("RGB", (8, 8), "white")
    if mode == "I;16":
        image = Image.fromarray(np.full((8, 8), 65535, np.uint16))
    image.convert(mode).save(buffer, "tiff" if mode == "CMYK" else "png")
    buffer.seek(0)
    pixels = decode(buffer, (channels, 8, 8), "crop", "it")
    assert pixels.shape == (channels, 8, 8)
    assert pixels.min() == 255


def test_sixteen_bit_greys_are_scaled() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4), 100 * 257, np.uint16)).save(buffer, "png")
    buffer.seek(0)
    assert set(decode(buffer, (1, 4, 4), "crop", "it").flat) == {100}


def test_transparent_parts_become_white() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(buffer, "png")
    buffer.seek(0)
    assert decode(buffer, (3, 4, 4), "crop", "it").min() == 255


@pytest.mark.parametrize("content", [b"", b"no image", png(colours(1)[0])[:45]], ids=["empty", "text", "cut off"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png(.|\n)*Expected: a complete png(.|\n)*Next: replace") as refused:
        FileImages([path], (3, 6, 6)).read(np.array([0]))
    assert "0x" not in str(refused.value)


def test_a_broken_row_is_named() -> None:
    images = EncodedImages.of([png(colours(1)[0]), b"no image"], (3, 6, 6), source="train.parquet")
    assert images.read(np.array([0])).shape == (1, 3, 6, 6)
    with pytest.raises(DataError, match=r"image 1 of train\.parquet: no known image format"):
        images.read(np.array([0, 1]))


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    images = FileImages([tmp_path / "gone.png"], (3, 6, 6))
    with pytest.raises(DataError, match=r"gone\.png"):
        images.read(np.array([0]))
    with pytest.raises(DataError, match=r"gone\.png"):
        images.content_digest(np.array([0]))


def test_missing_bytes_are_refused() -> None:
    with pytest.raises(DataError, match="1 missing images"):
        EncodedImages.of(pa.array([b"x", None]), (3, 6, 6))


def test_no_encoded_images_is_a_store_of_none() -> None:
    assert len(EncodedImages.of([], (3, 6, 6))) == 0


@pytest.mark.parametrize(("shape", "fit"), [((2, 8, 8), "crop"), ((3, 0, 8), "crop"), ((3, 8, 8), "stretch")])
def test_a_target_that_cannot_be_is_refused(shape: tuple[int, int, int], fit: str) -> None:
    with pytest.raises(ConfigError):
        FileImages([], shape, fit=fit)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        EncodedImages.of([], shape, fit=fit)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        RecordImages(None, ROWS, shape, fit=fit)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        PreparedImages([], np.zeros((0, 4)), lambda image, box: image, shape, fit=fit)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", [None, "squash"])
def test_prepared_images_state_the_fit_that_was_given(fit: Literal["squash"] | None) -> None:
    assert PreparedImages([], np.zeros((0, 4)), lambda image, box: image, (3, 6, 6), fit=fit).fit == fit


def tiff(pixels: np.ndarray) -> io.BytesIO:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "tiff")
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    ("dtype", "value", "found"),
    [(np.int32, 200, 200), (np.int32, 255, 255), (np.int32, 100 * 257, 100), (np.uint16, 200 * 257, 200)],
)
def test_greys_of_more_bits_are_scaled_only_where_they_fill_them(dtype: type, value: int, found: int) -> None:
    assert set(decode(tiff(np.full((4, 4), value, dtype)), (1, 4, 4), "crop", "it").flat) == {found}


@pytest.mark.parametrize(
    "pixels",
    [np.full((4, 4), 0.5, np.float32), np.full((4, 4), 70_000, np.int32), np.full((4, 4), -1, np.int32)],
    ids=["floating", "too large", "negative"],
)
def test_greys_without_an_agreed_range_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"^The file x\.tif holds (.|\n)*Expected: whole numbers(.|\n)*Next: scale"):
        decode(tiff(pixels), (1, 4, 4), "crop", "the file x.tif")


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_photos_are_turned_upright(kind: str) -> None:
    upright = np.zeros((64, 32, 3), np.uint8)
    upright[:32] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held turned: rotate by 90 degrees clockwise to view
    buffer = io.BytesIO()
    Image.fromarray(np.rot90(upright)).save(buffer, kind, exif=exif)
    buffer.seek(0)
    pixels = decode(buffer, (3, 64, 32), "crop", "it")
    assert pixels[:, :28].min() > 240 and pixels[:, 36:].max() < 15


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read where Linux tells it")
def test_scattered_rows_of_a_large_set_take_little_memory() -> None:
    class Grey:
        shape, fit = (3, 32, 32), None

        def __len__(self) -> int:
            return 100_000

        def read(self, rows: np.ndarray) -> np.ndarray:
            return np.full((len(rows), *self.shape), 7, np.uint8)

        def content_digest(self, rows: np.ndarray) -> bytes:
            return b""

        def preload(self, rows: np.ndarray) -> None:
            pass

    def resident() -> float:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    images, rows = KeptImages(Grey()), np.arange(0, 100_000, 50)
    before = resident()
    found = images.read(rows)
    assert (found == 7).all() and (images.read(rows[:3]) == 7).all()
    assert resident() - before < 60  # 293 MB in pages of 2 MB


def test_what_is_preloaded_is_decoded_once_and_damage_is_told_then(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path in paths:
        Image.new("L", (8, 8), 9).save(path)
    paths[3].write_bytes(b"no image")
    images = SelectedImages(keep_decoded(FileImages(paths, (1, 8, 8))), np.array([0, 2, 3]))
    images.preload(np.array([0, 1]))
    for path in paths:
        path.unlink()
    assert (images.read(np.array([1, 0])) == 9).all()
    with pytest.raises(DataError, match=r"3\.png"):
        images.preload(np.array([2]))


@pytest.mark.parametrize("way", ["crop", "squash"])
def test_bicubic_fits_take_the_same_part_and_other_curves(way: Literal["crop", "squash"]) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))
    curved = fitted(image, (20, 20), f"{way}-bicubic")
    box = (10, 0, 50, 40) if way == "crop" else (0, 0, 60, 40)
    assert np.array_equal(np.asarray(curved), np.asarray(image.resize((20, 20), Image.Resampling.BICUBIC, box=box)))
    assert not np.array_equal(np.asarray(curved), np.asarray(fitted(image, (20, 20), way)))
