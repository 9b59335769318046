"""The method `l2`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.losses.alignment import distance_alignment
from limpet.methods.base import OldModel
from limpet.methods.l2 import L2
from limpet.methods.lce import squared_alignment


@pytest.mark.parametrize(
    ("options", "name"), [({"power": 1}, "l2_p1"), ({"power": 2}, "l2_topall"), ({"hinge": 1}, "l2_p1_hinge")]
)
def test_l2(reference, agrees, make_step, plain_head, options, name) -> None:
    g = reference("hotrefresh_losses")
    options = {key: float(g["hinge"]) if key == "hinge" else value for key, value in options.items()}
    z = g["z_new"].requires_grad_()
    terms = L2(weight=3.0, **options)(make_step(z, g["labels"], plain_head(z.new_zeros(9, 7)), g["z_old"]))
    agrees(terms["alignment"], 3.0 * g[name])
    agrees(torch.autograd.grad(terms["alignment"], z)[0], 3.0 * g[f"grad_{name}"])


def prepared(world, **options) -> L2:
    method = L2(**options)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    return method


def step_at(world, make_step, rows: np.ndarray, new: torch.Tensor | None = None):
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows]))
    new = old + torch.randn(old.shape, generator=torch.Generator().manual_seed(2)) if new is None else new
    return make_step(new, world.labels[rows], world.head, old, index=torch.from_numpy(rows))


@pytest.mark.parametrize("share", [65, 90])
def test_credible_items_are_those_of_mixbct(golden, make_embeddings, plain_head, share: int) -> None:
    g = golden("mixbct_denoise")
    method = L2(denoise=share / 100)
    old = OldModel(make_embeddings(g["feat"], g["labels"]), classes=())
    method.prepare(old, torch.nn.Identity(), plain_head(torch.zeros(1, 6)), Hypersphere(6))
    np.testing.assert_array_equal(method.credible, g[f"credible_T{share}"].astype(bool))


@pytest.mark.parametrize("options", [{"power": 1}, {"power": 2}, {"hinge": 0.9}])
def test_the_mean_runs_over_the_credible_rows_of_the_batch(world, make_step, options) -> None:
    method = prepared(world, weight=3.0, denoise=0.5, **options)
    rows = np.random.default_rng(0).permutation(48)[:20]  # the index leads to the tag, not the place in the batch
    step = step_at(world, make_step, rows)
    distances = []
    for place, row in enumerate(rows):
        if method.credible[row]:
            new, old = step.new.features[place], torch.tensor(np.array(world.embeddings.vectors[row]))
            gap = new / new.norm() - old / old.norm()
            power = options.get("power", 1)
            distances.append(max(0.0, (gap.square().mean() if power == 2 else gap.norm() - options.get("hinge", 0))))
    assert 0 < len(distances) < 20
    assert method(step)["alignment"].item() == pytest.approx(3 * float(np.mean(distances)), rel=1e-5)


def test_a_batch_without_credible_rows_costs_nothing_and_keeps_its_graph(world, make_step) -> None:
    for power in (1, 2):
        method = prepared(world, denoise=0.5, power=power)
        rows = np.flatnonzero(~method.credible.numpy())[:6]
        step = step_at(world, make_step, rows, new=torch.randn(6, 5, requires_grad=True))
        alignment = method(step)["alignment"]
        assert alignment.item() == 0
        assert not torch.autograd.grad(alignment, step.new.features)[0].any()


def test_by_default_every_row_counts_and_nothing_is_kept(world, make_step) -> None:
    method = prepared(world)
    assert not method.state_dict()
    rows = np.arange(0, 48, 3)
    step = step_at(world, make_step, rows)
    points, old = torch.nn.functional.normalize(step.new.features), step.predecessor.points
    distances = (points - old).norm(dim=1)
    torch.testing.assert_close(method(step)["alignment"], 10 * distance_alignment(distances))
    everything = torch.ones(len(rows), dtype=torch.bool)
    torch.testing.assert_close(distance_alignment(distances), distance_alignment(distances, selected=everything))
    torch.testing.assert_close(squared_alignment(points, old), squared_alignment(points, old, selected=everything))


def test_credible_items_need_no_labels_only_when_all_count(world) -> None:
    unlabelled = OldModel(world.embeddings.replace(labels=None, class_names=None), classes=())
    L2().prepare(unlabelled, torch.nn.Identity(), world.head, world.space)
    with pytest.raises(ValueError, match="no classes"):
        L2(denoise=0.9).prepare(unlabelled, torch.nn.Identity(), world.head, world.space)


@pytest.mark.parametrize("denoise", [0.0, -0.1, 1.1])
def test_impossible_shares(denoise: float) -> None:
    with pytest.raises(ConfigError, match="denoise"):
        L2(denoise=denoise)
