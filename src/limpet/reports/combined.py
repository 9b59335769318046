"""Report of one upgrade on several test sets: findings, table and page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.reports.formats import MISSING, interval, level, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import drawn_both, page_template, rule_rows, write_page
from limpet.reports.plots.swatches import set_swatch
from limpet.reports.words import (
    CLICKS,
    SYSTEMS,
    Finding,
    first_hit_cell,
    first_hits,
    short_verdict,
    spoken_verdict,
    tie_notes,
)
from limpet.support.wording import INDEPENDENT, listed, metric_name

if TYPE_CHECKING:
    import altair as alt

    from limpet.evaluation.compatibility import PMetrics
    from limpet.evaluation.test_sets import CombinationResults, SetScores


def combined_headline(results: CombinationResults) -> str:
    """Say in one sentence on how many test sets the new model is compatible."""
    sets = results.sets
    good = [name for name, found in sets.items() if found.verdict == "compatible"]
    if len(good) == len(sets):
        count = "both" if len(sets) == 2 else f"all {len(sets)}"
        return f"{results.new} can search the old gallery on {count} test sets."
    worse = [f" On {name} it is {spoken_verdict(found)}." for name, found in sets.items() if found.verdict == "mixed"]
    if not good:
        return f"{results.new} is not shown to be compatible on any of {len(sets)} test sets.{''.join(worse)}"
    count = f"{results.new} can search the old gallery on {len(good)} of {len(sets)} test sets"
    return f"{count}: {', '.join(good)}.{''.join(worse)}"


def set_findings(results: CombinationResults) -> list[Finding]:
    """Return the findings on every test set."""
    return [_finding(name, found, results) for name, found in results.sets.items()]


def _finding(name: str, found: SetScores, results: CombinationResults) -> Finding:
    sentence = (
        f"New queries on the old gallery score {metric_name(found.metric)} {score(found.cross)}, old queries "
        f"{score(found.self_old)}: {signed(found.gain)} ({level(results.protocols[name].bootstrap.level)} "
        f"interval {interval(found.interval, sign=True)}){_judged(found)}."
    )
    clicks = f"{CLICKS} " if found.verdict == "unlabelled" else ""
    notes = [f"{P_METRICS[key]} is not defined: {reason}." for key, reason in found.undefined.items()]
    notes = list(dict.fromkeys(notes)) if _some(results) else []
    notes += tie_notes(found.ties, results.protocols[name], [found.metric])
    said = ", ".join(part for part in (spoken_verdict(found), first_hits(found.first_hits)) if part)
    return Finding(said, (clicks + sentence, *notes), verdict=found.verdict, name=name)


def _judged(found: SetScores) -> str:
    return ", judged by its sign alone" if found.gate == "point" and found.verdict != "unlabelled" else ""


def _some(results: CombinationResults) -> bool:
    return results.fingerprints.get("independent") is not None


def combined_notes(results: CombinationResults) -> list[str]:
    """Return notes on all sets: no independent model, or no average."""
    if not _some(results):
        return [
            "No independent model was evaluated, so P_up, P_comp and P_1 are missing: evaluate every test set with "
            f"one, {INDEPENDENT}."
        ]
    lost = {
        told: [
            name
            for name, found in results.sets.items()
            if key in {*found.undefined, *(["p_score"] if found.undefined else [])}
        ]
        for key, told in P_METRICS.items()
    }
    sets = list(dict.fromkeys(name for names in lost.values() for name in names))
    if not sets:
        return []
    without = [told for told, names in lost.items() if names]
    return [
        f"{listed(without)} {'has' if len(without) == 1 else 'have'} no average, for lack of {listed(sets)}: an "
        "average over the other sets would be of another benchmark."
    ]


AVERAGE = "average"
P_METRICS = {"p_up": "P_up", "p_comp": "P_comp", "p_score": "P_1"}


def combined_table(results: CombinationResults) -> Table:
    """Return one row per test set, and their average; a dash marks missing or undefined values.

    Scores are fractions. P_up, P_comp and P_1 are the sigmoid variant in per cent, P_up and P_comp followed by the raw
    one in brackets.
    """
    columns = ["test set", "metric", "self (old)", "self (independent)", "self (new)", "cross", *_P_HEADS]
    columns += ["first hits (net)", "verdict"]
    rows = [
        [
            name,
            metric_name(found.metric),
            *map(score, (found.self_old, found.self_independent, found.self_new, found.cross)),
            *_p_cells(found),
            first_hit_cell(found.first_hits),
            short_verdict(found),
        ]
        for name, found in results.sets.items()
    ]
    rows.append([AVERAGE, *[""] * 5, *_p_cells(results.mean), "", ""])
    return columns, rows


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


def combined_words(results: CombinationResults) -> list[str]:
    """Return the findings on several test sets, one per line."""
    sets = [f"{one.name}: {one.headline}. {one.sentences[0]}" for one in set_findings(results)]
    return [combined_headline(results), *sets, *combined_notes(results)]


def combined_records(results: CombinationResults) -> list[dict[str, Any]]:
    """Return the scores of the upgrade on every test set."""
    return [
        {
            "set": name,
            **found.model_dump(include={"metric", "self_old", "cross", "self_new", "self_independent", "verdict"}),
            "gain": found.gain,
            "gain_low": found.interval[0],
            "gain_high": found.interval[1],
        }
        for name, found in results.sets.items()
    ]


def combined_markdown(results: CombinationResults) -> str:
    """Return findings and table in Markdown."""
    first = Finding(combined_headline(results), tuple(combined_notes(results)))
    return markdown_of(results.title, [first, *set_findings(results)], {"Test sets": combined_table(results)})


def write_combined_report(results: CombinationResults, folder: str | Path) -> Path:
    """Write report.html into a folder atomically, and return its path; see `write_page`."""
    return write_page(render_combined_report(results), folder)


def render_combined_report(results: CombinationResults) -> str:
    """Return the page as text; see `write_combined_report`."""
    from limpet.reports.plots.forest import sets_plot

    page: str = page_template("combined.html").render(
        document=results,
        headline=combined_headline(results),
        findings=set_findings(results),
        notes=combined_notes(results),
        swatch=set_swatch,
        metrics=list(dict.fromkeys(record.metric for record in results.sets.values())),
        systems=_systems(results),
        charts={
            "scores": drawn_both(sets_plot, results.sets),
            "gains": drawn_both(_gains, results, wide={"width": 400}),
        },
        table=combined_table(results),
        protocols={name: rule_rows(protocol) for name, protocol in results.protocols.items()},
    )
    return page


def _systems(results: CombinationResults) -> dict[str, str]:
    return {
        system: told
        for system, told in SYSTEMS.items()
        if any(record.score(system) is not None for record in results.sets.values())
    }


def _gains(results: CombinationResults, width: float) -> alt.LayerChart:
    from limpet.reports.plots.forest import Gain, gain_plot

    gains = [Gain(name, record.gain, record.interval, record.verdict) for name, record in results.sets.items()]
    return gain_plot("Cross-test minus self-test of the old model, set by set", gains, "difference", width=width)
