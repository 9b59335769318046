"""Clients of `limpet serve`, with the names and errors of `Gallery`; one list of methods for both of them."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx
import numpy as np
from numpy.typing import NDArray

from limpet import errors
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, LimpetError, ServiceError, count_of
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries.router import Hit, Reply
from limpet.service.documents import FLOAT32, encoded, without_nothing

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Steps = Generator[httpx.Request | float, httpx.Response | httpx.TransportError | None, _Result]
"""What a call does: it sends requests, waits for seconds, and receives responses and failures."""
_TEMPORARY = (429, 503)
_LONGEST_PAUSE = 10.0  # seconds
_WAIT = 20.0  # seconds that the service holds a request for a job


class _Method(Generic[_Given, _Result]):
    """A method of both clients: it returns its result, or with `AsyncClient` an awaitable of it."""

    def __init__(self, steps: Callable[Concatenate[Any, _Given], _Steps[_Result]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[_Given, _Result]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[_Given, Awaitable[_Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*given: _Given.args, **options: _Given.kwargs) -> Any:
            return client._run(self._steps(client, *given, **options))

        return update_wrapper(call, self._steps)


class _Calls:
    """The calls of the service."""

    http: httpx.Client | httpx.AsyncClient

    def __init__(self, url: str, retries: int) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"The service '{url}'.", expected="http://HOST:PORT or https://HOST:PORT")
        self.retries = retries

    @_Method
    def search(
        self,
        queries: EmbeddingSet | NDArray[np.float32] | Sequence[str] | Sequence[bytes],
        k: int = 10,
        *,
        fingerprint: str | None = None,
        where: str | None = None,
        exact: bool = True,
        request: str | None = None,
        route_key: str | None = None,
    ) -> _Steps[Reply]:
        """Find the items nearest to each query; see `Gallery.search`.

        Args:
            queries: Points of a model of the gallery, (Q, D); or texts, or encoded images, which the service embeds.
            k: Hits per query, at least 1.
            fingerprint: Fingerprint of the model, if queries are no set. Default for texts and images: the active
                model.
            where: Metadata filter, such as ``price<10 AND exists(label)``.
            exact: Compare with every vector; otherwise use approximate indexes, if they exist.
            request: Name of this request, by which `click` reports the chosen hit.
            route_key: Routing key, such as the user: during a canary, one model answers all requests of a key.
        """
        asked = without_nothing(
            {"k": count_of("k", k), "model": fingerprint, "where": where, "exact": exact, "route_key": route_key}
        )
        named = {} if request is None else {"X-Request-ID": request}
        if isinstance(queries, EmbeddingSet):
            asked, queries = {**asked, "model": queries.fingerprint}, queries.vectors
        if isinstance(queries, np.ndarray):
            content = np.ascontiguousarray(np.atleast_2d(queries), FLOAT32).tobytes()
            headers = {"Content-Type": "application/octet-stream", **named}
            params = {**asked, "exact": str(exact).lower()}
            found = yield from self._ask("POST", "/v1/search", params=params, content=content, headers=headers)
        else:
            found = yield from self._ask("POST", "/v1/search", json={**asked, **_embedded(queries)}, headers=named)
        return Reply(
            [[Hit(**hit) for hit in hits] for hits in found["hits"]], found["model"], found["active"],
            tuple(found["sources"]), found["covered"], found["items"], found["commit"], found["epoch"], found["merge"],
        )  # fmt: skip

    @_Method
    def click(self, request: str, item: str, *, query: int = 0) -> _Steps[None]:
        """Report the hit that a user chose, as evidence for shadow and canary.

        Args:
            request: Name of the search.
            item: Id of the hit.
            query: Number of the query in that search.
        """
        yield from self._ask("POST", "/v1/clicks", json={"request": request, "id": item, "query": query})

    @_Method
    def evidence(self) -> _Steps[dict[str, Any]]:
        """Return the evidence of live queries about the prepared model; see `LiveEvidenceSummary`."""
        found: dict[str, Any] = yield from self._ask("GET", "/v1/upgrade/evidence")
        return found

    @_Method
    def upsert(
        self,
        *sets: EmbeddingSet,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        items: Mapping[str, str] | Mapping[str, bytes] | None = None,
        key: str | None = None,
    ) -> _Steps[int]:
        """Write whole items durably, and return their number; see `Gallery.upsert`.

        Args:
            *sets: Points of the same items, of one or several models of the gallery.
            metadata: Values by column, in the order of the ids.
            items: Alternative to sets: texts, or encoded images, by id, which the service embeds.
            key: Idempotency key: the request is applied once, even if it is sent again. Default: a new key.
        """
        columns = None if metadata is None else {name: list(values) for name, values in metadata.items()}
        body: dict[str, Any] = {"metadata": columns}
        if items is not None and not sets:
            body |= {"ids": list(items), **_embedded(list(items.values()))}  # type: ignore[arg-type]
        elif sets and items is None and all(list(one.ids) == list(sets[0].ids) for one in sets):
            vectors = {one.fingerprint: encoded(one.vectors) for one in sets}
            body |= {"ids": list(sets[0].ids), "vectors": vectors}
        else:
            raise ConfigError("Nothing, or sets of different items, to write.",
                              expected="sets of the same items; or items=, by id")  # fmt: skip
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        found = yield from self._ask("POST", "/v1/items", json=without_nothing(body), headers=headers)
        return int(found["items"])

    @_Method
    def delete(self, ids: Sequence[str], *, key: str | None = None) -> _Steps[int]:
        """Remove items with all their vectors, and return the number removed."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        found = yield from self._ask("DELETE", "/v1/items", params={"id": list(ids)}, headers=headers)
        return int(found["items"])

    @_Method
    def fetch(self, ids: Sequence[str], *, vectors: bool = False) -> _Steps[list[dict[str, Any]]]:
        """Return the existing items: id, version, generations, metadata and, if `vectors` is set, vectors."""
        found = yield from self._ask("GET", "/v1/items", params={"id": list(ids), "vectors": str(vectors).lower()})
        items: list[dict[str, Any]] = found["items"]
        return items

    @_Method
    def status(self) -> _Steps[dict[str, Any]]:
        """Return the phase of the upgrade and the next step."""
        found: dict[str, Any] = yield from self._ask("GET", "/v1/upgrade")
        return found

    @_Method
    def thresholds(self, *asked: float) -> _Steps[Thresholds]:
        """Map score thresholds of the old model to the new one; without arguments, return a table."""
        found = yield from self._ask("GET", "/v1/upgrade/thresholds", params={"threshold": list(asked)})
        return Thresholds.model_validate(found)

    @_Method
    def take_step(
        self, /, step: str, *, epoch: str | None = None, key: str | None = None, wait: bool = True, **options: Any
    ) -> _Steps[dict[str, Any]]:
        """Run an upgrade step, and return its job.

        Args:
            step: start, backfill, index, swap, rollback, finish, cancel, verify, gc or doctor.
            epoch: Run the step only at this epoch of the upgrade.
            key: Idempotency key: the request is applied once, even if it is sent again. Default: a new key.
            wait: Wait for the end of the job, and raise its error if it failed.
            **options: Options of the step, such as ``model`` and ``budget``.
        """
        headers = without_nothing({"Idempotency-Key": key or uuid.uuid4().hex, "If-Match": epoch and f'"{epoch}"'})
        job: dict[str, Any] = yield from self._ask("POST", f"/v1/upgrade/{step}", json=options, headers=headers)
        while wait and job["status"] in ("queued", "running"):
            job = yield from self._ask("GET", f"/v1/jobs/{job['id']}", params={"wait": _WAIT})
        if wait and job["problem"] is not None:
            raise error_of(job["problem"])
        return job

    @_Method
    def job(self, name: str, *, wait: float = 0.0) -> _Steps[dict[str, Any]]:
        """Return a job when it has ended, or after at most `wait` seconds."""
        found: dict[str, Any] = yield from self._ask("GET", f"/v1/jobs/{name}", params={"wait": wait})
        return found

    @_Method
    def cancel_job(self, name: str) -> _Steps[dict[str, Any]]:
        """Cancel a queued job, or stop a backfill after its current batch."""
        found: dict[str, Any] = yield from self._ask("DELETE", f"/v1/jobs/{name}")
        return found

    @_Method
    def journal(self, last: int = 20) -> _Steps[list[dict[str, Any]]]:
        """Return the events of the upgrade, oldest first."""
        found: list[dict[str, Any]] = yield from self._ask("GET", "/v1/upgrade/journal", params={"last": last})
        return found

    def _ask(self, method: str, path: str, **content: Any) -> _Steps[Any]:
        """Send a request, again where that may help, and return what the answer holds.

        Raises:
            LimpetError: The service refuses, or cannot be reached.
        """
        pause, request = 0.2, self.http.build_request(method, path, **content)
        for left in range(self.retries, -1, -1):
            answer = yield request
            if isinstance(answer, httpx.Response) and answer.is_success:
                return answer.json() if answer.content else None
            if isinstance(answer, httpx.Response) and (not left or answer.status_code not in _TEMPORARY):
                raise _refused(answer)
            if isinstance(answer, httpx.TransportError) and not left:
                raise ServiceError(
                    0, f"The service {request.url.copy_with(path='')} does not answer: {answer}.",
                    to_do="check the address, and whether the service runs.",
                ) from answer  # fmt: skip
            asked = answer.headers.get("retry-after", "") if isinstance(answer, httpx.Response) else ""
            yield min(float(asked) if asked.isdigit() else pause, _LONGEST_PAUSE)
            pause *= 2
        raise AssertionError("unreachable")


def _embedded(items: Sequence[str] | Sequence[bytes]) -> dict[str, list[str]]:
    """Return the part of a request whose items the service is to embed."""
    images = [base64.b64encode(one).decode() for one in items if isinstance(one, bytes)]
    return {"images": images} if images else {"texts": [str(one) for one in items]}


def _refused(answer: httpx.Response) -> LimpetError:
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        return error_of(answer.json())
    return ServiceError(answer.status_code, f"The service answers {answer.status_code} {answer.reason_phrase}.")


def error_of(problem: Mapping[str, Any]) -> LimpetError:
    """Return the error of a problem document, in the class that the service raised."""
    named = str(problem.get("type", "")).rpartition(":")[2]
    kind = getattr(errors, named, None) if named in errors.__all__ else None
    parts = [str(problem.get(name, "")) for name in ("title", "expected", "to_do")]
    intact = str(problem.get("intact", ""))
    if kind in (None, ServiceError, errors.MissingExtraError):
        return ServiceError(int(problem.get("status", 0)), *parts, intact=intact)
    found: LimpetError = kind(*parts, intact=intact)
    return found


class Client(_Calls):
    """Client of `limpet serve`: searches, writes and upgrade steps, with the errors of `Gallery`.

    Requests that fail temporarily are retried; writes carry an idempotency key, so that each is applied once.

    Args:
        url: Base URL of the service, such as ``http://127.0.0.1:8520``.
        key: Key, where the service has keys.
        retries: How often a request is sent again.
        timeout: Seconds to wait for an answer.

    >>> with Client("http://127.0.0.1:8520") as client:  # doctest: +SKIP
    ...     hits = client.search(["my parcel did not come"], k=3).hits[0]
    """

    http: httpx.Client

    def __init__(self, url: str, *, key: str | None = None, retries: int = 5, timeout: float = 60.0) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        super().__init__(url, retries)
        self.http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def _run(self, steps: _Steps[_Result]) -> _Result:
        told: httpx.Response | httpx.TransportError | None = None
        try:
            while True:
                todo = steps.send(told)
                if isinstance(todo, float):
                    time.sleep(todo)
                    told = None
                    continue
                try:
                    told = self.http.send(todo)
                except httpx.TransportError as error:
                    told = error
        except StopIteration as end:
            result: _Result = end.value
            return result

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Calls):
    """Asyncio version of `Client`: every method returns an awaitable.

    Args:
        url: Base URL of the service.
        key: Key, where the service has keys.
        retries: How often a request is sent again.
        timeout: Seconds to wait for an answer.
    """

    http: httpx.AsyncClient

    def __init__(self, url: str, *, key: str | None = None, retries: int = 5, timeout: float = 60.0) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        super().__init__(url, retries)
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout)

    async def _run(self, steps: _Steps[_Result]) -> _Result:
        told: httpx.Response | httpx.TransportError | None = None
        try:
            while True:
                todo = steps.send(told)
                if isinstance(todo, float):
                    await asyncio.sleep(todo)
                    told = None
                    continue
                try:
                    told = await self.http.send(todo)
                except httpx.TransportError as error:
                    told = error
        except StopIteration as end:
            result: _Result = end.value
            return result

    async def close(self) -> None:
        """Close all connections."""
        await self.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
