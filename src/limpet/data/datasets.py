"""Named data sets and their readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from limpet.data.arrays import arrays
from limpet.data.glyphs import glyphs
from limpet.data.image_folder import image_folder
from limpet.data.retrieval_data import RetrievalData
from limpet.errors import ConfigError, DataError, nearest
from limpet.registry import Registry
from limpet.support.options import bound, option_types

_Data = TypeVar("_Data")


@dataclass(frozen=True)
class Dataset(Generic[_Data]):
    """A named data set.

    Args:
        read: Reader; its first argument is the folder, unless ``folder`` is None.
        description: One line that describes the data.
        folder: Name of the folder below the data root; None for data that needs no files.
        obtained: Origin of the files, such as "its home page, NAME"; empty for data made for this package.
    """

    read: Callable[..., _Data]
    description: str
    folder: str | None = None
    obtained: str = ""


DATASETS: Registry[Dataset[RetrievalData]] = Registry(
    "data set or folder",
    "datasets",
    {"glyphs": Dataset(glyphs, "characters rendered from installed fonts; needs no download")},
    fits=lambda thing: isinstance(thing, Dataset),
    expected="a limpet.data.datasets.Dataset",
    listing="limpet data",
    in_bench=(
        "omniglot", "tiny-imagenet-32", "tiny-imagenet", "cifar-100", "market-1501", "in-shop", "product-10k",
        "stanford-dogs", "inaturalist", "gldv2", "roxford", "rparis", "ms1mv3", "ijbc",
    ),
)  # fmt: skip


def load_dataset(name_or_path: str | Path, root: str | Path | None = None, **options: Any) -> RetrievalData:
    """Open a data set by name, or your own images by path.

    Args:
        name_or_path: A name of `DATASETS`, a folder of images, or an ``.npz`` file.
        root: Parent folder of the named data sets. Default: the environment variable LIMPET_DATA.
        options: Options of the reader, such as ``image_size``.

    Raises:
        ConfigError: The name or an option is unknown, or an option has another type or is out of range.
        DataError: Files are missing or cannot be used; the message says which.

    >>> load_dataset("glyphs").train.class_names[:3]
    ('NUMBER SIGN', 'PERCENT SIGN', 'RIGHT PARENTHESIS')
    """
    if str(name_or_path) in DATASETS:
        return open_named(DATASETS, str(name_or_path), root, options)
    path = Path(name_or_path)
    reader = reader_of(path)
    return reader(path, **bound(reader, options, f"data in '{path}'"))


def data_root(given: str | Path | None = None) -> Path | None:
    """Return the parent folder of the named data sets: the given one, or else that of LIMPET_DATA; None without."""
    found = given or os.environ.get("LIMPET_DATA")
    return Path(found) if found else None


_SAY_WHERE = 'set LIMPET_DATA=FOLDER, or write `data-root = "FOLDER"` into limpet.toml.'


def open_named(
    known: Mapping[str, Dataset[_Data]], name: str, root: str | Path | None, options: Mapping[str, object]
) -> _Data:
    """Open one entry of a table of data sets.

    Raises:
        ConfigError: An option is unknown, or has another type or is out of range.
        DataError: Files are missing or cannot be used.
    """
    dataset = known[name]
    checked = bound(dataset.read, options, f"data set '{name}'")
    if dataset.folder is None:
        return dataset.read(**checked)
    root = data_root(root)
    if root is None:
        raise DataError(
            f"The data set '{name}' is read from files, and no data root was given.",
            expected=f"a folder that holds '{dataset.folder}'",
            to_do=_SAY_WHERE,
        )
    folder = root / dataset.folder
    if not folder.is_dir():
        get = f"get them from {dataset.obtained} and " if dataset.obtained else ""
        raise DataError(
            f"The data set '{name}' is not in {root}: there is no folder {folder}.",
            expected=f"the files of {name} in {folder}",
            to_do=f"{get}put them there, or {_SAY_WHERE}",
        )
    return dataset.read(folder, **checked)


def option_names(name_or_path: str | Path) -> list[str]:
    """Return the names of the options of the reader of a data set.

    >>> " ".join(option_names("glyphs")[:4])
    'seed training_classes validation_classes evaluation_classes'
    """
    name = str(name_or_path)
    return list(option_types(DATASETS[name].read if name in DATASETS else reader_of(Path(name))))


def reader_of(path: Path) -> Callable[..., RetrievalData]:
    """Return the reader for a path.

    Raises:
        ConfigError: The path does not exist and looks like the name of a data set.
        DataError: The path does not exist, or is neither a folder nor an .npz file.
    """
    if path.is_dir():
        return image_folder
    if path.suffix == ".npz":
        return arrays
    if path.exists():
        raise DataError(
            f"{path} is no folder and no .npz file.",
            expected="a folder of images, or an .npz file",
            to_do="texts are embedded with `limpet embed texts FILE`, and linked with `limpet adapt`.",
        )
    if os.sep in str(path):
        raise DataError(f"There is no folder {path}.", expected="a folder of images, or an .npz file")
    if str(path) in DATASETS.in_bench:
        raise DATASETS.unknown(str(path))
    known = DATASETS.names()
    raise ConfigError(
        f"Unknown data set or folder '{path}'.{nearest(str(path), known)}",
        expected=f"a folder of images (one sub-folder per class), an .npz file, or one of {', '.join(known)}",
        to_do="check the path; `limpet data` describes the data sets that have a name.",
    )
