"""One of the two models of an upgrade, as users and the ledger name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpgradeModel:
    """One of the two models.

    Args:
        fingerprint: Fingerprint of the model; ``declared:<name>`` for a model that only the user names.
        options: Command-line arguments that name the source of its vectors, such as ``--model st:minilm``.
    """

    fingerprint: str
    dim: int
    note: str = ""
    options: str = ""

    @property
    def declared(self) -> bool:
        """Whether only the user names it."""
        return self.fingerprint.startswith("declared:")

    @property
    def called(self) -> str:
        """Display name: its name and the start of a long fingerprint, or the declared fingerprint.

        >>> UpgradeModel("text:67685388f97a2ce4", 384, "minilm").called, UpgradeModel("declared:v1", 8, "v1").called
        ('minilm (text:67685388…)', 'declared:v1')
        """
        if self.declared or not self.note:
            return self.fingerprint
        kind, _, digest = self.fingerprint.partition(":")
        return f"{self.note} ({kind}:{digest[:8]}…)"
