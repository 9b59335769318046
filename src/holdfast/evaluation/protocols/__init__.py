"""The published protocols, by name."""

from __future__ import annotations

from holdfast.evaluation.protocols.base import Lists, Protocol, RankingProtocol
from holdfast.evaluation.protocols.by_camera import ByCamera
from holdfast.evaluation.protocols.by_label import ByLabel, SeenClasses
from holdfast.evaluation.protocols.identification import Identification
from holdfast.evaluation.protocols.landmarks import Landmarks, Revisited
from holdfast.evaluation.protocols.relevance_lists import Pairs, Relevance
from holdfast.evaluation.protocols.verification import Verification
from holdfast.registry import Registry

__all__ = [
    "PROTOCOLS",
    "ByCamera",
    "ByLabel",
    "Identification",
    "Landmarks",
    "Lists",
    "Pairs",
    "Protocol",
    "RankingProtocol",
    "Relevance",
    "Revisited",
    "SeenClasses",
    "Verification",
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
            Revisited,
            Landmarks,
            Relevance,
            Verification,
            Identification,
        )
    },
    fits=lambda thing: isinstance(thing, type) and issubclass(thing, Protocol),
    expected="a subclass of holdfast.evaluation.protocols.Protocol",
    listing="holdfast evaluate protocols",
)
