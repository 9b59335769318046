"""What the subcommands of ``limpet gallery`` share: opening a gallery, models, files of vectors, words."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from limpet.cli.places import Place
from limpet.embeddings.files import IMPORTED, model_folder
from limpet.errors import ConfigError, refuse, without_secrets

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.engines.address import Address
    from limpet.galleries.state import GalleryState
    from limpet.geometry import Space

DECLARED = "declared:"


def command(subcommand: str, url: str, *words: object) -> str:
    """Return what to type, without a password.

    >>> command("swap", "my gallery", "--force", "REASON")
    "limpet gallery swap 'my gallery' --force REASON"
    """
    return shlex.join(["limpet", "gallery", subcommand, without_secrets(url), *map(str, words)])


class Identity(NamedTuple):
    """The identity of a model whose vectors a gallery is to hold.

    Args:
        fingerprint: Of the model.
        space: Of its vectors.
        note: What people call it.
    """

    fingerprint: str
    space: Space
    note: str


def name_of(place: Place | Path) -> str:
    """Return what people call the vectors of a model: the last part of the name of their place that says something.

    >>> name_of(Place("runs/new/gallery.safetensors")), name_of(Place("old.npz")), name_of(Place("runs/v1.2"))
    ('new', 'old', 'v1.2')
    """
    if isinstance(place, Place) and place.address is not None:
        return place.name
    path = place.path if isinstance(place, Place) else place
    last = path.resolve() if path.name in ("", ".", "..") else path
    if last.suffix == ".safetensors" and last.parent.name:
        return last.parent.name
    return last.stem if last.suffix in (*IMPORTED, ".safetensors") else last.name


def made_by(state: GalleryState, model: str | None) -> str | None:
    """Return the fingerprint that a person gives vectors which do not say which model made them.

    Args:
        state: Of the gallery.
        model: A generation or fingerprint of the gallery, whose model made them; or what people call the model.
    """
    if model is None:
        return None
    known = state.by_name.get(model) or state.of(model)
    return f"{DECLARED}{model}" if known is None else known.fingerprint


def open_vectors(
    place: Place,
    *,
    parts: tuple[str, ...] = ("gallery", "embeddings"),
    fingerprint: str | None = None,
    skip_unusable: bool | None = None,
) -> EmbeddingSet:
    """Open a file of embeddings, the part of a folder that `limpet embed` wrote, or a source.

    Args:
        place: The file, folder or source.
        parts: Names of the parts to look for in a folder, the first one found is opened.
        fingerprint: Of the model that made vectors which do not say so.
        skip_unusable: Leave out items whose vector is zero, NaN or infinite there, and say which; None where the
            command has no option for it.

    Raises:
        ConfigError: There is no such file, or nobody says which model made its vectors.
        DataError: It is damaged or breaks a promise of `EmbeddingSet`.
    """
    from limpet.cli.options import Reading, leaving_out
    from limpet.embeddings import storage

    if place.address is not None:
        with leaving_out(place, skip_unusable) as unusable:
            return of_source(place.address, fingerprint, unusable)
    file = part_of(place.path, parts) if place.path.is_dir() else place.path
    if file.suffix not in IMPORTED or not file.exists():
        found = Reading().file(Place(str(file)))
        refuse(
            fingerprint not in (None, found.fingerprint),
            f"'{file}' says that {found.fingerprint} made it, not {fingerprint}.",
            "--name only for .npz, .npy and .parquet files, which say nothing of their model",
        )
        return found
    if fingerprint is None:
        raise unnamed(f"'{file}'")
    importer = storage.from_parquet if file.suffix == ".parquet" else storage.from_npz
    with leaving_out(place, skip_unusable) as unusable:
        return importer(file, fingerprint=fingerprint, unusable=unusable)


def of_source(
    address: Address,
    fingerprint: str | None,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Read the embeddings of a source.

    Raises:
        ConfigError: The address is wrong, or nobody says which model made them.
        DataError: Rows cannot be used.
        StoreError: The source is out of reach.
    """
    from limpet.engines.reading import embeddings_of
    from limpet.engines.sources import open_source

    source = open_source(address)
    if fingerprint is None and address.model is None and not (source.record or {}).get("fingerprint"):
        raise unnamed(source.name)
    return embeddings_of(source, fingerprint=fingerprint, unusable=unusable)


def part_of(folder: Path, parts: tuple[str, ...]) -> Path:
    """Return the first of these parts that a folder of embeddings has.

    Raises:
        ConfigError: It has none.
    """
    folder = model_folder(folder)
    found = [folder / f"{part}.safetensors" for part in parts if (folder / f"{part}.safetensors").exists()]
    if found:
        return found[0]
    names = sorted(file.name for file in folder.iterdir())
    other = next((folder / name for name in names if Path(name).suffix in IMPORTED), None)
    raise ConfigError(
        f"The folder '{folder}' holds {', '.join(names[:8]) or 'nothing'}.",
        expected=" or ".join(f"{part}.safetensors" for part in parts),
        to_do="`limpet embed` writes them" + ("." if other is None else f"; or name one file, such as '{other}'."),
    )


def unnamed(what: str) -> ConfigError:
    """Build the error for vectors that do not say which model made them, where nobody says it either."""
    return ConfigError(
        f"{what} does not say which model made its vectors.",
        expected="--name NAME, always the same one for the same model",
        to_do="add --name with what you call it; for a gallery that is there it may be a generation, such as g1, of "
        "those that `limpet gallery status` lists.",
    )


def size(count: float) -> str:
    """Write a number of bytes.

    >>> size(0), size(1536), size(3 * 1024**3)
    ('0 B', '1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
