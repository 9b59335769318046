"""Power failures of a real ext4, while a gallery on it is written to.

The file system lies in an image behind a loop device that caches nothing of it. At a random time it is shut down by the
kernel's own means for such tests: nothing that it had not yet handed to the device gets there any more. Until then it
writes back some files of the gallery and commits its journal at random moments, so that names are there without
contents, and contents without names. It is mounted with its usual options, and with some that do less than those for
programs that forget to sync. Then it is mounted again, plays its journal back, and a fresh process compares the gallery
with the twin, writes, ends the backfill, rolls back, finishes, collects garbage, and compares again. Every gallery
loses its power several times.

    python benchmarks/power_loss.py    # writes benchmarks/results/power_loss.json and .txt
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash import bugs, check
from crash.ext4 import Ext4, NoExt4
from crash.log import lines_of
from crash.places import FolderPlace
from crash.power import files_of
from crash.processes import finished, forked, import_noted, import_stores, violation_of
from crash.script import Script, play
from crash.trials import driver_of, make_template

RESULTS = Path(__file__).parent / "results"
STORES = ("memory", "lance")
OPTIONS = ("", "noauto_da_alloc", "data=writeback,noauto_da_alloc", "nodelalloc", "commit=1")
LIVES = 4  # of one gallery
SPANS = {"memory": 0.4, "lance": 1.2}  # seconds of writing, at most
TEMPLATES = 4


@dataclass
class Loss:
    """One power failure.

    Args:
        number: Of the failure.
        options: With which ext4 was mounted.
        acknowledged: Commits that were acknowledged since the failure before it.
        collected: Whether gc was possible afterwards, and was done.
        violation: Check and finding, or None.
    """

    number: int
    options: str
    acknowledged: int = 0
    collected: bool = False
    violation: tuple[str, str] | None = None


def has_ext4(folder: Path) -> bool:
    """Say whether a file system can be made here; where not, print why."""
    try:
        with Ext4(folder / "attempt", 8):
            return True
    except NoExt4 as reason:
        print(f"skipped: {reason}")
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=STORES, action="append", help="may be repeated; all if left out")
    parser.add_argument("--losses", type=int, default=500, help="power failures per store")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bug", choices=bugs.BUGS, help="plant a bug, and stop when it is caught")
    parser.add_argument("--lanes", type=int, default=2, help="file systems at a time")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"), help="folder for images and logs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="power_loss-", dir=options.work))
    if not has_ext4(work):
        return 0
    import_stores()
    records = {}
    for store in options.store or STORES:
        started = time.monotonic()
        share = [options.losses * (lane + 1) // options.lanes - options.losses * lane // options.lanes
                 for lane in range(options.lanes)]  # fmt: skip
        templates = make_templates(store, work / store)
        with ProcessPoolExecutor(options.lanes, multiprocessing.get_context("fork")) as pool:
            lanes = [
                pool.submit(
                    run, store, work / store / f"lane{lane}", templates, losses, options.seed + lane, options.bug
                )
                for lane, losses in enumerate(share)
            ]
            losses = [loss for lane in lanes for loss in lane.result()]
        records[store] = record_of(losses, time.monotonic() - started)
    write(options.out, records, " ".join(["python benchmarks/power_loss.py", *sys.argv[1:]]))
    print(table(records))
    violated = any(record["violations"] for record in records.values())
    if not violated:
        shutil.rmtree(work)
    return int(violated != bool(options.bug))


def make_templates(store: str, folder: Path) -> list[FolderPlace]:
    """Write the galleries to start from."""
    places = [FolderPlace(store, folder / f"template{number}") for number in range(TEMPLATES)]
    for number, place in enumerate(places):
        wrong = make_template(place, number, 8 * number)
        if wrong is not None:
            raise RuntimeError(f"Without any trouble, template {number}: {wrong}")
    import_noted(places[-1].folder)
    return places


class MountedPlace(FolderPlace):
    """A gallery on a file system of its own, and a log elsewhere.

    Args:
        kind: Of the store.
        folder: For the log.
        gallery: Where the gallery is.
    """

    def __init__(self, kind: str, folder: Path, gallery: Path) -> None:
        super().__init__(kind, folder, keeps=False)
        self.gallery, self.url = gallery, f"{kind}:{gallery}"

    def begin(self, template: FolderPlace | None) -> None:
        """Start from a copy of another place."""
        assert template is not None
        for folder in (self.folder, self.gallery):
            shutil.rmtree(folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        shutil.copytree(template.gallery, self.gallery)
        shutil.copyfile(template.log, self.log)
        os.sync()


def run(store: str, folder: Path, templates: list[FolderPlace], count: int, seed: int, bug: str | None) -> list[Loss]:
    """Lose power so many times; with a planted bug only until that shows it."""
    chance, losses = random.Random(seed), []
    with Ext4(folder) as disk:
        place = MountedPlace(store, folder / "trial", disk.mounted / "gallery")
        while len(losses) < count:
            number = seed * 100_000 + len(losses)
            if len(losses) % LIVES == 0:
                place.begin(chance.choice(templates))
            loss = lose(disk, place, number, chance, bug)
            losses.append(loss)
            if loss.violation is not None:
                say(f"VIOLATION {store} {number} {loss.options}: {loss.violation[0]}: {loss.violation[1][:1500]}")
                if bug is not None:
                    break
                shutil.copytree(place.gallery, folder / f"violation{number}")
                place.begin(chance.choice(templates))
            if len(losses) % 50 == 0:
                say(f"{store}: {len(losses)} of {count}")
    return losses


def lose(disk: Ext4, place: MountedPlace, number: int, chance: random.Random, bug: str | None) -> Loss:
    """Write, lose power, and look at what is left."""
    loss, seed = Loss(number, chance.choice(OPTIONS)), chance.randrange(10**9)
    disk.restart(loss.options)
    before = len(lines_of(place.log))

    def work() -> None:
        bugs.plant(bug, place.kind)
        driver = driver_of(place)
        driver.open()
        play(driver, Script(seed), 10_000)

    pid = forked(place.folder, work)
    disturb(disk, place, pid, before, chance)
    stop(pid)
    disk.cut()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    loss.acknowledged = sum(line[0] == "done" for line in lines_of(place.log)[before:])
    disk.restart()

    def look() -> None:
        bugs.plant(bug, place.kind)
        driver = driver_of(place)
        check.verify(driver.open(), driver.twin, seed)
        check.go_on(driver, seed)
        check.verify(driver.open(), driver.twin, seed + 1)
        driver.close()

    wrong = finished(forked(place.folder, look), place.folder)
    loss.violation = None if wrong is None else violation_of(wrong)
    loss.collected = ["begin", {"kind": "gc", "older_than": 0.0}] in lines_of(place.log)[before:]
    return loss


def disturb(disk: Ext4, place: MountedPlace, pid: int, before: int, chance: random.Random) -> None:
    """Let the file system write back what it likes, from the first operation until the power fails."""
    while len(lines_of(place.log)) <= before:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    until = time.monotonic() + chance.uniform(0.0, SPANS[place.kind])
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.0, 0.05))
        if chance.random() < 0.3:
            disk.commit()
        else:
            write_back(place.gallery, chance)


def write_back(folder: Path, chance: random.Random) -> None:
    """Hand half of the files to the device, without their names and without waiting."""
    for name in [found for found in files_of(folder) if chance.random() < 0.5]:
        with suppress(OSError):  # gone meanwhile
            handle = os.open(folder / name, os.O_RDONLY)
            ctypes.CDLL(None).sync_file_range(handle, ctypes.c_long(0), ctypes.c_long(0), 2)
            os.close(handle)


def stop(pid: int) -> None:
    """Stop a process between two calls: ext4 lets one that syncs at the very moment of a shutdown believe it did."""
    os.kill(pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    while any(path.read_text().rpartition(")")[2].split()[0] not in "TZ" for path in threads if path.exists()):
        time.sleep(0.0005)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def record_of(losses: list[Loss], seconds: float) -> dict[str, Any]:
    """Return what came of the power failures of a store, as plain values."""
    return {
        "losses": len(losses),
        "acknowledged": sum(loss.acknowledged for loss in losses),
        "collected": sum(loss.collected for loss in losses),
        "options": {one or "usual": sum(loss.options == one for loss in losses) for one in OPTIONS},
        "violations": [asdict(loss) for loss in losses if loss.violation is not None],
        "seconds": round(seconds, 1),
    }


def write(folder: Path, records: dict[str, Any], command: str) -> None:
    """Write the results."""
    from machine import describe

    folder.mkdir(parents=True, exist_ok=True)
    whole = {"command": command, "machine": describe(), "stores": records}
    (folder / "power_loss.json").write_text(json.dumps(whole, indent=2) + "\n")
    told = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), "", command, describe(), "", table(records)]
    (folder / "power_loss.txt").write_text("\n".join(told))


def table(records: dict[str, Any]) -> str:
    """Write records for people."""
    lines = []
    for store, record in records.items():
        lines.append(
            f"{store:7} {record['losses']} power failures in {record['seconds']:.0f} s; {record['acknowledged']} "
            f"operations acknowledged in between; gc after {record['collected']}; "
            f"{len(record['violations'])} violations"
        )
        lines += [f"  {one['number']} {one['options']}: {one['violation'][0]}" for one in record["violations"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
