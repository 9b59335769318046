"""The steps of an upgrade: ``limpet upgrade start``, ``link``, ``swap``, ``rollback``, ``finish`` and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.console import console, print_json, rate_progress
from limpet.cli.gallery.common import command, size
from limpet.cli.gallery.options import WAIT, GalleryUrl, Links, NewModel
from limpet.errors import UpgradeStateError, refuse, shown
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.galleries import Gallery


def start(gallery: GalleryUrl, *, new: NewModel, links: Links) -> int:
    """Make room for the vectors of a new model."""
    with gallery.opened(WAIT) as it:
        model = new.identity()
        with rate_progress("mapping stored vectors", None) as on_step:
            made = it.start(
                model.fingerprint, model.space, reports=links.evidence, adapter=links.link, score_map=links.score_map,
                note=model.note, on_step=on_step,
            )  # fmt: skip
        for link in it.state.links:
            if link.query == made.name and link.how == "report":
                trained = link.evidence.get("trained on queries")
                console.print(
                    f"'{link.reason}' does not know whether {made.name} was trained on its queries."
                    if trained is None
                    else f"'{link.reason}' vouches for {made.name}, which was trained on {trained:,} of its queries."
                )
        known = [] if new.model is None else ["--model", str(new.model)]
        known += [] if new.model is None or new.name is None else ["--name", new.name]
        return _tell(it, gallery, {"started": made.name, "fingerprint": made.fingerprint}, known)


def link(
    gallery: GalleryUrl,
    *,
    evidence: Path | None = None,
    query: str | None = None,
    of: str | None = None,
    force: str | None = None,
) -> int:
    """Let queries of one model search the vectors of another, in a direction that a report measured.

    Args:
        evidence: results.json of `limpet evaluate`, or its folder, with --old the searched model and --new that of the
            queries.
        query: Generation whose model embeds the queries; the new or else the active one when left out.
        of: Generation whose vectors they search; the active one, or the one before it, when left out.
        force: A reason to do so without a passing report.

    Examples:
        limpet gallery link live --evidence runs/link-report
    """
    refuse(
        (evidence is None) == (force is None), "Both or neither of --evidence and --force were given.", "one of them"
    )
    with gallery.opened(WAIT) as it:
        asked, searched = _direction(it, query, of)
        made = it.link(asked, searched, report=evidence, force=force)
        console.print(f"Queries of {made.query} search vectors of {made.gallery} from now on.")
        return _tell(it, gallery, {"query": made.query, "gallery": made.gallery, "how": made.how})


def _direction(gallery: Gallery, query: str | None, of: str | None) -> tuple[str, str]:
    """Return whose queries are to search whose vectors: those of the upgrade that is under way."""
    state = gallery.state
    asked = query or state.target
    others = [name for name in (state.active, *reversed(state.previous)) if name != asked]
    if not of and not others:
        raise UpgradeStateError(
            f"The gallery has the generation {state.active} alone.",
            expected="two: one whose queries search, and one that is searched",
            to_do="start the upgrade first: `limpet upgrade start`.",
        )
    return asked, of or others[0]


def calibrate(gallery: GalleryUrl) -> int:
    """Let searches merge old and new vectors by scores on one scale, told without labels by items that have both.

    For an upgrade whose adapter maps queries or old vectors, once a part is backfilled. Until then hits are merged by
    rank where it maps queries, and by scores as they are where it maps vectors. What a query scores in either part is
    compared with what it scores on a cohort of up to 1,000 items that have vectors of both.

    Examples:
        limpet gallery calibrate live
    """
    with gallery.opened(WAIT) as it:
        made, items = it.calibrate()
        console.print(
            f"Hits of {made.query} and {made.gallery} are merged by score from now on, by a cohort of {items:,} items "
            "with vectors of both."
        )
        return _tell(it, gallery, {"query": made.query, "gallery": made.gallery, "items": items})


def swap(gallery: GalleryUrl, *, force: str | None, allow_missing: int) -> int:
    """Make the new model the active one."""
    refuse(force == "", "--force without a reason.", "--force REASON, for the log")
    with gallery.opened(WAIT) as it:
        state = it.swap(force=force, allow_missing=allow_missing)
        return _tell(it, gallery, {"active": state.active, "forced": force})


def rollback(gallery: GalleryUrl) -> int:
    """Make the old model active again."""
    with gallery.opened(WAIT) as it:
        only_new = it.rollback()
        found = it.status()
        console.print(f"{found.active} is active again.")
        if only_new:
            lost = found.items - next(one.covered for one in found.generations if one.name == found.active)
            console.print(
                f"{only_new:,} items were written since and have vectors of {found.target} only. They stay; queries of "
                f"{found.active} " + (f"do not find {lost:,} of them." if lost else "find them by these.")
            )
        return _tell(it, gallery, {"active": found.active, "only_new": only_new})


def finish(gallery: GalleryUrl, *, allow_missing: int) -> int:
    """Check every new vector and delete the old ones."""
    with gallery.opened(WAIT) as it:
        before = it.state.by_name
        with rate_progress("counting", None) as on_step:
            found = it.finish(allow_missing=allow_missing, on_step=on_step)
        console.print(f"{found.right:,} of {found.items:,} items have a right vector of {found.generation}.")
        removed = [name for name in before if name != found.generation]
        console.print(f"Removed the vectors of {', '.join(removed)}.")
        return _tell(it, gallery, {"generation": found.generation, "items": found.items, "right": found.right,
                              "missing": found.lacking, "removed": removed})  # fmt: skip


def cancel(gallery: GalleryUrl) -> int:
    """Delete the new vectors."""
    with gallery.opened(WAIT) as it:
        before = it.state.started
        it.cancel()
        console.print(f"Removed the vectors of {before}; {it.state.active} stays active.")
        return _tell(it, gallery, {"cancelled": before, "active": it.state.active})


def verify(gallery: GalleryUrl) -> int:
    """Read every vector of the new model, or else the active one; exit code 1 if one is wrong."""
    with gallery.opened() as it, rate_progress("reading", None) as on_step:
        found = it.check_vectors(on_step=on_step)
    console.print(f"{found.right:,} of {found.items:,} items have a right vector of {found.generation}.")
    for kind, count in found.wrong.items():
        console.print(f"Problem: {count:,} vectors are wrong ({kind}): {shown(found.named[kind], count)}.")
    print_json({**vars(found), "passed": not found.wrong})
    return int(bool(found.wrong))


def gc(gallery: GalleryUrl, *, older_than: float = 3600.0) -> int:
    """Free the room of vectors and files that nothing needs any more, and merge small files.

    Args:
        older_than: Keep files for readers that began within so many seconds.

    Examples:
        limpet gallery gc live
    """
    refuse(older_than < 0, f"--older-than {older_than}.", "at least 0 seconds")
    with gallery.opened(WAIT) as it:
        tidied = it.gc(older_than=older_than)
        console.print(f"{size(tidied.freed)} freed now.")
        if tidied.waiting and older_than:
            console.print(
                f"{size(tidied.waiting)} stay for readers that began within the last {duration(older_than)}: "
                f"{command('gallery gc', gallery, '--older-than', '0')} frees what is not being read."
            )
        return _tell(it, gallery, {"bytes_freed": tidied.freed, "bytes_waiting": tidied.waiting})


def _tell(it: Gallery, gallery: GalleryUrl, document: Mapping[str, object], known: Sequence[str] = ()) -> int:
    """Say what to type next, and for machines what was done."""
    from limpet.cli.gallery.words import next_commands, standing, tell_next

    found = it.status()
    for line in standing(found):
        console.print(line)
    steps = next_commands(found, gallery, known)
    tell_next(steps)
    print_json({**document, "phase": found.phase, "next": [typed for _, typed in steps]})
    return 0
