"""What `limpet demo` shows and how long it takes, over several seeds.

    python benchmarks/demo.py --seeds 0 1 2

Writes benchmarks/results/demo.json and .md: the table of the first seed as the demo writes it, and the spread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comparison import table
from limpet.evaluation.results import EvaluationResults
from limpet.reports.evaluation import summary_rows
from limpet.reports.markdown import markdown_table
from machine import describe

RESULTS = Path(__file__).parent / "results"


def run(seed: int, folder: Path) -> tuple[EvaluationResults, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "limpet", "demo", "--seed", str(seed), "--out", str(folder), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return EvaluationResults.load(folder), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    results, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            results[seed], seconds[seed] = run(seed, Path(folder) / str(seed))
            print(f"seed {seed}: {seconds[seed]:.0f} s", flush=True)
    evaluations = {seed: found.to_dict()["evaluations"] for seed, found in results.items()}
    first = results[seeds[0]]
    lines = [
        f"# limpet demo, seed {seeds[0]}", "", markdown_table(*summary_rows(first)).strip(), "",
        f"# Seeds {', '.join(map(str, seeds))}, mAP, mean ± standard deviation", "",
        *table(evaluations, list(first.evaluations)), "",
        f"Seconds: {', '.join(f'{value:.0f}' for value in seconds.values())}, on {describe()}.", "",
    ]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    record = {"machine": describe(), "seconds": seconds, "evaluations": evaluations}
    (RESULTS / "demo.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "demo.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
