"""Open upgrades by URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.engines.address import Address, read_address, scheme_of
from limpet.engines.collections import ENGINES
from limpet.errors import ConfigError

if TYPE_CHECKING:
    from limpet.attached.base import Attachment, StartPlan
    from limpet.attached.plan import Unstarted
    from limpet.galleries.upgrade import GalleryUpgrade
    from limpet.upgrade.base import Upgrade
    from limpet.upgrade.model import UpgradeModel


def open_upgrade(url: str) -> GalleryUpgrade | Attachment:
    """Open a live index to upgrade it.

    Args:
        url: URL of a gallery, or of a table or collection with a started upgrade.

    Returns:
        A `GalleryUpgrade`, or an `Attachment` if an application owns the rows.

    Raises:
        GalleryError: The gallery does not exist, or no upgrade was started.
    """
    if is_attached(url):
        return open_attachment(url)
    from limpet.galleries import Gallery
    from limpet.galleries.upgrade import GalleryUpgrade

    return GalleryUpgrade(Gallery.open(url))


def upgrade_journal(url: str, last: int | None = None) -> Sequence[Mapping[str, object]]:
    """Return the events of the current or last upgrade of a live index, oldest first.

    Raises:
        GalleryError: The gallery does not exist, or no upgrade was ever started.
    """
    from limpet.attached.base import NotStartedError

    try:
        with open_upgrade(url) as it:
            return it.journal(last)
    except NotStartedError:
        if of_collections(url):  # whose ledger keeps upgrades that ended
            raise
        from limpet.attached.postgres.attachment import ended

        events = ended(url)
        if not events:
            raise
        return events[-(last or 0) :]


def start_upgrade(url: str, new: UpgradeModel, **options: Any) -> Upgrade:
    """Start an upgrade of a live index, or open the started one between the same two models.

    Args:
        url: URL of a gallery, or of a table or collection that an application owns.
        new: The new model.
        **options: For a gallery, see `limpet.galleries.upgrade.GalleryUpgrade.start`. For a table or a collection:
            ``old``, the model of the stored vectors; for a table also the arguments of
            `limpet.attached.postgres.attachment.start`.

    Raises:
        GalleryError: The gallery does not exist, or the index cannot be upgraded.
        UpgradeStateError: Another upgrade was started.
    """
    return starter(url)(new=new, **options)


def starter(url: str) -> Callable[..., Upgrade]:
    """Return the function that starts an upgrade of this kind of index; see `start_upgrade`."""
    if is_attached(url):
        if of_collections(url):
            from limpet.attached.collections import opening

            return partial(opening.start, url)
        from limpet.attached.postgres import attachment

        return partial(attachment.start, url)
    from limpet.galleries.upgrade import GalleryUpgrade

    return partial(GalleryUpgrade.start, url)


def planner(url: str) -> Callable[..., StartPlan]:
    """Return the function that plans the start for an index that an application owns, given the options of `starter`.

    Raises:
        ConfigError: The index is a gallery, where a start only reserves space.
    """
    if not is_attached(url):
        raise ConfigError("A dry run of a start in a gallery.", to_do="`limpet upgrade plan` estimates the upgrade.")
    if of_collections(url):
        from limpet.attached.collections import opening

        return partial(opening.plan, url)
    from limpet.attached.postgres import start

    return partial(start.plan, url)


def is_attached(url: str) -> bool:
    """Return whether an application owns the rows of a live index, which is then a table or a collection.

    >>> is_attached("postgresql://h/shop?table=items"), is_attached("postgresql://h/shop"), is_attached("live")
    (True, False, False)
    """
    if scheme_of(url) == "postgresql":
        with suppress(ConfigError):  # opening it reports the error
            return read_address(url).table is not None
        return False
    return of_collections(url) and not Path(url).exists()


def previewed(url: str, **unstarted: Any) -> GalleryUpgrade | Attachment | Unstarted:
    """Open a live index to plan or rehearse its upgrade, started or not.

    Args:
        url: URL of a gallery, a table or a collection.
        **unstarted: Options of `Unstarted`, for an upgrade that is not started.
    """
    from limpet.attached.base import NotStartedError
    from limpet.attached.plan import Unstarted

    with suppress(NotStartedError):
        it = open_upgrade(url)
        if it.phase != "steady" or not is_attached(url):
            return it
        it.close()
    return Unstarted(rows_of(url), **unstarted)


def rows_of(url: str) -> Address:
    """Return the rows of a table or a collection as a source."""
    if of_collections(url):
        from limpet.attached.collections.opening import read_place

        return read_place(url).address
    return read_address(url)


def of_collections(url: str) -> bool:
    """Return whether a URL names a collection.

    >>> of_collections("milvus://h/items?ledger=l.db"), of_collections("postgresql://h/shop?table=items")
    (True, False)
    """
    return scheme_of(url) in ENGINES


def open_attachment(url: str) -> Attachment:
    """Open an upgrade of a table or a collection.

    Args:
        url: URL given at the start.

    Raises:
        GalleryError: No upgrade was started.
    """
    if of_collections(url):
        from limpet.attached.collections import opening

        return opening.open_attachment(url)
    from limpet.attached.postgres import attachment

    return attachment.open_attachment(url)
