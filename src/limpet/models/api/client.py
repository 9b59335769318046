"""Client of an OpenAI-compatible ``/embeddings`` endpoint, which validates every response."""

from __future__ import annotations

import json
import logging
import math
import weakref
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ApiError, BudgetError, DataError, reason
from limpet.models.api.settings import KEY_VARIABLE, ApiSettings, Endpoint
from limpet.support.extras import needing

with needing("A model behind an API"):
    import httpx
    import tenacity

_LONGEST_PAUSE = 30.0
"""Maximum seconds between two attempts, unless the server names a time."""
LONGEST_WAIT = 300.0
"""Maximum seconds that a server may ask to wait; if it asks for more, the call fails."""

_log = logging.getLogger("limpet.api")


class TooMuchAtOnceError(ApiError):
    """The request is too large: the server asks for fewer or shorter texts."""


class _PassingError(Exception):
    """A failure that may be temporary, and the seconds that the server asks to wait, if any."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.what, self.wait = what, wait


class ApiClient:
    """Client of one model at one server; threads may share it.

    Args:
        address: Model and URL.
        settings: Key, limits, timeouts and retries.
        dimensions: Number of dimensions to request; None uses the model's own number.

    Raises:
        ConfigError: The named environment variable for the key is not set, or holds more than a key.
    """

    def __init__(self, address: Endpoint, settings: ApiSettings, dimensions: int | None = None) -> None:
        self.address, self.settings, self.dimensions = address, settings, dimensions
        self.dim: int | None = None
        self._key = settings.key()
        self._answered = False
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        self._http = httpx.Client(
            headers=headers,
            timeout=settings.timeout,
            follow_redirects=False,
            verify=address.url.startswith("https:"),  # http needs no certificates, and reading them takes time
            trust_env=not address.loopback,  # a proxy cannot reach a server on this machine
        )
        weakref.finalize(self, self._http.close)

    def __repr__(self) -> str:
        return f"ApiClient('{self.address.model}' at {self.address.url})"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors (N, D) of texts, in their order, with one request; temporary failures are retried.

        Raises:
            BudgetError: The budget of tokens or money does not allow the request; nothing was sent.
            TooMuchAtOnceError: The server asks for a smaller request.
            ApiError: The server refuses, cannot be reached, or sends an invalid response.
            DataError: A text cannot be encoded as UTF-8.
        """
        meter, characters = self.settings.meter, sum(map(len, texts))

        def attempt() -> httpx.Response:
            estimate = meter.reserve(characters)
            if estimate is None:
                raise self._spent()
            meter.wait(estimate)
            charged = False
            try:
                response = self._send(texts)
                status = response.status_code
                if (status == 429 and _code(response) != "insufficient_quota") or status == 408 or status >= 500:
                    raise _PassingError(
                        f"answered with status {status}",
                        _retry_after(response.headers.get("retry-after"), meter.clock.wall()),
                    )
                self._refuse(response)
            except _PassingError as passing:
                charged = isinstance(passing.__cause__, httpx.ReadTimeout)  # the server may have embedded the texts
                raise
            else:
                meter.settle(estimate, characters, _counted(response))
                estimate = 0
                return response
            finally:
                if estimate:
                    meter.release(estimate, charged=charged)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_PassingError),
            stop=tenacity.stop_after_attempt(self.settings.retries + 1),
            wait=_pause,
            sleep=meter.clock.sleep,
            before_sleep=_told,
            reraise=True,
        )
        try:
            response = retrying(attempt)
        except _PassingError as passing:
            raise self._failed(passing) from passing.__cause__
        self._answered = True
        vectors = self._vectors(response, len(texts))
        self.dim = vectors.shape[1]
        return vectors

    def _send(self, texts: Sequence[str]) -> httpx.Response:
        asked: dict[str, Any] = {"model": self.address.model, "input": list(texts), "encoding_format": "float"}
        if self.dimensions is not None:
            asked["dimensions"] = self.dimensions
        try:
            return self._http.post(f"{self.address.url}/embeddings", json=asked)
        except httpx.TimeoutException as error:
            raise _PassingError(f"did not answer within {self.settings.timeout:g} seconds") from error
        except httpx.ConnectError as error:
            if not self._answered:
                raise ApiError(
                    f"Nothing answers at {self.address.url}: {self._quoted(str(error))}.",
                    expected="a server that is running and can be reached",
                    to_do="check the URL, and that the server runs.",
                    intact="Nothing was sent.",
                ) from error
            raise _PassingError("cannot be reached any more") from error
        except httpx.DecodingError as error:
            raise self._odd("cannot be unpacked") from error
        except UnicodeEncodeError as error:
            raise DataError(
                f"A text holds half of a pair of characters (a surrogate): {reason(error)}.",
                expected="texts that UTF-8 can write",
                to_do="repair the text where it was read, such as with text.encode('utf-8', 'replace').decode(). "
                f"{self._kept()}",
            ) from error
        except httpx.TransportError as error:
            raise _PassingError(f"broke the connection off ({type(error).__name__})") from error

    # Validation of responses

    def _refuse(self, response: httpx.Response) -> None:
        """Refuse a response whose status is not 200.

        Raises:
            TooMuchAtOnceError: The server finds the request too large (status 413).
            ApiError: Any other status.
        """
        status, where, model = response.status_code, self.address.url, self.address.model
        if status == httpx.codes.OK:
            return
        if response.is_redirect:
            target = httpx.URL(response.headers["location"]) if "location" in response.headers else None
            leads = "elsewhere" if target is None else f"to {target.host or 'another path'}"
            raise ApiError(
                f"{where} leads {leads} (status {status}).",
                expected="an answer: texts and key go to no server but the one that was named",
                to_do="where you trust that place, name its URL after the @.",
                intact="Nothing was sent there.",
            )
        if status in (401, 403):
            variable = self.settings.key_variable
            sent = f"No key was sent, as {variable} is not set" if self._key is None else f"{variable} was not accepted"
            raise ApiError(
                f"{where} refuses access to '{model}' (status {status}). {sent}.",
                expected="a key with the right to this model",
                to_do=f"export {KEY_VARIABLE}=…; or another variable, with --api.key-variable NAME. {self._kept()}",
            )
        said = self._said(response)
        if status == 404:
            raise ApiError(
                f"{where} has no model '{model}', or no /embeddings at all (status 404){said}.",
                expected="a model that the server offers for embeddings",
                to_do=f"check both parts of openai:MODEL@BASE_URL; {where}/models may list its models. {self._kept()}",
            )
        if status == 413:
            raise TooMuchAtOnceError(
                f"{where} finds the request too large (status 413){said}.",
                expected="texts that it takes",
                to_do=f"fewer or shorter ones at a time: --batch-size, --api.characters. {self._kept()}",
            )
        if _code(response) == "insufficient_quota":
            raise ApiError(
                f"{where} says that the account of this key has nothing left (status {status}).",
                expected="an account with credit",
                to_do=f"add to it with your provider. {self._kept()}",
            )
        dimensions = "" if self.dimensions is None else "; without truncate-dim, if the model has one length only"
        raise ApiError(
            f"{where} refuses these texts for '{model}' (status {status}){said}.",
            expected="texts that it takes",
            to_do=f"shorten what is too long; fewer at a time with --batch-size{dimensions}. {self._kept()}",
        )

    def _vectors(self, response: httpx.Response, count: int) -> NDArray[np.float32]:
        """Return the vectors of a response (N, D), in the order of their indices.

        Raises:
            ApiError: The response is not JSON, its vectors are not one per text, a dimension differs from the others or
                from earlier responses, or a value is not a finite number.
        """
        try:
            content = response.json()
        except (ValueError, RecursionError) as error:
            raise self._odd("is no JSON") from error
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
            raise self._odd("has no list 'data'")
        if len(data) != count:
            raise self._odd(f"has {len(data)} vectors for {count} texts")
        places = [one.get("index") for one in data]
        if any(type(place) is not int for place in places) or sorted(places) != list(range(count)):
            raise self._odd("does not say by 'index' which text each vector is of, every text once")
        rows = [one.get("embedding") for one in sorted(data, key=lambda one: one["index"])]
        lengths = sorted({len(row) if isinstance(row, list) else 0 for row in rows})
        if lengths[0] == 0:
            raise self._odd("has a vector that is no list of numbers")
        wanted = self.dim or self.dimensions
        if len(lengths) > 1 or (wanted is not None and lengths != [wanted]):
            found = " and ".join(map(str, lengths))
            before = "of one dimension" if wanted is None else f"of {wanted}"
            asked = ", which were asked for (truncate-dim)" if self.dim is None and wanted is not None else ""
            raise self._odd(f"has vectors of {found} dimensions, not {before}{asked}")
        vectors = np.stack([_numbers(row) for row in rows])
        if not np.isfinite(vectors).all():
            first = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise self._odd(f"has a vector, that of text {first} of the request, that is not all finite numbers")
        return vectors

    # Errors

    def _odd(self, what: str) -> ApiError:
        return ApiError(
            f"The answer of {self.address.url} for '{self.address.model}' {what}.",
            expected="JSON as of OpenAI's /embeddings: one finite vector of one dimension for every text, with its "
            "index",
            to_do=f"check that the model is one for embeddings, and the server's log; then repeat. {self._kept()}",
        )

    def _spent(self) -> BudgetError:
        meter = self.settings.meter
        money = "" if meter.cost is None else f", which cost {meter.cost:,.4g}"
        return BudgetError(
            f"The budget of {meter.limits.tokens:,} tokens allows no further request: {meter.tokens:,} are spent"
            f"{money}.",
            expected="a larger --api.max-tokens or --api.max-cost, for what is left",
            to_do=f"raise it. {self._kept()}",
        )

    def _failed(self, passing: _PassingError) -> ApiError:
        wait = passing.wait or 0
        tries = self.settings.retries + 1
        asks = f" and asks to wait for {wait:,.0f} seconds" if wait > LONGEST_WAIT else f", {tries} times in a row"
        return ApiError(
            f"{self.address.url} {passing.what}{asks}.",
            expected="an answer",
            to_do="try again later; more slowly, with --api.requests-per-minute or --api.tokens-per-minute; or with "
            f"more patience, --api.retries and --api.timeout. {self._kept()}",
        )

    def _kept(self) -> str:
        cache = self.settings.cache
        if cache is None:
            return "No vector of this call is kept, as there is no cache."
        return f"What was embedded so far is kept in '{cache}': the same command goes on from there."

    def _said(self, response: httpx.Response) -> str:
        try:
            content = response.json()
        except (ValueError, RecursionError):
            return ""
        said = content.get("error", content.get("detail")) if isinstance(content, dict) else None
        said = said.get("message") if isinstance(said, dict) else said
        return f": {self._quoted(said)}" if isinstance(said, str) and said.strip() else ""

    def _quoted(self, said: str) -> str:
        plain = " ".join(said.split()) if self._key is None else " ".join(said.replace(self._key, "…").split())
        return (plain if len(plain) <= 200 else f"{plain[:200]}…").rstrip(".")


def _numbers(row: list[Any]) -> NDArray[np.float32]:
    """Return a vector (D,) as float32; all NaN if it holds anything but numbers.

    >>> _numbers([1, 2.5]), _numbers([[1], [2]]), _numbers([[1], 2])
    (array([1. , 2.5], dtype=float32), array([nan, nan], dtype=float32), array([nan, nan], dtype=float32))
    """
    with suppress(ValueError), np.errstate(over="ignore"):  # NumPy raises it for nested lists of different lengths
        exact = np.asarray(row)
        if exact.ndim == 1 and exact.dtype.kind in "fi":
            return exact.astype(np.float32)
    return np.full(len(row), np.nan, np.float32)


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks to wait; None if it is missing or invalid.

    Args:
        value: A number of seconds, or an HTTP date.
        now: Current time in seconds since 1970.

    >>> _retry_after("1.5", 0), _retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), _retry_after("soon", 0)
    (1.5, 10.0, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _passing(state: tenacity.RetryCallState) -> _PassingError | None:
    found = None if state.outcome is None else state.outcome.exception()
    return found if isinstance(found, _PassingError) else None


def _pause(state: tenacity.RetryCallState) -> float:
    """Return the seconds until the next attempt: those that the server asks for, or else 0.5, 1, 2, … up to 30.

    Raises:
        _PassingError: The server asks for more than `LONGEST_WAIT`.
    """
    passing = _passing(state)
    if passing is not None and passing.wait is not None:
        if passing.wait > LONGEST_WAIT:
            raise passing
        return passing.wait
    return min(_LONGEST_PAUSE, 0.5 * 2.0 ** (state.attempt_number - 1))


def _told(state: tenacity.RetryCallState) -> None:
    passing = _passing(state)
    if passing is not None and state.next_action is not None:
        _log.warning("the server %s; trying again in %.3g s", passing.what, state.next_action.sleep)


def _counted(response: httpx.Response) -> int | None:
    """Return the number of tokens that the server counted; None if the response has no valid number."""
    try:
        usage = response.json().get("usage") or {}
        counted = usage.get("total_tokens") or usage.get("prompt_tokens")
    except (ValueError, AttributeError, RecursionError):
        return None
    return counted if type(counted) is int and counted > 0 else None


def _code(response: httpx.Response) -> str:
    """Return the error code of a response; empty if it has none."""
    try:
        return str(json.loads(response.content)["error"]["code"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
