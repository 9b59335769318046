"""``limpet gallery export``."""

from __future__ import annotations

from pathlib import Path

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.options import GalleryUrl


def export(gallery: GalleryUrl, *, out: Path, generation: str | None = None) -> int:
    """Export the vectors and metadata of one generation to a file for other programs.

    Args:
        out: Output file: .parquet (all metadata, written in batches), .safetensors (embeddings for `limpet`) or .npz.
        generation: Name or fingerprint of the generation. Default: the active one.

    Examples:
        limpet gallery export live --out vectors.parquet
    """
    from limpet.galleries.transfer import export as exported

    with gallery.opened() as it, progress_bar("exporting") as bar:
        done = exported(it, generation, out, progress=bar)
    console.print(f"{done.rows:,} items of {done.generation} written to {done.path}.")
    for name, why in done.left_out.items():
        console.print(f"The column '{name}' was left out: {why}. A .parquet file holds it.")
    print_json({"file": str(done.path), "generation": done.generation, "items": done.rows,
                   "left_out": dict(done.left_out)})  # fmt: skip
    return 0
