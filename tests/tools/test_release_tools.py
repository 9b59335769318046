"""Licences of dependencies, and the address of the repository."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Apache-2.0", ""), ("BSD-3-Clause AND 0BSD", ""), ("LGPL-3.0-only", ""), ("MIT License", ""),
        ("GNU Lesser General Public License v3 (LGPLv3)", ""), ("GPL-2.0-only OR MIT", ""),
        ("GPL-3.0-or-later", "incompatible"), ("GNU Affero General Public License v3", "incompatible"),
        ("LicenseRef-NVIDIA-Proprietary", "incompatible"), ("", "unknown"), ("see the file", "unknown"),
    ],
)  # fmt: skip
def test_a_licence_goes_with_ours_or_not(text: str, problem: str) -> None:
    assert tool("licences").judged(text) == problem


def test_no_dependency_that_users_get_has_an_incompatible_licence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool("licences").main()
    said = capsys.readouterr().out
    assert not ended.value.code, [line for line in said.splitlines() if "<-" in line]
    assert "numpy" in said and "torch" in said and "pytest" not in said


@pytest.mark.parametrize("name", ["pyproject.toml", "bench/pyproject.toml"])
def test_packages_name_the_repository_once_it_has_an_address(name: str) -> None:
    addressed, before = tool("repository").addressed, (ROOT / name).read_text(encoding="utf-8")
    once = addressed(name, before, "https://git.example.org/a")
    twice = tomllib.loads(addressed(name, once, "https://git.example.org/b"))
    assert twice["project"].pop("urls") == {
        "Repository": "https://git.example.org/b",
        "Issues": "https://git.example.org/b/issues",
        "Changelog": "https://git.example.org/b/blob/main/CHANGELOG.md",
    }
    left = tomllib.loads(before)
    left["project"].pop("urls", None)
    assert twice == left


@pytest.mark.parametrize(("name", "key"), [("mkdocs.yml", "repo_url"), ("CITATION.cff", "repository-code")])
def test_site_and_citation_name_it_too(name: str, key: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for url in ("https://git.example.org/a", "https://git.example.org/b"):
        text = tool("repository").addressed(name, text, url)
        assert text.count(f"{key}:") == 1 and f"\n{key}: {url}\n" in text
    if name == "CITATION.cff":
        assert yaml.safe_load(text)[key].endswith("/b")
