"""Altered files given to their readers, in forked processes that may die, hang or take memory, and are counted."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.formats import FORMATS, Format
from limpet.errors import LimpetError

MEMORY_BOUND = 512 * 2**20
"""Bytes that a reader may take beyond what its process had before, for files of less than 100 kB."""
CPU_SECONDS = 30
"""After which a trial counts as one that hangs."""
SHOWN = 20
BROKEN = 99  # exit status of a worker that fails by itself


@dataclass
class Counts:
    """What became of the mutations of one format."""

    format: str
    mutations: int = 0
    refused: int = 0
    accepted: int = 0
    tracebacks: int = 0
    crashes: int = 0
    hangs: int = 0
    over_memory: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every file was refused in words, or read."""
        return not (self.tracebacks or self.crashes or self.hangs or self.over_memory)

    def note(self, outcome: str, trial: int, what: str) -> None:
        """Count a fault, and keep the first of them."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        if len(self.faults) < SHOWN:
            self.faults.append(f"{outcome}, trial {trial}: {what}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def run(name: str, trials: int, seed: int) -> Counts:
    """Alter the files of a format so many times, and count what happens."""
    counts, started = Counts(name), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as folder:
        shared, first = mmap.mmap(-1, 16), 0
        while first < trials:
            first = _worker(counts, Path(folder) / str(first), first, trials, seed, shared)
    counts.seconds = round(time.monotonic() - started, 1)
    return counts


def _worker(counts: Counts, folder: Path, first: int, trials: int, seed: int, shared: mmap.mmap) -> int:
    """Run trials in one process, and return the first that is left."""
    struct.pack_into("<qq", shared, 0, first, 0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = BROKEN
        try:
            _trials(counts.format, folder, range(first, trials), seed, shared, writer)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    hung = _take(counts, child, reader, shared)
    _, ended = os.waitpid(child, 0)
    trial: int = struct.unpack_from("<qq", shared)[0]
    if ended == 0:
        return trials
    if os.waitstatus_to_exitcode(ended) == BROKEN:
        raise RuntimeError(f"The trials of '{counts.format}' themselves failed; see above.")
    counts.mutations += 1
    if hung:
        counts.note("hangs", trial, f"more than {CPU_SECONDS} s of computing")
    else:
        counts.note("crashes", trial, f"the process ended with {os.waitstatus_to_exitcode(ended)}")
    return trial + 1


def _take(counts: Counts, child: int, reader: int, shared: mmap.mmap) -> bool:
    """Count what a worker tells until it ends, and kill it where a trial does not; return whether it was killed."""
    os.set_blocking(reader, False)
    trial, since, rest = -1, 0.0, b""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            found = stream.read(2**16)
            if found == b"":
                return False
            if found is None:
                time.sleep(0.02)
                now, used = struct.unpack_from("<q", shared)[0], _cpu_seconds(child)
                if now != trial:
                    trial, since = now, used
                elif used - since > CPU_SECONDS:
                    os.kill(child, signal.SIGKILL)
                    return True
                continue
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                _count(counts, line.decode())


def _count(counts: Counts, line: str) -> None:
    outcome, trial, peak, what = line.split("\t", 3)
    counts.mutations += 1
    counts.peak_bytes = max(counts.peak_bytes, int(peak))
    if outcome == "tracebacks":
        counts.note(outcome, int(trial), what)
    else:
        setattr(counts, outcome, getattr(counts, outcome) + 1)
    if int(peak) > MEMORY_BOUND:
        counts.note("over_memory", int(trial), f"{int(peak):,} bytes")


def _trials(name: str, folder: Path, trials: range, seed: int, shared: mmap.mmap, writer: int) -> None:
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True)
    kind = FORMATS[name]
    kind.make(folder)
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    for sample in {path.parent for path in files}:
        kind.read(sample)  # as it is, it is read
    before = _resident()
    for trial in trials:
        struct.pack_into("<q", shared, 0, trial)
        chance = Random(f"{seed}:{name}:{trial}")
        with _altered(kind, files, chance) as sample, _peak() as peak:
            outcome, what = _outcome(kind, sample)
        os.write(writer, f"{outcome}\t{trial}\t{max(0, peak[0] - before)}\t{what}\n".encode("utf-8", "replace"))


@contextmanager
def _altered(kind: Format, files: dict[Path, bytes], chance: Random) -> Iterator[Path]:
    """Alter one of the files, sometimes with its digests computed anew; yield its folder, and put all back."""
    path = chance.choice([path for path in files if path.name not in kind.left_alone])
    path.write_bytes(chance.choice(kind.mutations_of(path))(files[path], chance))
    if kind.sign is not None and chance.random() < 0.7:
        kind.sign(path.parent)
    try:
        yield path.parent
    finally:
        for changed, content in files.items():
            if changed.parent == path.parent:
                changed.write_bytes(content)


def _outcome(kind: Format, folder: Path) -> tuple[str, str]:
    try:
        kind.read(folder)
    except LimpetError as error:
        str(error)
        return "refused", ""
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)
        own = next((one for one in reversed(at) if "/limpet/" in one.filename), at[-1])
        said = " ".join(str(error).split())[:200]
        return "tracebacks", f"{type(error).__name__} at {Path(own.filename).name}:{own.lineno}: {said}"
    return "accepted", ""


@contextmanager
def _peak() -> Iterator[list[int]]:
    """Yield a list that holds the largest resident memory of the block afterwards."""
    Path("/proc/self/clear_refs").write_text("5")
    peak: list[int] = []
    yield peak
    peak.append(_status("VmHWM:"))


def _resident() -> int:
    return _status("VmRSS:")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text[text.index(name) :].split(maxsplit=2)[1]) * 1024


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
