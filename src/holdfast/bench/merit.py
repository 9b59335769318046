"""What the rule of a recommendation maximises, and which trials a tuning may take."""

from __future__ import annotations

from holdfast.bench.cases import Case, Name

LEAST_P_UP = -0.05
"""What costs the new model more of its own quality is taken only where all do: methods by a recommendation, and
trials by a tuning."""
ROUNDING = 1e-9  # differences nearer to 0 than this are none: their sums were added in another order
DIGITS = 9  # likewise, of means that are ranked


def mean_of(case: Case, name: Name, measure: str) -> float:
    """Return the mean over seeds of "p_comp" or "p_up" of a label that is complete in a case."""
    return float(getattr(case.complete[name], measure).mean())


def keeps_quality(p_up: float) -> bool:
    """Return whether a mean P_up is at least -0.05.

    >>> keeps_quality(-0.05), keeps_quality(-0.051)
    (True, False)
    """
    return p_up >= LEAST_P_UP - ROUNDING


def merit(case: Case, name: Name) -> tuple[bool, float]:
    """Return what is maximised within one case: keeping P_up; then P_comp where it is kept, and P_up where not."""
    keeps = keeps_quality(mean_of(case, name, "p_up"))
    return keeps, round(mean_of(case, name, "p_comp" if keeps else "p_up"), DIGITS)


def best_there(case: Case) -> Name:
    """Return the label of the highest merit in a case with a complete label; the first of equals."""
    return max(case.complete, key=lambda name: merit(case, name))
