"""What scores of the old system become through a link: thresholds keep their meaning as far as that is possible."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.adapters import ScoreMap
from holdfast.adapters.score_map import SCORE_MAP_FORMAT, ScoreMapError
from holdfast.adapting.candidates import Link
from holdfast.adapting.held_out import HeldOut
from holdfast.adapting.results import ScoreMapRecord
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

QUERIES = 1000  # at most
NEAREST = 20  # items of a query that are scored under both systems
OTHERS = 20  # further items, drawn at random


@dataclass(frozen=True, eq=False)
class FoundScoreMap:
    """A map from old scores to those of a link, with the scored pairs that it rests on.

    Args:
        score_map: The map.
        error: How far it is off on queries that it was not fitted on.
        old_scores: Scores of the old system (P,).
        new_scores: Scores of the same pairs of query and item through the link (P,).
        queries: Query of every pair (P,).
        seed: Of the fifths of queries that are left out in turn.
    """

    score_map: ScoreMap
    error: ScoreMapError
    old_scores: NDArray[np.float64]
    new_scores: NDArray[np.float64]
    queries: NDArray[np.int64]
    seed: int = 0

    def at(self, threshold: float) -> ScoreMapError:
        """Return what a threshold on the old scores becomes, and which share of the scored pairs it then decides anew.

        Raises:
            DataError: It lies outside the old scores that were seen.
        """
        return self.score_map.error_of(
            self.old_scores, self.new_scores, threshold=threshold, queries=self.queries, seed=self.seed
        )


def score_map_of(link: Link, held_out: HeldOut, seed: int = 0) -> FoundScoreMap | None:
    """Map the old system's scores to those that new queries get through a link on the old gallery.

    Every held-out item, at most 1,000, asks for 20 others that the old system finds first and for 20 at random; both
    systems score the same pairs. Whole queries are left out in turn to tell the error.

    Returns:
        None where the old scores are all alike, or those through the link do not rise with them.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(held_out.old))[:QUERIES])
    asked = held_out.old.select(rows)
    before = _similarities(asked, held_out.old)
    before[np.arange(len(rows)), rows] = np.nan  # an item does not ask for itself
    items = _scored_items(before, rng)
    after = _similarities(link.query(held_out.new.select(rows)), link.gallery(held_out.old))
    queries = np.repeat(np.arange(len(rows)), items.shape[1])
    old_scores, new_scores = (np.take_along_axis(one, items, axis=1).ravel() for one in (before, after))
    try:
        found = ScoreMap.fit(old_scores, new_scores)
        error = found.error_of(old_scores, new_scores, queries=queries, seed=seed)
    except DataError:
        return None
    return FoundScoreMap(found, error, old_scores, new_scores, queries, seed)


def _similarities(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    similarity = query.space.similarity(_points(query), _points(gallery))
    values: NDArray[np.float64] = similarity.double().numpy()
    return values


def _points(embeddings: EmbeddingSet) -> torch.Tensor:
    """Return points as similarities ask for them: a cosine must not see that vectors have other lengths."""
    vectors, space = torch.from_numpy(np.array(embeddings.vectors)), embeddings.space
    return space.project(vectors) if embeddings.form == "features" else space.canonical(vectors)


def _scored_items(scores: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the items to score for every query (Q, up to 40): the first it finds, and some others."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : scores.shape[1] - 1]  # NaN, the query itself, is last
    nearest = order[:, :NEAREST]
    rest = order[:, NEAREST:]
    if not rest.shape[1]:
        return nearest
    drawn = rng.integers(rest.shape[1], size=(len(scores), min(OTHERS, rest.shape[1])))
    return np.concatenate([nearest, np.take_along_axis(rest, drawn, axis=1)], axis=1)


def score_map_record(found: FoundScoreMap | None) -> ScoreMapRecord | None:
    """Return the map for results: its error, in words and as a number, and its knots."""
    if found is None:
        return None
    error, score_map = found.error, found.score_map
    knots = np.stack([score_map.knots, score_map.values], axis=1)
    shown = np.unique(np.linspace(0, len(knots) - 1, min(len(knots), 200)).round().astype(int))
    return ScoreMapRecord(
        error=float(error.mean_absolute_error),
        text=f"An old score becomes the new score to expect; on queries that it was not fitted on it is off by "
        f"{error.mean_absolute_error:.3f} on average ({error.pairs:,} scored pairs).",
        knots=knots[shown].tolist(),
    )


def save_score_map(found: FoundScoreMap, path: Path, *, candidate: str = "", old: str = "", new: str = "") -> Path:
    """Write the whole map and its error as JSON, wholly or not at all, and return the path.

    Args:
        found: The map. It was fitted through a link that knows only the items to fit on; that of all items, which is
            saved beside it, gives scores that are close to these, but not the same.
        path: Where to.
        candidate: Name of the link whose scores it leads to.
        old: Fingerprint of the model whose scores it maps.
        new: Fingerprint of the model that the link was fitted for.
    """
    content = {
        "format_version": SCORE_MAP_FORMAT,
        "candidate": candidate,
        "old": old,
        "new": new,
        "direction": found.score_map.direction,
        "mean_absolute_error": found.error.mean_absolute_error,
        "scored_pairs": found.error.pairs,
        "knots": found.score_map.knots.tolist(),
        "values": found.score_map.values.tolist(),
    }
    return write_atomically(path, lambda part: part.write_text(json.dumps(content) + "\n", encoding="utf-8"))
