"""CVS: what it reads of the gallery, what may stand for its model coherence, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.losses.distillation import dark_knowledge
from limpet.methods import METHODS, cvs
from limpet.methods.base import CompatibilityMethod, Head, OldModel, View
from limpet.methods.cvs import (
    AGGREGATIONS,
    COHERENCES,
    SessionSums,
    absolute_distillation,
    class_totals,
    frozen_batch_hard,
    hard_dark_rank,
    model_coherence,
    relational_angles,
    relational_distances,
    relative_distillation,
)

DIM, CLASSES, OLD_CLASSES = 5, 6, 4
SPACE = Hypersphere(DIM)


def test_the_model_coherence_of_cvs_separates_classes_as_the_last_model_placed_them(
    second, predecessor, two_sessions
) -> None:
    after, found = two_sessions[1], []
    with torch.no_grad():
        old = normalise(predecessor.encoder(after.images))
    for method in (METHODS["finetune"](), METHODS["cvs"](data_weight=0.0)):
        new = normalise(second(method).embed(after))
        found.append(model_coherence(new, old, after.labels).item())
    assert found[1] < 0.5 * found[0]


def test_cvs_reads_the_gallery_of_every_session_once(predecessor, make_embeddings) -> None:
    names = [f"c{row}" for row in range(CLASSES)]
    rng = np.random.default_rng(1)
    later = make_embeddings(rng.normal(size=(30, DIM)), rng.integers(2, 5, 30), names=names)
    earlier = METHODS["cvs"]()
    assert earlier.carried() == {}  # after the first session, whose gallery the second one reads
    earlier.carry_over({})
    earlier.prepare(predecessor, nn.Identity(), predecessor.head, SPACE)
    method = METHODS["cvs"]()
    method.carry_over(earlier.carried())
    old = dataclasses.replace(predecessor, classes=names, own_training=later)
    for _ in range(2):  # as when a run is resumed
        method.prepare(old, nn.Identity(), predecessor.head, SPACE)
    assert method.carried()["counts"].shape == (2, CLASSES)

    both = [*zip(predecessor.own_training.vectors, predecessor.own_training.labels, strict=True),
            *zip(later.vectors, later.labels, strict=True)]  # fmt: skip
    for row in range(5):
        own = np.stack([vector / np.linalg.norm(vector) for vector, label in both if label == row])
        np.testing.assert_allclose(method.replayed[row], own.mean(0), rtol=1e-5, atol=1e-6)
    assert method.rows.tolist() == [0, 1, 2, 3, 4, -1, -1]  # one class has not come yet; the last is that of no class


def test_cvs_reads_a_large_gallery_in_blocks(monkeypatch, make_embeddings) -> None:
    rng = np.random.default_rng(0)
    gallery = make_embeddings(rng.normal(size=(50, DIM)), rng.integers(0, 4, 50))
    whole = class_totals(gallery, ["c3", "c1", "c0", "c2", "new"], DIM)
    monkeypatch.setattr(cvs, "BLOCK", 7)
    for found, expected in zip(class_totals(gallery, ["c3", "c1", "c0", "c2", "new"], DIM), whole, strict=True):
        torch.testing.assert_close(found, expected)
    unit = normalise(torch.from_numpy(np.array(gallery.vectors)))
    torch.testing.assert_close(whole[0][2], unit[gallery.labels == 0].sum(0))  # by name, not by number
    assert whole[1].tolist() == [*np.bincount(gallery.labels)[[3, 1, 0, 2]].tolist(), 0]


def test_cvs_refuses_a_gallery_of_other_classes(make_embeddings) -> None:
    gallery = make_embeddings(np.eye(DIM), np.arange(DIM))
    with pytest.raises(DataError, match="without one of its model's 2 classes"):
        class_totals(gallery, ["c0", "c1"], DIM)
    with pytest.raises(DataError):
        class_totals(gallery.replace(labels=None, class_names=None), ["c0", "c1"], DIM)


EXPECTED = {
    "model": lambda z, o, y, new, old: model_coherence(z, o, y, margin=0.3),
    "batch_hard": lambda z, o, y, new, old: frozen_batch_hard(z, o, y, margin=0.3),
    "dark_knowledge": lambda z, o, y, new, old: dark_knowledge(new[:, :4], old, 3.0),
    "absolute": lambda z, o, y, new, old: absolute_distillation(z, o),
    "relative": lambda z, o, y, new, old: relative_distillation(z, o),
    "relative_frobenius": lambda z, o, y, new, old: relative_distillation(z, o, "frobenius"),
    "angles": lambda z, o, y, new, old: relational_angles(z, o),
    "distances": lambda z, o, y, new, old: relational_distances(z, o),
    "dark_rank": lambda z, o, y, new, old: hard_dark_rank(z, o),
    "none": lambda z, o, y, new, old: z.sum() * 0,
}


@pytest.mark.parametrize("coherence", sorted(COHERENCES))
def test_what_may_stand_for_the_model_coherence(first, predecessor, make_step, coherence) -> None:
    rng = np.random.default_rng(0)
    new, old = (torch.tensor(rng.normal(size=(9, DIM)), dtype=torch.float32) for _ in range(2))
    labels, learner = torch.tensor([0, 0, 1, 2, 2, 3, 4, 4, 5]), first.grown()
    method = METHODS["cvs"](coherence=coherence, model_weight=2.0, data_weight=0.0, margin=0.3, temperature=3.0)
    method.prepare(predecessor, learner.net, learner.head, SPACE)
    step = make_step(new.requires_grad_(), labels, learner.head, old)
    terms = method(step)
    scores = learner.scores(new), predecessor.head.logits(View.of(old, SPACE))
    expected = EXPECTED[coherence](normalise(new), normalise(old), labels, *scores)
    torch.testing.assert_close(terms["model_coherence"], 2.0 * expected)
    assert list(terms) == ["task", "model_coherence"] and (expected > 0 or coherence == "none")


def test_dark_knowledge_matches_classes_by_name(world, make_step) -> None:
    """The old classifier of this world counts its four classes backwards."""
    method = METHODS["cvs"](coherence="dark_knowledge", data_weight=0.0, model_weight=1.0)
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    new, old = (torch.randn(7, DIM, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    found = method(make_step(new, [0, 1, 2, 3, 4, 5, 0], world.head, old))["model_coherence"]
    expected = dark_knowledge(new @ world.head.weight.T[:, :4], old @ world.old.head.weight.T.flip(1))
    torch.testing.assert_close(found, expected)


def test_without_a_class_of_the_gallery_nothing_is_replayed(first, predecessor, make_step) -> None:
    method = METHODS["cvs"](model_weight=0.0)
    method.prepare(predecessor, nn.Identity(), first.head, SPACE)
    new = torch.randn(3, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = method(make_step(new, [4, 5, 4], first.grown().head, new, old_labels=torch.full((3,), -1)))["data_coherence"]
    loss.backward()
    assert loss == 0 and not new.grad.any()


@pytest.mark.parametrize("aggregation", ["item_mean", "session_mean", "literal"])
def test_cvs_aggregates_as_it_is_told(predecessor, aggregation) -> None:
    sums, counts = torch.zeros(1, OLD_CLASSES, DIM), torch.zeros(1, OLD_CLASSES)
    sums[0, 0, 0], counts[0, 0] = 2.0, 2.0  # two embeddings of one class, both the first unit vector
    method = METHODS["cvs"](aggregation=aggregation)
    method.carry_over({"sums": sums, "counts": counts})
    method.prepare(predecessor, nn.Identity(), predecessor.head, SPACE)
    points, labels = (torch.from_numpy(np.array(x)) for x in
                      (predecessor.own_training.vectors, predecessor.own_training.labels))  # fmt: skip
    own, unit = points[labels == 0], torch.eye(DIM)[0]
    expected = {
        "item_mean": torch.cat([own, unit.expand(2, DIM)]).mean(0),
        "session_mean": (own.mean(0) + unit) / 2,
        "literal": (own.mean(0) + unit) / 2,
    }[aggregation]
    torch.testing.assert_close(method.replayed[0], expected)
    rest = points[labels == 1].mean(0)
    torch.testing.assert_close(method.replayed[1], rest / 2 if aggregation == "literal" else rest)


def test_cvs_without_replay_keeps_no_exemplars() -> None:
    assert METHODS["cvs"](replay=False).memory is None and METHODS["cvs"].memory == "herding"


def test_what_cvs_needs_it_says(predecessor) -> None:
    def prepare(old: OldModel, **options: Any) -> None:
        METHODS["cvs"](**options).prepare(old, nn.Identity(), predecessor.head, SPACE)

    with pytest.raises(EmptyOverlapError, match="data-weight 0"):
        prepare(dataclasses.replace(predecessor, own_training=None))
    prepare(dataclasses.replace(predecessor, own_training=None), data_weight=0.0)
    with pytest.raises(ConfigError, match=r"was discarded(.|\n)*coherence model"):
        prepare(dataclasses.replace(predecessor, head=None), coherence="dark_knowledge")
    prepare(dataclasses.replace(predecessor, head=None), coherence="dark_knowledge", model_weight=0.0)
    with pytest.raises(ConfigError, match="shares no class"):
        prepare(dataclasses.replace(predecessor, classes=["x"]), coherence="dark_knowledge", data_weight=0.0)
    with pytest.raises(ConfigError, match="Did you mean 'dark_rank'"):
        METHODS["cvs"](coherence="darkrank")
    with pytest.raises(ConfigError, match="Did you mean 'item_mean'"):
        METHODS["cvs"](aggregation="items_mean")


@pytest.fixture
def golden_step(reference, make_step, make_embeddings, cosine_head) -> Any:
    """One step of a session after the first, from the file of CVS."""
    g = reference("cvs_step")
    known, labels = int(g["C_old"]), g["labels"]
    names = [f"c{row}" for row in range(len(g["W_new"]))]
    embeddings = make_embeddings(g["z_old"], labels, names=names)
    old = OldModel(embeddings, names[:known], cosine_head(g["W_old"], g["temp"]), own_training=embeddings[[]])
    head, z = cosine_head(g["W_new"], g["temp"]), g["z_new"].clone().requires_grad_()
    step = make_step(z, labels, head, g["z_old"], old_labels=labels.masked_fill(labels >= known, -1))
    return g, old, step


def ready(method: CompatibilityMethod, old: OldModel, head: Head, dtype: torch.dtype) -> CompatibilityMethod:
    method.prepare(old, nn.Identity(), head, old.embeddings.space)
    return method.to(dtype)


def cvs_of(g: dict[str, Tensor], **options: Any) -> CompatibilityMethod:
    values = {"model_weight": float(g["alpha"]), "data_weight": float(g["beta"]), "margin": float(g["margin"])}
    method = METHODS["cvs"](**{**values, **options})
    method.carry_over({"sums": 3 * g["Ec"][None], "counts": torch.full((1, len(g["Ec"])), 3.0, dtype=g["Ec"].dtype)})
    return method


def test_cvs_and_its_gradients(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    method = ready(cvs_of(g), old, step.head, dtype)
    terms = method(step)
    agrees(terms["task"], g["loss_c"])
    agrees(terms["model_coherence"], g["loss_m"])
    agrees(terms["data_coherence"], g["loss_d"])
    total = sum(terms.values())
    agrees(total, g["total"])
    grad_z, grad_weight = torch.autograd.grad(total, (step.new.features, step.head.weight))
    agrees(grad_z, g["grad_z_new"])
    agrees(grad_weight, g["grad_W_new"])


@pytest.mark.parametrize(
    ("options", "term", "name"),
    [({"squared": True}, "model_coherence", "m_squared"), ({"reduction": "batch"}, "data_coherence", "d_batch")],
)
def test_cvs_as_printed(golden_step, agrees, dtype, options, term, name) -> None:
    g, old, step = golden_step
    loss = ready(cvs_of(g, **options), old, step.head, dtype)(step)[term]
    agrees(loss, g[f"loss_{name}"])
    agrees(torch.autograd.grad(loss, step.new.features)[0], g[f"grad_{name}"])


NAMES = {"item_mean": "E_code", "session_mean": "E_paper_present", "literal": "E_paper_literal"}


def summed(g: dict[str, torch.Tensor], num_classes: int) -> SessionSums:
    sums = SessionSums.empty(g["gallery"].shape[1], g["gallery"].dtype)
    for session in range(int(g["session"].max()) + 1):
        own = g["session"] == session
        sums = sums.with_session(g["gallery"][own], g["labels"][own], num_classes)
    return sums


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_has_its_reference_numbers(reference: Any, agrees: Any, dtype: Any, aggregation: str) -> None:
    g = reference("cvs_replayed_embedding")
    expected = g[NAMES[aggregation]]
    found, seen = summed(g, len(expected)).embeddings(aggregation)
    assert seen.all() and found.dtype == dtype
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if aggregation == "item_mean" and dtype == torch.float64 else {}
    agrees(found, expected.to(dtype), **tolerance)


def test_the_three_by_hand() -> None:
    east, north = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    sums = SessionSums.empty(2).with_session(east.repeat(3, 1), torch.tensor([0, 0, 0]), 1)
    sums = sums.with_session(torch.cat([north, north]), torch.tensor([0, 1]), 2)
    assert sums.embeddings()[0].tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert sums.embeddings("session_mean")[0].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert sums.embeddings("literal")[0].tolist() == [[0.5, 0.5], [0.0, 0.5]]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_by_a_slow_loop_over_a_gallery_that_grows(aggregation: str) -> None:
    rng = np.random.default_rng(0)
    sums, galleries = SessionSums.empty(3, torch.float64), []
    for known in (2, 4, 7):
        vectors, labels = torch.from_numpy(rng.normal(size=(20, 3))), torch.from_numpy(rng.integers(0, known, 20))
        labels[labels == 1] = 0 if known == 4 else 1
        galleries.append((normalise(vectors), labels))
        sums = sums.with_session(vectors, labels, known)
    found, seen = sums.embeddings(aggregation)
    for c in range(7):
        parts = [points[labels == c] for points, labels in galleries]
        means = [part.mean(dim=0) for part in parts if len(part)]
        assert seen[c] == bool(means)
        if not means:
            continue
        expected = {
            "item_mean": torch.cat(parts).mean(dim=0),
            "session_mean": sum(means) / len(means),
            "literal": sum(means) / 3,
        }[aggregation]
        torch.testing.assert_close(found[c], expected)


def test_all_agree_where_every_session_is_alike() -> None:
    vectors, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    sums = SessionSums.empty(4)
    for _ in range(3):
        sums = sums.with_session(vectors, labels, 3)
    for aggregation in AGGREGATIONS:
        torch.testing.assert_close(sums.embeddings(aggregation)[0], sums.embeddings()[0])


def test_its_size_is_that_of_classes_and_sessions_and_it_keeps_no_graph() -> None:
    vectors = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    first = SessionSums.empty(4).with_session(vectors, torch.arange(500) % 5, 5)
    second = first.with_session(vectors, torch.arange(500) % 5, 8)
    assert second.sums.shape == (2, 8, 4) and second.counts.shape == (2, 8)
    assert first.sums.shape == (1, 5, 4)
    assert not second.sums.requires_grad
    assert second.counts.tolist() == [[100.0] * 5 + [0.0] * 3] * 2


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_classes_without_an_embedding_are_zero_and_named(aggregation: str) -> None:
    sums = SessionSums.empty(2).with_session(torch.ones(1, 2), torch.tensor([1]), 3)
    found, seen = sums.embeddings(aggregation)
    assert seen.tolist() == [False, True, False]
    assert found[~seen].tolist() == [[0.0, 0.0]] * 2 and torch.isfinite(found).all()
    nothing, none = SessionSums.empty(2).embeddings(aggregation)
    assert nothing.shape == (0, 2) and none.shape == (0,)
    empty = SessionSums.empty(2).with_session(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), 2)
    assert empty.embeddings(aggregation)[0].tolist() == [[0.0, 0.0]] * 2


def test_zero_vectors_stay_finite() -> None:
    sums = SessionSums.empty(2).with_session(torch.zeros(2, 2), torch.tensor([0, 0]), 1)
    assert sums.embeddings()[0].tolist() == [[0.0, 0.0]]


def test_what_does_not_fit_is_refused() -> None:
    sums = SessionSums.empty(2).with_session(torch.ones(1, 2), torch.tensor([1]), 3)
    with pytest.raises(ConfigError, match=r"num_classes = 2\.\n.*at least 3"):
        sums.with_session(torch.ones(1, 2), torch.tensor([1]), 2)
    with pytest.raises(ConfigError, match=r"num_classes = 3\.\n.*at least 4"):
        sums.with_session(torch.ones(1, 2), torch.tensor([3]), 3)
    with pytest.raises(ConfigError, match=r"3 dimensions\.\n.*2 as before"):
        sums.with_session(torch.ones(1, 3), torch.tensor([1]), 3)
    with pytest.raises(ConfigError, match="Did you mean 'session_mean'"):
        sums.embeddings("sesion_mean")
