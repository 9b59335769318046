"""The page that describes suites: it names every key, its links lead somewhere, and its examples work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.data import glyphs
from limpet.data.datasets import DATASETS, arrays, image_folder
from limpet.data.scenarios import SCENARIOS
from limpet.data.text_files import texts
from limpet.data.texts import TEXT_DATASETS
from limpet.models.heads import HEADS
from limpet.support.options import option_types
from limpet.training.spaces import SPACES
from limpet_bench.cli import main as bench
from limpet_bench.sessions.plans import PLANS
from limpet_bench.sources import _digest, _images, _searched
from limpet_bench.suite import SESSION_SCORES
from limpet_bench.suites import suite_named
from limpet_bench.tasks import VALIDATION_OPTIONS

ROOT = Path(__file__).parents[2]
PAGE = "docs/suites.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^##+ ", TEXT, flags=re.M)[1:]}


def named(text: str) -> set[str]:
    """Return what is written as `code`."""
    return set(re.findall(r"`([^`\n]+)`", text))


def test_names_to_choose_among_are_all_there() -> None:
    assert {*SCENARIOS, *PLANS, *TEXT_DATASETS, *HEADS, *SPACES} <= named(TEXT)


def test_options_of_scenarios_and_of_own_data_are_all_there() -> None:
    for scenario in SCENARIOS.values():
        assert {"seed", *option_types(scenario.split)} - {"labels"} <= named(SECTIONS["Scenarios"])
    own = SECTIONS["Data"].partition("**Your own images**")[2]
    assert {*option_types(image_folder), *option_types(arrays)} <= named(own)


def test_what_it_says_of_validation_classes_is_so() -> None:
    DATASETS.import_installed()
    readers = {name: option_types(data.read) for name, data in DATASETS.items()}
    setting_apart = {name for name, options in readers.items() if set(options) & set(VALIDATION_OPTIONS)}
    assert setting_apart == {"omniglot", "glyphs", "cifar-100", "tiny-imagenet", "tiny-imagenet-32"}
    told = SECTIONS["Choosing settings"].partition("Validation classes come from")[2]
    assert all(name in told for name in setting_apart)


def test_what_sessions_measure_is_named() -> None:
    assert set(SESSION_SCORES) <= named(SECTIONS["Sessions"])


def test_limpet_data_tells_of_the_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As the page says: of every name, before anything was downloaded, and of own folders and files."""
    (tmp_path / "mine.csv").write_text("text\nhello\n")
    own = {tmp_path: image_folder, tmp_path / "mine.csv": texts}
    for known in (DATASETS, TEXT_DATASETS):
        known.import_installed()
    readers = {name: data.read for name, data in {**DATASETS, **TEXT_DATASETS}.items()}
    for name, reader in {**readers, **own}.items():
        assert main(["data", str(name)]) == 0
        said = capsys.readouterr().err
        assert all(f"--data-options.{option.replace('_', '-')} " in said for option in option_types(reader))
    assert main(["data", "omniglt"]) == 2 and "Did you mean 'omniglot'?" in capsys.readouterr().err
    assert main(["data", "--help"]) == 0
    said = capsys.readouterr().out
    assert "describe" in said and "check" in said and "limpet data omniglot" in said


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_are_suites(block: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(block, encoding="utf-8")
    assert suite_named(tmp_path / "mine.py").name == "mine"


@pytest.mark.parametrize("track", ["images", "sessions"])
def test_an_example_of_every_track_that_needs_no_files_can_be_planned(
    track: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = BLOCKS[0] if track == "images" else re.findall(r"```python\n(.*?)```", SECTIONS["Sessions"], flags=re.S)[0]
    (tmp_path / "mine.py").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    fonts = glyphs.font_files()
    few = glyphs.render(glyphs.common_characters(fonts)[:100], fonts)  # of thousands, which take seconds
    monkeypatch.setattr(glyphs, "distinct_glyphs", lambda: few)
    try:
        assert bench(["plan", "mine.py"]) == 0
    finally:
        _images.cache_clear(), _digest.cache_clear(), _searched.cache_clear()  # of so few
    assert re.search(r"[1-9]\d* \w+ to run", capsys.readouterr().err)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / PAGE).parent.joinpath(target).exists() or (ROOT / PAGE).parent.joinpath(
            f"{target}.in"
        ).exists(), target
    assert "](../suites.md)" in (ROOT / "docs" / "tutorials" / "suite.md").read_text(encoding="utf-8")
