"""How many first hits break and heal where one system takes over from another."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.compatibility import negative_flip_rate, positive_flip_rate
from limpet.evaluation.intervals import Draws
from limpet.results import Number, NumberInterval, Part


class FirstHits(Part):
    """How many first hits a swap breaks and heals: what stands beside every verdict.

    Args:
        metric: What says that a first hit is right, such as recall@1.
        before: Share of right ones with old queries on the old gallery.
        after: With new queries on the old gallery.
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
            metric: What says that a first hit is right.
            before: Whether it is for every query (Q,), by the old system; see `compatibility.negative_flip_rate`.
            after: The same by the new one.
            draws: How the interval is drawn.
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
