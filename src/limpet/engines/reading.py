"""Read sources: embeddings, texts to embed, and items by id for a backfill."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from limpet.embeddings.conversion import Arrays
from limpet.embeddings.files import IMPORTED, model_folder
from limpet.embeddings.forms import space_named
from limpet.embeddings.imports import check_vectors, imported
from limpet.embeddings.room import gather, rows_at_once
from limpet.embeddings.sides import QueriesAndGallery
from limpet.embeddings.table_pass import Pass
from limpet.engines.address import Address, Roles
from limpet.engines.source import Source, check_readable, metadata_kind, needed, roles_of, texts_of_ids
from limpet.engines.sources import address_of, open_source
from limpet.errors import ConfigError, DataError, refuse, without_secrets
from limpet.geometry import Space, space_from_record

if TYPE_CHECKING:
    from limpet.data.decoding import Fit
    from limpet.data.text_files import OnEmpty
    from limpet.data.text_set import TextSet

_DIM = 1024  # of which batches are not too large, before the first vector tells
_TEXTS_AT_ONCE = 8192


def load_embeddings(
    place: str | Path,
    *,
    model: str | None = None,
    fingerprint: str | None = None,
    similarity: str | None = None,
    parts: Sequence[str] = ("embeddings",),
    named: bool = False,
    verify: bool = False,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Read embeddings from a file, a folder, a table or a collection.

    Args:
        place: A file of limpet; an ``.npz``, ``.npy`` or ``.parquet`` file; a folder of Parquet files, or one that
            `limpet embed` wrote; or the URL of a table or collection.
        model: Name of the model, for vectors that do not record it: ``declared:MODEL``. Default: their path.
        fingerprint: Fingerprint of that model, in place of its name.
        similarity: "cosine", "inner-product" or "euclidean", for files that do not record it. Default: that of the
            source, or "cosine".
        parts: Files of a folder of `limpet embed`, without ending, such as "gallery"; the first that exists is read.
        named: Refuse vectors whose model is not named.
        verify: Compare a file of limpet with its digest, which reads all of it.
        unusable: List that receives the ids of items whose vector is zero, NaN or infinite; these items are left out.
            Without it, such vectors are refused.

    Raises:
        ConfigError: The place does not exist, the URL is wrong, the model is not named, or a model or similarity was
            given for a file that records its own.
        DataError: The file is damaged, or rows cannot be used.
        StoreError: A source cannot be reached.
    """
    address = _address(place)
    made_by = fingerprint if model is None else f"declared:{model}"
    if address is not None:
        source = open_source(address)
        if made_by is None and address.model is None and not (source.record or {}).get("fingerprint"):
            made_by = _by_place(source.name, address.called, named)
        return embeddings_of(source, fingerprint=made_by, similarity=similarity, unusable=unusable)
    path = model_folder(Path(place))
    if not path.exists():
        name, mark, options = str(place).partition("?")
        raise ConfigError(
            f"There is no '{path}'.",
            expected="a folder or file of embeddings",
            to_do=f"write it as a URL, 'parquet:{name}?{options}'."
            if mark and name.endswith(".parquet")
            else "check the path; `limpet embed` writes embeddings of texts and images.",
        )
    path = _part_of(path, parts) if path.is_dir() else path
    if path.suffix in IMPORTED or path.is_dir():
        importer = storage.from_npz if path.suffix in (".npz", ".npy") else storage.from_parquet
        made_by = made_by or _by_place(f"'{path}'", str(place), named)
        return importer(path, fingerprint=made_by, similarity=similarity, unusable=unusable)
    if similarity is not None:
        raise ConfigError(
            f"'{path}' says how its vectors are compared, and the similarity {similarity} was given.",
            expected="a similarity only for .npz, .npy and .parquet files, which say nothing of their space",
            to_do="leave --similarity out, or similarity= in Python.",
        )
    found = storage.load(path, verify=verify)
    if made_by not in (None, found.fingerprint):
        raise ConfigError(
            f"'{path}' says that {found.fingerprint} made it, not {made_by}.",
            expected="a name only for .npz, .npy and .parquet files, which say nothing of their model",
            to_do="leave the name out.",
        )
    return found


def load_sides(
    queries: str | Path,
    gallery: str | Path | None = None,
    *,
    model: str | None = None,
    similarity: str | None = None,
    verify: bool = False,
    unusable: list[str] | None = None,
) -> QueriesAndGallery:
    """Read queries and gallery of one model; see `load_embeddings`.

    Args:
        queries: Place of the queries. Without a gallery: a folder with query.safetensors and gallery.safetensors, or
            one set whose items search each other.
        gallery: Place of the gallery; the same place as the queries makes items search each other.
        model: Name of the model, for vectors that do not record it.
        similarity: How vectors are compared, for files that do not record it.
        verify: Compare files of limpet with their digests.
        unusable: List that receives the ids of items whose vector cannot be used; these items are left out.
    """

    def read(place: str | Path, name: str | None) -> EmbeddingSet:
        return load_embeddings(place, model=name, similarity=similarity, verify=verify, unusable=unusable)

    if gallery is None:
        folder = model_folder(Path(queries)) if _address(queries) is None else None
        if folder is not None and (folder / "query.safetensors").exists():
            return QueriesAndGallery(*(read(folder / f"{part}.safetensors", model) for part in ("query", "gallery")))
        found = read(queries, model)
        return QueriesAndGallery(found, found)
    bare = [_bare(place) for place in (queries, gallery)]
    name = model or (without_secrets(str(gallery)) if any(bare) else None)  # one model made both
    found = read(gallery, name if bare[1] else None)
    return QueriesAndGallery(found if queries == gallery else read(queries, name if bare[0] else None), found)


def _bare(place: str | Path) -> bool:
    path = Path(place) if _address(place) else model_folder(Path(place))
    return path.suffix != ".safetensors" and not any(path.glob("*.safetensors"))


def _address(place: str | Path) -> Address | None:
    if not isinstance(place, str | Path):
        raise ConfigError(
            f"A {type(place).__name__} was given to read embeddings from.",
            to_do="limpet.EmbeddingSet(vectors, model=…) makes a set of an array.",
        )
    return address_of(place) if isinstance(place, str) else None


def _part_of(folder: Path, parts: Sequence[str]) -> Path:
    """Return the first of these parts that a folder of embeddings has; itself, where it holds Parquet files alone."""
    there = next((folder / f"{part}.safetensors" for part in parts if (folder / f"{part}.safetensors").exists()), None)
    if there is not None:
        return there
    names = sorted(file.name for file in folder.iterdir())
    if any(name.endswith(".parquet") for name in names) and not any(name.endswith(".safetensors") for name in names):
        return folder
    other = next((folder / name for name in names if Path(name).suffix in IMPORTED), None)
    raise ConfigError(
        f"The folder '{folder}' holds {', '.join(names[:8]) or 'nothing'}.",
        expected=" or ".join(f"{part}.safetensors" for part in parts),
        to_do="`limpet embed` writes them" + ("." if other is None else f"; or name one file, such as '{other}'."),
    )


def _by_place(what: str, place: str, named: bool) -> str:
    if named:
        raise unnamed(what)
    return f"declared:{place}"


def unnamed(what: str) -> ConfigError:
    """Build the error for vectors whose model is not named."""
    return ConfigError(
        f"{what} does not say which model made its vectors.",
        expected="a name, always the same one for the same model",
        to_do="add --name with what you call it, or model=NAME to a URL; in a gallery it may be a generation, such as "
        "g1, of those that `limpet gallery status` lists.",
    )


def embeddings_of(
    source: Source,
    *,
    fingerprint: str | None = None,
    similarity: str | None = None,
    role: Role = "both",
    most_memory: int | None = None,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Read the vectors of a source with their ids, labels and further numeric columns, in one pass.

    Args:
        source: Source of the vectors.
        fingerprint: Fingerprint of the model that made the vectors; by default, the one that the address or the source
            states.
        similarity: Similarity by which they are compared; by default, the one that the address, the source or its
            index states, or else the cosine.
        role: Role of the items for the model.
        most_memory: Maximum bytes of vectors to keep in memory; half of the available memory by default. Larger sets
            are mapped from a temporary file.
        unusable: Receives the ids of items whose vector is zero, NaN or infinite; these items are skipped. By default,
            such vectors are refused.

    Raises:
        ConfigError: A column of ids or vectors is missing, or the model that made the vectors is unknown.
        DataError: Rows cannot be used; the message counts them.
        StoreError: The source cannot be reached.
    """
    roles, made_by = roles_of(source), _made_by(source, fingerprint)
    id_column, vector_column = needed(source, roles, "id", "vector")
    called = {"vector": vector_column, "id": id_column} | ({} if roles.label is None else {"label": roles.label})
    check_readable(source, called.values())
    called |= {
        name: name
        for name, type_ in source.schema.items()
        if name not in (*called, *called.values()) and metadata_kind(type_) in ("integer", "number")
    }
    numbers = source.schema[vector_column].value_type
    kind = np.dtype(numbers.to_pandas_dtype())
    skipping = source.address.missing == "skip"
    run = Pass(
        source.name,
        list(called),
        source.batches(list(called.values()), rows_at_once(4 * _DIM)),
        without=None if skipping else "give these rows a vector, or leave them out: missing=skip in the URL.",
    )
    blocks = run.blocks()
    first = next(blocks, None)
    if first is None:
        raise DataError(f"{source.name} has no rows.", expected="at least one item", to_do="look at its conditions.")
    check_vectors(source.name, first.shape, kind)
    vectors = gather(chain([first], blocks), source.rows, run.dim, about=True, most_memory=most_memory)
    arrays: Arrays = {"vectors": vectors, **run.values()}
    return imported(source.name, arrays, made_by, where_of(source, run.dim, similarity), role, unusable)


def _made_by(source: Source, fingerprint: str | None) -> str:
    said, model = (source.record or {}).get("fingerprint"), source.address.model
    given = fingerprint if model is None else f"declared:{model}"
    if said is not None and given not in (None, said):
        raise ConfigError(
            f"{source.name} says that {said} made its vectors, not {given}.",
            to_do="leave the name out.",
        )
    if said is None and given is None:
        raise unnamed(source.name)
    return str(said or given)


def where_of(source: Source, dim: int, similarity: str | None = None) -> tuple[Space, Form]:
    """Return the space and the form of the vectors of a source.

    Args:
        source: Source of the vectors.
        dim: Dimension of the vectors.
        similarity: Similarity of the vectors. Default: that of the address, the source or its index, or else the
            cosine.

    Raises:
        ConfigError: The source records the space itself, and a similarity is given.
    """
    space = (source.record or {}).get("space")
    told = similarity or source.address.similarity
    if space is not None:
        refuse(told is not None, f"{source.name} says the space of its vectors, and the similarity '{told}' was given.",
               "one of the two")  # fmt: skip
        return space_from_record(space), "points"
    if told is not None:
        return space_named(told, dim)
    declared, _ = space_named(source.similarity(str(roles_of(source).vector)) or "cosine", dim)
    return declared, "points"


def texts_of(source: Source, *, on_empty: OnEmpty = "fail") -> TextSet:
    """Read the texts of a source with their ids and, if present, their labels.

    Args:
        source: Source of the texts.
        on_empty: What to do with a missing or blank text: "fail", or "skip", which leaves the item out and keeps its id
            in `TextSet.without_text`.

    Raises:
        ConfigError: The source has no column of ids or texts.
        DataError: Labels are missing, texts are missing or blank, or either has another type.
        StoreError: The source cannot be reached.
    """
    from limpet.data.text_set import TextSet

    skip, columns = on_empty == "skip", _text_columns(source, roles_of(source))
    found = labelled_column(source, columns, "text", missing_as="" if skip else None)
    return TextSet.skipping_blank(*found) if skip else TextSet(*found)


def labelled_column(
    source: Source, columns: list[str], what: str, *, missing_as: str | None = None
) -> tuple[StringArray, NDArray[np.int64] | None, tuple[str, ...], StringArray]:
    """Read a whole column of texts, with ids and, if present, labels.

    Args:
        source: Source of the column.
        columns: Columns of the ids and of the texts.
        what: Name of one text in messages.
        missing_as: Text of an item that has none (NULL); None to refuse it.

    Returns:
        Texts (N), the row of each one's class (N,) or None, the names of the classes, and ids (N).

    Raises:
        DataError: A value is missing, or has another type.
        StoreError: The source cannot be reached.
    """
    roles = roles_of(source)
    names = columns + ([] if roles.label is None else [roles.label])
    check_readable(source, names)
    parts: list[list[pa.Array]] = [[], [], []]
    for batch in source.batches(names, _TEXTS_AT_ONCE):
        for place, column in enumerate(batch.columns):
            if place == 1 and missing_as is not None:
                column = column.cast(pa.large_string()).fill_null(missing_as)
            if column.null_count:
                raise DataError(
                    f"{column.null_count} values of '{names[place]}' in {source.name} are missing (NULL).",
                    to_do="fill them in, or leave these rows out by a condition, which no missing value fulfils: "
                    f"where={names[place]}!={0 if metadata_kind(column.type) in ('integer', 'number') else ''}",
                )
            parts[place].append(texts_of_ids(column) if place == 0 else column.cast(pa.large_string()))
    if not sum(map(len, parts[0])):
        raise DataError(f"{source.name} has no rows.", expected=f"at least one {what}", to_do="look at its conditions.")
    ids, texts, labels = (StringArray.from_arrow(pa.chunked_array(part, pa.large_string())) for part in parts)
    numbers, classes = labels.classes() if roles.label is not None else (None, ())
    return texts, numbers, tuple(classes), ids


class SourceTexts:
    """Texts of a source by id, for a backfill; a row without a text has an empty one.

    Raises:
        ConfigError: There is no column of ids or texts.
        DataError: They are of another type.
    """

    def __init__(self, source: Source) -> None:
        self.source, self._columns = source, _text_columns(source, roles_of(source))

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the known ids and their texts."""
        return _found(self.source, ids, self._columns, missing_as="")


class SourceImages:
    """Images by id, from the files that a column of a source names.

    Args:
        shape: Shape of the returned images (channels, height, width).
        fit: "crop" or "squash", for images of another size.

    Raises:
        ConfigError: There is no column of ids or images.
    """

    def __init__(self, source: Source, shape: tuple[int, int, int], fit: Fit = "crop") -> None:
        self.source, self.shape, self.fit = source, shape, fit
        self._columns = needed(source, roles_of(source), "id", "image")

    def read(self, ids: Sequence[str]) -> tuple[list[str], NDArray[np.uint8]]:
        """Return the known ids and their pixels, uint8 (n, channels, height, width).

        Raises:
            DataError: A file is missing or is not an image.
        """
        from limpet.data.images import FileImages

        known, paths = _found(self.source, ids, self._columns)
        return known, FileImages(list(map(Path, paths)), self.shape, fit=self.fit).read(np.arange(len(paths)))


class SourceFacts:
    """Lookup of the column values of an item by its id, for display.

    Raises:
        ConfigError: The source has no column of ids.
    """

    def __init__(self, source: Source) -> None:
        [self._key] = needed(source, roles_of(source), "id")
        self.source = source
        self._columns = [name for name, type_ in source.schema.items() if metadata_kind(type_) is not None]

    def __call__(self, identifier: str) -> dict[str, object]:
        """Return texts, numbers and truth values of an item by column; nothing of an unknown one."""
        for batch in self.source.fetch([identifier], list(dict.fromkeys([self._key, *self._columns]))):
            for row in batch.to_pylist():
                return {name: value for name, value in row.items() if name != self._key}
        return {}


def _found(
    source: Source, ids: Sequence[str], columns: Sequence[str], *, missing_as: str | None = None
) -> tuple[list[str], list[str]]:
    found: dict[str, str] = {}
    for batch in source.fetch(ids, columns):
        pairs = zip(texts_of_ids(batch.column(0)).to_pylist(), batch.column(1).to_pylist(), strict=True)
        texts = ((identifier, missing_as if text is None else text) for identifier, text in pairs)
        found |= {identifier: text for identifier, text in texts if text is not None}
    known = [identifier for identifier in ids if identifier in found]
    return known, [found[identifier] for identifier in known]


def _text_columns(source: Source, roles: Roles) -> list[str]:
    names = needed(source, roles, "id", "text")
    if metadata_kind(source.schema[names[1]]) != "text":
        raise DataError(
            f"The column '{names[1]}' of {source.name} is {source.type_name(names[1])}.",
            expected="texts",
            to_do="name the column of texts: text=NAME in the URL.",
        )
    return names
