"""The list of all tables and figures of the papers: what gives each of them exists."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from limpet_bench.suites import SUITES, suite_named

ROOT = Path(__file__).parent.parent
PAPERS: dict[str, Any] = yaml.safe_load((ROOT / "docs/reference/papers.yaml").read_text(encoding="utf-8"))
ITEMS = {f"{paper}/{name}": item for paper, content in PAPERS.items() for name, item in content["items"].items()}
COUNTED = {"ndpp": (5, 6), "hbct": (6, 7), "cvs": (8, 9), "advbct": (3, 6), "mixbct": (9, 6)}
"""Tables and figures of every paper, counted by hand in their texts."""


@pytest.fixture(scope="module")
def reproduced() -> dict[str, list[str]]:
    """Suites at full size by what they reproduce."""
    found: dict[str, list[str]] = {}
    for name in SUITES:
        for item in suite_named(name).reproduces:
            found.setdefault(item, []).append(name)
    return found


def test_every_table_and_figure_is_listed() -> None:
    for paper, counts in COUNTED.items():
        names = PAPERS[paper]["items"]
        assert tuple(sum(name.startswith(kind) for name in names) for kind in ("table", "figure")) == counts
    assert {item["kind"] for item in ITEMS.values()} == {"results", "schematic", "description", "sample"}


def test_what_suites_reproduce_is_listed(reproduced: dict[str, list[str]]) -> None:
    assert set(reproduced) <= set(ITEMS), sorted(set(reproduced) - set(ITEMS))


def test_every_result_has_a_suite_or_a_command_or_says_what_is_missing(reproduced: dict[str, list[str]]) -> None:
    for name, item in ITEMS.items():
        at_size = [suite for suite in reproduced.get(name, []) if not suite.endswith("-small")]
        given = bool(at_size) + ("command" in item) + ("missing" in item)
        assert given == 1 if item["kind"] == "results" else "missing" not in item, f"{name}: {at_size}, {item}"


def test_commands_name_scripts_that_are_there() -> None:
    for item in ITEMS.values():
        if "command" in item:
            words = shlex.split(item["command"])
            assert words[0] == "python" and (ROOT / words[1]).is_file()
