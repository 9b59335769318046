"""A method of another package: found when it is installed, run as all others, and its code counts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import main
from limpet.data.datasets import DATASETS
from limpet.data.texts import TEXT_DATASETS
from limpet.evaluation.metrics import METRICS
from limpet.evaluation.protocols import PROTOCOLS
from limpet.methods import METHODS
from limpet.models.heads import HEADS
from limpet.registry import Registry
from limpet.support.source_code import version_of
from limpet_bench.cache import TaskCache
from limpet_bench.run import Bench
from limpet_bench.tasks import Planner, Task, code_version, in_order

PACKAGE = Path(__file__).parents[2] / "examples" / "own_method"


def install(package: Path, folder: Path) -> None:
    """Put modules and metadata where an installer puts them."""
    project = tomllib.loads((package / "pyproject.toml").read_text())
    for name in project["tool"]["setuptools"]["py-modules"]:
        shutil.copy(package / f"{name}.py", folder)
    name, version = project["project"]["name"].replace("-", "_"), project["project"]["version"]
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["project"]["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in names.items()) for group, names in groups]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the example is installed in; forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    install(PACKAGE, folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    del METHODS["class_pull"]
    sys.modules.pop("own_method", None)


def tasks_of(suite: Any) -> dict[str, Task]:
    """Return all tasks of a suite by what people call them."""
    rows = Planner(suite, None).rows()
    return {task.label: task for task in in_order(row.score for row in rows)}


def test_it_is_listed_and_explained_beside_those_of_limpet(installed, capsys) -> None:
    assert "class_pull" not in [*METHODS]
    assert main(["methods", "class_pull", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["methods"]["class_pull"]
    assert found["options"] == {"weight": 5.0, "slack": 0.0} and "mean point of their class" in found["paper"]


def test_it_keeps_what_all_methods_promise(installed, capsys) -> None:
    assert main(["methods", "check", "class_pull"]) == 0, capsys.readouterr().err


def test_a_suite_runs_it_and_its_pull_brings_new_queries_closer_to_the_old_gallery(installed, small, tmp_path) -> None:
    methods = {"class_pull": {}, "no pull": {"method": "class_pull", "options": {"weight": 0}}}
    suite = small(methods=methods, recipe={"epochs": 4, "batch_size": 8, "learning_rate": 0.05})
    rows = Bench(TaskCache(tmp_path / "tasks")).run(suite).rows
    assert [row.failure for row in rows] == [None, None]
    assert [row.options for row in rows] == [{"weight": 5.0, "slack": 0.0}, {"weight": 0, "slack": 0.0}]
    assert rows[0].scores["cross"] > rows[1].scores["cross"]


def test_a_changed_line_of_it_changes_its_own_tasks_and_no_other(installed, small) -> None:
    suite = small(methods={"class_pull": {}, "p2s": {}})
    before, own = tasks_of(suite), installed / "own_method.py"
    code = own.read_text()
    own.write_text(code.replace(".sum()", ".square().sum()"))
    after = tasks_of(suite)
    changed = {label for label in before if before[label].address != after[label].address}
    assert changed == {label for label in before if "class_pull" in label} and len(changed) == 3
    own.write_text("# a comment\n" + code.replace("Average the old points by class.", "Average old points."))
    assert {label: task.address for label, task in tasks_of(suite).items()} == {
        label: task.address for label, task in before.items()
    }


def test_the_code_of_a_package_counts_as_a_whole(tmp_path, monkeypatch) -> None:
    package = tmp_path / "many_files"
    package.mkdir()
    (package / "__init__.py").write_text("from many_files.inner import Method\n")
    (package / "inner.py").write_text("class Method:\n    pass\n")
    (package / "helper.py").write_text("FACTOR = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    from many_files import Method

    before = version_of(Method)
    (package / "helper.py").write_text("FACTOR = 2\n")
    assert version_of(Method) != before
    assert version_of(METHODS["p2s"]) == "" != code_version()
    sys.modules.pop("many_files", None)
    sys.modules.pop("many_files.inner", None)


def test_the_code_of_heads_metrics_and_protocols_of_other_packages_counts(small, images, tmp_path, monkeypatch) -> None:
    code = (
        "from limpet.evaluation.protocols import ByLabel\nfrom limpet.models.heads import SoftmaxHead\n"
        "class Head(SoftmaxHead):\n    pass\nclass Mine(ByLabel):\n    name = 'theirs'\n"
        "def first(ranked):\n    return ranked.relevant * 1.0\n"
    )
    for module in ("their_head", "their_metric", "their_protocol"):
        (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(HEADS, "theirs", import_module("their_head").Head)
    monkeypatch.setitem(METRICS, "theirs", import_module("their_metric").first)
    monkeypatch.setitem(PROTOCOLS, "theirs", import_module("their_protocol").Mine)
    own = {"data": str(images), "options": {"image_size": 16, "channels": 1}}
    searched = {**own, "protocol": "theirs", "metrics": ["map", "theirs"]}
    suite = small(methods={"p2s": {"head": "theirs"}}, test_sets={"own": searched})
    before = {label: task.address for label, task in tasks_of(suite).items()}
    for module, mark in {"their_head": "p2s (", "their_metric": "score", "their_protocol": "score"}.items():
        (tmp_path / f"{module}.py").write_text(code + "MORE = 1\n")
        after = {label: task.address for label, task in tasks_of(suite).items()}
        assert any(before[label] != after[label] for label in before if label.startswith(mark)), module
        (tmp_path / f"{module}.py").write_text(code)


def test_two_packages_cannot_share_a_name(installed, small) -> None:
    from limpet.errors import ConfigError

    entry = next(installed.glob("*.dist-info")) / "entry_points.txt"
    entry.write_text("[limpet.methods]\np2s = own_method:ClassPull\n")
    with pytest.raises(ConfigError, match="'p2s' \\(own_method:ClassPull\\) has the name of another one"):
        small(methods={"p2s": {}})


@pytest.mark.slow
def test_an_installer_makes_the_same_of_it(tmp_path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(tmp_path / "site")]
    pip = [sys.executable, "-m", "pip", "install", *options, str(tmp_path / "source")]
    subprocess.run(pip, check=True, capture_output=True)
    by_hand = tmp_path / "by hand"
    by_hand.mkdir()
    install(PACKAGE, by_hand)
    for name in ("own_method.py", "limpet_own_method-0.1.0.dist-info/entry_points.txt"):
        assert (tmp_path / "site" / name).read_text().split() == (by_hand / name).read_text().split()


@pytest.mark.parametrize("registry", [DATASETS, TEXT_DATASETS, PROTOCOLS], ids=lambda one: one.group)
def test_limpet_knows_which_names_the_bench_brings(registry: Registry[Any]) -> None:
    text = (Path(__file__).parents[2] / "bench/pyproject.toml").read_text(encoding="utf-8")
    assert set(registry.in_bench) == {*tomllib.loads(text)["project"]["entry-points"][registry.group]}
