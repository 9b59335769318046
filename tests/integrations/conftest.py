"""Two models of the same texts, links between them in folders, and a new model in the manner of every framework."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from api_server import ApiServer, serving, vector_of
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere

COLOURS, THINGS, MATERIALS = ("red", "blue", "green", "black"), ("hat", "coat", "cup"), ("wool", "glass", "wood")
TEXTS = [f"a {colour} {thing} of {material}" for colour in COLOURS for thing in THINGS for material in MATERIALS]
QUERY = "red wool hat"
OLD, NEW = 32, 24


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def new_vectors(texts: list[str], prefix: str = "") -> np.ndarray:
    """By the new model, before anything is normalised."""
    return np.stack([vector_of(prefix + text, "words-1") for text in texts])


def old_vectors(texts: list[str]) -> np.ndarray:
    """By the old model: as the new one has them, turned, and with further dimensions."""
    turned, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(OLD, NEW)))
    return unit(new_vectors(texts) @ turned.T)


class Links(NamedTuple):
    """Folders of links.

    Args:
        named: An adapter of new vectors for the model that people call "new".
        proven: The same for the model behind the API.
        gallery: An adapter of old vectors, named.
    """

    named: Path
    proven: Path
    gallery: Path


@pytest.fixture(scope="session")
def api() -> Iterator[ApiServer]:
    """A server of the new model; tests leave it as it is."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def links(tmp_path_factory: pytest.TempPathFactory, api: ApiServer) -> Links:
    from limpet.models.text_encoders import open_text_encoder

    folder = tmp_path_factory.mktemp("links")
    old = EmbeddingSet(old_vectors(TEXTS), TEXTS, "declared:old", Hypersphere(OLD))
    fitted = {"named": ("declared:new", "new_to_old"), "gallery": ("declared:new", "old_to_new"),
              "proven": (open_text_encoder(api.name).fingerprint, "new_to_old")}  # fmt: skip
    for name, (fingerprint, direction) in fitted.items():
        new = EmbeddingSet(unit(new_vectors(TEXTS)), TEXTS, fingerprint, Hypersphere(NEW))
        save_adapter(build_adapter("ridge", {"direction": direction}).fit(old, new), folder / name)
    return Links(**{name: folder / name for name in fitted})
