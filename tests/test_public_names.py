from __future__ import annotations

from importlib import import_module

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
