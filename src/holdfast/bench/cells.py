"""One step of a bench, known by everything that decides what it becomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from holdfast.bench.code_version import code_version


@dataclass(frozen=True, eq=False)
class Cell:
    """One step: a model to train, embeddings to make, scores to measure.

    Two cells of the same address become the same, so only one of them is ever run. The address covers the kind, the
    settings, the code and the addresses of the cells that this one needs: a changed option reruns what depends on it,
    and nothing else.

    Args:
        kind: What is done, a key of `holdfast.bench.steps.STEPS`.
        settings: What decides the result, plain values.
        needs: Cells whose products it reads, by the role they play.
        work: About how much there is to do, such as images times epochs, for estimates; decides nothing.
        label: What people call it; decides nothing.
        hints: How to do what the settings say, such as the very rows that a digest stands for; told to the step beside
            the settings, and not recorded.
    """

    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, Cell] = field(default_factory=dict)
    work: float = 1.0
    label: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def address(self) -> str:
        """The content address, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    def to_run(self) -> Cell:
        """Return the same cell without what it takes to run those that it needs: less to hand to another process."""
        needs = {role: replace(cell, needs={}, hints={})._at(cell.address) for role, cell in self.needs.items()}
        return replace(self, needs=needs)._at(self.address)

    def _at(self, address: str) -> Cell:
        self.__dict__["address"] = address  # where `cached_property` keeps what it was told
        return self

    def identity(self) -> dict[str, Any]:
        """Return what the address is made of, as plain values."""
        return {
            "kind": self.kind,
            "settings": dict(self.settings),
            "needs": {role: cell.address for role, cell in self.needs.items()},
            "code": code_version(),
        }


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return these cells and all that they need, each address once, every cell after those it needs."""
    found: dict[str, Cell] = {}

    def visit(cell: Cell) -> Iterator[Cell]:
        if cell.address not in found:
            for needed in cell.needs.values():
                yield from visit(needed)
            found[cell.address] = cell
            yield cell

    return [known for cell in cells for known in visit(cell)]
