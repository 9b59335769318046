"""What the processes of one run tell each other beyond their gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def share(values: Iterable[Tensor], processes: int) -> None:
    """Give all processes, in place, what the first one computed: their batch statistics and draws differ."""
    if processes > 1:
        for value in values:
            torch.distributed.broadcast(value, 0)


def gathered(rows: Tensor, processes: int) -> Tensor:
    """Return the rows (N, ...) of all processes, in their order, as (processes · N, ...), without gradient."""
    rows = rows.detach()
    if processes == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(processes)]
    torch.distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)
