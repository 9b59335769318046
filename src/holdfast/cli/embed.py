"""``holdfast embed``."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast.cli.choices import input_options, open_data, write_settings
from holdfast.cli.console import counting_progress, print_json, print_table
from holdfast.cli.parsing import parse, resolved
from holdfast.errors import ConfigError, refuse
from holdfast.reports.formats import score

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet
    from holdfast.data.retrieval_data import RetrievalData
    from holdfast.embeddings import EmbeddingSet
    from holdfast.models.release import Release

Model = TypeVar("Model", Path, str)

IMAGES_AT_A_TIME = 512
SOURCES = {
    "data": "--data with images to embed",
    "texts": "--texts with texts to embed",
    "stored": "--stored with embeddings for a lifted release",
}
ONLY_FOR_IMAGES = ("release", "part", "workers")
ONLY_FOR_TEXTS = ("text_model", "role", "query_prefix", "document_prefix", "max_length", "truncate_dim")


def embed(
    out: Path,
    release: list[Path] = [],  # noqa: B006 - read only, shown as the default
    data: str | None = None,
    stored: Path | None = None,
    texts: str | None = None,
    text_model: list[str] = [],  # noqa: B006
    role: Literal["query", "document", "both"] = "both",
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    part: Literal["evaluation", "train", "validation"] = "evaluation",
    batch_size: int | None = None,
    workers: int = 0,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Embed images with releases or texts with frozen models, or carry stored embeddings over to a lifted release.

    Every model gets a folder of its name below --out (or --out itself, if there is one model) with query.safetensors
    and gallery.safetensors (for texts also train.safetensors); or with embeddings.safetensors, where every item is a
    query among all others.

    Args:
        out: Folder for the embeddings.
        release: Folders of releases.
        data: A data set by name, or a folder with one sub-folder of images per class.
        stored: Embeddings of the old model, for the release old-lifted that training wrote beside the new one: they are
            carried over to its space, and no image is embedded again.
        texts: Texts by name (clinc150, banking77), or a .csv, .parquet, .jsonl or .txt file.
        text_model: Frozen models of text: folders, installed Python packages that carry weights, or names on the hub.
        role: What the texts of a file are to the model; data sets have queries and documents of their own.
        query_prefix: Text before every query; what the model asks for when left out, "" for none.
        document_prefix: Text before every document, likewise.
        max_length: Tokens that count of every text; the model's own number when left out.
        truncate_dim: Keep so many of the first values of every vector, for text models that were trained for it.
        part: Which images: those for evaluation, those for training, or those for validation.
        batch_size: Items at a time; 512 images or 64 texts when left out.
        workers: Processes that read images.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set; size and channels of images are those of the release, and label_column
            names the labels in a file of texts.
        json: Print one JSON document with the files.
    """


def parts(data: RetrievalData, part: str) -> dict[str, ImageSet]:
    """Return the sets of images to embed by file name.

    Raises:
        ConfigError: The data set has no validation images.
    """
    if part == "evaluation" and not data.leave_one_out:
        return {"query": data.query, "gallery": data.gallery}
    images = {"evaluation": data.query, "train": data.train, "validation": data.validation}[part]
    if images is None:
        raise ConfigError(
            f"The data set '{data.name}' has no validation images.", expected="--part evaluation or --part train"
        )
    return {"embeddings": images}


def main(words: list[str]) -> int:
    """Embed, and say where the files are."""
    from holdfast.models.release import load_release

    arguments, text = parse(embed, words, "embed")
    _check_source(arguments)
    if arguments["texts"] is not None:
        return _embed_texts(arguments, text)
    text = _with_batch_size(arguments, text, IMAGES_AT_A_TIME)
    folders = _folders(arguments["release"], arguments["out"], "release")
    releases = {path: load_release(path) for path in folders}
    if arguments["stored"] is not None:
        lifts = [_lift(arguments, path, releases[path], folder) for path, folder in folders.items()]
        entries = [entry for of_release in lifts for entry in of_release]
        return _finish(arguments, text, entries, _table(entries))
    sets: dict[tuple[Any, ...], dict[str, ImageSet]] = {}  # by input contract: two releases rarely need two readings
    written: list[dict[str, Any]] = []
    for path, folder in folders.items():
        contract = _contract(releases[path])
        if contract not in sets:
            sets[contract] = _read(arguments, releases[path])
        written += _embed_one(arguments, path, releases[path], sets[contract], folder)
    return _finish(arguments, text, written, _table(written))


def _check_source(arguments: dict[str, Any]) -> None:
    """Refuse more or less than one source of items, and options that are of no use with it."""
    given = [name for name in SOURCES if arguments[name] is not None]
    said = f"{' and '.join(f'--{name}' for name in given)} were given." if given else "Nothing to embed was given."
    refuse(len(given) != 1, said, f"one of: {'; '.join(SOURCES.values())}")
    kind, useless = ("images", ONLY_FOR_IMAGES) if given == ["texts"] else ("texts", ONLY_FOR_TEXTS)
    for name in useless:
        option = f"--{name.replace('_', '-')}"
        changed = arguments[name] != signature(embed).parameters[name].default
        refuse(changed, f"{option} was given with --{given[0]}.", f"{option} only where {kind} are embedded")


def _with_batch_size(arguments: dict[str, Any], text: str, usual: int) -> str:
    """Decide the batch size where it was left open, and return the settings with it."""
    if arguments["batch_size"] is None:
        arguments["batch_size"] = usual
    return resolved(text, {"batch_size": arguments["batch_size"]})


def _embed_texts(arguments: dict[str, Any], text: str) -> int:
    from holdfast.cli.embed_texts import embed_all, table_of
    from holdfast.models.text_encoders import BATCH_SIZE

    text = _with_batch_size(arguments, text, BATCH_SIZE)
    folders = _folders(arguments["text_model"], arguments["out"], "text model")
    written = embed_all(arguments, folders, _device(arguments["device"]))
    return _finish(arguments, text, written, table_of(written))


def _lift(arguments: dict[str, Any], path: Path, release: Release, folder: Path) -> list[dict[str, Any]]:
    """Carry stored embeddings over to the space of a lifted release."""
    from holdfast.cli.evidence import open_sides
    from holdfast.embeddings import storage
    from holdfast.models.lifting import lift_embeddings

    sides, stored = open_sides(arguments["stored"]), arguments["stored"].resolve()
    refuse(
        folder.resolve() in (stored, stored.parent),
        f"The lifted embeddings would take the place of those in '{arguments['stored']}'.",
        "another folder as --out; nothing was written",
    )
    sets = {"embeddings": sides.query} if sides.leave_one_out else {"query": sides.query, "gallery": sides.gallery}
    written = []
    for name, embeddings in sets.items():
        found = lift_embeddings(embeddings, release)
        written.append(_entry(path, storage.save(found, folder / f"{name}.safetensors"), found))
    return written


def _entry(path: Path, file: Path, embeddings: EmbeddingSet) -> dict[str, Any]:
    from holdfast.evaluation.uncertainty import uncertainty_of

    uncertainty = uncertainty_of(embeddings)
    return {
        "release": str(path),
        "file": str(file),
        "items": len(embeddings),
        "fingerprint": embeddings.fingerprint,
        "mean_uncertainty": None if uncertainty is None else float(uncertainty.mean()),
    }


def _finish(
    arguments: dict[str, Any], text: str, written: list[dict[str, Any]], table: tuple[list[str], list[list[str]]]
) -> int:
    write_settings(arguments["out"], "embed.yaml", text)
    if arguments["json"]:
        print_json({"embeddings": written})
    print_table("Embeddings", *table)
    return 0


def _table(written: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the files for people, with the mean uncertainty where a model knows it."""
    columns = ["release", "file", "items"]
    rows = [[entry["release"], entry["file"], f"{entry['items']:,}"] for entry in written]
    if all(entry["mean_uncertainty"] is None for entry in written):
        return columns, rows
    means = [score(entry["mean_uncertainty"]) for entry in written]
    return [*columns, "mean uncertainty"], [[*row, mean] for row, mean in zip(rows, means, strict=True)]


def _contract(release: Release) -> tuple[Any, ...]:
    spec = release.record.encoder
    return (spec.channels, spec.image_size, spec.fit)


def _read(arguments: dict[str, Any], release: Release) -> dict[str, ImageSet]:
    """Read the images as the release wants them, and refuse those that it would have to change."""
    spec = release.record.encoder
    options = input_options(arguments["data"], spec, arguments["data_options"])
    sets = parts(open_data(arguments["data"], arguments["data_root"], options), arguments["part"])
    shape, wanted = next(iter(sets.values())).shape, (spec.channels, spec.image_size, spec.image_size)
    refuse(
        shape != wanted,
        f"The images have shape {shape}, and the release was trained on {wanted} (channels, height, width).",
        "images read as in training: leave --data-options.image_size and .channels out, or use data of that shape",
    )
    return sets


def _embed_one(
    arguments: dict[str, Any], path: Path, release: Release, sets: dict[str, ImageSet], folder: Path
) -> list[dict[str, Any]]:
    from holdfast.embeddings import storage
    from holdfast.training.encode import embed_images

    device, written = _device(arguments["device"]), []
    for name, images in sets.items():
        with counting_progress(f"{path.name} {name}", len(images)) as on_batch:
            embeddings = embed_images(
                release,
                images,
                batch_size=arguments["batch_size"],
                workers=arguments["workers"],
                device=device,
                on_batch=on_batch,
            )
        file = storage.save(embeddings, folder / f"{name}.safetensors")
        written.append(_entry(path, file, embeddings))
    return written


def _device(name: str) -> Any:
    import torch

    try:
        torch.zeros(1, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"Cannot compute on '{name}': {reason}", expected="cpu, or a device of this machine"
        ) from error


def _folders(models: Sequence[Model], out: Path, what: str) -> dict[Model, Path]:
    """Return where the embeddings of every model go."""
    refuse(not models, f"No {what} was given.", f"--{what.replace(' ', '-')} MODEL [MODEL ...]")
    if len(models) == 1:
        return {models[0]: out}
    names = [Path(model).name for model in models]
    refuse(
        len(set(names)) < len(names),
        f"{what.capitalize()}s of the same name: {', '.join(names)}.",
        "names whose last parts differ",
    )
    return {model: out / name for model, name in zip(models, names, strict=True)}
