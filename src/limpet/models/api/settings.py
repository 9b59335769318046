"""Address and settings of a model behind an API."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from limpet.errors import ConfigError, reason, unknown_name, without_secrets
from limpet.models.api.meter import Limits, Meter
from limpet.support.logs import logger
from limpet.support.options import bound, option_types
from limpet.support.ranges import Count, Positive, PositiveInt, checked

FORM = "openai:MODEL@BASE_URL, such as openai:text-embedding-3-small@https://api.openai.com/v1"
_log = logger("api")
_PLACE = re.compile(r"(?P<model>\S+?)@(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s\x00-\x1f\x7f]*)")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Endpoint:
    """A model and its server.

    Args:
        model: Name of the model at the server.
        url: Base URL before ``/embeddings``, without a slash at the end; it never holds a password or a key.
    """

    model: str
    url: str

    @classmethod
    def read(cls, place: str, *, allow_http: bool = False) -> Endpoint:
        """Parse ``MODEL@BASE_URL``; the model may contain ``:``, ``/`` and ``@``.

        Args:
            place: Text to parse.
            allow_http: Accept an unencrypted connection to another machine.

        Raises:
            ConfigError: A part is missing, the URL holds credentials or a query, or texts would be sent unencrypted.

        >>> Endpoint.read("nomic-embed-text:latest@http://LOCALHOST:11434/v1/")
        Endpoint(model='nomic-embed-text:latest', url='http://localhost:11434/v1')
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
            (parts.hostname or "").encode("idna")  # fails here rather than when the host is resolved
        except ValueError as error:
            raise ConfigError(f"The URL of the server names no host: {reason(error)}.", expected=FORM) from error
        url = _checked(parts)
        if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"'{url}' is on another machine, and http would send texts and key there for everyone to read.",
                expected="https, or a server on this machine",
                to_do="write https://; or, in a network that you trust, --api.allow-http true.",
                intact="Nothing was sent.",
            )
        return cls(found["model"], url)

    @property
    def short_name(self) -> str:
        """The last part of the model's name, as a valid folder name.

        >>> Endpoint("BAAI/bge-m3:fp16", "https://example.org/v1").short_name
        'bge-m3-fp16'
        """
        return re.sub(r"[^\w.-]", "-", self.model.rstrip("/").rpartition("/")[2])

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(urlsplit(self.url).hostname or "")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "10.0.0.1", "localhost.example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(parts: SplitResult) -> str:
    """Return the URL with a lower-case host, without a default port and a slash at the end.

    Raises:
        ConfigError: The URL has credentials, a query, a fragment, another scheme or no host, or ends in /embeddings.
    """
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            "The URL of the server holds a name, a password or a query.",
            expected=f"a URL without: {FORM}",
            to_do="put the key into the environment variable OPENAI_API_KEY, or another one that --api.key-variable "
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


KEY_VARIABLE = "OPENAI_API_KEY"
HOSTS_VARIABLE = "LIMPET_API_HOSTS"
"""Environment variable with the servers that a settings file may name: HOST or HOST:PORT, separated by commas."""


def refuse_unlisted(url: str, named: str, file: str | Path) -> None:
    """Refuse a server that a file names and LIMPET_API_HOSTS does not list, because it would receive texts and a key.

    Args:
        url: URL of the server.
        named: What the file says, for the message.
        file: File that names the server.

    Raises:
        ConfigError: LIMPET_API_HOSTS does not list the server.
    """
    server = url.partition("//")[2].partition("/")[0].partition("?")[0].rpartition("@")[2].lower()
    listed = {one.strip().lower() for one in os.environ.get(HOSTS_VARIABLE, "").split(",")} - {""}
    if server in listed or (server and SplitResult("", server, "", "", "").hostname in listed):
        return
    raise ConfigError(
        f"'{file}' names the server of {without_secrets(named)}, which would receive your texts and your key.",
        expected=f"a server that you name on the command line, or that the environment variable {HOSTS_VARIABLE} lists",
        to_do=f"if you trust it, `export {HOSTS_VARIABLE}={server or 'HOST'}`.",
        intact="Nothing was sent.",
    )


def api_settings(options: Mapping[str, Any], *, cache: Path, tell: Callable[[str], object]) -> ApiSettings:
    """Build settings from options of `ApiSettings` and of `limpet.models.api.meter.Limits`, by name.

    Args:
        options: Options by name.
        cache: Cache file, unless the options name one.
        tell: Called with a sentence that says where texts and key will be sent.

    Raises:
        ConfigError: A name is unknown, or a value has another type or is out of range.
    """
    of_limits = option_types(Limits)
    known = [name for name in option_types(ApiSettings) if name not in ("meter", "tell")]
    for name in options:
        if name not in known and name not in of_limits:
            raise unknown_name("setting of an API", name, (*known, *of_limits))
    own = {name: value for name, value in options.items() if name in known}
    place = Path(str(own.pop("cache", cache)))
    own = bound(ApiSettings, own, "API")
    limits = Limits(**bound(Limits, {name: options[name] for name in options if name in of_limits}, "API"))
    return ApiSettings(**own, cache=place, meter=Meter(limits), tell=tell)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@checked
@dataclass(frozen=True, eq=False)
class ApiSettings:
    """Settings of a model behind an API.

    Args:
        key_variable: Environment variable that holds the key; only the name of the variable is stored.
        cache: File that stores every vector by text and model; None stores none.
        characters: Maximum number of characters per request; a longer text is sent alone.
        timeout: Timeout of a request, in seconds.
        retries: Number of retries after a failure that may be temporary.
        allow_http: Allow unencrypted connections to another machine, for texts and key.
        accept_change: Accept a model that has changed behind its name, as another model with its own fingerprint.
        meter: Counts tokens and enforces limits.
        tell: Called before the first request, with a sentence that says where texts and key will be sent.

    Raises:
        ConfigError: A number is out of range, or ``key_variable`` is not a valid name of a variable.
    """

    key_variable: str = KEY_VARIABLE
    cache: Path | None = None
    characters: PositiveInt = 100_000
    timeout: Positive = 60.0
    retries: Count = 6
    allow_http: bool = False
    accept_change: bool = False
    meter: Meter = field(default_factory=Meter)
    tell: Callable[[str], object] = _log.info

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.key_variable):  # it may be the key itself, so the message does not repeat it
            raise ConfigError(
                "--api.key-variable was given something that is no name of an environment variable.",
                expected=f"a name such as {KEY_VARIABLE}; never the key itself",
                to_do=f"export {KEY_VARIABLE}=…, and leave the option out.",
                intact="Nothing was sent.",
            )

    def key_in_words(self) -> str:
        """Return a phrase that says which key is sent with texts; it does not contain the key."""
        return "without a key" if self.key() is None else f"with the key in {self.key_variable}"

    def key(self) -> str | None:
        """Return the key; None if the default variable is not set, because self-hosted servers need none.

        The key is read from the environment, and is not stored in the settings.

        Raises:
            ConfigError: A variable other than the default was named and is not set, or its value does not fit into a
                header.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.key_variable != KEY_VARIABLE:
            raise ConfigError(
                "The environment variable that --api.key-variable names is not set.",
                expected="the name of one that holds the key",
                to_do="export it, or correct the name.",
                intact="Nothing was sent.",
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError(
                f"The environment variable {self.key_variable} holds more than a key.",
                expected="one word of plain letters, digits and signs",
                to_do="set it again.",
                intact="Nothing was sent.",
            )
        return key or None
