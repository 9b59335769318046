"""The compatibility methods, by their public names; importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from limpet.errors import ConfigError, refuse
from limpet.registry import Registry
from limpet.support.lazy import on_first_use
from limpet.support.options import bound

if TYPE_CHECKING:
    from limpet.losses.denoising import credible_rows
    from limpet.methods.base import EVERY_SPACE, Batch, CompatibilityMethod, Epoch, Head, OldModel, Read, Step, View
    from limpet.methods.descriptions import Description
    from limpet.methods.predecessor import class_prototypes, labelled_features, require_old

__all__ = [
    "EVERY_SPACE", "METHODS", "Batch", "CompatibilityMethod", "Epoch", "Head", "OldModel", "Read", "Step", "View",
    "build_method", "class_prototypes", "credible_rows", "labelled_features", "require_old",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)


def _is_method(thing: Any) -> bool:
    from limpet.methods.base import CompatibilityMethod

    return isinstance(thing, type) and issubclass(thing, CompatibilityMethod)


def describe(name: str) -> Description:
    """Return what can be said of a method, imported only if its source alone does not say it.

    Raises:
        ConfigError: There is no method of this name.
    """
    from limpet.methods.descriptions import from_class, from_source

    if name in METHODS.places and not METHODS.imported(name):
        with suppress(ValueError, OSError):  # a value that is no literal, or no file: packed, or compiled
            return from_source(METHODS.places[name])
    return from_class(METHODS[name])


METHODS: Registry[type[CompatibilityMethod]] = Registry(
    "method",
    "methods",
    {
        "independent": "limpet.methods.independent:Independent",
        "l2": "limpet.methods.l2:L2",
        "p2s": "limpet.methods.p2s:P2S",
        "bct": "limpet.methods.bct:BCT",
        "lce": "limpet.methods.lce:LCE",
        "unibct": "limpet.methods.unibct:UniBCT",
        "hot_refresh": "limpet.methods.hot_refresh:HotRefresh",
        "nccl": "limpet.methods.nccl:NCCL",
        "hoc": "limpet.methods.hoc:HOC",
        "advbct": "limpet.methods.advbct:AdvBCT",
        "mixbct": "limpet.methods.mixbct:MixBCT",
        "ndpp": "limpet.methods.ndpp:NDPP",
        "odpp": "limpet.methods.odpp:ODPP",
        "hbct": "limpet.methods.hbct:HBCT",
        "d3still": "limpet.methods.d3still:D3still",
        "ssp": "limpet.methods.ssp:SSP",
        "free_dimensions": "limpet.methods.free_dimensions:FreeDimensions",
        "oca": "limpet.methods.oca:OCA",
        "blended_targets": "limpet.methods.blended_targets:BlendedTargets",
        "keep": "limpet.methods.keep:Keep",
        "both_sides": "limpet.methods.both_sides:BothSides",
        "one_side": "limpet.methods.one_side:OneSide",
        "finetune": "limpet.methods.finetune:Finetune",
        "joint": "limpet.methods.joint:Joint",
        "cvs": "limpet.methods.cvs:CVS",
        "lwf": "limpet.methods.lwf:LwF",
        "mmd": "limpet.methods.mmd:MMD",
        "ewc": "limpet.methods.ewc:EWC",
        "rwalk": "limpet.methods.rwalk:RWalk",
        "rainbow": "limpet.methods.rainbow:Rainbow",
    },
    fits=_is_method,
    expected="a subclass of limpet.methods.base.CompatibilityMethod",
    listing="limpet methods",
    facts=lambda name: {"needs an old model": "yes" if describe(name).needs_old else "no"},
)


def classless_options(name: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a method with those under which it can do without classes, as for pairs of texts.

    Raises:
        ConfigError: It cannot, or an option says otherwise.
    """
    needed = METHODS[name].without_classes
    if needed is None or METHODS[name].sessions_only:
        known = [key for key, one in METHODS.items() if one.without_classes is not None and not one.sessions_only]
        raise ConfigError(
            f"The method '{name}' needs classes, and pairs of texts have none.", expected=f"one of {', '.join(known)}"
        )
    for option, value in needed.items():
        given = options.get(option, value)
        refuse(
            given != value,
            f"The method '{name}' was given {option}={given}, by which it looks at classes, and pairs have none.",
            f"{option}={value}, or nothing",
        )
    return {**needed, **options}


def build_method(name: str, options: Mapping[str, object]) -> CompatibilityMethod:
    """Build a method by name.

    Raises:
        ConfigError: The name or an option is unknown, and the nearest known one is suggested; or a value is wrong.
    """
    method = METHODS[name]
    return method(**bound(method, options, f"method '{name}'", listing="limpet methods"))
