"""Random numbers for code that can only draw from torch's global generator, such as weight initialisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a generator of this seed inside the block; leave the global state outside untouched."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
