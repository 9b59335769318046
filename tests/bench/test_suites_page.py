"""The page that describes suites: it names every key, its links lead somewhere, and its examples work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from holdfast.bench.suite import read_suite
from holdfast.bench.suite_schema import Entry, EvaluationSet, InScenario, Overrides, Suite, Tuning
from holdfast.bench.suite_words import PAGE
from holdfast.cli import main
from holdfast.continual.plans import PLANS
from holdfast.data.scenarios import SCENARIOS
from holdfast.data.texts import TEXT_DATASETS
from holdfast.models.heads import HEADS
from holdfast.training.spaces import SPACES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.S)
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^##+ ", TEXT, flags=re.M)[1:]}
KEYS: dict[str, list[type[BaseModel]]] = {
    "Rows": [Entry],
    "Choosing settings": [Tuning],
    "Searching other data than was trained on": [EvaluationSet],
    "Chains of models": [InScenario],
}


def named(text: str) -> set[str]:
    """Return what is written as `code`."""
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("kind", [Suite, Entry, Overrides, InScenario, Tuning, EvaluationSet])
def test_every_key_is_described(kind: type[BaseModel]) -> None:
    assert set(kind.model_fields) <= named(TEXT)


@pytest.mark.parametrize("section", KEYS)
def test_sections_describe_the_keys_of_their_part(section: str) -> None:
    shared = set(Overrides.model_fields) if section == "Chains of models" else set()
    for kind in KEYS[section]:
        assert set(kind.model_fields) - shared <= named(SECTIONS[section])


def test_names_to_choose_among_are_all_there() -> None:
    assert {*SCENARIOS, *PLANS, *TEXT_DATASETS, *HEADS, *SPACES} <= named(TEXT)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "-".join(yaml.safe_load(block)["methods"]))
def test_examples_are_suites(block: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(block, encoding="utf-8")
    suite = read_suite(tmp_path / "mine.yaml")
    assert suite.name == "mine" and set(suite.methods) == set(yaml.safe_load(block)["methods"])


@pytest.mark.parametrize("track", ["images", "sessions"])
def test_an_example_of_every_track_that_needs_no_files_can_be_planned(
    track: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in BLOCKS if f"track: {track}" in block]
    (tmp_path / "mine.yaml").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "mine.yaml", "--dry-run"]) == 0
    assert re.search(r"[1-9]\d* \w+ to run", capsys.readouterr().err)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / PAGE).parent.joinpath(target).exists(), target
    assert f"]({PAGE})" in (ROOT / "README.md").read_text(encoding="utf-8")
