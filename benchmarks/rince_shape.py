"""What RINCE makes of a pair's distance, for several exponents: Figure 4 of HBCT.

A new embedding at a geodesic distance from its old one, and one negative at a distance of 4; beta 0.01, temperature 1
(the paper's Eq. 12 has none). The pull is the length of the loss's gradient by the distance; InfoNCE is the limit of an
exponent of 0. The larger the exponent, the uncertainty of the old embedding, the less a distant pair pulls, and the
more one that is very close. It is computed by the loss that `hbct` trains with.

    python benchmarks/rince_shape.py            # writes benchmarks/results/rince_shape.txt and .svg
"""

from __future__ import annotations

from pathlib import Path

import torch

from limpet.methods.hbct import info_nce, robust_contrast

EXPONENTS = (0.0, 0.1, 0.2384, 0.5, 1.0)  # the third: the least uncertainty that hbct knows, 1 - tanh 1
NEGATIVE, BETA = 4.0, 0.01
DISTANCES = torch.linspace(0.0, 5.0, 101, dtype=torch.float64)
TOLD = range(0, 101, 10)
RESULTS = Path(__file__).parent / "results"


def curve(exponent: float, distances: torch.Tensor) -> tuple[list[float], list[float]]:
    """Return the loss and the pull of a pair at every distance, for one exponent; 0 is InfoNCE."""
    asked = distances.clone().requires_grad_()
    losses = [row(exponent, -distance) for distance in asked]
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), asked)
    return [loss.item() for loss in losses], gradient.abs().tolist()


def row(exponent: float, similarity: torch.Tensor) -> torch.Tensor:
    positive = similarity[None]
    scores = torch.stack([similarity, similarity.new_tensor(-NEGATIVE)])[None]
    if exponent == 0:
        return info_nce(positive, scores)
    return robust_contrast(positive, scores, similarity.new_tensor([exponent]), BETA)


def name_of(exponent: float) -> str:
    return f"q = {exponent:g}" if exponent else "InfoNCE"


def table(curves: dict[float, tuple[list[float], list[float]]]) -> str:
    names = [name_of(exponent) for exponent in curves]
    lines = ["negative at 4, beta 0.01; loss, then pull, by the distance of the pair"]
    for part in range(2):
        lines += ["", "distance  " + "".join(f"{name:>12}" for name in names)]
        lines += [
            f"{DISTANCES[at].item():8.1f}  " + "".join(f"{found[part][at]:12.4f}" for found in curves.values())
            for at in TOLD
        ]
    return "\n".join(lines) + "\n"


def draw(curves: dict[float, tuple[list[float], list[float]]], path: Path) -> None:
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "rince", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for part, (axis, title) in enumerate(zip(axes, ("loss", "pull"), strict=True)):
            for shade, (exponent, found) in zip(
                torch.linspace(0, 0.85, len(curves)).tolist(), curves.items(), strict=True
            ):
                axis.plot((-DISTANCES).tolist(), found[part], label=name_of(exponent), color=plt.cm.viridis(shade))
            axis.set(xlabel="minus the distance of the pair", title=title)
        axes[1].legend()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    curves = {exponent: curve(exponent, DISTANCES) for exponent in EXPONENTS}
    RESULTS.joinpath("rince_shape.txt").write_text(table(curves), encoding="utf-8")
    draw(curves, RESULTS / "rince_shape.svg")


if __name__ == "__main__":
    main()
