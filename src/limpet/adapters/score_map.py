"""Map scores of one system to scores of another, so that hits of two models can be merged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.adapters.isotonic import isotonic_means
from limpet.adapters.moments import fold_of_pair
from limpet.adapters.pairs import Direction
from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, DataError, reason
from limpet.support.disk import read_bytes
from limpet.support.documents import parsed_json
from limpet.support.ranges import Seed, checked

_Scores = NDArray[np.float64]

SCORE_MAP_FORMAT = 1
"""Version of the files of `load_score_map`."""


class MappedScores(NamedTuple):
    """Mapped scores, and which of them were extrapolated."""

    values: _Scores
    """Mapped scores, of the shape given."""
    outside: NDArray[np.bool_]
    """Where a score lay outside those that the map was fitted on, and got the value of the nearest of them."""


@dataclass(frozen=True)
class ScoreMapError:
    """Error of a map on pairs that it was not fitted on.

    Args:
        pairs: Number of pairs.
        mean_absolute_error: Mean of |mapped − measured|, in units of the mapped scores.
    """

    pairs: int
    mean_absolute_error: float


@checked
@dataclass(frozen=True, eq=False)
class ScoreMap:
    """An increasing, piecewise linear map from the scores of one system to those of another.

    Fitted by isotonic regression (pool adjacent violators; Barlow et al., Statistical Inference under Order
    Restrictions, 1972) on the scores of the same pairs of query and item under both systems; linear between its knots.
    It returns the expected score. If the two systems disagree a lot, expected scores vary less than scores, so a mapped
    threshold does not keep its precision. Use `Thresholds` for thresholds.

    Args:
        direction: "old_to_new" maps the old system's scores; "new_to_old" the new one's.
        knots: Scores of the source, strictly increasing, (K,).
        values: Scores of the target at the knots, non-decreasing, (K,).

    Raises:
        ConfigError: Knots and values do not define such a map.

    >>> scores = ScoreMap.fit([0.2, 0.4, 0.6], [0.5, 0.7, 0.9])
    >>> scores.apply([0.3, 1.0])
    MappedScores(values=array([0.6, 0.9]), outside=array([False,  True]))
    """

    direction: Direction
    knots: _Scores
    values: _Scores

    def __post_init__(self) -> None:
        shapes = self.knots.shape, self.values.shape
        if not (shapes[0] == shapes[1] and self.knots.ndim == 1 and len(self.knots)):
            raise ConfigError(f"Knots and values of shapes {shapes[0]} and {shapes[1]}.", expected="(K,) for both")
        finite = np.isfinite(self.knots).all() and np.isfinite(self.values).all()
        if not (finite and (np.diff(self.knots) > 0).all() and (np.diff(self.values) >= 0).all()):
            raise ConfigError(
                "The knots or values of a score map are out of order.",
                expected="finite knots that rise, and finite values that do not fall",
            )

    @classmethod
    def fit(cls, old_scores: ArrayLike, new_scores: ArrayLike, *, direction: Direction = "old_to_new") -> ScoreMap:
        """Fit the map on scores of the same pairs of query and item under both systems, each (P,).

        Raises:
            DataError: Lengths differ, a score is not finite, the source has fewer than two different scores, or target
                scores do not increase with them, for example if larger means closer in only one of the systems.
        """
        source, target = _sides(old_scores, new_scores, direction)
        knots, values = _isotonic(source, target)
        if values[0] == values[-1]:
            raise DataError(
                f"A level score map: it would take every score to {values[0]:g}.",
                expected="scores of the target that rise with those of the source",
                to_do="check that larger is closer in both systems, and that both lists score the same pairs.",
            )
        return cls(direction, knots, values)

    def apply(self, scores: ArrayLike) -> MappedScores:
        """Map scores of the source, of any shape.

        Raises:
            DataError: A score is not finite.
        """
        given = _finite("the scores", scores)
        outside = (given < self.knots[0]) | (given > self.knots[-1])
        return MappedScores(np.interp(given, self.knots, self.values), outside)

    @checked
    def error_of(
        self,
        old_scores: ArrayLike,
        new_scores: ArrayLike,
        *,
        queries: ArrayLike | None = None,
        seed: Seed = 0,
    ) -> ScoreMapError:
        """Estimate the error by five-fold cross-validation over the pairs.

        Args:
            old_scores: Scores that the map was fitted on (P,).
            new_scores: Scores of the same pairs under the new system (P,).
            queries: Query of every pair (P,): pairs of one query are then held out together, because they are
                correlated.
            seed: Random seed of the folds.

        Raises:
            DataError: As for `fit`, or there are fewer than two queries or pairs.
        """
        source, target = _sides(old_scores, new_scores, self.direction)
        fold = _folds(len(source), queries, seed)
        mapped = np.empty(len(source))
        for held in (fold == part for part in range(int(fold.max()) + 1)):
            mapped[held] = np.interp(source[held], *_isotonic(source[~held], target[~held]))
        return ScoreMapError(len(source), float(np.abs(mapped - target).mean()))


def _sides(old_scores: ArrayLike, new_scores: ArrayLike, direction: Direction) -> tuple[_Scores, _Scores]:
    old, new = _finite("the old scores", old_scores), _finite("the new scores", new_scores)
    if old.ndim != 1 or old.shape != new.shape:
        raise DataError(
            f"Scores of shapes {old.shape} and {new.shape}.",
            expected="(pairs,) for both: the same pairs of query and item under both systems",
        )
    source, target = (old, new) if direction == "old_to_new" else (new, old)
    if len(np.unique(source)) < 2:
        raise DataError(
            f"{len(source)} pairs with {len(np.unique(source))} different scores to map from.",
            expected="at least two different scores",
            to_do="score more pairs of query and item with both systems, near ones and far ones.",
        )
    return source, target


def _finite(what: str, scores: ArrayLike) -> _Scores:
    given = np.asarray(scores)
    if given.size and given.dtype.kind not in "fiu":
        raise DataError(
            f"The type of {what} is {given.dtype}.",
            expected="numbers",
            to_do="convert them yourself, and look at them.",
        )
    values: _Scores = given.astype(np.float64)
    if not np.isfinite(values).all():
        wrong = int((~np.isfinite(values)).sum())
        raise DataError(
            f"{wrong} of {what} are not finite.",
            expected="finite numbers",
            to_do="leave out pairs that a system did not score.",
        )
    return values


def _isotonic(source: _Scores, target: _Scores) -> tuple[_Scores, _Scores]:
    """Return the ends of the steps that pool adjacent violators finds; pairs of equal source score are averaged."""
    knots, place, counts = np.unique(source, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=target) / counts
    values = isotonic_means(means, counts.astype(np.float64))
    inner = np.zeros(len(knots), bool)
    inner[1:-1] = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    return knots[~inner], values[~inner]


def _folds(pairs: int, queries: ArrayLike | None, seed: int) -> NDArray[np.int64]:
    groups = np.arange(pairs) if queries is None else np.asarray(queries)
    if groups.shape != (pairs,):
        raise DataError(f"Queries of shape {groups.shape} for {pairs} pairs.", expected="one per pair")
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{len(names)} query to leave out in turn.", expected="at least two")
    return fold_of_pair(len(names), seed=seed)[group]


def save_score_map(
    score_map: ScoreMap, error: ScoreMapError, path: Path, *, candidate: str = "", old: str = "", new: str = ""
) -> Path:
    """Save a map and its error as JSON atomically, and return the path.

    Args:
        score_map: The map. It was fitted through a link fitted on a part of the items; the saved link, fitted on all
            items, gives close but not equal scores.
        error: Error of the map.
        path: Output file.
        candidate: Name of the link of the target scores.
        old: Fingerprint of the model whose scores it maps.
        new: Fingerprint of the model that the link was fitted for.
    """
    content = {
        "format_version": SCORE_MAP_FORMAT,
        "candidate": candidate,
        "old": old,
        "new": new,
        "direction": score_map.direction,
        "mean_absolute_error": error.mean_absolute_error,
        "scored_pairs": error.pairs,
        "knots": score_map.knots.tolist(),
        "values": score_map.values.tolist(),
    }
    return write_atomically(path, lambda part: part.write_text(json.dumps(content) + "\n", encoding="utf-8"))


def load_score_map(path: str | Path) -> ScoreMap:
    """Load a map saved by `save_score_map`.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        raise _unreadable(str(path), error) from error
    return unpack_score_map(content, str(path))


def pack_score_map(score_map: ScoreMap) -> bytes:
    """Return a score map as one deterministic value."""
    knots, values = score_map.knots.tolist(), score_map.values.tolist()
    record = {"format_version": SCORE_MAP_FORMAT, "direction": score_map.direction, "knots": knots, "values": values}
    return json.dumps(record).encode()


def unpack_score_map(content: bytes, where: str) -> ScoreMap:
    """Return the score map that `pack_score_map` packed, or that a file holds.

    Raises:
        DataError: It is none.
    """
    try:
        record = parsed_json(content)
        if record["format_version"] != SCORE_MAP_FORMAT:
            raise ValueError(f"format version {record['format_version']}, and {SCORE_MAP_FORMAT} is known")
        arrays = (np.asarray(record[name], np.float64) for name in ("knots", "values"))
        return ScoreMap(record["direction"], *arrays)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _unreadable(where, error) from error


def _unreadable(where: str, error: Exception) -> DataError:
    return DataError(
        f"Cannot read the score map '{where}': {reason(error)}.",
        expected="score_map.json, as `limpet adapt` writes it",
        to_do="fit it again: `limpet adapt`.",
    )
