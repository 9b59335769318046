"""What comparisons try of each method: equally many values, those that its paper took or tried among them."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from limpet.methods import METHODS, build_method
from limpet_bench.run import trials_of
from limpet_bench.suite import Run, Suite
from limpet_bench.suites import SUITES

from .shipped import EVERY

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tuning_grids.py"
TUNED = [name for name in SUITES if any(run.search for run in EVERY[name].runs)]
SINGLE_UPGRADES = {name for name, kind in METHODS.items() if kind.balance is not None and not kind.sessions_only}


@pytest.fixture(scope="module")
def grids() -> ModuleType:
    """The grids of benchmarks/all_methods.py and hyperbolic.py."""
    spec = importlib.util.spec_from_file_location("tuning_grids", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def default_of(method: str, option: str) -> float:
    return float(inspect.signature(METHODS[method]).parameters[option].default)


def test_every_method_that_is_compared_has_a_grid(grids: ModuleType) -> None:
    independent = {name for name in SINGLE_UPGRADES if not METHODS[name].needs_old}
    assert set(grids.GRIDS) == set(grids.PUBLISHED) == SINGLE_UPGRADES - independent
    assert len({len(values) for values in grids.GRIDS.values()}) == 1
    assert all(len(set(values)) == len(values) and sorted(values) == list(values) for values in grids.GRIDS.values())


def test_grids_hold_the_values_of_the_papers(grids: ModuleType) -> None:
    for method, values in grids.GRIDS.items():
        option = METHODS[method].balance or ""
        assert default_of(method, option) in values, method
        assert set(grids.PUBLISHED[method]) <= set(values), method
        assert default_of(method, option) in grids.PUBLISHED[method], method
        for value in values:
            build_method(method, {option: value})


@pytest.mark.parametrize("name", TUNED)
def test_suites_try_as_many_values_of_every_method_the_papers_among_them(name: str) -> None:
    runs = tuned(EVERY[name])
    assert len({len(trials_of(run)) for run in runs} | {run.search.budget for run in runs if run.search}) == 1
    for run in runs if not name.startswith(("hbct-table", "cvs-table")) else ():  # ranges of their papers
        option = METHODS[run.method].balance or ""
        written = run.options.get(option, default_of(run.method, option))
        tried = grid_of(run).get(f"options.{option}", (written,))
        assert default_of(run.method, option) in tried, run.label


def tuned(suite: Suite) -> list[Run]:
    """Return the first run of every row that is tuned."""
    return [run for run in suite.rows.values() if run.search is not None]


def grid_of(run: Run) -> Mapping[str, tuple[float, ...]]:
    return run.search.grid if run.search else {}


@pytest.mark.parametrize("name", ["hbct-table-1", "hbct-table-6"])
def test_rivals_of_hbct_have_weights_up_to_one_and_two_temperatures(name: str) -> None:
    """Section 5.1 of HBCT; in the convex sum of hoc, a weight w is a share of 1 / (1 + w), and its scale is 1 / τ."""
    weight_of = {"l2": ("weight", lambda value: value / 128), "hoc": ("task_share", lambda value: 1 / value - 1)}
    for run in tuned(EVERY[name]):
        label = run.label
        option, told = weight_of.get(label, ("weight", float))
        tried = {key.removeprefix("options."): values for key, values in grid_of(run).items()}
        weights = sorted(told(value) for value in tried.pop(option))
        even = [(at + 1) / len(weights) for at in range(len(weights))]
        assert weights == pytest.approx(even, abs=2e-4), label
        temperatures = [*tried.pop("temperature", []), *(1 / scale for scale in tried.pop("scale", []))]
        assert tried == {} and temperatures == ([0.5, 1.0] if label in ("hot_refresh", "hoc") else []), label


def test_suites_of_hbct_compare_on_equal_terms() -> None:
    """Every method sees the same images and the same old view of them, through the same network, on either space."""
    euclidean, hyperbolic = (EVERY[name].runs for name in ("hbct-table-1", "hbct-table-1-hyperbolic"))
    for run in (*euclidean, *hyperbolic, *EVERY["hbct-figure-5"].runs):
        assert {training.recipe.old_view for training in (run.training, run.reference, run.before)} == {"same"}
    pairs = {run.place[:2]: run for run in euclidean}, {run.place[:2]: run for run in hyperbolic}
    assert pairs[0].keys() == pairs[1].keys()
    for place, run in pairs[0].items():
        other = pairs[1][place]
        assert run.training.recipe == other.training.recipe and run.scenario == other.scenario
        assert run.training.model == other.training.model.model_copy(update={"zeta": None})
