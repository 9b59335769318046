"""The commands `run`, `plan` and `suites`."""

from __future__ import annotations

import json as json_text
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from limpet.cli.toolkit import (
    EVERY,
    Api,
    Options,
    Report,
    Typed,
    as_json,
    at_work,
    check_report,
    console,
    data_root,
    in_words,
    page_line,
    page_written,
    print_json,
    print_table,
    repeated,
)
from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, DataError, refuse
from limpet.support import counted, read_text

if TYPE_CHECKING:
    from limpet_bench.executor import Progress
    from limpet_bench.leaderboard import BenchRuns
    from limpet_bench.run import Bench, Estimate
    from limpet_bench.suite import Suite
    from limpet_bench.tasks import Task

SHOWN = 20
"""Maximum number of steps of a plan to list, so that the numbers above them stay visible."""
NAMED_AT_ONCE = 2
"""Maximum number of running steps to name."""
ON_A_TERMINAL = 1.0
"""Seconds between two updates of a terminal."""
_CLOCK = "worked.json"


@dataclass(frozen=True)
class Steps(Options):
    """Steps of the suite, their cache, and the devices that run them.

    Args:
        out: Output folder for results.json, leaderboard.html and the tables. Default: runs/bench/SUITE. A previous
            leaderboard is replaced only if it is of the same suite.
        cache: Cache folder of finished steps, shared by suites.
        seeds: Seeds to use instead of those of the suite, such as 0 1 2.
        processes: Number of steps to run at once. Default: the number of devices, or processor cores.
        device: Training devices, used in turn: cpu, or cuda:0 cuda:1. Default: every accelerator found.
        retry_failed: Rerun the failed steps of this suite.
    """

    out: Path | None = None
    cache: Path = Path("runs/bench/cells")
    seeds: list[int] = field(default_factory=list)
    processes: int | None = None
    device: list[str] = field(default_factory=list)
    retry_failed: bool = False

    def of(self, name: str) -> Asked:
        """Return a suite with the environment that these options describe.

        Args:
            name: A built-in suite, or a Python file with a function that returns one.

        Raises:
            ConfigError: There is no such suite, or an option is invalid; nothing was run.
        """
        from limpet_bench.cache import TaskCache
        from limpet_bench.run import Bench
        from limpet_bench.suites import suite_named

        wrong = min(self.seeds, default=0) < 0 or len(set(self.seeds)) < len(self.seeds)
        refuse(wrong, f"--seeds {' '.join(map(str, self.seeds))}.", "whole numbers of at least 0, each once")
        suite = suite_named(name)
        if self.seeds:
            suite = replace(suite, seeds=tuple(self.seeds))
        out = self.out or Path("runs/bench") / suite.name
        _refuse_file("out", out)
        _refuse_file("cache", self.cache)
        former = _former_seeds(out, suite)
        devices = _devices(self.device)
        bench = Bench(TaskCache(self.cache), data_root(), _processes(self.processes, devices), devices)
        return Asked(suite, bench, out, former)


class Asked(NamedTuple):
    """A suite with its environment.

    Args:
        suite: The suite, with the requested seeds.
        bench: Cache, processes and devices.
        out: Folder for the leaderboard.
        former: Seeds of the existing leaderboard in the folder; None if there is none.
    """

    suite: Suite
    bench: Bench
    out: Path
    former: list[int] | None

    def estimate(self) -> Estimate:
        """Return the unfinished steps, and an estimate of their duration."""
        from limpet_bench.run import estimate

        with console.status("reading data"):
            return estimate(self.suite, self.bench.cache, self.bench.root)


def run(
    suite: str,
    /,
    *,
    steps: Steps = Steps(),
    api: Api = Api(),
    typed: Typed = Typed(""),
    report: Report | None = None,
) -> int:
    """Compare methods over data sets, scenarios and seeds, and write a leaderboard.

    Only unfinished steps of a suite run: models to train, embeddings, scores. Finished steps are cached by their
    contents, so suites share old and independent models. An interrupted run continues, and a changed option reruns only
    the steps that depend on it. The exit code is 1 if a step failed.

    Args:
        suite: Built-in suite (`limpet-bench suites`), or a Python file with a function that returns one.
        report: html writes the page leaderboard.html, none does not. Default: html if its packages are installed (`pip
            install '.[report]'`).

    Examples:
        limpet-bench run omniglot-small
        limpet-bench run mine.py --seeds 0 1 2
    """
    check_report(report)
    asked = steps.of(suite)
    if steps.retry_failed:
        asked.bench.cache.forget_failures(asked.estimate().unfinished)
    if asked.former is not None and asked.former != sorted(asked.suite.seeds):
        console.print(f"The former leaderboard in '{asked.out}', of {seeds_in_words(asked.former)}, will be replaced.")
    asked = asked._replace(bench=replace(asked.bench, api=api.asked()))
    code = _run(asked, typed, report)
    api.tell()
    return code


def plan(suite: str, /, *, steps: Steps = Steps()) -> int:
    """List the steps that a suite would run, and estimate how long they take; nothing is changed.

    The options are those of `limpet-bench run`. If data is missing, its runs are listed without their steps.

    Args:
        suite: Built-in suite (`limpet-bench suites`), or a Python file with a function that returns one.

    Examples:
        limpet-bench plan omniglot-small
        limpet-bench plan mine.py --processes 8
    """
    from limpet_bench.executor import blocked_by
    from limpet_bench.run import missing_folders

    asked = steps.of(suite)
    if missing := missing_folders(asked.suite, asked.bench.root):
        return show_runs(asked.suite, missing)
    found = asked.estimate()
    failed = 0 if steps.retry_failed else sum(bool(blocked_by(task, asked.bench.cache)) for task in found.unfinished)
    return show_plan(asked.suite, found, failed, asked.bench.processes)


def _refuse_file(option: str, folder: Path) -> None:
    taken = next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)
    if taken is not None:
        raise ConfigError(
            f"--{option} '{folder}': '{taken}' is a file.",
            expected="a folder, or a name that is free",
            to_do=f"choose another: --{option} FOLDER.",
            intact="Nothing was run.",
        )


def _former_seeds(out: Path, suite: Suite) -> list[int] | None:
    """Return the seeds of the leaderboard of this suite in a folder; None if it holds none.

    Raises:
        ConfigError: The folder holds the leaderboard of another suite, or other results.
    """
    path = out / "results.json"
    try:
        found = json_text.loads(read_text(path))
        names, seeds = (found["suite"]["name"], found["suite"]["title"]), {int(row["seed"]) for row in found["rows"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        names, seeds = None, set()
    if names == (suite.name, suite.title):
        return sorted(seeds)
    what = "results that are no leaderboard" if names is None else "the leaderboard of '{}', titled '{}'".format(*names)
    raise ConfigError(
        f"--out '{out}' holds {what}.",
        expected=f"a folder without results, or with a leaderboard of '{suite.name}', titled '{suite.title}'",
        to_do="name another: --out FOLDER.",
        intact="Nothing was run, and nothing there was changed.",
    )


def _run(asked: Asked, typed: Typed, report: Report | None) -> int:
    from limpet_bench.ranking import leaderboard_of
    from limpet_bench.reports.leaderboard import leaderboard_text, write_leaderboard_page, write_tables
    from limpet_bench.reports.suite_figures import FOLDER, write_figures

    suite, out = asked.suite, asked.out
    worked = Clock(out)
    with steps_progress(suite.title) as watch:

        def after(progress: Progress) -> None:
            watch(progress)
            if progress.task is not None:
                worked.note()

        found = replace(asked.bench, watch=after).run(suite)
    results = leaderboard_of(found, command=typed, wall_seconds=worked.seconds, references=_references(suite))
    written = results.save(out)
    tables = write_tables(results, out)
    figures = f"figures  {out / FOLDER}\n" if write_figures(results, out) else ""
    page = page_written(report, lambda: write_leaderboard_page(results, out))
    if as_json():
        print_json(results.to_dict())
    console.print(leaderboard_text(results))
    console.print(
        f"results  {written}\n{figures}tables   {', '.join(map(str, tables))}{page_line(report, page, 'page')}"
    )
    for sentence in failure_sentences(found, asked.bench.cache.root):
        console.print(sentence)
    return int(any(run.failure is not None for run in found.rows))


def _references(suite: Suite) -> dict[str, str]:
    """Return the rows that are shown but not ranked, with the reason: not aligned, or a bound."""
    from limpet.methods import METHODS

    known = {label: METHODS[run.method] for label, run in suite.rows.items() if run.adapter is None}
    bounds = {label: f"the {method.bound} bound" for label, method in known.items() if method.bound}
    alone = {label: "not aligned" for label, run in suite.rows.items() if run.maps_by == "independent"}
    return {**alone, **bounds}


def suites() -> int:
    """List the built-in suites.

    Examples:
        limpet-bench suites
    """
    from pydantic import TypeAdapter

    from limpet_bench.suite import Suite
    from limpet_bench.suites import SUITES, suite_named

    built_in = {name: suite_named(name) for name in SUITES}
    if as_json():
        plain = TypeAdapter(Suite)
        print_json({"suites": {name: plain.dump_python(suite, mode="json") for name, suite in built_in.items()}})
        return 0
    rows = [
        [name, suite.title, ", ".join(suite.data), str(len(suite.rows)), str(len(suite.seeds))]
        for name, suite in built_in.items()
    ]
    print_table("Suites", ["suite", "what it compares", "data", "rows", "seeds"], rows)
    return 0


def _devices(asked: list[str]) -> list[str]:
    """Return the devices to train on: the requested ones, else every accelerator of this machine, else the CPU.

    Raises:
        ConfigError: A device does not exist. The check computes nothing on it, which would occupy its memory.
    """
    import torch

    count = torch.cuda.device_count()
    for name in asked:
        if not _is_there(name, count):
            raise ConfigError(
                f"--device {name}, which this machine does not have.",
                expected=f"one of {', '.join(['cpu', *(f'cuda:{place}' for place in range(count))])}",
                to_do="leave it out for every accelerator that is there, or the processor.",
                intact="Nothing was run.",
            )
    return asked or [f"cuda:{number}" for number in range(count)] or ["cpu"]


def _is_there(device: str, accelerators: int) -> bool:
    import torch

    kind, _, number = device.partition(":")
    if kind == "cuda":
        return (number or "0").isdigit() and int(number or 0) < accelerators
    return device == "cpu" or (device == "mps" and torch.backends.mps.is_available())


def _processes(asked: int | None, devices: list[str]) -> int:
    from limpet.evaluation import available_cores

    if asked is not None and asked < 1:
        raise ConfigError(
            f"--processes {asked}.",
            expected="how many steps are run at once, at least 1",
            to_do="leave it out for one per device, or per core of the processor.",
        )
    if asked is not None:
        return asked
    return available_cores() if devices == ["cpu"] else len(devices)


def show_runs(suite: Suite, missing: list[str]) -> int:
    """Print the runs of a suite if data is missing; without the data, the steps that runs share are unknown."""
    from limpet_bench.run import trials_of

    trials = [len(trials_of(run)) for run in suite.runs]
    if as_json():
        places = [dict(zip(("data", "scenario", "label"), run.place, strict=True)) for run in suite.runs]
        runs = [{**place, "trials": count} for place, count in zip(places, trials, strict=True)]
        print_json({"suite": suite.name, "missing": missing, "seeds": list(suite.seeds), "runs": runs})
        return 0
    cells: dict[tuple[str, str], list[int]] = {}
    for run, count in zip(suite.runs, trials, strict=True):
        cells.setdefault(run.place[:2], []).append(count)
    title = f"{suite.title}: {counted(len(suite.runs), 'run')}, {seeds_in_words(suite.seeds)}"
    rows = [[*place, str(len(counts)), str(sum(counts))] for place, counts in cells.items()]
    print_table(title, ["data", "scenario", "rows", "trials"], rows)
    console.print(
        f"Not below the data root: {', '.join(missing)}. `limpet data` lists where data sets come from; steps and how "
        "long they take are known once all are there."
    )
    return 0


def show_plan(suite: Suite, found: Estimate, failed: int, processes: int) -> int:
    """Print the unfinished steps, and an estimate of their duration."""
    if as_json():
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
        console.print(line)
    return 0


def plan_sentences(found: Estimate, failed: int, processes: int) -> Iterator[str]:
    """Yield sentences on the duration, on steps without an estimate, and on steps that are left out."""
    count = len(found.unfinished)
    if found.seconds is not None:
        at_once = min(processes, count)
        whole = f"{in_words(found.seconds)} one after another"
        told = whole if at_once == 1 else f"{in_words(found.seconds / at_once)} with {at_once} at once ({whole})"
        yield f"About {told}, by what was measured here before, or more where steps wait for others."
        if found.unknown:
            yield f"Of {found.unknown} of the {count} steps nothing is known, and they are not counted in it."
    elif count:
        yield "The duration is unknown: no steps like these have run here yet."
    if failed:
        yield f"Of these steps {failed} failed before or need one that did: they are left out without --retry-failed."


def step_lines(found: Estimate) -> Iterator[str]:
    """Yield the names of the first steps; those of trials with their settings."""
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
    """Yield sentences on how to rerun failed steps, and where their tracebacks are."""
    from limpet_bench.cache import FAILURE

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
    """Format seeds.

    >>> seeds_in_words([0]), seeds_in_words([0, 1, 2])
    ('seed 0', 'seeds 0, 1, 2')
    """
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


class Clock:
    """Total working time of a bench, without interruptions and without runs that find everything finished."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _CLOCK
        self._before = _seconds_in(self._path) if self._path.exists() else 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of this run and of those before."""
        return self._before + time.monotonic() - self._started

    def note(self) -> None:
        """Save the time."""
        text = json_text.dumps({"seconds": round(self.seconds, 1)}) + "\n"
        write_atomically(self._path, lambda part: part.write_text(text, encoding="utf-8"))


def _seconds_in(path: Path) -> float:
    try:
        return float(json_text.loads(path.read_text(encoding="utf-8"))["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"'{path}' does not say how long this bench has worked: {error}.",
            expected="the file as `limpet-bench` wrote it",
            to_do="remove it; the time is counted from now on, and no step is lost.",
        ) from error


@contextmanager
def steps_progress(title: str, every: float = EVERY) -> Iterator[Callable[[Progress], None]]:
    """Show the number of finished steps and the running ones, and report failures immediately.

    If standard error is not a terminal, print a line at the start, one every `every` seconds, and one at the end.
    """
    started = time.monotonic()
    last: Progress | None = None

    def words() -> str:
        return f"{title}: {progress_words(last, time.monotonic() - started)}"

    def tell(progress: Progress) -> None:
        nonlocal last
        begins, last = last is None, progress
        if begins or console.is_terminal:
            show(words())
        if progress.task is not None and progress.failure is not None:
            console.print(f"failed: {progress.task.label}: {progress.failure}")

    try:
        often = ON_A_TERMINAL if console.is_terminal else every
        with _display(title) as show, at_work(""), repeated(lambda: show(words()), often):
            yield tell
    finally:
        if last is not None:
            console.print(words())


def progress_words(progress: Progress | None, seconds: float) -> str:
    """Format the progress of a bench.

    >>> from limpet_bench.tasks import Task
    >>> from limpet_bench.executor import Progress
    >>> tasks = tuple(Task("train", {}, label=name) for name in ("bct (omniglot)", "p2s (omniglot)", "lce (omniglot)"))
    >>> progress_words(Progress(None, 12, 250, running=tasks[:1]), 180), progress_words(None, 90)
    ('12 of 250 steps, 3 minutes: bct (omniglot)', 'reading data, 2 minutes')
    >>> progress_words(Progress(None, 0, 10, running=tasks), 0)
    '0 of 10 steps, 0 seconds: bct (omniglot); p2s (omniglot) and 1 more'
    """
    if progress is None:
        return f"reading data, {in_words(seconds)}"
    names = [task.label or task.kind for task in progress.running]
    more = f" and {len(names) - NAMED_AT_ONCE} more" if len(names) > NAMED_AT_ONCE else ""
    now = f": {'; '.join(names[:NAMED_AT_ONCE])}{more}" if names else ""
    return f"{progress.done} of {progress.total} steps, {in_words(seconds)}{now}"


@contextmanager
def _display(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows text: in one place of a terminal, otherwise as lines."""
    if not console.is_terminal:
        yield console.print
        return
    with console.status(title) as status:
        yield status.update
