"""``limpet-bench`` as somebody meets it who types something wrong, or asks what it would do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from limpet.errors import DataError
from limpet_bench.cache import TaskCache
from limpet_bench.cli import bench as bench_command
from limpet_bench.cli import main
from limpet_bench.cli.bench import Clock, failure_sentences, steps_progress
from limpet_bench.executor import Progress
from limpet_bench.leaderboard import BenchRuns
from limpet_bench.run import estimate, missing_folders
from limpet_bench.suites import suite_named
from limpet_bench.tasks import Task

from ..writing import write_suite


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """Of a suite of two rows over seven classes."""
    for part in ("train", "query", "gallery"):
        for label in range(7):
            place = tmp_path / "crosses" / part / f"kind {label}"
            place.mkdir(parents=True)
            for number in range(4):
                Image.new("L", (8, 8), 20 * label + 5 * number + len(part)).save(place / f"{number}.png")
    return {
        "title": "Mine",
        "data": {str(tmp_path / "crosses"): {"image_size": 8, "channels": 1}},
        "methods": {"p2s": {}, "l2": {}},
        "model": {"dim": 4, "channels": 1, "image_size": 8, "backbone_options": {"filters": 2}},
        "recipe": {"epochs": 1, "batch_size": 4},
    }


@pytest.fixture
def suite(tmp_path: Path, values: dict[str, Any]) -> Path:
    return write_suite(tmp_path / "mine.py", values)


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    return ["--cache", str(tmp_path / "tasks"), "--out", str(tmp_path / "out")]


Fails = Callable[..., str]


def test_an_unknown_suite_is_answered_with_the_nearest_name(fails: Fails, tmp_path: Path) -> None:
    said = fails("run", "omniglot-smal")
    assert "Did you mean 'omniglot-small'?" in said and "Expected: one of" in said and "Next: " in said
    said = fails("run", tmp_path / "absent.py")
    assert "There is no file" in said and "Next: `limpet-bench suites` lists names" in said
    assert "is a folder" in fails("run", tmp_path)
    assert "SUITE" in fails("run", "--seeds", 0)
    assert "SUITE" in fails("plan")


def test_a_plan_finds_a_clash_of_channels_before_anything_is_run(
    fails: Fails, suite: Path, values: dict[str, Any], places: list[str], tmp_path: Path
) -> None:
    """Of the data that models are trained on, of a test set, and of the images of sessions."""
    content = values
    data = next(iter(content["data"]))
    colours = {**content, "data": {data: {"image_size": 8}}}
    test_set = {**content, "test_sets": {"colours": {"data": data, "options": {"image_size": 8}}}}
    sessions = {"track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1}
    for changed in (colours, test_set, {**colours, **sessions, "methods": {"finetune": {}}}):
        write_suite(suite, changed)
        for word in ("plan", "run"):
            said = fails(word, suite, *places)
            assert f"The images of '{data}' have 3 channels, and the model '" in said and "takes 1" in said
            assert f'EncoderSpec(channels=3), or let the data have them: Data("{data}", {{"channels": 1}})' in said
    assert not (tmp_path / "tasks").exists() and not (tmp_path / "out").exists()


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
        (["--proceses", "2"], "Did you mean --processes?", "", "--help"),
    ],
)
def test_a_wrong_option_is_told_with_what_would_be_right(
    words: list[str], given: str, expected: str, following: str, suite: Path, fails: Fails, places: list[str]
) -> None:
    said = fails("run", suite, *places, *words)
    assert given in said and expected in said and following in said
    assert not (suite.parent / "tasks").exists()


@pytest.mark.parametrize("option", ["out", "cache"])
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_run(
    option: str, below: str, suite: Path, fails: Fails, places: list[str]
) -> None:
    said = fails("run", suite, *places, f"--{option}", suite / below)
    assert f"--{option}" in said and "mine.py' is a file" in said
    assert f"Expected: a folder, or a name that is free Next: choose another: --{option} FOLDER" in said
    assert not (suite.parent / "tasks").exists() and suite_named(suite).title == "Mine"


def test_a_cache_that_cannot_be_written_is_told_with_another_way_out(suite: Path, fails: Fails, places) -> None:
    said = fails("run", suite, *places, "--cache", "/proc/nowhere", "--processes", 1)  # nobody can make a folder there
    assert "Cannot write '/proc/nowhere" in said and "--cache FOLDER" in said


@pytest.fixture
def planned(
    suite: Path, places: list[str], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Plan a bench; return the document and what it says to people."""

    def run(*words: str) -> tuple[dict[str, Any], str]:
        capsys.readouterr()
        assert main(["plan", str(suite), *places, *words]) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert main(["plan", str(suite), *places, *words, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out)), told

    return run


@pytest.mark.parametrize("name", ["hbct-table-1", "cvs-table-1-inat-m", "mixbct-figure-6", "text-upgrade"])
def test_a_plan_without_the_data_lists_the_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_DATA", str(tmp_path))
    words = ["plan", name, "--cache", str(tmp_path / "tasks")]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    suite = suite_named(name)
    assert [(run["data"], run["scenario"], run["label"]) for run in document["runs"]] == [r.place for r in suite.runs]
    assert {run["trials"] for run in document["runs"]} == ({0, 10} if name == "hbct-table-1" else {0})
    assert document["missing"] == missing_folders(suite, None) != []
    assert main(words) == 0
    assert all(folder in capsys.readouterr().err.replace("\n", " ") for folder in document["missing"][:1])
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_what_is_left_and_changes_nothing(suite: Path, planned) -> None:
    document, told = planned("--processes", "2")
    assert document["suite"] == "mine" and document["processes"] == 2 and document["seconds"] is None
    assert (len(document["unfinished"]), document["finished"], document["unknown"], document["failed"]) == (
        10,
        0,
        10,
        0,
    )
    assert "Mine: 10 steps to run, 0 finished" in told and "The duration is unknown" in told
    assert not (suite.parent / "tasks").exists() and not (suite.parent / "out").exists()
    where = told.index("The duration is unknown"), told.index("score p2s (")
    assert told.index("train 4 embed 4 score 2") < min(where) and where == tuple(sorted(where))


def test_a_plan_counts_what_failed_and_leaves_it_so(suite: Path, planned, tmp_path: Path) -> None:
    cache = TaskCache(tmp_path / "tasks")
    bad = next(task for task in estimate(suite_named(suite), cache, None).unfinished if task.label.startswith("l2"))
    cache.fail(bad, "the loss is not finite")
    document, told = planned()
    assert document["failed"] == 3  # the model, its embeddings and their score
    assert "3 failed before or need one that did: they are left out without --retry-failed" in told
    assert planned("--retry-failed")[0]["failed"] == 0
    assert cache.failure(bad) == "the loss is not finite"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seconds": "long"}'])
def test_a_damaged_clock_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "worked.json").write_text(content)
    with pytest.raises(DataError, match=r"worked\.json") as caught:
        Clock(tmp_path)
    assert "remove it" in caught.value.to_do
    (tmp_path / "worked.json").unlink()
    Clock(tmp_path).note()
    (tmp_path / "worked.json").write_text('{"seconds": 100.0}')
    assert 100 <= Clock(tmp_path).seconds < 110


def test_several_seeds_reach_the_suite(planned) -> None:
    assert len(planned("--seeds", "0", "1")[0]["unfinished"]) == 20


def board_in(folder: Path, **parts: Any) -> bytes:
    """Write what counts of the leaderboard of a suite, "mine" with seeds 0 and 1 where nothing else is said."""
    content = {"suite": {"name": "mine", "title": "Mine"}, "rows": [{"seed": 1}, {"seed": 0}, {"seed": 1}], **parts}
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(content))
    return (folder / "results.json").read_bytes()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"suite": {"name": "other", "title": "Mine"}}, "the leaderboard of 'other', titled 'Mine'"),
        ({"suite": {"name": "mine", "title": "Not mine"}}, "the leaderboard of 'mine', titled 'Not mine'"),
        ({"suite": None}, "results that are no leaderboard"),
        ({"rows": [{}]}, "results that are no leaderboard"),
    ],
)
def test_the_board_of_another_suite_is_never_overwritten(
    parts: dict[str, Any], words: str, suite: Path, places: list[str], fails: Fails
) -> None:
    out = suite.parent / "out"
    before = board_in(out, **parts)
    for command in (["run"], ["plan"]):
        said = fails(*command, suite, *places)
        assert words in said and "board of 'mine', titled 'Mine'" in said and "--out FOLDER" in said
    assert (out / "results.json").read_bytes() == before and [path.name for path in out.iterdir()] == ["results.json"]
    assert not (suite.parent / "tasks").exists()
    (out / "results.json").write_text("{")
    assert "results that are no leaderboard" in fails("run", suite, *places)


@pytest.fixture
def failing(suite: Path, tmp_path: Path) -> tuple[TaskCache, list[Task]]:
    """The old model failed, so nothing of the suite can be run; and a model of another suite did."""
    cache = TaskCache(tmp_path / "tasks")
    old = next(task for task in estimate(suite_named(suite), cache, None).unfinished if task.label.startswith("old"))
    other = Task("train", {"of": "another suite"})
    cache.fail(old, "the loss is not finite"), cache.fail(other, "no room")
    return cache, [old, other]


def test_what_failed_is_run_again_where_that_is_asked_and_only_of_this_suite(
    failing, suite: Path, places: list[str], capsys
) -> None:
    cache, (old, other) = failing
    words = ["run", str(suite), *places, "--processes", "1", "--device", "cpu"]
    board_in(tmp := suite.parent / "out")
    assert main(words) == 1
    said = capsys.readouterr().err
    assert f"The former leaderboard in '{tmp}', of seeds 0, 1, will be replaced." in said
    assert "2 runs failed. The same command with --retry-failed runs again what failed" in said
    assert cache.failure(old) == "the loss is not finite" and cache.record(old) is None
    assert main([*words, "--retry-failed"]) == 0
    said = capsys.readouterr().err
    assert "Mine: 0 of 8 steps, " in said and "Mine: 8 of 8 steps, " in said  # the independent model was run before
    assert "failed: " not in said and "--retry-failed" not in said and "former leaderboard" not in said
    assert cache.failure(old) is None and cache.record(old) is not None and cache.failure(other) == "no room"


def test_trials_that_failed_are_counted_beside_runs() -> None:
    suite = {"name": "mine", "title": "", "description": "", "metric": "map", "kind": "images"}
    run = {"data": "x", "scenario": "both", "label": "a", "method": "a", "seed": 0, "metric": "map", "scores": {}}
    found = BenchRuns.model_validate({"suite": suite, "rows": [run], "tuning": [{"failure": "why"}]})
    (told,) = failure_sentences(found, Path("here"))
    assert told.startswith("1 trial failed. ") and "here/*/*/failure.json hold the tracebacks" in told
    assert list(failure_sentences(found.model_copy(update={"tuning": []}), Path("here"))) == []


STEPS = [Task("train", {"number": number}, label=f"model {number}") for number in range(3)]


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand that lines are told by, however busy the machine."""
    monkeypatch.setattr(bench_command, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_somebody_who_reads_a_log_is_told_every_so_many_seconds(
    capsys: pytest.CaptureFixture[str], no_time: None
) -> None:
    def lines() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return said

    def until(words: str, count: int) -> None:
        last = time.monotonic() + 120
        while sum(words in line for line in lines()) < count and time.monotonic() < last:
            time.sleep(0.005)
        assert sum(words in line for line in said) >= count, said

    said: list[str] = []
    with steps_progress("Mine", every=0.01) as tell:
        until("Mine: reading data, 0 seconds", 1)
        tell(Progress(None, 0, 3, running=tuple(STEPS)))
        until("Mine: 0 of 3 steps, 0 seconds: model 0; model 1 and 1 more", 3)
        tell(Progress(STEPS[0], 1, 3, 2.0, "no room", running=(STEPS[1],)))
        until("failed: model 0: no room", 1)
        until("Mine: 1 of 3 steps, 0 seconds: model 1", 2)
        tell(Progress(STEPS[1], 2, 3))
    assert lines()[-1] == "Mine: 2 of 3 steps, 0 seconds"
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_lines_are_few_where_nothing_takes_long_and_none_where_nothing_is_run(capsys, no_time) -> None:
    with steps_progress("Mine") as tell:
        tell(Progress(None, 0, 1, running=(STEPS[0],)))
        tell(Progress(STEPS[0], 1, 1))
    assert capsys.readouterr().err.splitlines() == [
        "Mine: 0 of 1 steps, 0 seconds: model 0",
        "Mine: 1 of 1 steps, 0 seconds",
    ]
    with steps_progress("Mine"):
        pass
    assert capsys.readouterr().err == ""
    assert bench_command.EVERY <= 30


def test_an_interrupted_run_says_how_far_it_came(capsys, no_time) -> None:
    with pytest.raises(KeyboardInterrupt), steps_progress("Mine") as tell:
        tell(Progress(None, 4, 9, running=(STEPS[0],)))
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "Mine: 4 of 9 steps, 0 seconds: model 0"


def test_a_terminal_shows_what_is_run_from_the_beginning(monkeypatch: pytest.MonkeyPatch, no_time: None) -> None:
    screen = StringIO()
    monkeypatch.setattr(bench_command, "console", Console(file=screen, force_terminal=True, width=100))
    with steps_progress("Mine") as tell:
        tell(Progress(None, 0, 10, running=(STEPS[0],)))
        last = time.monotonic() + 120
        while "0 of 10 steps, 0 seconds: model 0" not in screen.getvalue() and time.monotonic() < last:
            time.sleep(0.01)
    assert "0 of 10 steps, 0 seconds: model 0" in screen.getvalue()
