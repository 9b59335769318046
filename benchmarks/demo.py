"""What `limpet demo` shows and how long it takes, over several seeds.

    python benchmarks/demo.py --seeds 0 1 2

Writes benchmarks/results/demo.json and .md: the table of the first seed as the demo writes it, and the spread. Of the
first seed it also writes what documents show: the table in README.md and docs/index.md, and the images of its report in
docs/images, which take Chromium.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageChops

from comparison import table
from limpet.evaluation.results import EvaluationResults
from limpet.reports.evaluation import summary_rows
from limpet.reports.markdown import markdown_table
from machine import describe

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SHOWN = {"report": "verdict", "report_charts": "scores"}  # the section of the report that each image shows


def run(seed: int, folder: Path) -> tuple[EvaluationResults, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "limpet", "demo", "--seed", str(seed), "--out", str(folder), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return EvaluationResults.load(folder), time.perf_counter() - start


def quote(path: Path, rows: str) -> None:
    """Put the table of the demo into a document, in place of the one that it holds."""
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"^\| model \(mAP\)(?:.*\n)+?(?=[^|])", rows, text, flags=re.MULTILINE), encoding="utf-8")


def photograph(page: Path, folder: Path) -> None:
    """Write images of sections of a report, in its light colours, as they look on a desk."""
    text = page.read_text(encoding="utf-8")
    head, main, rest = re.split(r"(?<=<main>)|(?=</main>)", text)
    for name, section in SHOWN.items():
        shown = re.search(rf'<section aria-labelledby="{section}">.*?</section>', main, re.DOTALL)
        assert shown is not None, f"the report has no section {section}"
        top = head if section == "verdict" else re.sub(r"<header.*</header>", "", head, flags=re.DOTALL)
        part, image = page.with_name(f"{name}.html"), folder / f"{name}.png"
        part.write_text(f"{top}{shown[0]}{re.sub('<footer.*</footer>', '', rest)}", encoding="utf-8")
        subprocess.run([str(BROWSER), "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1160,3000",
                        f"--screenshot={image}", part.as_uri()], check=True, capture_output=True)  # fmt: skip
        drawn = Image.open(image).convert("RGB")
        blank = Image.new("RGB", drawn.size, drawn.getpixel((0, drawn.height - 1)))
        _, above, _, below = ImageChops.difference(drawn, blank).getbbox()
        drawn.crop((0, max(0, above - 24), drawn.width, below + 24)).save(image, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    results, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            results[seed], seconds[seed] = run(seed, Path(folder) / str(seed))
            print(f"seed {seed}: {seconds[seed]:.0f} s", flush=True)
        if BROWSER is not None:
            photograph(Path(folder) / str(seeds[0]) / "report.html", ROOT / "docs" / "images")
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
    for document in ("README.md", "docs/index.md"):
        quote(ROOT / document, markdown_table(*summary_rows(first)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
