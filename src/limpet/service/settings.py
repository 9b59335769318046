"""The settings of a service; every process of it gets the same."""

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
"""In the folder of a service: where readers reach the writer, and a file of every process that answers."""


@checked
@dataclass(frozen=True)
class RequestLimits:
    """What one request, and what all requests of a moment, may take.

    Args:
        body: Mebibytes of a request.
        k: Hits of a query, those of earlier pages included.
        batch: Queries, or items, of a request.
        waiting: Items that wait for the writer, or texts that wait for a model, before requests are refused.
        connections: Open connections of a process.
        rate: Requests a second of one key, in one process; None for any number.
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
    """What a service serves, to whom, and how.

    Args:
        url: Of a gallery, or of a table or collection whose upgrade is watched and steered.
        models: Open the models that embed queries and items, by name; each is called with the fingerprints of the
            gallery's models.
        texts: Opens the texts of a gallery's items, for a backfill.
        images: Opens the images of a gallery's items, (n, channels, height, width), as a model wants them for a
            backfill, or as the console shows them.
        host: Address to listen at.
        port: Of the API; 0 for any that is free.
        health_port: Of health and metrics; None for neither.
        readers: Processes that only read; 0 lets the one that writes answer searches, too.
        keys: File of keys, or their lines; None lets everybody in who reaches the address.
        certificate: TLS certificate, a PEM file.
        certificate_key: Its private key.
        shadow: Share of the text searches of which the model that is prepared is asked, too, once they are answered.
        canary: Share of the text searches that the model that is prepared answers.
        folder: Of this run: sockets between processes, jobs, and what metrics are made of.
        secret: Signs what clients send back.
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
        AccessControl(self.keys)  # which says what is wrong with them

    @property
    def local(self) -> bool:
        """Whether only this machine reaches the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
