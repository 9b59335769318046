"""The next commands of an attachment, by its phase."""

from __future__ import annotations

import shlex

from limpet.attached.state import AttachmentState
from limpet.engines.sides import SIDES, ModelSide
from limpet.engines.sources import SOURCES
from limpet.models.names import ModelName
from limpet.upgrade.status import ApplicationFacts, NextStep, UpgradeStatus

_NEEDED = {"new": "MODEL", "old": "OLD_MODEL"}
"""Placeholder for a model that was not given by options."""


def next_steps(found: UpgradeStatus, state: AttachmentState) -> tuple[NextStep, ...]:
    """Return the next commands, the most useful first.

    Each is possible now. The purpose explains a placeholder in capitals.
    """
    it = _Steps(found, state)
    if state.phase == "steady":
        return ()
    if state.phase == "swapped":
        return (*it.fill("new"), *it.fill("old"), *it.back(), *it.declare_new(), *it.finish())
    if state.shared and state.turned_back:
        left = [NextStep("restore the remaining old vectors", ("rollback",))] * bool(it.facts.holding["new"])
        return (*left, *it.fill("old"), it.swap, *it.cancel())
    if state.shared:
        return (*it.fill("new"), it.swap, *(it.back()[:1] if it.facts.holding["new"] else it.cancel()))
    if not state.filled:
        return (*(it.fill("new") or [it.filling("new")]), *it.cancel())
    if not state.indexed:
        return (*it.fill("new"), NextStep("build the index", ("index",)), *it.cancel())
    if not state.swappable:
        return (*it.fill("new"), NextStep("see which queries still search old vectors", ("verify",)), *it.cancel())
    possible = not it.lacking["new"] or it.fresh("new")
    return (*it.fill("new"), *([it.swap] if possible else []), *it.cancel())


class _Steps:
    """The steps, each with its command-line arguments.

    Args:
        state: State of the attachment, as its ledger has it.
    """

    def __init__(self, found: UpgradeStatus, state: AttachmentState) -> None:
        self.found, self.state, self.facts = found, state, found.application or ApplicationFacts()
        blank = self.facts.without_text
        self.lacking = {side: found.lacking[side] - blank.get(side, 0) for side in SIDES}
        self.one_dim = found.old.dim == found.new.dim

    def _allowed(self, side: ModelSide) -> tuple[str, ...]:
        left = self.found.lacking[side] - self.lacking[side]
        return ("--allow-missing", str(left)) if left else ()

    def _turning(self, side: ModelSide) -> tuple[str, ...]:
        """Return arguments of a swap or a rollback: which model writes afterwards, and what may lack a vector."""
        writes = () if self.one_dim and not self.state.shared else ("--writes", side)
        return (*writes, *(() if self.state.shared else self._allowed(side)))

    def _source(self, side: ModelSide) -> tuple[str, tuple[str, ...]]:
        """Return the meaning of a placeholder, and the arguments that name the source of a model's vectors."""
        model = self.found.model(side)
        if model.options:
            return "", tuple(shlex.split(model.options))
        needed = _NEEDED[side]
        if not self.facts.texts or (side == "new" and model.declared):
            file = needed.replace("MODEL", "FILE")
            return f" ({file} stands for vectors of {model.fingerprint})", ("--model", file)
        return f" ({needed} stands for the text model {model.fingerprint})", ("--model", needed)

    def fresh(self, side: ModelSide) -> tuple[str, ...]:
        words = self._source(side)[1]
        return () if _stored(words) or words[-1] in _NEEDED.values() else words

    def filling(self, side: ModelSide) -> NextStep:
        what, words = self._source(side)
        purpose = "backfill" if side == "new" else "backfill old vectors before a rollback"
        return NextStep(f"{purpose}{what}", ("backfill", *(("--of", "old") if side == "old" else ()), *words))

    def fill(self, side: ModelSide) -> list[NextStep]:
        return [self.filling(side)] * bool(self.lacking[side])

    @property
    def swap(self) -> NextStep:
        purpose = "query and write with the new model" if self.state.shared else "activate the new model"
        late = () if self.state.shared else self.fresh("new")  # in a shared column a backfill writes them
        return NextStep(purpose, ("swap", *late, *self._turning("new")))

    def back(self) -> list[NextStep]:
        (what, words), turning = self._source("old"), self._turning("old")
        plain = [NextStep("reactivate the old model", ("rollback", *turning))] * (
            self.state.shared or not self.lacking["old"]
        )
        late = f"reactivate the old model after rows were written with the new one{what}"
        return plain + [NextStep(late, ("rollback", *words, *turning))] * (not _stored(words))

    def declare_new(self) -> list[NextStep]:
        """Return the declaration that the application writes with the new model, if it needs no pass."""
        behind = self.state.compared and self.found.lacking["new"]
        step = NextStep("declare that the application writes with the new model", ("writes", "--of", "new"))
        return [step] * (self.state.writes == "old" and not behind)

    def finish(self) -> list[NextStep]:
        step = NextStep("end the upgrade with the new model", ("finish", *self._allowed("new")))
        return [step] * (self.state.writes == "new" and not self.lacking["new"])

    def cancel(self) -> list[NextStep]:
        if self.state.writes == "new":
            again = f"declare that the application writes with {self.found.old.fingerprint} again"
            return [NextStep(again, ("writes", "--of", "old"))]
        counted = self.state.shared or self.state.indexed
        if counted and self.lacking["old"]:
            return self.fill("old")
        return [NextStep("end the upgrade with the old model", ("cancel", *(self._allowed("old") if counted else ())))]


def _stored(words: tuple[str, ...]) -> bool:
    """Return whether arguments name precomputed vectors, which do not cover items written just now."""
    named = ModelName(words[words.index("--over" if "--over" in words else "--model") + 1], sources=SOURCES)
    return named.scheme == "vectors" and named.place not in _NEEDED.values()
