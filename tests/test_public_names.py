from __future__ import annotations

import limpet


def test_all_is_sorted_complete_and_loads() -> None:
    assert limpet.__all__ == sorted(limpet.__all__, key=lambda name: (not name.isupper(), name))
    assert set(limpet.__all__) == set(limpet._HOMES)
    for name in limpet.__all__:
        assert getattr(limpet, name) is not None
    assert set(dir(limpet)) >= set(limpet.__all__)


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
