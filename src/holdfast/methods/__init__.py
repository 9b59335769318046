"""The compatibility methods, by their public names; importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, refuse
from holdfast.options import bound
from holdfast.registry import Registry

if TYPE_CHECKING:
    from holdfast.methods.base import CompatibilityMethod


def _is_method(thing: Any) -> bool:
    from holdfast.methods.base import CompatibilityMethod

    return isinstance(thing, type) and issubclass(thing, CompatibilityMethod)


METHODS: Registry[type[CompatibilityMethod]] = Registry(
    "method",
    "methods",
    {
        "independent": "holdfast.methods.independent:Independent",
        "l2": "holdfast.methods.l2:L2",
        "p2s": "holdfast.methods.p2s:P2S",
        "bct": "holdfast.methods.bct:BCT",
        "lce": "holdfast.methods.lce:LCE",
        "unibct": "holdfast.methods.unibct:UniBCT",
        "hot_refresh": "holdfast.methods.hot_refresh:HotRefresh",
        "nccl": "holdfast.methods.nccl:NCCL",
        "hoc": "holdfast.methods.hoc:HOC",
        "advbct": "holdfast.methods.advbct:AdvBCT",
        "mixbct": "holdfast.methods.mixbct:MixBCT",
        "ndpp": "holdfast.methods.ndpp:NDPP",
        "odpp": "holdfast.methods.odpp:ODPP",
        "hbct": "holdfast.methods.hbct:HBCT",
        "d3still": "holdfast.methods.d3still:D3still",
        "ssp": "holdfast.methods.ssp:SSP",
        "bt2": "holdfast.methods.bt2:BT2",
        "oca": "holdfast.methods.oca:OCA",
        "blended_targets": "holdfast.methods.blended_targets:BlendedTargets",
        "keep": "holdfast.methods.keep:Keep",
        "both_sides": "holdfast.methods.both_sides:BothSides",
        "one_side": "holdfast.methods.one_side:OneSide",
        "finetune": "holdfast.methods.finetune:Finetune",
        "joint": "holdfast.methods.joint:Joint",
        "cvs": "holdfast.methods.cvs:CVS",
        "lwf": "holdfast.methods.lwf:LwF",
        "mmd": "holdfast.methods.mmd:MMD",
        "ewc": "holdfast.methods.ewc:EWC",
        "rwalk": "holdfast.methods.rwalk:RWalk",
        "rainbow": "holdfast.methods.rainbow:Rainbow",
    },
    fits=_is_method,
    expected="a subclass of holdfast.methods.base.CompatibilityMethod",
    listing="holdfast methods",
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
    return method(**bound(method, options, f"method '{name}'", listing="holdfast methods"))
