"""Conversion of embeddings to and from tables of Arrow, pandas and Hugging Face datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings.conversion import Arrays, values_of
from limpet.embeddings.forms import Form, Role, TableOptions, space_of
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, SpaceMismatchError, reason, refuse, shown, unknown_name
from limpet.geometry import Space, space_from_record

if TYPE_CHECKING:
    import pyarrow as pa

_METADATA = "limpet"
"""Metadata key of a table for values that its columns do not hold."""
TAKEN = ("id", "vector", "label")


def to_arrow(values: Mapping[str, Any]) -> pa.Table:
    """Return an Arrow table of the N rows of a set, given by its values.

    Vectors are lists of fixed length, and classes with names a dictionary.

    Raises:
        DataError: A column of the set has the name of one of the table's own, or has no Arrow type.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {"id": values["ids"].arrow(), "vector": _lists(values["vectors"])}
    if values["labels"] is not None and values["class_names"] is not None:
        columns["label"] = pa.DictionaryArray.from_arrays(values["labels"], values["class_names"].arrow())
    elif values["labels"] is not None:
        columns["label"] = pa.array(values["labels"])
    for name, column in values["columns"].items():
        if name in TAKEN:
            raise DataError(
                f"The embeddings have a column '{name}', which is one of a table's own.",
                expected=f"another name than {', '.join(TAKEN)}",
                to_do="give it one: embeddings.replace(columns={...}).",
            )
        columns[name] = pa.array(column) if column.ndim == 1 else _lists(column)
    names = None if values["labels"] is not None or values["class_names"] is None else list(values["class_names"])
    told = {
        "fingerprint": values["fingerprint"], "space": values["space"].record(), "role": values["role"],
        "form": values["form"], "prefix": values["prefix"], "class_names": names,
    }  # fmt: skip
    return pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(told)})


def from_arrow(table: pa.Table, told: TableOptions) -> dict[str, Any]:
    """Return the values of a set from an Arrow table.

    Raises:
        ConfigError: Both a space and a similarity were given, or an unknown one.
        DataError: The value is not a table, has no vectors, or violates a constraint of `EmbeddingSet`; or neither the
            options nor the table name the model, or they name different models.
    """
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        raise DataError(
            f"A {type(table).__name__} was given for a table.",
            expected="a pyarrow.Table",
            to_do="EmbeddingSet.from_pandas takes data frames, from_dataset those of Hugging Face's datasets.",
        )
    kept = (table.schema.metadata or {}).get(_METADATA.encode())
    return _values(table, told, None if kept is None else kept.decode())


def to_pandas(values: Mapping[str, Any]) -> Any:
    """Return a pandas.DataFrame of N rows; the vectors are one array per row.

    Raises:
        DataError: See `to_arrow`.
        ModuleNotFoundError: pandas is not installed.
    """
    import pandas as pd

    table = to_arrow(values)
    frame = table.drop_columns(["vector"]).replace_schema_metadata(None).to_pandas()
    vectors = pd.Series(list(values["vectors"]), index=frame.index, dtype=object)
    frame.insert(1, "vector", vectors)
    frame.attrs[_METADATA] = table.schema.metadata[_METADATA.encode()].decode()
    return frame


def from_pandas(frame: Any, told: TableOptions) -> dict[str, Any]:
    """Return the values of a set from a data frame; its index is ignored.

    Raises:
        ConfigError: See `from_arrow`.
        DataError: See `from_arrow`.
    """
    import pandas as pd
    import pyarrow as pa

    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"A {type(frame).__name__} was given for a data frame.", expected="a pandas.DataFrame")
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"The data frame holds what no column of a table can: {reason(error)}.",
            expected="columns of one type each, and vectors as arrays of numbers",
        ) from error
    return _values(table, told, frame.attrs.get(_METADATA))


def to_dataset(values: Mapping[str, Any]) -> Any:
    """Return a `datasets.Dataset` of N rows, whose columns are those of `to_arrow`; it drops the metadata of tables.

    Raises:
        DataError: See `to_arrow`.
        ModuleNotFoundError: datasets is not installed.
    """
    import datasets

    return datasets.Dataset(datasets.table.InMemoryTable(to_arrow(values)))


def from_dataset(dataset: Any, told: TableOptions) -> dict[str, Any]:
    """Return the values of a set from a `datasets.Dataset`; ClassLabel names become class names.

    Raises:
        ConfigError: See `from_arrow`.
        DataError: See `from_arrow`; or several splits were given, or items without a class.
    """
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        splits = f", of {', '.join(map(str, dataset))}" if isinstance(dataset, datasets.DatasetDict) else ""
        raise DataError(
            f"A {type(dataset).__name__} was given for a data set{splits}.",
            expected="a datasets.Dataset",
            to_do="choose a split, as in dataset['train']; one that is streamed has to be loaded.",
        )
    table = dataset.with_format("arrow")[:]
    feature = dataset.features.get(told.get("label_column", "label"))
    names = list(feature.names) if isinstance(feature, datasets.ClassLabel) else None
    return _values(table, told, None, names)


def _values(table: pa.Table, told: TableOptions, kept: str | None, names: list[str] | None = None) -> dict[str, Any]:
    import pyarrow as pa

    unknown = sorted(told.keys() - TableOptions.__annotations__.keys())
    if unknown:
        raise unknown_name("option of a table", unknown[0], TableOptions.__annotations__)
    vector, id_ = told.get("vector_column", "vector"), told.get("id_column", "id")
    label = told.get("label_column", "label")
    own = _kept(kept)
    fingerprint = _fingerprint(told, own)
    refuse(
        vector not in table.column_names,
        f"The table has the columns {', '.join(table.column_names) or 'none'}.",
        f"one called '{vector}' that holds the vectors; name another by vector_column=...",
    )
    ids = _texts_or_numbers(table, id_)
    arrays: Arrays = {"vectors": _vectors(table.column(vector), vector, ids, _dim(own))}
    if ids is not None:
        arrays["ids"] = ids
    if label in table.column_names:
        column = table.column(label)
        if pa.types.is_dictionary(column.type):
            _refuse_null(label, column)
            whole = column.unify_dictionaries().combine_chunks()
            whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
            arrays["labels"] = whole.indices.cast(pa.int64()).to_numpy()
            arrays["class_names"] = StringArray.from_arrow(whole.dictionary.cast(pa.large_string()))
        else:
            labels = _texts_or_numbers(table, label)
            if labels is not None:
                arrays["labels"] = labels
    if names is not None or own.get("class_names") is not None:
        arrays["class_names"] = StringArray.of(names if names is not None else own["class_names"])
    used = {id_, vector, label}
    for name in table.column_names:
        values = None if name in used else _numbers(table.column(name))
        if values is not None:
            arrays[name] = values
    values_of_set = values_of("the table", arrays, fingerprint, _where(arrays, told, own), _role(told, own))
    return {**values_of_set, "prefix": str(own.get("prefix", ""))}


def _kept(kept: str | None) -> Mapping[str, Any]:
    if kept is None:
        return {}
    try:
        own = json.loads(kept)
    except (TypeError, ValueError) as error:
        raise DataError(f"The metadata '{_METADATA}' of the table cannot be read: {reason(error)}.",
                        expected="what EmbeddingSet.to_arrow wrote, or none") from error  # fmt: skip
    if not isinstance(own, dict) or own.keys() != {"fingerprint", "space", "role", "form", "prefix", "class_names"}:
        raise DataError(f"The metadata '{_METADATA}' of the table is not what is written there.",
                        expected="what EmbeddingSet.to_arrow wrote, or none")  # fmt: skip
    return own


def _fingerprint(told: TableOptions, own: Mapping[str, Any]) -> str:
    given = told.get("fingerprint")
    if given is None and not own:
        raise DataError(
            "The table does not say which model made its vectors.",
            expected="fingerprint='declared:NAME', or a table that EmbeddingSet.to_arrow or to_pandas made",
            to_do="name the model: every set of its vectors has to be given the same name.",
        )
    if own and given not in (None, own["fingerprint"]):
        raise DataError(
            f"The table says that {own['fingerprint']} made its vectors, and fingerprint='{given}' was given.",
            to_do="leave fingerprint out.",
        )
    return str(own["fingerprint"] if own else given)


def _dim(own: Mapping[str, Any]) -> int:
    return space_from_record(own["space"]).dim if own else 0


def _where(arrays: Arrays, told: TableOptions, own: Mapping[str, Any]) -> tuple[Space, Form]:
    if not own:
        return space_of(np.shape(arrays["vectors"])[1], told.get("space"), told.get("similarity"))
    space = space_from_record(own["space"])
    if told.get("similarity") is not None or told.get("space") not in (None, space):
        raise SpaceMismatchError(
            f"The table's vectors are of the {space}; {told.get('space') or told.get('similarity')} was given.",
            to_do="leave space and similarity out.",
        )
    form: Form = own["form"]
    refuse(form not in get_args(Form), f"The table says the form '{form}'.", f"one of {', '.join(get_args(Form))}")
    return space, form


def _role(told: TableOptions, own: Mapping[str, Any]) -> Role:
    role: Role = told.get("role") or own.get("role") or "both"
    return role


def _lists(rows: NDArray[Any]) -> pa.FixedSizeListArray:
    import pyarrow as pa

    if rows.ndim != 2:
        raise DataError(f"A column of shape {rows.shape}.", expected="one value, or one list of them, per item")
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), rows.shape[1])


def _vectors(
    column: pa.ChunkedArray, name: str, ids: NDArray[Any] | StringArray | None, dim: int
) -> NDArray[np.float32]:
    """Return one row per item, float32 (N, D); D is ``dim`` if there are no items."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind) and not len(column):  # pandas infers no types without rows
        return np.empty((0, dim), np.float32)
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not listed or not pa.types.is_floating(kind.value_type):
        raise DataError(
            f"The column '{name}' holds {kind}.",
            expected="a list of floating-point numbers per item, all of one length",
        )
    _refuse_null(name, column)
    lengths = pc.list_value_length(column).to_numpy()
    odd = np.flatnonzero(lengths != (lengths[0] if len(lengths) else 0))
    if len(odd):
        names = [str(row if ids is None else ids[int(row)]) for row in odd[:3]]
        raise DataError(
            f"{len(odd)} of {len(lengths)} vectors have another length than the first, {lengths[0]}: "
            f"{shown(names, len(odd))}.",
            expected="vectors of one dimension",
        )
    values = [chunk.flatten() for chunk in column.chunks]
    _refuse_null(name, pa.chunked_array(values, kind.value_type))
    flat = np.concatenate([np.empty(0, np.float32), *(value.to_numpy(zero_copy_only=False) for value in values)])
    dim = kind.list_size if pa.types.is_fixed_size_list(kind) else int(lengths[0]) if len(lengths) else 0
    return flat.astype(np.float32).reshape(len(lengths), dim)


def _texts_or_numbers(table: pa.Table, name: str) -> NDArray[Any] | StringArray | None:
    """Return a column of strings or integers; None if no column has this name."""
    import pyarrow as pa

    if name not in table.column_names:
        return None
    column = table.column(name)
    _refuse_null(name, column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return StringArray.from_arrow(column.cast(pa.large_string()))
    if not pa.types.is_integer(kind):
        raise DataError(f"The column '{name}' holds {kind}.", expected="texts or whole numbers")
    numbers: NDArray[Any] = column.to_numpy()
    return numbers


def _numbers(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Return a further column in the set's format: numbers, or lists of numbers of one length; None for other types."""
    import pyarrow as pa

    kind = column.type
    if column.null_count:
        return None
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        flat = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        return np.concatenate(flat).reshape(len(column), kind.list_size) if flat else None
    values: NDArray[Any] | None = column.to_numpy() if _is_number(kind) else None
    return values


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _refuse_null(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        raise DataError(
            f"{column.null_count} of {len(column)} values of the column '{name}' are missing (null).",
            to_do="fill them in, or remove these items.",
        )
