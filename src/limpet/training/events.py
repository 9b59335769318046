"""The log of a training run in JSON lines, optionally forwarded to other loggers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

from limpet.errors import ConfigError
from limpet.support.disk import read_text
from limpet.training.loggers import OpenLogger

if TYPE_CHECKING:
    from torch import Tensor


class TrainingStep(TypedDict):
    """The event of a training step; values that are still on the device are tensors.

    Args:
        epoch: Number of the epoch, from 0.
        step: Number of the step in its epoch, from 0.
        steps: Number of steps per epoch.
        loss: Sum of the loss terms, before the weights are updated.
        measures: Measures of the method at the start of the epoch.
        images: Number of items that this process saw in the step.
        done: Number of steps in all epochs so far.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: Tensor
    terms: dict[str, Tensor]
    measures: dict[str, float]
    learning_rate: float
    images: int
    done: int
    total: int


class EventLog:
    """Appends the events of `fit` to ``events.jsonl``: every n-th step and the last of each epoch.

    Args:
        folder: Output folder.
        loggers: Openers of further loggers; see `limpet.training.loggers`.
        then: Callback for every event, such as a progress bar.

    Raises:
        ConfigError: The folder is not writable, or a package that a logger needs is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        every: int = 20,
        loggers: Sequence[OpenLogger] = (),
        then: Callable[[TrainingStep], object] | None = None,
    ) -> None:
        self._path = folder / "events.jsonl"
        self._file: TextIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        self._every, self._then = every, then
        self._loggers = [opened(folder) for opened in loggers]
        self._images, self._since = 0, time.monotonic()

    def __call__(self, event: TrainingStep) -> None:
        """Take one event of `fit`."""
        self._images += event["images"]
        if event["step"] % self._every == 0 or event["step"] + 1 == event["steps"]:
            self._write(event)
        if self._then is not None:
            self._then(event)

    def _write(self, event: TrainingStep) -> None:
        seconds = time.monotonic() - self._since
        line: dict[str, Any] = {
            "epoch": event["epoch"],
            "step": event["step"],
            "loss": float(event["loss"]),
            "terms": {name: float(value) for name, value in event["terms"].items()},
            **({"measures": event["measures"]} if event.get("measures") else {}),
            "learning_rate": event["learning_rate"],
            "images_per_second": round(self._images / max(seconds, 1e-9), 1),
        }
        try:
            self._file = self._file or self._continued(event["epoch"], event["step"])
            self._file.write(json.dumps({key: _finite(value) for key, value in line.items()}) + "\n")
            self._file.flush()
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        numbers = {"loss": line["loss"], **line["terms"], **line.get("measures", {})}
        for logger in self._loggers:
            logger.log_metrics(
                {**numbers, "learning_rate": line["learning_rate"]}, event["epoch"] * event["steps"] + event["step"]
            )
        self._images, self._since = 0, time.monotonic()

    def _continued(self, epoch: int, step: int) -> TextIO:
        """Truncate the log after the lines before this position, so that a resumed run repeats none."""
        kept = []
        if self._path.exists():
            lines = read_text(self._path).splitlines()
            places = ((line, json.loads(line)) for line in lines if line.endswith("}"))
            kept = [f"{line}\n" for line, event in places if (event["epoch"], event["step"]) < (epoch, step)]
        self._path.write_text("".join(kept), encoding="utf-8")
        return self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._file.close()
        for logger in self._loggers:
            logger.finalize("finished")

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _finite(value: Any) -> Any:
    """Replace values that JSON cannot represent (NaN, infinity) by None."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"Cannot write to '{path}': {error.strerror or error}.",
        expected="a folder that can be written, with room in it",
        to_do="choose another --out, or free space; the same command continues the run.",
    )
