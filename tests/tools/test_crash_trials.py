"""The harness itself, and a short version of the trials of benchmarks/crash_trials.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from crash.attached import lost
from crash.bugs import shown_by
from crash.disk import Arm, TrialDisk
from crash.log import TrialLog, lines_of
from crash.power import durable_line, files_of, lose_power
from crash.twin import Twin, Violation

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crash_trials.py"


@pytest.mark.slow
@pytest.mark.parametrize(("store", "kills", "more"), [
    ("memory", 12, ["--errors", "4"]),
    ("lance", 5, ["--errors", "2", "--bug", "folders not synced"]),
    ("pgvector", 4, ["--errors", "3", "--no-bugs"]),
    ("sharded", 5, ["--errors", "2", "--bug", "no way back", "--bug", "half taken back"]),
    ("s3", 4, ["--errors", "2", "--bug", "deleted id resurrected"]),
])  # fmt: skip
def test_galleries_survive_and_planted_bugs_do_not(store: str, kills: int, more: list[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--store", store, "--trials", str(kills)]
    command += ["--templates", "4", "--lanes", "1", "--out", str(tmp_path), "--work", str(tmp_path), *more]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    record = json.loads((tmp_path / "crash_trials.json").read_text())[store]
    assert record["violations"] == []
    assert record["trials"] >= kills and sum(record["kills_by_point"].values()) > kills // 4
    assert record["errors_by_point"]
    assert record["replies_beside"] > 50 and [name for name, found in record["planted_bugs"].items() if not found] == []
    if store == "memory":
        assert set(record["planted_bugs"]) == set(shown_by("memory", sweep=False))
    if store == "lance":
        assert record["lost_with_power"] > 0


def test_a_power_failure_takes_what_was_not_synced(tmp_path: Path) -> None:
    folder, kept = tmp_path / "gallery", tmp_path / "kept"
    (folder / "old").mkdir(parents=True)
    kept.mkdir()
    (folder / "before").write_text("there")
    log = TrialLog(tmp_path / "log")
    log.write(*durable_line(folder))
    disk = TrialDisk(log)
    for name in ("synced", "grown", "unsynced", "unlisted"):
        (folder / "old" / name).write_text("12345")
    (folder / "new").mkdir()
    (folder / "new" / "orphan").write_text("12345")
    (folder / "old" / "unlisted").rename(folder / "unlisted")
    disk.sync_one(folder / "old" / "synced")
    disk.sync_one(folder / "old" / "grown")
    disk.sync_one(folder / "unlisted")  # its folder is not
    disk.sync([folder / "new" / "orphan"])  # but nobody synced what lists "new"
    disk.sync_one(folder / "old")
    with (folder / "old" / "grown").open("a") as file:
        file.write("67890")
    lose_power(folder, kept, lines_of(tmp_path / "log"), "lost", 0)
    assert files_of(folder) == ["before", "old", "old/grown", "old/synced", "old/unsynced"]
    assert (folder / "old" / "grown").read_text() == "12345"
    assert (folder / "old" / "unsynced").read_text() == ""
    assert (folder / "old" / "synced").read_text() == "12345"


def test_an_arm_strikes_at_its_occurrence_of_point_and_operation() -> None:
    arm = Arm("full", "write", "add", 2)
    asked = [("write", "add"), ("write", "delete"), ("sync", "add"), ("write", "add"), ("write", "add")]
    assert [arm.strikes(*one) for one in asked] == [False, False, False, True, False]


def test_an_armed_disk_fails_with_the_error_of_a_full_one(tmp_path: Path) -> None:
    disk = TrialDisk(TrialLog(tmp_path / "log"), Arm("full", "write"))
    with pytest.raises(OSError, match="No space left"):
        disk.reached("write")
    assert [line[0] for line in lines_of(tmp_path / "log")] == ["point", "struck"]


def filled_twin(*more: list[object]) -> Twin:
    twin = Twin()
    for line in (
        ["begin", {"kind": "create", "model": "m", "space": "hypersphere"}],
        ["done", None],
        ["begin", {"kind": "add", "items": [["a", 1, ["g1"]], ["b", 1, ["g1"]]], "contents": 1}],
        ["done", 2],
        ["begin", {"kind": "start", "model": "n"}],
        ["done", "g2"],
        *more,
    ):
        twin.feed(line)
    return twin


def test_the_twin_allows_what_was_being_done_and_nothing_else() -> None:
    deleting = ["begin", {"kind": "delete", "ids": ["a"]}]
    for found, items in ((3, {"a", "b"}), (4, {"b"})):
        twin = filled_twin(deleting)
        twin.settle(found)
        assert set(twin.items) == items
    for found in (2, 5):
        with pytest.raises(Violation, match="acknowledged"):
            filled_twin(deleting).settle(found)
    with pytest.raises(Violation):
        filled_twin().settle(4)


def test_the_twin_fills_only_items_that_are_what_was_read() -> None:
    backfill = ["begin", {"kind": "backfill"}]
    upsert = ["begin", {"kind": "upsert", "items": [["a", 2, ["g1"]]], "contents": 2}]
    twin = filled_twin(backfill, ["embed", "g2", ["a", "b"], 3], upsert, ["done", 1], ["done", [5]])
    assert {name: item.holding for name, item in twin.items.items()} == {"a": {"g1"}, "b": {"g1", "g2"}}
    assert (twin.sequence, twin.repeated(), twin.lost) == (5, 0, 0)


def test_the_twin_counts_a_batch_that_a_crash_took() -> None:
    twin = filled_twin(["begin", {"kind": "backfill"}], ["embed", "g2", ["a", "b"], 3], ["opened", 3])
    assert (twin.lost, twin.repeated()) == (2, 0)
    twin.feed(["begin", {"kind": "backfill"}])
    twin.feed(["embed", "g2", ["a", "b"], 3])
    assert (twin.lost, twin.repeated()) == (2, 2)


def test_the_twin_knows_the_index_that_came_to_light_after_a_batch() -> None:
    twin = filled_twin(["begin", {"kind": "backfill"}], ["embed", "g2", ["a", "b"], 3], ["died", 4])
    twin.feed(["begin", {"kind": "upsert", "items": [["a", 2, ["g1"]]], "contents": 2}])
    twin.feed(["ghost"])
    assert (twin.sequence, twin.events[-2:], twin.items["a"].version) == (5, ["backfill", "index"], 2)


@pytest.mark.parametrize(("error", "closed", "over"), [
    (psycopg.OperationalError("server closed the connection"), False, True),
    (psycopg.errors.DeadlockDetected("deadlock detected"), False, True),
    (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), False, False),
    (psycopg.InternalError("received 2 results from command 'COMMIT'"), True, True),
    (psycopg.InternalError("tuple concurrently updated"), False, False),
    (KeyError("row"), False, False),
])  # fmt: skip
def test_an_application_repeats_what_a_lost_session_interrupted_and_nothing_else(
    error: Exception, closed: bool, over: bool
) -> None:
    assert lost(error, SimpleNamespace(closed=closed)) is over
