"""What the subcommands of ``limpet gallery`` share: opening a gallery, models, files of vectors, words."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from limpet.cli.places import Place
from limpet.embeddings.files import IMPORTED
from limpet.errors import without_secrets

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries.state import GalleryState
    from limpet.geometry import Space

DECLARED = "declared:"


def command(path: str, url: str, *words: object) -> str:
    """Return what to type, without a password.

    >>> command("upgrade swap", "my gallery", "--force", "REASON")
    "limpet upgrade swap 'my gallery' --force REASON"
    """
    return shlex.join(["limpet", *path.split(), without_secrets(url), *map(str, words)])


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
        ConfigError: There is no such file, or the model of its vectors is unknown.
        DataError: It is damaged or breaks a promise of `EmbeddingSet`.
    """
    from limpet.cli.options import leaving_out
    from limpet.engines.reading import load_embeddings

    with leaving_out(place, skip_unusable) as unusable:
        return load_embeddings(
            place.given, fingerprint=fingerprint, parts=parts, named=True, verify=True, unusable=unusable
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
