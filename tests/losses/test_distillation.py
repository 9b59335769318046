"""Distillation by logits, embeddings, distances, angles and orders: reference numbers, slow loops, laws, edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from limpet.geometry.hypersphere import normalise
from limpet.losses.distillation import dark_knowledge, softened_cross_entropy
from limpet.losses.influence import mean_cross_entropy
from limpet.methods import cvs
from limpet.methods.cvs import (
    absolute_distillation,
    frozen_batch_hard,
    hard_dark_rank,
    relational_angles,
    relational_distances,
    relative_distillation,
)


def leaf(values: torch.Tensor) -> torch.Tensor:
    return values.clone().requires_grad_()


def rows_of(seed: int, size: int, new_dim: int = 3, old_dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    new, old = (normalise(tensor(rng.normal(size=(size, dim)))) for dim in (new_dim, old_dim))
    return new, old


def huber(difference: float) -> float:
    return difference**2 / 2 if abs(difference) < 1 else abs(difference) - 0.5


def test_lwf_of_cvs_and_its_gradient(reference, agrees) -> None:
    g = reference("cvs_step")
    z, labels, temp = leaf(g["z_new"]), g["labels"], float(g["temp"])
    old_logits = normalise(g["z_old"]) @ normalise(g["W_old"]).T / temp
    task = mean_cross_entropy(normalise(z) @ normalise(g["W_new"]).T / temp, labels)
    term = softened_cross_entropy(normalise(z) @ normalise(g["W_lwf_head"]).T / temp, old_logits)
    agrees(term, g["lwf_term"])
    agrees(torch.autograd.grad(task + term, z)[0], g["grad_lwf"])


def test_bct_of_cvs_and_its_gradient(reference, agrees) -> None:
    g = reference("cvs_step")
    z, labels, temp = leaf(g["z_new"]), g["labels"], float(g["temp"])
    task = mean_cross_entropy(normalise(z) @ normalise(g["W_new"]).T / temp, labels)
    seen = labels.masked_fill(labels >= int(g["C_old"]), -1)
    term = mean_cross_entropy(normalise(z) @ normalise(g["W_old"]).T / temp, seen)
    agrees(term, g["bct_term"])
    agrees(torch.autograd.grad(task + term, z)[0], g["grad_bct"])


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_logits_by_a_slow_loop(temperature: float) -> None:
    rng = np.random.default_rng(0)
    new, old = (4 * tensor(rng.normal(size=(5, 3))) for _ in range(2))
    selected = tensor([True, False, True, True, False])
    divergence = entropy = 0.0
    for row in (0, 2, 3):
        p, q = ([math.exp(v / temperature) for v in logits[row].tolist()] for logits in (old, new))
        p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
        divergence += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 3
        entropy -= sum(a * math.log(a) for a in p) / 3
    found = dark_knowledge(new, old, temperature, selected)
    assert found.item() == pytest.approx(divergence, rel=1e-12)
    found = softened_cross_entropy(new, old, temperature, selected)
    assert found.item() == pytest.approx(divergence + entropy, rel=1e-12)


def test_divergence_and_cross_entropy_have_one_gradient() -> None:
    rng = np.random.default_rng(1)
    new, old = leaf(tensor(rng.normal(size=(4, 3)))), tensor(rng.normal(size=(4, 3)))
    gradients = [torch.autograd.grad(loss(new, old), new)[0] for loss in (dark_knowledge, softened_cross_entropy)]
    torch.testing.assert_close(*gradients)
    assert dark_knowledge(old, old + 3).abs() < 1e-15  # a shift of all logits is no difference


def test_logits_far_apart_stay_finite() -> None:
    new, old = leaf(tensor([[400.0, -400.0]])), tensor([[-400.0, 400.0]])
    for loss in (dark_knowledge, softened_cross_entropy):
        value = loss(new, old)
        assert value.item() == pytest.approx(400.0)
        assert torch.isfinite(torch.autograd.grad(value, new)[0]).all()


@given(seed=st.integers(0, 10_000), size=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_geometry_by_slow_loops(seed: int, size: int) -> None:
    new, old = rows_of(seed, size, old_dim=4)
    a, b = new.tolist(), old.tolist()
    index = range(size)
    pairs = list(itertools.product(index, index))
    differences = [math.dist(a[i], a[j]) - math.dist(b[i], b[j]) for i, j in pairs]
    assert relative_distillation(new, old).item() == pytest.approx(sum(map(abs, differences)) / size**2, abs=1e-12)
    length = math.sqrt(sum(d * d for d in differences))
    assert relative_distillation(new, old, "frobenius").item() == pytest.approx(length, abs=1e-12)

    distinct = max(size * (size - 1), 1)
    mean_a, mean_b = (sum(math.dist(rows[i], rows[j]) for i, j in pairs) / distinct or 1.0 for rows in (a, b))
    expected = sum(huber(math.dist(a[i], a[j]) / mean_a - math.dist(b[i], b[j]) / mean_b) for i, j in pairs)
    assert relational_distances(new, old).item() == pytest.approx(expected / size**2, abs=1e-12)

    def cosine(rows: list[list[float]], i: int, j: int, k: int) -> float:
        if i in (j, k):
            return 0.0
        left, right = ([x - y for x, y in zip(rows[n], rows[i], strict=True)] for n in (j, k))
        return sum(x * y for x, y in zip(left, right, strict=True)) / math.hypot(*left) / math.hypot(*right)

    triples = itertools.product(index, index, index)
    expected = sum(huber(cosine(a, *triple) - cosine(b, *triple)) for triple in triples)
    assert relational_angles(new, old).item() == pytest.approx(expected / size**3, abs=1e-12)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 7), count=st.sampled_from([0, 1, 2, 4]))
@settings(max_examples=25, deadline=None)
def test_dark_rank_by_a_slow_loop(seed: int, size: int, count: int) -> None:
    new, old = rows_of(seed, size)
    expected = 0.0
    for i in range(size):
        order = sorted((j for j in range(size) if j != i), key=lambda j: math.dist(old[i].tolist(), old[j].tolist()))
        scores = [-2.0 * math.dist(new[i].tolist(), new[j].tolist()) ** 2.5 for j in order[: count or size]]
        for rank, score in enumerate(scores):
            expected += (math.log(sum(math.exp(s) for s in scores[rank:])) - score) / size
    found = hard_dark_rank(new, old, count, scale=2.0, power=2.5)
    assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 8), classes=st.integers(1, 3), squared=st.booleans())
@settings(max_examples=25, deadline=None)
def test_batch_hard_by_a_slow_loop(seed: int, size: int, classes: int, squared: bool) -> None:
    new, old = rows_of(seed, size)
    labels = np.random.default_rng(seed).integers(0, classes, size).tolist()

    def distance(i: int, j: int) -> float:
        difference = [float(x) - float(y) + (0 if squared else 1e-6) for x, y in zip(new[i], old[j], strict=True)]
        return math.hypot(*difference) ** (2 if squared else 1)

    losses = []
    for i in range(size):
        same = [j for j in range(size) if labels[j] == labels[i] and j != i]
        other = [j for j in range(size) if labels[j] != labels[i]]
        if same and other:
            plain = [math.dist(new[i].tolist(), old[j].tolist()) for j in range(size)]
            far, near = max(same, key=plain.__getitem__), min(other, key=plain.__getitem__)
            losses.append(max(0.0, distance(i, far) - distance(i, near) + 0.3))
    found = frozen_batch_hard(new, old, tensor(labels), margin=0.3, squared=squared)
    assert found.item() == pytest.approx(sum(losses) / max(len(losses), 1), rel=1e-12, abs=1e-15)


def test_worked_numbers() -> None:
    o = tensor([[0.0], [3.0], [4.0]]).double()
    assert absolute_distillation(o + 2, o).item() == 2
    assert relative_distillation(2 * o, o).item() == pytest.approx((3 + 4 + 1) * 2 / 9)
    # distances over their means: 9/8, 3/2, 3/8 against 1, 1, 1
    z = tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]).double()
    assert relational_distances(z, o).item() == pytest.approx(2 * (1 / 64 + 1 / 4 + 25 / 64) / 2 / 9)
    # a ranking of two with scores 0 and −3·1: log(1 + e^−3) where it agrees with the old one, 3 more where it does not
    z = tensor([[0.0], [0.0], [1.0]]).double()
    agree = [math.log(1 + math.exp(-3)) + wrong for wrong in (0, 3)]
    found = hard_dark_rank(z, tensor([[0.0], [1.0], [3.0]]).double())  # the third row: a toss
    assert found.item() == pytest.approx((2 * agree[0] + math.log(2)) / 3)
    found = hard_dark_rank(z, tensor([[0.0], [9.0], [1.0]]).double())
    assert found.item() == pytest.approx((agree[1] + agree[1] + math.log(2)) / 3)


LOSSES = {
    "absolute": absolute_distillation,
    "relative": relative_distillation,
    "frobenius": lambda z, o: relative_distillation(z, o, "frobenius"),
    "distances": relational_distances,
    "angles": relational_angles,
    "rank": hard_dark_rank,
    "rank, all": lambda z, o: hard_dark_rank(z, o, 0),
    "batch-hard": lambda z, o: frozen_batch_hard(z, o, torch.arange(len(z)) // 2),
    "batch-hard, squared": lambda z, o: frozen_batch_hard(z, o, torch.arange(len(z)) // 2, squared=True),
    "batch-hard, one class": lambda z, o: frozen_batch_hard(z, o, torch.zeros(len(z), dtype=torch.int64)),
    "logits": dark_knowledge,
    "softened": softened_cross_entropy,
}
SPREAD = normalise(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3)),
    "one row": (torch.ones(1, 3), torch.eye(3)[:1]),
    "two rows": (torch.eye(3)[:2], -torch.eye(3)[:2]),
    "identical new rows": (torch.ones(5, 3), SPREAD),
    "identical old rows": (SPREAD, torch.ones(5, 3)),
    "identical rows": (torch.ones(5, 3), torch.ones(5, 3)),
    "the teacher itself": (SPREAD, SPREAD),
    "twins": (SPREAD[[0, 0, 1, 1]], SPREAD[[0, 1, 2, 3]]),
    "nearly twins": (
        SPREAD[[0, 0, 1, 1]].double() * (1 + 1e-9 * torch.arange(4).double()[:, None]),
        SPREAD[[0, 1, 2, 3]],
    ),
    "zero vectors": (torch.zeros(4, 3), torch.zeros(4, 3)),
}
LARGEST = 1e6  # no more than the reciprocal of what counts as coinciding


@pytest.mark.parametrize("name", LOSSES)
def test_finite_at_the_edges(name: str) -> None:
    for edge, precision in itertools.product(EDGES, [torch.float32, torch.float64]):
        new, old = (rows.to(precision) for rows in EDGES[edge])
        z = leaf(new)
        loss = LOSSES[name](z, old)
        loss.backward()
        assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(z.grad).all(), edge
        assert z.grad.abs().max() < LARGEST if len(z) else loss.item() == 0, edge


@pytest.mark.parametrize("name", ["absolute", "relative", "frobenius", "distances", "angles", "logits"])
def test_the_teacher_itself_costs_nothing(name: str) -> None:
    z = leaf(SPREAD.double())
    loss = LOSSES[name](z, SPREAD.double())
    loss.backward()
    assert loss.item() == 0 and z.grad.abs().max() < 1e-15


@given(seed=st.integers(0, 10_000), size=st.integers(2, 7))
@settings(max_examples=20, deadline=None)
def test_laws(seed: int, size: int) -> None:
    new, old = rows_of(seed, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)).double())[0]
    for name, loss in LOSSES.items():
        value = loss(new, old)
        assert value >= -1e-15
        if "batch-hard" not in name:  # classes there come by position
            torch.testing.assert_close(loss(new[order], old[order]), value)
        if name in ("relative", "frobenius", "distances", "angles", "rank"):
            torch.testing.assert_close(loss(new @ turn + 0.5, old), value)  # only what is between items counts
        if name in ("distances", "angles"):
            torch.testing.assert_close(loss(3 * new, old), value)


@pytest.mark.parametrize("elements", [1, 100, 10**9])
def test_angles_block_by_block(monkeypatch, elements: int) -> None:
    new, old = rows_of(3, 9)
    whole = leaf(new)
    relational_angles(whole, old).backward()
    sizes: list[int] = []
    block = cvs._angle_block

    def watch(z: torch.Tensor, o: torch.Tensor, vertices: torch.Tensor) -> torch.Tensor:
        sizes.append(len(vertices))
        return block(z, o, vertices)

    monkeypatch.setattr(cvs, "ELEMENTS", elements)
    monkeypatch.setattr(cvs, "_angle_block", watch)
    z = leaf(new)
    loss = relational_angles(z, old)
    assert sum(sizes) == 9 and max(sizes) == {1: 1, 100: 1, 10**9: 9}[elements]
    loss.backward()
    torch.testing.assert_close(loss, relational_angles(new, old))
    torch.testing.assert_close(z.grad, whole.grad)


def test_twins_span_no_angle_and_feel_no_pull() -> None:
    z = leaf(SPREAD[[0, 0, 1]].double())
    loss = relational_angles(z, SPREAD[:3].double())
    loss.backward()
    assert loss > 0.01 and z.grad.abs().max() < 1e-15


def test_gradients_against_finite_differences() -> None:
    new, old = rows_of(5, 6)
    for name, loss in LOSSES.items():
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, old), leaf(new)), name


def test_a_loss_pulls_distances_to_those_of_the_teacher() -> None:
    new, old = rows_of(7, 8)
    for name in ("absolute", "relative", "frobenius", "distances", "angles", "rank"):
        z = leaf(new)
        optimizer = torch.optim.Adam([z], lr=0.01)
        first = LOSSES[name](z, old).item()
        for _ in range(60):
            optimizer.zero_grad()
            LOSSES[name](z, old).backward()
            optimizer.step()
        assert LOSSES[name](z, old).item() < 0.8 * first, name
