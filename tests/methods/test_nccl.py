"""Consensus with the old neighbourhood: reference numbers through the real queue, and what the queue holds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn, tensor

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS, nccl
from limpet.methods.base import Head, OldModel, View
from limpet.methods.nccl import (
    NCCL,
    assignment_entropy,
    class_spread,
    consensus_contrast,
    consensus_weights,
    credible_items,
    entropy_limit,
    kept_similarity,
    low_entropy_rows,
)

PRECISIONS = [(torch.float64, 1e-7, 1e-7), (torch.float32, 1e-4, 1e-5)]


class Given(Head):
    """Answers with the scores it was last given."""

    scores: torch.Tensor

    def logits(self, view: View) -> torch.Tensor:
        return self.scores


class Linear(Head):
    """Raw inner products with fixed rows."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def logits(self, view: View) -> torch.Tensor:
        return view.features @ self.weight.to(view.features.dtype).T


class Forbidden(Head):
    """A classifier whose scores nobody may ask for."""

    def logits(self, view: View) -> torch.Tensor:
        raise AssertionError("scores were computed")

    def loss(self, view: View, labels: torch.Tensor) -> torch.Tensor:
        return view.features.sum() * 0


@pytest.fixture
def prepared(world: SimpleNamespace) -> Any:
    """Build and prepare a method on the small world, all items credible unless asked otherwise."""

    def build(old: OldModel | None = None, **options: Any) -> NCCL:
        method = NCCL(**{"credible_only": False, "scores": "printed", **options})
        method.prepare(old or world.old, nn.Identity(), world.head, world.space)
        return method

    return build


@pytest.fixture
def step_of(world: SimpleNamespace, make_step: Any) -> Any:
    """A step on some rows of the small world."""

    def build(rows: Any, **values: Any) -> Any:
        rows = np.asarray(rows)
        old = torch.from_numpy(np.array(world.embeddings.vectors[rows]))
        noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(1))
        new = (values.pop("new", old + noise)).clone().requires_grad_()
        values = {"index": torch.from_numpy(rows), "head": world.head, **values}
        return make_step(new, world.labels[rows], old=old, **values)

    return build


@pytest.mark.parametrize(("dtype", "rtol", "atol"), PRECISIONS)
def test_reference_numbers(golden, make_step, make_embeddings, dtype, rtol, atol) -> None:
    g = golden("nccl")
    options = {"logit_weight": float(g["logit_weight"]), "scores": "printed", "temperature": float(g["temp"])}
    method = METHODS["nccl"](queue_size=int(g["queue_size"]), credible_only=False, **options)
    names = [f"c{c}" for c in range(g["logit_old_0"].shape[1])]
    old = OldModel(make_embeddings(np.eye(5, 6) + 0.1, np.arange(5), names=names), names, Given())
    method.prepare(old, nn.Identity(), Given(), Hypersphere(g["z_new_0"].shape[1]))
    method, head = method.to(dtype), Given()
    for s in range(4):
        z, logits = (tensor(g[f"{name}_{s}"], dtype=dtype).requires_grad_() for name in ("z_new", "logit_new"))
        head.scores, method.classifier.scores = logits, tensor(g[f"logit_old_{s}"], dtype=dtype)
        terms = method(make_step(z, g[f"labels_{s}"], head, tensor(g[f"z_old_{s}"], dtype=dtype)))
        found = {"l_embed": terms["consensus"], "l_logit": terms["logit_consensus"] / options["logit_weight"]}
        for name, value in found.items():
            np.testing.assert_allclose(value.detach(), g[f"{name}_{s}"], rtol=rtol, atol=atol)
        total = terms["consensus"] + terms["logit_consensus"]
        for name, gradient in zip(("z_new", "logit_new"), torch.autograd.grad(total, (z, logits)), strict=True):
            np.testing.assert_allclose(gradient, g[f"grad_{name}_{s}"], rtol=rtol, atol=atol)


def test_the_queue_forgets_the_oldest_first(prepared, step_of, world) -> None:
    method = prepared(queue_size=7)
    for rows, held in (
        ([0, 8, 16], [0, 8, 16, -1, -1, -1, -1]),
        ([1, 9, 17], [0, 8, 16, 1, 9, 17, -1]),
        ([2, 10, 18], [10, 18, 16, 1, 9, 17, 2]),
        (np.arange(9), [7, 8, 2, 3, 4, 5, 6]),  # more than the queue holds: the last seven
    ):
        method(step_of(rows))
        filled = torch.tensor(held) >= 0
        vectors = torch.nn.functional.normalize(torch.from_numpy(world.embeddings.vectors[held]), dim=1)
        torch.testing.assert_close(method.queue_points[filled], vectors[filled])
        expected = torch.where(filled, torch.from_numpy(world.labels[held]), -1)
        assert torch.equal(method.queue_labels, expected)
        scores = world.old.head.weight.detach() @ torch.from_numpy(world.embeddings.vectors[held]).T
        torch.testing.assert_close(method.queue_logits[filled], scores.T[filled].flip(1))  # rows c0, c1, c2, c3
        assert not method.queue_logits[~filled].any()
    assert method.position.item() == (3 + 3 + 3 + 7) % 7


def scores_by_name(old: OldModel, head: Head, step: Any, rows: np.ndarray, kept: int | None) -> torch.Tensor:
    """Inner products over the shared classes, the old scores cut to the k largest: one pair at a time."""
    found = torch.zeros(len(step.labels), len(rows), dtype=torch.float64)
    old_weights = dict(zip(old.classes, old.head.weight.detach().numpy(), strict=True))
    new_weights = dict(zip(old.embeddings.class_names, head.weight.detach().numpy(), strict=True))
    for j, row in enumerate(rows):
        shared = old_weights.keys() & new_weights.keys()
        scores = {name: float(old_weights[name] @ old.embeddings.vectors[row]) for name in shared}
        largest = sorted(scores.items(), key=lambda score: -score[1])[:kept]
        for i, features in enumerate(step.new.features.detach().numpy()):
            found[i, j] = sum(score * float(new_weights[name] @ features) for name, score in largest)
    return found


@pytest.mark.parametrize("classes", [("c3", "c2", "c1", "c0"), ("c5", "c2", "gone", "c4")])
@pytest.mark.parametrize("kept", [None, 1, 2, 3, 9])
def test_scores_of_shared_classes_by_a_slow_loop(prepared, step_of, world, kept, classes) -> None:
    """The classifiers share some classes only, and count them in different orders."""
    rows = np.array([0, 9, 25, 47, 33])
    old = OldModel(world.embeddings, classes, world.old.head)
    method = prepared(old, kept_logits=kept, queue_size=5, logit_weight=1.0)
    step = step_of(rows)
    terms = method(step)
    scores = scores_by_name(old, world.head, step, rows, kept)
    found = method.logit_similarity(step.head.logits(step.new)).double()
    torch.testing.assert_close(found, scores, rtol=1e-4, atol=1e-4)
    weights = consensus_weights(step.predecessor.points, step.labels, method.queue_points, method.queue_labels)
    expected = consensus_contrast(scores, weights.double(), torch.ones(5, dtype=torch.bool))
    torch.testing.assert_close(terms["logit_consensus"].double(), expected, rtol=1e-4, atol=1e-4)
    assert method.dense == (kept is None or kept >= 4 - classes.count("gone"))


def test_keeping_all_scores_that_count_is_exact(world, step_of) -> None:
    """The last class scores 0 and the others more, so that the largest five of six are all there is."""
    weight = world.head.weight.detach().clone()
    weight[5] = 0
    results = []
    for kept in (None, 5):
        method = NCCL(credible_only=False, scores="printed", kept_logits=kept, logit_weight=1.0)
        old = OldModel(world.embeddings, world.embeddings.class_names, Linear(weight))
        method.prepare(old, nn.Identity(), world.head, world.space)
        method.classifier.logits = lambda view: (view.features @ weight.T).abs()
        step = step_of(np.arange(0, 48, 3))
        loss = method(step)["logit_consensus"]
        results.append((method.dense, loss, torch.autograd.grad(loss, step.new.features)[0]))
    (dense, *first), (cut, *second) = results
    assert dense and not cut
    torch.testing.assert_close(first, second)


def test_many_classes_keep_their_largest_scores(prepared, monkeypatch) -> None:
    assert prepared().queue_logits.shape == (2048, 4)
    monkeypatch.setattr(nccl, "KEPT_BEYOND", 3)
    monkeypatch.setattr(nccl, "DENSE_CLASSES", 4)
    assert prepared().dense
    monkeypatch.setattr(nccl, "DENSE_CLASSES", 3)
    assert prepared().queue_columns.shape == (2048, 3)
    assert prepared(kept_logits=4).dense


def test_embeddings_that_are_not_credible_take_no_part(prepared, step_of, world) -> None:
    rows = np.arange(0, 48, 3)
    method, plain = prepared(credible_only=True), prepared()
    method.credible = torch.arange(48) % 2 == 0
    step, credible = step_of(rows), rows % 2 == 0
    terms = method(step)
    torch.testing.assert_close(method.queue_labels[: len(rows)] >= 0, torch.from_numpy(credible))
    expected = plain(step_of(rows[credible], new=step.new.features.detach()[credible]))
    for name in ("consensus", "logit_consensus"):
        torch.testing.assert_close(terms[name], expected[name])
        gradient = torch.autograd.grad(terms[name], step.new.features, retain_graph=True)[0]
        assert gradient[credible].any(dim=1).all() and not gradient[~credible].any()
    torch.testing.assert_close(terms["task"], world.head.loss(step.new, step.labels))


def test_credible_items_are_measured_on_unit_vectors(world) -> None:
    lengths = np.random.default_rng(0).uniform(0.1, 10, (48, 1)).astype(np.float32)
    stretched = world.embeddings.replace(vectors=world.embeddings.vectors * lengths)
    before = stretched.vectors.copy()
    found = [credible_items(OldModel(embeddings, ()), world.space) for embeddings in (world.embeddings, stretched)]
    assert torch.equal(*found) and found[0].any()
    np.testing.assert_array_equal(stretched.vectors, before)


def test_credibility_can_be_switched_off(prepared) -> None:
    assert "credible" in prepared(credible_only=True).state_dict()
    assert "credible" not in prepared().state_dict()


def test_an_old_model_that_nobody_can_believe_is_refused(world) -> None:
    same = world.embeddings.replace(vectors=np.ones_like(world.embeddings.vectors))
    with pytest.raises(ConfigError, match=r"--method-options\.credible-only false"):
        NCCL(logit_weight=0.0).prepare(OldModel(same, ()), nn.Identity(), world.head, world.space)


@pytest.mark.parametrize("missing", ["classifier", "shared classes"])
def test_scores_need_an_old_classifier_of_shared_classes(world, prepared, missing: str) -> None:
    old = OldModel(world.embeddings, ("x", "y", "z", "w"), None if missing == "classifier" else world.old.head)
    with pytest.raises(ConfigError, match=r"--method-options\.scores unit"):
        prepared(old)
    assert not {"queue_logits", "old_columns"} & set(prepared(old, logit_weight=0.0).state_dict())
    assert prepared(old, scores="unit").queue_logits.shape == (2048, len(world.head.weight))


def test_without_their_weight_no_scores_are_computed(prepared, step_of, world) -> None:
    old = OldModel(world.embeddings, world.old.classes, Forbidden())
    terms = prepared(old, logit_weight=0.0)(step_of([0, 8], head=Forbidden()))
    assert list(terms) == ["task", "consensus"]


def test_weights_multiply_their_terms(prepared, step_of) -> None:
    plain, weighed = (prepared(**options)(step_of([0, 1, 8])) for options in ({}, {"weight": 3.0, "logit_weight": 0.5}))
    assert list(plain) == ["task", "consensus", "logit_consensus"]
    torch.testing.assert_close(weighed["task"], plain["task"])
    torch.testing.assert_close(weighed["consensus"], 3 * plain["consensus"])
    torch.testing.assert_close(weighed["logit_consensus"], 3 * 50 * plain["logit_consensus"])


def test_the_old_classifier_is_a_frozen_copy(prepared, world) -> None:
    method = prepared()
    assert method.classifier is not world.old.head
    assert not any(parameter.requires_grad for parameter in method.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"weight": -1.0},
        {"logit_weight": -0.1},
        {"temperature": 0.0},
        {"queue_size": 0},
        {"kept_logits": 0},
    ],
)
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NCCL(**options)


def unit_scores(head: Head, features: torch.Tensor) -> np.ndarray:
    """Scores of the new classifier, of length 1: one row at a time."""
    rows = (head.weight.detach() @ row for row in features.detach())
    return np.stack([(scores / scores.norm()).numpy() for scores in rows])


@pytest.mark.parametrize("kept", [None, 2])
def test_by_default_the_new_classifier_scores_both(step_of, world, kept) -> None:
    """By a slow loop; the old model has no classifier and shares no class."""
    rows = np.array([0, 9, 25, 47, 33])
    old = OldModel(world.embeddings, ("x", "y"), None)
    method = NCCL(credible_only=False, kept_logits=kept, queue_size=5, logit_weight=1.0)
    method.prepare(old, nn.Identity(), world.head, world.space)
    step = step_of(rows)
    terms = method(step)
    new, queued = (unit_scores(world.head, view.features) for view in (step.new, step.predecessor))
    if kept:
        queued = np.where(queued >= np.sort(queued, axis=1)[:, -kept][:, None], queued, 0)
    weights = consensus_weights(step.predecessor.points, step.labels, method.queue_points, method.queue_labels)
    expected = consensus_contrast(torch.from_numpy(new @ queued.T), weights, torch.ones(5, dtype=torch.bool))
    torch.testing.assert_close(terms["logit_consensus"].detach(), expected, rtol=1e-4, atol=1e-5)
    gradient = torch.autograd.grad(terms["logit_consensus"], (step.new.features, world.head.weight))
    assert all(part.any() for part in gradient)  # the encoder learns from it, and so does the classifier


def gradient_ratio(method: NCCL, step: Any) -> float:
    """The scores' term, as weighted, against the consensus: lengths of their gradients at the new embeddings."""
    terms = method(step)
    found = [
        torch.autograd.grad(terms[name], step.new.features, retain_graph=True)[0].norm()
        for name in ("logit_consensus", "consensus")
    ]
    return float(found[0] / found[1])


@pytest.mark.parametrize("scale", [1.0, 64.0])
def test_the_second_term_does_not_drown_the_first(step_of, world, scale: float) -> None:
    """Raw scores of a classifier that has learnt are long, so that a hundredth of their term is no small one."""
    head = Linear(scale * 5 * world.head.weight.detach())
    old = OldModel(world.embeddings, world.embeddings.class_names, head)
    ratios = {}
    for scores in ("unit", "printed"):
        method = NCCL(credible_only=False, scores=scores)
        method.prepare(old, nn.Identity(), head, world.space)
        ratios[scores] = gradient_ratio(method, step_of(np.arange(0, 48, 3), head=head))
    assert ratios["unit"] < 0.05 and ratios["printed"] > 10 * ratios["unit"]


def test_unknown_scores_are_refused() -> None:
    with pytest.raises(ConfigError, match="'unit' or 'printed'"):
        NCCL(scores="raw")


def queue_of(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Four anchors, the last none, and six slots, two of them empty."""
    rng = np.random.default_rng(seed)
    new, old, queue = (normalise(tensor(rng.normal(size=(rows, 3)))) for rows in (4, 4, 6))
    return new, old, tensor([0, 1, 0, -1]), queue, tensor([0, 1, -1, 0, 2, -1])


def test_consensus_by_a_slow_loop() -> None:
    new, old, labels, queue, queue_labels = queue_of()
    filled = [0, 1, 3, 4]
    losses = []
    for i in range(3):
        scores = {j: float(new[i] @ queue[j]) / 0.4 for j in filled}
        normaliser = math.log(sum(math.exp(score) for score in scores.values()))
        same = [j for j in filled if queue_labels[j] == labels[i]]
        terms = [(1 + float(old[i] @ queue[j])) / 2 * (normaliser - scores[j]) for j in same]
        losses.append(sum(terms) / len(terms))
    weights = consensus_weights(old, labels, queue, queue_labels)
    found = consensus_contrast(new @ queue.T / 0.4, weights, queue_labels >= 0)
    assert found.item() == pytest.approx(sum(losses) / 3, rel=1e-12)


def test_an_anchor_without_entries_does_not_dilute_the_mean() -> None:
    _, old, labels, queue, queue_labels = queue_of()
    alone = labels.masked_fill(labels == 1, 7)
    whole = consensus_weights(old, alone, queue, queue_labels)
    without = consensus_weights(old[[0, 2]], labels[[0, 2]], queue, queue_labels)
    torch.testing.assert_close(whole[[0, 2]], without)
    assert not whole[[1, 3]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["empty queue", "no anchor", "no row"])
def test_nothing_to_learn_from_costs_exactly_nothing(case: str, dtype: torch.dtype) -> None:
    new, old, labels, queue, queue_labels = queue_of()
    if case == "empty queue":
        queue, queue_labels = torch.zeros_like(queue), torch.full_like(queue_labels, -1)
    if case == "no anchor":
        labels = torch.full_like(labels, -1)
    rows = slice(0, 0) if case == "no row" else slice(None)
    z = new[rows].to(dtype).requires_grad_()
    weights = consensus_weights(old[rows].to(dtype), labels[rows], queue.to(dtype), queue_labels)
    loss = consensus_contrast(z @ queue.T.to(dtype), weights, queue_labels >= 0)
    loss.backward()
    assert loss.item() == 0 and loss.dtype == dtype and not z.grad.any()


@given(seed=st.integers(0, 10_000))
def test_laws_of_consensus(seed: int) -> None:
    new, old, labels, queue, queue_labels = queue_of(seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(6))

    def loss(slots: torch.Tensor) -> torch.Tensor:
        weights = consensus_weights(old, labels, queue[slots], queue_labels[slots])
        assert (weights >= 0).all() and weights.sum() <= 1 + 1e-12
        return consensus_contrast(new @ queue[slots].T, weights, queue_labels[slots] >= 0)

    torch.testing.assert_close(loss(order), loss(torch.arange(6)))
    torch.testing.assert_close(loss(tensor([0, 1, 3, 4])), loss(torch.arange(6)))  # empty slots do not exist
    assert loss(order) >= 0


@given(seed=st.integers(0, 10_000), kept=st.integers(1, 7))
def test_kept_similarity_is_that_of_rows_with_zeros(seed: int, kept: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    values, columns = torch.randn(5, 7, generator=generator, dtype=torch.float64).topk(kept, dim=1)
    dense = torch.zeros(5, 7, dtype=torch.float64).scatter(1, columns, values)
    upstream = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    found, expected = kept_similarity(logits, values, columns), logits @ dense.T
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((rows * upstream).sum(), logits)[0] for rows in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("dtype", "rtol", "atol"), PRECISIONS)
def test_credibility(golden, dtype: torch.dtype, rtol: float, atol: float) -> None:
    g = golden("nccl_credibility")
    features, centres, variances = (tensor(g[name]).to(dtype) for name in ("feat", "center", "var"))
    entropy = assignment_entropy(features, centres, variances)
    np.testing.assert_allclose(entropy, g["entropy"], rtol=rtol, atol=atol)
    np.testing.assert_allclose(entropy_limit(len(centres)), g["U"], rtol=1e-7)
    np.testing.assert_array_equal(entropy <= entropy_limit(len(centres)), g["credible"].astype(bool))
    found = class_spread(features, tensor(g["labels"]), len(centres))
    for values, name in zip(found, ("center", "var"), strict=True):
        np.testing.assert_allclose(values, g[name], rtol=rtol, atol=atol)


def test_credibility_block_by_block(golden, monkeypatch) -> None:
    g = golden("nccl_credibility")
    arguments = tensor(g["feat"]), tensor(g["labels"]), len(g["center"])
    whole = (low_entropy_rows(*arguments), *class_spread(*arguments))
    monkeypatch.setattr(nccl, "ELEMENTS", 21)  # three rows of seven numbers
    for first, second in zip(whole, (low_entropy_rows(*arguments), *class_spread(*arguments)), strict=True):
        assert torch.equal(first, second)
    np.testing.assert_array_equal(whole[0], g["credible"].astype(bool))


def test_a_block_never_holds_more_than_its_share(monkeypatch) -> None:
    sizes: list[int] = []
    block_entropy = nccl._block_entropy

    def watch(rows: torch.Tensor, centres: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows) * len(centres))
        return block_entropy(rows, centres, variances)

    monkeypatch.setattr(nccl, "_block_entropy", watch)
    monkeypatch.setattr(nccl, "ELEMENTS", 1000)
    points = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
    assignment_entropy(points, points[:60], torch.ones(60))
    assert sum(sizes) == 70 * 60 and max(sizes) <= 1000


def test_small_classes_and_tight_ones_take_the_mean_spread_of_the_others() -> None:
    rows = tensor([0.0, 0, 6, 0, 0, 12, 1, 2, 5, 5, 5, 9]).double()[:, None]
    labels = tensor(
        [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    )  # the third has two items, the fourth no spread, the fifth one
    _, variances = class_spread(rows, labels, 6)
    mean = (8 / 9 + 32 / 9) / 2  # distances 2, 2, 4 and 4, 4, 8
    torch.testing.assert_close(variances, tensor([8 / 9, 32 / 9, mean, mean, mean, mean]).double())
    _, alone = class_spread(rows[6:], labels[6:], 6)
    assert alone.tolist() == [pytest.approx(1e-6)] * 6


def test_single_items_of_different_classes_are_credible_and_coinciding_classes_are_not() -> None:
    apart, labels = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    assert low_entropy_rows(apart, labels, 3).all()
    assert not low_entropy_rows(torch.ones(6, 3) / 3**0.5, labels, 3).any()


def test_classes_without_items_do_not_count() -> None:
    rng = np.random.default_rng(2)
    labels = torch.arange(4).repeat(10)
    points = normalise(tensor(rng.normal(size=(4, 5)))[labels] + 0.9 * tensor(rng.normal(size=(40, 5))))
    plain = low_entropy_rows(points, labels, 4)
    assert plain.any() and not plain.all()
    assert torch.equal(plain, low_entropy_rows(points, 2 * labels, 9))


def test_one_class_is_always_credible() -> None:
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert low_entropy_rows(points, torch.zeros(5, dtype=torch.int64), 1).all()


def test_entropy_survives_classes_far_apart() -> None:
    entropy = assignment_entropy(torch.eye(3), torch.eye(3), torch.full((3,), 1e-6))
    assert entropy.tolist() == [0.0, 0.0, 0.0]
