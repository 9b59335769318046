"""The live gallery: write, search, and the steps of an upgrade.

Everything that can be known about a gallery is behind one pointer of its store; this class turns what people ask for
into one commit each, or into searches at one pointer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, GalleryError, HoldfastError, SpaceMismatchError, StoreError, count_of
from holdfast.galleries import writes
from holdfast.galleries.backup import Backup, back_up
from holdfast.galleries.base import Progress
from holdfast.galleries.router import Reply, generation_of, merged, route
from holdfast.galleries.state import GalleryState, Generation, Link
from holdfast.galleries.steps import UpgradeSteps
from holdfast.geometry import Space
from holdfast.stores import open_store
from holdfast.stores.base import Changes, NewGeneration, Pointer, Store
from holdfast.stores.disk import Disk
from holdfast.stores.filters import Condition, checked
from holdfast.stores.forks import at_fork

Metadata = Mapping[str, Sequence[Any]]

TRAFFIC_AT_ONCE = 1000  # retrieved items counted before they are written


class Gallery(UpgradeSteps):
    """One gallery in one store; any number of processes may open it.

    Use `Gallery.create` or `Gallery.open`.

    Args:
        store: Where it is kept.
        count_traffic: Count how often items are retrieved, for a backfill that starts with the most retrieved.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, store: Store, *, count_traffic: bool = False, timeout: float = 10.0) -> None:
        super().__init__(store, timeout=timeout)
        self.count_traffic = count_traffic
        self._start_counting()
        at_fork(self, in_child=Gallery._start_counting)

    def _start_counting(self) -> None:
        """Count from nothing; in a forked child, since its parent writes what it has counted."""
        self._retrieved: Counter[str] = Counter()

    @classmethod
    def create(
        cls,
        url: str,
        *,
        fingerprint: str,
        space: Space,
        columns: Mapping[str, str] | None = None,
        note: str = "",
        disk: Disk | None = None,
        **options: Any,
    ) -> Gallery:
        """Create an empty gallery.

        Args:
            url: A folder for the embedded store (LanceDB), ``memory:FOLDER`` for one held in memory, ``memory://`` for
                one that vanishes with the process, or ``postgresql://…``.
            fingerprint: Of the model whose vectors come first.
            space: Its space.
            columns: Metadata columns: "text", "integer", "number" or "truth", by name.
            note: What people call the model.
            disk: What makes files durable; see `Disk`.
            **options: See `Gallery`.

        Raises:
            GalleryError: There is a gallery already, or something else.
            ConfigError: An unknown kind of store or column type.
        """
        types = writes.checked_columns(columns or {})
        gallery = cls(_new_store(url, disk or Disk()), **options)
        generation = writes.new_generation(GalleryState(), fingerprint, space, note)
        event = {"kind": "create", "generation": generation, "columns": types}
        created = NewGeneration(generation["name"], space.index_dim, types)
        with gallery.store.writing("create", timeout=gallery.timeout) as pointer:
            if pointer.sequence:
                raise GalleryError(f"'{url}' holds a gallery already.", expected="a new place", to_do="open it.")
            gallery._commit(GalleryState(), event, Changes(create=[created]))
        return gallery

    @classmethod
    def open(cls, url: str, *, disk: Disk | None = None, **options: Any) -> Gallery:
        """Open a gallery; see `create` for the arguments.

        Raises:
            GalleryError: There is none, or one of another format version.
        """
        store = open_store(url, disk=disk or Disk())
        if not store.pointer().sequence:
            store.close()
            raise GalleryError(
                f"The gallery at '{url}' was not finished when it was created; it holds nothing.",
                expected="one that was created",
                to_do=f"`holdfast gallery create {url}` finishes it.",
            )
        return cls(store, **options)

    def backup(self, dest: str | Path, *, on_step: Progress | None = None) -> Backup:
        """Write everything that there is at one commit into a new folder, while others write; see `back_up`."""
        return back_up(self.store, dest, on_step=on_step)

    def close(self) -> None:
        """Write what was counted, and let go of files and connections."""
        self._write_traffic()
        self.store.close()

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        pointer, state = self.now()
        return f"Gallery({self.store.url}, {pointer.items} items, {state.phase}, active {state.active})"

    # Rows

    def add(self, *sets: EmbeddingSet, metadata: Metadata | None = None, on_step: Progress | None = None) -> int:
        """Add items that the gallery does not have; see `upsert`.

        Raises:
            DataError: An id is there already.
        """
        return writes.write(self, "add", sets, metadata, on_step)

    def upsert(self, *sets: EmbeddingSet, metadata: Metadata | None = None, on_step: Progress | None = None) -> int:
        """Write items whole: their metadata and vectors replace what was there.

        A vector that is not given is removed, since it describes what the item was before: between swap and gc, give
        both models' vectors if both shall find the item at once.

        Args:
            *sets: Points by one or several models of this gallery, of some or all of the items.
            metadata: Values by column, in the order of the ids (those of the first set, then further ones); where it
                is left out, "label" and other columns of the first set are taken if the gallery has them.
            on_step: Told "done" and "total" after every commit; a large set is several commits.

        Returns:
            How many items were written; all of them durable.

        Raises:
            DataError: A fingerprint is none of the gallery's, a value is not of its column's type, or ids repeat.
            SpaceMismatchError: Points of another space.
        """
        return writes.write(self, "upsert", sets, metadata, on_step)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items with all their vectors, and return how many there were; unknown ids are passed over."""
        names = list(dict.fromkeys(ids))
        event = {"kind": "delete", "items": len(names)}
        with self.writing("delete") as pointer:
            return len(self._commit(self._state(pointer), event, Changes(delete=names)).deleted)

    def search(
        self,
        queries: EmbeddingSet | NDArray[np.float32],
        k: int = 10,
        *,
        fingerprint: str | None = None,
        where: Sequence[Condition] | None = None,
        exact: bool = True,
    ) -> Reply:
        """Find the items nearest to each query among all vectors that these queries may search.

        Args:
            queries: Points by a model of this gallery, (Q, D).
            k: Hits per query, at least 1; all items where there are fewer.
            fingerprint: Of the model, where queries are an array; may be left out while the gallery has one generation.
            where: Conditions on metadata that all have to hold.
            exact: Compare with every vector; otherwise use approximate indexes where there are any, and where they find
                what is near: not in Euclidean space.

        Raises:
            ConfigError: ``k`` is no whole number of at least 1, or a condition is none.
            DataError: The fingerprint is none of the gallery's.
            ConfigError: Nobody says which model made an array of queries, and there are several.
        """
        k = count_of("k", k)
        while True:
            pointer, state = self.now()
            try:
                reply = self._search(pointer, state, queries, k, fingerprint, where, exact)
            except (GalleryError, StoreError):
                if self.store.pointer().commit == pointer.commit:
                    raise
            else:  # otherwise what this commit names was removed meanwhile, after later ones
                break
        if self.count_traffic:
            self._count(hit.id for of_query in reply.hits for hit in of_query)
        return reply

    def _search(
        self,
        pointer: Pointer,
        state: GalleryState,
        queries: EmbeddingSet | NDArray[np.float32],
        k: int,
        fingerprint: str | None,
        where: Sequence[Condition] | None,
        exact: bool,
    ) -> Reply:
        k = min(k, max(1, pointer.items))
        asked = _as_set(queries, fingerprint, state)
        query = generation_of(state, asked.fingerprint)
        _check_space(asked, query)
        conditions = tuple(checked(one, state.columns) for one in where or ()) or None
        sources = route(state, query.name)
        found = [
            (source, self.store.search(
                self._form(asked, source.link), k, generation=source.generation, without=source.without,
                where=conditions, exact=exact or not query.geometry.approximable, at=pointer,
            ))
            for source in sources if source.rows(pointer) or source.link is None
        ]  # fmt: skip
        rows = {source.generation: source.rows(pointer) for source in sources}
        hits, merge = merged(found, k, self.files.score_maps(sources), rows)
        names = [source.generation for source in sources]
        return Reply(
            hits, asked.fingerprint, state.active, tuple(names), pointer.covered(names), pointer.items,
            pointer.sequence, merge,
        )  # fmt: skip

    def _form(self, queries: EmbeddingSet, link: Link | None) -> NDArray[np.float32]:
        """Return the index form of queries, mapped by an adapter where the link has one."""
        if link is not None and link.adapter is not None:
            queries = self.files.adapter(link.adapter).apply(queries)
        return queries.space.index_form(queries.vectors, "query")

    def _count(self, ids: Any) -> None:
        self._retrieved.update(ids)
        if sum(self._retrieved.values()) >= TRAFFIC_AT_ONCE:
            self._write_traffic()

    def _write_traffic(self) -> None:
        if self._retrieved:
            counted, self._retrieved = self._retrieved, Counter()
            try:
                self.store.add_traffic(counted)
            except StoreError:  # read-only or full: no reason to fail a search; it is counted, and tried again
                self._retrieved.update(counted)


def _new_store(url: str, disk: Disk) -> Store:
    """Return a store without commits: a new one, or one whose creation was interrupted."""
    try:
        return open_store(url, create=True, disk=disk)
    except GalleryError as refusal:
        try:
            store = open_store(url, disk=disk)
        except HoldfastError:
            raise refusal from None
        if store.pointer().sequence:
            store.close()
            raise
        return store


def _as_set(queries: EmbeddingSet | NDArray[np.float32], fingerprint: str | None, state: GalleryState) -> EmbeddingSet:
    if isinstance(queries, EmbeddingSet):
        if fingerprint not in (None, queries.fingerprint):
            raise ConfigError(
                f"fingerprint={fingerprint} for queries of {queries.fingerprint}.", expected="one of them"
            )
        return queries
    models = [one for one in state.generations if one.mapped_from is None]
    if fingerprint is None and len(models) > 1:
        raise ConfigError(
            "An array of queries does not say which model made it, and the gallery has vectors of several.",
            expected="fingerprint=, one of "
            + ", ".join(f"'{one.fingerprint}' ({one.name}{', active' * (one.name == state.active)})" for one in models),
            to_do="name the model that embedded the queries, or search with an EmbeddingSet; the gallery is intact.",
        )
    of = fingerprint or state.by_name[state.active].fingerprint
    vectors = np.atleast_2d(queries)
    space = generation_of(state, of).geometry
    ids = [f"query {row}" for row in range(len(vectors))]
    return EmbeddingSet(ids=ids, vectors=vectors, fingerprint=of, space=space, role="query")  # type: ignore[arg-type]


def _check_space(queries: EmbeddingSet, query: Generation) -> None:
    if queries.form != "points" or queries.space != query.geometry:
        raise SpaceMismatchError(
            f"Queries are {queries.form} on the {queries.space}.",
            expected=f"points of the {query.geometry}, as {query.name} has them",
        )
