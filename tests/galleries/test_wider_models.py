"""A live gallery of fewer dimensions than the new model has: stored vectors count as padded with zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.errors import SpaceMismatchError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.retrieval import rank_metrics
from limpet.galleries import Gallery
from limpet.galleries.rehearsal import rehearse
from limpet.geometry import Hypersphere, Lorentz
from limpet.results import Data

IDS = [f"i{row:02}" for row in range(12)]
NARROW, WIDE = Hypersphere(4), Hypersphere(6)


@pytest.fixture(scope="module")
def report(embed, tmp_path_factory) -> Any:
    """Measure a model of six dimensions that was trained over one of four, and write results.json."""
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(4), 12)
    ids = [f"i{row}" for row in range(len(labels))]
    centres = 1.2 * np.eye(4)[labels]
    rows = [centres + spread * rng.normal(size=centres.shape) for spread in (0.8, 0.2)]
    free = 0.5 * rng.normal(size=(len(labels), 2))  # dimensions that old vectors know nothing of
    old = embed("old", ids, space=NARROW, labels=labels).replace(vectors=rows[0].astype(np.float32))
    new = embed("new", ids, space=WIDE, labels=labels).replace(vectors=np.hstack([rows[1], free]).astype(np.float32))
    padded = old.padded(WIDE)
    assert padded.fingerprint == "declared:old"
    options: dict[str, Any] = {"curve": False, "resamples": 200, "metrics": ("map",)}
    found = evaluate(padded, new, resample="queries", **options)
    assert found.verdict == "compatible"
    results = EvaluationResults.of(
        title="Two models", data=Data(name="drawn", description="", numbers={}), models={"old": {}, "new": {}},
        evaluations={"new": found},
    )  # fmt: skip
    return results.save(tmp_path_factory.mktemp("report"))


@pytest.mark.parametrize("store", ["memory", "lance"])
def test_new_queries_search_narrower_vectors_beside_their_own_by_score(
    embed, only_these, asked, report, store, tmp_path
) -> None:
    gallery = Gallery.create(f"{store}:{tmp_path / 'gallery'}", fingerprint="declared:old", space=NARROW)
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", WIDE, reports=[report])
    gallery.swap()
    queries = asked("new", space=WIDE)
    unit = WIDE.index_form(queries.vectors, "query")
    old, new = embed("old", IDS).vectors, embed("new", IDS[:5], space=WIDE).vectors
    stored = np.hstack([old, np.zeros((12, 2), np.float32)])
    reply = gallery.search(queries, 12)
    order = np.argsort(-unit @ stored.T, axis=1)
    assert [[hit.id for hit in hits] for hits in reply.hits] == [[IDS[row] for row in rows] for rows in order]
    gallery.backfill(only_these(embed("new", IDS[:5], space=WIDE)))
    stored[:5] = new
    scores = unit @ stored.T
    reply = gallery.search(queries, 12)
    assert (reply.merge, reply.covered) == ("score", 12)
    for hits, row in zip(reply.hits, scores, strict=True):
        assert [hit.id for hit in hits] == [IDS[place] for place in np.argsort(-row)]
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1], atol=1e-6)
    gallery.close()


def test_force_links_no_two_widths(gallery, embed, only_these, asked, report) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", WIDE, reports=[report])
    gallery.upsert(embed("new", ["fresh"], space=WIDE))
    assert gallery.search(asked("old"), 13).covered == 12
    with pytest.raises(SpaceMismatchError, match="dimension 6"):
        gallery.link("g1", "g2", force="nobody measured it")


def test_a_rehearsal_of_a_wider_model(gallery, embed, only_these, report) -> None:
    labels = np.arange(12) % 3
    old, new = (embed(name, IDS, space=space, labels=labels) for name, space in (("old", NARROW), ("new", WIDE)))
    with Gallery.create("memory://", fingerprint="declared:old", space=NARROW, columns={"label": "text"}) as labelled:
        labelled.add(old, metadata={"label": [f"class {label}" for label in labels]})
        found = rehearse(labelled, only_these(new), reports=[report], orders=["random"])
    expected = rank_metrics(new, old.padded(WIDE), ("map",), exclude_same_id=True)["map"]
    assert found.curves["random"].values["map"][0] == pytest.approx(float(np.nanmean(expected)), abs=1e-6)
    own = rank_metrics(new, new, ("map",), exclude_same_id=True)["map"]
    assert found.curves["random"].values["map"][-1] == pytest.approx(float(np.nanmean(own)), abs=1e-6)


def test_hyperbolic_generations_of_two_dimensions_are_not_linked(gallery, embed, report) -> None:
    gallery.add(embed("old", IDS))
    with pytest.raises(SpaceMismatchError, match="dimension 6"):
        gallery.start("declared:new", Lorentz(6), reports=[report])
    assert gallery.state.phase == "steady"
