"""A short run of the trials of benchmarks/attached_trials.py, and every planted bug."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.attached import BUGS, SHARED_BUGS, trials
from crash.server import Server

pytestmark = pytest.mark.slow
CALM = 0.05
"""Seconds between two things that an application does: backfills that race with a hasty one take most of the time."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may be killed."""
    made = Server()
    yield made
    made.stop()


@pytest.mark.parametrize("shared", [False, True], ids=["two columns", "one column"])
def test_nothing_is_lost_mixed_or_back(server: Server, shared: bool) -> None:
    tally = trials(server, 40, seed=1, shared=shared, pause=CALM)
    assert tally.violations == [] and tally.killed == 40 and tally.rounds >= 1 and tally.checks >= 8


@pytest.mark.parametrize("bug", [*BUGS, *SHARED_BUGS])
def test_a_planted_bug_is_found(server: Server, bug: str) -> None:
    assert trials(server, 300, seed=2, bug=bug, shared=bug in SHARED_BUGS, pause=CALM).violations
