"""The same counting on an accelerator, with torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from limpet.evaluation.ranking.counting import Counts, QueryPart, part_of
from limpet.evaluation.ranking.tiles import QueryBlock, RelevantScores, Search, columns_at_once
from limpet.support.devices import device_named


def counts_on(device: str, search: Search, block: QueryBlock, pairs: RelevantScores) -> Counts:
    """Return what `counting.Counter` counts for every pair (M,).

    Args:
        device: Name of the accelerator, such as "cuda", "cuda:1" or "mps"; "cpu" works too.
        search: What is searched.
        block: Some queries.
        pairs: Their relevant items.

    Raises:
        ConfigError: There is no such device here.
    """
    place = device_named(device)
    part = part_of(search, block, pairs, 0, len(block.vectors))
    if not len(pairs.scores):
        return part.counts()
    vectors, error = (torch.from_numpy(np.array(given)).to(place) for given in (block.vectors, block.error))
    falling = _falling(pairs).to(place)
    counts = torch.zeros(falling.shape[0] * (falling.shape[1] - 1), dtype=torch.int64, device=place)
    for tile in search.tile_bounds(pairs):
        items = torch.from_numpy(np.array(search.gallery.block(tile.start, tile.stop))).to(place)
        with full_precision():
            products = _products(vectors, items)
        products[
            tuple(torch.from_numpy(np.ascontiguousarray(which)).to(place) for which in tile.hidden.pairs())
        ] = -torch.inf
        counts += _count(products, falling, error, tile.start, part)
    column = np.arange(len(pairs.scores)) - pairs.offsets[pairs.owner]
    part.entered[:-1] += counts.cpu().numpy().reshape(len(falling), -1)[pairs.owner, column]
    return part.counts()


def _products(query: Tensor, gallery: Tensor) -> Tensor:
    """Return the products (n, T) of two sets of vectors, summed as in `tiles`."""
    first, *others = columns_at_once(query.shape[1])
    products = query[:, first] @ gallery[:, first].T
    for columns in others:
        products.addmm_(query[:, columns], gallery[:, columns].T)
    return products


@contextmanager
def full_precision() -> Iterator[None]:
    """Let products of float32 be just that, whatever was allowed elsewhere for the sake of speed."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


def _falling(pairs: RelevantScores) -> Tensor:
    """Return the relevant scores of every query, signs changed so that they ascend, between infinities (n, R + 2)."""
    counts = np.diff(pairs.offsets)
    table = np.full((len(counts), counts.max() + 2), np.inf, np.float32)
    table[:, 0] = -np.inf
    table[pairs.owner, np.arange(len(pairs.scores)) - pairs.offsets[pairs.owner] + 1] = -pairs.scores
    return torch.from_numpy(table)


def _count(products: Tensor, falling: Tensor, error: Tensor, start: int, part: QueryPart) -> Tensor:
    """Count the items (n, T) by the first relevant score they exceed, flat (n * (R + 1),); near ones go to the part."""
    asked, width = -products, falling.shape[1] - 1
    places = torch.searchsorted(falling, asked).clamp(1, width)  # between the infinities
    near = (falling.gather(1, places) - asked <= error[:, None]) | (
        asked - falling.gather(1, places - 1) <= error[:, None]
    )
    near &= torch.isfinite(products)
    owner, columns = (found.cpu().numpy() for found in torch.nonzero(near, as_tuple=True))
    part.insert(owner, start + columns, products[near].cpu().numpy())
    flat = torch.arange(len(products), device=products.device)[:, None] * width + places - 1
    return torch.bincount(flat[~near], minlength=len(products) * width)
