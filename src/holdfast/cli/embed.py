"""``holdfast embed``."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.cli.choices import write_settings
from holdfast.cli.console import print_json, print_table
from holdfast.cli.parsing import parse, resolved
from holdfast.devices import device_named
from holdfast.embeddings.folders import files_in
from holdfast.errors import ConfigError, refuse

Model = TypeVar("Model", Path, str)
Written = list[dict[str, Any]]

IMAGES_AT_A_TIME = 512
SOURCES = {
    "data": "--data with images to embed",
    "texts": "--texts with texts to embed",
    "stored": "--stored with embeddings for a head, an adapter or a lifted release",
}
OF_TEXTS = ("text_model", "role", "query_prefix", "document_prefix", "max_length", "truncate_dim")
OF_IMAGES = ("part", "workers", "flip", "form")
OF_STORED = ("stored_model", "vector_column", "id_column", "label_column")
USELESS = {
    "data": (*OF_TEXTS, *OF_STORED, "adapter"),
    "texts": (*OF_IMAGES, *OF_STORED),
    "stored": (*OF_TEXTS, *OF_IMAGES, "batch_size", "device", "data_root", "data_options"),
}
"""Options that change nothing, by what is embedded."""


def embed(
    out: Path,
    release: list[Path] = [],  # noqa: B006 - read only, shown as the default
    data: str | None = None,
    stored: Path | None = None,
    stored_model: str | None = None,
    vector_column: list[str] = [],  # noqa: B006
    id_column: list[str] = [],  # noqa: B006
    label_column: list[str] = [],  # noqa: B006
    adapter: Path | None = None,
    texts: str | None = None,
    text_model: list[str] = [],  # noqa: B006
    role: Literal["query", "document", "both"] = "both",
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    part: Literal["evaluation", "train", "validation", "all"] = "evaluation",
    form: Literal["points", "features"] = "points",
    flip: bool = False,
    batch_size: int | None = None,
    workers: int = 0,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Embed images with releases or texts with frozen models, or carry stored embeddings over to another space.

    Every model gets a folder of its name below --out, with query.safetensors and gallery.safetensors (for texts also
    train.safetensors); or with embeddings.safetensors, where every item is a query among all others. Other commands
    take that folder, and --out itself while it holds those of one model.

    Args:
        out: Folder for the embeddings.
        release: Folders of releases; with --texts or --stored, of heads over a frozen model.
        data: A data set by name, a folder with one sub-folder of images per class, or a folder of images without
            classes.
        stored: Embeddings to carry over to another space; no item is embedded again. With --adapter, those of the model
            that it maps; with a head, those of its frozen model; with the release old-lifted that training wrote beside
            a new one, those of the old model.
        stored_model: Name of the model that made them, for .npz, .npy and .parquet files, which carry none; their path
            when left out.
        vector_column: What .npz and .parquet files call the vectors, where it is not "vectors" and "vector"; of several
            names the first counts that a file has.
        id_column: The same of the ids, "ids" and "id".
        label_column: The same of the labels, "labels" and "label".
        adapter: Folder of an adapter that `holdfast adapt` fitted: stored embeddings, or what a text model makes of
            texts, are mapped into the space of the other model.
        texts: Texts by name (clinc150, banking77), or a .csv, .parquet, .jsonl or .txt file.
        text_model: Frozen models of text: folders, installed Python packages that carry weights, or names on the hub.
        role: What the texts of a file are to the model; data sets have queries and documents of their own.
        query_prefix: Text before every query; what the model asks for when left out, "" for none.
        document_prefix: Text before every document, likewise.
        max_length: Tokens that count of every text; the model's own number when left out.
        truncate_dim: Keep so many of the first values of every vector, for text models that were trained for it.
        part: Which images: those for evaluation, those for training, those for validation, or all of them in one set.
        form: Points of the releases' spaces, or of images the raw features, such as those that face templates pool.
        flip: Add the features of the mirrored image to those of the image, before anything is normalised.
        batch_size: Items at a time; 512 images or 64 texts when left out.
        workers: Processes that read images.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set; size and channels of images are those of the release, and label_column
            names the labels in a file of texts.
        json: Print one JSON document with the files.
    """


def main(words: list[str]) -> int:
    """Embed, and say where the files are."""
    arguments, text = parse(embed, words, "embed")
    source = _check_source(arguments)
    if arguments["batch_size"] is None:
        from holdfast.models.text_encoders import BATCH_SIZE

        arguments["batch_size"] = BATCH_SIZE if source == "texts" else IMAGES_AT_A_TIME
    text = resolved(text, {"batch_size": arguments["batch_size"]})
    written, table = {"data": _images, "texts": _texts, "stored": _stored}[source](arguments)
    for folder in {Path(entry["file"]).parent for entry in written}:
        write_settings(folder, "embed.yaml", text)
    if arguments["json"]:
        print_json({"embeddings": written})
    print_table("Embeddings", *table)
    return 0


def _check_source(arguments: dict[str, Any]) -> str:
    """Return what is to be embedded; refuse more or less than one source, and options of no use with it."""
    given = [name for name in SOURCES if arguments[name] is not None]
    said = f"{' and '.join(f'--{name}' for name in given)} were given." if given else "Nothing to embed was given."
    refuse(len(given) != 1, said, f"one of: {'; '.join(SOURCES.values())}")
    for name in USELESS[given[0]]:
        option = f"--{name.replace('_', '-')}"
        changed = arguments[name] != signature(embed).parameters[name].default
        refuse(changed, f"{option} was given with --{given[0]}.", f"no {option}: it means nothing there")
    refuse(
        arguments["adapter"] is not None and bool(arguments["release"]),
        "--release and --adapter were given.",
        "--release for a head or a lifted release, or --adapter to map embeddings",
    )
    return given[0]


def _images(arguments: dict[str, Any]) -> tuple[Written, Any]:
    from holdfast.cli.embed_images import embed_all
    from holdfast.cli.embed_stored import table_of

    written = embed_all(arguments, _folders(arguments["release"], arguments["out"], "release"))
    return written, table_of(written)


def _texts(arguments: dict[str, Any]) -> tuple[Written, Any]:
    from holdfast.cli.embed_texts import embed_all, table_of

    models, out = arguments["text_model"], arguments["out"]
    single = arguments["adapter"] is not None or (bool(models) and bool(arguments["release"]))
    reader = "--adapter" if arguments["adapter"] is not None else "--release"
    refuse(
        single and len(models) != 1,
        f"{reader} was given with {len(models)} text models.",
        "one, whose embeddings it reads: --text-model MODEL",
    )
    heads = bool(arguments["release"])
    folders: Any = _folders(arguments["release"], out, "release") if heads else _folders(models, out, "text model")
    written = embed_all(arguments, folders, device_named(arguments["device"]))
    return written, table_of(written)


def _stored(arguments: dict[str, Any]) -> tuple[Written, Any]:
    from holdfast.cli.embed_stored import carry_all, table_of

    out = arguments["out"]
    if arguments["adapter"] is not None:
        written = carry_all(arguments, _folders([arguments["adapter"]], out, "adapter"))
        return written, table_of(written, "adapter")
    written = carry_all(arguments, _folders(arguments["release"], out, "release"))
    return written, table_of(written)


def _folders(models: Sequence[Model], out: Path, what: str) -> dict[Model, Path]:
    """Return where the embeddings of every model go; refuse a place that would leave older ones beside them."""
    refuse(not models, f"No {what} was given.", f"--{what.replace(' ', '-')} MODEL [MODEL ...]")
    there = files_in(out)
    if there:
        raise ConfigError(
            f"--out '{out}' holds embeddings itself: {', '.join(there[:4])}.",
            expected="a folder in which every model gets one of its own",
            to_do="name another --out, or move these files; they are intact, and nothing was embedded.",
        )
    names = [Path(model).resolve().name for model in models]
    refuse(
        len(set(names)) < len(names),
        f"{what.capitalize()}s of the same name: {', '.join(names)}.",
        "names whose last parts differ",
    )
    return {model: out / name for model, name in zip(models, names, strict=True)}
