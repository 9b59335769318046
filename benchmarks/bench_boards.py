"""The boards of results/bench again, from the runs that come with the package: when ranks or words have changed.

python benchmarks/bench_boards.py     # seconds
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from holdfast.bench.board import board_document
from holdfast.reports.leaderboard_files import write_tables
from holdfast.reports.leaderboard_page import write_leaderboard_page
from holdfast.reports.leaderboard_results import leaderboard_document
from holdfast.reports.leaderboard_words import headline

RESULTS = Path(__file__).parent / "results" / "bench"
SUITES = ("frozen-text", "omniglot-small", "tiny-imagenet-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of a folder per suite")
    arguments = parser.parse_args()
    for suite in SUITES:
        found = json.loads((files("holdfast.bench") / "evidence" / f"{suite}.json").read_text())
        references = {row["label"]: "not aligned" for row in found["rows"] if row["method"] == "independent"}
        told = {name: found[name] for name in ("suite", "machine", "command", "wall_seconds", "tuning")}
        document = leaderboard_document(board_document(found["rows"], **told, references=references))
        write_tables(document, arguments.out / suite)
        (arguments.out / suite / "leaderboard.tex").unlink()  # not kept with the results
        write_leaderboard_page(document, arguments.out / suite)
        print(f"{suite}: {headline(document)}")


if __name__ == "__main__":
    main()
