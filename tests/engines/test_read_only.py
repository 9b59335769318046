"""Galleries in folders that this process may only read: they are searched, and nothing is written, nor pretended."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines.sqlite import SqliteDatabase
from limpet.errors import StoreError
from limpet.galleries import Gallery
from limpet.galleries import gallery as module
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk

SPACE = Hypersphere(2)
NOBODY = 65534


def points(*ids: str) -> EmbeddingSet:
    vectors = np.full((len(ids), 2), np.sqrt(0.5), np.float32)
    return EmbeddingSet(ids=list(ids), vectors=vectors, fingerprint="declared:m", space=SPACE)


@contextmanager
def without_rights(folder: Path) -> Iterator[Path]:
    """Take the right to write away; root has it whatever the folder says, and becomes somebody else."""
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for place in (folder, *folder.rglob("*")):
            place.chmod(0o755 if place.is_dir() else 0o644)


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Show the folder at another place, mounted for reading only."""
    place = Path(tempfile.mkdtemp(prefix="limpet-mount-"))
    steps = [["mount", "--bind", folder, place], ["mount", "-o", "remount,ro,bind", place]]
    done = [subprocess.run(step, capture_output=True, text=True) for step in steps if os.geteuid() == 0]
    try:
        if not done or any(step.returncode for step in done):
            pytest.skip(f"this user may not mount: {done[-1].stderr if done else 'not root'}")
        yield place
    finally:
        if done and not done[0].returncode:
            subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


@pytest.fixture(params=[without_rights, mounted])
def read_only(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    view: Callable[[Path], object] = request.param
    return view


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike those of pytest."""
    base = Path(tempfile.mkdtemp(prefix="limpet-read-only-"))
    base.chmod(0o755)
    yield base / "gallery"
    shutil.rmtree(base)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("kind", ["memory", "lance"])
def test_a_read_only_gallery_is_searched_and_nothing_else(
    kind: str, folder: Path, read_only: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRAFFIC_AT_ONCE", 1)
    with Gallery.create(f"{kind}:{folder}", fingerprint="declared:m", space=SPACE) as made:
        made.add(points("a", "b"))
    before = contents(folder)
    with read_only(folder) as place, Gallery.open(str(place), count_traffic=True) as gallery:  # type: ignore[attr-defined]
        assert [hit.id for hit in gallery.search(points("q").vectors, 5).hits[0]] == ["a", "b"]
        for refused in (
            lambda: gallery.upsert(points("c")), lambda: gallery.delete(["a"]), lambda: gallery.store.tidy(),
        ):  # fmt: skip
            with pytest.raises(StoreError, match="is read-only for this process") as refusal:
                refused()
            assert "intact" in str(refusal.value)
        assert [hit.id for hit in gallery.search(points("q").vectors, 5).hits[0]] == ["a", "b"]
    assert contents(folder) == before
    with Gallery.open(f"{kind}:{folder}") as again:
        assert again.upsert(points("c")) == 1 and again.store.traffic() == {}


def crashed(folder: Path) -> None:
    """Make a gallery whose last commits are in its write-ahead log, as a kill leaves it."""
    alive = folder.with_name("alive")
    with Gallery.create(f"memory:{alive}", fingerprint="declared:m", space=SPACE) as gallery:
        gallery.add(points("a", "b"))
        shutil.copytree(alive, folder)


def test_what_a_killed_writer_committed_is_found(folder: Path, read_only: Callable[[Path], object]) -> None:
    crashed(folder)
    with read_only(folder) as place, Gallery.open(f"memory:{place}") as gallery:  # type: ignore[attr-defined]
        assert len(gallery.search(points("q").vectors, 5).hits[0]) == 2
        with pytest.raises(StoreError, match="is read-only"):
            gallery.upsert(points("c"))


def test_commits_that_cannot_be_read_are_not_passed_over(folder: Path, read_only: Callable[[Path], object]) -> None:
    crashed(folder)
    (folder / "gallery.db-shm").unlink()
    with (
        read_only(folder) as place,  # type: ignore[attr-defined]
        pytest.raises(StoreError, match=r"last commits of .* are in 'gallery\.db-wal'") as refusal,
    ):
        Gallery.open(f"memory:{place}")
    assert "copy" in str(refusal.value)
    shutil.copytree(folder, folder.with_name("copy"))
    with Gallery.open(f"memory:{folder.with_name('copy')}") as gallery:
        assert len(gallery.search(points("q").vectors, 5).hits[0]) == 2


def test_a_writer_elsewhere_is_followed(folder: Path, read_only: Callable[[Path], object]) -> None:
    writer = Gallery.create(f"memory:{folder}", fingerprint="declared:m", space=SPACE)
    with read_only(folder) as place, Gallery.open(f"memory:{place}") as reader:  # type: ignore[attr-defined]
        for identifier in "abc":
            with with_rights(place == folder):
                writer.add(points(identifier))
            assert identifier in [hit.id for hit in reader.search(points("q").vectors, 5).hits[0]]
        with with_rights(place == folder):
            writer.close()
        assert len(reader.search(points("q").vectors, 5).hits[0]) == 3


@contextmanager
def with_rights(lost: bool) -> Iterator[None]:
    """Be for a moment the user who may write, if this one may not."""
    if not lost:
        yield
        return
    if os.getuid() != 0:
        pytest.skip("only root may be two users")
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(NOBODY)


def test_a_file_that_changes_while_it_is_read_without_locks_is_read_again(
    folder: Path, read_only: Callable[[Path], object]
) -> None:
    folder.mkdir()
    made = SqliteDatabase(folder / "gallery.db", Disk())
    made.execute("CREATE TABLE numbers (number bigint)")
    made.close()
    with read_only(folder) as place:  # type: ignore[attr-defined]
        reader = SqliteDatabase(place / "gallery.db", Disk())
        with pytest.raises(StoreError, match="changed while it was read"), reader.reading():
            assert reader.execute("SELECT count(*) FROM numbers") == [(0,)]
            with with_rights(place == folder):
                writer = SqliteDatabase(folder / "gallery.db", Disk())
                with writer.transaction():
                    writer.execute("INSERT INTO numbers VALUES (1)")
        assert reader.execute("SELECT count(*) FROM numbers") == [(1,)]
        with with_rights(place == folder):
            writer.close()
        assert reader.execute("SELECT count(*) FROM numbers") == [(1,)]
        with pytest.raises(StoreError, match="is read-only"), reader.transaction():
            pass
        reader.close()
