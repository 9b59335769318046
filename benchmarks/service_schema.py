"""Whether any request of the API's description makes the service fail, by Schemathesis.

    python benchmarks/service_schema.py                       # writes results/service_schema.txt
    python benchmarks/service_schema.py --examples 20

A service of a gallery of forty items gets generated requests for every operation of its /openapi.json, right and wrong
ones, and sequences of requests. An answer with a status of 500 or above, or one that breaks off, is a failure.
Schemathesis runs in an environment of its own, by `uvx`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from service_load import served

RESULTS = Path(__file__).parent / "results"
VERSION = "4.32.5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100, help="of each operation, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "service_schema.txt")
    arguments = parser.parse_args()
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    made = EmbeddingSet(vectors, model="old")
    with tempfile.TemporaryDirectory() as folder:
        url, columns = f"memory:{folder}/live", {"price": "integer", "label": "text"}
        with Gallery.create(url, fingerprint=made.fingerprint, space=made.space, columns=columns) as gallery:
            gallery.add(made, metadata={"price": list(range(40)), "label": ["a", "b"] * 20})
        with served(url) as service:
            service.ask("GET", "/openapi.json")  # the first answer takes long on a busy machine
            command = [
                str(Path(sys.executable).with_name("uvx")), "--from", f"schemathesis=={VERSION}", "st", "run",
                f"http://127.0.0.1:{service.port}/openapi.json", "--checks", "not_a_server_error", "--no-color",
                "--max-examples", str(arguments.examples), "--seed", str(arguments.seed), "--continue-on-failure",
                "--request-timeout", "60",
            ]  # fmt: skip
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert service.ready(), "the service ended"
    said = re.sub(r" in \d+(\.\d+)?s| \(in [\d.]+s\)", "", done.stdout).replace(str(service.port), "PORT")
    said = "\n".join(line.rstrip() for line in said.splitlines())
    lines = [f"Schemathesis {VERSION}, --max-examples {arguments.examples} --seed {arguments.seed}; exit code "
             f"{done.returncode}", "", said.strip(), ""]  # fmt: skip
    arguments.out.write_text("\n".join(lines))
    print("\n".join(lines))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
