"""Free dimensions behind a change of basis: what the task learns, and what only the old model needs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from limpet.errors import refuse
from limpet.geometry import Space
from limpet.losses.alignment import distance_alignment
from limpet.losses.prototypes import point_contrast
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step, View
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import NonNegative, Positive, PositiveInt


class FreeDimensions(CompatibilityMethod):
    r"""Free dimensions behind a learnt basis, after BT² (Zhou et al., ICCV 2023, arXiv:2211.03989).

    The new model has D dimensions, the old one d < D. An orthonormal basis of the D dimensions is learnt with the
    model. The task reads only the first vectors of that basis; the other directions are free for information that the
    old model needs and the new task does not. The first d dimensions of the embedding itself are aligned with the old
    embeddings. Old galleries are padded with zeros, so only these dimensions of a query are compared with them, by
    direction. New embeddings are compared in all dimensions; no basis changes a cosine.

    Loss:
        L = L_\text{task}(Q x) + \lambda [ \frac{1}{B} \sum_i \lVert b_i - v_i \rVert + \lambda_p C ]
        C = - \frac{1}{B} \sum_i \log \frac{\exp(b_i \cdot p_{y_i} / \tau)}{\sum_c \exp(b_i \cdot p_c / \tau)}
        b_i = n(x_{i, 1..d})

    Args:
        weight: Factor of both alignment terms of the block: the mean distance to the old unit embedding of the same
            item, and the contrast.
        prototype_weight: Weight, relative to that distance, of a contrast of the block with the class means of the old
            embeddings, which replaces the old classifier's influence; 0 for none.
        temperature: Divisor of the cosines of that contrast.
        task_dim: Number of dimensions that the task reads, at most D. Default: that of the old model.

    Departures:
        This is not BT² itself. BT² also matches the task's part of the embedding with an independently trained new
        model, normalises two projections of the backbone, weights three terms by 1, 10 and 5, and stores their
        concatenation behind two chained basis changes. Here one of four terms is missing, the network outputs the
        stored vector directly, and a single basis change is applied for the task. At the end of training, the
        classifier is rotated to the basis of the embeddings.
    """

    space_reason = "its block ends where zeros begin, and padding knows directions only"
    widens = True

    prototypes: Tensor
    block: Space
    turn: nn.Parameter | None

    def __init__(
        self,
        weight: NonNegative = 1.0,
        prototype_weight: NonNegative = 1.0,
        temperature: Positive = 0.07,
        task_dim: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        refuse(
            weight < 0 or prototype_weight < 0 or temperature <= 0 or (task_dim is not None and task_dim < 1),
            f"free_dimensions was given weight={weight}, prototype_weight={prototype_weight}, "
            f"temperature={temperature} and task_dim={task_dim}",
            "weights of at least 0, a temperature above 0, and a task_dim of at least 1",
        )
        self.weight, self.prototype_weight, self.temperature = weight, prototype_weight, temperature
        self.task_dim = task_dim

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and the old embeddings of the training set."""
        return frozenset({"old", "old_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old points by class, without the zeros, and begin with the basis of the axes."""
        old = require_old(old, "free_dimensions")
        self.block = old.own_space or space
        prototypes, _ = class_prototypes(old.embeddings, space)
        self.register_buffer("prototypes", prototypes[:, : self.block.dim])
        read = self.block.dim if self.task_dim is None else self.task_dim
        refuse(read > space.dim, f"free_dimensions was given task_dim={read} for embeddings of {space.dim} dimensions",
               f"at most {space.dim}")  # fmt: skip
        free = space.dim - read
        self.register_parameter("turn", nn.Parameter(torch.zeros(read, free)) if free else None)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss in its part of the basis, the weighted alignment and the weighted contrast."""
        block, space = step.new.first(self.block), self.block
        old = step.predecessor.first(space)
        alignment = distance_alignment(space.paired_distance(block.points, old.points))
        terms = {"task": self._task(step), "alignment": self.weight * alignment}
        if self.prototype_weight > 0:
            prototypes = self.prototypes.to(block.points.dtype)
            contrast = point_contrast(space, block.points, step.labels, prototypes, self.temperature)
            terms["contrast"] = self.weight * self.prototype_weight * contrast
        return terms

    def on_training_end(self, head: Head) -> None:
        """Leave out of every row of the classifier what the task did not read: scores of embeddings are then those."""
        if self.turn is not None:
            with torch.no_grad():
                head.weight.copy_(self.seen(head.weight))

    def seen(self, rows: Tensor) -> Tensor:
        """Return the part of rows (N, D) that the task reads, as rows of the same basis (N, D)."""
        if self.turn is None:
            return rows
        vectors = orthonormal(self.turn.to(rows.dtype))
        return (rows @ vectors.T) @ vectors

    def _task(self, step: Step) -> Tensor:
        seen = step.new if self.turn is None else View.of(self.seen(step.new.features), step.new.space)
        return step.head.loss(seen, step.labels)


def orthonormal(turn: Tensor) -> Tensor:
    """Return the first n vectors (n, D) of an orthonormal basis of D dimensions, by Cayley's transform.

    That is (I + A)⁻¹(I − A), orthogonal for every A = −Aᵀ. A classifier that is trained cannot tell one basis of the
    span of these vectors from another, so A holds only what moves the span, and torch's own parametrisation, which
    moves the rest as well and cannot be pickled, has no use here.

    Args:
        turn: What of A is not 0, its upper right corner (n, D − n); 0 gives the first n axes.

    >>> orthonormal(torch.tensor([[1.0]])).round(decimals=3).tolist()  # a right angle
    [[0.0, -1.0]]
    """
    kept, free = turn.shape
    corner = nn.functional.pad(turn, (kept, 0, 0, free))
    skew, axes = corner - corner.T, torch.eye(kept + free, dtype=turn.dtype, device=turn.device)
    found: Tensor = torch.linalg.solve(axes + skew, axes - skew)[:kept]
    return found
