"""A sentence-transformers model for fine-tuning, with a projection over it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limpet.data.token_set import PADDING
from limpet.errors import ConfigError, DataError
from limpet.geometry.hypersphere import normalise
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.encoder import rest_frozen
from limpet.models.feature_encoder import FeatureEncoder
from limpet.models.names import ModelName
from limpet.models.published_weights import quietly
from limpet.models.sentence_models import SentenceModel, of_library
from limpet.models.specs import FeatureSpec, TextSpec
from limpet.models.text_folders import TEXT_MODEL, find_model
from limpet.support.disk import whole_folder

_AT_ONCE = 256
_SAME = 1e-4
_PROBED = ("a", "where is my parcel?", "I would like to open an account for my daughter, who lives abroad.")
_CARD = """\
The text model of the release in the folder above: fine-tuned weights, before the projection onto the release's space.
Its own vectors are not those of the release. `limpet export FOLDER_ABOVE --to sentence-transformers --out DIR` writes
a model whose vectors are.
"""


class TextTower(EmbeddingNetwork):
    """Network from tokens to raw embeddings (B, D), or to tangent vectors if the spec has a ζ.

    As in `FeatureEncoder`, only the directions of the text model's vectors count, and rows of length √F reach the
    projection: a head over the trained model computes the same.

    Args:
        model: The text model as opened by its library; it is trained in place.

    Raises:
        ConfigError: The model is not a network over tokens, such as static word embeddings, or its pooling skips a
            prefix.
    """

    spec: TextSpec

    def __init__(self, spec: TextSpec, model: Any) -> None:
        super().__init__(spec, spec.width)
        _refuse_other_inputs(model, spec)
        self.backbone = model
        self.padding = int(model.tokenizer.pad_token_id or 0)

    def train(self, mode: bool = True) -> TextTower:
        """Switch to training mode, except for frozen parts, which apply no dropout."""
        super().train(mode)
        rest_frozen(self.backbone)
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode tokens, int64 (B, longest), padded at the end with `PADDING`.

        Raises:
            DataError: The tokens are malformed.
        """
        if tokens.ndim != 2 or tokens.is_floating_point():
            raise DataError(
                f"{tokens.dtype} of shape {tuple(tokens.shape)}.", expected="tokens, int64 of shape (batch, longest)"
            )
        vectors = self.vectors_of(tokens)
        if self.spec.projection == "none":
            return self.embed(vectors)
        return self.embed(math.sqrt(self.spec.width) * normalise(vectors))

    def vectors_of(self, tokens: Tensor) -> Tensor:
        """Return the text model's vectors for tokens, before the projection (B, F)."""
        inside = tokens != PADDING
        features = {"input_ids": tokens.masked_fill(~inside, self.padding), "attention_mask": inside.long()}
        vectors: Tensor = self.backbone(features)["sentence_embedding"][:, : self.spec.width]
        return vectors

    def tokens_of(self, texts: Sequence[str], prefix: str) -> list[NDArray[np.int64]]:
        """Return the tokens of texts with a prefix, truncated to the model's maximum; see `tokens_of`."""
        return tokens_of(self.backbone, texts, prefix)

    def released(self, folder: Path) -> FeatureEncoder:
        """Write the text model into the folder of the release, and return the projection as a network over it."""
        place = folder / TEXT_MODEL
        self.backbone.prompts = {"query": self.spec.query_prefix, "document": self.spec.document_prefix}
        self.backbone.default_prompt_name = None
        self.backbone.truncate_dim = None  # recorded in the release
        with whole_folder(place, "training") as part:
            with quietly():
                self.backbone.save_pretrained(str(part), create_model_card=False)
            (part / "README.md").write_text(_CARD, encoding="utf-8")
            if place.exists():
                shutil.rmtree(place)  # left by a run that stopped before saving a release
        became = SentenceModel(place, None, self.spec.truncate_dim, "cpu")
        values = self.spec.model_dump(include=set(FeatureSpec.model_fields))
        over = FeatureEncoder(FeatureSpec(**{**values, "frozen": became.fingerprint}))
        over.load_state_dict({f"projection.{name}": value for name, value in self.projection.state_dict().items()})
        return over.eval()


def open_text_tower(spec: TextSpec) -> TextTower:
    """Open the text model that a spec names, with a new projection over it.

    Raises:
        ConfigError: The model is missing, differs from the spec, or cannot be trained.
    """
    folder = find_model(ModelName(f"st:{spec.place}"))
    if not (folder / "modules.json").exists():
        raise ConfigError(
            f"The text model '{spec.place}' is no network of the sentence-transformers library.",
            expected="a folder with modules.json, or a package or name that has one",
            to_do="static word embeddings have nothing to fine-tune: `limpet adapt` trains a head over them.",
        )
    network = SentenceModel(folder, spec.max_length, spec.truncate_dim, "cpu")
    if network.fingerprint != spec.frozen:
        raise ConfigError(
            f"The text model '{spec.place}' has the fingerprint {network.fingerprint}.",
            expected=f"the model that training was begun with, {spec.frozen}",
            to_do="restore it to continue; or train anew into another folder.",
        )
    tower = TextTower(spec, network.opened)
    _refuse_more_than_tokens(tower, network)
    return tower


def tokens_of(model: Any, texts: Sequence[str], prefix: str) -> list[NDArray[np.int64]]:
    """Tokenize texts with a prefix, special tokens included; return one array per text."""
    found: list[NDArray[np.int64]] = []
    read = getattr(model, "preprocess", None) or model.tokenize  # before version 6 of the library
    for start in range(0, len(texts), _AT_ONCE):
        batch = read([f"{prefix}{text}" for text in texts[start : start + _AT_ONCE]])
        for tokens, inside in zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True):
            found.append(tokens[inside].numpy().astype(np.int64))
    return found


def _refuse_other_inputs(model: Any, spec: TextSpec) -> None:
    """Refuse models that are not transformers over tokens, or that do not treat a prefix as plain text."""
    library = of_library("models")
    if not isinstance(model[0], library.Transformer) or model.tokenizer is None:
        raise ConfigError(
            f"The text model '{spec.place}' begins with a {type(model[0]).__name__}.",
            expected="a transformer over tokens, which can be fine-tuned",
            to_do="`limpet adapt` trains a head over any model.",
        )
    skips = any(isinstance(part, library.Pooling) and not part.include_prompt for part in model)
    if skips and (spec.query_prefix or spec.document_prefix):
        raise ConfigError(
            f"The pooling of the text model '{spec.place}' leaves out the prefix.",
            expected="a model that reads its prefix as a part of the text",
            to_do="fine-tune it without: --model-options.query-prefix '' and .document-prefix ''; or "
            "`limpet adapt` trains a head.",
        )


def _refuse_more_than_tokens(tower: TextTower, network: SentenceModel) -> None:
    """Refuse models whose vectors depend on more than tokens and their number, because training ignores the rest."""
    tokens = tower.tokens_of(_PROBED, "")
    batch = np.full((len(tokens), max(map(len, tokens))), PADDING, np.int64)
    for row, one in enumerate(tokens):
        batch[row, : len(one)] = one
    tower.eval()
    with torch.no_grad():
        found = tower.vectors_of(torch.from_numpy(batch)).float().numpy()
    expected = network(list(_PROBED), "")
    off = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))
    if not off <= _SAME:
        raise ConfigError(
            f"The text model '{tower.spec.place}' makes other vectors of the tokens alone (they differ by {off:.1e}).",
            expected="a model that reads tokens and nothing else",
            to_do="`limpet adapt` trains a head over any model.",
        )
