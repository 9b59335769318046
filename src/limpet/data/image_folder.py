"""Reads images from folders named after their classes, in common layouts, or from one folder without classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from limpet.data.decoding import Fit
from limpet.data.held_out import hold_out
from limpet.data.image_set import ImageSet
from limpet.data.image_size import ImageSize, readable_sides
from limpet.data.images import FileImages, keep_decoded
from limpet.data.retrieval_data import UNLABELLED, RetrievalData
from limpet.embeddings import StringArray
from limpet.errors import DataError

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff"})
_LAYOUTS = (
    "folder/train/CLASS/*.png with folder/test/CLASS/*.png, or with folder/query and folder/gallery; "
    "or folder/CLASS/*.png, of which a share is held out; or images without classes, which cannot be trained on"
)


def image_folder(
    path: Path,
    *,
    image_size: ImageSize = 32,
    channels: int = 3,
    fit: Fit = "crop",
    held_out: float = 0.2,
    classes: bool = True,
    seed: int = 0,
) -> RetrievalData:
    """Your own images, in folders named after their classes; or in one folder, without classes.

    Layouts: ``train/CLASS`` with ``test/CLASS`` (leave-one-out on test) or with ``query/CLASS`` and
    ``gallery/CLASS``, each optionally with ``val/CLASS``; or only ``CLASS`` folders, of which a share of every class is
    held out for leave-one-out evaluation. A folder of images without sub-folders has no classes: its images can be
    embedded and searched, but not used for training.

    Args:
        path: The folder.
        image_size: Height and width of the resized images, or one number for both.
        channels: 3 for colour, 1 for grey.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        held_out: Share of every class to hold out, if there are only CLASS folders.
        classes: Whether folders are named after classes; false reads all images below the folder, at any depth, as
            images without classes.
        seed: Random seed that selects the held-out images.

    Raises:
        ConfigError: An option is out of range.
        DataError: The folder is missing, has none of the layouts, or holds an empty class or only one class.
    """
    height, width = readable_sides(image_size)
    if not path.is_dir():
        raise DataError(f"There is no folder {path}.", expected=_LAYOUTS, to_do="check the path.")
    shape = (channels, height, width)
    if not classes or _is_flat(path):
        return _without_classes(path, shape, fit)
    parts = {part: path / part for part in ("train", "test", "query", "gallery", "val") if (path / part).is_dir()}
    if "train" not in parts:
        if parts:
            raise DataError(
                f"{path} holds {', '.join(parts)} but no train.",
                expected=_LAYOUTS,
                to_do="add a train folder; if these are the names of classes, rename them.",
            )
        return hold_out(path.name, _read({"": path}, path, shape, fit)[""], held_out, seed)
    evaluation = [part for part in ("test", "query", "gallery") if part in parts]
    if evaluation not in (["test"], ["query", "gallery"]):
        raise DataError(
            f"{path} holds train and {', '.join(evaluation) or 'nothing to evaluate on'}.", expected=_LAYOUTS
        )
    searched = _read({part: parts[part] for part in evaluation}, path, shape, fit)
    return RetrievalData(
        name=path.name,
        train=_read({"train": parts["train"]}, path, shape, fit)["train"],
        query=searched[evaluation[0]],
        gallery=searched[evaluation[-1]],
        leave_one_out=evaluation == ["test"],
        validation=_read({"val": parts["val"]}, path, shape, fit)["val"] if "val" in parts else None,
        description=f"images in {path.name}: train, {' and '.join(evaluation)}",
    )


def _is_flat(folder: Path) -> bool:
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return any(map(_is_image, entries)) and not any(path.is_dir() for path in entries)


def _without_classes(path: Path, shape: tuple[int, int, int], fit: Fit) -> RetrievalData:
    files = sorted(filter(_is_image, path.rglob("*")))
    if not files:
        raise DataError(
            f"{path} holds no images.", expected=f"images ({', '.join(sorted(EXTENSIONS))})", to_do="check the path."
        )
    ids = StringArray.of(file.relative_to(path).as_posix() for file in files)
    labels = np.zeros(len(files), np.int64)
    return RetrievalData.of_one_set(
        name=path.name,
        train=None,
        evaluation=ImageSet(keep_decoded(FileImages(files, shape, fit=fit)), labels, (UNLABELLED,), ids),
        description=f"{len(files)} images without classes, each searches the others",
        labelled=False,
    )


def _read(parts: Mapping[str, Path], root: Path, shape: tuple[int, int, int], fit: Fit) -> dict[str, ImageSet]:
    """Read folders into sets with the same class names: the sorted union of those of all folders."""
    found = {part: _class_files(folder) for part, folder in parts.items()}
    names = tuple(sorted({name for classes in found.values() for name in classes}))
    numbers = {name: number for number, name in enumerate(names)}
    sets = {}
    for part, classes in found.items():
        files = [path for paths in classes.values() for path in paths]
        counts = [len(paths) for paths in classes.values()]
        labels = np.repeat(np.array([numbers[name] for name in classes], np.int64), counts)
        ids = StringArray.of(path.relative_to(root).as_posix() for path in files)
        sets[part] = ImageSet(keep_decoded(FileImages(files, shape, fit=fit)), labels, names, ids)
    return sets


def _class_files(folder: Path) -> dict[str, list[Path]]:
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    loose = [path for path in entries if _is_image(path)]
    classes = {path.name: sorted(filter(_is_image, path.rglob("*"))) for path in entries if path.is_dir()}
    if loose:
        raise DataError(
            f"{folder} holds {len(loose)} images outside of a class folder, first: {loose[0].name}.",
            expected=_LAYOUTS,
            to_do="move every image into a folder named after its class; or, to embed all of them without classes: "
            "--data-options.classes false.",
        )
    if not classes:
        raise DataError(f"{folder} holds no folders of images.", expected=_LAYOUTS)
    empty = [name for name, paths in classes.items() if not paths]
    if empty:
        raise DataError(
            f"{len(empty)} class folders in {folder} hold no images, first: {empty[0]}.",
            expected=f"images ({', '.join(sorted(EXTENSIONS))}) in every class folder",
            to_do="remove the empty folders, or add images to them.",
        )
    return classes


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
