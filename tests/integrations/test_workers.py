"""What processes and actors of Ray make, some of which die, is what one process makes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from limpet import EmbeddingSet, evaluate
from limpet.cli import main
from limpet.cli.models import WorkerOptions
from limpet.embeddings import storage
from limpet.errors import StoreError
from limpet.evaluation import sharded
from limpet.integrations.ray_actors import RayActors
from limpet.support.workers import Processes, Workers
from limpet.upgrade.vector_sources import Parallel
from opened_sources import of_lengths

IDS = [*(f"i{'x' * row}" for row in range(9)), "fatal"]


@pytest.fixture(scope="module")
def actors() -> Iterator[RayActors]:
    found = RayActors(2)
    yield found
    found.close()
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2) as found:
        yield found


@pytest.fixture(params=["processes", "actors"])
def workers(request: pytest.FixtureRequest) -> Workers:
    found: Workers = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("deaths", [0, 2])
def test_workers_make_what_one_process_makes_also_where_some_die(workers: Workers, tmp_path: Path, deaths: int) -> None:
    plain, source = of_lengths(tmp_path), Parallel(partial(of_lengths, tmp_path, deaths), workers)
    assert (source.fingerprint, source.space) == (plain.fingerprint, plain.space)
    for asked in (IDS, IDS[:1], []):
        found = source.embed(asked)
        assert list(found.ids) == asked
        np.testing.assert_array_equal(found.vectors, plain.embed(asked).vectors)
    assert len(list(tmp_path.glob("died*"))) == deaths
    others = {path.name for path in tmp_path.glob("process*")} - {f"process{os.getpid()}"}
    assert len(others) >= 2, "each made a part"


def test_a_worker_that_dies_again_and_again_ends_it(processes: Processes, tmp_path: Path) -> None:
    source = Parallel(partial(of_lengths, tmp_path, 99), processes)
    with pytest.raises(StoreError, match="died 5 times"):
        source.embed(IDS)
    assert list(source.embed(IDS[:-1]).ids) == IDS[:-1], "the workers are alive again"


def test_texts_embedded_by_workers_are_those_of_one_process(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerOptions, "started", lambda by, models: workers if by.workers else None)
    texts = tmp_path / "texts.csv"
    texts.write_text("\n".join(["text,intent", *(f"turn {row} of {row % 3},{row % 3}" for row in range(100)), ",0"]))
    words = ["embed", "texts", str(texts), "--model", "package:wordllama", "--on-empty", "skip", "--batch-size", "2"]
    files = []
    for name, by in (("alone", []), ("apart", ["--workers", "2", "--engine", "processes"])):
        assert main([*words, "--out", str(tmp_path / name), *by]) == 0
        files.append(storage.load(tmp_path / name / "wordllama" / "embeddings.safetensors"))
    alone, apart = files
    assert apart.digest() == alone.digest() and len(apart) == 100


def test_errors_of_a_worker_are_told(workers: Workers) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        workers.submit(1, int, "seven").result()


def test_an_actor_that_ray_ended_to_free_memory_is_replaced(actors: RayActors) -> None:
    import ray

    ended, told, answer = actors._actors[0], Future[None](), Future[None]()
    ray.kill(ended)
    told.set_exception(ray.exceptions.OutOfMemoryError("the node is running low on memory"))
    actors._tell(0, ended, told, answer)
    with pytest.raises(BrokenExecutor):
        answer.result(timeout=0)
    assert actors._actors[0] is not ended and actors.submit(0, int, "7").result() == 7


def test_too_few_processors_are_named(actors: RayActors) -> None:
    with pytest.raises(StoreError, match="need 100000"):
        RayActors(100_000)
    with pytest.raises(StoreError, match="GPU"):
        RayActors(1, gpus=1_000)


@pytest.mark.slow
def test_nobody_without_the_token_gets_into_the_cluster(actors: RayActors) -> None:
    import ray

    asking = "import ray, sys; ray.init(sys.argv[1], logging_level='error'); print(ray.nodes())"
    words = [sys.executable, "-c", asking, ray.get_runtime_context().gcs_address]
    for further, allowed in (({}, True), ({"RAY_AUTH_TOKEN": "0" * 64}, False)):
        environment = {**os.environ, "RAY_AUTH_MODE": "token", **further}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode == 0) == allowed, done.stderr


def test_actors_rank_as_one_process_does(actors: RayActors) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 60, 4)).round(1).astype(np.float32)  # some scores tie
    labels = np.arange(60) % 7
    old, new = (EmbeddingSet(vectors[side], model=name, labels=labels) for side, name in enumerate(("old", "new")))
    alone = evaluate(old, new, resamples=50)
    with sharded(actors):
        assert evaluate(old, new, resamples=50).to_dict() == alone.to_dict()
