"""The settings of a service; all of its processes get the same."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.errors import ConfigError, refuse
from limpet.service.keys import AccessControl
from limpet.support.ranges import Positive, PositiveInt, Share, checked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from limpet.service.encoders import ImageModel
    from limpet.training.text_models import TextModel
    from limpet.upgrade.vector_sources import ItemSource

SOCKET, READY = "writer.sock", "ready"
"""Names in the folder of a service: the socket of the writer, and a folder with a file of every ready process."""


@checked
@dataclass(frozen=True)
class RequestLimits:
    """Limits of one request, and of all concurrent requests.

    Args:
        body: Maximum size of a request in MiB.
        k: Maximum number of hits per query, including those of earlier pages.
        batch: Maximum number of queries, or items, per request.
        waiting: Number of items that wait for the writer, or texts that wait for a model, before requests are refused.
        connections: Maximum number of open connections per process.
        rate: Maximum number of requests per second and key, in one process; None for no limit.
    """

    body: PositiveInt = 16
    k: PositiveInt = 1000
    batch: PositiveInt = 1000
    waiting: PositiveInt = 4096
    connections: PositiveInt = 1024
    rate: Positive | None = None


@checked
@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Args:
        url: URL of a gallery, or of a table or collection whose upgrade is watched and steered.
        models: Functions that open the models for queries and items, by name; each is called with the fingerprints of
            the gallery's models.
        texts: Opens the texts of a gallery's items, for a backfill.
        images: Opens the images of a gallery's items, (n, channels, height, width), in the form of a model for a
            backfill, or of the console.
        host: Address to listen on.
        port: Port of the API; 0 for any free port.
        health_port: Port of health and metrics; None for neither.
        readers: Number of read-only processes; with 0, the writing process also answers searches.
        keys: File of keys, or its lines; None admits everybody who can connect.
        certificate: TLS certificate, a PEM file.
        certificate_key: Its private key.
        shadow: Share of the text searches that are also sent to the new model, after they are answered.
        canary: Share of the text searches that the new model answers.
        folder: Folder of this run: sockets between processes, jobs, and files of metrics.
        secret: Key that signs cursors and forms.
    """

    url: str
    folder: Path
    models: tuple[tuple[str, Callable[[Sequence[str]], TextModel | ImageModel]], ...] = ()
    texts: Callable[[], ItemSource[list[str]]] | None = None
    images: Callable[..., ItemSource[NDArray[np.uint8]]] | None = None
    host: str = "127.0.0.1"
    port: int = 8520
    health_port: int | None = None
    readers: int = 0
    shadow: Share = 0.0
    canary: Share = 0.0
    keys: Path | str | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    limits: RequestLimits = RequestLimits()
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        refuse(self.readers < 0, f"--readers {self.readers}.", "at least 0")
        refuse(self.certificate_key is not None and self.certificate is None, "--certificate-key alone.", "both")
        if self.keys is None and not self.local:
            raise ConfigError(
                f"A service at {self.host} without keys: every program that reaches it could read, write and upgrade.",
                expected="keys, or a loopback address",
                to_do="give --keys FILE with lines NAME RIGHT SHA256; or leave --host out.",
            )
        AccessControl(self.keys)  # reports invalid keys

    @property
    def local(self) -> bool:
        """Whether only this machine can connect to the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can connect to an address.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
