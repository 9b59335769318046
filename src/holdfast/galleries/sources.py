"""Where the new vectors of a backfill come from: files, a Python function, or models (`galleries/encoding.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, Role, StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.embeddings.folders import model_folder
from holdfast.errors import ConfigError, DataError, SpaceMismatchError, refuse
from holdfast.galleries.id_index import IdIndex
from holdfast.galleries.item_sources import ItemSource
from holdfast.galleries.state import Generation
from holdfast.geometry import Space

ROLE: Role = "document"  # what the items of a gallery are to a model


class VectorSource(Protocol):
    """What gives items vectors of one model; several threads may ask at once."""

    @property
    def fingerprint(self) -> str:
        """Of the model."""
        ...

    @property
    def space(self) -> Space:
        """What the vectors are points of."""
        ...

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return points of those of the ids that the source has, in the order given; the others are missing.

        Args:
            ids: Items, none twice.
        """
        ...


def check_source(source: VectorSource, target: Generation) -> None:
    """Refuse a source whose vectors are not those of a generation.

    Raises:
        DataError: It is of another model.
        SpaceMismatchError: It is on another space.
    """
    if source.fingerprint != target.fingerprint:
        raise DataError(
            f"The source makes vectors of {source.fingerprint}.",
            expected=f"those of {target.name}: {target.fingerprint}",
            to_do="give the release or the files of that model, or prepare a generation for this one; "
            "the gallery is intact.",
        )
    if source.space != target.geometry:
        raise SpaceMismatchError(
            f"The source is on the {source.space}, {target.name} on the {target.geometry}.",
            expected="one space",
            to_do="the gallery is intact.",
        )


class FileVectors:
    """Vectors that were embedded before, in files; their order does not matter, and they need not hold every item.

    Files of holdfast are memory-mapped: what is read of them is what is asked for. Others are held in memory.

    Args:
        paths: Files that `holdfast embed` wrote, or the folder with gallery.safetensors or embeddings.safetensors;
            ``.npz``, ``.npy`` and ``.parquet`` files of vectors made elsewhere.
        fingerprint: Of the model that made them, which files made elsewhere do not say: ``declared:<name>``.
        space: Of files made elsewhere; the hypersphere of their dimension when left out.
        cast: Accept other floating types than float32 in files made elsewhere.

    Raises:
        ConfigError: No file was given, one is missing, or nobody says which model made it.
        DataError: A file is damaged, holds no points of gallery items, the files are of different models, or one id is
            in two of them.
        SpaceMismatchError: The files are of different spaces.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        fingerprint: str | None = None,
        *,
        space: Space | None = None,
        cast: bool = False,
    ) -> None:
        refuse(not paths, "No file of vectors was given.", "at least one")
        files = [_file_in(Path(path)) for path in paths]
        self._sets = [_opened(file, fingerprint, space, cast) for file in files]
        self.fingerprint, self.space = self._sets[0].fingerprint, self._sets[0].space
        for file, embeddings in zip(files, self._sets, strict=True):
            _check_file(file, embeddings, fingerprint or self.fingerprint, self.space)
        self._index = IdIndex(*(embeddings.ids for embeddings in self._sets))
        if len(self._sets) > 1:
            _refuse_repeated(files, self._index)

    def __len__(self) -> int:
        return len(self._index)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of those of the ids that the files have."""
        rows = self._index.find(ids)
        there = rows >= 0
        vectors = np.empty((int(there.sum()), self.space.dim), np.float32)
        for part, which, places in self._index.by_part(rows[there]):
            vectors[which] = self._sets[part].vectors[places]
        known = [identifier for identifier, found in zip(ids, there, strict=True) if found]
        return points_of(self, known, vectors)


def _file_in(path: Path) -> Path:
    """Return a file, or the one of a folder that holds the items of a gallery."""
    path = model_folder(path)
    if path.is_dir():
        found = [path / name for name in ("gallery.safetensors", "embeddings.safetensors") if (path / name).is_file()]
        path = found[0] if found else path
    if path.is_file():
        return path
    raise ConfigError(
        f"There are no vectors in '{path}'.",
        expected="a file of embeddings, or a folder with gallery.safetensors or embeddings.safetensors",
        to_do="`holdfast embed` writes them.",
    )


def _opened(file: Path, fingerprint: str | None, space: Space | None, cast: bool) -> EmbeddingSet:
    from holdfast.embeddings import storage

    importers = {".npz": storage.from_npz, ".npy": storage.from_npz, ".parquet": storage.from_parquet}
    if file.suffix not in importers:
        return storage.load(file)
    if fingerprint is None:
        raise ConfigError(
            f"'{file}' does not say which model made its vectors.",
            expected="the fingerprint of a model, or declared:<name>",
            to_do="give the one that the generation was prepared with; `holdfast gallery status` shows it.",
        )
    return importers[file.suffix](file, fingerprint=fingerprint, space=space, cast=cast)


def _check_file(file: Path, embeddings: EmbeddingSet, fingerprint: str, space: Space) -> None:
    if embeddings.fingerprint != fingerprint:
        raise DataError(f"'{file}' was made by {embeddings.fingerprint}.", expected=f"vectors of {fingerprint}")
    if embeddings.space != space:
        raise SpaceMismatchError(f"'{file}' is on the {embeddings.space}.", expected=f"the {space}, as the first file")
    if embeddings.form != "points" or embeddings.role == "query":
        raise DataError(
            f"'{file}' holds {embeddings.form} with the role '{embeddings.role}'.",
            expected="points of items, with the role 'document' or 'both'",
            to_do="embed the items of the gallery with `holdfast embed`.",
        )


def _refuse_repeated(files: Sequence[Path], index: IdIndex) -> None:
    repeated = StringArray.from_arrow(index.ids).duplicates()
    if repeated:
        parts = [part for part, _, _ in index.by_part(np.flatnonzero(np.array(index.ids) == repeated[0]))]
        raise DataError(
            f"{len(repeated)} ids are in several files: {shown(repeated)}, the first in "
            f"{' and '.join(str(files[part]) for part in parts)}.",
            expected="one vector per item",
            to_do="leave out the files that are not to count.",
        )


class CallableVectors:
    """Vectors that a Python function makes.

    Args:
        function: Takes a list of items, or of ids where no items are given, and returns float32 (n, D).
        fingerprint: Of the model that it asks: ``declared:<name>``.
        space: What the vectors are points of.
        items: Reads what the function takes; without it, the function has to know every id.
    """

    def __init__(
        self,
        function: Callable[[Any], NDArray[np.float32]],
        fingerprint: str,
        space: Space,
        items: ItemSource[Any] | None = None,
    ) -> None:
        self._function, self.fingerprint, self.space, self.items = function, fingerprint, space, items

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return what the function makes of those of the items that are there.

        Raises:
            DataError: It did not return one finite float32 vector per item.
            SpaceMismatchError: Its vectors are of another dimension.
        """
        known, items = (list(ids), list(ids)) if self.items is None else self.items.read(ids)
        return points_of(self, known, self._function(items)) if known else nothing_of(self)


class Carried:
    """Vectors of one source, carried over to the space of another model; no item is embedded again.

    Args:
        source: Of the first model.
        carry: Turns its points into those of the other model.
        fingerprint: Of the other model.
        space: Of the other model.
    """

    def __init__(
        self, source: VectorSource, carry: Callable[[EmbeddingSet], EmbeddingSet], fingerprint: str, space: Space
    ) -> None:
        self.source, self._carry, self.fingerprint, self.space = source, carry, fingerprint, space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return what becomes of those of the ids that the source has."""
        found = self.source.embed(ids)
        return self._carry(found) if len(found) else nothing_of(self)


class Parallel:
    """A source that several threads ask for parts of every batch.

    This helps where embedding waits for files, a network or a device, or leaves the interpreter: decoding images and
    the arithmetic of networks do.

    Args:
        source: Whom they ask.
        workers: How many threads.
    """

    def __init__(self, source: VectorSource, workers: int) -> None:
        refuse(workers < 1, f"workers={workers}", "at least 1")
        self.source, self.workers = source, workers
        self.fingerprint, self.space = source.fingerprint, source.space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return what the source makes of the ids, in the order given."""
        size = max(1, -(-len(ids) // self.workers))
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        with ThreadPoolExecutor(self.workers) as threads:
            return joined_points(self, list(threads.map(self.source.embed, parts)))


def points_of(source: VectorSource, ids: Sequence[str], vectors: NDArray[np.float32]) -> EmbeddingSet:
    """Return checked points of a source's model."""
    return EmbeddingSet(StringArray.of(ids), vectors, source.fingerprint, source.space, ROLE)


def nothing_of(source: VectorSource) -> EmbeddingSet:
    """Return no points of a source's model."""
    return points_of(source, [], np.empty((0, source.space.dim), np.float32))


def joined_points(source: VectorSource, parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Return the points of several sets, one after another."""
    ids = [identifier for part in parts for identifier in part.ids]
    vectors = [np.empty((0, source.space.dim), np.float32), *(part.vectors for part in parts)]
    return points_of(source, ids, np.concatenate(vectors))
