"""Embeddings of a set of items by one model, as every stage of limpet exchanges them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from limpet.embeddings import tables
from limpet.embeddings.conversion import array_of, classes_of, ids_of, row_numbers, vectors_of
from limpet.embeddings.forms import Form, Role, TableOptions
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, SpaceMismatchError, UnusableVectorsError, shown
from limpet.geometry import Hypersphere, Space
from limpet.geometry.space import with_zeros

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import pyarrow as pa

UNCERTAINTY = "uncertainty"
"""Name of a column that says how certain the model is of every item: a number in [0, 1]."""

_FINGERPRINT = re.compile(r"declared:.+|[a-z]+:[0-9a-f]{64}")
_ROWS_AT_ONCE = 16_384
_NO_COLUMNS: Mapping[str, NDArray[Any]] = MappingProxyType({})


@dataclass(frozen=True, eq=False, init=False)
class EmbeddingSet:
    """Vectors of N items with the identity of their model, validated on construction.

    NumPy arrays, PyTorch tensors and lists are accepted. Nothing is rounded: float64 vectors are refused. ``len``,
    slices and boolean masks work as for an array of N rows, and ``np.asarray`` returns the vectors.

    Args:
        vectors: float32 (N, D), finite; D is the dimension of the space. float16 and bfloat16 are converted.
        ids: Unique text per item (N); whole numbers are written in decimal digits. Default: row numbers from 0, so that
            row i is the same item in every set without ids.
        fingerprint: Fingerprint of the model: ``<kind>:<sha256>``, or ``declared:<name>`` for vectors without a model.
        space: Space of the vectors. Default: the hypersphere, whose similarity is the cosine.
        role: Role of the items for the model: "query", "document" or "both".
        form: "points" of the space, or raw "features" of a model (training needs their lengths).
        labels: Class of every item: int64 (N,), an index into `class_names` if these are given; or its name. None
            without labels.
        class_names: Unique name per class. Default: the names in the labels, sorted.
        columns: Further values per item, such as camera or session, each an array of length N.
        prefix: Text prepended to every item because of its role; empty for most models.
        contents: Digest of every text or image as it was read, uint64 (N,); None if only vectors are known.
        trained_on: Whether the model was trained or fitted on the item, bool (N,); None if unknown. See
            `limpet.embeddings.trained_on`.
        model: Name of the model, in place of the fingerprint ``declared:<name>``.

    Raises:
        DataError: A value is invalid, or the model is missing; the message names the first offending ids.
        SpaceMismatchError: The vectors and the space have different dimensions.

    >>> images = EmbeddingSet(np.eye(4, 3, dtype=np.float32) + 1, model="v1", labels=["cat", "dog", "dog", "cat"])
    >>> images
    EmbeddingSet(4 points on the hypersphere of dimension 3, 2 classes, declared:v1)
    >>> len(images[:2]), list(images[images.labels == 0].ids), np.asarray(images).shape
    (2, ['0', '3'], (4, 3))
    """

    vectors: NDArray[np.float32]
    ids: StringArray
    fingerprint: str
    space: Space
    role: Role
    form: Form
    labels: NDArray[np.int64] | None
    class_names: StringArray | None
    columns: Mapping[str, NDArray[Any]]
    prefix: str
    contents: NDArray[np.uint64] | None
    trained_on: NDArray[np.bool_] | None

    def __init__(
        self,
        vectors: ArrayLike,
        ids: Iterable[str | int] | None = None,
        fingerprint: str | None = None,
        space: Space | None = None,
        role: Role = "both",
        form: Form = "points",
        labels: ArrayLike | None = None,
        class_names: Iterable[str | int] | None = None,
        columns: Mapping[str, ArrayLike] = _NO_COLUMNS,
        prefix: str = "",
        contents: NDArray[np.uint64] | None = None,
        trained_on: NDArray[np.bool_] | None = None,
        *,
        model: str | None = None,
    ) -> None:
        if (model is None) == (fingerprint is None):
            raise DataError(
                "Both model and fingerprint were given." if model else "Nothing says which model made the vectors.",
                expected="a model or a fingerprint",
                to_do="name the model, as in model='my-model-v1'; sets of one model have the same name.",
            )
        rows = vectors_of(vectors)
        if space is None:
            space = Hypersphere(rows.shape[-1])
        if not isinstance(space, Space):
            raise DataError(f"The space {space!r}.", expected="a Space, such as limpet.Hypersphere(dimension)")
        names = None if class_names is None else ids_of(class_names)
        numbers = None
        if labels is not None:
            numbers, names = classes_of(labels, names)
        values = {
            "vectors": rows,
            "ids": ids_of(range(len(rows)) if ids is None else ids),
            "fingerprint": fingerprint if model is None else f"declared:{model}",
            "space": space,
            "role": role,
            "form": form,
            "labels": numbers,
            "class_names": names,
            "columns": MappingProxyType({name: array_of(one, f"Values of '{name}'") for name, one in columns.items()}),
            "prefix": prefix,
            "contents": contents,
            "trained_on": trained_on,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check(self)

    @classmethod
    def trusted(cls, **values: Any) -> EmbeddingSet:
        """Build without validation, for values already checked: opened files and parts of checked sets."""
        embeddings = object.__new__(cls)
        vars(embeddings).update(values)
        return embeddings

    @classmethod
    def from_arrow(cls, table: pa.Table, **told: Unpack[TableOptions]) -> EmbeddingSet:
        """Return the embeddings of an Arrow table.

        Columns ``id`` (texts or whole numbers; items without are numbered), ``vector`` (a list of numbers) and
        ``label`` (texts, whole numbers or a dictionary, whose order is kept) are read; further numeric columns are
        kept. A table made by `to_arrow` records everything itself.

        Args:
            table: A pyarrow.Table.
            told: Values that the columns do not hold, by name: ``fingerprint="declared:my-model"``, ``space`` or
                ``similarity``, ``role``; and ``id_column``, ``vector_column``, ``label_column`` if they have other
                names. See `limpet.embeddings.forms.TableOptions`.

        Raises:
            ConfigError: Both a space and a similarity are given, or one of them is unknown.
            DataError: Vectors cannot be used, or their model is unknown.
            SpaceMismatchError: The table records another space than the given one.
        """
        return cls(**tables.from_arrow(table, told))

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow.Table with the columns ``id``, ``vector``, ``label`` and those of the set.

        Raises:
            DataError: A column of the set is called as one of these.
        """
        return tables.to_arrow(self._values())

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, **told: Unpack[TableOptions]) -> EmbeddingSet:
        """Return the embeddings of a data frame.

        Columns ``id`` (texts or whole numbers; items without are numbered), ``vector`` (a list of numbers) and
        ``label`` (texts, whole numbers or categories, whose order is kept) are read; further numeric columns are kept.
        A table made by `to_pandas` records everything itself.

        Args:
            frame: A pandas.DataFrame; its index is ignored.
            told: Values that the columns do not hold; see `from_arrow`, also for the exceptions.
        """
        return cls(**tables.from_pandas(frame, told))

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas.DataFrame with the columns of `to_arrow`. Requires pandas.

        Raises:
            DataError: A column of the set is called as one of these.
        """
        return tables.to_pandas(self._values())

    @classmethod
    def from_dataset(cls, dataset: datasets.Dataset, **told: Unpack[TableOptions]) -> EmbeddingSet:
        """Return the embeddings of a Hugging Face `datasets.Dataset`.

        Columns ``id`` (texts or whole numbers; items without are numbered), ``vector`` (a list of numbers) and
        ``label`` (texts, whole numbers or a ClassLabel, whose names are kept) are read; further numeric columns are
        kept.

        Args:
            dataset: A datasets.Dataset.
            told: Values that the columns do not hold; see `from_arrow`, also for the exceptions.
        """
        return cls(**tables.from_dataset(dataset, told))

    def to_dataset(self) -> datasets.Dataset:
        """Return a datasets.Dataset with the columns of `to_arrow`. Requires the library datasets.

        The data set does not store model, space or role: pass them to `from_dataset`.

        Raises:
            DataError: A column of the set is called as one of these.
        """
        return tables.to_dataset(self._values())

    def __len__(self) -> int:
        return len(self.ids)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vectors, dtype) if copy else np.asarray(self.vectors, dtype)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a value: nothing of it changes, and what holds it, such as a loss, is copied without its rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self._values(), "columns": dict(self.columns)}  # a read-only view cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "columns": MappingProxyType(state["columns"])})

    @property
    def dim(self) -> int:
        """Dimension D of the vectors."""
        return self.space.dim

    @property
    def declared(self) -> bool:
        """Whether the model was declared by name, rather than identified by its weights."""
        return self.fingerprint.startswith("declared:")

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", {len(np.unique(self.labels))} classes"
        return f"EmbeddingSet({len(self)} {self.form} on the {self.space}{classes}, {self.fingerprint[:24]})"

    def __getitem__(self, rows: NDArray[Any] | slice | list[int]) -> EmbeddingSet:
        """Return the chosen rows, in the order given; a boolean mask keeps the order of the set.

        Raises:
            DataError: A number was given; `[[row]]` returns the set of one item.
        """
        index = rows if isinstance(rows, slice) else row_numbers(rows, len(self))  # a slice copies nothing
        return EmbeddingSet.trusted(
            **{
                **self._values(),
                "ids": self.ids[index],
                "vectors": self.vectors[index],
                **{name: values[index] for name, values in per_item(self).items()},
                "columns": MappingProxyType({name: values[index] for name, values in self.columns.items()}),
            }
        )

    def replace(self, **changes: Any) -> EmbeddingSet:
        """Return a validated copy with some values changed."""
        return replace(self, **changes)

    def padded(self, space: Space) -> EmbeddingSet:
        """Return the rows as points of a space of more dimensions, padded with zeros; similarities do not change.

        They keep the fingerprint of their model. A new model with more dimensions searches them in this form.

        Args:
            space: Space that differs from that of the rows only in its dimension; the same space returns the same rows.

        Raises:
            SpaceMismatchError: The space has fewer dimensions, is of another kind, or does not support padding.
        """
        if space == self.space:
            return self
        if not space.pads(self.space):
            raise SpaceMismatchError(
                f"Embeddings on the {self.space} were to be padded with zeros to the {space}.",
                expected="a space of the same kind and of more dimensions; hyperbolic points are not padded, since "
                "their model divides by a root of the dimension",
            )
        return self.replace(vectors=with_zeros(self.vectors, space.dim), space=space)

    def _values(self) -> dict[str, Any]:
        return {definition.name: getattr(self, definition.name) for definition in fields(self)}

    def digest(self) -> str:
        """Return the sha256 of the contents, a text of 64 hexadecimal digits.

        It covers everything except `fingerprint`, `contents` and `trained_on`, so that equal data under the names of
        two models is detected.
        """
        kind = (self.space.record(), self.role, self.form, *([self.prefix] if self.prefix else []))
        digest = hashlib.sha256(repr(kind).encode())
        for name, values in sorted(arrays_of(self).items()):
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).data if values.size else b"")
        return digest.hexdigest()


def check_given(**given: object) -> None:
    """Raise an error for arguments that are no sets of embeddings, by their names.

    Raises:
        DataError: An argument is something else, such as an array, which has neither ids nor a model.
    """
    for name, value in given.items():
        if not isinstance(value, EmbeddingSet):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            raise DataError(
                f"'{name}' is a {type(value).__name__}{shape}.",
                expected="a limpet.EmbeddingSet, which says ids, model and space of its vectors",
                to_do="limpet.EmbeddingSet(vectors, model='my-model', ids=ids) makes one of an array; "
                "limpet.load_embeddings(FILE) reads one.",
            )


def per_item(embeddings: EmbeddingSet) -> dict[str, NDArray[Any]]:
    """Return the optional arrays of one value per item that are set, by name."""
    found = {name: getattr(embeddings, name) for name in ("labels", "contents", "trained_on")}
    return {name: values for name, values in found.items() if values is not None}


def arrays_of(embeddings: EmbeddingSet) -> dict[str, NDArray[Any]]:
    """Return the arrays that a digest covers, by their names in a file."""
    arrays: dict[str, NDArray[Any]] = {
        "vectors": embeddings.vectors,
        "id_bytes": embeddings.ids.data,
        "id_offsets": embeddings.ids.offsets,
    }
    if embeddings.labels is not None:
        arrays["labels"] = embeddings.labels
    if embeddings.class_names is not None:
        arrays["class_name_bytes"] = embeddings.class_names.data
        arrays["class_name_offsets"] = embeddings.class_names.offsets
    return arrays | {f"column.{name}": values for name, values in embeddings.columns.items()}


def check(embeddings: EmbeddingSet) -> None:
    """Raise an error for a set that violates a rule of `EmbeddingSet`, naming the offending ids."""
    check_form(embeddings)
    _check_values(embeddings)
    duplicates = embeddings.ids.duplicates
    if duplicates:
        raise DataError(
            f"{len(duplicates)} ids occur more than once: {shown(duplicates)}.",
            to_do="remove the repeated rows, or give each its own id.",
        )


def check_form(embeddings: EmbeddingSet) -> None:
    """Run all checks that need neither the vectors nor a comparison of ids."""
    _check_words(embeddings)
    _check_vectors(embeddings)
    _check_lengths(embeddings)
    _check_labels(embeddings)


def _check_words(embeddings: EmbeddingSet) -> None:
    if not (isinstance(embeddings.fingerprint, str) and _FINGERPRINT.fullmatch(embeddings.fingerprint)):
        raise DataError(
            f"The fingerprint '{embeddings.fingerprint}'.",
            expected="<kind>:<64 hexadecimal digits> from a release, or declared:<name>",
            to_do="for vectors made elsewhere, declare their model: fingerprint='declared:my-model-v1'.",
        )
    if not isinstance(embeddings.prefix, str):
        raise DataError(f"The prefix {embeddings.prefix!r}.", expected="a text")
    for name, kind in (("role", Role), ("form", Form)):
        if getattr(embeddings, name) not in get_args(kind):
            raise DataError(
                f"The {name} '{getattr(embeddings, name)}'.", expected=f"one of {', '.join(get_args(kind))}"
            )


def _check_vectors(embeddings: EmbeddingSet) -> None:
    vectors = embeddings.vectors
    if vectors.dtype != np.float32 or vectors.ndim != 2:
        raise DataError(
            f"Vectors are {vectors.dtype} of shape {vectors.shape}.",
            expected="float32 of shape (items, dimension)",
            to_do="convert them yourself, so that no precision is lost unseen: "
            "vectors=numpy.asarray(vectors, numpy.float32).",
        )
    if vectors.shape[1] != embeddings.space.dim:
        raise SpaceMismatchError(
            f"Vectors have dimension {vectors.shape[1]}, their space is the {embeddings.space}.",
            expected="one dimension for both",
        )


def _check_values(embeddings: EmbeddingSet) -> None:
    vectors, space = embeddings.vectors, embeddings.space
    _refuse_rows(embeddings, _not_finite(vectors), "hold NaN or infinite values", "finite numbers")
    if embeddings.form == "features":
        _refuse_rows(embeddings, space.check_features(vectors), f"lead to no point of the {space}", space.points_are)
    else:
        _refuse_rows(embeddings, space.check(vectors), f"are no points of the {space}", space.points_are)


def unusable_rows(vectors: NDArray[np.float32], space: Space, form: Form) -> NDArray[np.int64]:
    """Return the rows that cannot be searched: NaN, infinite, or no points of the space, such as zero."""
    absent = _not_finite(vectors)
    wrong = space.check_features(vectors) if form == "features" else space.check(vectors)
    return np.union1d(absent, wrong)


def _not_finite(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the rows with NaN or infinite values, block by block, because a full mask is large."""
    blocks = range(0, len(vectors), _ROWS_AT_ONCE)
    found = [
        start + np.flatnonzero(~np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(axis=1)) for start in blocks
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def _refuse_rows(embeddings: EmbeddingSet, rows: NDArray[np.int64], what: str, expected: str) -> None:
    if len(rows):
        names = [embeddings.ids[int(row)] if row < len(embeddings.ids) else f"row {row}" for row in rows[:3]]
        raise UnusableVectorsError(
            f"{len(rows)} of {len(embeddings.vectors)} vectors {what}, first: {shown(names, len(rows))}.",
            expected=expected,
            to_do="embed these items again, or remove their rows.",
            intact="Nothing was written.",
        )


def _check_lengths(embeddings: EmbeddingSet) -> None:
    lengths = {"vectors": len(embeddings.vectors), "ids": len(embeddings.ids)}
    lengths |= {name: len(values) for name, values in per_item(embeddings).items()}
    lengths |= {f"column '{name}'": len(values) for name, values in embeddings.columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise DataError(f"Parts of different length: {found}.", expected="one row of each per item")

    for name, kind in (("contents", np.uint64), ("trained_on", np.bool_)):
        values = getattr(embeddings, name)
        if values is not None and (values.dtype != kind or values.ndim != 1):
            raise DataError(
                f"'{name}' is {values.dtype} of shape {values.shape}.", expected=f"{np.dtype(kind)} of shape (items,)"
            )


def _check_labels(embeddings: EmbeddingSet) -> None:
    labels, names = embeddings.labels, embeddings.class_names
    if labels is not None and (labels.dtype != np.int64 or labels.ndim != 1):
        raise DataError(f"Labels are {labels.dtype} of shape {labels.shape}.", expected="int64 of shape (items,)")
    if names is None:
        return
    if names.duplicates:
        raise DataError(f"Class names occur twice: {shown(names.duplicates)}.", expected="one name per class")
    if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise DataError(
            f"Labels run from {labels.min()} to {labels.max()}, with {len(names)} class names.",
            expected="every label a row of the class names",
        )


def joined(sets: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Concatenate the rows of all sets; classes are matched by name.

    Labels are kept if every set has them with names, and further columns if every set has them.

    Args:
        sets: One or more sets, all of one model and in one form.

    Raises:
        DataError: Two sets contain the same id.
    """
    first, *others = sets
    if not others:
        return first
    shared = [name for name in first.columns if all(name in other.columns for other in others)]
    labels, names = _labels(sets)
    marks = [per_item(one) for one in sets]
    known = {name: np.concatenate([one[name] for one in marks]) if all(name in one for one in marks) else None
             for name in ("contents", "trained_on")}  # fmt: skip
    return first.replace(
        ids=StringArray.of(identifier for one in sets for identifier in one.ids),
        vectors=np.concatenate([one.vectors for one in sets]),
        labels=labels,
        class_names=names,
        columns={name: np.concatenate([one.columns[name] for one in sets]) for name in shared},
        **known,
    )


def _labels(sets: Sequence[EmbeddingSet]) -> tuple[NDArray[np.int64] | None, StringArray | None]:
    """Return the labels of all rows (N,), as indices into the names of all classes, and these names."""
    named = [(one.labels, one.class_names) for one in sets if one.labels is not None and one.class_names is not None]
    if len(named) < len(sets):
        return None, None
    names = StringArray.of(dict.fromkeys(name for _, part in named for name in part))
    return np.concatenate([names.find(part)[labels] for labels, part in named]), names


def as_points(features: EmbeddingSet) -> EmbeddingSet:
    """Project features to points of their space, with their uncertainty if the space defines one."""
    points = features.space.project_array(np.asarray(features.vectors))
    return with_uncertainty(features.replace(vectors=points, form="points"))


def with_uncertainty(embeddings: EmbeddingSet) -> EmbeddingSet:
    """Return points with the column "uncertainty", float32 (N,) in [0, 1]; unchanged if the space defines none."""
    if embeddings.form != "points" or not len(embeddings):
        return embeddings
    values = embeddings.space.uncertainty_array(np.asarray(embeddings.vectors))
    if values is None:
        return embeddings
    return embeddings.replace(columns={**embeddings.columns, UNCERTAINTY: values.astype(np.float32)})
