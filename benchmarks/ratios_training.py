"""What `ratios.py` times of training and adapters.

Bare is, each on one thread:

- of an adapter: one product of float32 with a matrix of its size;
- of a loss: that of a method without an old model (`independent`), forward and backward at given embeddings;
- of the training loop: the same network, batches and optimiser in a loop of a few lines;
- of an augmentation: Pillow, one image after another (`augmentation.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from augmentation import SIZES, by_limpet, by_pillow, images_of, ways
from limpet.adapters import build_adapter
from limpet.data.loading import encoding_loader, training_loader
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.models.building import build_network
from limpet.models.heads import build_head
from limpet.models.seeding import seeded
from limpet.training.experiment import Recipe
from limpet.training.loop import fit
from step_overhead import Problem
from training_speed import CLASSES, DIM, NETWORKS, drawn_images

BATCH, RUNS, WIDTH, PAIRS = 32, 20, 384, 2_000

Timed = Callable[[], object]


def mapping(_: Any, rows: int) -> Timed:
    """Map vectors by a ridge adapter."""
    rng = np.random.default_rng(0)
    sources, targets = (rng.standard_normal((PAIRS, WIDTH), np.float32) for _ in range(2))
    adapter, vectors = build_adapter("ridge", {}).fit(sources, targets), rng.standard_normal((rows, WIDTH), np.float32)
    return lambda: adapter.map(vectors)


def product(_: Any, rows: int) -> Timed:
    """Multiply as many vectors with a matrix."""
    rng = np.random.default_rng(0)
    vectors, weights = (rng.standard_normal((one, WIDTH), np.float32) for one in (rows, WIDTH))
    return lambda: vectors @ weights


def loss(name: str, _: Any, classes: int) -> Timed:
    """Compute the loss of a method and its gradient, again and again."""
    problem = Problem.of(classes, "hypersphere")
    method, head = METHODS[name](), problem.head()
    with seeded(0):
        method.prepare(problem.old, nn.Identity(), head, problem.space)
    features, step = problem.batch(method.train(), head, 128)

    def run() -> None:
        for _ in range(RUNS):
            torch.stack(list(method(step()).values())).sum().backward()
            features.grad = None

    return run


def epoch_start(name: str, _: Any, classes: int) -> Timed:
    """Prepare a method and start its first epoch."""
    problem = Problem.of(classes, "hypersphere")
    method, head = METHODS[name](), problem.head()

    def run() -> None:
        with seeded(0):
            method.prepare(problem.old, nn.Identity(), head, problem.space)
            method.on_epoch_start(problem.epoch())

    return run


def _parts(steps: int) -> tuple[Any, Any, Any, Any]:
    network = NETWORKS["convnet"]
    images = drawn_images(network.spec, BATCH * steps)
    loader = training_loader(images, seed=0, augmentation=network.augmentation, batch_size=BATCH)
    with seeded(0):
        return images, loader, build_network(network.spec), build_head("softmax", CLASSES, DIM, {})


def fitting(_: Any, steps: int) -> Timed:
    """Train an epoch of so many steps."""
    images, loader, encoder, head = _parts(steps)
    return partial(
        fit, encoder, head, METHODS["independent"](), loader, encoding_loader(images, batch_size=BATCH),
        space=Hypersphere(DIM), class_names=images.class_names, old=None,
        optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9), fabric=Recipe(accelerator="cpu").build_fabric(),
        epochs=1, seed=0,
    )  # fmt: skip


def looping(_: Any, steps: int) -> Timed:
    """Train the same by a loop."""
    _, loader, encoder, head = _parts(steps)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def run() -> None:
        encoder.train()
        for batch in loader:
            scores = functional.linear(encoder(batch.inputs), head.weight)
            optimizer.zero_grad()
            functional.cross_entropy(scores, batch.labels).backward()
            optimizer.step()

    return run


def augmenting(label: str, _: Any, batches: int) -> Timed:
    """Change batches of images of 256 pixels."""
    size = SIZES["256 pixels"]
    batch, generator = torch.from_numpy(images_of(size)), torch.Generator().manual_seed(0)
    return lambda: [by_limpet(batch, ways(size)[label].augmentation, size.seen, generator) for _ in range(batches)]


def augmenting_by_pillow(label: str, _: Any, batches: int) -> Timed:
    """Change the same, one image after another."""
    size = SIZES["256 pixels"]
    pixels, rng = images_of(size), random.Random(0)
    return lambda: [by_pillow(pixels, ways(size)[label].by_pillow, rng) for _ in range(batches)]
