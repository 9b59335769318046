"""Every method on one data set, extended-class: the committed tables, and how their settings were chosen.

    python benchmarks/comparison.py omniglot --seeds 0 1 2
    python benchmarks/comparison.py tiny-imagenet-32
    python benchmarks/comparison.py glyphs --validate       # chooses the learning rate on validation classes

The old model learns 30 % of the classes, the new ones all. Options of methods are their defaults. The learning rate
was chosen with --validate, on classes set apart from the training classes and never scored in a table: the largest one
at which p2s and bct are compatible and cost at most 5 % of the independent model's mAP (P_up >= -0.05); for glyphs,
whose demo shall hold on every machine, the largest at which they cost nothing (P_up >= 0).
Tiny-ImageNet has no classes to spare; its rate was set to 0.1 beforehand and never varied.
Writes benchmarks/results/comparison_DATA.json and .md, or settings_DATA.json and .md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limpet.data.augment import Augmentation
from limpet.data.datasets import load_dataset
from limpet.data.retrieval_data import RetrievalData
from limpet.data.scenarios import SCENARIOS
from limpet.evaluation.evaluate import evaluate
from limpet.methods import METHODS
from limpet.models.specs import EncoderSpec
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Recipe
from limpet.training.train import train_upgrade
from machine import describe

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """What is trained on one data set; ``learning_rate`` is the one that --validate chose."""

    model: EncoderSpec
    recipe: Recipe
    data_options: dict[str, Any] = field(default_factory=dict)
    validation_options: dict[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = ()


SUITES = {
    "glyphs": Suite(
        EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 32}),
        Recipe(epochs=6, learning_rate=0.05, warmup_epochs=0.5, accelerator="cpu"),
        rates=(0.03, 0.05, 0.1, 0.3),
    ),
    "omniglot": Suite(
        EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 32}),
        Recipe(epochs=10, learning_rate=0.3, warmup_epochs=0.5, accelerator="cpu"),
        validation_options={"validation_fraction": 0.2},
        rates=(0.03, 0.1, 0.3),
    ),
    "tiny-imagenet-32": Suite(
        EncoderSpec(dim=128, channels=3, image_size=32, backbone_options={"filters": 64}),
        Recipe(
            epochs=8,
            learning_rate=0.1,
            warmup_epochs=0.5,
            precision="bf16-mixed",
            augmentation=Augmentation(crop_padding=4, flip=True),
            accelerator="cpu",
        ),
        data_options={"class_share": 0.5, "image_share": 0.6},
    ),
}


def train_and_evaluate(
    data: RetrievalData, suite: Suite, methods: list[str], seed: int, folder: Path, *, validate: bool
) -> dict[str, dict[str, Any]]:
    base = Experiment(model=suite.model, recipe=suite.recipe, seed=seed)
    split = SCENARIOS["extended-class"].divide(data.train.labels, seed=seed)
    releases = train_upgrade(data.train, split, base, {name: replace(base, method=name) for name in methods}, folder)
    query, gallery = (data.validation, data.validation) if validate else (data.query, data.gallery)
    sides = {}
    for name, release in releases.items():
        searched = embed_images(release, gallery)
        sides[name] = (searched if query is gallery else embed_images(release, query), searched)
    return {
        name: evaluate(
            sides["old"], sides[name], independent=sides["independent"], exclude_same_id=query is gallery, seed=seed,
            curve=False,
        ).to_dict()
        for name in methods
    }  # fmt: skip


def measure(
    name: str, suite: Suite, methods: list[str], seeds: list[int], root: Path, *, validate: bool
) -> Iterator[Any]:
    options = {**suite.data_options, **(suite.validation_options if validate else {})}
    data = load_dataset(name, root, **options)
    print(data.description, flush=True)
    for seed in seeds:
        folder, started = root_of_runs(name, seed), time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        records = train_and_evaluate(data, suite, methods, seed, folder, validate=validate)
        shutil.rmtree(folder)
        print(f"seed {seed}: {time.monotonic() - started:.0f} s", flush=True)
        yield seed, records, data.description


def root_of_runs(name: str, seed: int) -> Path:
    import tempfile

    return Path(tempfile.gettempdir()) / f"limpet-comparison-{name}-{seed}"


def spread(values: list[float]) -> str:
    mean = float(np.mean(values))
    return f"{mean:.3f}" if len(values) == 1 else f"{mean:.3f} ± {float(np.std(values, ddof=1)):.3f}"


def table(runs: dict[int, dict[str, Any]], methods: list[str], metric: str = "map") -> list[str]:
    columns = {
        "self (old)": lambda record: record["self_old"][metric],
        "cross": lambda record: record["cross"][metric],
        "self (new)": lambda record: record["self_new"][metric],
        "P_up (raw)": lambda record: record["p_up"]["raw"][metric],
        "P_comp (raw)": lambda record: record["p_comp"]["raw"][metric],
        "negative flips": lambda record: record["negative_flip_rate"]["cross"],
    }
    lines = ["| method | " + " | ".join(columns) + " | compatible |", "|---" * (len(columns) + 2) + "|"]
    for name in methods:
        records = [records[name] for records in runs.values()]
        cells = [spread([read(record) for record in records]) for read in columns.values()]
        verdicts = sum(record["verdict"] == "compatible" for record in records)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {verdicts} of {len(records)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=SUITES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=["independent", *sorted(set(METHODS) - {"independent"})])
    parser.add_argument("--root", type=Path, default=None, help="data root; LIMPET_DATA when left out")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--validate", action="store_true", help="compare learning rates on validation classes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    from limpet.data.datasets import data_root

    suite, root = SUITES[arguments.data], data_root(arguments.root)
    kind = "settings" if arguments.validate else "comparison"
    rates = suite.rates if arguments.validate else (suite.recipe.learning_rate,)
    record: dict[str, Any] = {"machine": describe(), "model": suite.model.model_dump(mode="json"), "rates": {}}
    lines = [f"# {arguments.data}, extended-class, {'validation classes' if arguments.validate else 'mAP'}", ""]
    spread_note = " (mean ± standard deviation)" if len(arguments.seeds) > 1 else ""
    for rate in rates:
        chosen = replace(suite, recipe=replace(suite.recipe, learning_rate=rate))
        runs = {}
        measured = measure(
            arguments.data, chosen, arguments.methods, arguments.seeds, root, validate=arguments.validate
        )
        description = ""
        for seed, records, description in measured:  # noqa: B007 - the last one is written below
            runs[seed] = records
            record["rates"][rate] = runs
        lines += [f"{description}. Learning rate {rate}, {suite.recipe.epochs} epochs, batch {suite.recipe.batch_size},"
                  f" {suite.model.dim} dimensions, seeds {arguments.seeds}{spread_note}.", "",
                  *table(runs, arguments.methods), ""]  # fmt: skip
    command = f"python benchmarks/comparison.py {arguments.data}" + (" --validate" if arguments.validate else "")
    command += " --seeds " + " ".join(map(str, arguments.seeds))
    lines += [f"`{command}` on {record['machine']}.", ""]
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    name = f"{kind}_{arguments.data}"
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / f"{name}.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
