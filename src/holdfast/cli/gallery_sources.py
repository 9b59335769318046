"""Where ``holdfast gallery backfill`` and ``plan`` get new vectors: files, or a model and the items themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root, input_options, open_data
from holdfast.cli.console import console
from holdfast.cli.gallery_common import IMPORTED, made_by, unnamed
from holdfast.devices import device_named
from holdfast.errors import ReleaseError, refuse

if TYPE_CHECKING:
    from holdfast.galleries import Gallery
    from holdfast.galleries.sources import VectorSource
    from holdfast.models.encoder import EncoderSpec
    from holdfast.models.release import Release

KINDS = {"vectors": "--vectors FILE …", "data": "--release NEW --data DATA", "texts": "--release HEAD --texts TEXTS"}
OPTIONAL = {"query_prefix": None, "document_prefix": None, "max_length": None, "truncate_dim": None}


def source_of(arguments: Mapping[str, Any], gallery: Gallery) -> VectorSource | None:
    """Return the source that a command's options describe; None where they name none.

    Raises:
        ConfigError: Options that do not go together.
        ReleaseError: A release that does not take such items.
    """
    given = [name for name in KINDS if arguments[name]]
    if not given and not arguments["release"]:
        return None
    refuse(len(given) != 1, f"{' and '.join(f'--{name}' for name in given) or '--release alone'} given.",
           f"one of: {'; '.join(KINDS.values())}")  # fmt: skip
    refuse(arguments["workers"] < 0, f"--workers {arguments['workers']}.", "at least 0")
    source = {"vectors": _of_files, "data": _of_images, "texts": _of_texts}[given[0]](arguments, gallery)
    if arguments["workers"] > 1:
        from holdfast.galleries.sources import Parallel

        return Parallel(source, arguments["workers"])
    return source


def _of_files(arguments: Mapping[str, Any], gallery: Gallery) -> VectorSource:
    from holdfast.galleries.sources import FileVectors

    paths, fingerprint = arguments["vectors"], made_by(gallery.state, arguments["model"])
    nameless = [path for path in paths if path.suffix in IMPORTED and path.exists()]
    if nameless and fingerprint is None:
        raise unnamed(f"'{nameless[0]}'")
    with console.status("opening vectors"):
        found: VectorSource = FileVectors(paths, fingerprint, cast=arguments["cast"])
    return _carried(found, arguments)


def _carried(source: VectorSource, arguments: Mapping[str, Any]) -> VectorSource:
    """Carry vectors of a frozen model over with a head or an adapter, where one is given."""
    from holdfast.galleries.sources import through_adapter, through_head

    if arguments["release"] is not None:
        from holdfast.models.release import load_release

        return through_head(source, load_release(arguments["release"]))
    if arguments["adapter"] is not None:
        from holdfast.adapters.storage import load_adapter

        return through_adapter(source, load_adapter(arguments["adapter"]))
    return source


def _of_images(arguments: Mapping[str, Any], gallery: Gallery) -> VectorSource:
    from holdfast.galleries.sources import ImageItems, ReleaseVectors

    refuse(arguments["release"] is None, "--data without --release.", "--release NEW, which embeds these images")
    release, spec = open_for_images(arguments["release"])
    options = input_options(arguments["data"], spec, arguments["data_options"])
    items = ImageItems.of(open_data(arguments["data"], arguments["data_root"], options))
    batch = arguments["batch_size"] or 512
    return ReleaseVectors(release, items, batch_size=batch, device=device_named(arguments["device"]))


def open_for_images(path: Path) -> tuple[Release, EncoderSpec]:
    """Open a release that takes images, and return how it takes them.

    Raises:
        ReleaseError: It takes something else.
    """
    from holdfast.models.encoder import EncoderSpec
    from holdfast.models.release import load_release

    release = load_release(path)
    spec = release.record.encoder
    if not isinstance(spec, EncoderSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no images.",
            expected="a release that was trained on images",
            to_do="give --texts, or the embeddings of its frozen model as --vectors.",
        )
    return release, spec


def _of_texts(arguments: Mapping[str, Any], gallery: Gallery) -> VectorSource:
    from holdfast.cli.embed_texts import open_head, open_text_model
    from holdfast.data.texts import load_texts
    from holdfast.galleries.sources import TextItems, TextVectors, through_head

    refuse(arguments["release"] is None and arguments["text_model"] is None, "--texts without a model.",
           "--release HEAD, or --text-model MODEL")  # fmt: skip
    device, model = device_named(arguments["device"]), arguments["text_model"]
    options = {**OPTIONAL, **{key: arguments[key] for key in OPTIONAL if key in arguments}}
    with console.status(f"reading {arguments['texts']}"):
        texts = load_texts(arguments["texts"], data_root(arguments["data_root"]), **arguments["data_options"])
    items, batch = TextItems.of(texts), arguments["batch_size"] or 64
    if arguments["release"] is None:
        source: VectorSource = TextVectors(open_text_model(model, options, device), items, batch_size=batch)
        return _carried(source, arguments)
    head, encoder = open_head(arguments["release"], {**options, "text_model": [model] if model else []}, device)
    return through_head(TextVectors(encoder, items, batch_size=batch), head)
