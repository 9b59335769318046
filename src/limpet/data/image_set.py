"""Sets of images with classes and ids, the input of training and evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.data.decoding import Fit, Pixels, Shape
from limpet.data.images import Images, SelectedImages
from limpet.data.items import check_class_rows, refuse_repeated
from limpet.embeddings import StringArray
from limpet.embeddings.conversion import row_numbers
from limpet.embeddings.trained_on import Digests
from limpet.errors import DataError

_NO_COLUMNS: Mapping[str, NDArray[Any]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class ImageSet:
    """N labelled images, validated when built.

    Args:
        images: Store of the pixels.
        labels: Class of every image, int64 (N,), rows of `class_names`.
        class_names: Unique class names; a class may have no image here.
        ids: Unique ids of the images (N).
        columns: Further values per image, such as camera or template, each an array of length N.

    Raises:
        DataError: Lengths differ, a label has no class name, or an id or class name occurs twice.
    """

    kind: ClassVar[str] = "images"

    images: Images
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    ids: StringArray
    columns: Mapping[str, NDArray[Any]] = field(default_factory=lambda: _NO_COLUMNS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "ids", StringArray.of(self.ids))
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        lengths = {"images": len(self.images), "labels": len(self.labels), "ids": len(self.ids)}
        lengths |= {f"column '{name}'": len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"Parts of different length: {found}.", expected="one of each per image")
        check_class_rows(self.labels, len(self.class_names), "images")
        refuse_repeated("ids", self.ids, "one id per image")
        refuse_repeated("class names", StringArray.of(self.class_names), "one name per class")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        channels, height, width = self.shape
        return f"ImageSet({len(self)} images, {len(self.class_names)} classes, {channels}x{height}x{width})"

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        return self.images.shape

    @property
    def fit(self) -> Fit | None:
        """Way in which images of another size were resized to `shape`: "crop" or "squash"; None for arrays."""
        return self.images.fit

    def read(self, rows: NDArray[np.int64]) -> Pixels:
        """Return the pixels of the chosen rows, uint8 (n, channels, height, width)."""
        return self.images.read(rows)

    def __getitem__(self, rows: NDArray[Any] | slice | list[int]) -> ImageSet:
        """Return the chosen rows, in the order given, with all class names; a boolean mask keeps the order.

        Raises:
            DataError: A number was given; `[[row]]` returns the set of one item.
        """
        index = row_numbers(rows, len(self))
        return ImageSet(
            SelectedImages(self.images, index),
            self.labels[index],
            self.class_names,
            self.ids[index],
            {name: values[index] for name, values in self.columns.items()},
        )

    def select_classes(self, classes: Iterable[int]) -> ImageSet:
        """Return the images of the chosen classes, with all class names."""
        return self[np.isin(self.labels, np.fromiter(classes, np.int64))]

    def compact(self) -> ImageSet:
        """Drop the classes without an image and renumber the others, in the same order."""
        used, labels = np.unique(self.labels, return_inverse=True)
        names = tuple(self.class_names[label] for label in used)
        return replace(self, labels=labels.astype(np.int64), class_names=names)

    def digest(self) -> str:
        """Return a sha256 over ids, labels, class names, columns, shape and contents, 64 hexadecimal digits.

        Contents are the pixels of arrays, and the bytes of encoded images and of files.
        """
        digest = hashlib.sha256(repr((self.shape, self.class_names)).encode())
        for values in (self.labels, self.ids.offsets, self.ids.data):
            digest.update(np.ascontiguousarray(values).data if values.size else b"")
        for name, values in sorted(self.columns.items()):
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).data if values.size else b"")
        digest.update(self.images.content_digest(np.arange(len(self))))
        return digest.hexdigest()

    def digests(self) -> Digests:
        """Return the digest of every image (N,): of its pixels, encoded bytes or file."""
        return self.images.digests(np.arange(len(self)))
