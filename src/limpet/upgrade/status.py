"""The status of an upgrade and the next commands, regardless of who owns the rows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from limpet.engines.collection import IndexStatus
from limpet.engines.sides import SIDES, ModelSide
from limpet.errors import without_secrets
from limpet.support.reporting import Reported
from limpet.upgrade.lifecycle import Phase
from limpet.upgrade.model import UpgradeModel

_PLACEHOLDERS = {
    "NEW": "what you call the new model",
    "OLD": "what you call the model of the existing vectors",
    "MODEL": "the new model, SCHEME:PLACE, such as release:FOLDER",
    "TEXTS": "the texts of the items, by name or file",
    "DATA": "the images of the items, by name or folder",
    "FILE": "a file of embeddings by the new model",
}


@dataclass(frozen=True)
class NextStep:
    """A command that the user can run next.

    Args:
        purpose: Purpose of the command, in words that follow "to".
        words: The command: the words after `limpet GROUP`, without the URL that follows the first of them.
    """

    purpose: str
    words: tuple[str, ...]
    group: Literal["upgrade", "gallery"] = "upgrade"

    def command(self, url: str) -> str:
        """Return the command to paste, without a password.

        >>> NextStep("activate the new model", ("swap", "--writes", "new")).command("my gallery")
        "limpet upgrade swap 'my gallery' --writes new"
        """
        first, *others = self.words
        return shlex.join(["limpet", self.group, first, without_secrets(url), *others])


@dataclass(frozen=True)
class GalleryFacts:
    """The part of the status that only a gallery has, since it answers the queries itself.

    Args:
        generations: Names of the generations that hold the vectors of each model.
        found: Number of items that queries of each model find.
        links: Why queries of one model search vectors of another, in words.
    """

    generations: Mapping[ModelSide, str]
    found: Mapping[ModelSide, int]
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApplicationFacts:
    """The part of the status that only an index has whose rows an application owns.

    Args:
        empty: Number of items for which the application itself keeps no vector; they get none.
        holding: Number of items with a vector of each model in a column that both share, without vectors of earlier
            texts; empty if each model has a column.
        without_text: Number of items that lack a vector and have no text to embed; for a collection, as the last
            backfill found.
        texts: Whether the source of the embedded text is known.
        unknown: Number of items with vectors of an unknown model or text, since they were written
            without our triggers. They count as lacking.
        queries: Queries that the application can use, by purpose.
    """

    empty: int = 0
    holding: Mapping[ModelSide, int] = field(default_factory=dict)
    without_text: Mapping[ModelSide, int] = field(default_factory=dict)
    texts: bool = False
    unknown: int = 0
    queries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class UpgradeStatus(Reported):
    """The status of an upgrade, read at one point in time.

    Args:
        place: The upgraded index, in words, without secrets.
        serving: The model whose vectors queries search; in a shared column, the model to embed queries with.
        writes: The model that new vectors are written with.
        items: Number of items that have or should have a vector.
        lacking: Number of items without an up-to-date vector of each model.
        gallery: The part that only a gallery has; None for an index that an application owns.
        application: The part that only an index of an application has; None for a gallery.
        notes: Notes of opening the upgrade and of its last step, in words.
        next: The next commands, the most useful first.
    """

    place: str
    phase: Phase
    old: UpgradeModel
    new: UpgradeModel
    serving: ModelSide
    writes: ModelSide
    items: int
    lacking: Mapping[ModelSide, int]
    indexes: tuple[IndexStatus, ...] = ()
    gallery: GalleryFacts | None = None
    application: ApplicationFacts | None = None
    notes: tuple[str, ...] = ()
    next: tuple[NextStep, ...] = ()

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        return self.new if side == "new" else self.old

    def to_dict(self, url: str) -> dict[str, object]:
        """Return plain values, with the next commands as you type them.

        Args:
            url: URL of the index, as the user gave it.
        """
        steps = [{"purpose": step.purpose, "command": step.command(url)} for step in self.next]
        return {"url": without_secrets(url), **asdict(self), "next": steps}

    def lines(self) -> list[str]:
        """Return the status in words, line by line."""
        sides: tuple[ModelSide, ...] = (self.serving,) if self.phase == "steady" else SIDES
        said = [f"{self.place}: {self.phase}, {self.items:,} items. {self._serving()}", *map(self._filled, sides)]
        if self.gallery is not None:
            said += self.gallery.links
        if self.application is not None:
            said += self._of_application(self.application)
        return [
            *said,
            *(f"Index {one.name}: {'built' if one.built else 'not built'}." for one in self.indexes),
            *(f"Note: {note}" for note in self.notes),
        ]

    def _serving(self) -> str:
        serving, writes = self.model(self.serving).called, self.model(self.writes).called
        if self.application is None:
            return f"Queries and new items are those of {serving}."
        asked = f"Queries are to be of {serving}" if self.application.holding else f"{serving} serves"
        return f"{asked}, and the application writes with {writes}."

    def _filled(self, side: ModelSide) -> str:
        done = self.items - self.lacking[side]
        said = f"{bar(done, self.items)}  {done:,} of {self.items:,} items have a vector of {self.model(side).called}"
        said += f" ({share_of(done, self.items)})"
        if self.gallery is None:
            blank = 0 if self.application is None else self.application.without_text.get(side, 0)
            return f"{side}  {said}{f'; {blank:,} of the others are without text' if blank else ''}."
        found = self.gallery.found[side]
        return f"{self.gallery.generations[side]}  {said}{f'; its queries find {found:,}' if found != done else ''}."

    def _of_application(self, facts: ApplicationFacts) -> list[str]:
        said = []
        if facts.holding:
            held = " and ".join(f"{count:,} of {self.model(side).called}" for side, count in facts.holding.items())
            said.append(f"Vectors of both models share the column: {held}.")
        if facts.empty:
            said.append(f"{facts.empty:,} rows have no vector of the application, and get none.")
        if facts.unknown:
            said.append(f"{facts.unknown:,} rows were written without our triggers: vectors of both models are to be "
                        "made.")  # fmt: skip
        return [*said, *(f"For the application, {purpose}:\n  {query}" for purpose, query in facts.queries.items())]


def next_lines(steps: Sequence[NextStep], url: str) -> list[str]:
    """Return the next commands, and what their placeholders mean."""
    said = [f"Next, to {step.purpose}: {step.command(url)}" for step in steps]
    open_ = [word for word in _PLACEHOLDERS if any(word in step.words for step in steps)]
    return said + ["; ".join(f"{word}: {_PLACEHOLDERS[word]}" for word in open_) + "."] * bool(open_)


def bar(part: int, whole: int, width: int = 24) -> str:
    """Draw a bar for a share, never rounded to all or nothing.

    >>> bar(1, 2, 8), bar(1, 1000, 8), bar(999, 1000, 8), bar(5, 5, 8), bar(0, 0, 2)
    ('████····', '█·······', '███████·', '████████', '██')
    """
    full = width if part >= whole else 0 if part <= 0 else min(width - 1, max(1, round(width * part / whole)))
    return "█" * full + "·" * (width - full)


def share_of(part: int, whole: int) -> str:
    """Write a share in per cent, never rounded to all or nothing.

    >>> share_of(1, 3), share_of(99_999, 100_000), share_of(1, 100_000), share_of(5, 5), share_of(0, 0)
    ('33 %', 'over 99 %', 'under 1 %', '100 %', '100 %')
    """
    if part >= whole:
        return "100 %"
    percent = round(100 * part / whole)
    return "over 99 %" if percent == 100 else "under 1 %" if percent == 0 < part else f"{percent} %"
