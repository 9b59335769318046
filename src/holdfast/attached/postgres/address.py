"""Where vectors of an application are in PostgreSQL: libpq's URL, with parameters for the table and its columns."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from holdfast.errors import ConfigError, refuse
from holdfast.stores.postgres.address import Address, read_address

_OWN = ("table", "id", "vector", "text")


@dataclass(frozen=True)
class TableAddress:
    """A table of a database, and its columns as far as they were named.

    Args:
        database: Which, with what libpq connects with.
        table: The table's name, with that of its schema where the search path does not lead to it: ``shop.items``.
        key: Columns that identify a row; the primary key when empty.
        vector: Column of the vectors; the only one of its kind when empty.
        texts: Columns that vectors are made of.
    """

    database: Address
    table: str = ""
    key: tuple[str, ...] = ()
    vector: str = ""
    texts: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The URL without password.

        >>> read_table_address("postgresql://ann:s3cret@db/shop?table=items&text=title,body").url
        'postgresql://ann@db/shop?table=items&text=title,body'
        """
        values = (self.table, ",".join(self.key), self.vector, ",".join(self.texts))
        given = [f"{name}={quote(value, safe=',.')}" for name, value in zip(_OWN, values, strict=True) if value]
        url = self.database.url
        return url if not given else f"{url}{'&' if '?' in url else '?'}{'&'.join(given)}"


def read_table_address(url: str) -> TableAddress:
    """Read a URL such as ``postgresql://user@host/db?table=shop.items&id=id&vector=emb&text=title``.

    Args:
        url: As libpq reads it, with parameters more: ``table``, ``id`` and ``text`` (several columns with commas
            between them), and ``vector``.

    Raises:
        ConfigError: It cannot be read. The message does not repeat it, since it may hold a password.
    """
    known = url.startswith(("postgresql://", "postgresql+", "postgres://", "postgres+"))
    refuse(not known, "A place that is no database.", "postgresql://USER@HOST/DATABASE?table=SCHEMA.TABLE")
    place, _, query = url.partition("?")
    own: dict[str, str] = {}
    rest = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in _OWN:
            rest.append(part)
            continue
        refuse(name in own, f"The URL names {name} twice.", f"{name}= once, several columns with commas between")
        own[name] = unquote(value)
    columns = {name: tuple(filter(None, own.get(name, "").split(","))) for name in ("id", "text")}
    address = read_address(f"{place}?{'&'.join(rest)}" if rest else place)
    unfit = [name for name in (*columns["id"], *columns["text"], own.get("vector", ""), own.get("table", "")) if
             "%" in name or '"' in name]  # fmt: skip
    if unfit:
        raise ConfigError(f"The name {unfit[0]!r}.", expected='names without " and %')
    return TableAddress(address, own.get("table", ""), columns["id"], own.get("vector", ""), columns["text"])
