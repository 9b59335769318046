"""The page of a chain of models: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.embeddings.storage import write_atomically
from holdfast.evaluation.chain import ChainPair, ChainResults
from holdfast.reports import chain_tables as tables
from holdfast.reports import chain_words as words
from holdfast.reports import heat_map
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.forest import Gain, gain_plot
from holdfast.reports.page import FILE_NAME
from holdfast.reports.protocol_rows import rule_rows
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import MARKS, metric_note
from holdfast.wording import metric_name

TEMPLATE = "chain.html"
_CROWDED = 6  # generations from which numbers in cells of a phone have two digits
_NAMED = 5  # models up to which their pairs are drawn by name
_LONG = 14  # letters up to which they are
_MEANINGS = ("rows: model of the queries", "columns: model of the gallery", "outlined: its own gallery")


def write_chain_report(results: ChainResults, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    page = render_chain_report(results)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_chain_report(results: ChainResults) -> str:
    """Return the page as text; see `write_chain_report`."""
    page: str = page_template(TEMPLATE, values={"marks": MARKS, "metric_note": metric_note}).render(
        document=results,
        style=heat_map.STYLE,
        headline=words.chain_headline(results),
        finding=words.chain_finding(results),
        level=words.level(results),
        by_number=_by_number(results.models),
        terms=_terms(results),
        charts=_charts(results),
        baselines=dict(sorted(tables.BASELINES.items(), key=lambda item: item[0] != results.old_baseline)),
        models=tables.models_table(results, typeset=True),
        matrix=tables.matrix_table(results, typeset=True),
        pairs=tables.pair_table(results, typeset=True),
        p_comp=partial(tables.p_comp_table, results, typeset=True),
        p_score=partial(tables.p_score_table, results),
        protocol=rule_rows(results.protocol, then=[("metric", metric_name(results.metric)), *_guarded(results)]),
    )
    return page


def _guarded(results: ChainResults) -> list[tuple[str, str]]:
    """Return what is guarded, where the results say so."""
    if results.guards is None:
        return []
    return [("guarded", ", ".join(map(metric_name, results.guards)) or "nothing")]


def _terms(results: ChainResults) -> dict[str, str]:
    absent = set() if results.p_comp else {"independent", "P_comp", "P_up"}
    return {name: told for name, told in words.TERMS_OF_CHAINS.items() if name not in absent}


def _charts(results: ChainResults) -> dict[str, Any]:
    what, matrix = metric_name(results.metric), _array(results.matrix)
    limits = heat_map.heat_range([matrix]) or (0.0, 1.0)
    found: dict[str, Any] = {
        "matrix": _both(partial(_matrix, results, matrix, limits), _width(len(matrix), 560)),
        "key": _both(
            lambda width: heat_map.heat_key(
                limits, what, mark=heat_map.WRONG, mark_means=_mark(results), meanings=_MEANINGS, width=width
            ),
            560,
        ),
        "gains": _both(partial(_gains, results), 640),
        "p_comp": {},
        "most": {"matrix": _width(len(matrix), 560), "p_comp": _width(len(matrix) - 1, 400)},
    }
    if results.p_comp:
        raw = {name: _array(values) for name, values in results.p_comp["raw"].items()}
        ends = heat_map.heat_range(raw.values())
        if ends:
            found["p_comp"] = {
                name: _both(partial(_p_comp, results, raw[name], ends), _width(len(matrix) - 1, 400)) for name in raw
            }
    return found


def _both(draw: Any, wide: float) -> Drawing:
    return Drawing(draw(width=wide), draw(width=PHONE))


def _width(models: int, most: float) -> float:
    """Return how wide a map of so many rows is: few cells are not blown up."""
    return min(most, 80.0 + 110.0 * models)


def _mark(results: ChainResults) -> str:
    return "no better than the gallery’s own model: a violation" if results.violations and results.judged else ""


def _matrix(results: ChainResults, matrix: Any, limits: tuple[float, float], width: float) -> str:
    return heat_map.heat_map(
        "",
        matrix,
        _numbers(results),
        limits,
        what=metric_name(results.metric),
        marked=np.tril(matrix <= np.diag(matrix), -1) if results.judged else None,
        mark=heat_map.WRONG,
        form=_form(results, width, "{:.3f}", "{:.2f}"),
        width=width,
    )


def _p_comp(results: ChainResults, values: Any, limits: tuple[float, float], width: float) -> str:
    numbers = _numbers(results)
    digits = 3 if len(values) <= _CROWDED else 2 if width > PHONE else 1
    return heat_map.heat_map(
        "",
        values[1:, :-1],
        numbers[1:],
        limits,
        what="P_comp",
        columns=numbers[:-1],
        form=lambda value: f"{value:+.{digits}f}".replace("-", "−"),
        width=width,
    )


def _form(results: ChainResults, width: float, roomy: str, tight: str) -> Any:
    crowded = len(results.models) > _CROWDED * width / PHONE
    return (tight if crowded else roomy).format


def _gains(results: ChainResults, width: float) -> Chart:
    names, numbers = results.models, dict(zip(results.models, _numbers(results), strict=True))
    called = numbers if _by_number(names) else {name: name for name in names}
    gains = [
        Gain(
            f"{called[pair.new]} on {called[pair.old]}",
            pair.gain,
            pair.interval,
            _tone(pair),
        )
        for pair in results.pairs
    ]
    title = "Cross-test minus self-test of the older model, pair by pair"
    return gain_plot(title, gains, f"difference in {metric_name(results.metric)}", width=width)


def _by_number(names: list[str]) -> bool:
    """Return whether pairs are called by the numbers of the matrix: names would take too much room."""
    return len(names) > _NAMED or max(map(len, names)) > _LONG


def _tone(pair: ChainPair) -> str:
    """Return the verdict of a pair; one that violates the criterion never looks undecided."""
    return "not compatible" if pair.violates and pair.verdict != "unlabelled" else pair.verdict


def _numbers(results: ChainResults) -> list[str]:
    return [str(number) for number in range(1, len(results.models) + 1)]


def _array(rows: Any) -> Any:
    return np.array(rows, dtype=np.float64)
