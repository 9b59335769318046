"""The page of a chain of models: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.embeddings.storage import write_atomically
from holdfast.evaluation.p_metrics import Baseline
from holdfast.reports import chain_results as results
from holdfast.reports import chain_words as words
from holdfast.reports import heat_map
from holdfast.reports.formats import metric_name
from holdfast.reports.gain_plot import Gain, gain_plot
from holdfast.reports.page import FILE_NAME
from holdfast.reports.protocol_rows import rule_rows
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import MARKS, metric_note

Document = Mapping[str, Any]

TEMPLATE = "chain.html"
_CROWDED = 6  # generations from which numbers in cells of a phone have two digits
_NAMED = 5  # models up to which their pairs are drawn by name
_LONG = 14  # letters up to which they are
_MEANINGS = ("rows: model of the queries", "columns: model of the gallery", "outlined: its own gallery")


def write_chain_report(document: Document, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `chain_document` or `read_chain` returned.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the document is not complete.
        DataError: The file could not be written.
    """
    page = render_chain_report(document)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_chain_report(document: Document) -> str:
    """Return the page as text; see `write_chain_report`."""
    found = results.checked_chain(dict(document), "These results of a chain")
    first: Baseline = found["old_baseline"]
    page: str = page_template(TEMPLATE, values={"marks": MARKS, "metric_note": metric_note}).render(
        document=found,
        style=heat_map.STYLE,
        headline=words.chain_headline(found),
        finding=words.chain_finding(found),
        level=words.level(found),
        by_number=_by_number(found["models"]),
        terms=_terms(found),
        charts=_charts(found),
        baselines=dict(sorted(results.BASELINES.items(), key=lambda item: item[0] != first)),
        models=results.models_table(found, typeset=True),
        matrix=results.matrix_table(found, typeset=True),
        pairs=results.pair_table(found, typeset=True),
        p_comp=partial(results.p_comp_table, found, typeset=True),
        p_score=partial(results.p_score_table, found),
        protocol=rule_rows(found["protocol"], then=[("metric", metric_name(found["metric"]))]),
    )
    return page


def _terms(document: Document) -> dict[str, str]:
    absent = set() if document["p_comp"] else {"independent", "P_comp", "P_up"}
    return {name: told for name, told in words.TERMS_OF_CHAINS.items() if name not in absent}


def _charts(document: Document) -> dict[str, Any]:
    what, matrix = metric_name(document["metric"]), _array(document["matrix"])
    limits = heat_map.heat_range([matrix]) or (0.0, 1.0)
    found: dict[str, Any] = {
        "matrix": _both(partial(_matrix, document, matrix, limits), _width(len(matrix), 560)),
        "key": _both(
            lambda width: heat_map.heat_key(
                limits, what, mark=heat_map.WRONG, mark_means=_mark(document), meanings=_MEANINGS, width=width
            ),
            560,
        ),
        "gains": _both(partial(_gains, document), 640),
        "p_comp": {},
        "most": {"matrix": _width(len(matrix), 560), "p_comp": _width(len(matrix) - 1, 400)},
    }
    if document["p_comp"]:
        raw = {name: _array(values) for name, values in document["p_comp"]["raw"].items()}
        ends = heat_map.heat_range(raw.values())
        if ends:
            found["p_comp"] = {
                name: _both(partial(_p_comp, document, raw[name], ends), _width(len(matrix) - 1, 400)) for name in raw
            }
    return found


def _both(draw: Any, wide: float) -> Drawing:
    return Drawing(draw(width=wide), draw(width=PHONE))


def _width(models: int, most: float) -> float:
    """Return how wide a map of so many rows is: few cells are not blown up."""
    return min(most, 80.0 + 110.0 * models)


def _mark(document: Document) -> str:
    return (
        "no better than the gallery’s own model: a violation" if document["violations"] and document["judged"] else ""
    )


def _matrix(document: Document, matrix: Any, limits: tuple[float, float], width: float) -> str:
    return heat_map.heat_map(
        "",
        matrix,
        _numbers(document),
        limits,
        what=metric_name(document["metric"]),
        marked=np.tril(matrix <= np.diag(matrix), -1) if document["judged"] else None,
        mark=heat_map.WRONG,
        form=_form(document, width, "{:.3f}", "{:.2f}"),
        width=width,
    )


def _p_comp(document: Document, values: Any, limits: tuple[float, float], width: float) -> str:
    numbers = _numbers(document)
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


def _form(document: Document, width: float, roomy: str, tight: str) -> Any:
    crowded = len(document["models"]) > _CROWDED * width / PHONE
    return (tight if crowded else roomy).format


def _gains(document: Document, width: float) -> str:
    names, numbers = document["models"], dict(zip(document["models"], _numbers(document), strict=True))
    called = numbers if _by_number(names) else {name: name for name in names}
    gains = [
        Gain(
            f"{called[pair['new']]} on {called[pair['old']]}",
            pair["cross"] - pair["self_old"],
            (pair["interval"][0], pair["interval"][1]),
            _tone(pair),
        )
        for pair in document["pairs"]
    ]
    title = "Cross-test minus self-test of the older model, pair by pair"
    return gain_plot(title, gains, f"difference in {metric_name(document['metric'])}", width=width)


def _by_number(names: list[str]) -> bool:
    """Return whether pairs are called by the numbers of the matrix: names would take too much room."""
    return len(names) > _NAMED or max(map(len, names)) > _LONG


def _tone(pair: Mapping[str, Any]) -> str:
    """Return the verdict of a pair; one that violates the criterion never looks undecided."""
    return "not compatible" if pair["violates"] and pair["verdict"] != "unlabelled" else str(pair["verdict"])


def _numbers(document: Document) -> list[str]:
    return [str(number) for number in range(1, len(document["models"]) + 1)]


def _array(rows: Any) -> Any:
    return np.array(rows, dtype=np.float64)
