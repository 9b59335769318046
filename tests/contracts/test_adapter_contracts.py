"""What every adapter promises, run over all of `ADAPTERS`; and that a broken one is found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.adapters import ADAPTERS, build_adapter
from holdfast.adapters.procrustes import Procrustes
from holdfast.adapters.storage import load_adapter, save_adapter
from holdfast.testing import Check, adapter_contract, failures
from holdfast.testing.adapters import eighty_items

CHECKS = [pytest.param(check, id=f"{name}-{check}") for name in sorted(ADAPTERS) for check in adapter_contract(name)]


@pytest.mark.parametrize("check", CHECKS)
def test_every_adapter_keeps_its_promises(check: Check) -> None:
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

    def transform(self, rows: Any) -> Any:
        return super().transform(rows) + 0.1 * np.random.normal(size=(len(rows), 1))  # noqa: NPY002


def test_a_broken_adapter_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADAPTERS, "noisy", Noisy)
    broken = {failure.check.promise for failure in failures(adapter_contract("noisy"))}
    assert {"the same fit twice and no global randomness", "a row is mapped alike alone and in company"} <= broken
