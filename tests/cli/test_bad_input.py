"""Wrong use ends with exit code 2 and says what was given, what was expected and what to type; never a traceback."""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from limpet.cli import main
from limpet.models.release import Release, save_release
from limpet.training import train as training

Fails = Callable[..., str]


def test_unknown_command(capsys) -> None:
    assert main(["trian"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err
    assert main([]) == 2


def test_unknown_method(fails: Fails, tmp_path) -> None:
    said = fails("train", "--data", tmp_path, "--method", "p2z", "--out", tmp_path / "out")
    assert "Unknown method 'p2z'. Did you mean 'p2s'?" in said and "Expected: one of" in said
    assert "limpet methods" in said and not (tmp_path / "out").exists()


def test_a_learner_of_sessions_is_not_trained_once(fails: Fails, tmp_path) -> None:
    said = fails("train", "--data", tmp_path, "--method", "bct", "cvs", "ewc", "--out", tmp_path / "out")
    assert "cvs, ewc learns in sessions" in said and not (tmp_path / "out").exists()
    command = "limpet-bench sessions general-incremental --data DATA --out DIR --method cvs ewc"
    assert f"Next: {command}" in " ".join(said.split())


def test_unknown_method_option(fails: Fails, tmp_path) -> None:
    said = fails("train", "--data", tmp_path, "--method", "p2s", "--method-options.temprature", "1", "--out", tmp_path)
    assert "no option 'temprature'. Did you mean 'temperature'?" in said


def test_unknown_option(fails: Fails, tmp_path) -> None:
    said = fails("train", "--data", tmp_path, "--recipe.epoch", "3", "--out", tmp_path)
    assert "Did you mean 'epochs'?" in said
    said = fails("train", "--data", tmp_path, "--old_date", "3", "--out", tmp_path)
    assert "--old_date" in said and "Did you mean --old-data?" in said


def test_wrong_type_and_missing_option(fails: Fails, tmp_path) -> None:
    assert "epochs='three'" in fails("train", "--data", tmp_path, "--recipe.epochs", "three", "--out", tmp_path)
    said = fails("train", "--data", tmp_path, "--dim", "abc", "--out", tmp_path)
    assert "--dim" in said and "abc" in said
    assert "clip_norm='abc'" in fails("train", "--data", tmp_path, "--recipe.clip_norm", "abc", "--out", tmp_path)
    assert "--data requires" in fails("train", "--out", tmp_path)
    assert "--out requires" in fails("train", "photos")  # the first word is the data
    assert "does not take 'photos'" in fails("adapt", "photos", "--old", "a", "--new", "b", "--out", tmp_path)
    assert "does not take 'b'" in fails("train", "--data", "a", "b", "--out", tmp_path)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("rand-augment.operation", "3", "rand_augment"),
        ("rand-augment.operations", "0", "operations"),
        ("resized-crop.scale", "[0.9, 0.1]", "scale"),
        ("auto-augment", "imagenet", "auto_augment"),
    ],
)
def test_operations_on_images_that_are_not_there(fails: Fails, tmp_path, option: str, value: str, message: str) -> None:
    words = ["--data", tmp_path, "--out", tmp_path / "out", f"--recipe.augmentation.{option}", value]
    assert message in " ".join(fails("train", *words).split())


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("rand-augment.magnitude", "much", "magnitude"),
        ("rand-augment.operations", "1.5", "operations"),
        ("resized-crop.scale", "[0.1]", "scale"),
        ("rand-augment", "7", "rand_augment"),
        ("resized-crop", "[8]", "resized_crop"),
    ],
)
def test_a_wrong_setting_of_a_group_is_named(fails: Fails, tmp_path: Path, option: str, value: str, named: str) -> None:
    said = fails("train", "--data", tmp_path, "--out", tmp_path / "out", f"--recipe.augmentation.{option}", value)
    assert named in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[train]\nmethd = "bct"\n', "[methd]"),
        ("[train.recipe]\nepoch = 3\n", "Did you mean 'epochs'?"),
        ("[train.recipe.augmentation]\nflop = true\n", "flop"),
        ("- 1\n", "is no TOML"),
        ("train = [1]\n", "a table"),
    ],
)
def test_wrong_settings_file(fails: Fails, tmp_path, content: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(content)
    said = fails("train", "--config", tmp_path / "run.toml", "--data", tmp_path, "--out", tmp_path / "out")
    assert message in said and not (tmp_path / "out").exists()


def test_missing_settings_file(fails: Fails, tmp_path) -> None:
    assert "Cannot read" in fails("train", "--config", tmp_path / "no.toml", "--data", "x", "--out", tmp_path)


def test_missing_folder(fails: Fails, tmp_path) -> None:
    said = fails("train", "--data", tmp_path / "fotos", "--method", "independent", "--out", tmp_path / "out")
    assert "There is no folder" in said and "fotos" in said and "Expected: a folder of images" in said


def test_named_data_without_its_root(fails: Fails, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("LIMPET_DATA", raising=False)
    said = fails("train", "--data", "omniglot", "--method", "independent", "--out", tmp_path / "out")
    assert "LIMPET_DATA" in said and "limpet.toml" in said
    assert "Did you mean 'glyphs'?" in fails("data", "describe", "glyph")


def test_corrupt_image(fails: Fails, copied: Path, tmp_path) -> None:
    for number in range(3):  # two of ten are held out: one at least is trained on
        (copied / "photos" / "kind1" / f"{number}.png").write_bytes(b"\x89PNG but not really")
    said = fails("train", "--data", copied / "photos", "--method", "independent", "--out", tmp_path / "out")
    assert "kind1/" in said and ".png" in said and "Expected:" in said and "Next:" in said
    assert "kind1/" in fails("data", "check", copied / "photos")


def test_one_class(fails: Fails, made: Path, tmp_path) -> None:
    shutil.copytree(made / "photos" / "kind0", tmp_path / "one" / "kind0")
    said = fails("train", "--data", tmp_path / "one", "--method", "independent", "--out", tmp_path / "out")
    assert "1 class" in said and "at least two classes" in said


def test_method_without_its_predecessor(fails: Fails, made: Path, tmp_path) -> None:
    said = fails("train", "--data", made / "photos", "--method", "bct", "--out", tmp_path / "out")
    assert "needs a predecessor" in said and "--old RELEASE" in said


def test_old_and_new_dimension_differ(fails: Fails, made: Path, tmp_path) -> None:
    said = fails("train", "--data", made / "photos", "--method", "bct", "--old", f"release:{made / 'runs' / 'old'}",
             "--dim", "32",
                 "--out", tmp_path / "out")  # fmt: skip
    assert "The old model has 16 dimensions, the new one 32." in said and "--dim 16" in said


def test_altered_release(fails: Fails, copied: Path, tmp_path) -> None:
    model = copied / "runs" / "old" / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    for words in (
        [
            "train",
            "--data",
            copied / "photos",
            "--method",
            "bct",
            "--old",
            f"release:{model.parent}",
            "--dim",
            "16",
            "--out",
            tmp_path,
        ],
        ["embed", "images", copied / "photos", "--model", f"release:{model.parent}", "--out", tmp_path / "e"],
    ):
        said = fails(*words)
        assert "was altered since it was saved" in said and "fingerprint" in said and "restore the folder" in said


def test_no_release(fails: Fails, made: Path, tmp_path) -> None:
    said = fails("embed", "images", made / "photos", "--model", f"release:{tmp_path}", "--out", tmp_path / "e")
    assert "is no release" in said and "limpet train" in said


def test_another_release_is_never_replaced(fails: Fails, copied: Path) -> None:
    before = (copied / "runs" / "old" / "config.json").read_bytes()
    said = fails("train", "--data", copied / "photos", "--method", "independent", "--out", copied / "runs" / "old")
    assert "already holds a release made with other settings" in said and "It is intact" in said
    assert (copied / "runs" / "old" / "config.json").read_bytes() == before


def test_nan_in_embeddings(fails: Fails, made: Path, tmp_path) -> None:
    vectors = np.ones((3, 16), np.float32)
    vectors[1, 2] = np.nan
    np.savez(tmp_path / "new.npz", vectors=vectors, ids=np.array(["a", "b", "c"]))
    said = fails("evaluate", "--old", made / "embedded" / "old", "--new", tmp_path / "new.npz", "--out", tmp_path)
    assert "1 of 3 vectors hold NaN or infinite values, first: 'b'" in said and "finite numbers" in said


def test_embeddings_of_other_items_or_dimensions(fails: Fails, made: Path, tmp_path) -> None:
    rng = np.random.default_rng(0)
    for name, dim in (("a", 16), ("b", 8)):
        np.savez(
            tmp_path / f"{name}.npz", vectors=rng.normal(size=(5, dim)).astype(np.float32), labels=np.arange(5) % 2
        )
    old = ["evaluate", "--old", tmp_path / "a.npz", "--out", tmp_path / "out", "--new"]
    assert "dimension" in fails(*old, tmp_path / "b.npz")
    assert "Next:" in fails(*old, made / "embedded" / "bct")
    assert "same model" in fails(*old, tmp_path / "a.npz")
    assert "There is no" in fails(*old, tmp_path / "c.npz")
    assert "limpet embed" in fails(*old, made / "photos")


def test_unknown_metric(fails: Fails, made: Path, tmp_path) -> None:
    sides = ["--old", made / "embedded" / "old", "--new", made / "embedded" / "bct", "--out", tmp_path]
    assert "Did you mean 'map'?" in fails("evaluate", *sides, "--gate-metric", "mapp")


def test_disk_full_while_saving_a_release(
    copied: Path, tmp_path: Path, fails: Fails, small_disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release from before must survive."""
    old = copied / "runs" / "old"
    before = {file.name: file.read_bytes() for file in old.iterdir()}

    def limited(release: Release, folder: Path) -> Path:
        with small_disk(4000):
            return save_release(release, folder)

    monkeypatch.setattr(training, "save_release", limited)
    small = ["--recipe.epochs", "1", "--backbone-options.filters", "8"]
    said = fails("train", "--data", copied / "photos", "--method", "independent", "--out", tmp_path / "out", *small)
    assert "Could not save the release" in said and "is intact" in said
    assert not (tmp_path / "out" / "config.json").exists()
    assert {file.name: file.read_bytes() for file in old.iterdir()} == before


def test_errors_are_one_json_document_for_machines(capsys, tmp_path) -> None:
    assert main(["train", "--data", str(tmp_path), "--method", "p2z", "--out", str(tmp_path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["type"] == "ConfigError" and "p2z" in document["error"]["given"]


TRAIN = ["train", "--method", "independent"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "seed=-1"),
        (["--dim", "0"], "dim"),
        (["--projection", "foo"], "projection"),
        (["--std", "0"], "std"),
        (["--mean", "0.5", "0.5"], "mean"),
        (["--backbone-options.filters", "1"], "filters"),
        (["--backbone-options.filtres", "8"], "Did you mean 'filters'?"),
        (["--backbone", "resnet81"], "Did you mean 'resnet18'?"),
        (["--head", "softmx"], "Did you mean 'softmax'?"),
        (["--recipe.momentum", "-1"], "momentum=-1"),
        (["--recipe.clip-norm", "-1"], "clip_norm=-1"),
        (["--recipe.schedule", "steps"], "milestones"),
        (["--recipe.batch-size", "1"], "batch_size=1"),
        (["--recipe.accelerator", "foo"], "accelerator 'foo'"),
        (["--data-options.image-size", "big"], "image_size"),
        (["--data-options.image-size", "32x"], "or height and width, such as 256x128 or [256, 128]"),
        (["--data-options.image-size", "32x4"], "image_size = 32x4. Expected: at least 8 pixels"),
        (["--centre-crop", "half"], "'centre_crop' of the encoder is 'half'. Expected: pixels per side, such as 224;"),
        (["--data-options.image-size", "32x16", "--centre-crop", "20"], "at most the image_size, 32x16"),
        (["--data-options.image_sise", "32"], "Did you mean 'image_size'?"),
        (["--data-options.seed", "-1"], "seed"),
        (["--scenario", "extended-klass"], "Did you mean 'extended-class'?"),
        (["--scenario", "extended-class", "--scenario-options.old-fraction", "abc"], "old_fraction"),
        (["--scenario", "extended-class", "--scenario-options.foo", "1"], "foo"),
        (["--freeze-backbone"], "stay random"),
        (["--method"], "--method requires"),
        (["--method", "independent", "independent"], "each method once"),
        (["--method-options", "["], "--method-options"),
    ],
)
def test_impossible_settings(fails: Fails, made: Path, tmp_path, words: list[str], message: str) -> None:
    given = ["train", "--data", made / "photos", "--out", tmp_path / "out", *words]
    said = fails(*given, *([] if "--method" in words else ["--method", "independent"]))
    assert message in said and not (tmp_path / "out" / "config.json").exists()


def test_a_setting_where_settings_are_expected(fails: Fails, made: Path, tmp_path) -> None:
    (tmp_path / "run.toml").write_text("[train]\nrecipe = 3\n")
    said = fails(*TRAIN, "--config", tmp_path / "run.toml", "--data", made / "photos", "--out", tmp_path / "out")
    assert "recipe" in said


def test_refused_settings_do_not_replace_those_of_the_run(fails: Fails, copied: Path) -> None:
    before = (copied / "runs" / "train.toml").read_bytes()
    said = fails("train", "--config", copied / "runs" / "train.toml", "--recipe.learning-rate", "0.5")
    assert "other settings" in said and (copied / "runs" / "train.toml").read_bytes() == before


def test_output_below_a_file(fails: Fails, made: Path, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    said = fails(*TRAIN, "--data", made / "photos", "--out", tmp_path / "file" / "x")
    assert "Could not write" in said and "Next:" in said


def test_independent_does_not_take_an_old_model(fails: Fails, made: Path, tmp_path) -> None:
    said = fails(*TRAIN, "--data", made / "photos", "--old", made / "runs" / "old", "--out", tmp_path / "out")
    assert "does not use" in said


def test_images_of_another_shape_than_the_release(fails: Fails, made: Path, tmp_path) -> None:
    said = fails("embed", "images", made / "photos", "--model", f'release:{made / "runs" / "old"}', "--out", tmp_path,
                 "--data-options.image-size", "48")  # fmt: skip
    assert "(3, 48, 48)" in said and "trained on (3, 32, 32)" in said


def test_a_device_that_is_not_there(fails: Fails, made: Path, tmp_path) -> None:
    said = fails("embed", "images", made / "photos", "--model", f'release:{made / "runs" / "old"}', "--out", tmp_path,
                 "--device", "nonsense")  # fmt: skip
    assert "The device 'nonsense' cannot be used" in said


def test_too_little_memory_is_said_plainly(tmp_path: Path) -> None:
    """An archive whose list claims 4 GiB of labels, opened by a process that gets 2 more."""
    vectors, labels, path = io.BytesIO(), io.BytesIO(), tmp_path / "v.npz"
    np.save(vectors, np.ones((3, 4), np.float32))
    npy.write_array_header_1_0(labels, {"descr": "<i8", "fortran_order": False, "shape": (2**29 - 1000,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", vectors.getvalue())
        archive.writestr("labels.npy", labels.getvalue())
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, content.rindex(b"labels.npy") - 22, 2**32 - 2)  # its size, in the archive's list
    path.write_bytes(content)
    code = textwrap.dedent(f"""
        import resource, sys
        import limpet.cli.evaluate, limpet.evaluation.evaluate, limpet.embeddings.storage
        from pathlib import Path
        from limpet.cli import main
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**31, taken + 2**31))
        sys.exit(main(["evaluate", "--old", {str(path)!r}, "--new", {str(path)!r}, "--out", "out", "--json"]))
    """)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 2 and "There is not enough memory for this: Unable to allocate" in ended.stderr
    assert "is intact" in ended.stderr and "Traceback" not in ended.stderr
    assert "not enough memory" in json.loads(ended.stdout)["error"]["given"]
