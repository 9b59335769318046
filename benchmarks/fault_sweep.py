"""A fault at every call of every operation that changes a gallery, below SQLite and Lance.

A library that is preloaded (tools/crash/fault.c) lets one call of the operating system go wrong below the gallery's
folder: it fails for want of room, or with an error of the disk; half of a write arrives and the rest fails; the process
is killed before it, or in the middle of it. This is done at every open, write, sync, rename, link, truncation and
removal of create, add, upsert, delete, start, swap, backfill, rollback, finish, cancel, gc and of opening, in the
states of an upgrade that matter. The process that met the fault does the operation again if it was refused; then a
fresh process compares journal, state, items, vectors, census, counts and searches with the twin, writes, collects
garbage, and compares again.

    python benchmarks/fault_sweep.py    # writes benchmarks/results/fault_sweep.json and .txt
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash import faults
from crash.bugs import BUGS, shown_by
from crash.processes import import_stores
from crash.sweep import Point, Result, Sweep, sample

RESULTS = Path(__file__).parent / "results"
STORES = ("memory", "lance")
_sweep: Sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=STORES, action="append", help="may be repeated; all if left out")
    parser.add_argument("--most", type=int, help="a sample of so many points per store; every point if left out")
    parser.add_argument("--only", default="", help="points whose description contains this")
    parser.add_argument("--bugs", action="store_true", help="plant all bugs afterwards, one after the other")
    parser.add_argument("--bug", choices=BUGS, action="append", default=[], help="plant this one; may be repeated")
    parser.add_argument("--lanes", type=int, default=2, help="points at a time")
    parser.add_argument("--work", type=Path, help="folder for galleries and logs; a temporary one if left out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        faults.preload()
    except faults.NoCompiler as reason:
        print(f"skipped: {reason}")
        return 0
    import_stores()
    work = Path(tempfile.mkdtemp(prefix="fault_sweep-", dir=options.work))
    records = {}
    for store in options.store or STORES:
        started = time.monotonic()
        results = run(store, work / store, options.most, options.only, options.lanes)
        bugs = shown_by(store, sweep=True) if options.bugs else options.bug
        caught = {name: hunt(store, work / store / "bug", name) for name in bugs}
        records[store] = record_of(results, caught, time.monotonic() - started)
    write(options.out, records, " ".join(["python benchmarks/fault_sweep.py", *sys.argv[1:]]))
    print(table(records))
    if any(record["violations"] for record in records.values()):
        say(f"what is left of the violations: {work}")
    else:
        shutil.rmtree(work)
    return int(not all(record["passed"] for record in records.values()))


def run(store: str, folder: Path, most: int | None, only: str, lanes: int) -> list[Result]:
    """Let the faults of a store happen."""
    global _sweep
    _sweep = Sweep(store, folder)
    _sweep.prepare()
    every = list(_sweep.every_point())
    points = [point for point in every if only in str(point)]
    if most is not None:
        points = sample(points, most)
    say(f"{store}: {len(points)} of {len(every)} points")
    results: list[Result] = []
    with ProcessPoolExecutor(lanes, multiprocessing.get_context("fork")) as pool:
        for result in pool.map(_one, points):
            results.append(result)
            if result.violation is not None:
                say(f"VIOLATION {store}, {result.point}: {result.outcome}; {result.violation[0]}: "
                    f"{result.violation[1][:1500]}")  # fmt: skip
            if len(results) % 200 == 0:
                say(f"{store}: {len(results)} points")
    return results


def hunt(store: str, folder: Path, name: str) -> dict[str, Any] | None:
    """Plant a bug until a fault shows it; return how many it took, and the check."""
    shutil.rmtree(folder, ignore_errors=True)
    sweep = Sweep(store, folder, name)
    sweep.prepare()
    points = (point for point in sweep.every_point() if BUGS[name].only in str(point))
    for count, point in enumerate(points, 1):
        violation = sweep.run(point).violation
        if violation is not None:
            if violation[0] == "error":  # of the bug itself, or of the harness: that proves nothing
                raise RuntimeError(f"The planted bug '{name}' does not run: {violation[1]}")
            say(f"{store}: planted '{name}': {count} faults, {violation[0]}")
            return {"points": count, "check": f"{violation[0]}: {violation[1][:160]}"}
    return None


def _one(point: Point) -> Result:
    return _sweep.run(point, f"point{os.getpid()}-{abs(hash(point))}")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def record_of(results: list[Result], caught: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what came of the points of a store, as plain values."""
    operations: dict[str, Counter[str]] = {}
    for result in results:
        counts = operations.setdefault(f"{result.point.kind}, {result.point.state}", Counter())
        counts[result.outcome] += 1
    violations = [
        {"point": str(result.point), "outcome": result.outcome, "found": result.violation}
        for result in results if result.violation is not None
    ]  # fmt: skip
    return {
        "points": len(results),
        "outcomes": dict(Counter(result.outcome for result in results)),
        "faults": dict(Counter(result.point.fault for result in results)),
        "operations": {name: dict(counts) for name, counts in operations.items()},
        "violations": violations,
        "planted_bugs": caught,
        "seconds": round(seconds, 1),
        "passed": not violations and all(found is not None for found in caught.values()),
    }


def write(folder: Path, records: dict[str, Any], command: str) -> None:
    """Write the results."""
    from machine import describe

    folder.mkdir(parents=True, exist_ok=True)
    whole = {"command": command, "machine": describe(), "stores": records}
    (folder / "fault_sweep.json").write_text(json.dumps(whole, indent=2) + "\n")
    told = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), "", command, describe(), "", table(records)]
    (folder / "fault_sweep.txt").write_text("\n".join(told))


def table(records: dict[str, Any]) -> str:
    """Write records for people."""
    lines = []
    for store, record in records.items():
        lines.append(f"== {store}: {record['points']} points in {record['seconds']:.0f} s ==")
        lines.append(f"{'':32}{'acknowledged':>13}{'refused':>9}{'killed':>8}{'missed':>8}")
        for name, counts in record["operations"].items():
            numbers = [counts.get(outcome, 0) for outcome in ("acknowledged", "refused", "killed", "missed")]
            lines.append(f"{name:32}{numbers[0]:13}{numbers[1]:9}{numbers[2]:8}{numbers[3]:8}")
        lines.append(f"violations: {len(record['violations'])}")
        lines += [f"  {one['point']}: {one['outcome']}; {one['found'][0]}" for one in record["violations"]]
        for name, found in record["planted_bugs"].items():
            said = "not caught" if found is None else f"caught by fault {found['points']}: {found['check']}"
            lines.append(f"planted: {name}: {said}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
