"""Shared functions of the readers: required files of an official layout, and its lists and tables."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from limpet.data import FileImages, Fit, ImageSet, ImageSize, keep_decoded, readable_sides
from limpet.embeddings import StringArray
from limpet.errors import DataError, shown
from limpet.support import read_text


@dataclass(frozen=True)
class Needed:
    """One file or folder of an official layout.

    Args:
        path: Path relative to the folder of the data set; a trailing slash marks a folder.
        what: Short description of the content.
        other: Alternative paths in other releases of the data set; the first one that exists is used.
    """

    path: str
    what: str
    other: tuple[str, ...] = ()

    def find(self, root: Path) -> Path | None:
        """Return its path below ``root``; None if none of its paths exists."""
        for place in (self.path, *self.other):
            found = root / place
            if found.is_dir() if place.endswith("/") else found.is_file():
                return found
        return None

    def __str__(self) -> str:
        return f"{' or '.join((self.path, *self.other))} ({self.what})"


def require(root: Path, needed: Sequence[Needed], dataset: str, obtained: str) -> list[Path]:
    """Return the paths of all required files and folders, in their order.

    Args:
        root: Folder of the data set.
        needed: Required files and folders.
        dataset: Name of the data set, for messages.
        obtained: Source of the data set, such as "the authors' project page, after a request"; for messages.

    Raises:
        DataError: A file or folder is missing; the message names the first one and the whole layout.

    >>> require(Path("nowhere"), [Needed("query/", "images to search with")], "market-1501", "its project page")
    Traceback (most recent call last):
    ...
    limpet.errors.DataError: The data set 'market-1501' is not complete in nowhere: no query/ (images to search with).
    Expected: query/ (images to search with)
    Next: get what is missing from its project page, and put it there as it is.
    """
    found = [(one, one.find(root)) for one in needed]
    for one, path in found:
        if path is None:
            raise DataError(
                f"The data set '{dataset}' is not complete in {root}: no {one}.",
                expected=", ".join(map(str, needed)),
                to_do=f"get what is missing from {obtained}, and put it there as it is.",
            )
    return [path for _, path in found if path is not None]


def listed_images(
    root: Path,
    files: Sequence[str],
    classes: Sequence[str],
    image_size: ImageSize,
    fit: Fit,
    *,
    class_names: Sequence[str] | None = None,
    columns: Mapping[str, NDArray[Any]] | None = None,
    ids: Sequence[str] | None = None,
) -> ImageSet:
    """Return images in the order of a list.

    Args:
        root: Folder that the file paths are relative to.
        files: Path of every image (N), with forward slashes.
        classes: Class name of every image (N).
        image_size: Height and width in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        class_names: All class names. Default: those in ``classes``, sorted.
        columns: Further values per image.
        ids: Id of every image. Default: the files.

    Raises:
        ConfigError: The size is too small.
        DataError: A file is missing, or an id is repeated.
    """
    height, width = readable_sides(image_size)
    refuse_missing_images(root, files)
    names = tuple(sorted(set(classes)) if class_names is None else class_names)
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.fromiter((numbers[name] for name in classes), np.int64, len(classes))
    images = FileImages([root / file for file in files], (3, height, width), fit=fit)
    return ImageSet(keep_decoded(images), labels, names, StringArray.of(files if ids is None else ids), columns or {})


def refuse_missing_images(root: Path, files: Sequence[str]) -> None:
    """Refuse a list with missing images. Every folder is scanned once, which is faster than a check per file.

    Raises:
        DataError: Images are missing; the message counts them and names the first three.
    """
    folders: dict[str, set[str]] = {}
    missing = []
    for file in files:
        folder, _, name = file.rpartition("/")
        if folder not in folders:
            place = root / folder
            folders[folder] = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
        if name not in folders[folder]:
            missing.append(file)
    if missing:
        raise DataError(
            f"{len(missing):,} of {len(files):,} images are not in {root}, first: {shown(missing[:3], len(missing))}.",
            expected="every image that the lists of the data set name",
            to_do="unpack the images again; the archive may not have been complete.",
        )


def text_of(path: Path) -> str:
    """Return the content of a text file.

    Raises:
        DataError: The file is unreadable, or not UTF-8 text.
    """
    try:
        return read_text(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a complete text file in UTF-8") from error


def fields_of(path: Path, count: int, expected: str, *, separator: str | None = None, skip: int = 0) -> list[list[str]]:
    """Return the fields of every line that is not empty.

    Args:
        path: A text file.
        count: Minimum number of fields per line.
        expected: Description of a line, for messages.
        separator: Separator of fields. Default: white space.
        skip: Number of header lines to skip.

    Raises:
        DataError: A line has too few fields or an empty one; the message names the first such line.
    """
    found = []
    for number, line in enumerate(text_of(path).splitlines()[skip:], skip + 1):
        fields = [field.strip() for field in line.split(separator)]
        if line.strip():
            _refuse_short(path, number, line, fields, count, expected)
            found.append(fields)
    return found


def _refuse_short(path: Path, number: int, line: str, fields: Sequence[str], count: int, expected: str) -> None:
    if len(fields) < count or not all(fields[:count]):
        raise DataError(
            f"Line {number} of {path} is '{line:.80}'.",
            expected=expected,
            to_do="get the file again.",
        )


def table_of(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the rows of a CSV file with a header, limited to some columns.

    Raises:
        DataError: A column is missing, or a row has no value for one.
    """
    reader = csv.DictReader(text_of(path).splitlines())
    header = [name.strip() for name in reader.fieldnames or ()]
    if not set(columns) <= set(header):
        raise DataError(
            f"{path} has the columns {', '.join(header) or 'of no header at all'}.",
            expected=f"a header with {', '.join(columns)}",
        )
    reader.fieldnames = header
    rows = []
    for row in reader:
        values = [(row[name] or "").strip() for name in columns]
        _refuse_short(
            path, reader.line_num, ",".join(values), values, len(columns), f"{','.join(columns)} in every row"
        )
        rows.append(tuple(values))
    return rows


def unlike(found: Mapping[str, int], official: Mapping[str, int]) -> str:
    """Return a text about counts that differ from the official release; empty if none differs.

    >>> unlike({"images": 3, "classes": 2}, {"images": 5, "classes": 2})
    '; not as published: 3 images (5)'
    """
    other = [f"{count:,} {name} ({official[name]:,})" for name, count in found.items() if count != official[name]]
    return f"; not as published: {', '.join(other)}" if other else ""


Kind = Literal["text", "whole number", "number"]
_BLOCK = 16 * 1024**2


def read_columns(path: Path, kinds: Mapping[str, Kind], *, separator: str = ",", header: bool = True) -> Any:
    """Return some columns of a text file as an Arrow table.

    Args:
        path: A text file with one record per line.
        kinds: Columns to read, by name, with the kind of their values.
        separator: The character between fields.
        header: Whether the first line names the columns; further columns are then ignored. Without a header, the lines
            hold exactly the columns of ``kinds``, in their order.

    Returns:
        A table whose columns are of types large_string, int64 and float64, without missing values.

    Raises:
        DataError: The file is missing or empty, a column is missing, or a line cannot be read.
    """
    import pyarrow as pa
    from pyarrow import csv

    types = {"text": pa.large_string(), "whole number": pa.int64(), "number": pa.float64()}
    names = list(kinds)
    try:
        table = csv.read_csv(
            path,
            csv.ReadOptions(block_size=_BLOCK, column_names=None if header else names),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(
                column_types={name: types[kind] for name, kind in kinds.items()},
                include_columns=names,
                strings_can_be_null=False,
                null_values=[],
            ),
        )
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.", expected=_lines(kinds, separator)) from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read: {str(error).splitlines()[0][:200]}.",
            expected=_lines(kinds, separator),
            to_do="get the file again.",
        ) from error
    return table


def _lines(kinds: Mapping[str, Kind], separator: str) -> str:
    return f"lines of {separator.join(kinds)} ({', '.join(kinds.values())})"
