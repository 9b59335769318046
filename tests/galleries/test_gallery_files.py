"""Adapters and score maps are part of the gallery: what happens to the files they came from changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import Adapter, build_adapter
from limpet.adapters.storage import load_adapter, pack_adapter, save_adapter, unpack_adapter
from limpet.embeddings import EmbeddingSet
from limpet.errors import GalleryError, ReleaseError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.doctor import doctor
from limpet.galleries.state import GalleryState, replay
from limpet.galleries.transfer import export
from limpet.geometry import Hypersphere
from limpet.stores.base import digest_of

Embed = Callable[..., EmbeddingSet]

IDS = [f"i{row:02}" for row in range(12)]
WIDE = Hypersphere(6)
DIRECTIONS = ("new_to_old", "old_to_new")
SCORES = '{"format_version": 1, "direction": "old_to_new", "knots": [-1.0, 1.0], "values": [-0.5, 0.5]}'
FIXTURE = Path(__file__).parent / "fixtures" / "format_1.zip"
MADE_IN = "/tmp/limpet-fixture"


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
            gallery.prepare("declared:new", WIDE, adapter=folder, **scores)
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
        gallery.complete()
        gallery.rollback()
        gallery.gc()
        gallery.swap()
        gallery.upsert(embed("old", IDS[4:]))
        assert hits_of(gallery, queries, 12) == before
        gallery.backfill(only_these(embed("new", IDS, space=WIDE)))
        gallery.complete()
        pointer = gallery.store.pointer()
        gallery.gc()
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
        gallery.prepare("declared:new", WIDE, adapter=fitted(embed, "new_to_old"))
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
    rows = np.ones((2, adapter.fitted.source_space.dim), np.float32)
    np.testing.assert_array_equal(again.map(rows), adapter.map(rows))
    for wrong in (b"", b"{}", content[:-1], content.replace(b"procrustes", b"ridge"), content[content.index(b"\0") :]):
        with pytest.raises(ReleaseError, match="'here'"):
            unpack_adapter(wrong, "here")


# Galleries of format version 1, which named adapters by their folders


@pytest.fixture
def written_before(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a gallery of format version 1, with the paths that it names under tmp_path."""

    def unpack(name: str) -> Path:
        with zipfile.ZipFile(FIXTURE) as archive:
            archive.extractall(tmp_path)
        with closing(sqlite3.connect(tmp_path / name / "gallery.db")) as database, database:
            for table, column in (("pointer", "manifest"), ("journal", "event")):
                database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", [MADE_IN, str(tmp_path)])
        return tmp_path / name

    return unpack


def version(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "gallery.db")) as database:
        return str(database.execute("SELECT value FROM meta WHERE name = 'format_version'").fetchone()[0])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_first_write_takes_in_what_stood_outside(
    direction: str, written_before: Any, tmp_path: Path, embed: Embed, asked: Any, hits_of: Any
) -> None:
    folder, queries = written_before(f"memory_{direction}"), asked("new", space=WIDE)
    with Gallery.open(str(folder)) as gallery:
        before = hits_of(gallery, queries, 12)
        assert gallery.search(queries, 12).merge == ("calibrated" if direction == "new_to_old" else "score")
        outside = [one for one in doctor(gallery).findings if one.severity in ("warning", "error")]
        assert {one.kind for one in outside} == {"outside"} and "gallery migrate" in outside[0].to_do
        assert str(tmp_path / direction) in outside[0].says
    assert version(folder) == "1"  # reading changes nothing
    with Gallery.open(str(folder)) as gallery:
        gallery.delete(["nobody"])
        assert all(name.startswith("sha256:") for name in gallery.state.files) and gallery.state.files
        shutil.rmtree(tmp_path / direction)
        (tmp_path / "score_map.json").unlink()
        assert doctor(gallery).healthy
    assert version(folder) == "2"
    with Gallery.open(str(folder)) as gallery:
        assert hits_of(gallery, queries, 12) == before
        gallery.upsert(embed("old", ["fresh"]), metadata={"label": ["y"]})
        assert gallery.search(queries, 20).covered == 13
        assert replay([entry.event for entry in gallery.store.journal()]) == gallery.state


@pytest.mark.parametrize("change", ["gone", "another"])
def test_what_is_not_there_any_more_is_not_taken_in(
    change: str, written_before: Any, tmp_path: Path, embed: Embed, asked: Any, hits_of: Any
) -> None:
    folder = written_before("memory_new_to_old")
    shutil.rmtree(tmp_path / "new_to_old")
    if change == "another":
        pairs = [f"pair {row}" for row in range(40)]
        other = build_adapter("procrustes", {}).fit(embed("stranger", pairs), embed("new", pairs, space=WIDE))
        save_adapter(other, tmp_path / "new_to_old")
    with Gallery.open(str(folder)) as gallery:
        gallery.delete(["i00"])
        [wrong] = [one for one in doctor(gallery).findings if one.severity == "error"]
        assert wrong.kind == "adapter" and ("another adapter" if change == "another" else "No such file") in wrong.says
        assert gallery.search(asked("old")).covered == 11
        shutil.rmtree(tmp_path / "new_to_old", ignore_errors=True)
        save_adapter(fitted(embed, "new_to_old"), tmp_path / "new_to_old")
        assert gallery.migrate() and not gallery.migrate()
        assert doctor(gallery).healthy and gallery.search(asked("new", space=WIDE)).covered == 11


def test_a_gallery_in_lance_written_before_is_searched_upgraded_and_written_to(
    written_before: Any, tmp_path: Path, embed: Embed, asked: Any, only_these: Any
) -> None:
    folder = written_before("lance")
    with Gallery.open(str(folder)) as gallery:
        order = np.argsort(-asked("old").vectors @ embed("old", IDS).vectors.T, axis=1)
        found = [[hit.id for hit in hits] for hits in gallery.search(asked("old"), 12).hits]
        assert found == [[IDS[row] for row in rows] for rows in order]
    assert version(folder) == "1"
    with Gallery.open(str(folder)) as gallery:
        gallery.prepare("declared:new", WIDE, adapter=tmp_path / "new_to_old")
        gallery.swap()
        shutil.rmtree(tmp_path / "new_to_old")
        gallery.backfill(only_these(embed("new", IDS[:4], space=WIDE)))
    assert version(folder) == "2"
    with Gallery.open(str(folder)) as gallery:
        assert gallery.search(asked("new", space=WIDE), 12).covered == 12 and doctor(gallery).healthy


def test_every_kind_of_store_is_brought_up_to_date_by_its_first_write(
    place: str, embed: Embed, asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from limpet.cli import main

    def as_before(gallery: Gallery) -> None:
        database = gallery.store.database  # type: ignore[attr-defined]
        with database.transaction():
            database.execute("DROP TABLE files")
            database.execute("UPDATE meta SET value = '1' WHERE name = 'format_version'")

    with Gallery.create(place, fingerprint="declared:old", space=Hypersphere(4)) as gallery:
        gallery.add(embed("old", IDS))
        as_before(gallery)
    with Gallery.open(place) as gallery:
        assert gallery.search(asked("old")).covered == 12 and gallery.store.format_version() == 1
        gallery.prepare("declared:new", WIDE, adapter=fitted(embed, "new_to_old"))
        assert gallery.store.format_version() == 2 and gallery.search(asked("new", space=WIDE)).covered == 12
        gallery.abandon()
        gallery.gc()
        as_before(gallery)
    for migrated in (True, False):
        assert main(["gallery", "migrate", place, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"format_version": 2, "migrated": migrated}
