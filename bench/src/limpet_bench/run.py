"""Running a suite: trials, choice of settings, and the runs of the leaderboard."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue

from limpet.data import DATASETS, TEXT_DATASETS
from limpet.evaluation import PMetrics, SelfAndCross, mean_of
from limpet.models import ApiSettings
from limpet_bench import (
    leaderboard,
    picture_figures,  # noqa: F401 - registers the figures that show models
)
from limpet_bench.cache import TaskCache
from limpet_bench.executor import Progress, blocked_by, run_tasks
from limpet_bench.gathering import Finished, figure_notes, figure_tasks, figure_values
from limpet_bench.leaderboard import LEARNER, BenchRuns, Facts, FactsByPlace, SuiteRecord, Varied
from limpet_bench.ranking import SYSTEMS, combined_over_test_sets
from limpet_bench.settings import Changes
from limpet_bench.sources import VALIDATION, Settings
from limpet_bench.suite import Run, Suite
from limpet_bench.tasks import Planner, Row, Task, code_version, in_order

Place = tuple[str, str, str]  # data set, scenario, label

LEAST_P_UP = -0.05
"""Minimum P_up of a chosen trial, unless all trials are below it."""
_ROUNDING = 1e-9  # means within this are equal, because the order of summation varies


class Trial(NamedTuple):
    """Settings of a row and their results on validation data, averaged over seeds.

    Args:
        p_comp: Raw P_comp; None if undefined.
        failure: Why the trial failed.
        chosen: Whether the row uses these settings.
        recall: Recall@1 of the validation queries, averaged over sessions, for learners in sessions, which have no P
            metrics.
    """

    place: Place
    changes: Changes
    p_comp: float | None
    p_up: float | None
    failure: str | None
    chosen: bool
    recall: float | None = None

    def to_record(self) -> dict[str, JsonValue]:
        """Return plain values; ``recall`` is included, as ``validation_ar@1``, only if it judged the trial."""
        values = {**self._asdict(), "place": list(self.place), "changes": dict(self.changes)}
        recall = values.pop("recall")
        return values if recall is None else {**values, "validation_ar@1": recall}


def trials_of(run: Run) -> list[Changes]:
    """Return the settings that a run tries: the whole grid, or as many of its points as the budget allows.

    >>> from limpet_bench.suite import Search
    >>> search = Search(budget=5, options={"weight": (1, 2)}, recipe={"learning_rate": (0.1,)})
    >>> trials_of(Run("p2s", "omniglot", search=search))
    [{'options.weight': 1, 'recipe.learning_rate': 0.1}, {'options.weight': 2, 'recipe.learning_rate': 0.1}]
    """
    if run.search is None or not run.search.grid:
        return []
    import optuna

    grid = run.search.grid
    places = {name: list(range(len(values))) for name, values in grid.items()}
    kinds: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(own) for name, own in places.items()
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(places, seed=0))
    budget = min(run.search.budget, math.prod(map(len, grid.values())))
    drawn = [study.ask(kinds).params for _ in range(budget)]
    drawn.sort(key=lambda point: [point[name] for name in grid])
    return [{name: values[point[name]] for name, values in grid.items()} for point in drawn]


def planned_trials(suite: Suite, root: Path | None) -> list[Row]:
    """Return the rows of all trials; none for a row with a single choice of settings."""
    planner = Planner(suite, root, VALIDATION)
    return [
        row
        for run in suite.runs
        if run.search is not None and len(ways := trials_of(run)) > 1
        for changes in ways
        for seed in run.search.seeds
        for row in planner.of(run, seed, changes)
    ]


def trial_outcomes(rows: Sequence[Row], cache: TaskCache) -> list[Trial]:
    """Return the results of every trial, with the best of each place marked.

    The best has the highest mean P_comp among those with a mean P_up of at least -0.05, or else the highest P_up. For
    learners in sessions, the best has the highest recall@1 of the validation queries, averaged over sessions. Ties go
    to the first. If P_comp is undefined, because the independent model is no better than the old one, the first trial
    is chosen. A failed trial is never chosen.
    """
    found: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        found.setdefault(((row.trained_on, row.scenario, row.label), repr(sorted(row.changes.items()))), []).append(row)
    trials = [_trial(place, of_one, cache) for (place, _), of_one in found.items()]
    best: dict[Place, Trial] = {}
    for trial in trials:
        known = best.get(trial.place)
        if trial.failure is None and (known is None or _order(trial) > _order(known)):
            best[trial.place] = trial
    return [trial._replace(chosen=best.get(trial.place) is trial) for trial in trials]


def chosen_settings(suite: Suite, trials: Sequence[Trial]) -> dict[Place, Changes]:
    """Return the settings of every place: those of its best trial, or the only ones."""
    single = {run.place: ways[0] for run in suite.runs if len(ways := trials_of(run)) == 1}
    return single | {trial.place: trial.changes for trial in trials if trial.chosen}


def _order(trial: Trial) -> tuple[bool, float]:
    up, comp = trial.p_up, trial.p_comp
    if trial.recall is not None:
        return True, trial.recall
    if up is None or comp is None:
        return False, -np.inf
    return (True, comp) if up >= LEAST_P_UP - _ROUNDING else (False, up)


def _trial(place: Place, rows: Sequence[Row], cache: TaskCache) -> Trial:
    failure = next((reason for row in rows if (reason := blocked_by(row.score, cache)) is not None), None)
    if failure is not None:
        return Trial(place, rows[0].changes, None, None, failure, chosen=False)
    results = [result_of(row, cache) for row in rows]
    p_comp, p_up = mean_of(result.p_comp for result in results), mean_of(result.p_up for result in results)
    recall = mean_of(
        READINGS[row.score.kind].validation_recall(record.values) if (record := cache.record(row.score)) else None
        for row in rows
    )
    return Trial(place, rows[0].changes, p_comp, p_up, None, chosen=False, recall=recall)


def facts_of(rows: Sequence[Row], cache: TaskCache) -> FactsByPlace:
    """Return images and classes by data set and scenario, from the records of the first finished run of each.

    Returns:
        Facts by data set and scenario, including those of a trained old model. Empty if no run is finished, or if its
        models do not record them.
    """
    found: FactsByPlace = {}
    for row in rows:
        if row.scenario in found.get(row.data, {}) or not (new := _seen(row.score.needs.get("model"), cache)):
            continue
        side = row.score.needs.get("old")
        old = _seen(None if side is None else side.needs.get("model"), cache)
        found.setdefault(row.data, {})[row.scenario] = Facts(
            **new, **{f"old_{name}": size for name, size in old.items()}
        )
    return found


def _seen(model: Task | None, cache: TaskCache) -> dict[str, int]:
    """Return the sizes of a model's training data; empty if unknown."""
    record = None if model is None else cache.record(model)
    if record is None:
        return {}
    values = record.values
    seen = {"images": values.get("images", values.get("pairs")), "classes": values.get("classes")}
    return {} if None in seen.values() else seen


def result_of(row: Row, cache: TaskCache, sharing: Mapping[str, int] | None = None) -> leaderboard.Run:
    """Return the result of a row: scores, P metrics, verdict and seconds; or the reason for its failure.

    "p_up" and "p_comp" are raw, "p_score" is P_1 of the sigmoid variant; None where it is not defined, as in sessions.
    "seconds" cover the training, embedding and scoring of the row's own model, not the models that rows share.
    "images_per_second" and "waiting", the share of time spent waiting for data, are those of its training.

    Args:
        row: The row.
        cache: The cache of its tasks.
        sharing: Number of rows that share a task as their own, by its address, such as one row for each of several
            test sets; each row counts its part of the seconds. One when left out.
    """
    head: dict[str, Any] = {
        "data": row.data,
        "trained_on": row.trained_on,
        "scenario": row.scenario,
        "label": row.label,
        "changes": dict(row.changes),
        "settings": dict(row.settings),
        "seed": row.seed,
        "metric": row.metric,
        "varied": None if row.varied is None else Varied(**row.varied._asdict()),
    }
    reading = READINGS[row.score.kind]
    experiment = reading.trained(row.score).settings["experiment"]
    head |= {"method": experiment["method"], "options": experiment["options"]}
    record = cache.record(row.score)
    if record is None:
        reason = blocked_by(row.score, cache) or "it was not run"
        return leaderboard.Run(**head, scores=None, failure=reason)
    seconds = sum(
        found.seconds / (sharing or {}).get(task.address, 1)
        for task in own_tasks(row)
        if (found := cache.record(task)) is not None
    )
    trained = cache.record(reading.trained(row.score))
    told = {} if trained is None else trained.values
    values = reading.values(record.values, row.metric)
    for further in row.further:
        known = cache.record(further)
        scores = {} if known is None else known.values["scores"]
        values["measured"] |= {name: reading.measured(of_one) for name, of_one in scores.items()}
    return leaderboard.Run(**head, **values, **_speed(told), **_cost(told), seconds=seconds)


def own_tasks(row: Row) -> list[Task]:
    """Return the tasks of a row alone, each address once: its model, its embeddings, and its score."""
    roles = READINGS[row.score.kind].own
    tasks = (row.score, *(task for role, task in row.score.needs.items() if role in roles))
    return list({task.address: task for task in tasks}.values())


def _speed(values: Settings) -> dict[str, float]:
    seen, seconds = values.get("seen"), values.get("seconds")
    if not seen or not seconds:
        return {}
    return {"images_per_second": seen / seconds, "waiting": values["waiting"] / seconds}


def _cost(values: Settings) -> dict[str, Any]:
    return {name: values[name] for name in ("gallery", "pairs", "labels")} if "gallery" in values else {}


def _of_upgrade(values: Settings, metric: str) -> dict[str, Any]:
    return {
        "scores": values["scores"][metric],
        **_p_metrics(values["scores"][metric]),
        "measured": {name: _with_p(scores) for name, scores in values["scores"].items()},
        "verdict": values["verdict"],
        "worse": values.get("worse"),
        "first_hits": values.get("first_hits"),
    }


def _p_metrics(scores: Mapping[str, float]) -> dict[str, float | None]:
    found = PMetrics.of(SelfAndCross(*(scores[system] for system in SYSTEMS)))
    return {"p_up": found.p_up["raw"], "p_comp": found.p_comp["raw"], "p_score": found.p_score}


def _with_p(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the systems and P metrics of one metric; no P metrics if a system has no score."""
    known = {name: value for name, value in scores.items() if value is not None}
    return {**scores, **(_p_metrics(known) if len(known) == len(scores) else {})}


def _of_sessions(values: Settings, metric: str) -> dict[str, Any]:
    """Return all measures of sessions; without an old model, P metrics are undefined."""
    recall = [session["recall"] for session in values["sessions"]]
    return {
        "scores": values["scores"],
        "measured": {name: {LEARNER: value} for name, value in values["scores"].items()},
        "after_sessions": {f"recall@{k}": [found[k] for found in recall] for k in recall[0]},
    }


class Reading(NamedTuple):
    """Functions that read a row from its task.

    Args:
        trained: Function that returns the task with the experiment of the row.
        own: Roles of the row's own tasks in addition to the one that scores.
        values: Function that returns scores, P metrics and verdict from the values of the record and the metric that
            ranks.
        validation_recall: Function that returns recall@1 of validation queries averaged over sessions; None for other
            tracks, whose trials search validation images instead.
        measured: Function that returns the values of one further metric from its scores.
    """

    trained: Callable[[Task], Task]
    own: tuple[str, ...]
    values: Callable[[Settings, str], dict[str, Any]]
    validation_recall: Callable[[Settings], float | None] = lambda values: None
    measured: Callable[[Mapping[str, float | None]], dict[str, float | None]] = dict


READINGS = {
    "score": Reading(lambda task: task.needs["model"], ("new", "model"), _of_upgrade, measured=_with_p),
    "sessions": Reading(
        lambda task: task,
        ("first",),
        _of_sessions,
        lambda values: mean_of(session["validation_recall"] for session in values["sessions"]),
    ),
}
"""Readings by the kind of the last task of a row."""


@dataclass(frozen=True)
class Bench:
    """Environment in which suites run.

    Args:
        root: Folder that holds the folders of the named data sets.
        watch: Callback when tasks start, and after every task.
        api: Request settings for models behind an API; the defaults, without a cache, when None.
    """

    cache: TaskCache
    root: Path | None = None
    processes: int = 1
    devices: Sequence[str] = ("cpu",)
    watch: Callable[[Progress], object] | None = None
    api: ApiSettings | None = None

    def run(self, suite: Suite) -> BenchRuns:
        """Run the unfinished tasks of a suite, and return all its results."""
        attempts = planned_trials(suite, self.root)
        self._run([row.score for row in attempts])
        trials = trial_outcomes(attempts, self.cache)
        rows = final_rows(suite, trials, self.root)
        self._run(tasks_of(suite, rows))
        return bench_runs(suite, rows, trials, self.cache)

    def _run(self, tasks: Sequence[Task]) -> None:
        run_tasks(
            tasks, self.cache, root=self.root, processes=self.processes, devices=self.devices, watch=self.watch,
            api=self.api,
        )  # fmt: skip


def tasks_of(suite: Suite, rows: Sequence[Row]) -> list[Task]:
    """Return all tasks for the rows of a leaderboard and for its figures."""
    return [*(task for row in rows for task in row.tasks), *figure_tasks(suite, rows)]


def final_rows(suite: Suite, trials: Sequence[Trial], root: Path | None) -> list[Row]:
    """Return the rows of a leaderboard, with the chosen settings."""
    return list(Planner(suite, root, chosen=chosen_settings(suite, trials)).rows())


def bench_runs(suite: Suite, rows: Sequence[Row], trials: Sequence[Trial], cache: TaskCache) -> BenchRuns:
    """Return the contents of a leaderboard: every run, including failed ones, and every trial."""
    sharing = Counter(task.address for row in rows for task in own_tasks(row))
    results = [result_of(row, cache, sharing) for row in rows]
    tasks = in_order(tasks_of(suite, rows))
    machines = {record.machine for task in tasks if (record := cache.record(task)) is not None}
    described = SuiteRecord(
        name=suite.name,
        title=suite.title,
        description=suite.description,
        metric=", ".join(dict.fromkeys(row.metric for row in rows)),
        kind=suite.track,
        published=suite.published,
        facts=facts_of(rows, cache),
    )
    finished = Finished(suite, rows, results, cache)
    return BenchRuns(
        suite=described,
        machine="; ".join(sorted(machines)),
        rows=results,
        combined=combined_over_test_sets(results),
        figures=figure_values(finished),
        figure_notes=figure_notes(finished),
        tuning=[trial.to_record() for trial in trials],
    )


def missing_folders(suite: Suite, root: Path | None) -> list[str]:
    """Return the folders of data sets and published weights that a suite needs and the data root lacks."""
    names = [*suite.data, *(test.data or name for name, test in suite.test_sets.items())]
    known = [DATASETS.get(name) or TEXT_DATASETS.get(name) for name in names]
    trainings = (training for run in suite.runs for training in (run.training, run.reference, run.before))
    weights = sorted({training.weights for training in trainings if training.weights})
    needed = [*(data.folder for data in known if data and data.folder), *(f"weights/{name}" for name in weights)]
    return [folder for folder in dict.fromkeys(needed) if root is None or not (root / folder).is_dir()]


@dataclass(frozen=True)
class Estimate:
    """Estimate of the remaining work of a suite.

    Args:
        unfinished: Unfinished tasks, in order.
        seconds: Estimated total seconds of the unfinished tasks; None if no similar task was ever run.
        unknown: Number of unfinished tasks without an estimate.
        trials: Settings of a trial, by the addresses of its own tasks.
    """

    unfinished: list[Task]
    finished: int
    seconds: float | None
    unknown: int
    trials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def estimate(suite: Suite, cache: TaskCache, root: Path | None) -> Estimate:
    """Return the remaining work of a suite; tuned rows with unfinished trials count with their initial settings."""
    attempts = planned_trials(suite, root)
    rows = final_rows(suite, trial_outcomes(attempts, cache), root)
    tasks = in_order([*(row.score for row in attempts), *tasks_of(suite, rows)])
    left = [task for task in tasks if cache.record(task) is None]
    speeds = _speeds(cache, {task.address: task.work for task in tasks})
    known = [speeds[key] * task.work for task in left if (key := _alike(task.kind, dict(task.settings))) in speeds]
    made_for: dict[str, list[Changes]] = {}
    for row in attempts:
        for task in own_tasks(row):
            made_for.setdefault(task.address, []).append(row.changes)
    trials = {address: ways[0] for address, ways in made_for.items() if all(way == ways[0] for way in ways)}
    return Estimate(left, len(tasks) - len(left), sum(known) if known else None, len(left) - len(known), trials)


def _speeds(cache: TaskCache, works: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Return the median seconds per unit of work of similar tasks.

    Tasks from other versions of the code count only if this version ran none.

    Args:
        cache: Finished tasks.
        works: Current amount of work of some tasks, by address; for others, the recorded amount is used, which may have
            been counted differently.
    """
    found: dict[tuple[str, str], dict[bool, list[float]]] = {}
    for record in cache.records():
        speed = record.seconds / max(works.get(record.address, record.work), 1e-9)
        own = record.code == code_version()
        found.setdefault(_alike(record.kind, record.settings), {}).setdefault(own, []).append(speed)
    return {key: float(np.median(speeds.get(True) or speeds[False])) for key, speeds in found.items()}


def _alike(kind: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the main factors of the speed of a task: its kind, and the network if one is trained."""
    model = settings.get("experiment", {}).get("model", {})
    options, size = model.get("backbone_options", {}), model.get("centre_crop", model.get("image_size", ""))
    return kind, f"{model.get('backbone', settings.get('model', ''))} {size} {options}"
