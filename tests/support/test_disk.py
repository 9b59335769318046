"""Folders that appear whole or not at all, whatever the operating system does, and whoever writes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.backup_files import appearing
from limpet.errors import ConfigError, LimpetError
from limpet.export import formats
from limpet.export.exportable import of_adapter
from limpet.export.formats import export
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.models.building import build_network
from limpet.models.specs import TextSpec
from limpet.models.text_encoders import open_text_encoder
from limpet.support.disk import Disk, only_files, whole_folder
from limpet_bench.steps import hand_over
from tiny_text_model import write_tiny_model

Write = Callable[[Path], object]


def filled(path: Path) -> Path:
    """Write a folder of two files, one of them within another folder."""
    with whole_folder(path, "test") as folder:
        (folder / "inside").mkdir()
        (folder / "first").write_text("whole")
        (folder / "inside" / "second").write_text("whole")
    return path


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_everything_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{handle}").readlink()).removeprefix(f"{tmp_path.resolve()}").strip("/"))
        sync(handle)

    def replaced(first: Path, second: Path) -> None:
        done.append("replace")
        replace(first, second)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replaced)
    filled(tmp_path / "new" / "place")
    begun = "new/place.unfinished"
    assert done[:5] == [f"{begun}/inside/second", f"{begun}/inside", f"{begun}/first", begun, "replace"]
    assert set(done[5:]) == {"new/place", "new", ""}
    assert listed(tmp_path) == {"new", "new/place", "new/place/first", "new/place/inside", "new/place/inside/second"}


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
    with pytest.raises(ConfigError, match="Another"), appearing(tmp_path / "new", Disk(), "the second"):
        pass
    go_on.set()
    thread.join()
    assert listed(tmp_path) == {"new", "new/file"} and (tmp_path / "new" / "file").read_text() == "whole"


def test_what_is_there_stays(tmp_path: Path) -> None:
    filled(tmp_path / "new")
    with pytest.raises(OSError), whole_folder(tmp_path / "new", "test") as folder:
        (folder / "first").write_text("another")
    assert (tmp_path / "new" / "first").read_text() == "whole" and listed(tmp_path) == {
        "new",
        "new/first",
        "new/inside",
        "new/inside/second",
    }


def test_of_a_failure_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "new", "test") as folder:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Write]:
    """Who writes folders whole, each with something to write; the folder of a text model is one in a release."""
    root, rng = tmp_path_factory.mktemp("written"), np.random.default_rng(0)
    ids, space = StringArray.of(f"i{row}" for row in range(20)), Hypersphere(4)
    old, new = (
        EmbeddingSet(rng.normal(size=(20, 4)).astype(np.float32), ids, name, space)
        for name in ("declared:1", "declared:2")
    )
    gallery = Gallery.create(f"memory:{root / 'gallery'}", fingerprint=old.fingerprint, space=space)
    gallery.add(old)
    adapter = of_adapter(build_adapter("procrustes", {}).fit(old, new))
    folder = write_tiny_model(root / "tiny")
    encoder = open_text_encoder(folder)
    tower = build_network(TextSpec(frozen=encoder.fingerprint, width=encoder.dim, dim=8, place=str(folder)))
    return {
        "backup": gallery.backup,
        "export": lambda path: export(adapter, formats()["npz"], path),
        "bench": lambda path: hand_over(
            filled(root / "first") if not (root / "first").exists() else root / "first", path
        ),
        "release": lambda path: tower.released(path),
    }


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("who", ["backup", "export", "bench", "release"])
def test_a_disk_that_fails_leaves_nothing(
    who: str, call: str, writers: dict[str, Write], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever call it fails, below all code of ours: there is nothing, and then the same place is written whole."""
    works, left = getattr(os, call), [0]

    def fails(*words: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "Input/output error")
        return works(*words)

    monkeypatch.setattr(os, call, fails)
    place, failures = tmp_path / "place", 0
    while True:
        left[0] = failures
        try:
            writers[who](place)
            break
        except (OSError, LimpetError):
            failures += 1
            assert listed(tmp_path) <= {"place"} and not (place.exists() and list(place.iterdir()))
    assert failures >= (5 if call == "fsync" else 1)
    whole = listed(place)
    assert whole and not any(name.endswith(".unfinished") for name in listed(tmp_path))
    again = tmp_path / "again"
    left[0] = 1000
    writers[who](again)
    assert listed(again) == whole


def test_only_files_passes_over_a_folder_that_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("removed", "kept"):
        (tmp_path / "table" / name).mkdir(parents=True)
    listed = os.scandir

    def scandir(folder: Path) -> object:
        if folder.name == "removed":
            folder.rmdir()
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert only_files(tmp_path, deep=True) == tmp_path
    os.mkfifo(tmp_path / "table" / "kept" / "pipe")
    (tmp_path / "table" / "removed").mkdir()
    with pytest.raises(OSError, match="no file"):
        only_files(tmp_path, deep=True)
    with pytest.raises(FileNotFoundError):
        only_files(tmp_path / "missing", deep=True)
