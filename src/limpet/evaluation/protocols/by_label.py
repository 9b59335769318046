"""Items of the query's class answer it: the protocol of most retrieval benchmarks, with queries or leave-one-out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from limpet.embeddings import EmbeddingSet
from limpet.evaluation.protocols.base import Lists, RankingProtocol
from limpet.evaluation.ranking.engine import no_rows
from limpet.evaluation.retrieval import NoRelevant
from limpet.evaluation.sides import relevant_by_label


@dataclass(frozen=True, eq=False, kw_only=True)
class ByLabel(RankingProtocol):
    """Items of the query's class are relevant, compared by name where both sides have names (HBCT, In-shop, CIFAR).

    Use it for labelled items; it is the default.

    Args:
        leave_one_out: Ignore the gallery item with the id of the query.
        no_relevant: Score of a query without any relevant item.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, evaluate
    >>> vectors, labels = np.eye(6, dtype=np.float32) + 0.5, np.arange(6) % 2
    >>> items = [EmbeddingSet(vectors, model=name, labels=labels) for name in ("v1", "v2")]
    >>> evaluate(*items, protocol=ByLabel(leave_one_out=True)).protocol.name
    'labels'
    """

    name: ClassVar[str] = "labels"
    description: ClassVar[str] = "items of the query's class answer it"
    needs_labels: ClassVar[bool] = True

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of every query's class; nothing is ignored."""
        return Lists(relevant_by_label(query, gallery), no_rows(len(query)))


@dataclass(frozen=True, eq=False, kw_only=True)
class SeenClasses(ByLabel):
    """Recall of continual visual search: a query whose class is not in the gallery is a miss (CVS, AR@K).

    Use it when the gallery grows by sessions, and the classes of some queries are not in it yet.

    Args:
        leave_one_out: Ignore the gallery item with the id of the query.
        no_relevant: Score of a query without any relevant item.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, evaluate
    >>> vectors, labels = np.eye(6, dtype=np.float32) + 0.5, np.arange(6) % 2
    >>> items = [EmbeddingSet(vectors, model=name, labels=labels) for name in ("v1", "v2")]
    >>> evaluate(*items, protocol=SeenClasses(leave_one_out=True)).protocol.name
    'continual'
    """

    name: ClassVar[str] = "continual"
    description: ClassVar[str] = "recall by label; a query whose class the gallery lacks counts as a miss (CVS)"
    metrics: ClassVar[tuple[str, ...]] = ("recall@1", "recall@2", "recall@4")
    gate_metric: ClassVar[str] = "recall@1"

    no_relevant: NoRelevant = "zero"
