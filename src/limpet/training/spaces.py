"""Choice of the space to train on, from the settings, the predecessor and the method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from limpet.errors import ConfigError, SpaceMismatchError, refuse, unknown_name
from limpet.geometry import SEARCH_SPACES, SPACES, Space, space_from_record
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod
from limpet.models.heads import HEADS, default_head
from limpet.models.lifting import LearnedLorentz, lifted
from limpet.models.release import Release
from limpet.training.experiment import Geometry


@dataclass(frozen=True)
class Settled:
    """The space that a model is trained on.

    Args:
        space: Space of the embeddings.
        zeta: Length at which features are clipped; None if the space ignores lengths.
        old: The predecessor on that space; None without one.
    """

    space: Space
    zeta: float | None
    head: str
    old: Release | None

    @property
    def projection(self) -> str:
        """Default projection from backbones to the space.

        In spaces with lengths, models without batch normalisation score lower after the same training
        (`benchmarks/lorentz_projection.py`).
        """
        return "linear-bn" if self.space.lengths_count else "linear"


def common_space(methods: Iterable[CompatibilityMethod]) -> str:
    """Return the first space that all methods support.

    Raises:
        ConfigError: The methods have no space in common.
    """
    methods = list(methods)
    for name in SPACES:
        if all(name in method.spaces for method in methods):
            return name
    known = "; ".join(f"{type(method).__name__}: {', '.join(sorted(method.spaces))}" for method in methods)
    raise ConfigError(
        f"The methods share no space ({known}).",
        expected="methods of one space in one run, since they are compared with one old model",
        to_do="train them in separate runs.",
    )


def settle(
    asked: Geometry,
    method: CompatibilityMethod,
    *,
    dim: int,
    zeta: float | None = None,
    head: str | None = None,
    old: Release | None = None,
) -> Settled:
    """Decide the space of a model, or refuse before any data is read.

    Args:
        asked: Geometry settings of the user.
        method: The compatibility method.
        dim: Embedding dimension D.
        zeta: Requested clipping length; None for the default of the space.
        head: Requested classifier, a key of `HEADS`; None for the first that supports the space.
        old: The predecessor. A method that needs none still inherits its space and the next ζ, to train by the same
            recipe.

    Raises:
        ConfigError: Method, classifier and space are incompatible, or a value is out of range.
        SpaceMismatchError: The predecessor is on another space.
    """
    name = _name(asked, method, old)
    _refuse_space(name)
    _refuse_method(asked, method, name, old)
    if head is not None and head not in HEADS:
        raise HEADS.unknown(head)
    refuse(
        asked.curvature is not None and not SPACES[name].lengths_count,
        f"A curvature of {asked.curvature:g} on the {name}." if asked.curvature is not None else "",
        "none there; --space lorentz with --curvature",
    )
    inherited = old.space.curvature if old is not None and old.space.name == name else None
    curvature = asked.curvature if asked.curvature is not None else inherited
    space = space_from_record({"name": name, "dim": dim, "curvature": curvature})
    if asked.learn_curvature:
        refuse(
            space.curvature is None,
            f"A curvature to be learned on the {space}.",
            "a space that has one: --space lorentz",
        )
        space = LearnedLorentz(dim, space.curvature or 1.0)
    head = head or default_head(space)
    if name not in HEADS[head].spaces:
        raise ConfigError(
            f"The classifier '{head}' does not read points of the {space}.",
            expected=f"one of {', '.join(key for key, value in HEADS.items() if name in value.spaces)}",
            to_do=f"leave out --head, or pass --head {default_head(space)}.",
        )
    old = _on(space, old, asked, method) if old is not None and method.needs_old else old
    return Settled(space, space.clip_after(_zeta(asked, old), zeta), head, old)


def _refuse_other_dimensions(space: Space, old: Space, asked: Geometry, method: CompatibilityMethod) -> None:
    """Refuse a predecessor of another dimension, unless its embeddings may be padded with zeros."""
    given = f"The old model has {old.dim} dimensions, the new one {space.dim}."
    same = f"train the new model with --dim {old.dim}"
    if old.dim > space.dim:
        raise SpaceMismatchError(
            given, expected="at least as many, since new queries search old vectors", to_do=f"{same}, or more."
        )
    if not space.pads(old):
        raise SpaceMismatchError(
            f"{given} It is on the {space}, the old one on the {old}, and only points of the hypersphere count as "
            "padded with zeros: tangent vectors are divided by the root of their dimension, and old ones would lie "
            "elsewhere.",
            expected="one dimension, since new queries search old vectors",
            to_do=f"{same}.",
        )
    if not (asked.pad_old or method.widens):
        raise SpaceMismatchError(
            given,
            expected="one dimension, since new queries search old vectors",
            to_do=f"{same}; or let old embeddings count as padded with zeros: --pad-old, or a method made for that, "
            f"{' or '.join(key for key, known in METHODS.items() if known.widens)}.",
        )


def _name(asked: Geometry, method: CompatibilityMethod, old: Release | None) -> str:
    if asked.space is not None:
        return asked.space
    if asked.lift_old is not None:
        return next(name for name, space in SPACES.items() if space.lengths_count)
    return common_space([method]) if old is None else old.space.name


def _refuse_space(name: str) -> None:
    if name in SPACES:
        return
    if name not in SEARCH_SPACES:
        raise unknown_name("space", name, SPACES)
    raise ConfigError(
        f"No model is trained on the space '{name}': vectors that are there already are searched and evaluated there.",
        expected=f"one of {', '.join(SPACES)}",
        to_do=f"pass --space {next(iter(SPACES))}; its similarity, the cosine, is the inner product of unit vectors.",
    )


def _zeta(asked: Geometry, old: Release | None) -> float | None:
    if old is None or not old.space.lengths_count:
        return asked.lift_old
    return old.encoder.spec.zeta


def _refuse_method(asked: Geometry, method: CompatibilityMethod, name: str, old: Release | None) -> None:
    if name in method.spaces:
        refuse(
            asked.learn_curvature and method.needs_old and old is not None and method.keeps_points,
            f"{type(method).__name__} keeps points of the old model, which a curvature in motion leaves behind.",
            "a curvature that stays (no learn_curvature), or one of "
            + ", ".join(
                key
                for key, known in METHODS.items()
                if name in known.spaces and not known.keeps_points and not known.sessions_only
            ),
        )
        return
    refuse(
        asked.lift_old is not None,
        f"{type(method).__name__} does not know the space '{name}', onto which old embeddings are lifted: "
        f"{method.space_reason}.",
        "no --lift-old, and the space of the old model",
    )
    other = sorted(method.spaces)
    inherited = old is not None and old.space.name == name
    lift = "; or lay the old embeddings onto it, all at one distance from its origin: --lift-old 1.0"
    raise ConfigError(
        f"{type(method).__name__} does not know the space '{name}'"
        + (", on which the old model embeds" if inherited else "")
        + f": {method.space_reason}.",
        expected=f"the space {' or '.join(other)}",
        to_do=(
            f"start with an old model of it: `limpet train --space {other[0]}`"
            if inherited
            else f"pass --space {other[0]}"
        )
        + (lift if inherited and SPACES[other[0]].lengths_count else "")
        + "; or choose another method: `limpet methods --json` lists the spaces of each.",
    )


def _on(space: Space, old: Release, asked: Geometry, method: CompatibilityMethod) -> Release:
    """Return the predecessor on the new model's space: unchanged, or lifted to it if that was requested.

    A predecessor of fewer dimensions is unchanged; `OldModel.padded` pads its embeddings with zeros.
    """
    if old.space.dim != space.dim:
        _refuse_other_dimensions(space, old.space, asked, method)
        return old
    refuse(asked.pad_old, f"--pad-old for an old model that has {old.space.dim} dimensions, as the new one.",
           "no --pad-old, or a new model of more dimensions: --dim")  # fmt: skip
    if asked.lift_old is not None:
        refuse(
            old.space.lengths_count,
            f"--lift-old {asked.lift_old} for an old model that lives on the {old.space} already.",
            "no --lift-old",
        )
        refuse(
            not space.lengths_count, f"Old embeddings to be lifted onto the {space}.", "--space lorentz with --lift-old"
        )
        refuse(space.parameters_of() is not None, "A curvature to be learned, with lifted old embeddings.",
               "one or the other: what is lifted needs a curvature that stays")  # fmt: skip
        return lifted(old, space, space.clip_after(None, asked.lift_old) or 0.0)
    if asked.relift_old and old.space != space and space.parameters_of() is None:
        refuse(
            old.space.name != space.name or not space.lengths_count,
            f"--relift-old for an old model on the {old.space}, and a new one on the {space}.",
            "two Lorentz spaces, of two curvatures",
        )
        return lifted(old, space)
    if not space.takes_features_of(old.space):
        laid = "lay the old embeddings onto it, all at one distance from its origin: --lift-old 1.0"
        again = "lift the old model's tangent vectors again, by the curvature of the new one: --relift-old"
        way = f"; or {again if old.space.lengths_count else laid}." if space.lengths_count else "."
        raise SpaceMismatchError(
            f"The old model's embeddings are on the {old.space}, the new model's on the {space}.",
            expected="one space for both, since distances between points of two spaces mean nothing",
            to_do=f"train the new model on the old one's space: leave out --space and --curvature{way}",
        )
    return old
