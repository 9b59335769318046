"""Protocol of sources of items: rows with named columns, never loaded all at once."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypedDict, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from limpet.embeddings.files import USUAL_NAMES
from limpet.engines.address import Address, Roles, Sample
from limpet.engines.filters import Conditions
from limpet.engines.where import read_conditions
from limpet.errors import ConfigError, DataError, unknown_name
from limpet.geometry import SpaceRecord

_USUAL = {
    **USUAL_NAMES,
    "text": ("text", "document", "content", "body"),
    "image": ("image", "image_path", "path"),
}
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


class VectorsRecord(TypedDict, total=False):
    """A source's declaration about its vectors, if it has one.

    Args:
        fingerprint: Fingerprint of the model that made them.
        space: Space of the vectors.
        generation: Name of their generation in the gallery that they come from.
    """

    fingerprint: str
    space: SpaceRecord
    generation: str


class Source(Protocol):
    """Rows with named columns, selected by its address; made from an `Address`.

    A class of this kind takes only the address, reads the schema when it is created, holds nothing open between calls,
    and converts errors of its service: `ConfigError` for errors in the URL, `StoreError` for a service that is
    unreachable or refuses, `DataError` for unusable rows. No message contains a password.
    """

    options: ClassVar[Collection[str]]
    """Options of the URL that only this kind has."""

    @property
    def address(self) -> Address:
        """Address of the source."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def schema(self) -> Mapping[str, pa.DataType]:
        """Arrow types of the columns by name; `pyarrow.null()` for an unsupported type."""

    @property
    def key(self) -> str | None:
        """The column that identifies its rows, if the source declares one, such as a primary key."""

    @property
    def rows(self) -> int:
        """Number of rows of a read, exact or approximate; used for progress, not for correctness."""

    @property
    def record(self) -> VectorsRecord | None:
        """Declaration about its vectors; None if it has none."""

    def type_name(self, column: str) -> str:
        """Return the service's name for the type of a column, such as "sparsevec"; for messages."""

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of a vector column in its index, or its schema: a key of `SIMILARITIES`, or None.

        Raises:
            DataError: No space has this similarity, such as the L1 distance.
        """

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns in this order and the schema's types.

        The rows match the conditions of the address (`filter_of`) and belong to its sample (`chosen`). They are all
        from one snapshot if the service supports snapshots. Missing values are null.
        """

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the existing rows of these ids, in any order; several threads may call it at once.

        Conditions and sample of the address are ignored.
        """


@runtime_checkable
class SearchedSource(Source, Protocol):
    """A source whose own index can be searched, as an application does."""

    def nearest(
        self, vector: str, queries: Sequence[NDArray[np.float32]], k: int, *, exact: bool
    ) -> list[list[str]] | None:
        """Return the ids of the nearest rows that meet the conditions of the address; None without an index.

        Args:
            vector: Name of the vector column.
            queries: Query vectors of the same dimension.
            k: Rows per query.
            exact: Compare all rows; otherwise search with the server's defaults.
        """


def roles_of(source: Source) -> Roles:
    """Return the roles of a source's columns: those of its address, else by common names.

    By default, ids are the key of the source, and vectors the only column of lists of numbers.

    Raises:
        ConfigError: The address names a missing column.
    """
    asked, found = vars(source.address.roles), {}
    vectors = [name for name, type_ in source.schema.items() if is_vector(type_) and not is_whole(type_)]
    others = {"id": source.key, "vector": vectors[0] if len(vectors) == 1 else None}
    for role, name in asked.items():
        if name is not None and name not in source.schema:
            raise unknown_name(f"column of {source.name}", name, source.schema)
        usual = next((one for one in _USUAL[role] if one in source.schema), None)
        found[role] = name or usual or others.get(role)
    return Roles(**found)


def needed(source: Source, roles: Roles, *wanted: str) -> list[str]:
    """Return the columns of required roles, such as "id" and "vector".

    Raises:
        ConfigError: A column is missing.
        DataError: A column has an unsupported type, or vectors are no lists of numbers.
    """
    names = []
    for role in wanted:
        name = getattr(roles, role)
        if name is None:
            raise ConfigError(
                f"No column of {source.name} is known to hold the {role}s.",
                expected=f"one called {' or '.join(_USUAL[role])}, or {role}=NAME in the URL",
                to_do=f"its columns are {', '.join(source.schema) or 'none'}.",
            )
        check_readable(source, [name])
        if role == "vector" and not is_vector(source.schema[name]):
            raise DataError(
                f"The column '{name}' of {source.name} is {source.type_name(name)}.",
                expected="a list of numbers in every row",
                to_do="name the column of vectors: vector=NAME in the URL.",
            )
        names.append(name)
    return names


def check_readable(source: Source, names: Iterable[str]) -> None:
    """Refuse columns that are missing, or of an unsupported type.

    Raises:
        ConfigError: A column is missing.
        DataError: A column has an unsupported type.
    """
    for name in names:
        if name not in source.schema:
            raise unknown_name(f"column of {source.name}", name, source.schema)
        if source.schema[name] == pa.null():
            raise DataError(
                f"The column '{name}' of {source.name} is {source.type_name(name)}, a type that cannot be read.",
                expected="texts, numbers, truth values, or a list of numbers",
                to_do="name another column, or make a view that converts it.",
            )


def declared_similarity(source: Source, vector: str, found: set[str], known: Mapping[str, str]) -> str | None:
    """Return the similarity of a column's indexes; None without an index, or if they differ.

    Args:
        source: Source of the column.
        vector: Name of the column.
        found: Similarities of its indexes, in terms of the source.
        known: The supported similarities, by these terms.

    Raises:
        DataError: An index has an unsupported similarity.
    """
    unknown = sorted(found - known.keys())
    if unknown:
        raise DataError(
            f"An index of '{vector}' in {source.name} compares by {unknown[0]}.",
            expected=f"one of {', '.join(known)}",
            to_do="say in the URL how the vectors are to be compared, such as similarity=cosine.",
        )
    ways = {known[one] for one in found}
    return ways.pop() if len(ways) == 1 else None


def is_vector(type_: pa.DataType) -> bool:
    """Say whether a column of an Arrow type holds lists of numbers."""
    listed = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return bool(listed and (pa.types.is_floating(type_.value_type) or pa.types.is_integer(type_.value_type)))


def is_whole(type_: pa.DataType) -> bool:
    """Say whether the numbers of lists are integers."""
    return bool(pa.types.is_integer(type_.value_type))


def metadata_kind(type_: pa.DataType) -> str | None:
    """Return the type of a metadata column for an Arrow type; None if it is not supported.

    >>> metadata_kind(pa.int16()), metadata_kind(pa.dictionary(pa.int8(), pa.string())), metadata_kind(pa.date32())
    ('integer', 'text', None)
    """
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "text"
    if pa.types.is_boolean(type_):
        return "truth"
    return "integer" if pa.types.is_integer(type_) else "number" if pa.types.is_floating(type_) else None


def filter_of(source: Source) -> Conditions:
    """Return the conditions of a source's address, checked against its columns.

    Raises:
        ConfigError: A condition cannot be parsed, names no comparable column, or has a value of another type.
    """
    kinds = {name: metadata_kind(type_) for name, type_ in source.schema.items()}
    return read_conditions(source.address.where, {name: kind for name, kind in kinds.items() if kind is not None})


def kept(batch: pa.RecordBatch, where: Conditions) -> pa.RecordBatch:
    """Return the rows of a batch for which all conditions hold, for sources that cannot filter by themselves."""
    compare = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater,
               ">=": pc.greater_equal}  # fmt: skip
    for condition in where:
        column = batch.column(batch.schema.get_field_index(condition.column))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        batch = batch.filter(compare[condition.comparison](column, condition.value))  # null: the row is left out
    return batch


def texts_of_ids(ids: pa.Array) -> pa.Array:
    """Return ids as texts (large_string), integers in decimal notation.

    Raises:
        DataError: Some are missing, or they are no texts or integers.
    """
    if ids.null_count:
        raise DataError(f"{ids.null_count} ids are missing.", expected="an id in every row")
    if metadata_kind(ids.type) not in ("text", "integer"):
        raise DataError(f"Ids are {ids.type}.", expected="texts or whole numbers")
    return ids.cast(pa.large_string())


def whole_ids(ids: Iterable[str]) -> list[int]:
    """Return the ids that are 64-bit integers in the notation of `texts_of_ids`.

    >>> whole_ids(["17", "-3", "--5", "007", "1_0", "\N{ARABIC-INDIC DIGIT FOUR}", str(2**63)])
    [17, -3]
    """
    found = (int(one) for one in ids if _WHOLE.fullmatch(one))
    return [one for one in found if -(2**63) <= one < 2**63]


def sampled(
    source: Source, columns: Sequence[str], read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a source reads of some columns; only those of its sample, by their ids, if it has one."""
    if source.address.sample is None:
        yield from read(columns)
        return
    [key] = needed(source, roles_of(source), "id")
    ids = (texts_of_ids(batch.column(0)) for batch in read([key]))
    yield from source.fetch(chosen(source.address.sample, ids), columns)


def place_of(sample: Sample, identifier: str) -> str:
    """Return the random rank of an id: the `Sample.rows` ids with the lowest ranks are the sample.

    It is the MD5 of ``SEED:ID`` in hexadecimal, which databases can compute themselves.

    >>> place_of(Sample(1), "17")[:8]
    '2b7954e6'
    """
    return hashlib.md5(f"{sample.seed}:{identifier}".encode(), usedforsecurity=False).hexdigest()


def chosen(sample: Sample, parts: Iterable[pa.Array]) -> list[str]:
    """Return the ids of a sample, by their ranks among all ids; memory is proportional to the sample."""
    placed = ((place_of(sample, one), one) for part in parts for one in part.to_pylist())
    return [identifier for _, identifier in heapq.nsmallest(sample.rows, placed)]
