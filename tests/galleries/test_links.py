"""Adapters of queries and of stored vectors in a live gallery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.storage import load_adapter, save_adapter
from limpet.errors import ConfigError, DataError, GalleryError, SpaceMismatchError
from limpet.geometry import Hypersphere

IDS = [f"i{row:02}" for row in range(12)]
SPHERE = Hypersphere(4)


@pytest.fixture
def adapter(embed, tmp_path) -> Any:
    """Save an adapter between "old" (4 numbers) and "new" (6 numbers), and return its folder."""

    def build(direction: str, **spaces: Any) -> Path:
        ids = [f"pair {row}" for row in range(40)]
        old, new = embed("old", ids), embed("new", ids, space=Hypersphere(6))
        fitted = build_adapter("procrustes", {"direction": direction}).fit(old, new)
        return save_adapter(fitted, tmp_path / direction)

    return build


def test_an_adapter_of_queries_searches_old_vectors_and_merges_by_rank(
    gallery, embed, only_these, asked, adapter
) -> None:
    gallery.add(embed("old", IDS))
    folder, wide = adapter("new_to_old"), Hypersphere(6)
    gallery.start("declared:new", wide, adapter=folder)
    gallery.swap()
    queries = asked("new", space=wide)
    mapped = load_adapter(folder).map(queries.vectors)
    order = np.argsort(-mapped @ embed("old", IDS).vectors.T, axis=1)
    reply = gallery.search(queries, k=12)
    assert [[hit.id for hit in hits] for hits in reply.hits] == [[IDS[row] for row in rows] for rows in order]
    gallery.backfill(only_these(embed("new", IDS[:4], space=wide)))
    reply = gallery.search(queries, k=6)
    for hits, old in zip(reply.hits, order, strict=True):
        left = [IDS[row] for row in old if row > 3]
        own = [hit.id for hit in hits if hit.generation == "g2"]
        # a third is new: its first is expected at rank (1/2) * 3 + 1/2 = 2, the old ones at 1.25, 2.75, 4.25, ...
        assert [hit.id for hit in hits] == [left[0], own[0], left[1], left[2], own[1], left[3]]
        scores = [1 / (60 + rank) for rank in (1.25, 2, 2.75, 4.25, 5, 5.75)]
        assert [hit.score for hit in hits] == pytest.approx(scores)
    assert (reply.merge, reply.covered) == ("rank", 12)


def test_a_score_map_makes_scores_comparable(gallery, embed, only_these, asked, adapter, tmp_path) -> None:
    scores = tmp_path / "score_map.json"
    scores.write_text(
        '{"format_version": 1, "direction": "old_to_new", "knots": [-1.0, 1.0], "values": [-0.5, 0.5]}',
        encoding="utf-8",
    )
    gallery.add(embed("old", IDS))
    folder, wide = adapter("new_to_old"), Hypersphere(6)
    with pytest.raises(DataError, match="score map"):
        gallery.start("declared:new", wide, adapter=folder, score_map=tmp_path / "missing.json")
    assert gallery.state.phase == "steady"
    gallery.start("declared:new", wide, adapter=folder, score_map=scores)
    gallery.swap()
    gallery.backfill(only_these(embed("new", IDS[:2], space=wide)))
    reply = gallery.search(asked("new", space=wide), k=12)
    assert reply.merge == "calibrated"
    for hits in reply.hits:
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert max(abs(hit.score) for hit in hits if hit.generation == "g1") <= 0.5


def test_an_adapter_of_the_stored_gallery_makes_a_generation_that_upserts_keep_up(
    gallery, embed, only_these, asked, adapter, same_as_a_loop, points_of
) -> None:
    gallery.add(embed("old", IDS))
    wide, mapping = Hypersphere(6), load_adapter(adapter("old_to_new"))
    assert gallery.start("declared:new", wide, adapter=adapter("old_to_new")).name == "g3"
    standing = {one.name: (one.standing, one.rows) for one in gallery.status().generations}
    assert standing == {"g1": ("active", 12), "g2": ("mapped", 12), "g3": ("started", 0)}
    gallery.swap()
    gallery.upsert(embed("old", ["i00", "fresh"], draw=1))
    gallery.upsert(embed("new", ["i01"], space=wide))
    old = points_of(embed("old", IDS), embed("old", ["i00", "fresh"], draw=1))
    del old["i01"]
    images = points_of(mapping.apply(embed("old", IDS)), mapping.apply(embed("old", ["i00", "fresh"], draw=1)))
    held = {one: {**points, **images[one]} for one, points in old.items()}
    held["i01"] = points_of(embed("new", ["i01"], space=wide))["i01"]
    same_as_a_loop(gallery, asked("new", space=wide), held, ["new", mapping.mapped_fingerprint], k=20)
    same_as_a_loop(gallery, asked("old"), held, ["old"], k=20)
    mapped = mapping.apply(embed("old", ["i02"]))
    gallery.upsert(embed("old", ["i02"], draw=1), mapped)  # an image that is given is not made
    held["i02"] = points_of(embed("old", ["i02"], draw=1), mapped)["i02"]
    same_as_a_loop(gallery, asked("new", space=wide), held, ["new", mapping.mapped_fingerprint], k=20)
    gallery.backfill(only_these(embed("new", [*IDS, "fresh"], space=wide)))
    gallery.finish()
    assert list(gallery.state.by_name) == ["g3"]


def test_a_backfill_finishes_a_mapping_that_was_interrupted(
    gallery, embed, only_these, asked, adapter, monkeypatch
) -> None:
    gallery.add(embed("old", IDS))
    wide = Hypersphere(6)
    monkeypatch.setattr("limpet.galleries.gallery.MAPPED_AT_ONCE", 5)

    def stop(told: dict[str, Any]) -> None:
        if told["done"] >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gallery.start("declared:new", wide, adapter=adapter("old_to_new"), progress=stop)
    assert gallery.search(asked("new", space=wide)).covered == 5
    with pytest.raises(GalleryError, match="would not find 7 of 12 items"):
        gallery.swap()
    gallery.backfill(only_these(embed("new", IDS, space=wide)), budget=0)
    gallery.swap()
    assert gallery.search(asked("new", space=wide)).covered == 12


def test_an_adapter_between_other_models_or_spaces_is_refused(gallery, adapter) -> None:
    with pytest.raises(ConfigError, match="declared:newest"):
        gallery.start("declared:newest", Hypersphere(6), adapter=adapter("new_to_old"))
    for direction in ("new_to_old", "old_to_new"):
        with pytest.raises(SpaceMismatchError, match="dimension 6"):
            gallery.start("declared:new", Hypersphere(5), adapter=adapter(direction))
    assert gallery.state.phase == "steady"
