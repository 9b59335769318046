"""The method `bct`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Head, OldModel, PrototypeClassifier


def old_labels_of(labels: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.where(labels < classes, labels, -1)


def test_bct_with_the_old_classifier(reference, agrees, make_step, plain_head, make_embeddings) -> None:
    g = reference("bct_influence")
    old = OldModel(
        embeddings=make_embeddings(np.eye(9, 7) + 0.1, np.arange(9)),
        classes=[f"c{row}" for row in range(6)],
        head=plain_head(g["W_old"]),
    )
    for run, (name, labels) in enumerate({"mixed": g["y_mixed"], "all": g["y_all_old"]}.items()):
        z = g["z_new"].clone().requires_grad_()
        method = METHODS["bct"]()
        method.prepare(old, torch.nn.Identity(), plain_head(g["W_new"]), Hypersphere(7))
        step = make_step(z, labels, plain_head(g["W_new"]), old_labels=old_labels_of(labels, 6))
        terms = method(step)
        agrees(terms["task"], g["cls"][run])
        agrees(terms["influence"], g["influence"][run])
        agrees(sum(terms.values()), g["total"][run])
        agrees(torch.autograd.grad(sum(terms.values()), z)[0], g[f"grad_z_new_{name}"])


def test_bct_without_an_old_classifier_uses_class_means(world, make_step) -> None:
    method = METHODS["bct"](temperature=0.1)
    method.prepare(OldModel(world.embeddings, classes=()), torch.nn.Identity(), world.head, world.space)
    vectors = torch.from_numpy(np.array(world.embeddings.vectors))
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    means = torch.stack([unit[world.labels == c].mean(0) for c in range(6)])
    new = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    cosines = torch.nn.functional.cosine_similarity(new[:, None], means[None], dim=2)
    labels = torch.tensor([0, 1, 2, 4, 5])
    step = make_step(new, labels, world.head, old_labels=torch.full((5,), -1))
    expected = torch.nn.functional.cross_entropy(cosines / 0.1, labels)
    torch.testing.assert_close(method(step)["influence"], expected)


def test_bct_with_class_means_counts_classes_that_the_old_classifier_lacks(world, make_step) -> None:
    """MixBCT's comparison: cosines as they are, to the means of all new classes."""
    assert len(world.old.classes) < 6 and world.old.head is not None
    method = METHODS["bct"](classifier="means", temperature=1.0)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    new, labels = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6)
    vectors = normalise(torch.from_numpy(np.array(world.embeddings.vectors)))
    means = torch.stack([vectors[world.labels == c].mean(0) for c in range(6)])
    cosines = torch.nn.functional.cosine_similarity(new[:, None], means[None], dim=2)
    step = make_step(new, labels, world.head, old_labels=old_labels_of(labels, 4))
    torch.testing.assert_close(method(step)["influence"], torch.nn.functional.cross_entropy(cosines, labels))


def test_bct_never_changes_the_old_classifier(world, make_step) -> None:
    method = METHODS["bct"]()
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    assert not any(parameter.requires_grad for parameter in method.parameters())
    assert method.classifier is not world.old.head


def test_bct_weighs_its_influence(world, make_step) -> None:
    new, terms = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), []
    for weight in (1.0, 3.0):
        method = METHODS["bct"](weight=weight)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        terms.append(method(make_step(new, [0, 1, 2, 3], world.head))["influence"])
    torch.testing.assert_close(terms[1], 3 * terms[0])


def test_bct_scales_class_means_as_the_new_head_does(world) -> None:
    absent = OldModel(world.embeddings, classes=())
    for head, options, scale in (
        (PrototypeClassifier(torch.eye(5), 64.0), {}, 64.0),
        (PrototypeClassifier(torch.eye(5), 64.0), {"temperature": 0.1}, 10.0),
        (world.head, {}, 20.0),
    ):
        method = METHODS["bct"](**options)
        method.prepare(absent, torch.nn.Identity(), head, world.space)
        assert method.classifier.scale == pytest.approx(scale)


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


def test_bct_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    terms = ready(METHODS["bct"](), old, step.head, dtype)(step)
    agrees(terms["influence"], g["bct_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_bct"])
