"""Common parts of the URLs of services with collections: a host and a port, one collection, and no secrets."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

from limpet.engines.address import Address
from limpet.errors import ConfigError, refuse


def collection_of(address: Address) -> str:
    """Return the collection that an address names.

    Raises:
        ConfigError: The address names no collection, or two.
    """
    below = unquote(_parts(address).path).strip("/") if "://" in address.place else ""
    refuse(
        bool(below) == bool(address.table),
        f"The URL of {address.scheme} names {'two collections' if below else 'no collection'}.",
        f"{address.scheme}://HOST:PORT/COLLECTION or {address.scheme}:PATH#COLLECTION",
    )
    return below or str(address.table)


def _parts(address: Address) -> SplitResult:
    try:
        parts = urlsplit(address.place)
        parts.port  # noqa: B018 - looked at, which raises
    except ValueError as error:
        raise ConfigError(f"The URL of {address.scheme} cannot be read.", expected="HOST:PORT after //") from error
    return parts


def flag(address: Address, name: str, default: bool) -> bool:
    """Return a boolean option of a URL."""
    value = address.options.get(name, str(default).lower())
    refuse(value not in ("true", "false"), f"{name}={value}.", "true or false")
    return value == "true"


def endpoint_of(address: Address, port: int) -> tuple[str, int]:
    """Return the host, in lower case, and the port of a service, for any notation of its URL.

    Args:
        address: Address of the service.
        port: Default port.

    Raises:
        ConfigError: The URL cannot be parsed.
    """
    parts = _parts(address)
    return parts.hostname or "", parts.port or port


def authority_of(address: Address, port: int, secret: str) -> tuple[str, int]:
    """Return the host and the port of a service.

    Raises:
        ConfigError: The host is missing, or the URL contains a password.
    """
    host, port = endpoint_of(address, port)
    refuse(
        "@" in _parts(address).netloc,
        f"The URL of {address.scheme} holds a user or a key.",
        f"the key in the environment variable {secret}",
    )
    refuse(not host, f"The URL of {address.scheme} has no host.", f"{address.scheme}://HOST:PORT/COLLECTION")
    return host, port
