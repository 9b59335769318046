"""``limpet gallery index``."""

from __future__ import annotations

from limpet.cli.console import console, print_json
from limpet.cli.gallery.options import WAIT, GalleryUrl, GraphOptions


def index(
    gallery: GalleryUrl,
    *,
    hnsw: GraphOptions = GraphOptions(),
    generation: str | None = None,
) -> int:
    """Build an approximate index for `search --approximate`. Searches continue meanwhile.

    A backfill also indexes later generations. In PostgreSQL, the index stores whole vectors of up to 2,000 numbers. On
    the hypersphere, it stores 16-bit numbers for up to 4,000, and signs for up to 16,000, whose best hits are compared
    exactly.

    Args:
        hnsw: Options of the index. Default: as before. If they change, the index is rebuilt.
        generation: Generation to index. Default: the one that a backfill fills.

    Examples:
        limpet gallery index postgresql://me@host/shop --graph.m 24 --graph.ef-construction 128
    """
    with gallery.opened(WAIT) as it:
        name = it.state.named(generation or it.state.target).name
        it.index(name, graph=hnsw.chosen(it.store.graph))
        upkeep = it.store.upkeep(name)
    console.print(f"{upkeep.indexed:,} of {upkeep.rows:,} vectors of {name} are indexed.")
    print_json({"generation": name, "rows": upkeep.rows, "indexed": upkeep.indexed, "bytes": upkeep.bytes})
    return 0
