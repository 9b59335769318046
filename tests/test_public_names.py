from __future__ import annotations

import holdfast


def test_all_is_sorted_complete_and_loads() -> None:
    assert holdfast.__all__ == sorted(holdfast.__all__, key=lambda name: (not name.isupper(), name))
    assert set(holdfast.__all__) == set(holdfast._HOMES)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(dir(holdfast)) >= set(holdfast.__all__)


def test_the_names_other_code_relies_on() -> None:
    expected = {"METHODS", "EmbeddingSet", "load_release", "fit", "encode", "evaluate"}
    assert expected <= set(holdfast.__all__)
    from holdfast.evaluation import compatibility, retrieval

    for module, names in (
        (compatibility, ["p_up", "p_comp", "p_score", "compatibility_matrix", "average_compatibility",
                         "negative_flip_rate"]),
        (retrieval, ["rank_metrics"]),
    ):  # fmt: skip
        assert all(callable(getattr(module, name)) for name in names)
