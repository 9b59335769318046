"""The steps of an upgrade, one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import GalleryError, SpaceMismatchError, refuse
from holdfast.galleries import writes
from holdfast.galleries.base import GalleryBase, Progress
from holdfast.galleries.census import Census, census
from holdfast.galleries.evidence import link_from_report
from holdfast.galleries.links import Bridge, fill_mapped
from holdfast.galleries.router import route
from holdfast.galleries.state import GalleryState, Generation, Link, advance
from holdfast.geometry import Space
from holdfast.stores.base import Changes, NewGeneration, Pointer, Tidied

if TYPE_CHECKING:
    from holdfast.adapters import Adapter, ScoreMap


class UpgradeSteps(GalleryBase):
    """A gallery that can change its model."""

    def prepare(
        self,
        fingerprint: str,
        space: Space,
        *,
        reports: Sequence[Path] = (),
        adapter: Path | Adapter | None = None,
        score_map: Path | ScoreMap | None = None,
        note: str = "",
        on_step: Progress | None = None,
    ) -> Generation:
        """Make room for the vectors of a new model; nothing that is served changes.

        Args:
            fingerprint: Of the new model.
            space: Its space.
            reports: results.json of evaluations that vouch for its queries on vectors that are there.
            adapter: An adapter between the new model and the active one, or its folder: it maps new queries
                ("new_to_old"), or the stored vectors, which is done now ("old_to_new"). It becomes part of the gallery.
            score_map: With an adapter of queries: from scores on old vectors to those on new ones; or its file.
            note: What people call the model.
            on_step: Told how many stored vectors are mapped.

        Raises:
            UpgradeStateError: Another generation is prepared.
            GalleryError: A report is about other models or does not pass.
        """
        with self.writing("prepare") as pointer:
            state = self._state(pointer)
            bridge = None if adapter is None else Bridge.of(state, adapter, score_map, fingerprint, space)
            number = state.created + (2 if bridge and bridge.mapped else 1)
            values = writes.new_generation(state, fingerprint, space, note, number=number)
            generation = Generation(**values)
            links = [self._reported(state, path, generation) for path in reports]
            if bridge is not None:
                links = [*links, bridge.link(generation.name)]
            event = {"kind": "prepare", "generation": values, "links": [vars(link) for link in links],
                     "bridge": bridge and bridge.generation}  # fmt: skip
            created = [NewGeneration(generation.name, space.index_dim, state.columns)]
            if bridge is not None and bridge.generation is not None:
                created.append(NewGeneration(bridge.generation["name"], space.index_dim, state.columns))
            self._commit(state, event, Changes(create=created, files=bridge.files if bridge else {}))
        fill_mapped(self, on_step=on_step)
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
                _check_linked_spaces(query, gallery)
                return link
        raise refusal

    def vouch(self, query: str, gallery: str, *, report: Path | None = None, force: str | None = None) -> Link:
        """Let queries of one generation search the vectors of another, in a direction that a report measured.

        Args:
            query: Generation, or its fingerprint, whose model embeds the queries.
            gallery: Generation, or its fingerprint, whose vectors they search.
            report: results.json of an evaluation of that direction.
            force: A reason to do so without a passing report; it is recorded.

        Raises:
            GalleryError: The report is about other models or does not pass.
            ConfigError: Neither a report nor a reason, or both.
            SpaceMismatchError: They lie in two spaces, which only an adapter links.
        """
        refuse((report is None) == (force is None), "Vouching.", "either a report or, by force, a reason")
        _refuse_empty(force)
        with self.writing("vouch") as pointer:
            state = self._state(pointer)
            asked, searched = (writes.named_generation(state, name) for name in (query, gallery))
            _check_linked_spaces(asked, searched)
            link = (
                Link(asked.name, searched.name, "forced", force or "")
                if report is None
                else link_from_report(report, asked, searched)
            )
            self._commit(state, {"kind": "vouch", "link": vars(link)}, Changes())
        return link

    def swap(self, *, force: str | None = None) -> GalleryState:
        """Make the prepared generation the active one: encoder, adapter, vectors and search rule at once.

        Args:
            force: A reason to do so without a passing report; its queries then search the old vectors if both are of
                one space.

        Raises:
            UpgradeStateError: Nothing is prepared.
            ConfigError: The reason is empty.
            GalleryError: Nothing vouches for the new queries on the old vectors, and not every item has a new one.
        """
        _refuse_empty(force)
        with self.writing("swap") as pointer:
            state = self._state(pointer)
            event: dict[str, Any] = {"kind": "swap", "forced": force}
            advance(state, event)
            link = self._allowed_swap(pointer, state, force)
            event["link"] = link and vars(link)
            return GalleryState.from_record(self._commit(state, event, Changes()).pointer.manifest)

    def _allowed_swap(self, pointer: Pointer, state: GalleryState, force: str | None) -> Link | None:
        """Return the link that force adds; refuse a swap after which items would not be found."""
        new, old = state.by_name[state.target], state.by_name[state.active]
        before, after = ([source.generation for source in route(state, one.name)] for one in (old, new))
        lost = pointer.covered([*before, *after]) - pointer.covered(after)
        if not lost:
            return None
        if force is None:
            unsearched = ", ".join(name for name in before if name not in after)
            raise GalleryError(
                f"Queries of {new.name} would not find {lost} of {pointer.items} items: no passing compatibility "
                f"report or adapter lets them search vectors of {unsearched}.",
                expected="a report (`holdfast gallery prepare --report`), an adapter, or vectors of all items",
                to_do="`holdfast gallery vouch --report results.json`, or `backfill` first, or force it with a reason: "
                "--force REASON; the gallery is intact.",
            )
        linked = old.name in after or new.geometry != old.geometry
        return None if linked else Link(new.name, old.name, "forced", force)

    def backfill(self, source: Any, **options: Any) -> Any:
        """Give items the vectors of the prepared or active generation; see `holdfast.galleries.backfill.backfill`."""
        from holdfast.galleries.backfill import backfill

        return backfill(self, source, **options)

    def census(self, generation: str | None = None, *, on_step: Progress | None = None) -> Census:
        """Read every vector of a generation and count what is right and what is not; see `census`."""
        _, state = self.now()
        name = generation or state.target
        return census(self.store, writes.named_generation(state, name), on_step=on_step)

    def complete(self, *, allow_missing: bool = False, on_step: Progress | None = None) -> Census:
        """Declare the upgrade finished, after a census of all vectors of the active generation.

        Args:
            allow_missing: Finish although items lack a new vector; how many is recorded.
            on_step: Told "done" and "total".

        Raises:
            GalleryError: A vector is missing or wrong.
        """
        advance(self.state, {"kind": "complete"})
        found = self.census(self.state.active, on_step=on_step)  # writers need not wait for it
        with self.writing("complete") as pointer:
            state = self._state(pointer)
            if found.wrong or found.generation != state.active:  # or only written meanwhile
                found = census(self.store, state.by_name[state.active])
            found.refuse_wrong()
            lacking = pointer.items - pointer.covered([state.active])
            if lacking and not allow_missing:
                raise GalleryError(
                    f"{lacking} of {pointer.items} items have no vector of {state.active}: {found.shown_lacking()}.",
                    expected="one for every item",
                    to_do="`holdfast gallery backfill` them, delete them, or record that they stay behind: "
                    "--allow-missing; the gallery is intact.",
                )
            self._commit(state, {"kind": "complete", "missing": lacking}, Changes())
        return found

    def rollback(self) -> int:
        """Make the generation before the active one active again, at once and without a model.

        Returns:
            How many items have a vector of the newer model only: they stay, and are found by queries of the older one
            only where that direction was vouched for.
        """
        with self.writing("rollback") as pointer:
            state = self._state(pointer)
            before = advance(state, {"kind": "rollback"}).active
            only_new = pointer.items - pointer.covered([before])
            self._commit(state, {"kind": "rollback", "only_new": only_new}, Changes())
        return only_new

    def abandon(self) -> None:
        """Give up the prepared generation; its vectors stay until gc.

        Raises:
            GalleryError: Items would lose their only vector; nothing was changed.
        """
        with self.writing("abandon") as pointer:
            state = self._state(pointer)
            self._retire(pointer, state, {"kind": "abandon"})

    def gc(self, *, older_than: float = 3600.0) -> Tidied:
        """Remove the vectors of abandoned and, once an upgrade is complete, of earlier generations.

        Args:
            older_than: Keep files that a reader opened within so many seconds could still use. Adapters stay for those
                who began just before, and go with the next gc.

        Returns:
            Bytes that were freed, and that still wait for readers of a while ago.
        """
        with self.writing("gc") as pointer:
            state = self._state(pointer)
            self._retire(pointer, state, {"kind": "gc"})
        return self.store.tidy(older_than=older_than)

    def _retire(self, pointer: Pointer, state: GalleryState, event: Mapping[str, Any]) -> None:
        after, collected = advance(state, event), event["kind"] == "gc"
        kept = {one.name for one in after.generations}
        lost = pointer.covered([one.name for one in state.generations]) - pointer.covered(list(kept))
        if lost > (after.allowed_missing if collected else 0):
            raise GalleryError(
                f"{lost} items have no other vector than those of the generations that would go.",
                expected="a vector of another generation for each",
                to_do=("`holdfast gallery backfill`" if collected else f"upsert them with vectors of {state.active},")
                + " or delete them first; the gallery is intact.",
            )
        gone = [*state.retired, *(name for name in state.by_name if name not in kept)] if collected else []
        files = state.files | after.files if collected else None
        self._commit(state, {**event, "dropped": gone}, Changes(drop=gone, keep_files=files))


def _refuse_empty(reason: str | None) -> None:
    refuse(reason is not None and not reason.strip(), f"The reason '{reason}'.", "why it is done all the same")


def _check_linked_spaces(query: Generation, gallery: Generation) -> None:
    if query.geometry != gallery.geometry:
        raise SpaceMismatchError(
            f"{query.name} is on the {query.geometry}, {gallery.name} on the {gallery.geometry}.",
            expected="one space for both",
            to_do="link them by an adapter: `holdfast gallery prepare --adapter`; the gallery is intact.",
        )
