"""What every method, adapter, space, store, metric and upgrade promises, as checks to run on one of your own.

In a test of your package, each check is a test by itself::

    @pytest.mark.parametrize("check", method_contract("class_pull"), ids=str)
    def test_contract(check):
        check()

``limpet methods check class_pull`` runs the same checks without pytest. `limpet.testing.samples` makes the small
steps and predecessors that the checks, and tests of your own, are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.testing.adapters import adapter_contract
    from limpet.testing.contract import Check, Failure, failures
    from limpet.testing.methods import method_contract
    from limpet.testing.metrics import metric_contract
    from limpet.testing.spaces import space_contract
    from limpet.testing.stores import store_contract
    from limpet.testing.upgrades import upgrade_contract

__all__ = [
    "Check",
    "Failure",
    "adapter_contract",
    "failures",
    "method_contract",
    "metric_contract",
    "space_contract",
    "store_contract",
    "upgrade_contract",
]


__getattr__, __dir__ = on_first_use(__name__)
