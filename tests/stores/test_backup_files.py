"""Folders that appear whole or not at all, and copies that are compared."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.errors import GalleryError
from holdfast.stores.backup_files import DigestedFolder, appearing
from holdfast.stores.disk import Disk


def test_files_that_are_one_stay_one(tmp_path: Path) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    (tmp_path / "from" / "a").write_bytes(b"the same")
    (tmp_path / "from" / "b").hardlink_to(tmp_path / "from" / "a")
    (tmp_path / "from" / "c").write_bytes(b"the same")
    copies = DigestedFolder(tmp_path / "to", Disk())
    for name in ("a", "b", "c"):
        copies.copy(tmp_path / "from" / name, f"in/{name}")
    a, b, c = (tmp_path / "to" / "in" / name for name in ("a", "b", "c"))
    assert a.samefile(b) and not a.samefile(c) and not a.samefile(tmp_path / "from" / "a")
    assert len(set(copies.digests.values())) == 1
    copies.check()
    b.write_bytes(b"another")
    with pytest.raises(GalleryError, match="'in/a'"):
        copies.check()


def test_two_at_the_same_place(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with appearing(tmp_path / "new", Disk(), "the first") as folder:
            (folder / "file").write_text("whole")
            begun.set()
            go_on.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(GalleryError, match="Another"), appearing(tmp_path / "new", Disk(), "the second"):
        pass
    go_on.set()
    thread.join()
    assert (tmp_path / "new" / "file").read_text() == "whole"


def test_of_a_failure_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), appearing(tmp_path / "new", Disk(), "a test") as folder:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
