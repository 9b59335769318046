"""``holdfast sessions`` from words to report, and what it refuses before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.continual.results import Bounds, SessionsResults

PLAN = ["--plan-options.first-classes", "2", "--plan-options.new-classes", "2", "--plan-options.sessions", "3"]
PLAN += ["--plan-options.old-share", "0.3", "--plan-options.validation", "1", "--test-images", "2"]
FAST = ["--recipe.epochs", "1", "--recipe.batch-size", "8", "--backbone-options.filters", "4", "--dim", "8"]
METHODS = ["--method", "cvs", "finetune", "joint", "--budget", "6"]


@pytest.fixture(scope="session")
def run(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the README, on few images."""
    out = tmp_path_factory.mktemp("cli") / "sessions"
    words = ["general-incremental", "--data", str(made / "photos"), *PLAN, *FAST, *METHODS, "--out", str(out)]
    assert main(["sessions", *words]) == 0
    return out


def test_it_leaves_a_release_and_a_gallery_per_session_with_results_and_a_report(run: Path) -> None:
    for name in ("cvs", "finetune", "joint"):
        for session in (2, 3):
            folder = run / name / f"session-{session}"
            assert {"config.json", "model.safetensors", "gallery.safetensors"} <= {p.name for p in folder.iterdir()}
    results = SessionsResults.load(run)
    assert results.bounds == Bounds(lower="finetune", upper="joint")
    assert results.plan.introduced == [2, 2, 2] and results.budget == 6
    assert "<svg" in (run / "report.html").read_text()
    assert "validation: 1" in (run / "sessions.yaml").read_text()


def test_the_same_command_reads_what_is_there_and_prints_one_document(run, made, capsys) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("model.safetensors")}
    words = ["general-incremental", "--data", str(made / "photos"), *PLAN, *FAST, *METHODS, "--out", str(run), "--json"]
    capsys.readouterr()
    assert main(["sessions", *words]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["learners"]["cvs"]["average_recall"] == SessionsResults.load(run).learners["cvs"].average_recall
    assert {path: path.stat().st_mtime_ns for path in run.rglob("model.safetensors")} == before


def test_a_release_of_a_session_embeds_images_like_any_other(run, made, tmp_path) -> None:
    release = str(run / "cvs" / "session-3")
    assert main(["embed", "images", str(made / "photos"), "--release", release, "--out", str(tmp_path)]) == 0


WRONG = {
    "an unknown plan": (["general", "--method", "finetune"], "Did you mean 'general-incremental'"),
    "two plans": (["disjoint", "--plan", "blurry"], "the plan once"),
    "an unknown option of the plan": (["disjoint", "--plan-options.sesions", "2"], "Did you mean 'sessions'"),
    "too many sessions": (["disjoint", "--plan-options.sessions", "9", "--budget", "5"], "a class for each"),
    "no memory": (["disjoint", "--plan-options.sessions", "2", "--method", "cvs"], "--budget N"),
    "a memory of none": (["disjoint", "--plan-options.sessions", "2", "--budget", "0"], "at least 1"),
    "an unknown method": (["disjoint", "--method", "csv"], "Did you mean 'cvs'"),
    "an unknown option of a method": (["disjoint", "--method_options.alpha", "1"], "no option 'alpha'"),
    "a method of another space": (["disjoint", "--plan-options.sessions", "2", "--method", "hbct"], "hypersphere"),
    "too many test images": (["disjoint", "--test-images", "9", "--budget", "5"], "test"),
    "a seed below 0": (["disjoint", "--seed", "-1"], "at least 0"),
    "several devices": (["disjoint", "--plan-options.sessions", "2", "--method", "finetune", "--recipe.devices", "2"],
                        "one"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use_is_refused_in_plain_words_before_anything_is_trained(what, made, fails, tmp_path) -> None:
    words, expected = WRONG[what]
    test_images = [] if "--test-images" in words else ["--test-images", "2"]
    out = tmp_path / "out"
    said = fails("sessions", *words, "--data", made / "photos", *test_images, *FAST, "--out", out)
    assert expected in said
    assert not out.exists() or not any(out.rglob("*.safetensors"))


def test_data_that_searches_other_classes_says_what_to_type(made, fails, tmp_path) -> None:
    said = fails("sessions", "disjoint", "--data", "glyphs", "--method", "finetune", "--out", tmp_path)
    assert "--test-images" in said


def test_other_settings_for_a_folder_are_refused(run, made, fails) -> None:
    said = fails("sessions", "general-incremental", "--data", made / "photos", *PLAN, *FAST, "--method", "cvs",
                 "--budget", "5", "--out", run)  # fmt: skip
    assert "memory" in said and "intact" in said


def test_train_refuses_learners_in_sessions_and_says_what_to_type(made, fails, tmp_path) -> None:
    said = fails("train", "--data", made / "photos", "--method", "cvs", "--out", tmp_path)
    assert "holdfast sessions" in said
