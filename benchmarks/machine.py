"""The machine in words, for every committed measurement."""

from __future__ import annotations

from limpet_bench.machine import machine


def describe(*packages: str) -> str:
    """Return processor, cores, system and versions in one line; other work shares the cores that measure here."""
    return machine(*packages, shared=True)
