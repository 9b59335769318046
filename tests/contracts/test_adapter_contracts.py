"""What every adapter promises, run over all of `ADAPTERS`; and that a broken one is found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.adapters import ADAPTERS, build_adapter
from limpet.adapters.procrustes import Procrustes
from limpet.adapters.storage import load_adapter, save_adapter
from limpet.errors import ConfigError
from limpet.testing import adapter_contract, failures
from limpet.testing.adapters import eighty_items


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_every_adapter_keeps_its_promises(name: str, subtests: pytest.Subtests) -> None:
    for check in adapter_contract(name):
        with subtests.test(str(check)):
            check()


def test_numbers_of_numpy_are_options_as_well(tmp_path) -> None:
    sets = eighty_items()
    adapter = build_adapter("ridge", {"penalty": np.float32(0.5)}).fit(*sets)
    assert adapter.options == {"penalty": 0.5}
    assert adapter.fingerprint == build_adapter("ridge", {"penalty": 0.5}).fit(*sets).fingerprint
    assert load_adapter(save_adapter(adapter, tmp_path / "adapter")).options == {"penalty": 0.5}


class Noisy(Procrustes):
    """Adds noise that nobody seeded.

    Args:
        direction: Which way.
        centre: No matter.
    """

    kind = "noisy"

    def images(self, rows: Any) -> Any:
        return super().images(rows) + 0.1 * np.random.normal(size=(len(rows), 1))  # noqa: NPY002


def test_a_broken_adapter_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADAPTERS, "noisy", Noisy)
    broken = {failure.check.promise for failure in failures(adapter_contract("noisy"))}
    assert {"the same fit twice and no global randomness", "a row is mapped alike alone and in company"} <= broken


def test_scikit_learn_clones_searches_and_pipes_adapters() -> None:
    """The package itself, on every adapter."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.utils.validation import check_is_fitted

    old, new = (side.vectors for side in eighty_items())
    for name in ADAPTERS:
        adapter = build_adapter(name, {**ADAPTERS[name].quick, "direction": "old_to_new"}).fit(new, old)
        again = clone(adapter)
        with pytest.raises(ConfigError, match="not fitted"):
            again.transform(new)
        assert again.get_params() == adapter.get_params() and again.fit(new, old).fingerprint == adapter.fingerprint
        np.testing.assert_array_equal(clone(adapter).fit_transform(new, old), adapter.transform(new))
        check_is_fitted(adapter)
        pipeline = make_pipeline(FunctionTransformer(lambda rows: rows * 2), clone(adapter)).fit(new, old)
        np.testing.assert_allclose(pipeline.transform(new), adapter.transform(new), atol=1e-5)
