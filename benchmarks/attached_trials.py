"""Upgrades beside an application, whose operator, application and server are killed in random order.

What is killed and what is compared is told in `tests/crash/attached.py` and, of Milvus 2.3.5, in
`tests/crash/collections.py`. Planted bugs have to be found, each within as many kills as are given for it: a trigger
that is missing, a renaming without a transaction, a stale row taken for a fresh one, a rollback to vectors of earlier
texts; where vectors of both models share a column a kept vector that stays when its row is edited, and one that is put
back without its mark; of a collection rows that are never filled again, and deleted ones that stay.

    python benchmarks/attached_trials.py --kills 1000             # writes benchmarks/results/attached_trials.txt
    python benchmarks/attached_trials.py one_column --kills 1000  # …/attached_trials_one_column.txt
    python benchmarks/attached_trials.py milvus --kills 200       # …/attached_trials_milvus.txt
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash import attached, collections
from crash.attached import Tally
from crash.server import Server
from machine import describe

RESULTS = Path(__file__).parent / "results"
BUGS = {"columns": attached.BUGS, "one_column": attached.SHARED_BUGS, "milvus": collections.BUGS}


def told(tally: Tally) -> str:
    """Say what came of trials."""
    kills = ", ".join(f"{count} of {victim}" for victim, count in sorted(tally.kills.items()))
    steps = ", ".join(f"{count} of {step}" for step, count in sorted(tally.steps.items()))
    return (
        f"{tally.killed} kills ({kills}) in {tally.rounds} whole rounds; steps that came to an end: {steps}; "
        f"{tally.writes:,} acknowledged writes; {tally.reads:,} reads of everything that serves, {tally.checks} "
        f"comparisons with what the applications remember: {len(tally.violations)} violations"
    )


def trials(place: str, kills: int, seed: int, bug: str | None = None, tell: Callable[[Tally], Any] = id) -> Tally:
    """Kill so often; stop at the first violation."""
    if place == "milvus":
        return collections.trials(kills, seed, bug, told=tell)
    server = Server()
    try:
        return attached.trials(server, kills, seed, bug, told=tell, shared=place == "one_column")
    finally:
        server.stop()


def main() -> int:
    said = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=said)
    parser.add_argument("place", nargs="?", choices=BUGS, default="columns", help="where both models' vectors are")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--bug-kills", type=int, default=200, help="within which a planted bug has to be found")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bugs", action="store_true")
    parser.add_argument("--out", type=Path, help="the file named above if left out")
    given = parser.parse_args()
    name = "attached_trials" if given.place == "columns" else f"attached_trials_{given.place}"
    out = given.out or RESULTS / f"{name}.txt"
    started = time.monotonic()
    plain = trials(given.place, given.kills, given.seed, tell=lambda tally: print(told(tally), flush=True))
    lines, missed = [said, "", f"{told(plain)}.", *(f"  {one}" for one in plain.violations[:20])], []
    for bug in () if given.no_bugs else BUGS[given.place]:
        found = trials(given.place, given.bug_kills, given.seed, bug)
        first = found.violations[0] if found.violations else "not found"
        lines.append(f"planted {bug}: after {found.killed} kills: {first}")
        print(lines[-1], flush=True)
        missed += [] if found.violations else [bug]
    packages = ("pymilvus", "milvus") if given.place == "milvus" else ("psycopg",)
    lines += [
        "",
        f"{time.monotonic() - started:.0f} s. {describe(*packages)}",
        "",
        f"python benchmarks/attached_trials.py {given.place} --kills {given.kills} --seed {given.seed}",
        "",
    ]
    out.write_text("\n".join(lines))
    return 1 if plain.violations or missed else 0


if __name__ == "__main__":
    sys.exit(main())
