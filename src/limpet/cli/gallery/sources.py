"""Where the commands of a gallery get new vectors: files, or a model and the items themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import console
from limpet.cli.gallery.common import made_by, of_source, unnamed
from limpet.cli.gallery.options import Embedding, Encoding
from limpet.cli.options import Api, DataSets, TextModel
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.errors import ConfigError, refuse
from limpet.support.devices import device_named

if TYPE_CHECKING:
    from limpet.data import RetrievalData
    from limpet.galleries import Gallery
    from limpet.galleries.sources import EmbeddedItems, ItemSource, VectorSource

TO_EMBED = "--texts TEXTS --text-model MODEL; --texts TEXTS --release HEAD; --data DATA --release RELEASE"
KINDS = {"vectors": "--vectors FILE …", "data": "--release NEW --data DATA", "texts": "--release HEAD --texts TEXTS"}


@dataclass(frozen=True)
class Embedder(Encoding):
    """Items, and the model that embeds them.

    Args:
        release: Release that embeds --data: a folder; or hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet train --model`
            takes them. With --texts a head over a frozen model.
        data: Images by name or folder.
        texts: Texts by name; a .csv, .parquet, .jsonl or .txt file; or the URL of a table or collection.
        batch_size: Items that the model takes at a time; 512 images or 64 texts when left out.
        document_prefix: Text before every text; what the model asks for when left out.
        workers: Threads that embed parts of a batch at once.
    """

    data: str | None = None
    texts: str | None = None
    batch_size: Annotated[int | None, RARE] = None
    document_prefix: Annotated[str | None, RARE] = None
    workers: Annotated[int, RARE] = 0

    def __post_init__(self) -> None:
        refuse(self.workers < 0, f"--workers {self.workers}.", "at least 0")

    def refuse_no_model(self) -> None:
        """Refuse texts without a model, before they are read."""
        refuse(self.release is None and self.text_model is None, "--texts without a model.",
               "--release HEAD, or --text-model MODEL")  # fmt: skip

    def items(self, api: Api, sets: DataSets, known: Sequence[str] = ()) -> EmbeddedItems:
        """Return the items of --data or --texts, of a named data set its gallery, to be embedded when asked for.

        Args:
            known: Fingerprints that such a model may have already.

        Raises:
            ConfigError: Options that do not go together.
            ReleaseError: A release that does not take such items.
        """
        from limpet.data import TextSet
        from limpet.galleries.sources import EmbeddedItems, TextItems

        if self.data is not None:
            source, images = self._of_images(self.data, sets)
            if images is None:
                raise ConfigError(
                    "The images of a source are not listed.",
                    expected="--data FOLDER, or --texts or --embeddings with a URL",
                    to_do="images at a URL are read by `limpet gallery backfill`.",
                )
            return EmbeddedItems(self._at_once(source), images.gallery, labelled=images.labelled)
        self.refuse_no_model()
        texts = sets.texts(str(self.texts))
        found = texts if isinstance(texts, TextSet) else texts.gallery
        source = self._of_texts(TextItems.of(texts), api, known)
        return EmbeddedItems(self._at_once(source), found, labelled=found.labels is not None)

    def _of_images(self, data: str, sets: DataSets) -> tuple[VectorSource, RetrievalData | None]:
        """Return what embeds images, and all of them; None for those of a source, read batch by batch."""
        from limpet.cli.embed import encoder_for_images
        from limpet.galleries.sources import ImageItems, ReleaseVectors
        from limpet.models.named_models import open_releases
        from limpet.sources import open_source
        from limpet.sources.reading import SourceImages

        if self.release is None:
            raise ConfigError("--data without --release.", expected="--release NEW, which embeds these images")
        release = open_releases([self.release], self.encoder)[self.release]
        encoder = encoder_for_images(self.release, release)
        batch, device = self.batch_size or 512, device_named(self.device)
        address = Place(data).address
        if address is not None:
            items = SourceImages(open_source(address), encoder.input_shape, encoder.fit)
            return ReleaseVectors(release, items, batch_size=batch, device=device), None
        found = sets.images(data, encoder)
        return ReleaseVectors(release, ImageItems.of(found), batch_size=batch, device=device), found

    def _of_texts(self, items: ItemSource[list[str]], api: Api, known: Sequence[str]) -> VectorSource:
        from limpet.galleries.sources import TextVectors, through_head

        model = TextModel(None, self.document_prefix, self.max_length, self.truncate_dim, self.on_long)
        batch = self.batch_size or 64
        if self.release is None:
            encoder = model.opened(str(self.text_model), self.device, api, known)
            return TextVectors(encoder, items, batch_size=batch)
        head, encoder = model.head(self.release, self.text_model, self.device, api)
        return through_head(TextVectors(encoder, items, batch_size=batch), head)

    def _at_once(self, source: VectorSource) -> VectorSource:
        from limpet.galleries.sources import Parallel

        return Parallel(source, self.workers) if self.workers > 1 else source


@dataclass(frozen=True)
class NewVectors(Embedder, Embedding):
    """Where new vectors come from: files, or a model and the items.

    Args:
        release: Release of the new model, with --data: a folder; or hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet
            train --model` takes them. With --texts or --vectors a head over a frozen model.
        data: The images by name or folder, whose ids are those of the gallery; or the URL of a table or collection with
            a column of their paths.
        texts: The texts by name; a .csv, .parquet, .jsonl or .txt file; or the URL of a table or collection with a
            column of them, of which every batch is read when its turn comes.
        vectors: Embeddings by the new model that are there already: files, folders of `limpet embed`, or URLs.
    """

    vectors: list[Place] = field(default_factory=list)

    @property
    def mapped_by(self) -> Path | None:
        """Folder of the adapter that maps the vectors into the new model's space, if there is one."""
        return None

    def typed(self) -> list[str]:
        """Return the options that were typed, for a command that goes on with the same vectors."""
        chosen: dict[str, Sequence[object]] = {
            "release": [self.release], "data": [self.data], "texts": [self.texts], "text-model": [self.text_model],
            "vectors": self.vectors or [None], "model": [self.model], "adapter": [self.mapped_by],
        }  # fmt: skip
        return [str(word) for name, (first, *more) in chosen.items() if first for word in (f"--{name}", first, *more)]

    def identity(self) -> list[str]:
        """Return the options by which `gallery prepare` knows the model; EMBEDDINGS stands for a file to be made."""
        if self.release is not None:
            return ["--release", str(self.release)]
        named = ["--model", self.model] if self.model else []
        return ["--embeddings", str(self.vectors[0]) if self.vectors else "EMBEDDINGS", *named]

    def opened(self, gallery: Gallery, api: Api, sets: DataSets) -> VectorSource | None:
        """Return the source that these describe; None where they name none.

        Raises:
            ConfigError: Options that do not go together.
            ReleaseError: A release that does not take such items.
        """
        from limpet.galleries.sources import TextItems
        from limpet.sources import open_source
        from limpet.sources.reading import SourceTexts

        sources = {"vectors": self.vectors, "data": self.data, "texts": self.texts}
        given = [name for name, value in sources.items() if value]
        if not given and self.release is None:
            return None
        refuse(len(given) != 1, f"{' and '.join(f'--{name}' for name in given) or '--release alone'} given.",
               f"one of: {'; '.join(KINDS.values())}")  # fmt: skip
        if self.vectors:
            source = self._of_files(gallery)
        elif self.data:
            source, _ = self._of_images(self.data, sets)
        else:
            mapped = self.mapped_by if self.release is None else None
            self.refuse_no_model()
            address = Place(str(self.texts)).address
            items: ItemSource[list[str]] = (
                TextItems.of(sets.texts(str(self.texts), on_empty="skip"))
                if address is None
                else SourceTexts(open_source(address))
            )
            source = self._of_texts(items, api, [*_read_by(mapped), *fingerprints_of(gallery)])
            source = source if mapped is None else self._carried(source)
        return self._at_once(source)

    def _of_files(self, gallery: Gallery) -> VectorSource:
        fingerprint = made_by(gallery.state, self.model)
        nameless = [place for place in self.vectors if place.address is None and place.nameless and place.path.exists()]
        if nameless and fingerprint is None:
            raise unnamed(f"'{nameless[0]}'")
        return self._carried(stored_vectors(self.vectors, fingerprint, cast=self.cast))

    def _carried(self, source: VectorSource) -> VectorSource:
        """Carry vectors of a frozen model over with a head or an adapter, where one is given."""
        from limpet.galleries.sources import through_adapter, through_head

        if self.release is not None:
            from limpet.models.release import load_release

            return through_head(source, load_release(self.release))
        if self.mapped_by is not None:
            from limpet.adapters.storage import load_adapter

            return through_adapter(source, load_adapter(self.mapped_by))
        return source


@dataclass(frozen=True)
class MappedVectors(NewVectors):
    """Where new vectors come from: files, or a model and the items, as they are or through an adapter.

    Args:
        adapter: Folder of an adapter that maps these vectors into the new model's space.
    """

    adapter: Path | None = None

    @property
    def mapped_by(self) -> Path | None:
        """The adapter."""
        return self.adapter


def stored_vectors(places: Sequence[Place], fingerprint: str | None, *, cast: bool) -> VectorSource:
    """Open vectors that were made before, from files, folders and sources.

    Args:
        places: Where they are.
        fingerprint: Of the model that made those which do not say so.
        cast: Accept other floating types than float32 where vectors were made elsewhere.
    """
    from limpet.galleries.sources import FileVectors

    with console.status("opening vectors"):
        read = {
            str(place): of_source(place.address, fingerprint, cast) for place in places if place.address is not None
        }
        files = [place.path for place in places if place.address is None]
        return FileVectors(files, fingerprint, cast=cast, read=read)


def fingerprints_of(gallery: Gallery) -> list[str]:
    """Return the fingerprints of the models of a gallery."""
    return [generation.fingerprint for generation in gallery.state.by_name.values()]


def _read_by(adapter: Path | None) -> list[str]:
    """Return the fingerprint of the model that an adapter maps, if there is an adapter."""
    from limpet.adapters.storage import load_adapter

    return [] if adapter is None else [load_adapter(adapter).fitted.source]
