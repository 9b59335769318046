"""Four further findings: nothing is synced, damaged manifests, forked children, branches that are moved."""

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa

WRITES = """
import sys, lance, pyarrow as pa
table = lance.write_dataset(pa.table({"number": range(9)}), sys.argv[1])
table.delete("number = 3")
table.create_scalar_index("number", "BTREE")
table.optimize.compact_files()
"""
ALTERED = """
import pathlib, random, sys, lance
path, manifest = sys.argv[1], pathlib.Path(sys.argv[2])
whole = bytearray(manifest.read_bytes())
for seed in range(int(sys.argv[3]), 300):
    damaged, chance = bytearray(whole), random.Random(seed)
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    manifest.write_bytes(damaged)
    try:
        table = lance.dataset(path, session=lance.Session()).to_table()
        outcome = "read as written" if table.equals(lance.dataset(sys.argv[4]).to_table()) else "read as other rows"
    except Exception:
        outcome = "an error"
    except BaseException as error:
        outcome = type(error).__name__
    print(outcome, flush=True)
"""
FORKED = """
import os, sys, lance, pyarrow as pa
path = sys.argv[1]
table = lance.dataset(path)
table.to_table()
child = os.fork()
if not child:
    table.insert(pa.table({"number": [1]}))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def syncs(folder):
    """Return which calls to sync files strace sees while a dataset is made, changed and indexed."""
    if shutil.which("strace") is None:
        return "no strace here"
    calls = "fsync,fdatasync,sync,syncfs,sync_file_range,msync"
    command = ["strace", "-f", "-qq", "-e", f"trace={calls}", "-e", "signal=none", "-o", f"{folder}/calls"]
    subprocess.run([*command, sys.executable, "-c", WRITES, f"{folder}/synced.lance"], check=True)
    return f"{len(Path(folder, 'calls').read_text().splitlines())} calls of {calls}"


def altered(folder):
    """Return what becomes of opening a dataset of which one bit of the last manifest is another one."""
    path = f"{folder}/altered.lance"
    lance.write_dataset(pa.table({"number": range(1000)}), path)
    lance.dataset(path).delete("number = 3")
    lance.write_dataset(pa.table({"number": [0, 0]}), path, mode="append")
    shutil.copytree(path, f"{folder}/whole.lance")
    manifest = min(Path(path, "_versions").glob("*.manifest"))
    told = Counter()
    while sum(told.values()) < 300:
        command = [sys.executable, "-c", ALTERED, path, manifest, str(sum(told.values())), f"{folder}/whole.lance"]
        done = subprocess.run(command, capture_output=True, text=True)
        told.update(done.stdout.splitlines())
        if done.returncode:
            told[f"the process ended with {done.returncode}"] += 1
        shutil.copy(Path(folder, "whole.lance", "_versions", manifest.name), manifest)
    return dict(told)


def forked(folder):
    """Return how ten children end that insert a row through a dataset that their parents opened before the fork."""
    lance.write_dataset(pa.table({"number": range(9)}), f"{folder}/forked.lance")
    command = [sys.executable, "-W", "ignore", "-c", FORKED, f"{folder}/forked.lance"]
    told = Counter()
    for _ in range(10):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            told[f"exit code {done.stdout.strip()}"] += 1
        except subprocess.TimeoutExpired:
            told["hangs for 20 s"] += 1
    return dict(told)


def moved(folder):
    """Return what becomes of reading a branch after its dataset was moved."""
    table = lance.write_dataset(pa.table({"number": range(9)}), f"{folder}/here.lance")
    table.create_branch("side").insert(pa.table({"number": [9]}))
    shutil.move(f"{folder}/here.lance", f"{folder}/there.lance")
    branch = lance.dataset(f"{folder}/there.lance").checkout_version(("side", None))
    try:
        return f"{len(branch.to_table())} rows read"
    except Exception as error:
        return " ".join(str(error).replace(folder.lstrip("/"), "...").split())[:120]


if __name__ == "__main__":
    print(f"pylance {lance.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for finding in syncs, altered, forked, moved:
            print(f"{finding.__name__}: {finding(folder)}")
