"""What commands do in a Python without the extras: every number and verdict, no page, no torch, and what to install."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bare_python import Done, run_without
from limpet.cli.program import LIMPET
from limpet.support.extras import EXTRAS, extra_of, installing

from ..bench.writing import write_suite

CORE = {"numpy", "scipy", "threadpoolctl", "safetensors", "pydantic", "annotated-types", "filelock", "PyYAML",
        "cyclopts", "tomli-w", "rich", "pyarrow"}  # fmt: skip
DRAWN_BY_OTHERS = {"markupsafe", "lightning", "lightning_utilities", "sympy", "lancedb", "datasets", "pandas"}
"""What the packages of extras bring with them, and a base installation does not have."""
ROOT = Path(__file__).parents[2]
ITEMS, CLASSES = 120, 12


def without_extras(
    script: Path, *commands: list[Any], present: tuple[str, ...] = ("train", "gallery"), code: str = ""
) -> list[Done]:
    """Run code, then commands one after another, in a new Python that finds no package but those of some extras."""
    absent = {package for extra, packages in EXTRAS.items() if extra not in present for package in packages}
    absent |= set() if "train" in present else DRAWN_BY_OTHERS
    return run_without(absent, script, *commands, code=code)


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
        ["embed", "texts", tmp_path / "texts.txt", "--model", "openai:m@http://127.0.0.1:9", "--out", tmp_path],
    )
    assert api.code == 2 and "pip install '.[api]'" in api.said
    assert (better.code, worse.code, none.code, both.code) == (0, 1, 0, 0)
    for done, folder in ((better, "better"), (worse, "worse"), (both, "both")):
        assert json.loads((tmp_path / folder / "results.json").read_text())["schema_version"]
        assert not (tmp_path / folder / "report.html").exists()
        assert "pip install '.[report]'" in done.said and "results  " in done.said
    assert "self (old)" in better.said and "compatible" in better.said and "Next: " in better.said
    assert json.loads(none.out)["verdict"] == "compatible"
    assert "report" not in none.said.splitlines()[-1] and ".[report]" not in none.said
    assert asked.code == 2 and "--report html was given" in asked.said and not (tmp_path / "asked").exists()


@pytest.mark.slow
def test_what_other_commands_computed_is_there_too(files: Path, made: Path, tmp_path: Path) -> None:
    old, new, named = files / "old.npz", files / "new.npz", ["--old-name", "a", "--new-name", "b"]
    suite = {
        "title": "Small",
        "data": {str(made / "photos"): {"image_size": 8}},
        "scenarios": {"extended-class": {"old_fraction": 0.5}},
        "methods": {"p2s": {}, "l2": {}},
        "model": {"dim": 4, "image_size": 8, "backbone_options": {"filters": 2}},
        "recipe": {"epochs": 1, "batch_size": 8},
    }
    write_suite(tmp_path / "small.py", suite)
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
        ["limpet-bench", "sessions", "disjoint", "--data", made / "photos", *sessions, *fast,
         "--out", tmp_path / "sessions"],
        ["limpet-bench", "run", tmp_path / "small.py", *cells, "--out", tmp_path / "board"],
        ["evaluate", "--old", old, "--new", new, *named, *quick, "--out", evidence],
        ["gallery", "create", live, "--embeddings", old, "--name", "a"],
        ["upgrade", "rehearse", live, "--model", new, "--name", "b", "--evidence", evidence,
         "--sample", 60, "--out", tmp_path / "rehearsal"],
    )  # fmt: skip
    chain, adapted, in_sessions, bench, *_, rehearsed = done
    assert [one.code for one in done if one not in (adapted, rehearsed)] == [0] * 5, done
    assert adapted.code in (0, 1) and rehearsed.code in (0, 1)
    for one in (chain, adapted, in_sessions, bench, rehearsed):
        assert "pip install '.[report]'" in one.said and "results  " in one.said
    for folder in ("chain", "link", "sessions", "board"):
        assert json.loads((tmp_path / folder / "results.json").read_text())
    assert json.loads((tmp_path / "rehearsal" / "rehearsal.json").read_text())["verdict"]
    assert "saved    " in adapted.said or adapted.code == 1
    assert not list(tmp_path.rglob("*.html"))


PYTHON = """
import limpet
from limpet.errors import MissingExtraError
from limpet.support.extras import needing

assert limpet.Adapter and limpet.Gallery and limpet.EmbeddingSet and limpet.evaluate and list(limpet.METHODS)
for name in ("fit", "encode", "Release", "CompatibilityLoss", "train_release", "load_release"):
    try:
        getattr(limpet, name)
    except MissingExtraError as error:
        assert isinstance(error, ImportError) and "pip install '.[train]'" in str(error), error
        assert f"limpet.{name} needs torch" in str(error), error
    else:
        raise AssertionError(name)
try:
    with needing("This"):
        import of_nobody
except MissingExtraError:
    raise
except ModuleNotFoundError:
    pass
"""


def test_without_torch_and_lance_vectors_are_evaluated_mapped_and_kept(
    files: Path, tmp_path: Path, postgres_url: str
) -> None:
    old, new, named = files / "old.npz", files / "new.npz", ["--old-name", "a", "--new-name", "b"]
    quick, held, report = ["--resamples", 100], tmp_path / "held", tmp_path / "evidence"
    link = f"adapter:{tmp_path / 'link' / 'adapter'}"
    at, made = [f"memory:{held}"], ["--model", new, "--name", "b"]
    database = [postgres_url]
    works: list[list[Any]] = [
        ["--help"], ["methods"], ["methods", "bct"], ["data"], ["data", "list"], ["data", "glyphs"],
        *([command, "--help"] for command in LIMPET.summaries if command != "completion"),
        ["evaluate", "--old", old, "--new", new, *named, *quick, "--out", report],
        ["evaluate", "chain", old, new, *quick, "--out", tmp_path / "chain"],
        ["adapt", "--old", old, "--new", new, *named, *quick, "--out", tmp_path / "link"],
        ["embed", "stored", new, "--name", "b", "--model", link, "--out", tmp_path / "on"],
        ["export", link, "--to", "npz", "--out", tmp_path / "served"],
        ["gallery", "create", *at, "--embeddings", old, "--name", "a"],
        ["gallery", "search", *at, "--queries", old, "--name", "a", "--k", 2],
        ["upgrade", "rehearse", *at, *made, "--evidence", report, "--sample", 60, "--out", tmp_path / "rehearsal"],
        ["upgrade", "start", *at, "--name", "b", "--dim", 8, "--evidence", report],
        ["upgrade", "plan", *at, *made],
        ["upgrade", "swap", *at],
        ["upgrade", "backfill", *at, *made],
        ["upgrade", "finish", *at],
        ["doctor", *at],
        ["gallery", "create", *database, "--embeddings", old, "--name", "a"],
        ["gallery", "search", *database, "--queries", old, "--name", "a", "--k", 2],
        ["doctor", *database],
    ]  # fmt: skip
    refused: dict[str, list[Any]] = {
        "needs torch": ["train", "--data", files, "--method", "independent", "--out", tmp_path / "no"],
        "needs torch and altair and pylance and matplotlib": ["demo", "--out", tmp_path / "no"],
        "kind 'lance' need pylance": ["gallery", "create", tmp_path / "no", "--embeddings", old, "--name", "a"],
        "'residual_mlp' needs torch": ["adapt", "--old", old, "--new", new, "--adapter", "residual_mlp", "--out", "no"],
        "method 'p2s' needs torch": ["adapt", "--old", old, "--new", new, "--method", "p2s", "--out", tmp_path / "no"],
        "embed`": ["embed", "images", files, "--model", "release:R", "--out", tmp_path / "no"],
    }  # fmt: skip
    done = without_extras(tmp_path / "run.py", *works, *refused.values(), present=("pgvector",), code=PYTHON)
    for words, one in zip(works, done, strict=False):
        verdict = words[0] == "adapt" or words[1:2] == ["rehearse"]
        assert one.code in ((0, 1) if verdict else (0,)), (words, one)
    told = dict(zip(refused, done[len(works) :], strict=True))
    for words, one in told.items():
        extra = "gallery" if "lance'" in words else "train,report,gallery,demo" if "matplotlib" in words else "train"
        assert one.code == 2 and words in one.said and installing(*extra.split(",")) in one.said, (words, one)
    assert not (tmp_path / "no").exists()
    adapted = done[works.index(next(one for one in works if one[0] == "adapt" and "--old" in one))]
    assert "Not compared: residual_mlp, heads. They require an extra: pip install '.[train]'" in adapted.said
    assert json.loads((report / "results.json").read_text())["versions"].keys() >= {"python", "numpy"}


def test_every_dependency_of_an_extra_is_known_by_the_name_it_is_imported_by() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {re.split(r"[\[<>=~! ]", one)[0] for one in needed}
        for extra, needed in project["optional-dependencies"].items()
    }
    core = {re.split(r"[\[<>=~! ]", one)[0] for one in project["dependencies"]}
    assert core == CORE
    assert declared.keys() - {"all", "docs", "dev"} == EXTRAS.keys()
    everything = re.search(r"\[(.*)\]", project["optional-dependencies"]["all"][0])
    assert everything is not None and set(everything[1].split(",")) == EXTRAS.keys() - {"mlflow", "wandb"}
    by_package = packages_distributions()
    for extra, packages in EXTRAS.items():
        for package in packages:
            names = {name.lower() for name in by_package.get(package, [package])}
            assert names & {name.lower() for name in declared[str(extra_of(package))]}, (extra, package)


@pytest.mark.parametrize(
    "module", ["training.loop", "training.train", "training.encode", "methods.base", "models.release"]
)
def test_a_module_that_needs_torch_names_the_extra(module: str, tmp_path: Path) -> None:
    code = f"""
import importlib, limpet
from limpet.errors import MissingExtraError
for told, use in (("limpet.{module}", lambda: importlib.import_module("limpet.{module}")),
                  ("limpet.fit", lambda: limpet.fit)):
    try:
        use()
    except MissingExtraError as error:
        assert str(error).startswith(told + " needs torch") and "'.[train]'" in str(error), error
    else:
        raise AssertionError(told)
"""
    without_extras(tmp_path / "run.py", present=(), code=code)
