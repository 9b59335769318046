"""The page of one upgrade on several test sets: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from holdfast.evaluation.test_sets import CombinationResults
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.forest import SYSTEMS, Gain, gain_plot, set_swatch, sets_plot
from holdfast.reports.combined_tables import AVERAGE, combined_table
from holdfast.reports.protocol_rows import rule_rows
from holdfast.reports.template import in_both_widths, page_template, write_page
from holdfast.reports.words import MARKS, metric_note



def write_combined_report(results: CombinationResults, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    return write_page(render_combined_report(results), folder)


def render_combined_report(results: CombinationResults) -> str:
    """Return the page as text; see `write_combined_report`."""
    values = {"marks": MARKS, "metric_note": metric_note, "swatch": set_swatch}
    page: str = page_template("combined.html", values=values).render(
        document=results,
        headline=combined_headline(results),
        findings=set_findings(results),
        notes=combined_notes(results),
        terms=_terms(results),
        metrics=list(dict.fromkeys(record.metric for record in results.sets.values())),
        systems=_systems(results),
        charts={
            "scores": in_both_widths(lambda width: sets_plot(results.sets, width=width)),
            "gains": in_both_widths(partial(_gains, results), 400),
        },
        table=combined_table(results, typeset=True),
        average=AVERAGE,
        protocols={name: rule_rows(protocol) for name, protocol in results.protocols.items()},
    )
    return page


def _terms(results: CombinationResults) -> dict[str, str]:
    absent = set() if results.fingerprints.get("independent") else {"P_up", "P_comp", "P_1", "average"}
    return {name: told for name, told in TERMS_OF_SETS.items() if name not in absent}


def _systems(results: CombinationResults) -> dict[str, str]:
    return {
        system: told
        for system, told in SYSTEMS.items()
        if any(record.score(system) is not None for record in results.sets.values())
    }


def _gains(results: CombinationResults, width: float) -> Chart:
    gains = [Gain(name, record.gain, record.interval, record.verdict) for name, record in results.sets.items()]
    return gain_plot("Cross-test minus self-test of the old model, set by set", gains, "difference", width=width)
