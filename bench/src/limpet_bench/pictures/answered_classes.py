"""Classes for a gallery without labels: items that are relevant to the same queries form a class."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError
from limpet.evaluation.protocols import Protocol, RankingProtocol


def with_answered_classes(gallery: EmbeddingSet, query: EmbeddingSet, protocol: Protocol) -> EmbeddingSet:
    """Return the gallery items that are relevant to a query, with classes derived from the ground truth.

    Queries that share a relevant item belong to one class. The name of a class is the common prefix of the ids of its
    queries, such as "paris_eiffel", or the id of its first query. A gallery with labels is returned unchanged.

    Raises:
        DataError: The protocol does not define relevant items, or no query has any.
    """
    if gallery.labels is not None:
        return gallery
    if not isinstance(protocol, RankingProtocol) or protocol.needs_labels:
        raise DataError(
            f"The items of the gallery have no classes, and the protocol '{protocol.name}' gives them none.",
            expected="labels, or a protocol that says who answers each query",
            to_do="to show classes of images to train on, say part='training' in the figure.",
        )
    asked, rows = protocol.answers(query, gallery).relevant.flat()
    if not len(rows):
        raise DataError("No item of the gallery answers a query.", expected="queries with answers")
    count = len(query)
    links = coo_array((np.ones(len(rows)), (asked, rows + count)), shape=(count + len(gallery),) * 2)
    _, groups = connected_components(links, directed=False)
    present, first = np.unique(groups[np.unique(asked)], return_index=True)
    queries = np.unique(asked)
    order = np.argsort(first, kind="stable")
    number = np.full(groups.max() + 1, -1)
    number[present[order]] = np.arange(len(present))
    labels = number[groups[count:]]
    labels[~np.isin(np.arange(len(gallery)), rows)] = -1
    names = [_name([query.ids[row] for row in queries.tolist() if groups[row] == group]) for group in present[order]]
    twice = {name for name in names if names.count(name) > 1}
    unique = [f"{name} ({place})" if name in twice else name for place, name in enumerate(names, start=1)]
    answered = np.flatnonzero(labels >= 0)
    return gallery[answered].replace(labels=labels[answered], class_names=StringArray.of(unique))


def _name(ids: list[str]) -> str:
    """Return the common prefix of ids, without numbers and separators at its end; the first id if it is empty.

    >>> _name(["paris_eiffel_000013", "paris_eiffel_000057"]), _name(["abc", "xyz"])
    ('paris_eiffel', 'abc')
    """
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*ids, strict=False))
    return "".join(letters[0] for letters in same).rstrip("0123456789_- ") or ids[0]
