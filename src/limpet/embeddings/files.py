"""Files of embeddings: file type by magic bytes, usual column names, and file names in a folder."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from limpet.errors import ConfigError, DataError
from limpet.support.disk import open_file


class FileKind(NamedTuple):
    """A file type.

    Args:
        words: Name of the file type, with its article.
        to_do: How to get embeddings from such a file.
    """

    words: str
    to_do: str


IMPORTED = (".npz", ".npy", ".parquet")
"""Extensions of files that do not record the model of their vectors."""
PARTS = ("query", "gallery", "embeddings", "train")
"""Names of the files of a model, without extension."""
_RELEASE = ("config.json", "model.safetensors")

FILES_OF_EMBEDDINGS = "embeddings: what `limpet embed` wrote, or a .npz, .npy or .parquet file with vectors"
_IMAGES = "images become embeddings by a release: `limpet embed images FOLDER --model release:RELEASE --out DIR`."
_TEXTS = (
    "texts become embeddings by a model: `limpet embed texts FILE --model st:MODEL --out DIR`; vectors are read "
    "from .npz, .npy and .parquet files."
)
_RESULTS = "give the folders of embeddings; results.json belongs to --evidence, `evaluate combine` and the like."
_OTHERS = "write the vectors to a .npz, .npy or .parquet file."
_UNPACK = "unpack it, and give the file of embeddings in it."

PARQUET = FileKind("a Parquet file", "give it a name that ends with .parquet.")
NUMPY = FileKind("a NumPy file", "give it a name that ends with .npy.")
NUMPY_ARCHIVE = FileKind("an archive of NumPy arrays", "give it a name that ends with .npz.")
_BEGINNINGS = (
    (b"PAR1", PARQUET),
    (b"\x93NUMPY", NUMPY),
    (b"\xff\xd8\xff", FileKind("a JPEG image", _IMAGES)),
    (b"\x89PNG\r\n", FileKind("a PNG image", _IMAGES)),
    (b"GIF8", FileKind("a GIF image", _IMAGES)),
    (b"II*\0", FileKind("a TIFF image", _IMAGES)),
    (b"MM\0*", FileKind("a TIFF image", _IMAGES)),
    (b"\x1f\x8b", FileKind("a file packed by gzip", _UNPACK)),
    (b"%PDF-", FileKind("a PDF document", _OTHERS)),
    (b"SQLite format 3\0", FileKind("an SQLite database", _OTHERS)),
    (b"ARROW1\0", FileKind("an Arrow file", _OTHERS)),
    (b"\x89HDF\r\n", FileKind("an HDF5 file", _OTHERS)),
    (b"\x80\x02", FileKind("a pickle", _OTHERS)),
    (b"\x80\x03", FileKind("a pickle", _OTHERS)),
    (b"\x80\x04", FileKind("a pickle", _OTHERS)),
    (b"\x80\x05", FileKind("a pickle", _OTHERS)),
)
_ZIP = b"PK\x03\x04"
_SNIFFED = 4096  # bytes


def other_kind(path: Path) -> FileKind | None:
    """Return the actual kind of a file that cannot be read as the expected one; None if the kind is unknown."""
    with open_file(path) as file:
        begin = file.read(_SNIFFED)
    if begin.startswith(_ZIP):
        return _archive(path)
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return FileKind("a WebP image", _IMAGES)
    return next((kind for start, kind in _BEGINNINGS if begin.startswith(start)), _text(path, begin))


def refuse_other_kind(path: str | Path, *own: FileKind) -> None:
    """Refuse a file that is evidently of another type than expected; the reader handles all others.

    Raises:
        DataError: The file is empty, or of another type.
    """
    path = Path(path)
    if not path.is_file():
        return
    if not path.stat().st_size:
        raise DataError(f"'{path}' is empty.", expected=FILES_OF_EMBEDDINGS, to_do="write it again.")
    found = other_kind(path)
    if found is not None and found not in own:
        raise DataError(f"'{path}' is {found.words}.", expected=FILES_OF_EMBEDDINGS, to_do=found.to_do)


def _archive(path: Path) -> FileKind | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile):
        return None  # truncated or damaged: its reader reports that
    if any(name.endswith("/data.pkl") for name in names):
        return FileKind("a file of PyTorch", _OTHERS)
    return NUMPY_ARCHIVE if any(name.endswith(".npy") for name in names) else FileKind("a zip archive", _UNPACK)


def _text(path: Path, begin: bytes) -> FileKind | None:
    """Return the type of a text file, by its beginning; None for a binary file."""
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(begin) < _SNIFFED or error.start < len(begin) - 3:  # not just a character that was split
            return None
        text = begin[: error.start].decode("utf-8")
    if any(sign < " " and sign not in "\t\n\r\f" for sign in text):
        return None
    lines = text.lstrip("\ufeff \t\r\n").splitlines()
    first = lines[0] if lines else ""
    if first.startswith("<"):
        return FileKind("an HTML or XML page", _OTHERS)
    if first.startswith(("{", "[")):
        return FileKind("a file of JSON lines", _TEXTS) if _is_json(first) and len(lines) > 1 else _json(path)
    if any(sign in first for sign in (",", "\t", ";")):
        return FileKind("a table of text, such as a .csv file", _TEXTS)
    return FileKind("a text file", _TEXTS)


def _json(path: Path) -> FileKind:
    return FileKind("a JSON file", _RESULTS if path.name == "results.json" else _OTHERS)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "ids", "_id", "pk", "uuid", "key"),
    "vector": ("vector", "vectors", "embedding", "embeddings", "emb"),
    "label": ("label", "labels"),
}
"""Default names of columns and arrays by role; the first one that exists is used."""


def by_role(present: Collection[str]) -> dict[str, str]:
    """Return the names of ids, vectors and labels in a file or table; missing roles are left out.

    >>> by_role(["key", "embedding", "price"])
    {'id': 'key', 'vector': 'embedding'}
    """
    found = {role: [name for name in names if name in present] for role, names in USUAL_NAMES.items()}
    return {role: names[0] for role, names in found.items() if names}


def files_in(folder: Path) -> list[str]:
    """Return the names of the files of embeddings that lie in a folder itself."""
    own = [f"{part}.safetensors" for part in PARTS]
    return [name for name in own if (folder / name).is_file()] or sorted(path.name for path in folder.glob("*.parquet"))


def model_folder(path: Path) -> Path:
    """Return the folder of a model's embeddings: the one given, or the only one below it; any other path as it is.

    Raises:
        ConfigError: It is a model itself, or there are folders of several models below it.
    """
    if not path.is_dir() or files_in(path):
        return path
    if all((path / name).is_file() for name in _RELEASE):
        raise ConfigError(
            f"The folder '{path}' is a release: a model, and no embeddings.",
            to_do=f"make them: limpet embed images DATA --model release:{path} --out DIR.",
        )
    below = sorted(folder for folder in path.iterdir() if folder.is_dir() and files_in(folder))
    if len(below) > 1:
        raise ConfigError(
            f"The folder '{path}' holds embeddings of {len(below)} models: "
            f"{', '.join(folder.name for folder in below[:8])}{', …' if len(below) > 8 else ''}.",
            to_do=f"give one of these folders, such as '{below[0]}'.",
        )
    return below[0] if below else path
