"""Consensus with the old neighbourhood: a queue of old embeddings and logits teaches the new ones."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.errors import ConfigError
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.geometry.segments import segment_mean
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import BLOCK, by_option, frozen, labelled_features, require_old, rows_by_name
from limpet.support.ranges import NonNegative, Positive, PositiveInt

DENSE_CLASSES, KEPT_BEYOND = 4096, 64


class NCCL(CompatibilityMethod):
    r"""Neighborhood consensus contrastive learning (Wu et al., AAAI 2022, arXiv:2108.03372).

    A queue keeps the old embeddings of the latest items. A new embedding is attracted to every entry of its class, with
    a larger weight if that entry is closer to the item's own old embedding. A second term does the same for classifier
    scores, with the same weights. In the equations, A are the credible items of the batch, and n_i is the number of
    entries of item i's class.

    Credibility compares a distance with the spread of distances within a class, so it depends on the length of the
    embeddings: the longer they are, the fewer items pass. For models trained here on Omniglot, all items pass with unit
    vectors, the default, and none with raw features; check the share on your own data before relying on either.

    Loss:
        L = L_\text{task} + \lambda [ C(z, q) + \lambda_s C(s, s^q) ]
        C(a, b) = - \frac{1}{|A|} \sum_{i \in A} \frac{1}{n_i} \sum_{j: y_j = y_i} \frac{1 + v_i \cdot q_j}{2}
            \log \frac{\exp(a_i \cdot b_j / \tau)}{\sum_k \exp(a_i \cdot b_k / \tau)}

    Args:
        weight: Factor of both terms.
        logit_weight: Factor of the term of the scores, multiplied by `weight`; 0 computes and keeps no scores.
        scores: "unit", scores of the new classifier for both embeddings, normalised to unit length; or "printed", raw
            scores of the new classifier and of the old one, over the classes that both know by name. The latter needs
            the old classifier.
        temperature: Divisor of the similarities of both terms.
        queue_size: Number of latest items to keep.
        credible_only: Exclude old embeddings that fit no class clearly: entropy above ln(C)/2. It costs N × C distances
            whenever a run starts or is resumed.
        credible_on: Vectors for these distances: "points", unit vectors, or "features", raw embeddings.
        kept_logits: Number of largest scores to keep per item. None keeps all up to 4,096 classes, and 64 beyond; with
            all scores the term is exact, otherwise missing ones are treated as 0.

    Paper settings:
        weight: 1 (MixBCT's configurations)
        logit_weight: 0.01 (MixBCT's configurations)
        scores: printed
        temperature: 1 (MixBCT's configurations)
        queue_size: 2048; 8192 in MixBCT's comparison

    Departures:
        In the paper, the second term uses inner products of the new classifier's raw scores with the old classifier's.
        Even with the weight 0.01, its gradient is several times that of the first term, or a thousand times with
        ArcFace's scale of 64, and the consensus is lost. The public code passes no gradient through this term, clips it
        to ±1 in half precision, and scores the old embeddings with the new classifier. The default does only the last,
        and normalises both scores to unit length: the two terms are then comparable, 0.01 is effective, and no old
        classifier is needed; `scores="printed"` is the paper's form. Empty slots are also excluded from the softmax
        (the public code keeps them as zero rows), and old embeddings that are not credible are neither anchors nor
        positives nor negatives.
    """

    queue_points: Tensor
    queue_labels: Tensor
    queue_logits: Tensor
    queue_columns: Tensor
    position: Tensor
    credible: Tensor
    old_columns: Tensor
    new_columns: Tensor
    classifier: Head

    def __init__(
        self,
        weight: NonNegative = 1.0,
        logit_weight: NonNegative = 0.01,
        scores: Literal["unit", "printed"] = "unit",
        temperature: Positive = 1.0,
        queue_size: PositiveInt = 2048,
        credible_only: bool = True,
        credible_on: Literal["points", "features"] = "points",
        kept_logits: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.weight, self.logit_weight, self.temperature = weight, logit_weight, temperature
        self.scores = scores
        self.queue_size, self.credible_only, self.credible_on = queue_size, credible_only, credible_on
        self.kept_logits = kept_logits
        self.dense = self.all_known = True

    @property
    def reads(self) -> frozenset[Read]:
        """The old view; scores, unless they are left out; and which rows are credible, unless all are."""
        needed: set[Read] = {"old"}
        needed |= {"head"} if self.logit_weight else set()
        return frozenset(needed | ({"old_embeddings", "index"} if self.credible_only else set()))

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Empty the queue, freeze the old classifier if it is asked, and mark the credible old embeddings."""
        old = require_old(old, "nccl")
        if self.logit_weight:
            if self.scores == "printed":
                self._make_room(*self._match_classes(old))
            else:
                self._make_room(torch.arange(len(head.weight)), len(head.weight))
        if self.credible_only:
            self.register_buffer("credible", credible_items(old, space if self.credible_on == "points" else None))
        self.register_buffer("queue_points", torch.zeros(self.queue_size, space.dim))
        self.register_buffer("queue_labels", torch.full((self.queue_size,), -1))
        self.register_buffer("position", torch.tensor(0))

    def _match_classes(self, old: OldModel) -> tuple[Tensor, int]:
        """Freeze the old classifier; return the columns (k,) of the new one whose classes it knows, and of how many."""
        rows = rows_by_name(old.classes, old.embeddings.class_names or ())
        shared = int((rows >= 0).sum())
        if old.head is None or not shared:
            missing = "was discarded" if old.head is None else "shares no class with the new data"
            raise ConfigError(
                f"nccl compares scores with those of the old classifier, which {missing}.",
                expected="an old release with its classifier, and classes that it knows",
                to_do=f"let the new classifier score both, the default: {by_option('nccl', 'scores', 'unit')}.",
            )
        self.classifier = frozen(old.head)
        self.register_buffer("old_columns", rows[rows >= 0])
        return (rows >= 0).nonzero()[:, 0], len(rows)

    def _make_room(self, columns: Tensor, classes: int) -> None:
        """Make room for the scores of these columns (k,) of the new classifier's classes, or for the largest."""
        shared = len(columns)
        self.register_buffer("new_columns", columns)
        kept = min(self.kept_logits or (shared if shared <= DENSE_CLASSES else KEPT_BEYOND), shared)
        self.dense, self.all_known = kept == shared, shared == classes  # all columns are taken without a copy
        self.register_buffer("queue_logits", torch.zeros(self.queue_size, kept))
        if not self.dense:
            self.register_buffer("queue_columns", torch.zeros(self.queue_size, kept, dtype=torch.int64))

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Put the batch into the queue, then return the task loss and the weighted terms.

        A term is 0 where no row of the batch is credible.
        """
        labels = torch.where(self.credible[step.index], step.labels, -1) if self.credible_only else step.labels
        self.enqueue(step, labels)
        queue, filled = self.queue_points.to(step.new.points.dtype), self.queue_labels >= 0
        weights = consensus_weights(step.predecessor.points, labels, queue, self.queue_labels)
        scores = step.new.points @ queue.T / self.temperature
        terms = {
            "task": step.head.loss(step.new, step.labels),
            "consensus": self.weight * consensus_contrast(scores, weights, filled),
        }
        if self.logit_weight:
            logits = step.head.logits(step.new)
            logits = normalise(logits) if self.scores == "unit" else logits
            scores = self.logit_similarity(logits) / self.temperature
            terms["logit_consensus"] = self.weight * self.logit_weight * consensus_contrast(scores, weights, filled)
        return terms

    def enqueue(self, step: Step, labels: Tensor) -> None:
        """Overwrite the oldest entries with the old view of this batch.

        Args:
            step: The batch; of one larger than the queue the last rows are kept.
            labels: Class of every item (B,), -1 for one that must not count.
        """
        entries = {"queue_points": step.predecessor.points, "queue_labels": labels}
        if self.logit_weight:
            entries |= self._old_logits(step)
        last = {name: rows.detach()[-self.queue_size :] for name, rows in entries.items()}
        count = len(last["queue_labels"])
        slots = (self.position + torch.arange(count, device=labels.device)) % self.queue_size
        for name, rows in last.items():
            buffer: Tensor = getattr(self, name)
            buffer.index_copy_(0, slots, rows.to(buffer.dtype))
        self.position.add_(count).remainder_(self.queue_size)

    def _old_logits(self, step: Step) -> dict[str, Tensor]:
        if self.scores == "unit":
            with torch.no_grad():
                logits = normalise(step.head.logits(step.predecessor))
        else:
            logits = self.classifier.logits(step.predecessor).index_select(1, self.old_columns)
        if self.dense:
            return {"queue_logits": logits}
        values, columns = logits.topk(self.queue_logits.shape[1], dim=1)
        return {"queue_logits": values, "queue_columns": self.new_columns[columns]}

    def logit_similarity(self, logits: Tensor) -> Tensor:
        """Return inner products (B, Q) of new scores (B, C) with those in the queue, over the classes of both."""
        queue = self.queue_logits.to(logits.dtype)
        if self.dense:
            known = logits if self.all_known else logits.index_select(1, self.new_columns)
            return known @ queue.T
        return kept_similarity(logits, queue, self.queue_columns)


def credible_items(old: OldModel, space: Space | None) -> Tensor:
    """Return which old embeddings of the new training set fit a class clearly, bool (N,): as points, or as they are.

    Raises:
        DataError: The embeddings carry no classes.
        ConfigError: None of them does, so that nothing would be learnt from them.
    """
    features, labels, classes = labelled_features(old.embeddings)
    if space is not None:
        for rows in torch.split(features, BLOCK):  # in place: a copy of millions of rows would not fit beside them
            rows.copy_(space.project(rows))
    credible = low_entropy_rows(features, labels, classes)
    if not credible.any():
        raise ConfigError(
            "nccl found no credible old embedding: the old model's classes of the new data lie too close together.",
            expected="at least one old embedding that fits a class clearly",
            to_do=f"keep them all: {by_option('nccl', 'credible_only', False)}; raw features seldom pass, see "
            "credible_on.",
        )
    return credible


ELEMENTS = 1 << 26  # of one block of distances: 256 MB in float32
SMALLEST_VARIANCE = 1e-6


def consensus_weights(old: Tensor, labels: Tensor, queue: Tensor, queue_labels: Tensor) -> Tensor:
    """Return how much every queue entry counts for every anchor: (1 + <o_i, q_j>)/2 where the classes agree.

    Divided by the anchor's number of such entries and by the number of anchors that have any, so that
    `consensus_contrast` is the mean over anchors.

    Args:
        old: Unit rows o, the old embeddings of the anchors (B, D).
        labels: Class of every anchor, int64 (B,); -1 for a row that is no anchor.
        queue: Unit rows q (Q, D).
        queue_labels: Class of every queue entry, int64 (Q,); -1 for an empty slot.

    Returns:
        (B, Q), at least 0, with a sum of at most 1.

    >>> x = torch.eye(2)
    >>> consensus_weights(x[:1], torch.tensor([0]), x, torch.tensor([0, 0])).tolist()  # 1 and 1/2, over 2 entries
    [[0.5, 0.25]]
    """
    positive = (labels[:, None] == queue_labels) & (queue_labels >= 0)
    entries = positive.sum(dim=1, keepdim=True)
    anchors = (entries > 0).sum().clamp_min(1)
    return (1 + old @ queue.T) / 2 * positive / (entries.clamp_min(1) * anchors)


def consensus_contrast(scores: Tensor, weights: Tensor, filled: Tensor) -> Tensor:
    """Return −Σ_ij w_ij log softmax_j(s_ij), the softmax over the filled slots of the queue.

    Departure: the public code leaves the zero rows of empty slots in the denominator until the queue is full.

    Args:
        scores: Similarities s of anchors to queue entries, divided by the temperature (B, Q).
        weights: See `consensus_weights` (B, Q); 0 for empty slots.
        filled: Which slots hold an entry, bool (Q,).

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no weight is left.

    >>> weights, filled = torch.tensor([[0.5, 0.25, 0.0]]), torch.tensor([True, True, False])
    >>> round(consensus_contrast(torch.zeros(1, 3), weights, filled).item(), 4)  # 0.75 ln 2
    0.5199
    """
    hidden = ~filled & filled.any()  # an empty queue hides nothing, so that there is a softmax
    normaliser = torch.logsumexp(scores.masked_fill(hidden, -float("inf")), dim=1, keepdim=True)
    return (weights * (normaliser - scores)).sum()


def kept_similarity(logits: Tensor, values: Tensor, columns: Tensor) -> Tensor:
    """Return inner products of logits with rows of which only some columns were kept, without a dense copy of these.

    Args:
        logits: Dense rows (B, C).
        values: What was kept of every other row (Q, k).
        columns: Where it stood, int64 (Q, k) in [0, C).

    Returns:
        (B, Q); the columns that were not kept count as 0. The gradient reaches the logits alone.

    >>> kept_similarity(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[10.0, 100.0]]), torch.tensor([[2, 0]])).item()
    140.0
    """
    # a bag per queue row: its columns, weighed; no tensor of B · Q · k elements
    return F.embedding_bag(columns, logits.T.contiguous(), mode="sum", per_sample_weights=values).T


def class_spread(points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean of every class (C, D), as it is, and the population variance of its items' distances to it (C,).

    Departure: a class whose variance is below 1e-6, as it is in any class of fewer than 3 items (two are equally far
    from their mean), has no spread worth dividing by; it takes the mean variance of the others, or 1e-6 without any.

    Args:
        points: Rows (N, D).
        labels: Class of every row, int64 (N,).
        num_classes: C.

    >>> _, variances = class_spread(torch.tensor([[0.0], [0.0], [6.0]]), torch.zeros(3, dtype=torch.int64), 1)
    >>> round(variances.item(), 4)  # of 2, 2 and 4
    0.8889
    """
    centres, _ = segment_mean(points, labels, num_classes)
    size = max(1, ELEMENTS // max(points.shape[1], 1))
    pairs = zip(torch.split(points, size), torch.split(labels, size), strict=True)
    distances = torch.cat([(rows - centres[own]).norm(dim=1, keepdim=True) for rows, own in pairs])
    means, _ = segment_mean(distances, labels, num_classes)
    squared, _ = segment_mean((distances - means[labels]).square(), labels, num_classes)
    variances = squared[:, 0]
    measured = variances >= SMALLEST_VARIANCE
    others = (variances * measured).sum() / measured.sum().clamp_min(1)
    return centres, torch.where(measured, variances, others.clamp_min(SMALLEST_VARIANCE))


def assignment_entropy(points: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    """Return the entropy of p_k = softmax_k(−‖z − o_k‖ / var_k), over all classes, of every row.

    The paper's filter. The public script takes the softmax over the own class alone, so its entropy is always 0.

    Args:
        points: Rows z (N, D); taken in blocks, so that N × C distances never stand in memory at once.
        centres: Class means o (C, D).
        variances: Variance of every class's distances (C,), above 0.

    Returns:
        Nats (N,), in [0, ln C].

    >>> entropy = assignment_entropy(torch.zeros(1, 2), torch.eye(2), torch.ones(2))
    >>> round(entropy.item(), 4)  # ln 2
    0.6931
    """
    blocks = torch.split(points, max(1, ELEMENTS // max(centres.shape)))
    return torch.cat([_block_entropy(rows, centres, variances) for rows in blocks])


def _block_entropy(rows: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    scores = torch.cdist(rows, centres).div_(-variances)
    entropy: Tensor = torch.special.entr(torch.softmax(scores, dim=1)).sum(dim=1)
    return entropy


def entropy_limit(num_classes: int) -> float:
    """Return ln(C)/2, the largest entropy of a credible embedding in nats.

    >>> round(entropy_limit(5), 4)
    0.8047
    """
    return math.log(num_classes) / 2


def low_entropy_rows(points: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mark the rows that the classes' spread assigns clearly to some class: entropy of at most ln(C)/2.

    Args:
        points: Unit rows (N, D). Departure: the paper's are as the model gives them, of any length.
        labels: Class of every row, int64 (N,).
        num_classes: C; classes without a row have no centre and do not count.

    Returns:
        bool (N,). It costs N × C distances.
    """
    present = torch.bincount(labels, minlength=num_classes) > 0
    centres, variances = class_spread(points, labels, num_classes)
    entropy = assignment_entropy(points, centres[present], variances[present])
    return entropy <= entropy_limit(int(present.sum()))
