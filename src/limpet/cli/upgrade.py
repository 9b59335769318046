"""``limpet upgrade``: migrate a live index to a new embedding model, whoever owns its rows."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from limpet.cli import attach
from limpet.cli.attach import Attached, Side
from limpet.cli.gallery import backfill as gallery_backfill
from limpet.cli.gallery import plan as gallery_plan
from limpet.cli.gallery import rehearse as gallery_rehearse
from limpet.cli.gallery import status as gallery_status
from limpet.cli.gallery import upgrade as gallery_steps
from limpet.cli.gallery.index import index as gallery_index
from limpet.cli.gallery.options import GalleryUrl, GraphOptions, Links, NewModel, Spending
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.models import Model
from limpet.cli.options import DataSets, FillLimits
from limpet.cli.parameters import RARE, as_typed
from limpet.cli.places import Place
from limpet.cli.settings import Typed
from limpet.errors import ConfigError, refuse


def _live(kind: Any, tokens: Any) -> LiveUrl:
    return LiveUrl(tokens[0].value)


@Parameter(
    converter=_live,
    accepts_keys=False,
    n_tokens=1,
    help="A gallery: FOLDER, memory:FOLDER or postgresql://HOST/DATABASE. Or your own index: "
    "postgresql://HOST/DATABASE?table=NAME, qdrant://HOST/COLLECTION?ledger=FILE, milvus://HOST/COLLECTION?ledger=FILE.",
)
class LiveUrl(str):
    """Where a live index is, as a person gave it; may hold a password."""

    @property
    def attached(self) -> Attached | None:
        """The same, where an application owns the rows; None of a gallery."""
        from limpet.attached.opening import is_attached

        return Attached(self) if is_attached(self) else None

    @property
    def gallery(self) -> GalleryUrl:
        """The same as the place of a gallery."""
        return GalleryUrl(self)


def _refuse_given(where: str, **options: object) -> None:
    """Refuse options that were given and do not apply to such an index.

    Args:
        where: Such as "a gallery".
        options: What was given, by parameter.

    Raises:
        ConfigError: One was given.
    """
    given = [as_typed(name) for name, value in options.items() if not (value is None or value is False or value == [])]
    if given:
        raise ConfigError(
            f"{' and '.join(given)} with {where}.",
            expected=f"a command without {'it' if len(given) == 1 else 'them'}",
            to_do="name your own table in the URL, ?table=NAME, or leave the option out."
            if where == GALLERY
            else "leave the option out.",
        )


GALLERY, ATTACHED = "a gallery", "an index that an application owns"


def _of_attached(source: NewVectors) -> attach.NewVectors:
    """Return what makes vectors of an attached index, whose texts are read from the index itself."""
    _refuse_given(ATTACHED, data=source.data, texts=source.texts, name=source.name, workers=source.workers or None)
    kept = {field.name: getattr(source, field.name) for field in fields(attach.NewVectors)}
    return attach.NewVectors(**kept)


def start(
    url: LiveUrl,
    *,
    new: NewModel = NewModel(),
    over: Annotated[Model | None, RARE] = None,
    old_name: str | None = None,
    links: Links = Links(),
    aside: bool = False,
    same_column: bool = False,
    fire_triggers: Annotated[bool, RARE] = False,
    index: Annotated[str | None, RARE] = None,
    dry_run: bool = False,
) -> int:
    """Start an upgrade: reserve space for the vectors of a new model. Queries are not affected.

    In your own PostgreSQL table, one transaction adds two columns (three with --same-column), or with --aside a table
    next to it, triggers, and the schema limpet_attached, which records every step. For a collection, a second
    collection or vector is created.

    Args:
        over: Your own index only: what a head or an adapter reads, if the name on record does not say it.
        old_name: Your own index only: name or fingerprint of the model that made the existing vectors.
        aside: PostgreSQL table only: store new vectors in a separate table. Your application then changes its
            queries, and swap is not available.
        same_column: PostgreSQL table only: write new vectors to the existing column, for a new model that is compatible
            with the old one. Requires --evidence from `limpet evaluate --mixing`.
        fire_triggers: PostgreSQL table only: let the backfill fire the application's own triggers.
        index: PostgreSQL table only: what the new indexes contain: whole vectors (the default, up to 4,000 numbers),
            bits (the sign of every number), first:N (the first N numbers), or none.
        dry_run: Your own index only: print what each step does, with SQL and required grants, and change nothing.

    Examples:
        limpet upgrade start live --model release:runs/link/head --evidence runs/link-report
        limpet upgrade start "postgresql://shop@db/shop?table=items&text=title" --old-name v1 --model st:MODEL --dry-run
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, over=over, old_name=old_name, aside=aside, same_column=same_column,
                      fire_triggers=fire_triggers, index=index, dry_run=dry_run)  # fmt: skip
        return gallery_steps.start(url.gallery, new=new, links=links)
    _refuse_given(ATTACHED, link=links.link, score_map=links.score_map)
    refuse(len(links.evidence) > 1, "Several --evidence.", "one")
    kept = {field.name: getattr(new, field.name) for field in fields(attach.NewVectors) if hasattr(new, field.name)}
    source = attach.NewVectors(**{**kept, "over": over})
    return attach.start(
        attached, source=source, old_name=old_name, new_name=new.name, dim=new.dim, aside=aside,
        same_column=same_column, evidence=links.evidence[0] if links.evidence else None, fire_triggers=fire_triggers,
        index=index or "whole", dry_run=dry_run,
    )  # fmt: skip


def status(url: LiveUrl) -> int:
    """Show the phase of the upgrade and the next command to run.

    For your own index, the queries that your application can use are printed as well.

    Examples:
        limpet upgrade status live
    """
    return gallery_status.status(url.gallery) if (attached := url.attached) is None else attach.status(attached)


def backfill(
    url: LiveUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    spending: Spending = Spending(),
    limits: FillLimits = FillLimits(),
    of: Side | None = None,
    order: str | None = None,
    made: Annotated[str | None, RARE] = None,
    watch: float | None = None,
    seed: Annotated[int | None, RARE] = None,
) -> int:
    """Re-embed items that have no vector of the new model, in batches. Run it again to resume.

    Items that are written or deleted meanwhile keep what was written. Items whose text is blank get no vector. The exit
    code is 1 if the source lacks other items.

    Args:
        of: Your own index only: the model to fill in, new (the default) or old before a rollback.
        order: Gallery only: items to embed first: id, random, traffic (most retrieved) or uncertainty (lorentz space).
            Default: the order of an interrupted backfill, else id.
        made: Your own index only: when stored vectors were made, such as 2026-11-23T18:00+00:00. Items changed
            later are skipped. Default: when the upgrade was started.
        watch: Your own index only: repeat every this many seconds until Ctrl-C.
        seed: Gallery only: random seed of the order.

    Examples:
        limpet upgrade backfill live --model release:runs/link/head --texts requests.csv --budget 200
        limpet upgrade backfill "postgresql://shop@db/shop?table=shop.items" --model st:MODEL
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, of=of, made=made, watch=watch)
        return gallery_backfill.backfill(
            url.gallery, source=source, sets=sets, spending=spending, limits=limits, order=order, seed=seed or 0,
        )  # fmt: skip
    _refuse_given(ATTACHED, order=order, seed=seed,
                  price_per_thousand=spending.price_per_thousand, max_cost=spending.max_cost)  # fmt: skip
    return attach.backfill(
        attached, source=_of_attached(source), limits=limits, of=of or "new", batch_size=source.batch_size or 64,
        made=made, watch=watch,
    )  # fmt: skip


def index(url: LiveUrl, *, hnsw: GraphOptions = GraphOptions()) -> int:
    """Build the approximate nearest-neighbour index on the new vectors; reads and writes continue.

    In your own index, the new index is built like the existing one.

    Args:
        hnsw: How the index of a gallery in PostgreSQL is built.

    Examples:
        limpet upgrade index live
    """
    attached = url.attached
    if attached is None:
        return gallery_index(url.gallery, hnsw=hnsw)
    _refuse_given(ATTACHED, graph=hnsw.graph or None)
    return attach.index(attached)


def swap(
    url: LiveUrl,
    *,
    source: attach.NewVectors = attach.NewVectors(),
    writes: Side | None = None,
    allow_missing: int = 0,
    force: str | None = None,
) -> int:
    """Activate the new model: from now on queries search its vectors.

    In a gallery this is one commit; in a PostgreSQL table, one transaction renames both columns; for a collection, the
    ledger and then the alias lead to the new vectors. With --same-column your application queries with the new model
    from now on.

    Args:
        source: Your own index only: what embeds items that were written since the backfill. Without it, swap is refused
            if there are such items.
        writes: Your own index only: the model your application writes with from now on. Default: as before.
        allow_missing: Maximum number of items that queries of the new model do not find.
        force: Gallery only: swap anyway. Give a reason; it is logged.

    Examples:
        limpet upgrade swap live
        limpet upgrade swap "postgresql://shop@db/shop?table=shop.items" --model st:MODEL --writes new
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, model=source.model, over=source.over, writes=writes)
        return gallery_steps.swap(url.gallery, force=force, allow_missing=allow_missing)
    _refuse_given(ATTACHED, force=force)
    return attach.swap(attached, source=source, writes=writes, allow_missing=allow_missing)


def rollback(
    url: LiveUrl, *, source: attach.NewVectors = attach.NewVectors(), writes: Side | None = None, allow_missing: int = 0
) -> int:
    """Reactivate the old model, immediately and without re-embedding.

    With --same-column, old vectors are restored in small transactions. Run the command again to resume.

    Args:
        source: Your own index only: what makes old vectors of items that were written since the swap. Without it,
            rollback is refused if there are such items.
        writes: Your own index only: the model your application writes with from now on. Default: as before.
        allow_missing: Your own index only: maximum number of items without an old vector.

    Examples:
        limpet upgrade rollback live
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, model=source.model, over=source.over, writes=writes, allow_missing=allow_missing or None)
        return gallery_steps.rollback(url.gallery)
    return attach.rollback(attached, source=source, writes=writes, allow_missing=allow_missing)


def finish(url: LiveUrl, *, allow_missing: int = 0) -> int:
    """Check every item, then delete the old vectors. This cannot be undone.

    Everything else that the upgrade added is removed as well. Refused while items have no valid new vector.

    Args:
        allow_missing: Maximum number of items without a new vector. They are not found any more.

    Examples:
        limpet upgrade finish live
    """
    attached = url.attached
    if attached is None:
        return gallery_steps.finish(url.gallery, allow_missing=allow_missing)
    return attach.finish(attached, allow_missing=allow_missing)


def cancel(url: LiveUrl, *, allow_missing: int = 0, force: bool = False) -> int:
    """Delete the new vectors and everything else that the upgrade added. The old model stays active.

    Args:
        allow_missing: Your own index only: maximum number of items without an old vector.
        force: Your own index only: remove what is left of an upgrade whose table was changed or dropped.

    Examples:
        limpet upgrade cancel live
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, allow_missing=allow_missing or None, force=force)
        return gallery_steps.cancel(url.gallery)
    return attach.cancel(attached, allow_missing=allow_missing, force=force)


def verify(url: LiveUrl, *, source: attach.NewVectors = attach.NewVectors(), watch: float | None = None) -> int:
    """Read every vector again and report what is wrong. The exit code is 1 if something is.

    For a gallery, this counts valid vectors of the new model; `limpet gallery doctor` checks files as well. For your
    own index, it checks table, triggers and indexes, and names queries of your application that need to change.

    Args:
        source: Your own index only: the active model. Up to 256 items written since the last swap are embedded again,
            to find a writer that still uses the other model.
        watch: Your own index only: seconds to watch pg_stat_statements. Default: all that it remembers.

    Examples:
        limpet upgrade verify live
        limpet upgrade verify "postgresql://shop@db/shop?table=shop.items" --watch 60
    """
    attached = url.attached
    if attached is None:
        _refuse_given(GALLERY, model=source.model, over=source.over, watch=watch)
        return gallery_steps.verify(url.gallery)
    return attach.verify(attached, source=source, watch=watch or 0.0)


def writes(url: LiveUrl, *, source: attach.NewVectors = attach.NewVectors(), of: str, allow_missing: int = 0) -> int:
    """Declare which model your application writes with. A PostgreSQL session can override it.

    A collection has no triggers: this command first copies over what your application wrote until now.

    Args:
        source: What embeds items of a collection that were written since the last backfill.
        of: The model of the application's vectors: old, new, or its name.
        allow_missing: Maximum number of items of a collection without a vector of that model.

    Examples:
        limpet upgrade writes "postgresql://shop@db/shop?table=shop.items" --of new
    """
    return attach.writes(_own(url), source=source, of=of, allow_missing=allow_missing)


def log(url: LiveUrl, *, last: int = 20) -> int:
    """List the steps that were taken, the most recent last.

    Args:
        last: Number of entries.

    Examples:
        limpet upgrade log live
    """
    refuse(last < 1, f"--last {last}.", "at least 1")
    if (attached := url.attached) is None:
        return gallery_status.log(url.gallery, last=last)
    return attach.log(attached, last=last)


def plan(
    url: LiveUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    spending: Spending = Spending(),
    seconds: Annotated[float | None, RARE] = None,
    evidence: list[Path] = [],
) -> int:
    """Estimate the items, hours, cost and storage of an upgrade. Nothing is changed.

    A random sample of the items is embedded and timed. The upgrade need not be started.

    Args:
        seconds: Report how far a backfill gets in this many seconds.
        evidence: results.json of `limpet evaluate`, for an upgrade that is not started yet.

    Examples:
        limpet upgrade plan live --model release:runs/link/head --texts requests.csv --price-per-thousand 0.02
    """
    return gallery_plan.plan(
        _of_gallery(url, "`limpet upgrade start --dry-run` prints what each step would do."),
        source=source, sets=sets, spending=spending, seconds=seconds, evidence=evidence,
    )  # fmt: skip


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
        links: What new queries may search, for an upgrade that is not started yet.
        out: Folder for rehearsal.json and rehearsal.html.
        sample: Number of items of the copy, at least 20.
        queries: Two files or URLs of the same queries, by the old and by the new model. Default: sampled items.
        old_name: Name of the old model, for .npz, .npy and .parquet queries.
        order: Backfill orders to rehearse, the first one completely. Default: all that apply.
        class_column: Metadata column of the class: items of a query's class are relevant.
        seed: Random seed of the sample and of random orders.

    Examples:
        limpet upgrade rehearse live --model release:runs/link/head --texts requests.csv --evidence runs/link-report
    """
    return gallery_rehearse.rehearse(
        _of_gallery(url, "`limpet evaluate --old URL --new FILE` compares both models on your own index."),
        source=source, sets=sets, links=links, typed=typed, out=out, sample=sample, queries=queries, old_name=old_name,
        order=order, class_column=class_column, seed=seed,
    )  # fmt: skip


def _of_gallery(url: LiveUrl, instead: str) -> GalleryUrl:
    """Return the place of a gallery, for a command that is for galleries alone."""
    if url.attached is not None:
        raise ConfigError("This command is for galleries.", to_do=instead)
    return url.gallery


def _own(url: LiveUrl) -> Attached:
    """Return the place of an index that an application owns."""
    attached = url.attached
    if attached is None:
        raise ConfigError(
            "limpet writes this gallery itself.", to_do="`limpet gallery add` takes vectors of any model of it."
        )
    return attached
