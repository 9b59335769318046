"""``limpet gallery search``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from limpet.cli.console import as_json, console, print_json, print_table
from limpet.cli.gallery.common import made_by, open_vectors
from limpet.cli.gallery.options import GalleryUrl
from limpet.cli.gallery.sources import NewVectors, fingerprints_of
from limpet.cli.models import Embedding, Model, releases_of
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.errors import ConfigError, count_of, refuse
from limpet.support.devices import device_named

if TYPE_CHECKING:
    from limpet.data.image_set import ImageSet
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries import Gallery, Reply
    from limpet.galleries.two_stage import Rescoring
    from limpet.models.specs import EncoderSpec

KINDS = {
    "queries": "--queries FILE_OR_FOLDER of embeddings",
    "like": "--like ID of an item",
    "data": "--data DATA --model MODEL",
    "image": "--image FILE … --model MODEL",
    "text": "--text WORDS --model MODEL",
}
ROWS_SHOWN = 40


@dataclass(frozen=True)
class Queries(Embedding):
    """Queries, and the model that embeds them.

    Args:
        queries: Embeddings of queries: a folder of `limpet embed` (its queries), one file, or a URL.
        like: Id of an item of the gallery whose stored vector is the query; the item itself is excluded.
        data: Images by name or folder, whose queries --model embeds.
        image: Image files as queries, which --model embeds.
        text: Texts as queries, each in quotes, which --model embeds.
        name: Name of the model, for .npz, .npy and .parquet files, which do not store it; or a generation, such as g1.
    """

    queries: Place | None = None
    like: str | None = None
    data: str | None = None
    image: list[Path] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    name: str | None = None

    def refuse_several(self) -> None:
        """Refuse queries that are given in several ways, or not at all."""
        given = [name for name in KINDS if getattr(self, name) not in (None, [])]
        refuse(len(given) != 1, f"{' and '.join(f'--{name}' for name in given) or 'Nothing'} given to search with.",
               f"one of: {'; '.join(KINDS.values())}")  # fmt: skip

    def opened(self, gallery: Gallery, sets: DataSets) -> EmbeddingSet:
        """Return the queries as embeddings, made now where they are none yet."""
        if self.like is not None:
            return _stored(gallery, self.like)
        if self.queries is not None:
            fingerprint = made_by(gallery.state, self.name)
            return open_vectors(self.queries, parts=("query", "embeddings"), fingerprint=fingerprint)
        return self._texts(fingerprints_of(gallery)) if self.text else self._images(sets)

    def _images(self, sets: DataSets) -> EmbeddingSet:
        from limpet.models.named_models import image_spec
        from limpet.training.encode import embed_images

        model = self.named("--image" if self.data is None else "--data")
        release = releases_of([model], self.over)[model]
        encoder = image_spec(release, model.place)
        images = _files(self.image, encoder) if self.data is None else sets.images(self.data, encoder).query
        with console.status("embedding the queries"):
            return embed_images(release, images, role="query", device=device_named(self.device))

    def _texts(self, known: Sequence[str]) -> EmbeddingSet:
        from limpet.data.text_set import TextSet
        from limpet.embeddings import StringArray

        texts = TextSet(StringArray.of(self.text), None, (), StringArray.of(self.text))
        return self.text_model(self.named("--text"), self.over, known=known).embed(texts, role="query")

    def texts_of(self, texts: str, found: Reply, sets: DataSets) -> dict[str, str]:
        """Return the texts of the items that were found, by id; of those that the file does not have, none.

        Args:
            texts: Of the items, by name or file.
            found: What was found.
            sets: How the texts are read, where the options are not those of the images of the queries.
        """
        from limpet.upgrade.vector_sources import TextItems

        items = TextItems.of((sets if self.data is None else DataSets()).texts(texts))
        names = list(dict.fromkeys(hit.id for hits in found.hits for hit in hits))
        ids, read = items.read(names)
        if names and not ids:
            console.print(f"'{texts}' has no text of these items; its ids have to be those of the gallery.")
        return dict(zip(ids, read, strict=True))


@dataclass(frozen=True)
class SecondStage(Options):
    """A second stage, in which the new model rescores candidates, while an upgrade is started or swapped.

    Args:
        rescore: Number of candidates per query that the new model scores again. Candidates without a new vector are
            embedded from --texts or --rescore-data, and the vectors kept. Default: no second stage.
        rescore_budget: Maximum number of candidates to embed per query.
        rescore_data: Images of the items, by name or folder. Default: those of --data.
        rescore_with: Source of the candidates' new vectors: a file, a folder or a URL of stored vectors. Default: the
            model of the queries.
        old: Old model, whose queries find the candidates: a model that also embeds --data, --image or --text; or its
            embeddings of the same queries, a file, folder or URL. Default: the new queries find them, if a link lets
            them.
        old_name: Name of the old model, for .npz, .npy and .parquet files; or its generation, such as g1.
    """

    rescore: int | None = None
    rescore_budget: Annotated[int | None, RARE] = None
    rescore_data: Annotated[str | None, RARE] = None
    rescore_with: Annotated[Model | None, RARE] = None
    old: Model | None = None
    old_name: Annotated[str | None, RARE] = None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None and name != "rescore"]
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        refuse(
            self.rescore is None and bool(given),
            f"{named} without --rescore.",
            "the number of candidates, --rescore 100",
        )

    def opened(self, gallery: Gallery, query: Queries, texts: str | None, sets: DataSets) -> Rescoring | None:
        """Return how candidates are scored again; None without a second stage.

        Args:
            texts: Texts of the items, by name or file.
        """
        if self.rescore is None:
            return None
        from limpet.galleries.two_stage import Rescoring

        source = self._source(query, texts).opened(gallery, sets)
        if source is None or query.like is not None:
            what = "of a stored vector (--like)" if query.like is not None else "without the items"
            raise ConfigError(
                f"--rescore {what}.",
                expected="queries of the new model, and --texts TEXTS, --rescore-data DATA or --rescore-with VECTORS "
                "to embed candidates with",
            )
        first = None if self.old is None else self._first(query, self.old).opened(gallery, sets)
        return Rescoring(source, self.rescore, first, self.rescore_budget)

    def _source(self, query: Queries, texts: str | None) -> NewVectors:
        """Return where vectors of candidates come from: stored ones, or the model of the queries and the items."""
        if self.rescore_with is not None:
            self.rescore_with.refuse_unless("vectors", what="candidates")
            return NewVectors(model=self.rescore_with, name=query.name)
        items = self.rescore_data or query.data
        model = {name: getattr(query, name) for name in Embedding.__dataclass_fields__}
        return (
            NewVectors(**model, data=items, texts=texts if items is None else None) if items or texts else NewVectors()
        )

    def _first(self, query: Queries, old: Model) -> Queries:
        if old.vectors is not None:
            return Queries(queries=old.vectors, name=self.old_name)
        return replace(query, model=old, over=None, model_options={})


def search(
    gallery: GalleryUrl,
    *,
    query: Queries = Queries(),
    second: SecondStage = SecondStage(),
    sets: DataSets = DataSets(),
    k: int = 10,
    where: list[str] = [],
    texts: str | None = None,
    approximate: Annotated[bool, RARE] = False,
    count_traffic: Annotated[bool, RARE] = False,
) -> int:
    """Find the nearest items to queries, among all vectors that queries of their model may search.

    --json prints hits with generation, metadata and text, and the number of items that can be found.

    Args:
        k: Number of hits per query.
        where: Metadata filters that must all match, each in quotes: "price<10" "label=red", or "label IN ('red',
            'blue') AND NOT price BETWEEN 10 AND 20 AND exists(colour)".
        texts: Texts of the items, by name or a .csv, .parquet, .jsonl or .txt file: printed beside the ids, and
            embedded for --rescore.
        approximate: Use approximate indexes where they exist. Default: compare every vector.
        count_traffic: Count the hits, for a backfill with --order traffic.

    Examples:
        limpet gallery search live --text "my parcel did not come" --model st:models/v1
            --texts requests.csv
        limpet gallery search live --like 17 --where "price<10"
        limpet gallery search live --text "my parcel did not come" --model st:models/v2 --old st:models/v1
            --rescore 100 --texts requests.csv
    """
    from limpet.engines.where import read_filter

    count_of("--k", k)
    query.refuse_several()
    with gallery.opened() as it:
        it.count_traffic = count_traffic
        conditions = read_filter(where, it.state.columns)
        asked, more = query.opened(it, sets), int(query.like is not None)  # an item finds itself first
        rescore = second.opened(it, query, texts, sets)
        found = it.search(asked, k + more, where=conditions, exact=not approximate, rescore=rescore)
    if more:
        found = replace(found, hits=[[hit for hit in found.hits[0] if hit.id != query.like][:k]])
    known = {} if texts is None else query.texts_of(texts, found, sets)
    _tell(asked, found, known)
    if as_json():
        print_json(_document(asked, found, known))
    return 0


def _stored(gallery: Gallery, identifier: str) -> EmbeddingSet:
    """Return the stored vector of an item as a query: that of the active model, or else the newest."""
    from limpet.embeddings import EmbeddingSet, StringArray

    state = gallery.state
    names = [state.active, *reversed([one for one in state.by_name if one != state.active])]
    for generation in (state.by_name[name] for name in names):
        ids, form = gallery.store.vectors(generation.name, [identifier])
        if ids:
            points = np.ascontiguousarray(generation.geometry.from_index_form(form), np.float32)
            return EmbeddingSet(points, StringArray.of(ids), generation.fingerprint, generation.geometry)
    raise ConfigError(
        f"There is no item '{identifier}' with a vector.",
        expected="an id of the gallery",
        to_do="`limpet gallery export` lists them.",
    )


def _files(paths: list[Path], spec: EncoderSpec) -> ImageSet:
    """Return files as images that an encoder takes."""
    from limpet.data.image_set import ImageSet
    from limpet.data.images import FileImages
    from limpet.embeddings import StringArray

    missing = [str(path) for path in paths if not path.is_file()]
    refuse(bool(missing), f"There is no '{', '.join(missing)}'.", "files of images")
    shape = spec.input_shape
    labels = np.zeros(len(paths), np.int64)
    return ImageSet(FileImages(paths, shape, fit=spec.fit), labels, ("",), StringArray.of(map(str, paths)))


def _tell(asked: EmbeddingSet, found: Reply, texts: Mapping[str, str]) -> None:
    several = len(found.hits) > 1
    shown = max(1, ROWS_SHOWN // max(1, max(map(len, found.hits), default=1)))
    columns = sorted({name for hits in found.hits[:shown] for hit in hits for name in hit.metadata})
    rows = [
        [*([name] if several else []), str(rank), hit.id, f"{hit.score:.4f}", hit.generation,
         *(_shown(hit.metadata.get(column)) for column in columns), *([texts.get(hit.id, "")] if texts else [])]
        for name, hits in zip(asked.ids[:shown] if several else asked.ids, found.hits, strict=False)
        for rank, hit in enumerate(hits, 1)
    ]  # fmt: skip
    title = f"Nearest to '{asked.ids[0]}'" if not several else f"Nearest to {len(found.hits):,} queries"
    print_table(title, [*(["query"] if several else []), "rank", "item", "score", "generation", *columns,
                        *(["text"] if texts else [])], rows)  # fmt: skip
    if len(found.hits) > shown:
        console.print(f"and {len(found.hits) - shown:,} more queries; --json has all.")
    console.print(
        f"Searched {found.covered:,} of {found.items:,} items, by vectors of {', '.join(found.sources)}"
        + ("." if found.merge in ("score", "rescored") else f", in one list by {found.merge}.")
    )
    if found.merge == "rescored":
        console.print(
            f"{found.sources[0]} scored the candidates again: {found.embedded:,} were embedded for it, and "
            f"{found.kept:,} of their vectors kept."
        )
    if found.uncovered:
        console.print(f"{found.uncovered:,} items have no vector that these queries may search.")


def _shown(value: object) -> str:
    """Write a value of a metadata column; nothing where there is none."""
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _document(asked: EmbeddingSet, found: Reply, texts: Mapping[str, str]) -> dict[str, object]:
    hits = [
        [{**vars(hit), "metadata": dict(hit.metadata), **({"text": texts.get(hit.id)} if texts else {})}
         for hit in of_query]
        for of_query in found.hits
    ]  # fmt: skip
    return {
        "queries": [{"id": name, "hits": of_query} for name, of_query in zip(asked.ids, hits, strict=True)],
        **{
            name: getattr(found, name)
            for name in ("fingerprint", "active", "covered", "items", "sequence", "merge", "embedded", "kept")
        },
        "sources": list(found.sources),
    }
