"""A store with the state of the gallery that its pointer names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.galleries.router import remainders
from holdfast.galleries.state import GalleryState, advance
from holdfast.galleries.status import Status, status
from holdfast.stores.base import Changes, Committed, Pointer, Store

Progress = Callable[[dict[str, Any]], None]


class GalleryBase:
    """What reading and upgrading a gallery have in common.

    Args:
        store: Where it is kept.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, store: Store, *, timeout: float = 10.0) -> None:
        self.store, self.timeout = store, timeout
        self._states: tuple[int, GalleryState] = (-1, GalleryState())

    def now(self) -> tuple[Pointer, GalleryState]:
        """Return the pointer, and the state that it names."""
        pointer = self.store.pointer()
        return pointer, self._state(pointer)

    def _state(self, pointer: Pointer) -> GalleryState:
        known, state = self._states
        if known != pointer.sequence:
            state = GalleryState.from_record(pointer.manifest) if pointer.manifest else GalleryState()
            self._states = pointer.sequence, state
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

    def _commit(self, state: GalleryState, event: Mapping[str, Any], changes: Changes) -> Committed:
        """Commit an event with the state it leads to, and announce what searches of that state may ask for."""
        after = advance(state, event)
        if after != state:
            changes = replace(changes, remainders=remainders(after))
        return self.store.commit(changes, after.to_record(), event)
