"""The method `odpp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import Epoch, OldModel, View


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
    from limpet.methods.odpp import ActivePairs

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
    import limpet.methods.odpp as module

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
    import limpet.methods.odpp as module

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
