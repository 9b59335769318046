"""NDPP and ODPP as the training loop drives them."""

from __future__ import annotations

import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import Epoch, View


def epoch(index: int, new: torch.Tensor, training_size: int = 48, total: int = 3) -> Epoch:
    generator = torch.Generator().manual_seed(index)
    return Epoch(index, total, training_size, generator, lambda: View(new, new, Hypersphere(new.shape[1])), lambda: new)


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
