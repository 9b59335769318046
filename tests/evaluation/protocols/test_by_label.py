from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet.evaluation.protocols import ByLabel, Relevance, SeenClasses
from limpet_bench.protocols.verification import Verification

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., EmbeddingSet]


def test_golden_leave_one_out_keeps_apart_by_id_in_the_cross_test_too(golden: Golden, make_items: Make) -> None:
    reference = golden("cmc_map_leave_one_out")
    names = [f"cmc@{k}" for k in range(1, 9)]
    new, old = (make_items(reference[side], reference["labels"]) for side in ("q", "g"))
    order = np.random.default_rng(0).permutation(len(old))
    for gallery in (old, old[order]):  # its rows say nothing about which item is the query's own
        found = ByLabel(leave_one_out=True).measure(new, gallery, [*names, "map", "map@r"])
        np.testing.assert_allclose([np.nanmean(found[name]) for name in names], reference["cmc"], atol=1e-7)
        np.testing.assert_allclose(np.nanmean(found["map"]), reference["map"], atol=1e-7)
        np.testing.assert_allclose(np.nanmean(found["map@r"]), reference["map_at_r"], atol=1e-7)
    kept = ByLabel().measure(new, old, ["map"])["map"]
    renamed = old.replace(ids=[f"other{row}" for row in range(len(old))])
    apart = ByLabel(leave_one_out=True).measure(new, renamed, ["map"])["map"]
    np.testing.assert_array_equal(apart, kept)
    assert abs(np.nanmean(kept) - reference["map"]) > 0.01


def test_the_distances_of_the_golden_file_are_those_of_its_vectors(golden: Golden) -> None:
    reference = golden("cmc_map_leave_one_out")
    unit = [reference[side] / np.linalg.norm(reference[side], axis=1, keepdims=True) for side in ("q", "g")]
    np.testing.assert_allclose(1 - unit[0] @ unit[1].T, reference["distmat"], rtol=1e-7, atol=1e-7)


def test_a_class_that_the_gallery_lacks_is_a_miss_in_continual_search_only(make_items: Make) -> None:
    query, gallery = make_items(np.eye(2), [0, 7], prefix="q"), make_items(np.eye(2), [0, 1])
    assert SeenClasses().measure(query, gallery, ["recall@1"])["recall@1"].tolist() == [1, 0]
    np.testing.assert_array_equal(ByLabel().measure(query, gallery, ["recall@1"])["recall@1"], [1, np.nan])
    assert ByLabel().left_out(query, gallery)["queries without relevant items"] == 1


def test_what_is_missing_is_named(make_items: Make) -> None:
    items = make_items(np.eye(2), [0, 1])
    with pytest.raises(DataError, match="The queries have no labels"):
        ByLabel().measure(items.replace(labels=None), items, ["map"])
    with pytest.raises(EmptyOverlapError, match="None of the 2 queries"):
        ByLabel(leave_one_out=True).measure(items, items, ["map"])
    with pytest.raises(ConfigError, match="Unknown metric 'mapp'"):
        ByLabel().measure(items.replace(labels=None), items, ["mapp"])


def test_ground_truth_is_given_where_there_is_one_to_read() -> None:
    assert ByLabel.opened(None, leave_one_out=True).leave_one_out
    with pytest.raises(ConfigError, match=r"The protocol 'labels' was given 'clicks.csv'"):
        ByLabel.opened(Path("clicks.csv"))
    for protocol in (Relevance, Verification):
        with pytest.raises(ConfigError, match=f"The protocol '{protocol.name}' needs a ground truth"):
            protocol.opened(None)
