"""Records of how a release was trained, and recognition of finished runs by them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from torch import Tensor

from limpet.data.items import LabelledItems
from limpet.data.text_pairs import KINDS
from limpet.data.token_set import PairedTokens
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.trained_on import TrainedOn
from limpet.errors import ConfigError
from limpet.geometry import Space
from limpet.methods.base import CompatibilityMethod
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.pair_losses import PairLoss
from limpet.models.release import Release, load_record, load_release, weights_digest
from limpet.models.release_record import FrozenModel
from limpet.support.source_code import put_beside
from limpet.training.code import code_of
from limpet.training.experiment import Experiment
from limpet.training.run_state import CHECKPOINT, checkpoint_code
from limpet.training.warm_start import WarmStart


class MakingRecord(TypedDict):
    """Values of `ReleaseRecord` that describe the training; see there."""

    compatible_with: str | None
    method: str
    method_options: dict[str, object]
    head: str | None
    head_options: dict[str, object]
    recipe: dict[str, object]
    old_view: Literal["cached", "same"] | None
    initial_weights: str | None
    frozen_backbone: bool
    data: dict[str, str]
    seed: int
    code: str
    frozen_model: NotRequired[FrozenModel]
    padded_from: NotRequired[int]
    curvature_start: NotRequired[float | None]


@dataclass(frozen=True, eq=False)
class Making:
    """Everything that determines the result of `train_release`; see there for fields not listed here.

    Args:
        experiment: The experiment, completed by its space.
        space: Space of the embeddings.
        old: The predecessor on that space; None without one.
        old_images: The predecessor's own training set.
        old_items: The training set in the form that the predecessor takes; None if the form is the same.
        encoder: The release whose backbone training starts from.
        start: Weights by name that the encoder starts from.
        frozen_model: How to reopen the frozen model whose vectors the items are.
        task: Loss in place of classes.
        warm_start: State of the previous session in addition to the weights; None to start from scratch.
        gallery: Embeddings of the training set by an older model, if a map of them is learned.
    """

    items: LabelledItems
    experiment: Experiment
    space: Space
    method: CompatibilityMethod
    old: Release | None
    old_images: LabelledItems | None
    old_items: LabelledItems | None
    encoder: Release | None
    start: Mapping[str, Tensor] | None
    frozen_model: FrozenModel | None
    task: PairLoss | None
    data_name: str
    warm_start: WarmStart | None
    gallery: EmbeddingSet | None = None

    @property
    def needed(self) -> Release | None:
        """The predecessor, if the method uses it."""
        return self.old if self.method.needs_old else None

    @property
    def learns_space(self) -> bool:
        """Whether the space changes while the model is trained."""
        return self.space.parameters_of() is not None

    def trained_on(self) -> TrainedOn:
        """Return the training items, with those of the release whose weights training starts from."""
        items = TrainedOn.of(self.items.ids, self.items.digests())
        first = self.old if self.warm_start is not None else self.encoder
        return items if first is None else items.joined(first.trained_on)

    def record(self) -> MakingRecord:
        """Return the values of `ReleaseRecord` that describe the training."""
        experiment = self.experiment
        record: MakingRecord = {
            "compatible_with": None if self.needed is None or self.method.stays else self.needed.fingerprint,
            "method": experiment.method,
            "method_options": dict(experiment.method_options),
            "head": experiment.head,
            "head_options": dict(experiment.head_options),
            "recipe": dataclasses.asdict(experiment.recipe),
            "old_view": None if self.needed is None else experiment.recipe.view_for(self.method),
            "initial_weights": self._initial_weights(),
            "frozen_backbone": experiment.freeze_backbone,
            "data": self._data(),
            "seed": experiment.seed,
            "code": code_of(experiment),
        }
        if self.frozen_model is not None:
            record["frozen_model"] = self.frozen_model
        if self.needed is not None and self.space.pads(self.needed.space):
            record["padded_from"] = self.needed.space.dim
        if self.learns_space:
            record["curvature_start"] = self.space.curvature
        return record

    def _initial_weights(self) -> str | None:
        if self.warm_start is not None:
            return self.old.fingerprint if self.old is not None else None
        if self.encoder is not None:
            return self.encoder.fingerprint
        start = None if self.start is None else f"sha256 {weights_digest(self.start)}"
        if self.experiment.model.starts_from is not None:
            return ", ".join(filter(None, (self.experiment.model.starts_from, start)))
        if start is not None:
            return start
        return None if self.experiment.weights is None else _weights_name(self.experiment.weights)

    def _data(self) -> dict[str, str]:
        data = {"name": self.data_name, "digest": self.items.digest(), self.items.kind: str(len(self.items))}
        if isinstance(self.items, PairedTokens):
            data[KINDS[self.items.pairs.shape[1]]] = str(len(self.items.pairs))
        if self.task is not None:
            data["loss"] = repr(self.task)
        if self.warm_start is not None:
            data |= self.warm_start.digests()
        if self.method.needs_old and self.old_images is not None:
            data["old digest"] = self.old_images.digest()
        if self.method.needs_old and self.old_items is not None:
            data["digest as the old model takes it"] = self.old_items.digest()
        if self.gallery is not None:
            data["gallery digest"] = self.gallery.digest()
        if self.learns_space and self.needed is not None:  # it is lifted later, to a curvature that is not yet known
            data["lifted again"] = self.needed.fingerprint
        return data

    def identity(self, record: MakingRecord, encoder: EmbeddingNetwork) -> dict[str, object]:
        """Return the plain values that identify a run with these settings, finished or not."""
        recipe = self.experiment.recipe.decides()
        identity: dict[str, object] = {**record, "encoder": encoder.spec.identity(), "recipe": recipe}
        if self.learns_space:
            if self.needed is not None:  # the release names the lifted predecessor instead
                del identity["compatible_with"]
        elif self.space.curvature is not None:
            identity["space"] = self.space.record()
        return identity


def finished(folder: Path, identity: Mapping[str, object], start: Release | None = None) -> Release | None:
    """Load the finished release with this identity from a folder; None if there is none yet.

    The code that trained it does not matter here; `ReleaseRecord.code` records it.

    Raises:
        ConfigError: The folder holds another release; it is not replaced.
    """
    if not (folder / "config.json").exists():
        return None
    found = load_record(folder).model_dump(mode="json")
    wanted = json.loads(json.dumps(identity))
    found["encoder"] |= {name: None for name, value in wanted["encoder"].items() if value is None}
    found["recipe"] = {name: value for name, value in found["recipe"].items() if name in wanted["recipe"]}
    asked = (wanted.keys() - {"code"}) | (found.keys() & {"curvature_start"})
    different = sorted(key for key in asked if found.get(key) != wanted.get(key))
    if different:
        raise ConfigError(
            f"'{folder}' already holds a release made with other settings: {', '.join(different)} differ.",
            expected="an empty folder, or the same settings to continue",
            to_do="choose another --out, or remove that folder yourself.",
            intact="It is intact.",
        )
    return trained(folder, start)


def trained(folder: Path, start: Release | None) -> Release:
    """Load a release that started from another; it gets the module of that one if it needs one."""
    return load_release(folder, module=start if load_record(folder).encoder.needs_module else None)


def set_aside(folder: Path, code: str) -> Path | None:
    """Rename a folder whose release or unfinished run is from other code, and return its new path."""
    checkpoint = folder / CHECKPOINT
    if (folder / "config.json").exists():
        found = load_record(folder).code
    elif checkpoint.exists():
        found = checkpoint_code(checkpoint)
    else:
        return None
    if found == code:
        return None
    return put_beside(folder)


def _weights_name(folder: Path) -> str:
    """Return the name of a folder of weights with the sha256 of their file."""
    file = folder / "model.safetensors"
    return f"{folder.name}, sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}" if file.exists() else folder.name
