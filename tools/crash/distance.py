"""A network between a client and a server: every byte arrives later than it was sent."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path


class Distance:
    """A port of this machine behind which a PostgreSQL server is as far away as one likes.

    Args:
        sockets: Folder of the server's socket.
        round_trip: Seconds from a question to its answer, apart from what the server takes.
    """

    def __init__(self, sockets: Path, round_trip: float = 0.0) -> None:
        context = multiprocessing.get_context("spawn")
        told, port = context.Pipe()
        self._delay = context.Value("d", round_trip / 2)
        self._process = context.Process(target=_serve, args=(str(sockets / ".s.PGSQL.5432"), port, self._delay))
        self._process.daemon = True
        self._process.start()
        self.port: int = told.recv()

    def url(self, database: str) -> str:
        """Return where a database is, seen from here."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?connect_timeout=60"

    def set(self, round_trip: float) -> None:
        """Move the server."""
        self._delay.value = round_trip / 2

    def close(self) -> None:
        """End it, with all connections."""
        self._process.kill()
        self._process.join()


def _serve(socket: str, port: multiprocessing.connection.Connection, delay: object) -> None:
    asyncio.run(_forward(socket, port, delay))


async def _forward(socket: str, port: multiprocessing.connection.Connection, delay: object) -> None:
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            loop.call_later(delay.value, writer.write, data)  # type: ignore[attr-defined]
        loop.call_later(delay.value, writer.close)  # type: ignore[attr-defined]

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        await asyncio.gather(carry(reader, back), carry(there, writer), return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()
