"""Interface of compatibility methods: their inputs and outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from limpet.support.extras import importing

with importing(__name__):
    import torch
    from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.geometry import SPACES, Space
from limpet.losses.influence import mean_cross_entropy
from limpet.losses.sharded_softmax import ClassShard
from limpet.support.ranges import checked

if TYPE_CHECKING:
    from limpet.adapters.base import Adapter

EVERY_SPACE = frozenset(SPACES)
"""The spaces of what asks nothing of a view but the operations that every `Space` has."""


class Batch(NamedTuple):
    """Batch of a loader; a tuple, because tuples pass process and device boundaries unchanged."""

    inputs: Tensor
    """Items as the encoder takes them; images are uint8 (B, channels, height, width)."""
    labels: Tensor
    """Class of every item, int64 (B,), rows of the new class names."""
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which no code calls on a batch
    """Row of every item in the training set, int64 (B,)."""
    replayed: Tensor
    """Whether an item comes from a memory of earlier sessions, bool (B,)."""


@dataclass(frozen=True)
class View:
    """View of one model on a batch, in at least float32.

    Args:
        features: Raw embeddings (B, D), whose lengths some methods need.
        points: The embeddings as points of the space (B, D).
        space: Space of the points.
    """

    features: Tensor
    points: Tensor
    space: Space

    @classmethod
    def of(cls, features: Tensor, space: Space) -> View:
        """Promote half precision to float32 (float64 stays) and project onto the space."""
        features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
        return cls(features, space.project(features), space)

    def first(self, space: Space) -> View:
        """Return the view of a space of fewer dimensions: the first values of the features (B, D)."""
        return View.of(self.features[:, : space.dim], space)


class Head(nn.Module, ABC):
    """A classifier over views: one row of ``weight`` (C, D) per class.

    ``scale`` multiplies cosines where ``normalised`` is true; other heads have scale 1 and read features.
    """

    spaces: ClassVar[frozenset[str]] = frozenset({"hypersphere"})
    """Names of the spaces whose views the classifier reads."""

    weight: Tensor
    scale: float = 1.0
    normalised: bool = False
    shard: ClassShard | None = None
    """Which classes its rows are of, where classes are divided among processes."""

    @abstractmethod
    def logits(self, view: View) -> Tensor:
        """Return the class scores (B, C)."""

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the logits, a scalar."""
        return mean_cross_entropy(self.logits(view), labels)

    def divide(self, rank: int, processes: int) -> None:
        """Keep only the rows of the classes of one process, if the classifier supports it and is configured to."""

    def reunite(self) -> None:
        """Gather the rows of all classes again, in all processes."""


class PrototypeClassifier(Head):
    """A fixed classifier of one point per class (C, D): ``scale`` times the similarity to each."""

    spaces = EVERY_SPACE
    normalised = True

    def __init__(self, prototypes: Tensor, scale: float) -> None:
        super().__init__()
        self.register_buffer("weight", prototypes)
        self.scale = scale

    def logits(self, view: View) -> Tensor:
        """Return scaled similarities (B, C)."""
        return view.space.similarity(view.points, self.weight.to(view.points), self.scale)


class NoClassifier(Head):
    """Placeholder for a classifier if the task is trained elsewhere: its loss is 0, and it has no scores."""

    spaces = EVERY_SPACE

    def logits(self, view: View) -> Tensor:
        """Raise an error: no classifier exists.

        Raises:
            ConfigError: Always.
        """
        raise _no_classifier("scores")

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return 0, with a gradient of 0."""
        return view.features.sum() * 0

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a tensor of those that have one
        """Refuse: there is none."""
        raise _no_classifier("weights")


class LossAlone(Head):
    """View of a classifier whose classes are divided among processes: only its loss, no rows or scores."""

    spaces = EVERY_SPACE

    def __init__(self, head: Head) -> None:
        super().__init__()
        self._head = (head,)  # in a tuple, so that its rows are not those of this module
        self.scale, self.normalised = head.scale, head.normalised

    def logits(self, view: View) -> Tensor:
        """Raise an error: no process has all scores.

        Raises:
            ConfigError: Always.
        """
        raise _divided("scores")

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return the loss of the classifier, a scalar."""
        return self._head[0].loss(view, labels)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a tensor of those that have one
        """Raise an error: no process has all rows."""
        raise _divided("weights")


class NarrowHead(Head):
    """A classifier of fewer dimensions over a wider space: it reads only the first dimensions.

    For zero-padded points, its scores equal those of the classifier itself.

    Args:
        head: The classifier.
        narrow: Space of the views that it reads.
        dim: Dimension of the wider space.
    """

    def __init__(self, head: Head, narrow: Space, dim: int) -> None:
        super().__init__()
        self.head, self.narrow, self.dim = head, narrow, dim
        self.spaces, self.scale, self.normalised = head.spaces, head.scale, head.normalised  # type: ignore[misc]

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a tensor of those that have one
        """The rows of the classifier (C, D), with zeros appended."""
        return nn.functional.pad(self.head.weight, (0, self.dim - self.narrow.dim))

    def logits(self, view: View) -> Tensor:
        """Return the scores of the classifier for the first values (B, C)."""
        return self.head.logits(view.first(self.narrow))


class NarrowEncoder(nn.Module):
    """An encoder of fewer dimensions whose embeddings are padded with zeros.

    Args:
        encoder: The encoder.
        dim: Output dimension D.
    """

    def __init__(self, encoder: nn.Module, dim: int) -> None:
        super().__init__()
        self.encoder, self.dim = encoder, dim

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings of a batch (B, D)."""
        features: Tensor = self.encoder(inputs)
        return nn.functional.pad(features, (0, self.dim - features.shape[-1]))


def _no_classifier(wanted: str) -> ConfigError:
    return ConfigError(
        f"The method reads {wanted} of the classifier in training, and there is none.",
        expected="a classifier",
        to_do="pass classifier=, a name such as 'softmax' or a module from embeddings (B, D) to scores (B, C); "
        "a method of your own says so by 'head' in `reads`.",
    )


def _divided(wanted: str) -> ConfigError:
    return ConfigError(
        f"The method reads {wanted} of the classifier in training, whose classes are divided among processes.",
        expected="a method that reads its loss alone, such as p2s or independent",
        to_do="choose another method, or do not divide the classes.",
    )


Read = Literal["head", "old", "old_embeddings", "index", "replayed", "epoch", "progress", "new_embeddings"]
"""What a method may need of those who build steps by hand; see `CompatibilityMethod.reads`."""


@dataclass(frozen=True)
class Step:
    """All inputs of a method for one batch; with several processes, the batches of all of them in order.

    Every process computes the whole loss with the same random draws, but propagates only the gradient of its rows.

    Args:
        new: The view of the model in training; gradients flow through it.
        old: The predecessor's view of the same items, detached; None without a predecessor.
        labels: Class of every item, int64 (B,); -1 if unknown, which only methods with `unlabelled` see.
        old_labels: Row of the old classifier for every item, -1 where the old model never saw the class.
        index: Row of every item in the training set, int64 (B,).
        replayed: Whether an item comes from a memory of earlier sessions, bool (B,).
        head: The classifier in training.
        progress: Share of all steps done, 0 at the first step, below 1 at the last.
        epoch: Number of this epoch, from 0.
        epochs: Number of epochs.
        generator: CPU generator, the only randomness a method may use; seeded by the position in the run, so that a
            resumed run and all processes draw the same values.
    """

    new: View
    old: View | None
    labels: Tensor
    old_labels: Tensor
    index: Tensor
    replayed: Tensor
    head: Head
    progress: float
    epoch: int
    epochs: int
    generator: torch.Generator

    @property
    def predecessor(self) -> View:
        """The old view without gradient and in the dtype of the new one, for methods that cannot do without."""
        if self.old is None:
            raise ConfigError("This step has no old view.", expected="a predecessor; the method sets needs_old")
        dtype = self.new.features.dtype
        return View(self.old.features.detach().to(dtype), self.old.points.detach().to(dtype), self.old.space)


def task_of(step: Step, view: View, chosen: Tensor) -> Tensor:
    """Return the task loss of the chosen rows, bool (B,), of a view of the items; 0 if none is chosen."""
    return step.head.loss(View(view.features[chosen], view.points[chosen], view.space), step.labels[chosen])


@dataclass(frozen=True)
class OldModel:
    """All data of the predecessor.

    Args:
        embeddings: Raw features of the NEW training set, row i for index i, labelled in the new classes.
        classes: Class names in the order of the old classifier's rows.
        head: The old classifier; None when it was discarded.
        own_training: Raw features of the old model's own training set or gallery, labelled in `classes`.
        encoder: The frozen old model, if its view is computed on the same augmented items; None to use the cached rows
            of `embeddings`.
        gallery: Embeddings of the same items, row by row, by the older model of the gallery to search; only for methods
            with `maps_gallery`, over a frozen model, which is then the predecessor.
        own_space: The predecessor's own space, if it has fewer dimensions and all embeddings are zero-padded to the
            space of the new model, see `padded`; otherwise None.
    """

    embeddings: EmbeddingSet
    classes: Sequence[str]
    head: Head | None = None
    own_training: EmbeddingSet | None = None
    encoder: nn.Module | None = None
    gallery: EmbeddingSet | None = None
    own_space: Space | None = None

    def padded(self, space: Space) -> OldModel:
        """Return the predecessor in a space of more dimensions, with zero-padded embeddings.

        Its classifier reads only the first values of an embedding.

        Args:
            space: Space of the new model; its own space returns it unchanged.

        Raises:
            SpaceMismatchError: The space has fewer dimensions, is of another kind, or does not support padding.
        """
        own = self.embeddings.space
        if space == own:
            return self
        return replace(
            self,
            embeddings=self.embeddings.padded(space),
            head=None if self.head is None else NarrowHead(self.head, own, space.dim),
            own_training=None if self.own_training is None else self.own_training.padded(space),
            encoder=None if self.encoder is None else NarrowEncoder(self.encoder, space.dim),
            own_space=own,
        )


@dataclass(frozen=True)
class Epoch:
    """Inputs of a method at the start of an epoch.

    Args:
        index: Number of the epoch, from 0.
        total: Number of epochs.
        training_size: Number of training items.
        generator: CPU generator, seeded as in `Step`.
        new_embeddings: Function that encodes the whole training set with the current model (no augmentation, no
            gradient) and returns its view, rows in dataset order; each call costs one pass over the data.
        new_prototypes: Function that runs the same pass but keeps only the mean point of every class (C, D).
    """

    index: int
    total: int
    training_size: int
    generator: torch.Generator
    new_embeddings: Callable[[], View]
    new_prototypes: Callable[[], Tensor]


class CompatibilityMethod(nn.Module):
    """Base class of all methods; every hook except `forward` does nothing by default.

    A method is a module, so its buffers and parameters are trained, moved and saved with the model.
    """

    spaces: ClassVar[frozenset[str]] = frozenset({"hypersphere"})
    """Names of the spaces the method knows."""
    space_reason: ClassVar[str] = "its loss is made of directions, cosines or angles of unit vectors"
    """Why it knows no others, to be read after "because"."""
    keeps_points: ClassVar[bool] = False
    """Whether it keeps old points, or what reads them, and so needs a space that stays as it is in training."""
    needs_old: ClassVar[bool] = True
    """Whether training refuses to start without a predecessor."""
    memory: str | None = None
    """How the images of earlier sessions that a session sees again are chosen: a key of
    `limpet_bench.sessions.memory.EXEMPLARS`; None replays none. An option may decide it."""
    replays: ClassVar[Literal["always", "without old classes"]] = "always"
    """When they are seen: in every session, or only in one that brings no image of an earlier class."""
    memory_share: ClassVar[float | None] = None
    """Share of every batch that is drawn from them; None shuffles them among the session's own images."""
    items_per_class: int | None = None
    """How many items of a class every batch has to hold where the recipe does not say; None for no matter how many. An
    option may decide it."""
    gallery_policy: ClassVar[Literal["append", "reindex"]] = "append"
    """What a session does to the gallery of earlier sessions: nothing, or embed all of it again."""
    first_session: ClassVar[Literal["shared", "own"]] = "shared"
    """Whether the first session, in which all learners train alike, has to be watched by this one: "own" trains it
    once more, to the same weights."""
    old_view: ClassVar[Literal["cached", "same"]] = "cached"
    """What the predecessor sees unless the recipe says otherwise: clean items, embedded once, or the augmented ones."""
    sessions_only: ClassVar[bool] = False
    """Whether the method makes sense only in a sequence of sessions."""
    looks_back: ClassVar[bool] = False
    """Whether `on_session_end` goes over all images of the session, which is part of what a learner costs."""
    widens: ClassVar[bool] = False
    """Whether it has a use for dimensions that the predecessor does not have: one of fewer dimensions then counts as
    padded with zeros without being asked for."""
    unlabelled: ClassVar[bool] = False
    """Whether it also learns from items without a label; their label is -1."""
    slower_when_wide: ClassVar[bool] = False
    """Whether a head that it trains comes apart on wide vectors at the rate that suits narrow ones (`head_recipe`)."""
    stays: ClassVar[bool] = False
    """Whether a head that it trains stays in the space of the frozen model below, where an adapter takes the gallery of
    an older one, instead of moving to where that gallery is."""
    maps_gallery: ClassVar[bool] = False
    """Whether it learns this map of the gallery itself, `gallery_adapter`, instead of leaving it to an adapter."""
    bound: ClassVar[Literal["lower", "upper"] | None] = None
    """Which end of a comparison of learners in sessions the method marks, if it does."""
    without_draws: ClassVar[Mapping[str, Any]] = {}
    """Options under which nothing that it draws depends on the order of a batch; none where that is always so."""
    without_classes: ClassVar[Mapping[str, Any] | None] = None
    """Options under which it can do without classes: of labels it reads only which items of a batch are alike, and of
    the classifier only its loss. Pairs of texts are trained on so. None where it cannot."""
    balance: ClassVar[str | None] = "weight"
    """The option that weighs compatibility against the task: what a fair comparison may tune, and nothing else."""

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            checked(cls)

    @property
    def reads(self) -> frozenset[Read]:
        """Inputs that the method needs with its options, in addition to the new view, the labels and random draws.

        Training provides all of it. If you call the method from your own loop, this property lists what to pass.

        - "head": scores or weights of the classifier, or its loss if nothing else is available.
        - "old": the predecessor's view of every batch, `Step.old` or `Step.predecessor`.
        - "old_embeddings": vectors and labels of `OldModel.embeddings`, those of the whole training set.
        - "index", "replayed", "progress": these values of a step; "epoch": `Step.epoch` and `Step.epochs`.
        - "new_embeddings": `Epoch.new_embeddings` or `Epoch.new_prototypes`.
        """
        return frozenset()

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Process the predecessor once, before the optimiser is built; may register buffers and parameters.

        It runs again when a run is resumed, and must then produce the same state.
        """

    def on_epoch_start(self, epoch: Epoch) -> Mapping[str, float] | None:
        """Run before the first step of every epoch; store computed values in buffers.

        It does not run again when a run is resumed within an epoch; buffers are restored instead.

        Returns:
            Named values for the log of this epoch, such as the movement of targets; they are not part of the loss.
        """
        return None

    def change_inputs(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the inputs that the model in training sees instead of those of the batch, such as mixed ones.

        Runs before `forward` of the same step, with the generator of that step. A predecessor sees the unchanged batch.
        With several processes, a method that overrides it is given the inputs of all of them.
        """
        return batch.inputs

    @abstractmethod
    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return named scalar terms, which are summed to the loss and logged by name."""
        raise NotImplementedError

    def penalty(self, model: nn.Module) -> dict[str, Tensor]:
        """Return named scalar terms on the weights, added to the loss once a step."""
        return {}

    def after_step(self, model: nn.Module) -> None:
        """Run after the optimiser step, before gradients are cleared."""

    def on_training_end(self, head: Head) -> None:
        """Change the classifier in place, so that it reads the embeddings of the release directly.

        Runs once, with the chosen weights restored. Needed if the classifier was trained on other inputs, such as
        embeddings in another basis.
        """

    def on_session_end(self, model: nn.Module, head: Head, loader: Iterable[Batch]) -> None:
        """Run after training, with the chosen weights restored; items are un-augmented, in dataset order.

        Called for the images of the session that just ended, including replayed ones.
        """

    def carried(self) -> dict[str, Tensor]:
        """Return the state that the method needs in the next session, after `on_session_end`; it is saved."""
        return {}

    def gallery_adapter(self, carried: Mapping[str, Tensor], old: EmbeddingSet, new: EmbeddingSet) -> Adapter | None:
        """Return the map of an older model's gallery that was learnt with a head; None if there is none.

        Args:
            carried: Return value of `carried` after training.
            old: Embeddings to map, as used in training.
            new: Embeddings of the same items by the head.
        """
        return None

    def carry_over(self, found: Mapping[str, Tensor]) -> None:
        """Restore the state that `carried` returned after the previous session; runs before `prepare`."""
