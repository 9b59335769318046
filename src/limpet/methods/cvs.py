"""Continual learning for visual search: near the gallery of all sessions, and near the last session's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, EmptyOverlapError, refuse, unknown_name
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise, root
from limpet.geometry.segments import add_by_class, segment_sum
from limpet.losses.alignment import all_distances, distance_alignment, selected_mean
from limpet.losses.distillation import dark_knowledge
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import BLOCK, OldScores, by_option, require_old, rows_by_name
from limpet.support.ranges import NonNegative, Positive

OFFSET = 1e-6  # added to every component of a difference before its length is taken, as torch's triplet loss does
COINCIDING = 1e-6  # points closer than this have no direction in float32, and a batch closer than this no scale

ELEMENTS = 2**25  # of one block of angles: 128 MiB in float32


class CVS(CompatibilityMethod):
    r"""Backward consistent continual learning for visual search (CVS; Wan et al., CVPR 2022, arXiv:2205.13384).

    A model continues to learn session after session, and the gallery is never re-embedded. The data coherence keeps
    every embedding close to the replayed embedding of its class, the mean of its gallery embeddings by earlier models.
    The model coherence keeps it close to the last model's embedding of the same item, and away from those of other
    classes. Exemplars chosen by herding are mixed into the images of the session. Both losses work on unit vectors. In
    the equations, k(i) is the item of another class whose old embedding is nearest to item i's new one, e is a replayed
    embedding, whose length is below 1, and S are the items whose class has one.

    The model coherence helps if models drift: in sessions without earlier classes. If a tenth of a session or more is
    of earlier classes, it adds nothing to the data coherence (`benchmarks/results/continual_omniglot-drift.md`).

    Both weights trade compatibility against the task. A fair comparison may tune only the weight of the model
    coherence, the paper's α, which the paper tunes as well; its β stays 1.

    Loss:
        L = L_\text{task} + \alpha M + \beta D
        M = \frac{1}{B} \sum_i \max(0, \lVert z_i - v_i \rVert - \lVert z_i - v_{k(i)} \rVert + m)
        D = \frac{1}{|S|} \sum_{i \in S} \lVert z_i - e_{y_i} \rVert^2

    Args:
        coherence: Loss that keeps embeddings close to those of the last model. "model": the paper's triplet.
            Alternatives from the paper's comparison (Tables C.3 and C.4): "batch_hard", the farthest item of the class
            and the nearest of another (batches then hold two items of a class, or the number in the recipe's
            items_per_class); "dark_knowledge", the old classifier's scores; "absolute", "relative" and
            "relative_frobenius", distances to and between the last model's embeddings; "angles" and "distances",
            relational distillation; "dark_rank", the order of neighbours; "none", no loss.
        model_weight: Factor of `coherence` (α; the paper chose among 1 and 10); 0 skips it.
        data_weight: Factor of the data coherence (β); 0 ignores the gallery.
        margin: Margin of the triplets "model" and "batch_hard".
        squared: Square the distances of these triplets, as printed in the paper.
        temperature: Divisor of the scores of "dark_knowledge".
        aggregation: Mean that defines a replayed embedding: "item_mean", over all its gallery embeddings;
            "session_mean", over the means of its sessions; "literal", Eq. 1 as printed, which divides by all sessions.
        reduction: Divisor of the data coherence: "selected", the number of items with a replayed embedding; "batch",
            the batch size, Eq. 4 as printed.
        replay: Keep exemplars; without them, a session sees only its own images, as in the paper's ablation.

    Paper settings:
        model_weight: 10, chosen from 1 and 10
        data_weight: 1
        margin: 0.1
        squared: True (Eq. 3), False (released code)
        aggregation: literal (Eq. 1), item_mean (released code)
        reduction: batch (Eq. 4), selected (released code)
        replay: True

    Departures:
        If the released code and the paper differ, the code is followed: distances of the triplet are not squared, the
        data coherence is a mean over the items with a replayed embedding, which is a mean over items, not sessions.
    """

    sessions_only = True
    old_view = "same"
    memory: str | None = "herding"
    balance = "model_weight"

    replayed: Tensor
    rows: Tensor
    scores: OldScores

    def __init__(
        self,
        coherence: str = "model",
        model_weight: NonNegative = 10.0,
        data_weight: NonNegative = 1.0,
        margin: NonNegative = 0.1,
        squared: bool = False,
        temperature: Positive = 2.0,
        aggregation: str = "item_mean",
        reduction: Literal["selected", "batch"] = "selected",
        replay: bool = True,
    ) -> None:
        super().__init__()
        for option, value, known in (("coherence", coherence, COHERENCES), ("aggregation", aggregation, AGGREGATIONS)):
            if value not in known:
                raise unknown_name(option, value, known, listing="limpet methods cvs")
        self.coherence, self.model_weight, self.data_weight = coherence, model_weight, data_weight
        self.margin, self.squared, self.temperature = margin, squared, temperature
        self.aggregation, self.reduction = aggregation, reduction
        self.memory = "herding" if replay else None
        self.items_per_class = 2 if coherence in READS_PAIRS else None
        self.earlier: SessionSums | None = None
        self.sums: SessionSums | None = None

    @property
    def reads(self) -> frozenset[Read]:
        """What holds embeddings near the last model's: its view, and scores where these are compared."""
        if not self.model_weight or self.coherence == "none":
            return frozenset()
        return frozenset({"head", "old"} if self.coherence in READS_SCORES else {"old"})

    def carry_over(self, found: Mapping[str, Tensor]) -> None:
        """Take the sums of the gallery until the session before the last."""
        self.earlier = SessionSums(found["sums"], found["counts"]) if found else None

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Add what the last session put into the gallery to the sums, and aggregate them."""
        old = require_old(old, "cvs")
        if self.model_weight and self.coherence in READS_SCORES:
            self.scores = OldScores(old, "cvs", ("coherence", "model"))
        if self.data_weight:
            added = class_totals(last_gallery(old), old.classes, space.dim)
            self.sums = (self.earlier or SessionSums.empty(space.dim)).with_totals(*added)
            means, seen = self.sums.embeddings(self.aggregation)
            rows = torch.where(seen, torch.arange(len(seen), device=seen.device), -1)
            self.register_buffer("replayed", means)
            self.register_buffer("rows", torch.cat([rows, rows.new_tensor([-1])]))  # the last is that of no class

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted coherences, those whose weight is not 0."""
        terms = {"task": step.head.loss(step.new, step.labels)}
        if self.model_weight:
            terms["model_coherence"] = self.model_weight * COHERENCES[self.coherence](self, step)
        if self.data_weight:
            points = step.new.points
            means, rows = self.replayed.to(points.dtype), self.rows[step.old_labels]
            terms["data_coherence"] = self.data_weight * data_coherence(points, means, rows, self.reduction)
        return terms

    def carried(self) -> dict[str, Tensor]:
        """Return the sums of the gallery until the last session, (J, C, D), and the counts (J, C)."""
        return {} if self.sums is None else {"sums": self.sums.sums, "counts": self.sums.counts}


def last_gallery(old: OldModel) -> EmbeddingSet:
    """Return what the last session put into the gallery.

    Raises:
        EmptyOverlapError: It is not there.
    """
    if old.own_training is None:
        raise EmptyOverlapError(
            "cvs replays the gallery embeddings of the last session, which are not available.",
            expected="what that session put into the gallery",
            to_do=f"leave the data coherence out: {by_option('cvs', 'data_weight', 0)}.",
        )
    return old.own_training


def class_totals(gallery: EmbeddingSet, classes: Sequence[str], dim: int) -> tuple[Tensor, Tensor]:
    """Sum the unit vectors of a gallery (C, D) by class, block by block, and count them (C,).

    Args:
        gallery: Features or points of N items, labelled.
        classes: Names of the C classes.
        dim: D.

    Raises:
        DataError: An item has no class, or none of these.
    """
    rows = rows_by_name(classes, gallery.class_names or ())
    labels = rows[torch.from_numpy(np.array(gallery.labels))] if gallery.labels is not None and len(rows) else None
    if labels is None or bool((labels < 0).any()):
        raise DataError(
            f"The gallery of the last session has items without one of its model's {len(classes)} classes.",
            expected="the class of every item, by name, as that model's classifier counts them",
            to_do="embed the gallery with the labels and class names of that session.",
        )
    sums, counts = torch.zeros(len(classes), dim), torch.zeros(len(classes))
    for start in range(0, len(labels), BLOCK):  # millions of rows stay in their file
        vectors = torch.from_numpy(np.array(gallery.vectors[start : start + BLOCK]))
        add_by_class(sums, counts, normalise(vectors), labels[start : start + BLOCK])
    return sums, counts


def _points(step: Step) -> tuple[Tensor, Tensor]:
    return step.new.points, step.predecessor.points


def _triplet(method: CVS, step: Step) -> Tensor:
    return model_coherence(*_points(step), step.labels, margin=method.margin, squared=method.squared)


def _batch_hard(method: CVS, step: Step) -> Tensor:
    return frozen_batch_hard(*_points(step), step.labels, margin=method.margin, squared=method.squared)


def _dark_knowledge(method: CVS, step: Step) -> Tensor:
    new, old = method.scores(step)
    return dark_knowledge(new, old, method.temperature)


COHERENCES: dict[str, Callable[[CVS, Step], Tensor]] = {
    "model": _triplet,
    "batch_hard": _batch_hard,
    "dark_knowledge": _dark_knowledge,
    "absolute": lambda method, step: absolute_distillation(*_points(step)),
    "relative": lambda method, step: relative_distillation(*_points(step)),
    "relative_frobenius": lambda method, step: relative_distillation(*_points(step), "frobenius"),
    "angles": lambda method, step: relational_angles(*_points(step)),
    "distances": lambda method, step: relational_distances(*_points(step)),
    "dark_rank": lambda method, step: hard_dark_rank(*_points(step)),
    "none": lambda method, step: step.new.points.sum() * 0,
}
"""What may stand in the place of the model coherence, by its name: from the method and a step to a scalar."""

READS_SCORES = frozenset({"dark_knowledge"})
"""Those that need the old classifier."""

READS_PAIRS = frozenset({"batch_hard"})
"""Those that need another item of the class in the batch."""


@dataclass(frozen=True, eq=False)
class SessionSums:
    """Sums of unit gallery embeddings by session and class; sessions are added, never changed.

    Args:
        sums: (J, C, D), zero where a class is missing in a session.
        counts: How many embeddings were summed (J, C), in the dtype of the sums.
    """

    sums: Tensor
    counts: Tensor

    @staticmethod
    def empty(dim: int, dtype: torch.dtype = torch.float32) -> SessionSums:
        """Return sums of no session and no class."""
        return SessionSums(torch.zeros(0, 0, dim, dtype=dtype), torch.zeros(0, 0, dtype=dtype))

    def with_session(self, embeddings: Tensor, labels: Tensor, num_classes: int) -> SessionSums:
        """Return the sums with one more session, whose embeddings have just joined the gallery.

        Args:
            embeddings: (N, D) of any length; made unit vectors here.
            labels: Class of every row, int64 (N,), below ``num_classes``.
            num_classes: Number of classes known now, not below that before; earlier sessions get zero rows for new
                classes.

        Raises:
            ConfigError: There are fewer classes than before or than the labels need, or the dimension differs.
        """
        needed = int(labels.max()) + 1 if len(labels) else 0
        refuse(num_classes < needed, f"num_classes = {num_classes}.", f"at least {needed}")
        points = normalise(embeddings.detach().to(self.sums))
        return self.with_totals(*segment_sum(points, labels.to(points.device), num_classes))

    def with_totals(self, added: Tensor, counted: Tensor) -> SessionSums:
        """Return the sums with one more session, whose own were taken elsewhere, such as block by block.

        Args:
            added: Sum of the session's unit embeddings by class (C, D), with at least as many classes as before.
            counted: How many were summed (C,).

        Raises:
            ConfigError: There are fewer classes than before, or the dimension differs.
        """
        sessions, known, dim = self.sums.shape
        refuse(added.shape[1] != dim, f"Embeddings of {added.shape[1]} dimensions.", f"{dim} as before")
        refuse(len(added) < known, f"num_classes = {len(added)}.", f"at least {known}")
        sums = self.sums.new_zeros(sessions + 1, len(added), dim)
        sums[:-1, :known], sums[-1] = self.sums, added
        counts = self.counts.new_zeros(sessions + 1, len(added))
        counts[:-1, :known], counts[-1] = self.counts, counted
        return SessionSums(sums, counts)

    def embeddings(self, aggregation: str = "item_mean") -> tuple[Tensor, Tensor]:
        """Return E_c of every class (C, D), not normalised again, and which classes have one, bool (C,).

        Args:
            aggregation: A name of `AGGREGATIONS`.

        Returns:
            A class without an embedding so far is zero, and False.
        """
        if aggregation not in AGGREGATIONS:
            raise unknown_name("aggregation", aggregation, AGGREGATIONS)
        return AGGREGATIONS[aggregation](self.sums, self.counts), self.counts.sum(dim=0) > 0


def item_mean(sums: Tensor, counts: Tensor) -> Tensor:
    """Average all embeddings of a class, each counted once (the released CVS code)."""
    return sums.sum(dim=0) / counts.sum(dim=0).clamp_min(1)[:, None]


def session_mean(sums: Tensor, counts: Tensor) -> Tensor:
    """Average the means of the sessions that contain a class."""
    return _session_means(sums, counts).sum(dim=0) / (counts > 0).sum(dim=0).clamp_min(1)[:, None]


def literal(sums: Tensor, counts: Tensor) -> Tensor:
    """Average as CVS Eq. 1 prints it: divided by all sessions, which shrinks a class that is missing in some."""
    return _session_means(sums, counts).sum(dim=0) / max(1, len(sums))


def _session_means(sums: Tensor, counts: Tensor) -> Tensor:
    return sums / counts.clamp_min(1)[:, :, None]


AGGREGATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "item_mean": item_mean,
    "session_mean": session_mean,
    "literal": literal,
}
"""From sums (J, C, D) and counts (J, C) to embeddings (C, D)."""


def data_coherence(
    points: Tensor, replayed: Tensor, rows: Tensor, reduction: Literal["selected", "batch"] = "selected"
) -> Tensor:
    """Return the mean squared distance of embeddings to the replayed embedding of their class (CVS, Eqs. 2 to 4).

    Σ_i ‖z_i − E_c‖² over the items whose class an earlier session has seen, items replayed from memory among them.

    Args:
        points: Unit rows z (B, D).
        replayed: E (C, D), the mean of the gallery's unit vectors by class; shorter than 1, and not normalised.
        rows: Row of E for every item, int64 (B,); -1 where no earlier session had its class.
        reduction: What the sum is divided by. "selected": the number of these items, as the public code does; "batch":
            B, as Eq. 4 is printed.

    Returns:
        A scalar in [0, 4]; 0, with a gradient of 0, where no item has a row.

    >>> z, means = torch.eye(2), torch.tensor([[0.5, 0.0]])
    >>> data_coherence(z, means, torch.tensor([0, -1])).item()  # 0.5²
    0.25
    >>> data_coherence(z, means, torch.tensor([0, -1]), "batch").item()
    0.125
    """
    if not len(replayed):
        return points.sum() * 0
    seen = rows >= 0
    squared = (points - replayed[rows.clamp_min(0)]).square().sum(dim=1)
    return selected_mean(squared, seen) if reduction == "selected" else selected_mean(squared.masked_fill(~seen, 0))


def model_coherence(
    new: Tensor,
    old: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.1,
    squared: bool = False,
) -> Tensor:
    """Draw every embedding to the last model's of the same item, away from that of another class (CVS, Eq. 5).

    Two samples, three embeddings: max(0, d(z_i, o_i) − d(z_i, o_n) + margin), where o_n is the nearest old embedding of
    another class. Departures: the paper's d is squared, the public code's is not, and what ran is the default here; an
    anchor without a negative is left out, where the code takes the negative of the anchor before it.

    Args:
        new: Unit rows z (B, D).
        old: Unit rows o of the last session's model, the same items, detached (B, D).
        labels: Class of every item, int64 (B,).
        margin: At least 0; 0.1 in the paper.
        squared: Whether d is squared; see `frozen_triplet`.

    Returns:
        A scalar in [0, 2 + margin], or [0, 4 + margin] when squared; 0, with a gradient of 0, where no anchor has a
        negative. It holds B × B distances.

    >>> z, o = torch.eye(2), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    >>> loss = model_coherence(z, o, torch.tensor([0, 1]), margin=0.5, squared=True)
    >>> round(loss.item(), 4)  # 0.8 − 2 + 0.5 < 0 and 0 − 0.4 + 0.5, over two anchors
    0.05
    """
    if not len(old):
        return new.sum() * 0
    nearest = nearest_of_other_classes(new, labels, old, labels)
    negatives = old[nearest.clamp_min(0)]
    return frozen_triplet(new, old, negatives, nearest >= 0, margin=margin, squared=squared)


def absolute_distillation(new: Tensor, old: Tensor) -> Tensor:
    """Return mean_i ‖z_i − o_i‖ over paired rows (B, D), the absolute teacher (Yu et al., CVPR 2019, arXiv:1904.03624).

    The value of `distance_alignment` without a hinge. A scalar, at least 0.

    >>> absolute_distillation(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]])).item()
    5.0
    """
    return distance_alignment(root((new - old).square().sum(dim=1)))


def relative_distillation(new: Tensor, old: Tensor, form: Literal["mean", "frobenius"] = "mean") -> Tensor:
    """Compare the distances between items under both models, the relative teacher (Yu et al., arXiv:1904.03624).

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.
        form: "mean", over all pairs of |‖z_i − z_j‖ − ‖o_i − o_j‖|; "frobenius", the length of the whole matrix of
            these differences, as in the authors' public code, which grows with B.

    Returns:
        A scalar, at least 0. It holds B × B distances.

    >>> z, o = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [3.0]])
    >>> relative_distillation(z, o).item()  # (0 + 2 + 2 + 0) / 4
    1.0
    >>> round(relative_distillation(z, o, "frobenius").item(), 4)  # √8
    2.8284
    """
    difference = all_distances(new, new) - all_distances(old, old)
    if form == "frobenius":
        return root(difference.square().sum())
    return difference.abs().sum() / max(difference.numel(), 1)


def relational_distances(new: Tensor, old: Tensor) -> Tensor:
    """Compare distances in units of their mean: the distance-wise loss of RKD (Park et al., CVPR 2019, Eqs. 6 to 8).

    The Huber loss, with its bend at 1, of ‖z_i − z_j‖/μ − ‖o_i − o_j‖/μ', where μ and μ' are the mean distances above
    0. Departure: a mean below 1e-6 counts as 1e-6, so that items that all coincide have a finite gradient.

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.

    Returns:
        A scalar, at least 0, the mean over B² pairs; 0 where the old distances are multiples of the new ones. It holds
        B × B distances.

    >>> o = torch.tensor([[0.0], [1.0], [2.0]])
    >>> relational_distances(7 * o, o).item()
    0.0
    """
    difference = _in_mean_units(all_distances(new, new)) - _in_mean_units(all_distances(old, old))
    return _huber_sum(difference) / max(difference.numel(), 1)


def relational_angles(new: Tensor, old: Tensor) -> Tensor:
    """Compare the angles of all triples: the angle-wise loss of RKD (Park et al., CVPR 2019, Eqs. 9 to 11).

    The Huber loss, with its bend at 1, of cos ∠z_j z_i z_k − cos ∠o_j o_i o_k. Departure: two points within 1e-6 of
    each other give no direction, so the cosine is 0 and takes no gradient; the public code divides such a difference by
    1e-12.

    Its B³ cosines and B² directions exist for both models, and with the gradient about three times over. Where they
    exceed `ELEMENTS`, blocks of vertices are recomputed on the way back, and no more than one of them stands in memory
    at a time.

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.

    Returns:
        A scalar in [0, 1.5], the mean over B³ triples.

    >>> right, straight = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), torch.tensor([[-1.0], [0.0], [1.0]])
    >>> round(relational_angles(right, straight).item(), 4)  # twice (1)²/2, four times (1 − √½)²/2, of 27
    0.0434
    """
    vertices = torch.arange(len(new), device=new.device)
    blocks = torch.split(vertices, max(1, ELEMENTS // max(len(new) * max(len(new), new.shape[1]), 1)))
    if len(blocks) == 1:
        total = _angle_block(new, old, vertices)
    else:
        total = torch.stack(
            [checkpoint(_angle_block, new, old, rows, use_reentrant=False, preserve_rng_state=False) for rows in blocks]
        ).sum()
    return total / max(len(new), 1) ** 3


def hard_dark_rank(new: Tensor, old: Tensor, neighbours: int = 4, scale: float = 3.0, power: float = 3.0) -> Tensor:
    """Return −log of how likely the new model ranks an item's neighbours as the old one did (Chen et al., AAAI 2018).

    Hard DarkRank, arXiv:1707.01220: mean_i [ −Σ_r ( s_ir − log Σ_{t≥r} exp(s_it) ) ] with the scores
    s_ij = −scale · ‖z_i − z_j‖^power, and r over the neighbours of i in the old model's order, the nearest first.

    Args:
        new: Rows z (B, D).
        old: Rows (B, D') of the same items, detached.
        neighbours: Length of the list; 0 stands for all other items, which is also the most there can be.
        scale: At least 0; 3 in the public code of RKD, as its power and its four neighbours.
        power: At least 1.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, for a list of one. Of old items at the same distance the
        one of the earlier row comes first. It holds B × B distances.

    >>> o = torch.tensor([[0.0], [1.0], [3.0]])
    >>> round(hard_dark_rank(torch.zeros(3, 1), o).item(), 4)  # two neighbours, a toss: ln 2
    0.6931
    """
    itself = torch.eye(len(old), dtype=torch.bool, device=old.device)
    count = min(neighbours or len(old), len(old) - 1) if len(old) else 0
    order = torch.argsort(all_distances(old, old).masked_fill(itself, torch.inf), dim=1, stable=True)[:, :count]
    ranked = -scale * all_distances(new, new).pow(power).gather(1, order)
    remaining = torch.logcumsumexp(ranked.flip(1), dim=1).flip(1)  # over the neighbour itself and all behind it
    return (remaining - ranked).sum() / max(len(new), 1)


def frozen_batch_hard(
    new: Tensor, old: Tensor, labels: Tensor, *, margin: float = 0.1, squared: bool = False
) -> Tensor:
    """Average triplets of every row with the farthest old embedding of its class and the nearest of another.

    Batch-hard mining (Hermans et al., arXiv:1703.07737) among frozen embeddings, as CVS compares its own with. Decision
    where nothing is published: the old embedding of the same item is no positive, which is why batches need two items
    of a class.

    Args:
        new: Unit rows (B, D).
        old: Unit rows of the last session's model, the same items, detached (B, D).
        labels: Class of every item, int64 (B,).
        margin: At least 0.
        squared: Whether distances are squared; see `frozen_triplet`.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no row has both a positive and a negative.

    >>> o = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss = frozen_batch_hard(o, o, torch.tensor([0, 0, 1]), squared=True)
    >>> round(loss.item(), 4)  # the first: 2 − 4 + 0.1 < 0, the second: 2 − 2 + 0.1; the third has no positive
    0.05
    """
    if not len(new):
        return new.sum() * 0
    nearest = nearest_of_other_classes(new, labels, old, labels)
    itself = torch.eye(len(old), dtype=torch.bool, device=old.device)
    outside = (labels[:, None] != labels) | itself
    farthest = all_distances(new.detach(), old).masked_fill(outside, -torch.inf).argmax(dim=1)
    valid = (nearest >= 0) & ~outside.all(dim=1)
    return frozen_triplet(new, old[farthest], old[nearest.clamp_min(0)], valid, margin=margin, squared=squared)


def _in_mean_units(distances: Tensor) -> Tensor:
    """Divide distances by the mean of those above 0, or by 1e-6 where that is less."""
    mean = distances.sum() / (distances > 0).sum().clamp_min(1)
    return distances / mean.clamp_min(COINCIDING)


def _angle_block(new: Tensor, old: Tensor, vertices: Tensor) -> Tensor:
    """Sum the Huber loss of the cosines at some vertices."""
    return _huber_sum(_cosines_at(new, vertices) - _cosines_at(old, vertices))


def _cosines_at(points: Tensor, vertices: Tensor) -> Tensor:
    """Return the cosines of the angles (V, B, B) that points (B, D) span at some of them."""
    differences = points - points[vertices, None]
    lengths = root(differences.square().sum(dim=2, keepdim=True))
    near = lengths < COINCIDING
    directions = (differences / lengths.masked_fill(near, 1.0)).masked_fill(near, 0.0)
    return directions @ directions.transpose(1, 2)


def _huber_sum(differences: Tensor) -> Tensor:
    return F.smooth_l1_loss(differences, torch.zeros_like(differences), reduction="sum")


def nearest_of_other_classes(points: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> Tensor:
    """Find for every row the nearest key of another class: int64 (B,), -1 where all keys are of its own.

    Args:
        points: Rows (B, D).
        labels: Class of every row, int64 (B,).
        keys: Rows (G, D).
        key_labels: Class of every key, int64 (G,).

    >>> nearest_of_other_classes(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), torch.tensor([0, 0])).tolist()
    [-1, 1]
    """
    if not len(keys):
        return torch.full_like(labels, -1)
    distances = all_distances(points.detach(), keys).masked_fill(labels[:, None] == key_labels, torch.inf)
    nearest = distances.min(dim=1)
    return nearest.indices.masked_fill(torch.isinf(nearest.values), -1)


def frozen_triplet(
    points: Tensor, positives: Tensor, negatives: Tensor, valid: Tensor, *, margin: float, squared: bool = False
) -> Tensor:
    """Average max(0, d(z_i, p_i) − d(z_i, n_i) + margin) over the valid rows.

    Args:
        points: z (B, D).
        positives: p (B, D), constant.
        negatives: n (B, D), constant.
        valid: Rows that have both, bool (B,); the others may hold anything finite.
        margin: At least 0, in units of d.
        squared: Whether d is the squared Euclidean distance, or the distance with 1e-6 added to every component of the
            difference, as torch's `TripletMarginLoss` has it.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no row is valid.

    >>> z = torch.tensor([[1.0, 0.0]])
    >>> valid = torch.tensor([True])
    >>> frozen_triplet(z, torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), valid, margin=1.5, squared=True).item()
    0.0
    >>> round(frozen_triplet(z, torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), valid, margin=1.5).item(), 4)
    0.5
    """
    near, far = (_triplet_distance(points, others, squared) for others in (positives, negatives))
    return selected_mean(F.relu(near - far + margin), valid)


def _triplet_distance(x: Tensor, y: Tensor, squared: bool) -> Tensor:
    """Return the distance of paired rows (B,), in either of the two forms of `frozen_triplet`."""
    return (x - y).square().sum(dim=1) if squared else root((x - y + OFFSET).square().sum(dim=1))
