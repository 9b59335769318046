from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from limpet.results import Results
from limpet.support.reporting import Report, register_loader, register_report, report_of

DOCUMENT = Path(__file__).parents[1] / "reports/documents/adapt.json"
FRESH = """
import sys
from pathlib import Path
from limpet.linking.results import AdaptResults
assert not any(name.startswith("limpet.reports") for name in sys.modules)
assert AdaptResults.load(Path(sys.argv[1])).to_markdown().startswith("# ")
"""


class Measured(Results):
    KIND = "measured"
    WRITER = "“limpet measure”"


class MeasuredTwice(Measured):
    KIND = "measured twice"


class Unreported(Results):
    KIND = "unreported"
    WRITER = "“limpet measure”"


def reported(markdown: Callable[[Any], str], plot: Callable[[Any], alt.LayerChart]) -> Report:
    records = [{"model": "a<b", "score": 0.25}, {"model": "c", "chance": 1.0}]
    return Report(
        markdown,
        lambda results: ["It is good & new.", "It costs nothing."],
        lambda results: (["model", "score"], [["a<b", "0.250"], ["c", "–"]]),
        lambda results: records,
        plot,
    )


def test_results_are_reported_where_only_their_module_was_imported() -> None:
    subprocess.run([sys.executable, "-c", FRESH, str(DOCUMENT)], check=True)


def test_register_report_serves_a_class_and_its_subclasses() -> None:
    chart = alt.layer(alt.Chart().mark_point())
    register_report(Measured, reported(lambda results: results.KIND, lambda results: chart))
    assert Measured.of().to_markdown() == "measured"
    assert MeasuredTwice.of().to_markdown() == "measured twice"
    assert MeasuredTwice.of().plot() is chart


def test_register_loader_runs_when_a_report_is_first_asked_for() -> None:
    class Loaded(Results):
        KIND = "loaded"
        WRITER = "“limpet load”"

    register_loader(lambda: register_report(Loaded, reported(lambda results: "loaded", lambda results: alt.layer())))
    assert Loaded.of().to_markdown() == "loaded"


def test_report_of_names_a_class_that_has_none() -> None:
    with pytest.raises(LookupError, match="Unreported"):
        report_of(Unreported)
    assert repr(Unreported.of()).startswith("Unreported(")


def test_results_show_themselves_in_words_a_table_and_numbers() -> None:
    class Shown(Results):
        KIND = "shown"
        WRITER = "“limpet show”"

    register_report(Shown, reported(lambda results: "", lambda results: alt.layer()))
    shown = Shown.of()
    assert shown.summary() == "It is good & new.\nIt costs nothing."
    assert repr(shown) == str(shown) == "<Shown> It is good & new.\nmodel  score\na<b    0.250\nc          –"
    html = shown._repr_html_()
    assert "good &amp; new" in html and "<th>score</th>" in html and "<td>a&lt;b</td><td>0.250</td>" in html
    assert shown.to_arrow().to_pylist() == [
        {"model": "a<b", "score": 0.25, "chance": None}, {"model": "c", "score": None, "chance": 1.0},
    ]  # fmt: skip
    assert list(shown.to_pandas()["model"]) == ["a<b", "c"]
