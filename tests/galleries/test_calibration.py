"""Scores of both parts of a half-backfilled gallery on one scale, by items with vectors of both models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import ScoreMap
from limpet.adapters.procrustes import Procrustes
from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.errors import GalleryError
from limpet.evaluation.ranking.cohort import Cohort
from limpet.galleries import Gallery
from limpet.galleries.calibration import FEWEST
from limpet.galleries.rehearsal.sample import RehearsedUpgrade
from limpet.geometry import Hypersphere

SPHERE = Hypersphere(6)
ITEMS = 120
IDS = [f"i{row:03}" for row in range(ITEMS)]


def made(model: str, ids: list[str], seed: int, noise: float, turn: int = 0, sharp: float = 1.0) -> EmbeddingSet:
    """The same items by a model; a sharp one puts most of the length into one value, and so has other cosines."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(len(ids), 6)) + np.array([sharp, 0, 0, 0, 0, 0])
    vectors = np.roll(base + noise * np.random.default_rng(seed + 1).normal(size=base.shape), turn, axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddingSet(vectors.astype(np.float32), ids, f"declared:{model}", SPHERE)  # type: ignore[arg-type]


OLD, NEW = made("old", IDS, 0, 0.0), made("new", IDS, 0, 0.3, turn=2, sharp=4.0)
ASKED = made("new", ["q0", "q1", "q2"], 7, 0.3, turn=2, sharp=4.0).replace(role="query")


class Source:
    fingerprint, space = NEW.fingerprint, NEW.space

    def embed(self, ids: Any) -> EmbeddingSet:
        return NEW[NEW.ids.find(list(ids))]


@pytest.fixture
def adapter() -> Procrustes:
    return Procrustes(direction="new_to_old").fit(OLD, NEW)


@pytest.fixture
def shop(place: str, adapter: Procrustes) -> Iterator[Gallery]:
    """A gallery whose new queries an adapter maps, swapped, half of it backfilled."""
    with Gallery.create(place, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.start(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.swap()
        gallery.backfill(Source(), order="random", budget=ITEMS // 2)
        yield gallery


def test_hits_are_merged_by_scores_beside_those_on_items_with_both_vectors(shop: Gallery, adapter: Procrustes) -> None:
    """What a query scores on an old vector becomes what it would be if the cohort's nearest scored it as their new."""
    assert shop.search(ASKED, 20).merge == "rank"
    link, items = shop.calibrate()
    assert items == ITEMS // 2
    assert (link.query, link.gallery, link.how) == ("g2", "g1", "adapter")
    reply = shop.search(ASKED, 20)
    assert reply.merge == "calibrated"
    cohort = shop.files.scores(str(link.score_map))
    assert isinstance(cohort, Cohort)
    fresh = shop.store.vectors("g2", IDS)[0]
    both = NEW[NEW.ids.find(fresh)].vectors
    np.testing.assert_allclose(np.sort(cohort.own, axis=0), np.sort(both, axis=0), atol=1e-6)
    left = [one for one in IDS if one not in fresh]
    mapped = adapter.apply(ASKED).vectors
    for row, hits in enumerate(reply.hits):
        means = [np.mean(np.sort(side @ query)[-5:]) for side, query in
                 ((cohort.own, ASKED.vectors[row]), (cohort.other, mapped[row]))]  # fmt: skip
        new = {one: float(ASKED.vectors[row] @ NEW.vectors[IDS.index(one)]) for one in fresh}
        old = {one: cohort.factor * (float(mapped[row] @ OLD.vectors[IDS.index(one)]) - means[1]) + means[0]
               for one in left}  # fmt: skip
        expected = sorted((new | old).items(), key=lambda item: -item[1])[:20]
        assert [hit.id for hit in hits] == [name for name, _ in expected]
        np.testing.assert_allclose([hit.score for hit in hits], [score for _, score in expected], atol=1e-5)


def test_the_cohort_is_part_of_the_gallery_and_of_the_way_back(shop: Gallery) -> None:
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
        gallery.start(NEW.fingerprint, SPHERE, adapter=adapter)
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
        gallery.start(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.swap()
        gallery.backfill(Source(), order="random", budget=ITEMS // 2)
        before = gallery.search(ASKED, ITEMS)
        assert before.merge == "score"
        link, items = gallery.calibrate()
        assert (link.gallery, link.how, items) == ("g2", "mapped", ITEMS // 2)
        reply = gallery.search(ASKED, ITEMS)
        assert reply.merge == "calibrated"
        cohort = gallery.files.scores(str(link.score_map))
        assert isinstance(cohort, Cohort)
        lines = cohort.lines(ASKED.vectors, ASKED.vectors)
        for hits, former, line in zip(reply.hits, before.hits, lines, strict=True):
            was = {hit.id: hit for hit in former}
            assert sorted(was) == sorted(hit.id for hit in hits)
            for hit in hits:
                old = was[hit.id].score
                expected = old if hit.generation == "g3" else line.slope * old + line.start
                assert (hit.generation, hit.score) == (was[hit.id].generation, pytest.approx(expected, abs=1e-6))
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_map_that_came_with_the_adapter_serves_until_there_is_a_cohort(place: str, adapter: Procrustes) -> None:
    halved = ScoreMap("old_to_new", np.array([-1.0, 1.0]), np.array([-0.5, 0.5]))
    with Gallery.create(place, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.start(NEW.fingerprint, SPHERE, adapter=adapter, score_map=halved)
        gallery.swap()
        gallery.backfill(Source(), order="random", budget=ITEMS // 2)
        reply = gallery.search(ASKED, ITEMS)
        assert reply.merge == "calibrated"
        by_id = {hit.id: hit for hit in reply.hits[0]}
        mapped = adapter.apply(ASKED).vectors[0] @ OLD.vectors.T
        for name, score in zip(IDS, mapped, strict=True):
            if by_id[name].generation == "g1":
                assert by_id[name].score == pytest.approx(score / 2, abs=1e-6)
        link, _ = gallery.calibrate()
        assert isinstance(gallery.files.scores(str(link.score_map)), Cohort)


def test_a_rehearsal_takes_the_cohort_of_the_gallery(shop: Gallery) -> None:
    link, _ = shop.calibrate()
    upgrade = RehearsedUpgrade.of(shop, Source(), (), None, None)  # type: ignore[arg-type]
    with Gallery.create("memory://", fingerprint=OLD.fingerprint, space=SPHERE) as copy:
        copy.add(OLD)
        assert upgrade.start(copy, Source()) == "adapter"  # type: ignore[arg-type]
        assert [one.score_map for one in copy.state.links if one.adapter] == [link.score_map]


def test_a_link_that_changes_meanwhile_is_left_alone(shop: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = shop.writing

    def other(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        shop.calibrate(seed=1)
        return writing(*args, **options)

    monkeypatch.setattr(shop, "writing", other)
    with pytest.raises(GalleryError, match="changed meanwhile"):
        shop.calibrate()


def heard(capsys: Any) -> str:
    return " ".join(capsys.readouterr().err.split())


def asks_for_it(gallery: Gallery, capsys: Any) -> bool:
    """Say whether `status` names the command among what to type next."""
    assert main(["upgrade", "status", gallery.store.url]) == 0
    return f"limpet gallery calibrate {gallery.store.url}" in "".join(capsys.readouterr().err.split("\n"))


def test_the_command_says_by_what_it_merges(tmp_path: Path, adapter: Procrustes, capsys) -> None:
    url = f"memory:{tmp_path / 'live'}"
    with Gallery.create(url, fingerprint=OLD.fingerprint, space=SPHERE) as gallery:
        gallery.add(OLD)
        gallery.start(NEW.fingerprint, SPHERE, adapter=adapter)
        gallery.backfill(Source(), budget=FEWEST - 1)
        assert not asks_for_it(gallery, capsys)
    file = storage.save(NEW, tmp_path / "new.safetensors")
    assert main(["upgrade", "backfill", url, "--model", str(file), "--budget", "11"]) == 0
    assert "Next, to compare hits of old and new vectors" in heard(capsys)
    with Gallery.open(url) as gallery:
        assert asks_for_it(gallery, capsys)
    assert main(["gallery", "calibrate", url]) == 0
    said = heard(capsys)
    assert "Hits of g2 and g1 are merged by score from now on, by a cohort of 60 items with vectors of both." in said
    with Gallery.open(url) as gallery:
        assert not asks_for_it(gallery, capsys)
