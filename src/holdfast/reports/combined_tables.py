"""One upgrade on several test sets as a table."""

from __future__ import annotations

from holdfast.evaluation.compatibility import PMetrics
from holdfast.evaluation.test_sets import CombinationResults
from holdfast.reports.formats import MISSING, plain_text, score, signed
from holdfast.reports.tables import Table, as_markdown
from holdfast.reports.words import short_verdict
from holdfast.wording import metric_name

AVERAGE = "average"
P_METRICS = {"p_up": "P_up", "p_comp": "P_comp", "p_score": "P_1"}


def combined_table(results: CombinationResults, *, typeset: bool = False) -> Table:
    """Return one row per test set, and their average; a dash stands for what is missing or not defined.

    Scores are fractions. P_up, P_comp and P_1 are the sigmoid variant in per cent, P_up and P_comp followed by the raw
    one in brackets. Minus signs are hyphens unless ``typeset``.
    """
    columns = ["test set", "metric", "self (old)", "self (independent)", "self (new)", "cross", *_P_HEADS, "verdict"]
    rows = [
        [
            name,
            metric_name(found.metric),
            *map(score, (found.self_old, found.self_independent, found.self_new, found.cross)),
            *_p_cells(found),
            short_verdict(found),
        ]
        for name, found in results.sets.items()
    ]
    rows.append([AVERAGE, *[""] * 5, *_p_cells(results.mean), ""])
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


_P_HEADS = ("P_up, % [raw]", "P_comp, % [raw]", "P_1, %")


def _p_cells(found: PMetrics) -> list[str]:
    cells = [
        MISSING if (shown := by_variant["sigmoid"]) is None else f"{_hundredths(shown)} [{signed(by_variant['raw'])}]"
        for by_variant in (found.p_up, found.p_comp)
    ]
    return [*cells, MISSING if found.p_score is None else _hundredths(found.p_score)]


def _hundredths(share: float) -> str:
    """Write a share in per cent as papers do, with two digits.

    >>> _hundredths(0.50484)
    '50.48'
    """
    return f"{100 * share:.2f}"


def combined_markdown(results: CombinationResults) -> str:
    """Return the table of `combined_table` in Markdown, numbers to the right, ending with a line break."""
    columns, rows = combined_table(results)
    return as_markdown(columns, rows, ["---", "---", *["---:"] * (len(columns) - 3), "---"])
