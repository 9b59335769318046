from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor

from limpet.data.augmentation_policies import CIFAR_10, RAND_AUGMENT, SubPolicy, auto_augment, rand_augment
from limpet.data.image_operations import OPERATIONS
from pillow_operations import changed_by_pillow


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(8))


def changed(image: Tensor, name: str, strength: float) -> Tensor:
    """Change an image by Pillow."""
    amount = OPERATIONS[name].amount(torch.tensor([strength], dtype=torch.float64))
    return changed_by_pillow(name, image[None], amount)[0]


def auto_augmented_one_by_one(images: Tensor, generator: torch.Generator) -> Tensor:
    """The paper's policy in a loop over images, with the same draws."""
    policies = torch.randint(25, (len(images),), generator=generator).tolist()
    chances = torch.rand((2, len(images)), generator=generator).tolist()
    signs = torch.randint(2, (2, len(images)), generator=generator).tolist()
    found = []
    for number, image in enumerate(images):
        for step, (name, probability, magnitude) in enumerate(CIFAR_10[policies[number]]):
            if chances[step][number] < probability:
                image = changed(image, name, magnitude / 9 * (1 if signs[step][number] else -1))
        found.append(image)
    return torch.stack(found)


def rand_augmented_one_by_one(images: Tensor, operations: int, strength: float, generator: torch.Generator) -> Tensor:
    """The paper's algorithm in a loop over images, with the same draws."""
    names = torch.randint(14, (operations, len(images)), generator=generator).tolist()
    signs = torch.randint(2, (operations, len(images)), generator=generator).tolist()
    found = []
    for number, image in enumerate(images):
        for step in range(operations):
            name = RAND_AUGMENT[names[step][number]]
            if name != "identity":
                image = changed(image, name, strength if signs[step][number] else -strength)
        found.append(image)
    return torch.stack(found)


@pytest.mark.parametrize("shape", [(300, 3, 32, 32), (60, 1, 20, 28)])
def test_auto_augment_is_the_papers_policy_applied_image_by_image(shape: tuple[int, ...]) -> None:
    images, one, other = drawn(*shape), seeded(3), seeded(3)
    assert torch.equal(auto_augment(images, CIFAR_10, one), auto_augmented_one_by_one(images, other))
    assert torch.equal(one.get_state(), other.get_state())


@pytest.mark.parametrize(("operations", "strength"), [(1, 0.3), (2, 0.9), (3, 1.0)])
def test_rand_augment_is_the_papers_algorithm_applied_image_by_image(operations: int, strength: float) -> None:
    images, one, other = drawn(100, 3, 24, 16), seeded(4), seeded(4)
    found = rand_augment(images, operations, strength, one)
    assert torch.equal(found, rand_augmented_one_by_one(images, operations, strength, other))
    assert torch.equal(one.get_state(), other.get_state())


def test_a_sub_policy_is_its_first_operation_and_then_its_second() -> None:
    policy: tuple[SubPolicy, ...] = ((("translate_x", 1.0, 9), ("invert", 1.0, 0)),)
    rows = torch.full((40, 1, 1, 8), 100, dtype=torch.uint8)
    found = auto_augment(rows, policy, seeded())[:, 0, 0].tolist()
    moved = [255, 255, 255]  # 150/331 of 8 pixels are 3.6, cut off; black came in, and was inverted
    assert {tuple(row) for row in found} == {(*[155] * 5, *moved), (*moved, *[155] * 5)}


def test_probabilities_are_those_of_the_policy() -> None:
    policy: tuple[SubPolicy, ...] = (
        (("invert", 0.3, 0), ("solarize", 0.0, 9)),
        (("invert", 1.0, 0), ("posterize", 0.5, 9)),
    )
    levels = auto_augment(torch.full((4000, 1, 1, 1), 55, dtype=torch.uint8), policy, seeded())
    shares = {level: (levels == level).float().mean().item() for level in (55, 200, 192)}
    np.testing.assert_allclose(list(shares.values()), [0.35, 0.4, 0.25], atol=0.03)  # 200 is 11001000, cut to 192


def test_the_policies_hold_what_the_papers_print() -> None:
    """By operation: how often it occurs in the printed table, the sum of its probabilities in tenths, of magnitudes."""
    assert len(CIFAR_10) == 25 and len(set(RAND_AUGMENT)) == 14 and set(OPERATIONS) - set(RAND_AUGMENT) == {"invert"}
    printed = {
        "auto_contrast": (7, 50, 26),
        "brightness": (4, 23, 25),
        "color": (5, 29, 27),
        "contrast": (2, 8, 13),
        "equalize": (9, 47, 41),
        "invert": (3, 2, 13),
        "posterize": (1, 3, 7),
        "rotate": (1, 7, 2),
        "sharpness": (5, 28, 24),
        "shear_y": (2, 7, 15),
        "solarize": (4, 19, 18),
        "translate_x": (2, 8, 17),
        "translate_y": (5, 34, 39),
    }
    found = dict.fromkeys(printed, (0, 0, 0))
    for name, probability, magnitude in chain.from_iterable(CIFAR_10):
        count, tenths, magnitudes = found[name]
        found[name] = (count + 1, tenths + round(10 * probability), magnitudes + magnitude)
    assert found == printed
