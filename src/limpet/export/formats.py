"""What a format is, and how anything is exported to one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from limpet.errors import ConfigError, ReleaseError
from limpet.export.exportable import Exportable, Vectors
from limpet.export.record import CARD_FILE, RECORD_FILE, ExportRecord, card
from limpet.models.text_folders import file_digest
from limpet.support.disk import whole_folder
from limpet.version import __version__

_TOLERANCE = 1e-6
"""Largest difference that is let through: some roundings of a unit vector's numbers in float32."""

NO_STEPS = "it does not say what it computes (its class has no `as_steps`)"
"""Why nothing can be written of an adapter whose package did not say more."""


class Format(ABC):
    """One format, with the settings that only it knows."""

    name: ClassVar[str]
    """What people type."""
    title: ClassVar[str]
    """What people call it."""
    usage: ClassVar[str]
    """Python that uses what was written, for its card."""
    front: ClassVar[str] = ""
    """Front matter of its card."""

    reads_texts: ClassVar[bool] = False
    """Whether it has the model of text in it, whose vectors are mapped."""

    @abstractmethod
    def refusal(self, model: Exportable) -> str:
        """Return why something cannot be written in this format, to be read after "because"; empty where it can."""

    @abstractmethod
    def write(self, model: Exportable, record: ExportRecord, folder: Path) -> ExportRecord:
        """Write all files but record and card into an empty folder.

        Returns:
            The record, with what only this format knows.

        Raises:
            ConfigError: A package that it needs is not installed.
        """

    @abstractmethod
    def pairs(self, model: Exportable, folder: Path) -> tuple[Vectors, Vectors]:
        """Return vectors (N, D) by the original, and by what was written, which is opened anew from its files."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        folder: Where.
        record: The contents of its ``export.json``.
    """

    folder: Path
    record: ExportRecord


def export(model: Exportable, to: Format, folder: str | Path, others: Sequence[Format] = ()) -> Exported:
    """Write something in a format, and prove that what was written makes the same vectors.

    All of it is written and compared beside its place first: a folder that is there is whole.

    Args:
        model: What to export.
        to: The format.
        folder: Where: one that is empty or not there.
        others: Formats to name where this one cannot hold it.

    Raises:
        ConfigError: The folder is not empty, the format cannot hold this, a package is missing, or vectors differ.
        ReleaseError: It could not be written.
    """
    folder = Path(folder)
    refuse_filled(folder)
    if why := to.refusal(model):
        raise refused(model, to, why, others)
    record = ExportRecord(
        format=to.name, name=model.name, source=model.source, fingerprint=model.fingerprint, searches=model.searches,
        searched_dim=model.searched_dim,
        space=dict(model.space.record()), dim=model.space.dim, metric=model.space.metric, input=model.contract,
        versions={"limpet": __version__},
    )  # fmt: skip
    try:
        with whole_folder(folder, "export") as part:
            record = _finished(model, to, to.write(model, record, part), part, others)
    except OSError as error:
        raise ReleaseError(
            f"Could not write the export to '{folder}': {error.strerror or error}.",
            to_do="free space, or choose another --out.",
            intact="What was exported is intact.",
        ) from error
    return Exported(folder, record)


def refuse_filled(folder: Path) -> None:
    """Refuse a place that holds something.

    Raises:
        ConfigError: It is a file, or a folder that is not empty.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = (
            f"holds {', '.join(sorted(file.name for file in folder.iterdir())[:4])}" if folder.is_dir() else "is there"
        )
        raise ConfigError(
            f"--out '{folder}' {what}.",
            expected="a folder that is empty or not there yet",
            to_do="choose another --out.",
        )


def refused(model: Exportable, to: Format, why: str, others: Sequence[Format]) -> ConfigError:
    """Build the error for what a format cannot hold, with the formats that can."""
    able = [f"--to {other.name}" for other in others if other.name != to.name and not other.refusal(model)]
    return ConfigError(
        f"{model.name[:1].upper()}{model.name[1:]} cannot be exported to {to.name}, because {why}.",
        expected=f"{' or '.join(able)}, which can hold it" if able else "something that a format can hold",
        to_do="" if able else "serve it with limpet.",
    )


def _finished(
    model: Exportable, to: Format, record: ExportRecord, folder: Path, others: Sequence[Format]
) -> ExportRecord:
    """Write record and card, and compare; record and card are whole only then."""
    path = folder / RECORD_FILE
    path.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
    expected, found = to.pairs(model, folder)
    difference = largest_difference(expected, found)
    if not difference <= _TOLERANCE:
        raise refused(
            model, to, f"its vectors there differ by {difference:.1e}, and no more than {_TOLERANCE:g} is let through",
            others,
        )  # fmt: skip
    record = record.model_copy(
        update={
            "largest_difference": difference,
            "compared": len(found),
            "digests": {
                file.relative_to(folder).as_posix(): file_digest(file)
                for file in sorted(folder.rglob("*"))
                if file.is_file() and file != path
            },
        }
    )
    (folder / CARD_FILE).write_text(card(record, to.usage, to.title, to.front), encoding="utf-8")
    path.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return record


def largest_difference(expected: Vectors, found: Vectors) -> float:
    """Return the largest difference of two numbers, relative to the length of a vector (rows) where that is above 1.

    >>> largest_difference(np.ones((1, 4), np.float32), np.ones((1, 4), np.float32) * 1.5)
    0.25
    """
    if expected.shape != found.shape:
        return float("inf")
    lengths = np.linalg.norm(expected.astype(np.float64), axis=1, keepdims=True)
    gaps = np.abs(expected.astype(np.float64) - found.astype(np.float64)) / np.maximum(lengths, 1)
    return float(gaps.max())
