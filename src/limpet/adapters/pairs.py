"""Pairs of the same items under two models: matched by id, checked for anomalies, and tested for mismatches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pyarrow.compute as pc
from annotated_types import Ge
from numpy.typing import NDArray

from limpet.adapters.isotonic import isotonic_means
from limpet.adapters.moments import (
    BLOCK,
    FOLDS,
    Moments,
    PairedVectors,
    RowNumbers,
    fold_of_pair,
    penalties_without,
    ridge,
    total,
    unit_rows,
    with_constant,
)
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, EmptyOverlapError, shown
from limpet.support.ranges import Seed, checked
from limpet.support.wording import whole_percent

Direction = Literal["new_to_old", "old_to_new"]


LENGTH_TOLERANCE = 1e-3  # lengths that differ by less were meant to be equal
FEWEST_TESTED = 20
DOUBTED = 0.05  # lower end of the share of suspect pairs from which on doubtful ones are left out of fits
_RANKED = 4096  # targets of a fold that are ranked among each other
_RANGES = 50  # of ranks, whose pairs are counted
_PASSES = 2  # over the pairs, the later ones by maps of those that were trusted


@dataclass(frozen=True)
class SideReport:
    """Statistics of one model's side of the pairs.

    Args:
        unpaired: Number of items that the other model did not embed.
        unpaired_ids: The first three of them, in order of the set.
        repeated: Number of paired vectors equal to an earlier one with another id.
        constant: Number of coordinates that are constant over all pairs.
        shortest: Minimum length of a paired vector.
        longest: Maximum length of a paired vector.
    """

    dim: int
    unpaired: int
    unpaired_ids: tuple[str, ...]
    repeated: int
    constant: int
    shortest: float
    longest: float

    @property
    def lengths_differ(self) -> bool:
        """Whether the vectors are not normalised to one length."""
        return self.longest > self.shortest * (1 + LENGTH_TOLERANCE)

    def sentences(self, name: str) -> Iterator[str]:
        """Yield one sentence per anomaly."""
        if self.unpaired:
            named = shown(self.unpaired_ids, self.unpaired)
            yield f"{self.unpaired} items of the {name} model have no partner and are left out: {named}."
        if self.repeated:
            yield (
                f"{self.repeated} vectors of the {name} model repeat another one under a second id: each counts as "
                "often as it occurs, and checks on held-out pairs may look better than they are."
            )
        if self.constant:
            yield f"{self.constant} of the {self.dim} coordinates of the {name} model are constant: they say nothing."
        if self.lengths_differ:
            yield (
                f"The vectors of the {name} model have lengths from {self.shortest:.3g} to {self.longest:.3g}: only "
                "their directions count."
            )


@dataclass(frozen=True)
class PairReport:
    """Number of pairs and their anomalies.

    Args:
        pairs: Number of items that both models embedded.
        old: Anomalies on the side of the old model.
        new: Anomalies on the side of the new model.
    """

    pairs: int
    old: SideReport
    new: SideReport
    direction: Direction

    @property
    def source_dim(self) -> int:
        """Dimension of the vectors that are mapped."""
        return self.new.dim if self.direction == "new_to_old" else self.old.dim

    @property
    def few(self) -> bool:
        """Whether there are fewer pairs than an affine map of full rank needs to be determined."""
        return self.pairs <= self.source_dim

    def sentences(self) -> tuple[str, ...]:
        """Return the number of pairs and all anomalies, one sentence each."""
        found = [f"{self.pairs:,} items are paired by id."]
        if self.few:
            found.append(
                f"These are fewer than the {self.source_dim + 1} that determine a map of full rank from "
                f"{self.source_dim} dimensions: it depends on its penalty, and a rotation is the safer choice."
            )
        return (*found, *self.old.sentences("old"), *self.new.sentences("new"))


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """Rows of the same items in two sets, in order of their ids, so that no order of a file matters.

    Args:
        old_rows: int64 (P,).
        new_rows: int64 (P,).
        report: What is odd about them.
    """

    old_rows: RowNumbers
    new_rows: RowNumbers
    report: PairReport


def matched(
    old: EmbeddingSet, new: EmbeddingSet, *, direction: Direction = "new_to_old", minimum: int = 2
) -> MatchedRows:
    """Find the items that both sets hold, by id, never by position.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the new model.
        direction: Which side is mapped, for the report.
        minimum: Fewest pairs that will do, at least 2; items without a partner are left out, and reported.

    Raises:
        EmptyOverlapError: No id occurs in both.
        DataError: There are fewer pairs than the minimum, or a paired vector has no direction.
    """
    alike = old.ids == new.ids  # as everywhere after the first match: nothing to look up
    partner = np.arange(len(old)) if alike else new.ids.find(old.ids)
    rows = np.flatnonzero(partner >= 0)
    _refuse_few(old, new, len(rows), max(2, minimum))
    rows = rows[pc.array_sort_indices(old.ids[rows].arrow()).to_numpy().astype(np.int64)]
    alone = np.zeros(len(new), np.bool_) if alike else old.ids.find(new.ids) < 0
    sides = _side(old, rows, partner < 0), _side(new, partner[rows], alone)
    return MatchedRows(rows, partner[rows], PairReport(len(rows), *sides, direction))


def _refuse_few(old: EmbeddingSet, new: EmbeddingSet, pairs: int, minimum: int) -> None:
    if pairs == 0:
        raise EmptyOverlapError(
            f"None of the {len(old)} items of the old model ({shown(old.ids[:3], len(old))}) is among the {len(new)} "
            f"of the new one ({shown(new.ids[:3], len(new))}).",
            to_do="embed the same items with both models, under the same ids.",
        )
    if pairs < minimum:
        raise DataError(
            f"{pairs} {'pair' if pairs == 1 else 'pairs'} of embeddings of the same items.",
            expected=f"at least {minimum}",
            to_do="embed more of the same items with both models, under the same ids.",
        )


def _side(embeddings: EmbeddingSet, rows: RowNumbers, unpaired: NDArray[np.bool_]) -> SideReport:
    hashes, lengths = np.empty(len(rows), np.int64), np.empty(len(rows))
    low, high = np.full(embeddings.dim, np.inf), np.full(embeddings.dim, -np.inf)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        vectors = embeddings.vectors[rows[part]]
        hashes[part] = _hashes(vectors)
        lengths[part] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
        low, high = np.minimum(low, vectors.min(axis=0)), np.maximum(high, vectors.max(axis=0))
    _refuse_no_direction(embeddings, rows[~(np.isfinite(lengths) & (lengths > 0))])
    alone = np.flatnonzero(unpaired)
    return SideReport(
        dim=embeddings.dim,
        unpaired=len(alone),
        unpaired_ids=tuple(embeddings.ids[alone[:3]]),
        repeated=len(rows) - len(np.unique(hashes)),
        constant=int((low == high).sum()),
        shortest=float(lengths.min()),
        longest=float(lengths.max()),
    )


def _refuse_no_direction(embeddings: EmbeddingSet, rows: RowNumbers) -> None:
    """Refuse what a checked set cannot hold, but a file that was opened without verifying may."""
    if len(rows):
        raise DataError(
            f"{len(rows)} vectors of {embeddings.fingerprint} are zero or not finite: "
            f"{shown(embeddings.ids[rows[:3]], len(rows))}.",
            to_do="open the file with load(path, verify=True), which tells what is wrong with it.",
        )


def _hashes(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return one number per row (N,), equal for equal rows, and for others with a chance of about 2⁻⁶⁴.

    Sums of products with random numbers are no such hash: of coordinates that are all 1 or -1 they keep 32 bits.
    """
    positive = vectors + np.float32(0)  # the sum turns -0 into 0
    return np.fromiter((hash(row.tobytes()) for row in positive), np.int64, len(positive))


@dataclass(frozen=True)
class SuspectPairs:
    """Estimated share of mismatched pairs.

    Args:
        share: The estimate, in [0, 1].
        low: Lower end of its 95 % interval, which reflects only the number of pairs, not the bias.
        tested: Number of tested pairs.
    """

    share: float
    low: float
    high: float
    tested: int

    def sentence(self) -> str:
        """Return the estimate as a sentence."""
        return (
            f"About {whole_percent(self.share)} of the pairs do not belong together, or belong together in no way that "
            f"a linear map could learn ({whole_percent(self.low)} to {whole_percent(self.high)}, from {self.tested:,} "
            "pairs)."
        )


@checked
def suspect_pairs(
    old: EmbeddingSet,
    new: EmbeddingSet,
    *,
    direction: Direction = "new_to_old",
    sample: Annotated[int, Ge(FEWEST_TESTED)] = 4000,
    seed: Seed = 0,
) -> SuspectPairs:
    """Estimate the share of pairs whose two vectors are of different items.

    Ridge regression, fitted without them, predicts the target of a fifth of the pairs at a time. Predictions and
    targets are compared by cosine, about the mean of the other targets. If a target belongs to another item, its rank
    among all targets of that fifth is as likely to be anywhere, so that half of such pairs lie in the worse half;
    right pairs hardly ever do. Twice the share of pairs in the worse half is the estimate (Storey, J. R. Statist. Soc.
    B 64, 2002, with λ = 1/2, and ranks as p-values).

    It is biased upwards: a right pair whose target is ranked in the worse half counts as two wrong ones. This happens
    if the models are hardly linearly related, or if too few pairs remain for fitting: with half of 40 pairs wrong, it
    estimates about 60 %. It cannot detect mismatches between similar items, such as pairs swapped within a class.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the new model.
        direction: Which side is predicted from the other.
        sample: Most pairs to test, drawn at random; at least 20.
        seed: Seed of the sample and of the fifths.

    Raises:
        EmptyOverlapError: No id occurs in both.
        DataError: There are fewer than 20 pairs, or one without direction.
        ConfigError: The sample is of fewer than 20, or the seed below 0.
    """
    pairs = paired_vectors(old, new, matched(old, new, direction=direction, minimum=FEWEST_TESTED))
    if len(pairs) > sample:
        drawn = np.random.default_rng(seed).choice(len(pairs), sample, replace=False)
        pairs = pairs[np.sort(drawn)]
    ranks = held_out_ranks(pairs, seed)
    worse = float((ranks > 0.5).mean())
    low, high = _wilson(worse, len(ranks))
    return SuspectPairs(min(1.0, 2 * worse), min(1.0, 2 * low), min(1.0, 2 * high), len(ranks))


def held_out_ranks(pairs: PairedVectors, seed: int = 0, fitted: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Rank the true target of every pair (P,) among those of its fold: 0 if none is nearer to what ridge predicts.

    Ranks are shares of the other targets, at most 4,096 of them, in [0, 1]; equal ones count half.

    Args:
        pairs: P of them.
        seed: Of the folds.
        fitted: Which pairs ridge may be fitted on, bool (P,); all when left out.
    """
    fold = fold_of_pair(len(pairs), FOLDS, seed)
    rows = [np.flatnonzero(fold == part) for part in range(FOLDS)]
    folds = [Moments.of(pairs[held if fitted is None else held[fitted[held]]]) for held in rows]
    whole, ranks = total(folds), np.empty(len(pairs))
    for part, (held, penalty) in enumerate(zip(rows, penalties_without(folds), strict=True)):
        rest = whole - folds[part]
        weights = ridge(rest, penalty)
        for some in np.array_split(held, -(-len(held) // _RANKED)):
            ranks[some] = _ranks(pairs[some], weights, rest.target_mean)
    return ranks


def trusted_pairs(pairs: PairedVectors, doubt: float = 0.5, seed: int = 0) -> NDArray[np.bool_]:
    """Return which pairs (P,) are of one item each, as far as a linear map can tell; all of fewer than 20.

    A pair is wrong with the probability π / f(r): r is its rank by `held_out_ranks`, which is as likely to be anywhere
    for a wrong pair, π the share of wrong ones, as `suspect_pairs` estimates it, and f the density of all ranks, which
    never rises (Efron et al., J. Am. Stat. Assoc. 96, 2001: the local false discovery rate). Ranks are then found once
    more by maps that are fitted on the trusted pairs alone.

    Args:
        pairs: P of them.
        doubt: Pairs of a higher probability are not trusted, in [0, 1].
        seed: Of the folds.
    """
    trusted = np.ones(len(pairs), np.bool_)
    if len(pairs) < FEWEST_TESTED or doubt >= 1:
        return trusted
    for _ in range(_PASSES):
        found = wrong_probability(held_out_ranks(pairs, seed, trusted)) <= doubt
        if found.sum() < FEWEST_TESTED:  # nothing that a linear map could learn
            return np.ones(len(pairs), np.bool_)
        if (found == trusted).all():  # the same maps again
            break
        trusted = found
    return trusted


def without_doubtful(
    old: EmbeddingSet, new: EmbeddingSet, *, direction: Direction = "new_to_old", seed: int = 0
) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Leave out pairs that are more probably wrong than right, where a clear share of all pairs is wrong.

    Where fewer than `DOUBTED` of the pairs are suspect, or there are fewer than 20 pairs, all stay: of a few doubtful
    pairs most are right ones that a linear map predicts badly, and a map can learn from those.

    Args:
        old: Embeddings of the old model.
        new: The same items by the new model, in the same order.
        direction: Which side is predicted from the other; see `suspect_pairs`.
        seed: Of the fifths.
    """
    if len(old) < FEWEST_TESTED or suspect_pairs(old, new, direction=direction, seed=seed).low <= DOUBTED:
        return old, new
    found = matched(old, new, direction=direction)
    trusted = trusted_pairs(paired_vectors(old, new, found), seed=seed)
    return old[found.old_rows[trusted]], new[found.new_rows[trusted]]


def wrong_probability(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for every rank (P,) in [0, 1] the probability that its pair is wrong; see `trusted_pairs`.

    >>> wrong_probability(np.array([0.0] * 9 + [0.7, 0.9])).round(2).tolist()
    [0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 1.0, 1.0]
    """
    place = np.minimum((ranks * _RANGES).astype(np.int64), _RANGES - 1)
    counts = np.bincount(place, minlength=_RANGES).astype(np.float64)
    density = isotonic_means(counts[::-1] * (_RANGES / len(ranks)))[::-1]
    share = min(1.0, 2 * float((ranks > 0.5).mean()))
    if share == 0:
        return np.zeros(len(ranks))
    wrong: NDArray[np.float64] = np.minimum(1, share / density[place])
    return wrong


def _ranks(pairs: PairedVectors, weights: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    predicted = unit_rows(with_constant(pairs.unit_source()) @ weights - centre)
    cosines = predicted @ unit_rows(pairs.unit_target() - centre).T
    own = np.diag(cosines)[:, None]
    ahead = (cosines > own).sum(axis=1) + ((cosines == own).sum(axis=1) - 1) / 2
    ranks: NDArray[np.float64] = ahead / (len(pairs) - 1)
    return ranks


def _wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a share of `count` items."""
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return max(0.0, float(middle - half)), float(middle + half)


def paired_vectors(old: EmbeddingSet, new: EmbeddingSet, pairs: MatchedRows) -> PairedVectors:
    """Return the vectors that are mapped and what they should become, as the direction of the pairs' report says."""
    if pairs.report.direction == "new_to_old":
        return PairedVectors(new.vectors, pairs.new_rows, old.vectors, pairs.old_rows)
    return PairedVectors(old.vectors, pairs.old_rows, new.vectors, pairs.new_rows)
