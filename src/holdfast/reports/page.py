"""The page report.html: one file that holds everything it shows, opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.data.item_facts import FactsOf
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import unknown_name
from holdfast.evaluation.examples import Example, Found
from holdfast.evaluation.protocols import PROTOCOLS
from holdfast.evaluation.results import Evaluation, EvaluationResults
from holdfast.evaluation.uncertainty import Disk
from holdfast.reports import tables, words
from holdfast.reports.change_words import CLEAR, class_finding, flips
from holdfast.reports.charts.bars import (
    NAMED,
    agreement_bars,
    agreement_rows,
    agreements,
    class_changes,
    class_plot,
    class_range,
    class_rows,
    score_bars,
)
from holdfast.reports.charts.forest import difference_plot, measured
from holdfast.reports.charts.lines import (
    GROUPS,
    ORDERS,
    curve_plot,
    curve_range,
    group_swatch,
    histogram_rows,
    uncertainties,
    uncertainty_plot,
    uncertainty_range,
)
from holdfast.reports.charts.plane import trade_off, trade_off_points
from holdfast.reports.disk_plot import class_swatch, class_words, disk_plot
from holdfast.reports.pictures import Picture, data_uris
from holdfast.reports.protocol_rows import protocol_rows
from holdfast.reports.template import PHONE, Drawing, page_template

FILE_NAME = "report.html"

Examples = Mapping[str, Sequence[Example]]
Disks = Mapping[str, Disk | None]

SYSTEMS = {
    "self_old": "old queries, old gallery",
    "cross": "new queries, old gallery",
    "self_new": "new queries, new gallery",
}
KINDS = {
    "fixed": "✗ → ✓",
    "kept": "✓ → ✓",
    "flipped": "✓ → ✗",
    "still wrong": "✗ → ✗",
    "first hit changed": "≠",
}


def write_report(
    results: EvaluationResults,
    folder: str | Path,
    *,
    examples: Examples | None = None,
    picture: Picture | None = None,
    disks: Disks | None = None,
    facts: FactsOf | None = None,
) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        folder: Where to write.
        examples: What `choose_examples` returned, by the name of the evaluation; None shows none.
        picture: Returns for the id of a query or gallery item its PNG file, its pixels (uint8, (C, H, W)) or None;
            without it examples are shown by label and id.
        disks: What `choose_disk` returned, by the name of the evaluation; None shows none.
        facts: Returns for the id of an item its text and metadata by name, which examples show beside the id.

    Raises:
        ConfigError: Jinja2 is missing, or examples or disks are of an unknown evaluation.
        DataError: The file could not be written, or a picture is none.
    """
    page = render_report(results, examples=examples, picture=picture, disks=disks, facts=facts)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_report(
    results: EvaluationResults,
    *,
    examples: Examples | None = None,
    picture: Picture | None = None,
    disks: Disks | None = None,
    facts: FactsOf | None = None,
) -> str:
    """Return the page as text; see `write_report`."""
    evaluations = results.evaluations
    shown = {name: list(chosen) for name, chosen in (examples or {}).items() if chosen}
    placed = {name: disk for name, disk in (disks or {}).items() if disk}
    for name in (*shown, *placed):
        if name not in evaluations:
            raise unknown_name("evaluation", name, evaluations)
    uris = data_uris(_items(shown), picture) if picture else {}
    known = {name: facts(name) for name in dict.fromkeys(_items(shown))} if facts else {}
    rows = measured(evaluations)
    judged = {name: record for name, record in rows.items() if record.verdict != "unlabelled"}
    page: str = _template().render(
        document=results,
        evaluations=evaluations,
        first=results.first,
        headline=words.headline(results),
        findings=[words.finding(name, record) for name, record in evaluations.items()],
        measured=rows,
        judged=judged,
        charts=_charts(evaluations),
        classes=_classes(judged),
        agreement=_agreement(evaluations),
        uncertainty=_uncertainty(evaluations),
        disks={name: _disk(name, disk, alone=len(placed) == 1) for name, disk in placed.items()},
        placed=placed,
        summary=tables.summary_rows(results, typeset=True),
        fingerprints=_fingerprints(evaluations),
        examples=shown,
        opened=_opened(shown, evaluations),
        pictures={name: f"p{number}" for number, name in enumerate(uris)},
        uris=list(uris.values()),
        known=known,
        protocol=protocol_rows(results.first),
        systems=SYSTEMS,
        kinds=KINDS,
        orders=ORDERS,
        groups=GROUPS,
    )
    return page


def _charts(evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Draw everything that the evaluations have numbers for."""
    rows = measured(evaluations)
    if not rows:
        return {"curves": {}}
    limits, one = curve_range(rows), len(rows) == 1
    curves = {
        name: Drawing(
            curve_plot(name, record, limits, width=640 if one else 340, height=300 if one else 250) or "",
            curve_plot(name, record, limits, width=PHONE) or "",
        )
        for name, record in rows.items()
        if limits and record.upgrade_curve
    }
    placed = trade_off_points(rows)
    mapped = [name for name in rows if name not in curves and "query" in (rows[name].mapped or {})]
    return {
        "bars": Drawing(score_bars(rows), score_bars(rows, width=PHONE)),
        "differences": Drawing(difference_plot(rows), difference_plot(rows, width=PHONE)),
        "trade_off": placed
        and Drawing(trade_off(rows, height=320 if one else 400) or "", trade_off(rows, width=PHONE, height=320) or ""),
        "unplaced": [name for name in rows if name not in placed],
        "curves": curves,
        "without_curve": [
            name for name, record in rows.items() if name not in curves and name not in mapped and _could_turn(record)
        ],
        "mapped": mapped,
    }


def _could_turn(record: Evaluation) -> bool:
    """Return whether a half re-embedded gallery could have been measured: queries rank it, and have classes."""
    protocol = PROTOCOLS.get(record.protocol.name)
    classes = record.class_change is not None or "class_change" not in record.model_fields_set  # of earlier versions
    return (protocol is None or protocol.has_curve) and classes


def _classes(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the change per class of every model; a single class has no picture. None where no classes are known."""
    changes = class_changes(evaluations)
    if not changes:
        return None
    limits = class_range(changes)
    charts = {
        name: Drawing(
            class_plot(name, change, limits, width=640, height=330),
            class_plot(name, change, limits, width=PHONE, height=280),
        )
        if change.classes > 1
        else None
        for name, change in changes.items()
    }
    return {"changes": changes, "charts": charts}


def _agreement(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the agreement of every model with today's results; None where labels say more."""
    found = agreements(evaluations)
    if not found:
        return None
    width = 640 if len(found) == 1 else 520
    charts = {
        name: Drawing(agreement_bars(name, alike, width=width), agreement_bars(name, alike, width=PHONE))
        for name, alike in found.items()
    }
    return {"found": found, "charts": charts}


def _uncertainty(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the uncertainty of every model that knows it; None where none does."""
    found = uncertainties(evaluations)
    if not found:
        return None
    limits, few = uncertainty_range(found), len(found) <= 2
    return {
        "histograms": found,
        "few": few,
        "charts": {
            name: Drawing(
                uncertainty_plot(name, histogram, limits, width=540 if few else 340, height=270 if few else 250),
                uncertainty_plot(name, histogram, limits, width=PHONE),
            )
            for name, histogram in found.items()
        },
        "finding": words.uncertainty_finding(found["old"]) if "old" in found else "",
    }


def _disk(name: str, disk: Disk, *, alone: bool) -> Drawing:
    return Drawing(disk_plot(name, disk, width=600 if alone else 340), disk_plot(name, disk, width=PHONE))


def _items(examples: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    for chosen in examples.values():
        for example in chosen:
            yield example.query
            for system in SYSTEMS:
                found: Found = getattr(example, system)
                yield from found.ids


def _fingerprints(evaluations: Mapping[str, Evaluation]) -> dict[str, str]:
    """Return the fingerprint of every model, the common ones once."""
    found: dict[str, str] = {}
    for record in evaluations.values():
        for role in ("old", "independent"):
            if model := record.fingerprints.get(role):
                found.setdefault(f"{role} model", model.fingerprint)
    new = {name: record.fingerprints["new"] for name, record in evaluations.items()}
    return found | {name: model.fingerprint for name, model in new.items() if model}


def _opened(examples: Mapping[str, Any], evaluations: Mapping[str, Evaluation]) -> str | None:
    """Return whose examples are seen at first: those of a compatible model where there is one."""
    compatible = (name for name in examples if evaluations[name].verdict == "compatible")
    return next(compatible, next(iter(examples), None))


def _template() -> Any:
    values = {
        "terms": words.TERMS,
        "marks": words.MARKS,
        "metric_note": words.metric_note,
        "flips": flips,
        "units": words.units,
        "flip_meaning": words.flip_meaning,
        "drawn": words.drawn,
        "class_finding": class_finding,
        "class_rows": class_rows,
        "named": NAMED,
        "clear": CLEAR,
        "agreement_rows": agreement_rows,
        "metric_rows": tables.metric_rows,
        "histogram_rows": histogram_rows,
        "group_swatch": group_swatch,
        "class_swatch": class_swatch,
        "class_words": class_words,
    }
    return page_template(FILE_NAME, filters={"level": words.level}, values=values)
