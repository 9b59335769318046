"""How certain a model is of every item, where its space says so."""

from __future__ import annotations

import numpy as np

from holdfast.embeddings.embedding_set import EmbeddingSet

COLUMN = "uncertainty"  # of `EmbeddingSet.columns`: one number in [0, 1] per item


def with_uncertainty(embeddings: EmbeddingSet) -> EmbeddingSet:
    """Return points with the column "uncertainty", float32 (N,) in [0, 1]; as they are on a space that knows none."""
    import torch  # not needed to open or search a set

    if embeddings.form != "points" or not len(embeddings):
        return embeddings
    values = embeddings.space.uncertainty(torch.from_numpy(np.array(embeddings.vectors)))
    if values is None:
        return embeddings
    return embeddings.replace(columns={**embeddings.columns, COLUMN: values.numpy().astype(np.float32)})
