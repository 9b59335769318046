"""Processor seconds of the tests, by folder, and the dearest: a wall clock misleads where others keep cores busy.

Every folder is run in a process of its own, `python benchmarks/test_time.py [FOLDER ...] [-m slow]`. What was measured
is kept in ``build/test_time``, so that one folder can be measured again; the tables say what is there.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from machine import describe

ROOT = Path(__file__).parents[1]
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: servers that leave their parent are still ours to count


def spent() -> float:
    """Return processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Meter:
    """Notes what collecting takes, and each test with what is set up and taken down for it."""

    def __init__(self) -> None:
        self.collecting, self.tests = 0.0, Counter[str]()

    def pytest_collection_finish(self) -> None:
        self.collecting = spent()  # with imports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        before = spent()
        result = yield
        self.tests[item.nodeid] += spent() - before
        return result


def measure(folder: str, marks: str, place: Path) -> None:
    """Run the tests of a folder in this process, and write what they took."""
    meter = Meter()
    code = pytest.main([folder, "-q", "-m", marks, "--no-header", "--tb=short"], plugins=[meter])
    found = {"folder": folder, "failed": int(code) not in (0, 5), "collecting": meter.collecting, "tests": meter.tests}
    place.write_text(json.dumps(found))


def whole(command: list[str]) -> float:
    """Return processor seconds of a command with all that it starts, servers that it leaves to themselves too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tables(records: list[dict], dearest: int) -> str:
    """Lay out what folders took, dearest first."""
    rows = [f"{'folder':<24}{'tests':>7}{'collecting':>12}{'tests, s':>10}{'in all, s':>11}"]
    for one in sorted(records, key=lambda one: -one["all"]):
        mine = sum(one["tests"].values())
        mark = "  some failed" if one["failed"] else ""
        rows.append(
            f"{one['folder']:<24}{len(one['tests']):>7}{one['collecting']:>12.1f}{mine:>10.1f}{one['all']:>11.1f}{mark}"
        )
    tests = Counter({name: seconds for one in records for name, seconds in one["tests"].items()})
    rows.append(
        f"{'together':<24}{len(tests):>7}{sum(one['collecting'] for one in records):>12.1f}"
        f"{sum(tests.values()):>10.1f}{sum(one['all'] for one in records):>11.1f}"
    )
    modules = Counter[str]()
    for name, seconds in tests.items():
        modules[name.split("::")[0]] += seconds
    for title, counted in (("modules", modules), ("tests", tests)):
        rows += ["", f"The {dearest} dearest {title}, seconds:"]
        rows += [f"{seconds:8.2f}  {name}" for name, seconds in counted.most_common(dearest)]
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", help="which folders; all of them, and the doctests, if left out")
    parser.add_argument(
        "-m", dest="marks", default="not slow and not gpu and not optional", help="which tests, as pytest is told"
    )
    parser.add_argument("--dearest", type=int, default=30, help="how many of the dearest to name")
    parser.add_argument("--to", type=Path, default=ROOT / "build/test_time", help="where measurements are kept")
    parser.add_argument("--show", action="store_true", help="run nothing: lay out what is kept")
    parser.add_argument("--label", default="", help="what was measured, for the first line")
    parser.add_argument("--out", type=Path, help="where to write the tables, too")
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        measure(asked.folders[0], asked.marks, asked.only)
        return
    assert ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0) == 0
    asked.to.mkdir(parents=True, exist_ok=True)
    places = [path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and any(path.rglob("test_*.py"))]
    alone = sorted((ROOT / "tests").glob("test_*.py"))
    every = [*(str(path.relative_to(ROOT)) for path in (*places, *alone)), "src/limpet"]
    for folder in () if asked.show else asked.folders or every:
        place = asked.to / (folder.strip("/").replace("/", "-") + ".json")
        command = [sys.executable, __file__, folder, "-m", asked.marks, "--only", str(place.resolve())]
        seconds = whole(command)
        place.write_text(json.dumps(json.loads(place.read_text()) | {"all": seconds}))
        print(f"{seconds:8.1f}  {folder}", flush=True)
    records = [json.loads(path.read_text()) for path in sorted(asked.to.glob("*.json"))]
    text = "\n".join(filter(None, (asked.label, describe(), "", tables(records, asked.dearest))))
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
