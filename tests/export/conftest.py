"""A tiny model of text of the sentence-transformers library, and two sets of embeddings of which it made one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet
from limpet.export.sentence_transformers_folder import PROBE_TEXTS
from limpet.geometry import Hypersphere
from limpet.models.sentence_models import of_library
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder

Sets = tuple[EmbeddingSet, EmbeddingSet]
DIM = 6


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one vector of 6 dimensions per word, with a prompt of its own for queries."""
    words = sorted({word for text in PROBE_TEXTS for word in text.replace("?", " ?").split()} | {"find", ":", "[UNK]"})
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.random.default_rng(0).normal(size=(len(words), DIM)).astype(np.float32)
    folder = tmp_path_factory.mktemp("text") / "model"
    model = SentenceTransformer(
        modules=[of_library("models").StaticEmbedding(tokenizer, embedding_weights=weights)],
        prompts={"query": "find : "},
        device="cpu",
    )
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="session")
def text_encoder(text_folder: Path) -> TextEncoder:
    return open_text_encoder(text_folder)


@pytest.fixture(scope="session")
def text_sets(text_encoder: TextEncoder) -> Sets:
    """The same 80 texts by an old model, declared, and by the tiny one."""
    rng = np.random.default_rng(1)
    words = " ".join(PROBE_TEXTS).split()
    texts = [" ".join(rng.choice(words, 4)) for _ in range(80)]
    items = TextSet(texts, None, (), [f"i{row}" for row in range(len(texts))])
    new = embed_texts(text_encoder, items, role="document")
    turned = new.vectors @ np.linalg.qr(rng.normal(size=(DIM, DIM)))[0] + 0.3 * rng.normal(size=new.vectors.shape)
    old = EmbeddingSet(turned.astype(np.float32), new.ids, "declared:old", Hypersphere(DIM))
    return old, new
