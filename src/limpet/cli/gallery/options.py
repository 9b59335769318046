"""Groups of options that several commands of ``limpet gallery`` share, each with what it means for them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from limpet.cli.gallery.common import DECLARED, Model, command, name_of, open_vectors
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.errors import ConfigError, LimpetError, refuse, without_secrets
from limpet.models.names import called

if TYPE_CHECKING:
    from limpet.galleries import Gallery
    from limpet.stores.base import Graph


def _gallery(kind: Any, tokens: Any) -> GalleryUrl:
    return GalleryUrl(tokens[0].value)


@Parameter(
    converter=_gallery,
    accepts_keys=False,
    n_tokens=1,
    help="Folder (LanceDB), memory:FOLDER (all vectors in RAM, kept in one file), or a database with pgvector, "
    "postgresql://USER@HOST/DATABASE?schema=NAME.",
)
class GalleryUrl(str):
    """Where a gallery is, as a person gave it; may hold a password."""

    @contextmanager
    def opened(self, wait: float | None = None) -> Iterator[Gallery]:
        """Open the gallery for a while. Errors say what is intact, and what to type.

        Args:
            wait: Seconds to wait for another writer; None for a command that changes nothing.
        """
        from limpet.galleries import Gallery

        refuse(wait is not None and wait < 0, f"--wait {wait}.", "at least 0 seconds")
        with self.assured("Nothing was changed." if wait is None else "The gallery is intact."):
            self.refuse_in_ram()
            with Gallery.open(self, timeout=10.0 if wait is None else wait) as it:
                yield it

    @contextmanager
    def assured(self, intact: str) -> Iterator[None]:
        """Let errors say what is intact and what to type, where they do not say it themselves."""
        try:
            yield
        except ConfigError:  # which comes before any work
            raise
        except LimpetError as error:
            error.to_do = error.to_do or f"`{command('status', self)}` says where the gallery stands."
            error.intact = error.intact or intact
            raise

    def refuse_in_ram(self) -> None:
        """Refuse a gallery that would end with the command."""
        refuse(self == "memory://", "A gallery in RAM alone, which ends with this command.",
               "memory:FOLDER, which is kept; memory:// is for programs")  # fmt: skip
        _refuse_table(self)


Wait = Annotated[float, RARE, Parameter(help="Seconds to wait for another writer.")]


_ATTACHED = {
    "postgresql": "a table of PostgreSQL",
    "qdrant": "a collection of Qdrant",
    "milvus": "a collection of Milvus",
}
_READ = {"faiss": "an index of FAISS", "parquet": "a file of Parquet", "lance": "a table of LanceDB"}


def _refuse_table(url: str) -> None:
    """Refuse the URL of a table that an application owns, which other commands are for.

    Raises:
        ConfigError: It is one.
    """
    kind = url.partition(":")[0].partition("+")[0].lower().replace("postgresql", "postgres")
    named = {"postgres": "table=" in url, "lance": "#" in url or "table=" in url}.get(
        kind, kind in {**_ATTACHED, **_READ}
    )
    if not named or Path(url).exists():  # nearly always, and nothing is imported
        return
    from limpet.sources import address_of

    try:
        address = address_of(url)
    except ConfigError:  # of a gallery, or of nothing: who opens it says so
        return
    gallery = address is not None and address.scheme in ("postgresql", "lance") and not address.table
    if address is None or gallery or address.scheme not in {**_ATTACHED, **_READ}:
        return
    said = shlex.quote(without_secrets(url))
    raise ConfigError(
        f"{without_secrets(url)} is {(_ATTACHED | _READ)[address.scheme]}, and no gallery.",
        expected="a gallery: PATH, lance:PATH, memory:PATH or postgresql://USER@HOST/DATABASE without table=",
        to_do=f"examine it with `limpet attach verify {said}`; plan its upgrade with `limpet attach start {said} "
        "--text-model MODEL --dry-run`; or copy it into a gallery: `limpet gallery import`."
        if address.scheme in _ATTACHED
        else f"copy it into a gallery, `limpet gallery import GALLERY --embeddings {said}`.",
    )


@dataclass(frozen=True)
class GraphOptions(Options):
    """How approximate indexes are built and searched, in PostgreSQL (HNSW); 16, 64 and 100 when never said.

    Args:
        m: Links of every row, 2 to 100: more find more, in a larger index.
        ef_construction: Rows that are looked at to link one, twice m to 1,000: more find more, built in longer.
        ef_search: Rows that a search looks at, 1 to 1,000; at least two for each hit.
    """

    m: Annotated[int | None, RARE] = None
    ef_construction: Annotated[int | None, RARE] = None
    ef_search: Annotated[int | None, RARE] = None

    def graph(self, before: Graph | None = None) -> Graph | None:
        """Return what was said, and for the rest what was before; None where nothing was said."""
        from limpet.stores.base import Graph

        said = {name: value for name, value in vars(self).items() if value is not None}
        return replace(before or Graph(), **said) if said else None


@dataclass(frozen=True)
class NewModel(Options):
    """The model whose vectors the gallery is to hold.

    Args:
        release: Its release: a folder; or hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet train --model` takes them.
        model: What you call the model of vectors made elsewhere, with --dim; or of an .npz, .npy or .parquet file or a
            URL.
        dim: Dimension of those vectors.
    """

    release: Path | None = None
    model: str | None = None
    dim: int | None = None

    @property
    def declared(self) -> str | None:
        """The fingerprint of a model that has only the name which a person gives it."""
        return None if self.model is None else f"{DECLARED}{self.model}"

    def identity(self, embeddings: Place | None = None) -> Model:
        """Return the model that exactly one way of naming it gives.

        Args:
            embeddings: A file, folder or source of its embeddings.

        Raises:
            ConfigError: None or several ways were given, or a part is missing.
        """
        by_name = self.model is not None and embeddings is None
        ways = sum([self.release is not None, by_name, embeddings is not None])
        refuse(
            ways != 1,
            "Several models were named." if ways else "No model was named.",
            "--release FOLDER; or --embeddings FILE_OR_FOLDER; or --model NAME --dim D for vectors made elsewhere "
            "(a file, a folder, or the URL of a table or collection)",
        )
        refuse(
            self.dim is not None and not by_name,
            f"--dim {self.dim}.",
            "it only with --model NAME; others say it themselves",
        )
        if self.release is not None:
            from limpet.models.named_models import known_of

            known = known_of(self.release)
            return Model(known.fingerprint, known.space, called(self.release))
        if embeddings is not None:
            found = open_vectors(embeddings, fingerprint=self.declared)
            return Model(found.fingerprint, found.space, self.model or name_of(embeddings))
        dim = self.dim or 0
        refuse(dim < 1, f"--model {self.model} {'without --dim' if self.dim is None else f'--dim {dim}'}.",
               "the dimension of its vectors: --dim D, at least 1")  # fmt: skip
        from limpet.geometry import Hypersphere

        return Model(str(self.declared), Hypersphere(dim), str(self.model))


@dataclass(frozen=True)
class Encoding(Options):
    """What embeds.

    Args:
        release: A release: over images a folder, or hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet train --model` takes
            them; over texts a head over a frozen model.
        encoder: FILE.py:FUNCTION, which gives the module of yours that the release was made of; its folder holds no
            code.
        text_model: Frozen model that embeds texts, openai:MODEL@BASE_URL for one behind an API; a head names its own.
        max_length: Tokens that count of every text.
        truncate_dim: Keep so many of the first values of every vector of a text.
        on_long: What becomes of texts with more tokens than the model reads: warn cuts them and says how many, fail
            refuses them, chunk-mean embeds the mean of their windows.
        device: Where to compute: cpu, cuda, cuda:1, mps.
    """

    release: Path | None = None
    encoder: Annotated[str | None, RARE] = None
    text_model: str | None = None
    max_length: Annotated[int | None, RARE] = None
    truncate_dim: Annotated[int | None, RARE] = None
    on_long: Annotated[str | None, RARE] = None
    device: Annotated[str, RARE] = "cpu"


@dataclass(frozen=True)
class Embedding(Encoding):
    """What embeds, or embedded.

    Args:
        model: What you call the model of .npz, .npy and .parquet files; or a generation, such as g1.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
    """

    model: str | None = None
    cast: Annotated[bool, RARE] = False


@dataclass(frozen=True)
class Links(Options):
    """What lets queries of a new model search the vectors that are there.

    Args:
        report: results.json of `limpet evaluate`, or its folder: whether new queries may search vectors that are
            there.
        adapter: Folder of an adapter that `limpet adapt` fitted between the active and the new model: it maps new
            queries, or all stored vectors now.
        score_map: With an adapter of queries: a file like score_map.json that takes scores on old vectors to those on
            new ones, so that both lists become one by score; they are merged by rank when left out.
    """

    report: list[Path] = field(default_factory=list)
    adapter: Path | None = None
    score_map: Annotated[Path | None, RARE] = None

    def __post_init__(self) -> None:
        alone = self.score_map is not None and self.adapter is None
        refuse(alone, "--score-map without --adapter.", "both, or neither")


@dataclass(frozen=True)
class Spending(Options):
    """What may be spent; `limpet gallery plan` says how far it reaches.

    Args:
        price_per_thousand: Of embedding 1,000 items, in any currency.
        max_cost: With it: embed at most for so much.
        seconds: Begin no further batch after so many seconds.
    """

    price_per_thousand: float | None = None
    max_cost: float | None = None
    seconds: Annotated[float | None, RARE] = None

    def items(self, budget: int | None) -> int | None:
        """Return how many items a number and a sum of money allow; None for as many as there are.

        >>> Spending(0.02, 1.0).items(None), Spending(0.02, 1.0).items(100), Spending().items(100)
        (50000, 100, 100)

        Raises:
            ConfigError: A number is out of range, or money without a price.
        """
        price, cost = self.price_per_thousand, self.max_cost
        refuse(budget is not None and budget < 0, f"--budget {budget}.", "at least 0 items")
        refuse(price is not None and not 0 < price < math.inf, f"--price-per-thousand {price}.", "a number above 0")
        refuse(cost is not None and not 0 <= cost < math.inf, f"--max-cost {cost}.", "a number of at least 0")
        refuse(cost is not None and price is None, "--max-cost without a price.", "--price-per-thousand, too")
        by_cost = [] if cost is None or price is None else [math.floor(1000 * cost / price)]
        return min([*([] if budget is None else [budget]), *by_cost], default=None)

    def cost(self, items: int) -> float | None:
        """Return what embedding so many items costs; None without a price."""
        return None if self.price_per_thousand is None else items * self.price_per_thousand / 1000
