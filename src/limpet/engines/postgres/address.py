"""Address of a gallery in PostgreSQL: libpq's URL, with a parameter for the schema, shown without secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from limpet.errors import ConfigError, without_secrets

DEFAULT_SCHEMA = "limpet"
OPTIONS = sorted({"schema", *(one.keyword.decode() for one in Conninfo.get_defaults())})
"""Permitted query parameters in the URL of a database."""

Connection = psycopg.Connection[tuple[Any, ...]]

_PATIENT = {
    "application_name": "limpet", "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10,
    "keepalives_count": 3,
}  # fmt: skip
_DRIVER = re.compile(r"(?<=^postgresql)\+\w+(?=://)|(?<=^postgres)\+\w+(?=://)")
_SECRET = re.compile("password|secret|scram_")
_SCHEMA = re.compile("[a-z_][a-z0-9_]{0,62}")
_HOST = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class PostgresAddress:
    """A database, and the schema in it that holds one gallery.

    Args:
        parameters: Connection parameters for libpq, including a password of the URL; never shown.
    """

    schema: str
    parameters: dict[str, str] = field(repr=False)

    def connect(self, **options: Any) -> Connection:
        """Open a connection; a server that stops responding is detected within a minute."""
        settings: dict[str, Any] = {**_PATIENT, **self.parameters, **options}
        return psycopg.connect(**settings)

    @property
    def url(self) -> str:
        """The URL without password, which opens the same gallery if libpq finds the password itself.

        >>> read_address("postgresql://ann:s3cret@db:5433/shop?schema=photos").url
        'postgresql://ann@db:5433/shop?schema=photos'
        """
        left = {name: value for name, value in self.parameters.items() if not _SECRET.search(name)}
        user, host = left.pop("user", ""), left.get("host", "")
        name = f"{quote(user, safe='')}@" if user else ""
        if _HOST.fullmatch(host):  # several hosts, and socket folders, are parameters
            del left["host"]
            port = left.pop("port", "")
            name += host + (f":{port}" if port else "")
        database = quote(left.pop("dbname", ""), safe="")
        further = left if self.schema == DEFAULT_SCHEMA else {**left, "schema": self.schema}
        parameters = "?" + urlencode(further, quote_via=quote, safe="/,") if further else ""
        return f"postgresql://{name}/{database}{parameters}"


def read_address(url: str) -> PostgresAddress:
    """Parse a URL such as ``postgresql://user@host:5432/database?schema=name``.

    Args:
        url: URL for libpq, with one more parameter: ``schema``, "limpet" if it is left out. Every schema of a
            database holds one gallery. A driver for SQLAlchemy, ``postgresql+psycopg://…``, is ignored.

    Raises:
        ConfigError: The URL cannot be parsed. The message does not repeat it, since it may contain a password.
    """
    place, _, query = _DRIVER.sub("", url).partition("?")
    parts = [part.partition("=") for part in query.split("&") if part]
    schemas = [unquote(value) for name, _, value in parts if name == "schema"] or [DEFAULT_SCHEMA]
    if len(schemas) > 1 or not _SCHEMA.fullmatch(schemas[0]):
        raise ConfigError(
            f"The URL of the gallery has schema={' and '.join(schemas)}.",
            expected="one name of small letters, digits and _, such as schema=photos",
        )
    rest = "&".join("".join(part) for part in parts if part[0] != "schema")
    try:
        parsed = conninfo_to_dict(f"{place}?{rest}" if rest else place)
        parameters = {name: str(value) for name, value in parsed.items() if value}
        for host in parameters.get("host", "").split(","):
            host.encode("utf-8" if host.startswith("/") else "idna")
    except (psycopg.Error, UnicodeError):
        raise _unreadable() from None
    ports = parameters.get("port", "").replace(",", "")
    shown = [value for name, value in parameters.items() if not _SECRET.search(name)]
    if any(without_secrets(value) != value for value in shown):
        raise _unreadable()  # a ? or & before a password is missing or misplaced
    if "@" in place.partition("://")[2].partition("/")[2] + parameters.get("host", "") or (
        ports and not ports.isdigit()
    ):
        raise _unreadable()  # an unescaped part of a password was parsed as another part of the URL
    return PostgresAddress(schemas[0], parameters)


def _unreadable() -> ConfigError:
    return ConfigError(
        "The URL, which starts with postgresql://, cannot be read.",
        expected="postgresql://USER@HOST:PORT/DATABASE?schema=NAME; write / : @ ? and # in a name or a password as "
        "%2F %3A %40 %3F and %23",
        to_do="better than in the URL, keep passwords in PGPASSWORD or in ~/.pgpass.",
    )
