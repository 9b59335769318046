"""New score thresholds, measured on a gallery's own vectors and in a rehearsal."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, UpgradeStateError
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries.rehearsal import Rehearsal
from limpet.galleries.upgrade import GalleryUpgrade

from .test_rehearsal import LABELS, NEW, OLD, SPHERE, Source, filled, linked


def scores(of: EmbeddingSet) -> np.ndarray:
    """Return the cosines of all items, NaN of each with itself."""
    points = SPHERE.project_array(of.vectors.astype(np.float64))
    found = points @ points.T
    np.fill_diagonal(found, np.nan)
    return found


def test_items_with_both_vectors_say_what_thresholds_become() -> None:
    with filled() as gallery:
        it = GalleryUpgrade(gallery)
        with pytest.raises(UpgradeStateError, match="one model"):
            it.thresholds()
        gallery.start(NEW.fingerprint, NEW.space)
        with pytest.raises(DataError, match="0 items have vectors of g1 and of g2"):
            it.thresholds()
        gallery.backfill(Source(NEW))
        found = it.thresholds()
        relevant = LABELS[:, None] == LABELS
        expected = Thresholds.of(scores(OLD), scores(NEW), (relevant, relevant))
        assert (found.kept, found.queries, found.pairs) == ("precision", 60, expected.pairs)
        for row in found.rows[::9]:
            assert row.new == pytest.approx(expected.at(min(row.old, expected.rows[-1].old)).new, abs=0.02)
        gallery.swap()
        assert it.thresholds() == found, "after the swap as before it"


def test_without_classes_as_many_items_pass() -> None:
    with filled(labelled=False) as gallery:
        gallery.start(NEW.fingerprint, NEW.space)
        gallery.backfill(Source(NEW))
        assert GalleryUpgrade(gallery).thresholds(items=40).kept == "number"


def test_a_rehearsal_measures_thresholds_of_the_swap_and_of_the_end() -> None:
    with linked(filled()) as gallery:
        found = GalleryUpgrade(gallery).rehearse(Source(NEW), sample=60, orders=["random"])
    assert list(found.thresholds) == ["swap", "finish"]
    relevant = LABELS[:, None] == LABELS
    row = found.thresholds["finish"].rows[20]
    for side, threshold, precision in ((OLD, row.old, row.precision_before), (NEW, row.new, row.precision)):
        assert precision == pytest.approx(relevant[scores(side) >= threshold].mean(), abs=0.02)
    assert found.thresholds["swap"].rows[0] != found.thresholds["finish"].rows[0]
    with filled() as gallery:
        gallery.start(NEW.fingerprint, NEW.space)
        assert list(GalleryUpgrade(gallery).rehearse(Source(NEW), sample=60).thresholds) == ["finish"]


def test_thresholds_that_fall_are_refused() -> None:
    with linked(filled()) as gallery:
        document = GalleryUpgrade(gallery).rehearse(Source(NEW), sample=60, orders=["random"]).to_dict()
    document["thresholds"]["finish"]["rows"].reverse()
    with pytest.raises(ConfigError, match=r"thresholds\.finish\.rows"):
        Rehearsal.parse(document)
