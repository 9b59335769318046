"""Whether `limpet upgrade plan --items` foretells a backfill: hours and bytes, planned from a small gallery.

    python benchmarks/plan_at_size.py            # writes plan_at_size.txt

A gallery of 2,000 items plans an upgrade of 200,000; then a gallery of 200,000 is backfilled. Vectors come from a
function that multiplies matrices. Seconds on the clock; bytes are those by which the folder grew, without files that
were replaced; these are removed an hour later.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet import EmbeddingSet, Gallery
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableVectors
from machine import describe

SMALL, LARGE, DIM, WIDTH, ROUNDS = 2_000, 200_000, 128, 512, 3
WITHIN = 0.3
WEIGHTS = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH**0.5)


def vectors(ids: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of a model that is about as fast as one of words."""
    found = np.random.default_rng(0).standard_normal((len(ids), WIDTH), np.float32)
    for _ in range(2):
        found = np.maximum(found @ WEIGHTS, 0)
    found = found[:, :DIM] + np.float32(1e-3)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def filled(url: str, items: int) -> Gallery:
    """Return a gallery of this number of items, by an old model."""
    drawn = np.random.default_rng(1).standard_normal((items, DIM)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    it = Gallery.create(url, fingerprint="declared:old", space=Hypersphere(DIM))
    it.add(EmbeddingSet(drawn, [f"{row:09d}" for row in range(items)], "declared:old", Hypersphere(DIM)))
    return it


def size(folder: Path) -> int:
    """Return the bytes of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    source, lines, worst = CallableVectors(vectors, "declared:new", Hypersphere(DIM)), [], 0.0
    for kind in ("lance", "memory"):
        for number in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="limpet-plan-at-size-") as name:
                folder = Path(name)
                with filled(f"{kind}:{folder / 'small'}", SMALL) as small:
                    from limpet.galleries.plan import plan

                    told = plan(small, source, items=LARGE)
                with filled(f"{kind}:{folder / 'large'}", LARGE) as large:
                    large.start(source.fingerprint, source.space)
                    before, began = size(folder / "large"), time.perf_counter()
                    large.backfill(source)
                    seconds = time.perf_counter() - began
                    large.gc(older_than=0.0)
                    grown = size(folder / "large") - before
            assert told.total_seconds is not None and told.bytes_stored is not None
            off = [told.total_seconds / seconds - 1, told.bytes_stored / grown - 1]
            worst = max(worst, *map(abs, off))
            lines.append(
                f"{kind:6} {number + 1}  planned {told.total_seconds:6.1f} s, took {seconds:6.1f} s ({off[0]:+.0%})"
                f"   planned {told.bytes_stored / 2**20:6.1f} MiB, grew by {grown / 2**20:6.1f} MiB ({off[1]:+.0%})"
            )
    held = "all" if worst <= WITHIN else "not all"
    text = "\n".join([
        f"Planned from {SMALL:,} items for {LARGE:,} of {DIM} numbers; {held} within {WITHIN:.0%}.", *lines, "",
        describe("pylance"), "",
    ])  # fmt: skip
    print(text)
    (Path(__file__).parent / "results" / "plan_at_size.txt").write_text(text)
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
