"""Sources of vectors that workers open by themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableVectors


def of_lengths(folder: Path, deaths: int = 0) -> CallableVectors:
    """Return vectors made of ids, all in one process; the process of "fatal" dies as often, which the folder tells."""

    def embed(ids: Sequence[str]) -> NDArray[np.float32]:
        died = len(list(folder.glob("died*")))
        if "fatal" in ids and died < deaths:
            (folder / f"died{died}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / f"process{os.getpid()}").touch()
        made = np.array([[1, len(one)] for one in ids], np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made

    return CallableVectors(embed, "declared:lengths", Hypersphere(2))
