from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Lorentz
from limpet_bench.protocols import templates
from limpet_bench.protocols.identification import Identification
from limpet_bench.protocols.templates import template_vectors, templates_of
from limpet_bench.protocols.verification import Verification

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., EmbeddingSet]


def images(
    make: Make, vectors: Any, template: Any, media: Any = None, score: Any = None, **values: Any
) -> EmbeddingSet:
    count = len(vectors)
    columns = {
        "template": np.asarray(template, np.int64),
        "media": np.arange(count) if media is None else np.asarray(media, np.int64),
        "detector_score": np.ones(count, np.float32) if score is None else np.asarray(score, np.float32),
    }
    return make(vectors, form="features", columns=columns, **values)


@pytest.mark.parametrize("at_once", [1, 5, 8192])
def test_golden_templates(golden: Golden, make_items: Make, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(templates, "_IMAGES_AT_ONCE", at_once)
    reference = golden("ijbc_protocol")
    features, template, media = reference["img_feats"], reference["templates"], reference["medias"]
    found = template_vectors(features, template, media, np.ones(len(features)))
    np.testing.assert_allclose(found, reference["template_feats"], rtol=1e-7, atol=1e-7)
    order = np.random.default_rng(0).permutation(len(features))
    wanted = reference["unique_templates"]
    built = templates_of(
        images(make_items, features[order], template[order], media[order]), wanted[[3, 0, 0]], "queries"
    )
    assert built.numbers.tolist() == wanted[[0, 3]].tolist()
    np.testing.assert_allclose(built.vectors, reference["template_feats"][[0, 3]], atol=1e-6)


def test_features_weigh_as_sure_as_the_detector_was() -> None:
    one, score = np.zeros(2, np.int64), np.array([0.75, 0.5])
    found = template_vectors(np.array([[4.0, 0], [0, 8.0]]), one, np.array([1, 2]), score)
    np.testing.assert_allclose(found, [[0.6, 0.8]])  # (3, 0) + (0, 4)


def test_golden_rates(golden: Golden, make_items: Make) -> None:
    reference = golden("ijbc_protocol")
    scores, same = reference["ver_scores"] / 5, reference["ver_labels"] == 1  # a factor changes no rate
    count = len(scores)
    order = np.random.default_rng(0).permutation(count)
    gallery = images(make_items, np.tile([3.0, 0], (count, 1)), order)
    query = images(make_items, np.stack([scores, np.sqrt(1 - scores**2)], 1)[order], order + 5000)
    pairs = np.stack([np.arange(count), np.arange(count) + 5000], axis=1)
    names = [f"tar@{target}" for target in reference["far_targets"]]
    for rule, expected in (("nearest", "tar"), ("full", "tar_full_roc"), ("strict", "tar_strict")):
        found = Verification(pairs=pairs, same=same, rule=rule).measure(query, gallery, names)
        np.testing.assert_allclose([found[name].mean() for name in names], reference[expected], rtol=1e-7)
        assert all(len(values) == same.sum() for values in found.values())


def small(make: Make) -> tuple[Verification, EmbeddingSet, EmbeddingSet]:
    pairs, same = np.array([[1, 3], [2, 3], [1, 4], [2, 4]]), np.array([True, False, False, True])
    old = images(make, [[1, 0], [0, 1], [1, 0], [1, 0]], [1, 2, 3, 4])
    new = images(make, [[1, 1], [0, 1], [1, 0.1], [0.1, 1]], [1, 2, 3, 4], labels=[5, 6, 5, 6])
    return Verification(pairs=pairs, same=same), old, new


def test_the_first_template_is_the_gallerys_and_the_second_the_queries(make_items: Make) -> None:
    protocol, old, new = small(make_items)
    # by the old model alone the second templates are alike; of the new model's they are told apart
    assert protocol.measure(new, old, ["tar@1e-4"])["tar@1e-4"].tolist() == [1, 1]
    assert protocol.measure(old, new, ["tar@1e-4"])["tar@1e-4"].tolist() == [0, 0]


def test_units_are_genuine_pairs(make_items: Make) -> None:
    protocol, old, new = small(make_items)
    assert protocol.unit_labels(new).tolist() == [5, 6]
    assert protocol.unit_labels(old) is None
    assert protocol.left_out(new, old) == {"impostor pairs, which set the threshold": 2}
    assert protocol.record() == {"name": "ijbc-verification", "rule": "nearest"}


def test_pairs_are_compared_in_blocks(make_items: Make) -> None:
    rng = np.random.default_rng(0)
    sides = [images(make_items, rng.normal(size=(40, 6)), np.arange(40) // 2, np.arange(40) // 3) for _ in range(2)]
    protocol = Verification(pairs=rng.integers(0, 20, (300, 2)), same=rng.random(300) < 0.3)
    names = ["tar@0.1", "tar@0.5"]
    whole = protocol.measure(*sides, names)
    for block in (1, 7, 299):
        parts = protocol.measure(*sides, names, block=block)
        for name in names:
            np.testing.assert_array_equal(parts[name], whole[name])


def test_what_is_missing_is_named(make_items: Make) -> None:
    protocol, old, new = small(make_items)
    with pytest.raises(DataError, match="column 'media' of the gallery, and found no such column"):
        columns = {name: values for name, values in old.columns.items() if name != "media"}
        protocol.measure(new, old.replace(columns=columns), ["tar@0.1"])
    with pytest.raises(DataError, match=r"column 'template' of the queries, and found float64"):
        protocol.measure(new.replace(columns={**new.columns, "template": np.ones(4)}), old, ["tar@0.1"])
    with pytest.raises(DataError, match=r"1 templates of the ground truth are not among the 3 of the queries: '4'"):
        protocol.measure(new[[0, 1, 2]], old, ["tar@0.1"])
    with pytest.raises(DataError, match=r"1 templates of the gallery have no direction: '2'"):
        protocol.measure(new, images(make_items, old.vectors, [1, 2, 3, 4], score=[1, 0, 1, 1]), ["tar@0.1"])
    with pytest.raises(DataError, match="query set is empty"):
        protocol.measure(new[[]], old, ["tar@0.1"])
    with pytest.raises(SpaceMismatchError, match="Templates of the gallery on the Lorentz space"):
        flat = [part.replace(space=Lorentz(2, 1.0)) for part in (new, old)]
        protocol.measure(*flat, ["tar@0.1"])
    with pytest.raises(DataError, match="0 of 2 of one person"):
        Verification(pairs=protocol.pairs[1:3], same=protocol.same[1:3])
    with pytest.raises(ConfigError, match="Unknown rule for the threshold 'ful'"):
        Verification(pairs=protocol.pairs, same=protocol.same, rule="ful")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Unknown metric 'map'"):
        protocol.measure(new, old, ["map"])


def test_the_official_list_is_read(make_items: Make, tmp_path: Path) -> None:
    expected, old, new = small(make_items)
    (tmp_path / "ijbc_template_pair_label.txt").write_text("1 3 1\n2 3 0\n1 4 0\n2 4 1\n")
    found = Verification.opened(tmp_path, rule="strict")
    np.testing.assert_array_equal(found.pairs, expected.pairs)
    assert found.measure(new, old, ["tar@1e-4"])["tar@1e-4"].tolist() == [1, 1]
    with pytest.raises(DataError, match="There are not both galleries and the probes"):
        Identification.opened(tmp_path)


def test_templates_follow_their_definition() -> None:
    rng = np.random.default_rng(0)
    features, score = rng.normal(size=(60, 4)), rng.random(60)
    template, media = rng.integers(0, 9, 60), rng.integers(0, 5, 60)  # numbers of media recur in other templates
    found = template_vectors(features, template, media, score)
    for place, number in enumerate(np.unique(template)):
        total = np.zeros(4)
        for medium in np.unique(media[template == number]):
            chosen = [row for row in range(60) if template[row] == number and media[row] == medium]
            total += sum(features[row] * score[row] for row in chosen) / len(chosen)
        np.testing.assert_allclose(found[place], total / np.sqrt((total**2).sum()), rtol=1e-12)
