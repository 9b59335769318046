"""The method `mmd`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn, tensor

from limpet.geometry.hypersphere import normalise
from limpet.losses.distillation import softened_cross_entropy
from limpet.losses.influence import mean_cross_entropy
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Head, OldModel
from limpet.methods.mmd import mean_discrepancy


@pytest.fixture
def golden_step(reference, make_step, make_embeddings, cosine_head) -> Any:
    """One step of a session after the first, from the file of CVS."""
    g = reference("cvs_step")
    known, labels = int(g["C_old"]), g["labels"]
    names = [f"c{row}" for row in range(len(g["W_new"]))]
    embeddings = make_embeddings(g["z_old"], labels, names=names)
    old = OldModel(embeddings, names[:known], cosine_head(g["W_old"], g["temp"]), own_training=embeddings[[]])
    head, z = cosine_head(g["W_new"], g["temp"]), g["z_new"].clone().requires_grad_()
    step = make_step(z, labels, head, g["z_old"], old_labels=labels.masked_fill(labels >= known, -1))
    return g, old, step


def ready(method: CompatibilityMethod, old: OldModel, head: Head, dtype: torch.dtype) -> CompatibilityMethod:
    method.prepare(old, nn.Identity(), head, old.embeddings.space)
    return method.to(dtype)


def test_mmd_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    terms = ready(METHODS["mmd"](), old, step.head, dtype)(step)
    agrees(terms["discrepancy"], g["mmd_only"])
    agrees(terms["discrepancy"] + terms["distillation"], g["mmd_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_mmd"])


def test_mmd_keeps_the_features_distributed_as_they_were(second, predecessor, two_sessions) -> None:
    after, found = two_sessions[1], []
    with torch.no_grad():
        wanted = predecessor.encoder(after.images)
    for method in (METHODS["finetune"](), METHODS["mmd"](weight=30.0, bandwidth=2.0)):
        found.append(mean_discrepancy(second(method).embed(after), wanted, 2.0).item())
    assert found[1] < 0.5 * found[0]


def test_the_discrepancy_alone_where_every_class_is_old(world, make_step) -> None:
    method = METHODS["mmd"](weight=2.0, bandwidth=3.0)
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    terms = method(make_step(new.requires_grad_(), [0, 1, 2, 3], world.head, old))
    terms["distillation"].backward()
    assert terms["distillation"] == 0 and not new.grad.any()
    torch.testing.assert_close(terms["discrepancy"], 2 * mean_discrepancy(new, old, 3.0))


def leaf(values: torch.Tensor) -> torch.Tensor:
    return values.clone().requires_grad_()


def test_mmd_of_cvs_and_its_gradient(reference, agrees) -> None:
    g = reference("cvs_step")
    z, labels, temp, known = leaf(g["z_new"]), g["labels"], float(g["temp"]), int(g["C_old"])
    discrepancy = mean_discrepancy(z, g["z_old"])  # features, not directions
    agrees(discrepancy, g["mmd_only"])
    logits = normalise(z) @ normalise(g["W_new"]).T / temp
    old_logits = normalise(g["z_old"]) @ normalise(g["W_old"]).T / temp
    term = discrepancy + softened_cross_entropy(logits[:, :known], old_logits, selected=labels >= known)
    agrees(term, g["mmd_term"])
    agrees(torch.autograd.grad(mean_cross_entropy(logits, labels) + term, z)[0], g["grad_mmd"])


@pytest.mark.parametrize("bandwidth", [None, 0.5, 30.0])
@pytest.mark.parametrize("sizes", [(4, 4), (3, 6), (1, 1)])
def test_by_a_slow_loop(bandwidth: float | None, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    new, old = (2 * tensor(rng.normal(size=(size, 3))) for size in sizes)

    def mean(left: torch.Tensor, right: torch.Tensor) -> float:
        values = [math.exp(-float((x - y).square().sum()) / (bandwidth or 9.0)) for x in left for y in right]
        return sum(values) / len(values)

    expected = mean(new, new) + mean(old, old) - 2 * mean(new, old)
    assert mean_discrepancy(new, old, bandwidth).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 8), others=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_laws(seed: int, size: int, others: int) -> None:
    rng = np.random.default_rng(seed)
    new, old = tensor(rng.normal(size=(size, 4))), tensor(rng.normal(size=(others, 4)))
    value = mean_discrepancy(new, old)
    assert -1e-12 <= value <= 2
    torch.testing.assert_close(mean_discrepancy(old, new), value)
    order = tensor(rng.permutation(size))
    torch.testing.assert_close(mean_discrepancy(new[order], old), value)  # which item is which does not count
    torch.testing.assert_close(mean_discrepancy(new + 3, old + 3), value)
    assert mean_discrepancy(new[order], new).abs() < 1e-12


def test_the_same_mean_is_not_enough() -> None:
    narrow, wide = tensor([[-1.0], [1.0]]).double(), tensor([[-3.0], [3.0]]).double()
    found = mean_discrepancy(narrow, wide, 4.0).item()
    assert found == pytest.approx((1 + math.exp(-1)) / 2 + (1 + math.exp(-9)) / 2 - math.exp(-1) - math.exp(-4))


EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3)),
    "no new row": (torch.zeros(0, 3), torch.eye(3)),
    "no old row": (torch.eye(3), torch.zeros(0, 3)),
    "one row": (torch.ones(1, 3), torch.eye(3)[:1]),
    "identical": (torch.ones(4, 3), torch.ones(4, 3)),
    "identical new rows": (torch.ones(3, 3), torch.eye(3)),
    "zero vectors": (torch.zeros(3, 3), torch.zeros(3, 3)),
    "far apart": (1e15 * torch.ones(2, 3), -1e15 * torch.eye(3)[:2]),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
def test_finite_at_the_edges(edge: str, precision: torch.dtype) -> None:
    new, old = (rows.to(precision) for rows in EDGES[edge])
    z = leaf(new)
    loss = mean_discrepancy(z, old)
    loss.backward()
    assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(z.grad).all()
    if edge in ("no row", "no new row", "no old row", "identical", "zero vectors"):
        assert loss.item() == 0 and not z.grad.any()
