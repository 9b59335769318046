from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet_bench.datasets.ijbc import Templates
from limpet_bench.protocols.identification import Identification, searched, threshold

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., EmbeddingSet]


def images(make: Make, vectors: Any, template: Any, **values: Any) -> EmbeddingSet:
    count = len(vectors)
    columns = {"template": np.asarray(template, np.int64), "media": np.arange(count), "detector_score": np.ones(count)}
    return make(vectors, form="features", columns=columns, **values)


def golden_sides(reference: dict[str, NDArray[Any]], make: Make) -> tuple[Identification, EmbeddingSet, EmbeddingSet]:
    gallery, probe = reference["gallery"], reference["probe"]
    numbers, probes = np.arange(len(gallery)) + 1000, np.arange(len(probe))
    one = Templates(numbers, reference["gallery_ids"])
    protocol = Identification(galleries=(one,), probes=Templates(probes, reference["probe_ids"]))
    return protocol, images(make, probe, probes), images(make, gallery, numbers)


def test_golden(golden: Golden, make_items: Make) -> None:
    reference = golden("ijbc_protocol")
    protocol, query, gallery = golden_sides(reference, make_items)
    rates, ranks = [f"tpir@{rate}" for rate in reference["fars"]], [1, 5, 10]
    found = protocol.measure(query, gallery, [*rates, *(f"rank@{k}" for k in ranks)])
    np.testing.assert_allclose([found[name].mean() for name in rates], reference["tpir"], rtol=1e-7)
    assert [found[f"rank@{k}"].sum() for k in ranks] == [reference[f"top{k}"] for k in ranks]


@pytest.mark.parametrize("block", [1, 50, 1024])
def test_golden_thresholds(golden: Golden, block: int) -> None:
    reference = golden("ijbc_protocol")
    sides = (reference["probe"], reference["probe_ids"], reference["gallery"], reference["gallery_ids"])
    found = searched(*sides, block)
    others = found.best[found.mates.relevant == 0]
    np.testing.assert_allclose([threshold(others, rate) for rate in reference["fars"]], reference["thr"], rtol=1e-7)


def slow_rate(probes: Any, who: Any, gallery: Any, subjects: Any, rate: float) -> float:
    """The definition, probe after probe."""
    scores = probes @ gallery.T
    nobody = sorted((max(row) for row, own in zip(scores, who, strict=True) if own not in subjects), reverse=True)
    limit = nobody[max(int(len(nobody) * rate) - 1, 0)]
    hits = [
        subjects[int(np.argmax(row))] == own and max(row) > limit
        for row, own in zip(scores, who, strict=True)
        if own in subjects
    ]
    return sum(hits) / len(hits)


def test_two_galleries_are_averaged_whatever_the_numbers_of_probes(make_items: Make) -> None:
    rng = np.random.default_rng(0)
    people = rng.normal(size=(12, 6))
    who = rng.integers(0, 12, 90)
    probes = people[who] + 1.2 * rng.normal(size=(90, 6))
    members = [np.array([7, 0, 2]), np.array([1, 3, 4, 5, 8])]
    galleries = [people[own] + 0.3 * rng.normal(size=(len(own), 6)) for own in members]
    query = images(make_items, probes, np.arange(90), labels=who)
    gallery = images(make_items, np.vstack(galleries), [100, 101, 102, 200, 201, 202, 203, 204])
    parts = (Templates(np.arange(100, 103), members[0]), Templates(np.arange(200, 205), members[1]))
    protocol = Identification(galleries=parts, probes=Templates(np.arange(90), who))
    found = protocol.measure(query, gallery, ["tpir@0.1", "rank@1", "rank@2"])
    unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (probes, *galleries)]
    rates = [slow_rate(unit[0], who, unit[part + 1], members[part].tolist(), 0.1) for part in (0, 1)]
    assert rates[0] != rates[1]
    np.testing.assert_allclose(found["tpir@0.1"].mean(), np.mean(rates))
    counts = [np.isin(who, own).sum() for own in members]
    assert len(found["rank@1"]) == sum(counts)
    assert protocol.unit_labels(query).tolist() == [*who[np.isin(who, members[0])], *who[np.isin(who, members[1])]]
    assert protocol.left_out(query, gallery) == {
        "probes without a subject in the gallery, which set the threshold": 180 - sum(counts)
    }
    assert found["rank@1"].mean() < found["rank@2"].mean() <= 1


def test_any_template_of_the_subject_will_do_and_ties_count_by_their_probability(make_items: Make) -> None:
    gallery = np.array([[0.0, 1], [1, 0], [1, 0], [0.6, 0.8]])
    probes, who = np.array([[1.0, 0], [1.0, 0], [1.0, 0], [0.0, 1]]), np.array([2, 1, 3, 9])
    subjects = np.array([2, 1, 2, 3])
    found = searched(probes, who, gallery, subjects)
    assert found.mates.relevant.tolist() == [1, 1, 1, 0]
    assert (found.mates.ranks.tolist(), found.mates.tied.tolist()) == ([0, 0, 2], [2, 2, 1])
    assert found.best.tolist() == [1, 1, 1, 1]
    protocol = Identification(galleries=(Templates(np.arange(4), subjects),), probes=Templates(np.arange(4), who))
    sides = images(make_items, probes, np.arange(4)), images(make_items, gallery, np.arange(4))
    measured = protocol.measure(*sides, ["rank@1", "rank@2", "rank@3"])
    assert {name: values.tolist() for name, values in measured.items()} == {
        "rank@1": [0.5, 0.5, 0.0], "rank@2": [1.0, 1.0, 0.0], "rank@3": [1.0, 1.0, 1.0]
    }  # fmt: skip


def test_a_score_at_the_threshold_is_not_above_it(make_items: Make) -> None:
    query = images(make_items, [[1, 0], [1, 0], [1, 0.1]], [0, 1, 2])
    gallery = images(make_items, [[1, 0]], [5])
    probes = Templates(np.arange(3), np.array([7, 8, 8]))
    protocol = Identification(galleries=(Templates(np.array([5]), np.array([7])),), probes=probes)
    found = protocol.measure(query, gallery, ["tpir@1", "tpir@0.5", "rank@1"])
    assert {name: values.tolist() for name, values in found.items()} == {
        "tpir@1": [1.0], "tpir@0.5": [0.0], "rank@1": [1.0]
    }  # fmt: skip


def test_what_is_missing_is_named(golden: Golden, make_items: Make) -> None:
    protocol, query, gallery = golden_sides(golden("ijbc_protocol"), make_items)
    numbers, people = protocol.probes
    with pytest.raises(DataError, match=r"1 templates of the ground truth are not among the 30 of the gallery: '1000'"):
        protocol.measure(query, gallery[1:], ["rank@1"])
    columns = {name: values for name, values in query.columns.items() if name != "detector_score"}
    with pytest.raises(DataError, match=r"column 'detector_score' of the queries"):
        protocol.measure(query.replace(columns=columns), gallery, ["rank@1"])
    with pytest.raises(ConfigError, match=r"Unknown metric 'tar@0.1'"):
        protocol.measure(query, gallery, ["tar@0.1"])
    strangers = Identification(galleries=protocol.galleries, probes=Templates(numbers, people + 10_000))
    with pytest.raises(EmptyOverlapError, match="None of the 170 probes has its subject"):
        strangers.measure(query, gallery, ["rank@1"])
    known = np.isin(people, protocol.galleries[0].subjects)
    closed = Identification(galleries=protocol.galleries, probes=Templates(numbers[known], people[known]))
    assert len(closed.measure(query, gallery, ["rank@1"])["rank@1"]) == known.sum()
    with pytest.raises(EmptyOverlapError, match="All 75 probes have their subject"):
        closed.measure(query, gallery, ["tpir@0.1"])


def test_the_official_lists_are_read(make_items: Make, tmp_path: Path) -> None:
    for name, rows in (("gallery_G1", ["5,7"]), ("gallery_G2", ["6,8"]), ("probe_mixed", ["0,7", "1,8", "2,9"])):
        lines = ["TEMPLATE_ID,SUBJECT_ID", *rows]
        (tmp_path / f"ijbc_1N_{name}.csv").write_text("\n".join(lines) + "\n")
    query = images(make_items, [[1, 0], [0, 1], [1, 1]], [0, 1, 2])
    gallery = images(make_items, [[1, 0], [1, 0.2]], [5, 6])
    found = Identification.opened(tmp_path).measure(query, gallery, ["tpir@0.1", "rank@1"])
    assert found["rank@1"].tolist() == [1, 1]
    assert found["tpir@0.1"].tolist() == [1, 0]  # in the second gallery strangers score higher than the mate


def test_equal_templates_tie_to_the_last_bit() -> None:
    """A plain product gives equal columns in other places other last bits, and so breaks ties by chance."""
    rng = np.random.default_rng(0)
    distinct, probes = (unit / np.linalg.norm(unit, axis=1, keepdims=True)
                        for unit in (rng.normal(size=(rows, 65)) for rows in (5, 37)))  # fmt: skip
    origin, subject = rng.integers(5, size=301), rng.integers(301, size=37)
    found = searched(probes, subject, distinct[origin], np.arange(301))
    for row, (wanted, scores) in enumerate(zip(subject, probes @ distinct.T, strict=True)):
        all_scores = scores[origin]
        assert found.mates.ranks[row] == (all_scores > all_scores[wanted]).sum()
        assert found.mates.tied[row] == (origin == origin[wanted]).sum()
