"""`limpet serve` says what is wrong before it serves."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from service.services import create


def test_what_is_wrong_is_said_before_anything_is_served(fails: Callable[..., str], tmp_path: Path) -> None:
    url, keys = create(f"memory:{tmp_path / 'live'}"), tmp_path / "keys"
    keys.write_text("shop read s3cret\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Cannot listen at 127.0.0.1, port {port}" in fails("serve", url, "--port", port)
        assert f"Cannot listen at 127.0.0.1, port {port}" in fails("serve", url, "--port", 0, "--health-port", port)
    assert "--keys FILE" in fails("serve", url, "--host", "0.0.0.0")
    said = fails("serve", url, "--keys", keys)
    assert "Line 1 of" in said and "s3cret" not in said
    assert "--certificate-key alone" in fails("serve", url, "--certificate-key", keys)
    assert "--readers -1" in fails("serve", url, "--readers", -1)
    assert "--readers with an index that an application owns" in fails(
        "serve", "postgresql://nobody@127.0.0.1:9/shop?table=items", "--readers", 2
    )
    fails("serve", tmp_path / "nowhere")
