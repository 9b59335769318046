"""A short run of the trials of benchmarks/attached_trials.py, and every planted bug."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from crash.attached import PARTITIONED, PLACES, changed_partition, trials
from crash.server import PATIENCE, Server
from crash.shop import Shop

pytestmark = pytest.mark.slow
CALM = 0.05
"""Seconds between two things that an application does: backfills that race with a hasty one take most of the time."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may be killed."""
    made = Server()
    yield made
    made.stop()


@pytest.mark.parametrize("place", PLACES)
def test_trials_lose_mix_and_undo_nothing(server: Server, place: str) -> None:
    tally = trials(server, 40, seed=1, place=place, pause=CALM)
    assert tally.violations == [] and tally.killed == 40 and tally.rounds >= 1 and tally.checks >= 8


@pytest.mark.parametrize(("place", "bug"), [(place, bug) for place, bugs in PLACES.items() for bug in bugs])
def test_trials_find_a_planted_bug(server: Server, place: str, bug: str) -> None:
    assert trials(server, 300, seed=2, bug=bug, place=place, pause=CALM).violations


def test_a_partition_is_dropped_again_where_its_index_was_being_committed(server: Server) -> None:
    """PostgreSQL refuses it; every commit waits for a standby that is not there, until it is told to go on."""
    shop, url, until = Shop(server, "late"), server.url("late"), time.monotonic() + PATIENCE
    shop.renew(PARTITIONED)
    with (psycopg.connect(url, autocommit=True) as builder, psycopg.connect(url, autocommit=True) as application,
          psycopg.connect(url, autocommit=True) as watching):  # fmt: skip

        def ask(question: str, *values: object) -> list[tuple[object, ...]]:
            assert time.monotonic() < until
            time.sleep(0.01)
            return watching.execute(question.encode(), values).fetchall()

        def waits(one: psycopg.Connection[tuple[object, ...]], what: str) -> bool:
            return bool(
                ask("SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = %s", one.info.backend_pid, what)
            )

        def go_on() -> None:
            began = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep' AND backend_xid = %s"
            [(now,)] = ask("SELECT backend_xid FROM pg_stat_activity WHERE pid = %s", builder.info.backend_pid)
            watching.execute("SELECT pg_cancel_backend(%s)", [builder.info.backend_pid])
            while ask(began, builder.info.backend_pid, now):
                pass

        assert changed_partition(application, "extra", {500: "thing"})
        for one in (watching, application):
            one.execute("SET synchronous_commit = local")
        watching.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        watching.execute("SELECT pg_reload_conf()")
        committing = threading.Thread(target=lambda: None)
        while not waits(builder, "SyncRep"):  # until the server has read its settings
            if not committing.is_alive():
                committing = threading.Thread(
                    target=builder.execute, args=("SELECT pg_logical_emit_message(true, '', '')",)
                )
                committing.start()
        go_on()
        committing.join()
        building = threading.Thread(target=builder.execute, args=("CREATE INDEX CONCURRENTLY late ON shop.extra (id)",))
        building.start()
        holds = "SELECT FROM pg_locks WHERE pid = %s AND relation = 'shop.extra'::regclass"
        while ask(holds, builder.info.backend_pid) or not waits(builder, "SyncRep"):
            if waits(builder, "SyncRep") and ask(holds, builder.info.backend_pid):
                go_on()
        done: list[bool] = []
        dropping = threading.Thread(target=lambda: done.append(changed_partition(application, "extra", {500: None})))
        dropping.start()
        while not waits(application, "transactionid"):
            pass
        go_on()
        for thread in (building, dropping):
            thread.join()
        assert done == [False]
        assert changed_partition(application, "extra", {500: None})
        watching.execute("ALTER SYSTEM RESET synchronous_standby_names")
        watching.execute("SELECT pg_reload_conf()")
