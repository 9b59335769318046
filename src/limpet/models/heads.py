"""Classifiers that train an encoder with any method, and their losses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn

from limpet.errors import ConfigError, refuse
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.geometry.lorentz import LARGEST_ANGLE, Curvature, time
from limpet.losses.influence import mean_cross_entropy
from limpet.losses.margin import arcface_logits
from limpet.losses.sharded_softmax import ClassShard
from limpet.methods.base import Head, View
from limpet.registry import Registry
from limpet.support.extras import needing
from limpet.support.options import bound
from limpet.support.ranges import NonNegative, Positive, checked

SampledShare = Annotated[float, Gt(0), Le(1)]


def _initial_weight(classes: int, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(classes, dim).uniform_(-1, 1) / math.sqrt(dim))


class TaskHead(Head, ABC):
    """Base class of classifiers, with an optional batch-hard triplet term in addition to the classification loss.

    The term applies to the points of every batch of the classifier, mixed ones (MixBCT) included. Random batches over
    many classes seldom hold two items of one class, so the term has little or no effect. Set ``items_per_class`` of the
    recipe (``--recipe.items-per-class 4``) to get this many items of every class in a batch.

    Args:
        triplet: Weight of the term; 0 for none. Training with a positive weight requires pytorch-metric-learning.
        triplet_margin: Margin between the distances to the farthest item of the own class and to the nearest of another
            class, in the distance of the space: that of unit vectors on the hypersphere, geodesic on the Lorentz space.
    """

    @checked
    def __init__(self, triplet: NonNegative, triplet_margin: NonNegative) -> None:
        super().__init__()
        self.triplet, self.triplet_margin = triplet, triplet_margin

    def check_libraries(self) -> None:
        """Refuse to train if the loss needs a package that is not installed."""
        if self.triplet > 0:
            metric_learning()

    def classification(self, view: View, labels: Tensor) -> Tensor:
        """Return the loss without the triplet term: the mean cross-entropy of the logits, a scalar."""
        return mean_cross_entropy(self.logits(view), labels)

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return the classification loss plus the weighted triplet term, a scalar."""
        loss = self.classification(view, labels)
        if self.triplet > 0:
            loss = loss + self.triplet * batch_hard_triplet(view.points, labels, self.triplet_margin, view.space)
        return loss


class RowsHead(TaskHead):
    """A classifier with one independent row of weights per class, so that processes can divide the classes.

    Args:
        triplet: See `TaskHead`.
        triplet_margin: See `TaskHead`.
        divided: Whether to divide the classes among processes in training, if they do not fit in one process; methods
            can then read only the loss.
        sampled: Share of the classes that a step compares with, in (0, 1]: those of its items, and others sampled at
            every step (An et al., arXiv:2010.05222).
    """

    @checked
    def __init__(self, triplet: NonNegative, triplet_margin: NonNegative, divided: bool, sampled: SampledShare) -> None:
        super().__init__(triplet, triplet_margin)
        self.divided, self.sampled = divided, sampled
        self.bias: Tensor | None = None

    def divide(self, rank: int, processes: int) -> None:
        """Keep only the class rows of this process, if classes are to be divided.

        Raises:
            ConfigError: The classifier has fewer classes than processes.
        """
        if self.divided and processes > 1:
            refuse(len(self.weight) < processes, f"{len(self.weight)} classes for {processes} processes.",
                   "at least one for each, or classes that are not divided")  # fmt: skip
            self.shard = ClassShard(len(self.weight), rank, processes)
            for parameter in self.parameters():
                parameter.data = self.shard.part(parameter.data)

    def reunite(self) -> None:
        """Gather the rows of all classes in all processes."""
        if self.shard is not None:
            for parameter in self.parameters():
                parameter.grad = None
                parameter.data = self.shard.united(parameter.data)
            self.shard = None

    @abstractmethod
    def scores(self, view: View, weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
        """Return the scores (B, c) that training compares, for the classes of these rows of weights.

        Args:
            view: The items.
            weight: Class rows (c, D).
            bias: Offset per class (c,); None for none.
            rows: Row of the class of every item, int64 (B,); -1 for a class without a row.
        """

    def classification(self, view: View, labels: Tensor) -> Tensor:
        """Return the loss without the triplet term: the mean cross-entropy of the logits, a scalar."""
        if self.shard is None and (self.sampled == 1 or not self.training):
            return mean_cross_entropy(self.scores(view, self.weight, self.bias, labels), labels)
        shard = self.shard or ClassShard(len(self.weight))
        rows, weight, bias = shard.rows(labels), self.weight, self.bias
        if self.sampled < 1 and self.training:
            chosen, rows = shard.drawn(rows, self.sampled)
            weight, bias = weight[chosen], None if bias is None else bias[chosen]
        seen = View(shard.shared(view.features), view.points, view.space)
        return shard.cross_entropy(self.scores(seen, weight, bias, rows), rows, labels)


class SoftmaxHead(RowsHead):
    """A linear classifier over raw features: logits are inner products, plus an optional bias.

    Use it when features are compared without normalisation, or to continue the training of such a model.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        bias: Whether to learn one offset per class.
        triplet: Weight of a batch-hard triplet term; see `TaskHead`.
        triplet_margin: Margin of that term.
        divided: Whether to divide the classes among processes; see `RowsHead`.
        sampled: Share of the classes that a step compares with; see `RowsHead`.

    >>> import torch
    >>> from limpet.geometry import Hypersphere
    >>> from limpet.methods.base import View
    >>> head, view = SoftmaxHead(classes=3, dim=8), View.of(torch.randn(4, 8), Hypersphere(8))
    >>> head.loss(view, torch.tensor([0, 1, 2, 0])).backward()
    >>> head.logits(view).shape
    torch.Size([4, 3])
    """

    @checked
    def __init__(
        self,
        classes: int,
        dim: int,
        bias: bool = False,
        triplet: NonNegative = 0.0,
        triplet_margin: NonNegative = 0.3,
        divided: bool = False,
        sampled: SampledShare = 1.0,
    ) -> None:
        super().__init__(triplet, triplet_margin, divided, sampled)
        self.weight = _initial_weight(classes, dim)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def logits(self, view: View) -> Tensor:
        """Return inner products (B, C)."""
        return nn.functional.linear(view.features, self.weight, self.bias)

    def scores(self, view: View, weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
        """Return inner products (B, c)."""
        return nn.functional.linear(view.features, weight, bias)


class NormalisedHead(RowsHead):
    """A classifier by the cosines to class directions, divided by a temperature.

    Use it for cosine retrieval: training optimises the similarity that searches use.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        temperature: Temperature, the divisor of the cosines.
        triplet: Weight of a batch-hard triplet term; see `TaskHead`.
        triplet_margin: Margin of that term.
        divided: Whether to divide the classes among processes; see `RowsHead`.
        sampled: Share of the classes that a step compares with; see `RowsHead`.

    >>> import torch
    >>> from limpet.geometry import Hypersphere
    >>> from limpet.methods.base import View
    >>> head, view = NormalisedHead(classes=3, dim=8), View.of(torch.randn(4, 8), Hypersphere(8))
    >>> head.loss(view, torch.tensor([0, 1, 2, 0])).backward()
    >>> head.logits(view).shape
    torch.Size([4, 3])
    """

    normalised = True

    @checked
    def __init__(
        self,
        classes: int,
        dim: int,
        temperature: Positive = 0.05,
        triplet: NonNegative = 0.0,
        triplet_margin: NonNegative = 0.3,
        divided: bool = False,
        sampled: SampledShare = 1.0,
    ) -> None:
        super().__init__(triplet, triplet_margin, divided, sampled)
        self.weight = _initial_weight(classes, dim)
        self.scale = 1 / temperature

    def logits(self, view: View) -> Tensor:
        """Return cosines over the temperature (B, C)."""
        return self.scores(view, self.weight)

    def scores(self, view: View, weight: Tensor, bias: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """Return cosines over the temperature (B, c)."""
        return (self.scale * normalise(view.features)) @ normalise(weight).T


class ArcFaceHead(RowsHead):
    """A cosine classifier with an angular margin at the target class (ArcFace, Deng et al., CVPR 2019, Eq. 3).

    Use it for many classes with few items each, such as faces or landmarks. A smaller ``scale`` suits few classes.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        scale: Scale s, the factor of the cosines.
        margin: Margin m that training adds to the angle of the target, in radians.
        guard: Whether the target's logit keeps falling beyond π − m, as in insightface.
        triplet: Weight of a batch-hard triplet term; see `TaskHead`.
        triplet_margin: Margin of that term.
        divided: Whether to divide the classes among processes; see `RowsHead`.
        sampled: Share of the classes that a step compares with; see `RowsHead`.

    >>> import torch
    >>> from limpet.geometry import Hypersphere
    >>> from limpet.methods.base import View
    >>> head, view = ArcFaceHead(classes=3, dim=8, scale=16), View.of(torch.randn(4, 8), Hypersphere(8))
    >>> head.loss(view, torch.tensor([0, 1, 2, 0])).backward()
    >>> head.logits(view).shape
    torch.Size([4, 3])
    """

    normalised = True

    @checked
    def __init__(
        self,
        classes: int,
        dim: int,
        scale: float = 64.0,
        margin: float = 0.5,
        guard: bool = True,
        triplet: NonNegative = 0.0,
        triplet_margin: NonNegative = 0.3,
        divided: bool = False,
        sampled: SampledShare = 1.0,
    ) -> None:
        super().__init__(triplet, triplet_margin, divided, sampled)
        self.weight = _initial_weight(classes, dim)
        self.scale, self.margin, self.guard = scale, margin, guard

    def logits(self, view: View) -> Tensor:
        """Return scaled cosines without margin (B, C)."""
        return self.scale * (normalise(view.features) @ normalise(self.weight).T)

    def scores(self, view: View, weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
        """Return scaled cosines with the margin at the targets (B, c)."""
        cosines = normalise(view.features) @ normalise(weight).T
        return arcface_logits(cosines, rows, scale=self.scale, margin=self.margin, guard=self.guard)


class LorentzHead(TaskHead):
    """Lorentz multinomial logistic regression: signed distances to hyperplanes of hyperbolic space.

    Bdeir et al., ICLR 2024, arXiv:2303.15919; the base loss of HBCT. ``weight`` holds the normals of the hyperplanes.

    It is the only head for models in hyperbolic space.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the points.
        triplet: Weight of a batch-hard triplet term; see `TaskHead`.
        triplet_margin: Margin of that term.

    >>> import torch
    >>> from limpet.geometry import Lorentz
    >>> from limpet.methods.base import View
    >>> head, view = LorentzHead(classes=3, dim=8), View.of(torch.randn(4, 8), Lorentz(8))
    >>> head.loss(view, torch.tensor([0, 1, 2, 0])).backward()
    >>> head.logits(view).shape
    torch.Size([4, 3])
    """

    spaces = frozenset({"lorentz"})

    @checked
    def __init__(self, classes: int, dim: int, triplet: NonNegative = 0.0, triplet_margin: NonNegative = 0.3) -> None:
        super().__init__(triplet, triplet_margin)
        self.weight = _initial_weight(classes, dim)
        self.offsets = nn.Parameter(torch.empty(classes).uniform_(-1, 1) / math.sqrt(dim))

    def logits(self, view: View) -> Tensor:
        """Return the signed distances to the hyperplanes times the lengths of their normals (B, C)."""
        return hyperplane_logits(view.points, self.weight, self.offsets, curvature=view.space.live_curvature)


HEADS: Registry[type[TaskHead]] = Registry(
    "head",
    "heads",
    {
        "softmax": SoftmaxHead,
        "normalised": NormalisedHead,
        "arcface": ArcFaceHead,
        "lorentz": LorentzHead,
    },
    fits=lambda thing: isinstance(thing, type) and issubclass(thing, TaskHead),
    expected="a subclass of limpet.models.heads.TaskHead",
)


def default_head(space: Space) -> str:
    """Return the name of the first classifier of `HEADS` that supports the space."""
    return next(name for name, head in HEADS.items() if space.name in head.spaces)


def build_head(name: str, classes: int, dim: int, options: Mapping[str, object], *, to_train: bool = True) -> Head:
    """Build a classifier by name.

    Args:
        name: A key of `HEADS`.
        classes: Number of classes C.
        dim: Dimension D of the features.
        options: Options of the head.
        to_train: Whether the classifier is trained; if not, the package that its loss needs may be missing.

    Raises:
        ConfigError: The name or an option is unknown, or a package that the loss needs is not installed.
    """
    head = HEADS[name](classes, dim, **bound(HEADS[name], options, f"head '{name}'"))
    if to_train:
        head.check_libraries()
    return head


def inherit_rows(head: Head, old: Head, rows: Tensor) -> None:
    """Copy the class parameters of an old classifier into a new one of the same kind, in place.

    Args:
        head: The new classifier, with C classes.
        old: The old classifier.
        rows: Row of the old classifier for every new class, int64 (C,); -1 for a class without one.

    Raises:
        ConfigError: The classifiers are of different kinds or dimensions.
    """
    new_values, old_values = dict(head.named_parameters()), dict(old.named_parameters())
    if {name: value.shape[1:] for name, value in new_values.items()} != {
        name: value.shape[1:] for name, value in old_values.items()
    }:
        raise ConfigError(
            f"A {type(head).__name__} was to take over rows of a {type(old).__name__}.",
            expected="classifiers of one kind and dimension",
        )
    known = rows >= 0
    with torch.no_grad():
        for name, value in new_values.items():
            value[known] = old_values[name][rows[known]].to(value)


def hyperplane_logits(points: Tensor, normals: Tensor, offsets: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the logits of Lorentz multinomial logistic regression (Bdeir et al., ICLR 2024, arXiv:2303.15919).

    A class is a hyperplane, shifted by a along the direction of z ∈ R^D at the origin (the parametrisation of Mishne et
    al., arXiv:2211.00181); its logit is |z| times the signed distance to it. With ẑ = z / |z| and k = √K,

        logit = |z| asinh(k (cosh(k a) ẑ·s − sinh(k a) t)) / k,

    the paper's β asinh(k α / β) / k, whose β = √(cosh²(k a) |z|² − sinh²(k a) |z|²) is |z|.

    Args:
        points: Space components s (N, D).
        normals: Normals z (C, D); a zero vector gives the logit 0, with a gradient of 0.
        offsets: Offsets a (C,); clipped at k |a| ≈ 11.1, beyond which sinh leaves the range of points.
        curvature: Curvature K > 0.

    Returns:
        Logits (N, C).

    >>> logits = hyperplane_logits(torch.tensor([[0.75]]), torch.tensor([[2.0]]), torch.zeros(1))
    >>> round(logits.item(), 4)  # the point lies asinh(3/4) = ln 2 from the origin, which is on the plane
    1.3863
    """
    root: Curvature = curvature**0.5
    lengths: Tensor = torch.linalg.vector_norm(normals, dim=1)
    angles = (offsets * root).clamp(-LARGEST_ANGLE, LARGEST_ANGLE)
    boosted = normalise(normals) * angles.cosh()[:, None]
    sides = points @ boosted.T - time(points, curvature=curvature)[:, None] * angles.sinh()
    return lengths * (sides * root).asinh() / root


def metric_learning() -> Any:
    """Import pytorch-metric-learning.

    Raises:
        ConfigError: The library is not installed; the message gives the command that installs it.
    """
    with needing("The triplet term", "leave out the head's option 'triplet'"):
        import pytorch_metric_learning
    return pytorch_metric_learning


@cache
def _space_distance() -> Any:
    metric_learning()
    from pytorch_metric_learning.distances import BaseDistance

    class SpaceDistance(BaseDistance):  # type: ignore[misc]  # the package has no types
        def __init__(self, space: Space) -> None:
            super().__init__(normalize_embeddings=False)
            self.space = space

        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            return self.space.distance(self.space.similarity(query_emb, ref_emb))

        def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            return self.space.paired_distance(query_emb, ref_emb)

    return SpaceDistance


def batch_hard_triplet(points: Tensor, labels: Tensor, margin: float, space: Space) -> Tensor:
    """Average the triplet loss of every row's hardest positive and negative (Hermans et al., arXiv:1703.07737, Eq. 5).

    max(0, m + max_p d(z_i, z_p) − min_n d(z_i, z_n)), with p over the other rows of the class of i and n over the rows
    of all other classes. Departures: d is the distance of the space, that of unit vectors on the hypersphere, where the
    paper leaves lengths as they are; and the rows that have both a p and an n are averaged (those that satisfy the
    margin too), where the paper sums. On an accelerator every call waits for the device, because mining counts the
    triplets.

    Args:
        points: Points of the space (B, D).
        labels: Class of every row, int64 (B,).
        margin: m >= 0, to be compared with distances; those of the hypersphere are at most 2.
        space: Space that defines the distance.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, if no row has both.

    Raises:
        ConfigError: pytorch-metric-learning is not installed.

    >>> import torch
    >>> from limpet.geometry import Hypersphere
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> round(batch_hard_triplet(z, torch.tensor([0, 0, 1]), 0.3, Hypersphere(2)).item(), 4)  # (0 + .3 + √2 − √2) / 2
    0.15
    """
    metric_learning()
    if len(points) < 2:
        return points.sum() * 0
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import BatchHardMiner
    from pytorch_metric_learning.reducers import MeanReducer

    distance = _space_distance()(space)
    loss = TripletMarginLoss(margin, distance=distance, reducer=MeanReducer())
    value: Tensor = loss(points, labels, BatchHardMiner(distance=distance)(points, labels))
    return value
