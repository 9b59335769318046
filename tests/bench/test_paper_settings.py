"""What the papers state of their training, and every suite of theirs: the same value, wherever the suite sets it.

A file of ``paper_settings`` has what a paper states, one value per entry:

    {what: batch size, where: "Section 5.1", setting: recipe.batch_size, value: 128, of: {old: false}}

- ``setting`` is a dotted name in what decides a run, defaults too (``recipe``, ``model``, ``options``, ``geometry``,
  ``head``, ``weights``, ...), or in ``data`` (options of the data set), ``condition`` (of the scenario or plan),
  ``test_sets`` (by name), ``budget`` (of sessions), ``search`` (of trials), or ``suite`` (what a suite says as a whole,
  such as ``suite.metrics``).
- ``suites`` are names or patterns: all full-size suites of the paper when left out, but those of ``but``.
- ``of`` narrows it to patterns of ``data``, ``scenario`` (or plan) and ``label``, and to old models or to new ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from limpet.data.datasets import DATASETS
from limpet.data.scenarios import SCENARIOS
from limpet.support.documents import read_yaml
from limpet.training.experiment import Experiment
from limpet_bench.sessions.plans import PLANS
from limpet_bench.suite import Run, Suite
from limpet_bench.suites import SUITES

from .shipped import EVERY
from .writing import suite_of

FOLDER = Path(__file__).parent / "paper_settings"


class Of(BaseModel):
    """Which runs of a suite a statement is about; all of them where nothing is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str | tuple[str, ...] = "*"
    scenario: str | tuple[str, ...] = "*"
    label: str | tuple[str, ...] | None = None
    old: bool | None = None


class Stated(BaseModel):
    """One value that a paper states."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    where: str
    setting: str
    value: Any
    suites: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    of: Of = Of()

    def suites_of(self, paper: str) -> list[str]:
        """Return the names of the suites that this is about."""
        own = [name for name in SUITES if name.startswith(f"{paper}-") and not is_small(name)]
        return [name for name in own if fits(name, self.suites or ("*",)) and not fits(name, self.but)]


def is_small(suite: str) -> bool:
    """Whether a suite is of another size than its paper's, and so free in its settings."""
    return suite.endswith("-small")


def fits(name: str, patterns: str | tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))


PAPERS = {
    path.stem: [Stated.model_validate(entry) for entry in read_yaml(path, "a mapping with a list 'stated'")["stated"]]
    for path in sorted(FOLDER.glob("*.yaml"))
}


def settings_of(suite: Suite, of: Of) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield who is meant, and all of its settings: rows and, where no label is asked, the reference and old models."""
    test_sets = {
        name: {**vars(asked), "options": with_defaults(DATASETS[asked.data or name].read, asked.options)}
        for name, asked in suite.test_sets.items()
    }
    seen: set[str] = set()
    for run in suite.runs:
        if not (fits(run.data.name, of.data) and fits(run.scenario.name, of.scenario)):
            continue
        around = {
            "data": with_defaults(DATASETS[run.data.name].read, run.data.options),
            "condition": condition_of(suite, run),
            "test_sets": test_sets,
            "suite": vars(suite),
        }
        found: dict[str, dict[str, Any]] = {}
        if not of.old and (of.label is None or fits(run.label, of.label)):
            found[run.label] = run.training.values(run.method, run.options)
        if of.label is None and suite.track == "images":
            found |= {} if of.old else {"None": run.reference.values()}
            found |= {} if of.old is False else {"old": run.before.values()}
        for label, values in found.items():
            who, own = f"{run.data.name}, {run.scenario.name}, {label}", {}
            if label == run.label:
                own = {"budget": run.budget, "search": {} if run.search is None else vars(run.search)}
            if who not in seen:
                seen.add(who)
                yield who, Experiment.from_settings(values).settings() | around | own


def with_defaults(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty} | dict(options)


def condition_of(suite: Suite, run: Run) -> dict[str, Any]:
    kind = run.scenario.kind
    if suite.track == "sessions":
        return with_defaults(PLANS[kind], run.scenario.options)
    scenario = SCENARIOS[kind]
    options = {"old_fraction": scenario.old_fraction, **run.scenario.options, "scenario": kind}
    return with_defaults(scenario.split, options)


def looked_up(values: Mapping[str, Any], name: str) -> Any:
    """Return a value by its dotted name."""
    found: Any = values
    for part in name.split("."):
        found = found[part]
    return found


def plain(value: Any) -> Any:
    """Return lists for tuples, as files have them."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


def differing(suite: Suite, stated: Stated) -> tuple[int, list[str]]:
    """Return how many runs a statement was compared with, and what is different, by run."""
    found = [(who, plain(looked_up(values, stated.setting))) for who, values in settings_of(suite, stated.of)]
    return len(found), [f"{suite.name}: {who}: {value!r}" for who, value in found if value != stated.value]


@pytest.mark.parametrize(
    ("paper", "stated"),
    [pytest.param(paper, one, id=f"{paper}, {one.what}") for paper, stated in PAPERS.items() for one in stated],
)
def test_suites_say_what_their_paper_states(paper: str, stated: Stated) -> None:
    names, compared = stated.suites_of(paper), 0
    assert names, f"no suite of '{paper}' fits {stated.suites}"
    for name in names:
        count, wrong = differing(EVERY[name], stated)
        compared += count
        assert not wrong, f"{stated.setting} is {stated.value!r} in {stated.where}; {'; '.join(wrong[:4])}"
    assert compared, f"no run fits {stated.of}"


@pytest.mark.parametrize("name", [name for name in SUITES if name.split("-")[0] in PAPERS and not is_small(name)])
def test_every_suite_of_a_paper_is_held_against_what_it_states(name: str) -> None:
    asked = {stated.setting for stated in PAPERS[name.split("-")[0]] if name in stated.suites_of(name.split("-")[0])}
    assert asked >= {
        f"recipe.{setting}" for setting in ("optimizer", "epochs", "learning_rate", "weight_decay", "schedule")
    }


def test_a_value_that_is_not_the_papers_is_found() -> None:
    suite = suite_of(
        {
            "name": "s",
            "title": "s",
            "data": {"omniglot": {"class_share": 0.5}},
            "methods": {"independent": {}, "p2s": {"options": {"weight": 2.0}}},
            "recipe": {"epochs": 3},
            "old": {"recipe": {"epochs": 2}},
            "test_sets": {"roxford": {"protocol": "revisited"}},
        }
    )

    def told(setting: str, value: Any, **of: Any) -> tuple[int, list[str]]:
        return differing(suite, Stated(what="w", where="p", setting=setting, value=value, of=Of(**of)))

    assert told("recipe.epochs", 3, old=False) == (3, [])
    assert told("recipe.epochs", 3) == (4, ["s: omniglot, extended-class, old: 2"])
    assert told("options.weight", 2.0, label="p2s") == (1, [])
    assert told("options.weight", 1.0, label="p2*") == (1, ["s: omniglot, extended-class, p2s: 2.0"])
    assert told("recipe.momentum", 0.9, data="cifar-100") == (0, [])
    assert told("data.class_share", 0.5, old=True) == told("condition.old_fraction", 0.3, old=True) == (1, [])
    crops = told("test_sets.roxford.options.crop_queries", False, old=True)
    assert crops == (1, ["s: omniglot, extended-class, old: True"])
    assert told("suite.metrics", ["recall@1", "map"], old=True) == (1, [])


def test_variants_and_memories_are_compared_too() -> None:
    suite = suite_of(
        {
            "name": "s",
            "title": "s",
            "track": "sessions",
            "data": {"omniglot": {"class_share": 0.5}},
            "plans": {"disjoint": {"sessions": 3}},
            "budget": 8,
            "test_images": 1,
            "methods": {"cvs": {"vary": {"budget": [4]}}, "joint": {}},
        }
    )

    def told(value: int, label: str | None = None) -> list[str]:
        return differing(suite, Stated(what="w", where="p", setting="budget", value=value, of=Of(label=label)))[1]

    assert told(8, "joint") == told(8, "cvs") == told(4, "cvs, *") == []
    assert told(8) == told(8, "cvs*") == ["s: omniglot, disjoint, cvs, budget 4: 4"]
