"""Maps as NumPy arrays with a description of their steps, and a short file that computes them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.export import reader
from limpet.export.exportable import Exportable, Vectors
from limpet.export.formats import NO_STEPS, Format
from limpet.export.record import ExportRecord, StepRecord
from limpet.support.steps import ExportStep


class NumpyArrays(Format):
    """``map.npz``, ``export.json`` with the steps, and ``reader.py``, which needs NumPy alone."""

    name = "npz"
    title = "NumPy arrays"
    usage = """
import numpy as np
from reader import Map  # the file beside this one

mapped = Map(".")  # this folder
assert mapped.about["searches"] == "..."  # the fingerprint of your gallery
vectors = mapped(np.load("vectors.npy"))
"""
    ARRAYS: ClassVar[str] = "map.npz"
    READER: ClassVar[str] = "reader.py"

    def refusal(self, model: Exportable) -> str:
        """Refuse networks: steps are maps of vectors."""
        if model.network is not None:
            return "what it computes is a network, and no list of plain steps"
        return "" if model.steps is not None else NO_STEPS

    def write(self, model: Exportable, record: ExportRecord, folder: Path) -> ExportRecord:
        """Write the arrays and the reader; the description goes into the record."""
        arrays: dict[str, NDArray[Any]] = {}
        described = describe(model.steps or (), arrays)
        np.savez(folder / self.ARRAYS, **arrays)  # type: ignore[arg-type]  # NumPy takes names for options
        shutil.copyfile(reader.__file__, folder / self.READER)
        return record.model_copy(update={"steps": described, "versions": {**record.versions, "numpy": np.__version__}})

    def pairs(self, model: Exportable, folder: Path) -> tuple[Vectors, Vectors]:
        """Return what the original makes of the probe, and what the reader makes of it."""
        return model.reference(model.probe), reader.Map(folder)(model.probe)


def describe(steps: Sequence[ExportStep], arrays: dict[str, NDArray[Any]], prefix: str = "") -> list[StepRecord]:
    """Return steps as plain values; their arrays are put aside, under the names that these say."""
    described = []
    for place, step in enumerate(steps):
        at = f"{prefix}{place}"
        values = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}  # type: ignore[arg-type]
        own = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        branches = values.pop("branches", ())
        arrays |= {f"{at}.{name}": np.ascontiguousarray(value) for name, value in own.items()}
        described.append(
            StepRecord(
                step=step.name,
                arrays={name: f"{at}.{name}" for name in own},
                numbers={name: value for name, value in values.items() if name not in own},
                branches=[describe(one, arrays, f"{at}.{number}.") for number, one in enumerate(branches)],
            )
        )
    return described
