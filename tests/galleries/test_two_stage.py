"""Searches in two stages: what they find equals a slow loop, and what they embed is a backfill that loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import (
    BudgetError,
    ConfigError,
    DataError,
    EmptyOverlapError,
    GalleryError,
    UpgradeStateError,
)
from limpet.galleries import Gallery
from limpet.galleries.two_stage import Rescoring
from limpet.geometry import Hypersphere

IDS = [f"i{row:02}" for row in range(20)]
SPHERE = Hypersphere(4)


class Source:
    """Embeds what it is asked for, remembers it, and does something else meanwhile."""

    def __init__(self, embed: Callable[..., EmbeddingSet], *, model: str = "new", lacks: Sequence[str] = ()) -> None:
        self.make, self.model, self.lacks = embed, model, set(lacks)
        self.fingerprint, self.space = f"declared:{model}", SPHERE
        self.asked: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        self.asked += ids
        self.meanwhile()
        return self.make(self.model, [one for one in ids if one not in self.lacks])


@pytest.fixture
def source(embed) -> Source:
    return Source(embed)


@pytest.fixture
def shop(place, embed) -> Any:
    """Twenty old items, and "new" started."""
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE, columns={"price": "number"}) as gallery:
        gallery.add(embed("old", IDS), metadata={"price": list(range(20))})
        gallery.start("declared:new", SPHERE)
        yield gallery


def ranked(embed, query: str, model: str, ids: Sequence[str]) -> list[str]:
    """Rank items for one query by one model, one score after another."""
    [asked], items = embed(model, [query], role="query").vectors, embed(model, list(ids))
    scores = {one: float(np.dot(asked.astype(np.float64), v)) for one, v in zip(items.ids, items.vectors, strict=True)}
    return sorted(ids, key=lambda one: (-scores[one], one))


def expected(embed, candidates: int, *, ids: Sequence[str] = IDS) -> list[list[str]]:
    found = []
    for query in ("q1", "q2", "q3"):
        old = ranked(embed, query, "old", ids)
        found.append(ranked(embed, query, "new", old[:candidates]) + old[candidates:])
    return found


def ids_of(reply: Any) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in reply.hits]


def stored(gallery: Gallery) -> dict[str, bytes]:
    rows = gallery.store.scan_rows("g2")
    return {one: vector.tobytes() for ids, _, vectors in rows for one, vector in zip(ids, vectors, strict=True)}


@pytest.mark.parametrize(("candidates", "k"), [(1, 3), (6, 4), (6, 20), (20, 20), (50, 20)])
def test_candidates_of_old_queries_are_ordered_by_new_scores(shop, source, asked, embed, candidates, k) -> None:
    rescore = Rescoring(source, candidates, asked("old"))
    reply = shop.search(asked("new"), k, rescore=rescore)
    assert ids_of(reply) == [ids[:k] for ids in expected(embed, candidates)]
    new, old = embed("new", IDS), embed("old", IDS)
    for row, hits in enumerate(reply.hits):
        for place, hit in enumerate(hits):
            side, name = (new, "g2") if place < candidates else (old, "g1")
            score = asked(side.fingerprint[9:]).vectors[row] @ side.vectors[IDS.index(hit.id)]
            assert hit.generation == name
            assert hit.score == pytest.approx(float(score), abs=1e-6)
            assert hit.metadata == {"price": float(IDS.index(hit.id))}
    assert (reply.merge, reply.sources, reply.fingerprint) == ("rescored", ("g2", "g1"), "declared:new")
    assert (reply.covered, reply.items) == (20, 20)


def test_vectors_are_kept_once_and_are_those_of_a_backfill(shop, source, asked, embed) -> None:
    rescore = Rescoring(source, 5, asked("old"))
    wanted = {one for query in ("q1", "q2", "q3") for one in ranked(embed, query, "old", IDS)[:5]}
    first = shop.search(asked("new"), 5, rescore=rescore)
    assert sorted(source.asked) == sorted(wanted)
    assert (first.embedded, first.kept) == (len(wanted), len(wanted))
    made = embed("new", IDS)
    form = SPHERE.index_form(made.vectors, "gallery")
    assert stored(shop) == {one: form[IDS.index(one)].tobytes() for one in wanted}
    again = shop.search(asked("new"), 5, rescore=rescore)
    assert len(source.asked) == len(wanted)
    assert (again.hits, again.embedded, again.kept) == (first.hits, 0, 0)
    left = shop.backfill(source)
    assert (left.embedded, left.lacking) == (20 - len(wanted), 0)


def test_after_a_backfill_all_candidates_are_the_new_model_by_itself(shop, source, asked) -> None:
    two = shop.search(asked("new"), 20, rescore=Rescoring(source, 20, asked("old")))
    shop.backfill(source)
    shop.swap()
    alone = shop.search(asked("new"), 20)
    assert ids_of(two) == ids_of(alone)


@pytest.mark.parametrize("budget", [2, 4])
def test_a_budget_embeds_the_best_candidates_of_every_query(shop, source, asked, embed, budget) -> None:
    reply = shop.search(asked("new"), 20, rescore=Rescoring(source, 6, asked("old"), budget=budget))
    made: set[str] = set()
    for query in ("q1", "q2", "q3"):
        lacking = [one for one in ranked(embed, query, "old", IDS)[:6] if one not in made]
        made |= set(lacking[:budget])
    assert set(source.asked) == made == set(stored(shop))
    for query, hits in zip(("q1", "q2", "q3"), ids_of(reply), strict=True):
        old = ranked(embed, query, "old", IDS)
        scored = ranked(embed, query, "new", [one for one in old[:6] if one in made])
        assert hits == scored + [one for one in old[:6] if one not in made] + old[6:]
    none = shop.search(asked("new"), 5, rescore=Rescoring(source, 6, asked("old"), budget=0))
    assert (none.embedded, len(source.asked)) == (0, len(made))


def test_items_that_the_source_lacks_come_after_the_others(shop, embed, asked) -> None:
    lacks = ranked(embed, "q1", "old", IDS)[:2]
    reply = shop.search(asked("new"), 6, rescore=Rescoring(Source(embed, lacks=lacks), 6, asked("old")))
    assert ids_of(reply)[0][4:] == lacks
    assert [hit.generation for hit in reply.hits[0]] == ["g2"] * 4 + ["g1"] * 2


def test_what_is_written_or_deleted_meanwhile_stays_so(shop, source, asked, embed) -> None:
    best = ranked(embed, "q1", "old", IDS)
    fresh = embed("old", [best[0]], draw=1)

    def meanwhile() -> None:
        shop.upsert(fresh)
        shop.delete([best[1]])

    source.meanwhile = meanwhile
    reply = shop.search(asked("new"), 5, rescore=Rescoring(source, 4, asked("old")))
    assert reply.kept == reply.embedded - 2
    assert best[0] not in stored(shop)
    assert best[1] not in stored(shop)
    assert len(shop) == 19
    source.meanwhile = lambda: None
    later = shop.search(asked("new"), 5, rescore=Rescoring(source, 4, asked("old")))
    assert all(best[1] not in ids for ids in ids_of(later))


def test_items_deleted_after_the_first_stage_are_no_hits(shop, source, asked, embed, monkeypatch) -> None:
    best, fetch = ranked(embed, "q1", "old", IDS)[0], shop.store.fetch
    monkeypatch.setattr(shop.store, "fetch", lambda ids: (shop.delete([best]), fetch(ids))[1])
    reply = shop.search(asked("new"), 5, rescore=Rescoring(source, 5, asked("old")))
    assert all(best not in ids for ids in ids_of(reply))
    assert best not in source.asked


def test_another_writer_lets_the_vectors_go_and_the_search_answers(shop, source, asked, embed, monkeypatch) -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise GalleryError("Another process writes.")

    monkeypatch.setattr(shop, "writing", busy)
    reply = shop.search(asked("new"), 6, rescore=Rescoring(source, 6, asked("old")))
    assert ids_of(reply) == [ids[:6] for ids in expected(embed, 6)]
    assert (reply.embedded > 0, reply.kept, stored(shop)) == (True, 0, {})


def test_a_generation_that_is_given_up_meanwhile_keeps_nothing(shop, source, asked, embed) -> None:
    shop.backfill(source, budget=3)
    source.meanwhile = shop.cancel
    reply = shop.search(asked("new"), 6, rescore=Rescoring(source, 6, asked("old")))
    assert ids_of(reply) == [ids[:6] for ids in expected(embed, 6)]
    assert reply.kept == 0
    assert shop.state.phase == "steady"


def test_a_spent_budget_of_a_model_behind_an_api_leaves_the_first_stage(shop, source, asked, embed) -> None:
    def spent() -> None:
        raise BudgetError("10 of 10 tokens are spent.")

    source.meanwhile = spent
    reply = shop.search(asked("new"), 5, rescore=Rescoring(source, 6, asked("old")))
    assert ids_of(reply) == [ranked(embed, query, "old", IDS)[:5] for query in ("q1", "q2", "q3")]
    assert reply.embedded == 0


def test_new_queries_find_the_candidates_where_a_link_lets_them(shop, source, asked, embed, reported) -> None:
    shop.link("g2", "g1", report=reported())
    shop.swap()
    reply = shop.search(asked("new"), 20, rescore=Rescoring(source, 6))
    for row, query in enumerate(("q1", "q2", "q3")):
        [vector], items = embed("new", [query], role="query").vectors, embed("old", IDS)
        scores = dict(zip(IDS, (items.vectors @ vector).tolist(), strict=True))
        first = sorted(IDS, key=lambda one: (-scores[one], one))
        assert ids_of(reply)[row] == ranked(embed, query, "new", first[:6]) + first[6:]


def test_items_that_only_the_new_model_embedded_are_candidates(shop, source, asked, embed) -> None:
    """Not those of the others that have a new vector already: they are candidates if the old query finds them."""
    shop.swap(force="tests")
    shop.backfill(source, budget=15)
    fresh = [f"n{row}" for row in range(6)]
    shop.upsert(embed("new", fresh))
    reply = shop.search(asked("new"), 30, rescore=Rescoring(source, 4, asked("old")))
    for query, hits in zip(("q1", "q2", "q3"), ids_of(reply), strict=True):
        old, near = ranked(embed, query, "old", IDS), ranked(embed, query, "new", [*IDS[:15], *fresh])[:4]
        near = [one for one in near if one in fresh]
        assert hits == ranked(embed, query, "new", [*old[:4], *near]) + old[4:]
    assert (reply.covered, reply.items) == (26, 26)


def test_queries_of_both_stages_are_matched_by_id(shop, source, asked, embed) -> None:
    reply = shop.search(asked("new"), 20, rescore=Rescoring(source, 6, asked("old")[np.array([2, 0, 1])]))
    assert ids_of(reply) == expected(embed, 6)


def test_filters_hold_in_both_stages(shop, source, asked) -> None:
    reply = shop.search(asked("new"), 20, where="price<7", rescore=Rescoring(source, 5, asked("old")))
    assert all(sorted(ids) == IDS[:7] for ids in ids_of(reply))
    assert set(source.asked) <= set(IDS[:7])


def test_only_an_upgrade_under_way_has_two_stages(shop, source, asked) -> None:
    shop.cancel()
    with pytest.raises(UpgradeStateError, match="no upgrade is started"):
        shop.search(asked("old"), 3, rescore=Rescoring(source))


@pytest.mark.parametrize(
    ("queries", "first", "model", "error", "words"),
    [
        ("old", None, "new", DataError, "Queries of declared:old to be scored by g2"),
        ("new", None, "new", GalleryError, "Nothing lets queries of g2 find items"),
        ("new", "old", "third", DataError, "makes vectors of declared:third"),
        ("new", "third", "new", DataError, "declared:third"),
        ("new", "other", "new", EmptyOverlapError, "of which 1 are not in the first: 'q3'"),
    ],
)
def test_what_does_not_go_together_is_refused(shop, asked, embed, queries, first, model, error, words) -> None:
    by_other = embed("old", ["q1", "q2", "q4"], role="query")
    given = None if first is None else by_other if first == "other" else asked(first)
    with pytest.raises(error, match=words):
        shop.search(asked(queries), 3, rescore=Rescoring(Source(embed, model=model), first=given))
    assert stored(shop) == {}


@pytest.mark.parametrize("options", [{"candidates": 0}, {"budget": -1}, {"wait": -1.0}])
def test_numbers_out_of_range_are_refused(source, options) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        Rescoring(source, **options)
