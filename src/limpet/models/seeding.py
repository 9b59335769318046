"""Random numbers for code that can only draw from torch's global generator, such as weight initialisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside the block, and restore its state afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
