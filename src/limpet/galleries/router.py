"""Choice of the vectors that answer a query, and merging of hits from several generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from limpet.engines.filters import Metadata
from limpet.engines.store import Hits, Pointer
from limpet.galleries.state import GalleryState, Link

if TYPE_CHECKING:
    from limpet.evaluation.ranking.merging import ScoreScale

Merge = Literal["score", "calibrated", "rank", "rescored"]


@dataclass(frozen=True)
class RoutedGeneration:
    """One generation that answers a query.

    Args:
        without: Generations searched before it, whose items it leaves out.
        link: Why it may be searched; None for the query's own.
    """

    generation: str
    without: frozenset[str] = frozenset()
    link: Link | None = None

    @property
    def on_one_scale(self) -> bool:
        """Whether its scores are directly comparable with those of the query's own vectors."""
        return self.link is None or (self.link.adapter is None and self.link.score_map is None)

    def rows(self, pointer: Pointer) -> int:
        """Return the number of items that this source answers for."""
        return sum(
            count for names, count in pointer.held.items() if self.generation in names and not names & self.without
        )


@dataclass(frozen=True)
class Hit:
    """A retrieved item.

    Args:
        score: Larger is nearer; comparable within one reply, or if it was re-scored, within one generation of it.
        metadata: Metadata of the item.
    """

    id: str
    score: float
    generation: str
    metadata: Metadata


@dataclass(frozen=True)
class Reply:
    """The answer to queries of one model.

    Args:
        hits: At most k per query, best first.
        covered: Number of items with a vector that these queries may search.
        sequence: Number of the searched commit.
        epoch: Epoch of its state, see `GalleryState.epoch`.
        merge: How the generations' lists were merged; "rescored" by the second of two stages (`Rescoring`): re-scored
            hits first.
        embedded: Number of items that were embedded for this search.
        kept: Number of these whose vectors the gallery has stored.
    """

    hits: list[list[Hit]]
    fingerprint: str
    active: str
    sources: tuple[str, ...]
    covered: int
    items: int
    sequence: int
    epoch: str
    merge: Merge
    embedded: int = 0
    kept: int = 0

    @property
    def uncovered(self) -> int:
        """Items without a vector that these queries may search."""
        return self.items - self.covered


def route(state: GalleryState, query: str) -> list[RoutedGeneration]:
    """Return the sources that answer queries of a generation, in the order in which they are searched."""
    links = {link.gallery: link for link in state.links if link.query == query}
    names = [query, *(one.name for one in reversed(state.generations) if one.name in links and one.name != query)]
    return [RoutedGeneration(name, frozenset(names[:place]), links.get(name)) for place, name in enumerate(names)]


def remainders(state: GalleryState) -> list[tuple[str, frozenset[str]]]:
    """Return every pair of a generation and others whose items it leaves out that a search may use."""
    pairs = {
        (source.generation, source.without)
        for generation in state.generations
        for source in route(state, generation.name)
        if source.without
    }
    return sorted(pairs, key=lambda pair: (pair[0], sorted(pair[1])))


def merged(
    searched: Sequence[tuple[RoutedGeneration, Hits]],
    k: int,
    scales: Mapping[str, Sequence[ScoreScale]],
    rows: Mapping[str, int] | None = None,
) -> tuple[list[list[Hit]], Merge]:
    """Merge the hits of several sources into one list per query.

    Args:
        searched: Hits of every source that was searched, the query's own first.
        k: Number of hits per query.
        scales: Scales that convert scores of a generation to those of the query's own, one per query, by generation.
        rows: Number of items that every source answers for, by generation; without it, a merge by rank assumes equal
            numbers.
    """
    own = [(source, hits) for source, hits in searched if source.on_one_scale]
    others = [(source, hits) for source, hits in searched if not source.on_one_scale]
    parts = [*([own] if own else []), *([other] for other in others)]  # each on one scale
    queries = len(searched[0][1].ids) if searched else 0
    lists = [[_by_score(part, query, k) for part in parts] for query in range(queries)]
    if not own or not others:
        return [of_query[0][:k] for of_query in lists], "score"
    from limpet.evaluation.ranking.merging import calibrated_merge, reciprocal_rank_merge

    if all(source.generation in scales for source, _ in others):
        maps = zip(*(scales[source.generation] for source, _ in others), strict=True)
        return [
            _joined(one, calibrated_merge(_pairs(one), [None, *of_query]))[:k]
            for one, of_query in zip(lists, maps, strict=True)
        ], "calibrated"
    sizes = None if rows is None else [max(1, sum(rows[source.generation] for source, _ in part)) for part in parts]
    return [_joined(one, reciprocal_rank_merge(_pairs(one), sizes=sizes))[:k] for one in lists], "rank"


def _by_score(part: Sequence[tuple[RoutedGeneration, Hits]], query: int, k: int) -> list[Hit]:
    hits = [
        Hit(identifier, float(score), source.generation, metadata)
        for source, of_source in part
        for identifier, score, metadata in zip(
            of_source.ids[query], of_source.scores[query], of_source.metadata[query], strict=True
        )
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:k] if len(part) > 1 else hits


def _pairs(lists: list[list[Hit]]) -> list[tuple[list[str], list[float]]]:
    return [([hit.id for hit in hits], [hit.score for hit in hits]) for hits in lists]


def _joined(lists: list[list[Hit]], merged_lists: tuple[Any, Any]) -> list[Hit]:
    by_id = {hit.id: hit for hits in reversed(lists) for hit in hits}
    ids, scores = merged_lists
    return [
        Hit(str(identifier), float(score), by_id[str(identifier)].generation, by_id[str(identifier)].metadata)
        for identifier, score in zip(ids, np.asarray(scores), strict=True)
    ]
