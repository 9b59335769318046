from __future__ import annotations

import re
from importlib import resources
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from limpet.reports.charts.canvas import CROSS, PAPER, SHAPES, VARIABLES, Chart, round_ticks, standalone, swatch
from limpet.reports.charts.shapes import Area, Box, Marks, Steps

from ..reading import SVG, assert_page_ready

LOOKS = ("fill", "fill-opacity", "opacity", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin",
         "stroke-dasharray", "text-anchor", "font-weight")  # fmt: skip
STYLE = (resources.files("limpet.reports") / "templates" / "report_style.html").read_text()


def drawn(name: str = "a name", title: str = "A chart", told: str = "Its numbers.") -> Chart:
    chart = Chart(title, told, (300, 200), (40, 30, 20, 44), (0.0, 1.0), (-1.0, 1.0))
    chart.x_axis([0.0, 0.5, 1.0], "across")
    chart.y_axis([-1.0, 0.0, 1.0], "up")
    chart.write(0.2, 0.5, name, halo=True, bold=True)
    chart.mark(0.5, 0.0, 3, CROSS, note=name, label="here")
    chart.whisker((0.25, 0.75), 0.0)
    chart.line([0.0, 1.0], [-1.0, 1.0], CROSS, 2.0, (4, 2))
    return chart


def test_values_stand_where_they_belong() -> None:
    root = ElementTree.fromstring(drawn().svg())
    (mark,) = [item for item in root.iter(f"{SVG}path") if item.get("transform", "").startswith("translate(160 93)")]
    assert "var(--cross)" in str(mark.get("style"))
    paths = {item.get("d") for item in root.iter(f"{SVG}path")}
    assert {"M 100 93 L 220 93", "M 40 156 L 280 30", "M 160 156 L 160 30"} <= paths  # whisker, line, grid
    places = {item.text: (item.get("x"), item.get("y")) for item in root.iter(f"{SVG}text")}
    assert places["a name"] == ("88", "61.5") and places["−1"][0] == "32"


def test_a_page_shows_what_a_figure_shows() -> None:
    chart = drawn()
    for shape, y in enumerate(np.linspace(-0.9, 0.9, len(SHAPES))):
        chart.mark(0.9, y, shape, CROSS, edge=PAPER)
    chart.dots([0.1, 0.2], [0.3, 0.4], CROSS, 2.0)
    chart.triangles([0.3], [0.4], CROSS, 3.0)
    chart.box(0.1, -0.5, 0.2, 0.2, CROSS)
    chart.box(0.1, 0.1, 1.5, 0.2, CROSS, alpha=0.0, edge=PAPER, line=1.0)  # beyond the drawing
    chart.line([0.2, 3.0, np.nan, 0.5], [0.0, 1.0, 0.0, 0.5], CROSS)
    chart.line(np.linspace(0, 1, 300).tolist(), np.sin(np.linspace(0, 9, 300)).tolist(), CROSS)
    chart.area([0.0, 0.5, 1.0], [0.1, 0.2, 0.3], 0.5, CROSS, 0.2)
    chart.add(Area([0.0, 0.5], 0.2, 0.3, CROSS, 0.2, upright=True))
    chart.add(Marks([0.5, 0.6], [0.5, 0.5], "o", 18, None, CROSS, 1.4))
    chart.add(Marks([0.5], [0.2], "s", 9, CROSS, PAPER, 1.0, alpha=0.55, note="a mark"))
    chart.add(Box(0.1, -0.9, 0.2, 0.2, CROSS, opacity=0.09, note="a box"))
    chart.add(Steps([0.1, 0.2], [0.0, 0.2, 0.4], CROSS, 0.3, 1.0))
    chart.add(Steps([0.1, 0.2], [0.0, 0.2, 0.4], CROSS, line=2.0, dashes=(3, 1), baseline=-0.5))
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        chart.figure.savefig(file := BytesIO(), format="svg", metadata={"Date": None})
    on_page, in_figure = (shown(ElementTree.fromstring(text)) for text in (chart.svg(), file.getvalue()))
    assert len(on_page) > 30 and on_page == in_figure
    notes = [item.text for item in ElementTree.fromstring(chart.svg()).iter(f"{SVG}title")]
    groups = [str(artist.get_gid()) for artist in chart.axes.get_children()]
    assert sorted(notes[1:]) == sorted(name.removeprefix("note: ") for name in groups if name.startswith("note: "))


def test_a_picture_stands_between_two_values() -> None:
    chart = Chart("Pictures", "One.", (300, 200), (40, 30, 20, 44), (0.0, 1.0))
    chart.picture(0.25, 61.5, 0.5, 31.5, np.zeros((1, 2, 3), np.uint8), note="a picture")
    (image,) = ElementTree.fromstring(chart.svg()).iter(f"{SVG}image")
    assert (image.get("width"), image.get("height")) == ("2", "1")
    assert image.get("transform") == "matrix(60 0 0 31.5 100 61.5)"
    assert [item.text for item in image] == ["a picture"]


def shown(root: ElementTree.Element) -> list[tuple[str | None, list[float], dict[str, str]]]:
    """Return words, places and looks of all that is seen, in the order of drawing."""
    found, href = [], "{http://www.w3.org/1999/xlink}href"
    outlines = {f"#{item.get('id')}": item.get("d") for item in root.iter(f"{SVG}path")}
    unused = {item for defined in root.iter(f"{SVG}defs") for item in defined.iter()}
    colours = {f"var(--{name})": colour for colour, name in VARIABLES.items()}
    for item in root.iter():
        style = dict(part.strip().split(":") for part in item.get("style", "fill:none").split(";"))
        look = {key: colours.get(value.strip(), value.strip()) for key, value in style.items() if key in LOOKS}
        if item in unused or look == {"fill": "none"}:
            continue
        moved = "" if item.tag == f"{SVG}text" else item.get("transform", "")
        places = (item.get("d"), outlines.get(item.get(href, "")), item.get("x"), item.get("y"), moved)
        numbers = re.findall(r"[-.\d]+", " ".join(filter(None, places)))
        found.append((item.text and item.text.strip(), [round(float(number), 2) for number in numbers], look))
    return found


def test_a_page_gets_its_own_colours_and_fonts_and_no_size() -> None:
    assert_page_ready(drawn())


@pytest.mark.parametrize("colour", VARIABLES)
def test_every_colour_is_a_variable_of_the_page_with_that_value_in_light(colour: str) -> None:
    light = STYLE.partition("@media")[0]
    assert f"--{VARIABLES[colour]}:{colour}" in re.sub(r"#fff([;}])", r"#ffffff\1", light)


def test_names_are_text_and_never_markup_or_mathematics() -> None:
    for name in ("<script>alert(1)</script>&\"'", "$x^2$ and $", "a\x00b\x1f", "漢字 🙂", "#0072b2"):
        root = ElementTree.fromstring(drawn(name, name, name).svg())
        clean = name.replace("\x00", "").replace("\x1f", "")
        assert clean in [item.text for item in root.iter(f"{SVG}text")]
        assert [item.text for item in root.iter(f"{SVG}title")] == [clean, clean]
        assert root.get("aria-label") == f"{clean}. {clean}"


def test_notes_belong_to_their_marks_and_halos_to_their_texts() -> None:
    root = ElementTree.fromstring(drawn().svg())
    ((note, mark),) = [list(group) for group in root.iter(f"{SVG}g")]
    assert note.text == "a name" and mark.get("transform", "").startswith("translate(160")
    assert [item.text for item in root.iter(f"{SVG}text") if item.get("class") == "halo"] == ["a name"]


def test_a_drawing_does_not_depend_on_settings_of_others_and_leaves_none() -> None:
    before = drawn().svg()
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path", "axes.grid": True}):
        assert drawn().svg() == before
        assert matplotlib.rcParams["font.size"] == 30
    assert matplotlib.rcParams["svg.fonttype"] == matplotlib.rcParamsDefault["svg.fonttype"]


def test_a_swatch_says_nothing_in_words() -> None:
    root = ElementTree.fromstring(swatch(lambda chart: chart.mark(13, 6, 0, CROSS, 5, fill=PAPER)))
    assert root.get("class") == "swatch" and root.get("aria-hidden") == "true"
    assert root.find(f"{SVG}title") is None and "var(--paper)" in ElementTree.tostring(root, encoding="unicode")


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 1.0), (0.3, 0.3), (-0.5, -0.5), (1 - 1e-12, 1.0)])
def test_ticks_around_a_single_value_leave_room(low: float, high: float) -> None:
    ticks = round_ticks(low, high, 4)
    assert ticks[0] <= low + 1e-9 and high <= ticks[-1] + 1e-9 and ticks[-1] - ticks[0] >= 0.5 - 1e-9
    assert len(ticks) >= 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_charts_in_one_file_are_wellformed_and_stand_in_rows(count: int) -> None:
    charts = [drawn(title=f"chart {number}") for number in range(count)]
    text = standalone(charts, "All <of> them", beside=2, gap=10)
    root = ElementTree.fromstring(text)  # which refuses an attribute that stands twice
    assert root.tag == f"{SVG}svg" and root.get("aria-label") == "All <of> them" and text.count("xmlns=") == 1
    inner = [item for item in root if item.tag == f"{SVG}svg"]
    top = 10 if count == 1 else 20
    places = [(0, 0), (1, 0), (0, 1)][:count]
    assert [(item.get("x"), item.get("y")) for item in inner] == [
        (f"{10 + 310 * column}", f"{top + 210 * row}") for column, row in places
    ]
    assert float(root.get("width", "0")) == 10 + 310 * min(count, 2)
    assert float(root.get("height", "0")) == top + 210 * (1 + (count > 2))
    heads = [item.text for item in root if item.tag == f"{SVG}text"]
    assert heads == (["All <of> them"] if count > 1 else [])


def test_a_file_of_its_own_has_the_colours_of_a_light_page_and_its_halos() -> None:
    text = standalone([drawn()], "t")
    assert "var(--" not in text and CROSS in text and ".halo{paint-order:stroke" in text
    assert 'fill="white"' in text
