"""Plant known faults, one at a time, and check that the tests detect each: `make mutants`.

Every fault is a mistake that a person could make, described by a table in `tools/mutants/*.toml`: what is wrong, the
file, the exact text before and after, and the narrowest tests that should detect it. A fault is planted in a temporary
copy of the repository, never in the working tree. It is killed if its tests fail (exit code 1 of pytest) and the first
test that failed passes without the fault. It has survived if its tests pass. Everything else is an error of the list:
text that does not occur exactly once, a test that does not exist, or a collection error.

An interrupted run continues where it stopped: outcomes are stored in `build/mutants.json`, and are valid until the
fault, the faulty file or one of its tests changes. A run over all faults writes `tools/mutants.txt`.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import hashlib
import json
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tools" / "mutants"
TABLE = ROOT / "tools" / "mutants.txt"
KEPT = ROOT / "build" / "mutants.json"
LIMIT = 600  # maximum seconds for the tests of one fault
AT_ONCE = 40  # number of tests that run without a fault in one process
OPTIONS = (
    "-q",
    "--no-header",
    "--tb=no",
    "-rfE",
    "-W",
    "ignore:Module already imported:pytest.PytestAssertRewriteWarning",
)
KILLED, SURVIVED, ERROR = "killed", "SURVIVED", "ERROR"

# Tests run in forks of one process that has imported slow modules, but no code of this repository.
FORKS = multiprocessing.get_context("forkserver")
PRELOADED = ["torch", "scipy.stats", "pytest", "pyarrow.parquet", "pydantic", "lightning_fabric"]

sys.path.insert(0, str(ROOT / "benchmarks"))


@dataclass(frozen=True)
class Fault:
    """One planted mistake.

    Args:
        subject: Name of the list that it is in.
        name: Unique description of what is wrong.
        file: File that is changed, relative to the repository.
        before: Text that occurs exactly once in the file.
        after: Replacement of this text.
        tests: Test files or node ids that should detect the fault.
        slow: Whether to run tests that are marked as slow, too.
    """

    subject: str
    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    slow: bool = False

    def planted(self, root: Path) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: The text before does not occur exactly once, or the fault changes nothing.
            SyntaxError: The faulty file is not valid Python.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.before)) != 1 or self.before == self.after:
            raise ValueError(f"its text occurs {times} times in {self.file}, expected exactly once")
        faulty = text.replace(self.before, self.after)
        if self.file.endswith(".py"):
            ast.parse(faulty)
        return faulty

    def key(self, root: Path) -> str:
        """Return a digest of the fault, the file and its tests; a stored outcome is valid while it is unchanged."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode())
        for path in (self.file, *(test.partition("::")[0] for test in self.tests)):
            files = sorted((root / path).rglob("*.py")) if (root / path).is_dir() else [root / path]
            for file in files:
                digest.update(file.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """The result of the tests of one fault.

    Args:
        result: `KILLED`, `SURVIVED` or `ERROR`.
        by: The first test that failed, or the reason why there is none.
        seconds: Duration of the tests in seconds.
        confirmed: Whether that test has passed without the fault.
    """

    result: str
    by: str
    seconds: float
    confirmed: bool = False


def read_faults() -> list[Fault]:
    """Return all faults of `tools/mutants/*.toml`, in the order of the files."""
    faults = []
    for path in sorted(LISTS.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
        faults += [Fault(path.stem, **{**table, "tests": tuple(table["tests"])}) for table in tables]
    return faults


def mistakes(faults: Sequence[Fault]) -> Iterator[str]:
    """Yield the errors of the list of faults."""
    seen: set[str] = set()
    for fault in faults:
        if fault.name in seen:
            yield f"{fault.name}: the name occurs twice"
        seen.add(fault.name)
        try:
            fault.planted(ROOT)
        except (OSError, ValueError, SyntaxError) as error:
            yield f"{fault.name}: {error}"
        for test in fault.tests:
            if not (ROOT / test.partition("::")[0]).exists():
                yield f"{fault.name}: {test} does not exist"


def copy_of_the_tree(place: Path) -> Path:
    """Copy all files that git tracks or does not ignore, with their times, into a folder; return the folder."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def run_tests(tree: Path, tests: Sequence[str], *options: str) -> tuple[int | None, str]:
    """Run pytest on a copy of the tree; return its exit code (None after the time limit) and its output."""
    output = tree / "output-of-tests.txt"
    process = FORKS.Process(target=be_pytest, args=(tree, output, [*OPTIONS, *options, *tests]))
    process.start()
    process.join(LIMIT)
    code = process.exitcode
    if code is None:
        os.killpg(process.ident or 0, signal.SIGKILL)
        process.join()
    return code, output.read_text(encoding="utf-8", errors="replace")


def be_pytest(tree: Path, output: Path, arguments: Sequence[str]) -> None:
    """Run pytest in this process on a copy of the tree, in a new session; limpet is imported from the copy."""
    import pytest

    os.setsid()
    os.chdir(tree)
    multiprocessing.set_start_method(None, force=True)  # Python's default, not that of this tool
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    packages = [str(tree / folder) for folder in ("src", "bench/src") if (tree / folder).is_dir()]
    sys.path[:0] = packages
    os.environ |= {"PYTHONPATH": os.pathsep.join(packages), "PYTHONDONTWRITEBYTECODE": "", "COLUMNS": "200"}
    sys.dont_write_bytecode = False  # the next fault uses the compiled modules
    code = int(pytest.main(list(arguments)))
    atexit._run_exitfuncs()  # they stop servers of tests; multiprocessing does not run them
    sys.stdout.flush()
    os._exit(code)


def without_compiled(path: Path) -> None:
    """Remove the compiled forms of a source file, because faulty files of equal size and time would share them."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def failed_tests(output: str) -> list[str]:
    """Return the node ids of the tests that failed, in order."""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [line.split(" ", 1)[1].partition(" - ")[0] for line in lines]


def try_fault(fault: Fault, tree: Path) -> Outcome:
    """Plant one fault in a copy of the tree, run its tests, and undo the fault."""
    path = tree / fault.file
    faulty, begun = fault.planted(tree), time.monotonic()
    sound, times = path.read_bytes(), path.stat()
    try:
        path.write_text(faulty, encoding="utf-8")
        without_compiled(path)
        marks = ("-m", "not gpu and not optional") if fault.slow else ()
        code, output = run_tests(tree, fault.tests, "-x", *marks)
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        without_compiled(path)
    seconds = round(time.monotonic() - begun, 1)
    lines = output.strip().splitlines() or ["no output"]
    if code == 1 and (failed := failed_tests(output)):
        return Outcome(KILLED, failed[0], seconds)
    if code == 0:
        return Outcome(SURVIVED, lines[-1], seconds)
    return Outcome(ERROR, f"no end within {LIMIT} s" if code is None else f"exit code {code}: {lines[-1]}", seconds)


def failing_without_faults(outcomes: Iterable[Outcome], tree: Path) -> set[str]:
    """Run the tests that killed faults on an unchanged copy; return the node ids of those that fail."""
    tests = sorted({outcome.by for outcome in outcomes})
    parts = [tests[start : start + AT_ONCE] for start in range(0, len(tests), AT_ONCE)]
    found: set[str] = set()
    for part in parts:
        code, output = run_tests(tree, part, "-m", "not gpu and not optional")
        if code in (0, 1):
            found |= set(failed_tests(output))
        elif len(part) > 1:
            parts += [[test] for test in part]  # one test cannot be run by its name: run each alone
        else:
            found |= set(part)
    return found


def table(faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> str:
    """Return a table with one line for every fault, under the name of its list."""
    lines, subject = [], ""
    for fault in faults:
        if fault.subject != subject:
            subject = fault.subject
            lines += ["", subject]
        found = outcomes[fault.name]
        lines.append(f"  {found.result:8} {found.seconds:6.1f} s  {fault.name}  [{fault.file}]  {found.by}")
    return "\n".join(lines).lstrip("\n")


def main() -> int:
    """Run the tool; return 0 if every fault is killed, 1 if one survives, 2 if the list has an error."""
    parser = argparse.ArgumentParser(description="Plant faults and check that the tests notice each.")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT",
                        help="run the faults of this list, or with this text in name or file; repeatable")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="check that every fault fits the code; run no tests")
    parser.add_argument("--again", action="store_true", help="forget the outcomes of an earlier run")
    given = parser.parse_args()
    every = read_faults()
    faults = [
        fault
        for fault in every
        if not given.only
        or any(text == fault.subject or text in fault.name or text in fault.file for text in given.only)
    ]
    wrong = list(mistakes(faults))
    if wrong or not faults:
        print("\n".join(wrong) or f"No fault matches {given.only}. Lists: {LISTS}.")
        return 2
    if given.check:
        print(f"{len(faults)} faults fit the code.")
        return 0

    kept = {} if given.again or not KEPT.exists() else json.loads(KEPT.read_text(encoding="utf-8"))
    keys = {fault.name: fault.key(ROOT) for fault in faults}
    outcomes = {fault.name: Outcome(**kept[keys[fault.name]]) for fault in faults if keys[fault.name] in kept}
    left = [fault for fault in faults if fault.name not in outcomes]
    begun = time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests/conftest.py has it; it is read at import
    FORKS.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(2):
            trees.put(copy_of_the_tree(Path(folder) / str(number)))

        def tried(fault: Fault) -> tuple[Fault, Outcome]:
            tree = trees.get()
            try:
                return fault, try_fault(fault, tree)
            finally:
                trees.put(tree)

        def keep(fault: Fault, outcome: Outcome) -> None:
            outcomes[fault.name] = outcome
            if outcome.result != ERROR:
                kept[keys[fault.name]] = asdict(outcome)
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(kept), encoding="utf-8")

        pool = ThreadPoolExecutor(2)
        try:
            for done in as_completed([pool.submit(tried, fault) for fault in left]):
                fault, outcome = done.result()
                keep(fault, outcome)
                print(f"{len(outcomes):4}/{len(faults)} {outcome.result:8} {outcome.seconds:6.1f} s  {fault.name}: "
                      f"{outcome.by}", flush=True)  # fmt: skip
        finally:
            pool.shutdown(cancel_futures=True)
        open_ = [
            fault for fault in faults if outcomes[fault.name].result == KILLED and not outcomes[fault.name].confirmed
        ]
        failing = failing_without_faults((outcomes[fault.name] for fault in open_), Path(folder) / "0")
        for fault in open_:
            outcome = outcomes[fault.name]
            if outcome.by in failing:
                outcomes[fault.name] = replace(outcome, result=ERROR, by=f"fails without the fault, too: {outcome.by}")
                del kept[keys[fault.name]]
            else:
                keep(fault, replace(outcome, confirmed=True))

    results = [outcomes[fault.name].result for fault in faults]
    seconds = sum(outcomes[fault.name].seconds for fault in faults)
    told = (
        f"{len(faults)} faults: {results.count(KILLED)} killed, {results.count(SURVIVED)} survived, "
        f"{results.count(ERROR)} errors; {seconds / 60:.0f} minutes of tests, two at a time"
    )
    if not given.only:
        from machine import describe

        TABLE.write_text(f"{describe()}\n{told}\n\n{table(faults, outcomes)}\n", encoding="utf-8")
    others = [fault for fault in faults if outcomes[fault.name].result != KILLED]
    if others:
        print("", table(others, outcomes), sep="\n")
    print("", f"{told}; this run took {(time.monotonic() - begun) / 60:.0f} minutes", sep="\n")
    return 2 if ERROR in results else int(SURVIVED in results)


if __name__ == "__main__":
    raise SystemExit(main())
