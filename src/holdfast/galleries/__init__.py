"""The live gallery: an index that changes its model while it answers, and loses nothing."""

from holdfast.galleries.backup import restore
from holdfast.galleries.gallery import Gallery
from holdfast.galleries.router import Hit, Reply

__all__ = ["Gallery", "Hit", "Reply", "restore"]
