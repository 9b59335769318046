"""1:N open-set identification of templates, as in IJB-C: is the person in the gallery, and who is it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, EmptyOverlapError
from limpet.evaluation import Ranked, check_sides, recall_at, repeated_rows
from limpet.evaluation.protocols import PerUnit, Protocol
from limpet_bench.datasets.ijbc import PARTS, FaceTruth, Templates
from limpet_bench.protocols.operating_points import parsed
from limpet_bench.protocols.templates import first_labels, rows_of_numbers, templates_of

_PROBES_AT_ONCE = 1024  # bounds memory: 15 MB of scores against a gallery of 1,772 templates


class Searched(NamedTuple):
    """Summary of every probe's ranking of a gallery.

    Args:
        best: The highest score of each probe (P,).
        mates: Ranks of the nearest templates of each probe's own subject; none if its subject is not in the gallery.
    """

    best: NDArray[np.float64]
    mates: Ranked


@dataclass(frozen=True, eq=False, kw_only=True)
class Identification(Protocol):
    """Score the true positive identification rate (TPIR) at a false positive rate, and the closed-set rank.

    Queries and gallery are embedded images with the columns "template", "media" and "detector_score" (see
    `templates_of`), usually the same images. The gallery's model embeds the templates of the galleries, the queries'
    model embeds the probes. A mated probe has its subject in the gallery; the best scores of the unmated probes set the
    threshold. A probe is identified if a template of its own subject comes first, with a score above the threshold.

    Units are the mated probes of every gallery, gallery after gallery. The value of a unit is 0 if its probe is not
    identified, and otherwise units / (galleries x units of its gallery), about 1. The mean of all values is therefore
    the average of the rates of the galleries, as published, even if these have different numbers of mated probes. If
    templates tie, the value is multiplied by the probability of identification over all orders of the tied templates;
    the published code does not define their order.

    Papers: Maze et al., IARPA Janus Benchmark C, ICB 2018; MixBCT evaluates compatibility in this way.

    Use it for one-to-many search of faces in which some probes have no match in the gallery.

    Args:
        galleries: The templates of each gallery, with their subjects.
        probes: The templates to search for, with their subjects.

    >>> from limpet import EmbeddingSet, evaluate
    >>> columns = {"template": np.arange(4), "media": np.arange(4), "detector_score": np.ones(4, np.float32)}
    >>> faces = np.eye(4, dtype=np.float32)
    >>> v1, v2 = (EmbeddingSet(faces, model=name, columns=columns) for name in ("v1", "v2"))
    >>> people = Templates(np.arange(2), np.arange(2))
    >>> search = Identification(galleries=(people, people), probes=Templates(np.arange(3), np.arange(3)))
    >>> evaluate((v1, v1), (v2, v2), protocol=search).cross["rank@1"]
    1.0
    """

    name: ClassVar[str] = "ijbc-identification"
    description: ClassVar[str] = (
        "probes find their subject in two galleries, others have none there (IJB-C 1:N, open set)"
    )
    metrics: ClassVar[tuple[str, ...]] = ("tpir@1e-2", "tpir@1e-1", "rank@1", "rank@5", "rank@10")
    gate_metric: ClassVar[str] = "tpir@1e-2"
    units: ClassVar[str] = "probes in a gallery"
    ground_truth: ClassVar[str | None] = f"the folder of the lists of templates, with {', '.join(PARTS.values())}"

    galleries: tuple[Templates, ...] = field(repr=False)
    probes: Templates = field(repr=False)

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build from the lists of IJB-C; see `FaceTruth.read`."""
        truth = FaceTruth.read(ground_truth)
        if truth.gallery_1 is None or truth.gallery_2 is None or truth.probes is None:
            raise DataError(
                f"There are not both galleries and the probes in {ground_truth}.",
                expected=f"the lists {', '.join(PARTS.values())}",
            )
        return cls(galleries=(truth.gallery_1, truth.gallery_2), probes=truth.probes, **options)

    def measure(
        self,
        query: EmbeddingSet,
        gallery: EmbeddingSet,
        metrics: Sequence[str],
        *,
        block: int | None = None,
        device: str | None = None,
    ) -> dict[str, PerUnit]:
        """Return the value of every unit, by metric.

        Args:
            query: Images of the probes.
            gallery: Images of the templates of the galleries.
            metrics: Names such as "tpir@1e-2", or "rank@5" for a template of the subject among the first five.
            block: Number of probes to compare at a time.
            device: Ignored; templates are compared on the CPU, in float64.

        Raises:
            ConfigError: A metric is unknown.
            DataError: A column is missing, or a template has no image or no direction.
            EmptyOverlapError: A gallery has no mated probe, or has no unmated probe to set the threshold.
            SpaceMismatchError: The space is not the hypersphere, or the two sides are in different spaces.
        """
        asked = parsed(metrics, ["tpir"], ["rank"])
        check_sides(query, gallery)
        parts = list(self._searched(query, gallery, block or _PROBES_AT_ONCE))
        counts = [np.count_nonzero(part.mates.relevant) for part in parts]
        weights = np.repeat([sum(counts) / (len(counts) * count) for count in counts], counts)
        return {
            name: weights * np.concatenate([_hits(part, kind, number) for part in parts])
            for name, (kind, number) in asked.items()
        }

    def _searched(self, query: EmbeddingSet, gallery: EmbeddingSet, block: int) -> Iterator[Searched]:
        wanted, people = self.probes
        built = templates_of(query, wanted, "queries")
        probes = built.vectors[rows_of_numbers(built.numbers, wanted, "queries")]
        for numbers, subjects in self.galleries:
            templates = templates_of(gallery, numbers, "gallery")
            rows = templates.vectors[rows_of_numbers(templates.numbers, numbers, "gallery")]
            ranking = searched(probes, people, rows, subjects, block)
            if not ranking.mates.relevant.any():
                raise EmptyOverlapError(
                    f"None of the {len(probes)} probes has its subject among the {len(subjects)} of a gallery.",
                    expected="subjects that the lists of probes and galleries share",
                )
            yield ranking

    def check_metrics(self, metrics: Sequence[str]) -> None:
        """Refuse metrics other than identification rates and ranks."""
        parsed(metrics, ["tpir"], ["rank"])

    def unit_labels(self, query: EmbeddingSet) -> NDArray[np.int64] | None:
        """Return the class of every unit's probe; None if images have no classes."""
        probes = [self.probes.templates[mated] for mated in self._mated()]
        return first_labels(query, np.concatenate(probes), "queries")

    def left_out(self, query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, int]:
        """Return the number of unmated probes, which only set thresholds, summed over galleries."""
        others = sum(int(np.count_nonzero(~mated)) for mated in self._mated())
        return {"probes without a subject in the gallery, which set the threshold": others}

    def _mated(self) -> list[NDArray[np.bool_]]:
        return [np.isin(self.probes.subjects, gallery.subjects) for gallery in self.galleries]


def searched(
    probes: NDArray[np.float64],
    probe_subjects: NDArray[np.int64],
    gallery: NDArray[np.float64],
    subjects: NDArray[np.int64],
    block: int = _PROBES_AT_ONCE,
) -> Searched:
    """Rank a gallery for every probe, by descending inner product.

    Args:
        probes: Unit vectors (P, D).
        probe_subjects: Subject of each probe, int64 (P,).
        gallery: Unit vectors (G, D).
        subjects: Subject of each template of the gallery, int64 (G,).
        block: Number of probes to compare at a time.
    """
    best, (above, tied, mates) = np.empty(len(probes)), np.empty((3, len(probes)), np.int64)
    repeats, firsts = repeated_rows(gallery)
    for start in range(0, len(probes), block):
        part = slice(start, start + block)
        scores = probes[part] @ gallery.T
        scores[:, repeats] = scores[:, firsts]  # matrix products may round equal columns differently
        own = np.where(probe_subjects[part, None] == subjects, scores, -np.inf)
        score = own.max(axis=1, keepdims=True)
        best[part] = scores.max(axis=1)
        above[part], tied[part] = (scores > score).sum(axis=1), (scores == score).sum(axis=1)
        mates[part] = np.where(score[:, 0] > -np.inf, (own == score).sum(axis=1), 0)
    offsets, sizes = np.append(0, np.cumsum(mates)), np.full(len(probes), len(gallery))
    return Searched(best, Ranked(np.repeat(above, mates), offsets, sizes, tied=np.repeat(tied, mates)))


def threshold(best: NDArray[np.float64], rate: float) -> float:
    """Return the threshold that a share `rate` of the unmated probes reaches, given their best scores (N,).

    It is the n-th highest score, counted from 0, with n = max(int(N rate) - 1, 0), as published.

    >>> threshold(np.array([0.1, 0.4, 0.2, 0.3]), 0.5)
    0.3
    """
    return float(np.sort(best)[::-1][max(int(len(best) * rate) - 1, 0)])


def _hits(ranking: Searched, kind: str, number: float) -> NDArray[np.float64]:
    """Return whether each mated probe is a hit (M,): 0 or 1, or the probability of a hit if templates tie."""
    mated = ranking.mates.relevant > 0
    if kind == "rank":
        return recall_at(int(number))(ranking.mates)[mated]
    if mated.all():
        raise EmptyOverlapError(
            f"All {len(mated)} probes have their subject in the gallery.",
            expected="probes whose subject the gallery lacks: they set the threshold of an open-set search",
            to_do="measure rank@k, or add probes of other subjects.",
        )
    found_first = recall_at(1)(ranking.mates)[mated]
    return found_first * (ranking.best[mated] > threshold(ranking.best[~mated], number))
