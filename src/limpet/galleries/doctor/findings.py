"""Findings of a diagnosis, one value per kind, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from limpet.errors import shown

Severity = Literal["error", "warning", "note"]

NAMED = 20  # ids kept of each kind


@dataclass(frozen=True)
class Finding:
    """One finding.

    Args:
        severity: "error" (answers are wrong or may become so), "warning" (something to do) or "note" (good to know).
        generation: Generation of the vectors, or None.
        count: Number of affected rows, items or links.
        says: The finding, in a sentence.
        to_do: The command or action to take next; empty for none.
    """

    kind: str
    severity: Severity
    generation: str | None = field(default=None, kw_only=True)
    count: int = field(default=1, kw_only=True)
    ids: tuple[str, ...] = field(default=(), kw_only=True)
    says: str
    to_do: str = ""

    @classmethod
    def of_ids(
        cls,
        kind: str,
        severity: Severity,
        what: str,
        to_do: str,
        ids: Sequence[str],
        *,
        count: int | None = None,
        generation: str | None = None,
    ) -> Finding:
        """Return a finding with the number of ids, what is wrong with them, and the first ids.

        Args:
            kind: A short name.
            severity: See `Finding`.
            what: The part of the sentence after the number.
            to_do: The next command or action.
            ids: All ids, or the first.
            count: Total number, if these are only the first.
            generation: Generation of the vectors, or None.
        """
        count = len(ids) if count is None else count
        named = f": {shown(ids, count)}" if ids else ""
        says = f"{count:,} {what}{named}."
        return cls(kind, severity, says, to_do, generation=generation, count=count, ids=tuple(ids[:NAMED]))

    def __str__(self) -> str:
        return f"{self.severity}: {self.says}" + (f"\n  Next: {self.to_do}" if self.to_do else "")


@dataclass(frozen=True)
class Diagnosis:
    """All findings of a diagnosis.

    Args:
        sequence: Last commit that was checked; None for an index that is no gallery.
        rows: Number of vectors read, by generation; by its name for an index that is no gallery.
        sampled: Number of items per generation that were checked more closely.
    """

    url: str
    sequence: int | None
    items: int
    rows: dict[str, int]
    sampled: int
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def healthy(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {**asdict(self), "healthy": self.healthy}
