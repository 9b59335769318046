"""Report of a chain of models: findings, tables and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limpet.errors import ConfigError
from limpet.evaluation.compatibility import TRAINED_SHARE, violations
from limpet.reports.formats import MISSING, interval, level, percent, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import PHONE, drawn_both, page_template, rule_rows, write_page
from limpet.reports.words import CLICKS, Finding, first_hit_cell, places, tie_notes
from limpet.support.wording import listed, metric_name

if TYPE_CHECKING:
    import altair as alt

    from limpet.evaluation.chain import ChainResults
    from limpet.evaluation.compatibility import Baseline, Variant

_SHOWN = 6  # maximum number of violations that are listed


def chain_headline(results: ChainResults) -> str:
    """Say in one sentence whether every newer model may search every older gallery."""
    pairs, wrong = len(results.pairs), results.violations
    if not results.judged:
        return "Scores were measured, and no pair is judged."
    worse = sum(bool(pair.worse) for pair in results.pairs)
    if not wrong and worse:
        return (
            f"In {metric_name(results.metric)} every newer model can search every older gallery, and {worse} of "
            f"{pairs} pairs {'is' if worse == 1 else 'are'} clearly worse elsewhere."
        )
    if not wrong:
        return "Every newer model can search every older gallery."
    return f"{wrong} of {pairs} pairs of models {'is' if wrong == 1 else 'are'} not compatible."


def chain_finding(results: ChainResults) -> Finding:
    """Return the findings on a chain."""
    headline, metric = chain_headline(results), metric_name(results.metric)
    sentence = (
        f"AC is {score(results.ac)}: in {metric}, {sum(pair.gain > 0 for pair in results.pairs)} of "
        f"{len(results.pairs)} pairs score more on the older gallery than its own model does. AM, the mean of the "
        f"matrix, is {score(results.am)}."
    )
    if not results.judged:
        return Finding(headline, (f"{CLICKS} {sentence}", *_undefined(results)), (_JUDGE,), "unlabelled")
    told = [f"Queries of {pair.new} on the gallery of {pair.old} are clearly worse {listed(places(pair.worse))}."
            for pair in results.pairs if pair.worse]  # fmt: skip
    shares = zip(results.models, results.trained_shares, strict=False)
    trained = [
        f"{name} was trained on {percent(share)} of the queries." for name, share in shares if share > TRAINED_SHARE
    ]
    notes = [
        *trained,
        *tie_notes(results.ties, results.protocol, [results.metric, *(results.guards or ())]),
        *_violations(results),
        *(told[:_SHOWN] + [f"{len(told) - _SHOWN} more are in the table of pairs."] * (len(told) > _SHOWN)),
        *_unsure(results),
        *_undefined(results),
    ]
    verdict, next_step = (
        ("compatible", _ALL) if results.compatible else ("not compatible", _SOME) if results.violations
        else ("mixed", _LOOK) if told else ("not held out", _HELD_OUT)
    )  # fmt: skip
    return Finding(headline, (sentence, *notes), (next_step,), verdict)


_ALL = "Swap to the newest model; no gallery has to be re-embedded for it."
_SOME = (
    "Re-embed the galleries of the pairs below before newer queries search them, or train the newer models with regard "
    "to them too (limpet methods lists how)."
)
_LOOK = (
    "Decide what counts for your users, name it (`--guard recall@1`, or `--guard none` for the metric alone) and "
    "evaluate the chain again, or re-embed the galleries of the pairs below before newer queries search them."
)
_HELD_OUT = "Evaluate the chain with queries that none of its newer models was trained on."
_JUDGE = "Let people judge which items answer each query, and evaluate the chain by their judgements."


def _violations(results: ChainResults) -> list[str]:
    found = [pair for pair in results.pairs if pair.violates]
    told = []
    for pair in found[:_SHOWN]:
        around = interval(pair.interval, sign=True)
        bar = f"the smallest effect, {score(results.min_effect)}" if results.min_effect else "zero"
        below = pair.interval[1] <= (results.min_effect or 0)
        chance = "" if below else f", which includes {bar}: chance alone may explain it"
        told.append(
            f"Queries of {pair.new} on the gallery of {pair.old} score {score(pair.cross)}, those of "
            f"{pair.old} {score(pair.self_old)}: {signed(pair.gain)} "
            f"({level(results.protocol.bootstrap.level)} interval {around}{chance})."
        )
    return told + [f"{len(found) - _SHOWN} more are in the table of pairs."] * (len(found) > _SHOWN)


def _unsure(results: ChainResults) -> list[str]:
    unsure = [pair for pair in results.pairs if not pair.violates and pair.interval[0] <= (results.min_effect or 0)]
    if not unsure:
        return []
    one = len(unsure) == 1
    named = _first([f"{pair.new} on {pair.old}" for pair in unsure])
    return [
        f"{len(unsure)} of the other pairs {'is' if one else 'are'} ahead by no more than chance may explain "
        f"({'its' if one else 'their'} {level(results.protocol.bootstrap.level)} interval includes "
        f"{score(results.min_effect) if results.min_effect else 'zero'}): {named}."
    ]


def _undefined(results: ChainResults) -> list[str]:
    if results.p_comp is None or results.independent_self is None:
        return ["No independent models were given, so P_comp and P_up are missing: --independent gives them."]
    names, alone, found = results.models, results.independent_self, []
    own = [row[number] for number, row in enumerate(results.matrix)]
    for baseline, values in results.p_comp["raw"].items():
        missing = [
            f"{names[i]} on {names[j]} ({score(alone[i])} against {score((own if baseline == 'own' else alone)[j])})"
            for i in range(len(names))
            for j in range(i)
            if values[i][j] is None
        ]
        if missing:
            found.append(
                f"P_comp with the {'chain’s own' if baseline == 'own' else 'independent'} old model is not defined "
                f"where the independent new model is not better than it: {_first(missing)}."
            )
    return found


def _first(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_SHOWN])} and {more} more"


Row = list[float | None]

BASELINES: dict[Baseline, str] = {
    "own": "the old model is the chain’s own, whose gallery is searched",
    "independent": "the old model is the independent one of its generation",
}
"""Description of "the old model" of P_comp; see `chain_metrics`."""


def matrix_table(results: ChainResults) -> Table:
    """Return the compatibility matrix: rows are queries, columns galleries; a mark follows a violation."""
    rows = [
        [name, *(_cell(results, i, j) for j in range(len(results.models)))] for i, name in enumerate(results.models)
    ]
    columns = [f"queries ({metric_name(results.metric)})", *(f"on {name}" for name in results.models)]
    return columns, rows


def _cell(results: ChainResults, i: int, j: int) -> str:
    if j > i:
        return ""
    violates = any(
        (pair.new, pair.old) == (results.models[i], results.models[j]) and pair.violates for pair in results.pairs
    )
    return score(results.matrix[i][j]) + (" ✗" if violates else "")


def pair_table(results: ChainResults) -> Table:
    """Return every pair with its scores, their difference and its interval, and the conclusion."""
    columns = ["new queries, old gallery", "cross", "self (old)", "cross − self (old)", "violates"]
    columns += ["first hits (net)", "by its interval"]
    rows = [
        [
            f"{pair.new} on {pair.old}",
            score(pair.cross),
            score(pair.self_old),
            f"{signed(pair.gain)} {interval(pair.interval, sign=True)}",
            "yes" if pair.violates else "no",
            first_hit_cell(pair.first_hits),
            f"{pair.verdict}, worse {listed(places(pair.worse))}" if pair.worse else pair.verdict,
        ]
        for pair in results.pairs
    ]
    return columns, rows


def p_comp_table(results: ChainResults, baseline: Baseline, variant: Variant = "raw") -> Table:
    """Return P_comp of every pair under one reading of "the old model"; rows are queries, columns galleries."""
    if results.p_comp is None:
        raise ConfigError("A chain without P_comp.", expected="one that was measured with independent models")
    return _triangle(results, results.p_comp[variant][baseline], signed if variant == "raw" else score)


def p_score_table(results: ChainResults, baseline: Baseline) -> Table:
    """Return P_1 of every pair, of the sigmoid variant."""
    if results.p_score is None:
        raise ConfigError("A chain without P_1.", expected="one that was measured with independent models")
    return _triangle(results, results.p_score[baseline], score)


def _triangle(results: ChainResults, values: Sequence[Row], form: Callable[[float | None], str]) -> Table:
    names = results.models
    columns = ["queries", *(f"on {name}" for name in names[:-1])]
    rows = [[names[i], *(form(values[i][j]) if j < i else "" for j in range(len(names) - 1))]
            for i in range(1, len(names))]  # fmt: skip
    return columns, rows


def models_table(results: ChainResults) -> Table:
    """Return every model with its self-test, that of its independent model, and P_up of both variants."""
    alone, up = results.independent_self, results.p_up
    rows = []
    for number, name in enumerate(results.models):
        row = [name, score(results.matrix[number][number])]
        row.append(MISSING if alone is None or not number else score(alone[number]))
        row += [MISSING, MISSING] if up is None else [signed(up["raw"][number]), score(up["sigmoid"][number])]
        rows.append(row)
    return ["model", "self-test", "independent", "P_up, raw", "P_up, sigmoid"], rows


_CROWDED = 6  # generations from which phone cells show two digits
_NAMED = 5  # models up to which pairs are labelled by name
_LONG = 14  # maximum length of such names
_MEANINGS = ("rows: model of the queries", "columns: model of the gallery", "outlined: its own gallery")


def write_chain_report(results: ChainResults, folder: str | Path) -> Path:
    """Write report.html into a folder atomically, and return its path; see `write_page`."""
    return write_page(render_chain_report(results), folder)


def render_chain_report(results: ChainResults) -> str:
    """Return the page as text; see `write_chain_report`."""
    page: str = page_template("chain.html").render(
        document=results,
        finding=chain_finding(results),
        by_number=_by_number(results.models),
        charts=_charts(results),
        baselines=BASELINES,
        models=models_table(results),
        matrix=matrix_table(results),
        pairs=pair_table(results),
        p_comp=partial(p_comp_table, results),
        p_score=partial(p_score_table, results),
        protocol=rule_rows(results.protocol, then=_judged_by(results)),
    )
    return page


def _judged_by(results: ChainResults) -> list[tuple[str, str]]:
    effect = [] if results.min_effect is None else [("smallest effect", score(results.min_effect))]
    guarded = ", ".join(map(metric_name, results.guards)) or "nothing"
    return [("metric", metric_name(results.metric)), *effect, ("guarded", guarded)]


def _charts(results: ChainResults) -> dict[str, Any]:
    from limpet.reports.plots.heat import WRONG, heat_key, heat_range

    what, matrix = metric_name(results.metric), _array(results.matrix)
    limits = heat_range([matrix]) or (0.0, 1.0)
    violated = bool(results.violations and results.judged)
    wide, narrower = ({"width": _width(len(matrix) - less, most)} for less, most in ((0, 560), (1, 400)))
    key = partial(
        heat_key,
        limits,
        what,
        mark=WRONG,
        mark_means="no better than the gallery’s own model: a violation" if violated else "",
        meanings=_MEANINGS,
    )
    found: dict[str, Any] = {
        "matrix": drawn_both(_matrix, results, matrix, limits, wide=wide),
        "key": drawn_both(key, wide={"width": 560}),
        "gains": drawn_both(_gains, results),
        "p_comp": {},
        "most": {"matrix": wide["width"], "p_comp": narrower["width"]},
    }
    if results.p_comp:
        raw = {name: _array(values) for name, values in results.p_comp["raw"].items()}
        ends = heat_range(raw.values())
        if ends:
            found["p_comp"] = {
                name: drawn_both(_p_comp, results, values, ends, wide=narrower) for name, values in raw.items()
            }
    return found


def _width(models: int, most: float) -> float:
    """Return the width of a map of `models` rows, so that few cells are not enlarged."""
    return min(most, 80.0 + 110.0 * models)


def _matrix(results: ChainResults, matrix: Any, limits: tuple[float, float], width: float) -> alt.LayerChart:
    from limpet.reports.plots.heat import WRONG, heat_map

    crowded = len(results.models) > _CROWDED * width / PHONE
    return heat_map(
        "",
        matrix,
        _numbers(results),
        limits,
        what=metric_name(results.metric),
        marked=violations(matrix, results.min_effect or 0.0) if results.judged else None,
        mark=WRONG,
        form=("{:.2f}" if crowded else "{:.3f}").format,
        width=width,
    )


def _p_comp(results: ChainResults, values: Any, limits: tuple[float, float], width: float) -> alt.LayerChart:
    from limpet.reports.plots.heat import heat_map

    numbers = _numbers(results)
    digits = 3 if len(values) <= _CROWDED else 2 if width > PHONE else 1
    return heat_map(
        "",
        values[1:, :-1],
        numbers[1:],
        limits,
        what="P_comp",
        columns=numbers[:-1],
        form=lambda value: f"{value:+.{digits}f}".replace("-", "−"),
        width=width,
    )


def _gains(results: ChainResults, width: float) -> alt.LayerChart:
    from limpet.reports.plots.forest import Gain, gain_plot

    names, numbers = results.models, dict(zip(results.models, _numbers(results), strict=True))
    called = numbers if _by_number(names) else {name: name for name in names}
    gains = [
        Gain(
            f"{called[pair.new]} on {called[pair.old]}",
            pair.gain,
            pair.interval,
            "not compatible" if pair.violates and pair.verdict != "unlabelled" else pair.verdict,
        )
        for pair in results.pairs
    ]
    title = "Cross-test minus self-test of the older model, pair by pair"
    return gain_plot(title, gains, f"difference in {metric_name(results.metric)}", width=width)


def _by_number(names: list[str]) -> bool:
    """Return whether to label pairs by their matrix numbers, because names would take too much room."""
    return len(names) > _NAMED or max(map(len, names)) > _LONG


def _numbers(results: ChainResults) -> list[str]:
    return [str(number) for number in range(1, len(results.models) + 1)]


def _array(rows: Any) -> Any:
    return np.array(rows, dtype=np.float64)


def chain_words(results: ChainResults) -> list[str]:
    """Return the findings on a chain, one per line."""
    found = chain_finding(results)
    return [found.headline, *found.lines]


def chain_records(results: ChainResults) -> list[dict[str, Any]]:
    """Return the scores of every newer model on every older gallery."""
    return [
        {
            "new": pair.new,
            "old": pair.old,
            "metric": results.metric,
            "self_old": pair.self_old,
            "cross": pair.cross,
            "gain": pair.gain,
            "gain_low": pair.interval[0],
            "gain_high": pair.interval[1],
            "verdict": pair.verdict,
        }
        for pair in results.pairs
    ]


def chain_markdown(results: ChainResults) -> str:
    """Return findings and tables in Markdown."""
    tables = {f"{metric_name(results.metric)} of every model on every gallery": matrix_table(results)}
    tables["Pairs"] = pair_table(results)
    if results.p_comp:
        tables["Every model against its own recipe trained alone"] = models_table(results)
        tables |= {f"P_comp, raw: {BASELINES[name]}": p_comp_table(results, name) for name in results.p_comp["raw"]}
    return markdown_of(results.title, [chain_finding(results)], tables)
