"""The method `mixbct`."""

from __future__ import annotations

import numpy as np
import torch

from limpet.geometry import Hypersphere
from limpet.losses.margin import arcface_logits
from limpet.methods import METHODS
from limpet.methods.base import Head, PrototypeClassifier, View


class ArcFace(Head):
    """The reference's guarded ArcFace, over rows that may come from either model."""

    normalised = True

    def __init__(self, weight: torch.Tensor, scale: float, margin: float) -> None:
        super().__init__()
        self.weight, self.scale, self.margin = torch.nn.Parameter(weight), scale, margin

    def cosines(self, view: View) -> torch.Tensor:
        return view.points @ torch.nn.functional.normalize(self.weight, dim=1).T

    def logits(self, view: View) -> torch.Tensor:
        return self.scale * self.cosines(view)

    def loss(self, view: View, labels: torch.Tensor) -> torch.Tensor:
        logits = arcface_logits(self.cosines(view), labels, scale=self.scale, margin=self.margin)
        return torch.nn.functional.cross_entropy(logits, labels)


def test_mixbct_step(reference, agrees, make_step) -> None:
    g = reference("mixbct_step")
    method = METHODS["mixbct"](ratio=float(g["ratio"]))
    method.space, method.credible = Hypersphere(6), g["credible"].bool()
    head, z = ArcFace(g["W"], float(g["s"]), float(g["m"])), g["z_new"].requires_grad_()
    step = make_step(z, g["labels"], head, g["old_feat"][g["sample_index"]])
    chosen = torch.zeros(13, dtype=torch.bool).scatter(0, g["sel"], True)
    drawn = method.choose(step)  # another draw of as many rows
    assert drawn.sum() == len(g["sel"]) and not (drawn | chosen)[~method.credible].any()
    mixed = method.mix(step, chosen)
    agrees(mixed, g["mixed"])
    loss = head.loss(View.of(mixed, method.space), step.labels)
    agrees(loss, g["loss"])
    grad_z, grad_w = torch.autograd.grad(loss, (z, head.weight))
    assert not grad_z[chosen].any()
    agrees(grad_z, g["grad_z_new"])
    agrees(grad_w, g["grad_W"])


def test_mixbct_draws_the_right_number_of_credible_rows(world, make_step) -> None:
    method = METHODS["mixbct"](ratio=0.3)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.credible = torch.arange(48) % 2 == 0
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(40)
    for _ in range(400):
        chosen = method.choose(make_step(torch.randn(40, 5), np.zeros(40, int), world.head, generator=generator))
        assert chosen.sum() == 12 and not chosen[1::2].any()
        counts += chosen
    # 12 of 20 rows, uniformly: 240 of 400 draws each, standard deviation below 10
    assert (counts[::2] - 240).abs().max() < 50


def test_mixbct_takes_all_when_too_few_are_credible(world, make_step) -> None:
    method = METHODS["mixbct"](ratio=0.9)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.credible = torch.zeros(48, dtype=torch.bool).index_fill(0, torch.tensor([2, 5]), True)
    chosen = method.choose(make_step(torch.randn(10, 5), np.zeros(10, int), world.head))
    assert chosen.nonzero().flatten().tolist() == [2, 5]


def test_mixbct_matches_lengths_only_where_the_head_reads_them(world, make_step) -> None:
    new, old = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]]), torch.tensor([[0, 0, 7.0, 0, 0]] * 2)
    chosen = torch.tensor([False, True])
    step = make_step(new, [0, 1], world.head, old)
    assert METHODS["mixbct"]().mix(step, chosen)[1].tolist() == [0, 0, 3.0, 0, 0]
    assert METHODS["mixbct"](old_scale="raw").mix(step, chosen)[1].tolist() == [0, 0, 7.0, 0, 0]
    cosine = make_step(new, [0, 1], PrototypeClassifier(torch.eye(5), 10.0), old)
    assert METHODS["mixbct"]().mix(cosine, chosen)[1].tolist() == [0, 0, 1.0, 0, 0]


def test_the_length_that_mixbct_matches_passes_no_gradient(world, make_step) -> None:
    """Else replaced rows would teach the encoder to be long or short, and the paper's do not teach it anything."""
    new = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]], requires_grad=True)
    step = make_step(new, [0, 1], world.head, torch.tensor([[0, 0, 7.0, 0, 0]] * 2))
    mixed = METHODS["mixbct"]().mix(step, torch.tensor([False, True]))
    (gradient,) = torch.autograd.grad(mixed[1].sum(), new, retain_graph=True)
    assert not gradient.any()
    (gradient,) = torch.autograd.grad(mixed[0].sum(), new)
    assert gradient[0].all() and not gradient[1].any()


def test_mixbct_keeps_lengths_when_every_row_is_replaced(world, make_step) -> None:
    new, old = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]]), torch.tensor([[0, 0, 7.0, 0, 0]] * 2)
    mixed = METHODS["mixbct"](ratio=1.0).mix(make_step(new, [0, 1], world.head, old), torch.tensor([True, True]))
    assert mixed.tolist() == [[0, 0, 4.0, 0, 0]] * 2


def test_mixbct_keeps_the_share_it_is_told(world) -> None:
    for denoise, kept in ((0.5, 4), (0.9, 8), (0.1, 1)):
        method = METHODS["mixbct"](denoise=denoise)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        assert torch.bincount(torch.from_numpy(world.labels)[method.credible]).tolist() == [kept] * 6
