"""What every method, adapter, space, store and metric promises, as checks to run on one of your own.

In a test of your package, each check is a test by itself::

    @pytest.mark.parametrize("check", method_contract("class_pull"), ids=str)
    def test_contract(check):
        check()

``limpet methods check class_pull`` runs the same checks without pytest. `limpet.testing.samples` makes the small
steps and predecessors that the checks, and tests of your own, are made of.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.testing.adapters import adapter_contract
    from limpet.testing.contract import Check, Failure, failures
    from limpet.testing.methods import method_contract
    from limpet.testing.metrics import metric_contract
    from limpet.testing.spaces import space_contract
    from limpet.testing.stores import store_contract

_HOMES = {
    "Check": "contract",
    "Failure": "contract",
    "adapter_contract": "adapters",
    "failures": "contract",
    "method_contract": "methods",
    "metric_contract": "metrics",
    "space_contract": "spaces",
    "store_contract": "stores",
}

__all__ = [
    "Check",
    "Failure",
    "adapter_contract",
    "failures",
    "method_contract",
    "metric_contract",
    "space_contract",
    "store_contract",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'limpet.testing' has no attribute '{name}'")
    return getattr(import_module(f"limpet.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
