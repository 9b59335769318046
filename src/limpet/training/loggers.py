"""Where the numbers of a training run go beside ``events.jsonl``: loggers of Lightning Fabric, or any like them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from limpet.support.extras import needing, require

Numbers = dict[str, Any]
"""Numbers of a step by name; loggers differ in what else they take: tensors, single numbers only."""


class Logger(Protocol):
    """Logger of a run; all Lightning loggers conform to this protocol."""

    def log_metrics(self, metrics: Numbers, step: int | None = None) -> Any:
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
    """Write ``wandb/offline-run-…`` into the folder, and send nothing; ``wandb sync`` does.

    Raises:
        MissingExtraError: wandb is not installed.
    """
    require("The logger wandb", "wandb")
    with needing("The logger wandb"):
        from lightning.pytorch.loggers import WandbLogger

    class OfOneRun(WandbLogger):  # the library's own ends with the process, which may train again
        def finalize(self, status: str) -> None:
            super().finalize(status)
            self.experiment.finish()

    return OfOneRun(folder.name, save_dir=folder, project="limpet", offline=True, log_model=False)


LOGGERS: Mapping[str, OpenLogger] = {"tensorboard": tensorboard, "csv": csv, "mlflow": mlflow, "wandb": wandb}
"""By the names that `limpet train --logger` takes."""
