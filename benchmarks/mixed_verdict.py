"""A folder of images on which mAP rises and the first hit gets worse: what is said of it now, and was before guards.

    python benchmarks/mixed_verdict.py    # about 5 minutes on two cores, and Omniglot in LIMPET_DATA

An old model and one by p2s learn 60 handwritten characters of ten drawings each, from four shifted copies of every
drawing (`limpet train --scenario extended-class`, as README shows). They are held against each other on ten other
drawings per character, every one there twice with a little noise, like pictures taken in a burst: the twin is the first
hit of old queries in the old gallery, always. `evaluate` and `gallery start` of this code and of an earlier revision,
checked out beside it, then say what they think of it.

Writes mixed_verdict.json and mixed_verdict.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gallery_verification import ROOT, checked_out
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
AGAINST = "7749751"  # the last one without guards
CHARACTERS, DRAWINGS = 60, 10
SAID = ("can search", "cannot search", "finds more", "not decided", "Clearly worse", "is active", "says that", "Next")


def write_images(folder: Path, copies: int, first: int, seed: int) -> None:
    """Write drawings of characters, each several times: shifted to train on, with noise from drawing ``first`` on."""
    drawings = np.load(Path(os.environ["LIMPET_DATA"]) / "omniglot" / "images_background.npz")["images"]
    rng = np.random.default_rng(seed)
    for character in range(CHARACTERS):
        place = folder / f"character{character:02}"
        place.mkdir(parents=True)
        for number in range(DRAWINGS):
            pixels: NDArray[Any] = np.where(drawings[character * 16, first + number], 0, 255).astype(np.uint8)
            for copy in range(copies):
                shown = np.roll(pixels, rng.integers(-2, 3, size=2), axis=(0, 1)) if first == 0 else pixels
                small = np.asarray(Image.fromarray(shown).resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
                noisy = small if first == 0 else small + rng.integers(-3, 4, size=small.shape)
                name = f"drawing{number}-{copy}.png"
                Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(place / name)


def limpet(code: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Run a command of some code in a folder, and return its exit code and what it says for people."""
    environment = {**os.environ, "PYTHONPATH": str(code / "src"), "COLUMNS": "300"}
    command = [sys.executable, "-W", "ignore", "-m", "limpet", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def judged(code: Path, folder: Path, name: str) -> dict[str, Any]:
    """Return what `evaluate` and `gallery start` of some code say."""
    sides = ["--old", "embedded/old/embeddings.safetensors", "--new", "embedded/p2s/embeddings.safetensors"]
    exit_code, said = limpet(code, folder, "evaluate", *sides, "--out", name)
    (record,) = json.loads((folder / name / "results.json").read_text())["evaluations"].values()
    limpet(code, folder, "gallery", "create", f"memory:g{name}", "--embeddings", sides[1])
    started, told = limpet(code, folder, "upgrade", "start", f"memory:g{name}", "--model",
                              sides[3], "--evidence", name)  # fmt: skip
    scores = {
        metric: [
            record["self_old"][metric],
            record["cross"][metric],
            record["interval"][metric]["cross_minus_self_old"],
        ]
        for metric in record["self_old"]
    }
    return {
        "exit_code": exit_code, "verdict": record["verdict"], "worse": record.get("worse"), "scores": scores,
        "bootstrap": record["protocol"]["bootstrap"], "said": _said(said), "start_exit_code": started,
        "start_said": _said(told),
    }  # fmt: skip


def _said(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if any(part in line for part in SAID)]


def page(document: dict[str, Any]) -> str:
    """Write the record for people."""
    lines = [document["machine"], ""]
    for when in ("before", "now"):
        found = document[when]
        lines += [
            f"== {when} ==",
            f"evaluate: exit code {found['exit_code']}; --json: verdict {found['verdict']!r}, worse {found['worse']}",
            *(f"  {line}" for line in found["said"]),
        ]
        lines += [f"upgrade start --evidence: exit code {found['start_exit_code']}"]
        lines += [*(f"  {line}" for line in found["start_said"]), ""]
        lines += [
            f"{metric:<9} {old:.3f} -> {cross:.3f}  [{low:+.3f}, {high:+.3f}]"
            for metric, (old, cross, (low, high)) in found["scores"].items()
        ] + [""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=AGAINST, help=f"revision to compare with (default: {AGAINST})")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, checked_out(arguments.against) as earlier:
        folder = Path(scratch)
        write_images(folder / "drawings", copies=4, first=0, seed=0)
        write_images(folder / "bursts", copies=2, first=DRAWINGS, seed=0)
        for words in (
            "train --data drawings --scenario extended-class --method p2s --out runs",
            "embed --data bursts --part all --model release:runs/old release:runs/p2s --out embedded",
        ):
            exit_code, said = limpet(ROOT, folder, *words.split())
            if exit_code:
                raise SystemExit(said)
        found = {"before": judged(earlier, folder, "before"), "now": judged(ROOT, folder, "now")}
    document = {"machine": describe(), "against": arguments.against, **found}
    write_json(arguments.out / "mixed_verdict.json", document)
    (arguments.out / "mixed_verdict.txt").write_text(page(document))
    print(page(document))


if __name__ == "__main__":
    main()
