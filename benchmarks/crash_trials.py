"""Galleries that are killed while they write, reopened by a fresh process, and held to what they promised.

A script of random operations (add, upsert, delete, start, link, swap, backfill, rollback, finish, cancel, gc) is
played on a small gallery and, in plain Python, on its twin. SIGKILL comes at a random time, at one of the points that
the stores name (each write, sync, commit, drop and pointer move), or up to 4 ms after one. In two of three trials of a
gallery in a folder the power fails as well: files, or the parts of them, that were never synced are removed before the
gallery is reopened, all of them or each by chance, and the database goes back to its last synced state. With
PostgreSQL the server's processes are killed too in a share of the trials; which files it syncs is its own business.
A fifth of the processes that reopen are killed themselves. A sharded gallery has shards of LanceDB and in memory, and
its top loses the reply of every twentieth move. Of requests to the bucket of a gallery on S3, 1 % are answered with an
error and not done; of writes, 1 % are done and lose their reply, and 1 % are done and answered with an error.

Beside every process another one searches and scans all the time: every reply has to be of one commit, not older than
the last one that was acknowledged, and nothing may fail. Beside the first one a second writer takes turns, and goes on
where that was killed; a lock that no gallery knows of tells two at a time. In a third of the trials the clock of the
process jumps by hours, in a quarter it forks a child that outlives it, and in two of five the gallery is moved before
it is opened again, by its name or by copying it.

In further trials the disk is full or fails at every point in turn, or files must not grow beyond a size; with
PostgreSQL the server dies under a client that lives on.

After every kill a fresh process opens the gallery and compares journal, state, items, vectors, census, counts and
searches of every model's queries with the twin, writes at once, ends the backfill, rolls back, finishes, collects
garbage, and compares again after each.

    python benchmarks/crash_trials.py --store memory    # adds to benchmarks/results/crash_trials.json and .txt
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash import faults
from crash.bugs import BUGS, shown_by
from crash.run import BUG_TRIALS, HITS, STORES, Tally, run

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=STORES, default="memory")
    parser.add_argument("--trials", type=int, default=1000, help="kills that count")
    parser.add_argument("--errors", type=int, help="trials with a failing disk; a tenth of the kills if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=2, help="trials at a time")
    parser.add_argument("--templates", type=int, default=10, help="galleries to start from")
    parser.add_argument("--no-bugs", action="store_true", help="plant no bugs")
    parser.add_argument("--bug", choices=BUGS, action="append", help="plant this one only; may be repeated")
    parser.add_argument("--work", type=Path, help="folder for galleries and logs; a temporary one if left out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        faults.preload()
    except faults.NoCompiler as reason:
        _say(f"clocks do not jump: {reason}")
    errors = options.trials // 10 if options.errors is None else options.errors
    work = Path(tempfile.mkdtemp(prefix="crash_trials-", dir=options.work))
    work.chmod(0o755)
    bugs = [] if options.no_bugs else options.bug or shown_by(options.store, sweep=False)
    tally = run(
        options.store, work, trials=options.trials, errors=errors, seed=options.seed, lanes=options.lanes, bugs=bugs,
        templates=options.templates, say=_say,
    )  # fmt: skip
    record = record_of(tally, options.trials, errors, options.seed)
    write(options.out, record)
    if tally.violations:
        _say(f"what is left of the violations: {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    print(table({options.store: record}))
    return int(not record["passed"])


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def record_of(tally: Tally, trials: int, errors: int, seed: int) -> dict[str, Any]:
    """Return what came of the trials of a store, as plain values."""
    from machine import describe

    points = tally.points
    random_kills = points.pop("random", 0)
    caught = {
        name: None if found is None else {"trials": found[0], "check": found[1]} for name, found in tally.caught.items()
    }
    enough = trials < 1000 or tally.fewest[0] >= HITS
    return {
        "command": f"python benchmarks/crash_trials.py --store {tally.store} --trials {trials} --errors {errors} "
        f"--seed {seed}",
        "machine": describe(),
        "trials": sum(tally.kills.values()),
        "galleries": tally.trials,
        "kills_at_random_times": random_kills,
        "kills_by_point": {point: points[point] for point in tally.known},
        "kills_by_operation": dict(sorted(tally.kinds.items())),
        "power": dict(sorted(tally.powers.items())),
        "lost_with_power": tally.lost,
        "moved": tally.moved,
        "replies_beside": tally.replies,
        "clocks": "jumping" if faults.preloaded() else "steady",
        "errors_by_point": dict(sorted(_by_point(tally.errors).items())),
        "violations": [{"plan": vars(plan), "found": found} for plan, found in tally.violations],
        "planted_bugs": caught,
        "seconds": round(tally.seconds, 1),
        "passed": not tally.violations and enough and all(found is not None for found in caught.values()),
    }


def _by_point(errors: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for (point, _), count in errors.items():
        found[point] = found.get(point, 0) + count
    return found


def write(folder: Path, record: dict[str, Any]) -> None:
    """Add the record of a store to the results."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "crash_trials.json"
    store = record["command"].split("--store ")[1].split()[0]
    records = json.loads(path.read_text()) if path.exists() else {}
    records[store] = record
    path.write_text(json.dumps({name: records[name] for name in STORES if name in records}, indent=2) + "\n")
    (folder / "crash_trials.txt").write_text(table(json.loads(path.read_text())))


def table(records: dict[str, dict[str, Any]]) -> str:
    """Write records for people."""
    lines = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), ""]
    for store, record in records.items():
        lines += [
            f"== {store} ==",
            f"command    {record['command']}",
            f"machine    {record['machine']}",
            f"trials     {record['trials']} on {record['galleries']} galleries in {record['seconds']:.0f} s; in each a "
            f"kill between first and last write, {record['kills_at_random_times']} of them at random times",
            f"violations {len(record['violations'])}",
            f"power      {_listed(record['power'])}; {record['lost_with_power']} files, databases or servers lost",
            f"beside     {record['replies_beside']} replies, each of one commit; {record['clocks']} clocks; "
            f"galleries moved {record['moved']} times",
            "",
            "kills by point             " + _listed(record["kills_by_point"]),
            "kills by operation         " + _listed(record["kills_by_operation"]),
            "errors of the disk by point " + _listed(record["errors_by_point"]),
            "",
        ]
        for name, found in record["planted_bugs"].items():
            said = (
                f"not in {BUG_TRIALS} trials"
                if found is None
                else f"caught in trial {found['trials']} by {found['check']}"
            )
            lines.append(f"planted: {name}: {said}")
        lines += ["" if not record["planted_bugs"] else "\n" + ("passed" if record["passed"] else "FAILED"), ""]
    return "\n".join(lines).rstrip() + "\n"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


if __name__ == "__main__":
    sys.exit(main())
