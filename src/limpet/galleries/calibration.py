"""Calibration of scores in a half-backfilled gallery, by items that have vectors of both models.

If an adapter maps new queries to the old vectors, those scores are on another scale than scores of new vectors; if it
maps the old vectors, nearly on the same scale, and the difference costs hits (benchmarks/half_backfilled.py).
Metric-compatible merging (WACV 2025, arXiv:2301.03767) trains adapters whose distances can be compared. We train
nothing, and compare a query's scores in either part with its scores on the same items in both (`Cohort`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from limpet.embeddings import EmbeddingSet
from limpet.errors import GalleryError
from limpet.galleries.items import draw, pages, vectors_of_both
from limpet.galleries.state import Link

if TYPE_CHECKING:
    from limpet.evaluation.ranking.cohort import Cohort
    from limpet.galleries.open_gallery import OpenGallery

MOST_ITEMS = 1000  # maximum number of items in a cohort
FEWEST = 50


def drawn_cohort(gallery: OpenGallery, link: Link, *, seed: int = 0) -> Cohort:
    """Draw the cohort that compares scores through a link with those on the queries' own vectors.

    Returns:
        A cohort of at most 1,000 items.

    Raises:
        GalleryError: Too few items have vectors of both models.
        DataError: Scores of one do not increase with those of the other.
    """
    from limpet.evaluation.ranking.cohort import Cohort

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
            to_do="`limpet upgrade backfill` some first.",
        )
    state, store = gallery.state, gallery.store
    asked, searched = state.by_name[link.query], state.by_name[link.gallery]
    ids, stored, new = vectors_of_both(store, searched.name, asked.name, [name for _, name in drawn])
    points = np.ascontiguousarray(asked.geometry.from_index_form(new), np.float32)
    queries = EmbeddingSet(points, ids, asked.fingerprint, asked.geometry, "query")
    mapped = queries if link.adapter is None else gallery.files.adapter(link.adapter).apply(queries)
    own, other = (one.space.query_form(one.vectors, to.geometry) for one, to in ((queries, asked), (mapped, searched)))
    return Cohort.of(new, stored, own, other)
