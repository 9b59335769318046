"""What every method promises, run over all of `METHODS`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.errors import ConfigError
from holdfast.methods import METHODS
from holdfast.methods.base import CompatibilityMethod

DTYPES = [torch.float32, torch.float64]


def prepared(name: str, world: Any, dtype: torch.dtype = torch.float32) -> CompatibilityMethod:
    torch.manual_seed(0)
    method = METHODS[name]()
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    world.head.to(dtype)
    return method.to(dtype).train()


def batch(world: Any, make_step: Any, rows: np.ndarray, dtype: torch.dtype, **values: Any) -> tuple[torch.Tensor, Any]:
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows])).to(dtype)
    noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    new = (values.pop("new") if "new" in values else old + noise).clone().requires_grad_()
    labels = torch.from_numpy(world.labels[rows])
    old_labels = torch.where(labels < 4, 3 - labels, -1)
    step = make_step(
        new, labels, world.head, old, **{"old_labels": old_labels, "index": torch.from_numpy(rows), **values}
    )
    return new, step


@pytest.fixture(params=sorted(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
    method = prepared(name, world)
    state = torch.get_rng_state()
    losses = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(7)
        _, step = batch(world, make_step, np.arange(0, 48, 3), torch.float32, generator=generator)
        losses.append(sum(method(step).values()).item())
    assert losses[0] == losses[1]
    assert torch.equal(state, torch.get_rng_state())


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
    second = method.state_dict()
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_refuses_to_start_without_a_predecessor(name, world, make_step) -> None:
    method = METHODS[name]()
    if not method.needs_old:
        method.prepare(None, torch.nn.Identity(), world.head, world.space)
        return
    with pytest.raises(ConfigError):
        method.prepare(None, torch.nn.Identity(), world.head, world.space)
        method(make_step(torch.randn(2, 5), [0, 1], world.head))


def test_every_option_is_documented_and_has_a_default(name) -> None:
    method = METHODS[name]
    assert method.__doc__ and method.spaces
    for option in inspect.signature(method).parameters.values():
        assert option.default is not inspect.Parameter.empty
        assert f"{option.name}:" in method.__doc__, f"{name} does not say what '{option.name}' is"
