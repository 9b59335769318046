"""All hyperspherical methods on Omniglot, extended-class and open-class, each tuned alike: the committed comparison.

    python benchmarks/all_methods.py                  # over an hour on two cores
    python benchmarks/all_methods.py --tables-only    # the page again, from the committed records

Of every method one option is tuned, the one that weighs compatibility against the task (its `balance`), over equally
many values, those of its paper among them (`tuning_grids`), once in extended-class for both scenarios, on validation
classes that are neither trained on nor scored in a table, with a seed of its own.
Every finished model leaves a small record in the work folder: started again, the run skips what is finished, continues
what was interrupted and tries again what failed. Writes all_methods.json (records) and all_methods.md (tables).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from all_methods_tables import (
    COMPARED,
    EXTENDED,
    INDEPENDENT,
    OLD,
    Document,
    Task,
    chosen_value,
    default_balance,
    page,
    with_scores,
)
from all_methods_tasks import (
    FORCED,
    HEAD,
    MODEL,
    PRECISION,
    RECIPE,
    VALIDATION_FRACTION,
    Settings,
    options_of,
    perform,
)
from limpet.data.datasets import data_root
from limpet.methods import METHODS, build_method
from machine import describe
from task_pool import Planned, TaskPool, Work, claim, run_and_tell
from tuning_grids import GRIDS

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs" / "all_methods"
SHARE_OF_CLASSES = {"": 0.3, EXTENDED: 1.0}  # others 0.7; for the estimate of the time left


def comparable() -> list[str]:
    """Return the methods that train single upgrades on the hypersphere, the independent one first."""
    fitting = [name for name, kind in METHODS.items() if "hypersphere" in kind.spaces and not kind.sessions_only]
    return sorted(fitting, key=lambda name: name != INDEPENDENT)


def plan(methods: list[str], seeds: list[int], tune_seed: int) -> Iterator[Planned]:
    """Yield all tasks, the most urgent first: tuning, then seed by seed, old models ahead of new ones."""
    tuned = [method for method in methods if METHODS[method].balance is not None]
    fixed = [method for method in methods if method not in tuned]
    references = (Task("tune", "", tune_seed, OLD), Task("tune", EXTENDED, tune_seed, INDEPENDENT))
    yield Planned(references[0])
    yield Planned(references[1], references[:1])
    tried = {
        method: tuple(Task("tune", EXTENDED, tune_seed, method, value) for value in GRIDS[method]) for method in tuned
    }
    yield from (Planned(task, references[:1]) for tasks in tried.values() for task in tasks)
    for seed in seeds:
        old = Task("final", "", seed, OLD)
        yield Planned(old)
        for scenario in COMPARED:
            yield from (Planned(Task("final", scenario, seed, method), (old,)) for method in fixed)
            for method, tasks in tried.items():
                yield Planned(Task("final", scenario, seed, method), (old, *references, *tasks), tuned=True)


def work(settings: Settings, tune_seed: int) -> Work:
    """Return what the pool must know about the tasks."""

    def passes(task: Task) -> float:
        share = SHARE_OF_CLASSES.get(task.scenario, 0.7) * (1 - VALIDATION_FRACTION if task.phase == "tune" else 1)
        return settings.epochs_of(task.phase) * share

    return Work(
        perform=partial(perform, settings=settings),
        options_of=options_of,
        value_of=lambda done, task: chosen_value(done, tune_seed, task.method),
        passes=passes,
        shown=lambda record: f"mAP {record['self']:.3f}",
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = comparable()
    parser.add_argument("--epochs", type=int, default=5, help="of every model; half in tuning (default: 5)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the tables (default: 0 1 2)")
    parser.add_argument("--tune-seed", type=int, default=100, help="of the tuning, none of --seeds (default: 100)")
    parser.add_argument("--methods", nargs="+", choices=known, default=known, metavar="METHOD",
                        help=f"some of {', '.join(known)} (default: all); independent is always there")  # fmt: skip
    parser.add_argument("--classes", type=int, help="train on the first so many classes only (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="models at a time, one thread each (default: 2)")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--work", type=Path, default=RUNS, help="folder of records (default: runs/all_methods)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    parser.add_argument("--tables-only", action="store_true", help="write the .md again from the .json in --out")
    arguments = parser.parse_args()
    if arguments.tune_seed in arguments.seeds:
        parser.error(f"--tune-seed {arguments.tune_seed} is among --seeds: a table must not show what was tuned on")
    arguments.methods = [name for name in known if name in {INDEPENDENT, *arguments.methods}]
    arguments.command = "python benchmarks/all_methods.py" + "".join(
        f" --{name.replace('_', '-')} {' '.join(map(str, given)) if isinstance(given, list) else given}"
        for name in ("epochs", "seeds", "tune_seed", "methods", "classes", "processes")
        if (given := getattr(arguments, name)) != parser.get_default(name)
    )
    return arguments


def tuned_options(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return every method's tuned option, its default and the values to try; refuse a wrong value before training."""
    options: dict[str, dict[str, Any]] = {}
    for method in methods:
        option = METHODS[method].balance
        for scenario in COMPARED:
            for value in (None,) if option is None else GRIDS[method]:
                build_method(method, options_of(Task("tune", scenario, 0, method, value)))
        options[method] = {
            "option": option,
            "default": None if option is None else default_balance(method),
            "tried": [] if option is None else list(GRIDS[method]),
        }
    return options


def measured(arguments: argparse.Namespace) -> Document:
    """Train and score everything that is not finished, and return all that the tables need."""
    methods = tuned_options(arguments.methods)
    settings = Settings(arguments.epochs, arguments.classes, data_root(arguments.root), arguments.work)
    claim(settings.work, settings.identity())
    planned = plan(arguments.methods, arguments.seeds, arguments.tune_seed)
    pool = TaskPool(work(settings, arguments.tune_seed), planned, settings.work, arguments.processes)
    records = with_scores(pool.to_the_end())
    return {
        "command": arguments.command, "machine": describe(), "processes": arguments.processes,
        "wall_seconds": pool.wall_seconds, "task_seconds": sum(record["seconds"] for record in records),
        "model": MODEL.model_dump(mode="json"), "head": HEAD,
        "recipe": replace(RECIPE, epochs=arguments.epochs, **PRECISION["final"]).decides(),
        "tuning_precision": RECIPE.precision,
        "epochs": arguments.epochs, "tuning_epochs": settings.epochs_of("tune"), "classes": arguments.classes,
        "seeds": arguments.seeds, "tune_seed": arguments.tune_seed, "methods": methods,
        "forced": [{"method": method, "scenario": scenario, **forced._asdict()}
                   for (method, scenario), forced in FORCED.items() if method in methods],
        "records": records,
    }  # fmt: skip


def main() -> None:
    run_and_tell(parsed(), measured, {"all_methods.md": page})


if __name__ == "__main__":
    main()
