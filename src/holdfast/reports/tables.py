"""Results as tables: for the terminal, for model cards and for committed files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from holdfast.evaluation.compatibility import Variant
from holdfast.evaluation.results import Evaluation, EvaluationResults, System
from holdfast.reports.formats import MISSING, interval, percent, plain_text, probability, score, signed
from holdfast.reports.markdown import Table, markdown_of
from holdfast.reports.words import Finding, finding, headline, short_verdict
from holdfast.wording import metric_name

SYSTEMS: tuple[System, ...] = ("self_old", "cross", "self_new", "self_independent")
_HEADS = {
    "self_old": "self (old)",
    "cross": "cross",
    "self_new": "self (new)",
    "self_independent": "self (independent)",
}
MEASURES: dict[System, str] = {
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
_P_METRICS: dict[Literal["p_up", "p_comp", "p_score"], str] = {"p_up": "P_up", "p_comp": "P_comp", "p_score": "P_score"}
_VARIANTS: dict[Variant, Callable[[float | None], str]] = {"raw": signed, "sigmoid": score}
_YES_NO = {True: "yes", False: "no", None: MISSING}


def summary_rows(results: EvaluationResults, *, typeset: bool = False) -> Table:
    """Return columns and rows on the gate metric, one row per new model; a dash stands for what is missing.

    Scores are fractions; "cross - self (old)" is followed by its interval, P_up and P_comp are raw, negative flips
    those of new queries on the old gallery. Minus signs are hyphens unless ``typeset``.
    """
    metric = results.first.gate_metric
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
            *(score(record.score(system)) for system in SYSTEMS),
            f"{signed(record.gain())} {interval(record.gain_interval(), sign=True)}".strip(),
            signed(record.p("p_up")),
            signed(record.p("p_comp")),
            percent((record.negative_flip_rate or {}).get("cross")),
            short_verdict(record),
        ]
        for name, record in results.evaluations.items()
    ]
    if typeset:
        return columns, rows
    return [*map(plain_text, columns)], [[row[0], *map(plain_text, row[1:])] for row in rows]


def metric_rows(record: Evaluation) -> Table:
    """Return every number of one evaluation that belongs to a metric: a column per metric, a row per measure."""
    metrics = list(record.self_old or {})
    rows = [
        [head, *(_with_interval(record, system, metric) for metric in metrics)] for system, head in MEASURES.items()
    ]
    differences = [
        [head, *(_difference(record, name, metric) for metric in metrics)] for name, head in _DIFFERENCES.items()
    ]
    chances = [
        [head.replace("paired interval", "p"), *(probability(record.chance(metric, name)) for metric in metrics)]
        for name, head in _DIFFERENCES.items()
        if record.p_value
    ]
    rest = [
        [f"{head}, {variant}", *(written(record.p(name, variant, metric)) for metric in metrics)]
        for name, head in _P_METRICS.items()
        for variant, written in _VARIANTS.items()
        if (getattr(record, name) or {}).get(variant)
    ]
    strictly = ["cross > self (old)", *(_YES_NO[(record.compatible or {}).get(metric)] for metric in metrics)]
    return ["", *map(metric_name, metrics)], [*rows, *differences, *chances, strictly, *rest]


def _with_interval(record: Evaluation, system: System, metric: str) -> str:
    return f"{score(record.score(system, metric))} {interval(record.score_interval(system, metric))}".strip()


def _difference(record: Evaluation, name: str, metric: str) -> str:
    return interval(record.gain_interval(metric, name), sign=True) or MISSING


def to_markdown(results: EvaluationResults) -> str:
    """Return what is said of the results and their tables in Markdown."""
    evaluations = results.evaluations
    findings = [Finding(headline(results), ()), *(finding(name, record) for name, record in evaluations.items())]
    scored = {name: record for name, record in evaluations.items() if record.self_old}
    metrics = {f"{name}, in every metric": metric_rows(record) for name, record in scored.items()}
    summary = {f"In {metric_name(results.first.gate_metric)}": summary_rows(results)} if scored else {}
    return markdown_of(results.title, findings, summary | metrics)
