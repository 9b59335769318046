"""The chart of adapters and heads compared: what every candidate finds, beside the old model and re-embedding.

Colours are those of the page and of `STYLE`, which a page puts beside its own style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.adapters.compare import Kind
from holdfast.adapters.results import AdaptResults, CandidateScores, Score
from holdfast.reports.adapt_tables import OLD, REEMBEDDED
from holdfast.reports.formats import interval, metric_name, score
from holdfast.reports.svg import (
    Scale,
    box,
    chart,
    element,
    line,
    marker,
    reaching,
    shortened,
    text,
    whisker,
    width_of,
    x_axis,
)

STYLE = """.adapter{--own:var(--cross)}.head{--own:var(--independent)}
.reference.self_new{stroke:var(--good);stroke-dasharray:7 3}
.band.self_new{fill:var(--good)}
.chart .reference-name.self_new{fill:var(--good)}
.spot-of{fill:var(--own);stroke:var(--paper);stroke-width:1;vector-effect:non-scaling-stroke}
.whisker.adapter,.whisker.head{stroke:var(--own);stroke-width:1.8}
.whisker.led{stroke-width:3}
.chart .led{font-weight:700}
.chart .advised{fill:var(--own);font-size:11.5px}
.advised-row{fill:var(--own);opacity:.09}
.around{fill:var(--own);opacity:.16}
.track{fill:none;stroke:var(--own);stroke-width:2.2;stroke-linejoin:round}
.enough{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:2 3}
.enough-ring{fill:none;stroke:var(--ink);stroke-width:1.4;vector-effect:non-scaling-stroke}
.same{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 3}
.read-off{fill:var(--paper);stroke:var(--own);stroke-width:1.8;vector-effect:non-scaling-stroke}
@media print{.advised-row,.around{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

SHAPES: dict[Kind, int] = {"adapter": 0, "head": 3}  # of the marks
REFERENCES = {"self_old": OLD, "self_new": REEMBEDDED}

_LINE_END = "\n"  # a reason may say what to do on further lines, for which a row has no room
_NARROW = 480  # pixels below which names stand above their rows
_NAMES, _NUMBERS = 206.0, 52.0  # beside the scale
_TOP, _BOTTOM = 44.0, 46.0
_MOST = 1.0  # marks further below the references than so many times what is between would flatten the others


@dataclass(frozen=True)
class _Row:
    """Where the parts of a row are.

    Args:
        height: Of the row.
        name: Base of the name and of the number, from the top of the row.
        middle: Height of the mark, from there.
    """

    height: float
    name: float
    middle: float


_BESIDE, _ABOVE = _Row(38, 23.5, 19), _Row(50, 17, 34)


def candidate_dots(results: AdaptResults, *, width: float = 640) -> str:
    """Draw cross of every candidate with its interval, the best first, against both references and their intervals.

    What failed stands last, with its reason. Marks far below the others are arrows at the edge. The candidate that is
    recommended has a thicker mark on a tinted row.
    """
    narrow = width < _NARROW
    row, candidates = _ABOVE if narrow else _BESIDE, results.by_score()
    x = reaching(*_extent(results), 10.0 if narrow else _NAMES, width - _NUMBERS)
    bottom = _TOP + row.height * len(candidates)
    able = sum(found.cross is not None for found in candidates)
    end = _TOP + row.height * (able or len(candidates))  # of the references, which would cross the reasons below
    spans = [(_TOP, end)]
    if row is _ABOVE:  # names stand on the way, and nothing is drawn behind them
        drawn = [place for place, found in enumerate(candidates[:able]) if found.cross and found.cross.mean >= x.low]
        spans = [(_TOP + row.height * place + row.name + 5, _TOP + row.height * (place + 1)) for place in drawn]
    parts = [_advised_row(results, candidates, row, width)]
    parts += [*_bands(results, x, spans), x_axis(x, _TOP, bottom, _axis_title(results, short=narrow))]
    parts += _reference_lines(results, x, spans, width)
    for place, found in enumerate(candidates):
        parts += _candidate(found, x, _TOP + place * row.height, row, width, led=found is results.recommended)
    title = f"Candidates by {metric_name(results.protocol.metric)}"
    return chart(width, bottom + _BOTTOM, title, _dots_in_words(results), parts)


def _extent(results: AdaptResults) -> tuple[float, float]:
    """Return the lowest and highest value to draw; marks far below the references do not count."""
    measured = [found.cross for found in results.by_score() if found.cross]
    references = [results.systems.by_name()[system] for system in REFERENCES]
    high = max(mean.interval[1] for mean in (*measured, *references))
    usual = min(mean.interval[0] for mean in (*measured[:1], *references))
    floor = usual - _MOST * max(high - usual, 0.01)
    lows = (mean.interval[0] for mean in measured)
    return min([usual, *(low for low in lows if low >= floor)]), high


def _axis_title(results: AdaptResults, *, short: bool) -> str:
    name = metric_name(results.protocol.metric)
    if results.data.labelled:
        return f"{name} on held-out items{'' if short else '; further right is better'} →"
    return f"{name} with re-embedding{'' if short else ': agreement, not correctness'} →"


def _bands(results: AdaptResults, x: Scale, spans: Sequence[tuple[float, float]]) -> list[str]:
    parts = []
    for system in REFERENCES:
        low, high = map(x, results.systems.by_name()[system].interval)
        parts += [box(low, top, high - low, bottom - top, f"band {system}") for top, bottom in spans]
    return parts


def _reference_lines(results: AdaptResults, x: Scale, spans: Sequence[tuple[float, float]], width: float) -> list[str]:
    """Draw a line for each reference with its name above, each on a line of its own."""
    parts = []
    for place, (system, name) in enumerate(REFERENCES.items()):
        found = results.systems.by_name()[system].mean
        words, at = f"{name} {score(found)}", x(found)
        half = width_of(words) / 2
        inside = min(max(at, half), width - half)
        parts += [line(at, top, at, bottom, f"reference {system}") for top, bottom in spans]
        parts.append(text(round(inside, 2), 36 - 20 * place, words, f"reference-name {system}", "middle"))
    return parts


def _advised_row(results: AdaptResults, candidates: list[CandidateScores], row: _Row, width: float) -> str:
    """Tint the row of the candidate that is recommended."""
    for place, found in enumerate(candidates):
        if found is results.recommended:
            return box(-6, _TOP + place * row.height, width + 12, row.height, f"advised-row {found.kind}")
    return ""


def _candidate(found: CandidateScores, x: Scale, top: float, row: _Row, width: float, *, led: bool) -> list[str]:
    parts = _name(found, top, row, width, led=led)
    y, mean = top + row.middle, found.cross
    if mean is None:
        reason = shortened(f"failed: {(found.failed or '').partition(_LINE_END)[0]}", x.stop - x.start, 12)
        return [*parts, text(x.start, y + 4, reason, "far halo")]
    parts.append(text(width, top + row.name, score(mean.mean), f"number{' led' * led}", "end"))
    if mean.mean < x.low:
        return [*parts, text(x.start, y + 4, "◂ off the scale", "far halo")]
    kind, note = f"{found.kind}{' led' * led}", f"{found.name}: {written(mean)}"
    low, high = map(x, mean.interval)
    parts.append(whisker(low, high, y, f"whisker {kind}", 5 if led else 4))
    return [*parts, marker(x(mean.mean), y, SHAPES[found.kind], f"spot-of {kind}", 8 if led else 6, note)]


def _name(found: CandidateScores, top: float, row: _Row, width: float, *, led: bool) -> list[str]:
    """Write the name, and that the candidate is recommended: below it, or behind it where it stands above its mark."""
    kind = f"candidate{' led' * led}"
    if row is _ABOVE:
        behind = ", recommended" * led
        name = shortened(found.name, width - _NUMBERS - width_of(behind))
        return [text(0, top + row.name, name + behind, f"{kind} halo")]
    parts = [text(0, top + row.name - 7 * led, shortened(found.name, _NAMES - 14), kind)]
    return [*parts, text(0, top + row.name + 8, "recommended", f"advised {found.kind}")] if led else parts


def _dots_in_words(results: AdaptResults) -> str:
    references = (f"{name}: {written(results.systems.by_name()[system])}." for system, name in REFERENCES.items())
    candidates = (
        f"{found.name} ({found.kind}): {written(found.cross)}."
        if found.cross
        else f"{found.name} ({found.kind}) failed: {found.failed}"
        for found in results.by_score()
    )
    return " ".join((*references, *candidates))


def written(mean: Score) -> str:
    """Write a mean with its interval."""
    return f"{score(mean.mean)} {interval(mean.interval)}"


def kind_swatch(kind: str) -> str:
    """Return the mark of a kind of candidate, or the line of a reference, for a legend."""
    if kind in SHAPES:
        drawn = whisker(1, 25, 6, f"whisker {kind}") + marker(13, 6, SHAPES[kind], f"spot-of {kind}", 5)
    else:
        drawn = box(0, 0, 26, 12, f"band {kind}") + line(13, 0, 13, 12, f"reference {kind}")
    return element("svg", drawn, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")
