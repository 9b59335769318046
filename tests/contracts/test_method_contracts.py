"""What every method promises, run over all of `METHODS`."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.errors import ConfigError, EmptyOverlapError, HoldfastError
from holdfast.geometry import SPACES
from holdfast.methods import METHODS, build_method
from holdfast.methods.base import Batch, CompatibilityMethod, OldModel
from holdfast.models.heads import HEADS, build_head
from holdfast.training.run_state import Checkpoint, load_checkpoint, save_checkpoint

DTYPES = [torch.float32, torch.float64]
NO_CHOICE: dict[str, dict[str, Any]] = {"mixbct": {"ratio": 1.0}}  # options under which all draws of rows are alike


def prepared(
    name: str, world: Any, dtype: torch.dtype = torch.float32, *, old: OldModel | None = None, **options: Any
) -> CompatibilityMethod:
    """Make a method ready for its first step, in the order of the training loop."""
    torch.manual_seed(0)
    method = build_method(name, options)
    method.prepare(old or world.old, torch.nn.Identity(), world.head, world.space)
    method.on_epoch_start(world.epoch())
    world.head.to(dtype)
    return method.to(dtype).train()


def batch(world: Any, make_step: Any, rows: np.ndarray, dtype: torch.dtype, **values: Any) -> tuple[torch.Tensor, Any]:
    """Return new embeddings that take a gradient, as the old ones would, and their step."""
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows])).to(dtype)
    noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    new = (values.pop("new") if "new" in values else old + noise).detach().clone().requires_grad_()
    old.requires_grad_()
    labels = torch.from_numpy(world.labels[rows])
    old_labels = torch.where(labels < 4, 3 - labels, -1)
    step = make_step(
        new, labels, world.head, old,
        **{"old_labels": old_labels, "index": torch.from_numpy(rows), "space": world.space, **values},
    )  # fmt: skip
    return new, step


CELLS = [(name, space) for name, method in sorted(METHODS.items()) for space in SPACES if space in method.spaces]


@pytest.fixture(params=CELLS, ids=lambda cell: "-".join(cell))
def cell(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A method and a space that it knows."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def name(cell: tuple[str, str]) -> str:
    return cell[0]


@pytest.fixture
def world(cell: tuple[str, str], make_world: Any) -> Any:
    return make_world(SPACES[cell[1]](5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_terms_are_named_finite_scalars_with_gradient(name, world, make_step, dtype) -> None:
    method = prepared(name, world, dtype)
    new, step = batch(world, make_step, np.arange(0, 48, 3), dtype)
    terms = method(step)
    assert terms and all(term.ndim == 0 and torch.isfinite(term) and term.dtype == dtype for term in terms.values())
    sum(terms.values()).backward()
    assert torch.isfinite(new.grad).all() and new.grad.abs().sum() > 0


EDGES = {
    "one row": (np.array([0]), None),
    "two equal rows": (np.array([0, 0]), None),
    "no class the old model saw": (np.arange(40, 48), None),
    "one class": (np.arange(0, 8), None),
    "every row of another class": (np.arange(0, 48, 8), None),
    "no row": (np.arange(0), None),
    "identical embeddings": (np.arange(0, 48, 6), lambda old: torch.ones_like(old)),
    "a zero vector": (np.arange(0, 48, 6), lambda old: torch.cat([torch.zeros_like(old[:1]), old[1:]])),
    "huge embeddings": (np.arange(0, 48, 6), lambda old: old * 1e6),
    "the old embeddings themselves": (np.arange(0, 48, 6), lambda old: old),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edge", EDGES)
def test_finite_loss_and_gradient_at_the_edges(name, edge, world, make_step, dtype) -> None:
    rows, change = EDGES[edge]
    method = prepared(name, world, dtype)
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows])).to(dtype)
    values = {} if change is None else {"new": change(old)}
    new, step = batch(world, make_step, rows, dtype, progress=0.5, **values)
    loss = sum(method(step).values())
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(new.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_promoted(name, world, make_step, dtype) -> None:
    method = prepared(name, world)
    new, step = batch(world, make_step, np.arange(0, 48, 3), dtype)
    loss = sum(method(step).values())
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(new.grad).all()


def test_same_generator_same_loss_and_no_global_randomness(name, world, make_step) -> None:
    losses = []
    for _ in range(2):
        method = prepared(name, world)
        state = torch.get_rng_state()
        generator = torch.Generator().manual_seed(7)
        _, step = batch(world, make_step, np.arange(0, 48, 3), torch.float32, generator=generator)
        losses.append(sum(method(step).values()).item())
        assert torch.equal(state, torch.get_rng_state())
    assert losses[0] == losses[1]


def test_the_start_of_an_epoch_measures_numbers_and_draws_from_its_generator_only(name, world) -> None:
    method = METHODS[name]()
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    for index in range(2):
        state = torch.get_rng_state()
        measures = method.on_epoch_start(world.epoch(index=index, total=2)) or {}
        assert torch.equal(state, torch.get_rng_state())
        assert all(isinstance(value, float) and math.isfinite(value) for value in measures.values())


def test_the_loss_does_not_depend_on_the_order_of_the_batch(name, world, make_step) -> None:
    rows, order = np.arange(0, 48, 2), np.random.default_rng(4).permutation(24)
    found = []
    for permutation in (np.arange(24), order):
        method = prepared(name, world, torch.float64, **NO_CHOICE.get(name, {}))
        new, _ = batch(world, make_step, rows, torch.float64)
        new, step = batch(world, make_step, rows[permutation], torch.float64, new=new[permutation], progress=0.5)
        loss = sum(method(step).values())
        loss.backward()
        found.append((loss.detach(), new.grad[np.argsort(permutation)]))
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second)


def test_no_gradient_reaches_the_old_embeddings(name, world, make_step) -> None:
    method = prepared(name, world)
    _, step = batch(world, make_step, np.arange(0, 48, 3), torch.float32, progress=0.5)
    sum(method(step).values()).backward()
    assert step.old.features.grad is None


def train(method: CompatibilityMethod, world: Any, make_step: Any, steps: range) -> list[torch.Tensor]:
    """Take steps as the loop does, and return the losses and the gradients of the new embeddings."""
    learnt = [parameter for parameter in (*method.parameters(), *world.head.parameters()) if parameter.requires_grad]
    optimizer, found = torch.optim.SGD(learnt, lr=0.1), []
    for place in steps:
        rows = np.random.default_rng(place).integers(0, 48, 12)
        generator = torch.Generator().manual_seed(place)
        new, step = batch(world, make_step, rows, torch.float32, progress=place / 10, generator=generator)
        loss = sum({**method(step), **method.penalty(torch.nn.Identity())}.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(torch.nn.Identity())
        found += [loss.detach(), new.grad]
    return found


def test_a_resumed_method_goes_on_bit_for_bit(name, world, make_step, tmp_path) -> None:
    method = prepared(name, world)
    train(method, world, make_step, range(3))
    save_checkpoint(Checkpoint({}, {}, method.state_dict()), tmp_path / "method.safetensors")
    weight = world.head.weight.detach().clone()
    expected = train(method, world, make_step, range(3, 6))

    world.head.load_state_dict({"weight": weight})
    resumed = METHODS[name]()  # prepared from another seed, and in the middle of an epoch: its start is not run again
    resumed.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    resumed.load_state_dict(load_checkpoint(tmp_path / "method.safetensors", {}).tensors)
    found = train(resumed.train(), world, make_step, range(3, 6))
    assert all(torch.equal(first, second) for first, second in zip(expected, found, strict=True))


PREDECESSORS = {
    "the old classifier was discarded": {"head": None},
    "no class is shared": {"classes": ("w", "x", "y", "z"), "own_training": None},
    "no class is shared and the old classifier was discarded": {"classes": (), "head": None, "own_training": None},
}


def advice(name: str, error: HoldfastError) -> dict[str, Any]:
    """Return the option that an error tells the reader to set."""
    found = re.search(r"--method_options\.(\w+) ([\w.]*\w)", error.to_do)
    assert found, f"{name} does not say which option to set: {error.to_do!r}"
    return {found[1]: yaml.safe_load(found[2])}


@pytest.mark.parametrize("missing", PREDECESSORS)
def test_less_of_a_predecessor_is_enough_or_refused_with_a_way_out(name, missing, world, make_step) -> None:
    old = dataclasses.replace(world.old, **PREDECESSORS[missing])
    options: dict[str, Any] = {}
    try:
        METHODS[name]().prepare(old, torch.nn.Identity(), world.head, world.space)
    except (ConfigError, EmptyOverlapError) as error:
        options = advice(name, error)
    method, rows = prepared(name, world, old=old, **options), np.arange(0, 48, 3)
    unseen = {} if set(old.classes) & {"c0"} else {"old_labels": torch.full((len(rows),), -1)}
    new, step = batch(world, make_step, rows, torch.float32, progress=0.5, **unseen)
    terms = method(step)
    sum(terms.values()).backward()
    assert all(torch.isfinite(term) for term in terms.values())
    assert torch.isfinite(new.grad).all() and new.grad.abs().sum() > 0


@pytest.mark.parametrize("triplet", [0.0, 1.0])
@pytest.mark.parametrize("kind", sorted(HEADS))
def test_every_classifier_of_its_space_will_do(name, kind, triplet, world, make_step) -> None:
    if world.space.name not in HEADS[kind].spaces:
        return
    torch.manual_seed(0)
    world.head = build_head(kind, world.classes, world.space.dim, {"triplet": triplet})
    method = prepared(name, world)
    new, step = batch(world, make_step, np.arange(0, 48, 3), torch.float32, progress=0.5)
    loss = sum(method(step).values())
    loss.backward()
    gradients = [new.grad, *(parameter.grad for parameter in world.head.parameters())]
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() and gradient.abs().sum() > 0 for gradient in gradients)


class CountOperations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_as_many_operations_for_32_rows_as_for_128(name, world, make_step) -> None:
    rng = np.random.default_rng(0)
    counts = []
    for size in (32, 128):
        method = prepared(name, world)
        _, step = batch(world, make_step, rng.integers(0, 48, size), torch.float32)
        with CountOperations() as count:
            method(step)
        counts.append(count.names)
    assert counts[0] == counts[1]
    assert not any("_local_scalar_dense" in operation for operation in counts[0]), "a step must not wait for a value"


def test_prepare_twice_arrives_at_the_same_state(name, world) -> None:
    method = prepared(name, world)
    first = {key: value.clone() for key, value in method.state_dict().items()}
    torch.manual_seed(0)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.on_epoch_start(world.epoch())
    second = method.state_dict()
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_refuses_to_start_without_a_predecessor(name, world, make_step) -> None:
    method = METHODS[name]()
    if not method.needs_old:
        method.prepare(None, torch.nn.Identity(), world.head, world.space)
        return
    with pytest.raises(ConfigError):
        method.prepare(None, torch.nn.Identity(), world.head, world.space)
        method(make_step(torch.randn(2, 5), [0, 1], world.head, space=world.space))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_inputs_keep_their_form_and_are_changed_with_the_generator_alone(name, dtype) -> None:
    images = torch.arange(6 * 3 * 8 * 8).remainder(251).view(6, 3, 8, 8).to(dtype)
    given, labels = images.clone(), torch.arange(6)
    one, state, found = Batch(given, labels, labels, labels < 0), torch.get_rng_state(), []
    for _ in range(2):
        method, generator = METHODS[name](), torch.Generator().manual_seed(5)
        found.append(torch.stack([method.change_inputs(one, generator) for _ in range(8)]))
    assert torch.equal(*found) and torch.equal(given, images) and torch.equal(state, torch.get_rng_state())
    assert found[0].shape == (8, *images.shape) and found[0].dtype == dtype


def test_what_a_session_hands_on_the_next_one_takes(name, world, make_step) -> None:
    method, fresh = prepared(name, world), METHODS[name]()
    train(method, world, make_step, range(2))
    for ended in (method, fresh):  # the first session is trained for all learners, without any of them
        ended.on_session_end(torch.nn.Identity(), world.head, [])
        carried = ended.carried()
        assert all(isinstance(values, torch.Tensor) and not values.requires_grad for values in carried.values())
        taken = METHODS[name]()
        taken.carry_over(carried)
        taken.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        _, step = batch(world, make_step, np.arange(0, 48, 3), torch.float32, progress=0.5)
        assert all(torch.isfinite(term) for term in taken.train()(step).values())


def test_every_option_is_documented_and_has_a_default(name) -> None:
    method = METHODS[name]
    assert method.__doc__ and method.spaces <= set(SPACES) and method.space_reason
    for option in inspect.signature(method).parameters.values():
        assert option.default is not inspect.Parameter.empty
        assert f"{option.name}:" in method.__doc__, f"{name} does not say what '{option.name}' is"


def test_what_weighs_compatibility_against_the_task_is_an_option_with_a_number(name) -> None:
    balance = METHODS[name].balance
    assert balance is None or isinstance(inspect.signature(METHODS[name]).parameters[balance].default, float)
