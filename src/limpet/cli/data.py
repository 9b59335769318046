"""``limpet data``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limpet.cli.console import as_json, console, counting_progress, print_error, print_json, print_table
from limpet.cli.options import DataSets
from limpet.cli.parameters import as_typed
from limpet.embeddings import StringArray
from limpet.errors import shown, unknown_name
from limpet.reports.formats import MISSING

if TYPE_CHECKING:
    from limpet.data.text_set import TextData, TextSet

EXAMPLES = 3


@dataclass(frozen=True)
class Classes:
    """How many classes there are, and how many items the smallest and the largest of them have.

    Args:
        count: Of classes that have an item; None where items have no classes.
        smallest: None likewise.
        largest: The same.
    """

    count: int | None = None
    smallest: int | None = None
    largest: int | None = None

    @classmethod
    def of(cls, labels: NDArray[Any] | None) -> Classes:
        """Count them by the label or the name of the class of every item (N,)."""
        if labels is None:
            return cls()
        counts = np.unique(labels, return_counts=True)[1]
        return cls(len(counts), int(counts.min()), int(counts.max()))

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {"classes": self.count, "smallest_class": self.smallest, "largest_class": self.largest}

    def cells(self) -> list[str]:
        """Return them as two columns of a table."""
        return [MISSING, MISSING] if self.count is None else [f"{self.count:,}", f"{self.smallest}–{self.largest}"]


@dataclass(frozen=True)
class Suspects:
    """Items of which something is wrong.

    Args:
        count: How many.
        ids: The first three of them.
    """

    count: int
    ids: list[str]

    @classmethod
    def of(cls, ids: StringArray, wrong: NDArray[np.bool_]) -> Suspects:
        """Return those of the ids (N,) that are marked (N,)."""
        return cls(int(wrong.sum()), list(ids[np.flatnonzero(wrong)[:3]]))

    def tell(self, what: str, to_do: str) -> None:
        """Say what is wrong with them, if there are any."""
        if self.count:
            console.print(f"{what}: {self.count:,} ({shown(self.ids, self.count)}). Next: {to_do}.")


def data(name: str | None = None) -> int:
    """List the named data sets, or describe one of them and its options.

    ``limpet data photos`` describes a folder or file of your own. No data is read.

    Args:
        name: Data set to describe: a name, a folder or a file.

    Examples:
        limpet data
        limpet data omniglot
    """
    return list_all() if name is None else _explain(name)


def list_all() -> int:
    """List the named data sets, and the other forms of data that commands accept.

    Examples:
        limpet data list
    """
    from limpet.data.datasets import DATASETS
    from limpet.data.texts import TEXT_DATASETS

    for error in (*DATASETS.import_installed(), *TEXT_DATASETS.import_installed()):
        print_error("data list", error, as_json=False)
    images = {name: dataset.description for name, dataset in DATASETS.items()}
    texts = {name: dataset.description for name, dataset in TEXT_DATASETS.items()}
    if as_json():
        print_json({"data": images, "texts": texts})
        return 0
    rows = [[name, dataset.description, dataset.folder or ""] for name, dataset in DATASETS.items()]
    rows.append(
        [
            "a folder",
            "one sub-folder of images per class; or train/ and test/ (or query/ and gallery/) of these; or images "
            "without classes",
            "",
        ]
    )
    rows.append(["an .npz file", "arrays images (uint8) and labels; optionally ids and class_names", ""])
    print_table("Data sets", ["--data", "what it is", "folder below LIMPET_DATA"], rows)
    rows = [[name, dataset.description, dataset.folder or ""] for name, dataset in TEXT_DATASETS.items()]
    rows.append(
        ["a file", ".csv, .parquet or .jsonl with a column text (and label, id), or .txt with a text per line", ""]
    )
    print_table("Sets of texts", ["--texts", "what it is", "folder below LIMPET_DATA"], rows)
    if "omniglot" not in images:
        console.print("\nThe official data sets of papers come with the package limpet-bench: pip install ./bench.")
    console.print("\n`limpet data NAME` lists the options of one of them.")
    return 0


def describe(data: str, *, sets: DataSets = DataSets()) -> int:
    """Open a data set, and count the images or texts and the classes of each part.

    Args:
        data: Data set: a name; a folder with one subfolder of images per class, or of images without classes; an .npz
            file of images; or a .csv, .parquet, .jsonl or .txt file of texts.

    Examples:
        limpet data describe photos
    """
    return (_describe_texts if _holds_texts(data) else _describe_images)(data, sets)


def check(data: str, *, sets: DataSets = DataSets()) -> int:
    """Read all of a data set, and check that no training data leaks into evaluation.

    Images: each can be decoded, and none that is searched was trained on; otherwise the exit code is 2. Texts: none is
    empty, duplicated or in two classes; otherwise the exit code is 1.

    Args:
        data: Data set: a name; a folder with one subfolder of images per class, or of images without classes; an .npz
            file of images; or a .csv, .parquet, .jsonl or .txt file of texts.

    Examples:
        limpet data check photos
    """
    return (_check_texts if _holds_texts(data) else _check_images)(data, sets)


def _explain(name: str) -> int:
    """Say what a data set is, and print its options with their defaults; nothing is read."""
    from limpet.data.datasets import DATASETS, Dataset, reader_of
    from limpet.data.text_files import FILE_READERS, texts
    from limpet.data.texts import TEXT_DATASETS

    known: Dataset[Any] | None = DATASETS.get(name) or TEXT_DATASETS.get(name)
    if known is None and not Path(name).exists():
        names = ("list", "describe", "check", *DATASETS.names(), *TEXT_DATASETS.names())
        raise unknown_name("subcommand of `limpet data`, or data set,", name, names, listing="limpet data")
    own = texts if Path(name).suffix in FILE_READERS else None
    reader = known.read if known is not None else own or reader_of(Path(name))
    documentation = inspect.cleandoc(reader.__doc__ or "").partition("\nRaises:")[0].rstrip()
    options = {
        option.name: option.default
        for option in inspect.signature(reader).parameters.values()
        if option.default is not option.empty
    }
    folder = known.folder if known is not None else None
    if as_json():
        print_json({"name": name, "documentation": documentation, "folder": folder, "options": options})
        return 0
    written = {
        key: str(value).lower() if isinstance(value, bool) else "(none)" if value is None else str(value)
        for key, value in options.items()
    }
    defaults = "\n".join(f"    {as_typed(f'data_options.{key}')} {value}" for key, value in written.items())
    where = f"\n\nFolder below LIMPET_DATA: {folder}" if folder else ""
    console.print(f"{name}: {documentation}{where}\n\nDefaults:\n{defaults}")
    return 0


def _describe_images(name: str, sets: DataSets) -> int:
    data = sets.images(name)
    parts = data.parts()
    classes = {
        name: Classes.of(images.labels if data.labelled or name in ("train", "validation") else None)
        for name, images in parts.items()
    }
    if as_json():
        told = {
            name: {"images": len(images), **classes[name].to_dict(), "shape": list(images.shape),
                   **({"columns": list(images.columns)} if images.columns else {})}
            for name, images in parts.items()
        }  # fmt: skip
        print_json({"name": data.name, "description": data.description, "leave_one_out": data.leave_one_out,
                    "labelled": data.labelled, "parts": told})  # fmt: skip
        return 0
    rows = [
        [name, f"{len(images):,}", *classes[name].cells(), " × ".join(map(str, images.shape))]
        for name, images in parts.items()
    ]
    print_table(data.name, ["part", "images", "classes", "images a class", "channels × height × width"], rows)
    console.print(data.description)
    if data.leave_one_out:
        console.print("Every evaluation image is a query among all others (leave-one-out).")
    return 0


def _check_images(name: str, sets: DataSets) -> int:
    from limpet.data.leaks import refuse_shared_ids

    data = sets.images(name)
    searched = [data.query, *([] if data.leave_one_out else [data.gallery])]
    trained = [] if data.train is None else [data.train]
    parts = [*trained, *searched]
    total = sum(len(part) for part in parts)
    with counting_progress("reading", total) as progress:
        for part in parts:
            for start in range(0, len(part), 256):
                rows = np.arange(start, min(start + 256, len(part)))
                part.read(rows)
                progress(len(rows))
    with console.status("comparing training and evaluation images"):
        for train, part in product(trained, searched):
            refuse_shared_ids(train, part)
    if as_json():
        print_json({"name": data.name, "images": total, "readable": True, "leak": False})
        return 0
    found = "none of the training images is among the others" if trained else "there is nothing to train on"
    console.print(f"{data.name}: all {total:,} images can be read; {found}.")
    return 0


def _holds_texts(data: str) -> bool:
    """Return whether these are texts, or refuse what is no name of any data and not written like a path."""
    from limpet.data.datasets import DATASETS
    from limpet.data.text_files import FILE_READERS
    from limpet.data.texts import TEXT_DATASETS

    path, names = Path(data), [*DATASETS.names(), *TEXT_DATASETS.names()]
    if data not in names and not path.exists() and not path.suffix and os.sep not in data:
        raise unknown_name("data set, folder or file of texts", data, names, listing="limpet data")
    return data in TEXT_DATASETS or (path.suffix in FILE_READERS and not path.is_dir())


def _opened_texts(name: str, sets: DataSets) -> tuple[TextData | TextSet, dict[str, TextSet]]:
    from limpet.data.text_set import TextData

    found = sets.texts(name)
    return found, found.parts() if isinstance(found, TextData) else {"texts": found}


def _describe_texts(name: str, sets: DataSets) -> int:
    found, parts = _opened_texts(name, sets)
    summaries = {name: TextSummary.of(texts) for name, texts in parts.items()}
    alone, description = found is parts.get("texts"), getattr(found, "description", "")
    if as_json():
        print_json({"name": name, "description": description, "leave_one_out": alone,
                    "parts": {name: part.to_dict() for name, part in summaries.items()}})  # fmt: skip
        return 0
    rows = [
        [name, f"{part.texts:,}", *part.classes.cells(), f"{part.shortest}, {part.median:g}, {part.longest:,}"]
        for name, part in summaries.items()
    ]
    columns = ["part", "texts", "classes", "texts a class", "characters: least, median, most"]
    print_table(name, columns, rows)
    rows = [[name, label or "", f"{text:.100}"]
            for name, part in summaries.items() for text, label in part.examples]  # fmt: skip
    print_table("Examples", ["part", "class", "text"], rows)
    console.print(description or "Every text is a query among all others (leave-one-out).")
    return 0


@dataclass(frozen=True)
class TextSummary:
    """What is said of a set of texts.

    Args:
        texts: How many.
        classes: Theirs.
        shortest: Characters of the shortest text.
        median: Of one in the middle.
        longest: Of the longest.
        examples: A few texts with their classes.
    """

    texts: int
    classes: Classes
    shortest: int
    median: float
    longest: int
    examples: list[tuple[str, str | None]]

    @classmethod
    def of(cls, texts: TextSet) -> TextSummary:
        """Look at texts."""
        import pyarrow.compute as pc

        lengths = pc.utf8_length(texts.texts.arrow()).to_numpy(zero_copy_only=False)
        rows = np.unique(np.linspace(0, len(texts) - 1, EXAMPLES).astype(np.int64)).tolist()
        names = _class_of_each(texts)
        examples = [(texts.texts[row], None if names is None else str(names[row])) for row in rows]
        shortest, median, longest = int(lengths.min()), float(np.median(lengths)), int(lengths.max())
        return cls(len(texts), Classes.of(names), shortest, median, longest, examples)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        examples = [{"text": text, "class": label} for text, label in self.examples]
        return {"texts": self.texts, **self.classes.to_dict(), "shortest": self.shortest, "median": self.median,
                "longest": self.longest, "examples": examples}  # fmt: skip


def _class_of_each(texts: TextSet) -> NDArray[np.str_] | None:
    """Return the name of the class of every text (N,); None without labels."""
    return None if texts.labels is None else np.array(texts.class_names, np.str_)[texts.labels]


def _check_texts(name: str, sets: DataSets) -> int:
    _, parts = _opened_texts(name, sets)  # refuses empty texts, with their ids
    with console.status("comparing texts"):
        repeated, contradicting = repeated_texts(parts), contradicting_texts(parts)
    total, leak = sum(map(len, parts.values())), any(found.count for found in repeated.values())
    failed = leak or bool(contradicting and contradicting.count)
    if as_json():
        print_json({"name": name, "texts": total, "readable": True, "leak": leak,
                    "repeated": {where: vars(found) for where, found in repeated.items()},
                    "contradicting": None if contradicting is None else vars(contradicting)})  # fmt: skip
        return int(failed)
    console.print(f"{name}: all {total:,} texts can be read, and none is empty.")
    for where, found in repeated.items():
        what = f"Texts in {where} alike" if len(parts) > 1 else "Texts that repeat an earlier one"
        one = "one of the two" if len(parts) > 1 else "the file, or keep each once"
        found.tell(what, f"remove them from {one}; a score measured on them would be too good")
    if contradicting is not None:
        contradicting.tell("Texts with more than one class", "decide for one; no score can be perfect as they are")
    if not failed:
        console.print(f"None {'is in two parts' if len(parts) > 1 else 'occurs twice'}, and none has two classes.")
    return int(failed)


def repeated_texts(parts: Mapping[str, TextSet]) -> dict[str, Suspects]:
    """Find exactly equal texts in two parts, or in the only one.

    Returns:
        By the names of the parts: the texts of the second that are in the first too, or those that repeat an earlier
        one.
    """
    if len(parts) == 1:
        (name, texts), *_ = parts.items()
        return {name: Suspects.of(texts.ids, texts.texts.find(texts.texts) < np.arange(len(texts)))}
    return {
        f"{first} and {second}": Suspects.of(parts[second].ids, parts[first].texts.find(parts[second].texts) >= 0)
        for first, second in combinations(parts, 2)
    }


def contradicting_texts(parts: Mapping[str, TextSet]) -> Suspects | None:
    """Find texts that have several classes, in one part or in several; None without labels."""
    found = [names for names in map(_class_of_each, parts.values()) if names is not None]
    if not found:
        return None
    texts = StringArray.of(text for part in parts.values() for text in part.texts)
    pairs = np.unique(np.stack([texts.find(texts), np.unique(np.concatenate(found), return_inverse=True)[1]]), axis=1)
    several = np.flatnonzero(np.bincount(pairs[0]) > 1)
    wrong = np.isin(texts.find(texts), several)
    ids = StringArray.of(name for part in parts.values() for name in part.ids)
    return Suspects.of(ids, wrong)
