"""Whether two checkouts give the same numbers for the rows of a suite: compares the leaderboards that both wrote.

    limpet-bench run frozen-text --seeds 0 --out AFTER     # in this checkout, and likewise to BEFORE in the other one
    python benchmarks/equal_rows.py BEFORE/leaderboard.csv AFTER/leaderboard.csv 'suite and commits'

Writes equal_rows.txt.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from machine import describe

RESULTS = Path(__file__).parent / "results"
KEY = ("line", "label", "method", "data", "trained_on", "scenario", "seed", "metric")
MEASURED = ("seconds", "images_per_second", "waiting")  # times, which differ from run to run


def rows(path: str) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of a leaderboard by what names them, without times."""
    with Path(path).open(newline="") as file:
        return {
            tuple(row[name] for name in KEY): {name: value for name, value in row.items() if name not in MEASURED}
            for row in csv.DictReader(file)
        }


def main() -> int:
    before, after = rows(sys.argv[1]), rows(sys.argv[2])
    different = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    values = sum(bool(value) for row in after.values() for value in row.values())
    lines = [
        *sys.argv[3:],
        f"{len(before)} rows before, {len(after)} after, {values} values: {len(different)} rows differ.",
        *(" ".join(key) for key in sorted(different)),
        describe(),
    ]
    (RESULTS / "equal_rows.txt").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
