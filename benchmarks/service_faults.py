"""Whether a service keeps its promises under half-open connections, slow clients and repeated requests.

    python benchmarks/service_faults.py               # writes results/service_faults.json

A gallery in LanceDB is served from one process. Ten thousand connections are opened by turns and say nothing, or the
beginning of a request, while clients write items with an Idempotency-Key each, and search. A client that sends a byte a
second is among them. Every write is then repeated with its key: it has to get the answer it got before. All
acknowledged writes have to be there, each once. `service_load.py` kills processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from limpet.service.documents import encoded
from service_load import RESULTS, K, Served, drawn, search_by, served

BEGUN = (b"", b"GET /v1 HT", b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n{")
HELD = 2000  # half-open connections at a time, about twice as many as the service takes


def half_open(service: Served, count: int, over: threading.Event) -> int:
    """Open connections that never become a request, and keep the last of them open until it is over."""
    held, made = deque[socket.socket](), 0
    for number in range(count):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", service.port), timeout=30)
            held.append(connection)
            connection.sendall(BEGUN[number % len(BEGUN)])
            made += 1
        while len(held) > HELD:
            held.popleft().close()
    over.set()
    for connection in held:
        connection.close()
    return made


def slow(service: Served, over: threading.Event) -> int:
    """Send a request a byte a second, again where it is cut off; return how often it was."""
    cut = 0
    while not over.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            for byte in BEGUN[2] * 10:
                connection.sendall(bytes([byte]))
                if over.wait(1.0):
                    return cut
        cut += 1
    return cut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "service_faults.json")
    arguments = parser.parse_args()
    answers, found = dict[str, Any](), {"connections": arguments.connections, "busy": os.getloadavg()[0]}
    vectors, over, refused = [encoded(one[None]) for one in drawn(64, 7)], threading.Event(), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        url, made = f"lance:{folder}/live", EmbeddingSet(drawn(1000, 1), model="old")
        with Gallery.create(url, fingerprint=made.fingerprint, space=made.space) as gallery:
            gallery.add(made)
        with served(url) as service, ThreadPoolExecutor(8) as pool:

            def write(name: str) -> Any:
                body = json.dumps({"ids": [name], "vectors": {"g1": vectors[hash(name) % 64]}}).encode()
                while True:
                    with suppress(OSError):
                        status, told = service.ask("POST", "/v1/items", body, Content_Type="application/json",
                                                   Idempotency_Key=name)  # fmt: skip
                        if status == 200:
                            return told
                        refused.append(status)

            def writing(client: int) -> None:
                number = 0
                while not over.is_set():
                    name = f"{client}-{number}"
                    answers[name] = write(name)
                    number += 1

            def searching() -> int:
                search, number = search_by(service, drawn(64, 5), binary=True), 0
                while not over.is_set():
                    search(0, number)
                    number += 1
                return number

            threads = [pool.submit(writing, client) for client in range(3)]
            searches, cut = pool.submit(searching), pool.submit(slow, service, over)
            found["half_open"] = half_open(service, arguments.connections, over)
            for one in threads:
                one.result()
            found |= {"searches": searches.result(), "hits": K, "slow_client_cut_off": cut.result()}
            found["repeated_otherwise"] = sum(write(name) != told for name, told in answers.items())
        with Gallery.open(url) as gallery:
            keys = [one["key"] for entry in gallery.store.journal() for one in entry.event.get("requests", ())
                    if "key" in one]  # fmt: skip
            found |= {"acknowledged": len(answers), "refused": len(refused), "twice": len(keys) - len(set(keys)),
                      "lost": len(answers) - len(gallery.store.fetch(list(answers)).ids)}  # fmt: skip
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
