"""``limpet fragments``: a backfill of a gallery by workers that see one folder."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.common import command
from limpet.cli.gallery.options import GalleryUrl
from limpet.cli.gallery.sources import KINDS, NewVectors
from limpet.cli.options import DataSets
from limpet.errors import ConfigError

Place = Annotated[Path, Parameter(help="Folder of the plan, which planner, workers and committer see.")]


def plan(gallery: GalleryUrl, place: Place, *, items: int = 25_000) -> int:
    """Write the items that lack a vector of the new model to a folder, as shards for workers.

    The gallery is not changed. The next plan includes items that are written later.

    Args:
        items: Maximum number of items per shard.

    Examples:
        limpet fragments plan live runs/fragments --items 5000
    """
    from limpet.galleries import fragments

    with gallery.opened() as it:
        made = fragments.plan(it, place, items=items)
    console.print(f"{made.items:,} items lack a vector of {made.generation}: {len(made.shards)} shards in {place}.")
    if made.shards:
        console.print(f"Next: limpet fragments make {shlex.quote(str(place))} --model MODEL --texts TEXTS")
    print_json(made.model_dump())
    return 0


def make(
    place: Place, *, source: NewVectors = NewVectors(), sets: DataSets = DataSets(), shard: list[str] | None = None
) -> int:
    """Embed the items of shards. Several workers can run at once; finished shards are skipped.

    Args:
        shard: Shards to embed, such as 000000. Default: all, one after another.

    Examples:
        limpet fragments make runs/fragments --model package:wordllama --texts requests.csv --shard 000000
        limpet fragments make runs/fragments --model st:MODEL --texts requests.csv
    """
    from limpet.galleries import fragments

    known = fragments.FragmentPlan.read(place)
    vectors = source.source(sets, [known.fingerprint], lambda: known.fingerprint)
    if vectors is None:
        raise ConfigError("Nothing to embed with was given.", expected=KINDS, to_do="name a model, and the texts.")
    names = known.shards if shard is None else shard
    with progress_bar("make", len(names), unit="shards") as bar:
        for done, name in enumerate(names, 1):
            fragments.make(place, name, vectors)
            bar({"done": done, "total": len(names)})
    console.print(f"{len(names)} of {len(known.shards)} shards are made.")
    source.tell()
    print_json({"shards": names})
    return 0


def accept(gallery: GalleryUrl, place: Place, *, wait: float = 60.0) -> int:
    """Write the vectors of finished shards that were not accepted before. Repeat it while workers run.

    An item gets a vector only if it has not changed since the plan. Fragments that are damaged, of another model or of
    other items are refused, and the exit code is 1.

    Args:
        wait: Seconds that every commit waits for another writer.

    Examples:
        limpet fragments accept live runs/fragments
    """
    from limpet.galleries import fragments

    with gallery.opened(wait) as it, progress_bar("accept", unit="shards") as bar:
        done = fragments.accept(it, place, wait=wait, progress=bar)
    console.print(
        f"{done.accepted} of {done.shards} shards are accepted. {done.written:,} items got a vector now; "
        f"{done.lacking:,} of the gallery have none."
    )
    if done.passed_over:
        console.print(f"{done.passed_over:,} items were changed or deleted since the plan, or have a vector.")
    where = shlex.quote(str(place))
    for name, why in done.refused.items():
        console.print(f"Shard {name} was refused: {why}")
    if again := [*done.refused, *done.waiting]:
        console.print(f"Next: limpet fragments make {where} --model MODEL --texts TEXTS --shard {' '.join(again[:3])}")
    elif done.lacking:
        console.print(f"Next: {command('fragments plan', gallery, 'FOLDER')}")
    else:
        console.print(f"Next: {command('upgrade status', gallery)}")
    print_json(asdict(done))
    return int(bool(done.refused))
