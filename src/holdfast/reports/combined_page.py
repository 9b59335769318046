"""The page of one upgrade on several test sets: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.embeddings.storage import write_atomically
from holdfast.reports import combined_words as words
from holdfast.reports import sets_plot
from holdfast.reports.combined_results import AVERAGE, checked_combination, combined_table
from holdfast.reports.gain_plot import Gain, gain_plot
from holdfast.reports.page import FILE_NAME
from holdfast.reports.protocol_rows import rule_rows
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import MARKS, metric_note

Document = Mapping[str, Any]

TEMPLATE = "combined.html"


def write_combined_report(document: Document, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `combined_document` or `read_combination` returned.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the document is not complete.
        DataError: The file could not be written.
    """
    page = render_combined_report(document)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_combined_report(document: Document) -> str:
    """Return the page as text; see `write_combined_report`."""
    found = checked_combination(dict(document), "These combined results")
    values = {"marks": MARKS, "metric_note": metric_note, "swatch": sets_plot.set_swatch}
    page: str = page_template(TEMPLATE, values=values).render(
        document=found,
        style=sets_plot.STYLE,
        headline=words.combined_headline(found),
        findings=words.set_findings(found),
        notes=words.combined_notes(found),
        terms=_terms(found),
        metrics=list(dict.fromkeys(record["metric"] for record in found["sets"].values())),
        systems=_systems(found),
        charts={
            "scores": _both(partial(sets_plot.sets_plot, found["sets"]), 640),
            "gains": _both(partial(_gains, found), 400),
        },
        table=combined_table(found, typeset=True),
        average=AVERAGE,
        protocols={name: rule_rows(protocol) for name, protocol in found["protocols"].items()},
    )
    return page


def _terms(document: Document) -> dict[str, str]:
    absent = set() if document["fingerprints"].get("independent") else {"P_up", "P_comp", "P_1", "average"}
    return {name: told for name, told in words.TERMS_OF_SETS.items() if name not in absent}


def _systems(document: Document) -> dict[str, str]:
    return {
        system: told
        for system, told in sets_plot.SYSTEMS.items()
        if any(record[system] is not None for record in document["sets"].values())
    }


def _both(draw: Any, wide: float) -> Drawing:
    return Drawing(draw(width=wide), draw(width=PHONE))


def _gains(document: Document, width: float) -> str:
    gains = [
        Gain(
            name,
            record["cross"] - record["self_old"],
            tuple(record["interval"]),
            record["verdict"],
        )
        for name, record in document["sets"].items()
    ]
    return gain_plot("Cross-test minus self-test of the old model, set by set", gains, "difference", width=width)
