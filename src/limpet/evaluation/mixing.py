"""Evaluation of galleries that mix vectors of two models, with queries of either model.

Queries of both models on old, mixed and new galleries are compared with old queries on the old gallery. New queries
must be strictly better; old queries must not lose more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from limpet.embeddings import EmbeddingSet
from limpet.errors import refuse
from limpet.evaluation.compatibility import Verdict, clearly_worse, verdict
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.intervals import Draws
from limpet.evaluation.protocols.base import PerUnit, Protocol
from limpet.evaluation.sides import MatchedModels
from limpet.evaluation.upgrade import random_order
from limpet.results import Finite, ModelIdentity, Number, NumberInterval, Part
from limpet.support.ranges import Share, checked

TOLERANCE = 0.01
"""What old queries may lose, as a fraction of 1, unless somebody says otherwise."""
SHARES = (0.0, 0.5, 1.0)
"""Of the gallery that is new."""


class Meeting(Part):
    """Queries of one model on a gallery with a share of new vectors, in the gate metric.

    Args:
        queries: Model of the queries: "old" or "new".
        new_share: Share of the gallery embedded by the new model.
        difference: Score minus that of old queries on the old gallery.
        interval: Paired interval of that difference.
        tolerated: Tolerated loss.
        verdict: See `compatibility.verdict`, for the interval raised by the tolerance.
        worse: Guard metrics that are worse than today by clearly more than the tolerance.
        first_hits: Changes of the first hits, compared with today; None if no single answer is right or wrong.
    """

    queries: str
    new_share: Share
    score: Number
    difference: Number
    interval: NumberInterval
    tolerated: Finite
    verdict: Verdict
    worse: tuple[str, ...] = ()
    first_hits: FirstHits | None = None

    @property
    def passed(self) -> bool:
        """Whether the mix is acceptable."""
        return self.verdict == "compatible"

    @property
    def words(self) -> str:
        """What is searched.

        >>> Meeting(queries="old", new_share=0.5, score=0.5, difference=0, interval=(0, 0), tolerated=0.01,
        ...         verdict="compatible").words
        'old queries on a gallery of which 50% is new'
        """
        known = {0.0: "the old gallery", 1.0: "the new gallery"}
        where = known.get(self.new_share, f"a gallery of which {100 * self.new_share:g}% is new")
        return f"{self.queries} queries on {where}"


class Mixing(Part):
    """Results of search in galleries that mix vectors of two models.

    Args:
        space: Name of the space of the comparison.
        dim: Dimension of the vectors of both.
        old: The old model.
        new: The new model.
        meetings: Measurements: queries of both models at `SHARES`, except old queries on the old gallery, the baseline.
    """

    metric: str
    space: str
    dim: int
    old: ModelIdentity
    new: ModelIdentity
    meetings: tuple[Meeting, ...]

    @property
    def passed(self) -> bool:
        """Whether all mixes are acceptable."""
        return bool(self.meetings) and all(one.passed for one in self.meetings)

    def meeting(self, queries: str, new_share: float) -> Meeting | None:
        """Return the measurement of one model's queries at a share; None if not measured."""
        return next((one for one in self.meetings if (one.queries, one.new_share) == (queries, new_share)), None)


def mixed_gallery(old: EmbeddingSet, new: EmbeddingSet, share: float, seed: int) -> EmbeddingSet:
    """Return a gallery of which a share, drawn at random, is of the new model; its fingerprint is that of the old one.

    Args:
        old: The gallery embedded by the old model.
        new: The same items in the same order, embedded by the new model.
        share: Within [0, 1]; round(share N) rows are new.
        seed: Random seed of the draw.
    """
    rows = random_order(len(old), seed)[: round(share * len(old))]
    vectors = np.array(old.vectors)
    vectors[rows] = new.vectors[rows]
    return replace(old, vectors=vectors)


@checked
def measure_mixing(
    models: MatchedModels,
    protocol: Protocol,
    metrics: Sequence[str],
    gate_metric: str,
    *,
    guards: Sequence[str] = (),
    draws: Draws,
    tolerance: Share = TOLERANCE,
    trained_share: float = 0.0,
    device: str | None = None,
) -> Mixing:
    """Evaluate queries of both models on old, half new and new galleries.

    Raises:
        ConfigError: The tolerance is not in [0, 1], or a map or a head computes one side of the cross-test.
    """
    refuse(models.cross is not None, "Mixing where a map or a head links the models.",
           "two models whose own vectors meet, of one space")  # fmt: skip
    (_, old_gallery), (_, new_gallery) = models.old, models.new
    galleries = {
        share: [mixed_gallery(old_gallery, new_gallery, share, draws.seed + more)
                for more in (range(3) if 0 < share < 1 else range(1))]
        for share in SHARES
    }  # fmt: skip

    answers = protocol.answer_metrics()

    def values(query: EmbeddingSet, share: float) -> dict[str, PerUnit]:
        names = list(dict.fromkeys((*metrics, *answers)))
        found = [protocol.measure(query, gallery, names, device=device) for gallery in galleries[share]]
        return {name: np.mean([one[name] for one in found], axis=0) for name in names}

    today = values(models.old[0], 0.0)
    asked = {(side, share): query for side, query in (("new", models.new[0]), ("old", models.old[0]))
             for share in SHARES if (side, share) != ("old", 0.0)}  # fmt: skip
    meetings = []
    for (side, share), query in asked.items():
        measured = values(query, share)
        tolerated = tolerance if side == "old" else 0.0
        gains = {name: measured[name] - today[name] for name in dict.fromkeys((gate_metric, *guards))}
        intervals = draws.intervals(gains)
        raised = {name: (low + tolerated, high + tolerated) for name, (low, high) in intervals.items()}
        worse = clearly_worse({name: raised[name] for name in guards})
        meetings.append(
            Meeting(
                queries=side,
                new_share=share,
                score=float(np.nanmean(measured[gate_metric])),
                difference=float(np.nanmean(gains[gate_metric])),
                interval=intervals[gate_metric],
                tolerated=tolerated,
                verdict=verdict(raised[gate_metric], worse, trained_share=trained_share),
                worse=worse,
                first_hits=next((FirstHits.of(one, today[one], measured[one], draws) for one in answers), None),
            )
        )
    old, new = (ModelIdentity(fingerprint=one.fingerprint, declared=one.declared) for one in (old_gallery, new_gallery))
    return Mixing(
        metric=gate_metric,
        space=old_gallery.space.name,
        dim=old_gallery.dim,
        old=old,
        new=new,
        meetings=tuple(meetings),
    )
