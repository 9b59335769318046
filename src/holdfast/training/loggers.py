"""Where the numbers of a training run go beside ``events.jsonl``: loggers of Lightning Fabric, or any like them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from holdfast.extras import needing, require


class Logger(Protocol):
    """What a run is told to; all loggers of Lightning are such."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> Any:
        """Take the numbers of a step."""

    def finalize(self, status: str) -> Any:
        """Write what is left."""


OpenLogger = Callable[[Path], Logger]
"""Opens a logger for the run in a folder."""


def tensorboard(folder: Path) -> Logger:
    """Write TensorBoard's event files into the folder.

    Raises:
        MissingExtraError: TensorBoard is not installed.
    """
    require("The logger tensorboard", "tensorboard")
    with needing("The logger tensorboard"):
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger
    return TensorBoardLogger(folder, name="", version="")


def csv(folder: Path) -> Logger:
    """Write ``csv/version_N/metrics.csv`` below the folder; a run that is continued begins another version."""
    with needing("The logger csv"):
        from lightning_fabric.loggers.csv_logs import CSVLogger
    return CSVLogger(folder, name="csv")


LOGGERS: Mapping[str, OpenLogger] = {"tensorboard": tensorboard, "csv": csv}
"""By the names that `holdfast train --logger` takes."""
