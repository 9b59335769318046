"""The last act of ``holdfast demo``: a live gallery changes its model while it answers, and goes back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cli.evidence import Sides

if TYPE_CHECKING:
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries import Gallery

TENTHS = 10
HITS = 100
QUERIES = 300
BAR = 40  # characters for a value of 1


def live_gallery(old: Sides, new: Sides, out: Path, name: str, seed: int) -> dict[str, Any]:
    """Create a gallery with the old release, swap to the compatible one, backfill in tenths, and roll back.

    Args:
        old: What the old release made.
        new: What the compatible release made.
        out: Folder of the demo: the gallery goes there, and its results.json vouches for the swap.
        name: Of the compatible release.
        seed: Of the choice of queries.

    Returns:
        Plain values: "steps" with share, map and recall at each tenth, and "same_after_rollback".
    """
    from holdfast.cli.console import console, counting_progress
    from holdfast.galleries import Gallery
    from holdfast.galleries.sources import FileVectors

    folder = out / "gallery"
    shutil.rmtree(folder, ignore_errors=True)
    rows = np.sort(np.random.default_rng(seed).permutation(len(old.query))[:QUERIES])
    asked_old, asked_new = old.query.select(rows), new.query.select(rows)
    release = {"fingerprint": old.gallery.fingerprint, "space": old.gallery.space, "note": "old"}
    with Gallery.create(str(folder), columns={"label": "text"}, **release) as gallery:  # type: ignore[arg-type]
        gallery.add(old.gallery)
        before = _asked(gallery, asked_old)
        gallery.prepare(new.gallery.fingerprint, new.gallery.space, reports=[out], note="new")
        gallery.swap()
        source, steps = FileVectors([out / "embeddings" / name / "gallery.safetensors"]), []
        with counting_progress("backfill", len(gallery)) as on_batch:
            for tenth in range(TENTHS + 1):
                if tenth:
                    part = -(-len(gallery) // TENTHS)
                    on_batch(gallery.backfill(source, order="random", seed=seed, budget=part, batch=512).written)
                steps.append({"share": tenth / TENTHS, **_asked(gallery, asked_new)[1]})
        gallery.complete()
        gallery.rollback()
        after = _asked(gallery, asked_old)
        gallery.swap()
    _tell(console.print, before[1], steps, same=before[0] == after[0])
    return {"before": before[1], "steps": steps, "same_after_rollback": before[0] == after[0]}


def _asked(gallery: Gallery, queries: EmbeddingSet) -> tuple[list[Any], dict[str, float]]:
    from holdfast.galleries.served import class_names_of, items_of_class, served

    reply = gallery.search(queries, k=HITS)
    found = served(reply, class_names_of(queries), items_of_class(gallery.store), HITS)
    return reply.hits, {"map": found.map_at_k, "recall": found.recall_at_1}


def _tell(say: Any, before: dict[str, float], steps: list[dict[str, float]], *, same: bool) -> None:
    say(f"\nA live gallery changes its model (mAP of the first {HITS} hits)", style="bold")
    lines = [("old queries, before", before), *((f"new queries, {100 * step['share']:3.0f} %", step) for step in steps)]
    for name, found in lines:
        say(f"  {name:<22} {found['map']:.3f}  {'█' * round(BAR * found['map'])}", highlight=False)
    back = "the very hits of before" if same else "other hits than before: this is a bug"
    say(f"Swapped in one step, backfilled while it answered; after a rollback old queries find {back}.")
