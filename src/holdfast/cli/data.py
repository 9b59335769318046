"""``holdfast data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cli.choices import open_data
from holdfast.cli.console import console, counting_progress, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.errors import unknown_name

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet

ACTIONS = ("list", "describe", "check")


def listed(json: bool = False) -> None:
    """List the data sets that are known by name.

    Args:
        json: Print one JSON document instead of a table.
    """


def described(
    data: str,
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Describe a data set, or read every image of it and check that nothing leaks from training into evaluation.

    Args:
        data: A data set by name, or a folder with one sub-folder of images per class.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        json: Print one JSON document instead of a table.
    """


def main(words: list[str]) -> int:
    """Run one of the three actions; ``list`` when none is named."""
    action = words[0] if words and not words[0].startswith("--") else "list"
    if action not in ACTIONS:
        raise unknown_name("action of `holdfast data`", action, ACTIONS)
    rest = words[1:] if words and words[0] == action else words
    if action == "list":
        return _list(rest)
    if rest and not rest[0].startswith("--"):
        rest = ["--data", *rest]
    arguments, _ = parse(described, rest, f"data {action}")
    return _describe(arguments) if action == "describe" else _check(arguments)


def _list(words: list[str]) -> int:
    from holdfast.data.datasets import DATASETS
    from holdfast.data.texts import TEXT_DATASETS

    arguments, _ = parse(listed, words, "data list")
    images = {name: dataset.description for name, dataset in DATASETS.items()}
    texts = {name: dataset.description for name, dataset in TEXT_DATASETS.items()}
    if arguments["json"]:
        print_json({"data": images, "texts": texts})
        return 0
    rows = [[name, description] for name, description in images.items()]
    rows.append(
        ["a folder", "one sub-folder of images per class; or train/ and test/ (or query/ and gallery/) of these"]
    )
    rows.append(["an .npz file", "arrays images (uint8) and labels"])
    print_table("Data sets", ["--data", "what it is"], rows)
    rows = [[name, description] for name, description in texts.items()]
    rows.append(["a file", ".csv, .parquet or .jsonl with a column text (and label, id), or .txt with a text per line"])
    print_table("Sets of texts", ["--texts", "what it is"], rows)
    return 0


def _summary(images: ImageSet) -> dict[str, Any]:
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    used = counts[counts > 0]
    return {"images": len(images), "classes": len(used), "smallest_class": int(used.min()),
            "largest_class": int(used.max()), "shape": list(images.shape)}  # fmt: skip


def _describe(arguments: dict[str, Any]) -> int:
    data = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    sets = {"train": data.train, "query": data.query, "gallery": data.gallery, "validation": data.validation}
    summaries = {name: _summary(images) for name, images in sets.items() if images is not None}
    if arguments["json"]:
        print_json({"name": data.name, "description": data.description, "leave_one_out": data.leave_one_out,
                    "parts": summaries})  # fmt: skip
        return 0
    rows = [
        [name, f"{part['images']:,}", f"{part['classes']:,}", f"{part['smallest_class']}–{part['largest_class']}",
         " × ".join(map(str, part["shape"]))]
        for name, part in summaries.items()
    ]  # fmt: skip
    print_table(data.name, ["part", "images", "classes", "images a class", "channels × height × width"], rows)
    console.print(data.description)
    if data.leave_one_out:
        console.print("Every evaluation image is a query among all others (leave-one-out).")
    return 0


def _check(arguments: dict[str, Any]) -> int:
    from holdfast.data.leaks import refuse_shared_ids

    data = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    parts = [data.train, data.query, *([] if data.leave_one_out else [data.gallery])]
    total = sum(len(part) for part in parts)
    with counting_progress("reading", total) as on_batch:
        for part in parts:
            for start in range(0, len(part), 256):
                rows = np.arange(start, min(start + 256, len(part)))
                part.read(rows)
                on_batch(len(rows))
    with console.status("comparing training and evaluation images"):
        for part in parts[1:]:
            refuse_shared_ids(data.train, part)
    if arguments["json"]:
        print_json({"name": data.name, "images": total, "readable": True, "leak": False})
        return 0
    console.print(f"{data.name}: all {total:,} images can be read; none of the training images is among the others.")
    return 0
