"""Five generations in a row, the backbone changing at the fourth: who stays compatible with whom (HBCT, Fig. 5).

    python benchmarks/generations.py                  # about 12 minutes on two cores
    python benchmarks/generations.py --quick          # a smoke test of some minutes; its numbers mean nothing
    python benchmarks/generations.py --tables-only    # the pages again, from the committed record

Generation t learns a growing share of Omniglot's characters and is aligned with generation t − 1 alone; every gallery
stays as the generation that embedded it left it. Chains: hbct on the Lorentz space; bct, hot_refresh and hoc on the
hypersphere, which share their first generation. Every finished model leaves a small record in the work folder: started
again, the run skips what is finished. Writes generations.json (numbers), generations.md and generations.html.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from all_methods_tables import Document, Task
from all_methods_tasks import RECIPE
from generations_page import html_page, markdown_page
from generations_tasks import (
    CHAINS,
    GENERATIONS,
    MODELS,
    SCORE,
    SHARES,
    TRAIN,
    Settings,
    independent_of,
    options_of,
    options_of_method,
    perform,
    training_task,
)
from limpet.data.datasets import data_root
from limpet.methods import build_method
from machine import describe
from task_pool import Planned, TaskPool, Work, claim, run_and_tell

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs"
WIDER = 1.6  # time of an image in the larger network, by that in the smaller one


def plan(chains: list[str], seed: int, *, independents: bool) -> Iterator[Planned]:
    """Yield all tasks: generation by generation, every chain in turn, then the scores of the chains."""
    geometries = dict.fromkeys(CHAINS[chain].geometry for chain in chains)
    alone = [independent_of(geometry) for geometry in geometries]
    for geometry in geometries:
        yield Planned(training_task(independent_of(geometry), 1, seed))
    for generation in GENERATIONS[1:]:
        for chain in chains:
            needs = (training_task(chain, generation - 1, seed),)
            yield Planned(training_task(chain, generation, seed), needs)
    for chain in chains:
        yield Planned(Task(SCORE, "", seed, chain), needs_of(chain, seed))
    if independents:
        for name in alone:
            yield from (Planned(training_task(name, generation, seed)) for generation in GENERATIONS[1:])
            yield Planned(Task(SCORE, "", seed, name), needs_of(name, seed))


def needs_of(chain: str, seed: int) -> tuple[Task, ...]:
    return tuple(training_task(chain, generation, seed) for generation in GENERATIONS)


def work(settings: Settings) -> Work:
    """Return what the pool must know about the tasks."""

    def passes(task: Task) -> float:
        if task.phase != TRAIN:
            return 0.3 * settings.epochs
        generation = int(task.scenario)
        return settings.epochs * SHARES[generation - 1] * (WIDER if generation > 3 else 1.0)

    def shown(record: dict[str, object]) -> str:
        return f"{record['classes']} classes" if record["phase"] == TRAIN else "scored"

    return Work(
        perform=partial(perform, settings=settings),
        options_of=options_of,
        value_of=lambda done, task: 1.0,
        passes=passes,
        shown=shown,
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="of every model (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default: 0)")
    parser.add_argument("--chains", nargs="+", choices=CHAINS, default=list(CHAINS), metavar="CHAIN",
                        help=f"some of {', '.join(CHAINS)} (default: all)")  # fmt: skip
    parser.add_argument("--no-independents", action="store_true", help="leave out the P_comp matrices, a third shorter")
    parser.add_argument("--classes", type=int, help="train on the first so many classes only (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="models at a time, one thread each (default: 2)")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--work", type=Path, default=RUNS / "generations", help="folder of records and models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    parser.add_argument("--quick", action="store_true", help="40 classes, 1 epoch; all below runs/")
    parser.add_argument("--tables-only", action="store_true", help="write the pages again from the .json in --out")
    arguments = parser.parse_args()
    if arguments.quick:
        quick = RUNS / "generations_quick"
        vars(arguments).update(epochs=1, classes=40, work=quick, out=quick)
    arguments.command = "python benchmarks/generations.py" + "".join(
        f" --{name} {' '.join(given) if isinstance(given, list) else given}"
        for name in ("epochs", "seed", "chains", "classes", "processes")
        if (given := getattr(arguments, name)) != parser.get_default(name)
    ) + (" --no-independents" if arguments.no_independents else "")  # fmt: skip
    return arguments


def measured(arguments: argparse.Namespace) -> Document:
    """Train and score everything that is not finished, and return all that the pages need."""
    settings = Settings(arguments.epochs, arguments.classes, arguments.seed, data_root(arguments.root), arguments.work)
    planned = list(plan(arguments.chains, arguments.seed, independents=not arguments.no_independents))
    options = {chain: options_of_method(chain) for chain in arguments.chains}
    for chain in arguments.chains:  # refuse a wrong option before anything is trained
        build_method(CHAINS[chain].method, options[chain])
    claim(settings.work, {**settings.identity(), "options": {chain: options_of_method(chain) for chain in CHAINS}})
    pool = TaskPool(work(settings), planned, settings.work, arguments.processes)
    done = pool.to_the_end()
    return {
        "command": arguments.command, "machine": describe(), "processes": arguments.processes,
        "wall_seconds": pool.wall_seconds, "task_seconds": sum(record["seconds"] for record in done.values()),
        "models": {generation: model.model_dump(mode="json") for generation, model in MODELS.items()},
        "recipe": replace(RECIPE, epochs=arguments.epochs).decides(), "epochs": arguments.epochs,
        "classes": arguments.classes, "seed": arguments.seed, "shares": SHARES, "chains": arguments.chains,
        "options": options,
        "records": [done[task] for task in sorted(done, key=lambda task: task.name)],
    }  # fmt: skip


def main() -> None:
    run_and_tell(parsed(), measured, {"generations.md": markdown_page, "generations.html": html_page})


if __name__ == "__main__":
    main()
