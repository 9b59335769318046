"""Requests that try to break out: refused with a problem, or taken as the text that they are."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from limpet.service import connections
from limpet.service.settings import RequestLimits
from service.services import Served, create, drawn, served

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service for all of these requests."""
    with served(create(f"memory:{tmp_path_factory.mktemp('hostile') / 'live'}")) as opened:
        yield opened.until_it_writes()


def raw(client: Served, request: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def test_a_job_that_is_not_there_has_no_events(client: Served) -> None:
    for method, path in (("GET", "/v1/jobs/0/events"), ("GET", "/v1/jobs/0"), ("DELETE", "/v1/jobs/0")):
        refused = client.request(method, path)
        assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json"), path


@pytest.mark.parametrize("path", [
    "/v1/jobs/..%2f..%2f..%2fetc%2fpasswd", "/v1/../../etc/passwd", "/console/static/..%2f..%2fconsole.py",
    "/console/static/../../console.py", "/static/../keys.py", "//etc/passwd", "/v1/upgrade/evidence/..%2fnew.npz",
    "/v1/jobs/%00", "/v1/upgrade/evidence/%2e%2e.npz",
])  # fmt: skip
def test_a_path_leads_to_no_file(client: Served, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = raw(client, request.encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in (303, 307, 400, 404, 422) and b"root:" not in answer and b"import " not in answer


@pytest.mark.parametrize("name", ["a b", "a" * 65, "é", "x\tSet-Cookie: a=b", "<b>", ""])
def test_a_name_of_a_request_is_plain_or_replaced(client: Served, name: str) -> None:
    head = "GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Request-ID: "
    answer = raw(client, head.encode() + name.encode() + b"\r\n\r\n")
    headers = answer.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
    assert " 200 " in headers.splitlines()[0] and "set-cookie" not in headers
    [given] = [line.partition(": ")[2] for line in headers.splitlines() if line.startswith("x-request-id")]
    assert len(given) == 16 and int(given, 16) >= 0


def test_a_line_break_in_a_header_is_refused(client: Served) -> None:
    head = b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Request-ID: a\rSet-Cookie: b=c\r\n\r\n"
    answer = raw(client, head)
    assert b" 400 " in answer.splitlines()[0] or b"set-cookie" not in answer.lower()


def test_script_stays_text(client: Served) -> None:
    wanted: dict[str, Any] = {
        "ids": [SCRIPT], "vectors": {"g1": drawn(1).tolist()}, "metadata": {"label": [SCRIPT], "price": [1]},
    }  # fmt: skip
    assert client.post("/v1/items", json=wanted).status_code == 200
    found = client.get("/v1/items", params={"id": SCRIPT})
    assert found.json()["items"][0]["metadata"]["label"] == SCRIPT
    refused = client.get(f"/v1/jobs/{SCRIPT.replace('/', '')}")
    for answer in (found, refused, client.post("/v1/search", json={"vectors": drawn(1).tolist(), "where": SCRIPT})):
        assert answer.headers["content-type"].startswith(("application/json", "application/problem+json"))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_body_that_does_not_say_how_long_it_is_is_cut_off(client: Served) -> None:
    def parts() -> Any:
        for _ in range(17):
            yield b" " * 2**20
        yield json.dumps({"vectors": drawn(1).tolist()}).encode()

    refused = client.post("/v1/search", content=parts(), headers={"Content-Type": "application/json"})
    assert refused.status_code == 413, refused.text


def opened(client: Served, sent: bytes) -> socket.socket:
    """Open a connection, and send the beginning of a request."""
    found = socket.create_connection((client.base_url.host, client.base_url.port), timeout=20)
    found.sendall(sent)
    return found


def ended(connection: socket.socket) -> bool:
    """Say whether a connection was closed; it fails where it stays open without an answer."""
    with connection, suppress(ConnectionResetError):
        return connection.recv(1000) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET /v1 HTTP/1.1\r\nHost: a\r\n"])
def test_connections_without_a_request_give_way(tmp_path: Path, sent: bytes) -> None:
    with (
        served(create(f"memory:{tmp_path / 'live'}"), limits=RequestLimits(connections=8)) as client,
        ExitStack() as all_of,
    ):
        first = opened(client, sent)
        for _ in range(30):
            all_of.enter_context(opened(client, sent))
        for number in range(3):
            assert client.get("/v1", headers={"Connection": "close"}).status_code == 200, number
        assert ended(first), "it gave way"


def test_a_request_that_does_not_arrive_is_given_up(client: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ARRIVED", 0.2)
    head = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    assert all(ended(opened(client, sent)) for sent in (b"", b"GET /v1 HT", head, head + b"{"))
    assert client.get("/v1").status_code == 200
