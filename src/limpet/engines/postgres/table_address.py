"""Address of an application's vectors in PostgreSQL: libpq's URL, with parameters for the table and its columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode

from limpet.engines.address import Address as SourceAddress
from limpet.engines.address import read_address as read_source_address
from limpet.engines.address import scheme_of
from limpet.engines.postgres.address import OPTIONS, PostgresAddress, read_address
from limpet.errors import ConfigError, refuse

_OWN = ("table", "id", "vector", "text")


@dataclass(frozen=True)
class TableAddress:
    """A table of a database, and its named columns.

    Args:
        database: The database, with its connection parameters for libpq.
        source: The table as a source.
        table: Name of the table, with its schema if that is not in the search path: ``shop.items``.
        key: Columns that identify a row; the primary key when empty.
        vector: Column of the vectors; the only vector column when empty.
        texts: Columns of the embedded text.
    """

    database: PostgresAddress
    source: SourceAddress = field(repr=False)
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
    """Parse a URL such as ``postgresql://user@host/db?table=shop.items&id=id&vector=emb&text=title``.

    Args:
        url: URL of a table as a source, see `limpet.engines.address.read_address`; ``id`` and ``text`` may be several
            columns, separated by commas.

    Raises:
        ConfigError: The URL cannot be parsed. The message does not repeat it, since it may contain a password.
    """
    known = scheme_of(url) == "postgresql" and "://" in url
    refuse(not known, "A place that is no database.", "postgresql://USER@HOST/DATABASE?table=SCHEMA.TABLE")
    source = read_source_address(url)
    plain = replace(source, table=None, roles=replace(source.roles, id=None, vector=None, text=None), options={})
    refuse(plain != SourceAddress(source.scheme, source.place), "The URL of a table to upgrade says more than that.",
           f"{', '.join(_OWN)}, and what libpq connects with")  # fmt: skip
    source.refuse_unknown(OPTIONS)
    options = dict(source.options)
    schema, table = options.pop("schema", ""), source.table or ""
    database = read_address(f"{source.place}?{urlencode(options, quote_via=quote)}" if options else source.place)
    key, texts = (tuple(filter(None, (said or "").split(","))) for said in (source.roles.id, source.roles.text))
    vector = source.roles.vector or ""
    unfit = [name for name in (*key, *texts, vector, table, schema) if "%" in name or '"' in name]
    if unfit:
        raise ConfigError(f"The name {unfit[0]!r}.", expected='names without " and %')
    table = f"{schema}.{table}" if schema and table and "." not in table else table
    return TableAddress(database, source, table, key, vector, texts)
