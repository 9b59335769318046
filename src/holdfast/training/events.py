"""The log of a training run: one JSON object a line, and the same for TensorBoard where that is wanted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.errors import ConfigError


class EventLog:
    """Appends what `fit` reports to ``events.jsonl``: every n-th step and the last of each epoch.

    Args:
        folder: Where the file is written.
        every: Steps between two lines.
        tensorboard: Also write TensorBoard's event files into the folder.
        then: Told every event as well, such as a progress bar.

    Raises:
        ConfigError: TensorBoard was asked for and is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        every: int = 20,
        tensorboard: bool = False,
        then: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "events.jsonl").open("a", encoding="utf-8")
        self._every, self._then = every, then
        self._writer = _tensorboard_writer(folder) if tensorboard else None
        self._images, self._since = 0, time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one event of `fit`."""
        self._images += event["images"]
        if event["step"] % self._every == 0 or event["step"] + 1 == event["steps"]:
            self._write(event)
        if self._then is not None:
            self._then(event)

    def _write(self, event: dict[str, Any]) -> None:
        seconds = time.monotonic() - self._since
        line = {
            "epoch": event["epoch"],
            "step": event["step"],
            "loss": float(event["loss"]),
            "terms": {name: float(value) for name, value in event["terms"].items()},
            "learning_rate": event["learning_rate"],
            "images_per_second": round(self._images / max(seconds, 1e-9), 1),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._writer is not None:
            done = event["epoch"] * event["steps"] + event["step"]
            for name, value in {"loss": line["loss"], **line["terms"], "learning_rate": line["learning_rate"]}.items():
                self._writer.add_scalar(name, value, done)
        self._images, self._since = 0, time.monotonic()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _tensorboard_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "TensorBoard was asked for and is not installed.", to_do="pip install 'holdfast[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder))
