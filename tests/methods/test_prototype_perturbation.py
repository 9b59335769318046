"""NDPP and ODPP as the training loop drives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import tensor

from holdfast.errors import ConfigError
from holdfast.geometry import Hypersphere
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.prototypes import prototype_contrast
from holdfast.methods import METHODS
from holdfast.methods.base import Epoch, OldModel, View

close = {"rtol": 1e-7, "atol": 1e-7}


def epoch(index: int, new: torch.Tensor, training_size: int = 48, total: int = 3) -> Epoch:
    generator = torch.Generator().manual_seed(index)
    return Epoch(index, total, training_size, generator, lambda: View(new, new, Hypersphere(new.shape[1])), lambda: new)


def as_predecessor(prototypes: np.ndarray, make_embeddings) -> OldModel:
    """A predecessor with one embedding per class, so that its prototypes are these."""
    return OldModel(make_embeddings(prototypes, np.arange(len(prototypes))), classes=())


def prepared(name: str, g: dict[str, np.ndarray], make_embeddings, **options: Any):
    method = METHODS[name](**options)
    method.prepare(as_predecessor(g["P_old"], make_embeddings), torch.nn.Identity(), None, Hypersphere(5))
    return method


def ndpp_of(g: dict[str, Any], make_embeddings, dtype: torch.dtype = torch.float64, **options: Any):
    """NDPP with the file's settings, its prototypes in the precision under test."""
    method = prepared("ndpp", g, make_embeddings, neighbours=int(g["K"]), alpha_old=float(g["alpha1"]),
                      alpha_new=float(g["alpha2"]), temperature=float(g["tau"]), **options)  # fmt: skip
    np.testing.assert_allclose(method.targets, g["p_hat"], rtol=1e-4, atol=1e-5)
    method.prototypes = torch.as_tensor(g["P_old"]).to(dtype)
    method.start = method.prototypes + method.alpha_old * method.push(method.prototypes, method.prototypes)
    method.targets = method.start.clone()
    return method


@pytest.mark.parametrize(("accumulate", "name"), [(False, "p_hat_t2_eq8"), (True, "p_hat_t2_accum")])
def test_ndpp_over_two_epochs(reference, agrees, dtype, make_embeddings, accumulate: bool, name: str) -> None:
    g = reference("ndpp")
    method = ndpp_of(g, make_embeddings, dtype, accumulate=accumulate)
    agrees(method.targets, g["p_hat"])
    method.on_epoch_start(epoch(0, g["P_new"]))
    agrees(method.targets, g["p_hat_t"])
    method.on_epoch_start(epoch(1, g["P_new2"]))
    agrees(method.targets, g[name])


def test_ndpp_step(golden, make_embeddings, make_step, plain_head) -> None:
    g = golden("ndpp")
    method = ndpp_of(g, make_embeddings, weight=2.0)
    method.on_epoch_start(epoch(0, tensor(g["P_new"])))
    z = tensor(g["z_new"]).requires_grad_()
    terms = method(make_step(z, g["labels"], plain_head(torch.zeros(9, 5).double())))
    np.testing.assert_allclose(terms["contrast"].detach(), 2 * g["loss_ndpp_mean"], **close)
    np.testing.assert_allclose(torch.autograd.grad(terms["contrast"], z)[0], 2 * g["grad_ndpp"], **close)


def test_ndpp_of_old_neighbours_only(golden, make_embeddings, make_step, plain_head) -> None:
    g = golden("ndpp")
    for options in ({"old_only": True}, {"new_start_epoch": 5}):
        method = ndpp_of(g, make_embeddings, **options)
        measures = method.on_epoch_start(epoch(0, tensor(g["P_new"])))
        np.testing.assert_allclose(method.targets, g["p_hat"], **close)
        step = make_step(tensor(g["z_new"]), g["labels"], plain_head(torch.zeros(9, 5).double()))
        np.testing.assert_allclose(method(step)["contrast"], g["loss_ndpp_old"].mean(), **close)
        cosines = (normalise(tensor(g["p_hat"])) * tensor(g["P_old"])).sum(1)
        assert measures["degrees moved"] == pytest.approx(cosines.acos().mean().rad2deg().item(), rel=1e-6)


def test_odpp_full_batch_descent(reference, agrees, make_embeddings) -> None:
    """Active pairs with a training set as large as the number of pairs: the plain gradient of all of them."""
    g = reference("odpp")
    method = prepared("odpp", g, make_embeddings, pairs="active", inner_epochs=int(g["sgd_steps"]),
                      inner_learning_rate=float(g["sgd_lr"]), threshold_old=float(g["theta_old"]),
                      threshold_new=float(g["theta_new"]), gamma=float(g["gamma"]))  # fmt: skip
    method.prototypes, method.targets = g["P_old"], g["P_old"]
    method.optimise(g["P_new"], 9 * 8, torch.Generator())
    agrees(method.targets - method.prototypes, g["r_sgd"])


def test_odpp_losses_on_the_way(reference, agrees, dtype, make_embeddings) -> None:
    from holdfast.losses.active_pairs import ActivePairs

    g = reference("odpp")
    method = prepared("odpp", g, make_embeddings, pairs="active", inner_epochs=1,
                      inner_learning_rate=float(g["sgd_lr"]), threshold_old=float(g["theta_old"]),
                      threshold_new=float(g["theta_new"]), gamma=float(g["gamma"]))  # fmt: skip
    method.prototypes, method.targets = g["P_old"], g["P_old"]
    for expected in g["traj"]:
        q = method.targets
        loss = ActivePairs(method.threshold_old).look(q, q).loss
        loss += method.gamma * ActivePairs(method.threshold_new).look(q, g["P_new"]).loss
        agrees(torch.tensor(loss, dtype=dtype), expected)
        method.optimise(g["P_new"], 9 * 8, torch.Generator())  # continues where it was


def test_odpp_sampled_pairs_expect_what_active_pairs_do(make_embeddings) -> None:
    """The mean path of many sampled pairs is the full-batch path: both schemes move R equally far."""
    prototypes = normalise(torch.randn(12, 6, generator=torch.Generator().manual_seed(0)) + 1).numpy()
    new = normalise(torch.randn(12, 6, generator=torch.Generator().manual_seed(1)) + 1)
    moved = {}
    for pairs in ("sampled", "active"):
        method = METHODS["odpp"](pairs=pairs, inner_epochs=20, inner_learning_rate=2e-6)
        torch.manual_seed(0)
        method.prepare(as_predecessor(prototypes, make_embeddings), torch.nn.Identity(), None, Hypersphere(6))
        method.prototypes, method.targets = method.prototypes.double(), method.prototypes.double()
        method.optimise(new, 20_000, torch.Generator().manual_seed(3))
        moved[pairs] = method.targets - method.prototypes
    difference = (moved["sampled"] - moved["active"]).norm() / moved["active"].norm()
    assert 0 < difference < 0.02


def test_odpp_tells_sampled_pairs_its_settings(monkeypatch, world) -> None:
    import holdfast.methods.odpp as module

    told = []
    monkeypatch.setattr(module, "descend_pairs", lambda points, i, j, **settings: told.append(settings))
    method = METHODS["odpp"](threshold_old=0.1, threshold_new=0.2, gamma=0.3, inner_learning_rate=0.4, inner_epochs=1)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    new = torch.ones(6, 5)
    method.on_epoch_start(epoch(0, new))
    settings = {"threshold": 0.1, "other_threshold": 0.2, "gamma": 0.3, "step": 0.4}
    assert told == [{**settings, "others": None}, {**settings, "others": told[1]["others"]}]
    assert torch.equal(told[1]["others"], new)


def test_odpp_pairs_are_ordered_and_of_two_classes(monkeypatch, world) -> None:
    import holdfast.methods.odpp as module

    seen = []
    monkeypatch.setattr(module, "descend_pairs", lambda points, i, j, **rest: seen.append(torch.stack([i, j])))
    method = METHODS["odpp"](inner_epochs=40, inner_batch_size=10)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    pairs = torch.cat(seen, dim=1)
    assert [len(batch[0]) for batch in seen[:5]] == [10, 10, 10, 10, 8]  # 48 items a pass
    assert pairs.shape[1] == 40 * 48 and (pairs[0] != pairs[1]).all()
    counts = torch.zeros(6, 6).index_put_((pairs[0], pairs[1]), torch.ones(pairs.shape[1]), accumulate=True)
    expected = 40 * 48 / 30
    assert (counts[~torch.eye(6, dtype=torch.bool)] - expected).abs().max() < 5 * expected**0.5


def test_odpp_of_old_prototypes_only_never_changes_after_preparing(world) -> None:
    for options in ({"old_only": True}, {"new_start_epoch": 1}):
        method = METHODS["odpp"](threshold_old=0.0, **options)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        before = method.targets.clone()
        assert not torch.equal(before, method.prototypes)
        measures = method.on_epoch_start(epoch(0, before))
        assert torch.equal(method.targets, before) and measures["degrees moved"] > 0


@pytest.mark.parametrize("name", ["ndpp", "odpp"])
def test_targets_draw_the_positive_only(name: str, world, make_step) -> None:
    method = METHODS[name](weight=3.0, temperature=0.2)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.on_epoch_start(epoch(0, normalise(torch.randn(6, 5, generator=torch.Generator().manual_seed(0)))))
    method.targets = normalise(torch.randn(6, 5, generator=torch.Generator().manual_seed(1)))
    new = torch.randn(8, 5, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1])
    expected = 0.0
    for z, label in zip(normalise(new), labels, strict=True):
        scores = method.prototypes @ z
        scores[label] = method.targets[label] @ z
        expected += torch.nn.functional.cross_entropy(scores[None] / 0.2, label[None]) / 8
    torch.testing.assert_close(method(make_step(new, labels, world.head))["contrast"], 3 * expected)


@pytest.mark.parametrize("name", ["ndpp", "odpp"])
def test_running_means_are_those_of_the_last_epochs_batches(name: str, world, make_step) -> None:
    method = METHODS[name](new_prototypes="running")
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)

    def never() -> torch.Tensor:
        raise AssertionError("the running means need no pass")

    place = Epoch(0, 2, 48, torch.Generator().manual_seed(0), never, never)
    old_only = METHODS[name](**{"ndpp": {"alpha_new": 0.0}, "odpp": {"gamma": 0.0}}[name])
    old_only.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    for one in (method, old_only):
        one.targets = method.targets.clone()
    method.on_epoch_start(place)
    place.generator.manual_seed(0)
    old_only.on_epoch_start(place)
    torch.testing.assert_close(method.targets, old_only.targets)  # nothing is known yet
    batches = [torch.randn(12, 5, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    for batch in batches:
        method(make_step(batch, torch.arange(12) % 5, world.head))
    rows, labels = normalise(torch.cat(batches)), torch.arange(36) % 12 % 5
    means = torch.stack([normalise(rows[labels == c].sum(0)) for c in range(5)] + [torch.zeros(5)])
    torch.testing.assert_close(method.new.collect(place), means)
    assert not method.new.sums.any() and not method.new.counts.any()


@pytest.mark.parametrize("name", ["ndpp", "odpp"])
def test_running_means_are_never_older_than_an_epoch(name: str, world, make_step) -> None:
    for options in ({"new_start_epoch": 2}, {"old_only": True}):
        method = METHODS[name](new_prototypes="running", **options)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        for index in range(2):
            method.on_epoch_start(epoch(index, torch.eye(6, 5)))
            assert method.new.counts.sum() == 0
            method(make_step(torch.randn(6, 5), torch.arange(6), world.head))
            assert method.new.counts.sum() == 6


@pytest.mark.parametrize(("name", "options"), [("ndpp", {"alpha_new": 0.0}), ("odpp", {"gamma": 0.0})])
def test_no_pass_for_what_has_no_weight(name: str, options, world) -> None:
    def never() -> torch.Tensor:
        raise AssertionError("nothing needs the new class means")

    method = METHODS[name](**options)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.on_epoch_start(Epoch(0, 2, 48, torch.Generator(), never, never))


def test_running_means_travel_with_a_checkpoint(world, make_step) -> None:
    method = METHODS["ndpp"](new_prototypes="running")
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method(make_step(torch.randn(6, 5), torch.arange(6), world.head))
    again = METHODS["ndpp"](new_prototypes="running")
    again.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    again.load_state_dict(method.state_dict())
    torch.testing.assert_close(again.new.sums, method.new.sums)
    assert again.new.counts.sum() == 6


def test_without_a_push_ndpp_is_p2s(world, make_step) -> None:
    new, labels = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    losses = []
    for name, options in (("p2s", {}), ("ndpp", {"alpha_old": 0.0, "alpha_new": 0.0})):
        method = METHODS[name](**options)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        method.on_epoch_start(epoch(0, torch.eye(5)[[0, 1, 2, 3, 4, 0]]))
        losses.append(method(make_step(new, labels, world.head))["contrast"])
    torch.testing.assert_close(losses[0], losses[1])
    expected = prototype_contrast(new, labels, method.prototypes, 0.07)
    torch.testing.assert_close(losses[0], expected)


@pytest.mark.parametrize("name", ["p2s", "ndpp", "odpp"])
def test_drawn_negatives(name: str, world, make_step) -> None:
    """The formula as a loop over the classes that this step draws; as many as there are classes is the whole sum."""
    method = METHODS[name](negatives=3)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    targets = method.prototypes if name == "p2s" else normalise(torch.randn(6, 5))
    method.targets = targets
    new, labels = torch.randn(8, 5, generator=torch.Generator().manual_seed(2)), torch.arange(8) % 6
    drawn = torch.randperm(6, generator=torch.Generator().manual_seed(5))[:3].tolist()
    expected = 0.0
    for z, label in zip(normalise(new), labels.tolist(), strict=True):
        own = (targets[label] @ z / 0.07).exp()
        others = sum((method.prototypes[c] @ z / 0.07).exp() for c in drawn if c != label)
        expected -= (own / (own + others)).log() / 8
    step = make_step(new, labels, world.head, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(method(step)["contrast"], expected)
    method.negatives = 6
    everything = method(make_step(new, labels, world.head))["contrast"]
    method.negatives = None
    torch.testing.assert_close(everything, method(make_step(new, labels, world.head))["contrast"])
    with pytest.raises(ConfigError):
        METHODS[name](negatives=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ndpp", {"weight": -1.0}), ("ndpp", {"temperature": 0.0}), ("ndpp", {"alpha_old": -0.1}),
        ("ndpp", {"neighbours": 0}), ("ndpp", {"new_start_epoch": -1}), ("ndpp", {"new_prototypes": "x"}),
        ("odpp", {"weight": -1.0}), ("odpp", {"gamma": -1.0}), ("odpp", {"inner_learning_rate": 0.0}),
        ("odpp", {"inner_batch_size": 0}), ("odpp", {"pairs": "x"}), ("odpp", {"new_prototypes": "x"}),
        ("odpp", {"new_start_epoch": -1}), ("odpp", {"inner_epochs": -1}),
    ],
)  # fmt: skip
def test_impossible_options(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS[name](**options)
