from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import limpet
from limpet.errors import ConfigError

ROOT = Path(__file__).parents[1]

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


def functions() -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Yield every function and method of both packages, with its module and its name there."""
    for root in (ROOT / "src", ROOT / "bench/src"):
        for path in sorted(root.rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            homes = [("", ast.parse(path.read_text("utf-8")))]
            homes += [(f"{one.name}.", one) for one in homes[0][1].body if isinstance(one, ast.ClassDef)]
            for inside, home in homes:
                yield from (
                    (module, f"{inside}{one.name}", one) for one in home.body if isinstance(one, ast.FunctionDef)
                )


def parameters(function: ast.FunctionDef) -> dict[str, str]:
    """Return the annotations of all parameters by name."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return {one.arg: ast.unparse(one.annotation) if one.annotation else "" for one in every}


def test_what_draws_takes_a_seed_and_what_takes_long_shows_progress_by_these_names() -> None:
    found = [(module, name, set(parameters(one))) for module, name, one in functions()]
    for taking, name in [("seed", "evaluate"), ("seed", "adapt"), ("seed", "fit"), ("progress", "Gallery.upsert")]:
        assert any(called == name and taking in given for _, called, given in found), (name, taking)
    other = {"random_state", "random_seed", "rng_seed", "on_step", "on_batch", "callback", "show_progress"}
    assert not [one for one in found if one[2] & other]
    options = [(name, option) for name, one in limpet.ADAPTERS.items() for option in inspect.signature(one).parameters]
    assert ("residual_mlp", "seed") in options and not [one for one in options if one[1] in other]


def test_an_unknown_bar_is_refused_before_anything_else() -> None:
    showing = [
        (module, name) for module, name, one in functions()
        if any(given.arg == "progress" and "Progress[" in ast.unparse(given) for given in one.args.kwonlyargs)
        and not re.search(r"(^|\.)_|\bcli\b|OpenGallery|upgrade\.base\.Upgrade\.", f"{module}.{name}")
    ]  # fmt: skip
    assert len(showing) > 20
    for module, name in showing:
        function = attrgetter(name)(import_module(module))
        with pytest.raises(ConfigError, match="progress='bar' is unknown"):
            function(progress="bar")
