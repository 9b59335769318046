"""The hyperbolic losses against numbers of public code, or computed from the papers' formulas in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from limpet.geometry import lorentz
from limpet.geometry.hypersphere import normalise
from limpet.methods.hbct import LEAST_EXPONENT, entailment, info_nce, robust_contrast
from limpet.models.heads import hyperplane_logits


def lifted(z: torch.Tensor, zeta: torch.Tensor, curvature: float) -> torch.Tensor:
    """HBCT's encoder: z / √D, no longer than ζ, mapped to the space."""
    u = z / z.shape[1] ** 0.5
    return lorentz.exp_map0(u * (float(zeta) / u.norm(dim=1, keepdim=True)).clamp_max(1), curvature=curvature)


@pytest.fixture(params=[0, 1, 2])
def run(request: pytest.FixtureRequest) -> int:
    """Which of the three curvatures of a file."""
    number: int = request.param
    return number


@pytest.fixture
def pair(reference: Any, run: int) -> tuple[dict[str, torch.Tensor], float, torch.Tensor, torch.Tensor]:
    """HBCT's numbers, the curvature, and the points of the new and the old model."""
    g = reference("hbct")
    k = float(g["K"][run])
    return g, k, lifted(g["z_new"], g["zeta_new"], k), lifted(g["z_old"], g["zeta_old"], k)


def rowwise(loss: Any, *arguments: torch.Tensor) -> torch.Tensor:
    """Every row's loss: that of a batch of one."""
    return torch.stack([loss(*(values[row : row + 1] for values in arguments)) for row in range(len(arguments[0]))])


def test_hbct_entailment(pair, agrees, run: int) -> None:
    g, k, new, old = pair
    expected = g[f"entail_{run}"]
    rows = rowwise(lambda n, o: entailment(n, o, curvature=k, min_radius=float(g["eps"])), new, old)
    agrees(rows, expected)
    assert (rows[expected == 0] == 0).all()
    agrees(entailment(new, old, curvature=k, min_radius=float(g["eps"])), expected.mean())


SIMILARITIES = {
    "": lambda new, old, k: -lorentz.distance(new, old, curvature=k),
    "_sq_lorentz": lambda new, old, k: -lorentz.squared_distance(new, old, curvature=k),
    "_inner": lambda new, old, k: lorentz.inner(new, old, curvature=k),
    "_no_same_class": lambda new, old, k: -lorentz.distance(new, old, curvature=k),
}


@pytest.mark.parametrize("option", SIMILARITIES)
def test_hbct_contrast(pair, agrees, run: int, option: str) -> None:
    g, k, new, old = pair
    scores = SIMILARITIES[option](new, old, k) / float(g["tau"])
    positive, beta = scores.diagonal(), float(g["beta"])
    if option == "_no_same_class":
        others = g["labels"][:, None] == g["labels"]
        scores = scores.masked_fill(others & ~torch.eye(len(scores), dtype=torch.bool), -torch.inf)
    exponents = lorentz.uncertainty(old, curvature=k)
    expected = g[f"rince{option}_{run}"]
    agrees(robust_contrast(positive, scores, exponents, beta), expected.mean())
    agrees(rowwise(lambda *rows: robust_contrast(*rows, beta), positive, scores, exponents), expected)
    if f"infonce{option}_{run}" in g:
        agrees(info_nce(positive, scores), g[f"infonce{option}_{run}"].mean())
        agrees(rowwise(info_nce, positive, scores), g[f"infonce{option}_{run}"])


def test_hbct_total_and_its_gradient(reference, agrees, run: int) -> None:
    g = reference("hbct")
    k, tau, beta, epsilon = (float(value) for value in (g["K"][run], g["tau"], g["beta"], g["eps"]))
    z = g["z_new"].clone().requires_grad_()
    new, old = lifted(z, g["zeta_new"], k), lifted(g["z_old"], g["zeta_old"], k)
    logits = hyperplane_logits(new, g["mlr_z"], g["mlr_a"], curvature=k)
    agrees(logits, g[f"logits_{run}"])
    agrees(F.cross_entropy(logits, g["labels"], reduction="none"), g[f"base_{run}"])
    scores = -lorentz.distance(new, old, curvature=k) / tau
    contrast = robust_contrast(scores.diagonal(), scores, lorentz.uncertainty(old, curvature=k), beta)
    cones = entailment(new, old, curvature=k, min_radius=epsilon)
    total = F.cross_entropy(logits, g["labels"]) + float(g["lam"]) * (float(g["lam_ent"]) * cones + contrast)
    agrees(total, g[f"total_{run}"])
    agrees(torch.autograd.grad(total, z)[0], g[f"grad_z_new_{run}"])


def test_lorentz_regression_and_its_gradients(reference, agrees, run: int) -> None:
    g = reference("lorentz_mlr")
    k = float(g["K"][run])
    points = lorentz.exp_map0(g["zt"], curvature=k)
    agrees(lorentz.ambient(points, curvature=k).roll(1, dims=1), g[f"h_{run}"])  # theirs begins with the time
    offsets, normals = g[f"a_{run}"].clone().requires_grad_(), g[f"z_{run}"].clone().requires_grad_()
    logits = hyperplane_logits(points, normals, offsets, curvature=k)
    agrees(logits, g[f"logits_{run}"])
    loss = F.cross_entropy(logits, g["labels"])
    agrees(loss, g[f"ce_{run}"])
    found = torch.autograd.grad(loss, [offsets, normals])
    agrees(found[0], g[f"grad_a_{run}"])
    agrees(found[1], g[f"grad_z_{run}"])


def test_rince_of_unit_rows_without_the_factor_2t(reference, agrees) -> None:
    g = reference("rince")
    temperature = float(g["temperature"])
    scores = normalise(g["a"]) @ normalise(g["b"]).T / temperature
    for i, q in enumerate(g["q"]):
        for j, weight in enumerate(g["lam"]):
            found = robust_contrast(scores.diagonal(), scores, q.expand(len(scores)), float(weight))
            agrees(found, g["moco_loss_without_2T"][i, j])
            agrees(2 * temperature * found, g["moco_loss"][i, j])


def test_rince_of_one_positive_and_one_negative(reference, agrees, dtype: torch.dtype) -> None:
    g = reference("rince")
    scores = torch.stack([g["pos"], g["neg"]], dim=1).log()
    positive = scores[:, 0]
    agrees(rowwise(info_nce, positive, scores), g["infonce_per_sample"])
    for j, weight in enumerate(g["lam"]):
        for i, q in enumerate(g["q"]):
            exponents = q.expand(len(positive))
            found = rowwise(lambda *rows, w=float(weight): robust_contrast(*rows, w), positive, scores, exponents)
            agrees(found, g["rince_per_sample"][i, j])
        # the limit q = 0: InfoNCE and a constant, up to half the square of the logarithms times the least exponent
        none = torch.zeros_like(positive)
        found = rowwise(lambda *rows, w=float(weight): robust_contrast(*rows, w), positive, scores, none)
        logarithms = (weight.log() + torch.logsumexp(scores, dim=1)).square() + positive.square()
        assert ((found - g["infonce_per_sample"] - weight.log()).abs() <= LEAST_EXPONENT * logarithms).all()
