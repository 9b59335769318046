"""Rehearsal of a whole upgrade on a copy of a sample: every step, searches throughout, and the rollback."""

from limpet.galleries.rehearsal.results import Rehearsal
from limpet.galleries.rehearsal.run import rehearse

__all__ = ["Rehearsal", "rehearse"]
