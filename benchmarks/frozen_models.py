"""Adapters and heads between two frozen models of text, on CLINC150 and BANKING77: the committed comparison.

    python benchmarks/frozen_models.py                  # about half an hour on two cores
    python benchmarks/frozen_models.py --tables-only    # the page again, from the committed records

Old are static words (wordllama, 256 dimensions), new is MiniLM-L6 (384 dimensions); nothing is trained but maps and
heads. Every adapter and every method for one upgrade is fitted on the sentences to fit on, with its default options,
and scored once: half of the test sentences search all others that nothing was fitted on. In the second variant half of
the intents have no sentence to fit on at all. Nothing is chosen by these scores; what `limpet adapt` would
recommend is chosen on held-out sentences to fit on, and scored here beside the others.

A seed decides which sentences search, which intents are left out, and all training. Every finished fit leaves a small
record in the work folder: started again, the run skips it. Writes frozen_models.json (records) and frozen_models.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from frozen_models_tables import AUTO, MIXED, SYSTEMS, UNSEEN, Record, page
from frozen_models_tasks import ADAPTED, HEADS, Task, encode_all, options_of, perform
from limpet.data.datasets import data_root
from machine import describe
from task_pool import Planned, TaskPool, Work, claim, run_and_tell

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs" / "frozen_models"
DATASETS = ("clinc150", "banking77")
LONG = 6.0  # of all candidates together, in heads


def plan(seeds: list[int]) -> Iterator[Planned]:
    """Yield all tasks, seed by seed."""
    for seed in seeds:
        for data in DATASETS:
            for variant in ("", UNSEEN):
                for name in (SYSTEMS, MIXED, *ADAPTED, *HEADS, AUTO):
                    yield Planned(Task(data, variant, seed, name))


def effort(task: Task) -> float:
    """Return about how many heads' time a task takes."""
    return LONG if task.candidate == AUTO else 1.0 if task.candidate in HEADS else 0.1


def shown(record: Record) -> str:
    """Return the main number of a record in a few words."""
    if "mixed" in record:
        return ", ".join(f"{name} {value:.3f}" for name, value in record["mixed"].items())
    if "action" in record:
        return f"{record['action']}: {record['recommended']}"
    return f"mAP {record.get('cross', record['self_new']):.3f}"


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    root = data_root(arguments.data_root)
    claim(arguments.work, {"seeds": arguments.seeds})
    work = Work(
        perform=partial(perform, root=root, work=arguments.work), options_of=options_of,
        value_of=lambda records, task: 1.0, passes=effort,
        shown=shown, task_of=Task.of,
    )  # fmt: skip
    for data in DATASETS:
        encode_all(data, root, arguments.work)
    pool = TaskPool(work, plan(arguments.seeds), arguments.work, arguments.processes)
    done = pool.to_the_end()
    return {"machine": describe(), "wall_minutes": pool.wall_seconds / 60, "processes": arguments.processes,
            "seeds": arguments.seeds, "records": list(done.values())}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables-only", action="store_true")
    run_and_tell(parser.parse_args(), measured, {"frozen_models.md": page})


if __name__ == "__main__":
    main()
