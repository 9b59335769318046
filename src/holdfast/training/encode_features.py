"""Bringing what a frozen model embedded into the space of a head over it: no item is embedded again."""

from __future__ import annotations

import numpy as np
import torch

from holdfast.embeddings import EmbeddingSet, Form
from holdfast.embeddings.uncertainty import with_uncertainty
from holdfast.errors import ReleaseError
from holdfast.models.feature_encoder import FeatureSpec
from holdfast.models.release import Release

ROWS = 16_384  # at a time


def embed_features(release: Release, embeddings: EmbeddingSet, *, form: Form = "points") -> EmbeddingSet:
    """Return embeddings of a frozen model as a head over it makes them; ids, labels, role and columns stay.

    Args:
        release: A head over a frozen model, such as `train_head` makes.
        embeddings: What that model embedded, as features or as points.
        form: "points" for queries and galleries, "features" for training caches.

    Raises:
        ReleaseError: The release is no head, or one over another model.
    """
    spec = release.encoder.spec
    if not isinstance(spec, FeatureSpec) or spec.frozen != embeddings.fingerprint:
        over = f"a head over {spec.frozen}" if isinstance(spec, FeatureSpec) else f"a {spec.name} that reads items"
        raise ReleaseError(
            f"Embeddings of {embeddings.fingerprint} for {over}.",
            expected="a head over a frozen model, and embeddings of that very model",
            to_do="embed the items with the model that the head was trained over; nothing was changed.",
        )
    vectors = np.empty((len(embeddings), release.space.dim), np.float32)
    with torch.no_grad():
        for start in range(0, len(vectors), ROWS):
            rows = torch.from_numpy(np.array(embeddings.vectors[start : start + ROWS]))
            features = release.encoder(rows).float()
            vectors[start : start + ROWS] = features if form == "features" else release.space.project(features)
    columns = {name: values for name, values in embeddings.columns.items() if name != "uncertainty"}
    return with_uncertainty(
        embeddings.replace(
            vectors=vectors, fingerprint=release.fingerprint, space=release.space, form=form, columns=columns
        )
    )
