"""The part of ``holdfast embed`` that embeds images with releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import input_options, open_data
from holdfast.cli.console import counting_progress
from holdfast.cli.embed_stored import entry_of
from holdfast.devices import device_named
from holdfast.errors import ConfigError, ReleaseError, refuse
from holdfast.models.encoder import EncoderSpec

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet
    from holdfast.data.retrieval_data import RetrievalData
    from holdfast.models.release import Release


WORDS = {"train": "training", "validation": "validation"}
"""What the parts of a data set are called, where it lacks them."""


@dataclass(frozen=True)
class Parts:
    """Sets of images to embed by file name, and whether their labels mean something."""

    sets: dict[str, list[ImageSet]]
    labelled: bool


def parts(data: RetrievalData, part: str) -> dict[str, list[ImageSet]]:
    """Return the sets of images to embed, by the name of the file that they go to.

    Raises:
        ConfigError: The data set has no such images.
    """
    if part == "all":
        everything = [data.train, data.validation, data.query, *([] if data.leave_one_out else [data.gallery])]
        return {"embeddings": [images for images in everything if images is not None]}
    if part == "evaluation" and not data.leave_one_out:
        return {"query": [data.query], "gallery": [data.gallery]}
    images = {"evaluation": data.query, "train": data.train, "validation": data.validation}[part]
    if images is None:
        others = [other for other in ("train", "validation") if other in data.parts()]
        raise ConfigError(
            f"The data set '{data.name}' has no {WORDS[part]} images.",
            expected=" or ".join(f"--part {other}" for other in ("evaluation", *others, "all")),
        )
    return {"embeddings": [images]}


def embed_all(arguments: dict[str, Any], folders: Mapping[Path, Path]) -> list[dict[str, Any]]:
    """Embed the images with every release, and return what was written.

    Args:
        arguments: Of the command.
        folders: Where the embeddings of every release go.
    """
    from holdfast.models.release import load_release

    releases = {path: load_release(path) for path in folders}
    contracts = {path: _contract(path, release) for path, release in releases.items()}
    sets: dict[tuple[Any, ...], Parts] = {}  # by input contract: two releases rarely need two readings
    written: list[dict[str, Any]] = []
    for path, folder in folders.items():
        spec = contracts[path]
        key = (spec.channels, spec.image_size, spec.fit)
        if key not in sets:
            sets[key] = _read(arguments, spec)
        written += _embed_one(arguments, path, releases[path], sets[key], folder)
    return written


def _contract(path: Path, release: Release) -> EncoderSpec:
    """Return what a release takes, and refuse one that takes no images."""
    spec = release.record.encoder
    if not isinstance(spec, EncoderSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no images.",
            expected="a release that was trained on images",
            to_do="embed the items with that model, and give these embeddings as --stored; or --texts.",
        )
    return spec


def _read(arguments: dict[str, Any], spec: EncoderSpec) -> Parts:
    """Read the images as a release wants them, and refuse those that it would have to change."""
    options = input_options(arguments["data"], spec, arguments["data_options"])
    data = open_data(arguments["data"], arguments["data_root"], options)
    sets = parts(data, arguments["part"])
    shape, wanted = next(iter(sets.values()))[0].shape, (spec.channels, spec.image_size, spec.image_size)
    refuse(
        shape != wanted,
        f"The images have shape {shape}, and the release was trained on {wanted} (channels, height, width).",
        "images read as in training: leave --data-options.image_size and .channels out, or use data of that shape",
    )
    return Parts(sets, data.labelled or arguments["part"] in WORDS)


def _embed_one(
    arguments: dict[str, Any], path: Path, release: Release, parts: Parts, folder: Path
) -> list[dict[str, Any]]:
    from holdfast.embeddings import storage
    from holdfast.embeddings.joining import joined
    from holdfast.training.encode import embed_images

    device, written = device_named(arguments["device"]), []
    for name, sets in parts.sets.items():
        with counting_progress(f"{path.name} {name}", sum(map(len, sets))) as on_batch:
            found = [
                embed_images(
                    release,
                    images,
                    form=arguments["form"],
                    flip=arguments["flip"],
                    labelled=parts.labelled,
                    batch_size=arguments["batch_size"],
                    workers=arguments["workers"],
                    device=device,
                    on_batch=on_batch,
                )
                for images in sets
            ]
        embeddings = joined(found)
        file = storage.save(embeddings, folder / f"{name}.safetensors")
        written.append(entry_of(path, file, embeddings))
    return written
