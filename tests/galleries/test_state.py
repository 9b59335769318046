"""The steps of an upgrade: which are possible when, and what they lead to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.errors import ConfigError, UpgradeStateError
from limpet.galleries.state import ROW_EVENTS, GalleryState, advance, replay

Event = dict[str, Any]
SPACE = {"name": "hypersphere", "dim": 4, "curvature": None}


def generation(number: int, **more: Any) -> Event:
    return {"name": f"g{number}", "fingerprint": f"declared:{number}", "space": SPACE, **more}


def link(query: int, gallery: int, how: str = "report") -> Event:
    return {"query": f"g{query}", "gallery": f"g{gallery}", "how": how}


CREATE: Event = {"kind": "create", "generation": generation(1), "columns": {"price": "number"}}
SWAP: Event = {"kind": "swap"}
COMPLETE: Event = {"kind": "complete", "missing": 2}
ROLLBACK: Event = {"kind": "rollback"}
ABANDON: Event = {"kind": "abandon"}
GC: Event = {"kind": "gc"}


def prepare(number: int, *links: Event, **more: Any) -> Event:
    return {"kind": "prepare", "generation": generation(number), "links": list(links), **more}


def linking(query: int, gallery: int) -> Event:
    return {"kind": "link", "link": link(query, gallery)}


PLACES = {
    "nothing": [],
    "steady": [CREATE],
    "prepared": [CREATE, prepare(2, link(2, 1))],
    "swapped": [CREATE, prepare(2, link(2, 1)), SWAP],
    "completed": [CREATE, prepare(2, link(2, 1)), SWAP, COMPLETE],
    "rolled back": [CREATE, prepare(2, link(2, 1)), SWAP, ROLLBACK],
    "third prepared": [CREATE, prepare(2, link(2, 1)), SWAP, prepare(3, link(3, 2))],
    "third swapped": [CREATE, prepare(2, link(2, 1)), SWAP, prepare(3, link(3, 2)), SWAP],
    "third rolled back": [CREATE, prepare(2, link(2, 1)), SWAP, prepare(3, link(3, 2)), SWAP, ROLLBACK],
    "collected": [CREATE, prepare(2, link(2, 1)), SWAP, COMPLETE, GC],
}
STEPS = {
    "create": CREATE, "prepare": prepare(9), "link": linking(1, 2), "swap": SWAP, "complete": COMPLETE,
    "rollback": ROLLBACK, "abandon": ABANDON, "gc": GC,
}  # fmt: skip
POSSIBLE = {
    "nothing": "create",
    "steady": "prepare gc",
    "prepared": "link swap abandon gc",
    "swapped": "prepare link complete rollback gc",
    "completed": "prepare link rollback gc",
    "rolled back": "link swap abandon gc",
    "third prepared": "link swap abandon gc",
    "third swapped": "prepare link complete rollback gc",
    "third rolled back": "link swap abandon gc",
    "collected": "prepare gc",
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_possible_exactly_where_the_table_says_so(where, step) -> None:
    before = replay(PLACES[where])
    if step in POSSIBLE[where].split():
        advance(before, STEPS[step])
    else:
        with pytest.raises(UpgradeStateError, match=r"(?s)Cannot .*Expected: .*Next: "):
            advance(before, STEPS[step])


@pytest.mark.parametrize(
    ("where", "phase", "active", "prepared", "previous", "target"),
    [
        ("steady", "steady", "g1", None, (), "g1"),
        ("prepared", "prepared", "g1", "g2", (), "g2"),
        ("swapped", "swapped", "g2", None, ("g1",), "g2"),
        ("completed", "completed", "g2", None, ("g1",), "g2"),
        ("rolled back", "prepared", "g1", "g2", (), "g2"),
        ("third prepared", "prepared", "g2", "g3", ("g1",), "g3"),
        ("third swapped", "swapped", "g3", None, ("g1", "g2"), "g3"),
        ("third rolled back", "prepared", "g2", "g3", ("g1",), "g3"),
        ("collected", "steady", "g2", None, (), "g2"),
    ],
)
def test_where_the_steps_lead(where, phase, active, prepared, previous, target) -> None:
    state = replay(PLACES[where])
    assert (state.phase, state.active, state.prepared) == (phase, active, prepared)
    assert (state.previous, state.target) == (previous, target)


def test_a_swap_after_a_rollback_leads_where_the_first_one_led() -> None:
    assert replay([*PLACES["swapped"], ROLLBACK, SWAP]) == replay(PLACES["swapped"])


def test_three_generations_roll_back_one_after_another() -> None:
    state = replay([*PLACES["third rolled back"], ABANDON, ROLLBACK])
    assert (state.active, state.prepared, state.previous, state.retired) == ("g1", "g2", (), ("g3",))
    state = advance(state, ABANDON)
    assert (state.phase, state.active, state.retired) == ("steady", "g1", ("g3", "g2"))
    assert state.links == ()


def test_abandoning_retires_the_prepared_generation_and_forgets_its_links() -> None:
    state = replay([*PLACES["prepared"], ABANDON])
    assert (state.phase, state.retired, state.links) == ("steady", ("g2",), ())
    assert list(state.by_name) == ["g1"]
    assert advance(state, GC).retired == ()


def test_no_name_is_given_twice() -> None:
    state = replay([*PLACES["prepared"], ABANDON, GC, prepare(3)])
    assert state.created == 3


def test_gc_keeps_earlier_generations_until_the_upgrade_is_complete() -> None:
    assert list(replay([*PLACES["third swapped"], GC]).by_name) == ["g1", "g2", "g3"]
    state = replay([*PLACES["third swapped"], COMPLETE, GC])
    assert (list(state.by_name), state.previous, state.links, state.completed) == (["g3"], (), (), True)


def test_gc_after_completion_waits_while_another_generation_is_prepared() -> None:
    assert list(replay([*PLACES["completed"], prepare(3), GC]).by_name) == ["g1", "g2", "g3"]


def test_what_was_allowed_to_lack_belongs_to_one_upgrade() -> None:
    assert replay(PLACES["completed"]).allowed_missing == 2
    assert replay([*PLACES["completed"], prepare(3), SWAP]).allowed_missing == 0
    rolled_back = replay([*PLACES["completed"], ROLLBACK])
    assert (rolled_back.allowed_missing, rolled_back.completed) == (0, False)


def bridged(*more: Event) -> GalleryState:
    """State with g2, mapped from g1 for the queries of g3."""
    bridge = generation(2, mapped_from="g1", adapter="folder")
    return replay([CREATE, prepare(3, link(3, 2, "mapped"), bridge=bridge), *more])


def test_a_bridge_counts_as_a_generation() -> None:
    state = bridged()
    assert (state.created, list(state.by_name), state.prepared) == (3, ["g1", "g2", "g3"], "g3")


def test_a_bridge_retires_with_its_only_user() -> None:
    assert bridged(ABANDON).retired == ("g2", "g3")
    assert list(bridged(ABANDON).by_name) == ["g1"]


def test_a_bridge_stays_while_others_search_it() -> None:
    assert bridged(SWAP, prepare(4), ABANDON).retired == ("g4",)
    assert bridged(linking(1, 2), ABANDON).retired == ("g3",)


def test_a_bridge_retires_with_the_generation_that_it_was_mapped_from() -> None:
    bridge = generation(3, mapped_from="g2", adapter="folder")
    state = replay([
        CREATE, prepare(2), SWAP, prepare(4, link(4, 3, "mapped"), bridge=bridge), linking(1, 3),
        ABANDON, ROLLBACK, ABANDON,
    ])  # fmt: skip
    assert list(state.by_name) == ["g1"]


def test_a_forced_swap_adds_its_link_and_a_second_link_replaces_the_first() -> None:
    forced = {**link(2, 1, "forced"), "reason": "holidays"}
    state = replay([CREATE, prepare(2), {**SWAP, "link": forced, "forced": "holidays"}])
    assert [(one.how, one.reason) for one in state.links] == [("forced", "holidays")]
    assert [one.how for one in advance(state, linking(2, 1)).links] == ["report"]


@pytest.mark.parametrize("kind", ROW_EVENTS)
def test_events_of_rows_leave_the_state(kind) -> None:
    state = replay(PLACES["swapped"])
    assert advance(state, {"kind": kind}) is state


def test_unknown_events_and_links_are_refused() -> None:
    with pytest.raises(ConfigError, match="'explode'"):
        advance(GalleryState(), {"kind": "explode"})
    with pytest.raises(ConfigError, match="'luck'"):
        replay([CREATE, prepare(2, link(2, 1, "luck"))])


@pytest.mark.parametrize("where", [*PLACES, "bridged"])
def test_a_state_comes_back_from_json_unchanged(where) -> None:
    state = bridged(SWAP) if where == "bridged" else replay(PLACES[where])
    assert GalleryState.from_record(json.loads(json.dumps(state.to_record()))) == state


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*STEPS, "bridge"]), max_size=25))
def test_whatever_happens_the_state_is_sound(steps) -> None:
    state = replay([CREATE])
    for step in steps:
        bridge = generation(state.created + 1, mapped_from=state.active, adapter="a") if step == "bridge" else None
        new = state.created + (2 if bridge else 1)
        links = [link(new, int(one.name[1:])) for one in state.generations[-1:]]
        event = prepare(new, *links, bridge=bridge) if step in ("prepare", "bridge") else STEPS[step]
        try:
            state = advance(state, event)
        except UpgradeStateError:
            continue
        names = list(state.by_name)
        assert len(set(names)) == len(names) <= state.created
        assert {state.active, state.target, *state.previous} <= set(names)
        assert not set(state.retired) & set(names)
        assert all({one.query, one.gallery} <= set(names) for one in state.links)
        assert state.active not in (*state.previous, state.prepared)
        assert all(one.mapped_from in (None, *names) for one in state.generations)
        assert GalleryState.from_record(json.loads(json.dumps(state.to_record()))) == state
