"""The text models of a service; texts of several requests are embedded together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from limpet.errors import ServiceError
from limpet.service import metrics
from limpet.service.gathering import Gathering
from limpet.service.settings import ServiceSettings

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet, Role
    from limpet.training.text_models import TextModel

_AT_ONCE, _SECONDS = 64, 0.005


class Encoders:
    """Loaded text models, by fingerprint; made inside the event loop.

    Args:
        settings: Of the service.
        known: Fingerprints that a model behind an API may have already.
    """

    def __init__(self, settings: ServiceSettings, known: Sequence[str]) -> None:
        self.models: dict[str, TextModel] = {}
        self.named: dict[str, TextModel] = {}
        for name, opened in settings.models:
            model = opened(known)
            self.models[model.fingerprint] = self.named[name] = model
        self._gatherings = {
            fingerprint: Gathering(
                _Embedder(model), what="texts", most=_AT_ONCE, seconds=_SECONDS, room=settings.limits.waiting
            )
            for fingerprint, model in self.models.items()
        }

    async def embed(self, texts: Sequence[str], fingerprint: str, role: Role) -> EmbeddingSet:
        """Embed texts with a model.

        Raises:
            ServiceError: It is not loaded, or too many texts wait.
        """
        if fingerprint not in self._gatherings:
            raise self.not_loaded(fingerprint)
        return await self._gatherings[fingerprint].ask((texts, role), len(texts))

    def model(self, name: str) -> TextModel:
        """Return a model by fingerprint, or by the name that was given when the service started.

        Raises:
            ServiceError: It is not loaded.
        """
        found = self.named.get(name) or self.models.get(name)
        if found is None:
            raise self.not_loaded(name)
        return found

    def not_loaded(self, fingerprint: str) -> ServiceError:
        """Build the error for a model that is not loaded."""
        return ServiceError(
            409, f"The service has not loaded the model {fingerprint}.",
            expected=f"one of {', '.join(self.models)}" if self.models else "vectors, since no model is loaded",
            to_do="send vectors; or start the service with --model SCHEME:PLACE.", intact="Nothing was changed.",
        )  # fmt: skip

    async def close(self) -> None:
        """Answer what waits."""
        for one in self._gatherings.values():
            await one.close()


class _Embedder:
    """Embeds the texts of several requests at once; queries and documents apart, since their prefixes may differ."""

    def __init__(self, model: TextModel) -> None:
        self._model = model

    def __call__(self, asked: list[tuple[Sequence[str], Role]]) -> list[EmbeddingSet | Exception]:
        answers: dict[int, EmbeddingSet | Exception] = {}
        for role in {role for _, role in asked}:
            some = [number for number, (_, of) in enumerate(asked) if of == role]
            answers |= zip(some, self._embedded([asked[number][0] for number in some], role), strict=True)
        return [answers[number] for number in range(len(asked))]

    def _embedded(self, lists: Sequence[Sequence[str]], role: Role) -> Iterable[EmbeddingSet | Exception]:
        try:
            made = self._of([text for texts in lists for text in texts], role)
        except Exception as error:
            if len(lists) == 1:
                return [error]
            return [one for texts in lists for one in self._embedded([texts], role)]  # only one of them is at fault
        parts, start = [], 0
        for texts in lists:
            parts.append(made[start : start + len(texts)])
            start += len(texts)
        return parts

    def _of(self, texts: Sequence[str], role: Role) -> EmbeddingSet:
        from limpet.data.text_set import TextSet
        from limpet.embeddings import StringArray

        ids = StringArray.of([str(number) for number in range(len(texts))])
        with metrics.timed(metrics.SECONDS, "embed"):
            return self._model.embed(TextSet(StringArray.of(list(texts)), None, (), ids), role=role)
