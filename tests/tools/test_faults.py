"""Faults below SQLite and Lance: the library itself, and a short version of benchmarks/fault_sweep.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crash import faults
from crash.sweep import FAULTS, Point, pattern_of, sample

SWEEP = Path(__file__).parents[2] / "benchmarks" / "fault_sweep.py"
BEGINNING = f"""
import sys
sys.path.insert(0, {str(Path(faults.__file__).parents[1])!r})
from crash import faults
faults.preload()
import errno, os, shutil, sqlite3, threading, time
from pathlib import Path
from crash.faults import Action
folder = Path(sys.argv[1])
"""


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    try:
        faults.compiled()
    except faults.NoCompiler as reason:
        pytest.skip(str(reason))


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", BEGINNING + program, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def printed(program: str, folder: Path) -> list[str]:
    done = run(program, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_chosen_call_fails_once_and_no_other(tmp_path: Path) -> None:
    program = """
faults.arm(folder, Action.FAIL, pattern="write b*", occurrence=2, error=errno.EIO)
for name in ("a", "b1", "b2", "b3"):
    try:
        (folder / name).open("wb", buffering=0).write(b"12345678")
    except OSError as error:
        print(name, error.errno == errno.EIO, faults.struck(), faults.count())
faults.disarm()
print(sorted((found.name, found.stat().st_size) for found in folder.iterdir()))
"""
    assert printed(program, tmp_path) == ["b2 True write b2 2", "[('a', 8), ('b1', 8), ('b2', 0), ('b3', 8)]"]


def test_a_full_disk_stays_full_and_lets_files_be_removed(tmp_path: Path) -> None:
    program = """
(folder / "there").write_text("12345678")
faults.arm(folder, Action.FAIL, error=errno.ENOSPC, lasting=True)
for step in (folder / "new").touch, (folder / "new").mkdir, lambda: (folder / "there").rename(folder / "other"):
    try:
        step()
    except OSError as error:
        print(error.errno == errno.ENOSPC)
(folder / "there").unlink()
"""
    assert printed(program, tmp_path) == ["True"] * 3
    assert not list(tmp_path.iterdir())


def test_half_is_written_and_the_rest_fails(tmp_path: Path) -> None:
    program = """
faults.arm(folder, Action.SHORT, pattern="write *", error=errno.ENOSPC)
handle = os.open(folder / "a", os.O_CREAT | os.O_WRONLY)
print(os.write(handle, b"12345678"))
try:
    os.write(handle, b"5678")
except OSError as error:
    print(error.errno == errno.ENOSPC)
print(os.write(handle, b"56"))
"""
    assert printed(program, tmp_path) == ["4", "True", "2"]


@pytest.mark.parametrize(("action", "size"), [("TORN", 4), ("KILL_BEFORE", 0), ("KILL_AFTER", 8)])
def test_the_process_dies_there(action: str, size: int, tmp_path: Path) -> None:
    program = f"faults.arm(folder, Action.{action}, pattern='write *')\n(folder / 'a').write_text('12345678')"
    assert run(program, tmp_path).returncode == -9
    assert (tmp_path / "a").stat().st_size == size


def test_calls_of_libraries_and_of_all_threads_are_seen(tmp_path: Path) -> None:
    program = """
def write(number):
    for count in range(200):
        (folder / str(number)).write_text("1")
(folder / "part").mkdir()
with faults.traced(folder, folder.parent / "trace"):
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(faults.count())
    shutil.copyfile(folder / "0", folder / "part" / "copy")
    os.link(folder / "0", folder / "link")
    database = sqlite3.connect(folder / "part" / "db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE one (a)")
    database.close()
    shutil.rmtree(folder / "part")
"""
    (tmp_path / "gallery").mkdir()
    assert printed(program, tmp_path / "gallery") == ["1600"]
    texts = (tmp_path / "trace").read_text().splitlines()
    assert len([text for text in texts if text in {f"write {number}" for number in range(4)}]) == 800
    expected = ["write part/copy", "link link", "write part/db-wal", "sync part/db-wal", "unlink part/db", "rmdir part"]
    assert [text for text in expected if text not in texts] == []


def test_a_clock_that_jumps_is_seen_and_waiting_is_not_longer(tmp_path: Path) -> None:
    program = """
before, steady = time.time(), time.monotonic()
faults.set_clock(-7200)
print(round((time.time() - before) / 3600), time.monotonic() - steady < 3600)
print(sqlite3.connect(":memory:").execute("SELECT unixepoch()").fetchone()[0] < before - 7000)
"""
    assert printed(program, tmp_path) == ["-2 True", "True"]


def test_names_that_chance_gives_fall_under_one_pattern() -> None:
    texts = ["write g1-0a1b2c3d.lance/data/.tmpqxZOak", "link g1-0a1b2c3d.lance/_versions/184467.manifest"]
    assert [pattern_of(text) for text in texts] == [
        "write g1-*.lance/data/.tmp*",
        "link g1-*.lance/_versions/*.manifest",
    ]


def test_a_sample_is_the_same_each_time_and_has_every_write_that_is_certain() -> None:
    patterns = ["write g1-*.lance/_deletions/.tmp*", "write gallery.db-wal", "sync gallery.db-wal", "open writer.lock"]
    points = [
        Point("one model", 0, fault, pattern, number)
        for pattern in patterns for number in range(20) for fault in FAULTS
    ]  # fmt: skip
    chosen = sample(points, 30)
    assert chosen == sample(list(points), 30) and len(set(chosen)) == len(chosen) == 30
    assert set(patterns[:2]) <= {point.pattern for point in chosen}
    assert set(sample(points, len(points) + 1)) == set(points)


@pytest.mark.slow
@pytest.mark.parametrize(("store", "most", "more"), [
    ("memory", 60, ["--bugs"]),
    ("lance", 60, ["--bug", "nothing is read back"]),
])  # fmt: skip
def test_every_call_may_fail(store: str, most: int, more: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(SWEEP), "--store", store, "--most", str(most), "--lanes", "1"]
    command += [*more, "--out", str(tmp_path), "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    record = json.loads((tmp_path / "fault_sweep.json").read_text())["stores"][store]
    assert record["points"] >= most and record["violations"] == []
    assert record["planted_bugs"] and [name for name, found in record["planted_bugs"].items() if not found] == []
    assert record["outcomes"].get("missed", 0) <= most // 20  # threads of Lance take turns as they like
