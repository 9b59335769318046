"""Pipes, devices, sockets and folders in the place of files: refused in words, and nobody waits for them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from PIL import Image

import limpet.engines.lance.store  # noqa: F401 - children are forked from a process that has imported what they need
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.cli import main
from limpet.data.text_files import FILE_READERS
from limpet.errors import DataError
from limpet.geometry import Hypersphere
from limpet.models.building import build_network
from limpet.models.release import make_release, save_release
from limpet.models.specs import FeatureSpec, encoder_spec
from limpet.support.disk import only_files, open_file, read_bytes, regular
from limpet.testing.adapters import eighty_items
from tiny_text_model import write_tiny_model

HANGS = 120.0
"""Seconds after which a command hangs; it takes about one."""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
        os.close(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": fifo, "endless": endless, "socket": listening, "folder": lambda path: path.mkdir(),
}  # fmt: skip


def run(words: list[str], folder: Path, opened: Path | None = None) -> tuple[int, str]:
    """Run a command in a child, in a folder, and return its exit code and what it said.

    Args:
        words: Of the command.
        folder: Where.
        opened: Where to note the files that Python opened.
    """
    said = folder.parent / "said.txt"
    child = os.fork()
    if not child:
        code = 70
        try:
            os.chdir(folder)
            handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            if opened is not None:
                notes = os.open(opened, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                sys.addaudithook(
                    lambda event, found: (
                        event in ("open", "sqlite3.connect")
                        and isinstance(found[0], (str, bytes, os.PathLike))
                        and os.write(notes, os.fsencode(Path(os.fsdecode(found[0])).absolute()) + b"\n")
                    )
                )
            code = main(words)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    until = time.monotonic() + HANGS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), said.read_text()
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, f"`limpet {' '.join(words)}` hangs"
        time.sleep(0.005)


def vectors(folder: Path, width: int = 24) -> None:
    """Write the same vectors in three kinds of files."""
    rows = np.random.default_rng(0).normal(size=(30, width)).astype(np.float32)
    names = [f"p{row}" for row in range(30)]
    np.savez(folder / "old.npz", ids=np.array(names), vectors=rows)
    np.save(folder / "old.npy", rows)
    pq.write_table(pa.table({"id": names, "vector": list(rows)}), folder / "old.parquet")


def head(folder: Path) -> None:
    vectors(folder.parent)
    network = build_network(FeatureSpec(frozen="declared:old", width=24, dim=16))
    save_release(make_release(network, Hypersphere(16), compatible_with="declared:older"), folder)


def images(folder: Path) -> None:
    for number in range(8):
        place = folder.parent / "photos" / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 30 * number, np.uint8)).save(place / f"{number}.png")
    spec = encoder_spec(backbone="convnet", dim=8, projection="linear", image_size=(8, 8), channels=3)
    save_release(make_release(build_network(spec).eval(), Hypersphere(8)), folder)


def photos(folder: Path) -> None:
    images(folder.parent / "release")


def adapter(folder: Path) -> None:
    old, new = eighty_items()
    np.savez(folder.parent / "new.npz", ids=np.array(list(new.ids)), vectors=new.vectors)
    fitted = build_adapter("procrustes", {}).fit(old, new)
    save_adapter(fitted, folder)


def embedded(folder: Path) -> None:
    head(folder.parent / "head")
    words = ["embed", "stored", "old.npz", "--name", "old", "--model", "release:head", "--out", "here"]
    assert run(words, folder.parent)[0] == 0


def files(folder: Path) -> None:
    folder.mkdir()
    head(folder.parent / "head")
    vectors(folder)


def gallery(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        vectors(folder.parent)
        words = ["gallery", "create", f"{kind}:{folder.name}", "--embeddings", "old.npz", "--name", "old"]
        code, said = run(words, folder.parent)
        assert code == 0, said

    return make


def backup(folder: Path) -> None:
    gallery("memory")(folder.parent / "gallery")
    code, said = run(["gallery", "backup", "memory:gallery", "here"], folder.parent)
    assert code == 0, said


def texts(folder: Path) -> None:
    folder.mkdir()
    (folder / "texts.csv").write_text("id,text\na,find any1\nb,read any2\n")
    (folder / "texts.jsonl").write_text('{"id": "a", "text": "find any1"}\n')
    (folder / "texts.txt").write_text("find any1\nread any2\n")
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["find any1", "read"]}), folder / "texts.parquet")


def text_model(folder: Path) -> None:
    texts(folder.parent / "texts")
    shutil.move(write_tiny_model(folder.parent / "made"), folder)


def settings(folder: Path) -> None:
    folder.mkdir()
    head(folder.parent / "head")
    values = {"embeddings": "old.npz", "name": "old", "model": ["release:head"], "out": "out"}
    (folder / "settings.toml").write_text(tomli_w.dumps({"embed": {"stored": values}}))


STORED = "embed stored old.npz --name old --out out"
FOLDERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "head": (head, (f"{STORED} --model release:here",)),
    "release": (images, ("embed images photos --model release:here --out out",)),
    "photos": (photos, ("embed images photos --model release:release --out out",)),
    "adapter": (adapter, ("embed stored new.npz --name new --model adapter:here --out out",)),
    "embeddings": (embedded, ("gallery create memory:out --embeddings here/head",)),
    "files": (files, tuple(f"embed stored here/old.{kind} --name old --model release:head --out out"
                           for kind in ("npz", "npy", "parquet"))),
    "memory gallery": (gallery("memory"), ("gallery status here", "gallery export here --out out.npz")),
    "lance gallery": (gallery("lance"), ("gallery status here", "gallery export here --out out.npz")),
    "backup": (backup, ("gallery restore memory:out here",)),
    "text model": (text_model, ("embed texts texts/texts.csv --model st:here --out out",)),
    "settings": (settings, ("embed stored --config here/settings.toml",)),
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    yield folder


@pytest.mark.parametrize(
    "folder",
    [name if name in ("adapter", "settings") else pytest.param(name, marks=pytest.mark.slow) for name in FOLDERS],
)
def test_every_file_of_a_folder_replaced_by_something_else_is_refused(folder: str, work: Path) -> None:
    """Each is refused where the command reads it, and passed over otherwise, as in a folder of photos."""
    make, commands = FOLDERS[folder]
    here = work / ("photos" if folder == "photos" else "here")
    make(here)
    for words in commands:
        notes = work.parent / "opened.txt"
        notes.unlink(missing_ok=True)
        sound = Path(shutil.copytree(work, work.parent / "sound", symlinks=True))
        code, said = run(words.split(), work, notes)
        assert code == 0, said
        opened = set(notes.read_text().splitlines())
        shutil.rmtree(work)
        replaced = sorted(path.relative_to(work.parent / "sound") for path in sound.rglob("*") if path.is_file())
        for file in replaced:
            if here.name not in file.parts:
                continue
            for kind, put in KINDS.items():
                shutil.copytree(sound, work, symlinks=True)
                (work / file).unlink()
                put(work / file)
                code, said = run(words.split(), work)
                what = f"{words}, {file} replaced by a {kind}: {code}\n{said}"
                assert code in (0, 2) and "Traceback" not in said, what
                if kind != "folder" and folder != "photos" and str(work / file) in opened:
                    assert code == 2 and said.strip(), what
                shutil.rmtree(work)
        shutil.move(sound, work)


@pytest.mark.parametrize("suffix", FILE_READERS)
def test_texts_are_read_from_files_alone(suffix: str, tmp_path: Path) -> None:
    for kind, put in KINDS.items():
        put(tmp_path / f"{kind}{suffix}")
        with pytest.raises(DataError):
            FILE_READERS[suffix](tmp_path / f"{kind}{suffix}")


def test_readers_take_files_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"abc" and regular(tmp_path / "missing").name == "missing"
    only_files(tmp_path, deep=True)
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_bytes(tmp_path / "file", limit=2)
    for kind, put in KINDS.items():
        put(tmp_path / kind)
        for reader in (read_bytes, open_file, regular):
            with pytest.raises(OSError) as refusal:
                reader(tmp_path / kind)
            assert refusal.value.strerror
        if kind != "folder":
            (tmp_path / "folder").mkdir(exist_ok=True)
            shutil.move(tmp_path / kind, tmp_path / "folder" / kind)
            with pytest.raises(OSError, match="no file"):
                only_files(tmp_path, deep=True)
            shutil.rmtree(tmp_path / "folder")
