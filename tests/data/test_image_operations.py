import numpy as np
import pytest
import torch
from torch import Tensor

from limpet.data.image_operations import OPERATIONS, apply_operations
from limpet.errors import DataError
from pillow_operations import changed_by_pillow

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def drawn(*shape: int) -> Tensor:
    """Noise over all levels, and soft images within a few, in turns."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, shape)
    soft = draws.normal(100, 15, shape) + np.linspace(0, 60, shape[-1])
    pixels[::2] = np.clip(soft, 40, 220)[::2]
    return torch.from_numpy(pixels.astype(np.uint8))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(40, 3, 32, 32), (20, 1, 28, 20), (10, 3, 33, 65), (6, 3, 2, 5)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_batch_is_changed_as_pillow_changes_its_images(name: str, shape: tuple[int, ...], device: str) -> None:
    images, operation = drawn(*shape), OPERATIONS[name]
    strengths = 2 * torch.rand(shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1
    strengths[:3] = torch.tensor([-1.0, 0.0, 1.0])
    amounts = operation.amount(strengths)
    changed = operation(images.to(device), amounts)
    assert changed.device.type == device
    assert torch.equal(changed.cpu(), changed_by_pillow(name, images, amounts))


@pytest.mark.parametrize("name", ["auto_contrast", "equalize", "contrast"])
@pytest.mark.parametrize("level", [0, 7, 255])
def test_images_of_one_level_are_changed_as_pillow_changes_them(name: str, level: int) -> None:
    images, amounts = torch.full((2, 3, 6, 6), level, dtype=torch.uint8), torch.tensor([0.3, 1.7])
    assert torch.equal(OPERATIONS[name](images, amounts), changed_by_pillow(name, images, amounts))


@pytest.mark.parametrize(
    ("name", "weak", "strong"),
    [
        ("shear_x", 0, 0.3), ("shear_y", 0, 0.3), ("translate_x", 0, 150 / 331), ("translate_y", 0, 150 / 331),
        ("rotate", 0, 30), ("solarize", 256, 0), ("posterize", 8, 4), ("contrast", 1, 1.9), ("brightness", 1, 1.9),
        ("color", 1, 1.9), ("sharpness", 1, 1.9),
    ],
)  # fmt: skip
def test_strengths_reach_from_the_image_to_the_ends_of_the_papers_ranges(name: str, weak: float, strong: float) -> None:
    images, operation = drawn(3, 3, 16, 16), OPERATIONS[name]
    found = operation.amount(torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64))
    two_ways = name not in ("solarize", "posterize")
    expected = [weak, strong, 2 * weak - strong if two_ways else strong]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert torch.equal(operation(images, found[:1].expand(3)), images)


def test_worked_numbers() -> None:
    row = torch.tensor([[[[10, 20, 40, 250]]]], dtype=torch.uint8)

    def change(name: str, amount: float) -> list[int]:
        found: list[int] = OPERATIONS[name](row, torch.tensor([amount], dtype=torch.float64)).flatten().tolist()
        return found

    assert change("translate_x", 0.25) == [20, 40, 250, 0]  # a quarter of four pixels
    assert change("translate_x", -0.4) == [0, 10, 20, 40]  # 1.6 pixels, cut off
    assert change("invert", 0) == [245, 235, 215, 5]
    assert change("solarize", 40) == [10, 20, 215, 5]
    assert change("posterize", 4) == [0, 16, 32, 240]  # multiples of 16
    assert change("brightness", 1.5) == [15, 30, 60, 255]
    assert change("contrast", 0.5) == [45, 50, 60, 165]  # half way to the mean, 80
    assert change("auto_contrast", 0) == [0, 10, 31, 255]  # (level - 10) * 255 / 240, cut off


def test_every_image_gets_its_own_operation_and_others_stay() -> None:
    images, names = drawn(30, 3, 12, 12), list(OPERATIONS)
    chosen = torch.arange(30) % 16 - 2  # -2 and -1 are none
    strengths = torch.linspace(-1, 1, 30, dtype=torch.float64)
    before = images.clone()
    changed = apply_operations(images, list(OPERATIONS.values()), chosen, strengths)
    assert torch.equal(images, before)
    for number, name in enumerate(chosen.tolist()):
        one = slice(number, number + 1)
        operation = OPERATIONS[names[name]]
        expected = images[one] if name < 0 else operation(images[one], operation.amount(strengths[one]))
        assert torch.equal(changed[one], expected)


def test_images_that_have_no_levels_are_refused() -> None:
    with pytest.raises(DataError, match=r"torch\.float32(.|\n)*uint8"):
        apply_operations(torch.rand(2, 3, 8, 8), list(OPERATIONS.values()), torch.zeros(2), torch.zeros(2))
