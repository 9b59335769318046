"""Upgrades beside an application, whose operator, application and server are killed in random order.

What is killed and what is compared is told in `tools/crash/attached.py`, of Milvus 2.3.5 and Chroma in
`tools/crash/collections.py`, and of folders of Qdrant, where it is one process, in `tools/crash/qdrant.py`. Each
planted bug of these files has to be found, within as many kills as are given for it.

    python benchmarks/attached_trials.py --kills 1000             # writes benchmarks/results/attached_trials.txt
    python benchmarks/attached_trials.py one_column --kills 1000  # …/attached_trials_one_column.txt
    python benchmarks/attached_trials.py partitioned --kills 1000 # …/attached_trials_partitioned.txt
    python benchmarks/attached_trials.py milvus --kills 200       # …/attached_trials_milvus.txt
    python benchmarks/attached_trials.py chroma --kills 200       # …/attached_trials_chroma.txt
    python benchmarks/attached_trials.py qdrant --kills 400       # …/attached_trials_qdrant.txt

After every round both the text and a JSON file beside it say what came of all rounds until then; with `--resume` the
trials go on after the last whole one, as they would have without a halt.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash import attached
from crash.attached import Tally
from crash.server import Server
from machine import describe

RESULTS = Path(__file__).parent / "results"
SERVERS = ("milvus", "chroma")
PLACES = (*attached.PLACES, *SERVERS, "qdrant")
PACKAGES = {"milvus": ("pymilvus", "milvus"), "chroma": ("chromadb",), "qdrant": ("qdrant-client",)}


def told(tally: Tally) -> str:
    """Say what came of trials."""
    kills = ", ".join(f"{count} of {victim}" for victim, count in sorted(tally.kills.items()))
    steps = ", ".join(f"{count} of {step}" for step, count in sorted(tally.steps.items()))
    repeated = f" ({tally.repeated} transactions repeated)" if tally.repeated else ""
    return (
        f"{tally.killed} kills ({kills}) in {tally.rounds} whole rounds; steps that came to an end: {steps}; "
        f"{tally.writes:,} acknowledged writes{repeated}; {tally.reads:,} reads of everything that serves, "
        f"{tally.checks} comparisons with what the applications remember: {len(tally.violations)} violations"
    )


def trials(
    place: str,
    kills: int,
    seed: int,
    bug: str | None = None,
    tell: Callable[[Tally], Any] = id,
    so_far: Any = None,
    pause: float = attached.PAUSE,
) -> Tally:
    """Kill so often; stop at the first violation."""
    if place in SERVERS:
        from crash import collections  # which takes seconds, and every process of trials imports this file

        return collections.trials(place, kills, seed, bug, tell, so_far)
    if place == "qdrant":
        from crash import qdrant

        return qdrant.trials(kills, seed, bug, tell, so_far)
    server = Server()
    try:
        return attached.trials(server, kills, seed, bug, tell, so_far, place=place, pause=pause)
    finally:
        server.stop()


def bugs(place: str) -> Iterable[str]:
    """Return the names of those that are planted."""
    if place in SERVERS:
        from crash import collections

        return collections.BUGS
    if place == "qdrant":
        from crash import qdrant

        return qdrant.QDRANT_BUGS
    return attached.PLACES[place]


class Record:
    """What came of trials, which is written down after every round.

    Args:
        out: Text file; the JSON file beside it is what `--resume` goes on from.
        place: Where both models' vectors are.
        kills: How many there are to be.
        seed: Of the rounds.
        pause: Seconds between two things that an application of a table does.
        resume: Whether to go on from what is written.
    """

    def __init__(self, out: Path, place: str, kills: int, seed: int, pause: float, *, resume: bool) -> None:
        self.out, self.place, self.kills, self.seed = out, place, kills, seed
        self.paused = f" --pause {pause}" if pause != attached.PAUSE else ""
        self.tally, self.bugs, self.seconds, self.halts = Tally(), dict[str, str](), 0.0, 0
        if resume:
            document = json.loads(out.with_suffix(".json").read_text())
            if document["seed"] != seed:
                raise SystemExit(f"{out.with_suffix('.json')} is of seed {document['seed']}, not {seed}")
            self.tally = Tally(**{**document["tally"], "steps": Counter(document["tally"]["steps"])})
            self.bugs, self.seconds, self.halts = document["bugs"], document["seconds"], document["halts"] + 1
        self.began = time.monotonic() - self.seconds

    def round(self, tally: Tally) -> None:
        """Write down what came of all rounds until now."""
        self.tally = tally
        self.write()
        print(told(tally), flush=True)

    def bug(self, name: str, found: Tally) -> None:
        """Write down what came of a planted bug."""
        first = f"after {found.killed} kills: {found.violations[0]}" if found.violations else ""
        self.bugs[name] = first
        self.write()
        print(f"planted {name}: {first or 'not found'}", flush=True)

    def write(self) -> None:
        """Write the text, and the JSON file beside it."""
        self.seconds = time.monotonic() - self.began
        document = {"seed": self.seed, "tally": vars(self.tally), "bugs": self.bugs, "seconds": self.seconds,
                    "halts": self.halts}  # fmt: skip
        self.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        packages = PACKAGES.get(self.place, ("psycopg",))
        halts = f", in {self.halts + 1} parts" if self.halts else ""
        lines = [
            (__doc__ or "").splitlines()[0],
            "",
            f"{told(self.tally)}.",
            *(f"  {one}" for one in self.tally.violations[:20]),
            *(f"planted {bug}: {first or 'not found'}" for bug, first in self.bugs.items()),
            "",
            f"{self.seconds:.0f} s{halts}. {describe(*packages)}",
            "",
            f"python benchmarks/attached_trials.py {self.place} --kills {self.kills} --seed {self.seed}{self.paused}",
            "",
        ]
        self.out.write_text("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("place", nargs="?", choices=PLACES, default="columns", help="where both models' vectors are")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--bug-kills", type=int, default=200, help="within which a planted bug has to be found")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=attached.PAUSE, help="seconds between two writes to a table")
    parser.add_argument("--no-bugs", action="store_true")
    parser.add_argument("--resume", action="store_true", help="go on after the last whole round")
    parser.add_argument("--out", type=Path, help="the text file named above if left out")
    given = parser.parse_args()
    name = "attached_trials" if given.place == "columns" else f"attached_trials_{given.place}"
    out = given.out or RESULTS / f"{name}.txt"
    record = Record(out, given.place, given.kills, given.seed, given.pause, resume=given.resume)
    if record.tally.killed < given.kills and not record.tally.violations:
        trials(given.place, given.kills, given.seed, None, record.round, record.tally, given.pause)
    for bug in () if given.no_bugs else bugs(given.place):
        if not record.bugs.get(bug):
            record.bug(bug, trials(given.place, given.bug_kills, given.seed, bug, pause=given.pause))
    return 0 if not record.tally.violations and all(record.bugs.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
