"""Two sessions of a small network, for the learners of continual search."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import Batch, CompatibilityMethod, Head, OldModel, View
from limpet.methods.weight_records import evaluated
from limpet.models.heads import NormalisedHead

DIM, CLASSES, OLD_CLASSES = 5, 6, 4
SPACE = Hypersphere(DIM)


class Batches:
    """Items in dataset order, as many at a time."""

    def __init__(self, inputs: Tensor, labels: Tensor, size: int) -> None:
        self.inputs, self.labels, self.size = inputs, labels, size

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.labels), self.size):
            rows = torch.arange(start, min(start + self.size, len(self.labels)))
            yield Batch(self.inputs[rows], self.labels[rows], rows, torch.zeros(len(rows), dtype=torch.bool))


def normalised_head(weight: Tensor, temperature: Any = 0.05) -> Head:
    head = NormalisedHead(*weight.shape, temperature=float(temperature)).to(weight.dtype)
    with torch.no_grad():
        head.weight.copy_(weight)
    return head


class Net(nn.Module):
    """Small, with batch statistics, for images as they are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, DIM))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs.to(self.body[1].weight.dtype) / 255)


@dataclasses.dataclass
class Session:
    """The images of a session."""

    images: Tensor
    labels: Tensor

    def loader(self, size: int = 8) -> Iterable[Batch]:
        return Batches(self.images, self.labels, size)


@dataclasses.dataclass
class Learner:
    """A network and its classifier, trained as the loop does."""

    net: nn.Module
    head: Head
    make_step: Any

    @classmethod
    def new(cls, make_step: Any, dtype: torch.dtype = torch.float32) -> Learner:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = Net().to(dtype)
            return cls(net, normalised_head(torch.randn(OLD_CLASSES, DIM).to(dtype)), make_step)

    def grown(self) -> Learner:
        """Return a copy with two more classes."""
        more = torch.randn(CLASSES - OLD_CLASSES, DIM, generator=torch.Generator().manual_seed(1))
        weight = torch.cat([self.head.weight.detach(), more.to(self.head.weight.dtype)])
        return Learner(copy.deepcopy(self.net), normalised_head(weight), self.make_step)

    def prepare(self, method: CompatibilityMethod, old: OldModel | None = None) -> None:
        method.prepare(old if method.needs_old else None, self.net, self.head, SPACE)

    def train(
        self,
        method: CompatibilityMethod,
        session: Session,
        steps: range,
        *,
        old: OldModel | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        momentum: float = 0.9,
    ) -> torch.optim.Optimizer:
        if optimizer is None:
            learnt = [*self.net.parameters(), *self.head.parameters(), *method.parameters()]
            optimizer = torch.optim.SGD([p for p in learnt if p.requires_grad], lr=0.02, momentum=momentum)
        self.net.train()
        for place in steps:
            generator = torch.Generator().manual_seed(place)
            rows = torch.randperm(len(session.labels), generator=generator)[:12]
            batch = Batch(session.images[rows], session.labels[rows], rows, torch.zeros(12, dtype=torch.bool))
            loss = sum({**method(self.step(method, batch, generator, old)), **method.penalty(self.net)}.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            method.after_step(self.net)
        return optimizer

    def step(self, method: CompatibilityMethod, batch: Batch, generator: torch.Generator, old: OldModel | None) -> Any:
        features = self.net(method.change_inputs(batch, generator))
        with torch.no_grad():
            kept = None if old is None else old.encoder(batch.inputs)
        known = torch.where(batch.labels < OLD_CLASSES, batch.labels, -1)
        return self.make_step(
            features, batch.labels, self.head, kept, old_labels=known, index=batch.index, generator=generator
        )

    def embed(self, session: Session) -> Tensor:
        """Return the features of a session's images in evaluation mode."""
        with evaluated(self.net), torch.no_grad():
            return self.net(session.images)

    def scores(self, features: Tensor) -> Tensor:
        return self.head.logits(View.of(features, SPACE))

    def weights(self) -> dict[str, Tensor]:
        """Return copies of all that was trained, and of the statistics."""
        return {f"{k}.{n}": v.clone() for k in ("net", "head") for n, v in getattr(self, k).state_dict().items()}


@pytest.fixture(scope="session")
def cosine_head() -> Callable[..., Head]:
    """Build a normalised classifier from its weight (C, D) and temperature."""
    return normalised_head


@pytest.fixture(scope="session")
def batches() -> type[Batches]:
    return Batches


@pytest.fixture(scope="session")
def two_sessions() -> tuple[Session, Session]:
    """Classes 0 to 3, then 2 to 5, each class a pattern with noise."""
    rng = np.random.default_rng(0)
    patterns, found = rng.integers(0, 256, (CLASSES, 1, 4, 4)), []
    for classes in (range(4), range(2, 6)):
        labels = np.repeat(list(classes), 6)
        images = np.clip(patterns[labels] + rng.normal(0, 40, (24, 1, 4, 4)), 0, 255).astype(np.uint8)
        found.append(Session(torch.from_numpy(images), torch.from_numpy(labels)))
    return found[0], found[1]


@pytest.fixture(scope="session")
def new_learner(make_step: Any) -> Callable[..., Learner]:
    """Build an untrained model of the first session, always the same."""
    return lambda dtype=torch.float32: Learner.new(make_step, dtype)


@pytest.fixture
def first(new_learner: Callable[..., Learner], two_sessions: tuple[Session, Session]) -> Learner:
    """A model after its first session."""
    learner = new_learner()
    learner.train(METHODS["finetune"](), two_sessions[0], range(60))
    return learner


@pytest.fixture
def predecessor(first: Learner, two_sessions: tuple[Session, Session], make_embeddings: Any) -> OldModel:
    """The model of the first session, as the second one is told of it."""
    before, after = two_sessions
    names = [f"c{row}" for row in range(CLASSES)]
    gallery = make_embeddings(normalise(first.embed(before)), before.labels, names=names[:OLD_CLASSES], form="points")
    return OldModel(
        embeddings=make_embeddings(first.embed(after), after.labels, names=names),
        classes=names[:OLD_CLASSES],
        head=copy.deepcopy(first.head),
        own_training=gallery,
        encoder=copy.deepcopy(first.net).eval(),
    )


@pytest.fixture
def second(
    first: Learner, predecessor: OldModel, two_sessions: tuple[Session, Session]
) -> Callable[[CompatibilityMethod, int], Learner]:
    """Train the second session with a method, in the order of the runner."""

    def run(method: CompatibilityMethod, steps: int = 60) -> Learner:
        fresh = type(method)()
        fresh.on_session_end(first.net, first.head, two_sessions[0].loader())
        learner = first.grown()
        method.carry_over(fresh.carried())
        learner.prepare(method, predecessor)
        learner.train(method, two_sessions[1], range(steps), old=predecessor if method.needs_old else None)
        return learner

    return run
