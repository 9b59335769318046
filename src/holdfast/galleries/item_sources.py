"""Where the items of a gallery are, for models that embed them anew: images, texts, or whatever a function returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import StringArray
from holdfast.errors import DataError, nearest, reason, refuse
from holdfast.galleries.id_index import IdIndex

if TYPE_CHECKING:
    from holdfast.data import ImageSet, RetrievalData, TextData, TextSet
    from holdfast.data.decoding import Fit, Shape

Read = TypeVar("Read", covariant=True)


class ItemSource(Protocol[Read]):
    """Items by id; several threads may read at once."""

    def read(self, ids: Sequence[str]) -> tuple[list[str], Read]:
        """Return those of the ids that are there, in the order given, and their items: one each, in that order."""
        ...


class ImageItems:
    """Images by id.

    Args:
        *sets: Sets of images of one shape; of an id in several of them the image of the first is read.

    Raises:
        ConfigError: There is no set, or they have different shapes.
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
        *sets: Sets of texts; of an id in several of them the text of the first is read.
    """

    def __init__(self, *sets: TextSet) -> None:
        refuse(not sets, "No texts.", "at least one set of texts")
        self.sets = sets
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


class CallableItems:
    """Items that a Python function fetches, from wherever they are.

    Args:
        function: Takes ids, and returns one item for each in that order; None for one that is not there.
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


def images_in_parquet(
    path: Path, shape: Shape, *, fit: Fit = "crop", image_column: str = "image", id_column: str = "id"
) -> ImageSet:
    """Return the images of a Parquet file; their encoded bytes are held in memory and decoded when read.

    Args:
        path: The file.
        shape: Channels, height and width to return.
        fit: "crop" or "squash", for images of another size.
        image_column: Column of encoded bytes (JPEG, PNG, ...), or of records with such a field "bytes".
        id_column: Column of ids, texts or whole numbers.

    Raises:
        DataError: The file cannot be read, a column is missing or holds something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from holdfast.data import EncodedImages, ImageSet

    try:
        names = pq.read_schema(path).names
        for column in (image_column, id_column):
            if column not in names:
                raise DataError(
                    f"'{path}' has no column '{column}'.{nearest(column, names)}",
                    expected=f"one of {', '.join(names) or 'no columns at all'}",
                    to_do="name the columns of ids and of images.",
                )
        table = pq.read_table(path, columns=[id_column, image_column])
        encoded = table.column(image_column).combine_chunks()
        encoded = encoded.field("bytes") if pa.types.is_struct(encoded.type) else encoded
        images = EncodedImages.of(encoded, shape, fit=fit, source=f"'{path}'")
        ids = StringArray.from_arrow(table.column(id_column).cast(pa.large_string()))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(
            f"Cannot read images from '{path}': {reason(error)}.",
            expected="a complete Parquet file with a column of ids and one of encoded images",
            to_do="write it again, or restore it from a copy.",
        ) from error
    return ImageSet(images, np.zeros(len(ids), np.int64), ("",), ids)


def _known(index: IdIndex, ids: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    rows = index.find(ids)
    there = rows >= 0
    return [identifier for identifier, known in zip(ids, there, strict=True) if known], rows[there]
