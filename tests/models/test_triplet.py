from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import SPACES, Hypersphere, Space
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import View
from limpet.models.encoder import Encoder
from limpet.models.heads import HEADS, batch_hard_triplet, build_head
from limpet.models.release import load_release, make_release, save_release
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec

DTYPES = [torch.float32, torch.float64]
SPHERE = Hypersphere(2)  # the dimension does not matter to distances


def on_circle(*degrees: float) -> torch.Tensor:
    angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def slow(points: torch.Tensor, labels: torch.Tensor, margin: float) -> torch.Tensor:
    """Eq. 5 row by row, averaged over the rows that have a positive and a negative."""
    terms = []
    for i in range(len(points)):
        positives = [(points[i] - points[j]).norm() for j in range(len(points)) if labels[j] == labels[i] and j != i]
        negatives = [(points[i] - points[j]).norm() for j in range(len(points)) if labels[j] != labels[i]]
        if positives and negatives:
            terms.append((margin + max(positives) - min(negatives)).clamp_min(0))
    return torch.stack(terms).mean()


def some(size: int, classes: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, 6, generator=generator, dtype=torch.float64).to(dtype)
    return features.requires_grad_(), torch.randint(classes, (size,), generator=generator)


# --- the term --------------------------------------------------------------------------------------------------------


def test_a_number_by_hand() -> None:
    """Chords of a unit circle are 2 sin(angle / 2); two of the four rows satisfy the margin and count as 0.

    Row 2: 0.3 + chord(60) - chord(30) = 0.3 + 1 - 0.517638. Row 3: 0.3 + chord(90) - chord(30) = 0.3 + 1.414214 -
    0.517638. Rows 1 and 4: 0.3 + 1 - 1.414214 < 0, and 0.3 + 1.414214 - 1.732051 < 0.
    """
    found = batch_hard_triplet(on_circle(0, 60, 90, 180), torch.tensor([0, 0, 1, 1]), 0.3, SPHERE)
    assert found.item() == pytest.approx((0.782362 + 1.196576) / 4, abs=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "classes", "margin"), [(9, 3, 0.3), (40, 10, 0.3), (40, 4, 0.0), (30, 25, 1.0)])
def test_value_and_gradient_of_a_slow_loop(size: int, classes: int, margin: float, dtype: torch.dtype) -> None:
    features, labels = some(size, classes, dtype)
    close = {"rtol": 1e-7, "atol": 1e-7} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    found = batch_hard_triplet(normalise(features), labels, margin, SPHERE)
    expected = slow(normalise(features), labels, margin)
    assert found.dtype == dtype and 0 < found.item() <= 2 + margin
    torch.testing.assert_close(found, expected, **close)
    gradients = [torch.autograd.grad(loss, features)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, **close)


def test_the_order_of_rows_does_not_matter() -> None:
    features, labels = some(20, 5, torch.float64)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    found = batch_hard_triplet(normalise(features)[order], labels[order], 0.3, SPHERE)
    torch.testing.assert_close(found, batch_hard_triplet(normalise(features), labels, 0.3, SPHERE))


def space_of(name: str) -> Space:
    """Return the space that a head reads, of six dimensions."""
    return SPACES[min(HEADS[name].spaces)](6)


# --- in a head -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(HEADS))
def test_every_head_adds_the_weighted_term_to_its_own_loss(name: str) -> None:
    features, labels = some(12, 4, torch.float32)
    view = View.of(features, space_of(name))
    options = {"triplet": 0.5, "triplet_margin": 0.7}
    with seeded(0):
        plain = build_head(name, 4, 6, {})
    with seeded(0):
        added = build_head(name, 4, 6, options)
    term = batch_hard_triplet(view.points, labels, 0.7, view.space)
    assert term.item() > 0.1
    torch.testing.assert_close(added.loss(view, labels), plain.loss(view, labels) + 0.5 * term)
    assert torch.equal(added.logits(view), plain.logits(view))
    assert added.state_dict().keys() == plain.state_dict().keys()
    defaults = inspect.signature(HEADS[name]).parameters
    assert (defaults["triplet"].default, defaults["triplet_margin"].default) == (0.0, 0.3)


NO_TERM = {
    "no two rows of a class": (torch.eye(4, 6), [0, 1, 2, 3]),
    "one row": (torch.ones(1, 6), [0]),
    "one class": (torch.eye(4, 6), [2, 2, 2, 2]),
}
EDGES = {
    **NO_TERM,
    "identical embeddings": (torch.ones(4, 6), [0, 0, 1, 1]),
    "many identical embeddings": (torch.full((40, 6), 0.3), [0, 1] * 20),
    "a zero vector": (torch.cat([torch.zeros(1, 6), torch.eye(3, 6)]), [0, 0, 1, 1]),
    "huge embeddings": (1e6 * torch.eye(4, 6), [0, 0, 1, 1]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", sorted(HEADS))
def test_finite_loss_and_gradient_at_the_edges(name: str, edge: str, dtype: torch.dtype) -> None:
    features, labels = EDGES[edge][0].clone().to(dtype).requires_grad_(), torch.tensor(EDGES[edge][1])
    head = build_head(name, 4, 6, {"triplet": 1.0}).to(dtype)
    loss = head.loss(View.of(features, space_of(name)), labels)
    loss.backward()
    assert loss.dtype == dtype and torch.isfinite(loss) and torch.isfinite(features.grad).all()


@pytest.mark.parametrize("edge", NO_TERM)
def test_nothing_is_added_where_a_batch_has_no_triplet(edge: str) -> None:
    points, labels = EDGES[edge][0].clone().requires_grad_(), torch.tensor(EDGES[edge][1])
    term = batch_hard_triplet(normalise(points), labels, 0.3, SPHERE)
    term.backward()
    assert term.item() == 0 and not points.grad.any()
    assert batch_hard_triplet(points[:0], labels[:0], 0.3, SPHERE).item() == 0


def test_identical_embeddings_lose_the_margin() -> None:
    assert batch_hard_triplet(
        torch.eye(4)[[1, 1, 1, 1]], torch.tensor([0, 0, 1, 1]), 0.3, SPHERE
    ).item() == pytest.approx(0.3)


def test_mixbct_applies_it_to_the_mixed_batch(world: Any, make_step: Any) -> None:
    head = build_head("arcface", world.classes, 5, {"triplet": 1.0})
    method = METHODS["mixbct"](ratio=0.5, denoise=1.0)
    method.prepare(world.old, torch.nn.Identity(), head, world.space)
    rows = np.arange(0, 48, 4)
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows]))
    new = torch.randn(old.shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
    step = make_step(new, world.labels[rows], head, old, index=torch.from_numpy(rows))
    chosen = method.choose(step)
    step.generator.manual_seed(0)
    mixed = normalise(torch.where(chosen[:, None], old, new))
    labels = torch.from_numpy(world.labels[rows])
    expected = head.classification(View(mixed, mixed, Hypersphere(5)), labels) + slow(mixed, labels, 0.3)
    found = method(step)["task"]
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found, new)
    assert chosen.sum() == 6 and torch.equal(gradient.any(dim=1), ~chosen)


@pytest.mark.parametrize("name", sorted(HEADS))
@pytest.mark.parametrize(
    "wrong", [{"triplet": -0.1}, {"triplet": float("nan")}, {"triplet": 1.0, "triplet_margin": -0.3}]
)
def test_negative_values_are_refused(name: str, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"triplet(.|\n)*(at least 0|a finite number)"):
        build_head(name, 4, 6, wrong)


# --- without the library ---------------------------------------------------------------------------------------------


def test_a_missing_library_is_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    build_head("arcface", 4, 6, {"triplet": 0.0})
    with pytest.raises(ConfigError, match=r"pip install '\.\[triplet\]'"):
        build_head("arcface", 4, 6, {"triplet": 1.0})
    read_only = build_head("arcface", 4, 6, {"triplet": 1.0, "triplet_margin": 0.123}, to_train=False)
    features, labels = some(8, 4, torch.float32)
    with pytest.raises(ConfigError, match=r"pip install '\.\[triplet\]'"):
        read_only.loss(View.of(features, Hypersphere(6)), labels)


def test_a_release_trained_with_it_loads_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"triplet": 1.0, "triplet_margin": 0.5}
    with seeded(0):
        encoder, head = Encoder(EncoderSpec(dim=6, image_size=16)), build_head("arcface", 3, 6, options)
    release = make_release(
        encoder, Hypersphere(6), classifier=head, classes=("a", "b", "c"), head="arcface", head_options=options
    )
    save_release(release, tmp_path)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    loaded = load_release(tmp_path)
    assert loaded.record.head_options == options and loaded.head is not None
    assert loaded.head.logits(View(torch.eye(6), torch.eye(6), Hypersphere(6))).shape[1] == 3
    assert (loaded.head.triplet, loaded.head.triplet_margin) == (1.0, 0.5)
