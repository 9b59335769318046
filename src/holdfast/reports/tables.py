"""Results as tables: for the terminal, for model cards and for committed files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.reports.formats import MISSING, interval, metric_name, percent, plain_text, probability, score, signed
from holdfast.reports.words import difference, difference_interval, p_value, short_verdict

Table = tuple[list[str], list[list[str]]]

SYSTEMS = ("self_old", "cross", "self_new", "self_independent")
_HEADS = {
    "self_old": "self (old)",
    "cross": "cross",
    "self_new": "self (new)",
    "self_independent": "self (independent)",
}
MEASURES = {
    "self_old": "old queries, old gallery: self (old)",
    "cross": "new queries, old gallery: cross",
    "self_new": "new queries, new gallery: self (new)",
    "self_independent": "independent queries and gallery: self (independent)",
    "cross_independent": "independent queries, old gallery: cross without alignment",
}
_DIFFERENCES = {
    "cross_minus_self_old": "cross − self (old), paired interval",
    "self_new_minus_self_independent": "self (new) − self (independent), paired interval",
}
_YES_NO = {True: "yes", False: "no", None: MISSING}


def summary_rows(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return columns and rows on the gate metric, one row per new model; a dash stands for what is missing.

    Scores are fractions; "cross - self (old)" is followed by its interval, P_up and P_comp are raw, negative flips
    those of new queries on the old gallery. Minus signs are hyphens unless ``typeset``.
    """
    metric = next(iter(document["evaluations"].values()))["gate_metric"]
    columns = [
        f"model ({metric_name(metric)})",
        *_HEADS.values(),
        "cross − self (old)",
        "P_up",
        "P_comp",
        "negative flips",
        "verdict",
    ]
    rows = [
        [
            name,
            *(score(value(record[system], metric)) for system in SYSTEMS),
            f"{signed(difference(record, metric))} {interval(difference_interval(record, metric), sign=True)}".strip(),
            signed(value(record["p_up"], "raw", metric)),
            signed(value(record["p_comp"], "raw", metric)),
            percent(value(record["negative_flip_rate"], "cross")),
            short_verdict(record),
        ]
        for name, record in document["evaluations"].items()
    ]
    if typeset:
        return columns, rows
    return [*map(plain_text, columns)], [[row[0], *map(plain_text, row[1:])] for row in rows]


def markdown_table(document: Mapping[str, Any]) -> str:
    """Return the table of `summary_rows` in Markdown, numbers to the right, ending with a line break."""
    columns, rows = summary_rows(document)
    return as_markdown(columns, rows, ["---", *["---:"] * (len(columns) - 2), "---"])


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], rule: Sequence[str]) -> str:
    """Return a table in Markdown, ending with a line break; names in the first column may hold any sign."""
    lines = [columns, rule, *([_escaped(row[0]), *row[1:]] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def metric_rows(record: Mapping[str, Any]) -> Table:
    """Return every number of one evaluation that belongs to a metric: a column per metric, a row per measure."""
    metrics = list(record["self_old"] or {})
    rows = [
        [head, *(_with_interval(record, system, metric) for metric in metrics)] for system, head in MEASURES.items()
    ]
    differences = [
        [head, *(_difference(record, name, metric) for metric in metrics)] for name, head in _DIFFERENCES.items()
    ]
    chances = [
        [head.replace("paired interval", "p"), *(probability(p_value(record, metric, name)) for metric in metrics)]
        for name, head in _DIFFERENCES.items()
        if record.get("p_value")
    ]
    rest = [
        [f"{head}, {variant}", *(written(value(record[name], variant, metric)) for metric in metrics)]
        for name, head in (("p_up", "P_up"), ("p_comp", "P_comp"), ("p_score", "P_score"))
        for variant, written in (("raw", signed), ("sigmoid", score))
        if record[name] and record[name].get(variant)
    ]
    strictly = ["cross > self (old)", *(_YES_NO[(record["compatible"] or {}).get(metric)] for metric in metrics)]
    return ["", *map(metric_name, metrics)], [*rows, *differences, *chances, strictly, *rest]


def _with_interval(record: Mapping[str, Any], system: str, metric: str) -> str:
    found = interval(((record["mean_interval"] or {}).get(system) or {}).get(metric))
    return f"{score(value(record[system], metric))} {found}".strip()


def _difference(record: Mapping[str, Any], name: str, metric: str) -> str:
    return interval(((record["interval"] or {}).get(metric) or {}).get(name), sign=True) or MISSING


def value(nested: Any, *keys: str) -> float | None:
    """Return the number below these keys, or None where any of them is missing.

    >>> value({"raw": {"map": 0.5}}, "raw", "map"), value(None, "raw"), value({}, "raw", "map")
    (0.5, None, None)
    """
    for key in keys:
        nested = (nested or {}).get(key)
    return None if nested is None else float(nested)


def _escaped(name: str) -> str:
    return " ".join(name.replace("\\", "\\\\").replace("|", "\\|").split())
