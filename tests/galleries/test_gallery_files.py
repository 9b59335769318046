"""Adapters and score maps are part of the gallery: what happens to the files they came from changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import Adapter, build_adapter
from limpet.adapters.storage import load_adapter, pack_adapter, save_adapter, unpack_adapter
from limpet.embeddings import EmbeddingSet
from limpet.engines.store import digest_of
from limpet.errors import GalleryError, ReleaseError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.doctor import doctor
from limpet.galleries.state import GalleryState
from limpet.galleries.transfer import export
from limpet.geometry import Hypersphere

Embed = Callable[..., EmbeddingSet]

IDS = [f"i{row:02}" for row in range(12)]
WIDE = Hypersphere(6)
DIRECTIONS = ("new_to_old", "old_to_new")
SCORES = '{"format_version": 1, "direction": "old_to_new", "knots": [-1.0, 1.0], "values": [-0.5, 0.5]}'


def fitted(embed: Embed, direction: str, draw: int = 0) -> Adapter:
    pairs = [f"pair {row}" for row in range(40)]
    old, new = embed("old", pairs), embed("new", pairs, space=WIDE, draw=draw)
    return build_adapter("procrustes", {"direction": direction}).fit(old, new)


@pytest.fixture
def swapped(place: str, tmp_path: Path, embed: Embed, only_these: Any) -> Callable[[str], str]:
    """Upgrade a gallery half the way by an adapter in tmp_path/adapter, and return its url."""

    def build(direction: str) -> str:
        (tmp_path / "score_map.json").write_text(SCORES)
        scores = {"score_map": tmp_path / "score_map.json"} if direction == "new_to_old" else {}
        folder = save_adapter(fitted(embed, direction), tmp_path / "adapter")
        with Gallery.create(place, fingerprint="declared:old", space=Hypersphere(4)) as gallery:
            gallery.add(embed("old", IDS))
            gallery.start("declared:new", WIDE, adapter=folder, **scores)
            gallery.swap()
            gallery.backfill(only_these(embed("new", IDS[:4], space=WIDE)))
        return place

    return build


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_happens_to_the_folder_changes_nothing(
    direction: str, swapped: Callable[[str], str], tmp_path: Path, embed: Embed, asked: Any, hits_of: Any
) -> None:
    url, queries = swapped(direction), asked("new", space=WIDE)
    with Gallery.open(url) as gallery:
        before = hits_of(gallery, queries, 12)
    shutil.rmtree(tmp_path / "adapter")
    save_adapter(fitted(embed, direction, draw=1), tmp_path / "adapter")  # fitted anew, on other pairs
    (tmp_path / "score_map.json").write_text(SCORES.replace("-0.5", "-0.9"))
    with Gallery.open(url) as gallery:
        assert hits_of(gallery, queries, 12) == before
    shutil.rmtree(tmp_path / "adapter")
    (tmp_path / "score_map.json").unlink()
    with Gallery.open(url) as gallery:
        assert hits_of(gallery, queries, 12) == before
        assert doctor(gallery).healthy
        gallery.upsert(embed("old", ["fresh"]))
        assert gallery.search(queries, 20).covered == 13
        assert export(gallery, "g1", tmp_path / "old.npz").rows == 13
        assert str(tmp_path) in gallery.state.links[0].reason  # for people


def test_gc_removes_what_no_state_names_and_rollbacks_keep_what_they_need(
    swapped: Callable[[str], str], embed: Embed, asked: Any, hits_of: Any, only_these: Any
) -> None:
    queries = asked("new", space=WIDE)
    with Gallery.open(swapped("new_to_old")) as gallery:
        names = gallery.state.files
        assert len(names) == 2 and all(digest_of(gallery.store.file(name)) == name for name in names)
        before = hits_of(gallery, queries, 12)
        gallery.backfill(only_these(embed("new", IDS, space=WIDE)))
        gallery.rollback()
        gallery.gc()
        gallery.swap()
        gallery.upsert(embed("old", IDS[4:]))
        assert hits_of(gallery, queries, 12) == before
        gallery.backfill(only_these(embed("new", IDS, space=WIDE)))
        pointer = gallery.store.pointer()
        gallery.finish()
        assert gallery.state.files == frozenset()
        known = GalleryState.from_record(pointer.manifest).files
        assert all(gallery.store.file(name) for name in known)  # for a reader that began just before
        gallery.gc()
        for name in names:
            with pytest.raises(GalleryError, match="has no file"):
                gallery.store.file(name)


def test_a_damaged_adapter_is_refused_and_named(tmp_path: Path, embed: Embed, asked: Any) -> None:
    url = f"memory:{tmp_path / 'gallery'}"
    with Gallery.create(url, fingerprint="declared:old", space=Hypersphere(4)) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", WIDE, adapter=fitted(embed, "new_to_old"))
        content = gallery.store.file(str(gallery.state.links[0].adapter))
    torn = bytearray(content)
    torn[-9] ^= 1
    with closing(sqlite3.connect(tmp_path / "gallery" / "gallery.db")) as database, database:
        database.execute("UPDATE files SET content = ?", [bytes(torn)])
    with Gallery.open(url) as gallery:
        with pytest.raises(StoreError, match="another digest"):
            gallery.search(asked("new", space=WIDE))
        [wrong] = [one for one in doctor(gallery).findings if one.severity == "error"]
        assert (wrong.kind, wrong.generation) == ("adapter", "g1") and "another digest" in wrong.says
        assert gallery.search(asked("old")).covered == 12


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_adapter_is_packed_the_same_every_time_and_proven_when_unpacked(
    direction: str, tmp_path: Path, embed: Embed
) -> None:
    adapter = fitted(embed, direction)
    content = pack_adapter(adapter)
    assert pack_adapter(load_adapter(save_adapter(adapter, tmp_path / "adapter"))) == content
    again = unpack_adapter(content, "here")
    assert again.fingerprint == adapter.fingerprint and pack_adapter(again) == content
    items, kept = adapter.fitted.trained_on, again.fitted.trained_on
    assert items is not None and kept is not None and kept.digest() == items.digest()
    rows = np.ones((2, adapter.fitted.source_space.dim), np.float32)
    np.testing.assert_array_equal(again.map(rows), adapter.map(rows))
    others = content.replace(items.ids.tobytes(), np.arange(len(items.ids), dtype=np.uint64).tobytes())
    for wrong in (
        others,
        b"",
        b"{}",
        content[:-1],
        content.replace(b"procrustes", b"ridge"),
        content[content.index(b"\0") :],
    ):
        with pytest.raises(ReleaseError, match="'here'"):
            unpack_adapter(wrong, "here")


def test_an_adapter_that_the_state_names_by_a_path_is_not_opened(tmp_path: Path, embed: Embed, asked: Any) -> None:
    folder = save_adapter(fitted(embed, "new_to_old"), tmp_path / "adapter")
    url = f"memory:{tmp_path / 'gallery'}"
    with Gallery.create(url, fingerprint="declared:old", space=Hypersphere(4)) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", WIDE, adapter=folder)
        digest = str(gallery.state.links[0].adapter)
    with closing(sqlite3.connect(tmp_path / "gallery" / "gallery.db")) as database, database:
        database.execute("UPDATE pointer SET manifest = replace(manifest, ?, ?)", [digest, str(folder)])
    with Gallery.open(url) as gallery:
        with pytest.raises(GalleryError, match="has no file"):
            gallery.search(asked("new", space=WIDE))
        [wrong] = [one for one in doctor(gallery).findings if one.severity == "error" and one.kind == "adapter"]
        assert "has no file" in wrong.says
