"""What comparisons try of each method: equally many values, those that its paper took or tried among them."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from limpet.methods import METHODS, build_method
from limpet_bench.run import space_of, trials_of
from limpet_bench.suite import Suite
from limpet_bench.suites import SUITES

from .shipped import EVERY

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tuning_grids.py"
TUNED = [name for name in SUITES if EVERY[name].tuning is not None]
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
    suite = EVERY[name]
    rows = [label for label in suite.methods if label != "independent" and suite.methods[label].search != {}]
    assert {len(trials_of(space_of(suite, label), budget_of(suite))) for label in rows} == {budget_of(suite)}
    for label in rows if not name.startswith(("hbct-table", "cvs-table")) else ():  # ranges of their papers
        method = suite.methods[label].method or label
        option, space = METHODS[method].balance or "", space_of(suite, label)
        tried = space.get(f"options.{option}", [suite.methods[label].options.get(option, default_of(method, option))])
        assert default_of(method, option) in tried, label


@pytest.mark.parametrize("name", ["hbct-table-1", "hbct-table-6"])
def test_rivals_of_hbct_have_weights_up_to_one_and_two_temperatures(name: str) -> None:
    """Section 5.1 of HBCT; in the convex sum of hoc, a weight w is a share of 1 / (1 + w), and its scale is 1 / τ."""
    weight_of = {"l2": ("weight", lambda value: value / 128), "hoc": ("task_share", lambda value: 1 / value - 1)}
    suite = EVERY[name]
    for label in suite.methods:
        if label == "independent":
            continue
        option, told = weight_of.get(label, ("weight", float))
        tried = {key.removeprefix("options."): values for key, values in space_of(suite, label).items()}
        weights = sorted(told(value) for value in tried.pop(option))
        even = [(at + 1) / len(weights) for at in range(len(weights))]
        assert weights == pytest.approx(even, abs=2e-4), label
        temperatures = [*tried.pop("temperature", []), *(1 / scale for scale in tried.pop("scale", []))]
        assert tried == {} and temperatures == ([0.5, 1.0] if label in ("hot_refresh", "hoc") else []), label


def budget_of(suite: Suite) -> int:
    assert suite.tuning is not None
    return suite.tuning.budget


def test_suites_of_hbct_compare_on_equal_terms() -> None:
    """Every method sees the same images and the same old view of them, through the same network, on either space."""
    suites = [EVERY[name] for name in ("hbct-table-1", "hbct-table-1-hyperbolic")]
    for suite in (*suites, EVERY["hbct-figure-5"]):
        assert {row.recipe.get("old_view", "same") for row in suite.methods.values()} == {"same"}
        assert suite.recipe["old_view"] == "same"
    euclidean, hyperbolic = suites
    assert euclidean.recipe == hyperbolic.recipe and euclidean.scenarios == hyperbolic.scenarios
    shared = {key: value for key, value in hyperbolic.model.items() if key != "zeta"}
    assert euclidean.model == shared
