"""The learners of continual search: reference numbers through the methods, and laws of two sessions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from limpet.errors import ConfigError
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.methods.weight_records import evaluated

LEARNERS = ["finetune", "joint", "cvs", "lwf", "mmd", "ewc", "rwalk", "rainbow"]


@pytest.mark.parametrize(
    ("name", "memory", "replays", "share", "gallery", "first"),
    [
        ("bct", "herding", "without old classes", None, "append", "shared"),
        ("finetune", None, "always", None, "append", "shared"),
        ("joint", "everything", "always", None, "reindex", "shared"),
        ("cvs", "herding", "always", None, "append", "shared"),
        ("lwf", None, "always", None, "append", "shared"),
        ("mmd", None, "always", None, "append", "shared"),
        ("ewc", None, "always", None, "append", "shared"),
        ("rwalk", "herding", "always", None, "append", "own"),
        ("rainbow", "uncertainty", "always", 0.5, "append", "shared"),
    ],
)
def test_what_sessions_are_told(name, memory, replays, share, gallery, first) -> None:
    method = METHODS[name]()
    assert (method.memory, method.replays, method.memory_share) == (memory, replays, share)
    assert (method.gallery_policy, method.first_session) == (gallery, first)
    assert method.sessions_only == (name != "bct")
    assert method.needs_old == (name in ("bct", "cvs", "lwf", "mmd"))
    assert method.old_view == ("same" if name in ("cvs", "lwf", "mmd") else "cached")


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", ["finetune", "joint", "rwalk", "ewc"])
def test_what_holds_nothing_yet_trains_as_the_classifier_alone_does(name, new_learner, two_sessions) -> None:
    found = []
    for chosen in ("independent", name):
        learner, method = new_learner(), METHODS[chosen]()
        state = torch.get_rng_state()
        learner.prepare(method)
        learner.train(method, two_sessions[0], range(25))
        assert method.penalty(learner.net) == {} and torch.equal(state, torch.get_rng_state())
        assert not list(method.parameters())
        found.append(learner.weights())
    assert same(*found)


def drift(learner: Any, predecessor: OldModel, later: Any) -> float:
    """How far the later images of old classes are from where the last model would have put them."""
    images = later.images[later.labels < len(predecessor.classes)]
    with evaluated(learner.net), torch.no_grad():
        new, old = normalise(learner.net(images)), normalise(predecessor.encoder(images))
    return (new - old).norm(dim=1).mean().item()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cvs", {}),
        ("cvs", {"model_weight": 0.0, "data_weight": 10.0}),
        ("cvs", {"data_weight": 0.0, "coherence": "absolute"}),
        ("ewc", {"weight": 1e6}),
    ],
)
def test_a_learner_stays_nearer_to_the_gallery_than_the_lower_bound(
    second, predecessor, two_sessions, name, options
) -> None:
    bound = second(METHODS["finetune"]())
    learner = second(METHODS[name](**options))
    moved, freely = (drift(model, predecessor, two_sessions[1]) for model in (learner, bound))
    assert moved < 0.8 * freely


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_goes_through_two_sessions(second, two_sessions, name) -> None:
    method = METHODS[name]()
    learner = second(method)
    method.on_session_end(learner.net, learner.head, two_sessions[1].loader())
    with torch.no_grad():
        scores = learner.scores(learner.embed(two_sessions[1]))
    assert (scores.argmax(dim=1) == two_sessions[1].labels).float().mean() > 0.9  # it learned the new classes
    carried = method.carried()
    assert bool(carried) == (name in ("cvs", "ewc", "rwalk"))
    assert all(torch.isfinite(values).all() and not values.requires_grad for values in carried.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cvs", {"model_weight": -1.0}), ("cvs", {"data_weight": -1.0}), ("cvs", {"margin": -0.1}),
        ("cvs", {"temperature": 0.0}), ("cvs", {"reduction": "sum"}), ("lwf", {"weight": -1.0}),
        ("lwf", {"temperature": 0.0}), ("mmd", {"weight": -1.0}), ("mmd", {"distillation_weight": -1.0}),
        ("mmd", {"bandwidth": 0.0}), ("mmd", {"temperature": 0.0}), ("ewc", {"weight": -1.0}), ("ewc", {"fisher": "x"}),
        ("ewc", {"anchors": "x"}), ("rwalk", {"weight": -1.0}), ("rwalk", {"share": 0.0}), ("rwalk", {"interval": 0}),
        ("rwalk", {"epsilon": 0.0}), ("rainbow", {"cutmix": 1.5}), ("rainbow", {"alpha": 0.0}),
    ],
)  # fmt: skip
def test_impossible_options(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS[name](**options)
