"""The compatibility methods, by their public names; importable without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, unknown_name
from holdfast.options import bound

if TYPE_CHECKING:
    from holdfast.methods.base import CompatibilityMethod


class MethodTable(MutableMapping[str, "type[CompatibilityMethod]"]):
    """Methods by name, each imported when it is first asked for.

    At the first name that it does not know it looks for methods that other packages have installed. Another package
    offers its method under the entry-point group ``holdfast.methods``.

    Args:
        places: Module of this package and class, ``"bct:BCT"``, by name.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)
        self._loaded: dict[str, type[CompatibilityMethod]] = {}

    def __getitem__(self, name: str) -> type[CompatibilityMethod]:
        if name not in self:
            self.load_installed()
        if name not in self:
            raise unknown_name("method", name, sorted(self), listing="holdfast methods")
        if name not in self._loaded:
            module, _, method = self.places[name].partition(":")
            self._loaded[name] = getattr(import_module(f"holdfast.methods.{module}"), method)
        return self._loaded[name]

    def __setitem__(self, name: str, method: type[CompatibilityMethod]) -> None:
        self._loaded[name] = method

    def __delitem__(self, name: str) -> None:
        self.places.pop(name, None)
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places | self._loaded)

    def __len__(self) -> int:
        return len(self.places | self._loaded)

    def __contains__(self, name: object) -> bool:
        return name in self.places or name in self._loaded

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return a method that is known, without looking for installed ones."""
        return self[name] if name in self else default  # noqa: SIM401 - this is that method

    def loaded(self, name: str) -> bool:
        """Say whether a method's module was imported."""
        return name in self._loaded

    def load_installed(self) -> None:
        """Add the methods of installed packages; a name that holdfast itself uses is refused."""
        for entry in entry_points(group="holdfast.methods"):
            found = entry.load()
            if entry.name in self.places or self._loaded.setdefault(entry.name, found) is not found:
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
        "independent": "independent:Independent",
        "l2": "l2:L2",
        "p2s": "p2s:P2S",
        "bct": "bct:BCT",
        "lce": "lce:LCE",
        "unibct": "unibct:UniBCT",
        "hot_refresh": "hot_refresh:HotRefresh",
        "nccl": "nccl:NCCL",
        "hoc": "hoc:HOC",
        "advbct": "advbct:AdvBCT",
        "mixbct": "mixbct:MixBCT",
        "ndpp": "ndpp:NDPP",
        "odpp": "odpp:ODPP",
        "hbct": "hbct:HBCT",
        "finetune": "finetune:Finetune",
        "joint": "joint:Joint",
        "cvs": "cvs:CVS",
        "lwf": "lwf:LwF",
        "mmd": "mmd:MMD",
        "ewc": "ewc:EWC",
        "rwalk": "rwalk:RWalk",
        "rainbow": "rainbow:Rainbow",
    }
)
