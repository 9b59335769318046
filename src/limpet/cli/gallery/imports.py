"""``limpet gallery import``: vectors that are there already, from files, LanceDB and PostgreSQL, or made now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.common import command, made_by, open_vectors
from limpet.cli.gallery.options import WAIT, GalleryUrl
from limpet.cli.gallery.sources import TO_EMBED, Embedder, fingerprints_of
from limpet.cli.options import DataSets, leaving_out
from limpet.cli.parameters import RARE, Options, as_typed
from limpet.cli.places import Place
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, refuse, shown, without_secrets

if TYPE_CHECKING:
    from limpet.engines.sources import Address, Source
    from limpet.galleries import Gallery
    from limpet.galleries.transfer import Imported
    from limpet.upgrade.vector_sources import EmbeddedItems

Found: TypeAlias = "EmbeddingSet | EmbeddedItems | Source"

EMBEDDED_AT_ONCE = 2000  # items of one commit where a model embeds them now


@dataclass(frozen=True)
class Items(Embedder):
    """Source of the items: embeddings, a table, or a model that embeds texts or images now.

    Args:
        embeddings: Embeddings: a folder of `limpet embed` (its gallery), a folder of .parquet files, one .safetensors,
            .npz, .npy or .parquet file, or the URL of a table or collection, such as
            postgresql://USER@HOST/DATABASE?table=items or lance:FOLDER#TABLE.
        take: Columns of a table to keep as metadata: title, or price=unit_price to rename it. Default: all possible
            columns; for an existing gallery, all with the name of one of its columns.
        name: Name of the model that made the vectors, if they do not store it; or a generation of the gallery, such as
            g1.
        skip_unusable: Skip items whose vector is zero, NaN or infinite, and list their ids.
    """

    embeddings: Place | None = None
    take: list[str] = field(default_factory=list)
    name: str | None = None
    skip_unusable: Annotated[bool, RARE] = False

    @property
    def embeds(self) -> bool:
        """Whether a model embeds the items now."""
        return self.data is not None or self.texts is not None

    @property
    def table(self) -> Address | None:
        """Where the table is whose columns are chosen by name; None of what is none."""
        from limpet.engines.address import Address

        if self.embeddings is None or self.embeddings.address is not None:
            return None if self.embeddings is None else self.embeddings.address
        return Address("parquet", self.embeddings.given) if is_parquet(self.embeddings.path) else None

    @property
    def columns(self) -> dict[str, str] | None:
        """The table's column by the gallery's name for it; None where nothing was chosen."""
        return taken(self.take)

    def opened(self, fingerprint: str | None, sets: DataSets, known: Sequence[str] = ()) -> Found:
        """Open the embeddings, the table, or the items that are to be embedded.

        Args:
            fingerprint: Of the model that made vectors which do not say so.
            known: Fingerprints that such a model may have already.

        Raises:
            ConfigError: No place was named, or several.
            DataError: A file is damaged.
        """
        places = {"embeddings": self.embeddings, "texts": self.texts, "data": self.data}
        given = [f"--{name}" for name, value in places.items() if value is not None]
        refuse(len(given) != 1, f"{' and '.join(given) or 'Nothing'} given to import.",
               f"one of: --embeddings FILE_OR_FOLDER_OR_URL; {TO_EMBED}")  # fmt: skip
        refuse(not self.embeds and self.model is not None, f"{given[0]} with --model {self.model}.",
               "either vectors that are there, or --texts or --data for a model to embed")  # fmt: skip
        if self.embeds:
            refuse(self.name is not None, f"--name {self.name} with {given[0]}.",
                   "it only for vectors made elsewhere")  # fmt: skip
            return self.items(sets, known)
        if self.table is not None:
            from limpet.engines.sources import open_source

            return open_source(self.table)
        place = self.embeddings or Place(".")
        return open_vectors(place, fingerprint=fingerprint, skip_unusable=self.skip_unusable)

    def added(self, gallery: Gallery, found: Found, fingerprint: str | None, commits: Commits) -> Imported:
        """Add what was opened to a gallery, showing progress.

        Args:
            found: What `opened` returned.
            fingerprint: As there.

        Raises:
            ConfigError: Neither a table nor anybody says which model made its vectors.
            DataError: An id is there already, unless those are skipped.
        """
        from limpet.galleries.transfer import import_table
        from limpet.upgrade.vector_sources import EmbeddedItems

        if isinstance(found, EmbeddedItems):
            commits = replace(commits, batch=min(commits.batch, EMBEDDED_AT_ONCE))
            return add_set(gallery, found, str(self.texts or self.data), commits)
        if isinstance(found, EmbeddingSet):
            return add_set(gallery, found, str(self.embeddings), commits)
        fingerprint = fingerprint or made_by(gallery.state, found.address.model)
        if fingerprint is None and not (found.record or {}).get("fingerprint"):
            from limpet.engines.reading import unnamed

            raise unnamed(found.name)
        with leaving_out(found.name, self.skip_unusable) as unusable, progress_bar("importing", found.rows) as bar:
            return import_table(
                gallery, found, fingerprint=fingerprint, columns=self.columns,
                skip_existing=commits.skip_existing, batch=commits.batch, unusable=unusable,
                progress=bar,
            )  # fmt: skip

    def left_out(self, found: Found, columns: Iterable[str]) -> list[str]:
        """Return the columns, and labels of sets, that were not chosen and are left out of the gallery."""
        from limpet.engines.source import roles_of
        from limpet.upgrade.vector_sources import EmbeddedItems

        if isinstance(found, EmbeddingSet | EmbeddedItems):
            return unknown_columns(found, columns)
        roles = roles_of(found)
        used = {*columns, roles.id, roles.vector}
        return [] if self.take else [name for name in found.schema if name not in used]

    def typed(self) -> list[str]:
        """Return the options that name all this, without a password."""
        words: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in self.changed and one.name != "skip_unusable":
                words += [as_typed(one.name), *(value if one.name == "take" else [without_secrets(str(value))])]
        return words


@dataclass(frozen=True)
class Commits(Options):
    """Options for writing items.

    Args:
        skip_existing: Skip items that the gallery already contains.
        batch: Items per commit.
    """

    skip_existing: bool = False
    batch: Annotated[int, RARE] = 10_000


def import_rows(
    gallery: GalleryUrl,
    *,
    source: Items = Items(),
    sets: DataSets = DataSets(),
    commits: Commits = Commits(),
) -> int:
    """Add items from a file of embeddings, a Parquet file or folder, or the URL of a table or collection.

    Texts or images can be imported as well; a model embeds them now.

    Rows are read and written in batches. To resume an interrupted import, repeat the command with --skip-existing.
    Labels and further columns are imported if the gallery has columns of the same names.

    Examples:
        limpet gallery import live --embeddings runs/more
        limpet gallery import live --embeddings 'postgresql://me@host/shop?table=items' --name v1
        limpet gallery import live --texts more.csv --model package:wordllama
    """
    with gallery.opened(WAIT) as it:
        fingerprint = made_by(it.state, source.name)
        try:
            found = source.opened(fingerprint, sets, fingerprints_of(it))
            refuse(bool(source.take) and source.table is None, "--take for a file of embeddings.",
                   "it only with URLs and Parquet files")  # fmt: skip
            done = source.added(it, found, fingerprint, commits)
            passed = source.left_out(found, it.state.columns)
        except KeyboardInterrupt:
            console.print("\nInterrupted. What was written is kept; the same command with --skip-existing continues.")
            return 130
        items = len(it)
    source.tell()
    tell_left_out(passed)
    tell(done, items, gallery)
    print_json({**vars(done), "source": without_secrets(done.source), "items": items})
    return 0


def unknown_columns(found: EmbeddingSet | EmbeddedItems, columns: Iterable[str]) -> list[str]:
    """Return what a set says of its items and a gallery with these columns does not keep: "label", and its columns."""
    has = [*([] if found.labels is None else ["label"]), *found.columns]
    return [name for name in has if name not in columns]


def tell_left_out(names: Sequence[str]) -> None:
    """Say what the gallery has no columns for, if anything, and how a gallery has them."""
    if names:
        console.print(
            f"Not taken, since the gallery has no columns of these names: {shown(names)}. Columns are declared when a "
            "gallery is made: `limpet gallery create` takes those of the items that it is given, or --columns "
            f"{names[0]}=text."
        )


def is_parquet(path: Path) -> bool:
    """Return whether this is a Parquet file, or a folder of such files."""
    return (path.is_file() and path.suffix == ".parquet") or (path.is_dir() and any(path.glob("*.parquet")))


def taken(words: list[str]) -> dict[str, str] | None:
    """Return the table's column by the gallery's name for it; None where nothing was chosen.

    >>> taken(["title", "price=unit_price"]), taken([])
    ({'title': 'title', 'price': 'unit_price'}, None)
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, column = word.partition("=")
        refuse(not name or bool(sign and not column), f"--take {word}.", "COLUMN, or NAME=COLUMN to call it otherwise")
        refuse(name in found, f"--take {' '.join(words)}.", f"'{name}' once")
        found[name] = column or name
    return found or None


def add_set(gallery: Gallery, embeddings: EmbeddingSet | EmbeddedItems, name: str, commits: Commits) -> Imported:
    """Add a set of embeddings commit by commit, showing progress; items that are there already are not embedded.

    Raises:
        DataError: An id is there already, unless those are skipped.
    """
    from limpet.galleries.transfer import Imported

    batch = commits.batch
    refuse(not 1 <= batch <= 50_000, f"--batch {batch}.", "1 to 50,000 items")
    if not len(embeddings):
        raise DataError(
            f"'{name}' has no items.", expected="at least one", to_do="embed some.", intact="Nothing was changed."
        )
    written = 0
    with progress_bar("importing", len(embeddings)) as bar:
        for start in range(0, len(embeddings), batch):
            ids = list(embeddings.ids[start : start + batch])
            there = set(gallery.store.fetch(ids).ids)
            if there and not commits.skip_existing:
                raise _known(sorted(there), name, written)
            rows = np.array([row for row, one in enumerate(ids, start) if one not in there], np.int64)
            written += gallery.add(embeddings[rows]) if len(rows) else 0
            bar({"done": start + len(ids)})
    return Imported(f"'{name}'", len(embeddings), written, len(embeddings) - written)


def _known(ids: list[str], name: str, written: int) -> DataError:
    kept = f"The {written:,} items written before are in the gallery." if written else "Nothing was written."
    return DataError(
        f"'{name}': {len(ids)} ids are in the gallery already: {shown(ids)}.",
        expected="new ids",
        to_do="--skip-existing passes over them; `limpet gallery upsert` replaces them.",
        intact=kept,
    )


def tell(done: Imported, items: int, url: str) -> None:
    """Say what was imported, and what to type next."""
    skipped = f", {done.skipped:,} were there already" if done.skipped else ""
    console.print(f"{done.written:,} items from {without_secrets(done.source)}{skipped}; {items:,} in the gallery.")
    console.print(f"Next: {command('gallery status', url)}")
