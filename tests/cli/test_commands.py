from __future__ import annotations

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import main
from limpet.cli.program import LIMPET
from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
from option_names import parsed


def document(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("command", LIMPET.summaries)
def test_every_command_explains_itself(command: str, capsys) -> None:
    try:
        code = main([command, "--help"])
    except SystemExit as stopped:  # of commands that Cyclopts does not read yet
        code = int(stopped.code or 0)
    assert code == 0 and "--json" in capsys.readouterr().out


def test_start_is_fast() -> None:
    for words in (["-c", "import limpet"], ["-m", "limpet", "--help"]):
        seconds = []
        for _ in range(3):
            start = _of_children()
            subprocess.run([sys.executable, *words], check=True, capture_output=True)
            seconds.append(_of_children() - start)
        assert min(seconds) < 0.8


def _of_children() -> float:
    """Return the seconds of the processor that child processes took, however busy it is with others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_version(capsys) -> None:
    assert main(["--version"]) == 0 and capsys.readouterr().out.startswith("limpet 0.")


def test_methods(capsys) -> None:
    found = document(capsys, "methods")["methods"]
    assert (
        found["bct"]["options"] == {"weight": 1.0, "temperature": None, "classifier": "old"}
        and found["p2s"]["needs_old"]
    )
    assert "CVPR 2020" in found["bct"]["paper"] and not found["independent"]["needs_old"]
    assert main(["methods"]) == 0 and "arXiv:2003.11942" in capsys.readouterr().err
    assert main(["methods", "ndpp"]) == 0
    explained = capsys.readouterr().err
    assert "neighbours: Number of neighbours" in explained and "--method-options.alpha-old 0.01" in explained
    assert list(document(capsys, "methods", "ndpp")["methods"]) == ["ndpp"]
    assert main(["methods", "ndp"]) == 2 and "Did you mean 'ndpp'?" in capsys.readouterr().err


def test_data(capsys, made: Path) -> None:
    assert "glyphs" in document(capsys, "data", "list")["data"]
    found = document(capsys, "data", "describe", made / "photos")
    assert found["leave_one_out"] and found["parts"]["train"] == {
        "images": 48, "classes": 6, "smallest_class": 8, "largest_class": 8, "shape": [3, 32, 32],
    }  # fmt: skip
    assert document(capsys, "data", "check", made / "photos")["readable"]


def test_a_comparison_leaves_releases_logs_and_settings(made: Path) -> None:
    runs = made / "runs"
    settings = tomllib.loads((runs / "train.toml").read_text())["train"]
    assert settings["recipe"]["epochs"] == 4 and settings["seed"] == 0 and settings["head"] == "softmax"
    for name in ("old", "independent", "bct"):
        events = [json.loads(line) for line in (runs / name / "events.jsonl").read_text().splitlines()]
        assert events[-1]["epoch"] == 3 and events[-1]["images_per_second"] > 0
        assert not (runs / name / "checkpoint.safetensors").exists()
    assert set(events[-1]["terms"]) == {"task", "influence"}
    record = json.loads((runs / "bct" / "config.json").read_text())
    assert record["compatible_with"] == json.loads((runs / "old" / "config.json").read_text())["fingerprint"]
    assert record["old_view"] == "cached" and record["data"]["images"] == "48"


def test_a_finished_comparison_is_not_trained_again(capsys, copied: Path) -> None:
    settings = copied / "runs" / "train.toml"
    before = {name: (copied / "runs" / name / "model.safetensors").stat().st_mtime_ns for name in ("old", "bct")}
    found = document(capsys, "train", "--config", settings)
    assert set(found["releases"]) == {"old", "independent", "bct"}
    for name, stamp in before.items():
        assert (copied / "runs" / name / "model.safetensors").stat().st_mtime_ns == stamp


OPERATIONS = [
    (["--recipe.augmentation.rand-augment.operations", "3"], None, RandAugment(3)),
    (["--recipe.augmentation.rand-augment", "{magnitude: 5}"], None, RandAugment(2, 5)),
    (["--recipe.augmentation.resized-crop.scale", "[0.3, 1.0]"], ResizedCrop((0.3, 1.0)), None),
    (["--recipe.augmentation.resized-crop", "{}"], ResizedCrop(), None),
]


@pytest.mark.parametrize(("words", "crop", "drawn"), OPERATIONS)
def test_groups_of_settings_that_may_be_left_out(
    words: list[str], crop: ResizedCrop | None, drawn: RandAugment | None
) -> None:
    training = parsed("train", ["--data", "glyphs", "--out", "x", *words])["training"]
    assert training.settled.augmentation == Augmentation(resized_crop=crop, rand_augment=drawn)


def test_one_new_model_over_an_old_release(capsys, made: Path, tmp_path) -> None:
    words = ["train", "--data", made / "photos", "--old", f"release:{made / 'runs' / 'old'}",
             "--method", "mixbct", "--dim", "16",
             "--recipe.epochs", "1", "--backbone-options.filters", "8", "--recipe.old-view", "same",
             "--head", "arcface", "--recipe.augmentation.flip", "true",
             "--logger", "tensorboard", "--out", tmp_path / "new"]  # fmt: skip
    found = document(capsys, *words)["releases"]["mixbct"]
    record = json.loads((tmp_path / "new" / "config.json").read_text())
    assert (
        record["fingerprint"] == found["fingerprint"] and record["old_view"] == "same" and record["head"] == "arcface"
    )
    assert record["recipe"]["augmentation"]["flip"] is True
    assert list((tmp_path / "new").glob("events.out.tfevents*"))


def test_several_methods_with_options(capsys, made: Path, tmp_path) -> None:
    words = ["train", "--data", made / "photos", "--old", f"release:{made / 'runs' / 'old'}",
             "--method", "p2s", "l2", "--dim", "16",
             "--method-options.l2.power", "2", "--recipe.epochs", "1", "--backbone-options.filters", "8",
             "--out", tmp_path / "two"]  # fmt: skip
    assert set(document(capsys, *words)["releases"]) == {"p2s", "l2"}
    record = json.loads((tmp_path / "two" / "l2" / "config.json").read_text())
    assert record["method_options"] == {"power": 2}


def test_evaluate(capsys, made: Path, tmp_path) -> None:
    embedded = made / "embedded"
    words = ["evaluate", "--old", embedded / "old", "--new", embedded / "bct", "--independent",
             embedded / "independent", "--out", tmp_path / "out", "--data", made / "photos"]  # fmt: skip
    capsys.readouterr()
    code = main([*map(str, words), "--json"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert code == (0 if found["verdict"] == "compatible" else 1)
    for key in ("self_old", "self_new", "self_independent", "cross"):
        assert set(found[key]) == {"recall@1", "recall@5", "map", "map@r"}
    assert set(found["compatible"]) == set(found["interval"]) == set(found["self_old"])
    assert len(found["interval"]["map"]["cross_minus_self_old"]) == 2
    assert set(found["p_up"]) == {"raw", "sigmoid"} and found["p_score"]["raw"] is None
    assert set(found["negative_flip_rate"]) == {"cross", "self_new"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "data:image/png;base64," in page and "kind" in page
    assert f"<code>limpet evaluate --old {embedded / 'old'} --new" in page
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["evaluations"]["bct"]["self_old"] == found["self_old"]
    assert tomllib.loads((tmp_path / "out" / "evaluate.toml").read_text())["evaluate"]["old"] == [str(embedded / "old")]


def test_the_independent_model_fails_the_gate(made: Path, tmp_path) -> None:
    embedded = made / "embedded"
    words = ["evaluate", "--old", embedded / "old", "--new", embedded / "independent", "--report", "none"]
    assert main([str(word) for word in (*words, "--out", tmp_path)]) == 1


def test_vectors_made_elsewhere(capsys, made: Path, tmp_path) -> None:
    from limpet.embeddings import storage

    for name, write, suffix in (("old", storage.to_npz, "npz"), ("bct", storage.to_parquet, "parquet")):
        write(storage.load(made / "embedded" / name / "embeddings.safetensors"), tmp_path / f"{name}.{suffix}")
    capsys.readouterr()
    code = main(["evaluate", "--old", str(tmp_path / "old.npz"), "--new", str(tmp_path / "bct.parquet"), "--out",
                 str(tmp_path / "out"), "--report", "none", "--json"])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1) and found["fingerprints"]["old"] == {
        "fingerprint": f"declared:{tmp_path / 'old.npz'}", "declared": True,
    }  # fmt: skip
    assert found["self_independent"] is None and found["p_up"] is not None


def test_embed_training_images_with_one_release(capsys, made: Path, tmp_path) -> None:
    words = [
        "embed",
        "images",
        made / "photos",
        "--model",
        f"release:{made / 'runs' / 'bct'}",
        "--part",
        "train",
        "--out",
    ]
    found = document(capsys, *words, tmp_path / "e")["embeddings"]
    assert [entry["items"] for entry in found] == [48] and (tmp_path / "e" / "bct" / "embeddings.safetensors").exists()


@pytest.mark.slow
def test_two_processes_make_one_release(made: Path, tmp_path) -> None:
    words = ["train", "--data", made / "photos", "--old", f"release:{made / 'runs' / 'old'}",
             "--method", "advbct", "--dim", "16",
             "--method-options.classes", "new", "--backbone-options.filters", "8", "--recipe.epochs", "2",
             "--recipe.batch-size", "8", "--recipe.devices", "2", "--recipe.accelerator", "cpu", "--json",
             "--out", tmp_path / "new"]  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-m", "limpet", *map(str, words)], capture_output=True, text=True, check=True
    )
    found = json.loads(result.stdout)["releases"]["advbct"]
    assert json.loads((tmp_path / "new" / "config.json").read_text())["fingerprint"] == found["fingerprint"]
    lines = [json.loads(line) for line in (tmp_path / "new" / "events.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == sorted(line["epoch"] for line in lines) and len(lines) == 4


def test_names_with_brackets_are_names(capsys, made: Path, tmp_path) -> None:
    words = [
        "embed",
        "images",
        made / "photos",
        "--model",
        f"release:{made / 'runs' / 'old'}",
        "--out",
        tmp_path / "x[/y]",
    ]
    assert main([str(word) for word in words]) == 0
    assert "x[/y]" in capsys.readouterr().err.replace("\n", "")


def test_settings_in_a_file_and_words_that_override_them(capsys, made: Path, tmp_path) -> None:
    (tmp_path / "run.toml").write_text(
        f"[train]\ndata = '{made / 'photos'}'\nmethod = ['independent']\ndim = 16\nbackbone-options.filters = 8\n"
        "recipe = {epochs = 9, milestones = [1], schedule = 'steps'}\n"
    )
    words = ["train", "--config", tmp_path / "run.toml", "--recipe.epochs", "1", "--out", tmp_path / "out"]
    assert "independent" in document(capsys, *words)["releases"]
    settings = tomllib.loads((tmp_path / "out" / "train.toml").read_text())["train"]
    assert settings["recipe"]["epochs"] == 1 and settings["recipe"]["milestones"] == [1]
    assert settings["backbone-options"] == {"filters": 8} and settings["method"] == ["independent"]


def test_the_old_models_own_data(capsys, made: Path, tmp_path) -> None:
    words = ["train", "--data", made / "photos", "--old", f"release:{made / 'runs' / 'old'}",
             "--old-data", made / "photos",
             "--method", "advbct", "--dim", "16", "--recipe.epochs", "1", "--backbone-options.filters", "8",
             "--out", tmp_path / "new"]  # fmt: skip
    assert "advbct" in document(capsys, *words)["releases"]


def test_releases_decide_how_images_are_read(capsys, made: Path, tmp_path) -> None:
    words = [
        "train",
        "--data",
        made / "photos",
        "--method",
        "independent",
        "--dim",
        "16",
        "--recipe.epochs",
        "1",
        "--backbone-options.filters",
        "8",
        "--data-options.image-size",
        "24",
        "--data-options.channels",
        "1",
    ]
    document(capsys, *words, "--out", tmp_path / "small")
    both = [
        "embed",
        "images",
        made / "photos",
        "--model",
        f"release:{made / 'runs' / 'old'}",
        f"release:{tmp_path / 'small'}",
    ]
    found = document(capsys, *both, "--out", tmp_path / "e")["embeddings"]
    assert [entry["items"] for entry in found] == [12, 12]
