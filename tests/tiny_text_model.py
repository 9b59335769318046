"""A tiny transformer over words, written as a sentence-transformers folder, and texts that it reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.models.sentence_models import of_library

CLASSES = 4
WORDS = [f"{kind}{number}" for kind in "abcd" for number in range(6)] + [f"any{number}" for number in range(12)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def write_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    dropout: float = 0.1,
    prompts: dict[str, str] | None = None,
    known: Iterable[str] = WORDS,
    layers: int = 1,
) -> Path:
    """Write a transformer of 32 dimensions, random weights, that pools by the mean.

    Args:
        folder: Where; the model is in its sub-folder ``model``.
        seed: Of the weights.
        dropout: In training.
        prompts: Of queries and documents.
        known: Words that it tells apart.
        layers: How many it has.
    """
    words = [*SPECIAL, *known, "find", ":", "read"]
    raw = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = Whitespace()
    raw.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=32,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(str(folder / "parts"))
    tokenizer.save_pretrained(str(folder / "parts"))
    model = SentenceTransformer(
        modules=[of_library("models").Transformer(str(folder / "parts")), of_library("models").Pooling(32, "mean")],
        prompts=prompts,
        device="cpu",
    )
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return folder / "model"


def some_texts(count: int, seed: int) -> TextSet:
    """Return texts of 2 to 9 words, of which one tells the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    texts = []
    for label in labels:
        others = rng.choice(WORDS[24:], rng.integers(1, 9)).tolist()
        others.insert(int(rng.integers(0, len(others) + 1)), str(rng.choice(WORDS[6 * label : 6 * label + 6])))
        texts.append(" ".join(others))
    ids = StringArray.of([f"{seed}-{row}" for row in range(count)])
    return TextSet(StringArray.of(texts), labels, tuple(f"class {c}" for c in range(CLASSES)), ids)
