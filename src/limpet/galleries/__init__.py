"""The live gallery: an index that changes its model while it answers, and loses nothing."""

from limpet.galleries.backup import restore
from limpet.galleries.gallery import Gallery
from limpet.galleries.router import Hit, Reply

__all__ = ["Gallery", "Hit", "Reply", "restore"]
