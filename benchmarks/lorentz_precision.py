"""How far from the origin float32 still ranks a Lorentz gallery by inner products.

The larger the inner product of a query and a gallery row in `Lorentz.index_form`, the closer they are. It is about
cosh² of the radius, of which close points differ in the last digits: somewhere float32 runs out of them. Three
galleries of 10,000 points in 64 dimensions, 200 queries, K = 1 (for another curvature read radius and distance as √K
times theirs):

- clipped: normal tangent vectors of lengths around the radius, clipped to it as HBCT's encoder does; queries alike.
- random: directions at random, radii uniform from 0 up to the given one; queries alike.
- clustered: 1,000 centres at the given radius, each with five points at a geodesic distance of 0.08 to 0.12 from it and
  five at 0.4 to 0.6; queries are centres.

The truth is the hyperbolic law of cosines in float64, δ = 2 sinh²(Δr / 2) + sinh r sinh r' |Δû|² / 2, which loses no
digits at any radius.

    python benchmarks/lorentz_precision.py            # writes benchmarks/results/lorentz_precision.json and .txt
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limpet.geometry import Lorentz, lorentz
from machine import describe

RADII = (0.5, 1.0, 1.2, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0)
POINTS, QUERIES, DIM, CENTRES, TOP, SEEDS = 10_000, 200, 64, 1_000, 10, 3
EXACT, BROKEN = 1e-5, 0.01
RESULTS = Path(__file__).parent / "results"

Polar = tuple[torch.Tensor, torch.Tensor]  # radii (N,) and unit directions (N, D), float64


def directions(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(count, DIM, generator=generator, dtype=torch.float64))


def uniform(count: int, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)


def clipped_gallery(radius: float, generator: torch.Generator) -> tuple[Polar, Polar]:
    tangents = radius * torch.randn(POINTS + QUERIES, DIM, generator=generator, dtype=torch.float64) / DIM**0.5
    lengths = tangents.norm(dim=1)
    return split(lengths.clamp_max(radius), tangents / lengths[:, None])


def random_gallery(radius: float, generator: torch.Generator) -> tuple[Polar, Polar]:
    count = POINTS + QUERIES
    return split(uniform(count, 0.0, radius, generator), directions(count, generator))


def split(radii: torch.Tensor, units: torch.Tensor) -> tuple[Polar, Polar]:
    return (radii[:QUERIES], units[:QUERIES]), (radii[QUERIES:], units[QUERIES:])


def clustered_gallery(radius: float, generator: torch.Generator) -> tuple[Polar, Polar]:
    """Walk from every centre in random directions, by the laws of cosines and of sines."""
    units, owners = directions(CENTRES, generator), torch.arange(POINTS) % CENTRES
    near = torch.arange(POINTS) < POINTS // 2
    walked = torch.where(near, 0.1, 0.5) * uniform(POINTS, 0.8, 1.2, generator)
    heading = directions(POINTS, generator)
    outward = heading[:, 0]  # cosine of the angle to the ray from the origin
    centre = torch.full((POINTS,), radius, dtype=torch.float64)
    radii = (centre.cosh() * walked.cosh() + centre.sinh() * walked.sinh() * outward).acosh()
    sines = walked.sinh() * (1 - outward.square()).sqrt() / radii.sinh()
    axes = units[owners]
    across = torch.nn.functional.normalize(heading - (heading * axes).sum(dim=1, keepdim=True) * axes)
    turned = (1 - sines.square()).sqrt()[:, None] * axes + sines[:, None] * across
    return (torch.full((QUERIES,), radius, dtype=torch.float64), units[:QUERIES]), (radii, turned)


GALLERIES = {"clipped": clipped_gallery, "random": random_gallery, "clustered": clustered_gallery}


def true_distances(queries: Polar, gallery: Polar) -> torch.Tensor:
    (radii, units), (others, other_units) = queries, gallery
    chords = torch.cdist(units, other_units, compute_mode="donot_use_mm_for_euclid_dist")
    radial = ((radii[:, None] - others) / 2).sinh().square()
    delta = 2 * radial + radii.sinh()[:, None] * others.sinh() * chords.square() / 2
    return 2 * (delta / 2).sqrt().asinh()


def stored(points: Polar) -> torch.Tensor:
    """Return space components as a gallery keeps them: float32."""
    return (points[0].sinh()[:, None] * points[1]).float()


def polar(points: torch.Tensor) -> Polar:
    lengths = points.double().norm(dim=1)
    return lengths.asinh(), points.double() / lengths[:, None]


def worst_swap(scores: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    """Compare the top of a ranking by scores (Q, N) with that by true distances (Q, N).

    A pair is swapped when a result within the top is followed by a closer one, anywhere: "difference" and "share" are
    the largest difference of such distances, and the largest one over the smaller distance.
    """
    top = scores.topk(TOP, dim=1).indices
    ranked, exact = truth.gather(1, top), truth.topk(TOP, dim=1, largest=False).values
    rest = truth.scatter(1, top, torch.inf).amin(dim=1, keepdim=True)
    closest_after = torch.cat([ranked, rest], dim=1).flip(1).cummin(dim=1).values.flip(1)[:, 1:]
    swap = (ranked - closest_after).clamp_min(0)
    return {
        "difference": swap.max().item(),
        "share": (swap / closest_after).max().item(),
        "sets": (ranked.max(dim=1).values > exact[:, -1]).double().mean().item(),
        "orders": (ranked != exact).any(dim=1).double().mean().item(),
    }


def measure(kind: str, radius: float, seed: int) -> dict[str, dict[str, float]]:
    queries, gallery = GALLERIES[kind](radius, torch.Generator().manual_seed(seed))
    asked, kept = stored(queries), stored(gallery)
    space = Lorentz(DIM)
    products = torch.from_numpy(space.index_form(asked.numpy(), "query") @ space.index_form(kept.numpy(), "gallery").T)
    truth = true_distances(polar(asked), polar(kept))
    return {
        "index": worst_swap(products, truth),
        "index and storage": worst_swap(products, true_distances(queries, gallery)),
        "distance": worst_swap(-lorentz.distance(asked, kept), truth),
    }


def summary(kind: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for radius in RADII:
        runs = [measure(kind, radius, seed) for seed in range(SEEDS)]
        rows[str(radius)] = {
            form: {
                name: (max if name in ("difference", "share") else np.mean)([run[form][name] for run in runs])
                for name in runs[0][form]
            }
            for form in runs[0]
        }
    return rows


def last_before(rows: dict[str, Any], name: str, bound: float) -> str:
    """Say up to which radius the index form stays below a bound."""
    exceeded = next((float(radius) for radius, row in rows.items() if row["index"][name] >= bound), None)
    if exceeded is None:
        return "at every radius"
    below = [radius for radius in RADII if radius < exceeded]
    return f"up to radius {below[-1]:g}" if below else f"at none, not even at {RADII[0]:g}"


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = [record["machine"], ""]
    for kind, rows in record["galleries"].items():
        lines += [
            kind,
            f"{'radius':>7}{'swapped':>10}{'share':>9}{'sets':>8}{'orders':>8}{'stored':>10}{'distance':>10}",
        ]
        lines += [_line(float(radius), row) for radius, row in rows.items()] + [""]
    return [*lines, *_notes(record["seconds"]), "", *(_verdict(*item) for item in record["galleries"].items())]


def _line(radius: float, row: dict[str, Any]) -> str:
    found = row["index"]
    return (
        f"{radius:>7g}{found['difference']:>10.1e}{found['share']:>9.2%}{found['sets']:>8.1%}{found['orders']:>8.1%}"
        f"{row['index and storage']['difference']:>10.1e}{row['distance']['difference']:>10.1e}"
    )


def _notes(seconds: float) -> list[str]:
    return [
        f"{POINTS:,} points, {QUERIES} queries, {DIM} dimensions, {SEEDS} seeds, K = 1; {seconds:.0f} s.",
        f"A pair is swapped when a result of the top {TOP} is followed by a closer one.",
        "swapped: largest difference of such distances, ranked by float32 inner products, against float64 distances of",
        "the same float32 points. share: largest such difference over the smaller distance. sets, orders: share of",
        f"queries whose top {TOP} has other members, or another order. stored: as swapped, against the points before",
        "their rounding to float32. distance: as swapped, ranked by float32 `lorentz.distance`, not the inner product.",
        "",
        "Inner products of about cosh r cosh r' are rounded at 1e-6 of that, and distances d at this over sinh d.",
    ]


def _verdict(kind: str, rows: dict[str, Any]) -> str:
    return (
        f"{kind}: every swapped pair differs by less than {EXACT:g} {last_before(rows, 'difference', EXACT)},\n"
        f"  by less than {BROKEN:.0%} of its distance {last_before(rows, 'share', BROKEN)}."
    )


def main() -> None:
    began = time.perf_counter()
    galleries = {kind: summary(kind) for kind in GALLERIES}
    record = {"machine": describe(), "seconds": time.perf_counter() - began, "galleries": galleries}
    (RESULTS / "lorentz_precision.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "lorentz_precision.txt").write_text("\n".join(lines_of(record)) + "\n")
    print("\n".join(lines_of(record)))


if __name__ == "__main__":
    main()
