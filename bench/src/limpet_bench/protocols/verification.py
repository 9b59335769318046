"""1:1 verification of templates, as in IJB-C: does a pair show one person?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, unknown_name
from limpet.evaluation import check_sides
from limpet.evaluation.protocols import PerUnit, Protocol
from limpet_bench.datasets.ijbc import PAIRS, FaceTruth
from limpet_bench.protocols.operating_points import Rule, accepted_at, parsed
from limpet_bench.protocols.templates import TemplateVectors, first_labels, rows_of_numbers, templates_of

_PAIRS_AT_ONCE = 4096  # bounds memory: 32 MB for each side at 1024 dimensions


@dataclass(frozen=True, eq=False, kw_only=True)
class Verification(Protocol):
    """Score the true accept rate (TAR) at a false accept rate over pairs of templates.

    Queries and gallery are embedded images with the columns "template", "media" and "detector_score" (see
    `templates_of`), usually the same images. The gallery's model embeds the first template of a pair, the queries'
    model the second; the score of the pair is their inner product. Units are the genuine pairs, with the value 1 if
    accepted and 0 otherwise. All impostor pairs together set the threshold.

    Papers: Maze et al., IARPA Janus Benchmark C, ICB 2018; MixBCT evaluates compatibility in this way.

    Use it for one-to-one comparison of faces with a threshold.

    Args:
        pairs: The numbers of both templates of every pair, int64 (P, 2).
        same: Whether both templates of a pair show the same person, bool (P,).
        rule: Rule that selects the point of the ROC curve; see `accepted_at`. "nearest" is as published, "full" is the
            nearest of all thresholds, "strict" never accepts more impostors than the rate allows.

    Raises:
        ConfigError: The rule is unknown.
        DataError: Shapes differ, or there are no genuine or no impostor pairs.

    >>> from limpet import EmbeddingSet, evaluate
    >>> columns = {"template": np.arange(4), "media": np.arange(4), "detector_score": np.ones(4, np.float32)}
    >>> faces = np.eye(4, dtype=np.float32)
    >>> v1, v2 = (EmbeddingSet(faces, model=name, columns=columns) for name in ("v1", "v2"))
    >>> by_pairs = Verification(pairs=np.array([[0, 0], [0, 1]]), same=np.array([True, False]))
    >>> evaluate((v1, v1), (v2, v2), protocol=by_pairs).cross["tar@1e-4"]
    1.0
    """

    name: ClassVar[str] = "ijbc-verification"
    description: ClassVar[str] = "pairs of templates: true accepts at a rate of false ones (IJB-C 1:1)"
    metrics: ClassVar[tuple[str, ...]] = ("tar@1e-5", "tar@1e-4", "tar@1e-3")
    gate_metric: ClassVar[str] = "tar@1e-4"
    units: ClassVar[str] = "genuine pairs"
    ground_truth: ClassVar[str | None] = f"the folder of the lists of templates, with {PAIRS}"

    pairs: NDArray[np.int64] = field(repr=False)
    same: NDArray[np.bool_] = field(repr=False)
    rule: Rule = "nearest"

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise unknown_name("rule for the threshold", self.rule, get_args(Rule))
        if self.pairs.shape != (len(self.same), 2) or self.same.all() or not self.same.any():
            raise DataError(
                f"Pairs of shape {self.pairs.shape}, {np.count_nonzero(self.same)} of {len(self.same)} of one person.",
                expected="two templates per pair, genuine and impostor pairs",
            )

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build from the lists of IJB-C; see `FaceTruth.read`."""
        truth = FaceTruth.read(ground_truth)
        if truth.pairs is None or truth.same is None:
            raise DataError(f"There are no pairs of templates in {ground_truth}.", expected=f"the list {PAIRS}")
        return cls(pairs=truth.pairs, same=truth.same, **options)

    def measure(
        self,
        query: EmbeddingSet,
        gallery: EmbeddingSet,
        metrics: Sequence[str],
        *,
        block: int | None = None,
        device: str | None = None,
    ) -> dict[str, PerUnit]:
        """Return whether each genuine pair is accepted, 1 or 0, by metric.

        Args:
            query: Images of the second templates.
            gallery: Images of the first templates.
            metrics: Names such as "tar@1e-4".
            block: Number of pairs to compare at a time.
            device: Ignored; pairs are compared on the CPU, in float64.

        Raises:
            ConfigError: A metric is unknown.
            DataError: A column is missing, or a template has no image or no direction.
            SpaceMismatchError: The space is not the hypersphere, or the two sides are in different spaces.
        """
        rates = parsed(metrics, ["tar"])
        check_sides(query, gallery)
        first = templates_of(gallery, self.pairs[:, 0], "gallery")
        second = templates_of(query, self.pairs[:, 1], "queries")
        scores = pair_scores(first, second, self.pairs, block or _PAIRS_AT_ONCE)
        genuine, impostor = scores[self.same], scores[~self.same]
        impostor.sort()
        return {
            name: accepted_at(rate, genuine, impostor[::-1], self.rule).astype(np.float64)
            for name, (_, rate) in rates.items()
        }

    def check_metrics(self, metrics: Sequence[str]) -> None:
        """Refuse metrics other than true accept rates."""
        parsed(metrics, ["tar"])

    def answer_metrics(self) -> tuple[str, ...]:
        """Return the gate metric: a genuine pair is right if it is accepted."""
        return (self.gate_metric,)

    def unit_labels(self, query: EmbeddingSet) -> NDArray[np.int64] | None:
        """Return the class of the second template of every genuine pair; None if images have no classes."""
        return first_labels(query, self.pairs[self.same, 1], "queries")

    def left_out(self, query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, int]:
        """Return the number of impostor pairs, which only set the threshold."""
        return {"impostor pairs, which set the threshold": int(np.count_nonzero(~self.same))}


def pair_scores(
    first: TemplateVectors, second: TemplateVectors, pairs: NDArray[np.int64], block: int = _PAIRS_AT_ONCE
) -> NDArray[np.float64]:
    """Return the inner product of every pair of templates, float64 (P,).

    Args:
        first: Templates of the gallery's model.
        second: Templates of the queries' model.
        pairs: The numbers of both templates of each pair (P, 2).
        block: Number of pairs to compare at a time.

    Raises:
        DataError: A template is missing.
    """
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        left = rows_of_numbers(first.numbers, part[:, 0], "gallery")
        right = rows_of_numbers(second.numbers, part[:, 1], "queries")
        np.einsum("pd,pd->p", first.vectors[left], second.vectors[right], out=scores[start : start + block])
    return scores
