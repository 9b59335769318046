"""A short run of the trials of benchmarks/attached_trials.py, and every planted bug."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.attached import PLACES, trials
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


@pytest.mark.parametrize("place", PLACES)
def test_trials_lose_mix_and_undo_nothing(server: Server, place: str) -> None:
    tally = trials(server, 40, seed=1, place=place, pause=CALM)
    assert tally.violations == [] and tally.killed == 40 and tally.rounds >= 1 and tally.checks >= 8


@pytest.mark.parametrize(("place", "bug"), [(place, bug) for place, bugs in PLACES.items() for bug in bugs])
def test_trials_find_a_planted_bug(server: Server, place: str, bug: str) -> None:
    assert trials(server, 300, seed=2, bug=bug, place=place, pause=CALM).violations
