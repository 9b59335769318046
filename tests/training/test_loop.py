from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from limpet.data.augment import Augmentation
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import SPACES, Hypersphere, Space
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, OldModel, Step
from limpet.models.heads import build_head, default_head
from limpet.models.seeding import seeded
from limpet.training.encode import encode, encode_features
from limpet.training.layout import lay_out_state, weights_channels_last
from limpet.training.loop import fit
from limpet.training.run_state import History
from limpet.training.schedules import Schedule, cosine

CLASSES, SIDE, DIM = 5, 8, 6


@pytest.fixture(scope="module")
def images(make_images: Any) -> ImageSet:
    return make_images(60, CLASSES, SIDE, noise=80)


class Net(nn.Module):
    """Small, but with all that makes resuming hard: batch statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(SIDE * SIDE, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, DIM)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.body(inputs.float() / 255)


@pytest.fixture
def fabric():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning_fabric import Fabric
    return Fabric(accelerator="cpu", devices=1)


@pytest.fixture(scope="module")
def old(images: ImageSet) -> OldModel:
    with seeded(9):
        net, head = Net().eval(), build_head("softmax", CLASSES, DIM, {})
    embeddings = encode(
        net, encoding_loader(images, batch_size=32), Hypersphere(DIM), ids=images.ids, fingerprint="declared:old",
        class_names=images.class_names, form="features",
    )  # fmt: skip
    return OldModel(embeddings, images.class_names, head, own_training=embeddings)


def on_space(old: OldModel, space: Space) -> OldModel:
    """Return the predecessor with its features taken as those of another space, and a classifier of it."""
    if old.embeddings.space == space:
        return old
    features = old.embeddings.replace(vectors=old.embeddings.vectors / 10, space=space)
    with seeded(9):
        head = build_head(default_head(space), CLASSES, DIM, {})
    return dataclasses.replace(old, embeddings=features, own_training=features, head=head)


class Run:
    def __init__(self, images: ImageSet, fabric: Any, old: OldModel | None) -> None:
        self.images, self.fabric, self.old = images, fabric, old

    def __call__(
        self, method: str | CompatibilityMethod = "bct", **changes: Any
    ) -> tuple[dict[str, torch.Tensor], History]:
        built = METHODS[method]() if isinstance(method, str) else method
        space = SPACES[next((name for name in SPACES if name in built.spaces), "hypersphere")](DIM)
        old = changes.pop("old", self.old and on_space(self.old, space))
        with seeded(1):
            net, head = changes.pop("net", None) or Net(), build_head(default_head(space), CLASSES, DIM, {})
        loader = training_loader(
            self.images, batch_size=16, seed=3, augmentation=Augmentation(crop_padding=1, flip=True)
        )
        arguments: dict[str, Any] = {
            "space": space, "class_names": self.images.class_names, "old": old if built.needs_old else None,
            "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            "scheduler": cosine(), "fabric": self.fabric, "epochs": 3, "seed": 4,
        }  # fmt: skip
        history = fit(net, head, built, loader, encoding_loader(self.images, batch_size=32), **{**arguments, **changes})
        modules = {"model": net, "head": head, "method": built}
        state = {f"{k}.{n}": v for k, module in modules.items() for n, v in module.state_dict().items()}
        return state, history


@pytest.fixture
def run(images: ImageSet, fabric: Any, old: OldModel) -> Run:
    return Run(images, fabric, old)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


SMALL_SCALE: dict[str, dict[str, Any]] = {  # defaults meant for more than 60 items and 4 epochs
    "nccl": {"queue_size": 16},  # the loss of a queue that is still being filled rises
    "hot_refresh": {"temperature": 0.1},
    "unibct": {"refine": False},  # a term that sets in later raises the sum
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_lowers_its_loss(run, method) -> None:
    _, history = run(METHODS[method](**SMALL_SCALE.get(method, {})), epochs=4)
    assert [set(epoch) for epoch in history.epochs] == [set(history.epochs[0])] * 4
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


class Interrupt:
    """Stops the run, as a user would, at the n-th step."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, event: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", sorted(METHODS))
def test_interrupted_and_resumed_equals_uninterrupted(run, method, tmp_path) -> None:
    path, kept = tmp_path / "checkpoint.safetensors", list[bytes]()

    def keep(event: dict[str, Any]) -> None:
        kept.append(path.read_bytes())
        if len(kept) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(method, epochs=2, checkpoint=path, checkpoint_seconds=0, progress=keep)
    whole, history = run(method, epochs=2)
    for step, checkpoint in enumerate(kept, start=1):
        path.write_bytes(checkpoint)
        resumed, again = run(method, epochs=2, checkpoint=path, checkpoint_seconds=0)
        assert same(whole, resumed), f"stopped at step {step}"
        assert again == history, f"stopped at step {step}"


def test_a_checkpoint_is_written_once_there_is_a_second_to_lose(run, tmp_path, monkeypatch) -> None:
    path, clock = tmp_path / "checkpoint.safetensors", [0.0]
    monkeypatch.setattr("limpet.training.loop.time.monotonic", lambda: clock[0])
    found = []

    def look(event: dict[str, Any]) -> None:
        if event["step"] == 0:
            found.append(path.exists())
        clock[0] += 0.4 / event["steps"]

    run("bct", checkpoint=path, epochs=4, progress=look)
    assert found == [False, False, False, True] and path.exists(), "three epochs of 0.4 seconds"


@pytest.mark.parametrize("name", ["ndpp", "odpp"])
@pytest.mark.parametrize("stop", [2, 4, 5])
def test_running_class_means_survive_an_interruption(run, name, stop, tmp_path) -> None:
    whole, history = run(METHODS[name](new_prototypes="running"))
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(METHODS[name](new_prototypes="running"), checkpoint=path, checkpoint_seconds=0, progress=Interrupt(stop))
    resumed, again = run(METHODS[name](new_prototypes="running"), checkpoint=path, checkpoint_seconds=0)
    assert same(whole, resumed) and again.epochs == history.epochs


def test_class_means_are_those_of_the_embeddings(run, images) -> None:
    method = Recorder()
    run(method)
    for _, view, means in method.epochs:
        expected, _ = Hypersphere(DIM).mean(view.points, torch.from_numpy(images.labels), CLASSES)
        torch.testing.assert_close(means, expected)
    assert not torch.equal(method.epochs[0][2], method.epochs[1][2])


def test_what_a_method_measures_is_in_the_history_and_the_events(run) -> None:
    events: list[dict[str, Any]] = []
    _, history = run("ndpp", progress=events.append)
    moved = [epoch["degrees moved"] for epoch in history.epochs]
    assert len(set(moved)) == 3 and all(0 < angle < 5 for angle in moved)
    assert [event["measures"]["degrees moved"] for event in events if event["step"] == 0] == moved


def test_resuming_with_adamw_and_selection(run, tmp_path) -> None:
    changes = {
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "select": lambda model: float(next(model.parameters()).abs().sum()),
    }
    whole, history = run(**changes)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(**changes, checkpoint=path, checkpoint_seconds=0, progress=Interrupt(5))
    resumed, again = run(**changes, checkpoint=path, checkpoint_seconds=0)
    assert same(whole, resumed) and again == history and history.best_epoch is not None


def test_a_checkpoint_is_never_unpickled_and_of_the_same_run(run, tmp_path, monkeypatch) -> None:
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, checkpoint_seconds=0, progress=Interrupt(2))
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("unpickled"))
    with pytest.raises(ConfigError, match="epochs"):
        run(checkpoint=path, epochs=4)
    with pytest.raises(ConfigError, match="method class"):
        run("p2s", checkpoint=path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="delete this file"):
        run(checkpoint=path)
    assert path.read_bytes() == b"nonsense"


def test_same_seed_same_result_and_the_global_state_is_untouched(run) -> None:
    state = torch.get_rng_state()
    first, second = run("advbct")[0], run("advbct")[0]
    assert same(first, second) and torch.equal(state, torch.get_rng_state())
    assert not same(first, run("advbct", seed=5)[0])


class SlowImages(ArrayImages):
    """Takes its time to read a batch."""

    def read(self, rows: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return super().read(rows)


def test_the_history_tells_how_long_the_loop_waited_for_data(images, fabric, tmp_path) -> None:
    slow = ImageSet(SlowImages(images.read(np.arange(60))), images.labels, images.class_names, images.ids)
    run, path = Run(slow, fabric, None), tmp_path / "checkpoint.safetensors"
    _, history = run("independent")
    assert 9 * 0.02 <= history.waiting < history.seconds
    assert history.waiting_share == history.waiting / history.seconds
    with pytest.raises(KeyboardInterrupt):
        run("independent", checkpoint=path, checkpoint_seconds=0, progress=Interrupt(5))
    _, resumed = run("independent", checkpoint=path, checkpoint_seconds=0)
    assert 9 * 0.02 <= resumed.waiting < resumed.seconds, "what was waited before the interruption counts too"


def test_steps_are_not_waiting(run) -> None:
    _, history = run("independent", progress=lambda event: time.sleep(0.02))
    assert 0 < history.waiting <= history.seconds - 9 * 0.02


class ConvNet(nn.Module):
    """Notes, as pairs, whether images and weights lie as `torch.channels_last` where they are convolved."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3), nn.Flatten(), nn.Linear(128, DIM)
        )
        self.seen: set[tuple[bool, bool]] = set()

    def lies(self, values: torch.Tensor) -> bool:
        return values.is_contiguous(memory_format=torch.channels_last)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen.add((self.lies(inputs), self.lies(self.body[0].weight)))
        return self.body(inputs.float() / 255)


@pytest.fixture
def coloured(images, fabric) -> Run:
    pixels = images.read(np.arange(60)) + np.random.default_rng(1).integers(0, 30, (60, 3, SIDE, SIDE), np.uint8)
    items = ImageSet(ArrayImages(pixels), images.labels, images.class_names, images.ids)
    embeddings = encode(
        conv_net(9), encoding_loader(items, batch_size=32), Hypersphere(DIM), ids=items.ids, form="features",
        fingerprint="declared:old", class_names=items.class_names,
    )  # fmt: skip
    with seeded(9):
        head = build_head("softmax", CLASSES, DIM, {})
    return Run(items, fabric, OldModel(embeddings, items.class_names, head))


def conv_net(seed: int) -> ConvNet:
    with seeded(seed):
        return ConvNet()


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_and_weights_lie_as_asked_while_training(coloured, channels_last) -> None:
    """In training steps, in passes over all images, and for a predecessor that sees the same images."""
    new, encoder = conv_net(1), conv_net(9).eval()
    recorder = Recorder()
    recorder.penalty = lambda model: {}  # type: ignore[method-assign]
    recorder.after_step = lambda model: None  # type: ignore[method-assign]
    coloured(recorder, net=new, old=dataclasses.replace(coloured.old, encoder=encoder), channels_last=channels_last)
    assert new.seen == encoder.seen == {(channels_last, channels_last)}
    for net in (new, encoder):
        assert all(value.is_contiguous() for value in net.state_dict().values()), "and not afterwards"


def test_channels_last_changes_the_rounding_at_most_and_resumes_exactly(coloured, tmp_path) -> None:
    plain, before = coloured(net=conv_net(1))
    whole, history = coloured(net=conv_net(1), channels_last=True)
    assert all(torch.allclose(plain[name].float(), whole[name].float(), atol=1e-3) for name in plain)
    assert history.epochs[0]["loss"] == pytest.approx(before.epochs[0]["loss"], rel=1e-4)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        coloured(net=conv_net(1), channels_last=True, checkpoint=path, checkpoint_seconds=0, progress=Interrupt(5))
    with pytest.raises(ConfigError, match="channels last"):
        coloured(net=conv_net(1), checkpoint=path)
    resumed, again = coloured(net=conv_net(1), channels_last=True, checkpoint=path, checkpoint_seconds=0)
    assert same(whole, resumed) and again == history


def test_what_an_optimiser_remembers_lies_as_its_parameters() -> None:
    net = conv_net(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.zeros(2, 3, SIDE, SIDE)).sum().backward()
    optimizer.step()
    kept = [optimizer.state[parameter]["momentum_buffer"].clone() for parameter in net.parameters()]
    with weights_channels_last([net]):
        lay_out_state(optimizer)
        for parameter, values in zip(net.parameters(), kept, strict=True):
            assert optimizer.state[parameter]["momentum_buffer"].stride() == parameter.stride()
            assert torch.equal(optimizer.state[parameter]["momentum_buffer"], values)
        assert not all(parameter.is_contiguous() for parameter in net.parameters())


def test_the_first_best_epoch_is_kept(run) -> None:
    scores = iter([0.2, 0.7, 0.7])
    seen: list[torch.Tensor] = []

    def select(model: nn.Module) -> float:
        assert not model.training and not torch.is_grad_enabled()
        seen.append(model.body[1].weight.detach().clone())
        return next(scores)

    state, history = run(select=select)
    assert history.best_epoch == 1 and [epoch["score"] for epoch in history.epochs] == [0.2, 0.7, 0.7]
    assert torch.equal(state["model.body.1.weight"], seen[1])


class Recorder(CompatibilityMethod):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.epochs: list[Any] = []
        self.moved: list[bool] = []
        self.before: torch.Tensor | None = None

    def on_epoch_start(self, epoch: Any) -> None:
        self.epochs.append((epoch, epoch.new_embeddings(), epoch.new_prototypes()))

    def forward(self, step: Step) -> dict[str, torch.Tensor]:
        self.steps.append(step)
        return {"task": step.head.loss(step.new, step.labels)}

    def penalty(self, model: nn.Module) -> dict[str, torch.Tensor]:
        self.before = model.body[1].weight.detach().clone()
        return {"decay": 0.1 * model.body[1].weight.square().sum()}

    def after_step(self, model: nn.Module) -> None:
        weight = model.body[1].weight
        self.moved.append(weight.grad is not None and not torch.equal(weight, self.before))


def test_what_a_method_is_told(run, images, old) -> None:
    method = Recorder()
    _, history = run(method)
    assert len(method.steps) == 9 and all(method.moved) and len(method.moved) == 9
    assert [step.epoch for step in method.steps] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [step.progress for step in method.steps] == [pytest.approx(n / 9) for n in range(9)]
    for step in method.steps:
        np.testing.assert_array_equal(step.old.features, old.embeddings.vectors[step.index.numpy()])
        np.testing.assert_array_equal(step.labels, images.labels[step.index.numpy()])
        torch.testing.assert_close(step.new.points.norm(dim=1), torch.ones(16))
        assert not step.old.features.requires_grad and step.new.features.requires_grad
        assert not step.replayed.any()
    assert set(history.epochs[0]) == {"loss", "task", "decay"}
    assert history.epochs[0]["loss"] == pytest.approx(history.epochs[0]["task"] + history.epochs[0]["decay"])
    assert [epoch.index for epoch, *_ in method.epochs] == [0, 1, 2]
    epoch, view, _ = method.epochs[0]
    assert epoch.total == 3 and epoch.training_size == 60 and view.features.shape == (60, DIM)
    assert not view.features.requires_grad


def test_old_labels_are_matched_by_class_name(run, old) -> None:
    method = Recorder()
    backwards = OldModel(old.embeddings, ["c4", "c3", "unknown"], old.head)
    run(method, old=backwards)
    for step in method.steps:
        assert step.old_labels.tolist() == [{4: 0, 3: 1}.get(label, -1) for label in step.labels.tolist()]


def test_the_old_model_sees_the_same_augmented_view_when_asked(run, old) -> None:
    seen: list[torch.Tensor] = []

    class Watching(Net):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.append(inputs)
            return super().forward(inputs)

    method = Recorder()
    with seeded(9):
        encoder = Watching()
    run(method, old=OldModel(old.embeddings, old.classes, old.head, encoder=encoder), epochs=1)
    assert len(seen) == 3 and not encoder.training
    cached = old.embeddings.vectors[method.steps[0].index.numpy()]
    assert not np.allclose(method.steps[0].old.features, cached), "augmented, so not the clean rows"


def test_clipping_covers_the_model_only(run) -> None:
    class Steep(CompatibilityMethod):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.ones(1))
            self.norms: list[tuple[float, float]] = []

        def forward(self, step: Step) -> dict[str, torch.Tensor]:
            return {"task": 1000 * step.head.loss(step.new, step.labels) + 1000 * self.own.sum()}

        def after_step(self, model: nn.Module) -> None:
            total = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
            self.norms.append((total.item(), self.own.grad.norm().item()))

    method = Steep()
    run(method, clip_norm=0.5, epochs=1, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-6))
    assert len(method.norms) == 3 and all(model <= 0.5001 and own == 1000 for model, own in method.norms)


def test_learning_rate_follows_the_schedule(run) -> None:
    rates: list[float] = []
    run(scheduler=Schedule("step", lambda done, epochs: 1 - done / epochs),
        progress=lambda event: rates.append(event["learning_rate"]))  # fmt: skip
    assert rates == pytest.approx([0.1 * (1 - n / 9) for n in range(9)])


def test_bf16_computes_losses_in_float32(images, old) -> None:
    from lightning_fabric import Fabric

    method = Recorder()
    Run(images, Fabric(accelerator="cpu", devices=1, precision="bf16-mixed"), old)(method, epochs=1)
    assert all(step.new.features.dtype == torch.float32 for step in method.steps)


def test_refusals(run, old) -> None:
    with pytest.raises(ConfigError, match="needs a predecessor"):
        run("bct", old=None)
    smaller = old.embeddings.replace(vectors=old.embeddings.vectors[:, :4].copy(), space=Hypersphere(4))
    with pytest.raises(SpaceMismatchError, match=r"--dim 4"):
        run("bct", old=OldModel(smaller, old.classes, old.head))

    class Elsewhere(Recorder):
        spaces = frozenset({"torus"})

    with pytest.raises(ConfigError, match="does not know the space 'hypersphere'"):
        run(Elsewhere())
    with pytest.raises(DataError, match="lower the learning rate"):
        run(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e20))


def test_encoding_keeps_order_and_mode(images) -> None:
    with seeded(0):
        net = Net().train()
    counted: list[dict[str, Any]] = []
    features, labels = encode_features(net, encoding_loader(images, batch_size=7), progress=counted.append)
    assert net.training and counted[-1] == {"done": 60, "total": 60}
    np.testing.assert_array_equal(labels, images.labels)
    whole = net.eval()(torch.from_numpy(images.read(np.arange(60))))
    torch.testing.assert_close(features, whole.detach())
    with pytest.raises(DataError, match="nothing to encode"):
        encode_features(net, [])


def test_a_workers_loader_gives_the_same_batches(images) -> None:
    def batches(workers: int) -> list[torch.Tensor]:
        loader = training_loader(images, batch_size=16, seed=0, augmentation=Augmentation(flip=True), workers=workers)
        loader.sampler.set_position(1, 1)
        return [batch.inputs for batch in loader]

    assert all(torch.equal(a, b) for a, b in zip(batches(0), batches(1), strict=True))
