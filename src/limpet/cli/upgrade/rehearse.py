"""``limpet upgrade rehearse``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import console, exit_code, print_json, print_table, rate_progress
from limpet.cli.gallery.common import command, made_by, open_vectors
from limpet.cli.gallery.options import Links
from limpet.cli.gallery.sources import KINDS, NewVectors
from limpet.cli.options import DataSets
from limpet.cli.pages import page_line, page_written
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.cli.settings import Typed
from limpet.cli.upgrade.live import LiveUrl
from limpet.errors import ConfigError, refuse

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries import Gallery
    from limpet.galleries.rehearsal import Rehearsal

PASSED = ("ready", "no gain")


def rehearse(
    url: LiveUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    links: Links = Links(),
    typed: Typed = Typed(""),
    out: Annotated[Path, RARE] = Path("runs/rehearsal"),
    sample: Annotated[int, RARE] = 2000,
    queries: list[Place] = [],
    old_name: Annotated[str | None, RARE] = None,
    order: Annotated[list[str], RARE] = [],
    class_column: Annotated[str, RARE] = "label",
    seed: Annotated[int, RARE] = 0,
) -> int:
    """Rehearse a whole upgrade on an in-memory copy of a sample: swap, backfill and rollback, with searches throughout.

    The gallery is only read. The exit code is 0 if searches find as much as today or more, at the end and on the way,
    and 1 otherwise. Without labels this is unknown: the exit code is 3 if no step or search failed.

    Args:
        links: What lets new queries search old vectors, for an upgrade that is not started yet.
        out: Folder for rehearsal.json and rehearsal.html.
        sample: Number of items of the copy, at least 20.
        queries: Two files or URLs of the same queries, by the old and by the new model. Default: sampled items.
        old_name: Name of the old model, for .npz, .npy and .parquet queries.
        order: Backfill orders to rehearse, the first one completely. Default: all that apply.
        class_column: Metadata column of the class: items of a query's class are relevant.
        seed: Random seed of the sample and of random orders.

    Examples:
        limpet upgrade rehearse live --model st:models/v2 --texts requests.csv --link runs/link/adapter
    """
    from limpet.galleries.rehearsal import rehearse as rehearsed
    from limpet.reports.rehearsal import write_rehearsal_report

    refuse(len(queries) not in (0, 2), f"{len(queries)} files of queries.", "two: by the old and by the new model")
    gallery = url.gallery("`limpet evaluate --old URL --new FILE` compares both models on your own index.")
    with gallery.opened() as it:
        vectors = source.opened(it, sets)
        if vectors is None:
            raise ConfigError(
                "Nothing to embed with was given.",
                expected=KINDS,
            )
        asked = _queries(it, queries, (old_name, source.name))
        with rate_progress("rehearsal", None) as show:
            found = rehearsed(
                it, vectors, reports=links.evidence, adapter=links.link, score_map=links.score_map, sample=sample,
                queries=asked, orders=order or None, class_column=class_column, seed=seed,
                on_step=lambda event: show({"done": 0, "total": None, **event, "state": event["step"]}),
            )  # fmt: skip
    found = found.model_copy(update={"commands": _commands(found, url, source, links), "command": typed})
    path = found.save(out)
    page = page_written(None, lambda: write_rehearsal_report(found, out))
    _tell(found)
    console.print(f"\nresults  {path}{page_line(None, page)}")
    print_json(found.to_dict())
    return exit_code(found.verdict in PASSED, told=found.verdict != "unlabelled")


def _commands(found: Rehearsal, url: str, source: NewVectors, links: Links) -> tuple[str, ...]:
    """Return what to type to upgrade the gallery as it was rehearsed, in order."""
    from limpet.reports.rehearsal import wanted_order

    given, first = source.typed(), []
    if not found.new.name:
        evidence = [word for path in links.evidence for word in ("--evidence", path)]
        evidence += [] if links.link is None else ["--link", links.link]
        evidence += [] if links.score_map is None else ["--score-map", links.score_map]
        first.append(command("upgrade start", url, *source.identity(), *evidence))
    order = wanted_order(found)
    fill = command("upgrade backfill", url, *given, *([] if order is None else ["--order", order]))
    swap = command("upgrade swap", url)
    return (*first, swap, fill) if found.swaps_first else (*first, fill, swap)


def _queries(
    gallery: Gallery, places: list[Place], models: tuple[str | None, str | None]
) -> tuple[EmbeddingSet, EmbeddingSet] | None:
    """Open the same queries by both models, old and new."""
    if not places:
        return None
    old, new = (
        open_vectors(place, parts=("query", "embeddings"), fingerprint=made_by(gallery.state, name))
        for place, name in zip(places, models, strict=True)
    )
    return old, new


def _tell(found: Rehearsal) -> None:
    """Print the orders as a table, and what it all means."""
    from limpet.reports.formats import MISSING, plain_text
    from limpet.reports.rehearsal import findings, next_step, rehearsal_headline
    from limpet.support.wording import metric_name

    rows = [
        [name, metric_name(metric), MISSING if metric not in found.before else f"{found.before[metric]:.3f}",
         *(f"{value:.3f}" for value in (values[0], curve.area[metric], values[-1]))]
        for name, curve in found.curves.items()
        for metric, values in curve.values.items()
    ]  # fmt: skip
    title = f"Rehearsal on {found.sampled:,} of {found.items:,} items: what new queries find"
    print_table(title, ["order", "metric", "today", "at the swap", "mean on the way", "at the end"], rows)
    console.print(f"\n{plain_text(rehearsal_headline(found))}", style="bold")
    for sentence in findings(found):
        console.print(plain_text(sentence))
    for name, why in found.left_out.items():
        console.print(f"The order {name} was left out: {plain_text(why)}")
    console.print(f"Next: {plain_text(next_step(found))}")
