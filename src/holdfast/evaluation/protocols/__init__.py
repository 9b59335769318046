"""The published protocols, by name."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.evaluation.protocols.base import Lists, Protocol, RankingProtocol
from holdfast.evaluation.protocols.by_camera import ByCamera
from holdfast.evaluation.protocols.by_label import ByLabel, SeenClasses
from holdfast.evaluation.protocols.identification import Identification
from holdfast.evaluation.protocols.landmarks import Landmarks
from holdfast.evaluation.protocols.relevance_lists import Pairs, Relevance
from holdfast.evaluation.protocols.revisited import Revisited
from holdfast.evaluation.protocols.verification import Verification

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

PROTOCOLS: Mapping[str, type[Protocol]] = {
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
}
