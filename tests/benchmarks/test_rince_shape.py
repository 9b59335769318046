"""Figure 4 of HBCT: which pairs pull, by the exponent of the contrast."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rince_shape.py"
curve = runpy.run_path(str(SCRIPT))["curve"]
EXPONENTS = (0.1, 0.25, 0.5, 1.0)


def pulls(distance: float) -> list[float]:
    return [curve(exponent, torch.tensor([distance], dtype=torch.float64))[1][0] for exponent in (0.0, *EXPONENTS)]


def test_an_uncertain_old_embedding_pulls_close_pairs_more_and_distant_ones_less() -> None:
    """The paper's caption, at the ends of its two ranges; between them the order of the exponents changes."""
    assert pulls(0.1) == sorted(pulls(0.1)) and pulls(4.5) == sorted(pulls(4.5), reverse=True)
    for distance in (0.5, 1.0, 2.0):
        infonce, *robust = pulls(distance)
        assert min(robust) > infonce


@pytest.mark.parametrize("distance", [0.5, 3.0])
def test_loss_and_pull_are_those_of_the_formula(distance: float) -> None:
    crowd = math.exp(-distance) + math.exp(-4.0)
    for q in EXPONENTS:
        (loss,), (pull,) = curve(q, torch.tensor([distance], dtype=torch.float64))
        assert loss == pytest.approx((-math.exp(-q * distance) + (0.01 * crowd) ** q) / q)
        slope = math.exp(-q * distance) - 0.01**q * crowd ** (q - 1) * math.exp(-distance)
        assert pull == pytest.approx(slope)
    (loss,), (pull,) = curve(0.0, torch.tensor([distance], dtype=torch.float64))
    assert loss == pytest.approx(math.log(crowd) + distance)
    assert pull == pytest.approx(1 - math.exp(-distance) / crowd)
