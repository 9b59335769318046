"""Spark, where it is installed, fills a gallery as one command does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from limpet.cli import main

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_spark_fills_a_gallery_as_one_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("protocol_engines", BENCHMARKS / "protocol_engines.py")
    assert spec is not None and spec.loader is not None
    engines = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engines)
    if lacking := engines.why_no_spark():
        pytest.skip(lacking)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "copy", "shop-workers"]) == 0
    assert engines.run("Spark", tmp_path / "shop-workers") == engines.run("one command", tmp_path / "shop-workers")
