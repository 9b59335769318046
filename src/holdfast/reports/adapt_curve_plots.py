"""The charts of one adapter: how many pairs it needs, and what a score of the old model becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.adapters.compare import CurvePoint, LearningCurve
from holdfast.adapters.results import AdaptResults, ScoreMapRecord
from holdfast.reports.adapt_tables import thresholds
from holdfast.reports.charts.forest import KINDS, REFERENCES
from holdfast.reports.charts.forest import with_interval as written
from holdfast.reports.formats import score
from holdfast.reports.svg import Scale, box, chart, line, marker, path, reaching, text, width_of, x_axis, y_axis
from holdfast.wording import metric_name

STYLE = """.adapter{--own:var(--cross)}.head{--own:var(--independent)}
.reference.self_new{stroke:var(--good);stroke-dasharray:7 3}
.band.self_new{fill:var(--good)}
.chart .reference-name.self_new{fill:var(--good)}
.spot-of{fill:var(--own);stroke:var(--paper);stroke-width:1;vector-effect:non-scaling-stroke}
.chart .led{font-weight:700}
.around{fill:var(--own);opacity:.16}
.track{fill:none;stroke:var(--own);stroke-width:2.2;stroke-linejoin:round}
.enough{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:2 3}
.enough-ring{fill:none;stroke:var(--ink);stroke-width:1.4;vector-effect:non-scaling-stroke}
.same{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 3}
.read-off{fill:var(--paper);stroke:var(--own);stroke-width:1.8;vector-effect:non-scaling-stroke}
@media print{.around{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 16.0, 52.0, 46.0


def learning_curve(results: AdaptResults, curve: LearningCurve, *, width: float = 640, height: float = 340) -> str:
    """Draw cross over the number of pairs fitted on (logarithmic) with its interval, and where it is enough."""
    candidate = results.named(curve.candidate)
    kind = candidate.kind if candidate else "adapter"
    points, bottom = curve.points, height - _BOTTOM
    references = [results.systems.by_name()[system] for system in REFERENCES]
    ends = [end for mean in (*references, *(point.cross for point in points)) for end in mean.interval]
    y = reaching(min(ends), max(ends), bottom, _TOP)
    x = _pairs_scale([point.pairs for point in points], _LEFT + 10, width - _RIGHT)
    parts = [y_axis(y, _LEFT, x.stop, _curve_title(results)), *_pairs_axis(points, x, bottom)]
    parts += _level_references(results, y, x.stop)
    around = [(x(math.log10(p.pairs)), y(p.cross.interval[1])) for p in points]
    around += [(x(math.log10(p.pairs)), y(p.cross.interval[0])) for p in reversed(points)]
    parts += [path(around, f"around {kind}"), *_enough(curve, x, y, width)]
    parts.append(path([(x(math.log10(p.pairs)), y(p.cross.mean)) for p in points], f"track {kind}"))
    for point in points:
        note, at = f"{point.pairs:,} pairs: {written(point.cross)}", x(math.log10(point.pairs))
        parts.append(marker(at, y(point.cross.mean), KINDS[kind][1], f"spot-of {kind}", 5, note))
    return chart(width, height, f"Learning curve of {curve.candidate}", _curve_in_words(results, curve), parts)


def _curve_title(results: AdaptResults) -> str:
    name = metric_name(results.protocol.metric)
    return f"{name}; further up is better ↑" if results.data.labelled else f"{name} (agreement) ↑"


def _pairs_scale(pairs: list[int], start: float, stop: float) -> Scale:
    """Return the scale of the logarithm of numbers of pairs; a single one stands in the middle."""
    low, high = math.log10(pairs[0]), math.log10(pairs[-1])
    room = 0.0 if high > low else 0.5
    return Scale(low - room, high + room, start, stop - 8)


def _pairs_axis(points: Sequence[CurvePoint], x: Scale, bottom: float) -> list[str]:
    """Return a line for every number of pairs, the numbers themselves as far as they fit, and the title below."""
    parts, taken = [], math.inf
    for point in reversed(points):
        at, words = x(math.log10(point.pairs)), f"{point.pairs:,}"
        half = width_of(words, 12) / 2
        parts.append(line(at, _TOP, at, bottom, "grid"))
        if at + half <= taken:
            parts.append(text(at, bottom + 17, words, "tick", "middle"))
            taken = at - half - 4
    title = "pairs fitted on (logarithmic)"
    return [*parts, text((x.start + x.stop) / 2, bottom + 37, title, "label", "middle")]


def _level_references(results: AdaptResults, y: Scale, stop: float) -> list[str]:
    parts = []
    for (system, words), (at, anchor) in zip(
        (("self_old", "old model"), ("self_new", "re-embedded")), ((stop - 4, "end"), (_LEFT + 4, "start")), strict=True
    ):
        mean = results.systems.by_name()[system]
        low, high = map(y, mean.interval)
        parts.append(box(_LEFT, high, stop - _LEFT, round(low - high, 2), f"band {system}"))
        parts.append(line(_LEFT, y(mean.mean), stop, y(mean.mean), f"reference {system}"))
        label = f"{words} {score(mean.mean)}"
        parts.append(text(at, y(mean.mean) - 5, label, f"reference-name small halo {system}", anchor))
    return parts


def _enough(curve: LearningCurve, x: Scale, y: Scale, width: float) -> list[str]:
    """Mark where the number of pairs is enough; nothing where none was."""
    found = next((point for point in curve.points if point.pairs == curve.enough), None)
    if found is None:
        return []
    at, words = x(math.log10(found.pairs)), f"enough: {found.pairs:,} pairs"
    half = width_of(words) / 2
    return [
        line(at, _TOP - 14, at, y.start, "enough"),
        text(round(min(max(at, half), width - half), 2), _TOP - 20, words, "led", "middle"),
        marker(at, y(found.cross.mean), 0, "enough-ring", 9),
    ]


def _curve_in_words(results: AdaptResults, curve: LearningCurve) -> str:
    points = "; ".join(f"{point.pairs:,} pairs: {written(point.cross)}" for point in curve.points)
    enough = "" if curve.enough is None else f" {curve.enough:,} pairs are enough."
    references = ", ".join(
        f"{name} {written(results.systems.by_name()[system])}" for system, name in REFERENCES.items()
    )
    return f"{points}.{enough} {references}."


def score_map_plot(score_map: ScoreMapRecord, *, width: float = 640, height: float = 340) -> str:
    """Draw the new score that stands for every old one, with the thresholds that are read off."""
    knots, bottom = score_map.knots, height - _BOTTOM
    x = reaching(knots[0][0], knots[-1][0], _LEFT, width - _RIGHT, 10)
    y = reaching(knots[0][1], knots[-1][1], bottom, 30, 10)
    parts = [
        x_axis(x, y.stop, bottom, "score of the old model"),
        y_axis(y, _LEFT, x.stop, "score of the new model that stands for it"),
        *_same(x, y),
        path([(x(old), y(new)) for old, new in knots], "track adapter"),
    ]
    found = thresholds(score_map)
    parts += [marker(x(old), y(new), 0, "read-off adapter", 4.5, f"{old:g} → {score(new)}") for old, new in found]
    told = "; ".join(f"{old:g} becomes {score(new)}" for old, new in found)
    return chart(width, height, "Old scores as new ones", f"{told}.", parts)


def _same(x: Scale, y: Scale) -> list[str]:
    """Draw where both scores are equal, as far as that lies within."""
    low, high = max(x.low, y.low), min(x.high, y.high)
    if low >= high:
        return []
    label = text(x(high) - 8, y(high) + 16, "equal scores", "small halo", "end")
    return [line(x(low), y(low), x(high), y(high), "same"), label]
