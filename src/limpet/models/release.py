"""A saved model with its identity.

A release is a folder of plain files: ``model.safetensors``, ``config.json``, ``README.md``, with a classifier
``head.safetensors`` and ``classes.json``, and ``trained-on.safetensors`` with digests of what it was trained on.
Loading runs no code from the folder and unpickles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from pydantic import (
    TypeAdapter,
    ValidationError,
)

from limpet.support.extras import importing
from limpet.support.ranges import checked

with importing(__name__):
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save_file as save_arrays
    from safetensors.torch import load_file, save_file
    from torch import Tensor, nn

from limpet.data.decoding import Fit
from limpet.data.image_size import ImageSize
from limpet.embeddings.trained_on import TRAINED_ON_FILE, TrainedOn
from limpet.errors import DataError, LimpetError, ReleaseError, SpaceMismatchError, reason
from limpet.geometry import Hypersphere, Space, space_from_record
from limpet.methods.base import Head
from limpet.models.building import rebuild_network
from limpet.models.card import model_card
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.heads import build_head
from limpet.models.module_origin import ImageInput, Kept, Preprocess
from limpet.models.own_modules import module_encoder, same_probe
from limpet.models.release_record import FORMAT_VERSION, ReleaseRecord
from limpet.models.seeding import seeded
from limpet.support.disk import Disk, only_files, read_text
from limpet.support.hub import HubPlace, OnHub, fetched
from limpet.version import __version__

_ENCODER, _HEAD = "model.safetensors", "head.safetensors"


@dataclass(frozen=True)
class Release(OnHub):
    """A trained encoder with its metadata.

    Args:
        encoder: The network, in evaluation mode.
        head: The classifier it was trained with; None if discarded.
        classes: Names of the training classes, in the order of the classifier's rows; empty if not kept.
        trained_on: The items it was trained on; None if unknown.
    """

    encoder: EmbeddingNetwork
    record: ReleaseRecord
    head: Head | None = None
    classes: tuple[str, ...] = ()
    trained_on: TrainedOn | None = None

    @classmethod
    @checked
    def from_module(
        cls,
        module: nn.Module,
        *,
        image_size: ImageSize,
        channels: int = 3,
        fit: Fit = "crop",
        centre_crop: ImageSize | None = None,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        preprocess: Preprocess | None = None,
        output: str | None = None,
        dim: int | None = None,
        space: Space | None = None,
        weights: Kept = "copy",
    ) -> Release:
        """Make a release from any module that returns one vector per image.

        The release is a snapshot: on the CPU, in float32 and in evaluation mode. The module is not modified, and later
        changes to it do not affect the release.

        Args:
            module: Module from float32 pixels (B, channels, height, width) to vectors (B, D), or to a record or a tuple
                with them.
            image_size: Height and width of the input images in pixels, or one number for both.
            channels: Number of image channels.
            fit: How images of another size are resized: "crop" keeps the aspect ratio and crops the centre, "squash"
                does not; the suffix "-bicubic" is allowed.
            centre_crop: Height and width, or one number for both, of the centre crop that the module sees, such as 224
                of 256. Default: no crop.
            mean: Mean to subtract from each channel after scaling pixels to [0, 1]; one value applies to all channels.
            std: Divisor of each channel; 1 / 255 gives pixels up to 255.
            preprocess: Function of pixels in [0, 1], float32 (B, channels, height, width), that replaces mean and std.
            output: Part of the module's output to use: "tensor", "cls" or "mean" of last_hidden_state, an index into a
                tuple, or the name of a key or attribute. Default: a tensor, image_embeds or pooler_output.
            dim: Expected dimension D, to be checked.
            space: Space of the vectors. Default: the hypersphere of dimension D.
            weights: "copy" saves them in the folder of the release; "keep" leaves them in the module, which must be
                passed to `load_release`, where they are verified to be the same.

        Raises:
            ConfigError: The argument is not a module, or a setting is out of range.
            DataError: The module fails, or its output is not one finite vector per image that depends only on this
                image.
        """
        contract = ImageInput(image_size, channels, fit, centre_crop, tuple(mean), tuple(std))
        kept = {"weights": weights}
        encoder = module_encoder(module, contract, preprocess=preprocess, output=output, dim=dim, origin=kept)
        return release_of(encoder, space)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        module: nn.Module | Release | None = None,
        preprocess: Preprocess | None = None,
        **place: Unpack[HubPlace],
    ) -> Release:
        """Open a release from a folder or the Hugging Face Hub, without running its code or unpickling anything.

        Args:
            name: A folder, or ``owner/name`` on the hub (``pip install '.[hub]'``).
            module: Your own module that the release was made from, if any; see `load_release`.
            preprocess: Function that prepares pixels for the module.
            **place: Location on the hub and download options: `limpet.support.hub.HubPlace`.

        Raises:
            MissingExtraError: The name is not a folder, and huggingface_hub is not installed.
            ReleaseError: The release cannot be downloaded, or was altered.
        """
        return load_release(fetched(name, **place), module=module, preprocess=preprocess)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save the release to a folder, with a model card for the hub, and return its path.

        Raises:
            ReleaseError: The folder holds another release, or cannot be written; its contents are unchanged.
        """
        return save_release(self, folder)

    @property
    def fingerprint(self) -> str:
        """Identity of the encoder: ``release:<sha256>``."""
        return self.record.fingerprint

    @property
    def space(self) -> Space:
        """What the embeddings are points of."""
        return space_from_record(self.record.space)


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """Return the sha256 of named tensors, in order of their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        values = state[name].detach().cpu().contiguous()
        digest.update(f"{name}:{values.dtype}:{tuple(values.shape)};".encode())
        digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
    return digest.hexdigest()


def fingerprint_of(encoder: EmbeddingNetwork, space: Space) -> str:
    """Return the fingerprint of an encoder: weights (no classifier), architecture, input contract and space."""
    contract = {"encoder": encoder.spec.contract(), "space": space.record()}
    weights = weights_digest(encoder.state_dict())
    digest = hashlib.sha256(f"{json.dumps(contract, sort_keys=True)};{weights}".encode()).hexdigest()
    return f"release:{digest}"


def make_release(
    encoder: EmbeddingNetwork,
    space: Space,
    *,
    classifier: Head | None = None,
    classes: Sequence[str] = (),
    trained_on: TrainedOn | None = None,
    **record: Any,
) -> Release:
    """Create a release from a trained encoder.

    Args:
        encoder: The trained network.
        space: Space of its embeddings.
        classifier: Its classifier, kept for methods that need the old classifier.
        classes: Names of the classifier's rows.
        trained_on: Items that it was trained on.
        **record: Further values of `ReleaseRecord`, such as the classifier's name (``head``).
    """
    versions = {"limpet": __version__, "torch": torch.__version__, "python": platform.python_version()}
    full = ReleaseRecord(
        fingerprint=fingerprint_of(encoder, space),
        encoder=encoder.spec,
        space=space.record(),
        lift={} if encoder.spec.zeta is None else {"zeta": encoder.spec.zeta},
        head_digest=None if classifier is None else weights_digest(classifier.state_dict()),
        versions=versions,
        probe=encoder.eval().spec.probe(encoder),
        trained_on=None if trained_on is None else trained_on.digest(),
        **record,
    )
    full = full.model_copy(update={"digest": _record_digest(full, tuple(classes))})
    return Release(encoder.eval(), full, classifier, tuple(classes), trained_on)


def release_of(encoder: EmbeddingNetwork, space: Space | None = None) -> Release:
    """Return an encoder that was not trained with limpet as a release.

    Args:
        encoder: Encoder around your own module.
        space: Space of its vectors; the hypersphere of its dimension when left out.

    Raises:
        SpaceMismatchError: The space has another dimension.
    """
    space = Hypersphere(encoder.spec.dim) if space is None else space
    if space.dim != encoder.spec.dim:
        raise SpaceMismatchError(
            f"A module of {encoder.spec.dim} dimensions and the {space}.", expected="one dimension"
        )
    return make_release(encoder, space)


def searching(release: Release, old: Release) -> Release:
    """Return the release with another predecessor on record, the one whose gallery its queries search."""
    record = release.record.model_copy(update={"compatible_with": old.fingerprint})
    record = record.model_copy(update={"digest": _record_digest(record, release.classes)})
    return replace(release, record=record)


def _record_digest(record: ReleaseRecord, classes: tuple[str, ...]) -> str:
    content = json.dumps([record.model_dump(mode="json", exclude={"digest"}), classes], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def save_release(release: Release, folder: str | Path, *, card: str | None = None) -> Path:
    """Write a release to a folder. All files are synced under temporary names before the first one is renamed.

    Args:
        release: Release to save.
        folder: Output folder; other files in it are not touched.
        card: Text of ``README.md``. Default: a short card.

    Raises:
        ReleaseError: The folder holds another release, or a file cannot be written; its contents are unchanged.
    """
    folder = Path(folder)
    _refuse_another(folder, release)
    writers: dict[str, Callable[[Path], object]] = {
        "model.safetensors": lambda part: save_file(_contiguous(_held(release.encoder)), part),
        "README.md": lambda part: part.write_text(card or model_card(release.record, release.space), encoding="utf-8"),
    }
    if release.classes:
        classes = json.dumps(release.classes)
        writers["classes.json"] = lambda part: part.write_text(classes, encoding="utf-8")
    if release.head is not None:
        head = release.head
        writers["head.safetensors"] = lambda part: save_file(_contiguous(head.state_dict()), part)
    if release.trained_on is not None:
        items = release.trained_on.arrays()
        writers[TRAINED_ON_FILE] = lambda part: save_arrays(items, part)
    record = release.record.model_dump_json(indent=2)
    writers["config.json"] = lambda part: part.write_text(record + "\n", encoding="utf-8")  # last: vouches for all
    disk, parts = Disk(), {name: folder / f".{name}.{os.getpid()}.part" for name in writers}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            write(parts[name])
            disk.sync_one(parts[name])
        for name, part in parts.items():
            part.replace(folder / name)
        disk.sync_one(folder)
    except (OSError, SafetensorError) as error:
        for part in parts.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise ReleaseError(
            f"Could not save the release to '{folder}': {error}.",
            expected="a folder that can be written, with room for the model",
            to_do="free space or choose another --out.",
            intact="A release that was there before is intact.",
        ) from error
    return folder


def _refuse_another(folder: Path, release: Release) -> None:
    """Refuse to replace another release, because a gallery may still depend on it."""
    if not (folder / "config.json").exists():
        return
    found = _read_record(folder).fingerprint
    if found != release.fingerprint:
        raise ReleaseError(
            f"'{folder}' already holds the release {found}.",
            expected="an empty folder for another release",
            to_do="choose another folder.",
            intact="The release that is there is intact.",
        )


def _held(encoder: EmbeddingNetwork) -> dict[str, Tensor]:
    """Return the weights that a release holds: all except those that are stored elsewhere."""
    return {name: values for name, values in encoder.state_dict().items() if not encoder.spec.left_out(name)}


def _contiguous(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as the file format requires: on the CPU, contiguous, and without shared memory."""
    taken: set[int] = set()
    found = {}
    for name, values in state.items():
        place = values.detach().cpu().contiguous()
        shared = place.untyped_storage().data_ptr() in taken
        found[name] = place.clone() if shared else place
        taken.add(found[name].untyped_storage().data_ptr())
    return found


def load_release(
    folder: str | Path, *, module: nn.Module | Release | None = None, preprocess: Preprocess | None = None
) -> Release:
    """Load a release and verify its fingerprint.

    Args:
        folder: Folder of the release.
        module: The user-defined module that the release was made from, or a release of it, since a release holds no
            code. It is not changed.
        preprocess: Function that prepares pixels for that module; None for none.

    Raises:
        ReleaseError: The folder is not a release, is incomplete, or a file was altered since it was saved.
        ConfigError: The release needs the module that it was made from, or ``module`` is another one.
    """
    folder = Path(folder)
    record = load_record(folder)
    classes = _read_classes(folder, record)
    body = module.encoder if isinstance(module, Release) else module
    try:
        with seeded(0):  # building draws initial weights that are overwritten at once
            if body is None and record.encoder.is_plan:
                _refuse_larger(folder, record, classes)
            encoder = rebuild_network(record.encoder, body, preprocess)
            head = record.head and build_head(
                record.head, len(classes), record.encoder.dim, dict(record.head_options), to_train=False
            )
        stored = load_file(folder / _ENCODER)
        own = {name: values for name, values in encoder.state_dict().items() if record.encoder.left_out(name)}
        encoder.load_state_dict(own | stored)
        if head:
            head.load_state_dict(load_file(folder / _HEAD))
    except LimpetError:
        raise
    except (OSError, SafetensorError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise _altered(folder, f"its weights cannot be read ({reason(error)})") from error
    found = fingerprint_of(encoder, space_from_record(record.space))
    if found != record.fingerprint and own:
        raise ReleaseError(
            f"The weights of {record.encoder.name} changed since the release '{folder}' was made of it, which left "
            f"them where they are: its fingerprint was {record.fingerprint} and is {found}.",
            expected="the very weights",
            to_do="give these weights again; or make a new release: vectors of the two must not be mixed.",
        )
    if found != record.fingerprint:
        raise _altered(folder, f"weights or settings have fingerprint {found}, config.json says {record.fingerprint}")
    if head and weights_digest(head.state_dict()) != record.head_digest:
        raise _altered(folder, "head.safetensors is not the classifier that was saved")
    encoder.requires_grad_(False).eval()
    probe = record.encoder.probe(encoder)
    if record.probe is not None and not same_probe(probe or (), record.probe):
        raise ReleaseError(
            f"The module of the release '{folder}' has the same weights, and makes other vectors of the same images.",
            expected=f"the code that it was made of: {record.encoder.name}, {record.versions}",
            to_do="give the module, its preprocessing and the packages as they were; or make a new release of it.",
        )
    return Release(
        encoder, record, head.requires_grad_(False).eval() if head else None, classes, _read_trained_on(folder, record)
    )


def _read_trained_on(folder: Path, record: ReleaseRecord) -> TrainedOn | None:
    if record.trained_on is None:
        return None
    try:
        items = TrainedOn.load(folder / TRAINED_ON_FILE)
    except DataError as error:
        raise _altered(folder, f"the record of what it was trained on cannot be read ({error.given})") from error
    if items.digest() != record.trained_on:
        raise _altered(folder, f"{TRAINED_ON_FILE} is not the record that was saved")
    return items


def _refuse_larger(folder: Path, record: ReleaseRecord, classes: tuple[str, ...]) -> None:
    """Refuse a record whose networks do not match the weights, before allocating memory for them."""
    with torch.device("meta"):  # shapes without numbers
        wanted = {name: list(values.shape) for name, values in _held(rebuild_network(record.encoder)).items()}
    with safe_open(folder / _ENCODER, framework="pt") as content:
        found = {name: content.get_slice(name).get_shape() for name in content.keys()}  # noqa: SIM118 - not a mapping
    if found != wanted:
        name = min(name for name in {**found, **wanted} if found.get(name) != wanted.get(name))
        raise ValueError(f"'{name}' is of shape {found.get(name)}, config.json says {wanted.get(name)}")
    rows = len(classes) * record.encoder.dim
    if record.head is not None and (size := (folder / _HEAD).stat().st_size) < rows:
        raise ValueError(f"{_HEAD} has {size:,} bytes for {rows:,} numbers")


def load_record(folder: str | Path) -> ReleaseRecord:
    """Read and verify the record of a release, without its network.

    Raises:
        ReleaseError: The folder is not a release, or its record was altered.
    """
    record = _read_record(Path(folder))
    if _record_digest(record, _read_classes(Path(folder), record)) != record.digest:
        raise _altered(Path(folder), "config.json or classes.json is not what was saved")
    return record


def load_classes(folder: str | Path) -> tuple[str, ...]:
    """Read the names of the classes that a release was trained on; empty if they were not kept."""
    return _read_classes(Path(folder), _read_record(Path(folder)))


def _read_record(folder: Path) -> ReleaseRecord:
    path = folder / "config.json"
    try:
        record = ReleaseRecord.model_validate_json(read_text(only_files(folder) / path.name))
    except OSError as error:
        raise ReleaseError(
            f"'{folder}' is no release: {error.strerror or error}.",
            expected="a folder with config.json and model.safetensors, as `limpet train` writes it",
            to_do="check the path; `ls` the folder that was given as --out when the model was trained.",
        ) from error
    except UnicodeDecodeError as error:
        raise _altered(folder, "config.json is no text") from error
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
        raise _altered(folder, f"config.json does not describe a release ({where})") from error
    if record.format_version > FORMAT_VERSION:
        raise ReleaseError(
            f"'{folder}' has format version {record.format_version}.",
            expected=f"at most {FORMAT_VERSION}",
            to_do="install a newer limpet.",
            intact="The release is intact.",
        )
    return record


def _read_classes(folder: Path, record: ReleaseRecord) -> tuple[str, ...]:
    if record.head is None and not (folder / "classes.json").exists():
        return ()
    try:
        return TypeAdapter(tuple[str, ...]).validate_json(read_text(folder / "classes.json"))
    except (OSError, ValueError) as error:
        raise _altered(folder, "classes.json holds no list of class names") from error


def _altered(folder: Path, why: str) -> ReleaseError:
    return ReleaseError(
        f"The release '{folder}' was altered since it was saved: {why}.",
        to_do="restore the folder from a copy; embeddings made by another model must not be mixed with its own.",
    )
