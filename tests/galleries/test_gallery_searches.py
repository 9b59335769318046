"""A search finds what a loop over all items finds, and says what it could not search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.galleries import Gallery
from limpet.galleries.state import GalleryState, replay
from limpet.geometry import Euclidean, Hypersphere, InnerProduct, Space

IDS = [f"i{row:02}" for row in range(12)]
SPHERE = Hypersphere(4)


def test_a_search_ranks_as_the_space_does(space, embed, asked) -> None:
    items, queries = embed("old", IDS, space=space), asked("old", space=space)
    with Gallery.create("memory://", fingerprint="declared:old", space=space) as gallery:
        gallery.add(items)
        found = [[hit.id for hit in hits] for hits in gallery.search(queries, k=12).hits]
    similar = space.similarity(torch.tensor(queries.vectors), torch.tensor(items.vectors))
    assert found == [[IDS[row] for row in rows] for rows in similar.argsort(dim=1, descending=True)]


def test_searches_before_during_and_after_an_upgrade(
    space, place, embed, only_these, asked, reported, same_as_a_loop, points_of
) -> None:
    old, new = embed("old", IDS, space=space), embed("new", IDS, space=space)
    with Gallery.create(place, fingerprint="declared:old", space=space) as gallery:
        gallery.add(old)
        same_as_a_loop(gallery, asked("old", space=space), points_of(old), ["old"])
        gallery.start("declared:new", space, reports=[reported(space=space)])
        gallery.swap()
        for written in (0, 5, 12):
            part = new[:written]
            if written:
                gallery.backfill(only_these(part))
            held = points_of(old, part)
            same_as_a_loop(gallery, asked("old", space=space), held, ["old"])
            same_as_a_loop(gallery, asked("new", space=space), held, ["new", "old"])
        assert gallery.finish().right == 12
        same_as_a_loop(gallery, asked("new", space=space), points_of(new), ["new"])
        with pytest.raises(DataError, match="declared:old"):
            gallery.search(asked("old", space=space))
        events = [entry.event for entry in gallery.store.journal()]
        assert replay(events) == GalleryState.from_record(gallery.store.pointer().manifest)


def test_a_reply_says_what_it_could_not_search(gallery, embed, asked) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    gallery.upsert(embed("new", ["z"]))
    reply = gallery.search(asked("new"), k=20)
    assert [[hit.id for hit in hits] for hits in reply.hits] == [["z"]] * 3
    assert (reply.covered, reply.uncovered, reply.items, reply.sources) == (1, 12, 13, ("g2",))
    assert (reply.active, reply.fingerprint, reply.sequence) == ("g1", "declared:new", 4)
    assert gallery.search(asked("old"), k=20).covered == 12


def test_an_array_is_of_the_only_model(gallery, embed, asked, hits_of) -> None:
    gallery.add(embed("old", IDS))
    reply = gallery.search(asked("old").vectors, 5)
    assert reply.fingerprint == "declared:old"
    assert [[(hit.id, hit.score, hit.generation) for hit in one] for one in reply.hits] == hits_of(
        gallery, asked("old")
    )
    assert len(gallery.search(asked("old").vectors[0]).hits) == 1


def test_an_array_says_whose_it_is_once_there_are_several_models(started, asked, hits_of) -> None:
    """A client that still embeds with the old model after the swap must not search among the new vectors."""
    queries = asked("new")

    def refused() -> None:
        with pytest.raises(ConfigError, match="does not say which model") as refusal:
            started.search(queries.vectors)
        assert "'declared:old' (g1" in str(refusal.value) and "'declared:new' (g2" in str(refusal.value)

    refused()
    started.swap()
    refused()
    plain = started.search(queries.vectors, 5, fingerprint="declared:new").hits
    assert [[(hit.id, hit.score, hit.generation) for hit in one] for one in plain] == hits_of(started, queries)


def test_wrong_queries_are_refused(started, asked) -> None:
    with pytest.raises(DataError, match="declared:nobody"):
        started.search(asked("nobody"))
    with pytest.raises(SpaceMismatchError, match="dimension 5"):
        started.search(asked("old", space=Hypersphere(5)))
    with pytest.raises(SpaceMismatchError, match="features"):
        started.search(asked("old", form="features"))
    with pytest.raises(ConfigError, match="k=0"):
        started.search(asked("old"), k=0)
    with pytest.raises(ConfigError, match="declared:new for queries of declared:old"):
        started.search(asked("old"), fingerprint="declared:new")
    with pytest.raises(ConfigError, match="colour"):
        started.search(asked("old"), where=[Condition("colour", "=", "red")])


def test_an_empty_gallery_answers_with_empty_lists(gallery, asked) -> None:
    reply = gallery.search(asked("old"))
    assert (reply.hits, reply.covered, reply.items) == ([[], [], []], 0, 0)


def test_what_is_retrieved_is_counted_where_asked_for(embed, asked) -> None:
    gallery = Gallery.create("memory://", fingerprint="declared:old", space=SPHERE, count_traffic=True)
    gallery.add(embed("old", IDS[:3]))
    gallery.search(asked("old"), k=2)
    gallery._write_traffic()
    assert sum(gallery.store.traffic().values()) == 6


def test_a_search_whose_commit_is_tidied_away_meanwhile_asks_for_a_newer_one(tmp_path, embed, asked) -> None:
    place = str(tmp_path / "gallery")
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as gallery, Gallery.open(place) as other:
        gallery.add(embed("old", IDS))
        now, left = gallery.now, [1, 2, 3]

        def overtaken():
            known = now()
            if left:
                other.upsert(embed("old", [f"new {left.pop()}"]))
                other.gc(older_than=0.0)
            return known

        gallery.now = overtaken
        reply = gallery.search(asked("old"), k=20)
        assert {len(hits) for hits in reply.hits} == {15} and reply.items == 15


# Vectors whose lengths count


@pytest.mark.parametrize("flat", [Euclidean(4), InnerProduct(4)], ids=["euclidean", "inner-product"])
def test_searched_before_during_and_after_an_upgrade_that_is_rolled_back(
    flat: Space, place, embed, only_these, asked, reported, same_as_a_loop, points_of
) -> None:
    old, new = embed("old", IDS, space=flat), embed("new", IDS, space=flat)
    with Gallery.create(place, fingerprint="declared:old", space=flat) as gallery:
        gallery.add(old)
        gallery.start("declared:new", flat, reports=[reported(space=flat)])
        gallery.swap()
        gallery.backfill(only_these(new[:5]))
        held = points_of(old, new[:5])
        same_as_a_loop(gallery, asked("new", space=flat), held, ["new", "old"])
        gallery.rollback()
    with Gallery.open(place) as gallery:
        same_as_a_loop(gallery, asked("old", space=flat), points_of(old), ["old"])
        assert gallery.state.active == "g1" and gallery.state.by_name["g1"].geometry == flat


def test_the_nearest_is_found_not_the_longest_nor_the_direction() -> None:
    vectors = np.array([[9, 0], [1, 1], [0, 0.9]], np.float32)
    found = {}
    for space in (Euclidean(2), InnerProduct(2)):
        items = EmbeddingSet(vectors, ["far", "tilted", "near"], "declared:a", space)  # type: ignore[arg-type]
        asked = EmbeddingSet(np.array([[0.1, 0.8]], np.float32), ["q"], "declared:a", space)  # type: ignore[arg-type]
        with Gallery.create("memory://", fingerprint="declared:a", space=space) as gallery:
            gallery.add(items)
            found[space.name] = [hit.id for hit in gallery.search(asked, k=3).hits[0]]
    assert found == {"euclidean": ["near", "tilted", "far"], "inner-product": ["far", "tilted", "near"]}


def test_an_approximate_index_that_leads_astray_is_not_asked(postgres_url: str) -> None:
    """Of rows of all lengths, a graph built by inner products finds hardly any neighbour of a short query."""
    rng, space = np.random.default_rng(0), Euclidean(16)
    vectors = (rng.normal(size=(1500, 16)) * rng.uniform(1, 100, (1500, 1))).astype(np.float32)
    items = EmbeddingSet(vectors, [f"i{row}" for row in range(1500)], "declared:a", space)  # type: ignore[arg-type]
    asked = items[np.argsort(np.linalg.norm(vectors, axis=1))[:20]]
    with Gallery.create(postgres_url, fingerprint="declared:a", space=space) as gallery:
        gallery.add(items)
        gallery.store.build_index("g1")
        found, right = (gallery.search(asked, k=10, exact=exact).hits for exact in (False, True))
    assert [[hit.id for hit in hits] for hits in found] == [[hit.id for hit in hits] for hits in right]
