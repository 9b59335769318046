"""The steps of ``limpet upgrade``: each opens the upgrade, takes one step, and prints the status."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from limpet.cli.console import console, long_texts, print_json, print_table, progress_bar
from limpet.cli.gallery.options import GraphOptions, Links, Spending
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.options import DataSets, FillLimits
from limpet.cli.parameters import RARE
from limpet.cli.upgrade.live import LiveUrl, tell_thresholds
from limpet.cli.upgrade.vectors import LateVectors, StartedModel, attached, fingerprint, made_at, source_of
from limpet.engines.sides import ModelSide
from limpet.errors import ConfigError, refuse, shown
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.attached.base import StartPlan
    from limpet.evaluation.results import Evaluation
    from limpet.support.progress import Told
    from limpet.upgrade.base import Upgrade, UpgradeSteps
    from limpet.upgrade.filling import Backfilled


def start(
    url: LiveUrl,
    *,
    new: StartedModel = StartedModel(),
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
        old_name: Your own index only: name or fingerprint of the model that made the existing vectors.
        aside: PostgreSQL table only: store new vectors in a separate table. Your application then changes its
            queries, and swap is not available.
        same_column: PostgreSQL table only: write new vectors to the existing column, for a new model that is compatible
            with the old one. Requires --evidence from `limpet evaluate --mixing`.
        fire_triggers: PostgreSQL table only: let the backfill fire the application's own triggers.
        index: PostgreSQL table only: contents of the new indexes: whole vectors (the default, up to 4,000 numbers),
            bits (the sign of every number), first:N (the first N numbers), or none.
        dry_run: Your own index only: print what each step does, with SQL and required grants, and change nothing.

    Examples:
        limpet upgrade start live --model st:models/v2 --link runs/link/adapter
        limpet upgrade start "postgresql://shop@db/shop?table=items&text=title" --old-name v1 --model st:MODEL --dry-run
    """
    from limpet.attached.opening import is_attached, planner, starter
    from limpet.upgrade.model import UpgradeModel

    refuse("" in (old_name, new.name), "A model without a name.", "--old-name NAME")
    if url.served:
        with url.service() as served, console.status("starting"):
            url.call(
                served.start, str(new.model or new.name or ""), dim=new.dim, old=old_name, index=index,
                aside=aside, same_column=same_column, dry_run=dry_run, reports=links.evidence, adapter=links.link,
            )  # fmt: skip
            return url.tell(served)
    with url.told():
        model, space, reads = new.opened()
        own = is_attached(url)
        old = fingerprint(old_name) if old_name is not None else reads if own else None
        if own and old is None:
            raise ConfigError("Nothing says which model made the existing vectors.", expected="--old-name NAME")
        options = {
            "old": None if old is None else UpgradeModel(old, 0, old_name or ""), "space": None if own else space,
            "reports": [] if same_column else links.evidence, "adapter": links.link, "score_map": links.score_map,
            "mixing": _mixing_of(links.evidence) if same_column else None, "aside": aside,
            "fire_triggers": fire_triggers, "index": index,
        }  # fmt: skip
        if dry_run:
            return _tell_plan(url.call(planner(url), new=model, **options), url)
        with console.status("starting"):
            it: Upgrade = url.call(starter(url), new=model, **options)
        with it:
            return url.tell(it)


def _mixing_of(evidence: list[Path]) -> Evaluation:
    from limpet.evaluation.results import EvaluationResults

    if len(evidence) != 1:
        raise ConfigError(
            f"--same-column with {len(evidence) or 'no'} --evidence.",
            expected="one --evidence FILE, which says that vectors of the two models may be mixed",
            to_do="`limpet evaluate --old … --new … --mixing 0.01 --out FOLDER` measures it.",
        )
    return EvaluationResults.load(evidence[0]).only(f"'{evidence[0]}'")


def _tell_plan(found: StartPlan, url: LiveUrl) -> int:
    for note in found.notes:
        console.print(f"Note: {url.completed(note)}")
    for refusal in found.refusals:
        console.print(f"Refused: {refusal}")
    if found.rights:
        rows = [[one.statement, "yes" if one.held else "no"] for one in found.rights]
        print_table("Rights", ["right", "held"], rows)
    for step, statements in found.steps.items():
        console.print("\n".join([f"\n-- {step}", *statements]))
    print_json(asdict(found))
    return int(not found.possible)


def status(url: LiveUrl, *, threshold: list[float] = []) -> int:
    """Show the phase of the upgrade and the next command to run.

    For your own index, the queries that your application can use are printed as well.

    Args:
        threshold: Thresholds on scores of the old model; prints the new threshold for each, by the items of a gallery
            that have vectors of both models. For your own index, `limpet upgrade rehearse` measures them.

    Examples:
        limpet upgrade status live --threshold 0.8
    """
    from limpet.galleries.upgrade import GalleryUpgrade

    with url.steered() as it:
        if not threshold:
            return url.tell(it)
        if not isinstance(it, GalleryUpgrade):
            raise ConfigError("--threshold with an index that an application owns.", expected="a gallery",
                              to_do="measure them on a copy: `limpet upgrade rehearse`.")  # fmt: skip
        found = it.thresholds()
        tell_thresholds(found, threshold, "Once all items are re-embedded")
        return url.tell(it, thresholds=found.to_dict())


def backfill(
    url: LiveUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    spending: Spending = Spending(),
    limits: FillLimits = FillLimits(),
    of: ModelSide | None = None,
    order: str | None = None,
    made: Annotated[str | None, RARE] = None,
    watch: float | None = None,
    seed: Annotated[int | None, RARE] = None,
) -> int:
    """Re-embed items that have no vector of the new model, in batches. Run it again to resume.

    Concurrent writes and deletions are never overwritten. Items whose text is blank get no vector. The exit code is 1
    if the source lacks other items.

    Args:
        of: Your own index only: the model to fill in, new (the default) or old before a rollback.
        order: Gallery only: items to embed first: id, random, traffic (most retrieved) or uncertainty (lorentz space).
            Default: the order of an interrupted backfill, else id.
        made: Your own index only: when stored vectors were made, such as 2026-11-23T18:00+00:00. Items changed
            later are skipped. Default: when the upgrade was started.
        watch: Repeat every this many seconds until Ctrl-C.
        seed: Gallery only: random seed of the order.

    Examples:
        limpet upgrade backfill live --model st:models/v2 --texts requests.csv --budget 200
        limpet upgrade backfill "postgresql://shop@db/shop?table=shop.items" --model st:MODEL
    """
    refuse(watch is not None and watch <= 0, f"--watch {watch}.", "more than 0 seconds")
    limits = replace(limits, budget=spending.items(limits.budget))
    with url.steered() as it:
        vectors, moment = _vectors_of(it, url, source, sets, of), made_at(it, source, made)
        while True:
            with _progress(it) as progress:
                done: Backfilled = url.call(
                    it.backfill, vectors, of=of, made=moment, order=order, seed=seed, **limits.options(progress)
                )
            _tell_filled(done, spending.cost(done.embedded))
            if watch is None or done.stopped != "done":
                break
            time.sleep(watch)
        source.tell()
        facts = {"cost": spending.cost(done.embedded), "long_texts": [one.to_dict() for one in long_texts()]}
        url.tell(it, **asdict(done), **facts)
    return {"interrupted": 130, "done": int(bool(done.missing))}.get(done.stopped, 0)


def _vectors_of(it: Any, url: LiveUrl, source: NewVectors, sets: DataSets, of: ModelSide | None) -> Any:
    """Return where vectors come from; of a service, what it calls the model that is to embed, if one was named."""
    if url.served:
        return None if source.model is None else str(source.model)
    vectors = source_of(it, source, sets, of or "new")
    if vectors is None:
        raise _nothing_to_embed(it, url)
    return vectors


def _nothing_to_embed(it: Upgrade, url: LiveUrl) -> ConfigError:
    steps = it.status().next
    step = next((one for one in steps if one.words[0] == "backfill"), steps[0])
    return ConfigError(
        "Nothing to embed with was given.",
        expected="--model SCHEME:PLACE, and for a gallery --texts or --data; or --model FILE, stored vectors",
        to_do=f"to {step.purpose}: {step.command(url)} (`limpet upgrade backfill --help` lists the options).",
    )


@contextmanager
def _progress(it: UpgradeSteps) -> Iterator[Callable[[Told], None]]:
    """Show a live bar; the first Ctrl-C lets the batch end, the second one stops at once."""
    from limpet.upgrade.filling import FillInterruptedError

    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        console.print("\nStopping after this batch; Ctrl-C again stops at once, which loses this batch only.")

    with progress_bar(f"backfill of {it.model('new').called}", None) as bar:

        def tell(event: Told) -> None:
            bar(event)
            if asked:
                raise FillInterruptedError

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield tell
        finally:
            signal.signal(signal.SIGINT, before)


def _tell_filled(done: Backfilled, cost: float | None) -> None:
    if done.embedded or done.lacking:
        speed = f", {done.embedded / done.seconds:,.0f} items/s" if done.seconds > 0 and done.embedded else ""
        paid = "" if cost is None else f" for {cost:,.2f}"
        console.print(f"{done.generation}: {done.embedded:,} items filled{paid}, {done.written:,} written, "
                      f"in {duration(done.seconds)}{speed}.")  # fmt: skip
    if done.without_text:
        console.print(
            f"{done.without_text:,} items are without text and get no vector: "
            f"{shown(done.without_text_ids, done.without_text)}. Give them a text, delete them, or `finish` with "
            "--allow-missing."
        )
    if done.stopped != "done":
        why = {"budget": "The budget is used up", "time": "The time is over"}.get(done.stopped, "Interrupted")
        console.print(f"{why}: {done.lacking:,} items are left. The same command continues.")
    elif done.missing:
        console.print(
            f"{done.missing:,} items are not in the source: {shown(done.missing_ids, done.missing)}. Give a source "
            "that has them, delete them, or `finish` with --allow-missing."
        )
    elif done.lacking > done.without_text:
        console.print(f"{done.lacking:,} items were written meanwhile and are left. The same command continues.")
    elif not done.without_text:
        console.print(f"Every item has a vector of {done.generation}.")


def index(url: LiveUrl, *, hnsw: GraphOptions = GraphOptions()) -> int:
    """Build the approximate nearest-neighbour index on the new vectors; reads and writes continue.

    In your own index, the new index is built like the existing one.

    Args:
        hnsw: How the index of a gallery in PostgreSQL is built.

    Examples:
        limpet upgrade index live
    """
    with url.steered() as it:
        with console.status("building indexes"):
            url.call(it.index, graph=hnsw.chosen(getattr(it, "graph", None)))
        return url.tell(it)


def swap(
    url: LiveUrl,
    *,
    source: LateVectors = LateVectors(),
    writes: ModelSide | None = None,
    allow_missing: int | None = None,
    force: str | None = None,
) -> int:
    """Activate the new model: from now on queries search its vectors.

    In a gallery this is one commit; in a PostgreSQL table, one transaction renames both columns; for a collection, the
    ledger and then the alias switch to the new vectors. With --same-column your application queries with the new model
    from now on.

    Args:
        source: Your own index only: model that embeds items written since the backfill. Without it, swap is refused if
            there are such items.
        writes: Your own index only: the model your application writes with from now on. Default: as before.
        allow_missing: Maximum number of items that queries of the new model do not find. Default: 0.
        force: Gallery only: swap anyway. Give a reason; it is logged.

    Examples:
        limpet upgrade swap live
        limpet upgrade swap "postgresql://shop@db/shop?table=shop.items" --model st:MODEL --writes new
    """
    with url.steered() as it:
        vectors = source.opened(it, "new")
        with console.status("waiting for a lock"):
            url.call(it.swap, source=vectors, writes=writes, allow_missing=allow_missing, force=force)
        return url.tell(it)


def rollback(
    url: LiveUrl,
    *,
    source: LateVectors = LateVectors(),
    writes: ModelSide | None = None,
    allow_missing: int | None = None,
) -> int:
    """Reactivate the old model, immediately and without re-embedding.

    With --same-column, old vectors are restored in small transactions. Run the command again to resume.

    Args:
        source: Your own index only: source of old vectors for items written since the swap. Without it, rollback is
            refused if there are such items.
        writes: Your own index only: the model your application writes with from now on. Default: as before.
        allow_missing: Your own index only: maximum number of items without an old vector. Default: 0. In a gallery,
            such items never stop a rollback.

    Examples:
        limpet upgrade rollback live
    """
    with url.steered() as it:
        vectors = source.opened(it, "old")
        with console.status("waiting for a lock"):
            url.call(it.rollback, source=vectors, writes=writes, allow_missing=allow_missing)
        return url.tell(it)


def finish(url: LiveUrl, *, allow_missing: int = 0) -> int:
    """Check every item, then delete the old vectors. This cannot be undone.

    Everything else that the upgrade added is removed as well. Refused while items have no valid new vector.

    Args:
        allow_missing: Maximum number of items without a new vector. Queries no longer find them.

    Examples:
        limpet upgrade finish live
    """
    return _end(url, "finished", lambda it: it.finish(allow_missing=allow_missing))


def cancel(url: LiveUrl, *, allow_missing: int | None = None, force: bool = False) -> int:
    """Delete the new vectors and everything else that the upgrade added. The old model stays active.

    Args:
        allow_missing: Your own index only: maximum number of items without an old vector. Default: 0.
        force: Your own index only: remove what is left of an upgrade whose table was changed or dropped.

    Examples:
        limpet upgrade cancel live
    """
    return _end(url, "cancelled", lambda it: url.call(it.cancel, allow_missing=allow_missing, force=force))


def _end(url: LiveUrl, called: str, step: Callable[[UpgradeSteps], None]) -> int:
    with url.steered() as it:
        stays = it.model(it.serving)
        with console.status("checking items, and removing what was added"):
            step(it)
        console.print(f"The upgrade is {called}; the vectors of {stays.called} stay.")
        for note in it.notes:
            console.print(f"Note: {note}")
        print_json({"stays": stays.fingerprint, "notes": it.notes})
    return 0


def verify(url: LiveUrl, *, source: LateVectors = LateVectors(), watch: float | None = None) -> int:
    """Read every vector again and report what is wrong. The exit code is 1 if something is.

    For a gallery, this counts valid vectors of the new model; `limpet doctor` checks files as well. For your
    own index, it checks table, triggers and indexes, and names queries of your application that need to change.

    Args:
        source: Your own index only: the active model. Up to 256 items written since the last swap are embedded again,
            to find a writer that still uses the other model.
        watch: Your own index only: seconds to watch pg_stat_statements. Default: check everything it has recorded.

    Examples:
        limpet upgrade verify live
        limpet upgrade verify "postgresql://shop@db/shop?table=shop.items" --watch 60
    """
    refuse(watch is not None and watch < 0, f"--watch {watch}.", "at least 0 seconds")
    with url.steered() as it, console.status("reading vectors and queries"):
        found = url.call(it.verify, watch=watch, source=source.opened(it, it.serving))
        source.tell()
    for problem in found.problems:
        console.print(f"Problem: {url.completed(problem)}.")
    if found.queries:
        print_table("Queries that should change", ["calls", "why", "query"],
                    [[f"{one.calls:,}", one.why, one.query] for one in found.queries])  # fmt: skip
    if found.passed:
        console.print("No problem was found.")
    if found.unwatched:
        console.print(f"Queries were not watched. {found.unwatched}")
    print_json({**asdict(found), "passed": found.passed})
    return int(not found.passed)


def writes(url: LiveUrl, *, source: LateVectors = LateVectors(), of: str, allow_missing: int = 0) -> int:
    """Declare which model your application writes with. A PostgreSQL session can override it.

    A collection has no triggers: this command first copies over what your application wrote until now.

    Args:
        source: Model that embeds items of a collection written since the last backfill.
        of: The model of the application's vectors: old, new, or its name.
        allow_missing: Maximum number of items of a collection without a vector of that model.

    Examples:
        limpet upgrade writes "postgresql://shop@db/shop?table=shop.items" --of new
    """
    with url.opened() as opened:
        it = attached(opened)
        vectors = source.opened(it, it.state.side_of(of))
        with console.status("copying what was written"):
            it.declare_writes(of, vectors, allow_missing=allow_missing)
        return url.tell(it)


def log(url: LiveUrl, *, last: int = 20) -> int:
    """List the steps of the upgrade, or of the last one that ended, the most recent last.

    Args:
        last: Number of entries.

    Examples:
        limpet upgrade log live
    """
    from limpet.attached.opening import upgrade_journal

    refuse(last < 1, f"--last {last}.", "at least 1")
    if url.served:
        with url.steered() as it:
            events = it.journal(last)
    else:
        with url.told():
            events = upgrade_journal(url, last)
    print_table("Log", ["at", "step", "what"], [[str(one["at"]), str(one["kind"]), _details(one)] for one in events])
    print_json({"log": events})
    return 0


def _details(event: Mapping[str, object]) -> str:
    """Return the details of an event; longer values are in --json only.

    >>> _details({"at": "2026", "kind": "start", "generation": {"name": "g2"}, "links": [{"how": "report"}]})
    'generation g2'
    >>> _details({"at": "2026", "kind": "index", "built": ["a", "b"], "commit": 4})
    'built a and b, commit 4'
    """
    said = {name: one.get("name") if isinstance(one, Mapping) else one for name, one in event.items()}
    listed = {name: " and ".join(one) if isinstance(one, list) and all(isinstance(word, str) for word in one) else one
              for name, one in said.items() if name not in ("at", "kind")}  # fmt: skip
    return ", ".join(
        f"{name} {one}" for name, one in listed.items() if one not in (None, "") and not isinstance(one, list)
    )
