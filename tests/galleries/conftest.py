"""Galleries of points that are drawn from their names, and what a search of them has to find."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.shards import sharded
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.galleries import Gallery, Hit
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.results import Data

Held = Mapping[str, Mapping[str, Any]]
"""Points by id and then by the fingerprint of their model."""

SPHERE = Hypersphere(4)
TWELVE = [f"i{row:02}" for row in range(12)]


def drawn(model: str, identifier: str, draw: int, space: Space) -> np.ndarray:
    """Draw the point (D,) of an item, the same whenever it is asked for."""
    rng = np.random.default_rng(zlib.crc32(f"{model}/{identifier}/{draw}".encode()))
    point = rng.normal(size=space.dim)
    return (point if space.lengths_count else point / np.linalg.norm(point)).astype(np.float32)


def embedded(model: str, ids: Sequence[str], *, draw: int = 0, space: Space = SPHERE, **values: Any) -> EmbeddingSet:
    points = np.array([drawn(model, one, draw, space) for one in ids], np.float32).reshape(-1, space.dim)
    return EmbeddingSet(ids=list(ids), vectors=points, fingerprint=f"declared:{model}", space=space, **values)


@pytest.fixture(scope="session")
def embed() -> Callable[..., EmbeddingSet]:
    """Embed items by "old", "new" or another model: points that depend on model, id and ``draw`` alone."""
    return embedded


@pytest.fixture(scope="session")
def asked(embed: Callable[..., EmbeddingSet]) -> Callable[..., EmbeddingSet]:
    """Embed three queries."""
    return lambda model, **values: embed(model, ["q1", "q2", "q3"], role="query", **values)


def nearest(queries: EmbeddingSet, held: Held, sources: Sequence[str], k: int) -> list[list[tuple[str, float, str]]]:
    """Search one item after another: id, score and model of the k best, each item by its first source that has one."""
    space, found = queries.space, []
    for query in space.index_form(queries.vectors, "query").astype(np.float64):
        hits = []
        for identifier, points in held.items():
            model = next((source for source in sources if source in points), None)
            if model is not None:
                form = space.index_form(np.asarray(points[model], np.float32)[None], "gallery")[0]
                hits.append((identifier, float(query @ form.astype(np.float64)), model))
        found.append(sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k])
    return found


@pytest.fixture(scope="session")
def same_as_a_loop() -> Callable[..., None]:
    """Compare a search with `nearest`; ``sources`` are the models whose points may answer, in their order."""

    def compare(gallery: Gallery, queries: EmbeddingSet, held: Held, sources: Sequence[str], k: int = 5) -> None:
        sources = [f"declared:{one}" if ":" not in one else one for one in sources]
        reply = gallery.search(queries, k)
        model_of = {one.name: one.fingerprint for one in gallery.state.generations}
        expected = nearest(queries, held, sources, k)
        assert [[(hit.id, model_of[hit.generation]) for hit in hits] for hits in reply.hits] == [
            [(identifier, model) for identifier, _, model in hits] for hits in expected
        ]
        for hits, right in zip(reply.hits, expected, strict=True):
            np.testing.assert_allclose([hit.score for hit in hits], [score for _, score, _ in right], atol=1e-5)
        assert reply.covered == sum(any(one in points for one in sources) for points in held.values())
        assert (reply.items, reply.merge) == (len(held), "score")

    return compare


@pytest.fixture(scope="session")
def points_of() -> Callable[..., dict[str, dict[str, Any]]]:
    """Turn sets of embeddings into points by id and fingerprint."""

    def gather(*sets: EmbeddingSet) -> dict[str, dict[str, Any]]:
        held: dict[str, dict[str, Any]] = {}
        for embeddings in sets:
            for identifier, point in zip(embeddings.ids, embeddings.vectors, strict=True):
                held.setdefault(identifier, {})[embeddings.fingerprint] = point
        return held

    return gather


@pytest.fixture(scope="session")
def hits_of() -> Callable[..., list[list[tuple[str, float, str]]]]:
    """What a search found, without metadata."""

    def plain(gallery: Gallery, queries: EmbeddingSet, k: int = 5) -> list[list[tuple[str, float, str]]]:
        found: list[list[Hit]] = gallery.search(queries, k).hits
        return [[(hit.id, hit.score, hit.generation) for hit in hits] for hits in found]

    return plain


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write results.json of an evaluation in which the new model found as much as asked for on the old vectors."""
    known: dict[tuple[Any, ...], Path] = {}

    def write(old: str = "old", new: str = "new", outcome: str = "compatible", space: Space = SPHERE) -> Path:
        key = (old, new, outcome, space)
        if key not in known:
            evaluation = _evaluated(old, new, outcome, space)
            verdicts = {"compatible": "compatible", "worse": "not compatible", "equal": "not compatible"}
            assert evaluation.verdict == verdicts[outcome]
            results = EvaluationResults.of(
                title="Two models",
                data=Data(name="drawn", description="", numbers={}),
                models={"old": {}, "new": {}},
                evaluations={"new": evaluation},
            )
            known[key] = results.save(tmp_path_factory.mktemp("report"))
        return known[key]

    return write


def _evaluated(old: str, new: str, outcome: str, space: Space) -> Evaluation:
    """Evaluate: "compatible" models agree, and the new one is better; "equal" ones find nearly all there is."""
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(4), 12)
    centres = 1.2 * np.eye(4, space.dim)[labels]
    noise = {"compatible": (0.8, 0.2), "worse": (0.2, 0.2), "equal": (0.3, 0.5)}[outcome]
    turned = np.roll(centres, 1, axis=1) if outcome == "worse" else centres
    sides = [
        EmbeddingSet(
            ids=[f"i{row}" for row in range(len(labels))],
            vectors=(made + spread * rng.normal(size=made.shape)).astype(np.float32),
            fingerprint=f"declared:{name}",
            space=space,
            labels=labels,
        )
        for name, made, spread in ((old, centres, noise[0]), (new, turned, noise[1]))
    ]
    options: dict[str, Any] = {"curve": False, "resamples": 200, "metrics": ("map",)}
    options["resample"] = "queries"  # four classes tell nothing of others
    return evaluate(*sides, **options)


@pytest.fixture
def gallery(embed: Callable[..., EmbeddingSet]) -> Iterator[Gallery]:
    """A gallery in memory, of "old", without items."""
    with Gallery.create("memory://", fingerprint="declared:old", space=SPHERE) as opened:
        yield opened


@pytest.fixture(params=["memory", "lance", "postgresql", "sharded"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new gallery in every kind of store that outlives its process."""
    if request.param == "sharded":
        return sharded(tmp_path / "gallery", ["memory", "lance"])
    if request.param != "postgresql":
        return f"{request.param}:{tmp_path / 'gallery'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(params=[SPHERE, Lorentz(4, 0.7)], ids=["hypersphere", "lorentz"])
def space(request: pytest.FixtureRequest) -> Space:
    found: Space = request.param
    return found


class OnlyThese:
    """Vectors that are there already."""

    def __init__(self, embeddings: EmbeddingSet) -> None:
        self.embeddings, self.fingerprint, self.space = embeddings, embeddings.fingerprint, embeddings.space

    def embed(self, ids: Any) -> EmbeddingSet:
        rows = self.embeddings.ids.find(ids)
        return self.embeddings[rows[rows >= 0]]


@pytest.fixture(scope="session")
def only_these() -> type[OnlyThese]:
    """Make a set of embeddings the source of a backfill."""
    return OnlyThese


@pytest.fixture
def started(gallery, embed, reported) -> Gallery:
    """Twelve old items, and "new" started with a passing report."""
    gallery.add(embed("old", TWELVE))
    gallery.start("declared:new", SPHERE, reports=[reported()])
    return gallery
