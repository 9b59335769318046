"""The twin: a reference model of a gallery in plain Python, which follows the log of a trial.

The twin shares no code with the gallery. It reads the lines of the log: "begin" and "done" of every operation, and
"embed" for every call of the source of a backfill. Every operation is one commit. A backfill is one commit per call of
its source, and all but the last are certain. The operation during which the process died is either complete or absent.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Op = dict[str, Any]


_UPKEEP = {"backfill": "index", "finish": "tidy", "cancel": "tidy", "gc": "tidy"}
"""Operations after which the store may make a commit of its own, and the event of that commit."""


class Violation(Exception):  # noqa: N818 (not an error of the harness)
    """A violated guarantee.

    Args:
        check: Name of the check that found it.
        found: What was found.
    """

    def __init__(self, check: str, found: str) -> None:
        super().__init__(f"{check}: {found}")
        self.check, self.found = check, found


@dataclass
class Item:
    """The expected state of one item.

    Args:
        content: Number of its content.
        version: Number of the commit that last wrote it.
        holding: Names of the generations of which it has a vector.
    """

    content: int
    version: int
    holding: set[str]


@dataclass
class Fill:
    """An embedded batch of a backfill, with the versions and contents of its items at that time."""

    generation: str
    versions: dict[str, int]
    contents: dict[str, int]


@dataclass
class Twin:
    """The expected gallery."""

    space: str = "hypersphere"
    sequence: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    """Fingerprint of every generation by name, in order of creation."""
    active: str = ""
    started: str | None = None
    previous: list[str] = field(default_factory=list)
    links: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """Links between generations: the seed of the adapter that maps the queries, or None without an adapter."""
    created: int = 0
    events: list[str] = field(default_factory=list)
    doing: list[Op] = field(default_factory=list)
    fill: Fill | None = None
    encoded: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    lost: int = 0
    """Number of embedded vectors whose batch was lost by a crash or an error."""
    dead: set[str] = field(default_factory=set)
    contents: int = 0
    ghost: Twin | None = None

    # Lines of the log

    def feed(self, line: list[Any]) -> None:
        """Apply a line of the log."""
        what, *values = line
        if what == "begin":
            self.doing.append(values[0])
            self.contents = max(self.contents, values[0].get("contents", 0))
        elif what == "done":
            self._done(*values)
        elif what == "embed":
            self._embed(*values)
        elif what in ("opened", "failed"):
            self.settle(values[0])
            self.ghost = None
        elif what == "died":
            self._settle_among_others(values[0])
        elif what == "ghost":
            assert self.ghost is not None
            self.__dict__.update(self.ghost.__dict__)

    def _settle_among_others(self, found: int) -> None:
        """Settle the operation of a dead process at the commit that processes with an open gallery see.

        The write-ahead log of SQLite may hold a commit of the dead process that others do not see. It becomes visible
        if no process commits before all of them have closed the gallery. The twin keeps that state as its ghost.
        """
        ghost = deepcopy(self)
        with suppress(Violation):
            ghost.settle(found + 1)
        self.settle(found)
        self.ghost = ghost if ghost.sequence > found else None

    def _done(self, result: Any) -> None:
        op = self.doing.pop()
        if op["kind"] == "backfill":
            self._commit_fill()
        else:
            self._commit(op)
        if op["kind"] in _UPKEEP:
            self._kept_up(op["kind"], result[-1])

    def _kept_up(self, kind: str, found: int) -> None:
        """Count the commit with which a store records that it merged or indexed its files."""
        if found == self.sequence + 1:
            self.sequence += 1
            self.events.append(_UPKEEP[kind])

    def _embed(self, generation: str, ids: list[str], found: int) -> None:
        self._commit_fill()
        self._kept_up("backfill", found)
        unknown = [identifier for identifier in ids if identifier not in self.items]
        if unknown:
            raise Violation("deleted", f"a backfill embeds {unknown}, which are not in the gallery")
        contents = {identifier: self.items[identifier].content for identifier in ids}
        self.encoded.update((generation, identifier, content) for identifier, content in contents.items())
        if ids:
            versions = {identifier: self.items[identifier].version for identifier in ids}
            self.fill = Fill(generation, versions, contents)

    def settle(self, found: int) -> None:
        """Settle an interrupted operation at the commit at which the gallery was found.

        Raises:
            Violation: An acknowledged commit is missing, or there are more commits than the operation can have made.
        """
        doing = self.doing[-1]["kind"] if self.doing else "nothing"
        one = self.fill is not None if doing == "backfill" else bool(self.doing)
        if not self.sequence <= found <= self.sequence + one + (doing in _UPKEEP):
            raise Violation(
                "acknowledged",
                f"the gallery is at commit {found}; {self.sequence} were acknowledged while it did {doing}",
            )
        if found > self.sequence and doing == "backfill":
            self._commit_fill()
        elif found > self.sequence:
            self._commit(self.doing[-1])
        self._kept_up(doing, found)
        if self.fill is not None:
            self.lost += len(self.fill.versions)
        self.fill, self.doing = None, []

    # Operations

    def _commit(self, op: Op) -> None:
        self.ghost = None
        self.sequence += 1
        self.events.append(op["kind"])
        getattr(self, f"_{op['kind']}")(op)

    def _commit_fill(self) -> None:
        if self.fill is None:
            return
        self.ghost = None
        self.sequence += 1
        self.events.append("backfill")
        for identifier, version in self.fill.versions.items():
            item = self.items.get(identifier)
            if item is not None and item.version == version:
                item.holding.add(self.fill.generation)
        self.fill = None

    def _create(self, op: Op) -> None:
        self.space = op["space"]
        self.models, self.active, self.created = {"g1": op["model"]}, "g1", 1

    def _upsert(self, op: Op) -> None:
        for identifier, content, holding in op["items"]:
            self.items[identifier] = Item(content, self.sequence, set(holding))
            self.dead.discard(identifier)

    _add = _upsert

    def _delete(self, op: Op) -> None:
        for identifier in op["ids"]:
            if self.items.pop(identifier, None) is not None:
                self.dead.add(identifier)

    def _start(self, op: Op) -> None:
        self.created += 1
        self.started = f"g{self.created}"
        self.models[self.started] = op["model"]
        if "adapter" in op:
            self.links[self.started, self.active] = op["adapter"]

    def _link(self, op: Op) -> None:
        self.links[op["query"], op["gallery"]] = None

    def _swap(self, op: Op) -> None:
        assert self.started is not None
        before, after = self.sources(self.active), self.sources(self.started)
        if self.active not in after and self.lacking(after) > self.lacking([*before, *after]):
            self.links[self.started, self.active] = None
        self.previous.append(self.active)
        self.active, self.started = self.started, None

    def _rollback(self, op: Op) -> None:
        self.started, self.active = self.active, self.previous.pop()

    def _finish(self, op: Op) -> None:
        self._remove(set(self.models) - {self.active})
        self.previous = []

    def _cancel(self, op: Op) -> None:
        self._remove({self.started or ""})
        self.started = None

    def _gc(self, op: Op) -> None:
        """Change nothing: gc removes only what no search can find."""

    def _remove(self, gone: set[str]) -> None:
        self.models = {name: model for name, model in self.models.items() if name not in gone}
        self.links = {link: adapter for link, adapter in self.links.items() if not gone & set(link)}
        for item in self.items.values():
            item.holding -= gone

    # Expectations

    def sources(self, query: str) -> list[str]:
        """Return the generations that queries of a generation may search, in the order of the search."""
        linked = [name for name in reversed(self.models) if (query, name) in self.links and name != query]
        return [query, *linked]

    def lacking(self, generations: list[str]) -> int:
        """Return the number of items without a vector of any of these generations."""
        return sum(not item.holding & set(generations) for item in self.items.values())

    def possible(self, kind: str) -> bool:
        """Return whether a step of an upgrade is possible now."""
        waiting = self.started is not None
        others = [name for name in self.models if name != self.started]
        return {
            "start": not waiting and len(self.models) < 3,
            "swap": waiting,
            "rollback": not waiting and bool(self.previous),
            "finish": not waiting and bool(self.previous),
            "cancel": waiting and self.lacking(others) == self.lacking(list(self.models)),
        }.get(kind, True)

    def repeated(self) -> int:
        """Return the number of vectors that were embedded again for the same content of the same item."""
        return sum(self.encoded.values()) - len(self.encoded)
