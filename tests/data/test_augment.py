from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
from limpet.data.augmentation_policies import CIFAR_10, auto_augment, rand_augment
from limpet.data.random_transforms import (
    cut_and_resized,
    random_affine,
    random_crop,
    random_flip,
    random_resized_crop,
    resampled,
)
from limpet.errors import ConfigError

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CHANGES = {
    "crop": lambda images, generator: random_crop(images, 2, generator),
    "flip": random_flip,
    "affine": lambda images, generator: random_affine(images, 20.0, 0.2, 0.1, generator),
    "resized": lambda images, generator: random_resized_crop(images, (8, 6), (0.1, 1.0), (0.5, 2.0), generator),
    "all": Augmentation(2, True, 20.0, 0.2, 0.1, ResizedCrop()),
}
OF_LEVELS = {
    "auto_augment": lambda images, generator: auto_augment(images, CIFAR_10, generator),
    "rand_augment": lambda images, generator: rand_augment(images, 2, 0.9, generator),
    "everything": Augmentation(2, True, 20.0, 0.2, 0.1, ResizedCrop(), "cifar-10", RandAugment()),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int = 16, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(0, 256, (count, 3, 8, 6), dtype=torch.uint8, generator=seeded(9)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_type_and_shape_stay_and_the_seed_decides(change, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    images = noise(dtype=dtype)
    before = images.clone()
    first = change(images, seeded(1))
    assert (first.dtype, first.shape) == (dtype, images.shape)
    assert torch.equal(first, change(images, seeded(1)))
    assert not torch.equal(first, change(images, seeded(2)))
    assert torch.equal(images, before)


@pytest.mark.parametrize("change", OF_LEVELS.values(), ids=OF_LEVELS)
def test_operations_on_levels_keep_type_and_shape_and_the_seed_decides(change) -> None:  # type: ignore[no-untyped-def]
    test_type_and_shape_stay_and_the_seed_decides(change, torch.uint8)


@pytest.mark.parametrize("change", (CHANGES | OF_LEVELS).values(), ids=CHANGES | OF_LEVELS)
def test_every_image_has_its_own_draw(change) -> None:  # type: ignore[no-untyped-def]
    same = noise(1).expand(64, -1, -1, -1)
    assert len({image.numpy().tobytes() for image in change(same, seeded())}) >= 2
    assert len({image.numpy().tobytes() for image in CHANGES["crop"](same, seeded())}) > 15


@pytest.mark.parametrize("change", (CHANGES | OF_LEVELS).values(), ids=CHANGES | OF_LEVELS)
def test_global_random_state_is_left_alone_and_no_images_are_fine(change) -> None:  # type: ignore[no-untyped-def]
    state = torch.random.get_rng_state()
    assert change(noise(0), seeded()).shape == (0, 3, 8, 6)
    assert torch.equal(torch.random.get_rng_state(), state)


def crop_before(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """The crop by which earlier models were trained."""
    count, _, height, width = images.shape
    top, left = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    places = pad(images, [padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
    return places[torch.arange(count), :, top, left]


def flip_before(images: Tensor, generator: torch.Generator) -> Tensor:
    """The flip by which earlier models were trained."""
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flipped[:, None, None, None], images.flip(3), images)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("seed", range(8))
def test_images_and_draws_are_those_of_earlier_models(seed: int, dtype: torch.dtype, device: str) -> None:
    draws = np.random.default_rng(seed)
    shape = [int(draws.integers(low, high)) for low, high in ((1, 9), (1, 4), (1, 9), (1, 9))]
    images = torch.from_numpy(draws.integers(0, 256, shape)).to(dtype)
    padding = int(draws.integers(1, 5))
    for found, expected in (
        (lambda given, draw: random_crop(given, padding, draw), lambda given, draw: crop_before(given, padding, draw)),
        (random_flip, flip_before),
    ):
        one, other = seeded(seed), seeded(seed)
        changed = found(images.to(device), one)
        assert changed.device.type == device and changed.is_contiguous()
        assert torch.equal(changed.cpu(), expected(images, other))
        assert torch.equal(one.get_state(), other.get_state())


@pytest.mark.gpu
def test_an_affine_change_is_drawn_alike_on_a_gpu_and_rounded_nearly_alike() -> None:
    images = noise(64)
    here, there = CHANGES["affine"](images, seeded(1)), CHANGES["affine"](images.to("cuda"), seeded(1))
    assert there.is_cuda and (here.int() - there.cpu().int()).abs().max() <= 1


def test_images_that_are_not_square_turn_without_being_sheared() -> None:
    """A disk stays the disk that it was, but for its edge."""
    rows, columns = torch.arange(40)[:, None] - 19.5, torch.arange(20)[None] - 9.5
    distance = (rows**2 + columns**2).sqrt()
    disks = (distance < 7).float().mul(200).expand(64, 1, 40, 20)
    turned = random_affine(disks, 90.0, 0.0, 0.0, seeded())
    assert not torch.equal(turned, disks)
    assert turned[:, :, distance < 5.5].min() > 199.9 and turned[:, :, distance > 8.5].max() < 0.1


def test_a_crop_is_the_image_shifted_with_zeros_from_outside() -> None:
    images = noise(200)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    seen = set()
    for image, wide in zip(random_crop(images, 2, seeded()).numpy(), padded, strict=True):
        places = [(y, x) for y in range(5) for x in range(5) if (wide[:, y : y + 8, x : x + 6] == image).all()]
        assert len(places) == 1
        seen.update(places)
    assert len(seen) == 25


def test_a_flip_mirrors_about_half_of_the_images() -> None:
    images = noise(400)
    flipped = [
        torch.equal(after, before.flip(2)) for before, after in zip(images, random_flip(images, seeded()), strict=True)
    ]
    kept = [torch.equal(after, before) for before, after in zip(images, random_flip(images, seeded()), strict=True)]
    assert all(one != other for one, other in zip(flipped, kept, strict=True))
    assert 150 < sum(flipped) < 250


def test_an_affine_of_nothing_is_the_image() -> None:
    assert torch.equal(random_affine(noise(), 0.0, 0.0, 0.0, seeded()), noise())


def dot(row: int, column: int) -> Tensor:
    images = torch.zeros(300, 1, 21, 21)
    images[:, 0, row - 1 : row + 2, column - 1 : column + 2] = 1.0
    return images


def centres(images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    places = torch.arange(21.0) - 10
    mass = images[:, 0] / images.sum(dim=(1, 2, 3))[:, None, None]
    return (mass.sum(2) @ places).numpy(), (mass.sum(1) @ places).numpy()


def test_a_rotation_keeps_the_radius_and_stays_within_the_angle() -> None:
    down, right = centres(random_affine(dot(10, 17), 30.0, 0.0, 0.0, seeded()))
    np.testing.assert_allclose(np.hypot(down, right), 7.0, atol=0.1)
    angles = np.degrees(np.arctan2(down, right))
    assert 25 < angles.max() <= 30.5 and -30.5 <= angles.min() < -25


def test_a_change_of_size_stays_within_the_scale() -> None:
    down, right = centres(random_affine(dot(10, 16), 0.0, 0.25, 0.0, seeded()))
    np.testing.assert_allclose(down, 0.0, atol=0.01)
    assert 7.0 < right.max() <= 7.55 and 4.45 <= right.min() < 5.0


def test_a_shift_stays_within_its_share_of_the_side() -> None:
    down, right = centres(random_affine(dot(10, 10), 0.0, 0.0, 0.2, seeded()))
    for moved in (down, right):
        assert 3.5 < moved.max() <= 4.21 and -4.21 <= moved.min() < -3.5
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.2


@pytest.mark.parametrize("resize", [cut_and_resized, resampled])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(24, 20), (50, 60), (7, 9)])
def test_boxes_are_resized_as_pillow_resizes_them(size: tuple[int, int], channels: int, resize) -> None:  # type: ignore[no-untyped-def]
    draws = np.random.default_rng(channels)
    images = torch.from_numpy(draws.integers(0, 256, (40, channels, 40, 30), np.uint8))
    sides = np.array([draws.integers(1, 41, 40), draws.integers(1, 31, 40)])
    begins = np.array([draws.integers(0, 41 - sides[0]), draws.integers(0, 31 - sides[1])])
    found = resize(images, torch.from_numpy(begins), torch.from_numpy(sides), size)
    for image, after, (top, left), (height, width) in zip(
        images.numpy(), found.numpy(), begins.T, sides.T, strict=True
    ):
        for before, channel in zip(image, after, strict=True):
            box = Image.fromarray(before).crop((left, top, left + width, top + height))
            expected = np.asarray(box.resize(size[::-1], Image.Resampling.BILINEAR), np.int64)
            assert np.abs(channel - expected).max() <= 1


def test_a_resized_box_by_hand() -> None:
    row = torch.tensor([[[[0, 100, 200, 40]]]], dtype=torch.uint8)
    begins, sides = torch.tensor([[0], [1]]), torch.tensor([[1], [2]])  # 100 and 200
    for resize in (cut_and_resized, resampled):
        # Centres of four new pixels within two old ones: 0.25, 0.75, 1.25, 1.75; nothing is known beyond the box.
        assert resize(row, begins, sides, (1, 4)).flatten().tolist() == [100, 125, 175, 200]


def box_of(image: Tensor, height: int, width: int) -> tuple[int, int, int, int]:
    """Return where the pixels of a crop come from, if every pixel tells its row and its column."""
    rows, columns = image[0].round().long(), image[1].round().long()
    assert rows.shape == (height, width)
    return int(rows.min()), int(rows.max()) + 1, int(columns.min()), int(columns.max()) + 1


def test_boxes_have_the_areas_and_shapes_asked_for_and_lie_everywhere() -> None:
    rows, columns = torch.arange(200.0)[:, None].expand(200, 240), torch.arange(240.0).expand(200, 240)
    images = torch.stack([rows, columns]).expand(600, -1, -1, -1)
    crops = random_resized_crop(images, (200, 240), (0.2, 0.6), (0.75, 1.5), seeded(2))
    boxes = np.array([box_of(crop, 200, 240) for crop in crops])
    heights, widths = boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 2]
    areas, shapes = heights * widths / (200 * 240), widths / heights
    assert 0.195 < areas.min() < 0.21 and 0.58 < areas.max() < 0.605
    assert 0.74 < shapes.min() < 0.77 and 1.45 < shapes.max() < 1.52
    np.testing.assert_allclose(np.median(np.log(shapes)), np.log(np.sqrt(0.75 * 1.5)), atol=0.05)
    for begin, room in ((boxes[:, 0], 200 - heights), (boxes[:, 2], 240 - widths)):
        np.testing.assert_allclose(np.mean(begin / room), 0.5, atol=0.05)
        assert begin.min() == 0 and (begin == room).any()


def test_where_no_box_fits_the_largest_centred_one_of_an_allowed_shape_is_taken() -> None:
    rows, columns = torch.arange(10.0)[:, None].expand(10, 40), torch.arange(40.0).expand(10, 40)
    crops = random_resized_crop(torch.stack([rows, columns])[None], (10, 20), (1.0, 1.0), (0.5, 2.0), seeded())
    assert box_of(crops[0], 10, 20) == (0, 10, 10, 30)
    tall = random_resized_crop(torch.stack([columns, rows]).mT[None], (20, 10), (1.0, 1.0), (0.5, 2.0), seeded())
    assert box_of(tall[0], 20, 10) == (10, 30, 0, 10)


def test_resized_crops_have_the_size_that_is_asked_for() -> None:
    augmentation = Augmentation(crop_padding=1, resized_crop=ResizedCrop())
    assert augmentation(noise(), seeded(), (5, 9)).shape == (16, 3, 5, 9)
    assert augmentation(noise(), seeded()).shape == (16, 3, 8, 6)


@pytest.mark.gpu
def test_resized_crops_are_drawn_alike_on_a_gpu_and_rounded_nearly_alike() -> None:
    images = noise(64)
    here, there = CHANGES["resized"](images, seeded(1)), CHANGES["resized"](images.to("cuda"), seeded(1))
    assert there.is_cuda and (here.int() - there.cpu().int()).abs().max() <= 1


def test_an_augmentation_that_is_off_changes_nothing() -> None:
    images = noise()
    assert Augmentation()(images, seeded()) is images


@pytest.mark.parametrize(
    "options",
    [
        {"crop_padding": 2}, {"flip": True}, {"degrees": 20.0}, {"scale": 0.3}, {"shift": 0.3},
        {"resized_crop": ResizedCrop()}, {"auto_augment": "cifar-10"}, {"rand_augment": RandAugment()},
    ],
)  # fmt: skip
def test_every_option_changes_something(options: dict[str, object]) -> None:
    assert not torch.equal(Augmentation(**options)(noise(), seeded()), noise())  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"crop_padding": -1}, {"degrees": -1.0}, {"scale": 1.0}, {"shift": -0.1}])
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Augmentation(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RandAugment(operations=0), "operations=0"),
        (lambda: RandAugment(magnitude=11), r"magnitude = 11(.|\n)*its scale, 10"),
        (lambda: RandAugment(magnitude=-1), "magnitude=-1"),
        (lambda: RandAugment(scale=0), "scale=0"),
        (lambda: ResizedCrop(scale=(0.5, 0.1)), r"scale = \[0\.5, 0\.1\]"),
        (lambda: ResizedCrop(scale=(0.0, 1.0)), "scale"),
        (lambda: ResizedCrop(scale=(0.5, 1.1)), "scale"),
        (lambda: ResizedCrop(ratio=(0.0, 1.0)), "ratio"),
        (lambda: ResizedCrop(ratio=(2.0, 1.0)), "ratio"),
    ],
)
def test_settings_of_operations_out_of_range_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_rand_augment_is_as_strong_as_its_magnitude_is_of_its_scale() -> None:
    images = noise(64)
    ninth = Augmentation(rand_augment=RandAugment(1, 9, 30))(images, seeded())
    assert torch.equal(ninth, Augmentation(rand_augment=RandAugment(1, 3, 10))(images, seeded()))
    assert not torch.equal(ninth, Augmentation(rand_augment=RandAugment(1, 9))(images, seeded()))
