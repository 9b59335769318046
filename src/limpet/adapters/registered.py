"""Adapters by name."""

from __future__ import annotations

from collections.abc import Mapping

from limpet.adapters.base import Adapter
from limpet.adapters.lambda_orthogonal import LambdaOrthogonal
from limpet.adapters.local import Local
from limpet.adapters.low_rank import LowRank
from limpet.adapters.mean_drift import MeanDrift
from limpet.adapters.procrustes import Procrustes
from limpet.adapters.residual_mlp import ResidualMLP
from limpet.adapters.ridge import Ridge
from limpet.registry import Registry
from limpet.support.options import bound

ADAPTERS: Registry[type[Adapter]] = Registry(
    "adapter",
    "adapters",
    {
        "procrustes": Procrustes,
        "ridge": Ridge,
        "low_rank": LowRank,
        "mean_drift": MeanDrift,
        "lambda_orthogonal": LambdaOrthogonal,
        "local": Local,
        "residual_mlp": ResidualMLP,
    },
    fits=lambda thing: isinstance(thing, type) and issubclass(thing, Adapter),
    expected="a subclass of limpet.adapters.base.Adapter",
)


def build_adapter(name: str, options: Mapping[str, object]) -> Adapter:
    """Build an adapter by name; its direction is one of the options.

    Raises:
        ConfigError: The name or an option is unknown, and the nearest known one is suggested; or a value is wrong.
    """
    adapter = ADAPTERS[name]
    return adapter(**bound(adapter, options, f"adapter '{name}'"))
