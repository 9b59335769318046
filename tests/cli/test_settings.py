"""Settings of limpet.toml, of --config and of the environment."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main, settings

Fails = Callable[..., str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """old.npz and new.npz in the working folder, whose parent may have a limpet.toml."""
    rng, here = np.random.default_rng(0), tmp_path / "project" / "work"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    for name in ("old", "new"):
        vectors = rng.normal(size=(60, 8)).astype(np.float32)
        np.savez(f"{name}.npz", ids=np.arange(60).astype(str), labels=np.arange(60) % 6, vectors=vectors)
    return here


def evaluated(*words: str) -> dict[str, object]:
    """Evaluate, and return the settings that were written."""
    assert main(["evaluate", "--out", "out", "--report", "none", *words]) in (0, 1)
    return dict(tomllib.loads(Path("out/evaluate.toml").read_text())["evaluate"])


FILES = ("--old", "old.npz", "--new", "new.npz")


def test_the_nearest_file_counts_and_words_and_the_environment_override_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent.parent / "limpet.toml").write_text("[evaluate]\nseed = 1\n")
    assert evaluated(*FILES, "--resamples", "50")["seed"] == 1
    (folder.parent / "limpet.toml").write_text('[evaluate]\nseed = 2\nresamples = 60\nold = "old.npz"\n')
    found = evaluated("--new", "new.npz")
    assert (found["seed"], found["resamples"], found["old"]) == (2, 60, ["old.npz"])
    monkeypatch.setenv("LIMPET_EVALUATE_SEED", "3")
    assert evaluated("--new", "new.npz")["seed"] == 3
    assert evaluated("--new", "new.npz", "--seed", "4")["seed"] == 4


def test_data_root_of_a_file_counts_where_the_environment_has_none(
    folder: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "limpet.toml").write_text('data-root = "of-file"\n')
    monkeypatch.delenv("LIMPET_DATA", raising=False)
    assert "of-file/omniglot" in fails("data", "check", "omniglot")
    monkeypatch.setenv("LIMPET_DATA", "of-environment")
    assert "of-environment/omniglot" in fails("data", "check", "omniglot")
    (folder / "limpet.toml").write_text("data-root = 1\n")
    assert "'data-root'" in fails("data", "check", "omniglot")


def test_what_a_command_wrote_repeats_it(folder: Path) -> None:
    first = evaluated(*FILES, "--resamples", "50", "--protocol-options.leave-one-out", "true")
    assert first["protocol-options"] == {"leave_one_out": True}
    assert main(["evaluate", "--config", "out/evaluate.toml", "--out", "again"]) in (0, 1)
    again = tomllib.loads(Path("again/evaluate.toml").read_text())["evaluate"]
    assert again == {**first, "out": "again"}
    results = [json.loads(Path(out, "results.json").read_text()) for out in ("out", "again")]
    assert results[0]["evaluations"] == results[1]["evaluations"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[evaluate]\nsead = 1", "[sead]"),
        ("[evalute]\nseed = 1", "Did you mean 'evaluate'?"),
        ("evaluate = 1", "a table"),
        ("seed = ", "is no TOML"),
        ("[evaluate]\nseed = 'x'", "seed"),
        ("[evaluate]\nold = 'postgresql://me:s3cret@host/db?table=a'", "in the environment"),
        ("[evaluate]\nold = 'postgresql://me@host/db?table=a'", "LIMPET_API_HOSTS"),
        ("[embed.images]\nmodel = ['here.py:make']", "names code"),
    ],
)
def test_files_that_are_refused(text: str, said: str, folder: Path, fails: Fails) -> None:
    (folder / "limpet.toml").write_text(text)
    told = fails("evaluate", *FILES)
    assert said in told and "s3cret" not in told


def test_a_file_of_another_user_is_refused(folder: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "limpet.toml").write_text("")
    monkeypatch.setattr(settings, "owners", lambda: {os.getuid() + 1})
    assert "another user" in fails("evaluate", *FILES)


def test_files_that_cannot_be_read(folder: Path, fails: Fails) -> None:
    assert "Cannot read" in fails("evaluate", *FILES, "--config", "nowhere.toml")
    os.mkfifo(folder / "pipe.toml")
    assert "pipe.toml" in fails("evaluate", *FILES, "--config", "pipe.toml")
