"""Stores of galleries: LanceDB folders or buckets, PostgreSQL, one SQLite file, or RAM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.engines.folder import kind_of, missing
from limpet.engines.promises import Promises
from limpet.engines.store import Store
from limpet.errors import ConfigError, GalleryError, MissingExtraError, unknown_name, without_secrets
from limpet.registry import Registry
from limpet.support.disk import Disk

if TYPE_CHECKING:
    from limpet.engines.backup_files import Contents
    from limpet.engines.digested_folder import DigestedFolder

_OFFERED = ("kind", "in_folder", "in_memory", "promises", "create", "open", "restore")

STORES: Registry[type[Any]] = Registry(
    "kind of gallery",
    "stores",
    {
        "lance": "limpet.engines.lance.store:LanceStore",
        "memory": "limpet.engines.memory.store:MemoryStore",
        "postgresql": "limpet.engines.postgres.store:PgvectorStore",
        "s3": "limpet.engines.s3.store:S3Store",
        "sharded": "limpet.engines.sharded.store:ShardedStore",
    },
    fits=lambda thing: isinstance(thing, type) and all(hasattr(thing, name) for name in _OFFERED),
    expected="a class that is a limpet.engines.store.Store, with create, open and restore",
)
"""Kinds of stores, by the word before the first colon of a url: each has ``create(place, disk)``, ``open(...)``
and ``restore(place, backup, contents, disk)``."""

_DEFAULT = "lance"
_KNOWN = [
    "PATH",
    "lance:PATH",
    "memory:PATH",
    "memory://",
    "postgresql://…",
    "sharded:FILE",
    "s3://…?ledger=postgresql://…",
]
_SCHEME = re.compile(r"([a-zA-Z][\w+.-]*):(/*)")
_POSTGRESQL = re.compile(r"postgres(?:ql)?(?:\+\w+)?:")


def open_store(url: str, *, create: bool = False, disk: Disk | None = None) -> Store:
    """Open the store at a url, or create an empty one there.

    Args:
        url: ``PATH`` or ``lance:PATH`` for a LanceDB folder; ``memory:PATH`` for a folder with one SQLite file whose
            vectors are all held in RAM; ``memory://`` for RAM alone; ``postgresql://…`` for a database with pgvector;
            ``s3://BUCKET/PREFIX?ledger=postgresql://…`` for LanceDB in a bucket.
            ``PATH`` alone opens a gallery of any kind in a folder. The name of a driver, as in
            ``postgresql+psycopg://…``, is ignored.
        create: Create a new gallery, if there is none.
        disk: Makes files durable; tests replace it.

    Raises:
        ConfigError: No store supports the url.
        GalleryError: The gallery is missing, exists already, or something else is there; or a package is missing.
    """
    kind, place = _parts(url)
    if not create and place and (not kind or _class(kind).in_folder):
        kind = _found_kind(kind, place)
    store = _class(kind or _DEFAULT)
    opened: Store = (store.create if create else store.open)(place if store.in_folder else url, disk or Disk())
    return opened


def takes_graph(url: str) -> bool:
    """Say whether approximate indexes of a gallery at a url are graphs, see `Store.choose_graph`."""
    promises: Promises = _class(_parts(url)[0] or _DEFAULT).promises
    return promises.index == "graph"


def restore_store(url: str, kind: str, backup: DigestedFolder, contents: Contents, *, disk: Disk | None = None) -> None:
    """Create the gallery of a backup at a url, completely or not at all.

    Args:
        url: A new place of the same kind; ``PATH`` alone is of the kind of the backup, if that is kept in folders.
        kind: Kind of the backup.
        backup: Its files, which were checked.
        contents: Its expected content.
        disk: Makes files durable; tests replace it.

    Raises:
        ConfigError: No store supports the url.
        GalleryError: The url is of another kind, the place is not empty, or a package is missing.
        StoreError: The place fails; nothing is left there.
    """
    asked, place = _parts(url)
    store = _class(kind)
    if (asked or (kind if store.in_folder else _DEFAULT)) != kind:
        raise GalleryError(
            f"A backup of kind '{kind}', to be restored to a place of kind '{asked or _DEFAULT}'.",
            expected=f"PATH or {kind}:PATH" if store.in_folder else f"{kind}://…",
            to_do="to change the kind, create a gallery there and import what `limpet gallery export` writes; "
            "nothing was restored.",
        )
    store.restore(place if store.in_folder else url, backup, contents, disk or Disk())


def _parts(url: str) -> tuple[str, str]:
    """Return the kind, empty for a path alone, and the place.

    >>> _parts("gallery"), _parts("lance:g"), _parts("memory://"), _parts("postgres://h/d")
    (('', 'gallery'), ('lance', 'g'), ('memory', ''), ('postgresql', 'postgres://h/d'))
    """
    scheme, colon, rest = url.partition(":")
    if _POSTGRESQL.match(url):
        return "postgresql", url
    if url.startswith("s3://"):
        return "s3", url
    if url == "memory://":
        return "memory", ""
    named = _SCHEME.match(url)
    if scheme in ("http", "https"):
        raise ConfigError(
            f"'{without_secrets(url)}' is where a service answers, and no place of a gallery.",
            expected=f"one of {', '.join(_KNOWN)}",
            to_do="search and write by limpet.Client(URL); `limpet upgrade status URL` tells where its upgrade stands.",
        )
    if without_secrets(url) != url and not Path(url).exists():
        raise ConfigError(
            f"The place of a gallery, '{named[0] if named else ''}…', holds a password, and is no PostgreSQL URL.",
            expected=f"one of {', '.join(_KNOWN)}",
            to_do="write a database as postgresql://USER@HOST:PORT/DATABASE.",
            intact="Nothing was made.",
        )
    if scheme in STORES and colon and rest:
        place = rest.removeprefix("//")
        _refuse_url(place)
        return scheme, place
    if not url or (named and (named[2].startswith("//") or scheme.isalnum()) and not Path(url).exists()):
        raise unknown_name("kind of gallery", f"{named[0]}…" if named and named[2] else url, _KNOWN)
    return "", url


def _refuse_url(place: str) -> None:
    """Refuse the URL of a remote place, for which a local folder of that name would be created.

    Raises:
        ConfigError: The path of a gallery in a folder starts with a scheme.
    """
    found = _SCHEME.match(place)
    if found is not None and found[2].startswith("/") and len(found[1]) > 1:
        raise ConfigError(
            f"'{without_secrets(place)}' is a URL, and galleries of this kind are kept in a folder on this machine.",
            expected="the path of a folder",
            to_do=f"write ./{found[1]}:… for a folder of that name, or s3://BUCKET/PREFIX?ledger=postgresql://… for a "
            "bucket, without the word before it.",
            intact="Nothing was made.",
        )


def _found_kind(kind: str, place: str) -> str:
    """Return the kind of the gallery in a folder, which must be the requested one, if any."""
    found = kind_of(Path(place))
    if found is None:
        raise missing(Path(place), kind)
    if kind and found != kind:
        raise GalleryError(
            f"The gallery in '{place}' is of kind '{found}', not '{kind}'.",
            expected=f"{found}:{place}, or the path alone",
        )
    return found


def _class(kind: str) -> Any:
    try:
        return STORES[kind]
    except MissingExtraError as error:
        command = error.to_do.rstrip(".")
        without = ", or keep the gallery in memory:PATH, which needs no extra" if kind == _DEFAULT else ""
        raise GalleryError(
            f"Galleries of kind '{kind}' need {' and '.join(error.packages)}, which is not installed.",
            to_do=f"{command}{without}.",
            intact="The gallery, if there is one, is intact.",
        ) from error
