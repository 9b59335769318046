"""Going on from an earlier run: its weights, what its method remembers, and what it replays."""

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
    """What a run takes over from the session before it, beside the weights.

    Args:
        replayed: Which training images come from a memory of earlier sessions, bool (N,).
        gallery: What the predecessor embedded last, labelled in its classes.
        carried: What the method's `carried` returned after the session before.
    """

    replayed: NDArray[np.bool_]
    gallery: EmbeddingSet | None = None
    carried: Mapping[str, Tensor] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        """Return what tells this start from others, for the record of the run."""
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
    """Give encoder, classifier and method, in place, what the predecessor leaves to them.

    Args:
        warm_start: What it leaves beside its weights.
        old: The predecessor.
        encoder: Of the same network.
        head: Of the same kind; rows of classes that the predecessor knows become equal to its own.
        method: That of the session before.
        class_names: Names of the rows of ``head``.

    Raises:
        ConfigError: There is no predecessor, or it has another network or no classifier.
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
    """Write what a method hands to its next session, if it does, to ``carried.safetensors``."""
    carried = {name: values.detach().cpu().contiguous().clone() for name, values in method.carried().items()}
    if carried:
        write_atomically(folder / CARRIED, lambda part: save_file(carried, part))


def load_carried(folder: Path) -> dict[str, Tensor]:
    """Read what `save_carried` wrote; empty where a method handed nothing on.

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
