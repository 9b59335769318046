"""Learning-rate schedules as pure functions of training progress, so that resuming needs no state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Schedule:
    """A factor of the base learning rate.

    Args:
        interval: Interval at which the rate changes: every "step" or every "epoch".
        factor: Function from (epochs done, as a fraction; all epochs) to a factor, usually in [0, 1].
    """

    interval: Literal["epoch", "step"]
    factor: Callable[[float, int], float]

    def at(self, epoch: int, step: int, steps: int, epochs: int) -> float:
        """Return the factor for a step (from 0) of an epoch (from 0) of ``steps`` steps each."""
        done = epoch + step / steps if self.interval == "step" else float(epoch)
        return self.factor(done, epochs)


def constant() -> Schedule:
    """Keep the base rate."""
    return Schedule("epoch", lambda done, epochs: 1.0)


def milestones(at: Sequence[int], factor: float = 0.1) -> Schedule:
    """Multiply the rate by ``factor`` at each of the given epochs (AdvBCT and NDPP on landmarks: 5, 10 and 20 of 30).

    >>> [round(milestones([1, 3]).at(epoch, 0, 10, 5), 4) for epoch in range(5)]
    [1.0, 0.1, 0.1, 0.01, 0.01]
    """
    return Schedule("epoch", lambda done, epochs: factor ** sum(done >= epoch for epoch in at))


def cosine(floor: float = 0.0) -> Schedule:
    """Fall from 1 to ``floor`` along half a cosine, step by step (HBCT).

    >>> round(cosine().at(5, 0, 10, 10), 4)
    0.5
    """
    return Schedule("step", lambda done, epochs: floor + (1 - floor) * (1 + math.cos(math.pi * done / epochs)) / 2)


def cosine_restarts(floor: float = 0.01, first: float = 0.1) -> Schedule:
    """Warm up for an epoch, then fall along half a cosine in cycles of 1, 2, 4, ... epochs (CVS and Rainbow Memory).

    The rate changes from epoch to epoch. Runs of 2, 4, 8, ... 256 epochs end with a whole cycle.

    Args:
        floor: Factor at the end of every cycle.
        first: Factor of epoch 0.

    >>> [round(cosine_restarts().at(epoch, 0, 10, 8), 3) for epoch in range(8)]
    [0.1, 1.0, 1.0, 0.505, 1.0, 0.855, 0.505, 0.155]
    """

    def factor(done: float, epochs: int) -> float:
        epoch = math.floor(done)
        if epoch == 0:
            return first
        length = 2 ** (epoch.bit_length() - 1)
        return floor + (1 - floor) * (1 + math.cos(math.pi * (epoch - length) / length)) / 2

    return Schedule("epoch", factor)


def polynomial(power: float = 2.0) -> Schedule:
    """Fall as (1 − progress)^power: 1 in MixBCT's text, 2 in its code.

    >>> polynomial(2).at(5, 0, 10, 10)
    0.25
    """
    return Schedule("step", lambda done, epochs: (1 - done / epochs) ** power)


def warmed_up(schedule: Schedule, epochs: float) -> Schedule:
    """Rise linearly over the first epochs, step by step, then follow ``schedule`` as if it had run from the start.

    >>> [round(warmed_up(constant(), 2).at(epoch, 0, 1, 10), 4) for epoch in range(4)]
    [0.0, 0.5, 1.0, 1.0]
    """
    if epochs <= 0:
        return schedule
    return Schedule("step", lambda done, total: min(1.0, done / epochs) * schedule.factor(_own(schedule, done), total))


def _own(schedule: Schedule, done: float) -> float:
    return done if schedule.interval == "step" else math.floor(done)
