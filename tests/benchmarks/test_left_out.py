"""What `limpet recommend` says of frozen models rests on a page that is made of the boards that come with it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
left_out = runpy.run_path(str(BENCHMARKS / "left_out.py"))
CASES = {
    ("s", "a"): {"x": 0.5, "y": 0.25, "z": 0.0},
    ("s", "b"): {"x": 0.0, "y": 0.5},
    ("s", "c"): {"x": 1.0, "y": 0.25},
}


def test_the_page_is_that_of_the_boards_that_are_shipped() -> None:
    assert left_out["page"]() == (BENCHMARKS / "results" / "left_out.md").read_text()


def test_a_row_is_taken_by_the_other_data_sets_alone() -> None:
    taken = left_out["led_elsewhere"](CASES)
    assert taken[("s", "b")] == "x", "first on a and c; z is no row of c"
    assert left_out["regret"](CASES, taken)[("s", "b")] == pytest.approx(0.5)
    assert left_out["regret"](CASES, dict.fromkeys(CASES, "z")) == {("s", "a"): 0.5}, "elsewhere z lost P_up"


def test_over_frozen_models_what_led_elsewhere_leads() -> None:
    sections = (BENCHMARKS / "results" / "left_out.md").read_text().split("## ")[1:]
    frozen = [section for section in sections if section.startswith("Heads and adapters over frozen models")]
    assert len(frozen) == 2
    for section in frozen:
        (found,) = [line for line in section.splitlines() if line.startswith("| what led elsewhere")]
        lost, mean, worst = (part.strip() for part in found.split("|")[2:5])
        assert lost == "0 of 6" and float(mean) < 0.01 and float(worst) < 0.05
