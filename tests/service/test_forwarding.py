"""A process that reads passes on what it is asked, also where the one that writes ends in the middle of an answer."""

from __future__ import annotations

import asyncio
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

    async def asked() -> httpx.Response:
        app, place = FastAPI(), str(tmp_path / "writer.sock")
        app.include_router(_forwarded())
        problems.install(app)
        async with (
            await asyncio.start_unix_server(writer, place),
            httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=place), base_url="http://writer") as forwarding,
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reader") as client,
        ):
            app.state.serving = SimpleNamespace(forwarding=forwarding)
            return await client.post("/v1/items", headers=headers)

    answer = asyncio.run(asked())
    assert (answer.status_code, len(answers)) == (status, 0 if status == 200 else 1)
