"""Label-free maps between the finished embeddings of two frozen models, fitted on the same items embedded by both.

Where no compatible model can be trained, a map is the other way to search one model's gallery with another one's
queries. `ridge`, for instance, takes seconds on a CPU::

    adapter = build_adapter("ridge", {"direction": "new_to_old"}).fit(old, new)  # two EmbeddingSets, paired by id
    queries = adapter.apply(new_queries)  # points of the old model's space, to search the old gallery with
    print(adapter.report.sentences())  # what was odd about the pairs

Plain arrays will do, in scikit-learn's manner: row i of both is one item, and the first is what is mapped::

    old_queries = build_adapter("ridge", {}).fit(new_rows, old_rows).transform(new_queries)  # one query (D,), or many

Before trusting a map, `suspect_pairs(old, new)` tells which share of the pairs does not belong together, and
`limpet evaluate` what the mapped queries find. A map never equals embedding anew; how far it falls short depends on
the two models.

`limpet.adapters.storage` saves and loads adapters. A `ScoreMap` carries scores, such as a threshold, from one system
to another. All of this imports without torch; only fitting `residual_mlp` and
`fastfill` needs it. Vectors and adapters are as
sensitive as what was embedded: both may be inverted.
"""

from __future__ import annotations

from collections.abc import Mapping

from limpet.adapters.base import Adapter
from limpet.adapters.fastfill import FastFill
from limpet.adapters.lambda_orthogonal import LambdaOrthogonal
from limpet.adapters.local import Local
from limpet.adapters.low_rank import LowRank
from limpet.adapters.mean_drift import MeanDrift
from limpet.adapters.pairs import Direction, PairReport, SuspectPairs, suspect_pairs
from limpet.adapters.procrustes import Procrustes
from limpet.adapters.residual_mlp import ResidualMLP
from limpet.adapters.ridge import Ridge
from limpet.adapters.score_map import ScoreMap
from limpet.registry import Registry
from limpet.support.options import bound

__all__ = [
    "ADAPTERS",
    "Adapter",
    "Direction",
    "PairReport",
    "ScoreMap",
    "SuspectPairs",
    "build_adapter",
    "suspect_pairs",
]

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
        "fastfill": FastFill,
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
