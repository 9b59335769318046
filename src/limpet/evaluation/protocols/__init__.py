"""The published protocols, by name."""

from __future__ import annotations

from limpet.evaluation.protocols.base import Lists, PerUnit, Protocol, RankingProtocol
from limpet.evaluation.protocols.by_camera import ByCamera
from limpet.evaluation.protocols.by_label import ByLabel, SeenClasses
from limpet.evaluation.protocols.names import lists_of_pairs, rows_of_all
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.registry import Registry

__all__ = [
    "PROTOCOLS",
    "ByCamera",
    "ByLabel",
    "Lists",
    "PerUnit",
    "Protocol",
    "RankingProtocol",
    "Relevance",
    "RelevancePairs",
    "SeenClasses",
    "lists_of_pairs",
    "rows_of_all",
]

PROTOCOLS: Registry[type[Protocol]] = Registry(
    "protocol",
    "protocols",
    {
        protocol.name: protocol
        for protocol in (
            ByLabel,
            SeenClasses,
            ByCamera,
            Relevance,
        )
    },
    fits=lambda thing: isinstance(thing, type) and issubclass(thing, Protocol),
    expected="a subclass of limpet.evaluation.protocols.Protocol",
    listing="limpet evaluate protocols",
    in_bench=("revisited", "gldv2", "ijbc-verification", "ijbc-identification"),
)
