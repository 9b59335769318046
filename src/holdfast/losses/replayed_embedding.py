"""The replayed embedding of CVS: one vector per class that stands for all its gallery embeddings of all sessions.

Kept are a sum and a count per class and session, O(J · C · D); the gallery is not needed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import refuse, unknown_name
from holdfast.geometry.hypersphere import normalise
from holdfast.geometry.segments import segment_sum


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
            num_classes: Classes known now, at least as many as before; earlier sessions get zero rows for new ones.

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
