"""Where the commands of a gallery get new vectors: files, or a model and the items themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import console
from limpet.cli.gallery.common import made_by
from limpet.cli.models import Embedding, WorkerOptions, releases_of
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.errors import ConfigError, refuse
from limpet.support.devices import device_named

if TYPE_CHECKING:
    from limpet.data import RetrievalData
    from limpet.galleries import Gallery
    from limpet.upgrade.vector_sources import EmbeddedItems, ItemSource, VectorSource

TO_EMBED = "--texts TEXTS --model MODEL; --data DATA --model MODEL"
KINDS = (
    "--model VECTORS; --model MODEL --data DATA; --model MODEL --texts TEXTS; --model ADAPTER_OR_HEAD --over VECTORS"
)


@dataclass(frozen=True)
class Embedder(Embedding):
    """Items, and the model that embeds them.

    Args:
        data: Images by name or folder.
        texts: Texts by name; a .csv, .parquet, .jsonl or .txt file; or the URL of a table or collection.
        batch_size: Items per forward pass. Default: 512 images or 64 texts.
    """

    data: str | None = None
    texts: str | None = None
    batch_size: Annotated[int | None, RARE] = None

    def items(self, sets: DataSets, known: Sequence[str] = ()) -> EmbeddedItems:
        """Return the items of --data or --texts, of a named data set its gallery, to be embedded when asked for.

        Args:
            known: Fingerprints that a model behind an API may have already.

        Raises:
            ConfigError: Options that do not go together.
            ReleaseError: A release that does not take such items.
        """
        from limpet.data import TextSet
        from limpet.upgrade.vector_sources import EmbeddedItems, TextItems

        if self.data is not None:
            source, images = self._of_images(self.data, sets)
            if images is None:
                raise ConfigError(
                    "The images of a source are not listed.",
                    expected="--data FOLDER, or --texts or --embeddings with a URL",
                    to_do="images at a URL are read by `limpet upgrade backfill`.",
                )
            return EmbeddedItems(source, images.gallery, labelled=images.labelled)
        self.named("--texts")
        texts = sets.texts(str(self.texts))
        found = texts if isinstance(texts, TextSet) else texts.gallery
        source = self._of_texts(TextItems.of(texts), known)
        return EmbeddedItems(source, found, labelled=found.labels is not None)

    def _of_images(self, data: str, sets: DataSets) -> tuple[VectorSource, RetrievalData | None]:
        """Return what embeds images, and all of them; None for those of a source, read batch by batch."""
        from limpet.engines.reading import SourceImages
        from limpet.engines.sources import open_source
        from limpet.models.named_models import image_spec
        from limpet.upgrade.vector_sources import ImageItems, ReleaseVectors

        model = self.named("--data")
        release = releases_of([model], self.over)[model]
        encoder = image_spec(release, model.place)
        batch, device = self.batch_size or 512, device_named(self.device)
        address = Place(data).address
        if address is not None:
            items = SourceImages(open_source(address), encoder.input_shape, encoder.fit)
            return ReleaseVectors(release, items, batch_size=batch, device=device), None
        found = sets.images(data, encoder)
        return ReleaseVectors(release, ImageItems.of(found), batch_size=batch, device=device), found

    def _of_texts(self, items: ItemSource[list[str]], known: Sequence[str]) -> VectorSource:
        from limpet.upgrade.vector_sources import vectors_of_texts

        model = self.text_model(self.named("--texts"), self.over, known=known)
        return vectors_of_texts(model, items, batch_size=self.batch_size or 64)


@dataclass(frozen=True)
class NewVectors(WorkerOptions, Embedder):
    """Where new vectors come from: stored ones, or a model and the items.

    Args:
        model: The new model: SCHEME:PLACE, such as release:FOLDER or st:NAME, for a gallery with --texts or --data; or
            its stored vectors: a file, a folder of `limpet embed`, or a URL.
        over: Input of an adapter or a head: a text model or stored vectors. Default: the text model that the head
            names. Or FILE.py:FUNCTION, which returns your module of a release.
        data: Gallery only: images by name or folder, with the ids of the gallery; or the URL of a table or collection
            with a column of paths.
        texts: Gallery only: texts by name; a .csv, .parquet, .jsonl or .txt file; or the URL of a table or collection
            with a column of texts, which is read batch by batch.
        name: Name of the model, for .npz, .npy and .parquet files; or a generation, such as g1.
    """

    name: str | None = None

    def typed(self) -> list[str]:
        """Return the options that were typed, for a command that goes on with the same vectors."""
        chosen = {"model": self.model, "over": self.over, "name": self.name, "data": self.data, "texts": self.texts}
        return [str(word) for name, value in chosen.items() if value is not None for word in (f"--{name}", value)]

    def identity(self) -> list[str]:
        """Return the options by which `gallery start` knows the model; EMBEDDINGS stands for a file to be made."""
        named = ["--name", self.name] if self.name else []
        return ["--model", "EMBEDDINGS" if self.model is None else str(self.model), *named]

    def opened(self, gallery: Gallery, sets: DataSets) -> VectorSource | None:
        """Return the source that these describe for the items of a gallery; None where they name none."""
        return self.source(sets, fingerprints_of(gallery), lambda: made_by(gallery.state, self.name))

    def source(
        self, sets: DataSets, known: Sequence[str], fingerprint: Callable[[], str | None]
    ) -> VectorSource | None:
        """Return the source that these describe; None where they name none.

        Args:
            sets: How data is read.
            known: Fingerprints that a model behind an API may have already.
            fingerprint: Says which model made stored vectors that do not say it.

        Raises:
            ConfigError: Options that do not go together.
            ReleaseError: A release that does not take such items.
        """
        if self.engine != "threads":
            return self._by_processes(sets, known, fingerprint)
        from limpet.engines.reading import SourceTexts
        from limpet.engines.sources import open_source
        from limpet.support.workers import Threads
        from limpet.training.text_models import open_map
        from limpet.upgrade.vector_sources import Parallel, TextItems, through

        stored = None if self.model is None else self.model.vectors
        below = None if self.over is None else self.over.vectors
        ways = {"stored vectors": stored or below, "--data": self.data, "--texts": self.texts}
        given = [name for name, value in ways.items() if value]
        if not given and self.model is None:
            return None
        refuse(len(given) != 1, f"{' and '.join(given) or f'--model {self.model} alone'} given.", f"one of: {KINDS}")
        refuse(stored is not None and self.over is not None, f"--over {self.over} with vectors.", f"one of: {KINDS}")
        if stored is not None:
            source = stored_vectors(stored, fingerprint())
        elif below is not None:
            source = through(stored_vectors(below, fingerprint()), open_map(self.named("vectors")))
        elif self.data:
            source, _ = self._of_images(self.data, sets)
        else:
            self.named("--texts")
            address = Place(str(self.texts)).address
            items: ItemSource[list[str]] = (
                TextItems.of(sets.texts(str(self.texts), on_empty="skip"))
                if address is None
                else SourceTexts(open_source(address))
            )
            source = self._of_texts(items, known)
        return Parallel(lambda: source, Threads(self.workers)) if self.workers > 1 else source

    def _by_processes(
        self, sets: DataSets, known: Sequence[str], fingerprint: Callable[[], str | None]
    ) -> VectorSource | None:
        from limpet.upgrade.vector_sources import Parallel

        alone = replace(self, engine="threads", workers=0, gpus=0.0)
        if self.model is None:
            return alone.source(sets, known, fingerprint)
        workers = self.started([self.model])
        assert workers is not None
        with console.status("starting workers"):
            return Parallel(partial(_opened, alone, sets, known, fingerprint()), workers)


def _opened(vectors: NewVectors, sets: DataSets, known: Sequence[str], fingerprint: str | None) -> VectorSource:
    """Open the source of a worker."""
    found = vectors.source(sets, known, lambda: fingerprint)
    assert found is not None
    return found


def stored_vectors(place: Place, fingerprint: str | None) -> VectorSource:
    """Open vectors that were made before, from a file, a folder or a source.

    Args:
        place: Where they are.
        fingerprint: Of the model that made those which do not say so.
    """
    from limpet.upgrade.vector_sources import FileVectors

    with console.status("opening vectors"):
        return FileVectors([place.given], fingerprint)


def fingerprints_of(gallery: Gallery) -> list[str]:
    """Return the fingerprints of the models of a gallery."""
    return [generation.fingerprint for generation in gallery.state.by_name.values()]
