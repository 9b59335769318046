import sys
import unicodedata

import numpy as np
import pytest
import torch

from limpet.data.glyphs import CANVAS, GlyphBank, distinct_glyphs, distort, font_files, glyphs, look_alikes, render
from limpet.data.leaks import shared_pixels
from limpet.data.retrieval_data import RetrievalData
from limpet.errors import ConfigError

NEAR_IDENTICAL = 0.95
"""Cosine of two 28 x 28 bitmaps in one font; a glyph shifted by one pixel against itself has about 0.8."""


@pytest.fixture(scope="module")
def bank() -> GlyphBank:
    return distinct_glyphs()


def small(**options: int) -> RetrievalData:
    return glyphs(**{"training_classes": 4, "validation_classes": 2, "evaluation_classes": 3, **options})


def test_there_are_enough_classes_and_images(glyph_data: RetrievalData) -> None:
    evaluation = np.bincount(glyph_data.query.labels) + np.bincount(glyph_data.gallery.labels)
    assert glyph_data.validation is not None
    for images, classes in ((glyph_data.train, 400), (glyph_data.validation, 60)):
        assert len(images.class_names) == classes
        assert np.bincount(images.labels).min() >= 24
    assert len(evaluation) == 200
    assert evaluation.min() >= 24
    assert np.bincount(glyph_data.query.labels).min() >= 4
    assert glyph_data.train.shape == (1, 28, 28)


def test_no_class_is_in_two_parts(glyph_data: RetrievalData) -> None:
    assert glyph_data.validation is not None
    parts = [set(part.class_names) for part in (glyph_data.train, glyph_data.validation, glyph_data.query)]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)


def test_queries_and_gallery_are_in_different_fonts(glyph_data: RetrievalData) -> None:
    query, gallery = ({id_.split("/")[1] for id_ in part.ids} for part in (glyph_data.query, glyph_data.gallery))
    assert query == {"DejaVuSans", "DejaVuSansMono-Bold", "DejaVuSerif-Italic", "STIXGeneralBolIta"}
    assert len(gallery) == 12
    assert not query & gallery


def test_no_evaluation_image_was_trained_on(glyph_data: RetrievalData) -> None:
    assert shared_pixels(glyph_data.train, glyph_data.gallery) == []


def test_no_image_is_empty(glyph_data: RetrievalData) -> None:
    pixels = glyph_data.train.read(np.arange(len(glyph_data.train))).reshape(len(glyph_data.train), -1)
    assert (pixels.max(axis=1) > 120).all()
    assert (pixels.astype(float).std(axis=1) > 15).all()


def test_no_two_classes_share_near_identical_clean_bitmaps(bank: GlyphBank) -> None:
    count = len(bank.characters)
    for font in range(len(bank.fonts)):
        halves = bank.pixels[:, font].reshape(count, 28, 2, 28, 2).mean(axis=(2, 4)).reshape(count, -1)
        vectors = (halves / np.maximum(np.linalg.norm(halves, axis=1, keepdims=True), 1)).astype(np.float32)
        cosine = vectors @ vectors.T
        np.fill_diagonal(cosine, 0)
        assert cosine.max() < NEAR_IDENTICAL, bank.characters[int(cosine.max(axis=0).argmax())]


@pytest.mark.parametrize(
    "alike", ["AΑА", "cCсС", "oO0ОοΟо", "sS", "zZ", "xXхХ", "BΒВ", "vV", "wW", "KΚК", "pр", "□◻☐▭▯", "ſʃ∫"]
)
def test_look_alikes_are_one_class(bank: GlyphBank, alike: str) -> None:
    assert sum(character in bank.characters for character in alike) <= 1


@pytest.mark.parametrize(("mean", "anywhere", "alike"), [(0.86, 0.86, False), (0.88, 0.88, True), (0.8, 0.95, True)])
def test_two_characters_are_alike_on_average_or_in_any_one_font(mean: float, anywhere: float, alike: bool) -> None:
    cosines = np.array([anywhere, 2 * mean - anywhere])
    outlines = np.zeros((2, 2, 1, 2), np.uint8)
    outlines[0, :, 0, 0] = 255
    outlines[1, :, 0] = np.rint(255 * np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1))
    bank = GlyphBank(("a", "b"), ("x", "y"), outlines, outlines, np.ones((2, 2), np.bool_))
    assert bool(look_alikes(bank)[0, 1]) is alike


@pytest.mark.parametrize("character", "ABDEGHKMRTabdegkrtéЖДФяΨΩ#&@→")
def test_distinct_shapes_stay(character: str) -> None:
    bank = render([character, "z"], font_files())
    assert not look_alikes(bank)[0, 1]


def test_letters_are_among_the_classes(bank: GlyphBank) -> None:
    kept = set(bank.characters)
    assert {"A", "E", "R", "Ж", "Ψ", "@"} <= kept
    assert not any(unicodedata.name(character).startswith(("BOX", "BRAILLE")) for character in kept)


def test_every_present_glyph_touches_the_sides_of_its_box_and_nothing_is_drawn_outside(bank: GlyphBank) -> None:
    ink = bank.pixels[bank.present] > 0
    margins = np.stack([np.minimum(side.argmax(1), side[:, ::-1].argmax(1)) for side in (ink.any(1), ink.any(2))])
    assert set(margins.min(axis=0)) <= {7, 8}
    assert not bank.pixels[~bank.present].any()


def test_characters_that_a_font_lacks_are_not_drawn() -> None:
    bank = render(["A", "字"], font_files()[:1])
    assert bank.present[:, 0].tolist() == [True, False]


def test_the_same_seed_gives_the_same_images_and_another_does_not() -> None:
    first, again, other = (small(seed=seed) for seed in (1, 1, 2))
    assert first.train.digest() == again.train.digest() != other.train.digest()
    assert first.query.digest() == again.query.digest()


def test_global_random_state_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    small()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_options_do_what_they_say() -> None:
    data = small(distortions=3, image_size=20, validation_classes=0)
    assert data.validation is None
    assert data.train.shape == (1, 20, 20)
    assert np.bincount(data.train.labels).min() >= 36


def test_strength_nought_only_resizes() -> None:
    bank = render(["A", "R"], font_files())
    rows, fonts = np.array([0, 1, 0]), np.array([0, 0, 3])
    drawn = distort(bank.pixels, rows, fonts, image_size=CANVAS, strength=0, generator=torch.Generator())
    np.testing.assert_array_equal(drawn[:, 0], bank.pixels[rows, fonts])


def test_every_image_is_distorted_differently() -> None:
    bank = render(["A"], font_files()[:1])
    same = np.zeros(5, np.int64)
    drawn = distort(bank.pixels, same, same, image_size=28, strength=1, generator=torch.Generator())
    assert len({image.tobytes() for image in drawn}) == 5


@pytest.mark.parametrize(
    "options", [{"training_classes": 1}, {"evaluation_classes": 0}, {"distortions": 0}, {"image_size": 2}]
)
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        small(**options)


def test_more_classes_than_shapes_are_refused_with_the_number_there_is() -> None:
    with pytest.raises(ConfigError, match=r"100000 training_classes(.|\n)*at most [67]\d\d in all"):
        small(training_classes=100_000)


def test_the_glyphs_that_are_kept_between_calls_cannot_be_changed(bank: GlyphBank) -> None:
    with pytest.raises(ValueError, match="read-only"):
        bank.pixels[0] = 0


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[demo\]'"):
        font_files()
