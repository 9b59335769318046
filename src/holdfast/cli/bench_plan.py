"""What ``holdfast bench`` says of what it would run, and of what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.bench.cache import FAILURE
from holdfast.cli.console import console, in_words, print_json, print_table
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.bench.leaderboard import BenchRuns
    from holdfast.bench.run import Estimate
    from holdfast.bench.suite import Suite
    from holdfast.bench.tasks import Task

SHOWN = 20
"""So many steps are named; the numbers above them should stay in sight."""


def show_plan(suite: Suite, found: Estimate, failed: int, processes: int, as_json: bool) -> int:
    """Say what would be run, and about how long that takes."""
    if as_json:
        steps = [
            {"kind": task.kind, "label": task.label, "work": task.work, "trial": found.trials.get(task.address)}
            for task in found.unfinished
        ]
        numbers = {"finished": found.finished, "failed": failed, "seconds": found.seconds, "unknown": found.unknown}
        print_json({"suite": suite.name, "unfinished": steps, **numbers, "processes": processes})
        return 0
    kinds = Counter(task.kind for task in found.unfinished)
    title = f"{suite.title}: {counted(len(found.unfinished), 'step')} to run, {found.finished} finished"
    print_table(title, ["kind", "steps"], [[kind, str(count)] for kind, count in kinds.items()])
    for line in (*plan_sentences(found, failed, processes), *step_lines(found)):
        console.print(line, highlight=False)
    return 0


def plan_sentences(found: Estimate, failed: int, processes: int) -> Iterator[str]:
    """Say how long it takes, of how many steps that is not known, and which are not run."""
    count = len(found.unfinished)
    if found.seconds is not None:
        at_once = min(processes, count)
        whole = f"{in_words(found.seconds)} one after another"
        told = whole if at_once == 1 else f"{in_words(found.seconds / at_once)} with {at_once} at once ({whole})"
        yield f"About {told}, by what was measured here before, or more where steps wait for others."
        if found.unknown:
            yield f"Of {found.unknown} of the {count} steps nothing is known, and they are not counted in it."
    elif count:
        yield "Nothing like these steps was run here yet, so nobody can say how long they take."
    if failed:
        yield f"Of these steps {failed} failed before or need one that did: they are left out without --retry-failed."


def step_lines(found: Estimate) -> Iterator[str]:
    """Name the first steps, those of trials with what they try."""
    for task in found.unfinished[:SHOWN]:
        yield f"  {_named(task, found.trials)}"
    more = len(found.unfinished) - SHOWN
    if more > 0:
        yield f"  … and {more:,} more (--json lists all)"


def _named(task: Task, trials: Mapping[str, Mapping[str, Any]]) -> str:
    changes = trials.get(task.address)
    if changes is None:
        return task.label
    return f"{task.label}, trial: {', '.join(f'{name} {value}' for name, value in changes.items())}"


def failure_sentences(found: BenchRuns, cache: Path) -> Iterator[str]:
    """Say how to run again what failed of a bench, and where more is written about it.

    Args:
        found: What `Bench.run` returned.
        cache: Folder of finished steps.
    """
    numbers = {
        "run": sum(run.failure is not None for run in found.rows),
        "trial": sum(trial["failure"] is not None for trial in found.tuning),
    }
    failed = [counted(number, word) for word, number in numbers.items() if number]
    if failed:
        yield (
            f"{' and '.join(failed)} failed. The same command with --retry-failed runs again what failed; "
            f"{cache / '*' / '*' / FAILURE} hold the tracebacks."
        )


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Write seeds.

    >>> seeds_in_words([0]), seeds_in_words([0, 1, 2])
    ('seed 0', 'seeds 0, 1, 2')
    """
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
