"""Example queries with what each system finds first: the evidence that people look at before they trust numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.same_items import labels_as_in
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.evidence import Evaluation
from holdfast.evaluation.matched_models import MatchedModels, Sides, matched
from holdfast.evaluation.retrieval import rank_metrics, top_k

Kind = Literal["fixed", "kept", "flipped", "still wrong"]
System = Literal["self_old", "cross", "self_new"]

_RIGHT = "recall@1"
_FIRST_SERVED: tuple[Kind, ...] = ("flipped", "fixed", "kept", "still wrong")  # what was lost is never left out


@dataclass(frozen=True)
class Found:
    """The first items that one system finds for a query, best first.

    Args:
        ids: Their ids (k), fewer where the gallery is smaller.
        labels: The names of their classes (k).
        hits: Whether each is of the query's class (k).
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    hits: tuple[bool, ...]


@dataclass(frozen=True)
class Example:
    """One query and what three systems find for it.

    Args:
        query: Id of the query.
        label: Name of its class.
        kind: What the first item found says: "fixed" (wrong before, right now), "kept", "flipped" (right before,
            wrong now) or "still wrong". Before are old, now are new queries, both on the old gallery.
        self_old: What old queries find in the old gallery.
        cross: What new queries find in the old gallery, through the map or head that links the models, if one does.
        self_new: What new queries find in the new gallery.
    """

    query: str
    label: str
    kind: Kind
    self_old: Found
    cross: Found
    self_new: Found


def choose_examples(
    evaluation: Evaluation,
    old_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_query: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    cross: Sides | None = None,
    count: int = 8,
    k: int = 5,
    seed: int = 0,
    exclude_same_id: bool = False,
) -> list[Example]:
    """Choose queries of every kind in turn, negative flips first, at random within a kind.

    The mixture shows each kind and is not representative; how often queries flip is `negative_flip_rate`.

    Args:
        evaluation: What `evaluate` returned for these sets.
        old_query: Queries embedded by the old model.
        old_gallery: Gallery embedded by the old model.
        new_query: The same queries embedded by the new model.
        new_gallery: The same gallery embedded by the new model.
        cross: The queries and gallery that answered the cross-test, where the evaluation was given any.
        count: How many queries at most.
        k: How many items of each system.
        seed: Seed of the choice.
        exclude_same_id: Leave out the gallery item with the id of the query, as in the evaluation.

    Returns:
        Examples by kind, in the order of `Kind`; none without labels.

    Raises:
        ConfigError: A count or k below 1.
        DataError: The evaluation is of other models, queries or another link.
    """
    for name, value in (("count", count), ("k", k)):
        if value < 1:
            raise ConfigError(f"{name} = {value}.", expected="at least 1")
    models = matched((old_query, old_gallery), (new_query, new_gallery), (None, None), cross)
    _check_same(evaluation, models)
    if not models.labelled:
        return []
    systems: dict[System, Sides] = {"self_old": models.old, "cross": models.linked(), "self_new": models.new}
    before, now = (_right(evaluation, name, systems[name], exclude_same_id) for name in ("self_old", "cross"))
    rows, kinds = _mixture(before, now, count, seed)
    if not len(rows):
        return []
    found = {name: _found(query.select(rows), side, k, exclude_same_id) for name, (query, side) in systems.items()}
    query = models.old[0].select(rows)
    labels = _class_names(query)
    return [
        Example(query.ids[i], labels[i], kinds[i], found["self_old"][i], found["cross"][i], found["self_new"][i])
        for i in range(len(rows))
    ]


def _check_same(evaluation: Evaluation, models: MatchedModels) -> None:
    fingerprints, queries = models.fingerprints(), len(models.old[0])
    for model in ("old", "new"):
        measured, given = evaluation.fingerprints[model]["fingerprint"], fingerprints[model]["fingerprint"]
        if measured != given:
            raise DataError(
                f"The evaluation is of the {model} model {measured}, the embeddings are of {given}.",
                expected="the sets that were evaluated",
                to_do="evaluate these sets, or give those of the evaluation.",
            )
    if evaluation.protocol["queries"] != queries:
        raise DataError(
            f"The evaluation has {evaluation.protocol['queries']} queries, the embeddings {queries}.",
            expected="the sets that were evaluated",
        )
    measured, given = _link(evaluation.mapped), _link(models.mapped())
    if measured != given:
        raise DataError(
            f"The cross-test of the evaluation was answered by {measured}, the one given by {given}.",
            expected="what answered it in the evaluation",
            to_do="give as `cross` what `evaluate` was given.",
        )


def _link(mapped: Mapping[str, str] | None) -> str:
    """Name what a map or a head made of the two sides of the cross-test."""
    return " and ".join(f"the {side} of {maker}" for side, maker in (mapped or {}).items()) or "the models' own sides"


def _right(evaluation: Evaluation, system: System, sides: Sides, exclude_same_id: bool) -> NDArray[np.float64]:
    """Return whether the first item is of the query's class, per query (Q,): 1, 0, or NaN without relevant items."""
    measured = evaluation.per_query.get(system, {}).get(_RIGHT)
    if measured is not None and evaluation.protocol["no_relevant"] == "exclude":
        return measured
    return rank_metrics(*sides, (_RIGHT,), exclude_same_id=exclude_same_id)[_RIGHT]


def _mixture(
    before: NDArray[np.float64], now: NDArray[np.float64], count: int, seed: int
) -> tuple[NDArray[np.int64], list[Kind]]:
    """Return rows of queries (at most count) and the kind of each, taking one of every kind in turn.

    >>> rows, kinds = _mixture(np.array([0.0, 1, 1, 1, np.nan]), np.array([1.0, 1, 0, 1, 1]), count=3, seed=0)
    >>> kinds
    ['fixed', 'kept', 'flipped']
    """
    generator = np.random.default_rng(seed)
    members: dict[Kind, NDArray[np.bool_]] = {
        "fixed": (before == 0) & (now == 1),
        "kept": (before == 1) & (now == 1),
        "flipped": (before == 1) & (now == 0),
        "still wrong": (before == 0) & (now == 0),
    }
    shuffled = {kind: generator.permutation(np.flatnonzero(member)) for kind, member in members.items()}
    turns = [(turn, place, kind) for place, kind in enumerate(_FIRST_SERVED) for turn in range(len(shuffled[kind]))]
    taken: list[Kind] = [kind for _, _, kind in sorted(turns)[:count]]
    chosen = [(row, kind) for kind in get_args(Kind) for row in shuffled[kind][: taken.count(kind)]]
    return np.array([row for row, _ in chosen], np.int64), [kind for _, kind in chosen]


def _found(query: EmbeddingSet, gallery: EmbeddingSet, k: int, exclude_same_id: bool) -> list[Found]:
    neighbours = top_k(query, gallery, k, exclude_same_id=exclude_same_id)
    wanted = labels_as_in(gallery, query)
    results = []
    for rows, label in zip(neighbours.rows, wanted, strict=True):
        items = gallery.select(rows[rows >= 0])
        hits = labels_as_in(gallery, items) == label
        results.append(Found(tuple(items.ids), tuple(_class_names(items)), tuple(hits.tolist())))
    return results


def _class_names(embeddings: EmbeddingSet) -> list[str]:
    """Return the name of every item's class, or its number where classes have no names."""
    labels, names = embeddings.labels, embeddings.class_names
    if labels is None:
        return [""] * len(embeddings)
    return [str(label) if names is None else names[label] for label in labels]
