"""A stand-in for Hugging Face's hub: repositories in memory, as far as huggingface_hub asks for them over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Hub(ThreadingHTTPServer):
    """Repositories by name, each with the contents of its files by path; those in `refused` may not be written."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refused: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/?]+)?(?:\?.*)?", self.path):
            return self.tell(found[1])
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/?]+(?:\?.*)?", self.path):
            files = self.server.repositories.get(found[1], {})
            return self.answer([{"type": "file", "path": name, "size": len(data), "oid": digest(data)[:40]}
                                for name, data in files.items()])  # fmt: skip
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path):
            files = self.server.repositories.get(found[1], {})
            if found[2] in files:
                data = files[found[2]]
                kept = {"ETag": f'"{digest(data)[:40]}"', "X-Repo-Commit": 40 * "a"}
                return self.answer(data, headers=kept)
        return self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def tell(self, name: str) -> None:
        if name not in self.server.repositories:
            return self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        siblings = [{"rfilename": file} for file in self.server.repositories[name]]
        return self.answer({"id": name, "modelId": name, "sha": 40 * "a", "siblings": siblings, "private": False})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if name in self.server.refused:
                return self.answer({"error": "You may not write here"}, 403)
            self.server.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.server.url}/{name}", "name": name})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/[^/?]+(?:\?.*)?", self.path):
            files = json.loads(body)["files"]
            modes = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            return self.answer({"files": modes})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/[^/?]+(?:\?.*)?", self.path):
            for line in body.splitlines():
                one = json.loads(line)
                if one["key"] == "file":
                    data = base64.b64decode(one["value"]["content"])
                    self.server.repositories[found[1]][one["value"]["path"]] = data
            link = f"{self.server.url}/{found[1]}/commit/{40 * 'a'}"
            return self.answer({"success": True, "commitUrl": link, "commitOid": 40 * "a", "hookOutput": ""})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        return self.answer({"error": f"what is {self.path}?"}, 404)

    def answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
