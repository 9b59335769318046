"""Sets of texts with classes and ids, the counterpart of `ImageSet`, and data sets with a protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from limpet.data.items import check_class_rows, refuse_repeated
from limpet.embeddings import StringArray
from limpet.embeddings.conversion import row_numbers
from limpet.embeddings.trained_on import Digests, digests_of_texts
from limpet.errors import DataError, shown


def blank(texts: StringArray) -> NDArray[np.bool_]:
    """Return which texts (N,) are empty or only white space."""
    trimmed = pc.utf8_trim_whitespace(texts.arrow())
    return np.asarray(pc.equal(pc.utf8_length(trimmed), 0).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True, eq=False)
class TextSet:
    """N texts, labelled or not, validated when built.

    Args:
        texts: The texts (N), none of them empty or only white space.
        labels: Class of every text, int64 (N,), rows of `class_names`; None without labels.
        class_names: Unique class names; a class may have no text here. Empty without labels.
        ids: Unique ids of the texts (N).
        without_text: Ids of further items, left out because their text is blank.

    Raises:
        DataError: A text is empty, lengths differ, a label has no class name, or an id or class name occurs twice.
    """

    texts: StringArray
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    ids: StringArray
    without_text: StringArray = field(default_factory=lambda: StringArray.of([]))

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", StringArray.of(self.texts))
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "ids", StringArray.of(self.ids))
        lengths = {"texts": len(self.texts), "ids": len(self.ids)}
        if self.labels is not None:
            lengths["labels"] = len(self.labels)
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"Parts of different length: {found}.", expected="one of each per text")
        if self.labels is None and self.class_names:
            raise DataError(f"{len(self.class_names)} class names, but no labels.", expected="both, or neither")
        if self.labels is not None:
            check_class_rows(self.labels, len(self.class_names), "texts")
        refuse_repeated("ids", self.ids, "one id per text")
        refuse_repeated("class names", StringArray.of(self.class_names), "one name per class")
        # a model would embed blank texts, too, close to other uninformative texts
        empty = np.flatnonzero(blank(self.texts))
        if len(empty):
            raise DataError(
                f"{len(empty)} of {len(self)} texts are empty: {shown(self.ids[empty])}.",
                expected="at least one character that is not white space in every text",
                to_do="give these items a text, or remove them; `limpet embed texts --on-empty skip` leaves them out.",
            )

    @classmethod
    def skipping_blank(
        cls, texts: StringArray, labels: NDArray[np.int64] | None, class_names: tuple[str, ...], ids: StringArray
    ) -> TextSet:
        """Return a set without the blank texts, whose ids are in its `without_text`."""
        skipped = blank(texts)
        kept = np.flatnonzero(~skipped)
        known = None if labels is None else labels[kept]
        return cls(texts[kept], known, class_names, ids[kept], ids[np.flatnonzero(skipped)])

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        classes = "no labels" if self.labels is None else f"{len(self.class_names)} classes"
        return f"TextSet({len(self)} texts, {classes})"

    def __getitem__(self, rows: NDArray[Any] | slice | list[int]) -> TextSet:
        """Return the chosen rows, in the order given, with all class names; a boolean mask keeps the order.

        Raises:
            DataError: A number was given; `[[row]]` returns the set of one item.
        """
        index = row_numbers(rows, len(self))
        labels = None if self.labels is None else self.labels[index]
        return TextSet(self.texts[index], labels, self.class_names, self.ids[index])

    def select_classes(self, classes: Iterable[int]) -> TextSet:
        """Return the texts of the chosen classes, with all class names.

        Raises:
            DataError: The set has no labels.
        """
        return self[np.isin(self.labelled(), np.fromiter(classes, np.int64))]

    def compact(self) -> TextSet:
        """Drop the classes without a text and renumber the others, in the same order.

        Raises:
            DataError: The set has no labels.
        """
        used, labels = np.unique(self.labelled(), return_inverse=True)
        names = tuple(self.class_names[label] for label in used)
        return replace(self, labels=labels.astype(np.int64), class_names=names)

    def labelled(self) -> NDArray[np.int64]:
        """Return the labels (N,).

        Raises:
            DataError: The set has no labels.
        """
        if self.labels is None:
            raise DataError(
                f"These {len(self)} texts have no labels.",
                to_do="give the file a column 'label'.",
            )
        return self.labels

    def digest(self) -> str:
        """Return a sha256 over texts, ids, labels and class names, 64 hexadecimal digits."""
        digest = hashlib.sha256(repr((self.labels is not None, self.class_names)).encode())
        labels = np.empty(0, np.int64) if self.labels is None else self.labels
        for values in (labels, self.ids.offsets, self.ids.data, self.texts.offsets, self.texts.data):
            digest.update(np.ascontiguousarray(values).data if values.size else b"")
        return digest.hexdigest()

    def digests(self) -> Digests:
        """Return the digest of every text (N,)."""
        return digests_of_texts(self.texts)


@dataclass(frozen=True)
class TextData:
    """One set of texts with its usual protocol, validated when built.

    Args:
        name: Name of the data set.
        train: Training texts; they may have fewer classes than the other parts.
        query: Query texts.
        gallery: Texts to search, labelled with the same classes as `query`.
        description: One line on the origin of the texts and their split.
        unlabelled: Further training texts, without labels; None if there are none.

    Raises:
        DataError: Query and gallery have different classes, share a text, or a part has fewer than two classes.
    """

    name: str
    train: TextSet
    query: TextSet
    gallery: TextSet
    description: str
    unlabelled: TextSet | None = None

    def __post_init__(self) -> None:
        if self.query.class_names != self.gallery.class_names:
            raise DataError("Query and gallery have other class names.", expected="one list of class names for both")
        shared = self.query.ids.find(self.gallery.ids)
        if (shared >= 0).any():
            raise DataError(
                f"{int((shared >= 0).sum())} texts of '{self.name}' are both query and gallery, first: "
                f"'{self.query.ids[int(shared.max())]}'.",
                expected="every text on one side",
            )
        for part, texts in (("train", self.train), ("query", self.query), ("gallery", self.gallery)):
            classes = len(np.unique(texts.labelled()))
            if classes < 2:
                raise DataError(
                    f"The {part} texts of '{self.name}' have {classes} class{'' if classes == 1 else 'es'}.",
                    expected="at least two classes: with one, every answer is right",
                    to_do="check that the labels are the ones you meant, and that the shares left out leave enough.",
                )

    def parts(self) -> dict[str, TextSet]:
        """Return the sets by name; "unlabelled" only if present."""
        parts = {"train": self.train, "query": self.query, "gallery": self.gallery}
        return parts if self.unlabelled is None else {**parts, "unlabelled": self.unlabelled}
