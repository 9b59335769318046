"""One scale for the two parts of a half-backfilled gallery, learnt from items that have vectors of both models.

Where an adapter maps new queries to the old vectors, those scores are on another scale than the scores of new vectors;
where it maps the old vectors, nearly on one, and that "nearly" costs hits (benchmarks/half_backfilled.py).
A rising map from one to the other, learnt without labels, lets both lists become one by score; metric-compatible
merging (WACV 2025, arXiv:2301.03767) asks for the same of distances. We fit the new score to expect (`ScoreMap`), and
train nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import GalleryError
from holdfast.galleries.items import draw, pages
from holdfast.galleries.state import Link

if TYPE_CHECKING:
    from holdfast.adapters import ScoreMap
    from holdfast.galleries.gallery import Gallery

MOST_ITEMS = 5000  # with vectors of both models
MOST_QUERIES = 1000  # of these
FEWEST = 50
NEAREST = 20  # items of a query that are scored by both
OTHERS = 20  # further items, drawn at random

Scores = NDArray[np.float64]


def calibrated(gallery: Gallery, link: Link, *, seed: int = 0) -> tuple[ScoreMap, int]:
    """Fit the map from scores of new queries on the vectors of a link to those of the same queries on new vectors.

    Items that have vectors of both models, 5,000 at most, search each other: as queries by their new vectors, 1,000 at
    most, each with the 20 items that are nearest through the link and 20 at random.

    Args:
        gallery: Which one.
        link: Why these queries search vectors of another generation.
        seed: Of the draws.

    Returns:
        The map, and how many items it was learnt from.

    Raises:
        GalleryError: Too few items have vectors of both models.
        DataError: Scores of one do not rise with those of the other.
    """
    from holdfast.adapters import ScoreMap

    both = {link.query, link.gallery}
    drawn = sorted(
        (draw(seed, name), name)
        for items in pages(gallery.store)
        for name, held in zip(items.ids, items.generations, strict=True)
        if both <= held
    )[:MOST_ITEMS]
    if len(drawn) < FEWEST:
        raise GalleryError(
            f"{len(drawn)} items have vectors of both {link.query} and {link.gallery}.",
            expected=f"at least {FEWEST}, to compare scores of",
            to_do="`holdfast gallery backfill` some first; the gallery is intact.",
        )
    names = [name for _, name in drawn]
    scores = _scores_of(gallery, link, names)
    items = _scored_items(scores[0], np.random.default_rng(seed))
    return ScoreMap.fit(*(np.take_along_axis(one, items, axis=1).ravel() for one in scores)), len(names)


def _scores_of(gallery: Gallery, link: Link, names: list[str]) -> tuple[Scores, Scores]:
    """Return the scores (Q, N) of items as queries, through the link and on the new vectors."""
    state, store = gallery.state, gallery.store
    asked, searched = state.by_name[link.query], state.by_name[link.gallery]
    known = dict(zip(*store.vectors(searched.name, names), strict=True))
    ids, new_forms = store.vectors(asked.name, [name for name in names if name in known])
    points = np.ascontiguousarray(asked.geometry.from_index_form(new_forms), np.float32)
    queries = EmbeddingSet(ids, points, asked.fingerprint, asked.geometry, "query").select(slice(0, MOST_QUERIES))  # type: ignore[arg-type]
    mapped = queries if link.adapter is None else gallery.files.adapter(link.adapter).apply(queries)
    old_forms = np.stack([known[name] for name in ids])
    old = mapped.space.query_form(mapped.vectors, searched.geometry) @ old_forms.T
    new = queries.space.query_form(queries.vectors, asked.geometry) @ new_forms.T
    rows = np.arange(len(queries))
    old[rows, rows] = -np.inf  # an item does not ask for itself
    return old.astype(np.float64), new.astype(np.float64)


def _scored_items(scores: Scores, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the items to score for every query (Q, up to 40), never the one of score minus infinity: itself."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :-1]
    nearest, rest = order[:, :NEAREST], order[:, NEAREST:]
    drawn = rng.integers(rest.shape[1], size=(len(scores), min(OTHERS, rest.shape[1])))
    return np.concatenate([nearest, np.take_along_axis(rest, drawn, axis=1)], axis=1)
