"""Mixing old embeddings into the batch that the new classifier learns from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.denoising import credible_rows
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step, View
from limpet.methods.predecessor import labelled_features, require_old
from limpet.support.ranges import Share


class MixBCT(CompatibilityMethod):
    r"""Feature mixing (Towards Self-Adapting Backward-Compatible Training, arXiv:2308.06948, Algorithm 1).

    A share of each batch's new embeddings is replaced by the old model's embeddings of the same items; the only loss is
    a classification loss on the mixed batch. Replaced rows train the classifier, not the encoder. On the Lorentz space,
    the features are tangent vectors, whose lengths matter: old ones are mixed in unchanged.

    New embeddings are aligned with old ones only if the classifier learns the old ones before the network is trained. A
    randomly initialised head over a frozen model learns too fast and is hardly aligned, unless its classifier starts
    from one trained only on old embeddings (ratio 1), by ``start`` of `train_release`
    (`benchmarks/results/regimes.md`).

    Loss:
        L = L_\text{task}(\tilde x, y), \quad |M| = \lfloor \alpha B \rfloor
        \tilde x_i = v_i \text{ for } i \in M, \quad \tilde x_i = x_i \text{ otherwise}

    Args:
        ratio: Share of the batch to replace (the paper's alpha), relative to the batch, not to the credible rows.
        denoise: Share of every class kept as credible (the paper's T); 1 disables denoising.
        old_scale: "matched" scales old unit vectors to the mean length of the kept new embeddings, if the head reads
            lengths (the paper's heads do not); "raw" uses the old embeddings unchanged, as in Algorithm 1, and as in
            any space in which lengths matter.

    Paper settings:
        ratio: 0.3
        denoise: 0.9
        old_scale: raw (Algorithm 1)

    Departures:
        If a batch has fewer credible rows than requested, all of them are replaced (the released code stops instead).
    """

    spaces = EVERY_SPACE
    balance = "ratio"
    without_classes: ClassVar[Mapping[str, Any]] = {"denoise": 1.0}
    without_draws: ClassVar[Mapping[str, Any]] = {"ratio": 1.0}

    credible: Tensor

    def __init__(
        self,
        ratio: Share = 0.3,
        denoise: Annotated[float, Gt(0), Le(1)] = 0.9,
        old_scale: Literal["matched", "raw"] = "matched",
    ) -> None:
        super().__init__()
        self.ratio, self.denoise, self.old_scale = ratio, denoise, old_scale

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier that learns from mixed rows, and the old rows to mix in."""
        return frozenset({"head", "old", "old_embeddings", "index"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Mark the credible old embeddings once, over the whole new training set."""
        features, labels, classes = labelled_features(require_old(old, "mixbct").embeddings)
        self.register_buffer("credible", credible_rows(features, labels, classes, self.denoise))

    def choose(self, step: Step) -> Tensor:
        """Draw int(ratio·B) of the batch's credible rows without replacement: bool (B,)."""
        size = len(step.labels)
        draws = torch.rand(size, generator=step.generator).to(step.labels.device)
        credible = self.credible[step.index]
        rows = draws.masked_fill(~credible, -1.0).topk(int(self.ratio * size)).indices
        return torch.zeros_like(credible).scatter(0, rows, credible[rows])

    def mix(self, step: Step, chosen: Tensor) -> Tensor:
        """Return the features (B, D) with the chosen rows replaced by old ones."""
        new, old = step.new.features, step.predecessor.features
        if self.old_scale == "matched" and not step.new.space.lengths_count:
            old = normalise(old)
            if not step.head.normalised:
                kept = (~chosen | chosen.all()).to(new.dtype)  # all rows where none is kept
                old = old * (new.detach().norm(dim=1) * kept).sum() / kept.sum().clamp_min(1)
        return torch.where(chosen[:, None], old, new)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss on the mixed batch; there is no other term."""
        mixed = self.mix(step, self.choose(step))
        return {"task": step.head.loss(View.of(mixed, step.new.space), step.labels)}
