"""HBCT on the Lorentz space against Euclidean methods on the hypersphere: Omniglot, extended-class and extended-data.

    python benchmarks/hyperbolic.py                  # about an hour on two cores
    python benchmarks/hyperbolic.py --quick          # a smoke test of some minutes; its numbers mean nothing
    python benchmarks/hyperbolic.py --tables-only    # the page again, from the committed records

All models have one network and one recipe, those of all_methods.py with batch normalisation after the projection. Of
every method one option is tuned, its weight of compatibility, over equally many values (`tuning_grids`), on validation
classes in extended-class: once for both scenarios, and for all variants of HBCT. Every finished model leaves a small
record in the work folder: started again, the run skips what is finished. Writes hyperbolic.json (records) and
hyperbolic.md (tables, and whether the paper's ordering holds).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from all_methods_tables import EXTENDED, Document, Task
from all_methods_tasks import RECIPE, VALIDATION_FRACTION, Settings
from hyperbolic_tables import chosen_value, page
from hyperbolic_tasks import (
    COMPARED,
    MODEL,
    REFERENCES,
    RIVALS,
    ROWS,
    independent_of,
    old_of,
    options_of,
    perform,
    tuned_as,
)
from limpet.data.datasets import data_root
from limpet.methods import build_method
from machine import describe
from task_pool import Planned, TaskPool, Work, claim, run_and_tell
from tuning_grids import GRIDS

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs"
OLD_SHARE = 0.3


def plan(rows: list[str], seeds: list[int], tune_seed: int) -> Iterator[Planned]:
    """Yield all tasks, the most urgent first: tuning, then seed by seed, old models ahead of new ones."""
    tried: dict[str, tuple[Task, ...]] = {}
    for geometry in geometries_of(rows):
        old = Task("tune", EXTENDED, tune_seed, old_of(geometry))
        independent = Task("tune", "", tune_seed, independent_of(geometry))
        yield Planned(old)
        yield Planned(independent, (old,))
        for row in dict.fromkeys(tuned_as(row) for row in rows if ROWS[row].geometry == geometry):
            tasks = [Task("tune", EXTENDED, tune_seed, row, value) for value in GRIDS[row]]
            yield from (Planned(task, (old,)) for task in tasks)
            tried[row] = (old, independent, *tasks)
    for seed in seeds:
        olds = {
            geometry: [Task("final", name, seed, old_of(geometry)) for name in COMPARED]
            for geometry in geometries_of(rows)
        }
        yield from (Planned(task) for tasks in olds.values() for task in tasks)
        for geometry, tasks in olds.items():
            yield Planned(Task("final", "", seed, independent_of(geometry)), tuple(tasks))
        for number, scenario in enumerate(COMPARED):
            for row in rows:
                needs = (*olds[ROWS[row].geometry][number : number + 1], *tried[tuned_as(row)])
                yield Planned(Task("final", scenario, seed, row), needs, tuned=True)


def geometries_of(rows: list[str]) -> list[str]:
    return list(dict.fromkeys(ROWS[row].geometry for row in rows))


def work(settings: Settings, tune_seed: int) -> Work:
    """Return what the pool must know about the tasks."""

    def passes(task: Task) -> float:
        share = OLD_SHARE if task.method.startswith("old") else 1.0
        return settings.epochs_of(task.phase) * share * (1 - VALIDATION_FRACTION if task.phase == "tune" else 1)

    return Work(
        perform=partial(perform, settings=settings),
        options_of=options_of,
        value_of=lambda done, task: chosen_value(done, tune_seed, tuned_as(task.method)),
        passes=passes,
        shown=lambda record: ", ".join(f"{metric} {value:.3f}" for metric, value in record["self"].items()),
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="of every model; half in tuning (default: 5)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the tables (default: 0 1 2)")
    parser.add_argument("--tune-seed", type=int, default=100, help="of the tuning, none of --seeds (default: 100)")
    parser.add_argument("--rows", nargs="+", choices=RIVALS, default=list(RIVALS), metavar="ROW",
                        help=f"some of {', '.join(RIVALS)} (default: all); references come along")  # fmt: skip
    parser.add_argument("--classes", type=int, help="train on the first so many classes only (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="models at a time, one thread each (default: 2)")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--work", type=Path, default=RUNS / "hyperbolic", help="folder of records")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    parser.add_argument("--quick", action="store_true", help="few rows, 30 classes, 1 epoch, 1 seed; all below runs/")
    parser.add_argument("--tables-only", action="store_true", help="write the .md again from the .json in --out")
    arguments = parser.parse_args()
    if arguments.quick:
        quick = RUNS / "hyperbolic_quick"
        vars(arguments).update(epochs=1, seeds=[0], classes=30, work=quick, out=quick)
        arguments.rows = arguments.rows if arguments.rows != list(RIVALS) else ["hbct", "hbct_infonce", "l2"]
    if arguments.tune_seed in arguments.seeds:
        parser.error(f"--tune-seed {arguments.tune_seed} is among --seeds: a table must not show what was tuned on")
    arguments.command = "python benchmarks/hyperbolic.py" + "".join(
        f" --{name.replace('_', '-')} {' '.join(map(str, given)) if isinstance(given, list) else given}"
        for name in ("epochs", "seeds", "tune_seed", "rows", "classes", "processes")
        if (given := getattr(arguments, name)) != parser.get_default(name)
    )
    return arguments


def measured(arguments: argparse.Namespace) -> Document:
    """Train and score everything that is not finished, and return all that the tables need."""
    settings = Settings(arguments.epochs, arguments.classes, data_root(arguments.root), arguments.work)
    planned = list(plan(arguments.rows, arguments.seeds, arguments.tune_seed))
    for one in planned:  # refuse a wrong option before anything is trained
        if not one.tuned:
            build_method(ROWS[one.task.method].method, options_of(one.task))
    claim(settings.work, settings.identity())
    pool = TaskPool(work(settings, arguments.tune_seed), planned, settings.work, arguments.processes)
    done = pool.to_the_end()
    records = [done[task] for task in sorted(done, key=lambda task: task.name)]
    return {
        "command": arguments.command, "machine": describe(), "processes": arguments.processes,
        "wall_seconds": pool.wall_seconds, "task_seconds": sum(record["seconds"] for record in records),
        "model": MODEL.model_dump(mode="json"), "recipe": replace(RECIPE, epochs=arguments.epochs).decides(),
        "epochs": arguments.epochs, "tuning_epochs": settings.epochs_of("tune"), "classes": arguments.classes,
        "seeds": arguments.seeds, "tune_seed": arguments.tune_seed,
        "rows": [row for row in ROWS if row in REFERENCES or row in arguments.rows], "records": records,
    }  # fmt: skip


def main() -> None:
    run_and_tell(parsed(), measured, {"hyperbolic.md": page})


if __name__ == "__main__":
    main()
