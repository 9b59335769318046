"""Upgrades by URL, wherever they are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.engines.address import read_address, scheme_of
from limpet.engines.collections import ENGINES
from limpet.errors import ConfigError

if TYPE_CHECKING:
    from limpet.attached.base import Attachment
    from limpet.upgrade.base import Upgrade


def open_upgrade(url: str) -> Upgrade:
    """Open a live index to upgrade it.

    Args:
        url: Of a gallery, or of a table or collection whose upgrade was started.

    Returns:
        A `GalleryUpgrade`, or an `Attachment` where an application owns the rows.

    Raises:
        GalleryError: There is no gallery, or no upgrade was started.
    """
    if is_attached(url):
        return open_attachment(url)
    from limpet.galleries import Gallery
    from limpet.galleries.upgrade import GalleryUpgrade

    return GalleryUpgrade(Gallery.open(url))


def is_attached(url: str) -> bool:
    """Say whether an application owns the rows of a live index: those of a table or a collection.

    >>> is_attached("postgresql://h/shop?table=items"), is_attached("postgresql://h/shop"), is_attached("live")
    (True, False, False)
    """
    if scheme_of(url) == "postgresql":
        with suppress(ConfigError):  # whoever opens it says so
            return read_address(url).table is not None
        return False
    return of_collections(url) and not Path(url).exists()


def of_collections(url: str) -> bool:
    """Say whether a URL is that of a collection.

    >>> of_collections("milvus://h/items?ledger=l.db"), of_collections("postgresql://h/shop?table=items")
    (True, False)
    """
    return scheme_of(url) in ENGINES


def open_attachment(url: str) -> Attachment:
    """Open an upgrade of a table or a collection.

    Args:
        url: As it was started.

    Raises:
        GalleryError: There is none.
    """
    if of_collections(url):
        from limpet.attached.collections import opening

        return opening.open_attachment(url)
    from limpet.attached.postgres import attachment

    return attachment.open_attachment(url)
