"""Fixtures shared by all tests."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

from holdfast.embeddings import EmbeddingSet
from holdfast.geometry import Hypersphere, Space
from holdfast.methods.base import Epoch, Head, OldModel, Step, View

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(
        0, str(Path(__file__).parent)
    )  # the harness is a package of its own, which the benchmark imports, too

from crash.server import Server

GOLDEN = Path(__file__).parent / "golden"
TOLERANCES = {torch.float64: {"rtol": 1e-7, "atol": 1e-7}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}

torch.set_num_threads(1)  # two test processes on two cores: more threads would only wait for each other


hypothesis.settings.register_profile("unhurried", deadline=None)  # others may keep the machine busy
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, np.ndarray]]:
    """Load a file of reference numbers by name; a missing file is a failure, never a skip."""

    def read(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as content:
            return {key: content[key] for key in content.files}

    return read


@pytest.fixture(params=TOLERANCES, ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The precision in which reference numbers are reproduced."""
    precision: torch.dtype = request.param
    return precision


@pytest.fixture
def reference(golden: Callable[[str], dict[str, np.ndarray]], dtype: torch.dtype) -> Callable[..., Any]:
    """Load a file of reference numbers as tensors, those with a fraction in the precision under test."""

    def read(name: str) -> dict[str, torch.Tensor]:
        found = {key: torch.from_numpy(values) for key, values in golden(name).items()}
        return {key: values.to(dtype) if values.is_floating_point() else values for key, values in found.items()}

    return read


@pytest.fixture(scope="session")
def agrees() -> Callable[..., None]:
    """Compare with reference numbers, whose precision must have been kept, as closely as it allows."""

    def check(found: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.detach().numpy(), expected, **(tolerance or TOLERANCES[found.dtype]))

    return check


def linear_head(weight: torch.Tensor) -> Head:
    """A plain softmax classifier without bias over raw features."""

    class PlainHead(Head):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def logits(self, view: View) -> torch.Tensor:
            return view.features @ self.weight.T

    return PlainHead()


@pytest.fixture(scope="session")
def plain_head() -> Callable[[torch.Tensor], Head]:
    return linear_head


@pytest.fixture(scope="session")
def make_step() -> Callable[..., Step]:
    """Build a step from arrays; what is not given is harmless."""

    def build(new: torch.Tensor, labels: Any, head: Head, old: torch.Tensor | None = None, **values: Any) -> Step:
        space = values.pop("space", None) or Hypersphere(new.shape[1])
        labels = torch.as_tensor(labels)
        defaults: dict[str, Any] = {
            "old_labels": labels,
            "index": torch.arange(len(labels)),
            "replayed": torch.zeros(len(labels), dtype=torch.bool),
            "progress": 0.0,
            "epoch": 0,
            "epochs": 1,
            "generator": torch.Generator().manual_seed(0),
        }
        return Step(
            new=View.of(new, space),
            old=None if old is None else View.of(old, space),
            labels=labels,
            head=head,
            **{**defaults, **values},
        )

    return build


@pytest.fixture(scope="session")
def make_epoch() -> Callable[..., Epoch]:
    """Build the start of an epoch from what the new model makes of the training set (N, D) and its labels."""

    def build(new: torch.Tensor, labels: Any, **values: Any) -> Epoch:
        space = values.pop("space", None) or Hypersphere(new.shape[1])
        labels, view = torch.as_tensor(labels), View.of(new, space)
        defaults: dict[str, Any] = {
            "index": 0,
            "total": 1,
            "training_size": len(new),
            "generator": torch.Generator().manual_seed(0),
            "new_embeddings": lambda: view,
            "new_prototypes": lambda: space.mean(view.points, labels, int(labels.max()) + 1)[0],
        }
        return Epoch(**{**defaults, **values})

    return build


@pytest.fixture(scope="session")
def make_embeddings() -> Callable[..., EmbeddingSet]:
    """Build a labelled set of raw features with class names c0, c1, ..."""

    def build(vectors: Any, labels: Any, *, names: Any = None, **values: Any) -> EmbeddingSet:
        vectors, labels = np.asarray(vectors, np.float32), np.asarray(labels, np.int64)
        names = [f"c{row}" for row in range(int(labels.max()) + 1)] if names is None else names
        space = Hypersphere(vectors.shape[1])
        defaults: dict[str, Any] = {"fingerprint": "declared:old", "form": "features", "space": space}
        return EmbeddingSet(
            ids=[f"item{row}" for row in range(len(vectors))],
            vectors=vectors,
            labels=labels,
            class_names=names,
            **{**defaults, **values},
        )

    return build


@pytest.fixture
def world(make_world: Callable[[Space], SimpleNamespace]) -> SimpleNamespace:
    """A small predecessor on the hypersphere."""
    return make_world(Hypersphere(5))


@pytest.fixture(scope="session")
def make_world(
    make_embeddings: Callable[..., EmbeddingSet], plain_head: Callable[..., Head], make_epoch: Callable[..., Epoch]
) -> Callable[[Space], SimpleNamespace]:
    """Build a small predecessor: 6 classes of 8 items in 5 dimensions, four of them known to the old classifier.

    ``epoch`` starts an epoch of a new model that does not agree with it.
    """

    def build(space: Space) -> SimpleNamespace:
        return small_world(space, make_embeddings, plain_head, make_epoch)

    return build


def small_world(space: Space, make_embeddings: Any, plain_head: Any, make_epoch: Any) -> SimpleNamespace:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(6), 8)
    vectors = rng.normal(size=(6, 5))[labels] + 0.3 * rng.normal(size=(48, 5))
    vectors = vectors / 3 if space.lengths_count else vectors  # within reach of the space
    embeddings = make_embeddings(vectors, labels, space=space)
    own = embeddings.select(np.flatnonzero(labels < 4))
    own = own.replace(class_names=["c3", "c2", "c1", "c0"], labels=3 - own.labels)
    old_head = plain_head(torch.tensor(rng.normal(size=(4, 5)), dtype=torch.float32))
    old = OldModel(embeddings=embeddings, classes=("c3", "c2", "c1", "c0"), head=old_head, own_training=own)
    head = plain_head(torch.tensor(rng.normal(size=(6, 5)), dtype=torch.float32))
    new = torch.tensor(vectors + rng.normal(size=(48, 5)), dtype=torch.float32)
    return SimpleNamespace(
        embeddings=embeddings, old=old, head=head, space=space, labels=labels, classes=6,
        epoch=lambda **values: make_epoch(new, labels, space=space, **values),
    )  # fmt: skip


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server for all tests of this process; do not stop it."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The url of a gallery that is not there yet, in a schema that no other test uses."""
    return f"{postgres_server.url()}&schema=t{uuid.uuid4().hex}"


@pytest.fixture
def mortal_server() -> Iterator[Server]:
    """A server for one test, which may kill it and start it again."""
    server = Server()
    yield server
    server.stop()
