"""Folders that appear whole or not at all, and copies that are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet.engines.digested_folder import DigestedFolder
from limpet.errors import GalleryError
from limpet.support.disk import Disk


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
