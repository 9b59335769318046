"""Text models behind any OpenAI-compatible ``/embeddings`` endpoint: OpenAI, vLLM, Ollama, TEI and others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ApiError, refuse
from limpet.models.api.cache import VectorCache
from limpet.models.api.client import ApiClient, TooMuchAtOnceError
from limpet.models.api.probe import AGREEMENT, PROBES, agreement, fingerprint_of, of_address, sketch, written
from limpet.models.api.settings import ApiSettings, Endpoint


class OpenAiModel:
    """A model behind an OpenAI-compatible endpoint, as a `TextNetwork`; threads may share it.

    Opening the model embeds three fixed sentences, whose vectors are part of its fingerprint. Every request embeds the
    first of them again. If the model has changed since, its vectors are neither returned nor cached.

    Args:
        address: Model and URL.
        settings: Key, cache, limits and retries.
        dimensions: Number of dimensions to request; None uses the model's own number.
        known: Fingerprints that the model may already have, such as those of a gallery. It gets the one that agrees
            with its vectors of the three sentences.

    Raises:
        ApiError: The server cannot be reached, refuses, or sends an invalid response; or the model has changed.
        BudgetError: The budget does not allow the request for the three sentences.
    """

    def __init__(
        self, address: Endpoint, settings: ApiSettings, dimensions: int | None = None, known: Iterable[str] = ()
    ) -> None:
        self.address, self.settings = address, settings
        self._client = ApiClient(address, settings, dimensions)
        settings.tell(f"Texts go to {address.url}, {settings.key_in_words()}.")
        self._most: float = math.inf  # maximum number of texts per request, lowered when the server refuses more
        self._cache = None if settings.cache is None else VectorCache(settings.cache)
        probes = self._client.embed(PROBES)
        zero = not probes.any(axis=1).all()
        if zero:
            raise ApiError(
                f"'{address.model}' at {address.url} gives a sentence a vector of zeros.",
                expected="a model whose vectors have a direction",
                to_do="check that the model is one for embeddings.",
            )
        self._probe = probes[0].astype(np.float64)
        self.dim = probes.shape[1]
        self.prompts: dict[str, str | None] = {"query": "", "document": "", "both": ""}
        self.fingerprint = self._recognised(sketch(probes), dimensions, tuple(known))

    def _recognised(self, now: NDArray[np.float64], dimensions: int | None, known: Sequence[str]) -> str:
        place, cache = f"{self.address.model}@{self.address.url}", self._cache
        met = [*known, *([] if cache is None else cache.fingerprints(place))]
        agreements = {
            fingerprint: agreement(then, now)
            for fingerprint, then in of_address(met, self.address, self.dim, dimensions).items()
        }
        own = [fingerprint for fingerprint, value in agreements.items() if value >= AGREEMENT]
        if agreements and not own and not self.settings.accept_change:
            raise self._changed(f"agree with those of earlier by a cosine of {max(agreements.values()):.3f}")
        fingerprint = own[0] if own else fingerprint_of(self.address, self.dim, dimensions, written(now))
        if cache is not None:
            cache.remember(fingerprint, place)
        return fingerprint

    def __call__(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        """Return raw vectors (N, D) of prefixed texts, from the cache if it has them."""
        whole = [prefix + text for text in texts]
        known = {} if self._cache is None else self._cache.get(self.fingerprint, whole, self.dim)
        self.settings.meter.asked(len(whole), sum(map(len, whole)), sum(text in known for text in whole))
        for some in self._requests([text for text in dict.fromkeys(whole) if text not in known]):
            made = dict(zip(some, self._asked(some), strict=True))
            if self._cache is not None:
                self._cache.put(self.fingerprint, made)
            known |= made
        return np.stack([known[text] for text in whole]) if whole else np.empty((0, self.dim), np.float32)

    def _requests(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Divide texts into requests within the limits on texts and characters; a longer text is sent alone."""
        some: list[str] = []
        for text in texts:
            if some and (len(some) >= self._most or sum(map(len, some)) + len(text) > self.settings.characters):
                yield some
                some = []
            some.append(text)
        if some:
            yield some

    def _asked(self, texts: list[str]) -> NDArray[np.float32]:
        """Embed texts together with the first probe; divide the request in two if the server finds it too large.

        Later requests have at most as many texts as a half.

        Raises:
            ApiError: The vector of the probe shows that the model has changed; see also `ApiClient.embed`.
        """
        try:
            *vectors, probe = self._client.embed([*texts, PROBES[0]])
        except TooMuchAtOnceError:
            if len(texts) == 1:
                raise
            half = len(texts) // 2
            self._most = min(self._most, half)
            return np.concatenate([self._asked(texts[:half]), self._asked(texts[half:])])
        cosine = float(probe @ self._probe) / max(float(np.linalg.norm(probe) * np.linalg.norm(self._probe)), 1e-300)
        if cosine < AGREEMENT:
            raise self._changed(f"agree with those of a moment ago by a cosine of {cosine:.3f}")
        return np.stack(vectors)

    def _changed(self, how: str) -> ApiError:
        return ApiError(
            f"'{self.address.model}' at {self.address.url} is not the model that it was: its answers to the same "
            f"sentences {how}.",
            expected=f"at least {AGREEMENT}, as one and the same model has; its vectors must not be mixed with those "
            "of before",
            to_do="ask for the former model by a name that stays with it; or upgrade to this one like to any other, "
            "with --api.accept-change true, which gives it a fingerprint of its own. No vector of it was kept.",
        )


class OpenAiService:
    """Opens ``openai:MODEL@BASE_URL``."""

    def short_name(self, place: str) -> str:
        """Return a name for a folder of the model's embeddings."""
        return Endpoint.read(place, allow_http=True).short_name

    def may_be(self, place: str, fingerprint: str, dim: int, truncate_dim: int | None) -> bool:
        """Return, without a request, whether a fingerprint has the address and the dimension of the model."""
        return bool(of_address([fingerprint], Endpoint.read(place, allow_http=True), dim, truncate_dim))

    def open(
        self,
        place: str,
        *,
        max_length: int | None,
        truncate_dim: int | None,
        settings: ApiSettings,
        known: Iterable[str],
    ) -> OpenAiModel:
        """Open a model; see `OpenAiModel`.

        Raises:
            ConfigError: The address is invalid, or ``max_length`` was given, which the server decides.
            ApiError: The server cannot be reached, or sends an invalid response; see `OpenAiModel`.
        """
        refuse(
            max_length is not None,
            "max-length, for a model behind an API.",
            "none: its server decides that",
        )
        address = Endpoint.read(place, allow_http=settings.allow_http)
        return OpenAiModel(address, settings, truncate_dim, known)


OPENAI = OpenAiService()
