"""Values for charts, tables and sentences, computed without a chart library: shares, ranges, thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from limpet.evaluation.agreement import Agreement, MeanAgreement
from limpet.reports.formats import percent, percent_of, score, signed
from limpet.reports.words import OLD, REEMBEDDED, measured

if TYPE_CHECKING:
    from limpet.evaluation.class_change import ClassChangeSummary, ClassScore
    from limpet.evaluation.results import Evaluation
    from limpet.evaluation.uncertainty import DiskClass, Histogram
    from limpet.evaluation.upgrade import UpgradeCurves
    from limpet.galleries.rehearsal.results import FirstHitChanges

__all__ = ["GROUPS", "shares"]

Range = tuple[float, float]
Table = tuple[list[str], list[list[str]]]
Evaluations = Mapping[str, "Evaluation"]

REFERENCES = {"self_old": OLD, "self_new": REEMBEDDED}
"""Baselines of candidates that link two models."""

# --- agreement with today's results ----------------------------------------------------------------------------------

Stage = Literal["cross", "self_new"]
STAGES: dict[Stage, str] = {"cross": "after the swap", "self_new": "re-embedded"}


def agreements(evaluations: Evaluations) -> dict[str, Agreement]:
    """Return the agreement of every evaluation that has one for both stages."""
    found = {name: record.agreement for name, record in evaluations.items()}
    return {name: agreement for name, agreement in found.items() if isinstance(agreement, Agreement)}


def measures(agreement: Agreement) -> dict[str, str]:
    """Return the descriptions of the drawn measures, by name; each is a share in [0, 1], where 1 is no change."""
    return {
        "first_kept": "queries whose first hit stays",
        "overlap": f"items of today’s first {agreement.k} that stay",
        "rank_biased_overlap": "the same, the top of the list counting most",
    }


def share_of(agreement: Agreement, stage: Stage, measure: str) -> tuple[float, Range]:
    """Return the share and its interval, inverted if a record counts changes."""
    turned = measure == "first_kept"
    found: MeanAgreement = getattr(getattr(agreement, stage), "first_changed" if turned else measure)
    low, high = (found.mean if end is None else end for end in found.interval)
    return (1 - found.mean, (1 - high, 1 - low)) if turned else (found.mean, (low, high))


def agreement_rows(agreement: Agreement) -> Table:
    """Return all numbers as a table: a row per measure, a column per stage, in per cent with intervals."""
    rows = []
    for measure, label in measures(agreement).items():
        cells = []
        for stage in STAGES:
            share, (low, high) = share_of(agreement, stage, measure)
            cells.append(f"{percent(share)} [{percent(low)}, {percent(high)}]")
        rows.append([label, *cells])
    return ["share that agrees with today", *STAGES.values()], rows


# --- classes ---------------------------------------------------------------------------------------------------------

End = Literal["worst", "best"]
NAMED = 5  # classes at either end beside the chart; the table has all of the record


def class_changes(evaluations: Evaluations) -> dict[str, ClassChangeSummary]:
    """Return the change per class of every evaluation that has one."""
    return {name: record.class_change for name, record in evaluations.items() if record.class_change}


def class_range(changes: Mapping[str, ClassChangeSummary]) -> Range:
    """Return the range of all changes, with zero well inside, so that panels share one scale."""
    found = [value for change in changes.values() for value in (change.curve[0], change.curve[-1])]
    room = 0.15 * (max(0.0, *found) - min(0.0, *found)) or 0.01
    return min(-room, *found), max(room, *found)


def class_rows(change: ClassChangeSummary, end: End, count: int | None = None) -> Table:
    """Return the classes at one end as a table."""
    rows = []
    for one in classes_at(change, end)[:count]:
        numbers = [f"{one.queries:,}", score(one.before), score(one.after)]
        rows.append([one.name, *numbers, f"{signed(one.change)}{' *' if one.clear else ''}"])
    return ["class", "queries", "before", "after", "change"], rows


def classes_at(change: ClassChangeSummary, end: End) -> list[ClassScore]:
    """Return the classes at one end."""
    return change.worst if end == "worst" else change.best


# --- first hits ------------------------------------------------------------------------------------------------------

CHANGES = {
    "fixed": "wrong before, right now",
    "broken": "right before, wrong now",
    "other": "another first hit",
    "same": "the same first hit",
}
"""Possible changes of the first hit of a query."""


def changes_of(found: FirstHitChanges, judged: float) -> dict[str, float]:
    """Return the share of queries with each change, in the order of `CHANGES`, without changes that did not occur.

    >>> from limpet.galleries.rehearsal.results import FirstHitChanges
    >>> changes_of(FirstHitChanges(share=1.0, changed=0.5, fixed=0.4, broken=0.2), judged=0.5)
    {'fixed': 0.2, 'broken': 0.1, 'other': 0.2, 'same': 0.5}
    """
    fixed, broken = (found.fixed or 0.0) * judged, (found.broken or 0.0) * judged
    changed = max(found.changed, fixed + broken)  # with tied first items, expected counts may exceed the changes
    shares = {"fixed": fixed, "broken": broken, "other": changed - fixed - broken, "same": 1 - changed}
    return {name: round(share, 6) for name, share in shares.items() if share > 1e-9}


def stage(share: float) -> str:
    """Name the stage at which this share of the gallery is re-embedded.

    >>> stage(0.0), stage(0.5), stage(1.0)
    ('after the swap', 'half way', 'at the end')
    """
    return {0.0: "after the swap", 0.5: "half way", 1.0: "at the end"}.get(share, f"{percent_of(share)} done")


# --- an upgrade ------------------------------------------------------------------------------------------------------

ORDERS = {
    "random": "random order",
    "margin": "least certain items first",
    "margin_reversed": "most certain items first",
}


def curve_range(evaluations: Mapping[str, Evaluation]) -> Range | None:
    """Return the lowest and highest value of all upgrade curves with their references; None without any curve."""
    found = [
        number
        for record in measured(evaluations).values()
        if (curves := record.upgrade_curve)
        for numbers in (curve_references(record, curves).values(), *curve_orders(curves).values())
        for number in numbers
        if number is not None
    ]
    return (min(found), max(found)) if found else None


def curve_references(record: Evaluation, curves: UpgradeCurves) -> dict[str, float | None]:
    """Return the start and end scores of a curve, by name."""
    return {
        "old": record.score("self_old", curves.metric),
        "all re-embedded": record.score("self_new", curves.metric),
    }


def curve_orders(curves: UpgradeCurves) -> dict[str, list[float | None]]:
    """Return the values of every order that was measured."""
    return {order: curves.values[order] for order in ORDERS if order in curves.values}


def curve_rows(curves: UpgradeCurves) -> Table:
    """Return the curves of an upgrade as a table: a row per share that is re-embedded, a column per order."""
    orders = curve_orders(curves)
    rows = [
        [f"{100 * share:g}\N{NO-BREAK SPACE}%", *(score(values[place]) for values in orders.values())]
        for place, share in enumerate(curves.shares)
    ]
    return ["share", *(ORDERS[order] for order in orders)], rows


def trade_off_points(evaluations: Mapping[str, Evaluation]) -> dict[str, Range]:
    """Return (P_comp, P_up), raw and on the gate metric, of the models that have both."""
    points = {}
    for name, record in measured(evaluations).items():
        p_comp, p_up = record.p("p_comp"), record.p("p_up")
        if p_comp is not None and p_up is not None:
            points[name] = (p_comp, p_up)
    return points


# --- uncertainty ---------------------------------------------------------------------------------------------------

GROUPS = {"seen": "classes the old model has seen", "unseen": "classes it has not seen", "all": "all items"}


def uncertainties(evaluations: Mapping[str, Evaluation]) -> dict[str, Histogram]:
    """Return the histogram of every model with an uncertainty: "old" first, new models by name."""
    found: dict[str, Histogram] = {}
    for record in evaluations.values():
        if record.uncertainty and record.uncertainty.old:
            found.setdefault("old", record.uncertainty.old)
    for name, record in evaluations.items():
        if record.uncertainty and record.uncertainty.new:
            found[name if name != "old" else "old (new)"] = record.uncertainty.new
    return found


def uncertainty_range(histograms: Mapping[str, Histogram]) -> Range:
    """Return the lowest and highest edge of all bins, so that panels of several models share one scale."""
    found = histograms.values()
    return min(one.edges[0] for one in found), max(one.edges[-1] for one in found)


def shares(found: Histogram) -> dict[str, list[float]]:
    """Return the share of every group's items in each bin, in per cent, with groups in the order of `GROUPS`."""
    groups = found.groups
    return {
        group: [100 * count / groups[group].items for count in groups[group].counts]
        for group in GROUPS
        if group in groups
    }


def histogram_rows(found: Histogram) -> Table:
    """Return the histogram as a table: a row per bin, a column per group, in per cent of its items."""
    groups = shares(found)
    bins = [f"{low:g} – {high:g}" for low, high in zip(found.edges, found.edges[1:], strict=False)]
    rows = [[name, *(percent(values[row] / 100) for values in groups.values())] for row, name in enumerate(bins)]
    return ["uncertainty", *(GROUPS[group] for group in groups)], rows


DISK_SERIES = (0, 1, 2, 3, 4, 6)
"""Indices of series colours that are distinct in light and dark mode."""


def class_words(group: DiskClass) -> str:
    """Return the legend of a class: whether the old model has seen it, and the uncertainty of both models."""
    known = {True: " (seen)", False: " (not seen)", None: ""}[group.seen]
    return f"{group.name}{known}: {score(group.old_uncertainty)} → {score(group.new_uncertainty)}"
