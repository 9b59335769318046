"""Models on the command line: how they are named, and how they are opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from limpet.cli.choices import user_cache
from limpet.cli.console import AT_END, console, long_texts, progress_bar
from limpet.cli.parameters import RARE, Named, Options, of_one_word
from limpet.cli.places import Place
from limpet.errors import ConfigError, refuse
from limpet.models.names import OF_IMAGES, OF_TEXTS, ModelName
from limpet.support.options import bound

if TYPE_CHECKING:
    from limpet.data.text_set import TextSet
    from limpet.embeddings import EmbeddingSet, Role
    from limpet.geometry import Space
    from limpet.models.api.meter import Meter
    from limpet.models.api.settings import ApiSettings
    from limpet.models.long_texts import LongTextsRecord
    from limpet.models.release import Release
    from limpet.models.text_encoders import TextSettings
    from limpet.support.workers import Workers
    from limpet.training.text_models import TextModel


_BATCHES = 16  # that a worker embeds at a time


@Parameter(converter=of_one_word, accepts_keys=False, n_tokens=1)
class Model(ModelName):
    """The name of a model, as a person gave it: SCHEME:PLACE, FILE.py:FUNCTION, or a path or URL of vectors."""

    def __init__(self, given: str) -> None:
        from limpet.engines.sources import SOURCES

        super().__init__(given, sources=SOURCES)

    @property
    def vectors(self) -> Place | None:
        """Where stored vectors are; None of a model that makes them."""
        return Place(self.place) if self.scheme == "vectors" else None


@dataclass(frozen=True)
class Api(Options):
    """Settings of models behind an API.

    Args:
        api: Settings of a model behind an API, such as --api.max-cost 5: key-variable, the environment variable with
            the key; cache, the file of paid vectors; price per million tokens; max-cost and max-tokens of this command;
            requests-per-minute, tokens-per-minute; characters per request; timeout in seconds; retries; allow-http;
            accept-change, to treat a model that changed behind its name as a new one. In limpet.toml, [api.NAME] holds
            the settings of the model openai:NAME, and [api.default] those of all others.
    """

    api: Annotated[Named, RARE] = field(default_factory=dict)

    @cached_property
    def apis(self) -> dict[str, ApiSettings]:
        """How models behind an API are asked, by profile; models of one profile share its limits."""
        return {}

    def asked(self, profile: str = "default") -> ApiSettings:
        """Return how the models of a profile are asked."""
        from limpet.cli.settings import api_profile
        from limpet.models.api.settings import api_settings

        if profile not in self.apis:
            given = {**api_profile(profile), **self.api}
            given.pop("model", None)
            self.apis[profile] = api_settings(given, cache=user_cache() / "api.sqlite", tell=console.print)
        return self.apis[profile]

    @property
    def meter(self) -> Meter:
        """What counts the tokens of the model that was opened; of those of [api.default] where none was."""
        used = list(self.apis.values()) or [self.asked()]
        return used[0].meter

    def tell(self) -> None:
        """Say what was spent, where something was asked for."""
        for settings in self.apis.values():
            if settings.meter.texts:
                console.print(f"{settings.meter}.")


@dataclass(frozen=True)
class Opening(Api):
    """Options for opening models.

    Args:
        model_options: Options of a text model, such as --model-options.max-length 256: query-prefix and
            document-prefix, the text before each; max-length, the maximum number of tokens; truncate-dim, the number of
            dimensions to keep; on-long, the handling of texts with more tokens: warn, fail or chunk-mean.
        device: Compute device: cpu, cuda, cuda:1, mps.
    """

    model_options: Annotated[Named, RARE] = field(default_factory=dict)
    device: Annotated[str, RARE] = "cpu"

    @cached_property
    def settings(self) -> TextSettings:
        """How text models embed."""
        from limpet.models.text_encoders import TextSettings

        return TextSettings(**bound(TextSettings, self.model_options, "text model"))

    def identify(self, name: ModelName) -> tuple[str, Space]:
        """Return the fingerprint of the vectors that a model makes, and their space."""
        from limpet.training.text_models import identify

        whole, profile = self._whole(name)
        with console.status(f"opening {name}"):
            return identify(whole, settings=self.settings, device=self.device, api=self.asked(profile))

    def _whole(self, name: ModelName) -> tuple[ModelName, str]:
        from limpet.cli.settings import api_profile

        if name.scheme != "openai" or "@" in name.place or "model" not in (given := api_profile(name.place)):
            return name, "default"
        whole = ModelName.of(str(given["model"]))
        whole.refuse_unless("openai", what=f"[api.{name.place}]")
        return whole, name.place

    def whole(self, name: ModelName) -> ModelName:
        """Return the model itself, where a profile names it."""
        return self._whole(name)[0]

    def text_model(
        self,
        name: ModelName,
        over: ModelName | None = None,
        *,
        known: Iterable[str] = (),
        settings: TextSettings | None = None,
    ) -> TextModel:
        """Open a model of texts: a frozen one, or a head or adapter over one.

        Args:
            name: The model.
            over: What a head or adapter is over.
            known: Fingerprints that a model behind an API may have already.
            settings: How it embeds, where not as the options say.
        """
        from limpet.training.text_models import open_text_model

        whole, profile = self._whole(name)
        below, of_below = (None, profile) if over is None else self._whole(over)
        with console.status(f"opening {name}"):
            model = open_text_model(
                whole, below, settings=settings or self.settings, device=self.device, api=self.asked(of_below),
                known=known,
            )  # fmt: skip
        AT_END.append(lambda: model.encoder.long_texts.record(model.encoder.on_long))
        return model

    def embedded(
        self, name: ModelName, texts: TextSet, *, role: Role, cache: Path, settings: TextSettings | None = None
    ) -> EmbeddingSet:
        """Embed texts with a frozen model, showing progress; a folder keeps what was embedded."""
        name.refuse_unless(*OF_TEXTS, what="texts")
        model = self.text_model(name, settings=settings)
        with progress_bar(model.encoder.name, len(texts)) as bar:
            return model.embed(texts, role=role, cache=cache, progress=bar)


@dataclass(frozen=True)
class Embedding(Opening):
    """The embedding model.

    Args:
        model: Embedding model: release:FOLDER, trained by limpet; for texts also st:FOLDER_OR_NAME, package:NAME,
            openai:MODEL@URL or adapter:FOLDER; for images hf:FOLDER, timm:FOLDER, package:NAME or FILE.py:FUNCTION.
        over: Text model whose vectors an adapter or a head maps (default for a head: the recorded model); or
            FILE.py:FUNCTION, which returns your module of a release.
    """

    model: Model | None = None
    over: Annotated[Model | None, RARE] = None

    def named(self, what: str) -> Model:
        """Return the model.

        Args:
            what: Embeds what.

        Raises:
            ConfigError: None was named.
        """
        if self.model is None:
            raise ConfigError(f"{what} without a model.", expected="--model SCHEME:PLACE, which embeds it")
        return self.model


@dataclass(frozen=True)
class WorkerOptions(Options):
    """Workers that embed in parallel.

    Args:
        workers: Number of workers that embed; in an upgrade, only for galleries. Default: this process alone.
        engine: Kind of workers: threads; processes, each with its own model; or Ray actors, in the cluster that
            RAY_ADDRESS names, or on this machine.
        gpus: GPUs per Ray actor.
    """

    workers: Annotated[int, RARE] = 0
    engine: Annotated[Literal["threads", "processes", "ray"], RARE] = "threads"
    gpus: Annotated[float, RARE] = 0.0

    def __post_init__(self) -> None:
        refuse(self.workers < 0, f"--workers {self.workers}.", "at least 0")
        refuse(self.engine != "threads" and not self.workers, f"--engine {self.engine} alone.", "--workers, too")
        refuse(self.gpus > 0 and self.engine != "ray", f"--gpus {self.gpus:g}.", "--engine ray; else --device")

    def started(self, models: Sequence[Model]) -> Workers | None:
        """Start the workers; None where this process is to embed alone.

        Args:
            models: What they are to embed with.

        Raises:
            ConfigError: Processes or actors with a model behind an API.
            StoreError: Ray could not be started.
        """
        from limpet.models.text_encoders import is_service
        from limpet.support.workers import Processes, Threads

        if self.engine == "threads":
            return Threads(self.workers) if self.workers else None
        asks = any(model.vectors is None and is_service(model) for model in models)
        refuse(asks, f"--engine {self.engine} with a model behind an API.", "--engine threads, which can wait for it")
        if self.engine == "processes":
            workers: Workers = Processes(self.workers)
        else:
            from limpet.integrations.ray_actors import RayActors

            workers = RayActors(self.workers, gpus=self.gpus)
        AT_END.append(partial(_not_read_by, workers))
        return workers

    def divided(self, items: int, batch_size: int) -> list[slice]:
        """Return which items are embedded at a time: all by this process alone, some batches by a worker."""
        step = _BATCHES * batch_size if self.workers else items
        return [slice(start, start + step) for start in range(0, items, max(1, step))]


def _not_read_by(workers: Workers) -> LongTextsRecord | None:
    """Return what the models of all workers did not read whole; what a worker knew that died is lost."""
    found: list[LongTextsRecord] = []
    for worker in range(len(workers)):
        with suppress(BrokenExecutor):
            found += workers.submit(worker, long_texts).result()
    if not found:
        return None
    from limpet.models.long_texts import LongTexts

    first, read, long = found[0], sum(one.read for one in found), sum(one.long for one in found)
    return LongTexts(first.model, first.limit, first.known, read, long, max(one.longest for one in found)).record(
        first.on_long
    )


def releases_of(names: Sequence[Model], over: ModelName | None) -> dict[Model, Release]:
    """Open models of images by name.

    Raises:
        ConfigError: A name is of another kind.
        ReleaseError: A release takes something else.
    """
    from limpet.models.named_models import image_spec, open_releases

    for name in names:
        name.refuse_unless(*OF_IMAGES, what="images")
    opened = open_releases(names, over)
    for name, release in opened.items():
        image_spec(release, name.place)
    return opened
