"""A picture of stored embeddings as one file: SVG, PNG and PDF for papers, HTML for browsers of any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, refuse
from limpet.reports.charts.canvas import Chart, own_style, standalone
from limpet.reports.markdown import Table
from limpet.reports.page import EXTRA, PHONE, Drawing, page_template, pages_can_be_written
from limpet.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

WIDE = 800.0  # pixels
_FINE = 144  # dots per inch of a PNG: two pixels of the file for one of a page


class Drawn(NamedTuple):
    """A picture that is to be written.

    Args:
        title: Its headline.
        draw: Returns its charts, so many pixels wide each.
        told: What it shows, in words.
        table: Its numbers for people.
    """

    title: str
    draw: Callable[[float], Sequence[Chart]]
    told: str
    table: Table


def check_file(path: Path) -> None:
    """Refuse, before anything is computed, a file that cannot be written.

    Raises:
        ConfigError: It has another ending than the known ones, or what draws is not installed.
    """
    refuse(
        path.suffix not in WRITERS,
        f"--out {path} ends in '{path.suffix}'." if path.suffix else f"--out {path} has no ending.",
        f"a file that ends in one of {', '.join(WRITERS)}",
    )
    if not pages_can_be_written():
        raise ConfigError(
            "Pictures are drawn with Matplotlib, and pages written with Jinja2, which are not both installed.",
            expected="Matplotlib and Jinja2",
            to_do=f"{EXTRA}; nothing was computed.",
        )


def write_picture(drawn: Drawn, path: Path) -> Path:
    """Write a picture into a file, wholly or not at all, and return its path.

    Raises:
        ConfigError: See `check_file`.
        DataError: The file could not be written.
    """
    check_file(path)
    return write_atomically(path, lambda part: WRITERS[path.suffix](drawn, part))


def _write_svg(drawn: Drawn, path: Path) -> None:
    path.write_text(standalone(drawn.draw(WIDE), drawn.title, beside=1), encoding="utf-8", newline="")


@own_style
def _write_png(drawn: Drawn, path: Path) -> None:
    """Write all charts below each other."""
    from PIL import Image

    parts = [_image(chart) for chart in drawn.draw(WIDE)]
    gap = 24 * _FINE // 72
    size = (max(part.width for part in parts) + 2 * gap, sum(part.height + gap for part in parts) + gap)
    whole, down = Image.new("RGB", size, "white"), gap
    for part in parts:
        whole.paste(part, (gap, down))
        down += part.height + gap
    whole.save(path, "PNG", optimize=True)


def _image(chart: Chart) -> Image:
    from io import BytesIO

    from PIL import Image

    buffer = BytesIO()
    _on_white(chart).savefig(buffer, format="png", dpi=_FINE)
    return Image.open(buffer).convert("RGB")


@own_style
def _write_pdf(drawn: Drawn, path: Path) -> None:
    """Write a page for every chart."""
    from matplotlib.backends.backend_pdf import PdfPages

    with PdfPages(path, metadata={"Title": drawn.title, "CreationDate": None}) as pages:
        for chart in drawn.draw(WIDE):
            pages.savefig(_on_white(chart), pad_inches=0.3, bbox_inches="tight")


def _on_white(chart: Chart) -> Figure:
    """Return the figure of a chart with what pages add by their style: white behind all, and halos."""
    from matplotlib.patheffects import withStroke

    chart.figure.set_facecolor("white")
    for text in chart.axes.texts:
        if text.get_gid() == "halo":
            text.set_path_effects([withStroke(linewidth=3.0, foreground="white")])
    return chart.figure


def _write_html(drawn: Drawn, path: Path) -> None:
    charts = [Drawing(wide, narrow) for wide, narrow in zip(drawn.draw(WIDE), drawn.draw(PHONE), strict=True)]
    page: str = page_template("picture.html", package="limpet_bench").render(
        document={"title": drawn.title, "limpet": __version__},
        told=drawn.told,
        charts=charts,
        numbers=drawn.table,
        width=int(WIDE),
    )
    path.write_text(page, encoding="utf-8", newline="")


WRITERS: dict[str, Callable[[Drawn, Path], None]] = {
    ".svg": _write_svg,
    ".png": _write_png,
    ".pdf": _write_pdf,
    ".html": _write_html,
}
"""By the ending of a file."""
