"""A proxy between a client and a PostgreSQL server that delays every byte and counts round trips."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

READY = b"Z"  # type of the message ReadyForQuery


class Distance:
    """A local port that forwards to a PostgreSQL server with a delay.

    Args:
        sockets: Folder of the server's socket.
        round_trip: Seconds that are added to every round trip.
    """

    def __init__(self, sockets: Path, round_trip: float = 0.0) -> None:
        context = multiprocessing.get_context("spawn")
        told, port = context.Pipe()
        self._delay, self._trips = context.Value("d", round_trip / 2), context.Value("q", 0)
        values = (self._delay, self._trips)
        self._process = context.Process(target=_serve, args=(str(sockets / ".s.PGSQL.5432"), port, *values))
        self._process.daemon = True
        self._process.start()
        self.port: int = told.recv()

    def url(self, database: str) -> str:
        """Return the URL of a database through the proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?connect_timeout=60&sslmode=disable"

    def set(self, round_trip: float) -> None:
        """Change the delay, in seconds per round trip."""
        self._delay.value = round_trip / 2

    @property
    def round_trips(self) -> int:
        """Number of times that the server has answered everything and was ready for the next query."""
        return int(self._trips.value)

    def close(self) -> None:
        """Kill the proxy, with all connections."""
        self._process.kill()
        self._process.join()


def _serve(socket: str, port: multiprocessing.connection.Connection, delay: Any, trips: Any) -> None:
    asyncio.run(_forward(socket, port, delay, trips))


async def _forward(socket: str, port: multiprocessing.connection.Connection, delay: Any, trips: Any) -> None:
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
        while data := await reader.read(1 << 20):
            loop.call_later(delay.value, writer.write, data)
            yield data
        loop.call_later(delay.value, writer.close)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in carry(reader, writer):
            pass

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read = b""
        async for data in carry(reader, writer):
            read, start = read + data, 0
            while len(read) >= start + 5 and len(read) > (end := start + int.from_bytes(read[start + 1 : start + 5])):
                trips.value += read[start : start + 1] == READY
                start = end + 1
            read = read[start:]

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        await asyncio.gather(ask(reader, back), answer(there, writer), return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()
