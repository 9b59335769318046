"""A chain of models as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import ConfigError
from holdfast.evaluation.chain import ChainResults
from holdfast.evaluation.compatibility import Baseline, Variant
from holdfast.reports.formats import MISSING, interval, plain_text, score, signed
from holdfast.reports.tables import Table
from holdfast.reports.words import listed, places
from holdfast.wording import metric_name

Row = list[float | None]

BASELINES: dict[Baseline, str] = {
    "own": "the old model is the chain’s own, whose gallery is searched",
    "independent": "the old model is the independent one of its generation",
}
"""What "the old model" of P_comp is, in words; see `chain_metrics`."""


def matrix_table(results: ChainResults, *, typeset: bool = False) -> Table:
    """Return the compatibility matrix: rows are queries, columns galleries; a mark follows a violation."""
    rows = [
        [name, *(_cell(results, i, j) for j in range(len(results.models)))] for i, name in enumerate(results.models)
    ]
    columns = [f"queries ({metric_name(results.metric)})", *(f"on {name}" for name in results.models)]
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


def _cell(results: ChainResults, i: int, j: int) -> str:
    if j > i:
        return ""
    violates = any(
        (pair.new, pair.old) == (results.models[i], results.models[j]) and pair.violates for pair in results.pairs
    )
    return score(results.matrix[i][j]) + (" ✗" if violates else "")


def pair_table(results: ChainResults, *, typeset: bool = False) -> Table:
    """Return every pair with its scores, their difference and its interval, and what the interval says."""
    columns = ["new queries, old gallery", "cross", "self (old)", "cross − self (old)", "violates", "by its interval"]
    rows = [
        [
            f"{pair.new} on {pair.old}",
            score(pair.cross),
            score(pair.self_old),
            f"{signed(pair.gain)} {interval(pair.interval, sign=True)}",
            "yes" if pair.violates else "no",
            f"{pair.verdict}, worse {listed(places(pair.worse))}" if pair.worse else pair.verdict,
        ]
        for pair in results.pairs
    ]
    if typeset:
        return columns, rows
    return [*map(plain_text, columns)], [[row[0], *map(plain_text, row[1:])] for row in rows]


def p_comp_table(
    results: ChainResults, baseline: Baseline, variant: Variant = "raw", *, typeset: bool = False
) -> Table:
    """Return P_comp of every pair under one reading of "the old model"; rows are queries, columns galleries."""
    if results.p_comp is None:
        raise ConfigError("A chain without P_comp.", expected="one that was measured with independent models")
    return _triangle(results, results.p_comp[variant][baseline], signed if variant == "raw" else score, typeset)


def p_score_table(results: ChainResults, baseline: Baseline) -> Table:
    """Return P_1 of every pair, of the sigmoid variant."""
    if results.p_score is None:
        raise ConfigError("A chain without P_1.", expected="one that was measured with independent models")
    return _triangle(results, results.p_score[baseline], score, True)


def _triangle(
    results: ChainResults, values: Sequence[Row], form: Callable[[float | None], str], typeset: bool
) -> Table:
    names = results.models
    columns = ["queries", *(f"on {name}" for name in names[:-1])]
    rows = [[names[i], *(form(values[i][j]) if j < i else "" for j in range(len(names) - 1))]
            for i in range(1, len(names))]  # fmt: skip
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


def models_table(results: ChainResults, *, typeset: bool = False) -> Table:
    """Return every model with its self-test, that of its independent model, and P_up of both variants."""
    alone, up = results.independent_self, results.p_up
    rows = []
    for number, name in enumerate(results.models):
        row = [name, score(results.matrix[number][number])]
        row.append(MISSING if alone is None or not number else score(alone[number]))
        row += [MISSING, MISSING] if up is None else [signed(up["raw"][number]), score(up["sigmoid"][number])]
        rows.append(row if typeset else [row[0], *map(plain_text, row[1:])])
    return ["model", "self-test", "independent", "P_up, raw", "P_up, sigmoid"], rows
