"""Every method in a loop of one's own: the numbers of `fit`, its state, and what is refused in which words."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limpet import CompatibilityLoss
from limpet.data.image_set import ImageSet
from limpet.data.loading import encoding_loader, training_loader
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, LimpetError, SpaceMismatchError, UnusableVectorsError
from limpet.geometry import SPACES, Hypersphere, Lorentz, Space
from limpet.methods import METHODS, build_method
from limpet.methods.base import Batch, CompatibilityMethod, Head, OldModel
from limpet.models.heads import build_head, default_head
from limpet.models.lifting import LearnedLorentz
from limpet.models.seeding import seeded
from limpet.testing.methods import TracedStep, batch, prepared
from limpet.testing.samples import PlainHead, World, make_world
from limpet.training.encode import encode, encode_features
from limpet.training.loop import fit

CLASSES, SIDE, DIM = 4, 8, 6
ACTIVE: dict[str, dict[str, object]] = {"odpp": {"threshold_old": -1.0, "threshold_new": -1.0, "inner_epochs": 2}}
"""Options under which draws count."""
KNOWN = [(name, space) for space in SPACES for name in METHODS if space in METHODS[name].spaces]


class Net(nn.Module):
    """From images to features no longer than a Lorentz space can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 12), nn.BatchNorm1d(12), nn.Linear(12, DIM))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs.float() / 255) / 3


@dataclass
class Scene:
    """A predecessor, a training set, and a new model before its training."""

    space: Space
    images: ImageSet
    old: OldModel
    model: Net
    head: Head

    def start(self) -> tuple[Net, Head]:
        return copy.deepcopy(self.model), copy.deepcopy(self.head)

    def loss(self, name: str, head: Head | None, **values: Any) -> CompatibilityLoss:
        own = self.old.own_training
        assert own is not None
        given: dict[str, Any] = {
            "old_embeddings": self.old.embeddings.vectors, "old_labels": self.images.labels, "space": self.space,
            "classifier": head, "old_classifier": self.old.head, "old_classes": [2, 0],
            "own_embeddings": own.vectors, "own_labels": np.array([2, 0])[own.labels],
        }  # fmt: skip
        return CompatibilityLoss(name, **{**given, **values})


@pytest.fixture(scope="module")
def scenes(make_images: Callable[..., ImageSet]) -> dict[str, Scene]:
    images, found = make_images(32, CLASSES, SIDE, noise=80), {}
    for name, kind in SPACES.items():
        space = kind(DIM)  # type: ignore[call-arg]
        with seeded(4):
            embeddings = encode(
                Net(), encoding_loader(images, batch_size=32), space, ids=images.ids, fingerprint="declared:old",
                form="features", class_names=images.class_names,
            )  # fmt: skip
            own = embeddings[np.flatnonzero(images.labels % 2 == 0)]
            own = own.replace(labels=(own.labels == 0).astype(np.int64), class_names=["c2", "c0"])
            kinds = [build_head(default_head(space), classes, DIM, {}) for classes in (2, CLASSES)]
            old = OldModel(embeddings, ("c2", "c0"), kinds[0], own)
            found[name] = Scene(space, images, old, Net(), kinds[1])
    return found


def carried_over(name: str, scene: Scene) -> dict[str, Tensor]:
    """Return what a session before hands on to a method that holds weights; nothing for others."""
    if METHODS[name].penalty is CompatibilityMethod.penalty:
        return {}
    model, head = scene.start()
    method = METHODS[name]()
    method.prepare(None, model, head, scene.space)
    method.on_session_end(model, head, encoding_loader(scene.images, batch_size=32))
    return {key: values + 0.1 for key, values in method.carried().items()}


def run_of_fit(name: str, scene: Scene, epochs: int) -> tuple[list[float], list[nn.Module]]:
    """Train by `fit`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning_fabric import Fabric
    model, head = scene.start()
    method, losses = build_method(name, ACTIVE.get(name, {})), []
    carried = carried_over(name, scene)
    if carried:
        method.carry_over(carried)
    loader = training_loader(scene.images, batch_size=8, seed=0)
    fit(
        model, head, method, loader, encoding_loader(scene.images, batch_size=32), space=scene.space,
        class_names=scene.images.class_names, old=scene.old, fabric=Fabric(accelerator="cpu", devices=1),
        optimizer=lambda weights: torch.optim.SGD(weights, lr=0.05), epochs=epochs, seed=3,
        progress=lambda event: losses.append(float(event["loss"])),
    )  # fmt: skip
    return losses, [model, head, method]


class OwnLoop:
    """What a user would write."""

    def __init__(self, name: str, scene: Scene, **values: Any) -> None:
        self.scene, (self.model, head) = scene, scene.start()
        carried = carried_over(name, scene)
        self.changes = METHODS[name].change_inputs is not CompatibilityMethod.change_inputs
        values = {"options": ACTIVE.get(name, {}), "carried": carried or None, **values}
        self.loss = scene.loss(name, head, model=self.model, seed=3, **values)
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.loss.parameters()], lr=0.05)
        self.loader = training_loader(scene.images, batch_size=8, seed=0)
        self.losses: list[float] = []

    def new_embeddings(self) -> Tensor:
        return encode_features(self.model, encoding_loader(self.scene.images, batch_size=32))[0]

    def start(self, epoch: int, epochs: int) -> None:
        self.loss.start_epoch(epoch, of=epochs, steps=len(self.loader), new_embeddings=self.new_embeddings)

    def step(self, found: Batch) -> None:
        inputs = self.loss.change_inputs(found.inputs, found.labels) if self.changes else found.inputs
        loss = self.loss(self.model(inputs), found.labels, index=found.index)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss.after_step()
        self.losses.append(loss.item())

    def epoch(self, epoch: int, epochs: int, steps: slice = slice(None)) -> None:
        self.model.train(), self.loss.train()
        if not steps.start:
            self.start(epoch, epochs)
        self.loader.sampler.set_position(epoch, 0)  # type: ignore[attr-defined]
        for found in list(self.loader)[steps]:
            self.step(found)


@pytest.mark.parametrize(("name", "space"), KNOWN)
def test_the_numbers_are_those_of_fit(name: str, space: str, scenes: dict[str, Scene]) -> None:
    """Losses and, through the optimiser, gradients: bit for bit, after two epochs of four steps."""
    losses, trained = run_of_fit(name, scenes[space], epochs=2)
    own = OwnLoop(name, scenes[space])
    for epoch in range(2):
        own.epoch(epoch, 2)
    assert own.losses == losses and len(losses) == 8
    for expected, found in zip(trained, (own.model, own.loss.head, own.loss.method), strict=True):
        for key, values in expected.state_dict().items():
            assert torch.equal(values, found.state_dict()[key]), key


@pytest.mark.parametrize(("name", "space"), KNOWN)
def test_the_state_goes_on_in_the_middle_of_an_epoch(name: str, space: str, scenes: dict[str, Scene]) -> None:
    whole, first = (OwnLoop(name, scenes[space]) for _ in range(2))
    whole.epoch(0, 2)
    first.epoch(0, 2, slice(0, 2))
    again = OwnLoop(name, scenes[space])
    again.model.load_state_dict(first.model.state_dict())
    again.loss.load_state_dict(first.loss.state_dict())
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    again.epoch(0, 2, slice(2, None))
    assert first.losses + again.losses == whole.losses


# ---- what a method says that it reads


OPTIONS: list[tuple[str, dict[str, object]]] = [
    ("l2", {"denoise": 0.9}), ("bct", {"classifier": "means"}), ("ndpp", {"new_prototypes": "running"}),
    ("ndpp", {"old_only": True}), ("ndpp", {"alpha_new": 0.0}), ("odpp", {"new_prototypes": "running"}),
    ("odpp", {"gamma": 0.0}), ("odpp", {"old_only": True}), ("unibct", {"refine": False}),
    ("unibct", {"refine": False, "classes": "old"}), ("lce", {"classes": "old"}), ("nccl", {"logit_weight": 0.0}),
    ("nccl", {"credible_only": False}), ("nccl", {"scores": "printed"}), ("advbct", {"adversarial_weight": 0.0}),
    ("advbct", {"classes": "new"}), ("advbct", {"weight": 0.0}), ("mmd", {"distillation_weight": 0.0}),
    ("lwf", {"weight": 0.0}), ("cvs", {"model_weight": 0.0}), ("cvs", {"coherence": "none"}),
    ("cvs", {"coherence": "dark_knowledge"}), ("cvs", {"coherence": "batch_hard"}), ("cvs", {"data_weight": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_what_is_read_under_an_option_is_what_it_says(name: str, options: dict[str, object]) -> None:
    """The contract looks at the defaults."""
    world, found = make_world(Hypersphere(5)), set()
    method = prepared(name, world, **options)
    _, step = batch(world, np.arange(0, 48, 3), torch.float32, progress=0.5, epoch=6, epochs=7)
    method(TracedStep(step, found))
    assert found == method.reads - {"head", "old_embeddings", "new_embeddings"}


def test_under_options_that_need_less_less_is_asked_for(scenes: dict[str, Scene]) -> None:
    scene, own = scenes["hypersphere"], {"own_embeddings": None, "own_labels": None, "old_classifier": None}
    bare = {"options": {"logit_weight": 0.0, "credible_only": False}, "old_embeddings": None, "old_labels": None}
    loss = scene.loss("nccl", None, **own, **bare, old_classes=None)
    assert loss(torch.randn(4, DIM), torch.tensor([90, -7, 90, 5]), old=torch.randn(4, DIM)) > 0
    loss = scene.loss("ndpp", None, options={"new_prototypes": "running"})
    loss.start_epoch(0, of=1)
    assert loss(torch.randn(4, DIM), torch.tensor([0, 1, 2, 3])) > 0
    scene.loss("hbct", None, space=Lorentz(DIM), options={"contrast": "infonce"}, **own, old_classes=None)


# ---- what is refused, and in which words


def p2s(**values: Any) -> CompatibilityLoss:
    given = {"old_embeddings": np.eye(6, 5, dtype=np.float32) + 0.1, "old_labels": np.arange(6)}
    return CompatibilityLoss("p2s", **{**given, **values})  # type: ignore[arg-type]


def hot_refresh(**values: Any) -> CompatibilityLoss:
    return CompatibilityLoss("hot_refresh", **{"space": Hypersphere(5), **values})


E, OLD = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
L = torch.tensor([0, 1, 2, 0])
NAN = E.clone()
NAN[2, 1] = torch.nan

REFUSED: dict[str, tuple[Callable[[], object], type[LimpetError], str]] = {
    "a tuple": (lambda: p2s()((E, E), L), DataError, r"a tuple of 2(.|\n)*output\[0\]"),
    "an array": (lambda: p2s()(E.numpy(), L), DataError, "array of shape (.|\n)*from_numpy"),  # type: ignore[arg-type]
    "one embedding": (lambda: p2s()(E[0], L[:1]), DataError, r"shape \(5,\)(.|\n)*\(items, 5\)"),
    "another dimension": (lambda: p2s()(torch.randn(4, 7), L), SpaceMismatchError, "7 dimensions(.|\n)*layer of 5"),
    "whole numbers": (lambda: p2s()(L[:, None].expand(4, 5), L), DataError, "int64(.|\n)*no floating numbers"),
    "NaN": (lambda: p2s()(NAN, L), DataError, "1 of 4 rows, first: row 2"),
    "fewer labels": (lambda: p2s()(E, L[:3]), DataError, r"labels is .*\(3,\)(.|\n)*\(4,\)"),
    "labels that are no numbers": (lambda: p2s()(E, E[:, 0]), DataError, "labels is a torch.float32"),
    "labels as a mask": (lambda: p2s()(E, L > 0), DataError, "labels is a torch.bool"),
    "an unknown class": (lambda: p2s()(E, L + 4), DataError, "class 6(.|\n)*6 classes of the training set: 0 to 5"),
    "no old view": (
        lambda: hot_refresh()(E, L), ConfigError, r"HotRefresh needs(.|\n)*old=old_model\(inputs\)(.|\n)*index="),
    "an old view of fewer items": (lambda: hot_refresh()(E, L, old=OLD[:3]), DataError, "3 rows, and the batch 4"),
    "an old view of whole numbers": (lambda: hot_refresh()(E, L, old=OLD.long()), DataError, "old is a torch.int64"),
    "an old view that is NaN": (lambda: hot_refresh()(E, L, old=NAN), DataError, "old holds NaN"),
    "pairs of a miner": (lambda: hot_refresh()(E, L, (L, L, L), OLD), ConfigError, "mined pairs(.|\n)*ref_emb="),
    "an old view in the place of pairs": (lambda: hot_refresh()(E, L, OLD), ConfigError, "pass old embeddings by name"),
    "both names": (lambda: hot_refresh()(E, L, old=OLD, ref_emb=OLD), ConfigError, "one of them"),
    "labels of other items": (
        lambda: hot_refresh()(E, L, ref_emb=OLD, ref_labels=L.flip(0) + 1), DataError, "labels of the batch"),
    "a row that is not there": (
        lambda: p2s()(E, L, index=torch.tensor([0, 1, 2, 6])), DataError, "index runs from 0 to 6(.|\n)*0 to 5"),
    "double precision": (
        lambda: p2s(classifier="softmax")(E.double(), L), ConfigError, r"torch.float32(.|\n)*loss.double\(\)"),
    "another device": (lambda: p2s()(E.to("meta"), L), ConfigError, r"on cpu, (.|\n)*on meta(.|\n)*loss.to\('meta'\)"),
    "an unknown method": (lambda: CompatibilityLoss("ndp"), ConfigError, "Did you mean 'ndpp'"),
    "no method": (lambda: CompatibilityLoss(nn.Linear(2, 2)), ConfigError, "a Linear"),  # type: ignore[arg-type]
    "an unknown option": (lambda: p2s(options={"wait": 1.0}), ConfigError, "no option 'wait'"),
    "no old embeddings": (lambda: CompatibilityLoss("p2s"), ConfigError, "P2S needs(.|\n)*old_embeddings="),
    "embeddings in a list": (lambda: p2s(old_embeddings=[[1.0]]), DataError, "old_embeddings is a list of 1"),
    "embeddings of whole numbers": (lambda: p2s(old_embeddings=np.ones((6, 5), int)), DataError, "int64 array"),
    "old embeddings that are NaN": (
        lambda: p2s(old_embeddings=np.full((6, 5), np.nan)), UnusableVectorsError, "'row 0', 'row 1'"),
    "old labels of another length": (lambda: p2s(old_labels=np.arange(5)), DataError, r"\(5,\)(.|\n)*6 items"),
    "old labels that are no numbers": (lambda: p2s(old_labels=np.ones(6)), DataError, "float64 array"),
    "labels without embeddings": (
        lambda: CompatibilityLoss("hot_refresh", old_labels=np.arange(3)), DataError, "old_embeddings= "),
    "no labels": (lambda: p2s(old_labels=None), DataError, "labels"),
    "how many dimensions": (lambda: CompatibilityLoss("hot_refresh"), ConfigError, r"Hypersphere\(128\)"),
    "a space that it does not know": (
        lambda: CompatibilityLoss("ndpp", old_embeddings=np.eye(3), old_labels=np.arange(3), space="lorentz"),
        ConfigError, "does not know the space 'lorentz'"),
    "an unknown space": (lambda: p2s(space="sphere"), ConfigError, "Did you mean 'hypersphere'"),
    "no classifier": (lambda: CompatibilityLoss("mixbct", old_embeddings=np.eye(3), old_labels=np.arange(3)),
        ConfigError, "MixBCT needs classifier=(.|\n)*softmax"),
    "an unknown classifier": (lambda: p2s(classifier="arc"), ConfigError, "Did you mean 'arcface'"),
    "a classifier of other classes": (
        lambda: p2s(classifier=nn.Linear(5, 9)), DataError, "scores 9 classes(.|\n)*6(.|\n)*classes=9"),
    "an old classifier without its classes": (
        lambda: p2s(old_classifier=nn.Linear(5, 2)), ConfigError, "old_classes="),
    "old classes that are neither numbers nor names": (
        lambda: p2s(old_classifier=nn.Linear(5, 2), old_classes=[0.5, 1.5]), ConfigError, "old_classes holds 0.5"),
    "fewer classes than there are": (
        lambda: CompatibilityLoss("p2s", old_embeddings=np.eye(5), old_labels=np.arange(5), classes=2), DataError,
        "old_labels holds the classes 2, 3, 4, which are none of the training set(.|\n)*classes="),
    "a mask of another length": (
        lambda: p2s()(E, L, replayed=torch.zeros(3, dtype=torch.bool)), DataError, r"replayed is (.|\n)*shape \(4,\)"),
    "a mask of numbers": (lambda: p2s()(E, L, replayed=torch.ones(4)), DataError, "replayed is a torch.float32"),
    "a mask that is a list": (lambda: p2s()(E, L, replayed=[True] * 4), DataError, "replayed is a list of 4"),
    "complex numbers": (lambda: p2s()(E.to(torch.complex64), L), DataError, "are no floating numbers"),
    "numbers beyond float32": (
        lambda: CompatibilityLoss("p2s", old_embeddings=np.eye(5) * 1e300, old_labels=np.arange(5)),
        UnusableVectorsError, "NaN or infinite"),
    "own embeddings without labels": (lambda: p2s(own_embeddings=np.eye(5)), DataError, "own_labels"),
    "weights to hold": (
        lambda: CompatibilityLoss("rwalk", space=Hypersphere(5)), ConfigError, "RWalk looks at the w(.|\n)*model="),
    "no epoch": (lambda: CompatibilityLoss("ndpp", old_embeddings=np.eye(5), old_labels=np.arange(5))(E, L),
        ConfigError, r"NDPP needs how far(.|\n)*loss.start_epoch\(k, of=n\)"),
    "no new embeddings": (lambda: CompatibilityLoss("ndpp", old_embeddings=np.eye(5), old_labels=np.arange(5))
        .start_epoch(0, of=2), ConfigError, "NDPP needs new embeddings of(.|\n)*new_embeddings="),
    "new embeddings of fewer items": (
        lambda: CompatibilityLoss("ndpp", old_embeddings=np.eye(5), old_labels=np.arange(5)).start_epoch(
            0, of=2, new_embeddings=torch.eye(5)[:4]), DataError, "new_embeddings has 4 rows"),
    "no number of steps": (lambda: CompatibilityLoss("advbct", old_embeddings=np.eye(5), old_labels=np.arange(5),
        options={"classes": "new"}).start_epoch(0, of=2), ConfigError, r"AdvBCT needs(.|\n)*steps=len\(loader\)"),
    "an epoch out of range": (lambda: p2s().start_epoch(2, of=2), ConfigError, "from 0 to of - 1"),
    "changed inputs": (
        lambda: CompatibilityLoss("rainbow", classifier="softmax", classes=3, space=Hypersphere(5))(E, L),
        ConfigError, "inputs = loss.change_inputs"),
    "a method's own way out": (
        lambda: CompatibilityLoss("lwf", space=Hypersphere(5)), ConfigError, r"options=\{'weight': 0\}"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_words(case: str) -> None:
    action, error, words = REFUSED[case]
    with pytest.raises(error, match=words) as found:
        action()
    assert type(found.value) is error


def test_a_batch_too_many_and_a_step_unseen_are_told(scenes: dict[str, Scene]) -> None:
    loss = p2s()
    loss.start_epoch(0, of=3, steps=1)
    loss(E, L)
    with pytest.raises(ConfigError, match=r"Batch 2 of an epoch of 1(.|\n)*loss.start_epoch\(1, of=3, steps=1\)"):
        loss(E, L)
    own = OwnLoop("rwalk", scenes["hypersphere"])
    own.epoch(0, 1, slice(0, 1))
    own.loss.after_step = lambda: None  # type: ignore[method-assign]  # forgotten
    with pytest.raises(ConfigError, match=r"weights moved without it(.|\n)*loss.after_step\(\)"):
        own.epoch(0, 1, slice(1, 3))


class Undeclared(METHODS["l2"]):  # type: ignore[misc, name-defined]
    """Reads what it does not say."""

    reads = frozenset()

    def forward(self, step: Any) -> dict[str, Tensor]:
        return {**super().forward(step), "far": step.progress + step.new.features.sum() + step.index.sum()}


def test_what_a_method_does_not_declare_is_refused_where_it_is_read() -> None:
    loss = CompatibilityLoss(Undeclared(), space=Hypersphere(5))
    with pytest.raises(ConfigError, match="old=old_model"):
        loss(E, L)
    with pytest.raises(ConfigError, match="start_epoch"):
        loss(E, L, old=OLD)
    loss.start_epoch(0, of=1, steps=4)
    with pytest.raises(ConfigError, match="index=rows"):
        loss(E, L, old=OLD)


# ---- manners


def test_the_manner_of_pytorch_metric_learning() -> None:
    loss = hot_refresh()
    expected = loss(E, L, old=OLD)
    assert torch.equal(loss(E, L, ref_emb=OLD, ref_labels=L), expected) and torch.equal(
        loss(E, L, None, OLD, L), expected
    )


def test_terms_add_up_and_the_task_is_another_s_without_a_classifier() -> None:
    alone, beside = p2s(), p2s(classifier="softmax")
    assert alone.terms(E, L)["task"] == 0 and [*alone.parameters()] == []
    assert torch.equal(alone.terms(E, L)["contrast"], beside.terms(E, L)["contrast"])
    assert beside(E, L) == sum(beside.terms(E, L).values()) and len([*beside.parameters()]) == 1


def test_a_classifier_of_one_s_own() -> None:
    linear = nn.Linear(5, 6)
    loss = p2s(classifier=linear)
    expected = nn.functional.cross_entropy(linear(E), L)
    torch.testing.assert_close(loss.terms(E, L)["task"], expected)
    assert [*loss.parameters()] == [*linear.parameters()]


def test_classes_are_told_by_their_numbers() -> None:
    """Numbers need not begin at 0; old classes match by number, own ones too."""
    numbers = np.array([7, 7, 3, 3, 90, 90])
    vectors = np.eye(6, 5, dtype=np.float32) + 0.1
    loss = CompatibilityLoss("p2s", old_embeddings=vectors, old_labels=numbers)
    plain = CompatibilityLoss("p2s", old_embeddings=vectors, old_labels=np.array([1, 1, 0, 0, 2, 2]))
    assert loss(E, torch.tensor([3, 7, 90, 3])) == plain(E, torch.tensor([0, 1, 2, 0]))
    with pytest.raises(DataError, match=r"classes 4, 5(.|\n)*\[3, 7, 90\]"):
        loss(E, torch.tensor([3, 5, 4, 3]))
    head = PlainHead(torch.randn(2, 5))
    bct = CompatibilityLoss("bct", old_embeddings=vectors, old_labels=numbers, old_classifier=head, old_classes=[90, 4])
    found = bct.terms(E, torch.tensor([3, 7, 90, 3]))["influence"]
    torch.testing.assert_close(found, nn.functional.cross_entropy(E[2:3] @ head.weight.T, torch.tensor([0])))


def test_sets_of_embeddings_bring_space_labels_and_names() -> None:
    world: World = make_world(Lorentz(5))
    by_set = CompatibilityLoss("p2s", old_embeddings=world.embeddings)
    by_arrays = CompatibilityLoss(
        "p2s", old_embeddings=world.embeddings.vectors, old_labels=world.labels, space="lorentz"
    )
    short, labels = E / 4, torch.tensor([5, 0, 1, 1])
    assert by_set.space == by_arrays.space == Lorentz(5) and by_set(short, labels) == by_arrays(short, labels)
    unnamed = world.embeddings.replace(class_names=None, labels=world.labels * 10)
    assert CompatibilityLoss("p2s", old_embeddings=unnamed)(short, labels * 10) == by_set(short, labels)
    with pytest.raises(DataError, match="points"):
        CompatibilityLoss("p2s", old_embeddings=world.embeddings.replace(form="points"))
    with pytest.raises(DataError, match="too long for the Lorentz space"):
        by_set(100 * E, labels)
    assert isinstance(world.embeddings, EmbeddingSet)


def test_a_curvature_is_learned_with_the_rest() -> None:
    loss = CompatibilityLoss("hbct", space=LearnedLorentz(5), classifier="lorentz", classes=3)
    assert "learned_space.log_ratio" in dict(loss.named_parameters())
    loss(E / 4, L, old=OLD / 4).backward()
    assert loss.learned_space.log_ratio.grad.abs() > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [name for name, space in KNOWN if space == "hypersphere"])
def test_in_evaluation_mode_nothing_is_kept(name: str, scenes: dict[str, Scene]) -> None:
    own = OwnLoop(name, scenes["hypersphere"])
    own.epoch(0, 1, slice(0, 2))
    own.loss.eval()
    before = copy.deepcopy(own.loss.state_dict())
    found = next(iter(own.loader))
    with torch.no_grad():
        values = {own.loss(own.model(found.inputs), found.labels, index=found.index).item() for _ in range(2)}
    assert len(values) == 1
    after = own.loss.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", [name for name, space in KNOWN if space == "hypersphere"])
def test_a_copy_goes_on_by_itself(name: str, scenes: dict[str, Scene]) -> None:
    own = OwnLoop(name, scenes["hypersphere"])
    own.epoch(0, 1, slice(0, 1))
    before = copy.deepcopy(own.loss.state_dict())
    other = copy.deepcopy(own, {id(part): part for part in (own.scene, own.loader)})
    other.epoch(0, 1, slice(1, 2))
    assert all(torch.equal(values, before[key]) for key, values in own.loss.state_dict().items())
    own.epoch(0, 1, slice(1, 2))
    assert own.losses == other.losses


@pytest.mark.parametrize("name", [name for name, space in KNOWN if space == "hypersphere"])
def test_a_pickled_loss_is_the_same_loss(name: str, scenes: dict[str, Scene]) -> None:
    """Processes that are spawned are handed one."""
    own = OwnLoop(name, scenes["hypersphere"])
    own.epoch(0, 1, slice(0, 1))
    own.loss.eval()
    other = pickle.loads(pickle.dumps(own.loss))  # noqa: S301 - its own
    found = next(iter(own.loader))
    with torch.no_grad():
        values = [loss(own.model(found.inputs), found.labels, index=found.index).item() for loss in (own.loss, other)]
    assert values[0] == values[1]


@pytest.mark.parametrize(("name", "space"), KNOWN)
def test_half_precision_around_it_changes_no_more_than_the_rounding(
    name: str, space: str, scenes: dict[str, Scene]
) -> None:
    """The loss of embeddings that autocast rounded is that of the same numbers in float32."""
    own, same = (OwnLoop(name, scenes[space]) for _ in range(2))
    own.start(0, 1), same.start(0, 1)
    found = next(iter(own.loader))
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = own.model(own.loss.change_inputs(found.inputs, found.labels))
        assert embeddings.dtype == torch.bfloat16
        half = own.loss(embeddings, found.labels, index=found.index)
    same.loss.change_inputs(found.inputs, found.labels)
    full = same.loss(embeddings.float(), found.labels, index=found.index)
    assert half.dtype == torch.float32 and torch.equal(half, full)
    half.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in own.model.parameters())


def test_double_precision(scenes: dict[str, Scene]) -> None:
    scene = scenes["hypersphere"]
    rows = torch.arange(8)
    for name in ("advbct", "nccl", "ndpp"):
        loss = scene.loss(name, copy.deepcopy(scene.head), options={}).double()
        loss.start_epoch(0, of=1, steps=2, new_embeddings=torch.randn(32, DIM))
        found = loss(torch.randn(8, DIM, dtype=torch.float64), torch.from_numpy(scene.images.labels[:8]), index=rows)
        assert found.dtype == torch.float64


def test_a_session_hands_on_to_the_next(scenes: dict[str, Scene]) -> None:
    scene = scenes["hypersphere"]
    model, head = scene.start()
    first = scene.loss("ewc", head, model=model, old_embeddings=None, old_labels=None, classes=CLASSES,
                       own_embeddings=None, old_classifier=None, old_classes=None)  # fmt: skip
    pairs = [(found.inputs, found.labels) for found in encoding_loader(scene.images, batch_size=32)]
    first.end_session(pairs)
    second = CompatibilityLoss(
        "ewc", model=model, classifier=head, classes=CLASSES, space=Hypersphere(DIM), carried=first.carried()
    )
    labels = torch.from_numpy(scene.images.labels[:8])
    assert second.terms(torch.randn(8, DIM), labels)["penalty"] == 0
    with torch.no_grad():
        model.body[3].weight.add_(0.1)
    assert second.terms(torch.randn(8, DIM), labels)["penalty"] > 0


def test_the_generator_of_others_is_left_alone() -> None:
    state = torch.get_rng_state()
    CompatibilityLoss("advbct", old_embeddings=np.eye(5), old_labels=np.arange(5), options={"classes": "new"})
    assert torch.equal(state, torch.get_rng_state())


def test_an_old_model_that_sees_the_same_items(scenes: dict[str, Scene]) -> None:
    """The old view of the batch by itself is that of the rows looked up."""
    scene = scenes["hypersphere"]
    rows, labels = torch.arange(8), torch.from_numpy(scene.images.labels[:8])
    embeddings, old = torch.randn(8, DIM), torch.from_numpy(scene.old.embeddings.vectors[:8].copy())
    for name in ("l2", "hot_refresh", "hoc"):
        loss = scene.loss(name, None)
        assert loss(embeddings, labels, old=old.requires_grad_()) == loss(embeddings, labels, index=rows)
        loss(embeddings.clone().requires_grad_(), labels, old=old).backward()
        assert old.grad is None


def test_a_method_that_was_built(scenes: dict[str, Scene]) -> None:
    built = CompatibilityLoss(build_method("l2", {"weight": 1.0}), space=Hypersphere(5))
    named = CompatibilityLoss("l2", options={"weight": 1.0}, space=Hypersphere(5))
    assert built(E, L, old=OLD) == named(E, L, old=OLD)
    with pytest.raises(ConfigError, match="its own arguments"):
        CompatibilityLoss(build_method("l2", {}), options={"weight": 1.0}, space=Hypersphere(5))
    assert "L2 on the hypersphere of dimension 5" in repr(named)


def test_labels_beyond_int64_are_refused() -> None:
    rows, beyond = np.eye(2, dtype=np.float32), np.array([2**63 + 1, 2**63], np.uint64)
    with pytest.raises(DataError, match="old_labels reach 9223372036854775809"):
        CompatibilityLoss("p2s", old_embeddings=rows, old_labels=beyond)
    loss = CompatibilityLoss("p2s", old_embeddings=rows, old_labels=beyond - np.uint64(2**63))
    with pytest.raises(DataError, match="labels reach 9223372036854775809"):
        loss(torch.eye(2), torch.from_numpy(beyond))


def test_an_old_model_of_fewer_dimensions(scenes: dict[str, Scene]) -> None:
    """A space that is wider than old embeddings lets them count as padded with zeros, in a loop of one's own too."""
    scene, wide = scenes["hypersphere"], Hypersphere(DIM + 3)
    given: dict[str, Any] = {"old_embeddings": scene.old.embeddings.vectors, "old_labels": scene.images.labels}
    loss = CompatibilityLoss("free_dimensions", space=wide, classifier=nn.Linear(DIM + 3, CLASSES), **given)
    generator = torch.Generator().manual_seed(0)
    new, rows = torch.randn(8, DIM + 3, generator=generator), torch.arange(8)
    labels = torch.from_numpy(scene.images.labels[:8])
    terms = loss.terms(new, labels, index=rows)
    alone = CompatibilityLoss("free_dimensions", classifier=nn.Linear(DIM, CLASSES), **given)
    narrow = alone.terms(new[:, :DIM], labels, index=rows)
    for name in ("alignment", "contrast"):  # the first values alone meet the old model
        torch.testing.assert_close(terms[name], narrow[name])
    old = torch.from_numpy(np.array(scene.old.embeddings.vectors[:8]))
    torch.testing.assert_close(loss.terms(new, labels, old=old)["alignment"], narrow["alignment"])
    with torch.no_grad():
        loss.method.turn.normal_(generator=generator)  # type: ignore[union-attr, operator]
    task = loss.terms(new, labels, index=rows)["task"]
    loss.end_training()
    loss.method.turn = None  # type: ignore[assignment]
    torch.testing.assert_close(loss.terms(new, labels, index=rows)["task"], task)
    with pytest.raises(SpaceMismatchError, match=f"layer of {DIM}"):
        loss.terms(new, labels, old=torch.zeros(8, DIM + 3))
    assert pickle.dumps(loss)
