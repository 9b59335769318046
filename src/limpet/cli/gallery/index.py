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
    """Build an approximate index, which `search --approximate` follows; searches go on meanwhile.

    A backfill indexes later generations likewise. PostgreSQL keeps whole vectors of up to 2,000 numbers in it, on the
    hypersphere numbers of 16 bits of up to 4,000, and signs of up to 16,000, of which the best are compared exactly.

    Args:
        hnsw: How the index is built; as before when left out. Another one is built anew.
        generation: Whose vectors; those of the generation that a backfill fills when left out.

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
