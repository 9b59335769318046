"""``limpet gallery link``, ``calibrate`` and ``gc``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.console import console, print_json
from limpet.cli.gallery.common import command, size
from limpet.cli.gallery.options import WAIT, GalleryUrl
from limpet.errors import UpgradeStateError, refuse
from limpet.galleries.upgrade import GalleryUpgrade
from limpet.support.wording import duration
from limpet.upgrade.status import next_lines

if TYPE_CHECKING:
    from limpet.galleries import Gallery


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
        evidence: results.json of `limpet evaluate`, or its folder: --old is the searched model, --new that of the
            queries.
        query: Generation whose model embeds the queries. Default: the new one, or else the active one.
        of: Generation whose vectors they search. Default: the active one, or the one before it.
        force: Reason to link the models without a passing report.

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
    """Put scores of old and new vectors on one scale, so that searches merge hits by score.

    Use it in an upgrade whose adapter maps queries or old vectors, after a part is backfilled. Until then, hits are
    merged by rank if it maps queries, and by raw score if it maps vectors. No labels are needed: the scores of a query
    are compared with those on a cohort of up to 1,000 items that have both vectors.

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


def gc(gallery: GalleryUrl, *, older_than: float = 3600.0) -> int:
    """Delete vectors and files that are no longer needed, and merge small files.

    Args:
        older_than: Maximum age of active readers in seconds; files that they may still use are kept.

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


def _tell(it: Gallery, gallery: GalleryUrl, document: Mapping[str, object]) -> int:
    found = GalleryUpgrade(it).status()
    for line in (*found.lines(), *next_lines(found.next, gallery)):
        console.print(line)
    print_json(document)
    return 0
