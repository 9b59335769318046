"""The few pieces of SVG for pictures that no library draws: a session plan, the Poincaré disk, average ranks.

Colours are classes, so that a page sets them for its scheme; everything else is drawn by `reports.charts`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LETTER = 0.66  # width of a letter by height of the font: that of the widest common one, DejaVu Sans, in bold


@dataclass(frozen=True)
class Scale:
    """A linear map of values to pixels; values outside ``[low, high]`` land on its ends.

    >>> Scale(0.0, 1.0, 100, 200)(0.25), Scale(0.0, 1.0, 100, 200)(7)
    (125.0, 200.0)
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.stop - self.start), 2)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values within the scale, about so many."""
        if self.high <= self.low:
            return [self.low]
        raw = (self.high - self.low) / about
        size = 10.0 ** math.floor(math.log10(raw))
        step = size * next(factor for factor in (1, 2, 5, 10) if raw <= factor * size * 1.0000001)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(step * number, 10) for number in range(first, last + 1)]


def tick_label(value: float) -> str:
    """Write a round value briefly.

    >>> tick_label(0.0), tick_label(-0.25)
    ('0', '−0.25')
    """
    return f"{value + 0.0:g}".replace("-", "−")


def clean(text: str) -> str:
    """Escape text for markup, and drop characters that XML does not allow."""
    return escape(NOT_XML.sub("", text))


def element(name: str, content: str = "", **attributes: str | float) -> str:
    """Return one element; ``content`` is markup, ``kind`` is the class, underscores in names are hyphens."""
    listed = "".join(
        f' {"class" if key == "kind" else key.replace("_", "-")}="{clean(_written(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{listed}>{content}</{name}>" if content else f"<{name}{listed}/>"


def text(x: float, y: float, words: str, kind: str = "label", anchor: str = "start") -> str:
    """Return a line of text, escaped."""
    return element("text", clean(words), kind=kind, x=x, y=y, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return element("line", kind=kind, x1=x1, y1=y1, x2=x2, y2=y2)


def box(x: float, y: float, width: float, height: float, kind: str, note: str = "") -> str:
    """Return a rectangle; the note appears under a pointer."""
    content = element("title", clean(note)) if note else ""
    return element("rect", content, kind=kind, x=x, y=y, width=max(0.0, round(width, 2)), height=height)


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return a line through points."""
    return element("path", kind=kind, d="M" + "L".join(f"{x:g} {y:g}" for x, y in points))


def marker(x: float, y: float, number: int, kind: str, size: float = 7.0, note: str = "") -> str:
    """Return one of six shapes, so that marks differ without colour."""
    d = {
        0: "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z",
        1: "M-.9 -.9H.9V.9H-.9Z",
        2: "M0 -1.1L1.05 .8H-1.05Z",
        3: "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
        4: "M0 1.1L1.05 -.8H-1.05Z",
        5: "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    }[number % 6]
    content = element("title", clean(note)) if note else ""
    return element("path", content, kind=kind, d=d, transform=f"translate({x:g} {y:g}) scale({size:g})")


def width_of(words: str, size: float = 13.0) -> float:
    """Return about how wide a text is, rather too wide than too narrow."""
    return len(words) * size * _LETTER


def shortened(words: str, width: float, size: float = 13.0) -> str:
    """Return a text that fits a width, with an ellipsis where something is cut.

    >>> shortened("limpet", 45), shortened("hold", 45)
    ('limp…', 'hold')
    """
    letters = int(width / (size * _LETTER))
    return words if len(words) <= letters else f"{words[: max(1, letters - 1)]}…"


def cut(words: str, width: float, size: float = 13.0) -> str:
    """Return a text that fits a width, its middle cut out: labels often differ at the end, by an option.

    >>> cut("bct, weight 0.5", 90), cut("bct", 90)
    ('bct, … 0.5', 'bct')
    """
    room = max(3, int(width / width_of("x", size)))
    head = (room - 1) // 2 + (room - 1) % 2
    return words if len(words) <= room else f"{words[:head]}…{words[head + 1 - room :]}"


def chart(width: float, height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """Return a whole drawing, with a text alternative that holds its numbers."""
    content = element("title", clean(title)) + element("desc", clean(description)) + "".join(parts)
    return element(
        "svg",
        content,
        kind="chart",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def _written(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
