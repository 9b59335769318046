"""What benches found: every data set with its scenario, and what each label came to there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from holdfast.bench.leaderboard import BenchRuns, Facts, Run
from holdfast.documents import read_json
from holdfast.errors import ConfigError, DataError

SHIPPED = Path(__file__).parent / "evidence"
REFERENCES = frozenset({"independent"})
"""Methods that know no old model: what others are measured against, and never an upgrade."""


class Name(NamedTuple):
    """What is recommended: the label of a board, and the method that it stands for."""

    label: str
    method: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a label came to in a case.

    Args:
        options: Options of the method, as they were there.
        changes: Settings that were chosen for it there, by dotted name.
        settings: Its settings beside the options of the method, by dotted name, those that were chosen too, such as
            "model.projection" or "recipe.learning_rate"; those of the whole suite are not among them.
        p_comp: Raw, one value per seed of the case (S,), NaN where there is none.
        p_up: Likewise.
        seconds: Mean of its runs; None where none was timed.
        failure: Why it has no number for some seed; None where it is complete.
    """

    options: Mapping[str, Any]
    changes: Mapping[str, Any]
    settings: Mapping[str, Any]
    p_comp: NDArray[np.float64]
    p_up: NDArray[np.float64]
    seconds: float | None
    failure: str | None


@dataclass(frozen=True, eq=False)
class Case:
    """One data set with one scenario of one suite.

    Args:
        suite: Name of the suite.
        track: "images", where models were trained, or "features", where heads were, over frozen models.
        data: What was searched: the name of the data set, or of a test set.
        trained_on: Name of the data set that models were trained on.
        scenario: Who saw what.
        metric: What was measured.
        facts: How large it is; None where the document does not say.
        seeds: The seeds that count: those for which P_comp is defined.
        undefined: Seeds with no P_comp of any label, since the independent model was not better than the old one.
        outcomes: By label, references left out.
        old_quality: The old model on its own gallery, mean over seeds; None where it is not said.
    """

    suite: str
    track: str
    data: str
    trained_on: str
    scenario: str
    metric: str
    facts: Facts | None
    seeds: tuple[int, ...]
    undefined: tuple[int, ...]
    outcomes: Mapping[Name, Outcome]
    old_quality: float | None

    @cached_property
    def complete(self) -> dict[Name, Outcome]:
        """The labels with a number for every seed."""
        return {name: found for name, found in self.outcomes.items() if found.failure is None}

    @property
    def words(self) -> str:
        """What people call it."""
        return f"{self.data}, {self.scenario} ({self.suite})"


@dataclass(frozen=True)
class Evidence:
    """Cases to learn from.

    Args:
        cases: All of them, also those without a number.
    """

    cases: tuple[Case, ...] = ()

    @classmethod
    def of(cls, documents: Iterable[tuple[str, Any]]) -> Evidence:
        """Gather the cases of documents.

        Args:
            documents: Where each comes from, for messages, and what `Bench.run` returned, or a document of it or of
                its leaderboard; with "facts" by data set and scenario (`holdfast.bench.facts`), there or in its
                "suite".

        Raises:
            DataError: Something in a document is missing or of another type, or two runs are of the same label, data
                set, scenario and seed.
        """
        return cls(tuple(case for where, content in documents for case in _cases(content, where)))

    def without(self, data: str) -> Evidence:
        """Return the cases of models that were trained on all other data sets."""
        return Evidence(tuple(case for case in self.cases if case.trained_on != data))

    @property
    def usable(self) -> tuple[Case, ...]:
        """The cases where at least one label is complete."""
        return tuple(case for case in self.cases if case.complete)


def shipped_evidence(own: Sequence[Path] = (), *, folder: Path = SHIPPED) -> Evidence:
    """Return the evidence that comes with the package, and the user's own.

    Args:
        own: Further documents.
        folder: Where the shipped documents are; there may be none.

    Raises:
        ConfigError: A file cannot be read, or is no JSON.
        DataError: See `Evidence.of`.
    """
    return Evidence.of((str(path), _read(path)) for path in (*sorted(folder.glob("*.json")), *own))


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected="a JSON file of a bench") from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is no valid JSON: {error}", expected="a JSON file of a bench") from error


def _cases(content: Any, where: str) -> list[Case]:
    try:
        found = BenchRuns.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise DataError(
            f"In '{where}', {place}: {first['msg'][:1].lower()}{first['msg'][1:]}.",
            expected="a document that `holdfast bench` wrote",
        ) from error
    places: dict[tuple[str, str, str], list[Run]] = {}
    for row in found.rows:
        places.setdefault((row.data, row.trained_on or row.data, row.scenario), []).append(row)
    return [_case(found, rows, where) for rows in places.values()]


def _case(found: BenchRuns, rows: Sequence[Run], where: str) -> Case:
    first, asked = rows[0], sorted({row.seed for row in rows})
    defined = {row.seed for row in rows if not math.isnan(row.number("p_comp"))}
    seeds = tuple(seed for seed in asked if seed in defined)
    by_name: dict[Name, dict[int, Run]] = {}
    for row in rows:
        runs = by_name.setdefault(Name(row.label, row.method), {})
        if row.seed in runs:
            raise DataError(
                f"In '{where}', two runs of {row.label}, {row.data}, {row.scenario} with seed {row.seed}.",
                expected="one",
            )
        runs[row.seed] = row
    return Case(
        suite=found.suite.name,
        track=found.suite.kind,
        data=first.data,
        trained_on=first.trained_on or first.data,
        scenario=first.scenario,
        metric=first.metric,
        facts=(found.facts or found.suite.facts).get(first.data, {}).get(first.scenario),
        seeds=seeds,
        undefined=tuple(seed for seed in asked if seed not in defined),
        outcomes={name: _outcome(runs, seeds) for name, runs in by_name.items() if name.method not in REFERENCES},
        old_quality=_mean((row.scores or {}).get("self_old") for row in rows),
    )


def _outcome(runs: Mapping[int, Run], seeds: Sequence[int]) -> Outcome:
    values = {
        name: np.array([runs[seed].number(name) if seed in runs else math.nan for seed in seeds], np.float64)
        for name in ("p_comp", "p_up")
    }
    first = next(iter(runs.values()))
    seconds = _mean(run.seconds for run in runs.values() if not run.failure)
    chosen = {name: value for name, value in first.changes.items() if not name.startswith("options.")}
    settings = {**first.settings, **chosen}
    return Outcome(first.options, first.changes, settings, **values, seconds=seconds, failure=_failure(runs, seeds))


def _failure(runs: Mapping[int, Run], seeds: Sequence[int]) -> str | None:
    if not seeds:
        return next((run.failure for run in runs.values() if run.failure), "P_comp is not defined")
    for seed in seeds:
        if seed not in runs:
            return f"it was not run with seed {seed}"
        if reason := runs[seed].failure:
            return f"with seed {seed}: {reason}"
        for name, words in (("p_comp", "P_comp"), ("p_up", "P_up")):
            if math.isnan(runs[seed].number(name)):
                return f"it has no {words} with seed {seed}"
    return None


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else None
