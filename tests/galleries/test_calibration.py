"""Scores of both parts of a half-backfilled gallery on one scale, learnt from items with vectors of both models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.adapters import Procrustes
from holdfast.cli import main
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import GalleryError
from holdfast.evaluation.ranking.merging import calibrated_merge
from holdfast.galleries import Gallery
from holdfast.galleries.calibration import FEWEST
from holdfast.geometry import Hypersphere

SPHERE = Hypersphere(6)
ITEMS = 120
IDS = [f"i{row:03}" for row in range(ITEMS)]


def made(model: str, ids: list[str], seed: int, noise: float, turn: int = 0, sharp: float = 1.0) -> EmbeddingSet:
    """The same items by a model; a sharp one puts most of the length into one value, and so has other cosines."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(len(ids), 6)) + np.array([sharp, 0, 0, 0, 0, 0])
    vectors = np.roll(base + noise * np.random.default_rng(seed + 1).normal(size=base.shape), turn, axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddingSet(ids, vectors.astype(np.float32), f"declared:{model}", SPHERE)  # type: ignore[arg-type]


OLD, NEW = made("old", IDS, 0, 0.0), made("new", IDS, 0, 0.3, turn=2, sharp=4.0)
ASKED = made("new", ["q0", "q1", "q2"], 7, 0.3, turn=2, sharp=4.0).replace(role="query")


class Source:
    fingerprint, space = NEW.fingerprint, NEW.space

    def embed(self, ids: Any) -> EmbeddingSet:
        return NEW.select(NEW.ids.find(list(ids)))


@pytest.fixture
def adapter() -> Procrustes:
    return Procrustes(direction="new_to_old").fit(OLD, NEW)


@pytest.fixture
def shop(place: str, adapter: Procrustes) -> Iterator[Gallery]:
    """A gallery whose new queries an adapter maps, swapped, half of it backfilled."""
    with Gallery.create(place, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.prepare(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.swap()
        gallery.backfill(Source(), order="random", budget=ITEMS // 2)
        yield gallery


def test_hits_are_merged_by_scores_that_both_vectors_taught(shop: Gallery, adapter: Procrustes) -> None:
    """The map follows the truth: what it makes of old scores is near the new scores of the same pairs."""
    assert shop.search(ASKED, 20).merge == "rank"
    link, items = shop.calibrate()
    assert items == ITEMS // 2
    assert (link.query, link.gallery, link.how) == ("g2", "g1", "adapter")
    reply = shop.search(ASKED, 20)
    assert reply.merge == "calibrated"
    score_map = shop.files.score_map(str(link.score_map))
    fresh = shop.store.vectors("g2", IDS)[0]
    left = [one for one in IDS if one not in fresh]
    mapped = adapter.apply(ASKED).vectors
    for row, hits in enumerate(reply.hits):
        new = {one: float(ASKED.vectors[row] @ NEW.vectors[IDS.index(one)]) for one in fresh}
        old = {one: float(mapped[row] @ OLD.vectors[IDS.index(one)]) for one in left}
        parts = [(list(part), list(part.values())) for part in (new, old)]
        ids, scores = calibrated_merge(parts, [None, score_map])
        assert [hit.id for hit in hits] == ids[:20].tolist()
        np.testing.assert_allclose([hit.score for hit in hits], scores[:20], atol=1e-5)
    queries = adapter.apply(NEW).vectors
    before, after = (queries @ OLD.vectors.T)[:, :60].ravel(), (NEW.vectors @ NEW.vectors.T)[:, :60].ravel()
    off = np.abs(score_map.apply(before).values - after).mean()
    assert off < 0.6 * np.abs(before - after).mean()
    assert off < 0.8 * np.abs(after - np.median(after)).mean()  # better than one score for all


def test_the_map_is_part_of_the_gallery_and_of_the_way_back(shop: Gallery) -> None:
    before = shop.calibrate()[0]
    shop.backfill(Source(), budget=20)
    again = shop.calibrate()[0]
    assert again.score_map != before.score_map
    assert [one for one in shop.state.links if one.adapter] == [again]
    shop.gc(older_than=0)
    assert shop.search(ASKED, 5).merge == "calibrated"
    shop.rollback()
    assert shop.store.journal()[-1].event["kind"] == "rollback"
    shop.swap()
    assert shop.search(ASKED, 5).merge == "calibrated"


def test_too_few_items_with_both_vectors_are_refused(place: str, adapter: Procrustes) -> None:
    with Gallery.create(place, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        with pytest.raises(GalleryError, match="Queries of g1 search no other vectors"):
            gallery.calibrate()
        gallery.prepare(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.upsert(made("new", ["n0", "n1"], 3, 0.3))  # without an old vector
        gallery.backfill(Source(), budget=FEWEST - 1)
        with pytest.raises(GalleryError, match=f"{FEWEST - 1} items have vectors of both g2 and g1"):
            gallery.calibrate()
        assert gallery.state.links[0].score_map is None
        gallery.backfill(Source(), budget=1)
        assert gallery.calibrate()[1] == FEWEST


def test_mapped_vectors_are_calibrated_too() -> None:
    adapter = Procrustes(direction="old_to_new").fit(OLD, NEW)
    with Gallery.create("memory://", fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.prepare(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.swap()
        gallery.backfill(Source(), order="random", budget=ITEMS // 2)
        before = gallery.search(ASKED, ITEMS)
        assert before.merge == "score"
        link, items = gallery.calibrate()
        assert (link.gallery, link.how, items) == ("g2", "mapped", ITEMS // 2)
        reply = gallery.search(ASKED, ITEMS)
        assert reply.merge == "calibrated"
        score_map = gallery.files.score_map(str(link.score_map))
        for hits, former in zip(reply.hits, before.hits, strict=True):
            was = {hit.id: hit for hit in former}
            assert sorted(was) == sorted(hit.id for hit in hits)
            for hit in hits:
                old = was[hit.id].score
                expected = old if hit.generation == "g3" else float(score_map.apply(old).values)
                assert (hit.generation, hit.score) == (was[hit.id].generation, pytest.approx(expected, abs=1e-6))
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_link_that_changes_meanwhile_is_left_alone(shop: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = shop.writing

    def other(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        shop.calibrate(seed=1)
        return writing(*args, **options)

    monkeypatch.setattr(shop, "writing", other)
    with pytest.raises(GalleryError, match="changed meanwhile"):
        shop.calibrate()


def test_the_command_says_what_taught_it(tmp_path: Path, adapter: Procrustes, capsys) -> None:
    url = f"memory:{tmp_path / 'live'}"
    with Gallery.create(url, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.prepare(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.backfill(Source(), budget=60)
    assert main(["gallery", "calibrate", url]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Hits of g2 and g1 are merged by score from now on, as 60 items with vectors of both have taught." in said
