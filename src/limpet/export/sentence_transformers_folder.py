"""Maps as further modules of a model of the sentence-transformers library (extra ``text``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from limpet.embeddings import Role
from limpet.errors import ConfigError
from limpet.export.exportable import Exportable, Vectors
from limpet.export.formats import NO_STEPS, Format
from limpet.export.record import ExportRecord
from limpet.models.text_folders import read_json
from limpet.support.steps import Affine, ExportStep, FloatArray, Gelu, Normalise, Relu, Scale, Steps, Sum, flattened

if TYPE_CHECKING:
    from limpet.models.sentence_models import SentenceModel
    from limpet.models.text_encoders import TextEncoder

Base = Literal["copy", "keep"]
MODULES = "modules.json"
BEHIND_AN_API = "api:"
"""How fingerprints of models begin that are no files."""
PROBE_TEXTS = (
    "where is my parcel", "I would like to open an account", "a", "the quick brown fox jumps over the lazy dog",
    "rain tomorrow?", "Wie geht es dir?", "42", "how do I reset my password if I no longer have that phone",
    "a red dress for a summer wedding", "retrieval, compatibility, embedding", "snow " * 600, "SELECT * FROM t;",
    "play some piano jazz", "flight to Paris on Monday morning", "refund",
)  # fmt: skip
"""What is embedded to compare, as query and as document: a folder of this kind reads texts, not vectors."""

ACTIVATIONS: dict[type[ExportStep], str] = {Relu: "ReLU", Gelu: "GELU"}
"""Steps between affine ones, as classes of torch.nn. Of both, f(t) − f(−t) = t, which `as_dense` uses."""


@dataclass(frozen=True, eq=False)
class Dense:
    """A layer f(x · weights + offset).

    Args:
        weights: (S, T).
        offset: (T,).
        activation: f, a class of torch.nn.
    """

    weights: FloatArray
    offset: FloatArray
    activation: str = "Identity"


@dataclass(frozen=True)
class SentenceTransformersFolder(Format):
    """A folder that ``SentenceTransformer(folder)`` opens: the modules of the base model, then Normalize and Dense.

    Args:
        encoder: The frozen model of text whose vectors are mapped; None where people named none.
        base: "copy" its weights, or "keep" them where they are and link to them.
    """

    encoder: TextEncoder | None = None
    base: Base = "copy"

    name = "sentence-transformers"
    title = "a sentence-transformers model"
    reads_texts = True
    usage = """
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")  # this folder
vectors = model.encode_query(["my parcel did not come"])  # search the gallery named above with these
"""
    front = "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n---"

    def refusal(self, model: Exportable) -> str:
        """Refuse encoders of images, maps that are no chain of dense layers, and vectors that no text model makes."""
        from limpet.models.sentence_models import SentenceModel

        if model.source is None:
            return "it reads images, and sentence-transformers has no module for its network"
        if model.steps is None:
            return NO_STEPS
        try:
            as_layers(model.steps)
        except ConfigError as why:
            return why.given
        if model.source.startswith(BEHIND_AN_API):
            return "the vectors that it reads come from an API, and no folder can hold that model"
        if self.encoder is None:
            return "nothing says which model of text makes the vectors that it reads (--over MODEL)"
        if self.encoder.fingerprint != model.source:
            return f"it reads vectors of {model.source}, and the text model '{self.encoder.name}' makes those of "\
                f"{self.encoder.fingerprint}"  # fmt: skip
        if not isinstance(self.encoder.network, SentenceModel):
            return f"'{self.encoder.name}' is no model of the sentence-transformers library"
        return ""

    def write(self, model: Exportable, record: ExportRecord, folder: Path) -> ExportRecord:
        """Write the modules of the base model, and those of the map."""
        from sentence_transformers import SentenceTransformer, __version__

        from limpet.models.published_weights import quietly
        from limpet.models.sentence_models import opened_by_library

        encoder, network = self._encoder()
        opened = opened_by_library(network.folder, "cpu")
        if network.max_length is not None:
            opened.max_seq_length = network.max_length
        layers = as_layers(model.steps or ())
        opened.truncate_dim = None  # the modules of the map follow on whole vectors
        width = len(opened.encode("a", prompt=""))
        if width != encoder.dim:  # the first values alone count
            layers = [Dense(np.eye(width, encoder.dim), np.zeros(encoder.dim)), *layers]
        prompts = {**opened.prompts, **{role: encoder.prefixes[role] or "" for role in ("query", "document")}}
        chain = SentenceTransformer(
            modules=[*opened, *map(as_module, layers)], prompts=prompts, device="cpu", similarity_fn_name="cosine",
            default_prompt_name=opened.default_prompt_name,
        )  # fmt: skip
        with quietly():
            chain.save_pretrained(str(folder), create_model_card=False)
        use_common_names(folder)
        if self.base == "keep":
            link_weights(folder, network.folder)
        words = f"texts, embedded by '{encoder.name}' in here, of the fingerprint {model.source}"
        contract = record.input.model_copy(
            update={"name": "texts", "dtype": "text", "shape": ("batch",), "words": words}
        )
        versions = {**record.versions, "sentence-transformers": __version__}
        return record.model_copy(update={"input": contract, "versions": versions})

    def pairs(self, model: Exportable, folder: Path) -> tuple[Vectors, Vectors]:
        """Return what the original makes of texts, and what the folder makes of them."""
        from limpet.models.sentence_models import opened_by_library

        (encoder, _), opened, texts = self._encoder(), opened_by_library(folder, "cpu"), list(PROBE_TEXTS)
        roles: tuple[Role, ...] = ("query", "document")
        expected, found = [], []
        for role in roles:
            vectors = encoder.encode(texts, role=role)
            known = np.flatnonzero(vectors.any(axis=1))  # a text without any known word has no direction to map
            expected.append(model.reference(vectors[known]))
            found.append(opened.encode(texts, prompt_name=role, show_progress_bar=False)[known])
        return np.concatenate(expected), np.concatenate(found)

    def _encoder(self) -> tuple[TextEncoder, SentenceModel]:
        from limpet.models.sentence_models import SentenceModel

        if self.encoder is None or not isinstance(self.encoder.network, SentenceModel):
            raise ConfigError("No model of the sentence-transformers library.", expected="--over MODEL")
        return self.encoder, self.encoder.network


def as_layers(steps: Sequence[ExportStep]) -> list[Dense | Normalise]:
    """Return steps as dense layers and normalisations.

    Raises:
        ConfigError: They are none.
    """
    layers: list[Dense | Normalise] = []
    factor = 1.0  # of the next affine step; before a normalisation it has no effect
    for step in flat_sums(steps):
        before = layers[-1] if layers else None
        if isinstance(step, Normalise):
            if not isinstance(before, Normalise):
                layers.append(step)
            factor = 1.0
        elif isinstance(step, Scale):
            factor *= step.factor
        elif isinstance(step, Affine):
            layers.append(Dense(factor * step.weights, step.offset))
            factor = 1.0
        elif (
            type(step) in ACTIVATIONS and isinstance(before, Dense) and before.activation == "Identity" and factor == 1
        ):
            layers[-1] = Dense(before.weights, before.offset, ACTIVATIONS[type(step)])
        else:
            raise ConfigError(f"the map {step.words}, for which that library has no module")
    if factor != 1:
        raise ConfigError("the map ends with a scale, for which that library has no module")
    return layers


def flat_sums(steps: Sequence[ExportStep]) -> Steps:
    """Return steps with every sum of branches as two affine steps around one activation.

    A branch x · W + b becomes one with the activation f, since f(t) − f(−t) = t for those of `ACTIVATIONS`: its first
    layer has the columns [W, −W], and its second takes their difference. All branches then lie side by side.

    Raises:
        ConfigError: The branches are others than x · W + b, and f(x · A + a) · C + c.
    """
    flat: list[ExportStep] = []
    for step in steps:
        flat += as_dense(step) if isinstance(step, Sum) else [step]
    return tuple(flat)


def as_dense(step: Sum) -> list[ExportStep]:
    """Return a sum of branches as two affine steps around one activation; see `flat_sums`."""
    kinds = {type(inner) for inner in flattened([step])} & set(ACTIVATIONS)
    firsts: list[FloatArray] = []
    offsets: list[FloatArray] = []
    lasts: list[FloatArray] = []
    last_offsets: list[FloatArray] = []
    for branch in step.branches:
        match branch:
            case (Affine() as only,):
                firsts += [only.weights, -only.weights]
                offsets += [only.offset, -only.offset]
                lasts += [np.eye(len(only.offset)), -np.eye(len(only.offset))]
            case (Affine() as first, inner, Affine() as last) if type(inner) in kinds:
                firsts, offsets, lasts = [*firsts, first.weights], [*offsets, first.offset], [*lasts, last.weights]
                last_offsets.append(last.offset)
            case _:
                kinds = set()
    if len(kinds) != 1:
        raise ConfigError("the map adds up several maps that no chain of dense layers makes")
    (activation,) = kinds
    second = Affine(np.concatenate(lasts), np.sum(last_offsets, axis=0))
    return [Affine(np.concatenate(firsts, axis=1), np.concatenate(offsets)), activation(), second]


def as_module(layer: Dense | Normalise) -> Any:
    """Return a layer as a module of the library."""
    import torch

    from limpet.models.sentence_models import of_library

    modules = of_library("models")
    if isinstance(layer, Normalise):
        return modules.Normalize()
    made = modules.Dense(*layer.weights.shape, activation_function=getattr(torch.nn, layer.activation)())
    with torch.no_grad():
        made.linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(layer.weights.T)))
        made.linear.bias.copy_(torch.from_numpy(np.ascontiguousarray(layer.offset)))
    return made


def use_common_names(folder: Path) -> None:
    """Write the modules under the names that published models and other servers have."""
    path = folder / MODULES
    parts = read_json(path)
    for part in parts:
        part["type"] = f"sentence_transformers.models.{part['type'].rpartition('.')[2]}"
    path.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")


def link_weights(folder: Path, base: Path) -> None:
    """Replace weights that are the base model's own, number for number, by links to them.

    Raises:
        ConfigError: There are none: the library writes them otherwise, as where the model keeps them in half precision.
    """
    linked = 0
    for file in sorted(folder.rglob("*.safetensors")):
        own = base / file.relative_to(folder)
        if own.is_file() and _hold_the_same(file, own):
            file.unlink()
            file.symlink_to(own.resolve())
            linked += 1
    if not linked:
        raise ConfigError(
            f"--base keep: the weights in '{base}' are not as the library writes them in float32.",
            expected="weights that can be linked to as they are",
            to_do="leave --base out, so that they are written anew.",
        )


def _hold_the_same(file: Path, own: Path) -> bool:
    """Return whether every array of a file is in the other one; that may hold more, which nothing reads."""
    from safetensors.torch import load_file

    written, kept = load_file(file), load_file(own)
    return all(
        name in kept and kept[name].dtype == values.dtype and kept[name].equal(values)
        for name, values in written.items()
    )
