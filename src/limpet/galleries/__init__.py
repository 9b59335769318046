"""The live gallery: an index that changes its embedding model while it serves searches and writes."""

from limpet.galleries.backup import restore
from limpet.galleries.gallery import Gallery
from limpet.galleries.router import Hit, Reply

__all__ = ["Gallery", "Hit", "Reply", "restore"]
