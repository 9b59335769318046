"""The same backfill by one command, a loop in a shell, an array of jobs, a program of one's own and Spark.

Commands and code are those of docs/tutorials/workers.md: each engine fills a gallery of its own from the sample data,
and what `limpet gallery export` writes of each is compared with that of `limpet upgrade backfill`, byte for byte. An
array of jobs runs as Slurm runs it, one job after another. The program of its own embeds by another library, whose
additions round differently. Spark needs Java and PySpark, which limpet does not install:

    apt-get install -y default-jre-headless
    pip install pyspark
    python benchmarks/protocol_engines.py            # writes benchmarks/results/protocol_engines.txt
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "tutorials" / "workers.md").read_text(encoding="utf-8")
OWN = "a program of its own"
ENGINES = ("one command", "a loop in a shell", "an array of jobs", OWN, "Spark")


def block(language: str, word: str) -> str:
    """Return the block of the page that has a word."""
    (found,) = [one for one in re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.S | re.M) if word in one]
    return str(found)


def why_no_spark() -> str | None:
    """Say what Spark lacks here; None where it runs."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed"
    return None if shutil.which("java") else "there is no Java"


def run(engine: str, folder: Path) -> bytes:
    """Fill a gallery by an engine in a folder with the sample data; return what is exported of the new vectors."""

    def call(*words: str, **settings: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            words, cwd=folder, env={**os.environ, "PATH": path, **settings}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    for gone in ("live", "runs/work"):
        shutil.rmtree(folder / gone, ignore_errors=True)
    texts = ("--model", "st:models/v2", "--texts", "requests.csv")
    call("limpet", "gallery", "create", "live", "--texts", "requests.csv", "--model", "st:models/v1")
    call("limpet", "upgrade", "start", "live", "--model", "st:models/v2")
    if engine == "one command":
        call("limpet", "upgrade", "backfill", "live", *texts)
    else:
        call("limpet", "fragments", "plan", "live", "runs/work", "--items", "100")
        (folder / "own_worker.py").write_text(block("python", "# own_worker.py"))
        if engine == "a loop in a shell":
            call("bash", "-c", block("sh", "xargs"))
        elif engine == "an array of jobs":
            (folder / "make.sh").write_text(block("sh", "SLURM_ARRAY_TASK_ID"))
            for number, _ in enumerate((folder / "runs" / "work" / "shards").iterdir()):
                call("sh", "make.sh", SLURM_ARRAY_TASK_ID=str(number))
        elif engine == OWN:
            call(sys.executable, "own_worker.py")
        else:
            (folder / "spark_worker.py").write_text(block("text", "SparkSession"))
            call(sys.executable, "spark_worker.py")
        call("limpet", "fragments", "accept", "live", "runs/work")
    call("limpet", "gallery", "export", "live", "--generation", "g2", "--out", "vectors.parquet")
    return (folder / "vectors.parquet").read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "protocol_engines.txt")
    options = parser.parse_args()
    lines, expected, wrong = [], b"", 0
    with tempfile.TemporaryDirectory(prefix="limpet-engines-") as name:
        limpet = str(Path(sys.executable).parent / "limpet")
        subprocess.run([limpet, "examples", "copy", "shop-workers"], cwd=name, check=True, capture_output=True)
        for engine in ENGINES:
            if engine == "Spark" and (lacking := why_no_spark()):
                lines.append(f"{engine:22}not run: {lacking}")
                continue
            began = time.monotonic()
            found = run(engine, Path(name) / "shop-workers")
            expected = expected or found
            wrong += found != expected and engine != OWN
            same = "equal" if found == expected else "NOT equal"
            digest = hashlib.sha256(found).hexdigest()[:16]
            lines.append(
                f"{engine:22}{time.monotonic() - began:6.1f} s  export {digest}, {same} to that of one command"
            )
    spark = "" if why_no_spark() else f", PySpark {importlib.metadata.version('pyspark')}"
    text = "\n".join(["python benchmarks/protocol_engines.py", "", *lines, "", describe("pylance") + spark, ""])
    print(text)
    options.out.write_text(text)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
