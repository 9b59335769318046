"""Shares of first hits that a change of systems breaks or fixes."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.compatibility import negative_flip_rate, positive_flip_rate
from limpet.evaluation.intervals import Draws
from limpet.results import Number, NumberInterval, Part


class FirstHits(Part):
    """Shares of first hits that a swap breaks or fixes; reported with every verdict.

    Args:
        metric: Metric of a correct first hit, such as recall@1.
        before: Share of correct first hits of old queries on the old gallery.
        after: Share of correct first hits of new queries on the old gallery.
        healed: Share of queries wrong before and right after.
        broken: Share of queries right before and wrong after.
        net: Healed minus broken, which is after minus before.
    """

    metric: str
    before: Number
    after: Number
    healed: Number
    broken: Number
    net: Number
    interval: NumberInterval

    @classmethod
    def of(cls, metric: str, before: NDArray[np.float64], after: NDArray[np.float64], draws: Draws) -> Self:
        """Compare two systems on the same queries.

        Args:
            metric: Metric of a correct first hit.
            before: Whether the old system's first hit is correct, for every query (Q,); see
                `compatibility.negative_flip_rate`.
            after: Whether the new system's first hit is correct (Q,).
            draws: Bootstrap settings of the interval.
        """
        return cls(
            metric=metric,
            before=float(np.nanmean(before)),
            after=float(np.nanmean(after)),
            healed=positive_flip_rate(before, after),
            broken=negative_flip_rate(before, after),
            net=float(np.nanmean(after - before)),
            interval=draws.intervals({metric: after - before})[metric],
        )
