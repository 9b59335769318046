"""State of an upgrade in the application's own table or collection: its phase, and what only attachments have.

`limpet.upgrade.lifecycle` says which step is possible from which phase. Attachments add:

- ``swap`` needs new vectors that were backfilled and indexed. If the application has to change its own queries (a
  side table), there is no swap.
- The model that the application writes with is declared (``writes``). ``finish`` needs the new model and ``cancel``
  the old one, since the two cannot be distinguished afterwards.
- If vectors of both models share one column, its index serves both: there is no step ``index``. ``swap`` and
  ``rollback`` are possible as long as the upgrade lasts, and again to resume an interrupted one.
- If only a comparison shows what the application wrote (collections), a declaration states by how many items the side
  that is written from then on is behind: a pass that brings it up to date comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from limpet.engines.sides import SIDES, ModelSide
from limpet.errors import ConfigError, UpgradeStateError, refuse
from limpet.upgrade.lifecycle import Phase, UpgradeStep, check_step

AttachmentEvent = Mapping[str, object]


@dataclass(frozen=True)
class AttachmentState:
    """State of an attachment, apart from its rows.

    Args:
        old: Fingerprint of the model of the existing vectors.
        new: Fingerprint of the new model.
        writes: The model whose vectors the application writes, unless a session says otherwise.
        filled: Whether a backfill of new vectors was completed.
        indexed: Whether the indexes over new vectors were built after that.
        turned_back: Whether a rollback followed the last swap: a shared column should then hold old vectors.
        swappable: Whether the new vectors can replace the old ones, so that the application's queries do not change.
        shared: Whether vectors of both models are in one column, which queries of either search.
        compared: Whether writes of the application are found by comparing both sides.
        late: The model that the application wrote with until recently: deletions of that side count until a pass has
            checked for them; None afterwards.
    """

    phase: Phase = "steady"
    old: str = ""
    new: str = ""
    writes: ModelSide = "old"
    filled: bool = False
    indexed: bool = False
    turned_back: bool = False
    swappable: bool = True
    shared: bool = False
    compared: bool = False
    late: ModelSide | None = None

    @property
    def serving(self) -> ModelSide:
        """The model whose vectors queries search; in a shared column, the model to embed queries with."""
        if self.phase == "steady":
            return self.writes  # an upgrade ends with one model
        return "new" if self.phase == "swapped" else "old"

    @property
    def turns(self) -> ModelSide:
        """The model whose vectors a shared column should hold in the end."""
        return "old" if self.turned_back else "new"

    def fingerprint(self, side: ModelSide) -> str:
        """Return the fingerprint of one of the models."""
        return self.new if side == "new" else self.old

    def side_of(self, model: str) -> ModelSide:
        """Return the side that a fingerprint, or the word old or new, names.

        >>> AttachmentState("started", "declared:a", "declared:b").side_of("declared:b")
        'new'

        Raises:
            ConfigError: It names neither.
        """
        for side in SIDES:
            if model in (side, self.fingerprint(side), self.fingerprint(side).removeprefix("declared:")):
                return side
        raise ConfigError(f"The model '{model}'.", expected=f"old ({self.old}) or new ({self.new})")


_UNDER_WAY: tuple[Phase, ...] = ("started", "swapped")


def advance(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    """Return the state after an event.

    Args:
        state: State before the event.
        event: Plain values with "kind" and the fields of that kind: "start" (old, new, swappable, shared, compared),
            "backfill" (of, and the reason of the end: "stopped"), "index", "swap" (writes, if it changes), "rollback"
            (the same), "writes" (writes), "settled" (late), "finish", "cancel". If sides are compared, events that
            change who writes with what state by how many items the side to be written is "behind", and how many are
            permitted ("allow_missing").

    Raises:
        UpgradeStateError: The step is not possible in this phase; the message names the possible steps.
        ConfigError: The kind, or a value, is unknown.
    """
    kind = str(event.get("kind"))
    refuse(kind not in _STEPS, f"An event of the kind '{kind}'.", f"one of {', '.join(_STEPS)}")
    allowed = event.get("allow_missing", 0)
    refuse(isinstance(allowed, int) and allowed < 0, f"allow_missing={allowed}", "at least 0")
    anywhere = kind in ("writes", "settled") or (state.shared and kind in ("swap", "rollback"))
    check_step(cast(UpgradeStep, kind), state.phase, possible=_UNDER_WAY if anywhere else None)
    return _STEPS[kind](state, event)


def _start(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    old, new = str(event["old"]), str(event["new"])
    if old == new:
        raise ConfigError(f"Both models are {old}.", to_do="name the new one by --name.")
    return AttachmentState(
        "started", old, new, swappable=bool(event.get("swappable", True)), shared=bool(event.get("shared")),
        compared=bool(event.get("compared")),
    )  # fmt: skip


def _backfill(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    done = event.get("of") == "new" and event.get("stopped") == "done"
    return replace(state, filled=True) if done else state


def _index(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    if state.shared:
        raise UpgradeStateError(
            "Cannot index: the index that is there serves the vectors of both models.", expected="another step"
        )
    _refuse_unfilled("index", state)
    return replace(state, indexed=True)


def _refuse_unfilled(step: str, state: AttachmentState) -> None:
    if not state.filled:
        raise UpgradeStateError(
            f"Cannot {step}: not every row was given a new vector.",
            expected="a backfill that came to its end",
            to_do="`limpet upgrade backfill --model MODEL` makes new vectors, or goes on.",
        )


def _swap(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    if not state.swappable:
        raise UpgradeStateError(
            "Cannot swap: the new vectors are in a table of their own, not beside the old ones.",
            expected="a column that may be renamed, which only the owner of a table can do",
            to_do="let the application join the table as `limpet upgrade status` prints it, or start as the owner.",
        )
    if not state.shared:
        _refuse_unfilled("swap", state)
        if not state.indexed:
            raise UpgradeStateError(
                "Cannot swap: the new vectors are not indexed.", to_do="`limpet upgrade index` builds the indexes."
            )
    return _writing(replace(state, phase="swapped", turned_back=False), event)


def _rollback(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return _writing(replace(state, phase="started", turned_back=True), event)


def _writing(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    side = state.side_of(str(event["writes"])) if event.get("writes") else state.writes
    if side == state.writes:
        return state
    behind, allowed = event.get("behind"), event.get("allow_missing", 0)
    if state.compared and not (isinstance(behind, int) and isinstance(allowed, int) and behind <= allowed):
        raise UpgradeStateError(
            f"Cannot declare that the application writes with {state.fingerprint(side)}: what it wrote with "
            f"{state.fingerprint(state.writes)} was not brought over.",
            expected="a pass over what it wrote, before the declaration",
            to_do=f"{_declare(state, side)} makes both.",
        )
    return replace(state, writes=side, late=state.writes if state.compared else None)


def _declare(state: AttachmentState, side: ModelSide) -> str:
    """Return the command that declares it: if sides are compared, with the model that a pass may need."""
    model = " --model " + ("MODEL" if side == "new" else "OLD_MODEL") if state.compared else ""
    return f"`limpet upgrade writes --of {side}{model}`"


def _settled(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return replace(state, late=None) if state.late == event.get("late") else state


def _end(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    stays: ModelSide = "new" if event["kind"] == "finish" else "old"
    if state.writes != stays:
        raise UpgradeStateError(
            f"Cannot {event['kind']}: the application writes with {state.fingerprint(state.writes)}, as far as is "
            f"declared, and the vectors of {state.fingerprint(stays)} stay.",
            expected=f"an application that writes with {state.fingerprint(stays)}",
            to_do=f"let it, declare it by {_declare(state, stays)}, then repeat.",
        )
    return replace(state, phase="steady")


_STEPS: dict[str, Callable[[AttachmentState, AttachmentEvent], AttachmentState]] = {
    "start": _start,
    "backfill": _backfill,
    "index": _index,
    "swap": _swap,
    "rollback": _rollback,
    "writes": _writing,
    "settled": _settled,
    "finish": _end,
    "cancel": _end,
}
