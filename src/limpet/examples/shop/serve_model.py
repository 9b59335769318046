"""Serve the sample model v2 behind the embeddings API of OpenAI, in place of a real server.

    python serve_model.py --port 8000
    python serve_model.py --stop

The server needs `pip install '.[text]'` in the checkout of limpet, listens on 127.0.0.1 only and requires no key.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HERE = Path(__file__).parent
RUNNING = HERE / "server-process.txt"


class Embeddings(BaseHTTPRequestHandler):
    """Answers POST /v1/embeddings."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Embed the texts of a request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/embeddings" or asked["model"] != "v2":
            return self.answer(404, {"error": {"message": f"there is no model {asked.get('model')!r} at {self.path}"}})
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        vectors = self.server.model.encode(texts).tolist()  # type: ignore[attr-defined]
        words = sum(len(text.split()) for text in texts)
        data = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(vectors)]
        usage = {"prompt_tokens": words, "total_tokens": words}
        return self.answer(200, {"object": "list", "model": "v2", "data": data, "usage": usage})

    def answer(self, status: int, body: object) -> None:
        """Send JSON."""
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    """Start or stop the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--stop", action="store_true", help="stop the server")
    arguments = parser.parse_args()
    if arguments.stop:
        if RUNNING.exists():
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(int(RUNNING.read_text()), signal.SIGTERM)
            RUNNING.unlink()
        print("The server is stopped.")
        return
    if RUNNING.exists():
        raise SystemExit(f"It was started before, see {RUNNING.name}. Stop it first: python serve_model.py --stop")
    server = HTTPServer(("127.0.0.1", arguments.port), Embeddings)
    if process := os.fork():
        RUNNING.write_text(f"{process}\n")
        print(f"The model v2 answers at http://127.0.0.1:{arguments.port}/v1")
        return
    from limpet.models.text_encoders import open_text_encoder

    os.setsid()
    with Path(os.devnull).open("r+") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    server.model = open_text_encoder(f"st:{HERE / 'models' / 'v2'}")  # type: ignore[attr-defined]
    server.serve_forever()


if __name__ == "__main__":
    main()
