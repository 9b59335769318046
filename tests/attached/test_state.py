"""Which steps of an attached upgrade are possible from where."""

from __future__ import annotations

import pytest

from limpet.attached.state import AttachmentPhase, AttachmentState, advance, replay
from limpet.errors import ConfigError, UpgradeStateError

ATTACH = {"kind": "attach", "old": "declared:a", "new": "declared:b"}
WAYS: dict[AttachmentPhase, list[str]] = {
    "attached": [],
    "filling": ["fill"],
    "filled": ["fill", "filled"],
    "indexed": ["fill", "filled", "index"],
    "swapped": ["fill", "filled", "index", "swap"],
    "rolled back": ["fill", "filled", "index", "swap", "rollback"],
}
POSSIBLE: dict[str, set[str]] = {
    "fill": {"attached", "filling", "filled", "indexed", "swapped", "rolled back"},
    "filled": {"filling", "filled", "indexed", "swapped", "rolled back"},
    "index": {"filled", "indexed", "swapped", "rolled back"},
    "swap": {"indexed", "rolled back"},
    "rollback": {"swapped"},
    "detach": {"attached", "filling", "filled", "indexed", "rolled back"},
}


def at(phase: AttachmentPhase) -> AttachmentState:
    state = replay([ATTACH, *({"kind": kind} for kind in WAYS[phase])])
    assert state.phase == phase
    return state


@pytest.mark.parametrize("phase", WAYS)
@pytest.mark.parametrize("kind", POSSIBLE)
def test_every_step_is_possible_from_where_it_makes_sense(phase: AttachmentPhase, kind: str) -> None:
    if phase in POSSIBLE[kind]:
        assert advance(at(phase), {"kind": kind}).serving == ("new" if kind == "swap" or (
            phase == "swapped" and kind != "rollback") else "old")  # fmt: skip
    else:
        with pytest.raises(UpgradeStateError, match=f"Cannot {kind}: the attachment is {phase}"):
            advance(at(phase), {"kind": kind})


def test_filling_again_does_not_lead_back() -> None:
    swapped = at("swapped")
    for kind in ("fill", "filled", "index"):
        assert advance(swapped, {"kind": kind}) == swapped


def test_swaps_may_change_who_writes_with_what() -> None:
    swapped = advance(at("indexed"), {"kind": "swap", "writes": "new"})
    assert (swapped.serving, swapped.writes) == ("new", "new")
    back = advance(swapped, {"kind": "rollback", "writes": "declared:a"})
    assert (back.serving, back.writes) == ("old", "old")
    assert advance(back, {"kind": "writes", "writes": "b"}).writes == "new"
    with pytest.raises(ConfigError, match=r"The model 'c'.\nExpected: old \(declared:a\) or new"):
        advance(back, {"kind": "writes", "writes": "c"})


def test_where_sides_are_compared_a_declaration_takes_a_pass() -> None:
    """An event that does not say how far a side is behind is refused, as is one by which it is."""
    compared = replay([{**ATTACH, "compared": True}, *({"kind": kind} for kind in WAYS["indexed"])])
    for event in ({"kind": "writes"}, {"kind": "swap"}):
        for said in ({}, {"behind": 1}, {"behind": 2, "allow_missing": 1}):
            with pytest.raises(UpgradeStateError, match="was not brought over"):
                advance(compared, {**event, "writes": "new", **said})
        for said in ({"behind": 0}, {"behind": 1, "allow_missing": 1}):
            declared = advance(compared, {**event, "writes": "new", **said})
            assert (declared.writes, declared.late) == ("new", "old")
    assert advance(compared, {"kind": "writes", "writes": "old"}) == compared
    declared = advance(compared, {"kind": "writes", "writes": "new", "behind": 0})
    assert advance(declared, {"kind": "settled", "late": "new"}) == declared
    assert advance(declared, {"kind": "settled", "late": "old"}).late is None


def test_nothing_ends_with_an_application_that_writes_the_other_model() -> None:
    swapped = at("swapped")
    with pytest.raises(UpgradeStateError, match="writes with declared:a"):
        advance(swapped, {"kind": "complete"})
    completed = advance(advance(swapped, {"kind": "writes", "writes": "new"}), {"kind": "complete"})
    assert advance(completed, {"kind": "detach"}).phase == "detached"
    assert advance(completed, {"kind": "rollback"}).phase == "rolled back"
    with pytest.raises(UpgradeStateError, match="the vectors of declared:a stay"):
        advance(advance(completed, {"kind": "rollback"}), {"kind": "detach"})


SHARED_POSSIBLE: dict[str, set[str]] = {
    "fill": {"attached", "filling", "filled", "swapped", "rolled back"},
    "index": set(),
    "swap": {"attached", "filling", "filled", "swapped", "rolled back"},
    "rollback": {"attached", "filling", "filled", "swapped", "rolled back"},
    "detach": {"attached", "filling", "filled", "rolled back"},
}


@pytest.mark.parametrize("phase", [phase for phase in WAYS if phase != "indexed"])
@pytest.mark.parametrize("kind", SHARED_POSSIBLE)
def test_where_both_models_share_a_column_a_swap_is_possible_at_any_time(phase: AttachmentPhase, kind: str) -> None:
    ways = [{"kind": one} for one in WAYS[phase] if one != "index"]
    state = replay([{**ATTACH, "shared": True}, *ways])
    assert state.phase == phase and state.turns == ("old" if phase == "rolled back" else "new")
    if phase in SHARED_POSSIBLE[kind]:
        assert advance(state, {"kind": kind}).serving == ("new" if kind == "swap" or (
            phase == "swapped" and kind != "rollback") else "old")  # fmt: skip
    else:
        with pytest.raises(UpgradeStateError, match=f"Cannot {kind}: the attachment is {phase}"):
            advance(state, {"kind": kind})


def test_a_side_table_is_never_swapped() -> None:
    aside = replay([{**ATTACH, "swappable": False}, *({"kind": kind} for kind in WAYS["indexed"])])
    with pytest.raises(UpgradeStateError, match="a table of their own"):
        advance(aside, {"kind": "swap"})


def test_events_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="kind 'swop'"):
        advance(AttachmentState(), {"kind": "swop"})
    with pytest.raises(ConfigError, match="Both models are declared:a"):
        advance(AttachmentState(), {"kind": "attach", "old": "declared:a", "new": "declared:a"})
    with pytest.raises(UpgradeStateError, match="the attachment is attached"):
        advance(at("attached"), ATTACH)
