from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from limpet.errors import ConfigError
from limpet.reports.charts.figures import figure_of

from ..test_example_documents import DOCUMENTS, KINDS


@pytest.mark.parametrize("name", KINDS)
def test_results_are_drawn_into_files_for_papers(name: str, tmp_path: Path) -> None:
    figure = KINDS[name].load(DOCUMENTS / f"{name}.json").plot()
    assert isinstance(figure, Figure)
    for ending, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        figure.savefig(tmp_path / f"chart.{ending}")
        assert (tmp_path / f"chart.{ending}").read_bytes().startswith(begin)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    results = KINDS["adapt"].load(DOCUMENTS / "adapt.json")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"\.\[report\]"):
        figure_of(results)
