"""Loggers for training metrics in addition to ``events.jsonl``: those of Lightning Fabric, or compatible ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from limpet.support.extras import needing, require

Numbers = dict[str, Any]
"""Metrics of a step by name; some loggers also accept tensors, others only single numbers."""


class Logger(Protocol):
    """Logger of a run; all Lightning loggers conform to this protocol."""

    def log_metrics(self, metrics: Numbers, step: int | None = None) -> Any:
        """Log the metrics of a step."""

    def finalize(self, status: str) -> Any:
        """Write all pending metrics."""


OpenLogger = Callable[[Path], Logger]
"""Function that opens a logger for the run in a folder."""


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
    """Write ``csv/version_N/metrics.csv`` below the folder; a resumed run starts another version."""
    with needing("The logger csv"):
        from lightning_fabric.loggers.csv_logs import CSVLogger
    return CSVLogger(folder, name="csv")


def mlflow(folder: Path) -> Logger:
    """Write ``mlflow.db`` into the folder, which ``mlflow ui --backend-store-uri sqlite:///…/mlflow.db`` shows.

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    require("The logger mlflow", "mlflow")
    with needing("The logger mlflow"):
        from lightning.pytorch.loggers import MLFlowLogger
    place = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    return MLFlowLogger("limpet", run_name=folder.name, tracking_uri=place)


def wandb(folder: Path) -> Logger:
    """Write ``wandb/offline-run-…`` into the folder; nothing is uploaded until you run ``wandb sync``.

    Raises:
        MissingExtraError: wandb is not installed.
    """
    require("The logger wandb", "wandb")
    with needing("The logger wandb"):
        from lightning.pytorch.loggers import WandbLogger

    class OfOneRun(WandbLogger):  # the library's own run ends with the process, which may train again
        def finalize(self, status: str) -> None:
            super().finalize(status)
            self.experiment.finish()

    return OfOneRun(folder.name, save_dir=folder, project="limpet", offline=True, log_model=False)


LOGGERS: Mapping[str, OpenLogger] = {"tensorboard": tensorboard, "csv": csv, "mlflow": mlflow, "wandb": wandb}
"""Logger openers by the names that `limpet train --logger` accepts."""
