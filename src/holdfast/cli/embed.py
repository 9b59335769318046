"""``holdfast embed``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import open_data
from holdfast.cli.console import counting_progress, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet
    from holdfast.data.retrieval_data import RetrievalData


def embed(
    data: str,
    release: list[Path],
    out: Path,
    part: Literal["evaluation", "train", "validation"] = "evaluation",
    batch_size: int = 512,
    workers: int = 0,
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Embed images with one or more releases.

    Every release gets a folder of its name below --out (or --out itself, if there is one release) with
    query.safetensors and gallery.safetensors; or with embeddings.safetensors, where every image is a query among all
    others.

    Args:
        data: A data set by name, or a folder with one sub-folder of images per class.
        release: Folders of releases.
        out: Folder for the embeddings.
        part: Which images: those for evaluation, those for training, or those for validation.
        batch_size: Images at a time.
        workers: Processes that read images.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
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
    from holdfast.embeddings import storage
    from holdfast.models.release import load_release
    from holdfast.training.encode import embed_images

    arguments, _ = parse(embed, words, "embed")
    folders = _folders(arguments["release"], arguments["out"])
    releases = {path: load_release(path) for path in folders}
    data = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    sets = parts(data, arguments["part"])
    written: list[dict[str, Any]] = []
    for path, folder in folders.items():
        for name, images in sets.items():
            with counting_progress(f"{path.name} {name}", len(images)) as on_batch:
                embeddings = embed_images(
                    releases[path], images, batch_size=arguments["batch_size"], workers=arguments["workers"],
                    on_batch=on_batch,
                )  # fmt: skip
            file = storage.save(embeddings, folder / f"{name}.safetensors")
            written.append({"release": str(path), "file": str(file), "items": len(embeddings),
                            "fingerprint": embeddings.fingerprint})  # fmt: skip
    if arguments["json"]:
        print_json({"embeddings": written})
    rows = [[entry["release"], entry["file"], f"{entry['items']:,}"] for entry in written]
    print_table("Embeddings", ["release", "file", "items"], rows)
    return 0


def _folders(releases: list[Path], out: Path) -> dict[Path, Path]:
    if not releases:
        raise ConfigError("No release was given.", expected="--release FOLDER [FOLDER ...]")
    if len(releases) == 1:
        return {releases[0]: out}
    names = [path.name for path in releases]
    if len(set(names)) < len(names):
        raise ConfigError(f"Releases of the same name: {', '.join(names)}.", expected="folders whose last parts differ")
    return {path: out / path.name for path in releases}
