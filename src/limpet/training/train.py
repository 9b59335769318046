"""Train a release from items and settings: everything around the training loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from limpet.support.extras import importing
from limpet.support.progress import Progress, listener, showing

with importing(__name__):
    from torch import Tensor, nn
    from torch.utils.data import DataLoader

from limpet.data.image_set import ImageSet
from limpet.data.items import LabelledItems
from limpet.data.loading import encoding_loader, training_loader
from limpet.data.resident import resident_inputs
from limpet.data.scenarios import Split
from limpet.data.token_set import TokenSet
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, refuse
from limpet.geometry import Space
from limpet.methods import build_method
from limpet.methods.base import Batch, CompatibilityMethod, Head, OldModel
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head
from limpet.models.lifting import lifted
from limpet.models.pair_losses import PairLoss
from limpet.models.release import Release, make_release, save_release, searching
from limpet.models.release_record import FrozenModel
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.models.trainable import add_lora, merge_lora, train_last
from limpet.support.logs import logger
from limpet.training.encode import cached_embeddings, embed_features
from limpet.training.events import EventLog, TrainingStep
from limpet.training.experiment import Experiment, Trainable
from limpet.training.loggers import OpenLogger
from limpet.training.loop import fit
from limpet.training.record import Making, finished, set_aside, trained
from limpet.training.run_state import CHECKPOINT, save_history, without_prefix
from limpet.training.spaces import settle
from limpet.training.warm_start import WarmStart, begin_warm, save_carried

_log = logger("training")

OnStep = Callable[[TrainingStep], object]
CLASSIFIER = "classifier"
"""Prefix of the classifier's weights among the initial weights."""


@showing("training")
def train_release(
    items: LabelledItems,
    experiment: Experiment,
    folder: Path,
    *,
    old: Release | None = None,
    old_images: LabelledItems | None = None,
    old_embeddings: EmbeddingSet | None = None,
    old_items: LabelledItems | None = None,
    gallery: EmbeddingSet | None = None,
    encoder: Release | None = None,
    start: Mapping[str, Tensor] | None = None,
    frozen_model: FrozenModel | None = None,
    task: PairLoss | None = None,
    data_name: str = "",
    cache: Path | None = None,
    warm_start: WarmStart | None = None,
    select: Callable[[nn.Module], float] | None = None,
    progress: Progress[TrainingStep] = None,
    loggers: Sequence[OpenLogger] = (),
    again: bool = False,
) -> Release:
    """Train one model and save it as a release.

    A finished release of the same settings and data is loaded instead; an unfinished run is continued. The folder also
    holds the means of every epoch (``history.json``) and the state that the method passes to its next session, if any
    (``carried.safetensors``).

    Args:
        items: The training set: images, or vectors of a frozen model.
        experiment: Training settings.
        folder: Output folder of the release; the checkpoint of the run is kept next to it until the run is finished.
        old: The predecessor, for methods that need one.
        old_images: Training set of the predecessor, for methods that use it.
        old_embeddings: The predecessor's embeddings of the same items, row by row, if it does not read the items
            itself, as for a frozen model. Methods that use its own training set use these.
        old_items: The same items in the form that the predecessor takes, if it reads images at another size.
        gallery: Embeddings of the same items, row by row, by the older model of the gallery to search; for heads over a
            frozen model and methods with `maps_gallery`.
        encoder: A release, such as one of `Release.from_module`, whose backbone and weights training starts from; the
            model of the experiment must then be the same one, with another dimension and projection: see `going_on`.
        start: Initial weights of the encoder by name and, with the prefix ``classifier.``, of the classifier; all
            others are random.
        frozen_model: How to reopen the frozen model whose vectors the items are, for the record.
        task: Loss that replaces classification, for items that are `PairedTokens`; the release then has no classifier.
        data_name: Name of the data, for the record.
        cache: Folder for the predecessor's embeddings of the training set. Default: ``folder``.
        warm_start: Start from the weights of ``old``, including the rows of its classifier, and from its carried state.
            None: start from scratch.
        select: Function that scores the encoder after every epoch; the weights of the first best epoch are kept.
            ``data_name`` should name its data, because it identifies a finished release.
        progress: "rich" or "tqdm" for a bar, or a function that is called with every `TrainingStep`.
        loggers: Factories of loggers in addition to ``events.jsonl``; see `limpet.training.loggers`.
        again: Retrain if the code has changed; the existing folder is kept as ``FOLDER.before-1``.

    Raises:
        ConfigError: Settings are invalid, or the folder holds another release.
        DataError: There are fewer than two classes to learn.
        SpaceMismatchError: The predecessor has another space or dimension.
    """
    method = build_method(experiment.method, experiment.method_options)
    _check(items, experiment, method, old, alone=warm_start is None and select is None)
    _refuse_random(experiment, encoder, pretrained=start is not None or warm_start is not None)
    if old_items is not None and list(old_items.ids) != list(items.ids):
        raise DataError(
            f"The predecessor was given {len(old_items)} items of its own, which are not the {len(items)} to train on.",
            expected="the same items in the same order, as it takes them",
        )
    experiment, space, settled = _settled(experiment, method, old, task)
    making = Making(
        items, experiment, space, method, settled, old_images, old_items, encoder, start, frozen_model, task, data_name,
        warm_start, gallery if method.maps_gallery else None,
    )  # fmt: skip
    network, head = _networks(making)
    record = making.record()
    identity = making.identity(record, network)
    checkpoint = folder / CHECKPOINT
    if again:
        set_aside(folder, record["code"])
    release = finished(folder, identity, encoder)
    if release is not None:
        checkpoint.unlink(missing_ok=True)  # left by a run that stopped just before deleting it
        return release
    recipe = experiment.recipe
    _log.info("training %s on %d items for %d epochs, in %s", experiment.method, len(items), recipe.epochs, folder)
    fabric = recipe.build_fabric()
    loader, encode_loader = _loaders(making, fabric)
    old_model = _old_model(making, old_embeddings, cache or folder, fabric)
    optimizer = partial(recipe.build_optimizer, pretrained=_pretrained(network))
    first = fabric.global_rank == 0
    with EventLog(folder, loggers=loggers, then=listener(progress)) if first else nullcontext() as log:
        history = fit(
            network, head, method, loader, encode_loader, space=space, class_names=items.class_names, old=old_model,
            optimizer=optimizer, scheduler=recipe.build_schedule(), fabric=fabric, epochs=recipe.epochs,
            seed=experiment.seed, clip_norm=recipe.clip_norm, channels_last=recipe.channels_last,
            checkpoint=checkpoint, identity=identity, select=select, progress=log,
        )  # fmt: skip
    method.on_session_end(network, head, encode_loader)
    network.cpu(), head.cpu()
    merge_lora(network)
    if first:
        save_carried(method, folder)
        save_history(history, folder)
        network = network.released(folder)
        kept: dict[str, Any] = {} if task is not None else {"classifier": head, "classes": items.class_names}
        released = make_release(network, space.settled(), trained_on=making.trained_on(), **kept, **record)
        release = _save(released, old, making.needed, folder)
        checkpoint.unlink(missing_ok=True)
    fabric.barrier()  # batch statistics differ between processes; the first process saves the release
    return trained(folder, encoder) if release is None else release


def _check(
    items: LabelledItems, experiment: Experiment, method: CompatibilityMethod, old: Release | None, *, alone: bool
) -> None:
    if method.sessions_only and alone:
        raise ConfigError(
            f"The method '{experiment.method}' learns in sessions, and one model was to be trained.",
            expected="a method for one upgrade, such as p2s; or sessions",
            to_do="`limpet-bench sessions` trains session after session.",
        )
    unknown = int((items.labels < 0).sum())
    if unknown and not method.unlabelled:
        raise ConfigError(
            f"The method '{experiment.method}' was given {unknown} {items.kind} whose class nobody knows.",
            expected="a class for each of them, or a method that learns without, such as keep",
            to_do="leave them out, or choose such a method: `limpet methods`.",
        )
    classes = len(set(items.labels[items.labels >= 0].tolist()))
    if classes < 2:
        raise DataError(
            f"The training {items.kind} show {classes} class.",
            expected="at least two classes, or there is nothing to tell apart",
            to_do="check that the labels, or the folders named after classes, are the ones you meant.",
        )
    if method.needs_old and old is None:
        raise ConfigError(
            f"The method '{experiment.method}' needs a predecessor and was given none.",
            expected="the release that embedded the gallery",
            to_do="pass --old RELEASE; or let one be trained on a share of the data: --scenario extended-class.",
        )


def _settled(
    experiment: Experiment, method: CompatibilityMethod, old: Release | None, task: PairLoss | None
) -> tuple[Experiment, Space, Release | None]:
    """Return the experiment, completed by its space and method, that space, and the predecessor on it."""
    found = settle(
        experiment.geometry,
        method,
        dim=experiment.model.dim,
        zeta=experiment.model.zeta,
        head=experiment.head,
        old=old,
    )
    model = experiment.model.model_copy(update={"zeta": found.zeta})
    recipe = experiment.recipe.batches_for(method).rates_for(model)
    head = found.head if task is None else None
    return dataclasses.replace(experiment, model=model, head=head, recipe=recipe), found.space, found.old


def _networks(making: Making) -> tuple[EmbeddingNetwork, Head]:
    experiment, classes = making.experiment, making.items.class_names
    with seeded(experiment.seed):
        encoder = network_of(experiment, making.encoder)
        head = making.task or build_head(
            experiment.head or "", len(classes), experiment.model.dim, dict(experiment.head_options)
        )
    if making.start is not None:
        encoder.load_state_dict(making.start, strict=False)
        classifier = without_prefix(CLASSIFIER, making.start)
        if classifier:
            head.load_state_dict(classifier)
    if making.warm_start is not None:
        begin_warm(making.warm_start, making.old, encoder, head, making.method, classes)
    if experiment.recipe.trainable.lora is not None:
        with seeded(experiment.seed):
            add_lora(encoder, experiment.recipe.trainable.lora)
    return encoder, head


def network_of(experiment: Experiment, start: Release | None) -> EmbeddingNetwork:
    """Return the network to train: a new one, or one that starts from the backbone of a release.

    Frozen parts require no gradient; low-rank adapters are added later, when all weights are loaded.

    Raises:
        ConfigError: The experiment has another backbone, or the release does not embed images.
    """
    encoder = experiment.build_model(experiment.weights) if start is None else _going_on(experiment, start)
    if experiment.recipe.trainable.last is not None:
        train_last(encoder, experiment.recipe.trainable.last)
    return encoder


def _going_on(experiment: Experiment, start: Release) -> EmbeddingNetwork:
    first, spec = start.encoder, experiment.model
    if not isinstance(first, Encoder) or not isinstance(spec, EncoderSpec):
        raise ConfigError(f"Training was to go on from a {start.encoder.spec.name}.", expected="a model of images")
    if spec.contract() != first.spec.going_on(dim=spec.dim, projection=spec.projection, zeta=spec.zeta).contract():
        raise ConfigError(
            f"Training was to go on from {first.spec.name}, and the experiment is of a {spec.name}.",
            expected="the spec of that release, but for dimension, projection and ζ",
            to_do="Experiment(model=encoder.encoder.spec.going_on(dim=...)), of that very release.",
        )
    return first.going_on(spec, experiment.freeze_backbone, experiment.recipe.freeze_batch_norm)


def _pretrained(network: EmbeddingNetwork) -> list[nn.Parameter]:
    return [] if network.pretrained is None else list(network.pretrained.parameters())


def _refuse_random(experiment: Experiment, start: Release | None, *, pretrained: bool) -> None:
    """Refuse to freeze parts of a network that have random weights, or to build one that has to be given."""
    pretrained = pretrained or start is not None or experiment.weights is not None
    pretrained = pretrained or experiment.model.starts_from is not None
    if experiment.model.brings_weights and start is None and not pretrained:
        raise ConfigError(
            f"The experiment is of {experiment.model.name}, without its weights.",
            expected="the release that holds them",
            to_do="pass it: train_release(..., encoder=release).",
        )
    refuse(
        not pretrained and experiment.recipe.trainable != Trainable(),
        "The recipe was given trainable, and without weights what does not learn would stay random.",
        "weights to start from (--weights FOLDER, --model hf:FOLDER), or nothing: to train all of it",
    )


def _loaders(making: Making, fabric: Any) -> tuple[DataLoader[Batch], DataLoader[Batch]]:
    items, recipe, model = making.items, making.experiment.recipe, making.experiment.model
    reading: dict[str, Any] = {
        "batch_size": recipe.batch_size,
        "workers": recipe.workers,
        "replayed": None if making.warm_start is None else making.warm_start.replayed,
        "pin_memory": fabric.device.type == "cuda",
    }
    encode_loader = encoding_loader(items, **reading)
    lengths = items.lengths if isinstance(items, TokenSet) else None
    stays = lengths is not None and recipe.data_on_device == "auto"  # the width of batches of texts varies
    resident = resident_inputs(encode_loader, fabric.device, "never" if stays else recipe.data_on_device)
    if resident is not None:
        reading |= {"resident": resident}
        encode_loader = encoding_loader(items, **reading)
    loader = training_loader(
        items,
        memory_share=making.method.memory_share,
        seed=making.experiment.seed,
        augmentation=recipe.augmentation,
        crop_size=model.seen_sides if isinstance(model, EncoderSpec) else None,
        items_per_class=recipe.items_per_class,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        lengths=lengths,
        **reading,
    )
    return loader, encode_loader


def _old_model(making: Making, stored: EmbeddingSet | None, cache: Path, fabric: Any) -> OldModel | None:
    """Return the predecessor as the method sees it; None if the method uses none."""
    old = making.needed
    if old is None:
        return None
    known = _reading_model(old, making, cache, fabric) if stored is None else _stored_model(old, stored)
    known = dataclasses.replace(known, gallery=making.gallery)
    if making.space.pads(known.embeddings.space):
        known = known.padded(making.space)
    return known if making.warm_start is None else dataclasses.replace(known, own_training=making.warm_start.gallery)


def _reading_model(old: Release, making: Making, cache: Path, fabric: Any) -> OldModel:
    recipe = making.experiment.recipe
    settings = {"batch_size": recipe.batch_size, "device": fabric.device, "workers": recipe.workers}
    own = None if making.old_images is None else cached_embeddings(old, making.old_images, cache, **settings)
    return OldModel(
        embeddings=cached_embeddings(old, making.old_items or making.items, cache, **settings),
        classes=old.classes,
        head=old.head,
        own_training=own,
        encoder=old.encoder if recipe.view_for(making.method) == "same" else None,
    )


def _stored_model(old: Release, embeddings: EmbeddingSet) -> OldModel:
    rows = embed_features(old, embeddings, form="features")
    return OldModel(embeddings=rows, classes=old.classes, head=old.head, own_training=rows)


def _save(release: Release, given: Release | None, old: Release | None, folder: Path) -> Release:
    """Save the release, with the lifted predecessor beside it if that is on another space.

    Args:
        release: The trained release.
        given: The predecessor as it was given.
        old: The predecessor on the space that training began with; None for a method that uses none.
        folder: Output folder.
    """
    if old is not None and not release.space.compares_with(old.space):  # a curvature was learned
        old = lifted(old, release.space)
        release = searching(release, old)
    if old is not None and old is not given:
        save_release(old, folder / "old-lifted")
    save_release(release, folder)
    return release


OnRun = Callable[[str], AbstractContextManager[OnStep]]


def train_upgrade(
    images: ImageSet,
    split: Split,
    old: Experiment,
    new: Mapping[str, Experiment],
    folder: Path,
    *,
    encoder: Release | None = None,
    data_name: str = "",
    on_run: OnRun | None = None,
    loggers: Sequence[OpenLogger] = (),
    again: bool = False,
) -> dict[str, Release]:
    """Train the old model on its share of the images, then every new model on its share.

    Finished releases in the folder are loaded instead of trained, so an interrupted comparison continues.

    Args:
        images: The whole training set.
        split: Rows that the old and the new models are trained on.
        old: Experiment of the old model; its method is "independent".
        new: Experiment of each new model, by name; the one named "independent" is the reference.
        folder: Output folder; every release is saved in a sub-folder of its name.
        encoder: Release whose backbone training starts from, for every model whose experiment uses it; see
            `train_release`.
        data_name: Name of the data, for the record.
        on_run: Context manager factory for the run of a given name, which yields a callback for every training step.
        loggers: Factories of loggers of each run; see `train_release`.
        again: Retrain if the code has changed; see `train_release`.

    Returns:
        The releases by name, "old" first.
    """
    old_images = images[split.old].compact()
    new_images = images[split.new].compact()
    if not (folder / "old").exists():
        # fail early on a damaged image: leaving it out would change the data, and so the old model
        images.images.preload(np.union1d(split.old, split.new))
    shared: dict[str, Any] = {"data_name": data_name, "loggers": loggers, "again": again}

    def run(name: str, images: ImageSet, experiment: Experiment, **predecessor: Any) -> Release:
        start = encoder if experiment.model.brings_weights else None
        with nullcontext() if on_run is None else on_run(name) as progress:
            return train_release(
                images, experiment, folder / name, encoder=start, progress=progress, **shared, **predecessor
            )

    releases = {"old": run("old", old_images, replace(old, method="independent", method_options={}))}
    for name, experiment in new.items():
        releases[name] = run(
            name, new_images, experiment, old=releases["old"], old_images=old_images, cache=folder / "cache"
        )
    return releases
