"""A process that reads passes on what it is asked, also where the one that writes ends in the middle of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from limpet.service import problems
from limpet.service.app import _forwarded

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ndone"


@pytest.mark.parametrize(("headers", "status"), [({"Idempotency-Key": "a"}, 200), ({}, 503)])
def test_an_answer_that_breaks_off_is_asked_for_again_where_that_is_safe(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    answers = [WHOLE[:-2], WHOLE]

    async def writer(reader: asyncio.StreamReader, made: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        made.write(answers.pop(0))
        await made.drain()
        made.close()

    answer = asyncio.run(_asked(tmp_path, writer, asyncio.Event(), "POST", headers))
    assert (answer.status_code, len(answers)) == (status, 0 if status == 200 else 1)


def test_events_end_when_the_process_is_asked_to(tmp_path: Path) -> None:
    async def watched() -> httpx.Response:
        stopping = asyncio.Event()

        async def writer(reader: asyncio.StreamReader, made: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            made.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            await made.drain()
            stopping.set()
            await reader.read()  # until the reader lets go
            made.close()

        return await asyncio.wait_for(_asked(tmp_path, writer, stopping, "GET", {}), 10)

    assert asyncio.run(watched()).headers["content-type"] == "text/event-stream"


async def _asked(
    folder: Path, writer: Callable[..., Awaitable[None]], stopping: asyncio.Event, method: str, headers: dict[str, str]
) -> httpx.Response:
    """Ask a process that reads, whose writer is a function."""
    app, place = FastAPI(), str(folder / "writer.sock")
    app.include_router(_forwarded())
    problems.install(app)
    async with (
        await asyncio.start_unix_server(writer, place),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=place), base_url="http://writer") as forwarding,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reader") as client,
    ):
        app.state.serving = SimpleNamespace(forwarding=forwarding, stopping=stopping)
        return await client.request(method, "/v1/items", headers=headers)
