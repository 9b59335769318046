"""The Lorentz model against numbers computed by MERU's public code, and by our own float64 formulas for HBCT."""

from __future__ import annotations

import pytest
import torch

from limpet.geometry import lorentz
from limpet.methods.hbct import entailment

LIKE_MERU = {torch.float64: {"rtol": 1e-6, "atol": 1e-6}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}  # its own guards


@pytest.fixture(params=[0, 1, 2])
def run(request: pytest.FixtureRequest) -> int:
    """Which of the three curvatures of a file."""
    number: int = request.param
    return number


@pytest.mark.parametrize("as_tensor", [False, True])
def test_meru(reference, agrees, dtype: torch.dtype, run: int, as_tensor: bool) -> None:
    g = reference("meru_lorentz")
    x, y = g["x"], g["y"]
    k = g["curv"][run] if as_tensor else float(g["curv"][run])
    close = LIKE_MERU[dtype]
    agrees(lorentz.inner(x, y, curvature=k), g[f"pairwise_inner_{run}"], **close)
    agrees(lorentz.paired_inner(x, y, curvature=k), g[f"pairwise_inner_{run}"].diagonal(), **close)
    agrees(lorentz.distance(x, y, curvature=k), g[f"pairwise_dist_{run}"], **close)
    agrees(lorentz.paired_distance(x, y, curvature=k), g[f"pairwise_dist_{run}"].diagonal(), **close)
    agrees(lorentz.exp_map0(g["v"], curvature=k), g[f"exp_map0_{run}"], **close)
    agrees(lorentz.exp_map0(g["v"][:2], curvature=k), g["v"][:2], rtol=0, atol=0)  # zero and 1e-9 come back as they are
    agrees(lorentz.log_map0(x, curvature=k), g[f"log_map0_{run}"], **close)
    apertures = lorentz.half_aperture(x, curvature=k, min_radius=float(g["min_radius"]))
    agrees(apertures[1:], g[f"half_aperture_{run}"][1:], **close)
    assert 1.56 < apertures[0] < torch.pi / 2


def test_meru_cones(reference, agrees, dtype: torch.dtype, run: int) -> None:
    g = reference("meru_lorentz")
    x, y, k = g["x"], g["y"].clone().requires_grad_(), float(g["curv"][run])
    angles = lorentz.exterior_angle(x, y, curvature=k)
    agrees(angles, g[f"oxy_angle_{run}"], **LIKE_MERU[dtype])
    (gradient,) = torch.autograd.grad(angles.sum(), y)
    agrees(gradient, g[f"oxy_angle_grad_y_{run}"], **LIKE_MERU[dtype])
    found = entailment(y, x, curvature=k, min_radius=float(g["min_radius"]))
    # the saturated aperture of row 0 is π/2 less another guard than theirs: 1.4e-3 less in float32, of 7 rows
    guard = 2.1e-4 if dtype == torch.float32 else 3e-5
    agrees(found, g[f"entail_mean_{run}"], rtol=1e-6, atol=guard)


def test_hbct(reference, agrees, run: int) -> None:
    g = reference("hbct")
    k, epsilon = float(g["K"][run]), float(g["eps"])
    points = {}
    for side in ("old", "new"):
        z, zeta = g[f"z_{side}"], float(g[f"zeta_{side}"])
        u = z / z.shape[1] ** 0.5
        u = u * (zeta / u.norm(dim=1, keepdim=True)).clamp_max(1)
        points[side] = lorentz.exp_map0(u, curvature=k)
        agrees(points[side], g[f"h_{side}_space_{run}"])
        agrees(lorentz.time(points[side], curvature=k), g[f"h_{side}_time_{run}"])
        agrees(lorentz.log_map0(points[side], curvature=k), u)
    new, old = points["new"], points["old"]
    agrees(lorentz.distance(new, old, curvature=k), g[f"dist_{run}"])
    agrees(lorentz.paired_distance(new, old, curvature=k), g[f"dist_{run}"].diagonal())
    agrees(lorentz.squared_distance(new, old, curvature=k), g[f"sq_lorentz_{run}"])
    agrees(lorentz.paired_squared_distance(new, old, curvature=k), g[f"sq_lorentz_{run}"].diagonal())
    agrees(lorentz.uncertainty(old, curvature=k), g[f"uncertainty_{run}"])
    agrees(lorentz.half_aperture(old, curvature=k, min_radius=epsilon), g[f"aperture_{run}"])
    agrees(lorentz.exterior_angle(old, new, curvature=k), g[f"exterior_{run}"])
