"""The compatibility methods, by their public names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from holdfast.errors import ConfigError, unknown_name
from holdfast.methods.advbct import AdvBCT
from holdfast.methods.base import CompatibilityMethod
from holdfast.methods.bct import BCT
from holdfast.methods.cvs import CVS
from holdfast.methods.ewc import EWC
from holdfast.methods.finetune import Finetune
from holdfast.methods.hbct import HBCT
from holdfast.methods.hoc import HOC
from holdfast.methods.hot_refresh import HotRefresh
from holdfast.methods.independent import Independent
from holdfast.methods.joint import Joint
from holdfast.methods.l2 import L2
from holdfast.methods.lce import LCE
from holdfast.methods.lwf import LwF
from holdfast.methods.mixbct import MixBCT
from holdfast.methods.mmd import MMD
from holdfast.methods.nccl import NCCL
from holdfast.methods.ndpp import NDPP
from holdfast.methods.odpp import ODPP
from holdfast.methods.p2s import P2S
from holdfast.methods.rainbow import Rainbow
from holdfast.methods.rwalk import RWalk
from holdfast.methods.unibct import UniBCT
from holdfast.options import bound


class MethodTable(dict[str, type[CompatibilityMethod]]):
    """A dict that, at the first name it does not know, looks for methods other packages have installed.

    Another package offers its method under the entry-point group ``holdfast.methods``.
    """

    def __missing__(self, name: str) -> type[CompatibilityMethod]:
        self.load_installed()
        if name not in self:
            raise unknown_name("method", name, sorted(self), listing="holdfast methods")
        return self[name]

    def load_installed(self) -> None:
        """Add the methods of installed packages; a name that holdfast itself uses is refused."""
        for entry in entry_points(group="holdfast.methods"):
            found = entry.load()
            if self.setdefault(entry.name, found) is not found:
                raise ConfigError(
                    f"The installed method '{entry.name}' ({entry.value}) has the name of another one.",
                    expected="a name of its own",
                    to_do=f"uninstall or rename the entry point of {entry.dist.name if entry.dist else 'its package'}.",
                )


def build_method(name: str, options: Mapping[str, Any]) -> CompatibilityMethod:
    """Build a method by name.

    Raises:
        ConfigError: The name or an option is unknown, and the nearest known one is suggested; or a value is wrong.
    """
    method = METHODS[name]
    return method(**bound(method, options, f"method '{name}'", listing="holdfast methods"))


METHODS = MethodTable(
    {
        "independent": Independent,
        "l2": L2,
        "p2s": P2S,
        "bct": BCT,
        "lce": LCE,
        "unibct": UniBCT,
        "hot_refresh": HotRefresh,
        "nccl": NCCL,
        "hoc": HOC,
        "advbct": AdvBCT,
        "mixbct": MixBCT,
        "ndpp": NDPP,
        "odpp": ODPP,
        "hbct": HBCT,
        "finetune": Finetune,
        "joint": Joint,
        "cvs": CVS,
        "lwf": LwF,
        "mmd": MMD,
        "ewc": EWC,
        "rwalk": RWalk,
        "rainbow": Rainbow,
    }
)
