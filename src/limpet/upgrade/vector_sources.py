"""Sources of the new vectors of a backfill: files, a Python function, or models that re-embed the items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, Role, StringArray
from limpet.embeddings.string_array import IdIndex
from limpet.errors import DataError, ReleaseError, SpaceMismatchError, refuse, shown, without_secrets
from limpet.geometry import Space
from limpet.support.ranges import PositiveInt, checked
from limpet.support.workers import Opened, Workers

if TYPE_CHECKING:
    import torch

    from limpet.data import ImageSet, RetrievalData, TextData, TextSet
    from limpet.models.release import Release
    from limpet.models.text_encoders import TextEncoder
    from limpet.training.text_models import TextModel, VectorMap

_Read = TypeVar("_Read", covariant=True)

ROLE: Role = "document"  # role of gallery items in a model


class VectorSource(Protocol):
    """Source of vectors of one model; several threads may call it at once."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        ...

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        ...

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of the ids that the source has, in the order given; other ids are missing."""
        ...


class FileVectors:
    """Precomputed vectors in files, in any order; the files need not hold every item.

    Files of limpet are memory-mapped, so that only the requested vectors are read. Other files are held in memory.

    Args:
        paths: Files that `limpet embed` wrote, or the folder with gallery.safetensors or embeddings.safetensors;
            ``.npz``, ``.npy`` and ``.parquet`` files of vectors made elsewhere; URLs of tables and collections.
        fingerprint: Fingerprint of the model that made the vectors, which files made elsewhere do not state:
            ``declared:<name>``.

    Raises:
        ConfigError: No file was given, a file is missing, or the model that made its vectors is unknown.
        DataError: A file is damaged or holds no points of gallery items, the files are of different models, or an id is
            in two of them.
        SpaceMismatchError: The files are of different spaces.
        StoreError: A table or collection cannot be reached.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        fingerprint: str | None = None,
    ) -> None:
        names = [without_secrets(str(path)) for path in paths]
        refuse(not names, "No file of vectors was given.", "at least one")
        from limpet.engines.reading import load_embeddings

        parts = ("gallery", "embeddings")
        self._sets = [load_embeddings(path, fingerprint=fingerprint, parts=parts, named=True) for path in paths]
        self.fingerprint, self.space = self._sets[0].fingerprint, self._sets[0].space
        for name, embeddings in zip(names, self._sets, strict=True):
            _check_file(name, embeddings, fingerprint or self.fingerprint, self.space)
        self._index = IdIndex(*(embeddings.ids for embeddings in self._sets))
        if len(self._sets) > 1:
            _refuse_repeated(names, self._index)

    def __len__(self) -> int:
        return len(self._index)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of the ids that the files have."""
        known, rows = _known(self._index, ids)
        vectors = np.empty((len(rows), self.space.dim), np.float32)
        marked = all(one.trained_on is not None for one in self._sets)
        trained = np.zeros(len(rows), np.bool_)
        for part, which, places in self._index.by_part(rows):
            embeddings = self._sets[part]
            vectors[which] = embeddings.vectors[places]
            if marked and embeddings.trained_on is not None:
                trained[which] = embeddings.trained_on[places]
        return points_of(self, known, vectors).replace(trained_on=trained if marked else None)


def _check_file(file: str, embeddings: EmbeddingSet, fingerprint: str, space: Space) -> None:
    if embeddings.fingerprint != fingerprint:
        raise DataError(f"'{file}' was made by {embeddings.fingerprint}.", expected=f"vectors of {fingerprint}")
    if embeddings.space != space:
        raise SpaceMismatchError(f"'{file}' is on the {embeddings.space}.", expected=f"the {space}, as the first file")
    if embeddings.form != "points" or embeddings.role == "query":
        raise DataError(
            f"'{file}' holds {embeddings.form} with the role '{embeddings.role}'.",
            expected="points of items, with the role 'document' or 'both'",
            to_do="embed the items of the gallery with `limpet embed`.",
        )


def _refuse_repeated(files: Sequence[str], index: IdIndex) -> None:
    repeated = StringArray.from_arrow(index.ids).duplicates
    if repeated:
        parts = [part for part, _, _ in index.by_part(np.flatnonzero(np.array(index.ids) == repeated[0]))]
        raise DataError(
            f"{len(repeated)} ids are in several files: {shown(repeated)}, the first in "
            f"{' and '.join(files[part] for part in parts)}.",
            expected="one vector per item",
            to_do="leave out the files that are not to count.",
        )


class ItemSource(Protocol[_Read]):
    """Items by id; several threads may read at once."""

    def read(self, ids: Sequence[str]) -> tuple[list[str], _Read]:
        """Return the known ids, in the order given, and their items: one each, in that order."""
        ...


class ImageItems:
    """Images by id.

    Args:
        *sets: Sets of images of one shape; if several have an id, the image of the first is read.

    Raises:
        ConfigError: No set was given, or the sets have different shapes.
    """

    def __init__(self, *sets: ImageSet) -> None:
        shapes = sorted({images.shape for images in sets})
        refuse(len(shapes) != 1, f"Images of the shapes {shapes}.", "one shape (channels, height, width)")
        self.sets, self.shape = sets, shapes[0]
        self._index = IdIndex(*(images.ids for images in sets))

    @classmethod
    def of(cls, data: RetrievalData) -> ImageItems:
        """Take all images of a data set."""
        parts = [data.gallery, data.query, data.train, data.validation]
        return cls(*{id(part): part for part in parts if part is not None}.values())

    def read(self, ids: Sequence[str]) -> tuple[list[str], NDArray[np.uint8]]:
        """Return the known ids and their pixels, uint8 (n, channels, height, width)."""
        known, rows = _known(self._index, ids)
        pixels = np.empty((len(rows), *self.shape), np.uint8)
        for part, which, places in self._index.by_part(rows):
            pixels[which] = self.sets[part].read(places)
        return known, pixels


class TextItems:
    """Texts by id.

    Args:
        *sets: Sets of texts; if several have an id, the text of the first is read.
        without_text: Ids of items whose text is blank, which are not read.
    """

    def __init__(self, *sets: TextSet) -> None:
        refuse(not sets, "No texts.", "at least one set of texts")
        self.sets = sets
        self.without_text = {identifier for texts in sets for identifier in texts.without_text}
        self._index = IdIndex(*(texts.ids for texts in sets))

    @classmethod
    def of(cls, data: TextData | TextSet) -> TextItems:
        """Take all texts of a data set, or of a file."""
        parts = getattr(data, "parts", None)
        return cls(data) if parts is None else cls(*parts().values())  # type: ignore[arg-type]

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the known ids and their texts."""
        known, rows = _known(self._index, ids)
        texts = np.empty(len(rows), object)
        for part, which, places in self._index.by_part(rows):
            texts[which] = list(self.sets[part].texts[places])
        return known, texts.tolist()


class WithText:
    """The texts of other items that are not blank.

    Args:
        items: Reads texts; an empty one for an item without a text.
        without_text: Ids of items whose text was blank at the last read.
    """

    def __init__(self, items: ItemSource[list[str]]) -> None:
        self.items, self.without_text = items, set[str]()

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the known ids that have a text, in the order given, and their texts."""
        from limpet.data.text_set import blank

        known, texts = self.items.read(ids)
        left = blank(StringArray.of(texts))
        self.without_text.difference_update(ids)
        self.without_text.update(one for one, out in zip(known, left, strict=True) if out)
        kept = np.flatnonzero(~left)
        return [known[row] for row in kept], [texts[row] for row in kept]


def without_text(source: object, ids: Iterable[str]) -> set[str]:
    """Return the ids for which a source made no vectors because they have no text."""
    left, found = set(ids), set[str]()
    while source is not None and left:
        found |= left & getattr(source, "without_text", frozenset())
        source = getattr(source, "source", None) or getattr(source, "items", None)
    return found


class CallableItems:
    """Items that a Python function fetches.

    Args:
        function: Takes ids, and returns one item for each in that order; None for a missing item.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[Any]]) -> None:
        self._function = function

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[Any]]:
        """Return the ids whose item is not None, and their items.

        Raises:
            DataError: The function did not return one item per id.
        """
        items = list(self._function(list(ids)))
        if len(items) != len(ids):
            raise DataError(f"{len(items)} items came for {len(ids)} ids.", expected="one for each, or None")
        there = [row for row, item in enumerate(items) if item is not None]
        return [ids[row] for row in there], [items[row] for row in there]


def _known(index: IdIndex, ids: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    rows = index.find(ids)
    there = rows >= 0
    return [identifier for identifier, known in zip(ids, there, strict=True) if known], rows[there]


class CallableVectors:
    """Vectors that a Python function makes.

    Args:
        function: Takes a list of items, or of ids if no items are given, and returns float32 (n, D).
        fingerprint: Fingerprint of the function's model: ``declared:<name>``.
        space: Space of the vectors.
        items: Reads the items that the function takes; without it, the function must know every id.
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
        """Return the vectors that the function makes of the known items.

        Raises:
            DataError: The function did not return one finite float32 vector per item.
            SpaceMismatchError: The vectors have another dimension.
        """
        known, items = (list(ids), list(ids)) if self.items is None else self.items.read(ids)
        return points_of(self, known, self._function(items)) if known else nothing_of(self)


@checked
class ReleaseVectors:
    """Vectors that a release makes of images.

    Args:
        items: Reads pixels as the release takes them: uint8 (n, channels, height, width), or a list of such images.
        batch_size: Images read and encoded at a time.
        device: Device to compute on; the CPU when left out.

    Raises:
        ReleaseError: The release does not embed images.
    """

    def __init__(
        self,
        release: Release,
        items: ItemSource[NDArray[np.uint8] | list[Any]],
        *,
        batch_size: PositiveInt = 512,
        device: torch.device | None = None,
    ) -> None:
        from limpet.models.specs import EncoderSpec

        spec = release.record.encoder
        if not isinstance(spec, EncoderSpec):
            raise ReleaseError(
                f"A release that takes {spec.input_words}, no images.",
                expected="a release that was trained on images",
                to_do="give the embeddings, or the texts, that it takes.",
            )
        self.release, self.items, self.batch_size, self.device = release, items, batch_size, device
        self.fingerprint, self.space = release.fingerprint, release.space
        self.shape = spec.input_shape

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors that the release makes of the known images."""
        parts = [self._embed(ids[start : start + self.batch_size]) for start in range(0, len(ids), self.batch_size)]
        return joined_points(self, parts)

    def _embed(self, ids: Sequence[str]) -> EmbeddingSet:
        from limpet.data import ArrayImages, ImageSet
        from limpet.training.encode import embed_images

        known, pixels = self.items.read(ids)
        if not known:
            return nothing_of(self)
        images = ImageSet(ArrayImages(self._pixels(known, pixels)), np.zeros(len(known), np.int64), ("",), known)  # type: ignore[arg-type]
        return embed_images(self.release, images, batch_size=self.batch_size, device=self.device)

    def _pixels(self, ids: list[str], images: NDArray[np.uint8] | list[Any]) -> NDArray[np.uint8]:
        wrong = [
            identifier
            for identifier, image in zip(ids, images, strict=True)
            if getattr(image, "shape", None) != self.shape or image.dtype != np.uint8
        ]
        if wrong:
            raise DataError(
                f"{len(wrong)} images are not as the release takes them: {shown(wrong)}.",
                expected=f"uint8 of shape {self.shape} (channels, height, width)",
                to_do="read them as in training; `limpet embed` does so by itself.",
            )
        return np.stack(list(images))


@checked
class TextVectors:
    """Vectors that a frozen model makes of texts; none for a text that is blank or has no token known to the model.

    Args:
        role: Role of the items in the model, which selects the prefix of each text.
        without_text: Ids of items whose text had no known token when it was last embedded.

    Raises:
        ConfigError: The model has different prefixes for queries and documents, and the role is "both".
    """

    def __init__(
        self, encoder: TextEncoder, items: ItemSource[list[str]], *, role: Role = ROLE, batch_size: PositiveInt = 64
    ) -> None:
        from limpet.geometry import Hypersphere

        encoder.prefix(role)
        self.encoder, self.items, self.role, self.batch_size = encoder, WithText(items), role, batch_size
        self.without_text = set[str]()
        self.fingerprint, self.space = encoder.fingerprint, Hypersphere(encoder.dim)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors that the model makes of the known texts."""
        from limpet.data import TextSet
        from limpet.models.text_encoders import embed_texts

        known, texts = self.items.read(ids)
        if not known:
            return nothing_of(self)
        named = TextSet(StringArray.of(texts), None, (), StringArray.of(known))
        made = embed_texts(self.encoder, named, role=self.role, batch_size=self.batch_size, on_empty="skip")
        self.without_text.difference_update(known)
        self.without_text.update(set(known).difference(made.ids))
        return made


class Carried:
    """Vectors of one source, mapped to the space of another model; no item is embedded again.

    Args:
        carry: Maps vectors of the source to those of the other model.
    """

    def __init__(
        self, source: VectorSource, carry: Callable[[EmbeddingSet], EmbeddingSet], fingerprint: str, space: Space
    ) -> None:
        self.source, self._carry, self.fingerprint, self.space = source, carry, fingerprint, space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the mapped vectors of the ids that the source has."""
        embeddings = self.source.embed(ids)
        return self._carry(embeddings) if len(embeddings) else nothing_of(self)


def through(source: VectorSource, link: VectorMap) -> Carried:
    """Map vectors of a model with a head or an adapter.

    Raises:
        ConfigError: The head or adapter maps vectors of another model.
    """
    refuse(
        link.source != source.fingerprint,
        f"Vectors of {source.fingerprint} for '{link.name}', which reads those of {link.source}.",
        "the very model whose vectors it reads",
    )
    return Carried(source, link.apply, link.fingerprint, link.space)


def vectors_of_texts(model: TextModel, items: ItemSource[list[str]], *, batch_size: int = 64) -> VectorSource:
    """Return a source that embeds the texts of items with any text model."""
    source = TextVectors(model.encoder, items, batch_size=batch_size)
    return source if model.through is None else through(source, model.through)


class EmbeddedItems:
    """Items that a source embeds when they are selected; otherwise like the `EmbeddingSet` that they become.

    Args:
        source: Source of their vectors; it has all of them.
        items: The items with their ids, labels and class names.
        labelled: Whether the labels are meaningful.
    """

    def __init__(self, source: VectorSource, items: ImageSet | TextSet, *, labelled: bool) -> None:
        self._source, self.ids = source, items.ids
        self.fingerprint, self.space = source.fingerprint, source.space
        self.labels = items.labels if labelled else None
        self.columns: Mapping[str, NDArray[Any]] = getattr(items, "columns", {})
        self._class_names = StringArray.of(items.class_names) if labelled else None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: NDArray[np.int64]) -> EmbeddingSet:
        """Embed the selected rows, and return them in the order given."""
        return self._source.embed(list(self.ids[rows])).replace(
            labels=None if self.labels is None else self.labels[rows],
            class_names=self._class_names,
            columns={name: values[rows] for name, values in self.columns.items()},
        )


class Parallel:
    """A source that distributes every batch over workers; a worker that dies is restarted, and its part repeated.

    Threads help if embedding waits for files, a network or a device, or releases the interpreter lock, as image
    decoding and network arithmetic do. Processes, and the machines of a cluster, have a model each.

    Args:
        opener: Returns a source; see `limpet.support.workers.Opened`.
        workers: Pool of workers, such as `limpet.support.workers.Processes`.
    """

    def __init__(self, opener: Callable[[], VectorSource], workers: Workers) -> None:
        self._workers, self._opened = workers, Opened(opener, workers)
        self.without_text = set[str]()
        """Ids of requested items that have no text."""
        ((self.fingerprint, self.space),) = self._opened.each(_identity, [()])

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of the ids that the source has, in the order given.

        Raises:
            StoreError: Workers died repeatedly.
        """
        size = max(1, -(-len(ids) // len(self._workers)))
        parts = [list(ids[start : start + size]) for start in range(0, len(ids), size)]
        made = list(self._opened.each(_embed, [(part,) for part in parts]))
        self.without_text.difference_update(ids)
        self.without_text.update(*(blank for _, blank in made))
        return joined_points(self, [found for found, _ in made])


def _identity(source: VectorSource) -> tuple[str, Space]:
    return source.fingerprint, source.space


def _embed(source: VectorSource, ids: Sequence[str]) -> tuple[EmbeddingSet, set[str]]:
    return source.embed(ids), without_text(source, ids)


def points_of(source: VectorSource, ids: Sequence[str], vectors: NDArray[np.float32]) -> EmbeddingSet:
    """Return checked vectors as an embedding set of the source's model."""
    return EmbeddingSet(vectors, StringArray.of(ids), source.fingerprint, source.space, ROLE)


def nothing_of(source: VectorSource) -> EmbeddingSet:
    """Return an empty embedding set of the source's model."""
    return points_of(source, [], np.empty((0, source.space.dim), np.float32))


def joined_points(source: VectorSource, parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Return several embedding sets as one, in order."""
    ids = [identifier for part in parts for identifier in part.ids]
    vectors = [np.empty((0, source.space.dim), np.float32), *(part.vectors for part in parts)]
    marks = [part.trained_on for part in parts if part.trained_on is not None]
    trained = np.concatenate(marks) if marks and len(marks) == len(parts) else None
    return points_of(source, ids, np.concatenate(vectors)).replace(trained_on=trained)
