"""Addresses: what decides a task changes its address and those that hang on it; nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import limpet
from limpet_bench import tasks
from limpet_bench.sources import _digest, _images, _searched
from limpet_bench.suite import Suite
from limpet_bench.tasks import COMPUTING, MODULES, OWN, Planner, Task, code_version, in_order

from .writing import suite_of


def tasks_of(suite: Suite) -> dict[str, str]:
    """Return the addresses of a suite by what people call the tasks."""
    rows = Planner(suite, None).rows()
    return {task.label: task.address for task in in_order(row.score for row in rows)}


def changed_by(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Return the first words of the labels whose addresses differ: what is done, or which model is trained."""
    assert before.keys() == after.keys()
    return {" ".join(label.split(" (")[0].split()) for label in before if before[label] != after[label]}


ALL = {"old", "independent", "p2s", "l2"}
EVERYTHING = ALL | {f"embed {name}" for name in ALL} | {"score p2s", "score l2"}


def of_model(*names: str) -> set[str]:
    return {f"{what}{name}" for name in names for what in ("", "embed ")}


PUBLISHED = {"data": "glyphs", "scenario": "extended-class", "label": "p2s", "metric": "map"}
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "an option of one method": (
        {"methods": {"p2s": {"options": {"weight": 2.0}}, "l2": {}}}, of_model("p2s") | {"score p2s"}
    ),
    "the default of an option, written down": ({"methods": {"p2s": {"options": {"weight": 1.0}}, "l2": {}}}, set()),
    "the recipe of one row": (
        {"methods": {"p2s": {}, "l2": {"recipe": {"epochs": 2}}}}, of_model("l2") | {"score l2"}
    ),
    "the old model": (
        {"old": {"recipe": {"epochs": 2}}}, of_model("old", "p2s", "l2") | {"score p2s", "score l2"}
    ),
    "what is measured": ({"metrics": ["recall@5"]}, {"score p2s", "score l2"}),
    "the share that the old model sees": (
        {"scenarios": {"extended-class": {"old_fraction": 0.5}}}, EVERYTHING - of_model("independent")
    ),
    "words for people": ({"title": "Other", "description": "Other", "published": [PUBLISHED]}, set()),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_reaches_the_tasks_that_hang_on_it_and_no_others(what, small) -> None:
    parts, expected = CHANGES[what]
    assert changed_by(tasks_of(small()), tasks_of(small(**parts))) == expected


def test_another_seed_shares_no_task_and_another_row_shares_all_it_can(small) -> None:
    one, two, more = (
        set(tasks_of(small(**parts)).values())
        for parts in ({}, {"seeds": [1]}, {"methods": {"p2s": {}, "l2": {}, "bct": {}}})
    )
    assert not one & two and one < more and len(more - one) == 3


def test_a_row_with_another_name_is_the_same_cells(small) -> None:
    renamed = small(methods={"ours": {"method": "p2s"}, "l2": {}})
    assert set(tasks_of(renamed).values()) == set(tasks_of(small()).values())


def test_the_order_of_settings_and_what_people_call_a_task_do_not_matter() -> None:
    needed, other = Task("a", {"x": 1}), Task("a", {"x": 2})
    one = Task("b", {"x": 1, "y": {"p": 1, "q": [1, 2]}}, {"left": needed, "right": other}, work=3.0, label="one")
    two = Task("b", {"y": {"q": [1, 2], "p": 1}, "x": 1}, {"right": other, "left": needed}, work=4.0, label="two")
    assert one.address == two.address and len(one.address) == 64


@pytest.mark.parametrize(
    "other",
    [
        Task("c", {"x": 1}, {"left": Task("a", {})}),
        Task("b", {"x": 2}, {"left": Task("a", {})}),
        Task("b", {"x": "1"}, {"left": Task("a", {})}),
        Task("b", {"x": 1}, {"right": Task("a", {})}),
        Task("b", {"x": 1}, {"left": Task("a", {"deep": Task("z", {}).address})}),
        Task("b", {"x": 1}, {"left": Task("a", {}, {"deep": Task("z", {})})}),
        Task("b", {"x": 1}),
    ],
)
def test_kind_settings_roles_and_needs_however_deep_decide_the_address(other) -> None:
    assert Task("b", {"x": 1}, {"left": Task("a", {})}).address != other.address


def test_the_code_is_part_of_every_address(monkeypatch) -> None:
    before = Task("a", {}).address
    monkeypatch.setattr("limpet_bench.tasks.code_version", lambda: "0" * 16)
    assert Task("a", {}).address != before


def test_the_code_that_computes_tasks_counts_and_that_of_pages_does_not(monkeypatch, tmp_path) -> None:
    own = [f"bench/{name}" for name in (*MODULES, "sessions/plans.py")]
    computing = ["methods/p2s.py", "losses/inner/contrast.py", *own]
    pages = ["reports/page.py", "cli/data.py", "bench/ranking.py", "bench/cli/bench.py"]
    for module in (*computing, *pages):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).write_text("KNOWN = 1\n")
    monkeypatch.setattr(limpet, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(tasks, "__file__", str(tmp_path / "bench" / "tasks.py"))
    version: Callable[[], str] = code_version.__wrapped__
    for module in (*computing, *pages):
        before = version()
        (tmp_path / module).write_text("KNOWN = 2\n")
        assert (version() != before) == (module in computing), module


def test_the_modules_that_count_are_there() -> None:
    root, own = Path(limpet.__file__).parent, Path(tasks.__file__).parent
    assert all((root / package).is_dir() for package in COMPUTING)
    assert all((own / package).is_dir() for package in OWN)
    assert all((own / name).is_file() for name in MODULES)


PARTS = {
    "train": EVERYTHING,
    "query": {f"embed {name}" for name in ALL} | {"score p2s", "score l2"},
    "gallery": {f"embed {name}" for name in ALL} | {"score p2s", "score l2"},
    "val": set(),
}


@pytest.mark.parametrize("part", PARTS)
def test_other_images_change_what_reads_them(part, small, content, own_images) -> None:
    suite = suite_of(content(own_images))
    before = tasks_of(suite)
    path = next((own_images / part).rglob("*.png"))
    with Image.open(path) as image:
        image.point(lambda value: 255 - value).save(path)
    _images.cache_clear(), _digest.cache_clear(), _searched.cache_clear()  # as another process would find it
    assert changed_by(before, tasks_of(suite)) == PARTS[part]


def test_every_task_comes_once_and_after_those_it_needs() -> None:
    base = Task("a", {"x": 0})
    left, right = Task("b", {}, {"one": base}), Task("c", {}, {"one": Task("a", {"x": 0})})
    top = Task("d", {}, {"left": left, "right": right})
    assert [task.kind for task in in_order([top, right, base])] == ["a", "b", "c", "d"]
