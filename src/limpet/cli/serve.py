"""``limpet serve``."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import at_work, console, print_json
from limpet.cli.models import Model, Opening, releases_of
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.cli.upgrade.live import LiveUrl
from limpet.errors import refuse, without_secrets
from limpet.models.names import OF_IMAGES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from limpet.models.specs import EncoderSpec
    from limpet.service.encoders import ImageModel
    from limpet.training.text_models import TextModel
    from limpet.upgrade.vector_sources import ItemSource


@dataclass(frozen=True)
class Listening(Options):
    """Address of the service, and access to it.

    Args:
        host: Address to listen on. Any other than a loopback address requires --keys.
        port: Port of the API; 0 for any free one.
        health_port: Port of /livez, /readyz and /metrics, which need no key. Default: none.
        keys: File of keys: lines of NAME, read, write or upgrade, and the SHA-256 of the key. Default: the environment
            variable LIMPET_KEYS; without it, everybody on this machine may do everything.
        certificate: TLS certificate (PEM).
        certificate_key: Private key of the certificate, if another file has it.
    """

    host: str = "127.0.0.1"
    port: int = 8520
    health_port: int | None = None
    keys: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None


@dataclass(frozen=True)
class LimitOptions(Options):
    """Limits on requests.

    Args:
        max_body: Maximum size of a request in MiB.
        max_k: Maximum number of hits per query.
        max_batch: Maximum number of queries or items per request.
        max_waiting: Maximum number of queued items or texts; further requests are refused.
        max_connections: Maximum number of open connections per process.
        rate: Maximum number of requests per second and key, in each process. Default: unlimited.
    """

    max_body: Annotated[int, RARE] = 16
    max_k: Annotated[int, RARE] = 1000
    max_batch: Annotated[int, RARE] = 1000
    max_waiting: Annotated[int, RARE] = 4096
    max_connections: Annotated[int, RARE] = 1024
    rate: Annotated[float | None, RARE] = None


@dataclass(frozen=True)
class Embedders(Opening):
    """The embedding models.

    Args:
        model: Models that embed queries and items: st:FOLDER_OR_NAME, package:NAME, openai:MODEL@URL, or release:FOLDER
            (also of images). During an upgrade, give the old and the new one.
        texts: Gallery only: texts of the items, for a backfill: a name, a file, or the URL of a table or collection.
        data: Gallery only: images of the items, for a backfill and the console: a name or folder.
    """

    model: list[Model] = field(default_factory=list)
    texts: str | None = None
    data: str | None = None


@dataclass(frozen=True)
class LiveOptions(Options):
    """Live queries for the prepared model.

    Args:
        shadow: Share of text searches, such as 0.1, that are repeated with the prepared model after they are answered.
            `GET /v1/upgrade/evidence` reports how the models differ.
        canary: Share of text searches that the prepared model answers.
    """

    shadow: Annotated[float, RARE] = 0.0
    canary: Annotated[float, RARE] = 0.0


def serve(
    url: LiveUrl,
    *,
    embedders: Embedders = Embedders(),
    sets: DataSets = DataSets(),
    listening: Listening = Listening(),
    readers: int = 0,
    live: LiveOptions = LiveOptions(),
    limits: LimitOptions = LimitOptions(),
) -> int:
    """Serve a gallery over HTTP, and the steps of an upgrade as jobs, until SIGTERM or Ctrl-C.

    Open the address in a browser for the console; /openapi.json describes the API. For your own index, only the upgrade
    is served.

    Args:
        readers: Number of processes that answer searches, in addition to the writing process. Default: the writing
            process answers them.

    Examples:
        limpet serve live --model st:models/v1
        limpet serve live --model st:models/v1 --model st:models/v2 --texts requests.csv
            --readers 2 --health-port 8521
        limpet serve live --host 0.0.0.0 --keys keys.txt --certificate cert.pem
    """
    from limpet.attached.base import NotStartedError
    from limpet.attached.opening import is_attached, open_upgrade
    from limpet.service.processes import ServiceProcesses
    from limpet.service.settings import RequestLimits, ServiceSettings

    attached = is_attached(url)
    for option, value in (("--texts", embedders.texts), ("--data", embedders.data)):
        refuse(attached and value is not None, f"{option} with {url.owner}.", "its own items")
    refuse(attached and readers > 0, f"--readers with {url.owner}.", "none: the service answers no searches of it")
    with url.told(), suppress(NotStartedError), open_upgrade(url):
        pass  # what is wrong is said now, and not by every process
    for name in embedders.model:
        _model(embedders, name, ())
    with tempfile.TemporaryDirectory(prefix="limpet-serve-") as folder:
        settings = ServiceSettings(
            str(url), Path(folder),
            models=tuple((str(name), partial(_model_of_process, embedders, name)) for name in embedders.model),
            texts=None if embedders.texts is None else partial(_texts, sets, embedders.texts),
            images=None if embedders.data is None else partial(_images, sets, embedders.data),
            host=listening.host, port=listening.port, health_port=listening.health_port, readers=readers,
            shadow=live.shadow, canary=live.canary,
            keys=listening.keys or os.environ.get("LIMPET_KEYS"), certificate=listening.certificate,
            certificate_key=listening.certificate_key,
            limits=RequestLimits(
                limits.max_body, limits.max_k, limits.max_batch, limits.max_waiting, limits.max_connections, limits.rate
            ),
        )  # fmt: skip
        service = ServiceProcesses(settings, verbose=logging.getLogger("limpet").isEnabledFor(logging.DEBUG))
        scheme = "http" if listening.certificate is None else "https"
        place = f"{scheme}://{listening.host}:{service.settings.port}"
        console.print(f"Serving {without_secrets(url)} at {place}, where a browser finds the console; Ctrl-C ends it.")
        print_json({"url": place})
        with at_work(""):  # which needs no sign of life every half minute
            service.run()
    return 0


def _model_of_process(embedders: Embedders, name: Model, known: Sequence[str]) -> TextModel | ImageModel:
    """Open a model in a process of the service, whose log has lines of JSON alone."""
    console.quiet = True
    return _model(embedders, name, known)


def _model(embedders: Embedders, name: Model, known: Sequence[str]) -> TextModel | ImageModel:
    """Open a model of texts or of images."""
    if not _takes_images(name):
        return replace(embedders).text_model(name, known=known)
    from limpet.service.encoders import ImageModel

    return ImageModel(releases_of([name], None)[name])


def _takes_images(name: Model) -> bool:
    if name.scheme == "release":
        from limpet.models.release import load_record
        from limpet.models.specs import EncoderSpec

        return isinstance(load_record(name.place).encoder, EncoderSpec)
    if name.scheme == "package":
        from limpet.models.installed_encoders import ENCODERS

        return name.place in ENCODERS
    return name.scheme in OF_IMAGES


def _texts(sets: DataSets, texts: str) -> ItemSource[list[str]]:
    """Open the texts of items, in a process of the service."""
    from limpet.engines.reading import SourceTexts
    from limpet.engines.sources import open_source
    from limpet.upgrade.vector_sources import TextItems

    address = Place(texts).address
    return TextItems.of(sets.texts(texts, on_empty="skip")) if address is None else SourceTexts(open_source(address))


def _images(sets: DataSets, data: str, spec: EncoderSpec | None = None) -> ItemSource[NDArray[np.uint8]]:
    """Open the images of items, as a model wants them, in a process of the service."""
    from limpet.upgrade.vector_sources import ImageItems

    console.quiet = True
    return ImageItems.of(sets.images(data, spec))
