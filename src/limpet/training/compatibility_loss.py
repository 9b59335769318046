"""Any compatibility method as a plain loss over tensors, for custom training loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.support.extras import importing

with importing(__name__):
    import torch
    from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, brief, count_of, refuse
from limpet.geometry import SPACES, Space, space_from_record
from limpet.methods import build_method
from limpet.methods.base import (
    Batch,
    CompatibilityMethod,
    Epoch,
    Head,
    NoClassifier,
    OldModel,
    Read,
    Step,
    View,
)
from limpet.methods.predecessor import rows_by_name
from limpet.models.heads import HEADS, build_head
from limpet.training.loop_inputs import (
    Classes,
    OwnClassifier,
    RowSelection,
    checked_batch,
    checked_classes,
    checked_features,
    checked_mask,
    checked_numbers,
    features_set,
    refuse_not_finite,
    refuse_out_of_reach,
    shape_of,
    unknown_classes,
)
from limpet.training.objective import (
    RunPosition,
    changed_inputs,
    named_terms,
    refuse_mismatch,
    seed_at,
    share,
    together,
    total,
)

WANTED: dict[Read, tuple[str, str]] = {
    "head": (
        "classifier=, what learns the task with the embeddings",
        f"pass a name, one of {', '.join(HEADS)}, or a module from embeddings (B, D) to scores (B, C), such as "
        "torch.nn.Linear, when the loss is made.",
    ),
    "old": (
        "old embeddings of the same items, (B, D)",
        "call loss(embeddings, labels, old=old_model(inputs)), or pass old_embeddings when the loss is made and the "
        "rows of the items in them here: index=.",
    ),
    "old_embeddings": (
        "old embeddings of the whole training set",
        "pass old_embeddings= (N, D) and old_labels= (N,) when the loss is made.",
    ),
    "index": (
        "the row of every item in old_embeddings",
        "call loss(embeddings, labels, index=rows), int64 (B,): let the data set return the number of an item with it.",
    ),
    "replayed": (
        "which items come from a memory of earlier sessions",
        "call loss(embeddings, labels, replayed=mask), bool (B,).",
    ),
    "epoch": (
        "how far training is",
        "call loss.start_epoch(k, of=n) before the first batch of every epoch, k from 0 to n - 1.",
    ),
    "progress": (
        "how far training is, batch by batch",
        "call loss.start_epoch(k, of=n, steps=len(loader)) before the first batch of every epoch, k from 0 to n - 1.",
    ),
    "new_embeddings": (
        "new embeddings of the whole training set at the start of every epoch",
        "call loss.start_epoch(k, of=n, new_embeddings=...) with a tensor (N, D) in the order of old_embeddings, or a "
        "function that returns one; let the model be in evaluation mode for it.",
    ),
}
"""Description of every input that a method can need, and how to pass it."""

UNKNOWN_STEPS = 2**20  # assumed steps of an epoch of unknown length; only seeds depend on it


class HandStep(Step):
    """A step of a custom training loop; reading a value that the loop did not pass raises an error.

    Args:
        values: Values of `Step`.
    """

    def __init__(self, missing: frozenset[Read], **values: Any) -> None:
        super().__init__(**values)
        object.__setattr__(self, "missing", missing)

    def __getattribute__(self, name: str) -> Any:
        values = object.__getattribute__(self, "__dict__")
        missing: frozenset[Read] = values.get("missing", frozenset())
        for read in missing:
            if name == read or (name == "epochs" and read == "epoch"):
                raise lacking("The method", read)
        return object.__getattribute__(self, name)


def lacking(method: str, read: Read) -> ConfigError:
    """Build the error for a value that a method reads but was not given."""
    needed, to_do = WANTED[read]
    return ConfigError(f"{method} needs {needed}, and was not given it.", to_do=to_do)


class CompatibilityLoss(nn.Module):
    """Any compatibility method as a loss module for your own training loop.

    It computes the same as `limpet.fit`: named terms whose sum is the loss. ::

        loss = limpet.CompatibilityLoss("p2s", old_embeddings=old, old_labels=labels)
        optimizer.add_param_group({"params": loss.parameters()})
        total = task(embeddings, classes) + loss(embeddings, classes)

    Some methods need more than embeddings and labels; if an input is missing, an error names it before anything is
    computed. Methods that depend on training progress, or on the new model at the start of an epoch, need
    `start_epoch`; those that constrain weights need ``model`` and `after_step`; those that change inputs
    `change_inputs`; those that train the classifier on other inputs than the embeddings `end_training`; and session
    methods `end_session`.

    Learned values of a method (critics, radii, copied heads, the classifier, a curvature) are parameters of this
    module: optimise them, save them with ``state_dict``, which includes the position in training, and wrap the module
    in ``DistributedDataParallel`` if it has any. With several processes, batches must have the same size, and every
    process gets the loss over all of them; wrap the model in ``DistributedDataParallel``, which averages gradients.
    Evaluation mode computes the same terms for the local batch and stores nothing.

    Losses are computed in at least float32, also under autocast. Every call checks that values are finite and labels
    known, which synchronises the GPU; ``check=False`` disables it.

    Args:
        method: Name of a method (`limpet.METHODS`), or an instance.
        old_embeddings: Embeddings of the training set by the old model: raw (N, D), or an `EmbeddingSet` in the form
            "features". Optional for methods that only compare a batch with its old embeddings (``old=``).
        old_labels: Classes of `old_embeddings`, integers (N,); not needed for an `EmbeddingSet`.
        options: Options of the method by name.
        classifier: Task classifier: a name of `limpet.models.heads.HEADS`, a module from embeddings (B, D) to scores
            (B, C), or None if the task is trained elsewhere; its term is then 0.
        space: Name of a space or a `Space`. Default: that of `old_embeddings`, or the first that the method supports.
            In a space with more dimensions than these, such as ``Hypersphere(160)``, they are padded with zeros.
        classes: Number of classes, numbered from 0. Default: those in `old_labels`.
        old_classifier: The old model's classifier, from embeddings to scores (B, C_old).
        old_classes: Class of each row of `old_classifier`, by number or name. Default: those of `own_labels`.
        own_embeddings: Embeddings of the old model's own training set or gallery (M, D), for methods that use it, or an
            `EmbeddingSet`.
        own_labels: Classes of `own_embeddings` (M,), in the same numbering.
        model: The encoder in training, for methods that constrain its weights; it is not registered as a submodule.
        carried: Return value of `carried` from the previous session.
        seed: Random seed of initial values and draws.
        check: Whether to check the values of every batch.

    Raises:
        ConfigError: A required input is missing, or an option or name is unknown.
        DataError: Embeddings or labels cannot be used.
        SpaceMismatchError: Spaces or dimensions differ.
    """

    old_rows: Tensor
    numbers: Tensor

    def __init__(
        self,
        method: str | CompatibilityMethod,
        *,
        old_embeddings: RowSelection | EmbeddingSet | None = None,
        old_labels: RowSelection | None = None,
        options: Mapping[str, object] | None = None,
        classifier: str | nn.Module | None = None,
        space: str | Space | None = None,
        classes: int | None = None,
        old_classifier: nn.Module | None = None,
        old_classes: Sequence[int | str] | None = None,
        own_embeddings: RowSelection | EmbeddingSet | None = None,
        own_labels: RowSelection | None = None,
        model: nn.Module | None = None,
        carried: Mapping[str, Tensor] | None = None,
        seed: int = 0,
        check: bool = True,
    ) -> None:
        super().__init__()
        self.method = _built(method, options)
        self.name = type(self.method).__name__
        self.seed, self.check = seed, check
        self._model = (model,)  # in a tuple, so that its weights are not this module's
        self._refuse_lacking(old_embeddings, classifier, model)
        old_embeddings = _converted(old_embeddings, "old_embeddings")
        own_embeddings = _converted(own_embeddings, "own_embeddings")
        self.classes = _classes(old_embeddings, old_labels, classes)
        self.space = _space(space, self.method, old_embeddings, own_embeddings, classifier)
        self._old_space = _old_space(self.space, old_embeddings, own_embeddings)
        old = self._old_model(old_embeddings, old_labels, old_classifier, old_classes, own_embeddings, own_labels)
        if old is not None and self.space.pads(old.embeddings.space):
            old = old.padded(self.space)
        self._old = old
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.head = self._classifier(classifier)
            counted: Sequence[str] = () if old is None else old.embeddings.class_names or ()
            refuse_mismatch(self.method, self.head, self.space, old, self._items, counted)
            torch.manual_seed(seed)  # as `fit` seeds what a method draws
            if carried is not None:
                self.method.carry_over(carried)
            self.method.prepare(old, model if model is not None else nn.Identity(), self.head, self.space)
        self.learned_space = self.space.parameters_of()
        names = [] if self.classes is None else list(self.classes.names)
        self.register_buffer("old_rows", rows_by_name(old.classes if old is not None else (), names), persistent=False)
        numbers = torch.tensor([] if self.classes is None else self.classes.numbers, dtype=torch.int64)
        self.register_buffer("numbers", numbers, persistent=False)
        self._epoch, self._epochs, self._steps, self._step, self._started = 0, 1, 0, 0, False
        self._changed = False
        self._weights_seen: int | None = None
        self._generator = torch.Generator()

    # ---- what the loop calls

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        old: Tensor | None = None,
        index: Tensor | None = None,
        replayed: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch, a scalar; see `terms`.

        Args:
            embeddings: Raw embeddings of the items by the model in training (B, D), not normalised.
            labels: Classes of the items (B,).
            indices_tuple: Ignored; pytorch-metric-learning passes mined pairs here, but these methods choose their own.
            ref_emb: Same as ``old``, under the name used by pytorch-metric-learning.
            ref_labels: Classes of `ref_emb`, which must equal `labels`: row i belongs to item i.
            old: Embeddings of the same items by the old model (B, D).
            index: Row of every item in `old_embeddings` (B,); without ``old``, old embeddings are looked up there.
            replayed: Mask of items from a memory of earlier sessions (B,). Default: none.
        """
        if indices_tuple is not None:
            raise ConfigError(
                f"The third value is {shape_of(indices_tuple)}, where pytorch-metric-learning passes mined pairs.",
                expected="none: compatibility methods choose their own pairs",
                to_do="leave the miner's pairs out; pass old embeddings by name: old= or ref_emb=.",
            )
        if ref_emb is not None:
            if old is not None:
                raise ConfigError("Both old= and ref_emb= were given.", expected="one of them: they are the same")
            old = ref_emb
        if ref_labels is not None:
            self._refuse_other_items(labels, ref_labels)
        return total(self.terms(embeddings, labels, old=old, index=index, replayed=replayed))

    def terms(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        old: Tensor | None = None,
        index: Tensor | None = None,
        replayed: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the named terms whose sum is the loss, such as "task" and "contrast"; arguments as in `forward`.

        Raises:
            ConfigError: A required input was not given, or a required call was not made.
            DataError: Values have a wrong type, length or class, or are not finite.
            SpaceMismatchError: Embeddings have another dimension.
        """
        embeddings = checked_batch(embeddings, "embeddings", self.space)
        size, device = len(embeddings), embeddings.device
        self._refuse_misplaced(embeddings)
        missing = self._missing(old, index, replayed)
        needed = self.method.reads & missing
        if needed:
            raise lacking(self.name, next(read for read in WANTED if read in needed))
        self._refuse_hooks_left_out()
        rows = self._rows(checked_numbers(labels, "labels", size, device))
        places = None if index is None else self._places(checked_numbers(index, "index", size, device))
        if old is not None:
            old = checked_batch(old, "old", self._old_space, size).to(device)
            old = nn.functional.pad(old, (0, self.space.dim - self._old_space.dim))
        elif places is not None and self._items:
            old = self._looked_up(places)
        self._refuse_values(embeddings, old)
        values = {
            "labels": rows,
            "old_labels": self.old_rows[rows] if len(self.numbers) else torch.full_like(rows, -1),
            "index": places if places is not None else torch.full_like(rows, -1),
            "replayed": torch.zeros_like(rows, dtype=torch.bool)
            if replayed is None
            else checked_mask(replayed, "replayed", size, device),
        }
        if self.training:
            embeddings = together(embeddings, _processes())
            old = None if old is None else together(old, _processes())
            values = {name: together(one, _processes()) for name, one in values.items()}
        with nullcontext() if self.training else _kept(self.method):
            found = named_terms(
                self.method, self._model[0] or nn.Identity(), partial(self._seen, embeddings, old, missing, values),
                device.type,
            )  # fmt: skip
        if self.training:
            self._step += 1
            self._changed = False
            self._weights_seen = self._weights_version()
        return found

    def start_epoch(
        self,
        epoch: int,
        *,
        of: int,
        steps: int | None = None,
        new_embeddings: Tensor | Callable[[], Tensor] | None = None,
    ) -> Mapping[str, float]:
        """Start an epoch; call it before the first batch of each epoch, in every process.

        Args:
            epoch: Number of the epoch, from 0.
            of: Number of epochs.
            steps: Number of batches per epoch; required by methods that use progress per batch.
            new_embeddings: Embeddings of the training set by the current model in evaluation mode (N, D), in the order
                of `old_embeddings`; or a function that returns them, called only if the method needs them.

        Returns:
            Named values for the log of the epoch, such as how many degrees the targets moved.

        Raises:
            ConfigError: A number is out of range, or a required argument is missing.
        """
        whole = isinstance(epoch, int | np.integer) and not isinstance(epoch, bool)
        if not whole or not 0 <= epoch < count_of("of", of):
            raise ConfigError(f"start_epoch({epoch!r}, of={of}).", expected="an epoch from 0 to of - 1")
        if steps is None and "progress" in self.method.reads:
            raise lacking(self.name, "progress")
        if new_embeddings is None and "new_embeddings" in self.method.reads:
            raise lacking(self.name, "new_embeddings")
        self._epoch, self._epochs, self._step, self._started = int(epoch), int(of), 0, True
        self._steps = 0 if steps is None else count_of("steps", steps)
        self._reseed(0)

        def new_view() -> View:
            if new_embeddings is None:
                raise lacking(self.name, "new_embeddings")
            found = new_embeddings if isinstance(new_embeddings, Tensor) else new_embeddings()
            found = checked_batch(found, "new_embeddings", self.space, self._items).detach()
            refuse_not_finite(found, "new_embeddings")
            return View.of(found.to(self._device), self.space)

        def new_prototypes() -> Tensor:
            view, labels = new_view(), self._labels().to(self._device)
            return self.space.mean(view.points, labels, len(self.numbers))[0]

        with torch.no_grad():
            measures = self.method.on_epoch_start(
                Epoch(epoch, of, self._items, self._generator, new_view, new_prototypes)
            )
        share(self.method.buffers(), _processes())
        return dict(measures or {})

    def change_inputs(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the inputs to feed to the model instead, such as mixed ones; most methods return them unchanged.

        Call it before the model, on every training batch. The old model sees the batch as it is.
        """
        self._changed = True
        if not self.training:
            return inputs
        self._reseed(self._step + 1)
        rows = torch.zeros(len(inputs), dtype=torch.int64) if labels is None else labels
        rows = together(rows, _processes())
        batch = Batch(inputs, rows, rows, torch.zeros_like(rows, dtype=torch.bool))
        return changed_inputs(self.method, batch, self._generator, _processes())

    def after_step(self) -> None:
        """Update a method that constrains weights: call it after ``optimizer.step()``, before gradients are cleared."""
        self.method.after_step(self._encoder("after_step"))
        self._weights_seen = None

    def end_session(self, batches: Iterable[Sequence[Tensor]]) -> None:
        """Let a method process the items of the session that just ended.

        Args:
            batches: Batches of inputs and labels, un-augmented, in data set order; call it with the final weights.
        """
        self.method.on_session_end(self._encoder("end_session"), self.head, map(self._batch, batches))

    def end_training(self) -> None:
        """Adapt the classifier to the full embeddings, for methods whose task uses only a part of them.

        Call it once, with the final weights.
        """
        self.method.on_training_end(self.head)

    def carried(self) -> dict[str, Tensor]:
        """Return the state for the loss of the next session (``carried=``); call it after `end_session`."""
        return self.method.carried()

    # ---- state

    def get_extra_state(self) -> Tensor:
        """Return the position in training: epoch, epochs, steps, step, and whether an epoch was started."""
        return torch.tensor([self._epoch, self._epochs, self._steps, self._step, int(self._started)])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the position in training."""
        self._epoch, self._epochs, self._steps, self._step, started = map(int, state.tolist())
        self._started, self._weights_seen = bool(started), None

    def extra_repr(self) -> str:
        """Return a short description for the representation."""
        classes = "any classes" if self.classes is None else f"{len(self.classes.numbers)} classes"
        return f"{self.name} on the {self.space}, {classes}, {self._items} old embeddings"

    # ---- how it is made

    def _refuse_lacking(self, old_embeddings: object, classifier: object, model: object) -> None:
        reads = self.method.reads
        if "head" in reads and classifier is None:
            raise lacking(self.name, "head")
        if "old_embeddings" in reads and old_embeddings is None:
            raise lacking(self.name, "old_embeddings")
        hooks = [hook for hook in ("penalty", "after_step", "on_session_end") if _overrides(self.method, hook)]
        if hooks and model is None:
            raise ConfigError(
                f"{self.name} looks at the weights of the model in training, and was given none.",
                expected="the encoder whose weights it holds",
                to_do="pass model= when the loss is made.",
            )

    def _classifier(self, classifier: object) -> Head:
        if classifier is None:
            return NoClassifier()
        if isinstance(classifier, str):
            if classifier not in HEADS:
                raise HEADS.unknown(classifier)
            if self.classes is None:
                raise ConfigError(
                    f"classifier='{classifier}' of how many classes?", expected="old_labels=, or classes= a number"
                )
            return build_head(classifier, len(self.classes.numbers), self.space.dim, {})
        head = _as_head(classifier, "classifier", f"or one of {', '.join(HEADS)}")
        rows = _rows_of(head)
        if self.classes is not None and rows is not None and rows != len(self.classes.numbers):
            numbers = self.classes.numbers
            raise DataError(
                f"The classifier scores {rows} classes, and the old labels count {len(numbers)}.",
                expected="one row for each class, in the order of their numbers",
                to_do=f"pass classes={rows} if it is numbers from 0 to {rows - 1} that labels hold, or number them "
                f"from 0 to {len(numbers) - 1}.",
            )
        return head

    def _old_model(
        self, old_embeddings: object, old_labels: object, old_classifier: object,
        old_classes: Sequence[int | str] | None, own_embeddings: object, own_labels: object,
    ) -> OldModel | None:  # fmt: skip
        given = (old_embeddings, old_classifier, own_embeddings)
        if all(one is None for one in given) and not self.method.needs_old:
            return None
        own = self._own_set(own_embeddings, own_labels)
        if old_classes is None:
            names = [] if own is None or own.class_names is None else list(own.class_names)
        else:
            wrong = next((one for one in old_classes if not isinstance(one, str | int | np.integer)), None)
            refuse(wrong is not None, f"old_classes holds {brief(wrong)}.", "the number or the name of a class")
            names = [one if isinstance(one, str) else self._named(int(one)) for one in old_classes]
        head = None if old_classifier is None else _as_head(old_classifier, "old_classifier", "of the old model")
        rows = None if head is None else _rows_of(head)
        if head is not None and (not names or (rows is not None and rows != len(names))):
            raise ConfigError(
                f"An old classifier of {'some' if rows is None else rows} rows, and {len(names)} old classes.",
                expected="which class each of its rows is",
                to_do="pass old_classes=, one number or name for each row, in order.",
            )
        return OldModel(self._old_set(old_embeddings, old_labels), names, head, own)

    def _old_set(self, embeddings: object, labels: object) -> EmbeddingSet:
        if isinstance(embeddings, EmbeddingSet):
            if embeddings.labels is None or embeddings.class_names is not None or self.classes is None:
                return embeddings
            rows = self.classes.rows(embeddings.labels, "old_labels")
            return embeddings.replace(labels=rows, class_names=list(self.classes.names))
        if embeddings is None:
            embeddings, labels = np.zeros((0, self._old_space.dim), np.float32), None
        return features_set(embeddings, labels, self.classes, self._old_space, "old_embeddings")

    def _own_set(self, embeddings: object, labels: object) -> EmbeddingSet | None:
        if embeddings is None or isinstance(embeddings, EmbeddingSet):
            return embeddings
        if labels is None:
            raise DataError(
                "own_embeddings without own_labels.", expected="the class of each of them, by the numbers of old_labels"
            )
        counted = checked_classes(labels, len(checked_features(embeddings, "own_embeddings")), "own_labels")
        own = Classes.counted(counted, None)
        if own is not None:
            own = Classes(own.numbers, [self._named(int(number)) for number in own.numbers])
        return features_set(embeddings, labels, own, self._old_space, "own_embeddings")

    def _named(self, number: int) -> str:
        return str(number) if self.classes is None else self.classes.name_of(number)

    # ---- what a batch is looked at for

    def _missing(self, old: object, index: object, replayed: object) -> frozenset[Read]:
        """Return what this batch lacks; in evaluation mode, training stands where it begins unless somebody said."""
        there: dict[Read, bool] = {
            "old": old is not None or (index is not None and self._items > 0) or self._old is None,
            "index": index is not None,
            "replayed": replayed is not None,
            "epoch": self._started or not self.training,
            "progress": self._steps > 0 or not self.training,
        }
        return frozenset(read for read, given in there.items() if not given)

    def _refuse_hooks_left_out(self) -> None:
        if not self.training:
            return
        if _overrides(self.method, "on_epoch_start") and not self._started:
            raise lacking(self.name, "epoch")
        if 0 < self._steps <= self._step:
            raise ConfigError(
                f"Batch {self._step + 1} of an epoch of {self._steps}.",
                expected="loss.start_epoch before the first batch of every epoch",
                to_do=f"call loss.start_epoch({self._epoch + 1}, of={self._epochs}, steps={self._steps}), or "
                "loss.eval() first if this is no training.",
            )
        if _overrides(self.method, "change_inputs") and not self._changed:
            raise ConfigError(
                f"{self.name} changes the inputs of every batch, and was not asked to.",
                expected="inputs = loss.change_inputs(inputs, labels) before the model sees them",
            )
        moved = self._weights_seen is not None and self._weights_seen != self._weights_version()
        if _overrides(self.method, "after_step") and moved:
            raise ConfigError(
                f"{self.name} has to see every step, and the weights moved without it.",
                expected="loss.after_step() after optimizer.step(), before gradients are set to zero",
            )

    def _refuse_misplaced(self, embeddings: Tensor) -> None:
        """Stop where the module is on another device, or its parameters are of a type that does not go with these."""
        dtype = embeddings.dtype if embeddings.dtype == torch.float64 else torch.float32
        for values in (*self.parameters(), *self.buffers()):
            if values.device != embeddings.device:
                raise ConfigError(
                    f"The loss is on {values.device}, and embeddings are on {embeddings.device}.",
                    expected="both on one device",
                    to_do=f"call loss.to('{embeddings.device}') before the optimiser is built.",
                )
        for parameter in self.parameters():
            if parameter.dtype != dtype:
                raise ConfigError(
                    f"Parameters of the loss are {parameter.dtype}, and it computes in {dtype} here.",
                    expected=f"parameters in {dtype}; embeddings may be of half precision",
                    to_do="call loss.double()." if dtype == torch.float64 else "call loss.float().",
                )

    def _refuse_values(self, embeddings: Tensor, old: Tensor | None) -> None:
        if not self.check:
            return
        for values, what in ((embeddings, "embeddings"), (old, "old")):
            if values is not None:
                refuse_not_finite(values, what)
                refuse_out_of_reach(values, what, self.space)

    def _refuse_other_items(self, labels: object, ref_labels: object) -> None:
        alike = isinstance(labels, Tensor) and isinstance(ref_labels, Tensor) and labels.shape == ref_labels.shape
        if not alike or not bool((labels == ref_labels.to(labels.device)).all()):  # type: ignore[attr-defined]
            raise DataError(
                "ref_labels are not the labels of the batch.",
                expected="ref_emb row by row of the same items, as the old model embeds them",
                to_do="embed this very batch with the old model, or look its rows up: index=.",
            )

    def _rows(self, labels: Tensor) -> Tensor:
        """Return the rows of the classes (B,)."""
        if self.classes is None:
            return labels
        rows = torch.searchsorted(self.numbers, labels).clamp_max(len(self.numbers) - 1)
        if self.check:
            unknown = labels[self.numbers[rows] != labels]
            if len(unknown):
                raise unknown_classes("labels", sorted(set(unknown.tolist())), self.classes)
        return rows

    def _places(self, index: Tensor) -> Tensor:
        if self.check and self._items and len(index) and not 0 <= int(index.min()) <= int(index.max()) < self._items:
            raise DataError(
                f"index runs from {int(index.min())} to {int(index.max())}.",
                expected=f"rows of old_embeddings, from 0 to {self._items - 1}",
            )
        return index

    def _looked_up(self, places: Tensor) -> Tensor:
        cached = self._old_embeddings().vectors
        return torch.from_numpy(np.asarray(cached[places.cpu().numpy()])).to(places.device)

    def _seen(
        self, embeddings: Tensor, old: Tensor | None, missing: frozenset[Read], values: Mapping[str, Tensor]
    ) -> Step:
        if not (self.training and self._changed):
            self._reseed(self._step + 1)  # otherwise draws go on from those for the inputs
        done = self._epoch + (self._step / self._steps if self._steps else 0.0)
        return HandStep(
            missing,
            new=View.of(embeddings, self.space),
            old=None if old is None else View.of(old, self.space),
            head=self.head,
            progress=min(done / self._epochs, 1.0),
            epoch=self._epoch,
            epochs=self._epochs,
            generator=self._generator,
            **values,
        )

    def _reseed(self, step: int) -> None:
        place = RunPosition(self._epoch, self._steps or UNKNOWN_STEPS, step)
        self._generator.manual_seed(seed_at(place, self.seed))

    def _batch(self, found: Sequence[Tensor]) -> Batch:
        inputs, labels = found[0], self._rows(found[1].to(self.numbers.device)).to(found[1].device)
        return Batch(inputs, labels, torch.arange(len(labels)), torch.zeros_like(labels, dtype=torch.bool))

    def _encoder(self, call: str) -> nn.Module:
        model = self._model[0]
        if model is not None:
            return model
        if any(_overrides(self.method, hook) for hook in ("penalty", "after_step", "on_session_end")):
            raise ConfigError(f"{call}() of a loss without a model.", expected="model= when the loss is made")
        return nn.Identity()

    def _weights_version(self) -> int | None:
        """Return a number that grows whenever the optimiser moves a weight; None without a model."""
        model = self._model[0]
        return None if model is None else sum(weight._version for weight in model.parameters())

    def _old_embeddings(self) -> EmbeddingSet:
        if self._old is None:
            raise lacking(self.name, "old_embeddings")
        return self._old.embeddings

    def _labels(self) -> Tensor:
        labels = self._old_embeddings().labels
        if labels is None:
            raise lacking(self.name, "old_embeddings")
        return torch.from_numpy(np.array(labels))

    @property
    def _items(self) -> int:
        return 0 if self._old is None else len(self._old.embeddings)

    @property
    def _device(self) -> torch.device:
        return self.numbers.device


def _built(method: str | CompatibilityMethod, options: Mapping[str, object] | None) -> CompatibilityMethod:
    if isinstance(method, str):
        return build_method(method, options or {})
    if not isinstance(method, CompatibilityMethod):
        raise ConfigError(
            f"The method is {shape_of(method)}.",
            expected="a name, such as 'p2s', or a CompatibilityMethod that was built",
            to_do="`limpet methods` lists the names.",
        )
    if options:
        raise ConfigError("Options beside a method that was built.", expected="them in its own arguments")
    return method


def _converted(embeddings: object, what: str) -> EmbeddingSet | NDArray[np.float32] | None:
    """Return arrays and tensors as float32 on the CPU; return sets unchanged."""
    if embeddings is None or isinstance(embeddings, EmbeddingSet):
        return embeddings
    return checked_features(embeddings, what)


def _classes(embeddings: object, labels: object, count: int | None) -> Classes | None:
    if isinstance(embeddings, EmbeddingSet):
        if labels is not None:
            raise ConfigError("old_labels beside an EmbeddingSet.", expected="the labels in the set")
        if embeddings.class_names is not None:
            names = list(embeddings.class_names)
            if count is not None and count != len(names):
                raise ConfigError(f"classes={count} beside {len(names)} class names.", expected="one number for both")
            return Classes(np.arange(len(names)), names)
        return Classes.counted(None if embeddings.labels is None else embeddings.labels, count)
    count = None if count is None else count_of("classes", count)
    if labels is None:
        return Classes.counted(None, count)
    if embeddings is None:
        raise DataError("old_labels without old_embeddings.", expected="old_embeddings= (N, D) as well")
    rows = len(checked_features(embeddings, "old_embeddings"))
    return Classes.counted(checked_classes(labels, rows, "old_labels"), count)


def _space(
    space: str | Space | None, method: CompatibilityMethod, old: object, own: object, classifier: object
) -> Space:
    """Return the space: as given, that of a set, or one by name with the dimension of the first rows given."""
    for values in (old, own):
        if isinstance(values, EmbeddingSet) and space is None:
            return values.space
    if isinstance(space, Space):
        return space
    if space is None:
        space = next((name for name in SPACES if name in method.spaces), next(iter(SPACES)))
    weight = getattr(classifier, "weight", None)
    for values, what in ((old, "old_embeddings"), (own, "own_embeddings")):
        if values is not None:
            dim = values.dim if isinstance(values, EmbeddingSet) else checked_features(values, what).shape[1]
            return space_from_record({"name": space, "dim": dim})
    if isinstance(weight, Tensor) and weight.dim() == 2:
        return space_from_record({"name": space, "dim": weight.shape[1]})
    raise ConfigError(
        f"Embeddings of how many dimensions on the {space}?",
        expected="old_embeddings=, or a space with its dimension",
        to_do="pass space=limpet.Hypersphere(128), or whatever the dimension is.",
    )


def _old_space(space: Space, *given: EmbeddingSet | NDArray[np.float32] | None) -> Space:
    """Return the space of the old model: that of the first rows given, if it has fewer dimensions than the other."""
    for values in given:
        if values is not None:
            dim = values.dim if isinstance(values, EmbeddingSet) else values.shape[1]
            own = space_from_record({**space.settled().record(), "dim": dim})
            return own if space.pads(own) else space
    return space


def _as_head(module: object, what: str, otherwise: str) -> Head:
    if isinstance(module, Head):
        return module
    if isinstance(module, nn.Module):
        return OwnClassifier(module)
    raise ConfigError(
        f"{what} is {shape_of(module)}.",
        expected=f"a module from embeddings (B, D) to scores (B, C), such as torch.nn.Linear, {otherwise}",
    )


def _rows_of(head: Head) -> int | None:
    weight = getattr(head.classifier, "weight", None) if isinstance(head, OwnClassifier) else head.weight
    return len(weight) if isinstance(weight, Tensor) and weight.dim() == 2 else None


def _overrides(method: CompatibilityMethod, hook: str) -> bool:
    return getattr(type(method), hook) is not getattr(CompatibilityMethod, hook)


def _processes() -> int:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if ready else 1


@contextmanager
def _kept(method: nn.Module) -> Iterator[None]:
    """Restore the buffers afterwards, so that an evaluation does not change queues and running sums."""
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in method.named_buffers():
            buffer.copy_(before[name])
