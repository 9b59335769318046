"""Two-stage search: the new model scores the candidates of the current search again, and its vectors are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Fill, Items
from limpet.errors import BudgetError, DataError, EmptyOverlapError, GalleryError, UpgradeStateError, shown
from limpet.galleries.backfill import commit_fill
from limpet.galleries.router import Hit, Reply, route
from limpet.galleries.rows import rows_of
from limpet.galleries.state import Generation
from limpet.support.logs import logger
from limpet.support.ranges import Count, NonNegative, PositiveInt, checked
from limpet.upgrade.filling import check_source, embedded_items
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.open_gallery import OpenGallery

Find = Callable[[EmbeddingSet, int, bool], Reply]
"""Search for queries, number of hits, and whether to search only vectors of the queries' model, or all permitted."""

_log = logger("galleries")


@checked
@dataclass(frozen=True)
class Rescoring:
    """Two-stage search with queries of the new model while an upgrade is started or swapped.

    The first stage finds candidates: with queries of another model, such as the old one, or with the new queries
    themselves through any link to other vectors. An item that only the new model has embedded is a candidate if it is
    among the first `candidates` hits of the new query. Candidates without a new vector are embedded, and all candidates
    are ordered by the new model's scores. The rest keeps its order: candidates that could not be embedded, then the
    other hits of the first stage. The vectors are written as in a backfill. If they cannot be written, for example
    while another writer holds the lock, the search still returns its hits.

    Args:
        source: Source of the candidates' new vectors.
        candidates: Number of candidates per query, at least 1.
        first: The same queries by another model of the gallery, under the same ids; by default, the new queries.
        budget: Maximum number of items to embed per query, the best candidates first; by default, no limit.
        wait: Seconds to wait for another writer before the vectors are discarded.

    Raises:
        ConfigError: A number is out of range.
    """

    source: VectorSource
    candidates: PositiveInt = 100
    first: EmbeddingSet | None = None
    budget: Count | None = None
    wait: NonNegative = 1.0

    def search(self, gallery: OpenGallery, queries: EmbeddingSet, k: int, find: Find) -> Reply:
        """Search in two stages, and store the new vectors.

        Raises:
            UpgradeStateError: No upgrade is started or swapped.
            DataError: Queries or source are of another model than the new one.
            EmptyOverlapError: The queries of the first stage have other ids.
            GalleryError: No link lets these queries find items without a new vector.
        """
        target = self._target(gallery, queries)
        first = queries if self.first is None else _in_order_of(queries, self.first)
        found = find(first, max(k, self.candidates), False)
        lists = [hits[: self.candidates] for hits in found.hits]
        strangers: list[list[Hit]] = [[] for _ in lists]
        if first.fingerprint != queries.fingerprint and found.uncovered:
            strangers = find(queries, self.candidates, True).hits
        items = gallery.store.fetch(list(dict.fromkeys(hit.id for hit in chain(*lists, *strangers))))
        lists = [_candidates(*both, items, found.sources) for both in zip(lists, strangers, strict=True)]
        vectors = _stored(gallery, target, items)  # a cancel may remove them meanwhile
        fill = self._embedded(target, items, lists)
        kept = self._kept(gallery, fill)
        if fill is not None:
            vectors |= dict(zip(fill.rows.ids, fill.rows.vectors, strict=True))
        asked = queries.space.query_form(queries.vectors, target.geometry)
        hits = [
            _in_two_stages(query, candidates, rest[self.candidates :], vectors, target.name)[:k]
            for query, candidates, rest in zip(asked, lists, found.hits, strict=True)
        ]
        names = (target.name, *(name for name in found.sources if name != target.name))
        pointer = gallery.store.pointer()
        return replace(
            found, hits=hits, fingerprint=queries.fingerprint, sources=names, covered=pointer.covered(names),
            items=pointer.items, merge="rescored", embedded=0 if fill is None else len(fill.rows.ids), kept=kept,
        )  # fmt: skip

    def _target(self, gallery: OpenGallery, queries: EmbeddingSet) -> Generation:
        pointer, state = gallery.now()
        if state.phase == "steady":
            raise UpgradeStateError(
                "Cannot search in two stages: no upgrade is started.",
                expected="an upgrade that is started or swapped",
                to_do="`limpet upgrade start` with the new model, or search without.",
            )
        target = state.by_name[state.target]
        check_source(self.source, target.fingerprint, target.geometry, of=target.name)
        if queries.fingerprint != target.fingerprint:
            raise DataError(
                f"Queries of {queries.fingerprint} to be scored by {target.name}.",
                expected=f"queries of the new model, {target.fingerprint}",
                to_do="embed them with the new model, and give those of the old one as the first stage.",
            )
        lacking = pointer.items > pointer.covered([target.name])
        if self.first is None and lacking and len(route(state, target.name)) == 1:
            raise GalleryError(
                f"Nothing lets queries of {target.name} find items without a vector of it.",
                expected="queries of the old model for the first stage, or a link between the two",
                to_do="give the same queries by the old model: first=, --old; or link the models by a report or an "
                "adapter.",
            )
        return target

    def _embedded(self, target: Generation, items: Items, lists: Sequence[Sequence[Hit]]) -> Fill | None:
        """Embed the candidates without a new vector, within the budget of their queries."""
        lacking = {name for name, held in zip(items.ids, items.generations, strict=True) if target.name not in held}
        wanted: dict[str, None] = {}
        for hits in lists:
            ids = [hit.id for hit in hits if hit.id in lacking and hit.id not in wanted]
            wanted |= dict.fromkeys(ids[: self.budget])
        if not wanted:
            return None
        try:
            made = self.source.embed(list(wanted))
        except BudgetError as error:  # the budget for a model behind an API is spent
            _log.info("candidates keep the scores of the first stage: %s", error.given)
            return None
        if not len(made):
            return None
        seen = embedded_items(self.source, items, made)
        return Fill(rows_of(target, made), seen.versions, seen)

    def _kept(self, gallery: OpenGallery, fill: Fill | None) -> int:
        """Write the new vectors if the gallery can be written now; return how many are stored."""
        if fill is None:
            return 0
        try:
            return commit_fill(gallery, fill, self.wait)
        except GalleryError as error:  # a later search embeds these again; this one still uses them
            _log.info("vectors of %d candidates are not kept: %s", len(fill.rows.ids), error.given)
            return 0


def _stored(gallery: OpenGallery, target: Generation, items: Items) -> dict[str, NDArray[np.float32]]:
    stored = [name for name, held in zip(items.ids, items.generations, strict=True) if target.name in held]
    return dict(zip(*gallery.store.vectors(target.name, stored), strict=True)) if stored else {}


def _in_order_of(queries: EmbeddingSet, first: EmbeddingSet) -> EmbeddingSet:
    rows = first.ids.find(queries.ids)
    missing = queries.ids[rows < 0]
    if len(missing) or len(first) != len(queries):
        raise EmptyOverlapError(
            f"{len(first)} queries for the first stage, {len(queries)} for the second"
            + (f", of which {len(missing)} are not in the first: {shown(missing)}." if len(missing) else "."),
            expected="the same queries by both models, under the same ids",
            to_do="embed the same queries with both models.",
            intact="The gallery is intact.",
        )
    return first[rows]


def _candidates(hits: Sequence[Hit], strangers: Sequence[Hit], items: Items, sources: Sequence[str]) -> list[Hit]:
    """Return the candidates of one query without those that were deleted meanwhile.

    Args:
        hits: Hits of the first stage.
        strangers: Hits of the new query, if the first stage cannot find all items.
        items: Current records of all of them.
        sources: Generations that the first stage searched; a stranger has no vector of any.
    """
    known = dict(zip(items.ids, items.generations, strict=True))
    found = {hit.id: hit for hit in hits if hit.id in known}
    for hit in strangers:
        if hit.id in known and known[hit.id].isdisjoint(sources):
            found.setdefault(hit.id, hit)
    return list(found.values())


def _in_two_stages(
    query: NDArray[np.float32],
    candidates: Sequence[Hit],
    rest: Sequence[Hit],
    vectors: Mapping[str, NDArray[np.float32]],
    generation: str,
) -> list[Hit]:
    """Return the hits of one query: candidates by their new scores, ties by id, then the rest.

    Args:
        query: Query by the new model, in index form (width,).
        candidates: Candidates of the query.
        rest: Further hits of the first stage.
        vectors: New vectors by id.
        generation: The generation of the new model.
    """
    again = [hit for hit in candidates if hit.id in vectors]
    scores = (np.stack([vectors[hit.id] for hit in again]) @ query).tolist() if again else []
    scored = [replace(hit, score=score, generation=generation) for hit, score in zip(again, scores, strict=True)]
    known = {hit.id for hit in candidates}
    return [
        *sorted(scored, key=lambda hit: (-hit.score, hit.id)),
        *(hit for hit in candidates if hit.id not in vectors),
        *(hit for hit in rest if hit.id not in known),
    ]
