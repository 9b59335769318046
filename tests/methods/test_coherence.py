"""The losses of CVS: reference numbers, slow loops of their formulas, laws and edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from limpet.geometry.hypersphere import normalise
from limpet.losses.alignment import all_distances
from limpet.losses.influence import mean_cross_entropy
from limpet.methods.cvs import data_coherence, frozen_triplet, model_coherence, nearest_of_other_classes


def leaf(values: torch.Tensor) -> torch.Tensor:
    return values.clone().requires_grad_()


def terms_of(g, z: torch.Tensor, weight: torch.Tensor, **options) -> dict[str, torch.Tensor]:
    """The three weighted terms of a step, the task's composed of what other methods use too."""
    labels, unit = g["labels"], normalise(z)
    rows = labels.masked_fill(labels >= int(g["C_old"]), -1)
    squared, reduction = options.get("squared", False), options.get("reduction", "selected")
    margin, old = float(g["margin"]), normalise(g["z_old"])
    return {
        "c": mean_cross_entropy(unit @ normalise(weight).T / float(g["temp"]), labels),
        "m": float(g["alpha"]) * model_coherence(unit, old, labels, margin=margin, squared=squared),
        "d": float(g["beta"]) * data_coherence(unit, g["Ec"], rows, reduction),
    }


def test_a_step_of_cvs_and_its_gradients(reference, agrees) -> None:
    g = reference("cvs_step")
    z, weight = leaf(g["z_new"]), leaf(g["W_new"])
    terms = terms_of(g, z, weight)
    for name, value in terms.items():
        agrees(value, g[f"loss_{name}"])
    total = sum(terms.values())
    agrees(total, g["total"])
    for found, name in zip(torch.autograd.grad(total, (z, weight)), ("grad_z_new", "grad_W_new"), strict=True):
        agrees(found, g[name])


@pytest.mark.parametrize(
    ("term", "options", "name"), [("m", {"squared": True}, "m_squared"), ("d", {"reduction": "batch"}, "d_batch")]
)
def test_the_printed_forms_of_cvs(reference, agrees, term: str, options: dict[str, object], name: str) -> None:
    g = reference("cvs_step")
    z = leaf(g["z_new"])
    loss = terms_of(g, z, g["W_new"], **options)[term]
    agrees(loss, g[f"loss_{name}"])
    agrees(torch.autograd.grad(loss, z)[0], g[f"grad_{name}"])


def test_hardest_negatives_of_cvs(reference) -> None:
    g = reference("cvs_step")
    new, old = normalise(g["z_new"]), normalise(g["z_old"])
    assert torch.equal(nearest_of_other_classes(new, g["labels"], old, g["labels"]), g["hard_neg_index"])


def batch(seed: int, size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    new, old = (normalise(tensor(rng.normal(size=(size, 3)))) for _ in range(2))
    return new, old, tensor(rng.integers(0, classes, size))


def slow_model_coherence(new, old, labels, margin: float, squared: bool) -> float:
    def distance(x: torch.Tensor, y: torch.Tensor) -> float:
        offset = 0.0 if squared else 1e-6
        total = sum((float(a) - float(b) + offset) ** 2 for a, b in zip(x, y, strict=True))
        return total if squared else math.sqrt(total)

    losses = []
    for row in range(len(labels)):
        others = [old[j] for j in range(len(old)) if labels[j] != labels[row]]
        if others:
            nearest = min(others, key=lambda key: math.dist(new[row].tolist(), key.tolist()))
            losses.append(max(0.0, distance(new[row], old[row]) - distance(new[row], nearest) + margin))
    return sum(losses) / len(losses) if losses else 0.0


@given(seed=st.integers(0, 10_000), size=st.integers(1, 8), classes=st.integers(1, 3), squared=st.booleans())
@settings(max_examples=50, deadline=None)
def test_model_coherence_by_a_slow_loop(seed: int, size: int, classes: int, squared: bool) -> None:
    new, old, labels = batch(seed, size, classes)
    found = model_coherence(new, old, labels, margin=0.2, squared=squared)
    expected = slow_model_coherence(new, old, labels, 0.2, squared)
    assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    again = model_coherence(new[order], old[order], labels[order], margin=0.2, squared=squared)
    torch.testing.assert_close(again, model_coherence(new, old, labels, margin=0.2, squared=squared))
    assert 0 <= again <= (4 if squared else 2) + 0.2 + 1e-5


@given(seed=st.integers(0, 10_000), size=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_data_coherence_by_a_slow_loop(seed: int, size: int) -> None:
    new, means, labels = batch(seed, size, 4)
    means, rows = 0.7 * torch.cat([means, means, means])[:3], labels - 1
    squares = [float((new[i] - means[rows[i]]).norm()) ** 2 for i in range(size) if rows[i] >= 0]
    expected = sum(squares)
    assert data_coherence(new, means, rows).item() == pytest.approx(expected / max(len(squares), 1), rel=1e-12)
    assert data_coherence(new, means, rows, "batch").item() == pytest.approx(expected / size, rel=1e-12)


def test_worked_numbers() -> None:
    z, o = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    labels = tensor([0, 1])
    # squared: 2 − 2 + 0.1 and 0 − 0 + 0.1; the negatives are the other rows
    torch.testing.assert_close(model_coherence(z, o, labels, squared=True), torch.tensor(0.1))
    torch.testing.assert_close(model_coherence(z, o, labels, margin=0.5), torch.tensor(0.5))
    assert data_coherence(z, torch.zeros(1, 2), tensor([0, 0])).item() == 1


def test_an_anchor_without_another_class_has_no_negative() -> None:
    new, old, _ = batch(0, 3, 1)
    assert nearest_of_other_classes(new, tensor([0, 1, 0]), old[:1], tensor([0])).tolist() == [-1, 0, -1]


def test_distances_keep_their_digits_in_float32() -> None:
    points = normalise(torch.randn(40, 16, generator=torch.Generator().manual_seed(0)))
    shifted = points + 1e-4
    expected = (points.double()[:, None] - shifted.double()).norm(dim=2)
    torch.testing.assert_close(all_distances(points, shifted).double(), expected, rtol=1e-3, atol=0)
    assert not all_distances(points, points).diagonal().any()


LOSSES = {
    "data": lambda z, o, y: data_coherence(z, o[:2], torch.where(y < min(len(o), 2), y, -1)),
    "data, batch": lambda z, o, y: data_coherence(z, o[:2], torch.where(y < min(len(o), 2), y, -1), "batch"),
    "model": model_coherence,
    "model, squared": lambda z, o, y: model_coherence(z, o, y, squared=True),
}
EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3), []),
    "one row": (torch.ones(1, 3), torch.eye(3)[:1], [0]),
    "one class": (torch.eye(3), torch.eye(3).flip(0), [4, 4, 4]),
    "identical": (torch.ones(4, 3), torch.ones(4, 3), [0, 0, 1, 1]),
    "opposite": (torch.ones(2, 3), -torch.ones(2, 3), [0, 1]),
    "zero vectors": (torch.zeros(3, 3), torch.zeros(3, 3), [0, 1, 1]),
    "classes never seen": (torch.eye(3), torch.eye(3), [7, 8, 9]),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", LOSSES)
def test_finite_at_the_edges(name: str, edge: str, precision: torch.dtype) -> None:
    new, old, labels = EDGES[edge]
    z = leaf(new.to(precision))
    loss = LOSSES[name](normalise(z), normalise(old.to(precision)), tensor(labels, dtype=torch.int64))
    loss.backward()
    assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(z.grad).all()
    nothing = edge == "no row" or (name.startswith("model") and edge == "one class")
    if nothing or (name.startswith("data") and edge == "classes never seen"):
        assert loss.item() == 0 and not z.grad.any()


def test_no_replayed_embedding_at_all_costs_nothing() -> None:
    z = leaf(torch.eye(2))
    loss = data_coherence(z, torch.zeros(0, 2), tensor([-1, -1]))
    loss.backward()
    assert loss.item() == 0 and not z.grad.any()


def test_the_gradient_reaches_the_new_embeddings_alone() -> None:
    new, old, labels = batch(1, 6, 3)
    new, old = leaf(new), leaf(old)
    model_coherence(new, old.detach(), labels, margin=2.0).backward()
    assert new.grad.any() and old.grad is None


def test_a_triplet_of_rows_that_are_not_valid_counts_nothing() -> None:
    z = leaf(torch.eye(2))
    valid = tensor([True, False])
    loss = frozen_triplet(z, torch.zeros(2, 2), torch.zeros(2, 2), valid, margin=0.25, squared=True)
    loss.backward()
    assert loss.item() == 0.25 and not z.grad[1].any()
