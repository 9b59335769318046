"""``holdfast embed``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import input_options, open_data, write_settings
from holdfast.cli.console import counting_progress, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.errors import ConfigError, refuse
from holdfast.reports.formats import score

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet
    from holdfast.data.retrieval_data import RetrievalData
    from holdfast.embeddings import EmbeddingSet
    from holdfast.models.release import Release


def embed(
    release: list[Path],
    out: Path,
    data: str | None = None,
    stored: Path | None = None,
    part: Literal["evaluation", "train", "validation"] = "evaluation",
    batch_size: int = 512,
    workers: int = 0,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Embed images with one or more releases, or carry stored embeddings over to a release that was lifted.

    Every release gets a folder of its name below --out (or --out itself, if there is one release) with
    query.safetensors and gallery.safetensors; or with embeddings.safetensors, where every image is a query among all
    others.

    Args:
        release: Folders of releases.
        out: Folder for the embeddings.
        data: A data set by name, or a folder with one sub-folder of images per class.
        stored: Embeddings of the old model, for the release old-lifted that training wrote beside the new one: they are
            carried over to its space, and no image is embedded again.
        part: Which images: those for evaluation, those for training, or those for validation.
        batch_size: Images at a time.
        workers: Processes that read images.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set; size and channels of images are those of the release.
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
    refuse(
        (arguments["data"] is None) == (arguments["stored"] is None),
        "Neither --data nor --stored was given."
        if arguments["data"] is None
        else "Both --data and --stored were given.",
        "--data with images to embed, or --stored with embeddings for a lifted release",
    )
    folders = _folders(arguments["release"], arguments["out"])
    releases = {path: load_release(path) for path in folders}
    if arguments["stored"] is not None:
        lifts = [_lift(arguments, path, releases[path], folder) for path, folder in folders.items()]
        return _finish(arguments, text, [entry for entries in lifts for entry in entries])
    sets: dict[tuple[Any, ...], dict[str, ImageSet]] = {}  # by input contract: two releases rarely need two readings
    written: list[dict[str, Any]] = []
    for path, folder in folders.items():
        contract = _contract(releases[path])
        if contract not in sets:
            sets[contract] = _read(arguments, releases[path])
        written += _embed_one(arguments, path, releases[path], sets[contract], folder)
    return _finish(arguments, text, written)


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


def _finish(arguments: dict[str, Any], text: str, written: list[dict[str, Any]]) -> int:
    write_settings(arguments["out"], "embed.yaml", text)
    if arguments["json"]:
        print_json({"embeddings": written})
    columns, rows = _table(written)
    print_table("Embeddings", columns, rows)
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


def _folders(releases: list[Path], out: Path) -> dict[Path, Path]:
    refuse(not releases, "No release was given.", "--release FOLDER [FOLDER ...]")
    if len(releases) == 1:
        return {releases[0]: out}
    names = [path.name for path in releases]
    if len(set(names)) < len(names):
        raise ConfigError(f"Releases of the same name: {', '.join(names)}.", expected="folders whose last parts differ")
    return {path: out / path.name for path in releases}
