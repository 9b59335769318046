"""Warm starts from an earlier run: its weights, the state of its method, and replayed items."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, DataError
from limpet.methods.base import CompatibilityMethod, Head
from limpet.methods.predecessor import rows_by_name
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.heads import inherit_rows
from limpet.models.release import Release, weights_digest
from limpet.support.disk import regular

CARRIED = "carried.safetensors"


@dataclass(frozen=True, eq=False)
class WarmStart:
    """State that a run inherits from the previous session, in addition to the weights.

    Args:
        replayed: Mask of the training images that come from a memory of earlier sessions, bool (N,).
        gallery: Last embeddings of the predecessor, labelled in its classes.
        carried: State that the method's `carried` returned after the previous session.
    """

    replayed: NDArray[np.bool_]
    gallery: EmbeddingSet | None = None
    carried: Mapping[str, Tensor] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        """Return digests that identify this start, for the record of the run."""
        return {
            "replayed": hashlib.sha256(self.replayed.tobytes()).hexdigest(),
            "carried": weights_digest(self.carried),
        }


def begin_warm(
    warm_start: WarmStart,
    old: Release | None,
    encoder: EmbeddingNetwork,
    head: Head,
    method: CompatibilityMethod,
    class_names: Sequence[str],
) -> None:
    """Initialise encoder, classifier and method from the predecessor, in place.

    Args:
        warm_start: State of the previous session in addition to its weights.
        old: The predecessor.
        encoder: Encoder with the same network.
        head: Classifier of the same kind; rows of classes that the predecessor knows are copied from it.
        method: The method of the previous session.
        class_names: Names of the rows of ``head``.

    Raises:
        ConfigError: The predecessor is missing, or has another network or no classifier.
    """
    if old is None or old.head is None or old.encoder.spec != encoder.spec:
        found = "nothing" if old is None else f"a {old.encoder.spec.name} without classifier"
        found = f"a {old.encoder.spec.name}" if old is not None and old.head is not None else found
        raise ConfigError(
            f"A run of a {encoder.spec.name} was to go on from {found}.",
            expected="a release of the very same network, with its classifier",
            to_do="keep backbone, dimension and projection from session to session.",
        )
    encoder.load_state_dict(old.encoder.state_dict())
    inherit_rows(head, old.head, rows_by_name(old.classes, class_names))
    method.carry_over(warm_start.carried)


def save_carried(method: CompatibilityMethod, folder: Path) -> None:
    """Write the state that a method hands to its next session, if any, to ``carried.safetensors``."""
    carried = {name: values.detach().cpu().contiguous().clone() for name, values in method.carried().items()}
    if carried:
        write_atomically(folder / CARRIED, lambda part: save_file(carried, part))


def load_carried(folder: Path) -> dict[str, Tensor]:
    """Read the state that `save_carried` wrote; empty if there is none.

    Raises:
        DataError: The file is damaged.
    """
    path = folder / CARRIED
    if not path.exists():
        return {}
    try:
        return load_file(regular(path))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"Cannot read '{path}': {error}.",
            expected="what the session before handed on",
            to_do=f"remove the folder '{folder}' to run that session again.",
            intact="Earlier sessions are intact.",
        ) from error
