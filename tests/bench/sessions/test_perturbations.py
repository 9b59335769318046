import numpy as np
import pytest
import torch
from torch import Tensor

from limpet_bench.sessions.perturbations import PERTURBATIONS, cutout, solarisation

EVERY = pytest.mark.parametrize("perturb", PERTURBATIONS.values(), ids=PERTURBATIONS)
DRAWN = [name for name in PERTURBATIONS if not name.startswith(("inversion", "solarisation"))]
HOLES = {"cutout-quarter": 8, "cutout-half": 16, "cutout-three-quarters": 24, "cutout-whole": 32}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int = 16, height: int = 16, width: int = 12) -> Tensor:
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=seeded(9))


def test_the_twelve_of_the_paper() -> None:
    assert list(PERTURBATIONS) == [
        *HOLES, "horizontal-flip", "vertical-flip", "rotation-45", "rotation-90", "inversion", "solarisation-128",
        "solarisation-64", "solarisation-32",
    ]  # fmt: skip


@EVERY
def test_type_and_shape_stay_and_the_generator_decides(perturb) -> None:  # type: ignore[no-untyped-def]
    images = noise()
    before, state = images.clone(), torch.random.get_rng_state()
    first = perturb(images, seeded(1))
    assert (first.dtype, first.shape) == (torch.uint8, images.shape)
    assert not torch.equal(first, images)
    assert torch.equal(first, perturb(images, seeded(1)))
    assert torch.equal(images, before)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert perturb(noise(0), seeded()).shape == (0, 3, 16, 12)


@pytest.mark.parametrize("name", DRAWN)
def test_every_image_has_its_own_draw(name: str) -> None:
    same = noise(1).expand(64, -1, -1, -1)
    found = {image.numpy().tobytes() for image in PERTURBATIONS[name](same, seeded())}
    assert len(found) == 2 if name.endswith("flip") else len(found) > 20


def test_only_inversion_and_solarisation_draw_nothing() -> None:
    for name, perturb in PERTURBATIONS.items():
        same = torch.equal(perturb(noise(), seeded(1)), perturb(noise(), seeded(2)))
        assert same is (name not in DRAWN)


@pytest.mark.parametrize(("name", "pixels"), HOLES.items())
def test_a_hole_is_a_square_around_any_pixel_filled_with_the_mean(name: str, pixels: int) -> None:
    holes = {tuple(p for p in range(c - pixels // 2, c + pixels // 2) if 0 <= p < 32) for c in range(32)}
    images = torch.zeros(400, 2, 32, 32, dtype=torch.uint8)
    images[:, 0, 31], images[:, 1, 31] = 32 * 3, 32 * 7  # so that the channels have means of 3 and 7
    seen = set()
    for image in PERTURBATIONS[name](images, seeded()).numpy():
        covered = image[0] == 3
        down, across = np.flatnonzero(covered.any(axis=1)), np.flatnonzero(covered.any(axis=0))
        assert covered.sum() == len(down) * len(across)
        assert (image[1] == 7).tolist() == covered.tolist()
        assert np.array_equal(image[:, ~covered], images[0].numpy()[:, ~covered])
        seen |= {("down", *down), ("across", *across)}
    assert seen == {(way, *hole) for way in ("down", "across") for hole in holes}


def test_holes_follow_the_sides_of_the_image() -> None:
    images = torch.arange(20 * 40).remainder(256).to(torch.uint8).view(1, 1, 20, 40).expand(400, -1, -1, -1)
    changed = (cutout(images, seeded(), share=1 / 4) != images)[:, 0]
    assert changed.any(dim=2).sum(dim=1).max() == 5
    assert changed.any(dim=1).sum(dim=1).max() == 10


@pytest.mark.parametrize(("name", "axis"), [("horizontal-flip", 2), ("vertical-flip", 1)])
def test_a_flip_mirrors_about_half_of_the_images(name: str, axis: int) -> None:
    images = noise(400)
    kept, flipped = 0, 0
    for before, after in zip(images, PERTURBATIONS[name](images, seeded()), strict=True):
        kept += torch.equal(after, before)
        flipped += torch.equal(after, before.flip(axis))
    assert kept + flipped == 400 and 150 < flipped < 250


@pytest.mark.parametrize(("name", "largest"), [("rotation-45", 45), ("rotation-90", 90)])
def test_a_rotation_stays_within_its_angle(name: str, largest: int) -> None:
    images = torch.zeros(400, 1, 21, 21, dtype=torch.uint8)
    images[:, 0, 9:12, 16:19] = 200  # to the right of the centre
    turned = PERTURBATIONS[name](images, seeded())[:, 0].double()
    places = torch.arange(21.0, dtype=torch.float64) - 10
    mass = turned.sum(dim=(1, 2))
    down, right = turned.sum(2) @ places / mass, turned.sum(1) @ places / mass
    np.testing.assert_allclose(torch.hypot(down, right), 7.0, atol=0.1)
    angles = torch.rad2deg(torch.atan2(down, right))
    assert largest - 3 < angles.max() < largest + 0.5 and -largest - 0.5 < angles.min() < 3 - largest


def test_inversion_by_hand() -> None:
    images = torch.tensor([0, 1, 100, 255], dtype=torch.uint8).view(1, 1, 2, 2)
    assert PERTURBATIONS["inversion"](images, seeded()).flatten().tolist() == [255, 254, 155, 0]


@pytest.mark.parametrize("threshold", [128, 64, 32])
def test_solarisation_inverts_at_and_above_its_threshold(threshold: int) -> None:
    images = torch.arange(256).to(torch.uint8).view(1, 1, 16, 16)
    expected = [255 - value if value >= threshold else value for value in range(256)]
    assert PERTURBATIONS[f"solarisation-{threshold}"](images, seeded()).flatten().tolist() == expected
    assert solarisation(images, seeded(), threshold=threshold).flatten().tolist() == expected
