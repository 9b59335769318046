"""Example queries with what each system finds first: the evidence that people look at before they trust numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, count_of
from limpet.evaluation.protocols.base import Lists, Protocol, RankingProtocol
from limpet.evaluation.protocols.by_label import ByLabel
from limpet.evaluation.ranking.engine import no_rows
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.results import Evaluation
from limpet.evaluation.retrieval import top_k
from limpet.evaluation.sides import MatchedModels, Sides, class_names_of, matched, same_id

Kind = Literal["fixed", "kept", "flipped", "still wrong", "first hit changed"]
_System = Literal["self_old", "cross", "self_new"]

_RIGHT = "recall@1"
_JUDGED: tuple[Kind, ...] = ("fixed", "kept", "flipped", "still wrong")
_FIRST_SERVED: tuple[Kind, ...] = ("flipped", "fixed", "kept", "still wrong")  # what was lost is never left out


@dataclass(frozen=True)
class Found:
    """The first items that one system finds for a query, best first.

    Args:
        ids: Item ids (k); fewer if the gallery is smaller.
        labels: Class names (k); empty strings without labels.
        hits: Whether each item is relevant to the query (k), by its class or by the ground truth; empty if unknown.
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    hits: tuple[bool, ...]


@dataclass(frozen=True)
class Example:
    """One query and what three systems find for it.

    Args:
        label: Name of its class, empty without labels.
        kind: What the first item found says: "fixed" (wrong before, right now), "kept", "flipped" (right before,
            wrong now) or "still wrong"; without labels "first hit changed". Before are old, now are new queries, both
            on the old gallery.
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
    protocol: Protocol | None = None,
) -> list[Example]:
    """Choose queries of every kind in turn, negative flips first, at random within a kind.

    The mixture shows each kind and is not representative; how often queries flip is `negative_flip_rate`. Without
    labels queries whose first hit changed are chosen at random, for a person to judge.

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
        protocol: Who answers a query, and what its ranking leaves out, as in the evaluation; by default its class
            does, and `exclude_same_id` says what is left out.

    Returns:
        Examples by kind, in the order of `Kind`; none under a protocol that does not rank galleries.

    Raises:
        ConfigError: The count or k is no whole number of at least 1.
        DataError: The evaluation is of other models, queries or another link.
    """
    count, k = count_of("count", count), count_of("k", k)
    models = matched((old_query, old_gallery), (new_query, new_gallery), cross=cross)
    _check_same(evaluation, models)
    systems: dict[_System, Sides] = {"self_old": models.old, "cross": models.linked(), "self_new": models.new}
    judge = _judge(evaluation, protocol, exclude_same_id)
    alone = exclude_same_id if protocol is None else protocol.leaves_itself_out
    if judge is None and evaluation.verdict != "unlabelled":
        return []
    if judge is not None:
        before, now = (_right(evaluation, name, systems[name], judge) for name in ("self_old", "cross"))
        rows, kinds = _mixture(before, now, count, seed)
    else:
        rows, kinds = _changed(systems, count, seed, alone)
    if not len(rows):
        return []
    items = {name: _found(*sides, rows, k, judge, alone) for name, sides in systems.items()}
    query = models.old[0][rows]
    labels = class_names_of(query)
    return [
        Example(query.ids[i], labels[i], kinds[i], items["self_old"][i], items["cross"][i], items["self_new"][i])
        for i in range(len(rows))
    ]


def _check_same(evaluation: Evaluation, models: MatchedModels) -> None:
    fingerprints, queries = models.fingerprints(), len(models.old[0])
    for model in ("old", "new"):
        measured, given = (one and one.fingerprint for one in (evaluation.fingerprints[model], fingerprints[model]))
        if measured != given:
            raise DataError(
                f"The evaluation is of the {model} model {measured}, the embeddings are of {given}.",
                to_do="evaluate these sets, or give those of the evaluation.",
            )
    if evaluation.protocol.queries != queries:
        raise DataError(
            f"The evaluation has {evaluation.protocol.queries} queries, the embeddings {queries}.",
            expected="the sets that were evaluated",
        )
    measured, given = _link(evaluation.mapped), _link(models.mapped())
    if measured != given:
        raise DataError(
            f"The cross-test of the evaluation was answered by {measured}, the one given by {given}.",
            to_do="give as `cross` what `evaluate` was given.",
        )


def _link(mapped: Mapping[str, str | None] | None) -> str:
    return " and ".join(f"the {side} of {maker}" for side, maker in (mapped or {}).items()) or "the models' own sides"


def _judge(evaluation: Evaluation, protocol: Protocol | None, exclude_same_id: bool) -> RankingProtocol | None:
    """Return what says which items answer a query; None where nothing does."""
    if evaluation.verdict == "unlabelled":
        return None
    if protocol is None:
        return ByLabel(leave_one_out=exclude_same_id)
    return protocol if isinstance(protocol, RankingProtocol) else None


def _right(evaluation: Evaluation, system: _System, sides: Sides, judge: RankingProtocol) -> NDArray[np.float64]:
    """Return whether the first item answers each query (Q,): 1, 0, or NaN without relevant items."""
    measured = evaluation.per_query.get(system, {}).get(_RIGHT)
    if measured is not None and evaluation.protocol.options.get("no_relevant", "exclude") == "exclude":
        return measured
    return replace(judge, no_relevant="exclude").measure(*sides, (_RIGHT,))[_RIGHT]


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
    chosen = [(row, kind) for kind in _JUDGED for row in shuffled[kind][: taken.count(kind)]]
    return np.array([row for row, _ in chosen], np.int64), [kind for _, kind in chosen]


def _changed(
    systems: Mapping[_System, Sides], count: int, seed: int, alone: bool
) -> tuple[NDArray[np.int64], list[Kind]]:
    before, now = (top_k(*systems[name], 1, exclude_same_id=alone).rows for name in ("self_old", "cross"))
    changed = np.flatnonzero(before[:, 0] != now[:, 0])
    chosen = np.sort(np.random.default_rng(seed).permutation(changed)[:count])
    return chosen, ["first hit changed"] * len(chosen)


def _found(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    rows: NDArray[np.int64],
    k: int,
    judge: RankingProtocol | None,
    alone: bool,
) -> list[Found]:
    """Return what some queries find; the protocol is asked about all, as ground truths name queries that must exist."""
    if judge is None:
        nothing = no_rows(len(query))
        lists = Lists(nothing, same_id(query, gallery) if alone else nothing)
    else:
        _, gallery = judge.taking_part(query, gallery)
        lists = judge.lists(query, gallery)
    ignore = RowLists.of(lists.ignore[row] for row in rows.tolist())
    results = []
    for row, nearest in zip(rows.tolist(), top_k(query[rows], gallery, k, ignore=ignore).rows, strict=True):
        kept = nearest[nearest >= 0]
        items = gallery[kept]
        hits = [] if judge is None else np.isin(kept, lists.relevant[row]).tolist()
        results.append(Found(tuple(items.ids), tuple(class_names_of(items)), tuple(hits)))
    return results
