"""Adapters between two frozen models as the reason why queries of one find vectors of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import ConfigError, SpaceMismatchError
from holdfast.galleries.router import Source
from holdfast.galleries.state import GalleryState, Generation, Link
from holdfast.geometry import Space
from holdfast.stores.base import Changes, Fill, Items, Rows

if TYPE_CHECKING:
    from holdfast.adapters import Adapter
    from holdfast.adapters.score_map import ScoreMap
    from holdfast.galleries.base import GalleryBase

MAPPED_AT_ONCE = 16_384  # items of one commit


@dataclass(frozen=True)
class Bridge:
    """An adapter between the active generation and a new model.

    Args:
        folder: Where it is.
        old: The active generation.
        generation: Record of the generation of mapped vectors; None where it maps queries.
    """

    folder: Path
    old: Generation
    generation: dict[str, Any] | None

    @property
    def mapped(self) -> bool:
        """Whether it maps stored vectors, not queries."""
        return self.generation is not None

    @classmethod
    def of(cls, state: GalleryState, folder: Path, fingerprint: str, space: Space) -> Bridge:
        """Open an adapter between the active generation and a new model, and refuse others.

        Raises:
            ConfigError: It is between other models.
            SpaceMismatchError: It is between other spaces.
        """
        folder = folder.resolve()
        adapter, old = load_adapter_of(str(folder)), state.by_name[state.active]
        fitted = adapter.fitted
        ends = (old.fingerprint, fingerprint)
        if (fitted.source, fitted.target) not in (ends, ends[::-1]):
            raise ConfigError(
                f"The adapter '{folder}' maps {fitted.source} to {fitted.target}.",
                expected=f"one between {old.fingerprint} and {fingerprint}",
                to_do="fit one for these two: `holdfast adapt --old A --new B`; the gallery is intact.",
            )
        spaces = (fitted.source_space, fitted.target_space)
        expected = (old.geometry, space) if adapter.direction == "old_to_new" else (space, old.geometry)
        if spaces != expected:
            raise SpaceMismatchError(
                f"The adapter '{folder}' maps from the {spaces[0]} to the {spaces[1]}.",
                expected=f"one from the {expected[0]} to the {expected[1]}",
                to_do="fit it on the points that the gallery holds; the gallery is intact.",
            )
        if adapter.direction == "new_to_old":
            return cls(folder, old, None)
        record = {
            "name": f"g{state.created + 1}",
            "fingerprint": adapter.mapped_fingerprint,
            "space": fitted.target_space.record(),
            "mapped_from": old.name,
            "adapter": str(folder),
            "note": f"{old.name} mapped by '{folder.name}'",
        }
        return cls(folder, old, record)


def adapter_link(bridge: Bridge, new: Generation, score_map: Path | None) -> list[Link]:
    """Return the link that an adapter gives to queries of the new model."""
    folder = str(bridge.folder)
    if bridge.generation is not None:
        return [Link(new.name, bridge.generation["name"], "mapped", folder)]
    file = None if score_map is None else str(score_map.resolve())
    if file is not None:
        _score_map(file)  # refuse a damaged one now
    return [Link(new.name, bridge.old.name, "adapter", folder, adapter=folder, score_map=file)]


def fill_mapped(gallery: GalleryBase, *, on_step: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Map stored vectors into every generation of mapped ones that lacks them, and return how many were written.

    Stopped anywhere, another call goes on. A vector that the adapter maps to zero has no direction and stays without
    an image.

    Args:
        gallery: Where.
        on_step: Told "done" and "total" after every commit.
    """
    written, total = 0, 0
    for generation in gallery.state.generations:
        if generation.mapped_from is None:
            continue
        pointer, after = gallery.store.pointer(), ""
        total += pointer.covered([generation.mapped_from]) - pointer.covered([generation.name])
        while len(items := gallery.store.scan(after=after, limit=MAPPED_AT_ONCE, lacking=generation.name)):
            after = items.ids[-1]
            written += _map_items(gallery, generation, items)
            if on_step is not None:
                on_step({"done": written, "total": total})
    return written


def _map_items(gallery: GalleryBase, generation: Generation, items: Items) -> int:
    store, state = gallery.store, gallery.state
    ids, forms = store.vectors(str(generation.mapped_from), items.ids)
    if not ids:
        return 0
    points = state.by_name[str(generation.mapped_from)].geometry.from_index_form(forms)
    images = load_adapter_of(generation.adapter).map(points)
    found = np.flatnonzero(images.any(axis=1))
    names = [ids[row] for row in found]
    version_of = dict(zip(items.ids, items.versions.tolist(), strict=True))
    versions = np.array([version_of[name] for name in names], np.int64)
    form = generation.geometry.index_form(images[found], "gallery")
    fill = Fill(Rows(generation.name, names, form), versions)
    event = {"kind": "map", "generation": generation.name, "items": len(names)}
    with store.writing("map", timeout=gallery.timeout):
        return int(store.commit(Changes(fill=fill), gallery.state.to_record(), event).filled.sum())


@lru_cache(maxsize=16)
def load_adapter_of(folder: str | None) -> Adapter:
    """Open the adapter of a folder, once per process."""
    from holdfast.adapters.storage import load_adapter

    return load_adapter(str(folder))


@lru_cache(maxsize=16)
def _score_map(file: str) -> ScoreMap:
    from holdfast.adapters.score_map import load_score_map

    return load_score_map(Path(file))


def load_score_maps(sources: Sequence[Source]) -> dict[str, ScoreMap]:
    """Return the score maps of the sources that have one, by generation."""
    links = {source.generation: source.link for source in sources if source.link is not None}
    return {name: _score_map(link.score_map) for name, link in links.items() if link.score_map is not None}
