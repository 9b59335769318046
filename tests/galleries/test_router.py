"""Which vectors answer which query, on examples small enough to redo by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.adapters.score_map import ScoreMap
from limpet.engines.store import Hits, Pointer
from limpet.errors import DataError
from limpet.galleries.router import Hit, RoutedGeneration, merged, remainders, route
from limpet.galleries.state import GalleryState, Generation, Link

SPACE = {"name": "hypersphere", "dim": 2, "curvature": None}


def state(*links: Link, generations: str = "g1 g2 g3") -> GalleryState:
    made = tuple(Generation(name, f"declared:{name}", SPACE) for name in generations.split())
    return GalleryState(generations=made, active=made[-1].name, links=links)


def asked_in_order(found: list[RoutedGeneration]) -> list[tuple[str, set[str]]]:
    return [(source.generation, set(source.without)) for source in found]


def test_a_query_searches_its_own_vectors_and_no_others_without_a_link() -> None:
    assert route(state(), "g2") == [RoutedGeneration("g2")]


def test_linked_generations_come_newest_first_each_without_those_before_it() -> None:
    linked = state(Link("g3", "g1", "forced"), Link("g3", "g2", "report"))
    assert asked_in_order(route(linked, "g3")) == [("g3", set()), ("g2", {"g3"}), ("g1", {"g2", "g3"})]
    assert [source.link and source.link.how for source in route(linked, "g3")] == [None, "report", "forced"]


def test_a_link_holds_in_its_own_direction_only() -> None:
    one_way = state(Link("g2", "g1", "report"))
    assert asked_in_order(route(one_way, "g1")) == [("g1", set())]
    back = state(Link("g1", "g2", "report"))
    assert asked_in_order(route(back, "g1")) == [("g1", set()), ("g2", {"g1"})]


def test_links_make_no_chain() -> None:
    chained = state(Link("g3", "g2", "report"), Link("g2", "g1", "report"))
    assert asked_in_order(route(chained, "g3")) == [("g3", set()), ("g2", {"g3"})]


def test_remainders_are_what_any_route_asks_for() -> None:
    linked = state(Link("g3", "g1", "report"), Link("g3", "g2", "report"), Link("g1", "g2", "report"))
    assert remainders(linked) == [
        ("g1", frozenset({"g2", "g3"})), ("g2", frozenset({"g1"})), ("g2", frozenset({"g3"})),
    ]  # fmt: skip
    assert remainders(state()) == []


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (RoutedGeneration("g1"), 12),
        (RoutedGeneration("g1", frozenset({"g2"})), 9),
        (RoutedGeneration("g2", frozenset({"g1"})), 5),
        (RoutedGeneration("g3"), 0),
    ],
)
def test_a_source_answers_for_the_items_that_none_before_it_has(source, rows) -> None:
    held = {frozenset({"g1"}): 9, frozenset({"g1", "g2"}): 3, frozenset({"g2"}): 5, frozenset[str](): 2}
    assert source.rows(Pointer(1, {}, held)) == rows


def test_an_unknown_fingerprint_is_refused_with_the_known_ones() -> None:
    assert state().made_by("declared:g2").name == "g2"
    with pytest.raises(DataError, match=r"(?s)declared:g9.*g1: declared:g1, g2: declared:g2"):
        state().made_by("declared:g9")


def hits(*queries: dict[str, float]) -> Hits:
    return Hits(
        [list(one) for one in queries],
        [np.array(list(one.values()), np.float32) for one in queries],
        [[{"of": identifier} for identifier in one] for one in queries],
    )


def shown(lists: list[list[Hit]]) -> list[list[tuple[str, float, str]]]:
    return [[(hit.id, round(hit.score, 4), hit.generation) for hit in one] for one in lists]


def adapted(query: str, gallery: str) -> RoutedGeneration:
    return RoutedGeneration(gallery, frozenset({query}), Link(query, gallery, "adapter", adapter="folder"))


def test_scores_of_one_scale_make_one_ranking_and_the_smaller_id_wins_a_tie() -> None:
    found = [
        (RoutedGeneration("g2"), hits({"b": 0.75, "d": 0.25}, {})),
        (
            RoutedGeneration("g1", frozenset({"g2"}), Link("g2", "g1", "report")),
            hits({"c": 0.5, "a": 0.25}, {"e": 0.125}),
        ),
    ]
    lists, merge = merged(found, 3, {})
    assert merge == "score"
    assert shown(lists) == [[("b", 0.75, "g2"), ("c", 0.5, "g1"), ("a", 0.25, "g1")], [("e", 0.125, "g1")]]
    assert lists[0][1].metadata == {"of": "c"}


def test_scores_of_two_scales_are_merged_by_rank_and_the_own_vectors_win_a_tie() -> None:
    found = [
        (RoutedGeneration("g2"), hits({"b": 0.75, "d": 0.25}, {})),
        (adapted("g2", "g1"), hits({"a": 31.0, "c": 30.0}, {"e": 9.0})),
    ]
    lists, merge = merged(found, 3, {})
    assert merge == "rank"  # 1 / (60 + rank)
    assert shown(lists) == [
        [("b", 0.0164, "g2"), ("a", 0.0164, "g1"), ("d", 0.0161, "g2")],
        [("e", 0.0164, "g1")],
    ]


def test_a_score_map_makes_two_scales_one() -> None:
    doubled = ScoreMap("old_to_new", np.array([0.0, 0.5]), np.array([0.0, 1.0]))
    found: list[Any] = [
        (RoutedGeneration("g2"), hits({"b": 0.75, "d": 0.25})),
        (adapted("g2", "g1"), hits({"a": 0.4375, "c": 0.0625})),
    ]
    lists, merge = merged(found, 4, {"g1": [doubled]})
    assert merge == "calibrated"
    assert shown(lists) == [[("a", 0.875, "g1"), ("b", 0.75, "g2"), ("d", 0.25, "g2"), ("c", 0.125, "g1")]]


def test_one_generation_without_a_map_sends_all_to_ranks() -> None:
    doubled = ScoreMap("old_to_new", np.array([0.0, 0.5]), np.array([0.0, 1.0]))
    found = [
        (RoutedGeneration("g3"), hits({"b": 0.75})),
        (adapted("g3", "g2"), hits({"a": 0.5})),
        (adapted("g3", "g1"), hits({"c": 9.0})),
    ]
    lists, merge = merged(found, 3, {"g2": [doubled]})
    assert merge == "rank"
    assert [hit.id for hit in lists[0]] == ["b", "a", "c"]


def test_vectors_of_one_scale_rank_together_before_they_meet_those_of_another() -> None:
    found = [
        (RoutedGeneration("g3"), hits({"b": 0.5})),
        (RoutedGeneration("g2", frozenset({"g3"}), Link("g3", "g2", "report")), hits({"a": 0.75})),
        (adapted("g3", "g1"), hits({"c": 9.0, "d": 8.0})),
    ]
    lists, _ = merged(found, 4, {})
    assert [(hit.id, hit.generation) for hit in lists[0]] == [("a", "g2"), ("c", "g1"), ("b", "g3"), ("d", "g1")]


def test_where_only_an_adapter_finds_something_its_order_stays() -> None:
    lists, merge = merged(
        [(RoutedGeneration("g2"), hits({})), (adapted("g2", "g1"), hits({"a": 3.0, "c": 2.0}))], 1, {}
    )
    assert (merge, [hit.id for hit in lists[0]]) == ("rank", ["a"])


def test_no_queries_no_lists() -> None:
    assert merged([(RoutedGeneration("g1"), hits())], 3, {}) == ([], "score")
