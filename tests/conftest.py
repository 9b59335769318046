"""Fixtures shared by all tests."""
# ruff: noqa: E402  (what packages read when they are imported is said before)

from __future__ import annotations

import gc
import importlib.metadata
import linecache
import logging
import os
import resource
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Everything that tests import is looked through whenever garbage is, which took a third of the time of some tests.
gc.set_threshold(100_000, 50, 100)

# Two test processes on two cores, and what they start: more threads would only wait for each other. Read at import.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Syncing to a disk is what tests of stores wait for; where memory has room enough, it keeps the files of tests.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 8 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

import hypothesis
import numpy as np
import pytest
import torch
import vl_convert

from crash import chroma_server
from crash.milvus_server import milvus_server
from crash.object_server import BUCKET, ObjectServer
from crash.server import Server
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere, Space
from limpet.methods.base import Epoch, Head, Step
from limpet.testing import samples

if str(Path(__file__).parent) not in sys.path:  # servers and models that tests of several folders start
    sys.path.insert(0, str(Path(__file__).parent))

GOLDEN = Path(__file__).parent / "golden"
TOLERANCES = {torch.float64: {"rtol": 1e-7, "atol": 1e-7}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


# Children of a fork leave alone what was garbage before: its destructors may wait for threads that only the parent has.
os.register_at_fork(before=gc.freeze)

# Seeding accelerators that are not there notes the stack for each of them, every time.
if not torch.accelerator.is_available():
    for accelerator in (torch.cuda, torch.xpu, torch.mtia):
        accelerator.manual_seed_all = lambda seed: None

hypothesis.settings.register_profile("unhurried", deadline=None)  # others may keep the machine busy
hypothesis.settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    """Keep workers from saying what nobody reads: that tests begin and end, that a fixture was made, and dots."""
    if hasattr(config, "workerinput") and not config.option.xmlpath and config.option.durations is None:
        [worker] = (it for it in config.pluginmanager.get_plugins() if type(it).__name__ == "WorkerInteractor")
        send: Callable[..., None] = worker.sendevent
        config.pluginmanager.set_blocked("terminalreporter")

        def sendevent(name: str, **told: Any) -> None:
            report = told.get("data", {})
            made = name == "testreport" and report["when"] != "call" and report["outcome"] == "passed"
            if not made and name not in {"logstart", "logfinish"}:
                send(name, **told)

        worker.sendevent = sendevent


def pytest_collection_finish() -> None:
    """Set right what modules do that were imported for all tests."""
    gc.freeze()  # what was imported and collected is no garbage
    check = linecache.checkcache  # every doctest asks of all files that were ever shown whether they changed
    linecache.checkcache = lambda filename=None: filename and check(filename)
    if "tests" in sys.modules:  # the code of a method that a test defines is that of its file, not of all tests
        vars(sys.modules["tests"]).pop("__path__", None)
    importlib.metadata.entry_points = cache(importlib.metadata.entry_points)  # lightning asks in every training
    draw, drawn = vl_convert.vegalite_to_svg, cache(vl_convert.vegalite_to_svg)  # many pages have the same charts
    vl_convert.vegalite_to_svg = lambda spec, **how: (drawn if isinstance(spec, str) else draw)(spec, **how)
    if grpc := sys.modules.get("pymilvus.client.grpc_handler"):  # waits half a second before it asks for an index
        grpc.time = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(min(seconds, 0.02)))


def pytest_sessionfinish() -> None:
    """Leave what all tests left to the end of the process, which does not look through it first, as pytest would."""
    gc.freeze()


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


@pytest.fixture(scope="session")
def plain_head() -> type[Head]:
    """A plain softmax classifier without bias over raw features, from its weight."""
    return samples.PlainHead


@pytest.fixture(scope="session")
def make_step() -> Callable[..., Step]:
    """Build a step from arrays; what is not given is harmless."""
    return samples.make_step


@pytest.fixture(scope="session")
def make_epoch() -> Callable[..., Epoch]:
    """Build the start of an epoch from what the new model makes of the training set (N, D) and its labels."""
    return samples.make_epoch


@pytest.fixture(scope="session")
def make_embeddings() -> Callable[..., EmbeddingSet]:
    """Build a labelled set of raw features with class names c0, c1, ..."""
    return samples.make_embeddings


@pytest.fixture(scope="session")
def make_world() -> Callable[[Space], samples.World]:
    """Build a small predecessor on a space."""
    return samples.make_world


@pytest.fixture
def world() -> samples.World:
    """A small predecessor on the hypersphere."""
    return samples.make_world(Hypersphere(5))


class Logged(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)

    @property
    def text(self) -> str:
        """All of it as it would be written."""
        return "\n".join(map(self.format, self.records))


@pytest.fixture
def logged() -> Callable[..., AbstractContextManager[Logged]]:
    """Keep what a logger and those below it say at a level; pytest's own way looks at every logger in every test."""

    @contextmanager
    def kept(level: int, name: str = "") -> Iterator[Logged]:
        logger, handler = logging.getLogger(name), Logged()
        before = logger.level
        logger.setLevel(level)
        logger.addHandler(handler)
        try:
            yield handler
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    return kept


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


@pytest.fixture(scope="session")
def _object_server() -> Iterator[ObjectServer]:
    server = ObjectServer()
    yield server
    server.stop()


@pytest.fixture
def object_server(_object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """A server with a bucket for all tests of this process, which the environment names; do not stop it."""
    for name, value in _object_server.environment.items():
        monkeypatch.setenv(name, value)
    return _object_server


@pytest.fixture
def s3_url(object_server: ObjectServer, postgres_url: str) -> str:
    """The url of a gallery in the bucket that is not there yet, below a prefix and in a schema of its own."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}?ledger={postgres_url}"


@pytest.fixture(scope="session", autouse=True)
def chroma_stops() -> Iterator[None]:
    """Stop the server of Chroma that all tests of this process share, if one of them needed it."""
    yield
    if chroma_server.shared.cache_info().currsize:
        chroma_server.shared().stop()


@pytest.fixture(scope="session")
def milvus_url() -> Iterator[str]:
    """Where a Milvus server for all tests is; a test makes collections of its own names, and drops them."""
    with milvus_server() as url:
        yield url


@pytest.fixture(scope="session")
def small_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Let no file of this process become larger than so many bytes for a while: the disk that a test can fill."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))  # Python ignores the signal of a larger one
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
