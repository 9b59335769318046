"""Ranking by workers of which each searches a part of the gallery.

The scores of relevant items come from the worker that has them; what every worker counts among its own items adds up.
Scores do not depend on how a gallery is cut (see `tiles`), so ranks are those of one process, ties included.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.forms import Form
from limpet.embeddings.room import enough_room, rows_at_once, spool_folder
from limpet.errors import ConfigError, DataError
from limpet.evaluation.ranking.counting import Counts, part_of
from limpet.evaluation.ranking.part import GalleryPart, Nearest
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.tiles import Bounds, QueryBlock, RelevantScores
from limpet.evaluation.ranking.vector_rows import ArrayRows, EmbeddingRows, VectorRows, Vectors, rows_of
from limpet.geometry import Side, Space
from limpet.support.workers import Processes, Workers, available_cores

_Result = TypeVar("_Result")

_BLOCKS_AT_ONCE = 2  # of queries: workers count one while the scores of the next are gathered
_RESIDENT = 4  # galleries of which a worker keeps its part open
_SESSION: ContextVar[_Session | None] = ContextVar("session", default=None)


@contextmanager
def sharded(workers: int | Workers) -> Iterator[None]:
    """Let workers rank galleries within a ``with`` statement, each a part of every gallery; results are the same.

    `evaluate`, `evaluate_chain`, `adapt`, `rank_metrics`, `top_k` and all that rank by them take part. Vectors that are
    mapped from a file are read from there by every worker; others are written to a temporary file once.

    Args:
        workers: How many processes of this machine, where 1 is this process alone; or workers of another kind.

    Raises:
        ConfigError: Less than one process.

    >>> import limpet
    >>> items = limpet.EmbeddingSet(np.eye(3, dtype=np.float32), model="example", labels=[0, 1, 0])
    >>> with sharded(1):
    ...     limpet.evaluation.top_k(items, items, 1).rows.ravel()
    array([0, 1, 2])
    """
    if workers == 1:
        yield
        return
    with ExitStack() as opened:
        some = opened.enter_context(Processes(workers)) if isinstance(workers, int) else workers
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="limpet-", dir=spool_folder()))
        token = _SESSION.set(_Session(some, Path(folder)))
        try:
            yield
        finally:
            _SESSION.reset(token)


@contextmanager
def searching(
    query: Vectors | VectorRows,
    gallery: Vectors | VectorRows,
    relevant: RowLists,
    ignore: RowLists,
    device: str | None = None,
) -> Iterator[tuple[GalleryPart | ShardedGallery, int]]:
    """Yield what counts for blocks of queries, here or by `sharded` workers, and how many blocks it takes at once."""
    session = _SESSION.get()
    if session is None or not (len(query) and len(gallery)):
        part = GalleryPart(query, gallery, relevant, ignore, device)
        yield part, available_cores() if device is None else 1
        return
    shards = ShardedGallery(session, query, gallery, relevant, ignore, device)
    try:
        shards.open()
        yield shards, _BLOCKS_AT_ONCE
    finally:
        shards.close()


class VectorFile(NamedTuple):
    """Vectors in a file, float32 (N, D); in index form already where there is no space.

    Args:
        path: The file.
        offset: Where they begin.
        shape: N and D.
        stamp: Size and time of the file, by which a worker knows it.
    """

    path: str
    offset: int
    shape: tuple[int, int]
    stamp: tuple[int, int]
    space: Space | None = None
    form: Form = "points"
    side: Side = "gallery"

    def open(self, start: int, stop: int) -> VectorRows:
        """Map rows ``start`` to ``stop``.

        Raises:
            DataError: The file is another one by now.
        """
        if _stamp(Path(self.path).stat()) != self.stamp:
            raise DataError(f"'{self.path}' changed while it was searched.", to_do="repeat the command.")
        vectors = np.memmap(self.path, np.float32, "r", self.offset, self.shape)[start:stop]
        if self.space is None:
            return ArrayRows(vectors)
        embeddings = EmbeddingSet.trusted(vectors=vectors, space=self.space, form=self.form)
        return rows_of(EmbeddingRows(embeddings, self.side))


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


class _Session:
    """Workers, and the files that they read vectors from."""

    def __init__(self, workers: Workers, folder: Path) -> None:
        self.workers, self._folder = workers, folder
        self.numbers = count()
        self._known: weakref.WeakKeyDictionary[EmbeddingSet, dict[Side, VectorFile]] = weakref.WeakKeyDictionary()

    def stored(self, rows: Vectors | VectorRows) -> VectorFile:
        """Return vectors in a file: where they are mapped from, or a new one, which is removed with their set."""
        if not isinstance(rows, EmbeddingRows):
            return self._written(rows_of(rows))
        embeddings, side = rows.embeddings, rows.side
        known = self._known.setdefault(embeddings, {})
        if side not in known:
            place = mapped_from(embeddings.vectors)
            if place is None:
                known[side] = self._written(rows)
                weakref.finalize(embeddings, Path(known[side].path).unlink, missing_ok=True)
            else:
                known[side] = VectorFile(*place, embeddings.space, embeddings.form, side)
        return known[side]

    def _written(self, rows: VectorRows) -> VectorFile:
        path, shape = self._folder / str(next(self.numbers)), (len(rows), rows.dim)
        step = rows_at_once(4 * rows.dim)
        with enough_room(4 * len(rows) * rows.dim), path.open("wb") as file:
            for start in range(0, len(rows), step):
                file.write(np.ascontiguousarray(rows.block(start, start + step)).data)
        return VectorFile(str(path), 0, shape, _stamp(path.stat()))


def mapped_from(vectors: Vectors) -> tuple[str, int, tuple[int, int], tuple[int, int]] | None:
    """Return the file that an array is a read-only map of, its place there, its shape, and the stamp of the file.

    None where it is in memory, the file was replaced since, or the system does not say.
    """
    if vectors.dtype != np.float32 or not vectors.flags.c_contiguous or vectors.flags.writeable:
        return None
    begin = vectors.ctypes.data
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, offset, _, _, *path = line.split(maxsplit=5)
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= begin and begin + vectors.nbytes <= last and rights[1] != "w" and path:
                found = Path(path[0]).stat()  # of a file that was replaced, the path ends in "(deleted)"
                return path[0], int(offset, 16) + begin - first, vectors.shape, _stamp(found)
    return None


class ShardedGallery:
    """Q queries that rank the items of a gallery, of which every worker has a part; see `GalleryPart`."""

    def __init__(
        self,
        session: _Session,
        query: Vectors | VectorRows,
        gallery: Vectors | VectorRows,
        relevant: RowLists,
        ignore: RowLists,
        device: str | None,
    ) -> None:
        self._workers, self._number, self._size = session.workers, next(session.numbers), len(gallery)
        places = np.linspace(0, self._size, min(len(session.workers), self._size) + 1).astype(np.int64).tolist()
        self._bounds: list[Bounds] = list(pairwise(places))
        self._sides = session.stored(query), session.stored(gallery)
        self._lists, self._device = (relevant, ignore), device

    def open(self) -> None:
        """Let every worker open its part."""
        relevant, ignore = self._lists
        self._ask(_open, [
            (*self._sides, bounds, relevant.between(*bounds), ignore.between(*bounds), self._device, relevant.counts)
            for bounds in self._bounds
        ])  # fmt: skip

    def close(self) -> None:
        """Let the workers forget it."""
        with suppress(BrokenExecutor, RuntimeError):
            for worker in range(len(self._bounds)):
                self._workers.submit(worker, _close, (self._number, worker))

    def counts(self, bounds: Bounds) -> tuple[Counts, NDArray[np.int64]]:
        """Count for every relevant item of a block of n queries; also return where each begins (n + 1,)."""
        owner, scores = map(np.concatenate, zip(*self._ask_all("scores", bounds), strict=True))
        order = np.lexsort((-scores, owner))
        offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=bounds[1] - bounds[0])))
        parts = self._ask_all("counts", bounds, owner[order], scores[order], offsets)
        above, tied = (np.sum(column, axis=0) for column in zip(*parts, strict=True))
        return Counts(above, tied), offsets

    def nearest(self, bounds: Bounds, k: int) -> Nearest:
        """Return the first k items for each query of a block, ties by row."""
        rows, scores = (
            np.concatenate(sides, axis=1) for sides in zip(*self._ask_all("nearest", bounds, k), strict=True)
        )
        first = np.lexsort((rows, -scores), axis=1)[:, : min(k, self._size)]
        return np.take_along_axis(rows, first, axis=1), np.take_along_axis(scores, first, axis=1)

    def _ask_all(self, method: str, *arguments: Any) -> list[Any]:
        return self._ask(_call, [(method, *arguments)] * len(self._bounds))

    def _ask(self, function: Callable[..., _Result], arguments: Sequence[tuple[Any, ...]]) -> list[_Result]:
        try:
            asked = [
                self._workers.submit(worker, function, (self._number, worker), *own)
                for worker, own in enumerate(arguments)
            ]
            return [future.result() for future in asked]
        except BrokenExecutor as error:
            raise ConfigError(
                "A process that searched a part of the gallery ended before it answered.",
                to_do="free memory, or use fewer workers, and repeat the command. In a script, start workers below "
                "`if __name__ == '__main__':`.",
                intact="Nothing was written.",
            ) from error


_Key = tuple[int, int]
_OPEN: dict[_Key, _Shard] = {}
"""What a worker searches."""


def _open(key: _Key, *about: Any) -> None:
    _OPEN[key] = _Shard(*about)


def _call(key: _Key, method: str, *arguments: Any) -> Any:
    if key not in _OPEN:
        raise BrokenExecutor("the worker that had this part has ended")
    return getattr(_OPEN[key], method)(*arguments)


def _close(key: _Key) -> None:
    _OPEN.pop(key, None)


@lru_cache(_RESIDENT)
def _resident(gallery: VectorFile, bounds: Bounds) -> VectorRows:
    return gallery.open(*bounds)


class _Shard:
    """A part of a gallery in the worker that searches it."""

    def __init__(self, query: VectorFile, gallery: VectorFile, bounds: Bounds, *lists: Any) -> None:
        self._start = bounds[0]
        self._part = GalleryPart(query.open(0, query.shape[0]), _resident(gallery, bounds), *lists)
        self._waiting: dict[Bounds, tuple[QueryBlock, RelevantScores]] = {}

    def scores(self, bounds: Bounds) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the query in the block and the score of every relevant item that is here."""
        self._waiting[bounds] = self._part.pairs(bounds)
        pairs = self._waiting[bounds][1]
        return pairs.owner, pairs.scores

    def counts(
        self, bounds: Bounds, owner: NDArray[np.int64], scores: NDArray[np.float32], offsets: NDArray[np.int64]
    ) -> Counts:
        """Count what is here for every relevant item of the gallery, which come in order."""
        block, own = self._waiting.pop(bounds)
        pairs = RelevantScores(owner, scores, offsets, own.hidden)
        counts = self._part.count(block, pairs)
        if self._start:  # only the first counts the relevant items among themselves
            alone = part_of(self._part.search, block, pairs, 0, len(block.vectors)).counts()
            counts = Counts(counts.above - alone.above, counts.tied - alone.tied)
        return counts

    def nearest(self, bounds: Bounds, k: int) -> Nearest:
        """Return the first k of what is here, by rows of the gallery."""
        rows, scores = self._part.nearest(bounds, k)
        return np.where(rows < 0, -1, rows + self._start), scores
