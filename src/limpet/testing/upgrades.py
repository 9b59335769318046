"""What the upgrade of every kind of live index promises, told by what its application finds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.engines.sides import ModelSide
from limpet.errors import LimpetError
from limpet.testing.contract import Check, Contract, refused
from limpet.upgrade.base import Upgrade
from limpet.upgrade.lifecycle import POSSIBLE, Phase, UpgradeStep

ITEMS = 8
CONTRACT = Contract()
FoundVectors = Mapping[str, NDArray[np.float32]]


class LiveIndex(Protocol):
    """One kind of live index with the application that writes and searches it."""

    def start(self) -> Upgrade:
        """Start the upgrade from the model old to the model new."""

    def open(self) -> Upgrade:
        """Open the upgrade again, as another process does."""

    def write(self, item: str, version: int) -> None:
        """Write an item, new or again, with the model that the application is to write with."""

    def delete(self, item: str) -> None:
        """Delete an item."""

    def fill(self, upgrade: Upgrade, side: ModelSide) -> None:
        """Give all items that lack one a vector of a model."""

    def declare(self, upgrade: Upgrade, side: ModelSide) -> None:
        """Let the application write with a model from now on."""

    def served(self) -> FoundVectors:
        """Return the vectors that searches find now, by item."""

    def expected(self, side: ModelSide) -> FoundVectors:
        """Return the vectors that a model makes of the items as they are now, by item."""

    def close(self) -> None:
        """Let go of everything."""


def upgrade_contract(new_index: Callable[[Path], LiveIndex]) -> list[Check]:
    """Return the promises of upgrades, as checks.

    Args:
        new_index: Makes an empty index; files belong into the folder that it is given.
    """
    return CONTRACT.checks(new_index=new_index)


def serves(index: LiveIndex, side: ModelSide) -> None:
    """Assert that searches find exactly the items as they are, by vectors of one model."""
    found, wanted = index.served(), index.expected(side)
    assert found.keys() == wanted.keys(), f"{sorted(found)} are found, and {sorted(wanted)} are there"
    for item, vector in wanted.items():
        assert np.allclose(found[item], vector, atol=1e-3), f"item {item} has a vector of another model or version"


def changes(index: LiveIndex, number: int) -> None:
    """Let the application edit, add and delete an item.

    Args:
        index: Which.
        number: From 1 to 6, another one each time.
    """
    index.write("1", 10 * number)
    index.write(str(100 + number), 0)
    index.delete(str(number + 1))


def stands(upgrade: Upgrade, phase: Phase) -> None:
    """Assert where an upgrade stands."""
    assert upgrade.phase == phase


def promise(function: Callable[[LiveIndex], None]) -> Callable[[LiveIndex], None]:
    """Add a promise about an index, which is made with a few items and cleared away afterwards."""

    @wraps(function)
    def run(new_index: Callable[[Path], LiveIndex]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            index = new_index(Path(folder))
            try:
                for item in range(ITEMS):
                    index.write(str(item), 0)
                function(index)
            finally:
                index.close()

    CONTRACT.promise()(run)
    return function


def _started(index: LiveIndex) -> Upgrade:
    """Start an upgrade and make everything ready for a swap, while the application goes on."""
    upgrade = index.start()
    stands(upgrade, "started")
    changes(index, 1)
    index.fill(upgrade, "new")
    upgrade.index()
    serves(index, "old")
    return upgrade


@promise
def an_upgrade_leads_there_and_back_and_there_again(index: LiveIndex) -> None:
    """Between any two steps the application writes; every search finds its items as they are, by one model."""
    with _started(index) as upgrade:
        for number in (2, 3):
            upgrade.swap()
            stands(upgrade, "swapped")
            serves(index, "new")
            index.declare(upgrade, "new")
            changes(index, 2 * number)
            index.fill(upgrade, "new")
            serves(index, "new")
            if number == 3:
                break
            index.fill(upgrade, "old")
            upgrade.rollback()
            stands(upgrade, "started")
            serves(index, "old")
            index.declare(upgrade, "old")
            changes(index, 2 * number + 1)
            index.fill(upgrade, "new")
        upgrade.finish()
        serves(index, "new")


@promise
def a_step_that_is_not_possible_changes_nothing(index: LiveIndex) -> None:
    """The lifecycle says which steps are possible from a phase; the others are refused, and searches find the same."""
    with _started(index) as upgrade:
        _refuses_what_is_not_possible(index, upgrade)
        upgrade.swap()
        _refuses_what_is_not_possible(index, upgrade)


def _refuses_what_is_not_possible(index: LiveIndex, upgrade: Upgrade) -> None:
    phase, before, kinds = upgrade.phase, index.served(), [event["kind"] for event in upgrade.journal()]
    steps: dict[UpgradeStep, Callable[[], object]] = {
        "swap": upgrade.swap, "rollback": upgrade.rollback, "finish": upgrade.finish, "cancel": upgrade.cancel,
    }  # fmt: skip
    for step, call in steps.items():
        if phase not in POSSIBLE[step]:
            refused(call, LimpetError, words=f"Cannot {step}")
    found = index.served()
    assert found.keys() == before.keys() and all(np.array_equal(found[item], before[item]) for item in found)
    assert (upgrade.phase, [event["kind"] for event in upgrade.journal()]) == (phase, kinds)


@promise
def cancel_leaves_the_old_vectors(index: LiveIndex) -> None:
    """What the application wrote meanwhile stays, and a new upgrade can be started."""
    with _started(index) as upgrade:
        changes(index, 2)
        upgrade.cancel()
        serves(index, "old")
    with index.start() as again:
        stands(again, "started")
        serves(index, "old")


@promise
def finish_is_refused_while_items_lack_a_vector(index: LiveIndex) -> None:
    """What the old model wrote after the swap is not lost by the end: it is filled in first."""
    with _started(index) as upgrade:
        upgrade.swap()
        serves(index, "new")
        changes(index, 2)  # with the old model still
        assert upgrade.status().lacking["new"] > 0
        refused(upgrade.finish, LimpetError)
        stands(upgrade, "swapped")
        index.fill(upgrade, "new")
        assert upgrade.status().lacking["new"] == 0
        index.declare(upgrade, "new")
        upgrade.finish()
        serves(index, "new")


@promise
def an_upgrade_opened_again_is_where_it_was(index: LiveIndex) -> None:
    """Another process sees the same phase, counts and journal, and goes on."""
    with _started(index) as upgrade:
        upgrade.swap()
    with index.open() as again:
        status = again.status()
        assert (again.phase, status.serving, status.lacking["new"]) == ("swapped", "new", 0)
        assert [event["kind"] for event in again.journal()].count("swap") == 1
        index.fill(again, "old")
        again.rollback()
        serves(index, "old")


@promise
def what_is_next_is_named(index: LiveIndex) -> None:
    """The status of every phase names a command that is possible, or none where nothing is left to do."""
    with index.start() as upgrade:
        assert any(step.words[0] == "backfill" for step in upgrade.status().next)
        index.fill(upgrade, "new")
        upgrade.index()
        assert any(step.words[0] == "swap" for step in upgrade.status().next)
        upgrade.swap()
        assert {step.words[0] for step in upgrade.status().next} & {"finish", "rollback", "writes"}
