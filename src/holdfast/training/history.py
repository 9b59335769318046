"""What a run leaves behind beside its weights, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

HISTORY = "history.json"


@dataclass
class History:
    """What a run leaves behind beside its weights.

    Args:
        epochs: For every epoch the mean of each loss term and of their sum ("loss"), what the method measured at its
            start, and the score of `select`.
        best_epoch: Number of the epoch whose weights were kept; None without `select`.
        seconds: How long the run took, without what an interruption lost.
        images: How many images this process trained on, each as often as it was seen.
        waiting: For how many of these seconds the loop waited for its next batch. Without worker processes and with
            data on the CPU, it reads and augments in that time.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    seconds: float = field(default=0.0, compare=False)
    images: int = 0
    waiting: float = field(default=0.0, compare=False)

    @property
    def waiting_share(self) -> float:
        """Share of `seconds` that the loop waited for data, from 0 to 1; 0 before it has run."""
        return self.waiting / self.seconds if self.seconds > 0 else 0.0


def save_history(history: History, folder: Path) -> None:
    """Write the epochs of a finished run to ``history.json``."""
    text = json.dumps(dataclasses.asdict(history), indent=1) + "\n"
    write_atomically(folder / HISTORY, lambda part: part.write_text(text, encoding="utf-8"))


def load_history(folder: Path) -> History:
    """Read what `save_history` wrote.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        return History(**json.loads((folder / HISTORY).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"Cannot read '{folder / HISTORY}': {error}.",
            expected="the epochs of a finished run",
            to_do=f"remove the folder '{folder}' to run it again.",
        ) from error
