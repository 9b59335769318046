"""Phases of an upgrade of a live index, regardless of who owns its rows, and the steps that each phase permits.

::

    steady ──start──▶ started ──swap──▶ swapped ──finish──▶ steady
       ▲               │    ▲              │
       └────cancel─────┘    └───rollback───┘

``backfill`` and ``index`` are possible while an upgrade is started or swapped, and do not change the phase. ``cancel``
leaves only the old vectors, ``finish`` only the new ones. Both remove what the upgrade added and cannot be undone.
Until then ``rollback`` is possible, for as long as you want to watch the new model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from limpet.errors import UpgradeStateError

Phase = Literal["steady", "started", "swapped"]
UpgradeStep = Literal["start", "backfill", "index", "swap", "rollback", "finish", "cancel"]

POSSIBLE: Mapping[UpgradeStep, tuple[Phase, ...]] = {
    "start": ("steady",),
    "backfill": ("started", "swapped"),
    "index": ("started", "swapped"),
    "swap": ("started",),
    "rollback": ("swapped",),
    "finish": ("swapped",),
    "cancel": ("started",),
}
"""The phases from which each step is possible."""

_TO_DO: Mapping[tuple[UpgradeStep, Phase], str] = {
    ("start", "started"): "finish or cancel the upgrade that was started",
    ("start", "swapped"): "finish the upgrade before, or roll it back and cancel it",
    ("swap", "swapped"): "the new vectors serve already",
    ("rollback", "started"): "the old vectors serve already; cancel gives up the new ones",
    ("finish", "started"): "swap first, or cancel to keep the old vectors",
    ("cancel", "swapped"): "roll back first, or finish to keep the new vectors",
}


def check_step(step: UpgradeStep, phase: Phase, *, possible: tuple[Phase, ...] | None = None) -> None:
    """Refuse a step that is not possible from a phase.

    >>> check_step("swap", "started")

    Args:
        step: The step.
        phase: Phase of the upgrade.
        possible: Phases from which the step is possible, if they differ from `POSSIBLE`.

    Raises:
        UpgradeStateError: The step is not possible; the message names the possible steps.
    """
    allowed = POSSIBLE[step] if possible is None else possible
    if phase not in allowed:
        standing = "no upgrade is started" if phase == "steady" else f"the upgrade is {phase}"
        hint = _TO_DO.get((step, phase), "")
        to_do = (
            "`limpet upgrade start` starts one"
            if phase == "steady"
            else f"{hint}; `limpet upgrade status` shows what to type"
            if hint
            else "`limpet upgrade status` shows where it stands"
        )
        raise UpgradeStateError(
            f"Cannot {step}: {standing}.",
            expected=" or ".join(f"one that is {one}" for one in allowed) if allowed else "another step",
            to_do=f"{to_do}.",
        )
