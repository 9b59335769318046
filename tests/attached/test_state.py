"""Which steps of an attached upgrade are possible from where."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from limpet.attached.state import AttachmentState, advance
from limpet.errors import ConfigError, UpgradeStateError

START = {"kind": "start", "old": "declared:a", "new": "declared:b"}
BEGUN, FILLED = {"kind": "backfill", "of": "new"}, {"kind": "backfill", "of": "new", "stopped": "done"}
WAYS: dict[str, list[dict[str, str]]] = {
    "started": [],
    "half filled": [BEGUN, {**BEGUN, "stopped": "budget"}],
    "old ones filled": [{**FILLED, "of": "old"}],
    "filled": [BEGUN, FILLED],
    "indexed": [FILLED, {"kind": "index"}],
    "swapped": [FILLED, {"kind": "index"}, {"kind": "swap"}],
    "turned back": [FILLED, {"kind": "index"}, {"kind": "swap"}, {"kind": "rollback"}],
}
POSSIBLE = {
    "backfill": set(WAYS),
    "index": {"filled", "indexed", "swapped", "turned back"},
    "swap": {"indexed", "turned back"},
    "rollback": {"swapped"},
    "writes": set(WAYS),
    "finish": set[str](),  # the application writes with the old model
    "cancel": set(WAYS) - {"swapped"},
}


def after(events: Iterable[dict[str, str]], **further: bool) -> AttachmentState:
    state = advance(AttachmentState(), START | further)
    for event in events:
        state = advance(state, event)
    return state


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", POSSIBLE)
def test_a_step_is_possible_where_it_makes_sense(way: str, kind: str) -> None:
    before = after(WAYS[way])
    assert before.serving == ("new" if way == "swapped" else "old")
    if way not in POSSIBLE[kind]:
        with pytest.raises(UpgradeStateError, match=f"Cannot {kind}: "):
            advance(before, {"kind": kind})
        return
    serving = {"swap": "new", "rollback": "old"}.get(kind, before.serving)
    assert advance(before, {"kind": kind}).serving == serving


def test_filling_again_does_not_lead_back() -> None:
    swapped = after(WAYS["swapped"])
    for event in (BEGUN, FILLED, {"kind": "index"}):
        assert advance(swapped, event) == swapped


def test_swaps_may_change_who_writes_with_what() -> None:
    swapped = advance(after(WAYS["indexed"]), {"kind": "swap", "writes": "new"})
    assert (swapped.serving, swapped.writes) == ("new", "new")
    back = advance(swapped, {"kind": "rollback", "writes": "declared:a"})
    assert (back.serving, back.writes) == ("old", "old")
    assert advance(back, {"kind": "writes", "writes": "b"}).writes == "new"
    with pytest.raises(ConfigError, match=r"The model 'c'.\nExpected: old \(declared:a\) or new"):
        advance(back, {"kind": "writes", "writes": "c"})


def test_where_sides_are_compared_a_declaration_takes_a_pass() -> None:
    """An event that does not say how far a side is behind is refused, as is one by which it is."""
    compared = after(WAYS["indexed"], compared=True)
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
    swapped = after(WAYS["swapped"])
    with pytest.raises(UpgradeStateError, match="the vectors of declared:b stay"):
        advance(swapped, {"kind": "finish"})
    writing = advance(swapped, {"kind": "writes", "writes": "new"})
    finished = advance(writing, {"kind": "finish"})
    assert (finished.phase, finished.serving) == ("steady", "new")
    back = advance(writing, {"kind": "rollback"})
    with pytest.raises(UpgradeStateError, match="the vectors of declared:a stay"):
        advance(back, {"kind": "cancel"})
    cancelled = advance(advance(back, {"kind": "writes", "writes": "old"}), {"kind": "cancel"})
    assert (cancelled.phase, cancelled.serving) == ("steady", "old")


SHARED_WAYS = {way: [one for one in events if one != {"kind": "index"}] for way, events in WAYS.items()}
SHARED_POSSIBLE = {
    "backfill": set(WAYS),
    "index": set[str](),
    "swap": set(WAYS),
    "rollback": set(WAYS),
    "cancel": set(WAYS) - {"swapped"},
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "indexed"])
@pytest.mark.parametrize("kind", SHARED_POSSIBLE)
def test_where_both_models_share_a_column_a_swap_is_possible_at_any_time(way: str, kind: str) -> None:
    state = after(SHARED_WAYS[way], shared=True)
    assert state.turns == ("old" if way == "turned back" else "new")
    if way not in SHARED_POSSIBLE[kind]:
        with pytest.raises(UpgradeStateError, match=f"Cannot {kind}: "):
            advance(state, {"kind": kind})
        return
    moved = advance(state, {"kind": kind})
    assert moved.serving == {"swap": "new", "rollback": "old"}.get(kind, state.serving)
    assert moved.turns == {"swap": "new", "rollback": "old"}.get(kind, state.turns)


def test_a_side_table_is_never_swapped() -> None:
    with pytest.raises(UpgradeStateError, match="a table of their own"):
        advance(after(WAYS["indexed"], swappable=False), {"kind": "swap"})


def test_events_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="allow_missing=-1"):
        advance(after(WAYS["indexed"]), {"kind": "swap", "allow_missing": -1})
    with pytest.raises(ConfigError, match="kind 'swop'"):
        advance(AttachmentState(), {"kind": "swop"})
    with pytest.raises(ConfigError, match="Both models are declared:a"):
        advance(AttachmentState(), {"kind": "start", "old": "declared:a", "new": "declared:a"})
    with pytest.raises(UpgradeStateError, match="the upgrade is started"):
        advance(after([]), START)
    for kind in (*POSSIBLE, "settled"):
        with pytest.raises(UpgradeStateError, match="no upgrade is started"):
            advance(AttachmentState(), {"kind": kind})
