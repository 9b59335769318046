"""Charts of the cost of learning in sessions: gallery size, images and seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from limpet.reports.plots.frame import Frame, Range
from limpet.reports.plots.style import CROSS, HAIR, PAPER, REVERSE, SOFT, shortened, width_of
from limpet.reports.plots.swatches import box, swatch

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.sessions.results import LearnerResults

KINDS = {
    "new": "embedded in this session, for the first time",
    "kept": "embedded in an earlier session and left alone; the number says in which",
    "again": "embedded in an earlier session, and again in this one",
}


class Growth(NamedTuple):
    """Growth of the gallery of learners with the same numbers.

    Args:
        names: Names of the learners.
        gallery: Number of images in the gallery after every session.
        embedded: Number of images embedded at the end of every session.
        again: Total number of images that a session embedded again.
    """

    names: tuple[str, ...]
    gallery: tuple[int, ...]
    embedded: tuple[int, ...]
    again: int

    def layers(self, session: int) -> list[tuple[str, int, int]]:
        """Return the layers of the gallery after a session (counted from 0), oldest first.

        A layer is a key of `KINDS`, the session that embedded it (counted from 0), and its number of images.
        """
        before = self.gallery[session - 1] if session else 0
        fresh = self.gallery[session] - before
        if self.embedded[session] > fresh:
            return [("again", session, before), ("new", session, fresh)]
        parts = [0, *self.gallery[: session + 1]]
        sizes = [after - earlier for earlier, after in pairwise(parts)]
        return [("kept" if place < session else "new", place, size) for place, size in enumerate(sizes)]


def growths(learners: Mapping[str, LearnerResults]) -> list[Growth]:
    """Return the growth of galleries; learners with the same numbers share one, the least re-embedded come first."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, learner in learners.items():
        gallery = tuple(session.gallery_rows for session in learner.sessions)
        embedded = tuple(session.embedded_rows for session in learner.sessions)
        alike.setdefault((gallery, embedded), []).append(name)
    found = [Growth(tuple(names), *key, learners[names[0]].embedded_again) for key, names in alike.items()]
    return sorted(found, key=lambda growth: growth.again)


def growth_plot(growth: Growth, most: int, *, width: float = 520) -> alt.LayerChart:
    """Draw the gallery after every session as a column of layers, one per session that embedded images.

    Args:
        growth: Growth of a gallery.
        most: Size of the largest gallery, so that adjacent charts share one scale.
        width: Width in pixels; numbers that do not fit appear only in the tooltips of their layers.
    """
    count = len(growth.gallery)
    told = "; ".join(
        f"after session {session} {rows:,} images, {embedded:,} of them embedded in it"
        for session, (rows, embedded) in enumerate(zip(growth.gallery, growth.embedded, strict=True), start=1)
    )
    title = f"Growth of the gallery of {', '.join(growth.names)}"
    told = f"{told.capitalize()}. Embedded again in all: {growth.again:,}."
    frame = Frame(width, 252, (0, 20, 0, 42), (0.5, count + 0.5), (0.0, float(most or 1)))
    span, pixels = width / count, frame.inner[1] / (most or 1)
    across = min(0.68 * span, 84.0) / span
    inset = {"again": (0.9 / span, 0.9 / pixels)}  # outlines of re-embedded layers are drawn inside the box
    boxes: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    numbers, totals = [], []
    for session, rows in enumerate(growth.gallery, start=1):
        below = 0
        for kind, embedded_in, size in growth.layers(session - 1):
            note = f"session {session}: {size:,} images {KINDS[kind].partition(';')[0]}"
            note += f" ({embedded_in + 1})" if kind == "kept" else ""
            right, up = inset.get(kind, (0.0, 0.0))
            if size:
                left, bottom, top = session - across / 2, below + up, below + size - up
                ends = {"x": left + right, "x2": left + across - right, "y": bottom, "y2": max(bottom, top)}
                boxes[kind].append({**ends, "note": note})
            if kind == "kept" and size * pixels >= 13:
                numbers.append({"x": session, "y": below + size / 2, "text": str(embedded_in + 1)})
            below += size
        half = width_of(f"{rows:,}", 12) / 2
        if 2 * half <= span - 4 or session == count:
            at = frame.x_at(min(frame.across(session), width - half))
            totals.append({"x": at, "y": rows, "text": f"{rows:,}"})
    base = {"x": 0.5, "x2": count + 0.5, "y": 0, "y2": 0}
    return frame.chart(title, told, [
        frame.axes(range(1, count + 1), x_title="images in the gallery after session", grid=False),
        frame.rules([base], "base", colour=HAIR, width=1),
        *(frame.boxes(boxes[kind], kind, **_LAYERS[kind]) for kind in KINDS),
        frame.text(numbers, "layer names", size=11.5, align="center", dy=4, halo=False),
        frame.text(totals, "totals", size=12, colour=SOFT, align="center", dy=-6),
    ])  # fmt: skip


_LAYERS: dict[str, dict[str, Any]] = {
    "new": {"colour": CROSS, "edge": PAPER, "line": 1.0},
    "kept": {"colour": CROSS, "opacity": 0.28, "edge": PAPER, "line": 1.0},
    "again": {"colour": PAPER, "edge": REVERSE, "line": 1.8, "dashes": (5, 2.5)},
}


@cache
def layer_swatch(kind: str) -> str:
    """Return the legend swatch of a layer."""
    if kind == "again":
        return swatch(box(PAPER, edge=REVERSE, dashes=(5, 2.5)))
    return swatch(box(CROSS, 0.28 if kind == "kept" else 1.0))


def cost_columns(
    title: str,
    costs: Mapping[str, Sequence[Range]],
    kinds: tuple[str, str],
    form: Callable[[float], str],
    *,
    width: float = 520,
) -> alt.LayerChart:
    """Draw the cost of every session: a row per learner, a column per session, as two stacked parts."""
    totals = {name: form(sum(map(sum, found))) for name, found in costs.items()}
    told = "; ".join(
        f"{name}: {', '.join(f'{form(filled)} + {form(hollow)}' for filled, hollow in found)}; in all {totals[name]}"
        for name, found in costs.items()
    )
    count, most = len(next(iter(costs.values()))), max(sum(both) for found in costs.values() for both in found)
    left = min(max(width_of(name, 12.5) for name in costs), 0.3 * width) + 10
    right = max(width_of(words, 12) for words in (*totals.values(), "in all")) + 10
    unit = 96 / (most or 1.0)  # pixels per unit of cost
    bases, base = {}, 4.0
    for name, found in costs.items():
        base += 14 + max(16.0, unit * max(map(sum, found)))
        bases[name] = base
    said = f"By session, {kinds[0]} + {kinds[1]}. {told}."
    frame = Frame(width, base + 44, (left, 18, right, 44), (0.5, count + 0.5), (base - 18, 0.0))
    span = frame.inner[0] / count
    across = min(0.62 * span, 34.0) / span
    words = f"session; the highest column is {form(most)}"
    half = width_of(words, 12) / 2
    middle = min(max(left + frame.inner[0] / 2, half), width - half)
    columns: dict[str, list[dict[str, Any]]] = {"filled": [], "hollow": []}
    names, sums, lines = [], [{"x": frame.x_at(width), "y": frame.y_at(12), "text": "in all"}], []
    for name, found in costs.items():
        bottom = frame.y_at(bases[name])
        names.append({"x": frame.x_at(0), "y": bottom - 2, "text": shortened(name, left - 10, 12.5)})
        sums.append({"x": frame.x_at(width), "y": bottom - 2, "text": totals[name]})
        lines.append({"x": 0.5, "x2": count + 0.5, "y": bottom, "y2": bottom})
        for session, (filled, hollow) in enumerate(found, start=1):
            note = f"{name}, session {session}: {form(filled)} {kinds[0]}, {form(hollow)} {kinds[1]}"
            x, x2, top = session - across / 2, session + across / 2, bottom - unit * filled
            columns["filled"].append({"x": x, "x2": x2, "y": top, "y2": bottom, "note": note})
            if unit * hollow > 1.4:  # the outline is drawn inside the box
                gap = 0.7 / span
                high = {"y": top - unit * hollow + 0.7, "y2": top - 0.7}
                columns["hollow"].append({"x": x + gap, "x2": x2 - gap, **high, "note": note})
    title_at = {"x": frame.x_at(middle), "y": frame.y_at(base + 36), "text": words}
    return frame.chart(title, said, [
        frame.axes(range(1, count + 1), grid=False),
        frame.rules(lines, "bases", colour=HAIR, width=1),
        frame.boxes(columns["filled"], "filled", colour=CROSS),
        frame.boxes(columns["hollow"], "hollow", colour=PAPER, edge=CROSS, line=1.4),
        frame.text([title_at], "title", size=12, colour=SOFT, align="center"),
        frame.text(names, "names", size=12.5),
        frame.text(sums, "in all", size=12, colour=SOFT, align="right"),
    ])  # fmt: skip


def images_of(learner: LearnerResults) -> list[Range]:
    """Return, for every session, the number of images in training steps and of images that were only embedded."""
    return [(session.trained_images, session.encoded_images) for session in learner.sessions]


def seconds_by_session(learner: LearnerResults) -> list[Range]:
    """Return, for every session, the seconds of training and of everything else."""
    return [(session.seconds.training, session.seconds.rest) for session in learner.sessions]
