"""Models of one space as models of another, and a Lorentz space whose curvature is learned with the model."""

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
    """Return a model as one of another space, so that new models of that space can search what it embedded.

    From the hypersphere, its directions are laid out at the distance ζ: it finds what it found before, in the same
    order, since all points lie equally far from the origin. From a Lorentz space of another curvature, its tangent
    vectors are lifted again. The classifier does not survive: it read what the old space made of the features;
    nor does the compatibility with earlier generations, whose galleries lie on the old space.

    Args:
        release: The model.
        space: Where its points shall lie: a space in which lengths count, of the same dimension.
        zeta: Distance ζ of all points from the origin; None where the model's features have lengths of their own.

    Raises:
        SpaceMismatchError: The dimension is another, or lengths do not count where they should.
    """
    if release.space.dim != space.dim or not space.lengths_count or release.space.lengths_count == (zeta is not None):
        raise SpaceMismatchError(
            f"A release on the {release.space} to be lifted onto the {space} at ζ = {zeta}.",
            expected="a space of the same dimension in which lengths count, and a ζ for directions only",
        )
    spec = release.encoder.spec
    if zeta is not None:
        spec = spec.model_copy(update={"zeta": zeta, "lifts_directions": True})
    with seeded(0):  # building draws initial weights that are overwritten at once
        encoder = build_network(spec)
    encoder.load_state_dict(release.encoder.state_dict())
    encoder.requires_grad_(False)
    names = ("method", "method_options", "recipe", "old_view", "initial_weights", "frozen_backbone", "data", "seed")
    kept = {name: getattr(release.record, name) for name in names}
    return make_release(
        encoder, space, classes=release.classes, trained_on=release.trained_on, lifted_from=release.fingerprint, **kept
    )


def lift_embeddings(embeddings: EmbeddingSet, release: Release) -> EmbeddingSet:
    """Return a model's rows as rows of that model `lifted`: no item is embedded again.

    Args:
        embeddings: Rows of the model that was lifted, as features or as points.
        release: What `lifted` made of it.

    Raises:
        ReleaseError: The release was not lifted, or from another model than the one that embedded the rows.
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
    """K > 0 as a parameter, held within a factor of ten of its start (MERU; HBCT, table 3).

    The parameter is log(K / K₀), so that weight decay draws K to its start, not to 1.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.log_ratio = nn.Parameter(torch.tensor(0.0))

    def forward(self) -> Tensor:
        """Return K in [K₀ / 10, 10 K₀], a scalar."""
        return self.start * self.log_ratio.clamp(-math.log(10.0), math.log(10.0)).exp()


class LearnedLorentz(Lorentz):
    """The Lorentz space while its curvature is learned; points of it belong to one moment of the training.

    Features of any curvature can be used on it, because tangent vectors at the origin do not depend on the curvature:
    they are lifted again at every step (the ablation of HBCT, appendix A).
    """

    def __init__(self, dim: int, curvature: float = 1.0) -> None:
        object.__setattr__(self, "learned", LearnedCurvature(curvature))  # before anything asks for the live value
        super().__init__(dim, curvature)

    learned: LearnedCurvature

    @property
    def live_curvature(self) -> Tensor:
        """K as it is now, a scalar that receives a gradient."""
        value: Tensor = self.learned()
        return value

    @property
    def _reach(self) -> float:
        return math.sqrt(10 * self.learned.start)

    def takes_features_of(self, other: Space) -> bool:
        """Return whether the other space is a Lorentz space of this dimension, of whatever curvature."""
        return isinstance(other, Lorentz) and other.dim == self.dim

    def parameters_of(self) -> nn.Module:
        """Return the module that holds the curvature."""
        return self.learned

    def settled(self) -> Lorentz:
        """Return the Lorentz space of the curvature reached."""
        return Lorentz(self.dim, float(self.live_curvature.detach()))
