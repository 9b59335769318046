"""``limpet upgrade rehearse``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import console, exit_code, print_json, print_table, progress_bar
from limpet.cli.gallery.common import DECLARED, command, open_vectors
from limpet.cli.gallery.options import Links
from limpet.cli.gallery.sources import KINDS, NewVectors
from limpet.cli.options import DataSets
from limpet.cli.pages import page_line, page_written
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.cli.settings import Typed
from limpet.cli.upgrade.live import LiveUrl, tell_thresholds
from limpet.cli.upgrade.vectors import fingerprint, source_of
from limpet.errors import ConfigError, refuse

if TYPE_CHECKING:
    from limpet.attached.base import Attachment
    from limpet.attached.plan import Unstarted
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries.rehearsal import Rehearsal
    from limpet.galleries.upgrade import GalleryUpgrade
    from limpet.upgrade.vector_sources import VectorSource

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
    threshold: Annotated[list[float], RARE] = [],
    seed: Annotated[int, RARE] = 0,
) -> int:
    """Rehearse a whole upgrade on an in-memory copy of a sample: swap, backfill and rollback, with searches throughout.

    Your index is only read; the upgrade need not be started. The exit code is 0 if searches find at least as
    much as today, at every step and at the end, and 1 otherwise. Without labels this is unknown: the exit code is 3 if
    no step or search failed.

    Args:
        links: Links that let new queries search old vectors, for an upgrade that is not started yet. For your own
            index, only --evidence, as `start --same-column` takes it.
        out: Folder for rehearsal.json and rehearsal.html.
        sample: Number of items in the copy, at least 20.
        queries: Two files or URLs of the same queries, by the old and by the new model. Default: sampled items.
        old_name: Name of the old model, for .npz, .npy and .parquet queries, and for your own index before the start.
        order: Gallery only: backfill orders to rehearse, the first one completely. Default: all that apply.
        class_column: Metadata column of the class: items of a query's class are relevant.
        threshold: Thresholds on current scores; prints the new threshold for each.
        seed: Random seed for the sample and random orders.

    Examples:
        limpet upgrade rehearse live --model st:models/v2 --texts requests.csv --link runs/link/adapter
        limpet upgrade rehearse "postgresql://shop@db/shop?table=items&text=title" --model st:MODEL --class-column kind
    """
    from limpet.attached.opening import previewed
    from limpet.engines.address import Sample
    from limpet.reports.rehearsal import write_rehearsal_report

    refuse(len(queries) not in (0, 2), f"{len(queries)} files of queries.", "two: by the old and by the new model")
    named = {} if old_name is None else {"old": fingerprint(old_name)}
    with url.told(), previewed(url, sample=Sample(sample, seed), **named) as it:
        vectors = source_of(it, source, sets, "new")
        if vectors is None:
            raise ConfigError(
                "Nothing to embed with was given.",
                expected=KINDS,
            )
        with progress_bar("rehearsal") as bar:
            found: Rehearsal = url.call(
                it.rehearse, vectors, reports=links.evidence, adapter=links.link, score_map=links.score_map,
                sample=sample, queries=_queries(it, vectors, queries, old_name), orders=order,
                class_column=class_column, seed=seed,
                progress=bar,
            )  # fmt: skip
        commands = _commands(found, it, url, source, links, widens=it.model("old").dim != vectors.space.dim)
    found = found.model_copy(update={"commands": commands, "command": typed})
    path = found.save(out)
    page = page_written(None, lambda: write_rehearsal_report(found, out))
    _tell(found)
    for step, thresholds in found.thresholds.items():
        tell_thresholds(thresholds, threshold, f"After the {step}")
    console.print(f"\nresults  {path}{page_line(None, page)}")
    print_json(found.to_dict())
    return exit_code(found.verdict in PASSED, told=found.verdict != "unlabelled")


def _commands(
    found: Rehearsal,
    it: GalleryUpgrade | Attachment | Unstarted,
    url: str,
    source: NewVectors,
    links: Links,
    *,
    widens: bool,
) -> tuple[str, ...]:
    from limpet.reports.rehearsal import wanted_order

    order, start = wanted_order(found), list(source.identity())
    if found.attached:
        start = ["--old-name", found.old.fingerprint.removeprefix(DECLARED), *start]
        start += ["--same-column"] * bool(links.evidence)
    start += [word for path in links.evidence for word in ("--evidence", str(path))]
    start += [] if links.link is None else ["--link", str(links.link)]
    start += [] if links.score_map is None else ["--score-map", str(links.score_map)]
    fill = [*source.typed(), *([] if order is None else ["--order", order])]
    swap = []
    if found.attached and not found.swaps_first:
        stored = any(one is not None and one.vectors is not None for one in (source.model, source.over))
        swap = [] if stored else source.typed()  # what embeds late writes
    swap += ["--writes", "new"] * (found.attached and (widens or found.swaps_first))
    words = {"start": start, "backfill": fill, "swap": swap}
    return tuple(
        command(f"upgrade {step}", url, *words.get(step, ())) for step in it.remaining(at_once=found.swaps_first)
    )


def _queries(
    it: GalleryUpgrade | Attachment | Unstarted, source: VectorSource, places: list[Place], old_name: str | None
) -> tuple[EmbeddingSet, EmbeddingSet] | None:
    if not places:
        return None
    models = [it.model("old").fingerprint if old_name is None else fingerprint(old_name), source.fingerprint]
    old, new = (
        open_vectors(place, parts=("query", "embeddings"), fingerprint=model if place.nameless else None)
        for place, model in zip(places, models, strict=True)
    )
    return old, new


def _tell(found: Rehearsal) -> None:
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
    if found.attached:
        console.print(f"Nothing was changed: {found.only_read}.")
