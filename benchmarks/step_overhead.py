"""What compatibility costs a training step, against the plain head with cross-entropy on the same machine and run.

For every method that knows a space, with 1,000 classes (D = 128) and with 81,313 (D = 256, the size of GLDv2):

- the whole step of `fit`: ResNet-18 with the 32-pixel stem, batch 128, cached old embeddings;
- the loss alone: embeddings given, forward and backward, on the same tensors;
- the operations of the loss: as many for 32 rows as for 128, or it loops over rows.

The machine is shared, so methods take turns, every round starts with another one, and a ratio is the median over
rounds of a method's time over that of independent in the same round.

Run `python benchmarks/step_overhead.py`; a whole run writes benchmarks/results/step_overhead.json and .txt, a part of
it (`--methods`, `--classes`, `--quick`), or one on another space (`--space lorentz`, against a plain step with the
classifier of that space), writes only with `--out FOLDER`.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages, SelectedImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.embeddings import EmbeddingSet
from limpet.geometry import SPACES, Space, space_from_record
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Epoch, Head, OldModel, Step, View
from limpet.models.embedding_network import tangent_vectors
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head, default_head
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.training.loop import fit
from machine import describe
from step_overhead_table import LOSS_CLASSES, lines_of, missed_targets, summary

BATCH, ITEMS = 128, 4000
DIMS = {1000: 128, 81313: 256}  # classes and dimension of a problem
RESULTS = Path(__file__).parent / "results"
CHEAPER: dict[str, dict[str, Any]] = {  # with many classes: minutes less before the first step, the same step
    "ndpp": {"neighbours": 1, "old_only": True},
    "odpp": {"inner_epochs": 1},
    "nccl": {"credible_only": False},  # but for two operations on one number an item
}


class Enough(Exception):  # noqa: N818 - no error, but the end of a turn
    """Raised after the last timed step of a turn."""


class CountOperations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Problem:
    """A predecessor that knows all classes, and a training set of at least two items each."""

    classes: int
    space: Space
    old: OldModel
    images: ImageSet

    @classmethod
    def of(cls, classes: int, space_name: str) -> Problem:
        rng = np.random.default_rng(0)
        items, space = max(ITEMS, 2 * classes), space_from_record({"name": space_name, "dim": DIMS.get(classes, 128)})
        labels, names = np.arange(items) % classes, tuple(f"class {c}" for c in range(classes))
        vectors = rng.standard_normal((classes, space.dim), np.float32)[labels]
        vectors += rng.standard_normal((items, space.dim), np.float32)
        if space.lengths_count:
            vectors = tangent_vectors(torch.from_numpy(vectors), space.clip_after(None)).numpy()
        embeddings = EmbeddingSet(vectors, [str(row) for row in range(items)], "declared:old", space,
                                  form="features", labels=labels, class_names=names)  # fmt: skip
        pixels = rng.integers(0, 256, (ITEMS, 3, 32, 32), dtype=np.uint8)
        shared = SelectedImages(ArrayImages(pixels), np.arange(items) % ITEMS)
        old = OldModel(embeddings, names, drawn_head(classes, space, 0), own_training=embeddings)
        return cls(classes, space, old, ImageSet(shared, labels, names, embeddings.ids))

    def head(self) -> Head:
        return drawn_head(self.classes, self.space, 1)

    def options(self, name: str) -> dict[str, Any]:
        return CHEAPER.get(name, {}) if self.classes > ITEMS else {}

    def prepared(self, name: str) -> CompatibilityMethod:
        """Return a method in its first epoch, which later runs of `fit` neither prepare nor start again.

        Both come before the first step and are none of its cost, but with 81,313 classes they take minutes: a pass
        over the images, neighbours of every prototype. So they run once, on drawn embeddings of the new model; what
        they leave behind, and so the step, has its real size and all of its terms.
        """
        method = METHODS[name](**self.options(name))
        start = time.perf_counter()
        with seeded(0):
            method.prepare(self.old, nn.Identity(), self.head(), self.space)
            method.on_epoch_start(self.epoch())
        print(f"  {name} prepared in {time.perf_counter() - start:.1f} s", flush=True)
        method.prepare = method.on_epoch_start = lambda *arguments: None
        return method.train()

    def epoch(self) -> Epoch:
        """Return the start of the first and only epoch, whose new model is drawn instead of run."""
        items = len(self.images)

        def points(rows: int) -> View:
            return View.of(torch.randn(rows, self.space.dim, generator=torch.Generator().manual_seed(3)), self.space)

        return Epoch(0, 1, items, torch.Generator().manual_seed(0), lambda: points(items),
                     lambda: points(self.classes).points)  # fmt: skip

    def batch(self, method: CompatibilityMethod, head: Head, size: int) -> tuple[Tensor, Callable[[], Step]]:
        """Return embeddings by a model not far from the old one, and what builds a step of them, as `fit` does."""
        rows = np.random.default_rng(1).choice(len(self.images), size, replace=False)
        old, labels = torch.from_numpy(self.old.embeddings.vectors[rows]), torch.from_numpy(self.images.labels[rows])
        noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(0))
        features = old + (noise / self.space.dim**0.5 if self.space.lengths_count else noise)
        rest = {
            "labels": labels, "old_labels": labels, "index": torch.from_numpy(rows), "head": head, "progress": 0.5,
            "replayed": torch.zeros(size, dtype=torch.bool), "epoch": 0, "epochs": 1,
            "generator": torch.Generator().manual_seed(0),
        }  # fmt: skip

        def step() -> Step:
            old_view = View.of(old, self.space) if method.needs_old else None
            return Step(new=View.of(features, self.space), old=old_view, **rest)

        return features.requires_grad_(), step


def drawn_head(classes: int, space: Space, seed: int) -> Head:
    with seeded(seed):
        return build_head(default_head(space), classes, space.dim, {})


def rotated(names: list[str], turn: int) -> list[str]:
    return names[turn % len(names) :] + names[: turn % len(names)]


def loss_alone(
    problem: Problem, methods: dict[str, CompatibilityMethod], runs: int, threads: int
) -> dict[str, list[float]]:
    """Seconds of forward and backward of every method's loss on given embeddings, for every run."""
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    head, before, warm_up = problem.head(), torch.get_num_threads(), 1 + runs // 20
    batches = {name: problem.batch(method, head, BATCH) for name, method in methods.items()}
    torch.set_num_threads(threads)
    for run in range(runs + warm_up):
        for name in rotated(list(methods), run):
            features, step = batches[name]
            start = time.perf_counter()
            torch.stack(list(methods[name](step()).values())).sum().backward()
            if run >= warm_up:
                seconds[name].append(time.perf_counter() - start)
            for tensor in (features, *head.parameters(), *methods[name].parameters()):
                tensor.grad = None
    torch.set_num_threads(before)
    return seconds


def operations(problem: Problem, method: CompatibilityMethod) -> list[int]:
    """Operations of the loss for 32 rows and for a whole batch."""
    head, counts = problem.head(), []
    for size in (32, BATCH):
        _, step = problem.batch(method, head, size)
        given = step()
        with CountOperations() as operations:
            method(given)
        counts.append(operations.count)
    return counts


def one_turn(problem: Problem, method: CompatibilityMethod, steps: int) -> tuple[float, dict[str, float]]:
    """Seconds of a step of `fit`, the median after a first one that is left out, and the terms of the last one."""
    from lightning_fabric import Fabric

    with seeded(0):
        zeta = problem.space.clip_after(1.0) if problem.space.lengths_count else None
        encoder = Encoder(EncoderSpec(backbone="resnet18", dim=problem.space.dim, image_size=32, zeta=zeta))
    stamps: list[float] = []
    terms: dict[str, float] = {}

    def stamp(event: dict[str, Any]) -> None:
        stamps.append(time.perf_counter())
        if len(stamps) > steps:
            terms.update({name: round(value.item(), 4) for name, value in event["terms"].items()})
            raise Enough

    with suppress(Enough):
        fit(
            encoder, problem.head(), method, training_loader(problem.images, batch_size=BATCH, seed=0),
            encoding_loader(problem.images, batch_size=BATCH), space=problem.space,
            class_names=problem.images.class_names, old=problem.old if method.needs_old else None,
            optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9),
            fabric=Fabric(accelerator="cpu", devices=1), epochs=1, seed=0, progress=stamp,
        )  # fmt: skip
    gc.collect()  # the exception and its frames hold the optimiser
    return float(np.median(np.diff(stamps))), terms


def measure(classes: int, names: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return everything measured with this many classes, method by method."""
    problem, threads = Problem.of(classes, arguments.space), torch.get_num_threads()
    methods = {name: problem.prepared(name) for name in names}
    runs = max(3, arguments.runs * LOSS_CLASSES // classes)
    loss = loss_alone(problem, methods, runs, 1)
    threaded = loss_alone(problem, methods, runs, threads)
    counts = {name: operations(problem, method) for name, method in methods.items()}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    terms: dict[str, dict[str, float]] = {}
    for turn in range(arguments.rounds):
        for name in rotated(names, turn):
            found, terms[name] = one_turn(problem, methods[name], arguments.steps)
            seconds[name].append(found)
            print(f"  round {turn + 1}/{arguments.rounds} {name}: {found:.2f} s a step", flush=True)
    kinds = {"step": seconds, "loss": loss, "loss_threaded": threaded}
    return {
        "dim": problem.space.dim,
        "methods": {
            name: {kind: summary(times[name], times["independent"]) for kind, times in kinds.items()}
            | {"operations": counts[name], "terms": terms[name], "options": problem.options(name)}
            for name in names
        },
    }


def main() -> None:
    known = [name for name, method in METHODS.items() if not method.sessions_only]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=known, metavar="METHOD",
                        help=f"some of {', '.join(known)}; independent is always there (default: all)")  # fmt: skip
    parser.add_argument("--space", choices=tuple(SPACES), default="hypersphere")
    parser.add_argument("--classes", type=int, nargs="+", choices=tuple(DIMS), default=list(DIMS))
    parser.add_argument("--runs", type=int, default=200, help="runs of the loss alone; fewer with more classes")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every method through the whole step")
    parser.add_argument("--steps", type=int, default=3, help="timed steps a turn")
    parser.add_argument("--quick", action="store_true", help="one round of one step, to see that everything runs")
    parser.add_argument("--out", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = arguments.steps = arguments.runs = 1
    known = [name for name in known if arguments.space in METHODS[name].spaces]
    names = ["independent", *(name for name in arguments.methods or known if name != "independent")]
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"{', '.join(unknown)}: not on the space '{arguments.space}'; known there: {', '.join(known)}")
    whole = not arguments.quick and set(names) == set(known) and set(arguments.classes) == set(DIMS)
    whole = whole and arguments.space == parser.get_default("space")
    out = arguments.out or (RESULTS if whole else None)
    record: dict[str, Any] = {
        "machine": describe(), "batch": BATCH, "threads": torch.get_num_threads(),
        "arguments": {name: getattr(arguments, name) for name in ("space", "classes", "runs", "rounds", "steps")},
        "classes": {},
    }  # fmt: skip
    for classes in arguments.classes:
        print(f"{classes:,} classes", flush=True)
        record["classes"][str(classes)] = measure(classes, names, arguments)
    record["missed"] = missed_targets(record)
    text = "\n".join(lines_of(record)) + "\n"
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "step_overhead.json").write_text(json.dumps(record, indent=2) + "\n")
        (out / "step_overhead.txt").write_text(text)


if __name__ == "__main__":
    main()
