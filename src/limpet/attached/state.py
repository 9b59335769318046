"""Where an upgrade of vectors in somebody else's place stands, and which steps are possible: one pure function.

::

    attach ─▶ attached ─fill─▶ filling ─filled─▶ filled ─index─▶ indexed ──swap──▶ swapped ──complete──▶ completed
                                                                              ▲        │                     │
                                                                              │        ▼                     │
                                                                             swap ─ rolled back ◀──rollback──┘

``detach`` is possible from everywhere but "swapped": that one is rolled back or completed first. Where the application
has to change its own queries (a side table), there is no swap, and "indexed" is as far as it goes. Which model the
application writes with is declared (``writes``) and independent of all this. Where nothing but a comparison tells what
the application wrote (collections), a declaration says how many items the side that is written from then on is behind:
a pass comes first that brings it up to date.

Where vectors of both models share one column, whichever model's queries may meet them, the index that is there serves
both: there is no step ``index``, ``swap`` and ``rollback`` are possible at any time, and again to go on with what was
interrupted::

    attach ─▶ attached ─fill─▶ filling ─filled─▶ filled      any of them ──swap──▶ swapped ──complete──▶ completed
                                                             any of them ──rollback──▶ rolled back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from limpet.engines.sides import ModelSide
from limpet.errors import ConfigError, UpgradeStateError, refuse

AttachmentPhase = Literal[
    "none", "attached", "filling", "filled", "indexed", "swapped", "rolled back", "completed", "detached"
]  # fmt: skip
AttachmentEvent = Mapping[str, object]


@dataclass(frozen=True)
class AttachmentState:
    """What an attachment is, apart from its rows.

    Args:
        phase: The step that was done last.
        old: Fingerprint of the model whose vectors were there.
        new: Fingerprint of the model that is to take over.
        writes: With which of them the application makes the vectors that it writes, unless a session says otherwise.
        swappable: Whether the new vectors can take the place of the old ones, so that the application's queries stay.
        shared: Whether vectors of both models are in one column, which queries of either search.
        compared: Whether what the application writes is found by comparing both sides.
        late: With which model the application wrote until a moment ago: deletions of that side count until a pass has
            looked for them; None where one has.
    """

    phase: AttachmentPhase = "none"
    old: str = ""
    new: str = ""
    writes: ModelSide = "old"
    swappable: bool = True
    shared: bool = False
    compared: bool = False
    late: ModelSide | None = None

    @property
    def serving(self) -> ModelSide:
        """Whose vectors the application's queries find; where both share a column, whose queries it is to ask."""
        return "new" if self.phase in ("swapped", "completed") else "old"

    @property
    def turns(self) -> ModelSide:
        """Whose vectors a column that both share is to hold in the end."""
        return "old" if self.phase == "rolled back" else "new"

    def fingerprint(self, side: ModelSide) -> str:
        """Return the fingerprint of one of the models."""
        return self.new if side == "new" else self.old

    def side_of(self, model: str) -> ModelSide:
        """Return which of the two a fingerprint, or the word old or new, names.

        >>> AttachmentState("attached", "declared:a", "declared:b").side_of("declared:b")
        'new'

        Raises:
            ConfigError: Neither.
        """
        for side in get_args(ModelSide):
            if model in (side, self.fingerprint(side), self.fingerprint(side).removeprefix("declared:")):
                return side  # type: ignore[no-any-return]
        raise ConfigError(f"The model '{model}'.", expected=f"old ({self.old}) or new ({self.new})")


def advance(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    """Return the state after an event.

    Args:
        state: Before.
        event: Plain values with "kind" and what the kind needs: "attach" (old, new, swappable, shared, compared),
            "fill", "filled", "index", "swap" (writes, if it changes), "rollback" (the same), "writes" (writes),
            "settled" (late), "complete", "detach". Where sides are compared, events that change who writes with what
            say how many items the side that is to be written is "behind", and how many may be ("allow_missing").

    Raises:
        UpgradeStateError: The step is not possible from here; the message says what is.
        ConfigError: The kind, or a value, is unknown.
    """
    kind = str(event.get("kind"))
    refuse(kind not in _STEPS, f"An event of the kind '{kind}'.", f"one of {', '.join(_STEPS)}")
    allowed = (_FROM | _FROM_SHARED if state.shared else _FROM)[kind]
    if state.phase not in allowed:
        raise UpgradeStateError(
            f"Cannot {kind}: the attachment is {state.phase}.",
            expected=f"one that is {' or '.join(allowed)}" if allowed else "another step",
            to_do=_HINTS.get((kind, state.phase if allowed else ""), "`limpet attach status` shows where it stands")
            + ".",
        )
    return _STEPS[kind](state, event)


def replay(events: Iterable[AttachmentEvent]) -> AttachmentState:
    """Return the state that a journal leads to.

    >>> replay([{"kind": "attach", "old": "declared:a", "new": "declared:b"}, {"kind": "fill"}]).phase
    'filling'
    """
    state = AttachmentState()
    for event in events:
        state = advance(state, event)
    return state


_FROM: dict[str, tuple[AttachmentPhase, ...]] = {
    "attach": ("none",),
    "fill": ("attached", "filling", "filled", "indexed", "swapped", "rolled back", "completed"),
    "filled": ("filling", "filled", "indexed", "swapped", "rolled back", "completed"),
    "index": ("filled", "indexed", "swapped", "rolled back", "completed"),
    "swap": ("indexed", "rolled back"),
    "rollback": ("swapped", "completed"),
    "writes": ("attached", "filling", "filled", "indexed", "swapped", "rolled back", "completed"),
    "settled": ("attached", "filling", "filled", "indexed", "swapped", "rolled back", "completed"),
    "complete": ("swapped", "completed"),
    "detach": ("attached", "filling", "filled", "indexed", "rolled back", "completed"),
}
_FROM_SHARED: dict[str, tuple[AttachmentPhase, ...]] = {
    "index": (),
    "swap": ("attached", "filling", "filled", "swapped", "rolled back"),
    "rollback": ("attached", "filling", "filled", "swapped", "rolled back", "completed"),
    "detach": ("attached", "filling", "filled", "rolled back", "completed"),
}
_HINTS: dict[tuple[str, str], str] = {
    ("index", ""): "no other index is needed: the index that is there serves the vectors of both models",
    ("index", "attached"): "fill it first: `limpet attach backfill --model MODEL`",
    ("index", "filling"): "`limpet attach backfill --model MODEL` goes on until every row has a new vector",
    ("swap", "attached"): "fill it first: `limpet attach backfill --model MODEL`; then build the indexes",
    ("swap", "filling"): "`limpet attach backfill --model MODEL` goes on; then build the indexes",
    ("swap", "filled"): "build the indexes first: `limpet attach index`",
    ("swap", "swapped"): "the new vectors serve already; `limpet attach status` shows how to end the upgrade",
    ("detach", "swapped"): "go back to the old vectors (rollback) or keep the new ones (complete) first; "
    "`limpet attach status` shows both commands",
}  # fmt: skip


def _attach(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    old, new = str(event["old"]), str(event["new"])
    if old == new:
        raise ConfigError(f"Both models are {old}.", to_do="name the new one by --new-name.")
    swappable, shared = bool(event.get("swappable", True)), bool(event.get("shared"))
    return AttachmentState("attached", old, new, "old", swappable, shared, bool(event.get("compared")))


def _fill(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return replace(state, phase="filling") if state.phase == "attached" else state


def _filled(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return replace(state, phase="filled") if state.phase == "filling" else state


def _index(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return replace(state, phase="indexed") if state.phase == "filled" else state


def _swap(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    if not state.swappable:
        raise UpgradeStateError(
            "Cannot swap: the new vectors are in a table of their own, not beside the old ones.",
            expected="a column that may be renamed, which only the owner of a table can do",
            to_do="let the application join the table as `limpet attach status` prints it, or attach as the owner.",
        )
    return _writing(replace(state, phase="swapped"), event)


def _rollback(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return _writing(replace(state, phase="rolled back"), event)


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
    """Return what to type to declare it: where sides are compared, with the model that a pass may need."""
    model = " --model " + ("MODEL" if side == "new" else "OLD_MODEL") if state.compared else ""
    return f"`limpet attach writes --of {side}{model}`"


def _settled(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    return replace(state, late=None) if state.late == event.get("late") else state


def _complete(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    if state.writes != "new":
        raise UpgradeStateError(
            f"Cannot complete: the application writes with {state.old}, as far as is declared.",
            expected=f"an application that writes with {state.new}, since nobody will tell the two apart afterwards",
            to_do=f"let it, declare it by {_declare(state, 'new')}, then complete.",
        )
    return replace(state, phase="completed")


def _detach(state: AttachmentState, event: AttachmentEvent) -> AttachmentState:
    stays: ModelSide = "new" if state.phase == "completed" else "old"
    if state.writes != stays:
        raise UpgradeStateError(
            f"Cannot detach: the application writes with {state.fingerprint(state.writes)}, as far as is declared, and "
            f"the vectors of {state.fingerprint(stays)} stay.",
            expected="one model, since nobody will tell the two apart afterwards",
            to_do=f"let the application write with that one, declare it by {_declare(state, stays)}, then detach.",
        )
    return replace(state, phase="detached")


_STEPS: dict[str, Callable[[AttachmentState, AttachmentEvent], AttachmentState]] = {
    "attach": _attach,
    "fill": _fill,
    "filled": _filled,
    "index": _index,
    "swap": _swap,
    "rollback": _rollback,
    "writes": _writing,
    "settled": _settled,
    "complete": _complete,
    "detach": _detach,
}
