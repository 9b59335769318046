"""Where a model behind an API is, as people write it: ``MODEL@BASE_URL``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import ConfigError, reason

FORM = "openai:MODEL@BASE_URL, such as openai:text-embedding-3-small@https://api.openai.com/v1"
_PLACE = re.compile(r"(?P<model>\S+?)@(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s\x00-\x1f\x7f]*)")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """A model and the server that offers it.

    Args:
        model: Its name there.
        url: What stands before ``/embeddings``, without a slash at the end; it never holds a password or a key.
    """

    model: str
    url: str

    @classmethod
    def read(cls, place: str, *, allow_http: bool = False) -> Address:
        """Read ``MODEL@BASE_URL``; the model may hold ``:``, ``/`` and ``@``.

        Args:
            place: What people wrote.
            allow_http: Accept a server on another machine without encryption.

        Raises:
            ConfigError: A part is missing, the URL holds credentials or a query, or texts would travel unencrypted.

        >>> Address.read("nomic-embed-text:latest@http://LOCALHOST:11434/v1/")
        Address(model='nomic-embed-text:latest', url='http://localhost:11434/v1')
        """
        found = _PLACE.fullmatch(place)
        if found is None:
            raise ConfigError(
                f"'openai:{place.partition('@')[0]}' does not say at which server the model is.",
                expected=FORM,
                to_do="add @ and the URL of the server, up to what stands before /embeddings.",
            )
        try:
            parts = urlsplit(found["url"])
            (parts.hostname or "").encode("idna")  # as it will be looked up
        except ValueError as error:
            raise ConfigError(f"The URL of the server names no host: {reason(error)}.", expected=FORM) from error
        url = _checked(parts)
        if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"'{url}' is on another machine, and http would send texts and key there for everyone to read.",
                expected="https, or a server on this machine",
                to_do="write https://; or, in a network that you trust, --api-allow-http. Nothing was sent.",
            )
        return cls(found["model"], url)

    @property
    def short_name(self) -> str:
        """The last part of the model's name, as a folder may be called.

        >>> Address("BAAI/bge-m3:fp16", "https://example.org/v1").short_name
        'bge-m3-fp16'
        """
        return re.sub(r"[^\w.-]", "-", self.model.rstrip("/").rpartition("/")[2])

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(urlsplit(self.url).hostname or "")


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "10.0.0.1", "localhost.example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(parts: SplitResult) -> str:
    """Return the URL, host in small letters, usual port and last slash left out; refuse what must not stand in it."""
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            "The URL of the server holds a name, a password or a query.",
            expected=f"a URL without: {FORM}",
            to_do="put the key into the environment variable OPENAI_API_KEY, or another one that --api-key-variable "
            "names; it is written nowhere.",
        )
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == -1:
        raise ConfigError(
            f"'{parts.scheme}://{parts.hostname or ''}' is no server.", expected=f"https:// or http://: {FORM}"
        )
    path = parts.path.rstrip("/")
    if path.endswith("/embeddings"):
        raise ConfigError(
            f"The URL of the server ends in '{path}'.",
            expected="what stands before /embeddings",
            to_do=f"leave /embeddings out: {FORM}",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    named = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{host}{named}{path}"
