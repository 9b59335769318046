from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.geometry import Lorentz, lorentz

CURVATURES = st.sampled_from([0.3, 1.0, 2.5])
EPSILON = {torch.float64: 1e-9, torch.float32: 3e-4}


def tangents(count: int, seed: int, longest: float = 3.0, dim: int = 4) -> torch.Tensor:
    """Tangent vectors in random directions, of random lengths up to the longest, float64."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    lengths = longest * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    return u / u.norm(dim=1, keepdim=True) * lengths


def test_worked_numbers() -> None:
    # curvature -1/144: points 12 [sinh, cosh] of the angles asinh(5/12) and asinh(-5/12) on one line through the origin
    x, y, k = torch.tensor([[3.0, 4.0]]), torch.tensor([[-3.0, -4.0]]), 1 / 144
    assert lorentz.time(x, curvature=k).tolist() == [13.0]
    torch.testing.assert_close(lorentz.inner(x, y, curvature=k), torch.tensor([[-25.0 - 169.0]]))
    torch.testing.assert_close(lorentz.excess(x, y, curvature=k), torch.tensor([[194 / 144 - 1]]))
    torch.testing.assert_close(lorentz.distance(x, y, curvature=k), torch.tensor([[24 * math.asinh(5 / 12)]]))
    torch.testing.assert_close(lorentz.squared_distance(x, y, curvature=k), torch.tensor([[100.0]]))  # |Δs|, same time
    torch.testing.assert_close(lorentz.uncertainty(x, curvature=k), torch.tensor([1 - 5 / 13]))
    apertures = lorentz.half_aperture(x, curvature=k, min_radius=5 / 48)  # 2 · 5/48 over 5/12
    torch.testing.assert_close(apertures, torch.tensor([math.pi / 6]))
    assert lorentz.ambient(x, curvature=k).tolist() == [[3.0, 4.0, 13.0]]


def test_exterior_angles_on_a_line_and_across() -> None:
    apex = torch.tensor([[1.0, 0.0]]).double()
    for y, angle in (([2.0, 0.0], 0.0), ([0.5, 0.0], math.pi), ([-1.0, 0.0], math.pi)):
        found = lorentz.exterior_angle(apex, torch.tensor([y]).double())
        assert found.item() == pytest.approx(angle, abs=2e-6)
    # the side of a right-angled triangle: cos A = tanh(opposite leg's neighbour) / tanh(hypotenuse), from the origin
    y = torch.tensor([[0.0, 1.0]]).double()
    leg, hypotenuse = math.asinh(1), lorentz.paired_distance(apex, y).item()
    inside = math.acos(math.tanh(leg) / math.tanh(hypotenuse))
    assert lorentz.exterior_angle(apex, y).item() == pytest.approx(math.pi - inside, rel=1e-12)


@given(seed=st.integers(0, 10_000), k=CURVATURES)
@settings(max_examples=30)
def test_the_stable_forms_are_the_printed_ones(seed: int, k: float) -> None:
    x, y = (lorentz.exp_map0(tangents(7, seed + shift), curvature=k) for shift in (0, 1))
    products = k * lorentz.inner(x, y, curvature=k)
    torch.testing.assert_close(lorentz.excess(x, y, curvature=k), -products - 1, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(lorentz.distance(x, y, curvature=k), torch.acosh(-products) / k**0.5)
    torch.testing.assert_close(
        lorentz.squared_distance(x, y, curvature=k), -2 / k - 2 * products / k, rtol=1e-9, atol=1e-9
    )
    c = products.diagonal()
    rise = lorentz.time(y, curvature=k) + lorentz.time(x, curvature=k) * c
    expected = (rise / (x.norm(dim=1) * (c.square() - 1).sqrt())).clamp(-1, 1).acos()
    torch.testing.assert_close(lorentz.exterior_angle(x, y, curvature=k), expected, rtol=1e-6, atol=2e-6)


@given(seed=st.integers(0, 10_000), k=CURVATURES)
@settings(max_examples=30)
def test_pairs_are_the_diagonal(seed: int, k: float) -> None:
    x, y = (lorentz.exp_map0(tangents(5, seed + shift), curvature=k) for shift in (0, 1))
    for name in ("inner", "excess", "distance", "squared_distance"):
        paired = getattr(lorentz, f"paired_{name}")(x, y, curvature=k)
        torch.testing.assert_close(paired, getattr(lorentz, name)(x, y, curvature=k).diagonal())


@given(seed=st.integers(0, 10_000), k=CURVATURES)
@settings(max_examples=30)
def test_distances_are_a_metric(seed: int, k: float) -> None:
    points = lorentz.exp_map0(tangents(8, seed), curvature=k)
    d = lorentz.distance(points, points, curvature=k)
    assert (d.diagonal() == 0).all() and (d >= 0).all()
    torch.testing.assert_close(d, d.T)
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-9).all()  # d(i, k) <= d(i, j) + d(j, k)


@pytest.mark.parametrize("precision", EPSILON)
@given(seed=st.integers(0, 10_000), k=CURVATURES, longest=st.sampled_from([1e-8, 1e-4, 0.1, 1.0, 4.0]))
@settings(max_examples=40)
def test_the_exponential_map(precision: torch.dtype, seed: int, k: float, longest: float) -> None:
    u = tangents(6, seed, longest).to(precision)
    x = lorentz.exp_map0(u, curvature=k)
    close = {"rtol": EPSILON[precision], "atol": EPSILON[precision] * longest}
    lengths = u.norm(dim=1)
    assert x.dtype == precision
    torch.testing.assert_close(lorentz.log_map0(x, curvature=k), u, **close)
    torch.testing.assert_close(lorentz.paired_distance(x, torch.zeros_like(x), curvature=k), lengths, **close)
    torch.testing.assert_close(lorentz.distance(x, torch.zeros_like(x[:1]), curvature=k)[:, 0], lengths, **close)
    expected = 1 - torch.tanh(k**0.5 * lengths.double())
    torch.testing.assert_close(lorentz.uncertainty(x, curvature=k).double(), expected, rtol=EPSILON[precision], atol=0)
    assert (lorentz.uncertainty(x, curvature=k) <= 1).all()


@given(seed=st.integers(0, 10_000), factor=st.sampled_from([0.2, 3.0]))
@settings(max_examples=20)
def test_curvature_only_scales_lengths(seed: int, factor: float) -> None:
    u, v = tangents(5, seed), tangents(5, seed + 1)
    x, y = lorentz.exp_map0(u), lorentz.exp_map0(v)
    k = 1 / factor**2
    far_x, far_y = lorentz.exp_map0(factor * u, curvature=k), lorentz.exp_map0(factor * v, curvature=k)
    torch.testing.assert_close(far_x, factor * x)
    torch.testing.assert_close(lorentz.excess(far_x, far_y, curvature=k), lorentz.excess(x, y))
    torch.testing.assert_close(lorentz.distance(far_x, far_y, curvature=k), factor * lorentz.distance(x, y))
    squared = factor**2 * lorentz.squared_distance(x, y)
    torch.testing.assert_close(lorentz.squared_distance(far_x, far_y, curvature=k), squared)
    torch.testing.assert_close(lorentz.uncertainty(far_x, curvature=k), lorentz.uncertainty(x))
    torch.testing.assert_close(lorentz.half_aperture(far_x, curvature=k), lorentz.half_aperture(x))
    torch.testing.assert_close(lorentz.exterior_angle(far_x, far_y, curvature=k), lorentz.exterior_angle(x, y))


@given(seed=st.integers(0, 10_000), k=CURVATURES, size=st.integers(1, 6))
@settings(max_examples=30)
def test_the_centroid(seed: int, k: float, size: int) -> None:
    points = lorentz.exp_map0(tangents(size, seed), curvature=k)
    sums = lorentz.ambient(points, curvature=k)
    torch.testing.assert_close(lorentz.centroid(sums, curvature=k), points)  # of one point each
    centre = lorentz.centroid(sums.sum(dim=0), curvature=k)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(lorentz.centroid(sums[order].sum(dim=0), curvature=k), centre)
    torch.testing.assert_close(lorentz.centroid(sums.mean(dim=0), curvature=k), centre)
    # nowhere near it is the sum of squared Lorentz distances smaller
    others = centre + 0.01 * torch.randn(20, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    costs = lorentz.squared_distance(torch.cat([centre[None], others]), points, curvature=k).sum(dim=1)
    assert (costs[1:] >= costs[0]).all()


@pytest.mark.parametrize("precision", EPSILON)
def test_the_centroid_of_an_absent_class_is_the_origin(precision: torch.dtype) -> None:
    sums = torch.zeros(1, 4, dtype=precision, requires_grad=True)
    centre = lorentz.centroid(sums, curvature=2.5)
    assert centre.tolist() == [[0.0, 0.0, 0.0]] and centre.dtype == precision
    assert torch.isfinite(torch.autograd.grad(centre.sum(), sums)[0]).all()


@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.1, 1.2, 4.0])
@pytest.mark.parametrize("gap", [1e-4, 1e-2, 0.5])
def test_close_pairs_and_apices_near_the_origin_keep_their_digits_in_float32(radius: float, gap: float) -> None:
    """The printed forms lose every digit in some of these places."""
    u = tangents(200, 0, 1.0, dim=64)
    u = u / u.norm(dim=1, keepdim=True) * radius
    x = lorentz.exp_map0(u).float()
    y = lorentz.exp_map0(u + tangents(200, 1, gap, dim=64)).float()
    for function, tolerance in ((lorentz.paired_distance, 2e-3), (lorentz.exterior_angle, 1e-5)):
        leaves = [y.clone().requires_grad_(), y.double().requires_grad_()]
        found, expected = function(x, leaves[0]), function(x.double(), leaves[1])
        far = expected > 1e-2 * gap if function is lorentz.paired_distance else torch.ones(200, dtype=torch.bool)
        torch.testing.assert_close(found[far].double(), expected[far], rtol=tolerance, atol=1e-5 * gap + 1e-7)
        slopes = [
            torch.autograd.grad(values.sum(), leaf)[0].double()
            for values, leaf in zip((found, expected), leaves, strict=True)
        ]
        errors = (slopes[0] - slopes[1]).norm(dim=1) / slopes[1].norm(dim=1)
        assert errors[far].max() < 5e-3


ROWS = {
    "origin": [0.0, 0.0, 0.0],
    "denormal": [1e-40, 0.0, 0.0],
    "square vanishes": [1e-25, 1e-25, 0.0],
    "tiny": [1e-9, 0.0, 0.0],
    "ordinary": [0.3, 0.2, 0.1],
    "far": [2.0, -2.0, 3.0],
    "at the bound": [3.0, -4.0, 12.0],
    "beyond it": [1e4, 0.0, 0.0],
    "square overflows": [1e20, 1e20, 0.0],
}
SINGLE = ["time", "exp_map0", "log_map0", "half_aperture", "uncertainty", "ambient"]
PAIRED = ["paired_inner", "paired_excess", "paired_distance", "paired_squared_distance", "exterior_angle"]
PAIRWISE = ["inner", "excess", "distance", "squared_distance"]


@pytest.mark.parametrize("precision", EPSILON)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("name", [*SINGLE, *PAIRED, *PAIRWISE])
def test_finite_at_the_edges(name: str, learned: bool, precision: torch.dtype) -> None:
    k: float | torch.Tensor = torch.tensor(0.3, dtype=torch.float64, requires_grad=True) if learned else 0.3
    u = torch.tensor(list(ROWS.values()), dtype=precision, requires_grad=True)
    function, x = getattr(lorentz, name), lorentz.exp_map0(u, curvature=k)
    others = [x, x.detach(), x.detach().flip(0), torch.zeros_like(x)]
    calls = [(u if name == "exp_map0" else x,)] if name in SINGLE else [(a, b) for b in others for a in (x,)]
    calls += [] if name in SINGLE else [(b, x) for b in others]
    for arguments in calls:
        values = function(*arguments, curvature=k)
        leaves = [u, k] if isinstance(k, torch.Tensor) else [u]
        gradients = torch.autograd.grad(values.sum(), leaves, retain_graph=True, allow_unused=name == "exp_map0")
        assert values.dtype == precision and torch.isfinite(values).all()
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("precision", EPSILON)
def test_coinciding_points(precision: torch.dtype) -> None:
    x = lorentz.exp_map0(torch.tensor(list(ROWS.values())[:7], dtype=precision)).requires_grad_()
    for values in (
        lorentz.paired_distance(x, x.detach()),
        lorentz.paired_excess(x.detach(), x),
        lorentz.distance(x, x.detach()).diagonal(),
        lorentz.squared_distance(x, x.detach()).diagonal(),
    ):
        (gradient,) = torch.autograd.grad(values.sum(), x)
        assert (values == 0).all() and (gradient == 0).all()


@pytest.mark.parametrize("precision", EPSILON)
def test_rounding_never_leaves_the_ranges(precision: torch.dtype) -> None:
    origin = torch.zeros(1, 3, dtype=precision)
    for k in np.geomspace(0.1, 10, 200).tolist():  # 1 / (K t²) is more than 1 in the last digit for some of these
        assert 1 - 1e-6 < lorentz.uncertainty(origin, curvature=k).item() <= 1
    u = tangents(100, 0, 9.0).to(precision)
    x, y = lorentz.exp_map0(u), lorentz.exp_map0(u * (1 + 1e-6))  # |Δs| and |Δt| agree in all their digits
    assert (lorentz.paired_excess(x, y) >= 0).all() and (lorentz.excess(x, y) >= 0).all()
    assert (lorentz.distance(x, y) >= 0).all()


def test_a_curvature_in_float64_promotes_nothing() -> None:
    x, k = torch.tensor([0.3, 0.4]), torch.tensor(0.5, dtype=torch.float64)
    for name in SINGLE:
        assert getattr(lorentz, name)(x, curvature=k).dtype == torch.float32
    for name in PAIRED:
        assert getattr(lorentz, name)(x, -x, curvature=k).dtype == torch.float32
    assert lorentz.centroid(lorentz.ambient(x, curvature=k), curvature=k).dtype == torch.float32


def test_the_direction_survives_where_the_length_is_held() -> None:
    x = lorentz.exp_map0(torch.tensor([[3e19, -4e19], [30.0, -40.0]]), curvature=4.0)
    torch.testing.assert_close(x, torch.tensor([[0.6, -0.8]]).expand(2, 2) * 2.0**15 / 2)


def test_curvature_may_be_learned() -> None:
    u, v = tangents(5, 0, 1.0), tangents(5, 1, 1.0)
    k = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def everything(k: torch.Tensor) -> torch.Tensor:
        x, y = lorentz.exp_map0(u, curvature=k), lorentz.exp_map0(v, curvature=k)
        parts = [getattr(lorentz, name)(x, y, curvature=k).sum() for name in [*PAIRED, *PAIRWISE]]
        parts += [getattr(lorentz, name)(x, curvature=k).sum() for name in SINGLE]
        return torch.stack([*parts, lorentz.centroid(lorentz.ambient(x, curvature=k), curvature=k).sum()])

    assert torch.autograd.gradcheck(everything, k)
    torch.testing.assert_close(everything(k.detach()), everything(0.7))


def ranked_by_inner_products(u: torch.Tensor, k: float, queries: int) -> tuple[torch.Tensor, ...]:
    """Rank a float32 gallery by its index form: for every query the ranking, and float64 excess, distance and bound.

    The bound is K t t' of query and item: what their inner product is rounded at.
    """
    points = lorentz.exp_map0(u, curvature=k).float()
    space = Lorentz(u.shape[1], k)
    asking, answering = (
        torch.from_numpy(space.index_form(rows.numpy(), side))
        for rows, side in ((points[:queries], "query"), (points[queries:], "gallery"))
    )
    ranking = (asking @ answering.T).argsort(dim=1, descending=True, stable=True)
    asked, kept = points[:queries].double(), points[queries:].double()  # the points as they are stored
    sizes = k * lorentz.time(asked, curvature=k)[:, None] * lorentz.time(kept, curvature=k)
    exact = lorentz.excess(asked, kept, curvature=k), lorentz.distance(asked, kept, curvature=k), sizes
    return ranking, *(values.gather(1, ranking) for values in exact)


def swaps(ranked: torch.Tensor, top: int = 10) -> torch.Tensor:
    """By how much each of the first results (Q, top) exceeds the smallest one ranked behind it; 0 for a right order."""
    return (ranked - ranked.flip(1).cummin(dim=1).values.flip(1))[:, :top]


@pytest.mark.parametrize("k", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("clipped", [True, False], ids=["clipped", "from the origin on"])
def test_inner_products_in_float32_rank_as_distances_do(k: float, clipped: bool) -> None:
    """Of 10,000 random points with tangent norms up to 2.4, clipped there as encoders do, or spread evenly from the
    origin on, every swapped pair of the top 10 differs by less than 1e-5."""
    generator = torch.Generator().manual_seed(0)
    u = 2.4 * torch.randn(10_050, 64, generator=generator, dtype=torch.float64) / 8
    lengths = u.norm(dim=1, keepdim=True)
    u = u * (2.4 / lengths).clamp_max(1)
    if not clipped:
        u = u / u.norm(dim=1, keepdim=True) * 2.4 * torch.rand(10_050, 1, generator=generator, dtype=torch.float64)
    ranking, _, distances, _ = ranked_by_inner_products(u, k, 50)
    assert swaps(distances).max() < 1e-5
    # the same statement by position, against the exact ranking
    exact = distances.sort(dim=1).values[:, :10]
    assert (distances[:, :10] - exact).abs().max() < 1e-5
    assert (ranking.sort(dim=1).values == torch.arange(10_000)).all()


@pytest.mark.parametrize("k", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("longest", [0.5, 2.4, 4.0])
def test_what_inner_products_in_float32_can_tell_apart(k: float, longest: float) -> None:
    """With norms from 0 up some pairs all but coincide; their excess is known to 1e-6 of K t t', never better."""
    _, excess, _, sizes = ranked_by_inner_products(tangents(10_050, 3, longest / k**0.5, dim=64), k, 50)
    assert (swaps(excess) <= 1e-6 * sizes[:, :10]).all()
