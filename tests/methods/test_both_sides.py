"""The method `both_sides`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from limpet.adapters.ridge import Ridge
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.methods.base import Batch, OldModel, Step
from limpet.methods.both_sides import BothSides
from limpet.models.heads import NormalisedHead

Floats = NDArray[np.float64]
Made = Callable[..., EmbeddingSet]


def unit(rows: Any) -> Floats:
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def two_models(make: Made, items: int = 120, dim: int = 4) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return what a new model of 6 dimensions and an older one of some make of the same items."""
    rng = np.random.default_rng(0)
    new = rng.normal(size=(items, 6))
    old = new @ rng.normal(size=(6, dim)) + 0.1 * rng.normal(size=(items, dim))
    labels, ids = np.arange(items) % 3, [f"{row:04}" for row in range(items)]  # in order: pairs are sorted by id
    return make(new, labels, ids=ids), make(old, labels, ids=ids, fingerprint="declared:older")


def prepared(frozen: EmbeddingSet, gallery: EmbeddingSet, **options: Any) -> BothSides:
    """Return the method before its first step, its hidden layer no longer silent."""
    torch.manual_seed(0)
    method = BothSides(**{"dropout": 0.0} | options)
    known = OldModel(embeddings=frozen, classes=("c0", "c1", "c2"), gallery=gallery)
    method.prepare(known, torch.nn.Identity(), NormalisedHead(3, 6), Hypersphere(6))
    torch.nn.init.normal_(method.gallery_map.outer, std=0.3)
    return method


def step_of(make_step: Any, frozen: EmbeddingSet, rows: list[int], labels: list[int]) -> tuple[Step, torch.Tensor]:
    before = torch.from_numpy(np.array(frozen.vectors[rows]))
    new = (before + 0.3 * torch.randn(before.shape, generator=torch.Generator().manual_seed(1))).requires_grad_()
    head = NormalisedHead(3, 6, temperature=0.5)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(2))
    return make_step(new, torch.tensor(labels), head, before, index=torch.tensor(rows)), new


def cross_entropy(points: Floats, weights: Floats, labels: list[int]) -> float:
    """Return the mean over the rows with a class of minus the logarithm of their share."""
    losses = []
    for point, label in zip(points, labels, strict=True):
        if label >= 0:
            scores = [float(point @ weight) / 0.5 for weight in weights]
            losses.append(np.log(sum(map(np.exp, scores))) - scores[label])
    return float(np.mean(losses)) if losses else 0.0


def kept(points: Floats, before: Floats, labels: list[int]) -> float:
    """Return the mean squared change of the similarities among rows without a class."""
    rows = [row for row, label in enumerate(labels) if label < 0]
    squares = [(points[i] @ points[j] - before[i] @ before[j]) ** 2 for i in rows for j in rows]
    return float(np.mean(squares)) if squares else 0.0


@pytest.mark.parametrize("labels", [[0, -1, 1, -1, -1, 2, 0], [-1] * 7, [0, 1, 2, 0, 1, 2, 0]])
def test_against_loops(make_step: Any, make_embeddings: Made, labels: list[int]) -> None:
    frozen, gallery = two_models(make_embeddings)
    method, rows = (
        prepared(frozen, gallery, weight=2.0, keep=3.0, scale=5.0, doubt=1.0, dropout=0.0),
        [3, 9, 4, 50, 51, 8, 30],
    )
    step, _ = step_of(make_step, frozen, rows, labels)
    terms = {name: term.item() for name, term in method(step).items()}
    state = {name: values.double().numpy() for name, values in method.carried().items()}
    stored, mapped = unit(gallery.vectors[rows]), []
    for row in stored:
        inner = torch.from_numpy(row @ state["inner"] + state["inner_offset"])
        active = torch.nn.functional.gelu(inner).numpy()
        moved = active @ state["outer"] + state["outer_offset"]
        mapped.append(row @ state["skip"] + state["skip_offset"] + moved)
    g, h, before = unit(mapped), unit(step.new.features.detach()), unit(frozen.vectors[rows])
    weights = unit(step.head.weight.detach())
    losses = []
    for i, label in enumerate(labels):
        others = [j for j in range(7) if j == i or label < 0 or labels[j] != label]
        scores = {j: float(h[i] @ g[j]) * 5 for j in others}
        losses.append(np.log(sum(map(np.exp, scores.values()))) - scores[i])
    assert terms["contrast"] == pytest.approx(2 * np.mean(losses), rel=1e-5)
    assert terms["task"] == pytest.approx(cross_entropy(h, weights, labels), rel=1e-5)
    assert terms["gallery_task"] == pytest.approx(cross_entropy(g, weights, labels), rel=1e-5)
    assert terms["keep"] == pytest.approx(3 * (kept(h, before, labels) + kept(g, before, labels)), rel=1e-4)


def test_the_map_starts_as_the_ridge_map(make_embeddings: Made) -> None:
    frozen, gallery = two_models(make_embeddings)
    method = BothSides(doubt=1.0)
    known = OldModel(embeddings=frozen, classes=(), gallery=gallery)
    method.prepare(known, torch.nn.Identity(), NormalisedHead(3, 6), Hypersphere(6))
    points = [side.replace(vectors=unit(side.vectors).astype(np.float32), form="points") for side in (gallery, frozen)]
    found = method.gallery_adapter(method.carried(), points[0], points[1].replace(fingerprint="declared:new"))
    expected = Ridge("old_to_new").fit(points[0], points[1].replace(fingerprint="declared:new"))
    np.testing.assert_allclose(found.map(gallery.vectors), expected.map(gallery.vectors), atol=1e-6)


def test_the_adapter_computes_what_was_learnt(make_embeddings: Made) -> None:
    frozen, gallery = two_models(make_embeddings)
    method = prepared(frozen, gallery, hidden=5)
    adapter = method.gallery_adapter(method.carried(), gallery, frozen.replace(fingerprint="declared:new"))
    images = unit(method.gallery_map(method.vectors).detach())
    np.testing.assert_allclose(adapter.map(gallery.vectors), images, atol=1e-6)
    assert adapter.options["hidden"] == 5 and adapter.direction == "old_to_new"
    assert (adapter.fitted.source, adapter.fitted.target) == ("declared:older", "declared:new")
    assert not BothSides().carried()


def test_pairs_of_different_items_teach_neither_side(make_step: Any, make_embeddings: Made) -> None:
    frozen, gallery = two_models(make_embeddings, items=400, dim=8)
    swapped = np.arange(400)
    swapped[:100] = np.roll(swapped[:100], 1)
    method = prepared(frozen, gallery.replace(vectors=gallery.vectors[swapped]))
    assert method.trusted[:100].float().mean() < 0.15 and method.trusted[100:].float().mean() > 0.9
    wrong, right = ((method.trusted == state).nonzero()[:4, 0].tolist() for state in (False, True))
    step, new = step_of(make_step, frozen, [*wrong, *right], [0, -1, 1, -1, 1, -1, 2, -1])
    terms = method(step)
    told = torch.autograd.grad(terms["contrast"], new, retain_graph=True)[0].norm(dim=1)
    assert (told[:4] == 0).all() and (told[4:] > 0).all()
    alone = method(step_of(make_step, frozen, right, [1, -1, 2, -1])[0])
    assert terms["gallery_task"].item() == pytest.approx(alone["gallery_task"].item(), rel=1e-5)
    assert prepared(frozen, gallery, doubt=1.0).trusted.all()


def test_both_maps_see_another_part_of_every_vector(make_step: Any, make_embeddings: Made) -> None:
    frozen, gallery = two_models(make_embeddings)
    method, rows = prepared(frozen, gallery, dropout=0.4, doubt=1.0), torch.arange(120)
    batch = Batch(torch.ones(120, 6), rows % 3, rows, rows < 0)
    seen = method.change_inputs(batch, torch.Generator().manual_seed(3))
    assert seen.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert (seen == 0).float().mean().item() == pytest.approx(0.4, abs=0.06)
    assert len(seen.unique(dim=0)) > 30  # another part of every row
    step, _ = step_of(make_step, frozen, rows.tolist(), (rows % 3).tolist())
    thinned = (
        gallery.vectors
        * method.change_inputs(batch._replace(inputs=torch.ones(120, 4)), torch.Generator().manual_seed(7)).numpy()
        / np.linalg.norm(gallery.vectors, axis=1, keepdims=True)
    )
    found = method(dataclasses.replace(step, generator=torch.Generator().manual_seed(7)))["contrast"].item()
    method.dropout, method.vectors = 0.0, torch.from_numpy(thinned).float()
    assert found == pytest.approx(method(step)["contrast"].item(), rel=1e-5)


def test_all_is_seen_outside_training_and_without_dropout(make_embeddings: Made) -> None:
    method = prepared(*two_models(make_embeddings), dropout=0.25)
    batch = Batch(torch.ones(5, 6), *[torch.zeros(5, dtype=torch.int64)] * 3)
    for inputs in (torch.ones(5, 3, 2, 2), torch.ones(5, 3, 2, 2, dtype=torch.uint8), torch.ones(5, 6).long()):
        assert method.change_inputs(batch._replace(inputs=inputs), torch.Generator()) is inputs
    assert method.change_inputs(batch, torch.Generator()) is not batch.inputs
    assert method.eval().change_inputs(batch, torch.Generator()) is batch.inputs
    whole = prepared(*two_models(make_embeddings))
    assert whole.change_inputs(batch, torch.Generator()) is batch.inputs


@pytest.mark.parametrize(
    ("option", "value"),
    [("weight", -1), ("keep", -0.1), ("scale", 0), ("hidden", 0), ("doubt", 1.5), ("dropout", 1), ("dropout", -0.1)],
)
def test_wrong_options_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{option}={value}"):
        BothSides(**{option: value})
