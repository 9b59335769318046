"""A compatible head: a small network over a frozen new model, whose embeddings search an old one's gallery."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from limpet.support.extras import importing
from limpet.support.progress import Progress, showing
from limpet.support.ranges import checked

with importing(__name__):
    import torch
    from torch import Tensor

from limpet.adapters.base import Adapter
from limpet.adapters.local import Local
from limpet.adapters.pairs import matched, without_doubtful
from limpet.adapters.ridge import Ridge
from limpet.adapters.storage import GALLERY_ADAPTER, load_adapter, save_adapter
from limpet.data.augment import Augmentation
from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.same_items import refuse_lengths, with_common_labels
from limpet.errors import ReleaseError, refuse
from limpet.methods import build_method
from limpet.methods.base import CompatibilityMethod, PrototypeClassifier
from limpet.methods.predecessor import class_prototypes
from limpet.models.building import build_network
from limpet.models.lifting import lift_embeddings
from limpet.models.release import Release, load_release
from limpet.models.release_record import FrozenModel, ReleaseRecord
from limpet.models.specs import FeatureSpec
from limpet.training.encode import embed_features
from limpet.training.events import TrainingStep
from limpet.training.experiment import Experiment
from limpet.training.train import train_release
from limpet.training.warm_start import load_carried

_Start = Literal["ridge", "random"]
CLASS_MEAN_TEMPERATURE = 0.05  # of the class-mean classifier of a frozen model


@dataclass(frozen=True)
class CompatibleHead:
    """A trained head and the models that it links.

    Args:
        release: The head; its record names the frozen model below it and the model whose gallery it searches.
        old: The old model lifted to the head's space; None if its gallery is searched unchanged.
        adapter: Adapter from old embeddings to the head's space, if the head stays in the space of the frozen model;
            None if it moves to the old one.
    """

    release: Release
    old: Release | None
    adapter: Adapter | None = None

    def query(self, new: EmbeddingSet) -> EmbeddingSet:
        """Pass embeddings of the frozen new model through the head."""
        return embed_features(self.release, new)

    def gallery(self, old: EmbeddingSet) -> EmbeddingSet:
        """Return the old model's embeddings in the form that is searched; no item is re-embedded."""
        if self.adapter is not None:
            return self.adapter.apply(old)
        return old if self.old is None else lift_embeddings(old, self.old)


@showing("training")
@checked
def train_head(
    old: EmbeddingSet,
    new: EmbeddingSet,
    experiment: Experiment,
    folder: Path,
    *,
    start: _Start = "ridge",
    unlabelled: tuple[EmbeddingSet, EmbeddingSet] | None = None,
    frozen_model: FrozenModel | None = None,
    data_name: str = "",
    progress: Progress[TrainingStep] = None,
) -> CompatibleHead:
    """Train a head on the cached embeddings of two frozen models, with labels, and save it as a release.

    Training is the ordinary training of any method: the same loop, losses and releases. The old model has no classifier
    here; a classifier of its class means replaces it (cosines to the mean point of every class, over the temperature
    0.05).

    With a method that `stays`, the predecessor is the frozen new model itself, whose space the head does not leave. An
    adapter then maps the old gallery to that space, and is saved beside the head: the one that the method learnt, or
    else `local`, fitted on all pairs but those that are probably wrong (`without_doubtful`).

    Args:
        old: Embeddings of the old model, on the hypersphere.
        new: Embeddings of the same items by the new model, on the hypersphere; paired by id.
        experiment: Training settings. Of its model, only ``projection`` ("linear" or "mlp") and ζ count. If it does not
            set them, the classifier is "normalised", and a method that does not support the hypersphere gets the old
            embeddings lifted at ζ = 1.
        folder: Folder of the release; a finished release of the same settings and data is loaded instead.
        start: Initial weights. "ridge" starts a linear head of a compatible method from the ridge map of new to old
            embeddings of the same items, which needs no labels: the head then keeps more of what the labels do not
            cover. All other heads start "random".
        unlabelled: Embeddings of further items without labels, by the old and the new model; ignored by methods that do
            not learn from such items.
        frozen_model: How to reopen the new model, for the record.
        data_name: Name of the data, for the record.
        progress: "rich" or "tqdm" for a bar, or a function that is called with every `TrainingStep`.

    Raises:
        DataError: Neither side has labels, or the labels of both disagree; or there are fewer than two classes.
        SpaceMismatchError: A set is not on the hypersphere.
        EmptyOverlapError: No id occurs in both.
        ConfigError: Settings are wrong, or include augmentation, which does not apply to vectors.
    """
    refuse(
        experiment.recipe.augmentation != Augmentation(),
        "Random changes of images, for a head over vectors of a frozen model.",
        "no --recipe.augmentation",
    )
    method = build_method(experiment.method, experiment.method_options)
    before, after = paired(old, new, unlabelled if method.unlabelled else None)
    predecessor = after if method.stays else before
    spec = FeatureSpec(
        frozen=new.fingerprint, width=new.dim, dim=predecessor.all.dim, projection=experiment.model.projection,
        zeta=experiment.model.zeta,
    )  # fmt: skip
    experiment = on_its_space(dataclasses.replace(experiment, model=spec), method, predecessor.all.space.name)
    from_map = start == "ridge" and spec.projection == "linear" and method.needs_old and not method.stays
    release = train_release(
        after, experiment, folder, old=frozen_release(predecessor), old_embeddings=predecessor.all,
        gallery=before.all, start=ridge_start(before.embeddings, after.embeddings) if from_map else None,
        frozen_model=frozen_model, data_name=data_name, progress=progress,
    )  # fmt: skip
    if method.stays and not (folder / GALLERY_ADAPTER).exists():
        save_gallery_adapter(method, before.all, embed_features(release, after.all), folder)
    return load_head(folder, release)


def save_gallery_adapter(method: CompatibilityMethod, old: EmbeddingSet, own: EmbeddingSet, folder: Path) -> None:
    """Save the adapter from an older gallery to a head that stays with its frozen model, beside the head."""
    learnt = method.gallery_adapter(load_carried(folder), old, own)
    if learnt is None:
        learnt = Local("old_to_new").fit(*without_doubtful(old, own, direction="old_to_new"))
    save_adapter(learnt, folder / GALLERY_ADAPTER)


def load_head(folder: Path, release: Release | None = None) -> CompatibleHead:
    """Open a head that `train_head` saved.

    Raises:
        ReleaseError: The folder holds no release, or an altered one; or the lifted old model or the adapter beside it
            is missing or belongs to another head.
    """
    release, place = load_release(folder) if release is None else release, folder / "old-lifted"
    lifted = load_release(place) if (place / "config.json").exists() else None
    needed = release.record.compatible_with if release.space.lengths_count else None
    if (None if lifted is None else lifted.fingerprint) != needed:
        raise ReleaseError(
            f"'{place}' holds {'nothing' if lifted is None else lifted.fingerprint}; the head searches the gallery of "
            f"{needed or 'the old model as it is'}.",
            expected="the folder as training wrote it",
            to_do="restore it from a copy, or train the head again.",
            intact="Galleries are intact.",
        )
    adapter = load_adapter(folder / GALLERY_ADAPTER) if (folder / GALLERY_ADAPTER).exists() else None
    if adapter is None and build_method(release.record.method, release.record.method_options).stays:
        raise ReleaseError(
            f"'{folder / GALLERY_ADAPTER}' is not there; the head stays with its frozen model, and nothing takes the "
            "old gallery to it.",
            expected="the folder as training wrote it",
            to_do="restore it from a copy, or train the head again.",
            intact="Galleries are intact.",
        )
    if adapter is not None and adapter.fitted.target != release.fingerprint:
        raise ReleaseError(
            f"'{folder / GALLERY_ADAPTER}' takes galleries to {adapter.fitted.target}; the head is "
            f"{release.fingerprint}.",
            expected="the folder as training wrote it",
            to_do="restore it from a copy, or train the head again.",
            intact="Galleries are intact.",
        )
    return CompatibleHead(release, lifted, adapter)


def frozen_release(items: VectorSet) -> Release:
    """Return a frozen model that is known by its embeddings only, as a predecessor for training.

    It reads its own embeddings and returns them unchanged. Its classifier consists of the class means.
    """
    embeddings = items.embeddings
    spec = FeatureSpec(frozen=embeddings.fingerprint, width=embeddings.dim, dim=embeddings.dim, projection="none")
    record = ReleaseRecord(fingerprint=embeddings.fingerprint, encoder=spec, space=embeddings.space.record())
    means, _ = class_prototypes(embeddings, embeddings.space)
    classifier = PrototypeClassifier(means, 1 / CLASS_MEAN_TEMPERATURE)
    return Release(build_network(spec).eval(), record, classifier, items.class_names)


def ridge_start(old: EmbeddingSet, new: EmbeddingSet) -> dict[str, Tensor]:
    """Return the weights of a linear `FeatureEncoder` that maps new embeddings as the ridge adapter does, times √D.

    A row of length √D has values of mean square 1, like the inputs of the layer.
    """
    adapter = Ridge("new_to_old").fit(old, new)
    weights = torch.from_numpy(np.asarray(adapter.fitted.state["weights"], np.float32))
    longer = math.sqrt(old.dim)
    return {
        "projection.weight": (weights[:-1].T * (longer / math.sqrt(new.dim))).contiguous(),
        "projection.bias": weights[-1] * longer,
    }


def on_its_space(experiment: Experiment, method: CompatibilityMethod, space: str) -> Experiment:
    """Fill in unset options: the classifier on this space, or the lift to a space that the method supports."""
    if space in method.spaces and experiment.geometry.lift_old is None:
        return dataclasses.replace(experiment, head=experiment.head or "normalised")
    lift = 1.0 if experiment.geometry.lift_old is None else experiment.geometry.lift_old
    return dataclasses.replace(experiment, geometry=dataclasses.replace(experiment.geometry, lift_old=lift))


def paired(
    old: EmbeddingSet, new: EmbeddingSet, unlabelled: tuple[EmbeddingSet, EmbeddingSet] | None = None
) -> tuple[VectorSet, VectorSet]:
    """Return the items of both sets, in the same order and with the same class numbers; unlabelled ones follow."""
    refuse_lengths(old, new, "a head reads")
    pairs = matched(old, new)
    after, before = with_common_labels([new[pairs.new_rows], old[pairs.old_rows]])
    rest_old, rest_new = (None, None) if unlabelled is None else _same_items(*unlabelled)
    items = VectorSet.of(after, rest_new)
    before = before.replace(labels=items.embeddings.labels, class_names=items.embeddings.class_names)
    return VectorSet(before, rest_old), items


def _same_items(old: EmbeddingSet, new: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    pairs = matched(old, new)
    rows = old[pairs.old_rows], new[pairs.new_rows]
    before, after = (one.replace(labels=None, class_names=None) for one in rows)
    return before, after
