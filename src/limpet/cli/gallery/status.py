"""``limpet gallery status``, and ``limpet upgrade log`` of a gallery."""

from __future__ import annotations

import time
from collections.abc import Mapping

from limpet.cli.console import console, print_json, print_table
from limpet.cli.gallery.options import GalleryUrl
from limpet.errors import without_secrets

_SHOWN_ELSEWHERE = ("kind", "links", "evidence", "space", "columns", "bridge", "state")


def status(gallery: GalleryUrl) -> int:
    """Show where the gallery and its upgrade stand, and what to type next.

    Examples:
        limpet gallery status live
    """
    from limpet.cli.gallery.words import backfilled, generations_table, next_commands, standing, tell_next

    with gallery.opened() as it:
        found = it.status()
    said, steps = standing(found), next_commands(found, gallery)
    print_table(f"{without_secrets(found.url)}: {found.items:,} items, {found.phase}", *generations_table(found))
    if found.lacking or found.phase != "steady":
        console.print(f"\n{backfilled(found)}")
    console.print()
    for line in said:
        console.print(line)
    tell_next(steps)
    print_json({**found.to_dict(), "url": without_secrets(found.url), "says": said,
                   "next": [{"to": purpose, "type": typed} for purpose, typed in steps]})  # fmt: skip
    return 0


def log(gallery: GalleryUrl, *, last: int) -> int:
    """List what was done to the gallery, last entries last."""
    with gallery.opened() as it:
        entries = it.store.journal(after=max(0, it.store.pointer().sequence - last))
    print_table(
        "Log", ["commit", "time (UTC)", "what", "details"],
        [[str(entry.sequence), time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.time)), str(entry.event["kind"]),
          _details(entry.event)] for entry in entries],
    )  # fmt: skip
    found = [{"sequence": one.sequence, "time": one.time, "event": dict(one.event)} for one in entries]
    print_json({"entries": found})
    return 0


def _details(event: Mapping[str, object]) -> str:
    """Write what an entry says, its longer values left to --json.

    >>> _details({"kind": "backfill", "generation": "g2", "embedded": 512})
    'generation g2, embedded 512'
    >>> _details({"kind": "repair", "to": 7, "state": {"active": "g1"}})
    'to 7'
    """
    shown = {name: value for name, value in event.items() if name not in _SHOWN_ELSEWHERE and value not in (None, [])}
    named = {
        name: value.get("name", _link(value)) if isinstance(value, Mapping) else value for name, value in shown.items()
    }
    return ", ".join(f"{name} {value}" for name, value in named.items())


def _link(record: Mapping[str, object]) -> str:
    return f"{record.get('query')} to {record.get('gallery')} ({record.get('how')})"
