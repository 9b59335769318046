"""Elastic weight consolidation: weights that mattered to earlier sessions are held near what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from limpet.geometry import Hypersphere, Space
from limpet.losses.importance import Tensors, quadratic_penalty
from limpet.losses.influence import mean_cross_entropy
from limpet.methods.base import Batch, CompatibilityMethod, Head, OldModel, Read, Step, View
from limpet.methods.weight_records import (
    WeightRecords,
    evaluated,
    group_of,
    grouped,
    refuse_other_weights,
    trained_weights,
)
from limpet.support.ranges import NonNegative


class EWC(CompatibilityMethod):
    r"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017, arXiv:1612.00796, Eq. 3).

    At the end of a session, the Fisher information F measures how much each weight of the encoder matters for
    classifying the session's images; later changes of the weight are penalised in proportion. The classifier, which
    grows, is not penalised. F is the empirical Fisher information, of the true labels, with the encoder in evaluation
    mode; the probabilities come from the classifier's scores, without any margin.

    With a penalty for each session, as in the paper, only one importance and one anchor are stored per weight: Σ_k F_k
    (θ − θ_k)² is (Σ_k F_k)(θ − θ̄)² with the mean anchor θ̄ = Σ_k F_k θ_k / Σ_k F_k, plus a constant, which is omitted.

    Loss:
        L = L_\text{task} + \lambda \sum_k F_k (\theta_k - \theta_k^*)^2

    Args:
        weight: Factor of the penalty. No paper states one for images: choose it on validation data. The larger its
            product with the learning rate, the closer training is to divergence. If the penalty is too steep for the
            learning rate, training diverges.
        fisher: "items": the mean of the squared gradients of single items, which is F; "batches": the mean of the
            squared gradients of the loader's batches, in dataset order, which is smaller by about the batch size; the
            public benchmark of Rainbow memory uses shuffled batches (and a weight of 100).
        anchors: "each": every session's penalty has its own anchor; "latest": importances are summed as well, but the
            anchor is the weights at the end of the last session.

    Paper settings:
        weight: none stated for images

    Departures:
        The weight is the paper's λ/2.
    """

    spaces = frozenset({"hypersphere"})
    space_reason = "the importance of its weights is measured by what a classifier makes of directions"
    needs_old = False
    sessions_only = True
    looks_back = True

    def __init__(
        self,
        weight: NonNegative = 0.01,
        fisher: Literal["items", "batches"] = "items",
        anchors: Literal["each", "latest"] = "each",
    ) -> None:
        super().__init__()
        self.weight, self.squares, self.merge = weight, FISHERS[fisher], ANCHORS[anchors]
        self._keep({}, {})

    def _keep(self, importance: Tensors, anchors: Tensors) -> None:
        """Keep what stays as it is during a session; it is handed over anew to a run that is resumed."""
        self.importance = WeightRecords(importance, persistent=False)
        self.anchors = WeightRecords(anchors, persistent=False)

    def carry_over(self, found: Mapping[str, Tensor]) -> None:
        """Take importances and anchors of all sessions before."""
        self._keep(group_of(found, "importance"), group_of(found, "anchors"))

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier, whose gradients say which weights matter."""
        return frozenset({"head"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Refuse a network whose weights are not those that importances were handed over of."""
        refuse_other_weights(self.importance.tensors(), model, "ewc")

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss."""
        return {"task": step.head.loss(step.new, step.labels)}

    def penalty(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the weighted penalty; there is none before anything was learned."""
        importance = self.importance.tensors()
        if not importance:
            return {}
        cost = quadratic_penalty(trained_weights(model), self.anchors.tensors(), importance)
        return {"penalty": self.weight * cost}

    def on_session_end(self, model: nn.Module, head: Head, loader: Iterable[Batch]) -> None:
        """Measure how much the weights matter to this session, and add it to what earlier ones left."""
        weights = {name: weight.detach() for name, weight in trained_weights(model).items()}
        plain = sdpa_kernel(SDPBackend.MATH)  # the faster kernels of attention have no gradients of single items
        with evaluated(model, head), torch.no_grad(), plain:  # no graph through head or buffers
            fisher = mean_squares(partial(self.squares, model, head, weights), loader, weights)
        importance, anchors = self.importance.tensors(), self.anchors.tensors()
        if importance:
            self._keep(*self.merge(importance, anchors, fisher, weights))
        else:
            self._keep(fisher, weights)

    def carried(self) -> dict[str, Tensor]:
        """Return the importance and the anchor of every weight."""
        return grouped(importance=self.importance.tensors(), anchors=self.anchors.tensors())


def item_loss(model: nn.Module, head: Head, weights: Tensors, item: Tensor, label: Tensor) -> Tensor:
    """Return the cross-entropy of one item (channels, height, width) of class () under other weights, a scalar."""
    return batch_loss(model, head, weights, item[None], label[None])


def batch_loss(model: nn.Module, head: Head, weights: Tensors, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of a batch under other weights, a scalar."""
    features = torch.func.functional_call(model, dict(weights), (inputs,))
    return mean_cross_entropy(head.logits(View.of(features, Hypersphere(features.shape[1]))), labels)


def squares_of_items(model: nn.Module, head: Head, weights: Tensors, inputs: Tensor, labels: Tensor) -> Tensors:
    """Sum the squared gradients of the loss of single items."""
    return squared_gradients(partial(item_loss, model, head), weights, inputs, labels)


def squares_of_batch(model: nn.Module, head: Head, weights: Tensors, inputs: Tensor, labels: Tensor) -> Tensors:
    """Square the gradient of the mean loss of a batch, and count it once for every item."""
    found = squared_gradients(partial(batch_loss, model, head), weights, inputs[None], labels[None])
    return {name: len(labels) * squares for name, squares in found.items()}


def mean_squares(
    squares: Callable[[Tensor, Tensor], Tensors], loader: Iterable[Batch], weights: Tensors
) -> dict[str, Tensor]:
    """Return the mean over all items of what is summed over those of a batch; 0 for no items.

    Args:
        squares: From inputs and labels of a batch, where the weights are, to sums of their shapes.
        loader: Yields batches.
        weights: Whose sums these are.
    """
    sums, count = {name: torch.zeros_like(weight) for name, weight in weights.items()}, 0
    for batch in loader if weights else ():
        device = next(iter(weights.values())).device
        found = squares(batch.inputs.to(device), batch.labels.to(device))
        sums, count = {name: total + found[name] for name, total in sums.items()}, count + len(batch.labels)
    return {name: total / max(count, 1) for name, total in sums.items()}


def merged_anchors(
    importance: Tensors, anchors: Tensors, fisher: Tensors, weights: Tensors
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the one importance and anchor whose penalty is, up to a constant, that of both pairs together.

    F (θ − a)² + f (θ − w)² = (F + f)(θ − m)² + constant, where m = (F a + f w) / (F + f); w where both are 0.

    Args:
        importance: F of the sessions before, at least 0.
        anchors: a of the sessions before.
        fisher: f of the session that just ended, at least 0.
        weights: w, where it ended.

    >>> pair = merged_anchors({"a": torch.tensor(1.0)}, {"a": torch.tensor(0.0)}, *[{"a": torch.tensor(3.0)}] * 2)
    >>> [values["a"].item() for values in pair]  # 1 + 3, and (1 · 0 + 3 · 3) / 4
    [4.0, 2.25]
    """
    total, _ = latest_anchors(importance, anchors, fisher, weights)
    shares = {name: torch.where(both > 0, fisher[name] / both, 1.0) for name, both in total.items()}
    return total, {name: torch.lerp(anchors[name].to(share), weights[name], share) for name, share in shares.items()}


def latest_anchors(
    importance: Tensors, anchors: Tensors, fisher: Tensors, weights: Tensors
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the sum of the importances, and the last weights as the anchors; arguments as in `merged_anchors`."""
    return {name: importance[name].to(found) + found for name, found in fisher.items()}, dict(weights)


FISHERS: dict[str, Callable[[nn.Module, Head, Tensors, Tensor, Tensor], Tensors]] = {
    "items": squares_of_items,
    "batches": squares_of_batch,
}
ANCHORS: dict[str, Callable[..., tuple[dict[str, Tensor], dict[str, Tensor]]]] = {
    "each": merged_anchors,
    "latest": latest_anchors,
}


def squared_gradients(
    loss: Callable[..., Tensor], weights: Tensors, *items: Tensor, block: int = 16
) -> dict[str, Tensor]:
    """Sum the squared gradient of the loss over items; divided by their number, it is the diagonal Fisher information.

    With ``loss`` the cross-entropy of one item at its true label, this is the empirical Fisher of EWC. A model must be
    in evaluation mode, so that an item does not depend on the others. Where an "item" is a whole batch and ``loss``
    its mean, it is the form of rainbow-memory's public benchmark, smaller by about the size of the batch.

    Args:
        loss: From weights by name and one of each of the items to a scalar, without side effects.
        weights: Where the gradient is taken.
        items: Tensors of equal length N, such as inputs (N, ...) and labels (N,).
        block: How many gradients stand in memory at once, each of the size of all the weights.

    Returns:
        Sums of the shapes of the weights, at least 0, detached; 0 for no items.

    >>> fisher = squared_gradients(lambda w, x: w["a"] * x, {"a": torch.tensor(5.0)}, torch.tensor([1.0, 3.0]))
    >>> fisher["a"].item()  # 1² + 3²
    10.0
    """
    constants = {name: weight.detach() for name, weight in weights.items()}
    sums = {name: torch.zeros_like(weight) for name, weight in constants.items()}
    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *[0] * len(items)))
    for start in range(0, len(items[0]), block):
        found = gradient(constants, *[rows[start : start + block] for rows in items])
        sums = {name: total + found[name].square().sum(dim=0) for name, total in sums.items()}
    return sums
