from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.reports import page


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Let nothing be kept in the process from before, or afterwards."""
    page._compiled.cache_clear()
    yield
    page._compiled.cache_clear()


def test_templates_are_compiled_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    page.page_template("evaluation.html")
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cache")}
    assert kept
    page._compiled.cache_clear()
    monkeypatch.setattr("jinja2.Environment.compile", lambda *_: pytest.fail("it was compiled"))
    page.page_template("evaluation.html")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cache")} == kept


def test_templates_need_no_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    assert page.page_template("evaluation.html").name == "evaluation.html"
