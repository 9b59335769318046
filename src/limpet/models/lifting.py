"""Lifting of models to another space, and a Lorentz space with learnable curvature."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import with_uncertainty
from limpet.errors import ReleaseError, SpaceMismatchError
from limpet.geometry import Lorentz, Space
from limpet.models.building import build_network
from limpet.models.embedding_network import tangent_vectors
from limpet.models.release import Release, make_release
from limpet.models.seeding import seeded


def lifted(release: Release, space: Space, zeta: float | None = None) -> Release:
    """Lift a model to another space, so that new models of that space can search its embeddings.

    From the hypersphere, directions are placed at the distance ζ from the origin: rankings do not change, since all
    points have the same distance. From a Lorentz space of another curvature, tangent vectors are lifted again. The
    classifier is dropped, because it reads features of the old space. Compatibility with earlier generations is lost,
    because their galleries lie in the old space.

    Args:
        release: The model.
        space: Target space: one with lengths, of the same dimension.
        zeta: Distance ζ of all points from the origin; None if the model's features have lengths of their own.

    Raises:
        SpaceMismatchError: The dimension differs, or a space ignores lengths where they are needed.
    """
    if release.space.dim != space.dim or not space.lengths_count or release.space.lengths_count == (zeta is not None):
        raise SpaceMismatchError(
            f"A release on the {release.space} to be lifted onto the {space} at ζ = {zeta}.",
            expected="a space of the same dimension in which lengths count, and a ζ for directions only",
        )
    spec = release.encoder.spec
    if zeta is not None:
        spec = spec.model_copy(update={"zeta": zeta, "lifts_directions": True})
    with seeded(0):  # building draws initial weights that are overwritten immediately
        encoder = build_network(spec)
    encoder.load_state_dict(release.encoder.state_dict())
    encoder.requires_grad_(False)
    names = ("method", "method_options", "recipe", "old_view", "initial_weights", "frozen_backbone", "data", "seed")
    kept = {name: getattr(release.record, name) for name in names}
    return make_release(
        encoder, space, classes=release.classes, trained_on=release.trained_on, lifted_from=release.fingerprint, **kept
    )


def lift_embeddings(embeddings: EmbeddingSet, release: Release) -> EmbeddingSet:
    """Return a model's rows as rows of the model after `lifted`; no item is re-embedded.

    Args:
        embeddings: Rows of the model that was lifted, as features or as points.
        release: The lifted model.

    Raises:
        ReleaseError: The release was not lifted, or was lifted from a model other than that of the rows.
    """
    if release.record.lifted_from != embeddings.fingerprint:
        raise ReleaseError(
            f"Embeddings of {embeddings.fingerprint} for a release lifted from {release.record.lifted_from}.",
            expected="embeddings made by the model that was lifted",
            to_do="give the release that training wrote as 'old-lifted', and the gallery of that very old model.",
        )
    spec, features = release.encoder.spec, torch.from_numpy(np.array(embeddings.vectors))
    features = features if embeddings.form == "features" else embeddings.space.unproject(features)
    if spec.lifts_directions:
        features = tangent_vectors(features, spec.zeta or 0.0, directions=True)
    vectors = features if embeddings.form == "features" else release.space.project(features)
    columns = {name: values for name, values in embeddings.columns.items() if name != "uncertainty"}
    found = embeddings.replace(
        vectors=vectors.numpy(), fingerprint=release.fingerprint, space=release.space, columns=columns
    )
    return with_uncertainty(found)


class LearnedCurvature(nn.Module):
    """Learnable curvature K > 0, clamped to a factor of ten around its start (MERU; HBCT, table 3).

    The parameter is log(K / K₀), so that weight decay pulls K to its start, not to 1.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.log_ratio = nn.Parameter(torch.tensor(0.0))

    def forward(self) -> Tensor:
        """Return K in [K₀ / 10, 10 K₀], a scalar."""
        return self.start * self.log_ratio.clamp(-math.log(10.0), math.log(10.0)).exp()


class LearnedLorentz(Lorentz):
    """A Lorentz space with learnable curvature; its points are valid at one training step only.

    Features of any curvature can be used on it, because tangent vectors at the origin do not depend on the curvature:
    they are lifted again at every step (the ablation of HBCT, appendix A).
    """

    def __init__(self, dim: int, curvature: float = 1.0) -> None:
        object.__setattr__(self, "learned", LearnedCurvature(curvature))  # before anything reads the live value
        super().__init__(dim, curvature)

    learned: LearnedCurvature

    @property
    def live_curvature(self) -> Tensor:
        """Current K, a scalar that receives a gradient."""
        value: Tensor = self.learned()
        return value

    @property
    def _reach(self) -> float:
        return math.sqrt(10 * self.learned.start)

    def takes_features_of(self, other: Space) -> bool:
        """Return whether the other space is a Lorentz space of this dimension, with any curvature."""
        return isinstance(other, Lorentz) and other.dim == self.dim

    def parameters_of(self) -> nn.Module:
        """Return the module that holds the curvature."""
        return self.learned

    def settled(self) -> Lorentz:
        """Return the Lorentz space of the current curvature."""
        return Lorentz(self.dim, float(self.live_curvature.detach()))
