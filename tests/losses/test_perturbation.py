"""Prototype perturbation against reference numbers, the formulas written as loops, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor
from torch.utils._python_dispatch import TorchDispatchMode

from limpet.geometry.hypersphere import mean_direction, normalise
from limpet.losses import perturbation
from limpet.losses.perturbation import mean_angle
from limpet.losses.prototypes import prototype_contrast
from limpet.methods import odpp
from limpet.methods.ndpp import nearest_prototypes, neighbour_repulsion
from limpet.methods.odpp import ActivePairs, descend_pairs, pair_hinge

TOLERANCE = {torch.float64: {"rtol": 1e-7, "atol": 1e-7}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def read(golden, name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {key: tensor(value).to(dtype) if value.dtype == float else tensor(value)
            for key, value in golden(name).items()}  # fmt: skip


def agrees(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.detach(), expected, **TOLERANCE[found.dtype])


def test_neighbours_and_perturbations(golden, dtype) -> None:
    g = read(golden, "ndpp", dtype)
    count, alpha_old, alpha_new = int(g["K"]), float(g["alpha1"]), float(g["alpha2"])
    neighbours, similarities = nearest_prototypes(g["P_old"], g["P_old"], count)
    assert torch.equal(neighbours, g["nn_old"])
    agrees(similarities, g["sim_old"])
    push = neighbour_repulsion(g["P_old"], g["P_old"], neighbours, similarities)
    agrees(push, g["r_o"])
    start = g["P_old"] + alpha_old * push
    agrees(start, g["p_hat"])
    neighbours, similarities = nearest_prototypes(start, g["P_new"], count)
    assert torch.equal(neighbours, g["nn_new"])
    agrees(similarities, g["sim_new"])
    push = neighbour_repulsion(start, g["P_new"], neighbours, similarities)
    agrees(push, g["r_n"])
    agrees(start + alpha_new * push, g["p_hat_t"])


def test_contrast_with_old_neighbours_only(golden, dtype) -> None:
    g = read(golden, "ndpp", dtype)
    for targets, name in ((None, "loss_p2s"), (g["p_hat"], "loss_ndpp_old"), (g["p_hat_t"], "loss_ndpp")):
        losses = [
            prototype_contrast(z[None], label[None], g["P_old"], float(g["tau"]), targets)
            for z, label in zip(g["z_new"], g["labels"], strict=True)
        ]
        agrees(torch.stack(losses), g[name])


@pytest.mark.parametrize("name", ["p2s", "ndpp"])
def test_mean_contrast_and_its_gradient(golden, dtype, name: str) -> None:
    g = read(golden, "ndpp", dtype)
    z = g["z_new"].clone().requires_grad_()
    targets = g["p_hat_t"] if name == "ndpp" else None
    loss = prototype_contrast(z, g["labels"], g["P_old"], float(g["tau"]), targets)
    agrees(loss, g[f"loss_{name}_mean"])
    agrees(torch.autograd.grad(loss, z)[0], g[f"grad_{name}"])


def test_few_classes_with_negative_similarities(golden, dtype) -> None:
    g = read(golden, "ndpp", dtype)
    neighbours, similarities = nearest_prototypes(g["P_few"], g["P_few"], int(g["K"]) + 5)
    assert neighbours.shape == (5, 4)  # more are asked for than there are others
    push = neighbour_repulsion(g["P_few"], g["P_few"], neighbours, similarities)
    agrees(push, g["r_o_few_clamped"])
    assert (push == 0).all(dim=1).any()


def test_prototypes_are_unit_means_of_unit_vectors(golden, dtype) -> None:
    g = read(golden, "ndpp", dtype)
    agrees(mean_direction(g["proto_feats"], g["proto_labels"], 4)[0], g["proto"])


def test_blocks_of_rows_change_nothing(monkeypatch) -> None:
    points = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    whole = nearest_prototypes(points, points, 7)
    monkeypatch.setattr(perturbation, "ELEMENTS", 150)
    for one, other in zip(whole, nearest_prototypes(points, points, 7), strict=True):
        torch.testing.assert_close(one, other)


def test_one_class_has_no_neighbours() -> None:
    point = torch.ones(1, 3)
    assert torch.equal(neighbour_repulsion(point, point, *nearest_prototypes(point, point, 5)), torch.zeros(1, 3))


def test_a_class_without_a_mean_repels_nobody() -> None:
    origins = torch.eye(3)
    absent = torch.zeros(3, 3)
    assert torch.equal(neighbour_repulsion(origins, absent, *nearest_prototypes(origins, absent, 2)), torch.zeros(3, 3))


def loop_objective(points, others, threshold) -> torch.Tensor:
    total = points.new_zeros(())
    for c in range(len(points)):
        for d in range(len(others)):
            if c != d:
                total = total + torch.relu(points[c] @ others[d] - threshold)
    return total


def test_objectives_of_all_pairs(golden, dtype) -> None:
    g = read(golden, "odpp", dtype)
    gamma = float(g["gamma"])
    points = g["P_old"] + g["r"]
    first = ActivePairs(float(g["theta_old"])).look(points, points)
    second = ActivePairs(float(g["theta_new"])).look(points, g["P_new"])
    for found, name in ((first.loss, "loss_old"), (first.loss, "loss_term1"), (second.loss, "loss_term2"),
                        (first.loss + gamma * second.loss, "loss_joint")):  # fmt: skip
        agrees(torch.tensor(found, dtype=dtype), g[name])
    agrees(2 * first.gradient, g["grad_old"])
    agrees(2 * first.gradient + gamma * second.gradient, g["grad_joint"])
    assert (first.pairs, second.pairs) == (int(g["active_old"].sum()), int(g["active_new"].sum()))


@pytest.mark.parametrize(("side", "threshold"), [("old", "theta_old"), ("new", "theta_new")])
def test_pairs_above_the_threshold(golden, dtype, side: str, threshold: str) -> None:
    g = read(golden, "odpp", dtype)
    points = g["P_old"] + g["r"]
    others = points if side == "old" else g["P_new"]
    first, second = (index.flatten() for index in torch.meshgrid(torch.arange(9), torch.arange(9), indexing="ij"))
    active = pair_hinge(points[first], others[second], float(g[threshold])).view(9, 9) > 0
    assert torch.equal(active & ~torch.eye(9, dtype=torch.bool), g[f"active_{side}"])


def test_sampled_pairs(golden, dtype) -> None:
    g = read(golden, "odpp", dtype)
    points, first, second = g["P_old"] + g["r"], g["pair_i"], g["pair_j"]
    agrees(pair_hinge(points[first], points[second], float(g["theta_old"])), g["pair_loss_old"])
    agrees(pair_hinge(points[first], g["P_new"][second], float(g["theta_new"])), g["pair_loss_new"])
    moved = points.clone()
    descend_pairs(moved, first, second, step=1.0, threshold=float(g["theta_old"]), others=g["P_new"],
                  other_threshold=float(g["theta_new"]), gamma=float(g["gamma"]))  # fmt: skip
    agrees(points - moved, g["pair_grad"])


def test_the_first_stage_has_no_second_term(golden) -> None:
    g = read(golden, "odpp", torch.float64)
    first, second = g["pair_i"], g["pair_j"]
    points = (g["P_old"] + g["r"]).requires_grad_()
    pair_hinge(points[first], points[second], float(g["theta_old"])).sum().backward()
    moved = points.detach().clone()
    descend_pairs(moved, first, second, step=1.0, threshold=float(g["theta_old"]))
    agrees(points.detach() - moved, points.grad)


@pytest.mark.parametrize(("budget", "kept"), [(10**6, 24), (60, None), (-1, 0)])
def test_active_pairs_are_exact_however_little_is_kept(monkeypatch, budget: int, kept: int | None) -> None:
    """Against the double loop, over a path long enough to make candidates outdated and new pairs active."""
    monkeypatch.setattr(perturbation, "ELEMENTS", 24)  # a row at a time
    monkeypatch.setattr(odpp, "CHUNK", 16)
    monkeypatch.setattr(odpp, "CROWDED", 1.0)
    generator = torch.Generator().manual_seed(0)
    points = normalise(torch.randn(24, 5, generator=generator, dtype=torch.float64))
    others = normalise(torch.randn(24, 5, generator=generator, dtype=torch.float64))
    pairs, searched = ActivePairs(0.5, budget=budget), []
    search = pairs._search
    monkeypatch.setattr(pairs, "_search", lambda *arguments: searched.append(1) or search(*arguments))
    for turn in range(12):
        leaf = points.clone().requires_grad_()
        expected = loop_objective(leaf, others, 0.5)
        found = pairs.look(points, others)
        assert found.loss == pytest.approx(expected.item())
        torch.testing.assert_close(found.gradient, torch.autograd.grad(expected, leaf)[0])
        held = sum(len(columns) for columns, _ in pairs._kept.values())
        assert held <= max(budget, 0) and (kept is None or len(pairs._kept) == kept)
        points = points + (0.0016 if turn % 2 else -0.0006) * found.gradient
        others = others + 0.0005 * turn * points.flip(0)
    assert 1 < pairs.searches < 12
    if budget == 10**6:
        assert len(searched) == 24 * pairs.searches
    else:
        assert len(searched) > 24 * pairs.searches


def test_crowded_blocks_are_multiplied_not_gathered(monkeypatch) -> None:
    points = normalise(torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 2)
    expected = ActivePairs(0.9)
    monkeypatch.setattr(odpp, "CROWDED", 1.0)
    gathered = expected.look(points, points)
    monkeypatch.setattr(odpp, "CROWDED", 1 / 16)
    crowded = ActivePairs(0.9)
    multiplied = crowded.look(points, points)
    assert not crowded._kept and multiplied.pairs == gathered.pairs > 20
    assert multiplied.loss == pytest.approx(gathered.loss)
    torch.testing.assert_close(multiplied.gradient, gathered.gradient)


def test_no_active_pair_is_no_error() -> None:
    found = ActivePairs(0.9).look(torch.eye(4), torch.eye(4))
    assert (found.loss, found.pairs) == (0.0, 0) and torch.equal(found.gradient, torch.zeros(4, 4))


def test_angles_too_small_for_a_cosine() -> None:
    before = torch.tensor([[1.0, 0.0]])
    after = torch.tensor([[1.0, 1e-5]])
    assert mean_angle(before, after) == pytest.approx(np.degrees(1e-5), rel=1e-3)
    assert mean_angle(before, -before) == pytest.approx(180)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                self.elements = max(self.elements, part.numel())
        return result


def test_nothing_of_classes_times_classes_is_held(monkeypatch) -> None:
    monkeypatch.setattr(perturbation, "ELEMENTS", 4000)
    points = normalise(torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)))
    with LargestTensor() as largest:
        neighbour_repulsion(points, points, *nearest_prototypes(points, points, 20))
        ActivePairs(0.99).look(points, points)
    assert 4000 <= largest.elements < 1000 * 1000 / 20
