"""What a gallery's status means, in sentences, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from limpet.cli.console import console
from limpet.cli.gallery.common import DECLARED, command, size
from limpet.galleries.next_steps import WORTH_A_WORD, next_steps, source_words
from limpet.galleries.state import Link
from limpet.galleries.status import GenerationStatus, Status
from limpet.upgrade.base import NextStep

Table = tuple[list[str], list[list[str]]]

_WHY = {
    "report": "a passing compatibility report",
    "adapter": "an adapter of its queries",
    "mapped": "an adapter of the vectors",
    "forced": "force, without a passing report",
}


_TO_FILL_IN = {
    "NEW": "what you call the new model",
    "MODEL": "the new model, SCHEME:PLACE, such as release:FOLDER",
    "TEXTS": "the texts of the items, by name or file",
    "DATA": "the images of the items, by name or folder",
    "FILE": "a file of embeddings by the new model",
}


def bar(share: float, width: int = 24) -> str:
    """Draw a share.

    >>> bar(0.5, 8), bar(0.001, 8), bar(0.999, 8), bar(1, 8)
    ('████····', '█·······', '███████·', '████████')
    """
    full = 0 if share <= 0 else width if share >= 1 else min(width - 1, max(1, round(share * width)))
    return "█" * full + "·" * (width - full)


def share_of(part: int, whole: int) -> str:
    """Write a part of a whole in per cent, never rounded to all or nothing.

    >>> share_of(1, 3), share_of(99_999, 100_000), share_of(1, 100_000), share_of(5, 5), share_of(0, 0)
    ('33 %', 'over 99 %', 'under 1 %', '100 %', '100 %')
    """
    if part >= whole:
        return "100 %"
    percent = round(100 * part / whole)
    return "over 99 %" if percent == 100 else "under 1 %" if percent == 0 < part else f"{percent} %"


def called(generation: GenerationStatus) -> str:
    """Return what a generation's model is called, and whether only a person says so."""
    declared = generation.fingerprint.startswith(DECLARED)
    name = generation.note or (generation.fingerprint.removeprefix(DECLARED) if declared else "")
    known = generation.fingerprint if declared else generation.fingerprint[:20]
    return known if not name or known == DECLARED + name else f"{name} ({known})"


def generations_table(found: Status) -> Table:
    """Return one row per generation."""
    columns = ["generation", "standing", "items", "found by its queries", "searches", "size", "indexed", "model"]
    rows = [
        [one.name, one.standing, f"{one.rows:,}", f"{one.covered:,}", ", ".join(one.searches), size(one.bytes),
         f"{one.indexed:,}", called(one)]
        for one in found.generations
    ]  # fmt: skip
    return columns, rows


def backfilled(found: Status) -> str:
    """Return the bar of the items that have a vector of the generation to be filled."""
    done = found.items - found.lacking
    share = done / found.items if found.items else 1.0
    return f"{found.target}  {bar(share)}  {done:,} of {found.items:,} items ({share_of(done, found.items)})"


def standing(found: Status) -> list[str]:
    """Say where the gallery and its upgrade stand."""
    known = {one.name: one for one in found.generations}
    said = [_PHASES[found.phase](found, known)]
    if found.lacking:
        said += [_link_words(link) for link in found.links if link.query == found.target]
    if found.waiting >= WORTH_A_WORD:
        said.append(f"{size(found.waiting)} are of earlier commits; gc frees them.")
    return said


def _steady(found: Status, known: dict[str, GenerationStatus]) -> str:
    missing = f" {found.lacking:,} items have no vector of it." if found.lacking else ""
    return f"No upgrade is under way: queries and new items are those of {found.active}.{missing}"


def _started(found: Status, known: dict[str, GenerationStatus]) -> str:
    new = known[found.target]
    return (
        f"{found.active} is active, and the upgrade to {new.name} is started: its queries would find "
        f"{new.covered:,} of {found.items:,} items now ({share_of(new.covered, found.items)})."
    )


def _swapped(found: Status, known: dict[str, GenerationStatus]) -> str:
    new, left = known[found.active], found.items - known[found.active].covered
    by_old = f", {new.covered - new.rows:,} by other vectors" if new.covered > new.rows else ""
    lost = f"; {left:,} items are not found" if left else ""
    return f"{new.name} is active: its queries find {new.rows:,} items by their new vectors{by_old}{lost}."


_PHASES = {"steady": _steady, "started": _started, "swapped": _swapped}


def _link_words(link: Link) -> str:
    reason = f" ({link.reason})" if link.reason else ""
    return f"{link.query} searches vectors of {link.gallery}, too, because of {_WHY[link.how]}{reason}."


def next_commands(found: Status, url: str, known: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return what to type next, each with what it is for, the most sensible first; see `next_steps`."""
    return typed(next_steps(found, known), url)


def typed(steps: Sequence[NextStep], url: str) -> list[tuple[str, str]]:
    """Return steps as purposes and commands to paste."""
    return [(step.purpose, step.command(url)) for step in steps]


def fill_command(found: Status, url: str) -> str:
    """Return what gives the items that lack one a vector of the generation to be filled."""
    return command("upgrade backfill", url, *source_words(found))


def tell_next(steps: Sequence[tuple[str, str]]) -> None:
    """Say what to type next, and what of it people have to fill in themselves."""
    for purpose, typed in steps:
        console.print(f"Next, to {purpose}: {typed}")
    open_ = [word for word in _TO_FILL_IN if any(word in shlex.split(typed) for _, typed in steps)]
    if open_:
        console.print("; ".join(f"{word}: {_TO_FILL_IN[word]}" for word in open_) + ".")
