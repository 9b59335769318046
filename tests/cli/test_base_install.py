"""What the commands do in a Python that has none of the extras: every number, every verdict, and no page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

EXTRAS = ("jinja2", "markupsafe", "matplotlib", "transformers", "sentence_transformers", "tokenizers", "tensorboard",
          "huggingface_hub", "pytorch_metric_learning", "psycopg", "pgvector", "httpx", "tenacity",
          "onnx", "onnxruntime", "onnxscript")  # fmt: skip
RUNNER = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

if __name__ == "__main__":
    EXTRAS, commands = json.loads(sys.argv[1])
    sys.meta_path.insert(0, Absent())
    from holdfast.cli import console, main
    done = []
    for words in commands:
        out, console.console.file = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(words)
        done.append([code, out.getvalue(), console.console.file.getvalue()])
    print(json.dumps(done))
"""
ITEMS, CLASSES = 120, 12


class Done(NamedTuple):
    code: int
    out: str
    said: str


def without_extras(script: Path, *commands: list[Any]) -> list[Done]:
    """Run commands one after another in a new Python that finds no package of an extra."""
    script.write_text(RUNNER)
    words = json.dumps([EXTRAS, [[*map(str, command)] for command in commands]])
    ended = subprocess.run([sys.executable, str(script), words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [Done(*one) for one in json.loads(ended.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """old.npz and new.npz, which can search it; with ids and labels."""
    folder, rng = tmp_path_factory.mktemp("base"), np.random.default_rng(0)
    labels = np.arange(ITEMS) % CLASSES
    centres, own = rng.normal(size=(CLASSES, 8))[labels], rng.normal(size=(ITEMS, 8))
    for name, noise in (("old", 1.4), ("new", 0.6)):
        vectors = (centres + noise * own + 0.2 * rng.normal(size=own.shape)).astype(np.float32)
        np.savez(folder / f"{name}.npz", vectors=vectors, labels=labels, ids=np.array([f"i{n}" for n in range(ITEMS)]))
    return folder


def test_an_evaluation_keeps_its_verdict_its_numbers_and_its_exit_code(files: Path, tmp_path: Path) -> None:
    old, new, quick = files / "old.npz", files / "new.npz", ["--resamples", 100]
    command = ["evaluate", "--old", old, "--new", new, *quick, "--out"]
    (tmp_path / "texts.txt").write_text("red shoes\n")
    better, worse, none, asked, both, api = without_extras(
        tmp_path / "run.py",
        [*command, tmp_path / "better"],
        ["evaluate", "--old", new, "--new", old, *quick, "--out", tmp_path / "worse"],
        [*command, tmp_path / "none", "--report", "none", "--json"],
        [*command, tmp_path / "asked", "--report", "html"],
        ["evaluate", "combine", tmp_path / "better", tmp_path / "none", "--out", tmp_path / "both"],
        ["embed", "texts", tmp_path / "texts.txt", "--text-model", "openai:m@http://127.0.0.1:9", "--out", tmp_path],
    )
    assert api.code == 2 and "pip install 'holdfast[api]'" in api.said
    assert (better.code, worse.code, none.code, both.code) == (0, 1, 0, 0)
    for done, folder in ((better, "better"), (worse, "worse"), (both, "both")):
        assert json.loads((tmp_path / folder / "results.json").read_text())["schema_version"]
        assert not (tmp_path / folder / "report.html").exists()
        assert "pip install 'holdfast[report]'" in done.said and "results  " in done.said
    assert "self (old)" in better.said and "compatible" in better.said and "Next: " in better.said
    assert json.loads(none.out)["verdict"] == "compatible"
    assert "report" not in none.said.splitlines()[-1] and "holdfast[report]" not in none.said
    assert asked.code == 2 and "--report html was given" in asked.said and not (tmp_path / "asked").exists()


def test_what_other_commands_computed_is_there_too(files: Path, made: Path, tmp_path: Path) -> None:
    old, new, named = files / "old.npz", files / "new.npz", ["--old-model", "a", "--new-model", "b"]
    suite = {
        "title": "Small",
        "data": {str(made / "photos"): {"image_size": 8}},
        "scenarios": {"extended-class": {"old_fraction": 0.5}},
        "methods": {"p2s": {}, "l2": {}},
        "model": {"dim": 4, "image_size": 8, "backbone_options": {"filters": 2}},
        "recipe": {"epochs": 1, "batch_size": 8},
    }
    (tmp_path / "small.yaml").write_text(json.dumps(suite))  # JSON is YAML
    sessions = [
        "--plan-options.sessions",
        2,
        "--plan-options.validation",
        1,
        "--test-images",
        2,
        "--method",
        "finetune",
    ]
    fast = ["--recipe.epochs", 1, "--recipe.batch-size", 8, "--backbone-options.filters", 4, "--dim", 8]
    evidence, live, quick = tmp_path / "evidence", tmp_path / "live", ["--resamples", 100]
    cells = ["--cache", tmp_path / "cells", "--processes", 1]
    done = without_extras(
        tmp_path / "run.py",
        ["evaluate", "chain", old, new, *quick, "--out", tmp_path / "chain"],
        ["adapt", "--old", old, "--new", new, *named, "--adapter", "ridge", *quick, "--out", tmp_path / "link"],
        ["sessions", "disjoint", "--data", made / "photos", *sessions, *fast, "--out", tmp_path / "sessions"],
        ["bench", tmp_path / "small.yaml", *cells, "--out", tmp_path / "board"],
        ["evaluate", "--old", old, "--new", new, *named, *quick, "--out", evidence],
        ["gallery", "create", "--gallery", live, "--embeddings", old, "--model", "a"],
        ["gallery", "rehearse", "--gallery", live, "--vectors", new, "--model", "b", "--report", evidence,
         "--sample", 60, "--out", tmp_path / "rehearsal"],
    )  # fmt: skip
    chain, adapted, in_sessions, bench, *_, rehearsed = done
    assert [one.code for one in done if one not in (adapted, rehearsed)] == [0] * 5, done
    assert adapted.code in (0, 1) and rehearsed.code in (0, 1)
    for one in (chain, adapted, in_sessions, bench, rehearsed):
        assert "pip install 'holdfast[report]'" in one.said and "results  " in one.said
    for folder in ("chain", "link", "sessions", "board"):
        assert json.loads((tmp_path / folder / "results.json").read_text())
    assert json.loads((tmp_path / "rehearsal" / "rehearsal.json").read_text())["verdict"]
    assert "saved    " in adapted.said or adapted.code == 1
    assert not list(tmp_path.rglob("*.html"))
