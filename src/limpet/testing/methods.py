"""What every method promises, on every space that it knows."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from pydantic import JsonValue
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from limpet.errors import ConfigError, EmptyOverlapError, LimpetError
from limpet.geometry import SPACES, Space
from limpet.methods import METHODS, build_method
from limpet.methods.base import Batch, CompatibilityMethod, NoClassifier, OldModel, Read, Step
from limpet.models.heads import HEADS, build_head
from limpet.support.extras import installed
from limpet.testing.contract import AtLineError, Check, Contract, line_note, refused
from limpet.testing.samples import World, make_step, make_world
from limpet.training.run_state import Checkpoint, load_checkpoint, save_checkpoint

CONTRACT = Contract()
DTYPES = (torch.float32, torch.float64)
ROWS = np.arange(0, 48, 3)


def method_contract(name: str) -> list[Check]:
    """Return what a method promises, by its name, as checks.

    Raises:
        ConfigError: There is no such method, or it cannot be imported.
    """
    method = METHODS[name]
    return [
        check
        for space in SPACES
        if space in method.spaces
        for check in CONTRACT.checks(space, name=name, space=SPACES[space](5))  # type: ignore[call-arg, arg-type]
    ]


def prepared(
    name: str, world: World, dtype: torch.dtype = torch.float32, *, old: OldModel | None = None, **options: Any
) -> CompatibilityMethod:
    """Make a method ready for its first step, in the order of the training loop."""
    torch.manual_seed(0)
    method = build_method(name, options)
    method.prepare(old or world.old, nn.Identity(), world.head, world.space)
    method.on_epoch_start(world.epoch())
    world.head.to(dtype)
    return method.to(dtype).train()


def batch(
    world: World, rows: NDArray[np.int64], dtype: torch.dtype, *, unlabelled: bool = False, **values: Any
) -> tuple[Tensor, Step]:
    """Return new embeddings that take a gradient, as the old ones would, and their step; a third may have no class."""
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows])).to(dtype)
    noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    new = (values.pop("new") if "new" in values else old + noise).detach().clone().requires_grad_()
    old.requires_grad_()
    labels = torch.from_numpy(np.where(unlabelled & (np.arange(len(rows)) % 3 == 0), -1, world.labels[rows]))
    given = {"old_labels": torch.where(labels < 4, 3 - labels, -1), "index": torch.from_numpy(rows), **values}
    return new, make_step(new, labels, world.head, old, space=world.space, **given)


def total(terms: dict[str, Tensor]) -> Tensor:
    """Return the sum of all terms."""
    return torch.stack([*terms.values()]).sum()


def gradient(values: Tensor) -> Tensor:
    """Return the gradient of values, which must have got one."""
    assert values.grad is not None, "no gradient reaches the new embeddings"
    return values.grad


def finite(values: Tensor) -> bool:
    """Return whether all values are finite."""
    return bool(torch.isfinite(values).all())


@CONTRACT.promise(dtype=DTYPES)
def terms_are_named_finite_scalars_with_gradient(name: str, space: Space, dtype: torch.dtype) -> None:
    """Return a dict of scalars from forward, in the type of the embeddings; their sum is what training minimises."""
    world = make_world(space)
    method = prepared(name, world, dtype)
    new, step = batch(world, ROWS, dtype)
    terms = method(step)
    assert terms, "forward returns no term"
    for key, term in terms.items():
        assert term.ndim == 0, f"the term '{key}' is of shape {tuple(term.shape)}, and no scalar"
        assert finite(term), f"the term '{key}' is {term.item()}"
        assert term.dtype == dtype, f"the term '{key}' is {term.dtype} for embeddings of {dtype}"
    total(terms).backward()
    assert finite(gradient(new)), "the gradient is not finite"
    assert gradient(new).abs().sum() > 0, "the gradient is 0 everywhere"


@CONTRACT.promise()
def every_term_can_teach_something(name: str, space: Space) -> None:
    """A term without a gradient is printed and changes nothing: look for .detach(), torch.no_grad() or numbers."""
    taught: dict[str, bool] = {}
    for place in range(4):
        world = make_world(space)
        method = prepared(name, world)
        rows = np.random.default_rng(place).integers(0, 48, 24)
        replayed = torch.arange(24) % 2 == 0
        without = METHODS[name].unlabelled
        new, step = batch(world, rows, torch.float32, unlabelled=without, progress=0.5, replayed=replayed)
        learnt = [new, *method.parameters(), *world.head.parameters()]
        for key, term in method(step).items():
            found: tuple[Tensor | None, ...] = ()
            if term.requires_grad:
                found = torch.autograd.grad(term, [one for one in learnt if one.requires_grad], retain_graph=True,
                                            allow_unused=True)  # fmt: skip
            taught[key] = taught.get(key, False) or any(one is not None and bool(one.any()) for one in found)
    idle = [key for key, any_gradient in taught.items() if not any_gradient]
    assert not idle, f"no gradient of {', '.join(idle)} reaches anything, in four batches"


EDGES: dict[str, tuple[NDArray[np.int64], Callable[[Tensor], Tensor] | None]] = {
    "one row": (np.array([0]), None),
    "two equal rows": (np.array([0, 0]), None),
    "no class the old model saw": (np.arange(40, 48), None),
    "one class": (np.arange(0, 8), None),
    "every row of another class": (np.arange(0, 48, 8), None),
    "no row": (np.arange(0), None),
    "identical embeddings": (np.arange(0, 48, 6), torch.ones_like),
    "a zero vector": (np.arange(0, 48, 6), lambda old: torch.cat([torch.zeros_like(old[:1]), old[1:]])),
    "huge embeddings": (np.arange(0, 48, 6), lambda old: old * 1e6),
    "the old embeddings themselves": (np.arange(0, 48, 6), lambda old: old),
}


@CONTRACT.promise(dtype=DTYPES, edge=EDGES)
def finite_loss_and_gradient_at_the_edges(name: str, space: Space, dtype: torch.dtype, edge: str) -> None:
    """Batches may be empty or of one class: divide by max(count, 1), and let a term be 0 where no row has part."""
    world = make_world(space)
    rows, change = EDGES[edge]
    method = prepared(name, world, dtype)
    old = torch.from_numpy(np.array(world.embeddings.vectors[rows])).to(dtype)
    values: dict[str, Any] = {} if change is None else {"new": change(old)}
    new, step = batch(world, rows, dtype, progress=0.5, **values)
    loss = total(method(step))
    loss.backward()
    assert finite(loss), f"the loss is {loss.item()}"
    assert finite(gradient(new)), "the gradient is not finite"


@CONTRACT.promise(dtype=(torch.float16, torch.bfloat16))
def half_precision_embeddings_are_promoted(name: str, space: Space, dtype: torch.dtype) -> None:
    """Under mixed precision embeddings come in 16 bits: compute with views of the step, which are promoted."""
    world = make_world(space)
    method = prepared(name, world)
    new, step = batch(world, ROWS, dtype)
    loss = total(method(step))
    loss.backward()
    assert loss.dtype == torch.float32, f"the loss is {loss.dtype}"
    assert finite(loss) and finite(gradient(new)), "the loss or its gradient is not finite"


@CONTRACT.promise()
def same_generator_same_loss_and_no_global_randomness(name: str, space: Space) -> None:
    """Draw with step.generator alone, as in torch.rand(n, generator=step.generator), so that a seed decides a run."""
    losses = []
    for _ in range(2):
        world = make_world(space)
        method = prepared(name, world)
        state = torch.get_rng_state()
        _, step = batch(world, ROWS, torch.float32, generator=torch.Generator().manual_seed(7))
        losses.append(total(method(step)).item())
        assert torch.equal(state, torch.get_rng_state()), "it draws from torch's global generator, not from the step's"
    assert losses[0] == losses[1], f"the same step twice gives {losses[0]} and {losses[1]}"


@CONTRACT.promise()
def the_start_of_an_epoch_measures_numbers_and_draws_from_its_generator_only(name: str, space: Space) -> None:
    """on_epoch_start returns None or floats for the log, and draws with epoch.generator alone."""
    world = make_world(space)
    method = METHODS[name]()
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    for index in range(2):
        state = torch.get_rng_state()
        measures = method.on_epoch_start(world.epoch(index=index, total=2)) or {}
        assert torch.equal(state, torch.get_rng_state()), "it draws from torch's global generator, not from the epoch's"
        for key, value in measures.items():
            assert isinstance(value, float) and math.isfinite(value), f"'{key}' is {value!r}, and no finite number"


@CONTRACT.promise()
def the_loss_does_not_depend_on_the_order_of_the_batch(name: str, space: Space) -> None:
    """The same items in another order are the same batch: look things up by step.index or step.labels, not by place."""
    rows, order = np.arange(0, 48, 2), np.random.default_rng(4).permutation(24)
    found = []
    for permutation in (np.arange(24), order):
        world = make_world(space)
        method = prepared(name, world, torch.float64, **METHODS[name].without_draws)
        first, _ = batch(world, rows, torch.float64)
        new, step = batch(world, rows[permutation], torch.float64, new=first[permutation], progress=0.5)
        loss = total(method(step))
        loss.backward()
        found.append((loss.detach(), gradient(new)[np.argsort(permutation)]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@CONTRACT.promise()
def without_classes_it_reads_only_which_items_are_alike(name: str, space: Space) -> None:
    """A method with `without_classes` compares labels of a batch and takes the loss of the classifier, no more."""
    options = METHODS[name].without_classes
    if options is None:
        return
    found = []
    for renamed in (np.arange(6), np.array([3, 5, 0, 4, 1, 2])):
        world = dataclasses.replace(make_world(space), head=NoClassifier())
        every = world.embeddings.replace(labels=np.arange(48), class_names=[str(row) for row in range(48)])
        old = dataclasses.replace(world.old, embeddings=every, head=None, classes=(), own_training=None)
        method = prepared(name, world, old=old, **options)
        _, step = batch(world, ROWS, torch.float32)
        labels = torch.from_numpy(renamed[world.labels[ROWS]])
        found.append(total(method(dataclasses.replace(step, labels=labels, old_labels=labels))).detach())
    torch.testing.assert_close(*found, msg="the loss changes where classes are called otherwise")


@CONTRACT.promise()
def no_gradient_reaches_the_old_embeddings(name: str, space: Space) -> None:
    """What the old model made is given: use step.predecessor, whose values are detached, not step.old."""
    world = make_world(space)
    method = prepared(name, world)
    _, step = batch(world, ROWS, torch.float32, progress=0.5)
    total(method(step)).backward()
    assert step.old is not None and step.old.features.grad is None, "use step.predecessor, whose values are detached"


def train(method: CompatibilityMethod, world: World, steps: range) -> list[Tensor]:
    """Take steps as the loop does, and return the losses and the gradients of the new embeddings."""
    learnt = [parameter for parameter in (*method.parameters(), *world.head.parameters()) if parameter.requires_grad]
    optimizer, found = torch.optim.SGD(learnt, lr=0.1), []
    for place in steps:
        rows = np.random.default_rng(place).integers(0, 48, 12)
        generator = torch.Generator().manual_seed(place)
        new, step = batch(world, rows, torch.float32, progress=place / 10, generator=generator)
        loss = total({**method(step), **method.penalty(nn.Identity())})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(nn.Identity())
        found += [loss.detach(), gradient(new)]
    return found


@CONTRACT.promise()
def a_resumed_method_goes_on_bit_for_bit(name: str, space: Space) -> None:
    """A checkpoint keeps registered buffers and parameters: keep there what changes from step to step."""
    world = make_world(space)
    method = prepared(name, world)
    train(method, world, range(3))
    weight = world.head.weight.detach().clone()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "method.safetensors"
        save_checkpoint(Checkpoint({}, {}, method.state_dict()), path)
        expected = train(method, world, range(3, 6))
        world.head.load_state_dict({"weight": weight})
        resumed = METHODS[name]()  # prepared from another seed, and in the middle of an epoch: its start is not run
        resumed.prepare(world.old, nn.Identity(), world.head, world.space)
        resumed.load_state_dict(load_checkpoint(path, {}).tensors)
    found = train(resumed.train(), world, range(3, 6))
    same = all(torch.equal(first, second) for first, second in zip(expected, found, strict=True))
    assert same, "what it keeps from step to step belongs into registered buffers or parameters"


PREDECESSORS: dict[str, dict[str, Any]] = {
    "the old classifier was discarded": {"head": None},
    "no class is shared": {"classes": ("w", "x", "y", "z"), "own_training": None},
    "no class is shared and the old classifier was discarded": {"classes": (), "head": None, "own_training": None},
}


def advice(error: LimpetError) -> dict[str, JsonValue]:
    """Return the option that an error tells the reader to set."""
    found = re.search(r"--method[-_]options\.([\w-]+) ([\w.]*\w)", error.to_do)
    assert found, f"the refusal does not say which option to set: {error.to_do!r}"
    return {found[1].replace("-", "_"): yaml.safe_load(found[2])}


@CONTRACT.promise(missing=PREDECESSORS)
def less_of_a_predecessor_is_enough_or_refused_with_a_way_out(name: str, space: Space, missing: str) -> None:
    """Old classifiers get lost and classes differ: do without, or raise a ConfigError that names an option to set."""
    world = make_world(space)
    old = dataclasses.replace(world.old, **PREDECESSORS[missing])
    options: dict[str, Any] = {}
    try:
        METHODS[name]().prepare(old, nn.Identity(), world.head, world.space)
    except (ConfigError, EmptyOverlapError) as error:
        options = advice(error)
    method = prepared(name, world, old=old, **options)
    unseen: dict[str, Any] = {} if set(old.classes) & {"c0"} else {"old_labels": torch.full((len(ROWS),), -1)}
    new, step = batch(world, ROWS, torch.float32, progress=0.5, **unseen)
    terms = method(step)
    total(terms).backward()
    assert all(finite(term) for term in terms.values()), f"a term is not finite: {terms}"
    assert finite(gradient(new)) and gradient(new).abs().sum() > 0, "the gradient is 0 or not finite"


READ_BY: dict[str, Read] = {
    "old": "old", "index": "index", "replayed": "replayed", "progress": "progress", "epoch": "epoch", "epochs": "epoch"
}  # fmt: skip
"""What reading an attribute of a step is called in `CompatibilityMethod.reads`."""


class TracedStep(Step):
    """A step that notes what is read of it.

    Args:
        found: Where to note it.
    """

    def __init__(self, step: Step, found: set[Read]) -> None:
        values = {field.name: getattr(step, field.name) for field in dataclasses.fields(Step)}
        super().__init__(**values)
        object.__setattr__(self, "found", found)

    def __getattribute__(self, name: str) -> Any:
        values = object.__getattribute__(self, "__dict__")
        if name in READ_BY and "found" in values:
            values["found"].add(READ_BY[name])
        return object.__getattribute__(self, name)


def declared(name: str) -> frozenset[Read]:
    """Return what a method with default options says that it reads."""
    return METHODS[name]().reads


def total_of_traced(name: str, world: World, found: set[Read], **values: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of a method and the gradient of the new embeddings, and note what it reads."""

    def noted() -> Any:
        found.add("new_embeddings")
        return world.epoch()

    method = prepared(name, world, **values)
    asked = world.epoch(
        total=7, new_embeddings=lambda: noted().new_embeddings(), new_prototypes=lambda: noted().new_prototypes()
    )
    for index in range(7):
        method.on_epoch_start(dataclasses.replace(asked, index=index))
    new, step = batch(world, ROWS, torch.float32, progress=0.5, epoch=6, epochs=7)
    loss = total(method(TracedStep(step, found)))
    loss.backward()
    return loss.detach(), torch.zeros_like(new) if new.grad is None else new.grad


@CONTRACT.promise()
def what_it_reads_of_a_step_is_what_it_says(name: str, space: Space) -> None:
    """The property reads names what it needs of a step, so that other loops than fit know what to pass."""
    found: set[Read] = set()
    total_of_traced(name, make_world(space), found)
    said = declared(name) - {"head", "old_embeddings"}
    assert found == said, f"it reads {sorted(found)}, and `reads` says {sorted(said)}"


@CONTRACT.promise()
def without_a_classifier_it_says_that_it_needs_one_or_does_without(name: str, space: Space) -> None:
    """A loop of one's own may train the task elsewhere: put "head" into reads where scores or weights are read."""
    world = make_world(space)
    world.head = NoClassifier()
    if "head" not in declared(name):
        _, gradient = total_of_traced(name, world, set())
        weighs_weights = METHODS[name].penalty is not CompatibilityMethod.penalty
        assert weighs_weights or gradient.abs().sum() > 0, "nothing is left of it: say 'head' in reads"
        return
    try:
        _, gradient = total_of_traced(name, world, set())
    except ConfigError as error:
        assert "classifier=" in error.to_do, f"refused: {error}"
        return
    assert not gradient.any(), "it teaches without a classifier: 'head' in reads asks for one in vain"


@CONTRACT.promise()
def old_embeddings_of_the_training_set_are_asked_for_where_they_are_read(name: str, space: Space) -> None:
    """Put "old_embeddings" into reads where prepare or an epoch looks at vectors or labels of old.embeddings."""
    world = make_world(space)
    whole, _ = total_of_traced(name, world, set())
    bare = dataclasses.replace(world.old, embeddings=world.embeddings[[]])
    try:
        without, _ = total_of_traced(name, make_world(space), set(), old=bare)
    except (ValueError, IndexError, RuntimeError) as error:  # whatever comes of no rows
        assert "old_embeddings" in declared(name), f"without old embeddings: {error}"
        return
    same = torch.equal(whole, without)
    assert same or "old_embeddings" in declared(name), "the loss is another without old embeddings of the training set"
    assert not (same and "old_embeddings" in declared(name)), "it reads none: leave 'old_embeddings' out of reads"


@CONTRACT.promise(kind=sorted(HEADS), triplet=(0.0, 1.0) if installed("triplet") else (0.0,))
def every_classifier_of_its_space_will_do(name: str, space: Space, kind: str, triplet: float) -> None:
    """The classifier is chosen apart from the method: ask it by step.head.loss and step.head.logits alone."""
    if space.name not in HEADS[kind].spaces:
        return
    world = make_world(space)
    torch.manual_seed(0)
    world.head = build_head(kind, world.classes, space.dim, {"triplet": triplet})
    method = prepared(name, world)
    new, step = batch(world, ROWS, torch.float32, progress=0.5)
    loss = total(method(step))
    loss.backward()
    gradients = [gradient(new), *(parameter.grad for parameter in world.head.parameters())]
    assert finite(loss), f"the loss is {loss.item()}"
    for found in gradients:
        assert found is not None and finite(found), "a gradient is missing or not finite"
        assert found.abs().sum() > 0, "a gradient is 0 everywhere"


WAITING = "_local_scalar_dense"
"""What torch calls reading a value out of a tensor."""


def code_of_method(name: str) -> str:
    """Return the file with the code of a method."""
    return inspect.getfile(METHODS[name])


class CountOperations(TorchDispatchMode):
    """Notes the name of every operation, and the line of a file that asked for it.

    Args:
        file: Where the method stands.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.names: list[str] = []
        self.lines: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        self.names.append(str(function))
        self.lines.append(0 if frame is None else frame.f_lineno)
        return function(*args, **(kwargs or {}))

    def line_of(self, number: int) -> str:
        """Return a line for people; "" where it is none of the file."""
        return line_note(self.file, number) if number else ""


@CONTRACT.promise()
def as_many_operations_for_32_rows_as_for_128(name: str, space: Space) -> None:
    """Loops over rows and values that are waited for (.item(), a condition on a tensor, one_hot) are slow on a GPU."""
    rng = np.random.default_rng(0)
    counted = []
    for size in (32, 128):
        world = make_world(space)
        method = prepared(name, world)
        _, step = batch(world, rng.integers(0, 48, size), torch.float32)
        with CountOperations(code_of_method(name)) as count:
            method(step)
        counted.append(count)
    small, large = counted
    waits = next((line for name, line in zip(small.names, small.lines, strict=True) if WAITING in name), None)
    if waits is not None:
        raise AtLineError("a step waits here for a value", small.line_of(waits))
    if small.names != large.names:
        more = Counter(large.lines)
        more.subtract(small.lines)
        said = f"{len(small.names)} operations for 32 rows and {len(large.names)} for 128: a loop?"
        raise AtLineError(said, large.line_of(max(more, key=lambda line: more[line])))


@CONTRACT.promise()
def prepare_twice_arrives_at_the_same_state(name: str, space: Space) -> None:
    """What prepare does is done again when a run is resumed: compute buffers anew, and add up nothing."""
    world = make_world(space)
    method = prepared(name, world)
    first = {key: value.clone() for key, value in method.state_dict().items()}
    torch.manual_seed(0)
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    method.on_epoch_start(world.epoch())
    second = method.state_dict()
    assert first.keys() == second.keys(), f"{sorted(first.keys() ^ second.keys())} are there only once"
    for key, value in first.items():
        assert torch.equal(value, second[key]), f"'{key}' has other values the second time"


@CONTRACT.promise()
def refuses_to_start_without_a_predecessor(name: str, space: Space) -> None:
    """Call require_old(old, NAME) in prepare, or set needs_old = False."""
    world = make_world(space)
    method = METHODS[name]()
    if not method.needs_old:
        method.prepare(None, nn.Identity(), world.head, world.space)
        return

    def start() -> None:
        method.prepare(None, nn.Identity(), world.head, world.space)
        method(make_step(torch.randn(2, 5), [0, 1], world.head, space=world.space))

    refused(start, ConfigError, why="it starts without a predecessor: set needs_old = False, or use require_old")


@CONTRACT.promise(dtype=(torch.uint8, torch.float32))
def inputs_keep_their_form_and_are_changed_with_the_generator_alone(
    name: str, space: Space, dtype: torch.dtype
) -> None:
    """change_inputs returns a new tensor of the same shape and type, and draws with the generator that it is given."""
    images = torch.arange(6 * 3 * 8 * 8).remainder(251).view(6, 3, 8, 8).to(dtype)
    given, labels = images.clone(), torch.arange(6)
    one, state, found = Batch(given, labels, labels, labels < 0), torch.get_rng_state(), []
    for _ in range(2):
        method, generator = METHODS[name](), torch.Generator().manual_seed(5)
        found.append(torch.stack([method.change_inputs(one, generator) for _ in range(8)]))
    assert torch.equal(*found), "the same generator gives other inputs"
    assert torch.equal(given, images), "the inputs of the batch were changed in place"
    assert torch.equal(state, torch.get_rng_state()), "it draws from torch's global generator"
    assert found[0].shape == (8, *images.shape) and found[0].dtype == dtype, "the inputs have another shape or type"


@CONTRACT.promise()
def what_a_session_hands_on_the_next_one_takes(name: str, space: Space) -> None:
    """carried() returns detached tensors, which carry_over() of the next session reads."""
    world = make_world(space)
    method, fresh = prepared(name, world), METHODS[name]()
    train(method, world, range(2))
    for ended in (method, fresh):  # the first session is trained for all learners, without any of them
        ended.on_session_end(nn.Identity(), world.head, [])
        carried = ended.carried()
        for key, values in carried.items():
            assert isinstance(values, Tensor) and not values.requires_grad, f"'{key}' is no tensor without gradient"
        taken = METHODS[name]()
        taken.carry_over(carried)
        taken.prepare(world.old, nn.Identity(), world.head, world.space)
        _, step = batch(world, ROWS, torch.float32, progress=0.5)
        assert all(finite(term) for term in taken.train()(step).values()), "a term is not finite afterwards"


@CONTRACT.promise()
def every_option_is_documented_and_has_a_default(name: str, space: Space) -> None:
    """Options are the arguments of __init__: each has a default, and a line under Args in the class's docstring."""
    method = METHODS[name]
    assert method.__doc__, "the class has no docstring"
    assert method.spaces <= set(SPACES) and method.space_reason, f"it knows {sorted(method.spaces)} of {sorted(SPACES)}"
    for option in inspect.signature(method).parameters.values():
        assert option.default is not inspect.Parameter.empty, f"the option '{option.name}' has no default"
        assert f"{option.name}:" in method.__doc__, f"the docstring does not say what '{option.name}' is"


@CONTRACT.promise()
def what_weighs_compatibility_against_the_task_is_an_option_with_a_number(name: str, space: Space) -> None:
    """The attribute balance names the option that people turn first, "weight" unless the class says another."""
    balance, options = METHODS[name].balance, inspect.signature(METHODS[name]).parameters
    known = balance is None or (balance in options and isinstance(options[balance].default, float))
    assert known, f"balance is {balance!r}; name an option whose default is a float, or set balance = None"


@CONTRACT.promise()
def the_option_that_weighs_compatibility_changes_the_loss(name: str, space: Space) -> None:
    """The option that balance names has to be read in forward, or when the method is made."""
    balance, options = METHODS[name].balance, inspect.signature(METHODS[name]).parameters
    weighs_weights = METHODS[name].penalty is not CompatibilityMethod.penalty  # of a model that moved; none is here
    if weighs_weights or balance is None or balance not in options:
        return
    written, losses = options[balance].default, []
    for share in (1.0, 0.5):
        world = make_world(space)
        changed: dict[str, Any] = {balance: share * (written or 1.0)}
        method = prepared(name, world, **changed)
        _, step = batch(world, np.arange(48), torch.float32, unlabelled=METHODS[name].unlabelled, progress=0.5)
        losses.append(total({**method(step), **method.penalty(nn.Identity())}).item())
    assert losses[0] != losses[1], f"the loss is {losses[0]} whether '{balance}' is as it is or half of that"
