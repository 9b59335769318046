"""A small network beside a linear map; the one adapter that is trained, and the one file that needs torch, to fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.adapters.base import Adapter, State
from limpet.adapters.moments import Floats, PairedVectors, best_penalty, fold_moments, ridge, total
from limpet.adapters.pairs import Direction
from limpet.support.extras import needing
from limpet.support.ranges import Fraction, Positive, PositiveInt, Seed
from limpet.support.steps import Affine, Gelu, Steps, Sum

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("skip", "skip_offset", "inner", "inner_offset", "outer", "outer_offset")


class ResidualMLP(Adapter):
    """Drift-Adapter's residual network (arXiv:2509.23471): image = xW + b + GELU(xA + a)·C + c.

    The skip connection is a linear map, so dimensions may differ. The training is our own: W and b start as the `Ridge`
    map of the training pairs, C and c as 0, so the selected weights are never worse on the held-out pairs than the
    closed form. The loss is 1 − cosine of image and target, because ranking uses cosines.

    Images are computed with NumPy in float64: a fitted adapter needs no torch. Fitting runs on the CPU with its own
    random generators.

    Use it when you have many pairs, and linear maps underfit. Fitting requires torch.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        hidden: Width of the hidden layer.
        epochs: Maximum number of passes over the training pairs.
        patience: Number of passes without a better mean cosine on the held-out pairs before training stops.
        held_out: Share of the pairs held out for early stopping, between 0 and 1; at least one pair.
        learning_rate: Learning rate of Adam.
        batch_size: Pairs per step.
        seed: Random seed of the held-out pairs, the initial weights and the order of the pairs.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 8))
    >>> new = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]  # the old vectors, turned
    >>> found = ResidualMLP(epochs=5).fit_transform(new, old)
    >>> bool(((found * old).sum(axis=1) > 0.95 * np.linalg.norm(old, axis=1)).all())
    True
    """

    kind = "residual_mlp"
    turns = "no"
    quick: ClassVar[Mapping[str, Any]] = {"epochs": 6, "hidden": 16, "learning_rate": 0.01}
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {
        "hidden": ({}, 5),
        "epochs": ({}, 1),
        "patience": ({"epochs": 12, "patience": 12}, 1),
        "held_out": ({}, 0.3),
        "learning_rate": ({}, 0.02),
        "batch_size": ({}, 16),
        "seed": ({}, 1),
    }
    minimum_pairs = 20
    extra = "train"

    def __init__(
        self,
        direction: Direction = "new_to_old",
        *,
        hidden: PositiveInt = 256,
        epochs: PositiveInt = 50,
        patience: PositiveInt = 5,
        held_out: Fraction = 0.1,
        learning_rate: Positive = 1e-3,
        batch_size: PositiveInt = 256,
        seed: Seed = 0,
    ) -> None:
        super().__init__(direction)
        self.hidden, self.epochs, self.patience, self.batch_size = hidden, epochs, patience, batch_size
        self.held_out, self.learning_rate, self.seed = held_out, learning_rate, seed

    def solve(self, pairs: PairedVectors) -> State:
        """Train, and return the weights that were best on the held-out pairs."""
        with needing("Fitting the adapter 'residual_mlp'", "fit another adapter"):
            import torch  # noqa: F401
        order = np.random.default_rng(self.seed).permutation(len(pairs))
        held = min(max(1, round(self.held_out * len(pairs))), len(pairs) - 2)
        held_out, training = pairs[np.sort(order[:held])], pairs[np.sort(order[held:])]
        parameters = self._first_weights(training)
        best = self._train(parameters, _tensors_of(training), _tensors_of(held_out))
        return {name: values.astype(np.float64) for name, values in zip(NAMES, best, strict=True)}

    def images(self, rows: Floats) -> Floats:
        """Return the sum of the linear map and the network."""
        from scipy.special import ndtr  # takes longer to import than all the rest of this package

        state = self.fitted.state
        inner = rows @ state["inner"] + state["inner_offset"]
        active = inner * ndtr(inner)  # GELU
        images: Floats = rows @ state["skip"] + state["skip_offset"] + active @ state["outer"] + state["outer_offset"]
        return images

    def as_steps(self) -> Steps:
        """Return the sum of the linear map and the network."""
        state = self.fitted.state
        skip, inner, outer = (Affine(state[name], state[f"{name}_offset"]) for name in ("skip", "inner", "outer"))
        return (Sum(((skip,), (inner, Gelu(), outer))),)

    def _first_weights(self, pairs: PairedVectors) -> list[Tensor]:
        """Return the tensors named in `NAMES`: the ridge map, a random hidden layer, and nothing of it yet."""
        import torch

        folds, width = fold_moments(pairs), self.hidden
        linear = torch.from_numpy(ridge(total(folds), best_penalty(folds)).astype(np.float32))
        generator = torch.Generator().manual_seed(self.seed)
        inner = torch.randn(pairs.source_dim, width, generator=generator)  # of variance 1 on unit rows
        outer = torch.zeros(width, pairs.target_dim)
        return [linear[:-1].clone(), linear[-1].clone(), inner, torch.zeros(width), outer, torch.zeros_like(linear[-1])]

    def _train(
        self, parameters: list[Tensor], training: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]
    ) -> list[NDArray[np.float32]]:
        """Run epochs until the held-out score no longer rises, and return the weights that had the highest."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        for values in parameters:
            values.requires_grad_()
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        best, kept, waited = _mean_cosine(parameters, held_out), _copies(parameters), 0
        for _ in range(self.epochs):
            for rows in torch.randperm(len(training[0]), generator=generator).split(self.batch_size):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                loss = 1 - _cosines(parameters, training[0][rows], training[1][rows]).mean()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            found = _mean_cosine(parameters, held_out)
            if found > best:
                best, kept, waited = found, _copies(parameters), 0
            elif (waited := waited + 1) >= self.patience:
                break
        return kept


def _tensors_of(pairs: PairedVectors) -> tuple[Tensor, Tensor]:
    """Return unit rows of the sources (P, S) and of their targets (P, T)."""
    import torch

    both = (
        np.concatenate([rows.astype(np.float32) for rows in sides])
        for sides in zip(*((block.unit_source(), block.unit_target()) for block in pairs.blocks()), strict=True)
    )
    source, target = map(torch.from_numpy, both)
    return source, target


def _cosines(parameters: list[Tensor], source: Tensor, target: Tensor) -> Tensor:
    import torch.nn.functional as F

    skip, skip_offset, inner, inner_offset, outer, outer_offset = parameters
    images = source @ skip + skip_offset + F.gelu(source @ inner + inner_offset) @ outer + outer_offset
    return F.cosine_similarity(images, target)


def _mean_cosine(parameters: list[Tensor], pairs: tuple[Tensor, Tensor]) -> float:
    import torch

    with torch.no_grad():
        return _cosines(parameters, *pairs).mean().item()


def _copies(parameters: list[Tensor]) -> list[NDArray[np.float32]]:
    return [values.detach().numpy().copy() for values in parameters]
