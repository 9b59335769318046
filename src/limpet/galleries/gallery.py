"""The live gallery: write, search, and the steps of an upgrade."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from logging import DEBUG, INFO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.conversion import vectors_of
from limpet.embeddings.embedding_set import check_given
from limpet.engines.checks import damaged
from limpet.engines.filters import Filter, checked
from limpet.engines.forks import at_fork
from limpet.engines.ledger_store import no_graph
from limpet.engines.store import (
    Changes,
    Commit,
    Committed,
    Document,
    Fill,
    Graph,
    Items,
    NewGeneration,
    Pointer,
    Rows,
    Store,
    Tidied,
    Upsert,
    digest_of,
)
from limpet.engines.stores import open_store, takes_graph
from limpet.engines.where import read_filter
from limpet.errors import (
    ConfigError,
    DataError,
    GalleryError,
    GoneError,
    LimpetError,
    SpaceMismatchError,
    StoreError,
    count_of,
    refuse,
    shown,
)
from limpet.galleries.backfill import BackfillOptions, backfill
from limpet.galleries.backup import Backup, back_up
from limpet.galleries.calibration import drawn_cohort
from limpet.galleries.group_commit import GroupCommit
from limpet.galleries.links import Bridge, Files, link_from_report
from limpet.galleries.router import Reply, merged, remainders, route
from limpet.galleries.rows import ItemBatch, batches, checked_columns, last_of, rows_of
from limpet.galleries.state import Event, GalleryState, Generation, Link, advance
from limpet.galleries.status import Status, status
from limpet.galleries.vector_check import VectorCheck, check_vectors
from limpet.geometry import Space
from limpet.support.disk import Disk
from limpet.support.logs import logger
from limpet.support.progress import Progress, Told, listener, showing
from limpet.upgrade.filling import Backfilled
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.adapters import Adapter, ScoreMap
    from limpet.evaluation.ranking.cohort import Cohort
    from limpet.galleries.two_stage import Rescoring

_Metadata = Mapping[str, Sequence[Any]]

_log = logger("galleries")

ROWS_AT_ONCE = 50_000  # written in one commit
MAPPED_AT_ONCE = 16_384  # stored vectors that an adapter maps in one commit
TRAFFIC_AT_ONCE = 1000  # retrieved items counted before they are written


class GalleryOptions(TypedDict, total=False):
    """Options of a gallery in this process; `Gallery` documents them and their defaults."""

    count_traffic: bool
    timeout: float
    noted: Document | None


class Gallery:
    """A gallery in a store; any number of processes can open it at the same time.

    Use `Gallery.create` or `Gallery.open`.

    Args:
        count_traffic: Count how often items are retrieved, for a backfill that starts with the most retrieved.
        timeout: Seconds to wait for another writer to finish.
        noted: Further values for the journal entry of every commit of this object, such as its author.
    """

    def __init__(
        self, store: Store, *, count_traffic: bool = False, timeout: float = 10.0, noted: Document | None = None
    ) -> None:
        self.store, self.timeout, self.files, self.noted = store, timeout, Files(store), noted or {}
        self._states: tuple[Commit | None, GalleryState] = (None, GalleryState())
        self.count_traffic = count_traffic
        self._begin()
        at_fork(self, in_child=Gallery._begin)

    def _begin(self) -> None:
        """Count from nothing, and wait for no thread; in a forked child, since both are its parent's."""
        self._retrieved: Counter[str] = Counter()
        self._writer: int | None = None
        self._group = GroupCommit(partial(self.writing, "upsert"), self.upsert_batches)

    @classmethod
    def create(
        cls,
        url: str,
        *,
        fingerprint: str,
        space: Space,
        columns: Mapping[str, str] | None = None,
        note: str = "",
        graph: Graph | None = None,
        disk: Disk | None = None,
        **options: Unpack[GalleryOptions],
    ) -> Gallery:
        """Create an empty gallery.

        Args:
            url: A folder for the embedded store (LanceDB), ``memory:FOLDER`` for one held in memory, ``memory://`` for
                one that vanishes with the process, or ``postgresql://…``.
            fingerprint: Fingerprint of the first model.
            space: Space of its vectors.
            columns: Metadata columns: "text", "integer", "number", "truth" or "json" (objects), by name.
            note: Display name of the model.
            graph: Parameters of approximate indexes, for galleries in PostgreSQL.
            disk: How files are made durable; see `Disk`.
            **options: See `Gallery`.

        Raises:
            GalleryError: The place already holds a gallery, or other data.
            ConfigError: The kind of store or a column type is unknown, or the store does not support `graph`.
        """
        if graph is not None and not takes_graph(url):
            raise no_graph(url)
        types = checked_columns(columns or {})
        gallery = cls(_new_store(url, disk or Disk()), **options)
        generation = GalleryState().new_generation(fingerprint, space, note)
        event: Event = {"kind": "create", "generation": generation.to_record(), "columns": types}
        created = NewGeneration(generation.name, space.index_dim, types)
        with gallery.store.writing("create", timeout=gallery.timeout) as pointer:
            if pointer.sequence:
                raise GalleryError(f"'{url}' holds a gallery already.", expected="a new place", to_do="open it.")
            gallery._commit(GalleryState(), event, Changes(create=[created]))
            if graph is not None:
                gallery.store.choose_graph(graph)
        return gallery

    @classmethod
    def open(cls, url: str, *, disk: Disk | None = None, **options: Unpack[GalleryOptions]) -> Gallery:
        """Open a gallery; see `create` for the arguments.

        Raises:
            GalleryError: No gallery exists there, or its format version is another one.
        """
        store = open_store(url, disk=disk or Disk())
        if not store.pointer().sequence:
            store.close()
            raise GalleryError(
                f"The gallery at '{url}' was not finished when it was created; it holds nothing.",
                expected="one that was created",
                to_do=f"`limpet gallery create {url}` finishes it.",
            )
        return cls(store, **options)

    def close(self) -> None:
        """Write the traffic counts, and close files and connections."""
        self._write_traffic()
        self.store.close()

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        pointer, state = self.now()
        return f"Gallery({self.store.url}, {pointer.items} items, {state.phase}, active {state.active})"

    # State and commits

    def now(self) -> tuple[Pointer, GalleryState]:
        """Return the current pointer and the state that it names."""
        pointer = self.store.pointer()
        return pointer, self._state(pointer)

    def _state(self, pointer: Pointer) -> GalleryState:
        known, state = self._states
        if known != pointer.commit:
            state = GalleryState.from_record(pointer.manifest)
            if pointer.sequence and not state.generations:
                raise damaged("The state of the gallery", "it has no generation")
            self._states = pointer.commit, state
        return state

    @property
    def state(self) -> GalleryState:
        """The generations of the gallery and the phase of an upgrade."""
        return self.now()[1]

    def status(self) -> Status:
        """Return rows, coverage, sizes and the phase of an upgrade."""
        return status(self.store, *self.now())

    def __len__(self) -> int:
        return self.store.pointer().items

    @showing("backup", unit="MiB")
    def backup(self, dest: str | Path, *, progress: Progress[Told] = None) -> Backup:
        """Back up one commit of the gallery to a new folder; writers can continue. See `back_up`."""
        return back_up(self.store, dest, progress=progress)

    @contextmanager
    def writing(self, who: str, *, timeout: float | None = None) -> Iterator[Pointer]:
        """Hold the write lock; see `Store.writing`."""
        with self.store.writing(who, timeout=self.timeout if timeout is None else timeout) as pointer:
            before, self._writer = self._writer, threading.get_ident()
            try:
                yield pointer
            finally:
                self._writer = before

    def _commit(self, state: GalleryState, event: Event, changes: Changes) -> Committed:
        """Commit an event with the state it leads to, and announce what searches of that state may ask for.

        The rows of generations that the state loses go in the same commit. Their adapters stay for readers that began
        just before, until gc.
        """
        after = advance(state, event)
        if after != state:
            changes = replace(changes, remainders=remainders(after))
        gone = [name for name in state.by_name if name not in after.by_name]
        if gone:
            changes = replace(changes, drop=gone)
            event = {**event, "dropped": gone}
        committed = self.record(changes, after, event)
        _log.log(INFO if after != state else DEBUG, "%s: %s, active %s", event["kind"], after.phase, after.active)
        return committed

    def record(self, changes: Changes, state: GalleryState, event: Document) -> Committed:
        """Commit changes with the resulting state; the journal entry of the event includes `noted`."""
        return self.store.commit(changes, state.to_record(), {**event, **self.noted})

    # Rows

    @showing("add")
    def add(self, *sets: EmbeddingSet, metadata: _Metadata | None = None, progress: Progress[Told] = None) -> int:
        """Add new items; see `upsert`.

        Raises:
            DataError: An id already exists.
        """
        return self._write("add", sets, metadata, progress)

    @showing("upsert")
    def upsert(self, *sets: EmbeddingSet, metadata: _Metadata | None = None, progress: Progress[Told] = None) -> int:
        """Write whole items: the new metadata and vectors replace the stored ones.

        A stored vector that is not given again is removed, because it describes the previous item. Between swap and
        finish, give the vectors of both models if both must find the item at once. Threads of one process that wait to
        write share the next commit.

        Args:
            *sets: Points of one or several models of this gallery, for some or all of the items.
            metadata: Values by column, in the order of the ids (those of the first set, then those of further sets). By
                default, "label" and other columns of the first set are used if the gallery has them.
            progress: "rich" or "tqdm" for a progress bar, or a function that is called with "done" and "total" after
                every commit; a large set takes several commits.

        Returns:
            Number of items written; all of them are durable.

        Raises:
            DataError: A fingerprint is not one of the gallery's, a value is not of its column's type, or ids repeat.
            SpaceMismatchError: The points are from another space.
        """
        return self._write("upsert", sets, metadata, progress)

    def _write(
        self, kind: str, sets: Sequence[EmbeddingSet], metadata: _Metadata | None, progress: Progress[Told]
    ) -> int:
        refuse(not sets, "No embeddings to write.", "one set or more")
        check_given(**{f"set {number}": one for number, one in enumerate(sets, 1)})
        written = 0
        for batch in batches(self.state, sets, metadata, ROWS_AT_ONCE):
            if kind == "upsert" and self._writer != threading.get_ident():
                self._group.write(batch)
            else:
                self.upsert_batches([batch], kind)
            written = batch.done
            listener(progress)({"done": batch.done, "total": batch.total})
        return written

    def upsert_batches(self, some: Sequence[ItemBatch], kind: str = "upsert") -> Committed:
        """Write several batches of items, made by `galleries.rows.batches`, in one atomic commit.

        If an item is in several batches, the last one is stored. The journal lists their `noted` values under
        "requests". With the kind "add", an id that already exists is refused.
        """
        with self.writing(kind):
            state = self.state  # another process may have moved it
            upserts = []
            for batch in some:
                rows = [rows_of(state.made_by(part.fingerprint), part) for part in batch.sets if len(part)]
                upserts.append(Upsert(batch.ids, batch.metadata, rows + self._mapped(state, batch)))
            upsert = last_of(upserts)
            if kind == "add" and (known := self.store.fetch(upsert.ids).ids):
                raise DataError(
                    f"{len(known)} ids are in the gallery already: {shown(known)}.",
                    expected="new ids",
                    to_do="`upsert` replaces items.",
                    intact="The gallery is intact.",
                )
            return self.record(Changes(upsert=upsert), state, {
                "kind": kind, "items": len(upsert.ids), **_requests([one for batch in some for one in batch.noted]),
            })  # fmt: skip

    def _mapped(self, state: GalleryState, batch: ItemBatch) -> list[Rows]:
        given = {state.made_by(part.fingerprint).name: part for part in batch.sets if len(part)}
        return [
            rows_of(one, self.files.adapter(one.adapter).apply(given[one.mapped_from]))
            for one in state.generations
            if one.mapped_from in given and one.adapter is not None and one.name not in given
        ]

    def delete(self, ids: Sequence[str], *, noted: Document | None = None) -> int:
        """Remove items with all their vectors, and return the number removed; unknown ids are ignored.

        Args:
            ids: Ids of the items.
            noted: Values that the journal lists under "requests".
        """
        names = list(dict.fromkeys(ids))
        event: Event = {"kind": "delete", "items": len(names), **_requests([noted] if noted else [])}  # type: ignore[typeddict-item]
        with self.writing("delete") as pointer:
            return len(self._commit(self._state(pointer), event, Changes(delete=names)).deleted)

    # Searches

    def search(
        self,
        queries: EmbeddingSet | NDArray[np.float32],
        k: int = 10,
        *,
        fingerprint: str | None = None,
        where: Filter | Sequence[Filter] | str | None = None,
        exact: bool = True,
        rescore: Rescoring | None = None,
        at: Pointer | None = None,
    ) -> Reply:
        """Find the nearest items to each query among all vectors that its model may search.

        Args:
            queries: Points of a model of this gallery, (Q, D).
            k: Hits per query, at least 1; all items if the gallery has fewer.
            fingerprint: Fingerprint of the model, if queries are an array; optional while the gallery has one
                generation.
            where: Metadata filter, see `limpet.engines.filters`; several filters must all match. A text such as
                ``price<10 AND exists(label)`` is parsed by `limpet.engines.where`.
            exact: Compare with every vector. Otherwise approximate indexes are used if they exist, but not in Euclidean
                space.
            rescore: Search in two stages: the usual candidates are re-scored by the new model; see `Rescoring`.
            at: Search as of this commit, returned earlier by `now`, so that several searches see the same rows. It
                applies to candidates only.

        Raises:
            GalleryError: The store no longer keeps the commit ``at``.
            ConfigError: ``k`` is not a whole number of at least 1, or a filter is invalid.
            DataError: The gallery has no model with this fingerprint.
            ConfigError: Queries are an array without a fingerprint, and the gallery has several models.
        """
        k = count_of("k", k)
        refuse(
            at is not None and rescore is not None, "A search in two stages as of a commit.", "one of at= and rescore="
        )
        if rescore is None:
            reply = self._searched(queries, k, fingerprint, where, exact, at=at)
        else:
            asked = _as_set(queries, fingerprint, self.state)
            reply = rescore.search(
                self, asked, k, lambda of, depth, alone: self._searched(of, depth, None, where, exact, alone)
            )
        if self.count_traffic:
            self._retrieved.update(hit.id for of_query in reply.hits for hit in of_query)
            if sum(self._retrieved.values()) >= TRAFFIC_AT_ONCE:
                self._write_traffic()
        return reply

    def _searched(
        self,
        queries: EmbeddingSet | NDArray[np.float32],
        k: int,
        fingerprint: str | None,
        where: Filter | Sequence[Filter] | str | None,
        exact: bool,
        alone: bool = False,
        at: Pointer | None = None,
    ) -> Reply:
        """Search as of one commit; ``alone`` among the vectors of the queries' own model only."""
        if at is not None:
            if self.store.pointer().commit != at.commit and not self.store.keeps(at.sequence):
                raise GoneError(
                    f"Commit {at.sequence} of the gallery is not kept any more.",
                    expected="a commit of a few minutes ago, in a store that keeps some",
                    to_do="search again without it.",
                )
            return self._search(at, self._state(at), queries, k, fingerprint, where, exact, alone)
        while True:
            pointer, state = self.now()
            try:
                return self._search(pointer, state, queries, k, fingerprint, where, exact, alone)
            except (GalleryError, StoreError):
                if self.store.pointer().commit == pointer.commit:
                    raise  # otherwise what this commit names was removed meanwhile, after later ones

    def _search(
        self,
        pointer: Pointer,
        state: GalleryState,
        queries: EmbeddingSet | NDArray[np.float32],
        k: int,
        fingerprint: str | None,
        where: Filter | Sequence[Filter] | str | None,
        exact: bool,
        alone: bool,
    ) -> Reply:
        k = min(k, max(1, pointer.items))
        asked = _as_set(queries, fingerprint, state)
        query = state.made_by(asked.fingerprint)
        _check_space(asked, query)
        columns = state.columns
        filter_ = read_filter([where], columns) if isinstance(where, str) else checked(where, columns)
        sources = route(state, query.name)[: 1 if alone else None]
        forms = [
            (source, self._form(asked, source.link, state.by_name[source.generation].geometry))
            for source in sources if source.rows(pointer) or source.link is None
        ]  # fmt: skip
        searched = [
            (source, self.store.search(
                form, k, generation=source.generation, without=source.without,
                where=filter_, exact=exact or not query.geometry.approximable, at=pointer,
            ))
            for source, form in forms
        ]  # fmt: skip
        rows = {source.generation: source.rows(pointer) for source in sources}
        hits, merge = merged(searched, k, self.files.scales(forms), rows)
        names = [source.generation for source in sources]
        return Reply(
            hits, asked.fingerprint, state.active, tuple(names), pointer.covered(names), pointer.items,
            pointer.sequence, state.epoch, merge,
        )  # fmt: skip

    def index(self, generation: str | None = None, *, graph: Graph | None = None) -> None:
        """Build an approximate index over the vectors of a generation; searches continue meanwhile.

        A backfill indexes later generations in the same way.

        Args:
            generation: Name or fingerprint of the generation; by default, the one that a backfill fills.
            graph: Parameters for building and searching this index and those of later generations. Default: unchanged.

        Raises:
            GalleryError: No approximate index finds nearest neighbours in this space, or in this many dimensions.
            ConfigError: The generation does not exist, or the store does not support `graph`.
        """
        state = self.state
        chosen = state.named(generation or state.target)
        space = chosen.geometry
        if not space.approximable:
            raise GalleryError(
                f"An approximate index over points of the {space}.",
                expected="a space in which one leads to what is near",
                to_do="search without an index: every vector is compared.",
            )
        if graph is not None:
            self.store.choose_graph(graph)
        self.store.build_index(chosen.name, directions=not space.lengths_count)

    def _form(self, queries: EmbeddingSet, link: Link | None, searched: Space) -> NDArray[np.float32]:
        if link is not None and link.adapter is not None:
            queries = self.files.adapter(link.adapter).apply(queries)
        return queries.space.query_form(queries.vectors, searched)

    def _write_traffic(self) -> None:
        if self._retrieved:
            counted, self._retrieved = self._retrieved, Counter()
            try:
                self.store.add_traffic(counted)
            except StoreError:  # read-only or full: no reason to fail a search; it is counted, and tried again
                self._retrieved.update(counted)

    # The steps of an upgrade, one commit each

    @showing("map")
    def start(
        self,
        fingerprint: str,
        space: Space,
        *,
        reports: Sequence[Path] = (),
        adapter: Path | Adapter | None = None,
        score_map: Path | ScoreMap | Cohort | None = None,
        note: str = "",
        options: str | None = None,
        progress: Progress[Told] = None,
    ) -> Generation:
        """Start an upgrade: make room for the vectors of a new model. Search results do not change.

        Args:
            fingerprint: Fingerprint of the new model.
            space: Space of its vectors.
            reports: results.json of evaluations of its queries on stored vectors.
            adapter: An adapter between the new model and the active one, or its folder: it maps new queries
                ("new_to_old"), or the stored vectors ("old_to_new"), which are mapped now. It is stored in the gallery.
            score_map: For an adapter of queries: a map from scores on old vectors to scores on new ones, or its file.
            note: Display name of the model.
            options: Command-line options that name the source of its vectors, such as ``--model st:minilm``.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" while
                stored vectors are mapped.

        Raises:
            UpgradeStateError: Another upgrade is started but not swapped yet.
            GalleryError: A report is about other models or does not pass.
        """
        with self.writing("start") as pointer:
            state = self._state(pointer)
            bridge = None if adapter is None else Bridge.of(state, adapter, score_map, fingerprint, space)
            number = state.created + (2 if bridge and bridge.mapped else 1)
            generation = state.new_generation(fingerprint, space, note, number=number, options=options)
            links = [self._reported(state, path, generation) for path in reports]
            if bridge is not None:
                links = [*links, bridge.link(generation.name)]
            mapped = bridge.mapped if bridge else None
            event: Event = {
                "kind": "start",
                "generation": generation.to_record(),
                "links": [vars(link) for link in links],
                "bridge": mapped.to_record() if mapped else None,
            }
            names = [generation.name, *([mapped.name] if mapped else [])]
            created = [NewGeneration(name, space.index_dim, state.columns) for name in names]
            self._commit(state, event, Changes(create=created, files=bridge.files if bridge else {}))
        self.fill_mapped(progress=progress)
        return generation

    def _reported(self, state: GalleryState, path: Path, query: Generation) -> Link:
        """Return the link of the first generation that a report is about; the refusal of the active one otherwise."""
        for gallery in reversed(state.generations):
            try:
                link = link_from_report(path, query, gallery)
            except GalleryError as error:
                if gallery.name == state.active:
                    refusal = error
            else:
                _check_linked_spaces(query, gallery, measured=True)
                return link
        raise refusal

    @showing("map")
    def fill_mapped(self, *, progress: Progress[Told] = None) -> int:
        """Map stored vectors into every mapped generation that lacks them, and return the number written.

        If a call is interrupted, the next one continues. A vector that the adapter maps to zero has no direction and is
        skipped.

        Args:
            progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" after
                every commit.
        """
        written, total = 0, 0
        for generation in self.state.generations:
            if generation.mapped_from is None:
                continue
            pointer, after = self.store.pointer(), ""
            total += pointer.covered([generation.mapped_from]) - pointer.covered([generation.name])
            while len(items := self.store.scan(after=after, limit=MAPPED_AT_ONCE, lacking=generation.name)):
                after = items.ids[-1]
                written += self._map_items(generation, items)
                listener(progress)({"done": written, "total": total})
        return written

    def _map_items(self, generation: Generation, items: Items) -> int:
        ids, forms = self.store.vectors(str(generation.mapped_from), items.ids)
        if not ids:
            return 0
        points = self.state.by_name[str(generation.mapped_from)].geometry.from_index_form(forms)
        images = self.files.adapter(str(generation.adapter)).map(points)
        mapped = np.flatnonzero(images.any(axis=1))
        names = [ids[row] for row in mapped]
        version_of = dict(zip(items.ids, items.versions.tolist(), strict=True))
        versions = np.array([version_of[name] for name in names], np.int64)
        form = generation.geometry.index_form(images[mapped], "gallery")
        fill = Fill(Rows(generation.name, names, form), versions)
        event: Document = {"kind": "map", "generation": generation.name, "items": len(names)}
        with self.writing("map"):
            return int(self.record(Changes(fill=fill), self.state, event).filled.sum())

    def link(self, query: str, gallery: str, *, report: Path | None = None, force: str | None = None) -> Link:
        """Let queries of one generation search the vectors of another, as measured by a report.

        Args:
            query: Name or fingerprint of the generation whose model embeds the queries.
            gallery: Name or fingerprint of the generation whose vectors they search.
            report: results.json of an evaluation of that direction.
            force: Reason to link without a passing report; it is recorded.

        Raises:
            GalleryError: The report is about other models or does not pass.
            ConfigError: Neither a report nor a reason is given, or both are.
            SpaceMismatchError: The two spaces can be linked by an adapter only; with a report, their dimensions may
                differ.
        """
        refuse((report is None) == (force is None), "Linking two models.", "either a report or, by force, a reason")
        _refuse_empty(force)
        with self.writing("link") as pointer:
            state = self._state(pointer)
            asked, searched = (state.named(name) for name in (query, gallery))
            _check_linked_spaces(asked, searched, measured=report is not None)
            link = (
                Link(asked.name, searched.name, "forced", force or "")
                if report is None
                else link_from_report(report, asked, searched)
            )
            self._commit(state, {"kind": "link", "link": vars(link)}, Changes())
        return link

    def calibrate(self, *, seed: int = 0) -> tuple[Link, int]:
        """Put the scores of both models on one scale, to merge the two parts of a half-backfilled gallery.

        If an adapter maps queries, calibrated scores replace ranks; if old vectors are mapped, they replace raw scores.
        The scale comes from a cohort of items with vectors of both models, see `limpet.galleries.calibration`. The
        gallery keeps these vectors, even of removed items, until another call or the end of the upgrade, and `gc`.

        Returns:
            The link with its cohort, and the size of the cohort.

        Raises:
            GalleryError: New queries search no other vectors, or too few items have vectors of both models.
            DataError: Scores of one model do not rise with those of the other.
        """
        state = self.state
        link = next((source.link for source in route(state, state.target)[1:]), None)
        if link is None:
            raise GalleryError(
                f"Queries of {state.target} search no other vectors: there are no scores to bring to one scale.",
                expected="an upgrade that was started with an adapter",
                to_do="search as it is.",
            )
        from limpet.evaluation.ranking.cohort import pack_cohort

        cohort = drawn_cohort(self, link, seed=seed)
        content = pack_cohort(cohort)
        found = replace(link, score_map=digest_of(content))
        with self.writing("calibrate") as pointer:
            now = self._state(pointer)
            if link not in now.links:
                raise GalleryError(
                    f"The link of {link.query} to {link.gallery} changed meanwhile.", expected="the one that was read",
                    to_do="calibrate again.",
                )  # fmt: skip
            event: Event = {"kind": "link", "link": vars(found)}
            self._commit(now, event, Changes(files={digest_of(content): content}))
        return found, len(cohort.own)

    def swap(self, *, force: str | None = None, allow_missing: int = 0) -> GalleryState:
        """Make the started generation the active one: encoder, adapter, vectors and search rule at once.

        Args:
            force: Reason to swap without a passing report; new queries then search old vectors if both share a space.
            allow_missing: Maximum number of items that new queries cannot find.

        Raises:
            UpgradeStateError: No upgrade is started.
            ConfigError: The reason is empty.
            GalleryError: No report allows new queries on old vectors, and not every item has a new vector.
        """
        _refuse_empty(force)
        _refuse_negative(allow_missing)
        with self.writing("swap") as pointer:
            state = self._state(pointer)
            event: Event = {"kind": "swap", "forced": force}
            advance(state, event)
            link = self._allowed_swap(pointer, state, force, allow_missing)
            event["link"] = vars(link) if link else None
            return GalleryState.from_record(self._commit(state, event, Changes()).pointer.manifest)

    def check_swap(self, *, force: str | None = None, allow_missing: int = 0) -> None:
        """Raise what `swap` would raise for the started upgrade now; change nothing.

        Args:
            force: As for `swap`.
            allow_missing: As for `swap`.

        Raises:
            GalleryError: No report allows new queries on old vectors, and not every item has a new vector.
        """
        self._allowed_swap(*self.now(), force, allow_missing)

    def _allowed_swap(
        self, pointer: Pointer, state: GalleryState, force: str | None, allow_missing: int
    ) -> Link | None:
        """Return the link that force adds; refuse a swap after which items would not be found."""
        new, old = state.by_name[state.target], state.by_name[state.active]
        before, after = ([source.generation for source in route(state, one.name)] for one in (old, new))
        lost = pointer.covered([*before, *after]) - pointer.covered(after)
        if lost <= (0 if force else allow_missing):
            return None
        if force is None:
            unsearched = ", ".join(name for name in before if name not in after)
            raise GalleryError(
                f"Queries of {new.name} would not find {lost} of {pointer.items} items: no passing compatibility "
                f"report or adapter lets them search vectors of {unsearched}.",
                expected="a report (`limpet upgrade start --evidence`), an adapter, or vectors of all items",
                to_do="`limpet gallery link --evidence results.json`, or `backfill` first, or force it with a reason: "
                "--force REASON.",
            )
        linked = old.name in after or new.geometry != old.geometry
        return None if linked else Link(new.name, old.name, "forced", force)

    def backfill(self, source: VectorSource, **options: Unpack[BackfillOptions]) -> Backfilled:
        """Backfill the vectors of the started or active generation; see `galleries.backfill` for the options."""
        return backfill(self, source, **options)

    @showing("check")
    def check_vectors(self, generation: str | None = None, *, progress: Progress[Told] = None) -> VectorCheck:
        """Read every vector of a generation, by default the target, and count valid and invalid ones."""
        state = self.state
        return check_vectors(self.store, state.named(generation or state.target), progress=progress)

    def rollback(self) -> int:
        """Make the previous generation active again. This is immediate and needs no model.

        Returns:
            Number of items with a vector of the newer model only. They are kept, but queries of the older model find
            them only if the two are linked in that direction.
        """
        with self.writing("rollback") as pointer:
            state = self._state(pointer)
            before = advance(state, {"kind": "rollback"}).active
            only_new = pointer.items - pointer.covered([before])
            self._commit(state, {"kind": "rollback", "only_new": only_new}, Changes())
        return only_new

    @showing("check")
    def finish(self, *, allow_missing: int = 0, progress: Progress[Told] = None) -> VectorCheck:
        """Check every vector of the active generation, then remove all other generations. This cannot be undone.

        Args:
            allow_missing: Maximum number of items without a new vector. No search finds them afterwards.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total".

        Raises:
            UpgradeStateError: The upgrade is not swapped.
            GalleryError: A vector is missing or wrong; nothing is changed.
        """
        _refuse_negative(allow_missing)
        advance(self.state, {"kind": "finish"})
        check = self.check_vectors(self.state.active, progress=progress)  # writers need not wait for it
        with self.writing("finish") as pointer:
            state = self._state(pointer)
            if check.wrong or check.generation != state.active:  # or only written meanwhile
                check = check_vectors(self.store, state.by_name[state.active])
            check.refuse_wrong()
            lacking = pointer.items - pointer.covered([state.active])
            if lacking > allow_missing:
                raise GalleryError(
                    f"{lacking} of {pointer.items} items have no vector of {state.active}: {check.shown_lacking()}.",
                    expected="one for every item",
                    to_do="`limpet upgrade backfill` them, delete them, or record that they stay behind: "
                    f"--allow-missing {lacking}.",
                )
            self._commit(state, {"kind": "finish", "missing": lacking}, Changes())
        self._tidy()
        return check

    def cancel(self) -> None:
        """Remove the started generation with its vectors. This cannot be undone.

        Raises:
            UpgradeStateError: No upgrade is started, or it is swapped.
            GalleryError: Items would lose their only vector; nothing is changed.
        """
        with self.writing("cancel") as pointer:
            state = self._state(pointer)
            after = advance(state, {"kind": "cancel"})
            lost = pointer.covered(list(state.by_name)) - pointer.covered(list(after.by_name))
            if lost:
                raise GalleryError(
                    f"{lost} items have no other vector than those of {state.target}.",
                    expected="a vector of another generation for each",
                    to_do=f"upsert them with vectors of {state.active}, or delete them first.",
                )
            self._commit(state, {"kind": "cancel"}, Changes())
        self._tidy()

    def _tidy(self) -> None:
        """Free the room of removed vectors that no reader needs; what cannot be freed now waits for gc."""
        try:
            self.store.tidy()
        except GalleryError as error:  # the step is committed: it did not fail
            _log.warning("removed vectors keep their room until gc: %s", error.given)

    def gc(self, *, older_than: float = 3600.0) -> Tidied:
        """Remove unreferenced data, such as vectors left by an interrupted `finish`, and merge small files.

        Args:
            older_than: Keep files that a reader opened within this many seconds may still use.

        Returns:
            Bytes freed, and bytes still held for earlier readers.
        """
        with self.writing("gc") as pointer:
            state = self._state(pointer)
            self._commit(state, {"kind": "gc"}, Changes(keep_files=state.files))
        return self.store.tidy(older_than=older_than)


def _requests(noted: list[Document]) -> dict[str, list[Document]]:
    """Return the part of an event that lists what the requests noted that were answered by it."""
    return {"requests": noted} if noted else {}


def _refuse_negative(allow_missing: int) -> None:
    refuse(allow_missing < 0, f"allow_missing={allow_missing}.", "at least 0 items")


def _new_store(url: str, disk: Disk) -> Store:
    """Return a store without commits: a new one, or one whose creation was interrupted."""
    try:
        return open_store(url, create=True, disk=disk)
    except GalleryError as refusal:
        try:
            store = open_store(url, disk=disk)
        except LimpetError:
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
            to_do="name the model that embedded the queries, or search with an EmbeddingSet.",
        )
    of = fingerprint or state.by_name[state.active].fingerprint
    vectors = np.atleast_2d(vectors_of(queries))
    space, ids = state.made_by(of).geometry, _query_ids(len(vectors))
    known = vectors.dtype == np.float32 and vectors.shape == (len(ids), space.dim) and not len(space.check(vectors))
    if not known:
        return EmbeddingSet(vectors, ids, of, space, role="query")  # which says what is wrong
    return EmbeddingSet.trusted(
        vectors=vectors, ids=ids, fingerprint=of, space=space, role="query", form="points", labels=None,
        class_names=None, columns=MappingProxyType({}), prefix="", contents=None, trained_on=None,
    )  # fmt: skip


@lru_cache(maxsize=8)  # programs ask again and again as many queries at once
def _query_ids(count: int) -> StringArray:
    return StringArray.of([f"query {row}" for row in range(count)])


def _check_space(queries: EmbeddingSet, query: Generation) -> None:
    if queries.form != "points" or queries.space != query.geometry:
        raise SpaceMismatchError(
            f"Queries are {queries.form} on the {queries.space}.",
            expected=f"points of the {query.geometry}, as {query.name} has them",
        )


def _refuse_empty(reason: str | None) -> None:
    refuse(reason is not None and not reason.strip(), f"The reason '{reason}'.", "a reason, which is logged")


def _check_linked_spaces(query: Generation, gallery: Generation, *, measured: bool) -> None:
    """Refuse two spaces; a report may link two that differ in their dimension only, as if the narrower ended in zeros.

    Nobody can know that of two models but by measuring it.
    """
    linked = query.geometry.compares_with(gallery.geometry) if measured else query.geometry == gallery.geometry
    if not linked:
        raise SpaceMismatchError(
            f"{query.name} is on the {query.geometry}, {gallery.name} on the {gallery.geometry}.",
            expected="one space for both; or with a report, two that differ in their dimension only",
            to_do="link them by an adapter: `limpet upgrade start --link`.",
            intact="The gallery is intact.",
        )
