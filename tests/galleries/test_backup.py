"""A backup is the gallery at one commit, whatever happens meanwhile, and what is restored from it goes on by itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from crash.shards import sharded
from limpet.errors import ConfigError, GalleryError, LimpetError, StoreError
from limpet.galleries import Gallery, restore
from limpet.galleries.backup import RECORD, back_up
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk

SPHERE = Hypersphere(4)
IDS = [f"i{row:02}" for row in range(12)]
FOLDERS = ("memory", "lance")


@pytest.fixture
def elsewhere(place: str, tmp_path: Path) -> str:
    """Another place of the same kind."""
    if place.startswith("postgresql"):
        return f"{place.partition('schema=')[0]}schema=t{uuid.uuid4().hex}"
    if place.startswith("sharded"):
        return sharded(tmp_path / "elsewhere", ["memory", "lance"])
    return f"{place.partition(':')[0]}:{tmp_path / 'elsewhere' / 'restored'}"


@pytest.fixture
def filled(place: str, embed) -> Iterator[Gallery]:
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE, columns={"pieces": "integer"}) as gallery:
        gallery.add(embed("old", IDS), metadata={"pieces": list(range(12))})
        yield gallery


@pytest.fixture(params=FOLDERS)
def in_folder(request: pytest.FixtureRequest, tmp_path: Path, embed) -> Iterator[Gallery]:
    """A gallery of twelve items in a folder."""
    url = f"{request.param}:{tmp_path / 'gallery'}"
    with Gallery.create(url, fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        yield gallery


def removed(gallery: Gallery) -> None:
    """Close a gallery and remove it, so that nothing else can rely on it."""
    gallery.close()
    if gallery.store.folder is not None:
        shutil.rmtree(gallery.store.folder)
        return
    server, _, schema = gallery.store.url.rpartition("schema=")
    with psycopg.connect(server.rstrip("?&")) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def held(gallery: Gallery) -> dict[str, tuple[dict[str, object], dict[str, bytes]]]:
    """Everything that is known of the items: metadata, and vectors by generation."""
    items = gallery.store.scan(limit=10_000)
    found = {one: (dict(known), {}) for one, known in zip(items.ids, items.metadata, strict=True)}
    for generation in gallery.state.by_name:
        ids, vectors = gallery.store.vectors(generation, items.ids)
        for one, vector in zip(ids, vectors, strict=True):
            found[one][1][generation] = vector.tobytes()
    return found


class Writer(threading.Thread):
    """Writes to a gallery until it is told to stop, one commit after another, and remembers what each one made."""

    def __init__(self, url: str, embed) -> None:
        super().__init__()
        self.url, self.embed = url, embed
        self.made: dict[int, dict[str, int]] = {}
        self.commits = 0
        self.enough = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Gallery.open(self.url, timeout=120) as gallery:
                sequence = gallery.store.pointer().sequence
                now = dict.fromkeys(IDS, 0)
                self.made[sequence] = dict(now)
                for draw in range(1, 1_000_000):
                    if self.enough.is_set():
                        return
                    ids = [f"i{(draw * step) % 40:02}" for step in (1, 3, 7)]
                    now |= dict.fromkeys(ids, draw)
                    self.made[sequence + 1] = dict(now)
                    gallery.upsert(self.embed("old", list(dict.fromkeys(ids)), draw=draw))
                    gone = f"i{(draw * 11) % 40:02}"
                    now.pop(gone, None)
                    self.made[sequence + 2] = dict(now)
                    gallery.delete([gone])
                    sequence += 2
                    self.commits = sequence
        except BaseException as error:
            self.failure = error


def test_taken_while_others_write_it_holds_one_commit_and_goes_on_elsewhere(
    filled, place, elsewhere, embed, asked, same_as_a_loop, points_of, only_these, reported, tmp_path
) -> None:
    writer = Writer(place, embed)
    writer.start()
    while writer.commits < 8:
        assert writer.failure is None and not writer.enough.wait(0.002)
    told: list[dict[str, object]] = []
    taken = filled.backup(tmp_path / "backup", progress=told.append)
    after = writer.commits
    while writer.commits < after + 4:  # writing went on
        assert writer.failure is None and not writer.enough.wait(0.002)
    writer.enough.set()
    writer.join()
    assert writer.failure is None and {one["state"] for one in told} == {"copying", "checking"}
    removed(filled)

    assert restore(tmp_path / "backup", elsewhere) == taken
    shutil.rmtree(tmp_path / "backup")
    draws = writer.made[taken.contents.sequence]
    sets = [embed("old", [one], draw=draw) for one, draw in sorted(draws.items())]
    with Gallery.open(elsewhere) as gallery:
        assert gallery.store.pointer().sequence == taken.contents.sequence >= 8
        assert [entry.sequence for entry in gallery.store.journal()] == list(range(1, taken.contents.sequence + 1))
        same_as_a_loop(gallery, asked("old"), points_of(*sets), ["old"], k=50)

        gallery.start("declared:new", SPHERE, reports=[reported()])
        gallery.swap()
        some = sorted(draws)[::2]
        gallery.backfill(only_these(embed("new", some)))
        same_as_a_loop(gallery, asked("new"), points_of(*sets, embed("new", some)), ["new", "old"], k=50)
        gallery.rollback()
        same_as_a_loop(gallery, asked("old"), points_of(*sets), ["old"], k=50)
        gallery.gc(older_than=0)


def test_a_gallery_in_the_middle_of_an_upgrade(
    filled, place, elsewhere, embed, asked, same_as_a_loop, points_of, only_these, reported, tmp_path, request
) -> None:
    filled.start("declared:new", SPHERE, reports=[reported()])
    filled.backfill(only_these(embed("new", IDS[:5])))
    filled.swap()
    filled.upsert(embed("new", ["only new"]), metadata={"pieces": [3]})
    filled.store.set_queue("g2", ["i07", "i05"])
    filled.store.add_traffic({"i01": 3})
    before = held(filled), filled.state, filled.store.pointer(), filled.store.journal()
    filled.backup(tmp_path / "backup")
    removed(filled)
    restore(tmp_path / "backup", elsewhere)
    with Gallery.open(elsewhere) as gallery:
        assert (held(gallery), gallery.state, gallery.store.pointer(), gallery.store.journal()) == before
        assert gallery.store.queue("g2") == ["i07", "i05"] and gallery.store.traffic() == {"i01": 3}
        old, new = embed("old", IDS), embed("new", [*IDS[:5], "only new"])
        same_as_a_loop(gallery, asked("new"), points_of(old, new), ["new", "old"], k=20)
        gallery.backfill(only_these(embed("new", IDS)))
        gallery.finish()
        same_as_a_loop(gallery, asked("new"), points_of(embed("new", [*IDS, "only new"])), ["new"], k=20)


def test_a_backup_of_a_folder_is_a_gallery_where_it_is(
    in_folder, embed, asked, same_as_a_loop, points_of, tmp_path
) -> None:
    in_folder.backup(tmp_path / "backup")
    removed(in_folder)
    with Gallery.open(str(tmp_path / "backup")) as gallery:
        same_as_a_loop(gallery, asked("old"), points_of(embed("old", IDS)), ["old"])
    restore(tmp_path / "backup", str(tmp_path / "restored"))  # which it still is
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "restored"]


def test_a_gallery_in_ram_alone_can_be_kept(gallery, embed, tmp_path) -> None:
    gallery.add(embed("old", IDS))
    gallery.backup(tmp_path / "backup")
    with pytest.raises(GalleryError, match="in RAM alone"):
        restore(tmp_path / "backup", "memory://")
    restore(tmp_path / "backup", f"memory:{tmp_path / 'kept'}")
    with Gallery.open(str(tmp_path / "kept")) as kept:
        assert held(kept) == held(gallery)


def test_an_approximate_index_comes_back(postgres_url, tmp_path, embed) -> None:
    with Gallery.create(postgres_url, fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.store.build_index("g1")
        gallery.backup(tmp_path / "backup")
        removed(gallery)
    restore(tmp_path / "backup", postgres_url)
    with Gallery.open(postgres_url) as gallery:
        assert gallery.store.upkeep("g1").indexed == 12


class Meanwhile(Disk):
    """Lets something happen once, when a point is reached for the first time."""

    def __init__(self, point: str, happens: Callable[[], object]) -> None:
        self.point, self.happens = point, happens

    def reached(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            self.happens()


def test_what_finish_removes_meanwhile_is_in_the_backup(in_folder, embed, only_these, tmp_path) -> None:
    in_folder.start("declared:new", SPHERE)
    in_folder.backfill(only_these(embed("new", IDS)))
    in_folder.swap()
    before = held(in_folder)
    assert set(before["i00"][1]) == {"g1", "g2"}

    def collect() -> None:
        with Gallery.open(in_folder.store.url) as other:
            other.finish()
            other.gc(older_than=0)
            other.delete(IDS[:6])
            other.gc(older_than=0)

    back_up(in_folder.store, tmp_path / "backup", disk=Meanwhile("copy.write", collect))
    assert set(held(in_folder)) == set(IDS[6:])
    restore(tmp_path / "backup", str(tmp_path / "restored"))
    with Gallery.open(str(tmp_path / "restored")) as restored:
        assert held(restored) == before
    assert not list(in_folder.store.folder.glob("*.unfinished"))


def test_readers_and_writers_do_not_wait_for_it(filled, place, embed, tmp_path) -> None:
    def go_on() -> None:
        with Gallery.open(place, timeout=0) as other:
            other.upsert(embed("old", ["i00"], draw=1))

    before = held(filled)
    taken = back_up(filled.store, tmp_path / "backup", disk=Meanwhile("copy.write", go_on))
    assert filled.store.pointer().sequence == taken.contents.sequence + 1
    assert held(filled) != before


KILLED = """
import os, signal, sys
from limpet.galleries import Gallery, restore
from limpet.galleries.backup import back_up
from limpet.support.disk import Disk

class Killed(Disk):
    seen = []

    def reached(self, point):
        self.seen.append(point)
        if point in points or f"{point} {self.seen.count(point)}" in points:
            os.kill(os.getpid(), signal.SIGKILL)

step, first, second, *points = sys.argv[1:]
if step == "backup":
    back_up(Gallery.open(first).store, second, disk=Killed())
else:
    restore(first, second, disk=Killed())
"""


def killed(step: str, first: object, second: object, *points: str) -> None:
    """Do it in a process that is killed when it reaches one of these points."""
    words = [sys.executable, "-c", KILLED, step, str(first), str(second), *points]
    assert subprocess.run(words, check=False, capture_output=True, timeout=120).returncode == -9


def test_killed_at_any_moment_nothing_is_half_there(filled, place, elsewhere, embed, tmp_path) -> None:
    backup, before = tmp_path / "backup", held(filled)
    killed("backup", place, backup, "copy.write")
    assert not backup.exists() and (tmp_path / "backup.unfinished").is_dir()
    with pytest.raises(GalleryError, match="its writing was interrupted"):
        restore(tmp_path / "backup.unfinished", elsewhere)
    filled.upsert(embed("old", ["i00"]), metadata={"pieces": [0]})  # the gallery goes on
    filled.gc(older_than=0)
    assert not list((tmp_path / "gallery").glob("*.unfinished"))
    filled.backup(backup)

    if filled.store.kind == "lance":
        killed("restore", backup, elsewhere, "copy.write 3")
        for left in tmp_path.rglob("*.unfinished"):
            with pytest.raises(GalleryError, match="holds something else"):
                Gallery.open(str(left))
    killed("restore", backup, elsewhere, "copy.appear", "database.commit")
    with pytest.raises(GalleryError, match="There is no gallery"):
        Gallery.open(elsewhere)
    restore(backup, elsewhere)
    with Gallery.open(elsewhere) as gallery:
        assert held(gallery) == before
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount a file system of its own; skips where that is not allowed."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(*words: object) -> Path:
        if subprocess.run(["mount", *map(str, words), folder], check=False, capture_output=True).returncode:
            pytest.skip("mounting needs the rights of root")
        return folder

    yield mount
    subprocess.run(["umount", folder], check=False, capture_output=True)


def test_a_full_disk_leaves_nothing(filled, mounted, embed) -> None:
    full = mounted("-t", "tmpfs", "-o", "size=16k", "none")
    with pytest.raises(StoreError, match=r"No space left|disk is full"):
        filled.backup(full / "backup")
    assert not list(full.iterdir())
    filled.upsert(embed("old", ["i00"], draw=1))
    assert len(filled) == 12


def test_restoring_to_a_full_disk_leaves_nothing(in_folder, mounted, tmp_path) -> None:
    in_folder.backup(tmp_path / "backup")
    full = mounted("-t", "tmpfs", "-o", "size=16k", "none")
    with pytest.raises(StoreError, match=r"No space left|disk is full"):
        restore(tmp_path / "backup", str(full / "restored"))
    assert not list(full.iterdir())


def test_a_gallery_that_cannot_be_written_to(in_folder, mounted, tmp_path) -> None:
    folder, before = in_folder.store.folder, held(in_folder)
    in_folder.close()
    seen = mounted("-o", "bind,ro", folder)
    with Gallery.open(f"{in_folder.store.kind}:{seen}") as gallery:
        gallery.backup(tmp_path / "backup")
    restore(tmp_path / "backup", str(tmp_path / "restored"))
    with Gallery.open(str(tmp_path / "restored")) as restored:
        assert held(restored) == before


def test_places_that_cannot_take_a_backup(in_folder, mounted, tmp_path) -> None:
    folder = in_folder.store.folder
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("important")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    in_folder.status()  # makes the folder that readers leave their locks in
    before = sorted(folder.rglob("*"))
    for dest, error, message in (
        (folder / "backup", ConfigError, "own folder"),
        (tmp_path / "link" / "backup", ConfigError, "own folder"),
        (tmp_path / "thesis", GalleryError, "holds something else: chapter.txt"),
        (tmp_path / "file", GalleryError, "is a file"),
        (tmp_path / "file" / "backup", StoreError, "cannot be written"),
        (tmp_path / "loop", StoreError, "cannot be written"),
        ("/proc/backup", StoreError, "cannot be written"),
        (mounted("-t", "tmpfs", "none"), GalleryError, "is mounted"),
    ):
        with pytest.raises(error, match=message):
            in_folder.backup(dest)
    assert sorted(folder.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    in_folder.backup(tmp_path / "empty")
    with pytest.raises(GalleryError, match="There is a gallery"):
        in_folder.backup(tmp_path / "empty")


def test_places_that_nothing_is_restored_to(filled, place, embed, tmp_path) -> None:
    filled.backup(tmp_path / "backup")
    with pytest.raises(GalleryError, match="There is a gallery"):
        restore(tmp_path / "backup", place)
    others = {"memory": f"memory:{tmp_path / 'new'}", "lance": f"lance:{tmp_path / 'new'}",
              "postgresql": "postgresql://localhost/none"}  # fmt: skip
    for kind, url in others.items():
        if kind != filled.store.kind:
            with pytest.raises(GalleryError, match=f"kind '{filled.store.kind}', to be restored .* kind '{kind}'"):
                restore(tmp_path / "backup", url)
    with pytest.raises(ConfigError, match="Unknown kind of gallery"):
        restore(tmp_path / "backup", "mysql://somewhere")
    assert not (tmp_path / "new").exists() and len(filled) == 12


def test_a_damaged_backup_is_refused_before_anything_is_written(filled, elsewhere, tmp_path) -> None:
    taken = filled.backup(tmp_path / "backup")
    for name in sorted(taken.files, key=lambda name: (tmp_path / "backup" / name).stat().st_size)[-3:]:
        file = tmp_path / "backup" / name
        content = file.read_bytes()
        for damaged in (content[:-1], bytes([content[0] ^ 1]) + content[1:]):
            file.write_bytes(damaged)
            with pytest.raises(GalleryError, match=re.escape(f"The file '{name}' in")):
                restore(tmp_path / "backup", elsewhere)
        file.unlink()
        with pytest.raises(StoreError, match="cannot be read"):
            restore(tmp_path / "backup", elsewhere)
        file.write_bytes(content)
    with pytest.raises(GalleryError, match="There is no gallery"):
        Gallery.open(elsewhere)
    assert not list(tmp_path.rglob("*.unfinished"))


def test_counts_that_differ_are_refused(filled, elsewhere, tmp_path) -> None:
    filled.backup(tmp_path / "backup")
    record = json.loads((tmp_path / "backup" / RECORD).read_text())
    record["contents"]["rows"]["g1"] = 13
    (tmp_path / "backup" / RECORD).write_text(json.dumps(record))
    with pytest.raises(GalleryError, match="would have commit 2, 12 items, 12 vectors of g1"):
        restore(tmp_path / "backup", elsewhere)
    with pytest.raises(GalleryError, match="There is no gallery"):
        Gallery.open(elsewhere)


def test_records_that_are_none(in_folder, tmp_path) -> None:
    in_folder.backup(tmp_path / "backup")
    file = tmp_path / "backup" / RECORD
    record = json.loads(file.read_text())
    (name, digest) = next(iter(record["files"].items()))
    for wrong in ("", "[]", "\xff", "[" * 100_000, *map(json.dumps, (
        record | {"format_version": 2}, record | {"files": {}}, record | {"contents": None}, record | {"more": 1},
        record | {"files": {"../" + name: digest}}, record | {"files": {"/etc/passwd": digest}},
        record | {"files": {"\0": digest}}, record | {"kind": "mysql"},
    ))):  # fmt: skip
        file.write_text(wrong)
        with pytest.raises(LimpetError, match=r"backup.json' cannot be read|Unknown kind of gallery 'mysql'"):
            restore(tmp_path / "backup", str(tmp_path / "restored"))
    file.unlink()
    with pytest.raises(GalleryError, match=r"no whole backup: it has no backup\.json"):
        restore(tmp_path / "backup", str(tmp_path / "restored"))
    with pytest.raises(GalleryError, match="There is no folder"):
        restore(tmp_path / "none", str(tmp_path / "restored"))
    assert not (tmp_path / "restored").exists()
