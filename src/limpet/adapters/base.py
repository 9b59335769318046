"""Base class of adapters: maps between the embeddings of two frozen models, fitted on the same items."""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from limpet.adapters.moments import BLOCK, Floats, PairedVectors
from limpet.adapters.pairs import Direction, PairReport, matched, paired_vectors
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.conversion import array_of
from limpet.embeddings.embedding_set import check_given
from limpet.embeddings.same_items import refuse_lengths, refuse_one_model
from limpet.embeddings.storage import write_atomically
from limpet.embeddings.trained_on import TrainedOn
from limpet.errors import ConfigError, DataError, SpaceMismatchError, shown
from limpet.geometry import Hypersphere, Space
from limpet.support.hub import HubPlace, OnHub, fetched
from limpet.support.options import bound
from limpet.support.ranges import checked
from limpet.support.steps import Affine, Steps

State = Mapping[str, NDArray[Any]]
_Side = EmbeddingSet | NDArray[np.floating]
"""One model's embeddings, as `Adapter.fit` takes them."""

_TINY = 1e-300  # square of a length, from which on, up to its inverse, a vector has one with all digits
_NO_DIRECTION = 1e-12  # length of an image, of unit rows, that only rounding made


@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of a fit, and its training data.

    Args:
        source: Fingerprint of the model whose embeddings are mapped.
        target: Fingerprint of the model whose space they are mapped into.
        pairs: Number of items it was fitted on.
        state: Arrays of the map, by name.
        trained_on: The items it was fitted on; None if unknown.
    """

    source: str
    target: str
    source_space: Space
    target_space: Space
    pairs: int
    state: State
    trained_on: TrainedOn | None = None


class AdapterStorage(Protocol):
    """Interface of `limpet.adapters.storage`, which saves adapters to folders."""

    def load_adapter(self, folder: str | Path) -> Adapter:
        """Load an adapter of any kind."""

    def save_adapter(self, adapter: Adapter, folder: str | Path) -> Path:
        """Write an adapter to a folder, and return its path."""

    def adapter_card(self, adapter: Adapter) -> str:
        """Return a short description in Markdown."""


class Adapter(OnHub):
    """A map from the embeddings of one model to the space of another, fitted without labels.

    It works like a transformer of scikit-learn: ``fit(X, Y)`` learns to map row i of X to row i of Y, ``transform(X)``
    maps, and ``fit_transform(X, Y)`` does both. ``get_params``, ``set_params`` and ``sklearn.base.clone`` work;
    scikit-learn is not required.

    Adapters read the direction of vectors only, and return unit vectors. They do not map points of the Lorentz space: a
    least-squares or orthogonal map would leave that space, and change its distances.

    A subclass defines `solve`, `images` and `kind`, and stores every option under its own name.

    Args:
        direction: "new_to_old" lets queries of the new model search the old gallery; "old_to_new" maps the old gallery
            to the space of the new model.
    """

    kind: ClassVar[str]
    """Name in `ADAPTERS`."""
    storage: ClassVar[Callable[[], AdapterStorage]]
    """Function that imports the module that saves adapters; `limpet.adapters` sets it."""
    minimum_pairs: ClassVar[int] = 2
    """Smallest number of pairs to fit on."""
    equal_dimensions: ClassVar[bool] = False
    """Whether both models must have the same dimension."""

    extra: ClassVar[str | None] = None
    """Extra that `fit` requires (`limpet.support.extras`); a fitted adapter maps without it."""

    turns: ClassVar[Literal["with each model", "with both models", "no"]] = "with each model"
    """Whether images rotate when the coordinates of either model rotate, or only when both rotate alike."""
    quick: ClassVar[Mapping[str, Any]] = {}
    """Options that make a fit on eighty pairs instant, for contract tests."""
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {}
    """For contract tests: a value of every option that changes the map, and other options to set with it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            checked(cls)

    @checked
    def __init__(self, direction: Direction = "new_to_old") -> None:
        self.direction: Direction = direction
        self.report: PairReport | None = None
        self._fitted: Fitted | None = None

    @classmethod
    def from_pretrained(cls, name: str | Path, **place: Unpack[HubPlace]) -> Adapter:
        """Open an adapter from a folder or the Hugging Face Hub, without running its code or unpickling anything.

        Args:
            name: A folder, or ``owner/name`` on the hub (``pip install '.[hub]'``).
            **place: Location on the hub and download options: `limpet.support.hub.HubPlace`.

        Raises:
            MissingExtraError: The name is not a folder, and huggingface_hub is not installed.
            ReleaseError: The adapter cannot be downloaded, or was altered.
        """
        return cls.storage().load_adapter(fetched(name, **place))

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save the adapter to a folder, with a model card for the hub, and return its path.

        Raises:
            ReleaseError: The folder holds another adapter, or cannot be written; its contents are unchanged.
        """
        storage = type(self).storage()
        place = storage.save_adapter(self, folder)
        card = storage.adapter_card(self)
        write_atomically(place / "README.md", lambda part: part.write_text(card, encoding="utf-8"))
        return place

    @abstractmethod
    def solve(self, pairs: PairedVectors) -> State:
        """Return the arrays of the map from the directions of the sources to those of their targets."""

    @abstractmethod
    def images(self, rows: Floats) -> Floats:
        """Return the images (N, T), of any length, of unit rows (N, S); callers use `map` or `transform`."""

    def as_steps(self) -> Steps | None:
        """Return `images` as plain steps, for serving without limpet.

        None unless a subclass overrides it; the adapter then still maps, but cannot be exported.
        """
        return None

    @property
    def options(self) -> dict[str, object]:
        """Options of this adapter, without the direction."""
        names = list(inspect.signature(type(self)).parameters)
        return {name: _plain(getattr(self, name)) for name in names if name != "direction"}

    @property
    def fitted(self) -> Fitted:
        """Models, pairs and arrays of the fit.

        Raises:
            ConfigError: The adapter is not fitted.
        """
        if self._fitted is None:
            raise ConfigError(
                f"The adapter '{self.kind}' was not fitted.",
                to_do="call fit(old, new) with embeddings of the same items by both models, or load_adapter(folder).",
            )
        return self._fitted

    @overload
    def fit(self, old: EmbeddingSet, new: EmbeddingSet, /) -> Self: ...

    @overload
    def fit(self, sources: NDArray[np.floating], targets: NDArray[np.floating], /) -> Self: ...

    @overload
    def fit(self, /, *, old: _Side, new: _Side) -> Self: ...

    def fit(
        self, first: _Side | None = None, second: _Side | None = None, /, *, old: _Side | None = None,
        new: _Side | None = None,
    ) -> Self:  # fmt: skip
        """Fit the map on the same items, embedded by both models; `report` then lists anomalies of the pairs.

        - ``fit(old, new)`` takes two sets of embeddings, matched by id.
        - ``fit(X, Y)`` takes two arrays, (N, S) and (N, T), whose rows are the same items: X is mapped, Y is the
          target, for either direction.
        - ``fit(old=..., new=...)`` takes either, and the direction determines which is mapped.

        Arrays are rounded to float32, like stored embeddings.

        Returns:
            The adapter itself.

        Raises:
            ConfigError: A side is missing, or one is a set and the other an array.
            SpaceMismatchError: A set is not on the hypersphere.
            EmptyOverlapError: No id occurs in both.
            DataError: Both sets are of one model, there are too few pairs, a paired vector has no direction, or the
                arrays are not (N, S) and (N, T).
        """
        old, new = self._sides(first, second, old, new)
        refuse_lengths(old, new, f"'{self.kind}' maps")
        refuse_one_model(old, new)
        pairs = matched(old, new, direction=self.direction, minimum=self.minimum_pairs)
        source, target = (new, old) if self.direction == "new_to_old" else (old, new)
        state = self.solve(paired_vectors(old, new, pairs))
        spaces = source.space, target.space
        items = TrainedOn.of_pairs(old[pairs.old_rows], new[pairs.new_rows])
        self.restore(Fitted(source.fingerprint, target.fingerprint, *spaces, pairs.report.pairs, state, items))
        self.report = pairs.report
        return self

    def _sides(self, first: object, second: object, old: object, new: object) -> tuple[EmbeddingSet, EmbeddingSet]:
        by_name = first is None and second is None
        given = (old, new) if by_name else (first, second)
        if any(side is None for side in given) or (not by_name and (old is not None or new is not None)):
            raise ConfigError(
                f"fit was given {sum(side is not None for side in (first, second, old, new))} sides.",
                expected="two: fit(old, new) with embeddings of the same items by both models, fit(X, Y) with arrays, "
                "or fit(old=..., new=...)",
            )
        sets = [isinstance(side, EmbeddingSet) for side in given]
        if all(sets):
            return given  # type: ignore[return-value]
        if any(sets):
            raise ConfigError(
                f"fit was given {_kind(given[0])} and {_kind(given[1])}.",
                expected="two sets of embeddings, whose items are matched by id, or two arrays, whose rows are",
            )
        swapped = not by_name and self.direction == "new_to_old"  # X is what is mapped
        names = ("old", "new") if by_name else ("X", "Y")
        rows = [_rows(side, name) for side, name in zip(given, names, strict=True)]
        if len(rows[0]) != len(rows[1]):
            raise DataError(
                f"{names[0]} has {len(rows[0])} rows, and {names[1]} has {len(rows[1])}.",
                expected="as many: row i of both is one item",
            )
        old_rows, new_rows = rows[::-1] if swapped else rows
        return _set_of(old_rows, "declared:old"), _set_of(new_rows, "declared:new")

    def restore(self, fitted: Fitted) -> None:
        """Restore the result of an earlier fit."""
        self._fitted, self.report = fitted, None

    def map(self, vectors: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return the images (N, T) of vectors (N, S): unit rows, or 0 for an image without a direction.

        One vector (S,) has one image (T,).

        Raises:
            SpaceMismatchError: The vectors have another dimension than the source.
            DataError: A vector has no direction itself, or the values are not floating-point numbers.
        """
        fitted = self.fitted
        vectors = _floating(vectors, "What is to be mapped")
        if vectors.shape == (fitted.source_space.dim,):
            one: NDArray[np.float32] = self.map(vectors[None])[0]
            return one
        _check_dimension(vectors.shape, fitted.source_space)
        images = np.empty((len(vectors), self.fitted.target_space.dim), np.float32)
        for start in range(0, len(vectors), BLOCK):
            found = self.images(_directions(vectors[start : start + BLOCK], start))
            squares = np.einsum("nd,nd->n", found, found)
            found[squares <= _NO_DIRECTION**2] = 0
            lengths = np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
            np.divide(found, lengths, out=images[start : start + BLOCK], casting="same_kind")
        return images

    def transform(self, vectors: NDArray[np.floating]) -> NDArray[np.float32]:
        """Same as `map`, under scikit-learn's name."""
        return self.map(vectors)

    def fit_transform(self, sources: NDArray[np.floating], targets: NDArray[np.floating]) -> NDArray[np.float32]:
        """Fit the map on two arrays, and return the images of the first.

        Args:
            sources: Vectors to map, (N, S).
            targets: Target vectors (N, T), row by row.

        Raises:
            ConfigError: As `fit`.
            DataError: As `fit`.
        """
        return self.fit(sources, targets).transform(sources)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return all options by name, including the direction, as in scikit-learn.

        Args:
            deep: Ignored: no option has nested options.
        """
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **options: Any) -> Self:
        """Change options, as in scikit-learn. A previous fit is discarded.

        Raises:
            ConfigError: An option is unknown, or a value is invalid; nothing is changed.
        """
        type(self)(**{**self.get_params(), **bound(type(self), options, f"adapter '{self.kind}'")})  # refuses values
        if any(getattr(self, name) != value for name, value in options.items()):
            self._fitted = self.report = None
        for name, value in options.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        chosen = [f"{name}={one!r}" for name, one in self.get_params().items() if one != usual[name].default]
        return f"{type(self).__name__}({', '.join(chosen)})"

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn pipelines require; only scikit-learn calls this, so it is installed."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=True, multi_output=True),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether it was fitted, for scikit-learn."""
        return self._fitted is not None

    def apply(self, embeddings: EmbeddingSet) -> EmbeddingSet:
        """Map embeddings of the source model to the target space; ids, labels, columns and role are kept.

        Returns:
            Points of the target space: unit rows, with the fingerprint `mapped_fingerprint`.

        Raises:
            DataError: The embeddings are of another model than the source, or an image has no direction.
            SpaceMismatchError: The embeddings have another dimension.
        """
        check_given(embeddings=embeddings)
        fitted = self.fitted
        _check_source(fitted, embeddings)
        images = self.map(embeddings.vectors)
        lost = np.flatnonzero(~images.any(axis=1))
        if len(lost):
            raise DataError(
                f"The adapter '{self.kind}' maps {len(lost)} of {len(images)} vectors to zero, which has no direction: "
                f"{shown(embeddings.ids[lost])}.",
                expected="an image with a direction for every vector",
                to_do="remove these items, or fit another adapter, such as procrustes.",
                intact="Nothing was changed.",
            )
        marked = embeddings if fitted.trained_on is None else fitted.trained_on.marked(embeddings)
        return marked.replace(
            vectors=images, space=fitted.target_space, fingerprint=self.mapped_fingerprint, form="points"
        )

    @property
    def fingerprint(self) -> str:
        """Identity of the fitted map, ``adapter:<sha256>``: kind, options, direction, both models, and all arrays."""
        fitted = self.fitted
        identity = [self.kind, self.options, self.direction, fitted.source, fitted.target,
                    fitted.source_space.record(), fitted.target_space.record()]  # fmt: skip
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
        for name in sorted(fitted.state):
            values = np.ascontiguousarray(fitted.state[name])
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(values.reshape(-1).view(np.uint8).data)
        return f"adapter:{digest.hexdigest()}"

    @property
    def mapped_fingerprint(self) -> str:
        """Fingerprint of mapped embeddings: ``adapter:<sha256>`` of the adapter's fingerprint and its source."""
        made_of = f"{self.fingerprint};{self.fitted.source}"
        return f"adapter:{hashlib.sha256(made_of.encode()).hexdigest()}"

    @property
    def declared(self) -> bool:
        """Whether the model of either side was declared by name, rather than identified by its weights."""
        return any(side.startswith("declared:") for side in (self.fitted.source, self.fitted.target))


class AffineAdapter(Adapter):
    """An adapter whose whole state is ``weights`` (S + 1, T), the offset in the last row."""

    def images(self, rows: Floats) -> Floats:
        """Return rows · W + b."""
        weights = self.fitted.state["weights"]
        images: Floats = rows @ weights[:-1]
        images += weights[-1]
        return images

    def as_steps(self) -> Steps:
        """Return the one affine step."""
        weights = self.fitted.state["weights"]
        return (Affine(weights[:-1], weights[-1]),)


def _kind(side: object) -> str:
    return "a set of embeddings" if isinstance(side, EmbeddingSet) else f"a {type(side).__name__}"


def _floating(values: object, what: str) -> NDArray[Any]:
    if isinstance(values, EmbeddingSet):
        raise DataError(f"{what} is a set of embeddings.", expected="an array", to_do="call apply(embeddings).")
    found = array_of(values, what)
    if not np.issubdtype(found.dtype, np.floating):
        raise DataError(
            f"{what} is {_kind(values)} of {found.dtype}, shape {found.shape}.",
            expected="embeddings: an array of floating numbers, (items, dimension)",
        )
    return found


def _rows(values: object, what: str) -> NDArray[np.float32]:
    found = _floating(values, what)
    if found.ndim != 2:
        raise DataError(
            f"{what} has the shape {found.shape}.",
            expected="(items, dimension), a row for each item",
            to_do="for one item, that is array[None]; but a fit needs many." if found.ndim == 1 else "",
        )
    return found.astype(np.float32, copy=False)


def _set_of(rows: NDArray[np.float32], fingerprint: str) -> EmbeddingSet:
    width = len(str(len(rows)))
    ids = StringArray.of(f"row {row:0{width}}" for row in range(len(rows)))
    return EmbeddingSet(ids=ids, vectors=rows, fingerprint=fingerprint, space=Hypersphere(rows.shape[1]))


def _plain(value: Any) -> Any:
    """Return the Python number of a NumPy one, which no JSON could hold."""
    return value.item() if isinstance(value, np.generic) else value


def _directions(vectors: NDArray[np.floating], first: int) -> Floats:
    rows = vectors.astype(np.float64)
    squares = np.einsum("nd,nd->n", rows, rows)
    with np.errstate(invalid="ignore"):
        rows /= np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
    doubtful = np.flatnonzero(~((squares > _TINY) & (squares < 1 / _TINY)))
    wrong = doubtful[~(np.einsum("nd,nd->n", rows[doubtful], rows[doubtful]) > 0.5)]  # NaN is not above it either
    if len(wrong):
        raise DataError(
            f"{len(wrong)} vectors have no direction, first: row {first + wrong[0]}, whose largest number is "
            f"{np.abs(vectors[wrong[0]]).max():g}.",
            expected="finite numbers that are not all zero, with squares that float64 can hold",
            to_do="remove these vectors, or embed their items again.",
        )
    return rows


def _check_source(fitted: Fitted, embeddings: EmbeddingSet) -> None:
    if embeddings.fingerprint != fitted.source:
        raise DataError(
            f"Embeddings with the fingerprint {embeddings.fingerprint}.",
            expected=f"those of the model that the adapter maps, {fitted.source}",
            to_do="embed the items with that model, or fit an adapter for the other one.",
            intact="Nothing was changed.",
        )
    _check_dimension(embeddings.vectors.shape, fitted.source_space)


def _check_dimension(shape: tuple[int, ...], space: Space) -> None:
    if len(shape) != 2 or shape[1] != space.dim:
        raise SpaceMismatchError(
            f"Vectors of shape {shape}.",
            expected=f"(items, {space.dim}): the adapter maps from the {space}",
            to_do="give the embeddings that the source model made, whole.",
        )
