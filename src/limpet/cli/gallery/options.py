"""Groups of options that several commands of ``limpet gallery`` share, each with what it means for them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from limpet.cli.gallery.common import DECLARED, Identity, command, name_of, open_vectors
from limpet.cli.models import Model, Opening
from limpet.cli.parameters import RARE, Named, Options, of_one_word
from limpet.errors import ConfigError, LimpetError, refuse, without_secrets
from limpet.models.names import OF_TEXTS
from limpet.support.options import bound

if TYPE_CHECKING:
    from limpet.engines.address import Address
    from limpet.engines.store import Graph
    from limpet.galleries import Gallery


@Parameter(
    converter=of_one_word,
    accepts_keys=False,
    n_tokens=1,
    help="Folder (LanceDB), memory:FOLDER (all vectors in RAM, kept in one file), or a database with pgvector, "
    "postgresql://USER@HOST/DATABASE?schema=NAME; or sharded:FILE, a list of folders.",
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

        with self.assured("Nothing was changed." if wait is None else "The gallery is intact."):
            self.refuse_in_ram()
            with Gallery.open(self, timeout=WAIT if wait is None else wait) as it:
                yield it

    @contextmanager
    def assured(self, intact: str) -> Iterator[None]:
        """Let errors say what is intact and what to type, where they do not say it themselves."""
        try:
            yield
        except ConfigError:  # which comes before any work
            raise
        except LimpetError as error:
            error.to_do = error.to_do or f"`{command('gallery status', self)}` says where the gallery stands."
            error.intact = error.intact or intact
            raise

    def refuse_in_ram(self) -> None:
        """Refuse a gallery that would end with the command."""
        refuse(self == "memory://", "A gallery in RAM alone, which ends with this command.",
               "memory:FOLDER, which is kept; memory:// is for programs")  # fmt: skip
        _refuse_own_index(self)


WAIT = 10.0
"""Seconds to wait for another writer."""


def own_index(url: str) -> Address | None:
    """Return the address of a table, a collection or a file of vectors; None of a gallery, or of nothing."""
    from limpet.engines.address import scheme_of

    kind = scheme_of(url)
    if kind is None or kind == "memory":  # nearly always, and nothing is imported
        return None
    from limpet.engines.sources import SOURCES, address_of

    address = None
    with suppress(ConfigError):  # of a gallery, or of nothing: who opens it says so
        address = address_of(url)
    if address is None or kind not in SOURCES or (kind in ("postgresql", "lance") and not address.table):
        return None
    return address


def _refuse_own_index(url: str) -> None:
    """Refuse the URL of a table, a collection or a file, which other commands are for.

    Raises:
        ConfigError: It is one.
    """
    from limpet.attached.opening import is_attached

    if own_index(url) is None:
        return
    said = shlex.quote(without_secrets(url))
    upgrade = f"upgrade it where it is, `limpet upgrade plan {said} --model MODEL`; or " * is_attached(url)
    raise ConfigError(
        f"{without_secrets(url)} is a table, a collection or a file of vectors, and no gallery.",
        expected="a gallery: PATH, lance:PATH, memory:PATH, sharded:FILE, s3://BUCKET/PREFIX?ledger=…, or "
        "postgresql://USER@HOST/DATABASE without table=",
        to_do=f"{upgrade}copy it into a gallery, `limpet gallery import GALLERY --embeddings {said}`; "
        f"`limpet doctor {said}` looks for what is wrong.",
    )


@dataclass(frozen=True)
class GraphOptions(Options):
    """Options of approximate indexes.

    Args:
        graph: Options of HNSW indexes in PostgreSQL, such as --graph.m 24: m, links per row; ef-construction, rows
            examined to link a row; ef-search, rows examined by a search. Higher values find more, with a larger index
            or more time. Defaults: 16, 64 and 100.
    """

    graph: Annotated[Named, RARE] = field(default_factory=dict)

    def chosen(self, before: Graph | None = None) -> Graph | None:
        """Return what was said, and for the rest what was before; None where nothing was said."""
        from limpet.engines.store import Graph

        return replace(before or Graph(), **bound(Graph, self.graph, "approximate index")) if self.graph else None


@dataclass(frozen=True)
class NewModel(Opening):
    """The model of the gallery's vectors.

    Args:
        model: The new model: SCHEME:PLACE, such as release:FOLDER or st:NAME; or its stored vectors, of which only the
            model's identity is read.
        name: Name of a model that limpet cannot open: with its stored vectors, or alone with --dim.
        dim: Dimension of its vectors, if none are given.
    """

    model: Model | None = None
    name: str | None = None
    dim: int | None = None

    @property
    def declared(self) -> str | None:
        """The fingerprint of a model that has only the name which a person gives it."""
        return None if self.name is None else f"{DECLARED}{self.name}"

    def identity(self) -> Identity:
        """Return the model that exactly one way of naming it gives.

        Raises:
            ConfigError: None or several ways were given, or a part is missing.
        """
        vectors = None if self.model is None else self.model.vectors
        if self.model is None or self.model.vectors is not None:
            refuse(
                self.model is None and self.name is None,
                "No model was named.",
                "--model SCHEME:PLACE; or vectors that it made, --model FILE_OR_FOLDER; or --name NAME --dim D for a "
                "model that only you know",
            )
        else:
            refuse(self.name is not None, f"--name {self.name} with --model {self.model}.", "it only with vectors")
        refuse(
            self.dim is not None and self.model is not None,
            f"--dim {self.dim}.",
            "it only with --name NAME alone; models and vectors say it themselves",
        )
        if vectors is not None:
            found = open_vectors(vectors, fingerprint=self.declared)
            return Identity(found.fingerprint, found.space, self.name or name_of(vectors))
        if self.model is not None:
            return Identity(*self.identify(self.model), note_of(self.model))
        dim = self.dim or 0
        refuse(dim < 1, f"--name {self.name} {'without --dim' if self.dim is None else f'--dim {dim}'}.",
               "the dimension of its vectors: --dim D, at least 1")  # fmt: skip
        from limpet.geometry import Hypersphere

        return Identity(str(self.declared), Hypersphere(dim), str(self.name))


def note_of(model: Model) -> str:
    """Return what a gallery notes of a model: of a frozen text model all of its name, by which it is opened again."""
    return str(model) if model.scheme in OF_TEXTS else model.short


@dataclass(frozen=True)
class Links(Options):
    """Links that let queries of a new model search existing vectors.

    Args:
        evidence: results.json of `limpet evaluate`, or its folder, which shows that new queries can search existing
            vectors.
        link: Folder of an adapter that `limpet adapt` fitted between the active and the new model. It maps every new
            query, or all stored vectors at the start.
        score_map: With an adapter of queries: score_map.json, which maps scores on old vectors to scores on new ones,
            to merge both result lists by score. Default: merge them by rank.
    """

    evidence: list[Path] = field(default_factory=list)
    link: Path | None = None
    score_map: Annotated[Path | None, RARE] = None

    def __post_init__(self) -> None:
        alone = self.score_map is not None and self.link is None
        refuse(alone, "--score-map without --link.", "both, or neither")


@dataclass(frozen=True)
class Spending(Options):
    """Limits on the cost of embedding.

    Args:
        price_per_thousand: Price of embedding 1,000 items, in any currency.
        max_cost: Maximum cost of embedding, in the same currency.
    """

    price_per_thousand: float | None = None
    max_cost: float | None = None

    def items(self, budget: int | None) -> int | None:
        """Return the number of items that a number and a cost allow; None without a limit.

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
        """Return the cost of embedding this many items; None without a price."""
        return None if self.price_per_thousand is None else items * self.price_per_thousand / 1000
