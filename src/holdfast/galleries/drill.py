"""Rehearsing a whole upgrade on a copy of a sample: every step, searches throughout, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import refuse, unknown_name
from holdfast.galleries.drill_copy import Embedded, Sample, sampled_ids, sides_of
from holdfast.galleries.drill_questions import Questions, given_questions, labels_of, relevant_by_class
from holdfast.galleries.drill_result import Rehearsal
from holdfast.galleries.drill_run import Run
from holdfast.galleries.items import draw
from holdfast.galleries.orders import ORDERS
from holdfast.galleries.sources import VectorSource

if TYPE_CHECKING:
    from holdfast.galleries.gallery import Gallery

__all__ = ["Rehearsal", "drill"]

Progress = Callable[[dict[str, Any]], None]

MOST_QUERIES = 200


def drill(
    gallery: Gallery,
    source: VectorSource,
    *,
    sample: int = 2000,
    queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
    relevant: Mapping[str, Sequence[str]] | None = None,
    orders: Sequence[str] | None = None,
    reports: Sequence[Path] = (),
    adapter: Path | None = None,
    score_map: Path | None = None,
    class_column: str = "label",
    most_queries: int = MOST_QUERIES,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Rehearsal:
    """Rehearse the upgrade of a gallery on a copy in memory; the gallery is only read.

    The copy holds the stored vectors of a random sample. It is prepared with the links that the gallery has for the
    new model, or those given here, swapped, backfilled, completed and rolled back, while old and new queries search it.
    Where nothing lets new queries search old vectors, it is backfilled first and swapped then. In a sample fewer items
    compete for every query than in the gallery, so scores are higher; what counts are the differences.

    Args:
        gallery: Which one.
        source: Where the vectors of the new model come from; it embeds the sample.
        sample: Items of the copy; the answers of queries are among them first.
        queries: Queries embedded by the old and by the new model, with the same ids: logged ones at best. Sampled
            items search for the others when left out.
        relevant: Ids of the items that answer each query, by its id. When left out, items of the query's class are
            right: its label, and the items' column of classes.
        orders: Names in `ORDERS`; the first one is rehearsed whole. All that can be used when left out.
        reports: See `Gallery.prepare`; only where the new model is not prepared yet.
        adapter: The same.
        score_map: The same.
        class_column: Metadata column that holds the class.
        most_queries: Use so many queries at most.
        seed: Of the sample, of random orders and of what is shown.
        on_step: Told "step", and "done" and "total" while items are embedded.

    Raises:
        ConfigError: A number is out of range, an order is unknown, or links are given that the gallery has.
        UpgradeStateError: The source is of the active model.
        DataError: The source is of another model than the prepared one, or has none of the sampled items.
        GalleryError: A report does not vouch for the new model.
    """
    refuse(sample < 20, f"sample={sample}", "at least 20 items")
    refuse(most_queries < 1, f"most_queries={most_queries}", "at least 1 query")
    for name in orders or ():
        if name not in ORDERS:
            raise unknown_name("order", name, ORDERS)
    pointer, state = gallery.now()
    sides = sides_of(gallery, source)
    refuse(
        bool(sides.links) and (bool(reports) or adapter is not None),
        "Reports or an adapter for a model that is prepared with links.",
        "those of the gallery, which the drill uses",
    )
    tell = _telling(on_step)
    chosen = None if queries is None else given_questions(queries, relevant, most_queries, seed)
    answers = [] if chosen is None or chosen[2] is None else [one for ids in chosen[2] for one in ids]
    tell({"step": "sampling"})
    items = Sample.of(gallery, sides.old, sampled_ids(gallery.store, sides.old.name, sample, seed, answers))
    made = Embedded(source, list(items.old.ids), lambda told: tell({"step": "embedding", **told}))
    questions = _questions(chosen, items, made, class_column, most_queries, seed)
    given: dict[str, Any] = {"reports": reports, "adapter": adapter, "score_map": score_map}
    run = Run(items, made, sides, questions, given, class_column, seed, tell)
    first, others = _first_order(orders, class_column in state.columns and _classes(items, class_column))
    run.whole(first)
    for order in others:
        run.again(order, wanted=orders is not None)
    return run.results(gallery.store.url, pointer.items)


def _telling(on_step: Progress | None) -> Progress:
    return on_step if on_step is not None else lambda told: None


def _first_order(orders: Sequence[str] | None, classes: bool) -> tuple[str, list[str]]:
    """Return the order of the whole drill, and the others."""
    names = list(orders or ["random", *(name for name in ORDERS if name not in ("random", "id"))])
    if orders is None and not classes:
        names.remove("class-balanced")
    return names[0], names[1:]


def _classes(items: Sample, column: str) -> bool:
    return any(one.get(column) is not None for one in items.metadata)


def _questions(
    chosen: tuple[EmbeddingSet, EmbeddingSet, list[list[str]] | None] | None,
    items: Sample,
    made: Embedded,
    class_column: str,
    most: int,
    seed: int,
) -> Questions:
    """Return the queries of a drill: those given, or sampled items."""
    there = items.old.ids
    classes = [None if one.get(class_column) is None else str(one[class_column]) for one in items.metadata]
    if chosen is not None:
        old, new, known = chosen
        named = labels_of(old) or labels_of(new)
        relevant = None if named is None else relevant_by_class(named, classes, None)
        if known is not None:
            found = [there.find(ids) if ids else np.empty(0, np.int64) for ids in known]
            rows = [np.unique(one[one >= 0]) for one in found]
            relevant = rows if any(map(len, rows)) else None
        return Questions(old, new, relevant, None, [{} for _ in old.ids])
    ids = sorted(sorted(made.all.ids, key=lambda one: draw(seed + 1, one))[:most])
    own = there.find(ids)
    relevant = relevant_by_class([classes[row] for row in own], classes, own)
    return Questions(items.old.select(own), made.embed(ids), relevant, own, [items.metadata[row] for row in own])
