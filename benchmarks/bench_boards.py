"""The boards of results/bench again, from the runs that come with the package: when ranks or words have changed.

python benchmarks/bench_boards.py     # seconds
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from limpet.bench.leaderboard import BenchRuns
from limpet.bench.ranking import leaderboard_of
from limpet.reports.leaderboard import headline, write_leaderboard_page, write_tables

RESULTS = Path(__file__).parent / "results" / "bench"
SUITES = ("frozen-text", "image-upgrade", "omniglot-small", "text-upgrade", "tiny-imagenet-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of a folder per suite")
    arguments = parser.parse_args()
    for suite in SUITES:
        document = json.loads((files("limpet.bench") / "evidence" / f"{suite}.json").read_text())
        found, told = BenchRuns.model_validate(document), {key: document[key] for key in ("command", "wall_seconds")}
        references = {run.label: "not aligned" for run in found.rows if run.method == "independent"}
        results = leaderboard_of(found, **told, references=references)
        write_tables(results, arguments.out / suite)
        (arguments.out / suite / "leaderboard.tex").unlink()  # not kept with the results
        write_leaderboard_page(results, arguments.out / suite)
        print(f"{suite}: {headline(results)}")


if __name__ == "__main__":
    main()
