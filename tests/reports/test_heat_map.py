from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DataError
from holdfast.evaluation.compatibility import average_compatibility
from holdfast.reports.formats import score, signed
from holdfast.reports.heat_map import MARK, STYLE, heat_key, heat_map, heat_range, marked_by_criterion

SVG = "{http://www.w3.org/2000/svg}"
NAN = math.nan
MATRIX = [[0.2, NAN, NAN], [0.3, 0.4, NAN], [0.1, 0.4, 0.6]]
NAMES = ("first", "second", "third")


def items(drawing: str, name: str, kind: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + name)
    return [item for item in found if kind in str(item.get("class")).split()]


def words(drawing: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(drawing).iter(SVG + "text")]


def drawn(**options: object) -> str:
    chosen: dict[str, object] = {"what": "mAP", "marked": marked_by_criterion(MATRIX), **options}
    return heat_map("bct", MATRIX, NAMES, (0.1, 0.6), **chosen)  # type: ignore[arg-type]


def place(item: ElementTree.Element) -> tuple[float, float]:
    return float(str(item.get("x"))), float(str(item.get("y")))


def test_every_measured_pair_is_a_cell_with_its_number() -> None:
    drawing = drawn()
    assert len(items(drawing, "rect", "heat")) == 6
    assert [item.text for item in items(drawing, "text", "heat-number")] == [
        score(value) for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)
    ]
    assert [words(drawing).count(name) for name in NAMES] == [2, 2, 2]
    assert "bct" in words(drawing)


def test_rows_are_queries_and_columns_galleries() -> None:
    cells = items(drawn(), "rect", "heat")
    places = [place(cell) for cell in cells]
    assert places[1][0] < places[2][0] and places[1][1] == places[2][1]
    assert places[0][0] == places[1][0] == places[3][0]
    assert places[0][1] < places[1][1] < places[3][1]


def test_colour_follows_the_limits_and_not_the_matrix() -> None:
    def opacities(limits: tuple[float, float]) -> list[float]:
        drawing = heat_map("bct", MATRIX, NAMES, limits, what="mAP")
        return [float(str(cell.get("fill-opacity"))) for cell in items(drawing, "rect", "heat")]

    own = opacities((0.1, 0.6))
    assert own == pytest.approx([0.1 + 0.9 * (value - 0.1) / 0.5 for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)], abs=1e-3)
    wider = opacities((0.1, 1.1))
    assert wider[-1] == pytest.approx(0.1 + 0.9 * 0.5, abs=1e-3)
    assert opacities((0.3, 0.4)) == [0.1, 0.1, 1.0, 0.1, 1.0, 1.0]
    assert opacities((0.4, 0.4)) == [0.1] * 3 + [0.1] * 2 + [0.1 + 0.9 * 0.2 / 1.0]


def test_letters_change_colour_on_strong_cells() -> None:
    numbers = items(drawn(), "text", "heat-number")
    assert ["on-heat" in str(item.get("class")) for item in numbers] == [False, False, True, False, True, True]


def test_marks_stand_in_the_compatible_cells_only() -> None:
    drawing = drawn()
    (mark,) = items(drawing, "text", "heat-mark")
    cell = items(drawing, "rect", "heat")[1]
    (x, y), (left, top) = place(mark), place(cell)
    assert left < x < left + float(str(cell.get("width")))
    assert top < y < top + float(str(cell.get("height"))) / 2
    assert not items(drawn(marked=None), "text", "heat-mark")


def test_the_diagonal_is_outlined() -> None:
    drawing = drawn()
    outlines = [str(item.get("d")) for item in items(drawing, "path", "heat-self")]
    cells = items(drawing, "rect", "heat")
    assert len(outlines) == 3
    for outline, cell in zip(outlines, (cells[0], cells[2], cells[5]), strict=True):
        x, y = place(cell)
        assert outline.startswith(f"M{x:g} {y:g}L")


def test_what_is_not_measured_is_a_dash_below_the_diagonal_and_nothing_on_it() -> None:
    matrix = [[NAN] * 3, [0.5, NAN, NAN], [NAN, math.inf, NAN]]
    drawing = heat_map("bct", matrix, NAMES, (0.0, 1.0), what="P_comp", form=signed)
    assert len(items(drawing, "rect", "heat")) == 1
    assert not items(drawing, "path", "heat-self")
    assert [item.text for item in items(drawing, "text", "heat-number")] == ["+0.500"]
    dashes = [float(str(item.get("y1"))) for item in items(drawing, "line", "heat-none")]
    assert len(dashes) == 2 and dashes[0] == dashes[1]


def test_the_text_alternative_holds_all_numbers() -> None:
    root = ElementTree.fromstring(drawn())
    description = root.find(SVG + "desc")
    assert description is not None
    assert description.text == (
        "Queries of first: 0.200 on first; Queries of second: 0.300 (marked) on first, 0.400 on second; "
        "Queries of third: 0.100 on first, 0.400 on second, 0.600 on third."
    )
    assert root.get("aria-label") == f"mAP of bct. {description.text}"
    nothing = ElementTree.fromstring(heat_map("x", [[NAN]], ("1",), (0.0, 1.0), what="mAP")).find(SVG + "desc")
    assert nothing is not None and nothing.text == "Queries of 1: nothing measured."


def test_names_are_escaped() -> None:
    drawing = heat_map("<b>&", [[0.5]], ("<i>",), (0.0, 1.0), what='"')
    assert "<b>" not in drawing and "<i>" not in drawing
    assert {"<b>&", "<i>"} <= set(words(drawing))


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("width", [264, 350])
def test_everything_lies_within_the_drawing(count: int, width: float) -> None:
    matrix = np.tril(np.full((count, count), 0.5))
    drawing = heat_map("x", matrix, [str(i) for i in range(count)], (0.0, 1.0), what="mAP", width=width)
    right, bottom = map(float, str(ElementTree.fromstring(drawing).get("viewBox")).split()[2:])
    assert right == width
    for cell in items(drawing, "rect", "heat"):
        x, y = place(cell)
        assert x + float(str(cell.get("width"))) <= right and y + float(str(cell.get("height"))) <= bottom
    lowest = max(place(item)[1] for item in ElementTree.fromstring(drawing).iter(SVG + "text"))
    last = items(drawing, "rect", "heat")[-1]
    assert place(last)[1] + float(str(last.get("height"))) < lowest < bottom
    assert bottom - place(last)[1] - float(str(last.get("height"))) < 30


@pytest.mark.parametrize("width", [350, 640])
def test_the_key_shows_the_ends_and_explains_marks(width: float) -> None:
    drawing = heat_key((0.1843, 0.62), "mAP", mark_means="compatible", width=width)
    assert {"mAP", "0.184", "0.62", f"{MARK}  compatible"} <= set(words(drawing))
    opacities = [float(str(item.get("fill-opacity"))) for item in items(drawing, "rect", "heat")]
    assert opacities == sorted(opacities)
    assert (opacities[0], opacities[-1]) == (0.1, 1.0)
    assert any("outlined" in line for line in words(drawing))
    assert not any("outlined" in line or MARK in line for line in words(heat_key((0.0, 1.0), "P", own=False)))
    assert not any(MARK in line for line in words(heat_key((0.0, 1.0), "P")))
    bottom = float(str(ElementTree.fromstring(drawing).get("viewBox")).split()[3])
    assert all(place(item)[1] <= bottom for item in ElementTree.fromstring(drawing).iter(SVG + "text"))


def test_the_range_spans_all_matrices() -> None:
    assert heat_range([MATRIX, [[0.9, NAN], [-0.1, 0.5]]]) == (-0.1, 0.9)
    assert heat_range([[[NAN]]]) is None
    assert heat_range([]) is None


@given(st.lists(st.floats(0, 1), min_size=16, max_size=16))
def test_marks_agree_with_average_compatibility(values: list[float]) -> None:
    matrix = np.array(values).reshape(4, 4)
    marked = marked_by_criterion(matrix)
    assert marked.sum() / 6 == pytest.approx(average_compatibility(matrix).ac)
    assert not np.triu(marked).any()


def test_a_tie_is_not_marked() -> None:
    assert not marked_by_criterion([[0.5, NAN], [0.5, 0.8]]).any()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 3\)"):
        heat_map("x", np.zeros((2, 3)), ("1", "2"), (0.0, 1.0), what="mAP")
    with pytest.raises(DataError, match="1 names"):
        heat_map("x", np.zeros((2, 2)), ("1",), (0.0, 1.0), what="mAP")
    with pytest.raises(DataError, match="marks of shape"):
        heat_map("x", np.zeros((2, 2)), ("1", "2"), (0.0, 1.0), what="mAP", marked=np.zeros((3, 3)))


def test_every_class_that_is_drawn_has_a_style() -> None:
    drawing = drawn() + heat_map("x", [[0, 0], [NAN, 0]], ("1", "2"), (0.0, 1.0), what="mAP")
    for kind in ("heat", "heat-number", "heat-mark", "heat-self", "heat-none", "on-heat"):
        assert kind in drawing
        assert f".{kind}" in STYLE


@pytest.mark.parametrize("scheme", [0, 1])
def test_letters_keep_a_contrast_of_four_on_every_shade(scheme: int) -> None:
    papers, heats, inks = ("fdfcfa", "14181c"), ("003058", "74b5dc"), (("000000", "ffffff"), ("ffffff", "000000"))
    assert all(f"--heat:#{heat}" in STYLE for heat in heats)
    for value in np.linspace(0, 1, 101):
        drawing = heat_map("x", [[value]], ("1",), (0.0, 1.0), what="mAP")
        (cell,), (number,) = items(drawing, "rect", "heat"), items(drawing, "text", "heat-number")
        opacity, over = float(str(cell.get("fill-opacity"))), "on-heat" in str(number.get("class"))
        shade = (1 - opacity) * channels(papers[scheme]) + opacity * channels(heats[scheme])
        light, dark = sorted((luminance(shade), luminance(channels(inks[scheme][over]))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4


def channels(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])


def luminance(colour: np.ndarray) -> float:
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))
