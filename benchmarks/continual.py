"""Learners in sessions, whose galleries are embedded once and for ever: the committed comparisons.

    python benchmarks/continual.py omniglot            # nine learners; three setups, the first with three seeds and,
                                                       # there, the parts of CVS (the paper's table 2)
    python benchmarks/continual.py omniglot-drift      # the parts of CVS alone, where models drift more
    python benchmarks/continual.py tiny-imagenet-32    # nine learners on photographs, one seed
    python benchmarks/continual.py omniglot --tables-only

All learners of a comparison share network, recipe, plan and first model. The weights that no paper states, those of
EWC and RWalk, are chosen by the validation queries of a plan with a seed of its own, in the general-incremental setup;
all others are the papers'. Every finished learner leaves a small record in the work folder, and every finished session
what the next one needs: started again, the run goes on. Writes continual_SUITE.json (records) and .md (tables).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from all_methods_tables import Document, Record, Task
from continual_tables import page
from continual_tasks import (
    ABLATION,
    FINAL,
    FIRST,
    GENERAL,
    LOWER,
    SUITES,
    TUNE,
    UPPER,
    Settings,
    images_of,
    model_loss,
    options_of,
    perform,
    setting_of,
)
from limpet.data.datasets import data_root
from limpet.methods import METHODS
from machine import describe
from task_pool import Planned, TaskPool, Work, claim, run_and_tell

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs"


def seeds_of(suite: str, setup: str, most: int | None) -> range:
    """Return the seeds of a setup, at most so many."""
    count = SUITES[suite].plans[setup][1]
    return range(count if most is None else min(count, most))


def plan(arguments: argparse.Namespace) -> Iterator[Planned]:
    """Yield all tasks: setup by setup, the first session ahead of the others; then those that need tuning."""
    suite = SUITES[arguments.suite]
    tuned = {name: learner for name, learner in suite.learners.items() if learner.tuned}
    tried: dict[str, tuple[Task, ...]] = {}
    for setup in suite.plans:
        for seed in seeds_of(arguments.suite, setup, arguments.most_seeds):
            first = Task(FIRST, setup, seed, LOWER)
            yield Planned(first)
            for name in sorted(suite.learners_of(setup), key=lambda name: name != UPPER):  # the longest first
                if name not in tuned:
                    yield Planned(Task(FINAL, setup, seed, name), (first,))
    if not tuned:
        return
    first = Task(FIRST, GENERAL, arguments.tune_seed, LOWER)
    yield Planned(first)
    for name in tuned:
        values = tuned[name].tried or suite.strengths
        tried[name] = tuple(Task(TUNE, GENERAL, arguments.tune_seed, name, value) for value in values)
        yield from (Planned(task, (first,)) for task in tried[name])
    for setup in suite.plans:
        for seed in seeds_of(arguments.suite, setup, arguments.most_seeds):
            for name in tuned:
                needs = (Task(FIRST, setup, seed, LOWER), *tried[name])
                yield Planned(Task(FINAL, setup, seed, name), needs, tuned=True)


def chosen_strength(done: Mapping[Task, Record], task: Task) -> float:
    """Return the weight with the best recall@1 of validation queries, averaged over sessions."""
    scores = {
        one.value: np.mean([session["validation_recall"] for session in record["sessions"]])
        for one, record in done.items()
        if one.phase == TUNE and one.method == task.method and "sessions" in record
    }
    return max((factor for factor in scores if factor is not None), key=lambda factor: scores[factor])


def work(settings: Settings) -> Work:
    """Return what the pool must know about the tasks."""
    sizes = {LOWER: 1.0, UPPER: 3.0, "rainbow": 2.5}

    def passes(task: Task) -> float:
        return 0.2 if task.phase == FIRST else sizes.get(task.method, 1.5)

    return Work(
        perform=partial(perform, settings=settings),
        options_of=partial(options_of, settings=settings),
        value_of=chosen_strength,
        passes=passes,
        shown=lambda record: f"AR@1 {record['average_recall']['1']:.3f}",
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES, help="what to measure")
    parser.add_argument("--epochs", type=int, help="of every session (default: the suite's)")
    parser.add_argument("--most-seeds", type=int, help="run fewer seeds than the suite has")
    parser.add_argument("--tune-seed", type=int, default=100, help="of the tuning (default: 100)")
    parser.add_argument("--processes", type=int, default=2, help="learners at a time, one thread each (default: 2)")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--work", type=Path, help="folder of records (default: runs/continual_SUITE)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    parser.add_argument("--tables-only", action="store_true", help="write the .md again from the .json in --out")
    arguments = parser.parse_args()
    arguments.work = arguments.work or RUNS / f"continual_{arguments.suite}"
    arguments.command = f"python benchmarks/continual.py {arguments.suite}" + "".join(
        f" --{name.replace('_', '-')} {given}"
        for name in ("epochs", "most_seeds", "tune_seed", "processes")
        if (given := getattr(arguments, name)) != parser.get_default(name)
    )
    return arguments


def measured(arguments: argparse.Namespace) -> Document:
    """Train and score everything that is not finished, and return all that the tables need."""
    settings = Settings(arguments.suite, arguments.epochs, data_root(arguments.root), arguments.work)
    suite, data = SUITES[arguments.suite], images_of(settings)
    claim(settings.work, settings.identity())
    pool = TaskPool(work(settings), plan(arguments), settings.work, arguments.processes)
    records = [_tried(record) for record in pool.to_the_end().values()]
    return {
        "command": arguments.command, "machine": describe(), "processes": arguments.processes,
        "wall_seconds": pool.wall_seconds, "task_seconds": sum(record["seconds"] for record in records),
        "title": suite.title, "data": {"name": data.name, "description": data.description,
                                       "training": len(data.train), "queries": len(data.test)},
        "setups": {setup: {"options": dict(options), **sizes(settings, setup),
                           "seeds": list(seeds_of(arguments.suite, setup, arguments.most_seeds))}
                   for setup, (options, _) in suite.plans.items()},
        "learners": {name: {**learner._asdict(), "options": dict(learner.options),
                            "bound": METHODS[learner.method].bound}
                     for name, learner in {**suite.learners, **suite.parts}.items()},
        "ablation": ABLATION if set(ABLATION.values()) <= {**suite.learners, **suite.parts}.keys() else {},
        "predictions": list(suite.predictions),
        "model_loss": {setup: model_loss(setup, seeds_of(arguments.suite, setup, arguments.most_seeds), settings)
                       for setup in suite.plans if set(ABLATION.values()) <= suite.learners_of(setup).keys()},
        "model": suite.model.model_dump(mode="json"), "recipe": plain(settings), "budget": suite.budget,
        "strengths": list(suite.strengths), "tune_seed": arguments.tune_seed,
        "records": records,
    }  # fmt: skip


def _tried(record: Record) -> Record:
    """Keep a weight under which training diverged as one that was tried, not as a task that failed."""
    if record["phase"] == TUNE and "failure" in record:
        return {**{name: value for name, value in record.items() if name != "failure"}, "diverged": record["failure"]}
    return record


def sizes(settings: Settings, setup: str) -> dict[str, list[int]]:
    """Return how many images the sessions of a setup have, of its first seed."""
    found = setting_of(settings, setup, 0).plan
    return {
        "training": [len(found.rows(session)) for session in range(found.sessions)],
        "validation": [len(rows) for rows in found.validation],
        "classes": [len(found.classes_seen(session)) for session in range(found.sessions)],
    }


def plain(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings.recipe), "head": "normalised"}


def main() -> None:
    arguments = parsed()
    run_and_tell(arguments, measured, {f"continual_{arguments.suite}.md": page})


if __name__ == "__main__":
    main()
