"""Galleries of vectors whose lengths count: found by distance or inner product, upgraded, and taken back."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.embeddings import EmbeddingSet
from holdfast.galleries import Gallery
from holdfast.geometry import Euclidean, InnerProduct, Space

IDS = [f"i{row:02}" for row in range(12)]


@pytest.mark.parametrize("flat", [Euclidean(4), InnerProduct(4)], ids=["euclidean", "inner-product"])
def test_searched_before_during_and_after_an_upgrade_that_is_rolled_back(
    flat: Space, place, embed, only_these, asked, reported, same_as_a_loop, points_of
) -> None:
    old, new = embed("old", IDS, space=flat), embed("new", IDS, space=flat)
    with Gallery.create(place, fingerprint="declared:old", space=flat) as gallery:
        gallery.add(old)
        gallery.prepare("declared:new", flat, reports=[reported(space=flat)])
        gallery.swap()
        gallery.backfill(only_these(new.select(slice(0, 5))))
        held = points_of(old, new.select(slice(0, 5)))
        same_as_a_loop(gallery, asked("new", space=flat), held, ["new", "old"])
        gallery.rollback()
    with Gallery.open(place) as gallery:
        same_as_a_loop(gallery, asked("old", space=flat), points_of(old), ["old"])
        assert gallery.state.active == "g1" and gallery.state.by_name["g1"].geometry == flat


def test_the_nearest_is_found_not_the_longest_nor_the_direction() -> None:
    vectors = np.array([[9, 0], [1, 1], [0, 0.9]], np.float32)
    found = {}
    for space in (Euclidean(2), InnerProduct(2)):
        items = EmbeddingSet(["far", "tilted", "near"], vectors, "declared:a", space)  # type: ignore[arg-type]
        asked = EmbeddingSet(["q"], np.array([[0.1, 0.8]], np.float32), "declared:a", space)  # type: ignore[arg-type]
        with Gallery.create("memory://", fingerprint="declared:a", space=space) as gallery:
            gallery.add(items)
            found[space.name] = [hit.id for hit in gallery.search(asked, k=3).hits[0]]
    assert found == {"euclidean": ["near", "tilted", "far"], "inner-product": ["far", "tilted", "near"]}


def test_an_approximate_index_that_leads_astray_is_not_asked(postgres_url: str) -> None:
    """Of rows of all lengths, a graph built by inner products finds hardly any neighbour of a short query."""
    rng, space = np.random.default_rng(0), Euclidean(16)
    vectors = (rng.normal(size=(1500, 16)) * rng.uniform(1, 100, (1500, 1))).astype(np.float32)
    items = EmbeddingSet([f"i{row}" for row in range(1500)], vectors, "declared:a", space)  # type: ignore[arg-type]
    asked = items.select(np.argsort(np.linalg.norm(vectors, axis=1))[:20])
    with Gallery.create(postgres_url, fingerprint="declared:a", space=space) as gallery:
        gallery.add(items)
        gallery.store.build_index("g1")
        found, right = (gallery.search(asked, k=10, exact=exact).hits for exact in (False, True))
    assert [[hit.id for hit in hits] for hits in found] == [[hit.id for hit in hits] for hits in right]
