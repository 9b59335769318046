from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limpet.adapters import build_adapter
from limpet.adapters.storage import GALLERY_ADAPTER
from limpet.data.augment import Augmentation
from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.storage import save
from limpet.errors import ConfigError, DataError, EmptyOverlapError, ReleaseError, SpaceMismatchError
from limpet.evaluation.retrieval import rank_metrics
from limpet.export import formats
from limpet.export.exportable import of_adapter, of_release
from limpet.export.formats import export
from limpet.export.reader import Map
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere, Lorentz
from limpet.methods import METHODS
from limpet.models.building import build_network
from limpet.models.release import load_release, make_release, weights_digest
from limpet.models.specs import EncoderSpec, FeatureSpec
from limpet.training import compatible_head, encode
from limpet.training.compatible_head import (
    frozen_release,
    load_head,
    ridge_start,
    train_head,
)
from limpet.training.encode import embed_features
from limpet.training.experiment import HEAD_RECIPE, Experiment, Geometry, head_recipe
from limpet.training.train import train_release
from limpet.training.warm_start import load_carried
from limpet.upgrade.vector_sources import FileVectors

CLASSES = 6
QUICK = dataclasses.replace(HEAD_RECIPE, epochs=3, batch_size=32)
Frozen = Callable[..., tuple[EmbeddingSet, EmbeddingSet]]
OPTIONS: dict[str, dict[str, Any]] = {"nccl": {"queue_size": 64}}
MODELS = {"both_sides": EncoderSpec(projection="residual")}  # from a random layer, both sides take longer to meet
FOR_ONE_UPGRADE = [name for name, method in METHODS.items() if not method.sessions_only]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def frozen() -> Callable[..., tuple[EmbeddingSet, EmbeddingSet]]:
    """Two models' embeddings of the same items: 8 and 12 dimensions, related by a linear map and noise of each."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, 10))
    views = rng.normal(size=(10, 8)), rng.normal(size=(10, 12))

    def draw(items: int, seed: int, labels: bool = True) -> tuple[EmbeddingSet, EmbeddingSet]:
        noise = np.random.default_rng(seed)
        classes = np.arange(items) % CLASSES
        causes = centres[classes] + noise.normal(size=(items, 10))
        sides = []
        for name, view in zip(("a", "b"), views, strict=True):
            vectors = unit(causes @ view + 0.5 * noise.normal(size=(items, view.shape[1]))).astype(np.float32)
            sides.append(
                EmbeddingSet(
                    vectors, [f"{seed}-{row}" for row in range(items)], f"declared:{name}",
                    Hypersphere(vectors.shape[1]), labels=classes if labels else None,
                    class_names=[f"class {c}" for c in range(CLASSES)] if labels else None,
                )
            )  # fmt: skip
        return sides[0], sides[1]

    return draw


def experiment(method: str = "p2s", **values: Any) -> Experiment:
    return Experiment(**{"method": method, "method_options": OPTIONS.get(method, {}), "recipe": QUICK, **values})


def mean_precision(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    return float(np.nanmean(rank_metrics(query, gallery, ("map",))["map"]))


@pytest.mark.parametrize("method", FOR_ONE_UPGRADE)
def test_every_method_trains_a_head_that_searches_the_old_gallery(
    method: str, frozen: Callable[..., tuple[EmbeddingSet, EmbeddingSet]], tmp_path: Path
) -> None:
    old, new = frozen(240, seed=1)
    head = train_head(old, new, experiment(method, model=MODELS.get(method, EncoderSpec())), tmp_path)
    (old_gallery, _), (_, new_query) = frozen(120, seed=2), frozen(60, seed=3)
    query, gallery = head.query(new_query), head.gallery(old_gallery)
    chance = 1 / CLASSES
    cross = mean_precision(query, gallery)
    assert cross > 2.5 * chance if METHODS[method].needs_old else cross < 2 * chance
    needs = METHODS[method].needs_old
    assert head.release.record.compatible_with == (gallery.fingerprint if needs and not METHODS[method].stays else None)
    again = load_head(tmp_path)
    np.testing.assert_array_equal(again.query(new_query).vectors, query.vectors)
    np.testing.assert_array_equal(again.gallery(old_gallery).vectors, gallery.vectors)
    assert load_release(tmp_path).fingerprint == query.fingerprint


def test_a_linear_head_starts_as_the_ridge_map(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(240, seed=1)
    hardly = dataclasses.replace(QUICK, epochs=1, learning_rate=1e-12)
    head = train_head(old, new, experiment(recipe=hardly), tmp_path / "ridge")
    mapped = build_adapter("ridge", {}).fit(old, new).apply(new)
    np.testing.assert_allclose(head.query(new).vectors, mapped.vectors, atol=2e-6)
    start = ridge_start(old, new)
    lengths = torch.linalg.vector_norm(head.release.encoder(torch.from_numpy(np.array(new.vectors))), dim=1)
    weights = build_adapter("ridge", {}).fit(old, new).fitted.state["weights"]
    expected = math.sqrt(8) * np.linalg.norm(new.vectors @ weights[:-1] + weights[-1], axis=1)
    np.testing.assert_allclose(lengths.detach().numpy(), expected, rtol=1e-4)
    assert head.release.record.initial_weights == f"sha256 {weights_digest(start)}"
    other = train_head(old, new, experiment(recipe=hardly), tmp_path / "random", start="random")
    assert other.release.record.initial_weights is None


def test_the_independent_head_and_one_of_two_layers_start_at_random(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    alone = train_head(old, new, experiment("independent"), tmp_path / "alone")
    deep = train_head(old, new, experiment(model=EncoderSpec(projection="mlp")), tmp_path / "deep")
    assert alone.release.record.initial_weights is None and deep.release.record.initial_weights is None
    assert alone.release.record.compatible_with is None


def test_only_directions_of_the_new_model_count(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    head = train_head(old, new, experiment(), tmp_path)
    lengths = np.linspace(0.1, 9, len(new), dtype=np.float32)[:, None]
    stretched = new.replace(vectors=new.vectors * lengths, form="features")
    np.testing.assert_allclose(head.query(stretched).vectors, head.query(new).vectors, atol=1e-6)


def test_items_are_paired_by_id_and_classes_by_name(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    order = np.random.default_rng(5).permutation(len(new))
    names = [*(f"class {c}" for c in reversed(range(CLASSES))), "nobody's"]
    renamed = old.replace(labels=CLASSES - 1 - old.labels, class_names=names)
    first = train_head(old, new, experiment(), tmp_path / "first")
    second = train_head(renamed[order], new, experiment(), tmp_path / "second")
    assert first.release.fingerprint == second.release.fingerprint
    assert first.release.classes == tuple(f"class {c}" for c in range(CLASSES))
    only_old = train_head(old, frozen(120, seed=1, labels=False)[1], experiment(), tmp_path / "third")
    assert only_old.release.fingerprint == first.release.fingerprint


def test_a_finished_head_is_loaded_and_other_settings_are_refused(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    steps: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"frozen_model": {"model": "b", "query_prefix": "find: "}, "progress": steps.append}
    first = train_head(old, new, experiment(), tmp_path, **settings)
    trained = len(steps)
    assert trained == 3 * (120 // 32)
    assert train_head(old, new, experiment(), tmp_path, **settings).release.fingerprint == first.release.fingerprint
    assert len(steps) == trained
    assert load_release(tmp_path).record.frozen_model == {"model": "b", "query_prefix": "find: "}
    with pytest.raises(ConfigError, match="already holds a release made with other settings: method"):
        train_head(old, new, experiment("bct"), tmp_path, **settings)


def test_a_method_of_the_lorentz_space_gets_the_old_gallery_lifted(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    head = train_head(old, new, experiment("hbct"), tmp_path)
    gallery = head.gallery(old)
    assert head.old is not None and isinstance(gallery.space, Lorentz) and head.query(new).space == gallery.space
    np.testing.assert_allclose(np.arcsinh(np.linalg.norm(gallery.vectors, axis=1)), 1.0, rtol=1e-5)  # all at ζ = 1
    assert head.release.record.compatible_with == gallery.fingerprint == head.old.fingerprint
    farther = experiment("hbct", geometry=Geometry(lift_old=2.0))
    train_head(old, new, farther, tmp_path / "farther")
    (tmp_path / "old-lifted").rename(tmp_path / "aside")
    with pytest.raises(ReleaseError, match="holds nothing; the head searches"):
        load_head(tmp_path)
    shutil.copytree(tmp_path / "farther" / "old-lifted", tmp_path / "old-lifted")
    with pytest.raises(ReleaseError, match="the head searches the gallery of"):
        load_head(tmp_path)


def test_the_frozen_model_is_a_predecessor_with_the_classifier_of_its_class_means(frozen: Callable[..., Any]) -> None:
    old, _ = frozen(120, seed=1)
    items = compatible_head.VectorSet.of(old)
    release = frozen_release(items)
    assert release.fingerprint == old.fingerprint and release.classes == items.class_names and release.head is not None
    means = np.stack([unit(old.vectors[old.labels == c].mean(axis=0, keepdims=True))[0] for c in range(CLASSES)])
    np.testing.assert_allclose(release.head.weight.numpy(), means, atol=1e-6)
    assert release.head.scale == 20
    np.testing.assert_array_equal(embed_features(release, old, form="features").vectors, old.vectors)


def test_wrong_uses_are_refused(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(60, seed=1)
    unlabelled = frozen(60, seed=1, labels=False)
    with pytest.raises(DataError, match="have no labels"):
        train_head(*unlabelled, experiment(), tmp_path)
    with pytest.raises(EmptyOverlapError):
        train_head(old, frozen(60, seed=2)[1], experiment(), tmp_path)
    with pytest.raises(DataError, match=r"60 items have different labels in two sets: '1-0'"):
        train_head(old.replace(labels=(old.labels + 1) % CLASSES), new, experiment(), tmp_path)
    with pytest.raises(DataError, match="vectors show 1 class"):
        train_head(*(side[np.flatnonzero(side.labels == 0)] for side in (old, new)), experiment(), tmp_path)
    with pytest.raises(ConfigError, match="Random changes of images"):
        flips = dataclasses.replace(QUICK, augmentation=Augmentation(flip=True))
        train_head(old, new, experiment(recipe=flips), tmp_path)
    with pytest.raises(ConfigError, match="start='zero'"):
        train_head(old, new, experiment(), tmp_path, start="zero")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="learns in sessions"):
        train_head(old, new, experiment("cvs"), tmp_path)
    curved = EmbeddingSet(new.vectors, new.ids, "declared:c", Lorentz(12, 1.0), labels=new.labels)
    with pytest.raises(SpaceMismatchError, match="new embeddings are on the Lorentz"):
        train_head(old, curved, experiment(), tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_head_reads_its_own_model_only(frozen: Callable[..., Any], tmp_path: Path) -> None:
    old, new = frozen(60, seed=1)
    head = train_head(old, new, experiment(), tmp_path)
    with pytest.raises(ReleaseError, match="Embeddings of declared:a for a head over declared:b"):
        head.query(old)
    with pytest.raises(DataError, match=r"\(batch, 12\)"):
        head.release.encoder(torch.zeros(2, 8))


def test_embeddings_of_another_model_are_refused_even_of_the_same_width(
    frozen: Callable[..., Any], tmp_path: Path
) -> None:
    old, new = frozen(60, seed=1)
    head = train_head(old, new, experiment(), tmp_path)
    with pytest.raises(ReleaseError, match="Embeddings of declared:c for a head over declared:b"):
        head.query(new.replace(fingerprint="declared:c"))
    with pytest.raises(ReleaseError, match="for a convnet that reads items"):
        embed_features(make_release(build_network(EncoderSpec(dim=12)), Hypersphere(12)), new)
    with pytest.raises(DataError, match=r"Embeddings of shape \(1, 2, 12\)"):
        head.release.encoder(torch.zeros(1, 2, 12))
    with pytest.raises(ConfigError, match="A backbone for a network over a frozen model"):
        build_network(head.release.encoder.spec, freeze_backbone=True)


def test_embeddings_are_carried_over_in_blocks(
    frozen: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = frozen(60, seed=1)
    head = train_head(old, new, experiment(), tmp_path)
    whole = head.query(new)
    monkeypatch.setattr(encode, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(head.query(new).vectors, whole.vectors, atol=1e-6)


def test_few_items_are_trained_on_in_small_batches() -> None:
    assert [head_recipe(items).batch_size for items in (10, 800, 4096, 10**6)] == [32, 50, 256, 256]
    assert dataclasses.replace(head_recipe(800), batch_size=256) == HEAD_RECIPE


def test_the_rate_falls_with_a_width_that_is_given() -> None:
    rates = [head_recipe(10**6, width).learning_rate for width in (0, 1, 384, 768, 1280)]
    assert rates == [0.004, 0.004, 0.004, 0.002, 0.0012]
    assert dataclasses.replace(head_recipe(10**6, 768), learning_rate=0.004) == HEAD_RECIPE


def test_what_has_no_label_is_found_as_well_as_before(frozen: Frozen, tmp_path: Path) -> None:
    old, new = frozen(480, seed=1)
    known = np.flatnonzero(old.labels < CLASSES // 2)
    rest = np.flatnonzero(old.labels >= CLASSES // 2)
    unlabelled = tuple(side[rest].replace(labels=None, class_names=None) for side in (old, new))
    (_, query), (gallery, _) = frozen(120, seed=3), frozen(240, seed=2)
    others = query[np.flatnonzero(query.labels >= CLASSES // 2)]
    recipe = dataclasses.replace(HEAD_RECIPE, epochs=10, batch_size=64, schedule="constant")
    found = {}
    for name, weight in (("free", 0.0), ("kept", 100.0)):
        how = experiment(
            "keep", method_options={"weight": weight}, recipe=recipe, model=EncoderSpec(projection="residual"),
            head="normalised", head_options={"temperature": 1 / 6},
        )  # fmt: skip
        head = train_head(old[known], new[known], how, tmp_path / name, unlabelled=(unlabelled[0], unlabelled[1]))
        found[name] = mean_precision(head.query(others), head.gallery(gallery))
        again = load_head(tmp_path / name)
        np.testing.assert_array_equal(again.gallery(gallery).vectors, head.gallery(gallery).vectors)
    assert found["kept"] > found["free"] + 0.02, found


def test_methods_that_need_labels_are_not_shown_items_without(frozen: Frozen, tmp_path: Path) -> None:
    old, new = frozen(240, seed=1)
    rows, rest = np.arange(160), np.arange(160, 240)
    without = tuple(side[rest].replace(labels=None, class_names=None) for side in (old, new))
    alone = train_head(old[rows], new[rows], experiment("l2"), tmp_path / "alone")
    shown = train_head(old[rows], new[rows], experiment("l2"), tmp_path / "shown", unlabelled=(without[0], without[1]))
    assert alone.release.fingerprint == shown.release.fingerprint
    items = VectorSet.of(new[rows], without[1])
    with pytest.raises(ConfigError, match="80 vectors whose class nobody knows"):
        train_release(items, dataclasses.replace(alone_experiment(new), method="independent"), tmp_path / "refused")


def alone_experiment(new: EmbeddingSet) -> Experiment:
    return experiment("independent", model=FeatureSpec(frozen=new.fingerprint, width=new.dim, dim=new.dim))


def test_no_adapter_or_another_one_beside_a_head_is_refused(frozen: Frozen, tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    train_head(old, new, experiment("keep"), tmp_path / "one")
    train_head(old, new, dataclasses.replace(experiment("keep"), seed=1), tmp_path / "two")
    shutil.rmtree(tmp_path / "one" / GALLERY_ADAPTER)
    with pytest.raises(ReleaseError, match="nothing takes the old gallery to it"):
        load_head(tmp_path / "one")
    shutil.copytree(tmp_path / "two" / GALLERY_ADAPTER, tmp_path / "one" / GALLERY_ADAPTER)
    with pytest.raises(ReleaseError, match="takes galleries to"):
        load_head(tmp_path / "one")


def both_sides(**values: Any) -> Experiment:
    recipe = dataclasses.replace(HEAD_RECIPE, batch_size=64, schedule="constant")
    return experiment(
        "both_sides", recipe=recipe, model=EncoderSpec(projection="residual"), head="normalised",
        head_options={"temperature": 1 / 6}, **values,
    )  # fmt: skip


def test_the_map_of_the_gallery_is_learnt_with_the_head(frozen: Frozen, tmp_path: Path) -> None:
    old, new = frozen(240, seed=1)
    head = train_head(old, new, both_sides(), tmp_path / "one")
    assert head.adapter is not None and head.adapter.kind == "residual_mlp"
    learnt = load_carried(tmp_path / "one")
    np.testing.assert_allclose(head.adapter.fitted.state["outer"], learnt["outer"].numpy(), rtol=1e-6)
    assert learnt["outer"].any() and head.adapter.fitted.pairs == 240
    (gallery, _), (_, query) = frozen(120, seed=2), frozen(60, seed=3)
    ridge = build_adapter("ridge", {"direction": "old_to_new"}).fit(old, new)
    without = mean_precision(query, ridge.apply(gallery))
    assert mean_precision(head.query(query), head.gallery(gallery)) > without + 0.02
    again = load_head(tmp_path / "one")
    np.testing.assert_array_equal(again.gallery(gallery).vectors, head.gallery(gallery).vectors)
    shutil.rmtree(tmp_path / "one" / GALLERY_ADAPTER)  # as if it was stopped just before
    assert train_head(old, new, both_sides(), tmp_path / "one").adapter.fingerprint == head.adapter.fingerprint


def test_other_vectors_of_the_old_model_make_another_head(frozen: Frozen, tmp_path: Path) -> None:
    old, new = frozen(120, seed=1)
    train_head(old, new, both_sides(), tmp_path)
    turned = old.replace(vectors=old.vectors[:, ::-1].copy())
    with pytest.raises(ConfigError, match="other settings: data"):
        train_head(turned, new, both_sides(), tmp_path)
    assert "gallery digest" in load_release(tmp_path).record.data
    train_head(old, new, experiment("keep"), tmp_path / "keep")
    assert "gallery digest" not in load_release(tmp_path / "keep").record.data


@pytest.mark.parametrize("method", ["both_sides", "keep"])
def test_a_gallery_goes_to_the_head_without_embedding_and_back(frozen: Frozen, tmp_path: Path, method: str) -> None:
    old, new = frozen(240, seed=1)
    head = train_head(old, new, dataclasses.replace(both_sides(), method=method), tmp_path)
    (stored, fresh), (asks, query) = frozen(60, seed=2), frozen(10, seed=3)
    with Gallery.create("memory://", fingerprint=old.fingerprint, space=old.space) as gallery:
        gallery.add(stored.replace(labels=None, class_names=None))
        before = gallery.search(asks, 5).hits
        gallery.start(head.release.fingerprint, head.release.space, adapter=tmp_path / GALLERY_ADAPTER)
        gallery.swap()
        found = gallery.search(head.query(query), 5).hits
        scores = head.query(query).vectors @ head.gallery(stored).vectors.T
        expected = [[stored.ids[int(row)] for row in np.argsort(-row_scores)[:5]] for row_scores in scores]
        assert [[hit.id for hit in hits] for hits in found] == expected
        own = head.query(fresh)
        gallery.backfill(FileVectors([save(own, tmp_path / "own.safetensors")]))
        scores = head.query(query).vectors @ own.vectors.T
        first = [stored.ids[int(row)] for row in scores.argmax(axis=1)]
        assert [hits[0].id for hits in gallery.search(head.query(query), 1).hits] == first
        gallery.rollback()
        assert gallery.search(asks, 5).hits == before


@pytest.mark.parametrize("method", ["both_sides", "keep"])
def test_both_parts_of_a_head_that_stays_are_exported(frozen: Frozen, tmp_path: Path, method: str) -> None:
    old, new = frozen(240, seed=1)
    head = train_head(old, new, dataclasses.replace(both_sides(), method=method), tmp_path / "head")
    assert head.adapter is not None
    (stored, _), (_, query) = frozen(60, seed=2), frozen(10, seed=3)
    parts = (
        (of_release(head.release), query, head.query(query)),
        (of_adapter(head.adapter), stored, head.gallery(stored)),
    )
    for number, (model, given, expected) in enumerate(parts):
        known = formats(None)
        folder = export(model, known["npz"], tmp_path / str(number), list(known.values())).folder
        np.testing.assert_allclose(Map(folder)(np.asarray(given.vectors)), expected.vectors, atol=1e-6)


def test_the_adapter_of_two_steps_is_not_fitted_on_pairs_that_are_likely_wrong(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = frozen(480, seed=1)
    rng = np.random.default_rng(0)
    partner, moved = np.arange(480), rng.permutation(480)[:240]
    partner[moved] = np.roll(moved, 1)
    mixed = old.replace(vectors=np.asarray(old.vectors)[partner])
    head = train_head(mixed, new, experiment("keep"), tmp_path / "guarded")
    assert head.adapter is not None and 200 < head.adapter.fitted.pairs < 300
    (gallery, _), (_, query) = frozen(120, seed=2), frozen(60, seed=3)
    guarded = mean_precision(head.query(query), head.gallery(gallery))
    monkeypatch.setattr("limpet.training.compatible_head.without_doubtful", lambda old, new, **_: (old, new))
    head = train_head(mixed, new, experiment("keep"), tmp_path / "trusting")
    assert head.adapter is not None and head.adapter.fitted.pairs == 480
    assert guarded > mean_precision(head.query(query), head.gallery(gallery))
