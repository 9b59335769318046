"""A backfill of a sharded gallery while workers, committer and all are killed, and what readers see of it.

A gallery of four LanceDB folders is filled with vectors of one model. `limpet.galleries.fragments` plans its backfill
by another one: two actors of Ray make fragments, and every five seconds one of those is killed that have made one; a
process commits them, and is killed at its first step, another one at its second, and so on, until every step of a
commit was a place of death; the last one lives. Two processes ask all the time for items that they know, by both
models, and hold every score against what these two vectors give. In the end all vectors are read and compared with
those that the models make.

An embedding waits as if for a GPU and costs next to nothing. The committer's rate is of processor time, and counts
from opening the gallery; memory is the highest of a process; the folder's size counts a file once, whatever links to
it, and one generation is what the gallery has before the backfill.

    python benchmarks/scale.py                              # a try with 20,000 items, in a few minutes
    python benchmarks/scale.py --items 200000 2000000       # adds to benchmarks/results/scale.json and .txt
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
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash.processes import import_stores
from crash.shards import sharded
from evaluation import RESULTS, peak_memory
from limpet import EmbeddingSet, Gallery
from limpet.errors import StoreError
from limpet.galleries import fragments
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk
from limpet.support.workers import Opened
from limpet.upgrade.vector_sources import CallableVectors
from machine import describe

DIM, SIDE = 128, 2048
TRY = 20_000  # items of a try, which goes into no record
MODELS = {"old": 1, "new": 2}
WAIT = 2e-5  # seconds that an item takes to embed
ADDED = 200_000  # at a time
ASKED = 500  # items of the last self-queries, by each model
GOALS = {"rate": 60_000, "memory": 1.1, "folder": 2.5}

Record = dict[str, Any]


class Tables:
    """The vectors of a model: of item ``SIDE * a + b`` the sum of two drawn rows, so that nobody has to keep them."""

    def __init__(self, model: str, items: int) -> None:
        draw = np.random.default_rng(MODELS[model])
        self.large = draw.standard_normal((items // SIDE + 1, DIM)).astype(np.float32)
        self.small = draw.standard_normal((SIDE, DIM)).astype(np.float32)

    def of(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors of the length 1, float32 (n, DIM)."""
        found = self.large[items // SIDE] + self.small[items % SIDE]
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found


def named(items: NDArray[np.int64]) -> list[str]:
    return [f"{item:09d}" for item in items.tolist()]


def numbers(ids: Sequence[str]) -> NDArray[np.int64]:
    return np.array(ids, np.int64) if len(ids) else np.empty(0, np.int64)


# ---- workers


def opened(items: int) -> CallableVectors:
    """Return the new model, in an actor."""
    tables = Tables("new", items)

    def embed(ids: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(WAIT * len(ids))
        return tables.of(numbers(ids))

    return CallableVectors(embed, "declared:new", Hypersphere(DIM))


def made(source: CallableVectors, place: Path, shard: str) -> tuple[int, int]:
    """Make a fragment; return process and its highest memory in bytes."""
    fragments.make(place, shard, source)
    (place.parent / "actors" / str(os.getpid())).touch()
    return os.getpid(), peak_memory()


def make_all(place: Path, items: int, actors: int, kill_every: float) -> Record:
    """Let actors make all fragments while they are killed."""
    from limpet.integrations.ray_actors import RayActors

    folder, ended, killed = place.parent / "actors", threading.Event(), list[int]()
    folder.mkdir(exist_ok=True)

    def kill() -> None:
        chance = random.Random(0)
        while not ended.wait(kill_every):
            pids = [int(one.name) for one in folder.iterdir()]
            if pids:
                pid = chance.choice(pids)
                (folder / str(pid)).unlink()
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    workers = RayActors(actors)
    shards = fragments.FragmentPlan.read(place).shards
    threading.Thread(target=kill, daemon=True).start()
    began, peaks = time.monotonic(), dict[int, int]()
    left = list(shards)
    while left:
        known = Opened(partial(opened, items), workers)
        with suppress(StoreError):  # a worker died again and again
            for pid, peak in known.each(made, [(place, shard) for shard in left]):
                peaks[pid] = max(peak, peaks.get(pid, 0))
        left = [shard for shard in shards if not (place / "manifests" / f"{shard}.json").exists()]
    ended.set()
    workers.close()
    return {"killed": len(killed), "lives": len(peaks), "memory": max(peaks.values()), "shards": len(shards),
            "seconds": time.monotonic() - began}  # fmt: skip


# ---- the committer


class Steps(Disk):
    """Counts every step that others could see, and ends the process at one of them."""

    def __init__(self, last: int | None) -> None:
        self.last, self.done = last, list[str]()

    def reached(self, point: str) -> None:
        self.done.append(point)
        if len(self.done) == self.last:
            print(json.dumps({"killed": point, "decided": self.done.count("sharded.decide")}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def sync_one(self, path: Path) -> None:
        self.reached("disk.sync")
        super().sync_one(path)

    def database_synced(self, path: Path) -> None:
        self.reached("database.synced")


def commit_all(url: str, place: Path, last: int | None) -> None:
    """Commit fragments until all are committed, or this process is killed; tell what was done."""
    began, written, busy = time.process_time(), 0, 0.0
    disk, note = Steps(last), fragments.write_atomically

    def noted(path: Path, write: Any) -> Path:
        disk.reached("before it is noted")
        found = note(path, write)
        disk.reached("after it is noted")
        return found

    fragments.write_atomically = noted  # type: ignore[assignment]
    with Gallery.open(url, disk=disk, timeout=600.0) as gallery:
        while True:
            done = fragments.accept(gallery, place, wait=600.0)
            assert not done.refused, done.refused
            written += done.written
            busy = time.process_time() - began if done.written else busy
            if not done.waiting:
                break
            time.sleep(0.2)
    print(json.dumps({"written": written, "seconds": busy, "memory": peak_memory()}), flush=True)


# ---- readers


def read(url: str, place: Path, items: int, seed: int) -> Record:
    """Ask for items until a file says that it is over, and count answers that are wrong."""
    chance, tables = np.random.default_rng(seed), {name: Tables(name, items) for name in MODELS}
    known = list[NDArray[np.int64]]()  # of shards that were committed before
    seen, asked, wrong = set[str](), dict.fromkeys(MODELS, 0), list[str]()
    over, parent = place.parent / "over", os.getppid()
    with Gallery.open(url) as gallery:
        while not over.exists() and os.getppid() == parent:
            began = time.process_time()
            for shard in {one.name for one in (place / "accepted").iterdir() if one.name.isdigit()} - seen:
                from pyarrow import parquet

                seen.add(shard)
                known.append(numbers(parquet.read_table(place / "shards" / f"{shard}.parquet")["id"].to_pylist()))
            for name, table in tables.items():
                there = name == "old" or bool(known)
                item = int(chance.choice(known[chance.integers(len(known))]) if known and name == "new" else
                           chance.integers(items))  # fmt: skip
                query = table.of(np.array([item]))
                (hits,) = gallery.search(query, k=5, fingerprint=f"declared:{name}").hits
                ids = [hit.id for hit in hits]
                scores = (query @ table.of(numbers(ids)).T)[0] if ids else np.empty(0)
                asked[name] += 1
                if there and (not ids or int(ids[0]) != item):
                    wrong.append(f"{name}: item {item} is not the first of {ids}")
                if len(set(ids)) < len(ids):
                    wrong.append(f"{name}: {ids} are double")
                if len(ids) and np.abs(scores - [hit.score for hit in hits]).max() > 1e-5:
                    wrong.append(f"{name}: item {item} has the scores {hits}, not {scores}")
            time.sleep(5 * (time.process_time() - began))  # which leaves the processor to others
    return {"asked": asked, "wrong": wrong}


# ---- the whole


def size(folder: Path) -> int:
    """Return the bytes of a folder; a file counts once."""
    found = dict[int, int]()
    for name, _, files in os.walk(folder):
        for one in files:
            with suppress(FileNotFoundError):
                told = Path(name, one).lstat()
                found[told.st_ino] = told.st_size
    return sum(found.values())


def apart(folder: Path, role: str, **asked: Any) -> subprocess.Popen[bytes]:
    """Start this script for one role."""
    told = folder / f"{role}{asked.get('seed', '')}.json"
    words = ["--role", role, "--asked", json.dumps(asked), "--out", str(told)]
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.DEVNULL)  # where Ray writes


def told(folder: Path, role: str, process: subprocess.Popen[bytes]) -> Record:
    assert process.wait() == 0, role
    found: Record = json.loads((folder / f"{role}.json").read_text())
    return found


def forked(call: Any) -> tuple[int, int]:
    """Call something in a forked process; return its number and where to read what it prints."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.dup2(writing, 1)
    try:
        call()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def create(url: str, items: int) -> None:
    tables = Tables("old", items)
    with Gallery.create(url, fingerprint="declared:old", space=Hypersphere(DIM)) as gallery:
        for start in range(0, items, ADDED):
            some = np.arange(start, min(start + ADDED, items))
            gallery.add(EmbeddingSet(tables.of(some), named(some), model="old"))
        gallery.gc(older_than=0.0)


def start(url: str, place: Path, rows: int) -> None:
    with Gallery.open(url) as gallery:
        gallery.start("declared:new", Hypersphere(DIM))
        fragments.plan(gallery, place, items=rows)


def check(url: str, items: int) -> None:
    """Compare all vectors with those of the models, swap, and ask for items once more."""
    found: Record = {"lost": 0, "double": 0, "mixed": 0, "self_queries": 0, "right": 0}
    with Gallery.open(url, timeout=60.0) as gallery:
        for name, generation in zip(MODELS, ("g1", "g2"), strict=True):
            tables, seen = Tables(name, items), np.zeros(items, np.int64)
            for ids, _, vectors in gallery.store.scan_rows(generation):
                which = numbers(ids)
                np.add.at(seen, which, 1)
                found["mixed"] += int((np.abs(vectors - tables.of(which)).max(axis=1) > 1e-6).sum())
            found["lost"] += int((seen == 0).sum()) + abs(items - len(gallery))
            found["double"] += int((seen > 1).sum())
        gallery.swap()
        chance = np.random.default_rng(9)
        for name in MODELS:
            some = chance.choice(items, min(ASKED, items), replace=False)
            replies = gallery.search(Tables(name, items).of(some), k=1, fingerprint=f"declared:{name}").hits
            found["self_queries"] += len(some)
            found["right"] += sum(int(hits[0].id) == item for hits, item in zip(replies, some.tolist(), strict=True))
    print(json.dumps(found), flush=True)


def waited(pid: int, watch: Any = lambda: None) -> int:
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        watch()
        time.sleep(0.1)


def measured(items: int, options: argparse.Namespace) -> Record:
    work = (options.work or Path(tempfile.gettempdir()) / "limpet-scale") / str(items)
    place, live, state = work / "fragments", work / "live", work / "state.json"
    url = sharded(live, ["lance"] * options.shards)
    if not state.exists():  # otherwise a run that was interrupted goes on
        for folder in (live, place):
            shutil.rmtree(folder, ignore_errors=True)
        url = sharded(live, ["lance"] * options.shards)
        for call in (partial(create, url, items), partial(start, url, place, options.rows)):
            assert waited(forked(call)[0]) == 0
        state.write_text(json.dumps({"generation": size(live), "last": 0, "decided": 0, "points": {}, "largest": 0}))
    now: Record = json.loads(state.read_text())
    _say(f"{items:,} items: a generation has {now['generation'] / 1e6:,.0f} MB")
    asked = {"url": url, "place": str(place), "items": items}
    readers = [apart(work, "read", **asked, seed=seed) for seed in range(options.readers)]
    makers = apart(work, "make", **asked, actors=options.actors, kill_every=options.kill_every)
    looked = 0.0

    def watch() -> None:
        nonlocal looked
        if time.monotonic() > looked:
            now["largest"] = max(now["largest"], size(live))
            looked = time.monotonic() + 1.0

    while True:
        dies = now["decided"] < 2
        now["last"] += dies
        pid, reading = forked(partial(commit_all, url, place, now["last"] if dies else None))
        status = waited(pid, watch)
        with os.fdopen(reading) as output:
            report: Record = json.loads(output.readlines()[-1])
        if "killed" not in report:
            assert status == 0, report
            break
        now["points"][report["killed"]] = now["points"].get(report["killed"], 0) + 1
        now["decided"] = report["decided"]
        state.write_text(json.dumps(now))
        _say(f"killed at step {now['last']}, {report['killed']}")
    of_makers = told(work, "make", makers)
    (work / "over").touch()
    of_readers = [told(work, f"read{seed}", reader) for seed, reader in enumerate(readers)]
    at_the_end = size(live)
    pid, reading = forked(partial(check, url, items))
    assert waited(pid) == 0
    with os.fdopen(reading) as output:
        found: Record = json.loads(output.read())
    shutil.rmtree(work)
    return {
        "items": items, **found, **now, "actors": of_makers, "committer": report, "readers": of_readers,
        "committers_killed": sum(now["points"].values()), "at_the_end": at_the_end,
        "largest": max(now["largest"], at_the_end),
    }  # fmt: skip


def lines_of(record: Record) -> list[str]:
    committer, actors = record["committer"], record["actors"]
    rate = committer["written"] / committer["seconds"] if committer["written"] else 0.0
    asked = {name: sum(one["asked"][name] for one in record["readers"]) for name in MODELS}
    wrong = [text for one in record["readers"] for text in one["wrong"]]
    points = ", ".join(f"{name} {count}" for name, count in sorted(record["points"].items()))
    return [
        f"{record['items']:,} items of {DIM} numbers",
        f"  {record['lost']} lost, {record['double']} double, {record['mixed']} of the wrong model; at the end "
        f"{record['right']} of {record['self_queries']} self-queries right",
        f"  readers asked {asked['old']:,} times by the old model and {asked['new']:,} times by the new one: "
        f"{len(wrong)} wrong{''.join(f'; {text}' for text in wrong[:3])}",
        f"  {actors['shards']} fragments by {actors['lives']} actors in {actors['seconds']:.0f} s; {actors['killed']} "
        f"were killed; memory of one at most {actors['memory'] / 1e6:.0f} MB",
        f"  {record['committers_killed']} committers were killed, each a step later: {points}",
        f"  the last committer wrote {committer['written']:,} items, {rate:,.0f} for a second of processor time "
        f"(goal: {GOALS['rate']:,}); memory {committer['memory'] / 1e6:.0f} MB",
        f"  folder: {record['largest'] / record['generation']:.2f} x one generation at most (goal: {GOALS['folder']}), "
        f"{record['at_the_end'] / record['generation']:.2f} at the end",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--items", type=int, nargs="+", default=[TRY], help="of galleries; sizes on record are not repeated"
    )
    parser.add_argument("--rows", type=int, default=25_000, help="of a fragment")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds")
    parser.add_argument("--work", type=Path, help="folder for galleries; what was interrupted there goes on")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--role", choices=["make", "read"], help=argparse.SUPPRESS)
    parser.add_argument("--asked", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        asked = {**options.asked, "place": Path(options.asked["place"])}
        if options.role == "make":
            del asked["url"]
        options.out.write_text(json.dumps((make_all if options.role == "make" else read)(**asked)))
        return 0
    import_stores()
    kept = options.out / "scale.json"
    known: dict[str, Record] = json.loads(kept.read_text()) if kept.exists() and options.items != [TRY] else {}
    for items in options.items:
        if str(items) not in known:
            known[str(items)] = measured(items, options)
            if items > TRY or options.out != RESULTS:
                kept.write_text(json.dumps(known, indent=1) + "\n")
    records = [known[name] for name in sorted(known, key=int)]
    text = ["python benchmarks/scale.py --items " + " ".join(sorted(known, key=int)), ""]
    text += [line for one in records for line in lines_of(one)]
    if len(records) > 1:
        grown = records[-1]["actors"]["memory"] / records[0]["actors"]["memory"]
        text.append(f"memory of an actor: {grown:.2f} x that with {records[0]['items']:,} items (goal: within 10 %)")
    right = all(
        not (one["lost"] or one["double"] or one["mixed"] or any(of["wrong"] for of in one["readers"]))
        and one["right"] == one["self_queries"]
        for one in records
    )
    text += ["", describe("pylance", "ray"), ""]
    print("\n".join(text))
    if kept.exists():
        (options.out / "scale.txt").write_text("\n".join(text))
    return int(not right)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
