"""Where a gallery is: urls, what is refused before anything is touched, and what may be missing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp
import numpy as np
import pytest

from limpet.engines.store import Changes, NewGeneration, Rows, Upsert
from limpet.engines.stores import STORES, open_store, restore_store
from limpet.errors import ConfigError, GalleryError, StoreError
from limpet.support.disk import Disk


def contents(folder: Path) -> dict[str, bytes]:
    return {found.name: found.read_bytes() for found in folder.iterdir()}


def test_a_folder_is_opened_again_with_and_without_its_kind(tmp_path: Path) -> None:
    made = open_store(f"memory:{tmp_path / 'deep' / 'gallery'}", create=True)
    rows = Rows("g1", ["a"], np.ones((1, 2), np.float32))
    with made.writing("a test"):
        made.commit(Changes([NewGeneration("g1", 2, {})], upsert=Upsert(["a"], [{}], [rows])), {}, {"kind": "test"})
    made.close()
    for url in (f"memory:{tmp_path / 'deep' / 'gallery'}", f"memory://{tmp_path / 'deep' / 'gallery'}"):
        assert open_store(url).vectors("g1", ["a"])[0] == ["a"]
        assert open_store(url).url == f"memory:{tmp_path / 'deep' / 'gallery'}"
    found = open_store(str(tmp_path / "deep" / "gallery"))
    assert (found.kind, found.url) == ("memory", f"memory:{tmp_path / 'deep' / 'gallery'}")


def test_a_gallery_that_is_not_there_names_the_command_that_makes_one(tmp_path: Path) -> None:
    for url, shown in ((f"memory:{tmp_path / 'no'}", f"memory:{tmp_path / 'no'}"), (str(tmp_path), str(tmp_path))):
        with pytest.raises(GalleryError, match="no gallery") as refusal:
            open_store(url)
        assert f"limpet gallery create {shown}" in str(refusal.value)
    assert contents(tmp_path) == {}, "to look for a gallery makes nothing"
    with pytest.raises(GalleryError, match="RAM"):
        open_store("memory://")


@pytest.mark.parametrize("kind", ["memory:", "lance:", ""])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, kind: str) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for create in (True, False):
        with pytest.raises(GalleryError, match=r"thesis\.txt"):
            open_store(f"{kind}{tmp_path}", create=create)
        with pytest.raises(GalleryError, match="is a file"):
            open_store(f"{kind}{tmp_path / 'thesis.txt'}", create=create)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}


def test_a_gallery_is_never_created_over_another(tmp_path: Path) -> None:
    open_store(f"memory:{tmp_path}", create=True).close()
    for kind in ("memory:", "lance:", ""):
        with pytest.raises(GalleryError, match="is a gallery"):
            open_store(f"{kind}{tmp_path}", create=True)
    with pytest.raises(GalleryError, match="of kind 'memory', not 'lance'"):
        open_store(f"lance:{tmp_path}")


@pytest.mark.parametrize(
    "url", ["", "gs://bucket/gallery", "gs+http://bucket/g", "sqlite:gallery", "memory:", "lance:"]
)
def test_an_unknown_kind_lists_the_known(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(ConfigError, match="memory:PATH") as refusal:
            open_store(url, create=create)
        assert all(f"{kind}:" in str(refusal.value) for kind in STORES)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "url",
    ["mysql://ann:s3cret@db/shop", "cockroachdb+psycopg://ann:s3cret@db/shop", "POSTGRESQL://ann:s3cret@db/shop",
     "lance:postgresql://ann:s3/cr?et@db/s3cret@db", "host=db password=s3cret",
     "postgresql+psycopg:/ann:s3cret@db/shop",
     "host=db user=ann password = 'my s3cret'", "s3://bucket/a?ledger=mysql://ann:s3cret@db/shop"],
)  # fmt: skip
def test_no_folder_is_named_after_a_password_and_no_message_repeats_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(ConfigError, match="postgresql://") as refusal:
            open_store(url, create=create)
        assert not any(part in str(refusal.value) for part in ("s3cret", "s3/cr", "et@"))
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("kind", ["lance", "memory"])
@pytest.mark.parametrize("url", ["s3://bucket/g", "gs://bucket/g", "az://c/g", "file:///tmp/g", "s3:/bucket/g"])
def test_no_folder_is_named_after_a_bucket(
    kind: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(ConfigError, match="is a URL") as refusal:
            open_store(f"{kind}:{url}", create=create)
        assert "Nothing was made" in str(refusal.value)
    with pytest.raises(ConfigError, match="is a URL"):
        restore_store(f"{kind}:{url}", kind, None, None)  # type: ignore[arg-type]
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("kind", ["lance", "memory"])
def test_two_galleries_never_write_one_file(kind: str, tmp_path: Path) -> None:
    """A copy by hard links shares the database; both are refused, and left alone."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    open_store(f"{kind}:{original}", create=True).close()
    subprocess.run(["cp", "-al", original, copy], check=True)
    before = (original / "gallery.db").read_bytes()
    for folder in (original, copy):
        with pytest.raises(StoreError, match="2 names") as refusal:
            open_store(str(folder)).pointer()
        assert "limpet gallery backup" in str(refusal.value) and "Nothing was changed" in str(refusal.value)
    assert (original / "gallery.db").read_bytes() == before
    command = refusal.value.to_do.split("`")[1]
    subprocess.run(command, shell=True, check=True)
    open_store(f"{copy}.own").close()
    shutil.rmtree(copy)
    open_store(str(original)).close()


def test_a_format_of_another_version_is_left_alone(tmp_path: Path) -> None:
    open_store(f"memory:{tmp_path}", create=True).close()
    with sqlite3.connect(tmp_path / "gallery.db") as database:
        database.execute("UPDATE meta SET value = '999' WHERE name = 'format_version'")
    database.close()
    with pytest.raises(GalleryError, match="format version 999") as refusal:
        open_store(f"memory:{tmp_path}")
    assert "install" in str(refusal.value) and "intact" in str(refusal.value)


def test_a_kind_that_only_a_later_version_knows_is_refused(tmp_path: Path) -> None:
    open_store(f"memory:{tmp_path}", create=True).close()
    with sqlite3.connect(tmp_path / "gallery.db") as database:
        database.execute("UPDATE meta SET value = 'quantum' WHERE name = 'kind'")
    database.close()
    with pytest.raises(ConfigError, match="quantum"):
        open_store(str(tmp_path))


def test_a_file_that_is_no_database_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "gallery.db").write_bytes(b"this is no database at all" * 100)
    for create in (True, False):
        with pytest.raises(StoreError, match="not a database"):
            open_store(f"memory:{tmp_path}", create=create)


def test_a_database_of_others_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "gallery.db") as database:
        database.execute("CREATE TABLE paintings (title text)")
    database.close()
    before = contents(tmp_path)
    for create in (True, False):
        with pytest.raises(GalleryError, match="tables of others"):
            open_store(f"memory:{tmp_path}", create=create)
    assert contents(tmp_path) == before


class Full(Disk):
    def reached(self, point: str) -> None:
        raise OSError(28, os.strerror(28))


def test_a_creation_that_failed_can_be_repeated(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No space left"):
        open_store(f"memory:{tmp_path / 'gallery'}", create=True, disk=Full())
    with pytest.raises(GalleryError, match="no gallery"):
        open_store(f"memory:{tmp_path / 'gallery'}")
    assert open_store(f"memory:{tmp_path / 'gallery'}", create=True).pointer().sequence == 0


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        open_store(f"memory:{tmp_path / 'file' / 'gallery'}", create=True)


class Watching(Disk):
    """A disk that notes which folders were synced, and what was in them."""

    def __init__(self) -> None:
        self.listed: set[Path] = set()

    def sync_one(self, path: Path) -> None:
        super().sync_one(path)
        self.listed |= set(path.iterdir())


@pytest.mark.parametrize("kind", ["memory", "lance"])
def test_every_name_on_the_way_to_a_new_gallery_survives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = Watching()
    open_store(f"{kind}:a/b/gallery", create=True, disk=disk).close()
    way = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "gallery"]
    assert disk.listed >= {*way, way[-1] / "gallery.db"}


WITHOUT = """
import sys
sys.modules[{package!r}] = None
from limpet.errors import GalleryError
from limpet.engines.stores import open_store
try:
    open_store({url!r}, create=True)
except GalleryError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "url", "install"),
    [("lance", "{}", "'.[gallery]'"), ("psycopg", "postgresql://localhost/x", "'.[pgvector]'")],
)
def test_a_missing_package_is_named_with_what_to_install(tmp_path: Path, package: str, url: str, install: str) -> None:
    code = WITHOUT.format(package=package, url=url.format(tmp_path / "gallery"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install {install}" in done.stdout and package in done.stdout
    assert contents(tmp_path) == {}


def test_stores_are_imported_without_what_they_do_not_need() -> None:
    code = (
        "import sys; from limpet.engines.stores import open_store; open_store('memory://', create=True);"
        "print([name for name in ('torch', 'lance', 'psycopg', 'pyarrow', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_stores_never_import_each_other() -> None:
    graph = grimp.build_graph("limpet")
    packages = {STORES.places[kind].rpartition(".")[0] for kind in STORES}
    assert graph.find_upstream_modules("limpet.galleries", as_package=True)
    made_of = {"limpet.engines.s3": {"limpet.engines.lance", "limpet.engines.postgres"}}  # and of nothing else
    for package in packages:
        above = graph.find_upstream_modules(package, as_package=True)
        others = {
            module
            for module in above
            if module.startswith(tuple(f"{other}." for other in packages - {package} - made_of.get(package, set())))
        }
        assert not others, f"what {package} shares with {others} belongs in a module of its own"


class Recorder(Disk):
    """Remembers what was synced."""

    def __init__(self) -> None:
        self.synced = set[Path]()

    def sync(self, paths: Iterable[Path]) -> None:
        files = list(paths)
        self.synced |= set(files)
        super().sync(files)


@pytest.mark.parametrize("kind", ["memory:", "lance:"])
def test_a_new_gallery_syncs_its_folder_and_those_above_that_were_made_for_it(kind: str, tmp_path: Path) -> None:
    disk = Recorder()
    open_store(f"{kind}{tmp_path / 'new' / 'gallery'}", create=True, disk=disk).close()
    assert {tmp_path / "new" / "gallery", tmp_path / "new"} <= disk.synced
