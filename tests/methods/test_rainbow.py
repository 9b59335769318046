"""The method `rainbow`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limpet.methods import METHODS
from limpet.methods.base import Batch
from limpet.methods.rainbow import cut_box, cutmix


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def mixable(two_sessions) -> Batch:
    session = two_sessions[0]
    return Batch(session.images, session.labels, torch.arange(24), torch.zeros(24, dtype=torch.bool))


def test_rainbow_shares_out_the_loss_and_forgets(make_step, new_learner, mixable) -> None:
    learner, method = new_learner(), METHODS["rainbow"](cutmix=1.0)
    learner.net.eval()
    mixed = method.change_inputs(mixable, torch.Generator().manual_seed(1))
    partner, share = method.mixing
    assert not torch.equal(mixed, mixable.inputs) and mixed.dtype == torch.uint8 and 0 < share < 1
    step = make_step(learner.net(mixed), mixable.labels, learner.head)
    scores = learner.head.logits(step.new)
    own, other = (F.cross_entropy(scores, labels) for labels in (mixable.labels, mixable.labels[partner]))
    torch.testing.assert_close(method(step)["task"], share * own + (1 - share) * other)
    torch.testing.assert_close(method(step)["task"], own)  # what was mixed is forgotten


def test_rainbow_mixes_as_often_as_it_is_told(mixable) -> None:
    for probability, expected in ((0.0, 0), (0.3, 60), (1.0, 200)):
        method, generator = METHODS["rainbow"](cutmix=probability), torch.Generator().manual_seed(0)
        mixed = 0
        for _ in range(200):
            same_inputs = method.change_inputs(mixable, generator) is mixable.inputs
            assert same_inputs == (method.mixing is None)
            mixed += not same_inputs
        assert abs(mixed - expected) <= 26  # four standard deviations
        assert probability == 0.3 or mixed == expected


def test_rainbow_hands_on_its_alpha(mixable) -> None:
    shares = {}
    for alpha in (0.05, 100.0):
        method, generator = METHODS["rainbow"](cutmix=1.0, alpha=alpha), torch.Generator().manual_seed(0)
        found = []
        for _ in range(60):
            method.change_inputs(mixable, generator)
            found.append(method.mixing[1])
        shares[alpha] = np.std(found)
    assert shares[0.05] > 2 * shares[100.0]


def test_rainbow_without_mixing_is_the_task(second) -> None:
    methods = METHODS["finetune"](), METHODS["rainbow"](cutmix=0.0), METHODS["rainbow"](cutmix=1.0)
    task, never, always = (second(method, 10).weights() for method in methods)
    assert same(task, never) and not same(task, always)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Return images of which no two have a pixel in common."""
    own = torch.arange(count * channels * height * width, dtype=torch.float32)
    return own.view(count, channels, height, width)


@pytest.mark.parametrize(
    ("share", "row", "column", "rows", "columns"),
    [
        (0.0, 5, 5, (0, 10), (0, 10)),  # the whole image, around its middle
        (1.0, 5, 5, (5, 5), (5, 5)),  # nothing
        (0.75, 5, 5, (3, 8), (3, 8)),  # half as long: 5 pixels
        (0.75, 0, 9, (0, 3), (7, 10)),  # clipped at two borders
        (0.9, 9, 0, (8, 10), (0, 2)),  # 3.16 pixels, rounded down, of which one lies outside
    ],
)
def test_worked_boxes(share, row, column, rows, columns) -> None:
    assert cut_box(10, 10, share, row, column) == (slice(*rows), slice(*columns))


def test_a_box_has_the_proportions_of_its_image() -> None:
    assert cut_box(8, 32, 0.75, 4, 16) == (slice(2, 6), slice(8, 24))


@given(share=st.floats(0, 1), height=st.integers(1, 9), width=st.integers(1, 9), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_box_lies_in_the_image_and_is_not_larger_than_asked_for(share, height, width, data) -> None:
    row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    rows, columns = cut_box(height, width, share, row, column)
    assert 0 <= rows.start <= rows.stop <= height and 0 <= columns.start <= columns.stop <= width
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    assert area <= (1 - share) * height * width + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_every_pixel_is_the_own_one_or_that_of_the_partner(seed: int) -> None:
    batch = images(5, 2, 6, 7)
    before = batch.clone()
    mixed = cutmix(batch, generator(seed))
    assert torch.equal(batch, before) and mixed.images.shape == batch.shape
    assert sorted(mixed.partner.tolist()) == list(range(5))
    boxes = set()
    for row, partner in enumerate(mixed.partner.tolist()):
        if partner == row:
            assert torch.equal(mixed.images[row], batch[row])
            continue
        pasted = mixed.images[row] == batch[partner]
        assert torch.equal(pasted, mixed.images[row] != batch[row])  # the one or the other, at the same place
        boxes.add(tuple(pasted.flatten().tolist()))
        assert mixed.share == pytest.approx(1 - pasted[0].sum().item() / 42) and torch.equal(pasted[0], pasted[1])
    assert len(boxes) == 1  # the same box for the whole batch


def test_pixels_keep_their_type() -> None:
    batch = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8, generator=generator())
    mixed = cutmix(batch, generator(1)).images
    assert mixed.dtype == torch.uint8
    assert torch.equal(mixed, cutmix(batch.double(), generator(1)).images.to(torch.uint8))


def test_all_draws_are_from_the_generator() -> None:
    batch, state = images(6, 1, 8, 8), torch.get_rng_state()
    first, second, other = (cutmix(batch, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.images, second.images) and first.share == second.share
    assert not torch.equal(first.images, other.images) and torch.equal(state, torch.get_rng_state())


def test_shares_follow_their_distribution() -> None:
    batch, draws = images(2, 1, 100, 100), generator(0)
    means = {}
    for alpha in (0.1, 1.0, 50.0):
        shares = torch.tensor([cutmix(batch, draws, alpha).share for _ in range(400)])
        assert (shares >= 0).all() and (shares <= 1).all()
        means[alpha] = shares.var().item()
    assert means[0.1] > means[1.0] > means[50.0]  # both ends, uniform, near a half


def test_uniform_shares_by_the_area_that_clipping_leaves() -> None:
    """E[1 − λ] is E[side clipped]² for α = 1; a side s loses s² / 4 of its length on average (two ends, s/2 each)."""
    batch, draws = images(2, 1, 200, 200), generator(1)
    cut = torch.tensor([1 - cutmix(batch, draws).share for _ in range(3000)])
    sides = [math.sqrt((i + 0.5) / 1000) for i in range(1000)]
    expected = sum((s - s * s / 4) ** 2 for s in sides) / 1000
    assert cut.mean().item() == pytest.approx(expected, abs=4 * cut.std().item() / math.sqrt(3000) + 0.01)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_mix_with(count: int) -> None:
    batch = images(count, 3, 5, 5)
    mixed = cutmix(batch, generator())
    assert torch.equal(mixed.images, batch) and mixed.partner.tolist() == list(range(count))
    assert 0 <= mixed.share <= 1


def test_one_pixel() -> None:
    batch = images(3, 1, 1, 1)
    mixed = cutmix(batch, generator(2))
    assert mixed.share in (0.0, 1.0)
    assert torch.equal(mixed.images, batch if mixed.share == 1 else batch[mixed.partner])
