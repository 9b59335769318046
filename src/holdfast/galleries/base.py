"""A store with the state of the gallery that its pointer names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.galleries.links import Files, is_outside, packed_outside
from holdfast.galleries.router import remainders
from holdfast.galleries.state import GalleryState, advance
from holdfast.galleries.status import Status, status
from holdfast.stores.base import Changes, Commit, Committed, Pointer, Store, digest_of
from holdfast.stores.checks import damaged
from holdfast.stores.ledger import FORMAT_VERSION

Progress = Callable[[dict[str, Any]], None]


class GalleryBase:
    """What reading and upgrading a gallery have in common.

    Args:
        store: Where it is kept.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, store: Store, *, timeout: float = 10.0) -> None:
        self.store, self.timeout, self.files = store, timeout, Files(store)
        self._states: tuple[Commit | None, GalleryState] = (None, GalleryState())

    def now(self) -> tuple[Pointer, GalleryState]:
        """Return the pointer, and the state that it names."""
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
        """Which generations there are and where an upgrade stands."""
        return self.now()[1]

    def status(self) -> Status:
        """Return rows, coverage, sizes and where an upgrade stands."""
        return status(self.store, *self.now())

    def __len__(self) -> int:
        return self.store.pointer().items

    @contextmanager
    def writing(self, who: str, *, timeout: float | None = None) -> Iterator[Pointer]:
        """Be the one writer, see `Store.writing`; adapters outside the gallery are taken in first, see `migrate`."""
        with self.store.writing(who, timeout=self.timeout if timeout is None else timeout) as pointer:
            yield self._take_in(pointer)

    def _take_in(self, pointer: Pointer) -> Pointer:
        state = self._state(pointer)
        packed = packed_outside(self.store, state) if any(map(is_outside, state.files)) else {}
        return self._migrate(state, packed) if packed else pointer

    def _migrate(self, state: GalleryState, packed: Mapping[str, bytes]) -> Pointer:
        event = {"kind": "migrate", "files": {path: digest_of(content) for path, content in packed.items()}}
        files = {digest_of(content): content for content in packed.values()}
        return self._commit(state, event, Changes(files=files)).pointer

    def migrate(self) -> bool:
        """Bring a gallery of an earlier format version up to date; otherwise its first write does so.

        Adapters and score maps that format version 1 left outside become part of the gallery, where they are still what
        they were.

        Returns:
            Whether there was something to do.
        """
        with self.store.writing("migrate", timeout=self.timeout) as pointer:
            after = self._take_in(pointer)
            if self.store.format_version() < FORMAT_VERSION:
                after = self._migrate(self._state(after), {})
            return after.sequence > pointer.sequence

    def _commit(self, state: GalleryState, event: Mapping[str, Any], changes: Changes) -> Committed:
        """Commit an event with the state it leads to, and announce what searches of that state may ask for."""
        after = advance(state, event)
        if after != state:
            changes = replace(changes, remainders=remainders(after))
        return self.store.commit(changes, after.to_record(), event)
