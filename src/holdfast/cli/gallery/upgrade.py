"""The steps of an upgrade: ``holdfast gallery prepare``, ``link``, ``swap``, ``complete``, ``rollback`` and so on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.console import console, print_json, rate_progress
from holdfast.cli.gallery.common import command, duration, model_of, opened, size
from holdfast.errors import UpgradeStateError, refuse

if TYPE_CHECKING:
    from holdfast.galleries import Gallery


def prepare(
    gallery: str,
    release: Path | None = None,
    model: str | None = None,
    dim: int | None = None,
    embeddings: Path | None = None,
    report: list[Path] = [],  # noqa: B006 - read only, shown as the default
    adapter: Path | None = None,
    score_map: Path | None = None,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Make room for the vectors of a new model; nothing that is served changes.

    Args:
        gallery: Where it is.
        release: Release of the new model.
        model: What you call a model of vectors made elsewhere, with --dim; or of an .npz, .npy or .parquet file.
        dim: Dimension of those vectors.
        embeddings: Embeddings by the new model, a file or folder, of which only the identity is taken here.
        report: results.json of `holdfast evaluate`, or its folder: whether new queries may search vectors that are
            there.
        adapter: Folder of an adapter that `holdfast adapt` fitted between the active and the new model: it maps new
            queries, or all stored vectors now.
        score_map: With an adapter of queries: a file like score_map.json that takes scores on old vectors to those on
            new ones, so that both lists become one by score; they are merged by rank when left out.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery prepare --gallery live --release runs/link/head --report runs/link-report
    """
    refuse(score_map is not None and adapter is None, "--score-map without --adapter.", "both, or neither")
    new = model_of(release, model, dim, embeddings)
    links: dict[str, Any] = {"reports": report, "adapter": adapter, "score_map": score_map}
    with opened(gallery, wait) as it:
        with rate_progress("mapping stored vectors", None) as on_step:
            made = it.prepare(new.fingerprint, new.space, **links, note=new.note, on_step=on_step)
        return _told(it, gallery, {"prepared": made.name, "fingerprint": made.fingerprint}, json)


def link(
    gallery: str,
    report: Path | None = None,
    query: str | None = None,
    of: str | None = None,
    force: str | None = None,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Let queries of one model search the vectors of another, in a direction that a report measured.

    Args:
        gallery: Where it is.
        report: results.json of `holdfast evaluate`, or its folder, with --old the searched model and --new that of the
            queries.
        query: Generation whose model embeds the queries; the prepared or else the active one when left out.
        of: Generation whose vectors they search; the active one, or the one before it, when left out.
        force: A reason to do so without a passing report.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery link --gallery live --report runs/link-report
    """
    refuse((report is None) == (force is None), "Both or neither of --report and --force were given.", "one of them")
    with opened(gallery, wait) as it:
        asked, searched = _direction(it, query, of)
        made = it.link(asked, searched, report=report, force=force)
        console.print(f"Queries of {made.query} search vectors of {made.gallery} from now on.")
        return _told(it, gallery, {"query": made.query, "gallery": made.gallery, "how": made.how}, json)


def _direction(gallery: Gallery, query: str | None, of: str | None) -> tuple[str, str]:
    """Return whose queries are to search whose vectors: those of the upgrade that is under way."""
    state = gallery.state
    asked = query or state.target
    others = [name for name in (state.active, *reversed(state.previous)) if name != asked]
    if not of and not others:
        raise UpgradeStateError(
            f"The gallery has the generation {state.active} alone.",
            expected="two: one whose queries search, and one that is searched",
            to_do="prepare the new model first: `holdfast gallery prepare`; nothing was changed.",
        )
    return asked, of or others[0]


def swap(gallery: str, force: str | None = None, wait: float = 10.0, json: bool = False) -> int:
    """Make the prepared model the active one: queries, new items and the rule of search change at once.

    Refused while its queries would miss items: then a passing report, an adapter or a backfill comes first.

    Args:
        gallery: Where it is.
        force: A reason to swap all the same, which is recorded.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery swap --gallery live
    """
    refuse(force == "", "--force without a reason.", "--force REASON, for the journal")
    with opened(gallery, wait) as it:
        state = it.swap(force=force)
        return _told(it, gallery, {"active": state.active, "forced": force}, json)


def complete(gallery: str, allow_missing: bool = False, wait: float = 10.0, json: bool = False) -> int:
    """Read every vector of the active model, and declare the upgrade finished if there is a right one for every item.

    Args:
        gallery: Where it is.
        allow_missing: Finish although items lack a new vector; how many is recorded, and they are not found any more
            after gc.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery complete --gallery live
    """
    with opened(gallery, wait) as it, rate_progress("counting", None) as on_step:
        found = it.complete(allow_missing=allow_missing, on_step=on_step)
    console.print(f"{found.right:,} of {found.items:,} items have a right vector of {found.generation}.")
    with opened(gallery) as it:
        return _told(it, gallery, {"generation": found.generation, "items": found.items, "right": found.right,
                                   "missing": found.lacking}, json)  # fmt: skip


def rollback(gallery: str, wait: float = 10.0, json: bool = False) -> int:
    """Make the former model active again, at once and without embedding anything; nothing is deleted.

    Args:
        gallery: Where it is.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery rollback --gallery live
    """
    with opened(gallery, wait) as it:
        only_new = it.rollback()
        found = it.status()
        console.print(f"{found.active} is active again.")
        if only_new:
            lost = found.items - next(one.covered for one in found.generations if one.name == found.active)
            console.print(
                f"{only_new:,} items were written since and have vectors of {found.target} only. They stay; queries of "
                f"{found.active} " + (f"do not find {lost:,} of them." if lost else "find them by these.")
            )
        return _told(it, gallery, {"active": found.active, "only_new": only_new}, json)


def abandon(gallery: str, wait: float = 10.0, json: bool = False) -> int:
    """Give up the prepared model; its vectors are not searched any more, and stay until gc.

    Args:
        gallery: Where it is.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery abandon --gallery live
    """
    with opened(gallery, wait) as it:
        before = it.state.prepared
        it.abandon()
        console.print(f"{before} is given up; {it.state.active} stays active.")
        return _told(it, gallery, {"abandoned": before, "active": it.state.active}, json)


def gc(gallery: str, older_than: float = 3600.0, wait: float = 10.0, json: bool = False) -> int:
    """Remove abandoned vectors and, once an upgrade is complete, those of former models: no rollback after that.

    Args:
        gallery: Where it is.
        older_than: Keep files for readers that began within so many seconds.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery gc --gallery live
    """
    refuse(older_than < 0, f"--older-than {older_than}.", "at least 0 seconds")
    with opened(gallery, wait) as it:
        before = {*it.state.by_name, *it.state.retired}
        tidied = it.gc(older_than=older_than)
        gone = sorted(before - set(it.state.by_name))
        console.print(f"Removed {', '.join(gone) or 'no generation'}; {size(tidied.freed)} freed now.")
        if tidied.waiting and older_than:
            console.print(
                f"{size(tidied.waiting)} stay for readers that began within the last {duration(older_than)}: "
                f"{command('gc', gallery, '--older-than', '0')} frees what nobody is reading."
            )
        return _told(it, gallery, {"removed": gone, "bytes_freed": tidied.freed, "bytes_waiting": tidied.waiting}, json)


def _told(gallery: Gallery, url: str, document: dict[str, Any], json: bool) -> int:
    """Say what to type next, and for machines what was done."""
    from holdfast.cli.gallery.words import next_commands, standing

    found = gallery.status()
    for line in standing(found):
        console.print(line)
    steps = next_commands(found, url)
    for purpose, typed in steps:
        console.print(f"Next, to {purpose}: {typed}")
    if json:
        print_json({**document, "phase": found.phase, "next": [typed for _, typed in steps]})
    return 0
