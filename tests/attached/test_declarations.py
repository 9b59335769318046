"""Every order of declarations, swaps and passes, and beside each every order of writes and deletions of an item.

An application keeps one item for each order of actions, so that one upgrade tries all of them; the steps of the upgrade
are tried one after another. What the application did last to an item is what both sides have to hold in the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash import chroma_server
from crash.applications import ChromaApplication, MilvusApplication, QdrantApplication, expected
from crash.shop import source
from limpet.attached.collections.ledger import CollectionLedger
from limpet.engines.sides import OTHER, ModelSide
from limpet.errors import UpgradeStateError

LAYOUTS: dict[str, Callable[[Path, str], Any]] = {
    "vectors of Qdrant": lambda place, ledger: QdrantApplication(f"qdrant:{place / 'q'}", ledger, "&text=text"),
    "collections of Qdrant": lambda place, ledger: QdrantApplication(
        f"qdrant:{place / 'q'}", ledger, "&text=text&beside=collection"
    ),
    "Milvus Lite": lambda place, ledger: MilvusApplication(f"milvus:{place / 'm.db'}", f"{ledger}&text=text"),
    "Chroma": lambda place, ledger: ChromaApplication(chroma_server.shared().url, f"{ledger}&text=text"),
}
FIRST = ("declare new", "swap", "pass")
STEPS = (*FIRST, "declare old", "swap, declare old", "rollback", "rollback, declare new")
ACTIONS = ("nothing", "write", "delete", "write late")
"""What an application does to an item between two steps; a late write names what it wrote before a declaration."""
TWO = [(first, then) for first in FIRST for then in STEPS]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder where a sync costs nothing."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="limpet-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


class Upgrade:
    """An upgrade of items, one for each order of actions; all are on both sides when it begins.

    Args:
        application: Without items.
        orders: Of actions, one for each item.
    """

    def __init__(self, application: Any, orders: list[tuple[str, ...]]) -> None:
        self.application, self.orders = application, orders
        for item in range(len(orders)):
            application.write(item, f"item {item}", "old")
        self.it = application.start()
        self.new, self.old = source(self.it, "new"), source(self.it, "old")
        self.it.backfill(self.new)
        self.it.index()
        self.before: ModelSide = "old"
        self.since = set[int]()
        """Items that were written as it is declared since it was."""
        self.waiting = set[int]()
        """Items that were written late, and wait for a pass: what comes next is written as it is declared."""

    def act(self, number: int) -> None:
        """Do what the orders say at one place of them."""
        application, declared = self.application, self.it.state.writes
        there = application.contents(self.it.engine.target(declared))
        for item, order in enumerate(self.orders):
            late = order[number] == "write late" and self.before != declared and item not in self.since | self.waiting
            if order[number] == "delete" and item in there and item not in self.waiting:  # none that did not arrive
                application.delete(item)
            elif order[number] in ("write", "write late"):
                self.write(item, f"item {item} as of {number}", self.before if late else declared)
            if late:
                self.waiting.add(item)
            elif order[number] != "nothing":
                self.since.add(item)

    def write(self, item: int, text: str, side: ModelSide) -> None:
        from crash.shop import vector

        self.application.twin[item] = text
        self.application.put(self.it.engine.target(side), item, text, vector(side, text).tolist())

    def step(self, name: str) -> None:
        """Take a step, if it is possible."""
        it, declared = self.it, self.it.state.writes
        steps: dict[str, Callable[[], Any]] = {
            "declare new": lambda: it.declare_writes("new", self.new),
            "declare old": lambda: it.declare_writes("old", self.old),
            "swap": lambda: it.swap(self.new),
            "swap, declare old": lambda: it.swap(self.new, writes="old"),
            "rollback": lambda: it.rollback(self.old),
            "rollback, declare new": lambda: it.rollback(self.old, writes="new"),
            "pass": self.fill,
        }
        try:
            steps[name]()
        except UpgradeStateError:
            return
        if it.state.writes != declared:
            self.before, self.since = declared, set()

    def fill(self) -> None:
        """Make a pass for each side; the second one finds what the first one wrote."""
        self.waiting = set()
        for made in (self.old, self.new):
            self.it.backfill(made, of="old" if made is self.old else "new")

    def found_wrong(self) -> list[str]:
        """Say what is not as the application left it, after a pass."""
        self.fill()
        wrong = []
        for side in OTHER:
            found = self.application.contents(self.it.engine.target(side))
            wanted = expected(self.application.twin, side)
            wrong += [
                f"{', '.join(order)}: {side} has {found.get(item, ('nothing',))[0]!r}, "
                f"not {wanted.get(item, ('nothing',))[0]!r}"
                for item, order in enumerate(self.orders)
                if not alike(found.get(item), wanted.get(item))
            ]
        status = self.it.status()
        if (status.lacking, status.items) != ({"old": 0, "new": 0}, len(self.application.twin)):
            wrong.append(f"{status.lacking} are lacking of {status.items} items, not of {len(self.application.twin)}")
        return wrong


def alike(one: Any, other: Any) -> bool:
    """Return whether both are the same text with the same vector, but for rounding."""
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and np.allclose(one[1], other[1], atol=1e-4)


def tried(layout: str, place: Path, ledger: Path, steps: tuple[str, ...], actions: tuple[str, ...] = ACTIONS) -> None:
    application = LAYOUTS[layout](place, str(ledger))
    try:
        upgrade = Upgrade(application, list(product(actions, repeat=len(steps) + 1)))
        upgrade.act(0)
        for number, step in enumerate(steps, 1):
            upgrade.step(step)
            upgrade.act(number)
        assert upgrade.found_wrong() == [], steps
        upgrade.it.close()
    finally:
        application.close()


@pytest.mark.parametrize("layout", ["vectors of Qdrant", "collections of Qdrant"])
@pytest.mark.parametrize("steps", TWO, ids=" and ".join)
def test_two_steps_in_every_order_undo_nothing(
    layout: str, steps: tuple[str, ...], place: Path, tmp_path: Path
) -> None:
    tried(layout, place, tmp_path / "ledger.db", steps)


@pytest.mark.parametrize(
    "steps",
    [("swap", "declare new"), ("declare new", "declare old"), ("swap", "rollback, declare new")],
    ids=" and ".join,
)
@pytest.mark.parametrize("layout", ["Milvus Lite", "Chroma"])
def test_steps_of_slower_engines_undo_nothing(layout: str, steps: tuple[str, ...], place: Path, tmp_path: Path) -> None:
    tried(layout, place, tmp_path / "ledger.db", steps)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_three_steps_in_every_order_undo_nothing(layout: str, place: Path, tmp_path: Path) -> None:
    every = [(*two, last) for two in TWO for last in STEPS]
    for number, steps in enumerate(every[::13] if layout in ("Milvus Lite", "Chroma") else every):
        tried(layout, place, tmp_path / f"{number}.db", steps, ("nothing", "delete", "write late"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sides", [("old", "new"), ("new", "old")], ids=" to ".join)
def test_what_is_written_in_the_moment_of_a_declaration_travels(
    layout: str, sides: tuple[ModelSide, ModelSide], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last comparison, and before the declaration: an edit, a new item, and a deletion."""
    application = LAYOUTS[layout](place, str(tmp_path / "ledger.db"))
    upgrade = Upgrade(application, [("nothing",)] * 4)
    first, then = sides
    if first == "new":
        upgrade.step("declare new")
    step = CollectionLedger.step

    def last_moment(self: CollectionLedger, number: int, event: Any) -> Any:
        if event["kind"] == "writes":
            upgrade.write(1, "edited", first)
            upgrade.write(9, "added", first)
            application.remove(upgrade.it.engine.target(first), 2)
            del application.twin[2]
        return step(self, number, event)

    monkeypatch.setattr(CollectionLedger, "step", last_moment)
    upgrade.it.declare_writes(then, source(upgrade.it, then))
    for side in OTHER:
        assert application.contents(upgrade.it.engine.target(side)) == expected(application.twin, side)
    assert upgrade.it.state.late is None
    upgrade.it.close()
    application.close()
