from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from limpet.data import ArrayImages, ImageSet
from limpet.errors import ConfigError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.methods.base import View
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head
from limpet.models.release import Release, make_release
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet_bench.sessions.memory import (
    EXEMPLARS,
    Candidates,
    herding,
    quotas,
    random_exemplars,
    spread_by_uncertainty,
    vote_uncertainty,
    votes,
)
from limpet_bench.sessions.perturbations import PERTURBATIONS, Perturbation

SPHERE, LORENTZ = Hypersphere(8), Lorentz(8)
CLASSES = ("ape", "bee", "cat")
SIZES = (12, 7, 18)
SETTINGS: dict[str, Any] = {"first": False, "seed": 3, "batch_size": 8}


class NotedImages(ArrayImages):
    """Notes how many images are read at a time."""

    def __init__(self, pixels: np.ndarray) -> None:
        super().__init__(pixels)
        self.reads: list[int] = []

    def read(self, rows: np.ndarray) -> np.ndarray:
        self.reads.append(len(rows))
        return super().read(rows)


def make_candidates() -> ImageSet:
    """Noise that is brighter from class to class."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(3), SIZES))
    pixels = rng.integers(0, 120, (len(labels), 1, 16, 16)) + 60 * labels[:, None, None, None]
    ids = [f"image-{row}" for row in range(len(labels))]
    return ImageSet(ArrayImages(pixels.astype(np.uint8)), labels, CLASSES, ids)


@cache
def make(space: Space = SPHERE, head: str = "normalised") -> Release:
    """A model that has seen the candidates a few times, so that it tells most of them apart."""
    images = make_candidates()
    pixels, labels = torch.from_numpy(images.read(np.arange(len(images)))), torch.from_numpy(images.labels)
    with seeded(0):
        zeta = None if space.curvature is None else 1.0
        options = {"dim": 8, "channels": 1, "image_size": 16, "projection": "linear-bn", "zeta": zeta}
        encoder = Encoder(EncoderSpec(**options, backbone_options={"filters": 8}))
        classifier = build_head(head, 3, 8, {})
        optimizer = torch.optim.Adam([*encoder.parameters(), *classifier.parameters()], lr=0.02)
        for _ in range(15):
            optimizer.zero_grad()
            classifier.loss(View.of(encoder(pixels), space), labels).backward()
            optimizer.step()
    return make_release(encoder, space, classifier=classifier, classes=CLASSES, head=head)


@pytest.fixture(scope="module")
def candidates() -> ImageSet:
    return make_candidates()


@pytest.fixture(scope="module")
def release() -> Release:
    return make()


def one_by_one(release: Release, images: ImageSet, perturb: Perturbation | None = None) -> torch.Tensor:
    """Raw features (N, D) of the images, each encoded on its own, possibly changed before."""
    pixels = torch.from_numpy(images.read(np.arange(len(images)))).split(1)
    with torch.no_grad():
        return torch.cat([release.encoder(perturb(p, torch.Generator()) if perturb else p) for p in pixels])


def choose(name: str, images: ImageSet, release: Release, budget: int, **settings: Any) -> np.ndarray:
    return EXEMPLARS[name](Candidates(images=images, release=release, budget=budget, **settings))


# --- every choice ----------------------------------------------------------------------------------------------------


def test_the_choices_that_methods_may_name() -> None:
    assert list(EXEMPLARS) == ["herding", "uncertainty", "random", "everything"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", EXEMPLARS)
def test_rows_occur_once_within_the_budget_and_are_the_same_again(
    candidates: ImageSet, release: Release, name: str, first: bool
) -> None:
    state, weights = torch.random.get_rng_state(), release.encoder.state_dict()
    before = {key: value.clone() for key, value in weights.items()}
    chosen = choose(name, candidates, release, 10, **{**SETTINGS, "first": first})
    assert chosen.dtype == np.int64
    assert len(np.unique(chosen)) == len(chosen)
    counts = {"herding": [3, 3, 3], "everything": list(SIZES)}
    found = np.bincount(candidates.labels[chosen])
    assert found.tolist() == counts.get(name, found.tolist())
    assert name == "everything" or found.sum() == (9 if name == "herding" else 10)
    assert found.max() - found.min() <= 1 or name == "everything"
    again = choose(name, candidates, release, 10, **{**SETTINGS, "first": first})
    assert chosen.tolist() == again.tolist()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in weights.items())
    assert not release.encoder.training


@pytest.mark.parametrize("name", ["uncertainty", "random"])
@pytest.mark.parametrize("first", [True, False])
def test_another_seed_draws_otherwise(candidates: ImageSet, release: Release, name: str, first: bool) -> None:
    found = {tuple(choose(name, candidates, release, 10, first=first, seed=seed)) for seed in range(3)}
    assert len(found) == 3


def test_a_budget_that_a_class_cannot_use_goes_to_the_others(candidates: ImageSet, release: Release) -> None:
    for name in ("uncertainty", "random"):
        chosen = choose(name, candidates, release, 31, **SETTINGS)
        assert np.bincount(candidates.labels[chosen]).tolist() == [12, 7, 12]
    chosen = choose("herding", candidates, release, 31, **SETTINGS)
    assert np.bincount(candidates.labels[chosen]).tolist() == [10, 7, 10]


def test_everything_asks_for_no_budget(candidates: ImageSet, release: Release) -> None:
    assert choose("everything", candidates, release, 0, **SETTINGS).tolist() == list(range(sum(SIZES)))


@pytest.mark.parametrize("name", ["herding", "uncertainty", "random"])
@pytest.mark.parametrize(
    ("budget", "seed", "message"), [(0, 0, "budget = 0"), (2, -1, "seed ?= ?-1")], ids=["budget", "seed"]
)
def test_no_budget_and_negative_seeds_are_refused_before_anything_is_read(
    release: Release, name: str, budget: int, seed: int, message: str
) -> None:
    images = NotedImages(np.zeros((6, 1, 16, 16), np.uint8))
    labelled = ImageSet(images, np.arange(6) % 3, CLASSES, [str(row) for row in range(6)])
    with pytest.raises(ConfigError, match=message):
        choose(name, labelled, release, budget, first=False, seed=seed)
    assert images.reads == []


# --- herding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("space", "head"), [(SPHERE, "normalised"), (LORENTZ, "lorentz")], ids=str)
def test_herding_chooses_by_the_points_of_the_release(candidates: ImageSet, space: Space, head: str) -> None:
    release = replace(make(space, head), head=None)
    points = space.project(one_by_one(release, candidates)).numpy()
    expected = herding(points, candidates.labels, quotas(candidates.labels, 12))
    chosen = choose("herding", candidates, release, 12, **SETTINGS)
    assert chosen.tolist() == expected.tolist()
    assert chosen.tolist() == choose("herding", candidates, release, 12, first=True, seed=3).tolist()


# --- uncertainty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "head"), [(SPHERE, "normalised"), (SPHERE, "softmax"), (LORENTZ, "lorentz")], ids=str
)
def test_votes_are_the_predictions_for_perturbed_copies(candidates: ImageSet, space: Space, head: str) -> None:
    """For those perturbations that draw nothing, by a slow loop."""
    release = make(space, head)
    found = votes(Candidates(images=candidates, release=release, budget=1, first=False, seed=0, batch_size=8))
    assert (found.dtype, found.shape) == (np.int64, (sum(SIZES), 12))
    assert release.head is not None
    for copy, (name, perturb) in enumerate(PERTURBATIONS.items()):
        if name.startswith(("inversion", "solarisation")):
            logits = release.head.logits(View.of(one_by_one(release, candidates, perturb), space))
            assert found[:, copy].tolist() == logits.argmax(dim=1).tolist()
            assert len(np.unique(found[:, copy])) > 1


def test_every_batch_has_draws_of_its_own_that_the_seed_decides(release: Release) -> None:
    pixels = make_candidates().read(np.zeros(80, np.int64))
    same = ImageSet(ArrayImages(pixels), np.zeros(80, np.int64), CLASSES, [str(n) for n in range(80)])
    found = votes(Candidates(images=same, release=release, budget=1, first=False, seed=0, batch_size=40))
    drawn, settled = found[:, :8], found[:, 8:]
    assert (settled == settled[0]).all()
    assert not np.array_equal(drawn[:40], drawn[40:])
    assert not np.array_equal(
        found, votes(Candidates(images=same, release=release, budget=1, first=False, seed=1, batch_size=40))
    )


@pytest.mark.parametrize("name", ["herding", "uncertainty"])
def test_images_are_read_once_batch_by_batch(candidates: ImageSet, release: Release, name: str) -> None:
    images = NotedImages(candidates.read(np.arange(len(candidates))))
    choose(name, replace(candidates, images=images), release, 10, first=False, seed=0, batch_size=16)
    assert images.reads == [16, 16, 5]


def test_later_sessions_spread_over_the_uncertainty_of_the_votes(candidates: ImageSet, release: Release) -> None:
    uncertainty = vote_uncertainty(
        votes(Candidates(images=candidates, release=release, budget=1, first=False, seed=3, batch_size=8))
    )
    wanted = quotas(candidates.labels, 11, fill=True, seed=3)
    expected = spread_by_uncertainty(uncertainty, candidates.labels, wanted)
    in_order = spread_by_uncertainty(np.zeros(len(uncertainty)), candidates.labels, wanted)
    assert expected.tolist() != in_order.tolist()
    assert choose("uncertainty", candidates, release, 11, **SETTINGS).tolist() == expected.tolist()


def test_the_first_session_is_random_for_it_and_needs_no_classifier(candidates: ImageSet, release: Release) -> None:
    wanted = quotas(candidates.labels, 11, fill=True, seed=3)
    expected = random_exemplars(candidates.labels, wanted, seed=3).tolist()
    settings = {**SETTINGS, "first": True}
    assert choose("uncertainty", candidates, replace(release, head=None), 11, **settings).tolist() == expected
    assert choose("random", candidates, release, 11, **settings).tolist() == expected
    assert choose("random", candidates, release, 11, **SETTINGS).tolist() == expected


def test_a_release_without_a_classifier_has_no_votes(candidates: ImageSet, release: Release) -> None:
    with pytest.raises(ConfigError, match=r"has no classifier(.|\n)*by herding or at random"):
        choose("uncertainty", candidates, replace(release, head=None), 10, **SETTINGS)
