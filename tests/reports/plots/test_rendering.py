from __future__ import annotations

import re
import sys
from importlib import resources
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pytest

from limpet.errors import ConfigError
from limpet.reports.plots.frame import Frame
from limpet.reports.plots.rendering import save, svg
from limpet.reports.plots.style import CROSS, PAPER, SHAPES, VARIABLES, area_of, round_ticks
from limpet.reports.registration import chart_of

from ..specs import SVG, assert_page_ready
from ..test_example_documents import DOCUMENTS, KINDS

STYLE = (resources.files("limpet.reports") / "templates" / "style.css").read_text()


def drawn(name: str = "a name", title: str = "A chart", told: str = "Its numbers.") -> alt.LayerChart:
    frame = Frame(300, 200, (40, 30, 20, 44), (0.0, 1.0), (-1.0, 1.0))
    marks = [{"x": 0.5, "y": 0.0, "note": name}]
    return frame.chart(title, told, [
        frame.axes([0.0, 0.5, 1.0], [-1.0, 0.0, 1.0], x_title="across", y_title="up"),
        frame.text([{"x": 0.2, "y": 0.5, "text": name}], "name", bold=True),
        frame.marks(marks, "here", shape="diamond", colour=CROSS, edge=PAPER),
        frame.lines([{"x": 0.0, "y": -1.0}, {"x": 1.0, "y": 1.0}], "line", dashes=(4, 2)),
        None,
    ])  # fmt: skip


def test_values_stand_where_they_belong() -> None:
    root = ElementTree.fromstring(svg(drawn()))
    assert_page_ready(drawn())
    outer = root.find(f"{SVG}g")
    assert outer is not None and outer.get("transform") == "translate(40,30)"
    (mark,) = [item for item in root.iter(f"{SVG}path") if item.get("fill") == "var(--cross)"]
    assert mark.get("transform") == "translate(120,63)" and mark.get("stroke") == "var(--paper)"
    assert {text.text for text in root.iter(f"{SVG}text")} == {"0", "0.5", "1", "−1", "across", "up", "a name"}


def test_frames_map_values_to_pixels_and_back() -> None:
    for frame in (
        Frame(300, 200, (40, 30, 20, 44), (0.0, 1.0), (-1.0, 1.0)),
        Frame(300, 200, (40, 30, 20, 44), (10.0, 1000.0), (8.0, 0.0), log=True),
    ):
        low, high = frame.x
        assert (frame.across(low), frame.across(high)) == pytest.approx((40, 280))
        assert (frame.down(frame.y[0]), frame.down(frame.y[1])) == pytest.approx((156, 30))
        assert frame.x_at(frame.across(0.3 * high)) == pytest.approx(0.3 * high)
        assert frame.y_at(frame.down(0.25)) == pytest.approx(0.25)


def test_notes_are_titles_of_their_marks_and_words_are_escaped() -> None:
    attack = '<script>&"alert"\x00\x1f\ud800'
    text = svg(drawn(attack, attack, attack))
    root = ElementTree.fromstring(text)
    clean = '<script>&"alert"'
    assert "<script" not in text and [title.text for title in root.iter(f"{SVG}title")] == [clean, clean]
    assert clean in {item.text for item in root.iter(f"{SVG}text")}


def test_every_variable_is_in_the_style_of_pages_in_both_schemes() -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme:dark)")[:2]
    for colour, name in VARIABLES.items():
        assert f"--{name}:" in light, name
        if not name.startswith("series"):
            assert f"--{name}:" in dark.partition("}}")[0], name
        assert re.fullmatch("#[0-9a-f]{6}", colour)


def test_shapes_look_equally_large_and_differ() -> None:
    assert len(set(SHAPES)) == 6 and all(16 * 3 < area_of(shape, 4) < 16 * 7 for shape in SHAPES)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (0.13, 0.52), (-3.2, 17.0), (0.49999, 0.50001), (-2.0, -2.0)])
def test_round_ticks_hold_the_range_in_even_steps(low: float, high: float) -> None:
    ticks = round_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8
    steps = [after - before for before, after in pairwise(ticks)]
    assert max(steps) == pytest.approx(min(steps))


@pytest.mark.parametrize(("ending", "begin"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_charts_are_saved_in_light_colours(tmp_path: Path, ending: str, begin: bytes) -> None:
    for charts in (drawn(), [drawn(), drawn(), drawn()]):
        content = save(charts, tmp_path / f"chart.{ending}", title="Several").read_bytes()
        assert content.startswith(begin) and b"var(--" not in content
    if ending == "svg":
        root = ElementTree.fromstring(content)
        inner = [item for item in root if item.tag == f"{SVG}svg"]
        assert [item.get("x") for item in inner] == ["24", "348", "24"]
        assert len(root.findall(f".//{SVG}text[@paint-order='stroke']")) == 3 * 9 + 1


def test_a_file_of_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg"):
        save(drawn(), tmp_path / "chart.gif")


@pytest.mark.parametrize("name", KINDS)
def test_results_are_drawn_for_notebooks_and_files(name: str, tmp_path: Path) -> None:
    chart = KINDS[name].load(DOCUMENTS / f"{name}.json").plot()
    assert isinstance(chart, alt.LayerChart) and "var(--" not in chart.to_json()  # which validates it, too
    assert_page_ready(chart)
    chart.save(tmp_path / "chart.svg")
    assert "<text" in (tmp_path / "chart.svg").read_text()


def test_without_altair_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    results = KINDS["adapt"].load(DOCUMENTS / "adapt.json")
    for name in [name for name in sys.modules if name.startswith("limpet.reports.plots.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ConfigError, match=r"\.\[report\]"):
        chart_of(results)
