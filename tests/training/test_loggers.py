"""Loggers of a training run, and what `logging` is told."""

from __future__ import annotations

import csv
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.training.events import EventLog, TrainingStep
from limpet.training.loggers import LOGGERS, OpenLogger


class Recorded:
    """A logger of Lightning's kind that keeps what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.steps, self.status = folder, [], ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.steps.append((step, metrics))

    def finalize(self, status: str) -> None:
        self.status = status


def event(epoch: int, step: int) -> TrainingStep:
    loss = np.float32(2 - epoch - step / 4)
    return {"epoch": epoch, "epochs": 2, "step": step, "steps": 2, "loss": loss, "terms": {"task": loss},
            "measures": {"share": 0.5}, "learning_rate": 0.1, "images": 8}  # fmt: skip


def run(folder: Path, *loggers: OpenLogger) -> None:
    """Log two epochs of two steps."""
    with EventLog(folder, every=1, loggers=loggers) as log:
        for epoch, step in ((0, 0), (0, 1), (1, 0), (1, 1)):
            log(event(epoch, step))


def test_every_logger_is_told_what_the_log_holds(tmp_path: Path) -> None:
    told: list[Recorded] = []

    def recorded(folder: Path) -> Recorded:
        told.append(Recorded(folder))
        return told[-1]

    run(tmp_path, LOGGERS["tensorboard"], LOGGERS["csv"], recorded)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (own,) = told
    assert own.status == "finished" and own.folder == tmp_path and [step for step, _ in own.steps] == [0, 1, 2, 3]
    assert [one["loss"] for _, one in own.steps] == [line["loss"] for line in lines] == [2, 1.75, 1, 0.75]
    (table,) = (tmp_path / "csv").rglob("metrics.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == [2, 1.75, 1, 0.75]
    assert rows[0].keys() == {"step", "loss", "task", "share", "learning_rate"}
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(0, 2), (1, 1.75), (2, 1), (3, 0.75)]


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore")  # of packages of others
def test_a_database_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite://")  # set anew by the library; put back after the test
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, LOGGERS["mlflow"])
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path / name / 'mlflow.db'}")
        (found,) = client.search_runs([client.get_experiment_by_name("limpet").experiment_id])
        assert (found.info.run_name, found.info.status) == (name, "FINISHED")
        told = sorted((one.step, one.value) for one in client.get_metric_history(found.info.run_id, "loss"))
        assert told == [(0, 2), (1, 1.75), (2, 1), (3, 0.75)]


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore")
def test_an_offline_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, LOGGERS["wandb"])
        assert wandb.run is None  # the next training has a run of its own
        (written,) = (tmp_path / name / "wandb").glob("offline-run-*/run-*.wandb")
        begun = time.monotonic()
        while b"limpet" not in written.read_bytes():  # by a process of its own
            assert time.monotonic() - begun < 120
            time.sleep(0.02)


def test_upgrades_are_told_and_nothing_is_printed(
    logged: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.eye(4, dtype=np.float32)
    old = EmbeddingSet(rows, StringArray.of("abcd"), "declared:a", Hypersphere(4))
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("limpet").handlers)
    space = Hypersphere(4)
    with (
        logged(logging.INFO, "limpet") as log,
        Gallery.create("memory://", fingerprint="declared:a", space=space) as gallery,
    ):
        gallery.add(old)
        gallery.start("declared:b", space)
        gallery.cancel()
        gallery.delete(["a"])
    told = [one.getMessage().partition(":")[0] for one in log.records if one.name == "limpet.galleries"]
    assert told == ["create", "start", "cancel"], told
    assert capsys.readouterr() == ("", "")
