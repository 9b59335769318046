"""Galleries on a file system that another process fills and frees again, all the time.

On a tmpfs and on an ext4 of a few megabytes a process writes a file until there is no room, removes it after a moment,
and begins again. Meanwhile one gallery after the other is written to; what is refused may be refused, cleanly. Then the
other process ends, and a fresh one compares the gallery with the twin, writes, ends the backfill, rolls back,
finishes, collects garbage, and compares again.

    python benchmarks/flapping_disk.py    # writes benchmarks/results/flapping_disk.json and .txt
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from crash import bugs, check
from crash.ext4 import Ext4
from crash.log import lines_of
from crash.processes import finished, forked, import_stores, violation_of
from crash.script import Driver, Script
from crash.trials import driver_of
from crash.twin import Violation
from limpet.errors import StoreError
from power_loss import MountedPlace, has_ext4, make_templates, say

RESULTS = Path(__file__).parent / "results"
STORES = ("memory", "lance")
FILE_SYSTEMS = ("tmpfs", "ext4")
MEGABYTES = 40
OPERATIONS = 40  # of one gallery


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=STORES, action="append", help="may be repeated; all if left out")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each file system and store")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bug", choices=bugs.BUGS, help="plant a bug, and stop when it is caught")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"), help="folder for images and logs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="flapping_disk-", dir=options.work))
    if not has_ext4(work):
        return 0
    import_stores()
    records = []
    for store in options.store or STORES:
        templates = make_templates(store, work / store)
        for name in FILE_SYSTEMS:
            with mounted(name, work / store / name) as folder:
                place = MountedPlace(store, work / store / "trial", folder / "gallery")
                counts, violations = run(place, templates, options.seconds, options.seed, options.bug)
            records.append({"store": store, "file_system": name, **counts, "violations": violations})
            say(told(records[-1]))
    write(options.out, records, " ".join(["python benchmarks/flapping_disk.py", *sys.argv[1:]]))
    print("\n".join(told(record) for record in records))
    violated = any(record["violations"] for record in records)
    if not violated:
        shutil.rmtree(work)
    return int(violated != bool(options.bug))


@contextmanager
def mounted(name: str, folder: Path) -> Iterator[Path]:
    """Mount a small file system."""
    if name == "ext4":
        with Ext4(folder, MEGABYTES) as disk:
            yield disk.mounted
        return
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled_and_freed(path: Path) -> Iterator[None]:
    """Let another process write a file until there is no room, and remove it, again and again."""
    pid = os.fork()
    if pid == 0:
        fill_and_free(path, random.Random(str(path)))
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        path.unlink(missing_ok=True)


def fill_and_free(path: Path, chance: random.Random) -> None:
    """Do so until the process is killed."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for size in (65536, 4096):
            with suppress(OSError):
                while True:
                    os.write(handle, b"x" * size)
        time.sleep(chance.uniform(0.0, 0.01))
        os.close(handle)
        path.unlink()
        time.sleep(chance.uniform(0.0, 0.03))


def run(
    place: MountedPlace, templates: list[Any], seconds: float, seed: int, bug: str | None
) -> tuple[dict[str, int], list[Any]]:
    """Write to one gallery after the other, and look at each; return counts and violations."""
    until, chance = time.monotonic() + seconds, random.Random(seed)
    counts: Counter[str] = Counter()
    violations: list[Any] = []
    while time.monotonic() < until and not (bug and violations):
        place.begin(chance.choice(templates))
        begun, number = len(lines_of(place.log)), chance.randrange(10**9)
        with filled_and_freed(place.gallery.parent / "other"):
            wrong = finished(forked(place.folder, lambda: meanwhile(place, number, bug)), place.folder)  # noqa: B023
        wrong = wrong or finished(forked(place.folder, lambda: look(place, number, bug)), place.folder)  # noqa: B023
        ends = Counter(line[0] for line in lines_of(place.log)[begun:])
        counts.update({"galleries": 1, "acknowledged": ends["done"], "refused": ends["failed"] + ends["refused"]})
        if wrong is not None:
            violations.append([number, *violation_of(wrong)])
            say(f"VIOLATION {place.kind} {number}: {violation_of(wrong)[0]}: {violation_of(wrong)[1][:1000]}")
            shutil.copytree(place.gallery, place.folder.parent / f"violation{number}")
    return dict(counts), violations


def meanwhile(place: MountedPlace, seed: int, bug: str | None) -> None:
    """Write while there is room at times; what is refused is refused cleanly."""
    bugs.plant(bug, place.kind)
    driver, script = driver_of(place), Script(seed)
    for _ in range(OPERATIONS):
        if ready(driver):
            try:
                driver.do(script.next_write(driver.twin))
            except StoreError as error:
                if driver.twin.doing:  # it could not even be said where it is
                    driver.tell("refused", str(error))
                    driver.close()
    driver.close()


def ready(driver: Driver) -> bool:
    """Open the gallery if it is not open; without room for SQLite that may fail."""
    try:
        driver.open()
    except Violation as error:
        driver.tell("refused", str(error))
        return False
    return True


def look(place: MountedPlace, seed: int, bug: str | None) -> None:
    """Compare the gallery with the twin, and go on with it."""
    bugs.plant(bug, place.kind)
    driver = driver_of(place)
    check.verify(driver.open(), driver.twin, seed)
    check.go_on(driver, seed)
    check.verify(driver.open(), driver.twin, seed + 1)
    driver.close()


def told(record: dict[str, Any]) -> str:
    """Write the record of a store on a file system for people."""
    return (
        f"{record['store']:7} on {record['file_system']:5}: {record.get('galleries', 0)} galleries, "
        f"{record.get('acknowledged', 0)} operations acknowledged, {record.get('refused', 0)} refused, "
        f"{len(record['violations'])} violations"
    )


def write(folder: Path, records: list[dict[str, Any]], command: str) -> None:
    """Write the results."""
    from machine import describe

    folder.mkdir(parents=True, exist_ok=True)
    whole = {"command": command, "machine": describe(), "runs": records}
    (folder / "flapping_disk.json").write_text(json.dumps(whole, indent=2) + "\n")
    lines = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), "", command, describe(), ""]
    (folder / "flapping_disk.txt").write_text("\n".join([*lines, *map(told, records)]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
