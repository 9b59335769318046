"""The top of a sharded gallery under four writers that lose replies: no move is lost, and none is made twice.

Every writer is a process. It reads the top, adds one to a count of its own and moves the top, again and again. Of the
moves, 15 % are made and their reply is lost, up to 10 ms later; 5 % of moves and readings fail and do nothing. A writer
that was told of another one's move, or of a failure, reads and tries again. In the end every count has to be what its
writer was told, and the top must have moved as often as all of them together. In a bucket, the network does that to
requests: of writes, 10 % are done and their connection breaks, 5 % are done and answered with 500; 5 % of all requests
are answered with 500 and not done; each is up to 5 ms under way, there and back, so that they overtake each other.

Then bugs are planted, one at a time, and looked for after 100 moves.

    python benchmarks/sharded_top.py    # writes benchmarks/results/sharded_top.txt
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash import tops
from crash.object_server import BUCKET, Network, ObjectServer
from crash.server import Server
from limpet.engines.postgres.top import postgres_top
from limpet.engines.s3.top import s3_top
from limpet.engines.top import Top, sqlite_top
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk

RESULTS = Path(__file__).parent / "results"
WRITERS = 4
LOST, ERRORS, WAIT = 0.15, 0.05, 0.01
KINDS = ("SQLite", "PostgreSQL", "S3")
NETWORK = Network(errors=ERRORS, lost=0.1, failed=0.05, slow=0.005)
PAUSE = 0.001  # seconds at most between a reading and the move
PATIENCE = 1800.0  # seconds until a trial counts as hanging


def write(
    open_top: Callable[[], Top], plant: Callable[[], None] | None, writer: int, moves: int, ready: Any, told: Any
) -> None:
    """Make so many moves, whatever happens to each, and tell how many were refused or failed meanwhile."""
    if plant is not None:
        plant()
    tops.lose_replies(LOST, ERRORS, WAIT)  # of databases
    top, chance, refused, failed = open_top(), random.Random(writer), 0, 0
    ready.wait()  # for all writers
    for number in range(moves):
        attempt = 0
        while True:
            try:
                over = top.read()
                time.sleep(chance.uniform(0.0, PAUSE))
                counts: Any = dict(over.document)
                counts[str(writer)] = counts.get(str(writer), 0) + 1
                attempt += 1
                top.move(counts, over, f"{writer} {number} {attempt}")
                break
            except StoreError:
                failed += 1
            except GalleryError:
                refused += 1
    told.put((refused, failed))
    top.close()


def trial(open_top: Callable[[], Top], moves: int, plant: Callable[[], None] | None = None) -> tuple[str, str]:
    """Let all writers make so many moves together; return what came of it, and what is wrong, if anything."""
    top = open_top()
    start = top.read()
    context = multiprocessing.get_context("spawn")
    told, each = context.Queue(), moves // WRITERS
    ready = context.Barrier(WRITERS)
    processes = [
        context.Process(target=write, args=(open_top, plant, writer, each, ready, told)) for writer in range(WRITERS)
    ]
    began = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.0, PATIENCE - (time.monotonic() - began)))
    hanging = [process for process in processes if process.is_alive()]
    for process in hanging:
        process.kill()
        process.join()
    if hanging or any(process.exitcode for process in processes):
        return "", "a writer came to no end" if hanging else "a writer failed"
    refused, failed = (sum(counts) for counts in zip(*(told.get() for _ in processes), strict=True))
    end: Any = top.read()
    top.close()
    counts = {str(writer): end.document.get(str(writer), 0) for writer in range(WRITERS)}
    made = end.tag - start.tag
    lost = sum(max(0, each - count) for count in counts.values())
    double = sum(max(0, count - each) for count in counts.values())
    found = (
        f"{made} moves in {time.monotonic() - began:.0f} s: {lost} lost, {double} double; {refused} refused because "
        f"another writer was faster, {failed} failed"
    )
    wrong = lost or double or made != each * WRITERS
    return found, f"{made} moves for {each * WRITERS}, {lost} lost, {double} double" if wrong else ""


def main() -> int:
    from machine import describe

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moves", type=int, default=10_000)
    parser.add_argument("--kind", choices=KINDS, action="append", help="this one only; may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS / "sharded_top.txt")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="sharded_top-", dir="/dev/shm"))
    work.chmod(0o755)
    lines = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), "", f"machine {describe()}", ""]
    passed = True
    server, objects = Server(work), ObjectServer()
    os.environ.update(objects.environment)
    try:
        for kind in options.kind or KINDS:
            for number, (name, plant) in enumerate([("no bug", None), *tops.BUGS.items()]):
                opened = _new(kind, work, server, objects, number)
                found, wrong = trial(opened, options.moves if plant is None else 100, plant)
                passed &= bool(wrong) is (plant is not None)
                caught = f"caught: {wrong}" if wrong else "NOT CAUGHT"
                line = f"{kind:<11} {name:<18} {caught if plant is not None else wrong or found}"
                print(line, flush=True)
                lines.append(line)
    finally:
        server.stop()
        objects.stop()
        shutil.rmtree(work, ignore_errors=True)
    options.out.write_text("\n".join([*lines, "", "passed" if passed else "FAILED"]) + "\n")
    return int(not passed)


def _new(kind: str, work: Path, server: Server, objects: ObjectServer, number: int) -> Callable[[], Top]:
    """Make a top, and return what opens it."""
    if kind == "SQLite":
        folder = str(work / f"top{number}")
        sqlite_top(folder, Disk(), {}).close()
        return partial(sqlite_top, folder, Disk())
    if kind == "S3":
        objects.network()
        place = f"s3://{BUCKET}/top{number}"
        s3_top(place, Disk(), {})
        objects.network(NETWORK)
        return partial(s3_top, place, Disk())
    url = f"{server.url()}&schema=top{number}"
    postgres_top(url, Disk(), {}).close()
    return partial(postgres_top, url, Disk())


if __name__ == "__main__":
    sys.exit(main())
