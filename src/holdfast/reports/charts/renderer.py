"""How Matplotlib draws a chart as SVG for a page: colours are its variables, text is text, and nothing has an id."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast
from xml.etree.ElementTree import Element, SubElement

from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.font_manager import weight_dict
from matplotlib.path import Path
from matplotlib.text import Annotation
from matplotlib.transforms import Affine2D

from holdfast.reports.charts.canvas import DPI, NOTE, VARIABLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import GraphicsContextBase
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "z"}
_ANCHORS = {"left": "start", "right": "end", "center": "middle"}
_CAPS = {"projecting": "square"}


def draw_on(page: Element, figure: Figure) -> None:
    """Add what a figure shows, with as many pixels as it has points, to an element of a page."""
    figure.draw(_PageRenderer(page, *(DPI * figure.get_size_inches())))


class Words(Annotation):
    """A line of text, placed without a look at its font where the reader's is used."""

    def draw(self, renderer: RendererBase) -> None:
        """Draw it, onto a page as text."""
        if not isinstance(renderer, _PageRenderer):
            super().draw(renderer)
        elif self.get_text():
            renderer.write(self)


class _PageRenderer(RendererBase):
    def __init__(self, page: Element, width: float, height: float) -> None:
        super().__init__()
        self.page, self.width, self.height = page, width, height
        self._groups: list[tuple[str, Element]] = []
        self._flip = Affine2D().scale(1, -1).translate(0, height)

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def option_scale_image(self) -> bool:
        return True

    def open_group(self, s: str, gid: str | None = None) -> None:
        self._groups.append((gid or "", self.page))
        if gid and gid.startswith(NOTE):
            self.page = _with_note(SubElement(self.page, "g"), gid)

    def close_group(self, s: str) -> None:
        kind, self.page = self._groups.pop()
        if kind == "crisp":
            self.page[-1].set("shape-rendering", "crispEdges")

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: Any = None) -> None:  # noqa: N803
        style = _style(gc, rgbFace)
        if style not in ({}, {"fill": "none"}):  # which nobody sees
            clip = (0.0, 0.0, self.width, self.height) if rgbFace is None else None
            shape = _shape(path, transform + self._flip, clip, path.should_simplify and clip is not None)
            SubElement(self.page, "path", {"d": shape, "style": _css(style)})

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker_path: Path,
        marker_trans: Transform,
        path: Path,
        trans: Transform,
        rgbFace: Any = None,  # noqa: N803
    ) -> None:
        shape, style = _shape(marker_path, marker_trans + Affine2D().scale(1, -1)), _style(gc, rgbFace)
        whole = _css({key: style[key] for key in sorted(style, key=lambda key: not key.startswith("stroke"))})
        for point, _ in path.iter_segments(trans + self._flip):
            moved = f"translate({' '.join(map(_number, point.tolist()))})"
            SubElement(self.page, "path", {"d": shape, "transform": moved, "style": whole})

    def write(self, words: Words) -> None:
        axes = cast("Axes", words.axes)
        ends = zip(words.xy, words.xycoords, axes.transData.transform(words.xy), words.xyann, strict=True)
        x, y = ((at if unit == "data" else value) + shift for value, unit, at, shift in ends)
        weight = str(words.get_fontweight())
        style = {} if weight == "normal" else {"font-weight": str(weight_dict[weight])}
        style |= {"font-size": f"{_number(float(words.get_fontsize()))}px"}
        style |= {"text-anchor": _ANCHORS[words.get_horizontalalignment()], "fill": _colour(words.get_color())}
        place = {"x": _number(x), "y": _number(self.height - y), "style": _css(style)}
        kind = {"class": "halo"} if words.get_gid() == "halo" else {}
        SubElement(self.page, "text", place | kind).text = words.get_text()

    def draw_image(self, gc: GraphicsContextBase, x: float, y: float, im: Any, transform: Any = None) -> None:
        from PIL import Image

        height, width = im.shape[:2]
        file = BytesIO()
        Image.fromarray(im).save(file, format="png")
        matrix = Affine2D().scale(1 / width, 1 / height) + transform + Affine2D().translate(x, y) + self._flip
        places = {"width": f"{width}", "height": f"{height}"}
        places["transform"] = f"matrix({' '.join(map(_number, matrix.frozen().to_values()))})"
        image = SubElement(
            self.page, "image", places | {"href": f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"}
        )
        _with_note(image, str(gc.get_gid() or ""))


def _with_note(drawn: Element, kind: str) -> Element:
    """Give something drawn the note that its group id holds, which appears under a pointer."""
    if kind.startswith(NOTE):
        SubElement(drawn, "title").text = kind.removeprefix(NOTE)
    return drawn


def _shape(path: Path, transform: Transform, clip: Any = None, simplify: bool = False) -> str:
    steps = path.iter_segments(transform, clip=clip, simplify=simplify)
    return " ".join(
        "z" if code == Path.CLOSEPOLY else f"{_LETTERS[code]} {' '.join(map(_number, points.tolist()))}"
        for points, code in steps
    )


def _style(gc: GraphicsContextBase, face: Any) -> dict[str, str]:
    """Return how lines and areas look, without what is so anyway."""
    style, forced = {"fill": "none"} if face is None else {}, gc.get_forced_alpha()
    if face is not None and tuple(face[:3]) != (0, 0, 0):  # as what is hollow has it
        style["fill"] = _colour(face)
    if face is not None and len(face) == 4 and face[3] != 1.0 and not forced:
        style["fill-opacity"] = _number(face[3])
    if forced and gc.get_alpha() != 1.0:
        style["opacity"] = _number(gc.get_alpha())
    offset, dashes = cast("tuple[float, Sequence[float] | None]", gc.get_dashes())
    if dashes is not None:
        style |= {"stroke-dasharray": ",".join(map(_number, dashes)), "stroke-dashoffset": _number(offset)}
    width, colour = gc.get_linewidth(), gc.get_rgb()
    if width:
        style["stroke"] = _colour(colour)
        if not forced and colour[3] != 1.0:
            style["stroke-opacity"] = _number(colour[3])
        if width != 1.0:
            style["stroke-width"] = _number(width)
        if gc.get_joinstyle() != "round":
            style["stroke-linejoin"] = gc.get_joinstyle()
        if gc.get_capstyle() != "butt":
            style["stroke-linecap"] = _CAPS.get(gc.get_capstyle(), gc.get_capstyle())
    return style


def _css(style: dict[str, str]) -> str:
    return ";".join(f"{key}:{value}" for key, value in style.items())


def _colour(rgb: Any) -> str:
    return f"var(--{VARIABLES[to_hex(rgb)]})"


def _number(value: float) -> str:
    """Return two decimals, of the six that Matplotlib writes, and no more than it needs."""
    return f"{float(f'{value:.6f}'):.2f}".rstrip("0").rstrip(".")
