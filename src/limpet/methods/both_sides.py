"""Both sides of a search learnt together: a head over the new model, and a map of the old vectors to it; our own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from limpet.adapters.base import Adapter, Fitted
from limpet.adapters.moments import PairedVectors, best_penalty, fold_moments, ridge, total
from limpet.adapters.pairs import trusted_pairs
from limpet.adapters.residual_mlp import NAMES, ResidualMLP
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.trained_on import TrainedOn
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.alignment import similarity_alignment
from limpet.losses.contrast import each_its_own, high_order_contrast
from limpet.methods.base import Batch, CompatibilityMethod, Head, OldModel, Read, Step, View, task_of
from limpet.methods.predecessor import require_old
from limpet.support.ranges import NonNegative, Positive, PositiveInt, Share


class GalleryMap(nn.Module):
    """xW + b + GELU(xA + a)·C + c of unit rows x (B, S): what the adapter `residual_mlp` computes.

    Args:
        linear: W above b (S + 1, T), which stay as they are; C and c start as 0.
        hidden: Width of the layer between.
    """

    skip: Tensor
    skip_offset: Tensor

    def __init__(self, linear: Tensor, hidden: int) -> None:
        super().__init__()
        width, dim = len(linear) - 1, linear.shape[1]
        self.register_buffer("skip", linear[:-1].clone())
        self.register_buffer("skip_offset", linear[-1].clone())
        self.inner = nn.Parameter(torch.empty(width, hidden).uniform_(-1, 1) / math.sqrt(width))
        self.inner_offset = nn.Parameter(torch.zeros(hidden))
        self.outer, self.outer_offset = nn.Parameter(torch.zeros(hidden, dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the images (B, T), of any length."""
        moved = nn.functional.gelu(rows @ self.inner + self.inner_offset) @ self.outer + self.outer_offset
        return rows @ self.skip + self.skip_offset + moved


class BothSides(CompatibilityMethod):
    r"""Learn a head over the new model and a map of the old vectors together; pairs need no labels.

    The head h stays close to the frozen new model; the map g, the ridge map plus a small network, maps the vectors of
    an older model there, so that no item is re-embedded. Three terms:

    - the task, of both views: one classifier learns from h(x) and from g(v), if a class is known;
    - a contrast: h(x_i) must retrieve g(v_i) among the g(v_j) of the batch, excluding items of its own class;
    - keep: for items without a class, the similarities h·h and g·g follow those of the frozen model, see `keep`.

    Mismatched pairs break the contrast. Pairs that a held-out ridge map does not retrieve are excluded from all terms
    with g (`trusted_pairs`).

    In every step, both maps see only a random part of every vector (dropout, Srivastava et al., JMLR 2014). Without
    dropout, they overfit to few items of many dimensions, see `benchmarks/both_sides_dropout.py`.

    Use it for heads over frozen models. Without vectors of an older model, those of the predecessor are mapped. The
    nearest published methods are FastFill (Jaeckle et al., ICLR 2023, arXiv:2303.04766), which trains such a map with
    the new model's classifier but does not change the new model, and BiCT (Su et al., IJCAI 2023), which trains the new
    model and a forward map of the old vectors with losses of its own. This combination of terms is ours;
    `benchmarks/partial_labels.py` measures it.

    Loss:
        L = L_\text{task}(h) + L_\text{task}(g) + \lambda C + \kappa [ K(h) + K(g) ]
        C = - \frac{1}{B} \sum_i \log \frac{\exp(s h_i \cdot g_i)}
            {\exp(s h_i \cdot g_i) + \sum_{j: y_j \ne y_i} \exp(s h_i \cdot g_j)}
        K(a) = \frac{1}{|U|^2} \sum_{i, j \in U} (a_i \cdot a_j - x_i \cdot x_j)^2

    Args:
        weight: Factor of the contrast.
        keep: Factor of the kept similarities.
        scale: Factor of the cosines of the contrast.
        hidden: Width of the hidden layer of g. Default: the dimension of the new embedding.
        doubt: Maximum probability that a pair is mismatched; pairs above are excluded, 1 excludes none.
        dropout: Share of the values of a vector dropped in a step, drawn for each map independently; 0 drops none.
    """

    unlabelled = True
    stays = True
    maps_gallery = True
    without_draws: ClassVar[Mapping[str, Any]] = {"dropout": 0.0}
    balance = None  # it is for heads, which are chosen on items held out

    vectors: Tensor
    trusted: Tensor
    gallery_map: GalleryMap

    def __init__(
        self,
        weight: NonNegative = 1.0,
        keep: NonNegative = 30.0,
        scale: Positive = 6.0,
        hidden: PositiveInt | None = None,
        doubt: Share = 0.5,
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.25,
    ) -> None:
        super().__init__()
        self.weight, self.keep, self.scale, self.hidden, self.doubt = weight, keep, scale, hidden, doubt
        self.dropout = dropout

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and rows of the training set."""
        return frozenset({"old", "old_embeddings", "index"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Fit the ridge map that g starts as, and look which pairs belong together."""
        old = require_old(old, "both_sides")
        source = old.embeddings if old.gallery is None else old.gallery
        rows = np.arange(len(source))
        pairs = PairedVectors(source.vectors, rows, old.embeddings.vectors, rows)
        trusted = trusted_pairs(pairs, self.doubt)
        folds = fold_moments(pairs[np.flatnonzero(trusted)])
        linear = torch.from_numpy(ridge(total(folds), best_penalty(folds)).astype(np.float32))
        self.gallery_map = GalleryMap(linear, self.hidden or space.dim)
        unit = normalise(torch.from_numpy(np.array(source.vectors)))
        self.register_buffer("vectors", unit, persistent=False)  # a run that is resumed prepares them again
        self.register_buffer("trusted", torch.from_numpy(trusted), persistent=False)

    def change_inputs(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return vectors as the head sees them in this step; images and tokens, which no head reads, as they are."""
        vectors = batch.inputs.ndim == 2 and batch.inputs.is_floating_point()
        return self._seen(batch.inputs, generator) if vectors else batch.inputs

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task of both views, and the weighted contrast and similarities; each may be 0."""
        space, known, trusted = step.new.space, step.labels >= 0, self.trusted[step.index]
        mapped = View.of(self.gallery_map(self._seen(self.vectors[step.index], step.generator)), space)
        apart = each_its_own(step.labels)
        similarities = space.similarity(step.new.points[trusted], mapped.points[trusted], self.scale)
        return {
            "task": task_of(step, step.new, known),
            "gallery_task": task_of(step, mapped, known & trusted),
            "contrast": self.weight * high_order_contrast(similarities, apart[trusted], "infonce"),
            "keep": self.keep * (_kept(step, step.new, ~known) + _kept(step, mapped, ~known & trusted)),
        }

    def carried(self) -> dict[str, Tensor]:
        """Return the arrays of g; nothing before it was prepared."""
        return dict(self.gallery_map.state_dict()) if hasattr(self, "gallery_map") else {}

    def gallery_adapter(self, carried: Mapping[str, Tensor], old: EmbeddingSet, new: EmbeddingSet) -> Adapter:
        """Return g as the adapter `residual_mlp`; its other options than ``hidden`` say nothing of how it was made."""
        state = {name: carried[name].numpy().astype(np.float64) for name in NAMES}
        adapter = ResidualMLP("old_to_new", hidden=state["inner"].shape[1])
        items = TrainedOn.of_pairs(old, new)
        adapter.restore(Fitted(old.fingerprint, new.fingerprint, old.space, new.space, len(old), state, items))
        return adapter

    def _seen(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return rows (B, D) with their share of numbers set to 0, and the others longer by as much."""
        if self.dropout == 0 or not self.training:
            return rows
        shown = torch.rand(rows.shape, generator=generator).to(rows.device) >= self.dropout
        return rows * shown / (1 - self.dropout)


def _kept(step: Step, view: View, chosen: Tensor) -> Tensor:
    space, points, before = view.space, view.points[chosen], step.predecessor.points[chosen]
    return similarity_alignment(space.similarity(points, points), space.similarity(before, before))
