"""From items and settings to a release: everything around the loop that a user would otherwise wire by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.data.items import LabelledItems
from holdfast.data.loading import encoding_loader, training_loader
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, DataError
from holdfast.geometry import Space
from holdfast.methods import build_method
from holdfast.methods.base import Batch, CompatibilityMethod, OldModel
from holdfast.models.heads import build_head
from holdfast.models.lifting import lifted
from holdfast.models.release import Release, load_release, make_release, save_release, searching, weights_digest
from holdfast.models.seeding import seeded
from holdfast.training.encode import cached_embeddings
from holdfast.training.encode_features import embed_features
from holdfast.training.events import EventLog
from holdfast.training.loop import fit
from holdfast.training.recipe import Experiment
from holdfast.training.sequel import Sequel, go_on, save_carried, save_history
from holdfast.training.spaces import settle

OnStep = Callable[[dict[str, Any]], object]


def train_release(
    items: LabelledItems,
    experiment: Experiment,
    folder: Path,
    *,
    old: Release | None = None,
    old_images: LabelledItems | None = None,
    old_embeddings: EmbeddingSet | None = None,
    start: Mapping[str, Tensor] | None = None,
    frozen_model: Mapping[str, Any] | None = None,
    data_name: str = "",
    cache: Path | None = None,
    sequel: Sequel | None = None,
    select: Callable[[nn.Module], float] | None = None,
    on_step: OnStep | None = None,
    tensorboard: bool = False,
) -> Release:
    """Train one model and save it as a release.

    A finished release of the same settings and data is loaded instead; an unfinished run is continued. Beside the
    release, the folder holds the means of every epoch (``history.json``) and, where the method hands something to its
    next session, that (``carried.safetensors``).

    Args:
        items: The training set: images, or vectors of a frozen model.
        experiment: What to train.
        folder: Where the release goes, with the run's checkpoint beside it until it is finished.
        old: The predecessor, for methods that need one.
        old_images: The predecessor's own training set, for methods that measure it there.
        old_embeddings: What the predecessor embedded of these very items, row by row, where it does not read them
            itself: a frozen model. Methods that measure its own training set measure it on these.
        start: Weights by name that the encoder starts from instead of random ones; others stay random.
        frozen_model: For the record, how the frozen model is opened whose vectors the items are.
        data_name: Name of the data, for the record.
        cache: Folder for the predecessor's embeddings of the training set; ``folder`` when left out.
        sequel: Begin with the weights of ``old``, its classifier's rows included, and with what it leaves; None begins
            anew.
        select: Scores the encoder after every epoch; the weights of the first best epoch are kept. ``data_name`` should
            say what it scores on: a finished release is known by that.
        on_step: Told after every step; see `fit`.
        tensorboard: Also write TensorBoard's event files beside ``events.jsonl``.

    Raises:
        ConfigError: Settings are wrong, or the folder holds another release.
        DataError: There are fewer than two classes to learn.
        SpaceMismatchError: The predecessor has another space or dimension.
    """
    method = build_method(experiment.method, experiment.method_options)
    _check(items, experiment, method, old, alone=sequel is None and select is None)
    given = old
    experiment, space, old = _settled(experiment, method, given)
    with seeded(experiment.seed):
        encoder = experiment.model.build(experiment.weights, experiment.freeze_backbone)
        head = build_head(
            experiment.head or "", len(items.class_names), experiment.model.dim, dict(experiment.head_options)
        )
    record = _record(items, experiment, method, old if method.needs_old else None, data_name)
    if frozen_model is not None:
        record["frozen_model"] = dict(frozen_model)
    if start is not None:
        encoder.load_state_dict(start, strict=False)
        record["initial_weights"] = f"sha256 {weights_digest(start)}"
    if sequel is not None:
        go_on(sequel, old, encoder, head, method, items.class_names)
        record["initial_weights"] = old.fingerprint if old is not None else None
        record["data"] |= sequel.digests()
    if method.needs_old and old_images is not None:
        record["data"]["old digest"] = old_images.digest()
    identity = {**record, "encoder": encoder.spec.model_dump(mode="json"), "recipe": experiment.recipe.decides()}
    if space.parameters_of() is not None:
        record["curvature_start"] = identity["curvature_start"] = space.curvature
        if old is not None and method.needs_old:  # it will be lifted to a curvature that is not yet known
            record["data"]["lifted again"] = identity.pop("compatible_with")
    elif space.curvature is not None:
        identity["space"] = space.record()
    checkpoint = folder / "checkpoint.safetensors"
    if (folder / "config.json").exists():
        release = _finished(folder, identity)
        checkpoint.unlink(missing_ok=True)  # of a run that was stopped just before it did so
        return release
    fabric = experiment.recipe.build_fabric()
    replayed = None if sequel is None else sequel.replayed
    loader = _training_loader(items, experiment, fabric, replayed, method.memory_share)
    encode_loader = encoding_loader(
        items, batch_size=experiment.recipe.batch_size, workers=experiment.recipe.workers, replayed=replayed
    )
    old_model = None
    if old is not None and method.needs_old:
        same_view = experiment.recipe.view_for(method) == "same"
        if old_embeddings is None:
            old_model = _old_model(old, items, old_images, experiment, cache or folder, fabric, same_view=same_view)
        else:
            old_model = _stored_model(old, old_embeddings)
        if sequel is not None:
            old_model = dataclasses.replace(old_model, own_training=sequel.gallery)
    first = fabric.global_rank == 0
    with EventLog(folder, tensorboard=tensorboard, then=on_step) if first else nullcontext() as log:
        history = fit(
            encoder, head, method, loader, encode_loader, space=space, class_names=items.class_names, old=old_model,
            optimizer=experiment.recipe.build_optimizer, scheduler=experiment.recipe.build_schedule(), fabric=fabric,
            epochs=experiment.recipe.epochs, seed=experiment.seed, clip_norm=experiment.recipe.clip_norm,
            checkpoint=checkpoint, identity=identity, select=select, on_step=log,
        )  # fmt: skip
    method.on_session_end(encoder, head, encode_loader)
    encoder.cpu(), head.cpu()
    if first:
        save_carried(method, folder)
        save_history(history, folder)
        released = make_release(encoder, space.settled(), classifier=head, classes=items.class_names, **record)
        release = _save(released, given, old, folder) if method.needs_old else _save(released, None, None, folder)
        checkpoint.unlink(missing_ok=True)
    fabric.barrier()  # batch statistics differ between processes; the release is that of the first
    return release if first else load_release(folder)


def _save(release: Release, given: Release | None, old: Release | None, folder: Path) -> Release:
    """Save what was trained and, where its gallery is that of the predecessor on another space, that one beside it.

    Args:
        release: What was trained.
        given: The predecessor as it was given; None for a method without one.
        old: The predecessor on the space that training began with.
        folder: Where to.
    """
    if old is not None and old.space != release.space:  # a curvature was learned
        old = lifted(old, release.space)
        release = searching(release, old)
    if old is not None and old is not given:
        save_release(old, folder / "old-lifted")
    save_release(release, folder)
    return release


def _training_loader(
    items: LabelledItems,
    experiment: Experiment,
    fabric: Any,
    replayed: NDArray[np.bool_] | None,
    memory_share: float | None,
) -> DataLoader[Batch]:
    recipe = experiment.recipe
    return training_loader(
        items,
        replayed=replayed,
        memory_share=memory_share,
        batch_size=recipe.batch_size,
        seed=experiment.seed,
        augmentation=recipe.augmentation,
        items_per_class=recipe.items_per_class,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        workers=recipe.workers,
    )


def _check(
    items: LabelledItems, experiment: Experiment, method: CompatibilityMethod, old: Release | None, *, alone: bool
) -> None:
    if method.sessions_only and alone:
        raise ConfigError(
            f"The method '{experiment.method}' learns in sessions, and one model was to be trained.",
            expected="a method for one upgrade, such as p2s; or sessions",
            to_do="`holdfast sessions`, or holdfast.continual.runner.run_sessions, trains session after session.",
        )
    classes = len(set(items.labels.tolist()))
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
    experiment: Experiment, method: CompatibilityMethod, old: Release | None
) -> tuple[Experiment, Space, Release | None]:
    """Return the experiment with what its space decides, that space, and the predecessor on it."""
    found = settle(
        experiment.geometry,
        method,
        dim=experiment.model.dim,
        zeta=experiment.model.zeta,
        head=experiment.head,
        old=old,
    )
    model = experiment.model.model_copy(update={"zeta": found.zeta})
    return dataclasses.replace(experiment, model=model, head=found.head), found.space, found.old


def _record(
    items: LabelledItems, experiment: Experiment, method: CompatibilityMethod, old: Release | None, data_name: str
) -> dict[str, Any]:
    return {
        "compatible_with": None if old is None else old.fingerprint,
        "method": experiment.method,
        "method_options": dict(experiment.method_options),
        "head": experiment.head,
        "head_options": dict(experiment.head_options),
        "recipe": dataclasses.asdict(experiment.recipe),
        "old_view": None if old is None else experiment.recipe.view_for(method),
        "initial_weights": None if experiment.weights is None else _weights_name(experiment.weights),
        "frozen_backbone": experiment.freeze_backbone,
        "data": {"name": data_name, "digest": items.digest(), items.kind: str(len(items))},
        "seed": experiment.seed,
    }


def _weights_name(folder: Path) -> str:
    """Return the name of a folder of weights with the sha256 of their file."""
    file = folder / "model.safetensors"
    return f"{folder.name}, sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}" if file.exists() else folder.name


def _finished(folder: Path, identity: Mapping[str, Any]) -> Release:
    """Load a release that these very settings made; refuse to replace another one."""
    release = load_release(folder)
    found = release.record.model_dump(mode="json")
    found["recipe"] = {name: found["recipe"].get(name) for name in identity["recipe"]}
    wanted = json.loads(json.dumps(identity))
    different = [
        key for key in wanted.keys() | (found.keys() & {"curvature_start"}) if found.get(key) != wanted.get(key)
    ]
    if different:
        raise ConfigError(
            f"'{folder}' already holds a release made with other settings: {', '.join(different)} differ.",
            expected="an empty folder, or the same settings to continue",
            to_do="choose another --out, or remove that folder yourself; it is intact.",
        )
    return release


def _old_model(
    old: Release,
    items: LabelledItems,
    old_images: LabelledItems | None,
    experiment: Experiment,
    cache: Path,
    fabric: Any,
    *,
    same_view: bool,
) -> OldModel:
    recipe = experiment.recipe
    settings = {"batch_size": recipe.batch_size, "device": fabric.device, "workers": recipe.workers}
    own = None if old_images is None else cached_embeddings(old, old_images, cache, **settings)
    return OldModel(
        embeddings=cached_embeddings(old, items, cache, **settings),
        classes=old.classes,
        head=old.head,
        own_training=own,
        encoder=old.encoder if same_view else None,
    )


def _stored_model(old: Release, embeddings: EmbeddingSet) -> OldModel:
    """Return what is known of a predecessor of which only embeddings of the training items are at hand."""
    rows = embed_features(old, embeddings, form="features")
    return OldModel(embeddings=rows, classes=old.classes, head=old.head, own_training=rows)
