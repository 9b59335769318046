"""What the upgrade of every kind of live index promises, told by what its application finds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from limpet.engines.sides import SIDES, ModelSide
from limpet.errors import LimpetError
from limpet.testing.contract import Check, Contract, refused
from limpet.upgrade.base import Upgrade, UpgradeVerification
from limpet.upgrade.lifecycle import POSSIBLE, Phase, UpgradeStep

ITEMS = 8
CONTRACT = Contract()
FoundVectors = Mapping[str, NDArray[np.float32]]
Writer = Literal["declared", "blank", "late", "unseen"]
"""Who writes an item: the application as was declared, with a text or without one; a process of it that goes on with
the old model after another declaration; or one whose writes the upgrade does not notice, or that are of no known model.
"""


class LiveIndex(Protocol):
    """One kind of live index with the application that writes and searches it."""

    def start(self) -> Upgrade:
        """Start the upgrade from the model old to the model new."""

    def open(self) -> Upgrade:
        """Open the upgrade again, as another process does."""

    def write(self, item: str, version: int, writer: Writer = "declared") -> None:
        """Write an item, new or again.

        Raises:
            LimpetError: What such a writer sends is not taken.
        """

    def delete(self, item: str) -> None:
        """Delete an item."""

    def fill(self, upgrade: Upgrade, side: ModelSide, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Give all items that lack one a vector of a model.

        Args:
            upgrade: Of the index.
            side: Which model.
            meanwhile: Called once, when vectors were made and before they are written.
        """

    def declare(self, upgrade: Upgrade, side: ModelSide) -> None:
        """Let the application write with a model from now on."""

    def verify(self, upgrade: Upgrade) -> UpgradeVerification:
        """Look for what is not as it should be, with the model that serves where one can be given."""

    def occupy(self) -> bool:
        """Make something else where an upgrade would make its own; say whether anybody but limpet can."""

    def copied(self) -> Self:
        """Return a copy in another place, as people make one: a backup or a dump restored, a folder, another database.

        The copy may be of the index alone, and have the ledger of this one.
        """

    def log(self) -> Sequence[Mapping[str, object]]:
        """Return what was done, as `limpet upgrade log` lists it: of the last upgrade, which may have ended."""

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


def serves(index: LiveIndex, side: ModelSide, *, without: str = "") -> None:
    """Assert that searches find exactly the items as they are, but for one, by vectors of one model."""
    found = index.served()
    wanted = {item: vector for item, vector in index.expected(side).items() if item != without}
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
def the_log_outlives_the_upgrade(index: LiveIndex) -> None:
    """What was done can be read after the end of an upgrade, and that of the next one after its end."""
    with _started(index) as upgrade:
        before = [event["kind"] for event in upgrade.journal()]
        upgrade.cancel()
    kinds = [event["kind"] for event in index.log()]
    assert kinds[: len(before)] == before and "cancel" in kinds[len(before) :]
    with index.start() as upgrade:
        index.fill(upgrade, "new")
        upgrade.index()
        upgrade.swap()
        index.declare(upgrade, "new")
        upgrade.finish()
    kinds = [event["kind"] for event in index.log()]
    assert kinds.index("swap") < kinds.index("finish")


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


@promise
def an_edit_after_a_fill_is_not_served_by_an_old_vector(index: LiveIndex) -> None:
    """What was edited or added since counts as lacking, and a swap is refused until it is filled."""
    with _started(index) as upgrade:
        changes(index, 2)
        assert upgrade.status().lacking["new"] == 2
        refused(upgrade.swap, LimpetError)
        serves(index, "old")
        index.fill(upgrade, "new")
        upgrade.swap()
        serves(index, "new")


@promise
def what_is_deleted_stays_deleted(index: LiveIndex) -> None:
    """Neither a swap nor a rollback brings an item back that the application has deleted, before or after a fill."""
    with _started(index) as upgrade:
        index.delete("4")
        upgrade.swap()
        serves(index, "new")
        index.declare(upgrade, "new")
        index.delete("5")
        index.fill(upgrade, "old")
        index.delete("6")
        upgrade.rollback()
        serves(index, "old")


@promise
def what_is_written_while_vectors_are_made_wins(index: LiveIndex) -> None:
    """An item that was edited, added or deleted meanwhile gets no vector of what it was."""
    with index.start() as upgrade:
        index.fill(upgrade, "new", lambda: changes(index, 1))
        index.fill(upgrade, "new")
        upgrade.index()
        upgrade.swap()
        serves(index, "new")
        index.declare(upgrade, "new")
        index.fill(upgrade, "old", lambda: changes(index, 2))
        index.fill(upgrade, "old")
        upgrade.rollback()
        serves(index, "old")


@promise
def an_item_without_a_text_is_counted_and_holds_up_no_other(index: LiveIndex) -> None:
    """It gets no new vector, and no search by these finds it; a swap asks whether it may be missing."""
    with index.start() as upgrade:
        index.write("2", 0, "blank")
        index.fill(upgrade, "new")
        upgrade.index()
        assert upgrade.status().lacking["new"] == 1
        refused(upgrade.swap, LimpetError)
        upgrade.swap(allow_missing=1)
        serves(index, "new", without="2")


@promise
def workers_beside_each_other_do_the_work_once(index: LiveIndex) -> None:
    """Two fill at once, one swaps; the other one knows at once, and can neither repeat a step nor undo the end."""
    with index.start() as one, index.open() as other:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda upgrade: index.fill(upgrade, "new"), [one, other]))
        one.index()
        assert other.status().lacking["new"] == 0
        one.swap()
        stands(other, "swapped")
        refused(other.swap, LimpetError)
        index.declare(other, "new")
        changes(index, 1)
        index.fill(other, "new")
        serves(index, "new")
        one.finish()
        refused(other.rollback, LimpetError)
        with suppress(LimpetError):
            index.fill(other, "new")
        serves(index, "new")


@promise
def a_worker_that_is_late_leaves_nothing_behind(index: LiveIndex) -> None:
    """One that fills while somebody else cancels the upgrade hinders neither searches nor the next upgrade."""
    with _started(index) as upgrade, index.open() as late:
        changes(index, 2)
        with suppress(LimpetError):
            index.fill(late, "new", upgrade.cancel)
        serves(index, "old")
    with index.start() as again:
        stands(again, "started")
        index.fill(again, "new")
        again.index()
        again.swap()
        serves(index, "new")


@promise
def an_old_writer_is_found(index: LiveIndex) -> None:
    """What a process still writes with the old model is counted or told by `verify`, and then filled."""
    with _started(index) as upgrade:
        upgrade.swap()
        index.declare(upgrade, "new")
        assert index.verify(upgrade).passed and upgrade.status().lacking["new"] == 0
        index.write("3", 9, "late")
        index.write("300", 0, "late")
        assert not index.verify(upgrade).passed or upgrade.status().lacking["new"] > 0
        index.fill(upgrade, "new")
        serves(index, "new")
        upgrade.finish()
        serves(index, "new")


@promise
def what_is_of_no_known_model_is_refused_or_counted(index: LiveIndex) -> None:
    """A vector that came unseen is not taken for one of a model: it is filled before it is served."""
    with _started(index) as upgrade:
        try:
            index.write("300", 0, "unseen")
        except LimpetError:
            serves(index, "old")
        else:
            assert max(upgrade.status().lacking.values()) > 0
        for side in reversed(SIDES):
            index.fill(upgrade, side)
        serves(index, "old")
        upgrade.swap()
        serves(index, "new")


@promise
def what_has_the_name_already_is_refused(index: LiveIndex) -> None:
    """An upgrade that would write over something else, or take it for its own, does not start."""
    if index.occupy():
        refused(index.start, LimpetError)
        refused(index.open, LimpetError)
        serves(index, "old")


@promise
def a_copy_is_recognised_or_refused(index: LiveIndex) -> None:
    """One in another place stands where the index stood, or is not opened; what is done to it changes nothing here."""
    with _started(index) as upgrade:
        upgrade.swap()
        copy = index.copied()
        try:
            opened = copy.open()
        except LimpetError:
            pass  # a refused copy is harmless; the checks below verify that this index is unchanged
        else:
            with opened:
                stands(opened, "swapped")
                serves(copy, "new")
                copy.fill(opened, "old")
                opened.rollback()
                serves(copy, "old")
        copy.close()
        stands(upgrade, "swapped")
        serves(index, "new")
