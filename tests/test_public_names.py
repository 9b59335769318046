from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import limpet

LAZY = (
    "limpet",
    "limpet.cli.toolkit",
    *(f"limpet.{name}" for name in ["data", "evaluation", "methods", "models", "support", "testing", "training"]),
)


def test_names_that_load_on_first_use_are_sorted_complete_and_load() -> None:
    for module in map(import_module, LAZY):
        names = module.__all__
        assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        assert set(dir(module)) == set(names)
        for name in names:
            assert getattr(module, name) is not None
        assert not hasattr(module, "nothing")


def test_the_names_other_code_relies_on() -> None:
    expected = {"METHODS", "EmbeddingSet", "load_release", "fit", "encode", "evaluate"}
    assert expected <= set(limpet.__all__)
    from limpet.evaluation import compatibility, retrieval

    for module, names in (
        (compatibility, ["p_up", "p_comp", "p_score", "compatibility_matrix", "average_compatibility",
                         "negative_flip_rate"]),
        (retrieval, ["rank_metrics"]),
    ):  # fmt: skip
        assert all(callable(getattr(module, name)) for name in names)


def public_parameters(names: list[str], home: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters of functions, classes and public methods, each with the name of what takes it."""
    for name in names:
        thing = getattr(home, name)
        inside = [one for one in dir(thing) if not one.startswith("_")] if inspect.isclass(thing) else []
        for called, one in ((name, thing), *((f"{name}.{method}", getattr(thing, method)) for method in inside)):
            if inspect.isclass(one) or inspect.isfunction(inspect.unwrap(getattr(one, "__func__", one))):
                yield from ((called, parameter) for parameter in inspect.signature(one).parameters)


def test_what_draws_takes_a_seed_by_that_name() -> None:
    found = list(public_parameters(limpet.__all__, limpet))
    found += [(name, option) for name, one in limpet.ADAPTERS.items() for option in inspect.signature(one).parameters]
    assert {("evaluate", "seed"), ("adapt", "seed"), ("fit", "seed"), ("residual_mlp", "seed")} <= set(found)
    assert not [one for one in found if one[1] in ("random_state", "random_seed", "rng")]
