"""Label-free maps between the embeddings of two frozen models, fitted on the same items embedded by both.

If no compatible model can be trained, a map lets the queries of one model search the gallery of another. `ridge`, for
instance, takes seconds on a CPU::

    adapter = build_adapter("ridge", {"direction": "new_to_old"}).fit(old, new)  # two EmbeddingSets, paired by id
    queries = adapter.apply(new_queries)  # points of the old model's space, to search the old gallery with
    print(adapter.report.sentences())  # what was odd about the pairs

Plain arrays also work, as in scikit-learn: row i of both is one item, and the first array is mapped::

    old_queries = build_adapter("ridge", {}).fit(new_rows, old_rows).transform(new_queries)  # one query (D,), or many

Before relying on a map, run `suspect_pairs(old, new)`, which estimates the share of mismatched pairs, and `limpet
evaluate`, which measures retrieval with mapped queries. A map is always worse than re-embedding; the loss depends on
the two models.

`limpet.adapters.storage` saves and loads adapters. A `ScoreMap` carries scores, such as a threshold, from one system
to another. All of this imports without torch; only fitting `residual_mlp`
needs it. Vectors and adapters are as sensitive as the embedded data: both may be inverted.
"""

from __future__ import annotations

from limpet.adapters.base import Adapter, AdapterStorage, State
from limpet.adapters.moments import Floats, PairedVectors
from limpet.adapters.pairs import Direction, PairReport, SuspectPairs, suspect_pairs
from limpet.adapters.registered import ADAPTERS, build_adapter
from limpet.adapters.score_map import ScoreMap

__all__ = [
    "ADAPTERS",
    "Adapter",
    "Direction",
    "Floats",
    "PairReport",
    "PairedVectors",
    "ScoreMap",
    "State",
    "SuspectPairs",
    "build_adapter",
    "suspect_pairs",
]


def _storage() -> AdapterStorage:
    from limpet.adapters import storage  # here: SciPy and pydantic take longer to import than all the rest

    return storage


Adapter.storage = staticmethod(_storage)
