"""Attachments by URL, wherever they are."""

from __future__ import annotations

from limpet.attached.base import Attachment
from limpet.attached.collections.opening import ENGINES
from limpet.engines.address import scheme_of


def of_collections(url: str) -> bool:
    """Say whether a URL is that of a collection.

    >>> of_collections("milvus://h/items?ledger=l.db"), of_collections("postgresql://h/shop?table=items")
    (True, False)
    """
    return scheme_of(url) in ENGINES


def open_attachment(url: str) -> Attachment:
    """Open an attachment to a table or a collection.

    Args:
        url: As it was attached.

    Raises:
        GalleryError: There is none.
    """
    if of_collections(url):
        from limpet.attached.collections import opening

        return opening.open_attachment(url)
    from limpet.attached.postgres import attachment

    return attachment.open_attachment(url)
