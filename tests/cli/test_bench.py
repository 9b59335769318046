"""``holdfast bench`` as somebody meets it who types something wrong, or asks what it would do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holdfast.cli import main
from holdfast.cli.bench_progress import worked_before
from holdfast.errors import DataError


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of two rows over seven classes."""
    for part in ("train", "query", "gallery"):
        for label in range(7):
            place = tmp_path / "crosses" / part / f"kind {label}"
            place.mkdir(parents=True)
            for number in range(4):
                Image.new("L", (8, 8), 20 * label + 5 * number + len(part)).save(place / f"{number}.png")
    content = {
        "title": "Mine",
        "data": {str(tmp_path / "crosses"): {"image_size": 8, "channels": 1}},
        "methods": {"p2s": {}, "l2": {}},
        "model": {"dim": 4, "channels": 1, "image_size": 8, "backbone_options": {"filters": 2}},
        "recipe": {"epochs": 1, "batch_size": 4},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    return path


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    return ["--cache", str(tmp_path / "cells"), "--out", str(tmp_path / "out")]


Fails = Callable[..., str]


def test_an_unknown_suite_is_answered_with_the_nearest_name(fails: Fails, tmp_path: Path) -> None:
    said = fails("bench", "omniglot-smal")
    assert "Did you mean 'omniglot-small'?" in said and "Expected: one of" in said and "Next: " in said
    said = fails("bench", tmp_path / "absent.yaml")
    assert "There is no file" in said and "Next: `holdfast bench` lists names" in said
    assert "is a folder" in fails("bench", tmp_path)
    assert "--dry-run was given without a suite" in fails("bench", "--dry-run")


@pytest.mark.parametrize(
    ("words", "given", "expected", "following"),
    [
        (["--processes", "0"], "--processes 0.", "at least 1", "leave it out"),
        (["--processes", "few"], "few", "", "--help"),
        (["--device", "cuda:99"], "--device cuda:99", "one of cpu", "leave it out"),
        (["--device", "cpu", "tpu"], "--device tpu", "one of cpu", "leave it out"),
        (["--device", "cuda:one"], "--device cuda:one", "one of cpu", "leave it out"),
        (["--seeds", "1", "1"], "--seeds 1 1", "each once", ""),
        (["--seeds", "-1"], "--seeds -1", "at least 0", ""),
        (["--proceses", "2"], "Did you mean '--processes'?", "one of", "nothing was started"),
    ],
)
def test_a_wrong_option_is_told_with_what_would_be_right(
    words: list[str], given: str, expected: str, following: str, suite: Path, fails: Fails, places: list[str]
) -> None:
    said = fails("bench", suite, *places, *words)
    assert given in said and expected in said and following in said
    assert not (suite.parent / "cells").exists()


@pytest.mark.parametrize("option", ["out", "cache"])
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_run(
    option: str, below: str, suite: Path, fails: Fails, places: list[str]
) -> None:
    said = fails("bench", suite, *places, f"--{option}", suite / below)
    assert f"--{option}" in said and "mine.yaml' is a file" in said
    assert f"Expected: a folder, or a name that is free Next: choose another: --{option} FOLDER" in said
    assert not (suite.parent / "cells").exists() and json.loads(suite.read_text())["title"] == "Mine"


def test_a_cache_that_cannot_be_written_is_told_with_another_way_out(suite: Path, fails: Fails, places) -> None:
    said = fails(
        "bench", suite, *places, "--cache", "/proc/nowhere", "--processes", 1
    )  # nobody can make a folder there
    assert "Cannot write '/proc/nowhere" in said and "--cache FOLDER" in said


@pytest.fixture
def planned(
    suite: Path, places: list[str], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Run a dry run; return its document and what it says to people."""

    def run(*words: str) -> tuple[dict[str, Any], str]:
        capsys.readouterr()
        assert main(["bench", str(suite), *places, "--dry-run", *words]) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert main(["bench", str(suite), *places, "--dry-run", *words, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out)), told

    return run


def test_a_dry_run_says_what_is_left_and_changes_nothing(suite: Path, planned) -> None:
    document, told = planned("--processes", "2")
    assert document["suite"] == "mine" and document["processes"] == 2 and document["seconds"] is None
    assert (len(document["unfinished"]), document["finished"], document["unknown"], document["failed"]) == (
        10,
        0,
        10,
        0,
    )
    assert "Mine: 10 cells to run, 0 finished" in told and "nobody can say how long they take" in told
    assert not (suite.parent / "cells").exists() and not (suite.parent / "out").exists()


def test_a_dry_run_counts_what_failed_and_leaves_it_so(suite: Path, planned, tmp_path: Path) -> None:
    from holdfast.bench.cache import CellCache
    from holdfast.bench.recipes import recipe_named
    from holdfast.bench.run import estimate

    cache = CellCache(tmp_path / "cells")
    bad = next(cell for cell in estimate(recipe_named(suite), cache, None).unfinished if cell.label.startswith("l2"))
    cache.fail(bad, "the loss is not finite")
    document, told = planned()
    assert document["failed"] == 3  # the model, its embeddings and their score
    assert "3 failed before or need one that did: they are left out without --retry-failed" in told
    assert planned("--retry-failed")[0]["failed"] == 0
    assert cache.failure(bad) == "the loss is not finite"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seconds": "long"}'])
def test_a_damaged_clock_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "worked.json").write_text(content)
    with pytest.raises(DataError, match=r"worked\.json") as caught, worked_before(tmp_path):
        pass
    assert "remove it" in caught.value.to_do
    (tmp_path / "worked.json").unlink()
    with worked_before(tmp_path) as clock:
        clock.note()
    (tmp_path / "worked.json").write_text('{"seconds": 100.0}')
    with worked_before(tmp_path) as clock:
        assert 100 <= clock.seconds < 110
