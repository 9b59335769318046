"""Evidence from live queries on the new model: some also search with it (shadow), or get its answers (canary).

Every process writes its observations to its own file in the folder of the service. The process that serves the
evidence reads all of these files.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from limpet.engines.store import Pointer
from limpet.errors import DataError, LimpetError
from limpet.evaluation.agreement import Alike, MeanAgreement, compared
from limpet.evaluation.intervals import mean_interval, mean_intervals
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries import Gallery
from limpet.galleries.router import route
from limpet.galleries.state import Generation
from limpet.results import Part
from limpet.service import metrics
from limpet.service.documents import SearchRequest, encoded
from limpet.service.encoders import Encoders
from limpet.service.settings import ServiceSettings

FOLDER = "evidence"
"""Subfolder of a service's folder, with a file of every process."""
DEPTH = 10
"""Number of hits to compare."""
Arm = Literal["old", "new"]
_ARMS: tuple[Arm, Arm] = ("old", "new")
_WAITING = 64  # maximum requests that wait for the shadow; it skips further ones
_MOST = 32 * 2**20  # bytes after which a file is rotated; the previous one is kept
_log = logging.getLogger("limpet.service")


class ArmEvidence(Part):
    """What became of the answers of one model.

    Args:
        answers: How many requests it answered.
        milliseconds: Mean time of an answer.
        clicked: Share of its answers of which an item was clicked.
    """

    answers: int
    milliseconds: MeanAgreement | None = None
    clicked: MeanAgreement | None = None


class ShadowEvidence(Part):
    """What queries that both models answered say.

    Args:
        queries: How many.
        alike: How alike the first ten hits are; `limpet.evaluation.agreement.compared` says by what.
        milliseconds: Mean time of a request's embedding and search, by model.
        clicked: How many clicked items were found by one of the models.
        reciprocal_rank: Mean of 1 / rank of the clicked items by model; 0 where it is not among the first ten.
        difference: That of the new model minus that of the old one.
        thresholds: New score thresholds, at which as many of the first ten hits pass.
    """

    queries: int
    alike: Alike | None = None
    milliseconds: dict[Arm, MeanAgreement] = Field(default_factory=dict)
    clicked: int = 0
    reciprocal_rank: dict[Arm, MeanAgreement] = Field(default_factory=dict)
    difference: MeanAgreement | None = None
    thresholds: Thresholds | None = None


class LiveEvidenceSummary(Part):
    """What live queries said since the last step of the upgrade; intervals of 95 % are over requests or queries.

    Args:
        epoch: Of the upgrade.
        prepared: Generation of the model that is prepared; None while its queries cannot find all items.
    """

    epoch: str
    prepared: str | None
    shadow: ShadowEvidence
    canary: dict[Arm, ArmEvidence]


@dataclass(frozen=True)
class _Shadowed:
    request: str
    wanted: SearchRequest
    old: Generation
    new: Generation


class LiveEvidence:
    """Records the text searches of one process; created inside the event loop.

    Args:
        settings: Settings of the service.
        encoders: Models of queries.
        gallery: The searched gallery.
    """

    def __init__(self, settings: ServiceSettings, encoders: Encoders, gallery: Gallery) -> None:
        self.settings, self._encoders, self._gallery = settings, encoders, gallery
        self._path = settings.folder / FOLDER / f"{os.getpid()}.jsonl"
        self._path.parent.mkdir(exist_ok=True)
        self._queue = asyncio.Queue[_Shadowed](_WAITING)
        self._task = asyncio.create_task(self._shadow()) if settings.shadow else None

    @property
    def prepared(self) -> Generation | None:
        """The generation of the new model, once its queries find all items and it is loaded."""
        pointer, state = self._gallery.now()
        new = state.by_name[state.target]
        found = pointer.covered([source.generation for source in route(state, new.name)])
        loaded = new.fingerprint in self._encoders.models
        return new if state.started is not None and loaded and found == pointer.items else None

    def arm(self, wanted: SearchRequest) -> tuple[Arm, Generation] | None:
        """Return which model answers a request, and the new generation; None if only one can."""
        chosen = self.settings.shadow or self.settings.canary
        if not chosen or wanted.items is None or wanted.model is not None or wanted.cursor is not None:
            return None
        new = self.prepared
        if new is None:
            return None
        return ("new" if _share_of(wanted.route_key or repr(wanted.items)) < self.settings.canary else "old"), new

    async def note(self, request: str, wanted: SearchRequest, arm: tuple[Arm, Generation], seconds: float) -> None:
        """Record an answer, and pass a share of them to the shadow."""
        side, new = arm
        state = self._gallery.state
        self._write({"request": request, "epoch": state.epoch, "arm": side, "seconds": seconds})
        if side == "old" and random.random() < self.settings.shadow:
            with suppress(asyncio.QueueFull):
                self._queue.put_nowait(_Shadowed(request, wanted, state.by_name[state.active], new))

    def click(self, request: str, item: str, query: int) -> None:
        """Record that an item was clicked in the answer to a request."""
        self._write({"request": request, "epoch": self._gallery.state.epoch, "click": item, "query": query})

    def _write(self, line: dict[str, Any]) -> None:
        with suppress(OSError):  # a full disk loses evidence, but no answer
            if self._path.exists() and self._path.stat().st_size > _MOST:
                self._path.replace(self._path.with_suffix(".before.jsonl"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    async def _shadow(self) -> None:
        """Query both models, one request after the other, without delaying other answers."""
        while True:
            asked = await self._queue.get()
            try:
                line = {"request": asked.request, "epoch": self._gallery.state.epoch, "shadow": await self._both(asked)}
                await asyncio.to_thread(self._write, line)
            except LimpetError as error:
                _log.info("the shadow of a request failed: %s", error.given)

    async def _both(self, asked: _Shadowed) -> dict[Arm, Any]:
        """Return the results of both models as of one commit, and their times."""
        at, found = await asyncio.to_thread(self._gallery.store.pointer), dict[Arm, Any]()
        for side, generation in zip(_ARMS, (asked.old, asked.new), strict=True):
            start = time.perf_counter()
            kind, items = asked.wanted.items or ("texts", [])
            made = await self._encoders.embed(items, generation.fingerprint, "query", kind)
            hits = await asyncio.to_thread(self._hits, made, asked.wanted, at)
            found[side] = {"seconds": time.perf_counter() - start, "hits": hits, "vectors": encoded(made.vectors)}
        for one, other in zip(found["old"]["hits"], found["new"]["hits"], strict=True):
            shared = {name for name, _ in one} & {name for name, _ in other}
            metrics.OVERLAP.observe(len(shared) / max(len(one), len(other), 1))
        return found

    def _hits(self, queries: Any, wanted: SearchRequest, at: Pointer) -> list[list[tuple[str, float]]]:
        reply = self._gallery.search(queries, DEPTH, where=wanted.where, exact=wanted.exact, at=at)
        return [[(hit.id, hit.score) for hit in hits] for hits in reply.hits]

    async def close(self) -> None:
        """Drop requests that still wait for the shadow."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Evidence of all processes

    def _lines(self) -> Iterator[dict[str, Any]]:
        epoch = self._gallery.state.epoch
        for path in sorted(self._path.parent.glob("*.jsonl")):
            with path.open(encoding="utf-8") as file:
                for line in file:
                    with suppress(ValueError):  # its process was killed while it wrote
                        if (found := json.loads(line))["epoch"] == epoch:
                            yield found

    def summary(self) -> LiveEvidenceSummary:
        """Return the evidence since the last step of the upgrade."""
        lines, new = list(self._lines()), self.prepared
        clicks = {(one["request"], one["query"]): one["click"] for one in lines if "click" in one}
        shadows = {one["request"]: one["shadow"] for one in lines if "shadow" in one}
        arms = {side: {one["request"]: one["seconds"] for one in lines if one.get("arm") == side} for side in _ARMS}
        of_requests = {request for request, _ in clicks}
        return LiveEvidenceSummary(
            epoch=self._gallery.state.epoch, prepared=new and new.name, shadow=_shadow_evidence(shadows, clicks),
            canary={
                side: ArmEvidence(
                    answers=len(answers), milliseconds=_mean([1000 * one for one in answers.values()]),
                    clicked=_mean([float(request in of_requests) for request in answers]),
                )
                for side, answers in arms.items()
            },
        )  # fmt: skip

    def queries(self, side: Arm) -> tuple[list[str], NDArray[np.float32]]:
        """Return the queries of the shadow as embedded by one of the models: names (Q), vectors (Q, D)."""
        names, vectors = list[str](), list[NDArray[np.float32]]()
        for line in self._lines():
            if "shadow" in line:
                found = line["shadow"][side]
                made = np.frombuffer(base64.b64decode(found["vectors"]), "<f4").reshape(len(found["hits"]), -1)
                names += [f"{line['request']}.{number}" for number in range(len(made))]
                vectors.append(made)
        if not vectors:
            raise DataError("No query was asked of both models yet.", expected="a service with --shadow, and searches")
        return names, np.concatenate(vectors)

    def clicks(self) -> list[tuple[str, str]]:
        """Return queries of the shadow by name, each with a clicked item."""
        lines = list(self._lines())
        shadowed = {line["request"] for line in lines if "shadow" in line}
        return [
            (f"{line['request']}.{line['query']}", line["click"])
            for line in lines
            if "click" in line and line["request"] in shadowed
        ]


def _shadow_evidence(shadows: dict[str, Any], clicks: dict[tuple[str, int], str]) -> ShadowEvidence:
    pairs = {
        (request, number): (old, new)
        for request, found in shadows.items()
        for number, (old, new) in enumerate(zip(found["old"]["hits"], found["new"]["hits"], strict=True))
    }
    if not pairs:
        return ShadowEvidence(queries=0)
    numbers: dict[str, int] = {}
    rows = [np.full((len(pairs), DEPTH), -1), np.full((len(pairs), DEPTH), -1)]
    scores = [np.full((len(pairs), DEPTH), np.nan), np.full((len(pairs), DEPTH), np.nan)]
    for place, both in enumerate(pairs.values()):
        for side, hits in enumerate(both):
            for rank, (name, score) in enumerate(hits):
                rows[side][place, rank] = numbers.setdefault(name, len(numbers))
                scores[side][place, rank] = score
    columns = compared(rows[0], rows[1])
    intervals = mean_intervals(columns)
    clicked = {
        query: [_reciprocal_rank(item, hits) for hits in pairs[query]]
        for query, item in clicks.items()
        if query in pairs and any(item == name for hits in pairs[query] for name, _ in hits)
    }
    ranks = np.array(list(clicked.values()), np.float64).reshape(-1, 2)
    thresholds = None
    with suppress(DataError):
        thresholds = Thresholds.of(scores[0], scores[1])
    return ShadowEvidence(
        queries=len(pairs),
        alike=Alike(**{
            name: MeanAgreement(mean=float(np.nanmean(values)), interval=intervals[name])
            for name, values in columns.items()
        }),
        milliseconds=_by_arm([[1000 * one[side]["seconds"] for one in shadows.values()] for side in _ARMS]),
        clicked=len(ranks), reciprocal_rank=_by_arm(ranks.T), difference=_mean(ranks[:, 1] - ranks[:, 0]),
        thresholds=thresholds,
    )  # fmt: skip


def _share_of(key: str) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def _reciprocal_rank(item: str, hits: Sequence[tuple[str, float]]) -> float:
    return next((1 / (rank + 1) for rank, (name, _) in enumerate(hits) if name == item), 0.0)


def _mean(values: Sequence[float] | NDArray[np.float64]) -> MeanAgreement | None:
    return MeanAgreement(mean=float(np.mean(values)), interval=mean_interval(values)) if len(values) else None


def _by_arm(values: Sequence[Sequence[float]] | NDArray[np.float64]) -> dict[Arm, MeanAgreement]:
    means = {side: _mean(of_side) for side, of_side in zip(_ARMS, values, strict=True)}
    return {side: mean for side, mean in means.items() if mean is not None}
