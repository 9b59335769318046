"""``limpet-bench sessions`` from words to report, and what it refuses before anything is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from limpet.cli import main as limpet
from limpet.methods import METHODS as ALL_METHODS
from limpet.models.release import load_release
from limpet.training import code
from limpet_bench.cli import main
from limpet_bench.sessions import runner
from limpet_bench.sessions.results import Bounds, SessionsResults

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
    assert "validation = 1" in (run / "bench-sessions.toml").read_text()


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
    words = ["embed", "images", str(made / "photos"), "--model", f"release:{release}", "--out", str(tmp_path)]
    assert limpet(words) == 0


WRONG = {
    "an unknown plan": (["general", "--method", "finetune"], "Did you mean 'general-incremental'"),
    "two plans": (["disjoint", "--plan", "blurry"], "does not take"),
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
    kinds = sorted((made / "photos").iterdir())
    for part, own in {"train": kinds[:4], "query": kinds[4:], "gallery": kinds[4:]}.items():
        for kind in own:
            shutil.copytree(kind, tmp_path / "photos" / part / kind.name)
    said = fails("sessions", "disjoint", "--data", tmp_path / "photos", "--method", "finetune", "--out", tmp_path)
    assert "--test-images" in said


def test_other_settings_for_a_folder_are_refused(run, made, fails) -> None:
    said = fails("sessions", "general-incremental", "--data", made / "photos", *PLAN, *FAST, "--method", "cvs",
                 "--budget", "5", "--out", run)  # fmt: skip
    assert "memory" in said and "intact" in said


def test_train_refuses_learners_in_sessions_and_says_what_to_type(made, capsys, tmp_path) -> None:
    assert limpet(["train", "--data", str(made / "photos"), "--method", "cvs", "--out", str(tmp_path)]) == 2
    assert "limpet-bench sessions" in capsys.readouterr().err


def test_what_other_code_ran_is_kept_and_said_to_be_until_asked_for_again(
    run: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(run, tmp_path / "run"))
    learners = ["--method", "cvs", "finetune", "--budget", "6"]
    words = ["sessions", "general-incremental", "--data", str(made / "photos"), *PLAN, *FAST, *learners]

    def codes(*more: str) -> tuple[dict[str, str], str]:
        capsys.readouterr()
        assert main([*words, "--out", str(out), *more, "--report", "none", "--json"]) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out)["code"], " ".join(shown.err.split())

    def releases(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): load_release(path.parent).fingerprint for path in folder.rglob("head.safet*")
        }

    before = releases(out)
    found, said = codes()
    assert found == {"cvs": "same", "finetune": "same"} and "--again" not in said

    code_of_limpet = code._code_of_limpet
    of_cvs = ALL_METHODS.places["cvs"]
    monkeypatch.setattr(code, "_code_of_limpet", lambda place: "changed" if place == of_cvs else code_of_limpet(place))
    found, said = codes()
    assert found == {"cvs": "other", "finetune": "same"}
    assert f"Kept as it was, made by other code than that of today: {out / 'cvs'}." in said and "--again" in said
    assert releases(out) == before

    found, said = codes("--again")
    assert found == {"cvs": "same", "finetune": "same"} and "--again" not in said
    assert {path.name for path in out.glob("*before*")} == {"cvs.before-1"}, "the other learner stays where it is"
    assert releases(out / "cvs.before-1") == releases(run / "cvs")
    for path in ("session-2", "session-3"):
        assert load_release(out / "cvs" / path).record.code != load_release(run / "cvs" / path).record.code

    monkeypatch.setattr(runner, "_code_of_sessions", lambda: "changed")
    assert codes()[0] == {"cvs": "other", "finetune": "other"}, "what chooses exemplars counts, too"

    monkeypatch.setattr(code, "_code_of_limpet", lambda place: "changed for all")
    assert codes("--again")[0] == {"cvs": "same", "finetune": "same"}
    assert (tmp_path / "run.before-1" / "cvs.before-1").exists(), "with the first session all that rests on it goes"
    assert not any(out.glob("*before*")) and releases(out).keys() == {
        path for path in before if not path.startswith("joint/")
    }
