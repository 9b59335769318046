"""One of the two models of an upgrade, as people and the ledger name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpgradeModel:
    """One of the two models.

    Args:
        fingerprint: Of the model; ``declared:<name>`` of one that only a person names.
        options: Words that name what makes its vectors on the command line, such as ``--model st:minilm``.
    """

    fingerprint: str
    dim: int
    note: str = ""
    options: str = ""

    @property
    def declared(self) -> bool:
        """Whether only a person names it."""
        return self.fingerprint.startswith("declared:")

    @property
    def called(self) -> str:
        """How to call it to people: by its name and the beginning of a long fingerprint, or by what they declared.

        >>> UpgradeModel("text:67685388f97a2ce4", 384, "minilm").called, UpgradeModel("declared:v1", 8, "v1").called
        ('minilm (text:67685388…)', 'declared:v1')
        """
        if self.declared or not self.note:
            return self.fingerprint
        kind, _, digest = self.fingerprint.partition(":")
        return f"{self.note} ({kind}:{digest[:8]}…)"
