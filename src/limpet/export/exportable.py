"""What can be exported: adapters, heads over a frozen model, and releases of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from limpet.adapters.storage import ADAPTER_FILE, load_adapter
from limpet.errors import ReleaseError, refuse
from limpet.geometry import Space
from limpet.models.names import CODE, ModelName
from limpet.support.steps import Normalise, Steps

if TYPE_CHECKING:
    from torch import nn

    from limpet.adapters import Adapter
    from limpet.models.release import Release
    from limpet.models.specs import EncoderSpec

Vectors = NDArray[np.float32]

_PROBES = 256
"""Rows that are compared before anything is written for good."""
IMAGE_PROBES = 16
_PROBE_SEED = 20_260
_CONFIG = "config.json"


class ModelInput(BaseModel):
    """What goes in, for people who write serving code.

    Args:
        name: Of the input, in formats that name theirs.
        dtype: Of its numbers.
        shape: With "batch" for the axis of any length.
        words: What they are, and how they are prepared.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    words: str


@dataclass(frozen=True, eq=False)
class Exportable:
    """A map or an encoder, opened, with what every format needs of it.

    Args:
        name: What it is, in words.
        source: Fingerprint of the model whose vectors it reads; None where it reads images.
        fingerprint: Of the vectors it makes.
        searches: Fingerprint of the model whose gallery these search; None where that is its own alone.
        space: What they are points of.
        contract: What it reads.
        probe: Inputs to compare on.
        reference: What the original makes of inputs.
        steps: What it computes, as plain steps; None where these do not say it.
        network: What it computes, as a module of torch; None for maps of plain steps alone.
        searched_dim: So many first values of a vector search that gallery, where it has fewer; None for all.
    """

    name: str
    source: str | None
    fingerprint: str
    searches: str | None
    space: Space
    contract: ModelInput
    probe: NDArray[Any]
    reference: Callable[[NDArray[Any]], Vectors]
    steps: Steps | None = None
    network: nn.Module | None = None
    searched_dim: int | None = None


def open_exportable(name: str | Path | ModelName, over: str | ModelName | None = None) -> Exportable:
    """Open an adapter, a head or a model of images.

    Args:
        name: adapter:FOLDER or release:FOLDER, also the folder that `limpet adapt` saved it in; or any other name of a
            model of images that `limpet.open_release` takes.
        over: What gives the module of a release that was made of one's own; see `limpet.open_release`.

    Raises:
        ReleaseError: There is none, or it was altered.
        ConfigError: A module of one's own is needed, or was given for something else.
    """
    named = place_of(name)
    if named.scheme == "adapter":
        refuse(over is not None, f"{over} under an adapter.", "it only for a release of images")
        return of_adapter(load_adapter(named.place))
    from limpet.models.named_models import open_releases  # which needs torch

    return of_release(open_releases([named], over)[named])


def place_of(name: str | Path | ModelName) -> ModelName:
    """Return a name that says which folder is meant, where `limpet adapt` saved an adapter or a head in it.

    Raises:
        ReleaseError: There is nothing of the kind.
    """
    named = ModelName.of(name, bare="release")
    named.refuse_unless("release", "adapter", "hf", "timm", "package", CODE, what="images or of vectors")
    if named.scheme not in ("adapter", "release"):
        return named
    folder = Path(named.place)
    for place in (folder, folder / "adapter"):
        if (place / ADAPTER_FILE).exists():
            return ModelName(f"adapter:{place}")
    for place in (folder, folder / "head"):
        if (place / _CONFIG).exists():
            return ModelName(f"release:{place}")
    there = "no such folder"
    if folder.is_dir():
        there = f"it holds {', '.join(sorted(file.name for file in folder.iterdir())[:8]) or 'nothing'}"
    raise ReleaseError(
        f"'{folder}' is no release, head or adapter: {there}.",
        expected="a folder that `limpet train` or `limpet adapt` wrote, with config.json",
        to_do="check the path.",
        intact="Nothing was written.",
    )


def of_adapter(adapter: Adapter) -> Exportable:
    """Return a fitted adapter: vectors of its source model, of any length, to unit rows in the target's space."""
    fitted, steps = adapter.fitted, adapter.as_steps()
    return Exportable(
        name=f"the adapter '{adapter.kind}' ({adapter.direction})",
        source=fitted.source,
        fingerprint=adapter.mapped_fingerprint,
        searches=fitted.target,
        space=fitted.target_space,
        contract=vector_contract(fitted.source, fitted.source_space.dim),
        probe=probe_rows(fitted.source_space.dim),
        reference=adapter.map,
        steps=None if steps is None else (Normalise(), *steps, Normalise()),
    )


def of_release(release: Release) -> Exportable:
    """Return a head over a frozen model, or an encoder of images."""
    import torch

    from limpet.models.own_modules import probe_images
    from limpet.models.specs import FeatureSpec

    record, spec, network = release.record, release.record.encoder, points_of(release)

    def reference(inputs: NDArray[Any]) -> Vectors:
        with torch.no_grad():
            vectors: Vectors = network(torch.from_numpy(inputs)).numpy()
        return vectors

    made = partial(
        Exportable,
        fingerprint=record.fingerprint,
        searches=record.compatible_with,
        searched_dim=record.padded_from,
        space=release.space,
        reference=reference,
    )
    if not isinstance(spec, FeatureSpec):
        return made(
            name=f"the encoder of images '{spec.name}'",
            source=None,
            contract=image_contract(spec),
            probe=probe_images(spec.input_shape, IMAGE_PROBES).numpy(),
            network=network,
        )
    encoder_steps, space_steps = release.encoder.as_steps(), release.space.as_steps()
    return made(
        name=f"the head '{record.method}' over a frozen model",
        source=spec.frozen,
        contract=vector_contract(spec.frozen, spec.width),
        probe=probe_rows(spec.width),
        steps=None if encoder_steps is None or space_steps is None else (*encoder_steps, *space_steps),
    )


def points_of(release: Release) -> nn.Module:
    """Return a network from the encoder's input to points (N, D) of its space, in evaluation mode."""
    from torch import Tensor, nn

    class Points(nn.Module):
        """The encoder, then the projection onto the space."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = release.encoder

        def forward(self, inputs: Tensor) -> Tensor:
            """Return points (N, D) in float32."""
            return release.space.project(self.encoder(inputs).float())

    return Points().eval()


def vector_contract(source: str, dim: int) -> ModelInput:
    """Return what a map of vectors reads."""
    return ModelInput(
        name="vectors",
        dtype="float32",
        shape=("batch", dim),
        words=f"vectors of the model {source}, not shortened, normalised or not, none of them all zeros",
    )


def image_contract(spec: EncoderSpec) -> ModelInput:
    """Return what an encoder of images reads: all but the fitting to its size is a part of it."""
    manner, _, curve = spec.fit.partition("-")
    size = "{} × {} pixels".format(*spec.input_shape[1:])
    fit = {
        "crop": f"until both sides reach {size}, and cut around the centre",
        "squash": f"to {size}, whatever their aspect",
    }[manner]
    colours = {1: "grey", 3: "RGB"}.get(spec.channels, f"of {spec.channels} channels")
    cut = "the middle that is seen, " if spec.centre_crop is not None else ""
    return ModelInput(
        name="images",
        dtype="uint8",
        shape=("batch", *spec.input_shape),
        words=f"images, {colours}, values from 0 to 255; turned upright, then scaled ({curve or 'bilinear'}) {fit}. "
        f"Scaling to [0, 1], {cut}the mean {list(spec.mean)} and the standard deviation {list(spec.std)} are inside",
    )


def probe_rows(dim: int) -> Vectors:
    """Return vectors (256, dim) of all directions and several lengths."""
    generator = np.random.default_rng(_PROBE_SEED)
    rows = generator.normal(size=(_PROBES, dim)) * generator.choice([0.1, 1.0, 10.0], size=(_PROBES, 1))
    probe: Vectors = rows.astype(np.float32)
    return probe
