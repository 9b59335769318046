"""The chart of agreement: how much of what people find today they would find again, without a word on what is right."""

from __future__ import annotations

from typing import Literal

from holdfast.evaluation.agreement import Agreement, Mean
from holdfast.reports.formats import percent
from holdfast.reports.plots import Evaluations
from holdfast.reports.svg import Scale, box, chart, line, text, whisker

Stage = Literal["cross", "self_new"]

STAGES: dict[Stage, str] = {"cross": "after the swap", "self_new": "re-embedded"}

_ROW, _BAR, _TOP, _BOTTOM, _NUMBER = 74, 15, 8, 30, 70


def agreements(evaluations: Evaluations) -> dict[str, Agreement]:
    """Return the agreement of every evaluation that has one for both stages."""
    found = {name: record.agreement for name, record in evaluations.items()}
    return {name: agreement for name, agreement in found.items() if isinstance(agreement, Agreement)}


def measures(agreement: Agreement) -> dict[str, str]:
    """Return what is drawn, by name, in words; each is a share of 0 to 1, where 1 is no change."""
    return {
        "first_kept": "queries whose first hit stays",
        "overlap": f"items of today’s first {agreement.k} that stay",
        "rank_biased_overlap": "the same, the top of the list counting most",
    }


def agreement_bars(name: str, agreement: Agreement, *, width: float = 640) -> str:
    """Draw every measure after the swap and after re-embedding, from nothing in common to no change at all.

    Args:
        name: The new model.
        agreement: Its record.
        width: Width in pixels.
    """
    words = measures(agreement)
    x = Scale(0.0, 1.0, 0.5, width - _NUMBER)
    height = _TOP + _ROW * len(words) + _BOTTOM
    bottom = height - _BOTTOM
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(x(share), _TOP, x(share), bottom, "grid"))
        anchor = "start" if share == 0 else "middle"
        parts.append(text(x(share), bottom + 17, f"{100 * share:g}\N{NO-BREAK SPACE}%", "tick", anchor))
    for place, (measure, label) in enumerate(words.items()):
        top = _TOP + _ROW * place
        parts.append(text(0, top + 16, label, "name"))
        for row, stage in enumerate(STAGES):
            parts += _bar(x, top + 24 + 20 * row, width, stage, *share_of(agreement, stage, measure))
    return chart(width, height, f"Agreement of {name} with today’s results", _in_words(agreement), parts)


def share_of(agreement: Agreement, stage: Stage, measure: str) -> tuple[float, tuple[float, float]]:
    """Return the share and its interval, turned round where a record counts changes."""
    turned = measure == "first_kept"
    found: Mean = getattr(getattr(agreement, stage), "first_changed" if turned else measure)
    low, high = (found.mean if end is None else end for end in found.interval)
    return (1 - found.mean, (1 - high, 1 - low)) if turned else (found.mean, (low, high))


def _bar(x: Scale, top: float, width: float, stage: Stage, share: float, around: tuple[float, float]) -> list[str]:
    note = f"{STAGES[stage]}: {percent(share)} [{percent(around[0])}, {percent(around[1])}]"
    return [
        box(x(0), top, x(share) - x(0), _BAR, f"bar {stage}", note),
        whisker(x(around[0]), x(around[1]), top + _BAR / 2),
        text(width, top + 12, percent(share), "number", "end"),
    ]


def agreement_rows(agreement: Agreement) -> tuple[list[str], list[list[str]]]:
    """Return all numbers as a table: a row per measure, a column per stage, in per cent with intervals."""
    rows = []
    for measure, label in measures(agreement).items():
        cells = []
        for stage in STAGES:
            share, (low, high) = share_of(agreement, stage, measure)
            cells.append(f"{percent(share)} [{percent(low)}, {percent(high)}]")
        rows.append([label, *cells])
    return ["share that agrees with today", *STAGES.values()], rows


def _in_words(agreement: Agreement) -> str:
    return (
        "; ".join(
            f"{label}: "
            + ", ".join(f"{words} {percent(share_of(agreement, stage, measure)[0])}" for stage, words in STAGES.items())
            for measure, label in measures(agreement).items()
        )
        + "."
    )
