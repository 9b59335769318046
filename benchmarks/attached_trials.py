"""Upgrades on an application's own table, whose operator, application and server are killed in random order.

What is killed and what is compared is told in `tests/crash/attached.py`. The planted bugs (a trigger that is missing, a
renaming without a transaction, a stale row taken for a fresh one, a rollback to vectors of earlier texts) have to be
found, each within as many kills as are given for it. With --one-column vectors of both models share the application's
column (bugs: a kept vector that stays when its row is edited, one that is put back without its mark).

    python benchmarks/attached_trials.py --kills 1000       # writes benchmarks/results/attached_trials.txt
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash.attached import BUGS, SHARED_BUGS, Tally, trials
from crash.server import Server
from machine import describe

RESULTS = Path(__file__).parent / "results"


def told(tally: Tally) -> str:
    """Say what came of trials."""
    kills = ", ".join(f"{count} of {victim}" for victim, count in sorted(tally.kills.items()))
    steps = ", ".join(f"{count} of {step}" for step, count in sorted(tally.steps.items()))
    return (
        f"{tally.killed} kills ({kills}) in {tally.rounds} whole rounds; steps that came to an end: {steps}; "
        f"{tally.writes:,} acknowledged writes; {tally.reads:,} reads of the whole table, {tally.checks} comparisons "
        f"with what the applications remember: {len(tally.violations)} violations"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--bug-kills", type=int, default=200, help="within which a planted bug has to be found")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bugs", action="store_true")
    parser.add_argument("--one-column", action="store_true")
    parser.add_argument("--out", type=Path, help="attached_trials.txt, or attached_trials_one_column.txt")
    given = parser.parse_args()
    shared = given.one_column
    out = given.out or RESULTS / f"attached_trials{'_one_column' if shared else ''}.txt"
    server, started = Server(), time.monotonic()
    lines = [(__doc__ or "").splitlines()[0], ""]
    try:
        plain = trials(
            server, given.kills, given.seed, told=lambda tally: print(told(tally), flush=True), shared=shared
        )
        lines += [f"{told(plain)}.", *(f"  {one}" for one in plain.violations[:20])]
        missed = []
        for bug in () if given.no_bugs else SHARED_BUGS if shared else BUGS:
            found = trials(server, given.bug_kills, given.seed, bug, shared=shared)
            first = found.violations[0] if found.violations else "not found"
            lines.append(f"planted {bug}: after {found.killed} kills: {first}")
            print(lines[-1], flush=True)
            missed += [] if found.violations else [bug]
    finally:
        server.stop()
    lines += ["", f"{time.monotonic() - started:.0f} s. {describe('psycopg')}", "",
              f"python benchmarks/attached_trials.py{' --one-column' * shared} --kills {given.kills} "
              f"--seed {given.seed}"]  # fmt: skip
    out.write_text("\n".join(lines) + "\n")
    return 1 if plain.violations or missed else 0


if __name__ == "__main__":
    sys.exit(main())
