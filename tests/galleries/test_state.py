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
ROLLBACK: Event = {"kind": "rollback"}
FINISH: Event = {"kind": "finish", "missing": 2}
CANCEL: Event = {"kind": "cancel"}


def start(number: int, *links: Event, **more: Any) -> Event:
    return {"kind": "start", "generation": generation(number), "links": list(links), **more}


def linking(query: int, gallery: int) -> Event:
    return {"kind": "link", "link": link(query, gallery)}


PLACES = {
    "nothing": [],
    "steady": [CREATE],
    "started": [CREATE, start(2, link(2, 1))],
    "swapped": [CREATE, start(2, link(2, 1)), SWAP],
    "rolled back": [CREATE, start(2, link(2, 1)), SWAP, ROLLBACK],
    "third started": [CREATE, start(2, link(2, 1)), SWAP, start(3, link(3, 2))],
    "third swapped": [CREATE, start(2, link(2, 1)), SWAP, start(3, link(3, 2)), SWAP],
    "third rolled back": [CREATE, start(2, link(2, 1)), SWAP, start(3, link(3, 2)), SWAP, ROLLBACK],
    "third cancelled": [CREATE, start(2, link(2, 1)), SWAP, start(3, link(3, 2)), CANCEL],
    "finished": [CREATE, start(2, link(2, 1)), SWAP, FINISH],
}
STEPS = {
    "create": CREATE, "start": start(9), "link": linking(1, 2), "swap": SWAP, "rollback": ROLLBACK, "finish": FINISH,
    "cancel": CANCEL,
}  # fmt: skip
POSSIBLE = {
    "nothing": "create",
    "steady": "start",
    "started": "link swap cancel",
    "swapped": "start link rollback finish",
    "rolled back": "link swap cancel",
    "third started": "link swap cancel",
    "third swapped": "start link rollback finish",
    "third rolled back": "link swap cancel",
    "third cancelled": "start link rollback finish",
    "finished": "start",
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
    ("where", "phase", "active", "started", "previous", "target"),
    [
        ("steady", "steady", "g1", None, (), "g1"),
        ("started", "started", "g1", "g2", (), "g2"),
        ("swapped", "swapped", "g2", None, ("g1",), "g2"),
        ("rolled back", "started", "g1", "g2", (), "g2"),
        ("third started", "started", "g2", "g3", ("g1",), "g3"),
        ("third swapped", "swapped", "g3", None, ("g1", "g2"), "g3"),
        ("third rolled back", "started", "g2", "g3", ("g1",), "g3"),
        ("third cancelled", "swapped", "g2", None, ("g1",), "g2"),
        ("finished", "steady", "g2", None, (), "g2"),
    ],
)
def test_where_the_steps_lead(where, phase, active, started, previous, target) -> None:
    state = replay(PLACES[where])
    assert (state.phase, state.active, state.started) == (phase, active, started)
    assert (state.previous, state.target) == (previous, target)


def test_a_swap_after_a_rollback_leads_where_the_first_one_led() -> None:
    assert replay([*PLACES["swapped"], ROLLBACK, SWAP]) == replay(PLACES["swapped"])


def test_three_generations_roll_back_one_after_another() -> None:
    state = replay([*PLACES["third rolled back"], CANCEL, ROLLBACK])
    assert (state.active, state.started, state.previous, list(state.by_name)) == ("g1", "g2", (), ["g1", "g2"])
    state = advance(state, CANCEL)
    assert (state.phase, state.active, list(state.by_name), state.links) == ("steady", "g1", ["g1"], ())


def test_no_name_is_given_twice() -> None:
    state = replay([*PLACES["started"], CANCEL, start(3)])
    assert state.created == 3


def test_finish_keeps_the_active_generation_alone() -> None:
    state = replay([*PLACES["third swapped"], FINISH])
    assert (list(state.by_name), state.active, state.previous, state.links) == (["g3"], "g3", (), ())


def bridged(*more: Event) -> GalleryState:
    """State with g2, mapped from g1 for the queries of g3."""
    bridge = generation(2, mapped_from="g1", adapter="folder")
    return replay([CREATE, start(3, link(3, 2, "mapped"), bridge=bridge), *more])


def test_a_bridge_counts_as_a_generation() -> None:
    state = bridged()
    assert (state.created, list(state.by_name), state.started) == (3, ["g1", "g2", "g3"], "g3")


def test_a_bridge_goes_with_its_only_user() -> None:
    assert list(bridged(CANCEL).by_name) == ["g1"]


def test_a_bridge_stays_while_others_search_it() -> None:
    assert list(bridged(SWAP, start(4), CANCEL).by_name) == ["g1", "g2", "g3"]
    assert list(bridged(linking(1, 2), CANCEL).by_name) == ["g1", "g2"]


def test_a_bridge_goes_with_the_generation_that_it_was_mapped_from() -> None:
    bridge = generation(3, mapped_from="g2", adapter="folder")
    state = replay([
        CREATE, start(2), SWAP, start(4, link(4, 3, "mapped"), bridge=bridge), linking(1, 3),
        CANCEL, ROLLBACK, CANCEL,
    ])  # fmt: skip
    assert list(state.by_name) == ["g1"]


def test_a_forced_swap_adds_its_link_and_a_second_link_replaces_the_first() -> None:
    forced = {**link(2, 1, "forced"), "reason": "holidays"}
    state = replay([CREATE, start(2), {**SWAP, "link": forced, "forced": "holidays"}])
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
        replay([CREATE, start(2, link(2, 1, "luck"))])


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
        event = start(new, *links, bridge=bridge) if step in ("start", "bridge") else STEPS[step]
        try:
            state = advance(state, event)
        except UpgradeStateError:
            continue
        names = list(state.by_name)
        assert len(set(names)) == len(names) <= state.created
        assert {state.active, state.target, *state.previous} <= set(names)
        assert all({one.query, one.gallery} <= set(names) for one in state.links)
        assert state.active not in (*state.previous, state.started)
        assert all(one.mapped_from in (None, *names) for one in state.generations)
        assert GalleryState.from_record(json.loads(json.dumps(state.to_record()))) == state
        if step == "finish":
            assert (names, state.phase) == ([state.active], "steady")
