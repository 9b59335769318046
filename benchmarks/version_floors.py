"""How old may the libraries be that models need? Runs the tests of models, exports and commands against old versions.

    python benchmarks/version_floors.py --folder /tmp/floors

Every set of versions is installed into a folder of its own, without what it depends on, and put before all other
packages; everything else stays as it is in the environment of this script. A test counts as failed where it fails or
cannot be collected. Warnings are none: those of old versions about the newer packages beside them mean nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SETS: dict[str, Sequence[str]] = {
    "transformers 4.51, sentence-transformers 5.0": (
        "transformers==4.51.0", "tokenizers==0.21.0", "huggingface_hub==0.30.0", "sentence-transformers==5.0.0",
        "peft==0.17.0", "accelerate==1.1.0", "datasets==4.0.0",
    ),
    "transformers 4.53, sentence-transformers 5.1": (
        "transformers==4.53.0", "tokenizers==0.21.1", "huggingface_hub==0.33.0", "sentence-transformers==5.1.0",
        "datasets==4.0.0",
    ),
}  # fmt: skip
TESTS = (
    "tests/models", "tests/export", "tests/integrations", "tests/support/test_hub.py", "tests/cli/test_embed_texts.py",
    "tests/cli/test_export.py", "tests/cli/test_fine_tune.py", "tests/cli/test_heads_in_commands.py",
    "tests/cli/test_own_models.py",
)  # fmt: skip


def installed(folder: Path, packages: Sequence[str]) -> Path:
    """Install packages into a folder, once."""
    if not folder.exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *packages], check=True
        )
    return folder


def tested(folder: Path, tests: Sequence[str]) -> tuple[str, list[str]]:
    """Run tests with the packages of a folder before all others, and return the last line and what failed."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-W", "ignore", "-o", "filterwarnings=", *tests]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    print(done.stdout[-6000:], file=sys.stderr)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return (done.stdout + done.stderr).strip().splitlines()[-1], failed


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--folder", type=Path, required=True, help="where packages are installed")
    words.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    words.add_argument("--tests", nargs="*", default=list(TESTS))
    given = words.parse_args()
    for name in given.sets:
        folder = installed(given.folder / re.sub(r"[^a-z0-9]+", "-", name), SETS[name])
        last, failed = tested(folder, given.tests)
        print(f"{name} ({', '.join(SETS[name])}): {re.sub(r' in [0-9.]+s.*', '', last)}")
        for one in failed:
            print(f"  {one}")


if __name__ == "__main__":
    main()
