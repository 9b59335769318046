"""``limpet gallery status``."""

from __future__ import annotations

from limpet.cli.console import console, print_json, print_table
from limpet.cli.gallery.common import DECLARED, command, size
from limpet.cli.gallery.options import GalleryUrl
from limpet.errors import without_secrets
from limpet.galleries.next_steps import WORTH_A_WORD
from limpet.galleries.status import GenerationStatus


def status(gallery: GalleryUrl) -> int:
    """Show what the gallery holds: vectors of each model, their sizes and indexes, links, and metadata columns.

    `limpet upgrade status` shows the phase of an upgrade and the next command to run.

    Examples:
        limpet gallery status live
    """
    with gallery.opened() as it:
        found = it.status()
    columns = ["generation", "standing", "items", "found by its queries", "searches", "size", "indexed", "model"]
    rows = [
        [one.name, one.standing, f"{one.rows:,}", f"{one.covered:,}", ", ".join(one.searches), size(one.bytes),
         f"{one.indexed:,}", _called(one)]
        for one in found.generations
    ]  # fmt: skip
    print_table(f"{without_secrets(found.url)}: {found.items:,} items, {found.phase}", columns, rows)
    typed = ", ".join(f"{name} ({kind})" for name, kind in found.columns.items())
    console.print(f"\nMetadata columns: {typed or 'none'}.")
    for link in found.links:
        console.print(link.words)
    if found.waiting >= WORTH_A_WORD:
        console.print(f"{size(found.waiting)} are of earlier commits: `{command('gallery gc', gallery)}` frees them.")
    console.print(f"Next, to see what an upgrade needs: {command('upgrade status', gallery)}")
    print_json({**found.to_dict(), "url": without_secrets(found.url)})
    return 0


def _called(generation: GenerationStatus) -> str:
    declared = generation.fingerprint.startswith(DECLARED)
    name = generation.note or (generation.fingerprint.removeprefix(DECLARED) if declared else "")
    known = generation.fingerprint if declared else generation.fingerprint[:20]
    return known if not name or known == DECLARED + name else f"{name} ({known})"
